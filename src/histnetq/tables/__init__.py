"""Tables of rows and of proportions → `Bags`."""

from histnetq.tables.reading import read_bags, read_bags_and_unseen
from histnetq.tables.source import find_files
from histnetq.tables.streaming import sketch_table

__all__ = ["find_files", "read_bags", "read_bags_and_unseen", "sketch_table"]
