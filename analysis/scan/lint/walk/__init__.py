"""The walk over a syntax tree and what it collects."""
