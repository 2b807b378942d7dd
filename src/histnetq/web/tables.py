"""Uploaded tables: storage, a description of their columns, and guesses at the role of each column."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from histnetq.registry import FORMATS
from histnetq.tables.budget import is_text, limited_to
from histnetq.tables.parquet_files import count_parquet_rows, read_parquet
from histnetq.tables.table_files import Table, can_name, is_number, open_table, release_memory
from histnetq.web.errors import RefusedError
from histnetq.web.limits import TableLimits, is_csv, is_parquet
from histnetq.web.uploads import Spool

ENDINGS = tuple(end for known in FORMATS.values() for end in known.endings if not end.endswith(".gz"))
_KEPT = 3600.0  # seconds after the last use
_ABOUT = "about.json"  # next to a table, whose name never ends in .json
_PREVIEW, _PREVIEW_CELLS, _LONGEST = 10, 10_000, 80  # rows, cells, and characters of a cell
_LOOKED_AT = 20_000  # rows that guesses are based on
_BEGINNING = 8 << 20  # bytes at the start of a CSV file that are read
_CELLS_LOOKED_AT, _TEXTS_LOOKED_AT = 2_000_000, 16 << 20  # cells, and bytes of text, that guesses are based on
_PERIODS = {"Y": 366 * 86400, "Q": 92 * 86400, "M": 31 * 86400, "W": 7 * 86400, "D": 86400, "h": 3600, "min": 60}
_ENOUGH = 12  # periods: half of them are the reference
_TIME = r"^\d{4}-\d{2}(-\d{2}([T ]\d{2}(:\d{2}.{0,40})?)?)?$"
_BAG_NAMES = ("bag", "tow", "haul", "sample", "batch", "site", "station", "group", "lot", "trap", "plot", "id")
_LABEL_NAMES = ("label", "class", "species", "target", "category", "y", "truth", "diagnosis")
_TIME_NAMES = ("time", "date", "timestamp", "ts", "when", "day")


@dataclass
class StoredTable:
    """An uploaded table.

    Attributes
    ----------
    id, name : str
        The id in requests, and the cleaned name of the file.
    path : Path
        The file.
    n_bytes : int
        Size of the file.
    n_rows : int
        Number of rows; for CSV files, the number of line breaks.
    used : float
        Time of the last use.
    n_users : int
        Number of jobs that use the table.
    """

    id: str
    name: str
    path: Path
    n_bytes: int = 0
    n_rows: int = 0
    used: float = field(default_factory=time.monotonic)
    n_users: int = 0

    @property
    def about(self) -> dict[str, Any]:
        """The description for clients, which is kept in a file because tables may have many columns."""
        found: dict[str, Any] = json.loads((self.path.parent / _ABOUT).read_text())
        return found

    def release(self) -> None:
        """End the use by a job."""
        self.n_users -= 1
        self.used = time.monotonic()

    def describe(self) -> dict[str, Any]:
        """Return the description for clients."""
        self.used = time.monotonic()
        return {**self.about, "expires_in": _KEPT}


class Tables:
    """Uploaded tables by their ids, in files of `spool`. All tables together may be four times as large as one."""

    def __init__(self, spool: Spool, limits: TableLimits) -> None:
        self.spool, self.limits, self._tables = spool, limits, dict[str, StoredTable]()
        self._arriving: dict[str, int] = {}  # largest sizes of the tables that are being received

    def get(self, key: str) -> StoredTable:
        """Return a table that has not expired."""
        self.expire()
        if key not in self._tables:
            raise RefusedError(404, "table: there is none of this id, or it has expired; send the file again.")
        table = self._tables[key]
        table.used = time.monotonic()
        return table

    def begin(self, name: str, n_bytes: int) -> StoredTable:
        """Create the directory of a table that will be received and has at most `n_bytes`."""
        clean = clean_name(name)
        self.expire()
        self._make_room(n_bytes)
        key = f"t_{uuid.uuid4().hex}"
        self._arriving[key] = n_bytes
        return StoredTable(key, clean, self.spool.make(key) / clean)

    def keep(self, table: StoredTable, n_bytes: int, about: dict[str, Any]) -> StoredTable:
        """Store a received table of `n_bytes` with its description by `look_at`."""
        about = {"id": table.id, "name": table.name, "bytes": n_bytes, **about}
        (table.path.parent / _ABOUT).write_text(json.dumps(about))
        table.n_bytes, table.n_rows = n_bytes, about["rows"]
        self._tables[table.id] = table
        self._arriving.pop(table.id, None)
        return table

    def drop(self, table: StoredTable) -> None:
        """Delete a table."""
        self._tables.pop(table.id, None)
        self._arriving.pop(table.id, None)
        shutil.rmtree(table.path.parent, ignore_errors=True)

    def expire(self) -> None:
        """Delete tables that were not used for an hour."""
        before = time.monotonic() - _KEPT
        for table in [t for t in self._tables.values() if t.used < before and not t.n_users]:
            self.drop(table)

    def _make_room(self, n_bytes: int) -> None:
        """Delete the least recently used tables until there is room for `n_bytes`."""
        idle = sorted((t for t in self._tables.values() if not t.n_users), key=lambda t: t.used)
        most = 4 * self.limits.bytes - sum(self._arriving.values()) - n_bytes
        while sum(t.n_bytes for t in self._tables.values()) > most or len(self._tables) >= 100:
            if not idle:
                raise RefusedError(429, "tables: those in use take all room; try again later.", Retry_After="60")
            self.drop(idle.pop(0))


def clean_name(name: str) -> str:
    """Return the name of an uploaded file without directories and without special characters of a shell.

    Examples
    --------
    >>> clean_name("../../etc/my rows (1).CSV")
    'my_rows_1_.csv'
    """
    last = re.split(r"[/\\]", name)[-1]
    stem, dot, ending = last.rpartition(".")
    ending = f".{ending.lower()}"
    if not dot or ending not in ENDINGS:
        raise RefusedError(415, f"name: expected a file that ends in {', '.join(ENDINGS)}; convert it to one of them.")
    clean = re.sub(r"[^\w.-]+", "_", stem, flags=re.ASCII).lstrip("-.")[:80]
    return f"{clean or 'table'}{ending}"


def look_at(file: Path, n_lines: int, limits: TableLimits) -> dict[str, Any]:
    """Describe the columns and first rows of a file; `n_lines` is the number of line breaks of a CSV file."""
    exact = not is_csv(file)
    with _beginning(file) as path, limited_to(limits.budget()) as budget:
        n_rows = sum(count_parquet_rows(path)) if is_parquet(path) else max(0, n_lines - 1)
        budget.check_cells(n_rows, 1)
        opened = open_table([str(path)], "table")
        if not (is_csv(path) or is_parquet(path)):
            n_rows = sum(batch.num_rows for _, batch in opened.batches([], opened.columns[:1]))
        budget.check_cells(n_rows, len(opened.columns))
        first = _first_rows(opened, path)
    release_memory()
    shown = set(first.schema.names)
    kinds = {n: _kind(opened.types[n], first.column(n)) if n in shown else "other" for n in opened.columns}
    return {
        "rows": n_rows, "rows_exact": exact,
        "columns": [{"name": name, "kind": kind} for name, kind in kinds.items()],
        "preview": _preview(first, opened.columns), "guess": guess(first, kinds, n_rows),
    }  # fmt: skip


@contextlib.contextmanager
def _beginning(path: Path) -> Iterator[Path]:
    """Return a file with the first complete lines of a large CSV file, whose reader would hold 32 blocks in memory.

    Other files are returned unchanged.
    """
    if not is_csv(path) or path.stat().st_size <= _BEGINNING:
        yield path
        return
    with path.open("rb") as file:
        signs = np.frombuffer(file.read(_BEGINNING), np.uint8)
    quoted = np.cumsum(signs == ord('"'), dtype=np.int32) % 2 == 1  # a quoted line break does not end a row
    ends = np.flatnonzero((signs == ord("\n")) & ~quoted)
    if not len(ends):
        yield path
        return
    place = path.parent / "beginning"
    place.mkdir()
    try:
        (place / path.name).write_bytes(signs[: ends[-1] + 1].tobytes())
        yield place / path.name
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _first_rows(table: Table, path: Path) -> pa.RecordBatch:
    """Return the first rows of the usable columns, with plain texts; fewer rows if these are long."""
    usable = [name for name in table.columns if can_name(table.types[name])]
    if is_parquet(path):
        n_rows = min(_LOOKED_AT, 1 + _CELLS_LOOKED_AT // max(1, len(usable)))
        first = next(read_parquet(path, usable, most_rows=n_rows), None)
    else:
        first = next((batch for _, batch in table.batches([], usable)), None)
    if first is None:
        raise RefusedError(422, f"{path.name}: has no rows; check the file.")
    return _written_out(first.slice(0, _LOOKED_AT))


def _written_out(first: pa.RecordBatch) -> pa.RecordBatch:
    """Return the first rows up to a limit of text bytes, with dictionary columns decoded to plain texts."""
    n_bytes = np.zeros(first.num_rows, np.int64)
    for column in (column for column in first.columns if is_text(column.type)):
        coded = hasattr(column, "dictionary")
        sizes = pc.binary_length(column.dictionary if coded else column)
        n_bytes += np.asarray((sizes.take(column.indices) if coded else sizes).fill_null(0))
    few = first.slice(0, max(1, int(np.searchsorted(np.cumsum(n_bytes), _TEXTS_LOOKED_AT))))
    plain = [column.dictionary_decode() if hasattr(column, "dictionary") else column for column in few.columns]
    return pa.record_batch(plain, first.schema.names)


def _kind(kind: Any, cells: Any) -> str:
    kinds = pa.types
    if kinds.is_boolean(kind):
        return "truth"
    if is_number(kind):
        return "number"
    if kinds.is_timestamp(kind) or kinds.is_date(kind):
        return "time"
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    if not (kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_null(kind)):
        return "other"
    known = cells.drop_null()
    fits = len(known) > 0 and not kinds.is_null(kind) and pc.all(pc.match_substring_regex(known, _TIME)).as_py()
    return "time" if fits else "text"


def _preview(first: pa.RecordBatch, names: list[str]) -> list[list[str | None]]:
    """Return the first cells as texts; None for missing values and for columns that cannot be shown."""
    few = first.slice(0, max(1, min(_PREVIEW, _PREVIEW_CELLS // max(1, len(names)))))
    known = set(first.schema.names)
    nothing = [None] * few.num_rows
    columns = [[_shown(c) for c in few.column(name).to_pylist()] if name in known else nothing for name in names]
    return [list(row) for row in zip(*columns, strict=True)]


def _shown(cell: Any) -> str | None:
    if cell is None:
        return None
    text = f"{cell:.6g}" if isinstance(cell, float) else str(cell)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def guess(first: pa.RecordBatch, kinds: Mapping[str, str], n_rows: int) -> dict[str, Any]:
    """Guess the columns with bags, times and classes from their names and the first of `n_rows` rows.

    Examples
    --------
    >>> import pyarrow as pa
    >>> rows = {"tow": ["a", "a", "b", "b"], "length": [1.0, 2.0, 3.5, 4.0], "species": ["cod", "eel", "cod", "cod"]}
    >>> guess(pa.record_batch(rows), {"tow": "text", "length": "number", "species": "text"}, 4)
    {'bag': ['tow'], 'time': None, 'period': None, 'label': 'species'}
    """
    n = first.num_rows
    counts = {name: len(first.column(name).unique()) for name in first.schema.names}
    few = [name for name, count in counts.items() if 2 <= count <= max(2, n // 2) and kinds[name] in ("text", "truth")]
    label = _named(few, _LABEL_NAMES)
    time_ = _named([name for name, kind in kinds.items() if kind == "time"], _TIME_NAMES, first=True)
    repeated = [
        name for name, count in counts.items()
        if count < n and name != label and (kinds[name] in ("text", "time") or _is_whole(first.column(name)))
    ]  # fmt: skip
    bag = _named([name for name in repeated if name != time_], _BAG_NAMES) or next(
        (name for name in few if name != label), None
    )
    period = None if time_ is None else guess_period(first.column(time_), n_rows)
    return {"bag": [] if bag is None else [bag], "time": time_, "period": period, "label": label}


def guess_period(cells: pa.Array, n_rows: int) -> str:
    """Guess a period from the first times of `n_rows` rows: the longest period that fits a dozen times.

    If the times increase from row to row, the remaining rows are assumed to continue them; if not, to have the same
    range. No period is shorter than the resolution of the times.

    Examples
    --------
    >>> import pyarrow as pa
    >>> guess_period(pa.array(["2026-01-05", "2026-03-01", "2026-06-30"]), 3)
    'W'
    >>> guess_period(pa.array(["2026-01-05", "2026-01-06", "2026-01-07"]), 300)
    'W'
    """
    texts = cells.to_pandas().astype(str)
    texts = texts.where(texts.str.len() != len("2026-01"), texts + "-01")
    times = pd.to_datetime(texts, utc=True, errors="coerce", format="ISO8601").dropna()
    if not len(times):
        return "W"
    span = (times.max() - times.min()).total_seconds()
    if times.is_monotonic_increasing:
        span *= n_rows / len(cells)
    days, periods = times.dt.floor("D"), list(_PERIODS)
    months = (times == days) & (times.dt.day == 1) & (times.nunique() > 1)
    unit = {"W": months, "h": times == days, "min": times == times.dt.floor("h")}
    shorter = next((name for name, fits in unit.items() if fits.all()), None)
    periods = periods if shorter is None else periods[: periods.index(shorter)]
    return next((name for name in periods if span >= _ENOUGH * _PERIODS[name]), periods[-1])


def _named(columns: list[str], known: tuple[str, ...], first: bool = False) -> str | None:
    """Return the column with a known name, or with a known word in its name; else None, or the first if `first`."""
    same = [column for name in known for column in columns if column.lower() == name]
    words = {column: re.split(r"[^a-z]+", column.lower()) for column in columns}
    similar = [column for name in known for column in columns if name in words[column]]
    return next(iter([*same, *similar, *(columns if first else [])]), None)


def _is_whole(cells: Any) -> bool:
    if pa.types.is_integer(cells.type):
        return True
    return bool(pa.types.is_string(cells.type) and pc.all(pc.match_substring_regex(cells, r"^\d+$")).as_py())
