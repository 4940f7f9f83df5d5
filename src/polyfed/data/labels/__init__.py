"""Labels as users have them, and how they are coded and weighted."""
