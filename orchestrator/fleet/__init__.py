"""Sweeps on many hosts over dask: dispatch, hosts, workers, clusters.
May import `engine`, `guests` and below."""
