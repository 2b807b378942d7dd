"""Limits of uploaded tables and answers: the settings of the budget for the work on one table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from histnetq.registry import FORMATS
from histnetq.tables.budget import Budget, limited_to
from histnetq.tables.parquet_files import read_parquet_schema
from histnetq.web.errors import RefusedError, told_to_users

Content = bytes
_BLOCK = 4 << 20  # bytes of a CSV file: no row is longer
_SEPARATORS = b",;\t|"


@dataclass(frozen=True)
class Limits:
    """Limits of an uploaded table and of an answer.

    Attributes
    ----------
    bytes : int
        Size of the file, and of an answer. The work on a table may take four times as much memory.
    rows, columns : int
        Their numbers.
    cell_bytes : int
        Size of one text.
    """

    bytes: int
    rows: int = 100_000_000
    columns: int = 10_000
    cell_bytes: int = 65_536

    @property
    def unpacked(self) -> int:
        """Bytes of all that is in memory for a table."""
        return 4 * self.bytes

    def budget(self) -> Budget:
        """Give the account of the work on one table."""
        return Budget(self.unpacked, self.rows, self.columns, self.cell_bytes)

    def check_bytes(self, n: int) -> None:
        """Refuse a body of so many bytes."""
        if n > self.bytes:
            raise RefusedError(413, f"body: expected at most {self.bytes:,} bytes, got more; send a smaller file.")

    def check_rows(self, n: int) -> None:
        """Refuse so many rows."""
        with told_to_users():
            self.budget().check("rows", n, self.rows, "send them in parts")

    def check_cells(self, n_rows: int, n_columns: int) -> None:
        """Refuse so many rows and columns, or so many cells that they do not fit."""
        with told_to_users():
            self.budget().check_cells(n_rows, n_columns)

    def check_file(self, path: Path) -> None:
        """Refuse a file that is too large in any way, before its rows are read."""
        with told_to_users(path.parent), limited_to(self.budget()) as budget:
            if is_parquet(path):
                read_parquet_schema(path)
            else:
                _check_header(path, budget)

    def answered(self, parts: Iterable[str], way_out: str) -> Iterator[Content]:
        """Give the parts of an answer as they are made, until they are too large together."""
        n = 0
        for part in parts:
            content = part.encode()
            n += len(content)
            if n > self.bytes:
                raise RefusedError(413, f"answer: expected at most {self.bytes:,} bytes, got more; {way_out}.")
            yield content


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its name."""
    return path.suffix in FORMATS["parquet"].endings


def _check_header(path: Path, budget: Budget) -> None:
    """Refuse a CSV file with too many cells in any line of its beginning, where the names of the columns are."""
    with path.open("rb") as file:
        signs = np.frombuffer(file.read(_BLOCK), np.uint8)
    ends = np.append(np.flatnonzero(signs == ord("\n")), len(signs))
    for separator in _SEPARATORS:
        n_before = np.searchsorted(np.flatnonzero(signs == separator), ends)
        most = int(np.diff(n_before, prepend=0).max())
        budget.check("columns", most + 1, budget.columns, "send those that are needed")
