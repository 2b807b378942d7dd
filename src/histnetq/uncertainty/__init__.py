"""Intervals around estimates, audits, and trust in bags."""
