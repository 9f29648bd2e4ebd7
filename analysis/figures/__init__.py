"""Figures; they compute nothing. May import `cost`, `quality` and below."""
