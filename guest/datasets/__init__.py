"""The data sets: catalogue, files, loading, splitting. Imports numpy and no other room."""
