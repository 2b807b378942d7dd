"""Files and data frames as one kind of table: named columns, read in batches of rows."""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import glob
import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from histnetq.bags.checks import shown, wrong
from histnetq.bags.limits import LONGEST_NAME
from histnetq.tables.budget import within_budget
from histnetq.tables.csv_files import MISSING, look_at, refuse_twice
from histnetq.tables.files import refuse_same
from histnetq.tables.parquet_files import BATCH_ROWS, count_parquet_rows, read_parquet, read_parquet_schema

if TYPE_CHECKING:
    import pyarrow as pa

_ENDINGS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".gz": "csv"}
_look: ContextVar[Callable[[pa.RecordBatch], None] | None] = ContextVar("look", default=None)


@contextlib.contextmanager
def watched(look: Callable[[pa.RecordBatch], None]) -> Iterator[None]:
    """Let a function see every batch of rows that this thread reads; what it raises ends the reading."""
    token = _look.set(look)
    try:
        yield
    finally:
        _look.reset(token)


class Table:
    """Files or a data frame, read in batches of rows.

    Parameters
    ----------
    name : str
        What errors call it.
    schema : pyarrow.Schema
        Names and types of the columns.
    batches : callable
        A function of the columns to read, and of those among them that come as texts.
    written : bool, default=False
        Whether columns have no types, so that names come as texts.
    """

    def __init__(
        self, name: str, schema: pa.Schema, batches: Callable[..., Iterator[pa.RecordBatch]], written: bool = False
    ) -> None:
        self.name, self.columns, self.read_columns, self.written = name, schema.names, batches, written
        self.types = dict(zip(schema.names, schema.types, strict=True))
        refuse_twice(name, schema.names)
        _refuse_long(name, schema.names)

    def require(self, names: Sequence[str], learned: bool = False) -> None:
        """Refuse a table without one of these columns, which a model may have learned from."""
        for name in names:
            if name not in self.types:
                columns, near = shown(np.array(self.columns)), _nearest(name, self.columns)
                way_out = "add it, as the model has learned from it" if learned else "name one of them"
                perhaps = "" if near is None else f", perhaps {near!r}"
                raise ValueError(f"{self.name}: has no column {name!r}, its columns are {columns}; {way_out}{perhaps}.")

    def batches(self, numbers: Sequence[str], names: Sequence[str] = ()) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield some rows at a time of these columns, with the number of the first; refuse a table without rows.

        From a CSV file `names` come as they are written, as texts.
        """
        for name in (*numbers, *names):
            if not can_name(self.types[name]):
                expected = "texts or numbers" if name in names else "numbers"
                raise ValueError(
                    f"{self.name}: column {name!r} holds {self.types[name]}, expected {expected}; convert it."
                )
        n, look = 0, _look.get()
        for batch in self.read_columns(list(dict.fromkeys([*numbers, *names])), list(names)):
            if look is not None:
                look(batch)
            if batch.num_rows:
                yield n, _without_nan(batch, names)
            n += batch.num_rows
        if n == 0:
            raise ValueError(f"{self.name}: has no rows; check the file.")

    def is_empty(self) -> bool:
        return not any(batch.num_rows for batch in self.read_columns(self.columns, []))


def _without_nan(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The rows with NaN as missing, in columns of names; pandas makes it of missing whole numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in names:
        column = batch.column(name)
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
            batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    return batch


def open_table(source: Any, argument: str) -> Table:
    """Find out what a table holds without reading its rows."""
    items = source if isinstance(source, list | tuple) else [source]
    if not items or not all(isinstance(item, str | os.PathLike) for item in items):
        frame = _as_arrow(source, argument)
        return Table(argument, frame.schema, lambda columns, _: frame.select(columns).to_batches(BATCH_ROWS))
    paths = find_files(source, argument)
    kinds = {_kind(path, argument) for path in paths}
    if len(kinds) > 1:
        raise ValueError(f"{argument}: expected files of one kind, got {' and '.join(sorted(kinds))}; convert some.")
    return _open_parquet(paths) if kinds == {"parquet"} else _open_csv(paths)


@dataclass(frozen=True)
class Part:
    """Some rows of a table: a file, or some of the groups of rows of a Parquet file, by number."""

    path: str
    groups: tuple[int, ...] | None = None


def open_part(part: Part) -> Table:
    """The part as a table of its own."""
    return _open_csv([part.path]) if part.groups is None else _open_parquet([part.path], part.groups)


def split_files(source: Any, argument: str, n_rows: int) -> list[Part]:
    """Parts of about so many rows, in order: groups of rows of Parquet files, whole CSV files."""
    open_table(source, argument)
    return [part for path in find_files(source, argument) for part in _split_file(path, _kind(path, argument), n_rows)]


def _split_file(path: str, kind: str, n_rows: int) -> list[Part]:
    if kind == "csv":
        return [Part(path)]
    sizes = np.array(count_parquet_rows(path), np.int64)
    part = (np.cumsum(sizes) - sizes) // n_rows  # by the place of its first row
    return [Part(path, tuple(np.flatnonzero(part == k).tolist())) for k in np.unique(part)]


def release_memory() -> None:
    """Give back what arrow and the allocator of C keep of tables that were read."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)


def _nearest(name: str, columns: Sequence[str]) -> str | None:
    """The column whose name is most like another one, whatever the case of its letters; None if no column's is."""
    folded = {column.casefold(): column for column in columns}
    return next((folded[found] for found in difflib.get_close_matches(name.casefold(), list(folded), 1)), None)


def is_number(kind: Any) -> bool:
    import pyarrow as pa

    kinds = pa.types
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind))


def can_name(kind: Any) -> bool:
    """Whether values of this type can name bags and classes: texts, numbers and times."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    texts = kinds.is_string(kind) or kinds.is_large_string(kind)
    return bool(texts or is_number(kind) or kinds.is_temporal(kind) or kinds.is_null(kind))


def find_files(source: Any, argument: str) -> list[str]:
    """Paths of the files that a path, a glob or a list of them names."""
    found: list[str] = []
    for item in source if isinstance(source, list | tuple) else [source]:
        if not isinstance(item, str | os.PathLike):
            raise TypeError(f"{argument}: expected paths of files, got {type(item).__name__}; write a file first.")
        text = os.fspath(item)
        matches = [text] if os.path.exists(text) else sorted(glob.glob(text))
        if not matches:
            raise FileNotFoundError(f"{argument}: {text} does not exist; check the path.")
        for path in matches:
            if Path(path).is_dir():
                raise ValueError(
                    f"{argument}: {path} is a directory; name its files, such as {path}/*.parquet, or use read_images "
                    "if it holds images."
                )
            if not Path(path).is_file():  # to open a pipe would wait for a writer
                raise ValueError(f"{argument}: {path} is no regular file; write the table to one first.")
        found += matches
    refuse_same(found, argument)
    return found


def _kind(path: str, argument: str) -> str:
    suffixes = [s.lower() for s in Path(path).suffixes]
    kind = _ENDINGS.get(suffixes[-1] if suffixes else "")
    if kind is None or (suffixes[-1] == ".gz" and (len(suffixes) < 2 or _ENDINGS.get(suffixes[-2]) != "csv")):
        raise ValueError(f"{argument}: {path} ends neither in .parquet nor .csv; convert it to one of them.")
    return kind


def _open_parquet(paths: list[str], groups: Sequence[int] | None = None) -> Table:
    schemas = []
    for path in paths:
        with _reading(path, "cannot be read as Parquet", "write it again"):
            schemas.append(read_parquet_schema(path))
    _refuse_other_columns(paths, [schema.names for schema in schemas])

    # Not by pyarrow.dataset: with its defaults 2 million rows of 9 columns in two files took 320 MB beside the result
    # and 0.34 s, where this takes 97 MB and 0.11 s. With one batch ahead and no buffer it is as fast and as lean, but
    # it fails where a later file has another type than the first, and does not say which file is damaged.
    def batches(columns: list[str], names: list[str]) -> Iterator[pa.RecordBatch]:
        for path in paths:
            with _reading(path, "cannot be read", "write it again"):
                # One group of rows after the other: the whole file may be larger than memory.
                yield from read_parquet(path, columns, groups)

    return Table(_named(paths), schemas[0], batches)


def _open_csv(paths: list[str]) -> Table:
    import pyarrow as pa

    files = []
    for path in paths:
        with _reading(path, "cannot be read as CSV", "correct the file"):
            files.append(look_at(path))
    _refuse_other_columns(paths, [file.names for file in files])
    # Numbers as doubles: what looks like whole numbers in the first rows need not in the others.
    types = {"number": pa.float64(), "truth": pa.bool_(), "text": pa.string()}
    found = ((name, (file.kinds.get(name) for file in files)) for name in files[0].names)
    kinds = {name: next(filter(None, in_files), "text") for name, in_files in found}

    def batches(columns: list[str], names: list[str]) -> Iterator[pa.RecordBatch]:
        numbers = {name: kinds[name] for name in columns if name not in names and kinds[name] != "text"}
        wanted = {name: types[numbers.get(name, "text")] for name in columns}
        for file in files:
            for fault in (file.faults[name] for name in numbers if name in file.faults):
                raise ValueError(fault)
            with _reading(
                file.path, "cannot be read as CSV", "correct the file", partial(file.refuse_misfits, numbers)
            ):
                for batch in within_budget(file.read(columns, wanted)):
                    yield _without_missing(batch, kinds)

    return Table(_named(paths), pa.schema([(name, types[kind]) for name, kind in kinds.items()]), batches, written=True)


def _without_missing(batch: pa.RecordBatch, kinds: dict[str, str]) -> pa.RecordBatch:
    """Empty cells of texts are missing; in columns of numbers, which may come as texts, "NA" and the like are too."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_string(column.type):
            missing = pc.is_in(column, pa.array(MISSING[:1] if kinds[name] == "text" else MISSING))
            column = pc.if_else(missing, None, column) if pc.any(missing).as_py() else column
        columns.append(column)
    return pa.record_batch(columns, batch.schema.names)


@contextlib.contextmanager
def _reading(path: str, failure: str, way_out: str, explain: Callable[[], None] | None = None) -> Iterator[None]:
    """Turn what arrow says of a damaged file into one sentence; `explain` may raise a better one."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, MemoryError, SystemError) as error:
        if explain is not None:
            with contextlib.suppress(pa.ArrowException, OSError, MemoryError):
                explain()
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(f"{path}: {failure} ({reason}); {way_out}.") from None


def _refuse_long(table: str, names: Sequence[str]) -> None:
    longest = max(names, key=len, default="")
    if len(longest) > LONGEST_NAME:
        raise ValueError(
            f"{table}: has a column name of {len(longest):,} characters ({longest[:20]!r}…), expected at most "
            f"{LONGEST_NAME:,}; rename the column."
        )


def _refuse_other_columns(paths: list[str], names: list[list[str]]) -> None:
    for path, found in zip(paths, names, strict=True):
        for these, here, others, there in ((found, path, names[0], paths[0]), (names[0], paths[0], found, path)):
            known = set(these)
            lacking = next((name for name in others if name not in known), None)
            if lacking is not None:
                raise ValueError(
                    f"{here}: has no column {lacking!r}, which {there} has; give files with the same columns."
                )


def _named(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def _as_arrow(source: Any, argument: str) -> Any:
    import pyarrow as pa

    if hasattr(source, "to_arrow"):
        return source.to_arrow()
    if type(source).__module__.startswith("pandas"):
        try:
            return pa.Table.from_pandas(source, preserve_index=False)
        except pa.ArrowException as error:
            raise ValueError(f"{argument}: has a column of mixed types ({error}); convert it to one.") from None
        except UnicodeEncodeError:
            raise ValueError(
                f"{argument}: has a text with half a character (a lone surrogate), expected Unicode; repair how it was "
                "decoded."
            ) from None
    if hasattr(source, "__arrow_c_stream__"):
        return pa.table(source)
    expected, way_out = "a path, a list of paths or a data frame", "use Bags.from_arrays for arrays"
    raise wrong(argument, expected, type(source).__name__, way_out, TypeError)
