"""Real tables with few labels: every method and every rival on the same rows. `python -m bench.tables --help`."""
