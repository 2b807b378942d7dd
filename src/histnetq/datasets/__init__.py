"""Named data sets: labelled rows, and bags for training, validation and testing."""

from __future__ import annotations

from histnetq.datasets.dataset import Dataset, Examples, digits
from histnetq.datasets.downloads import fetch
from histnetq.datasets.lequa import lequa2022, lequa2024, read_lequa
from histnetq.datasets.sources import SOURCES
from histnetq.datasets.submissions import check_submission, lequa_errors, write_submission

__all__ = [
    "SOURCES",
    "Dataset",
    "Examples",
    "check_submission",
    "digits",
    "fetch",
    "lequa2022",
    "lequa2024",
    "lequa_errors",
    "read_lequa",
    "write_submission",
]
