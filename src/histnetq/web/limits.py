"""`TableLimits`: limits of uploaded tables and of responses."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from histnetq.registry import FORMATS
from histnetq.tables.budget import Budget, limited_to
from histnetq.tables.parquet_files import read_parquet_schema
from histnetq.web.errors import RefusedError, as_refusals

_BLOCK = 4 << 20  # bytes of a CSV file; no row is longer
_SEPARATORS = b",;\t|"


@dataclass(frozen=True)
class TableLimits:
    """Limits of an uploaded table and of a response.

    Attributes
    ----------
    bytes : int
        Size of the file, and of a response. The work on a table may use four times as much memory.
    rows, columns : int
        Numbers of rows and columns.
    cell_bytes : int
        Size of the text in one cell.
    """

    bytes: int
    rows: int = 100_000_000
    columns: int = 10_000
    cell_bytes: int = 65_536

    def budget(self) -> Budget:
        """Return the budget for the work on one table."""
        return Budget(4 * self.bytes, self.rows, self.columns, self.cell_bytes)

    def check_bytes(self, n: int) -> None:
        """Refuse a body of `n` bytes if that is too many."""
        if n > self.bytes:
            raise RefusedError(413, f"body: expected at most {self.bytes:,} bytes, got more; send a smaller file.")

    def check_rows(self, n: int) -> None:
        """Refuse `n` rows if that is too many."""
        with as_refusals():
            self.budget().check("rows", n, self.rows, "send them in parts")

    def check_cells(self, n_rows: int, n_columns: int) -> None:
        """Refuse a table with too many rows, columns or cells."""
        with as_refusals():
            self.budget().check_cells(n_rows, n_columns)

    def check_file(self, path: Path) -> None:
        """Refuse a file with too many rows, columns or bytes, before its rows are read."""
        with limited_to(self.budget()) as budget:
            if is_parquet(path):
                read_parquet_schema(path)
            elif is_csv(path):  # readers of further formats check files themselves
                _check_header(path, budget)

    def answered(self, parts: Iterable[str], remedy: str) -> Iterator[builtins.bytes]:
        """Yield the parts of a response as bytes; refuse once they are too large together."""
        n = 0
        for part in parts:
            content = part.encode()
            n += len(content)
            if n > self.bytes:
                raise RefusedError(
                    413, f"response: it would have more than {self.bytes:,} bytes, which is the limit; {remedy}."
                )
            yield content


def is_parquet(path: Path) -> bool:
    """Return whether the name of a file ends like a Parquet file."""
    return path.suffix in FORMATS["parquet"].endings


def is_csv(path: Path) -> bool:
    """Return whether the name of a file ends like a CSV file."""
    return path.suffix in FORMATS["csv"].endings


def _check_header(path: Path, budget: Budget) -> None:
    """Refuse a CSV file if a line in its first block has too many cells."""
    with path.open("rb") as file:
        signs = np.frombuffer(file.read(_BLOCK), np.uint8)
    ends = np.append(np.flatnonzero(signs == ord("\n")), len(signs))
    for separator in _SEPARATORS:
        n_before = np.searchsorted(np.flatnonzero(signs == separator), ends)
        most = int(np.diff(n_before, prepend=0).max())
        budget.check("columns", most + 1, budget.columns, "send those that are needed")
