"""A program of several files: what it reaches, and the rules that need to know it."""
