"""The Flower app of polyfed."""
