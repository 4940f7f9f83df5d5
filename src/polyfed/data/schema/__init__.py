"""What clients agree on before they learn (columns, classes, units), what may be said about it, and rows coded by it."""
