"""The order of data: where it comes from, and what a file does with it."""
