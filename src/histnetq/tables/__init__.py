"""Tables of rows and of proportions → `Bags`."""

from histnetq.tables.reading import read_bags, read_bags_and_unseen

__all__ = ["read_bags", "read_bags_and_unseen"]
