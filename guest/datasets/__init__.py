"""The data sets: catalogue, files, loading, splitting. May import `records`."""
