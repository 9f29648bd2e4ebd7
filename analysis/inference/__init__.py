"""Tests between thread counts, variance components, power, sequential rules, published numbers.
May import `stats` and below."""
