"""Errors, comparisons, plots, and the search for parameters. Imports `quantifiers` and `interop`."""
