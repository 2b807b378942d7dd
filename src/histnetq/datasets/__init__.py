"""Named data sets, as labelled rows to learn from and bags to learn from, to choose by and to be scored on."""

from __future__ import annotations

from histnetq.datasets.dataset import Dataset, Examples, digits, read_npz
from histnetq.datasets.downloads import fetch
from histnetq.datasets.fashion import fashion_mnist
from histnetq.datasets.lequa import lequa2022, lequa2024, read_lequa
from histnetq.datasets.sources import SOURCES
from histnetq.datasets.submissions import check_submission, lequa_errors, write_submission

__all__ = [
    "SOURCES", "Dataset", "Examples", "check_submission", "digits", "fashion_mnist", "fetch", "lequa2022", "lequa2024",
    "lequa_errors", "read_lequa", "read_npz", "write_submission",
]  # fmt: skip
