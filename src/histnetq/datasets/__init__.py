"""Named data sets, as labelled rows to learn from and bags to learn from, to choose by and to be scored on."""

from __future__ import annotations

from histnetq.datasets.bundled import digits
from histnetq.datasets.common import Dataset, Examples
from histnetq.datasets.fashion import fashion_mnist
from histnetq.datasets.fetching import fetch
from histnetq.datasets.lequa import lequa2022, lequa2024
from histnetq.datasets.npz import read_npz
from histnetq.datasets.sources import SOURCES

__all__ = [
    "SOURCES",
    "Dataset",
    "Examples",
    "digits",
    "fashion_mnist",
    "fetch",
    "lequa2022",
    "lequa2024",
    "read_npz",
]
