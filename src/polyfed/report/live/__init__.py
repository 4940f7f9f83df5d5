"""The page that follows a run while it goes on."""
