"""Sketches that a database computes: a query in its dialect, and the check of the result."""
