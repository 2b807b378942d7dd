"""Bags on a pool of rows, how they are checked, drawn and read from tables. Imports `simplex` and `kernels`."""
