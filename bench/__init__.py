"""Benchmarks: every figure is measured against its yardstick in one run, turn by turn. `make bench` runs them."""
