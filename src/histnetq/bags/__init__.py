"""Bags on one pool of rows: construction, checks and sampling protocols."""
