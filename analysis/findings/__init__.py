"""Findings F1 to F5 and implications I1 to I5, decided from the tables.
May import the tables' rooms and below."""
