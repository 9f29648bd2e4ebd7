"""The walk over a syntax tree, and what its parts share: arguments, defaults, names of a module."""
