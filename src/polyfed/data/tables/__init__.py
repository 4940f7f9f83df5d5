"""Tables as users have them: files, databases, columns and rows become clients."""
