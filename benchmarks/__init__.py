"""Ratios against peers, each measured within one run of the benchmark: `python -m benchmarks [NAME]`."""
