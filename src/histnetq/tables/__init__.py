"""Tables of rows and of proportions → `Bags`."""

from histnetq.tables.reading import read_bags

__all__ = ["read_bags"]
