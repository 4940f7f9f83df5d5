"""Features as users have them, and the numbers that models see: matrices, dates, units, scales."""
