"""Methods in which clients share a network, or sums of its features: a trunk, a head for each task."""
