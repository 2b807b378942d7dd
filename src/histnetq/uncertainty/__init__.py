"""Intervals around estimates, and trust in bags. Imports `sketches` and `data`."""
