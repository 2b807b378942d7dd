"""JSON lines: files with one JSON object per row, such as the samples of lm-evaluation-harness."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from histnetq.errors import InputError, StructuredError
from histnetq.tables.csv_files import open_bytes
from histnetq.tables.evaluations import row_of
from histnetq.tables.json_values import LARGEST, flatten, parse_json, table_of
from histnetq.tables.table_files import Table

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

__all__ = ["open_files", "write_file"]


def open_files(paths: list[str]) -> Table:
    """Open JSON lines as one table; the rows of known evaluation tools get the columns of `evaluations`."""
    return table_of(paths, (row for path in paths for row in _rows(path)))


def write_file(frame: pd.DataFrame, path: Path, index: bool, name: str) -> None:
    """Write a data frame, compressed if `name` ends in .gz."""
    frame = frame.reset_index() if index else frame
    packing = "gzip" if name.endswith(".gz") else None
    frame.to_json(path, orient="records", lines=True, date_format="iso", force_ascii=False, compression=packing)


def _rows(path: str) -> Iterator[dict[str, Any]]:
    for n, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        place = f"{path}, line {n}"
        record = parse_json(line, place)
        if not isinstance(record, dict):
            remedy = "write one object per line, or rename the file to end in .json if it is one list"
            raise InputError(place, "an object with names and values", type(record).__name__, remedy)
        try:
            yield row_of(record, path) or flatten(record)
        except ValueError as error:
            raise InputError(place, problem=str(error), remedy="") from None
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            problem = f"has another structure than its tool writes ({type(error).__name__}: {str(error)[:120]})"
            raise InputError(place, problem=problem, remedy="convert it to CSV") from None


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file, none longer than one byte above the limit of JSON."""
    try:
        with open_bytes(path) as file:
            while line := file.readline(LARGEST + 1):
                yield line
    except StructuredError:
        raise
    except (OSError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{path}: cannot be read ({reason}); write or fetch the file again.") from None
