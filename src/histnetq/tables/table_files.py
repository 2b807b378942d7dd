"""The class `Table`: files or a data frame with named columns, read in batches of rows."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from histnetq.bags.checks import nearest_name, shown
from histnetq.bags.limits import LONGEST_NAME
from histnetq.errors import InputError, InputTypeError, MissingFileError, Option, StructuredError, Way
from histnetq.registry import READ
from histnetq.tables.files import refuse_same
from histnetq.tables.places import Address, as_place

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

BATCH_ROWS = 1 << 17
_MOST_SHOWN = 20  # columns that an error lists in full, so that the right one is among them
OTHER_FEATURES = (
    Way(", or name the features without this column", on=("python", "service")),
    Way(", or name other columns by ", Option("features"), on=("command",)),
)
_look: ContextVar[Callable[[pa.RecordBatch], None] | None] = ContextVar("look", default=None)


@contextlib.contextmanager
def watched(look: Callable[[pa.RecordBatch], None]) -> Iterator[None]:
    """Call a function with every batch of rows that this thread reads; an exception in it ends the reading."""
    token = _look.set(look)
    try:
        yield
    finally:
        _look.reset(token)


class NoRowsError(ValueError):
    """A table without rows, or with a missing value in every row."""


class Table:
    """Files or a data frame, read in batches of rows.

    Parameters
    ----------
    name : str
        Name of the table in error messages.
    schema : pyarrow.Schema
        Names and types of the columns.
    batches : callable
        Function of two lists: the columns to read, and those of them to read as texts.
    written : bool, default=False
        Whether the file stores no types, as in CSV, so that names of bags and classes are read as texts.
    """

    def __init__(
        self, name: str, schema: pa.Schema, batches: Callable[..., Iterator[pa.RecordBatch]], written: bool = False
    ) -> None:
        self.name, self.columns, self.read_columns, self.written = name, schema.names, batches, written
        self.types = dict(zip(schema.names, schema.types, strict=True))
        refuse_twice(name, schema.names)
        longest = max(schema.names, key=len, default="")
        if len(longest) > LONGEST_NAME:
            raise ValueError(
                f"{name}: has a column name of {len(longest):,} characters ({longest[:20]!r}…), expected at most "
                f"{LONGEST_NAME:,}; rename the column."
            )

    def require(self, names: Sequence[str], learned: bool = False) -> None:
        """Raise an error if a column is missing; `learned` says that a model was trained on these columns."""
        for name in names:
            if name not in self.types:
                columns, near = shown(np.array(self.columns), _MOST_SHOWN), nearest_name(name, self.columns)
                way_out = "add it, as the model has learned from it" if learned else "name one of them"
                perhaps = "" if near is None else f", perhaps {near!r}"
                raise ValueError(f"{self.name}: has no column {name!r}, its columns are {columns}; {way_out}{perhaps}.")

    def batches(self, numbers: Sequence[str], names: Sequence[str] = ()) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the number of the first row and the rows of each batch; raise an error for a table without rows.

        The columns `names` of a CSV file are read as texts.
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
                yield n, without_nan(batch, names)
            n += batch.num_rows
        if n == 0:
            raise NoRowsError(f"{self.name}: has no rows; check the file.")


def without_nan(batch: Any, names: Sequence[str]) -> Any:
    """Replace NaN by null in columns of names of a batch or table, as pandas stores missing whole numbers as NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in names:
        column = batch.column(name)
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
            batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    return batch


def open_table(source: Any, argument: str) -> Table:
    """Open a table and read its column names and types, but not its rows."""
    items = source if isinstance(source, list | tuple) else [source]
    if not items or not all(isinstance(item, str | os.PathLike) for item in items):
        frame = _as_arrow(source, argument)
        return Table(argument, frame.schema, lambda columns, _: frame.select(columns).to_batches(BATCH_ROWS))
    paths = find_files(source, argument)
    kinds = {format_of(path, argument) for path in paths}
    if len(kinds) > 1:
        raise InputError(argument, "files of one kind", " and ".join(sorted(kinds)), "convert some")
    table: Table = READ[kinds.pop()].load().open_files(paths)
    return table


def read_frame(source: Any, argument: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return all rows of a table as a data frame, with these columns or, by default, with all that can be read.

    Columns of CSV files become whole numbers if all of their cells are whole, and texts keep None for an empty cell.
    """
    import pandas as pd
    import pyarrow as pa

    if isinstance(source, pd.DataFrame):
        return source
    table = open_table(source, argument)
    if columns is None:
        columns = [name for name in table.columns if can_name(table.types[name])]
    table.require(columns)
    frame = pa.Table.from_batches([batch for _, batch in table.batches(columns)]).to_pandas()
    for name in frame.columns if table.written else ():
        if frame[name].dtype == np.float64 and (frame[name] % 1 == 0).all() and (frame[name].abs() < 2**53).all():
            frame[name] = frame[name].astype(np.int64)
    return frame


@dataclass(frozen=True)
class Part:
    """Part of a table: a whole file, or the row groups of a Parquet file with these numbers."""

    path: str
    groups: tuple[int, ...] | None = None


def open_part(part: Part) -> Table:
    """Open a part as a table."""
    module = READ[format_of(part.path, "source")].load()
    table: Table = module.open_files([part.path], *(() if part.groups is None else (part.groups,)))
    return table


def split_files(source: Any, argument: str, n_rows: int) -> list[Part]:
    """Split files into parts, in order: whole CSV files, and Parquet row groups of about `n_rows` rows together."""
    open_table(source, argument)
    parts: list[Part] = []
    for path in find_files(source, argument):
        kind = READ[format_of(path, argument)]
        parts += kind.load().split_file(path, n_rows) if kind.splits else [Part(path)]
    return parts


def release_memory() -> None:
    """Return freed memory to the operating system, which arrow and the C allocator otherwise keep."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim is not None:
        trim(0)


def is_number(kind: Any) -> bool:
    """Return whether a column of this type holds numbers or truth values."""
    import pyarrow as pa

    kinds = pa.types
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind))


def can_name(kind: Any) -> bool:
    """Return whether values of this type can name bags and classes: texts, numbers and times."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    texts = kinds.is_string(kind) or kinds.is_large_string(kind)
    return bool(texts or is_number(kind) or kinds.is_temporal(kind) or kinds.is_null(kind))


def find_files(source: Any, argument: str) -> list[str]:
    """Return the paths of the files that match a path, a glob, or a list of these."""
    found: list[str] = []
    for item in source if isinstance(source, list | tuple) else [source]:
        if not isinstance(item, str | os.PathLike):
            raise TypeError(f"{argument}: expected paths of files, got {type(item).__name__}; write a file first.")
        text, place = os.fspath(item), as_place(item, argument)
        if isinstance(place, Address):
            found += _find_objects(place, argument)
            continue
        matches = [text] if os.path.exists(text) else sorted(glob.glob(text))
        if not matches:
            raise FileNotFoundError(f"{argument}: {text} does not exist; check the path.")
        for path in matches:
            if Path(path).is_dir():
                remedy = (
                    f"name its files, such as {path}/*.parquet",
                    Way(", or use read_images if it holds images", on=("python",)),
                    Way(", or add ", Option("images", True), " if it holds images", on=("command",)),
                )
                raise InputError(argument, problem=f"{path} is a directory", remedy=remedy)
            if not Path(path).is_file():  # opening a named pipe would wait for a writer
                raise ValueError(f"{argument}: {path} is not a regular file; write the table to one first.")
        found += matches
    refuse_same(found, argument)
    return found


def _find_objects(place: Address, argument: str) -> list[str]:
    """Return the addresses of the files that match an address, or a glob in object storage."""
    kind = place.kind()
    if kind == "directory":
        remedy = f"name its files, such as {place}/*.parquet"
        raise InputError(argument, problem=f"{place} is a directory", remedy=remedy)
    matches = [place] if kind else place.matches()
    if not matches:
        raise MissingFileError(argument, problem=f"{place} does not exist", remedy="check the bucket and the name")
    return [str(match) for match in matches]


def format_of(path: str, argument: str) -> str:
    """Return the format of a file, based on the ending of its name."""
    for name, about in READ.items():
        if path.lower().endswith(about.endings):
            return name
    endings = " nor ".join(about.endings[0] for about in READ.values())
    raise InputError(argument, problem=f"{path} ends neither in {endings}", remedy="convert it to one of them")


def refuse_twice(table: str, names: Sequence[str]) -> None:
    """Raise an error if two columns have the same name."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{table}: has two columns {twice[0]!r}; rename one.")


@contextlib.contextmanager
def reading(path: str, failure: str, way_out: str, explain: Callable[[], None] | None = None) -> Iterator[None]:
    """Turn arrow's errors about a damaged file into one sentence; `explain` may raise a more precise error."""
    import pyarrow as pa

    try:
        yield
    except StructuredError:  # of a store, which says what is wrong
        raise
    except (pa.ArrowException, OSError, MemoryError, SystemError) as error:
        if explain is not None:
            with contextlib.suppress(pa.ArrowException, OSError, MemoryError):
                explain()
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(f"{path}: {failure} ({reason}); {way_out}.") from None


def refuse_other_columns(paths: list[str], names: list[list[str]]) -> None:
    """Raise an error if the files do not all have the same columns."""
    for path, found in zip(paths, names, strict=True):
        for these, here, others, there in ((found, path, names[0], paths[0]), (names[0], paths[0], found, path)):
            known = set(these)
            lacking = next((name for name in others if name not in known), None)
            if lacking is not None:
                raise ValueError(
                    f"{here}: has no column {lacking!r}, which {there} has; give files with the same columns."
                )


def name_files(paths: list[str]) -> str:
    """Return how messages name several files."""
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def _as_arrow(source: Any, argument: str) -> Any:
    import pyarrow as pa

    if hasattr(source, "to_arrow"):
        return source.to_arrow()
    if type(source).__module__.startswith("pandas"):
        refuse_twice(argument, [str(name) for name in source.columns])
        try:
            return pa.Table.from_pandas(source, preserve_index=False)
        except pa.ArrowException as error:
            raise ValueError(f"{argument}: has a column of mixed types ({error}); convert it to one.") from None
        except UnicodeEncodeError:
            raise ValueError(
                f"{argument}: has a text with an invalid character (a lone surrogate), expected Unicode; read the file "
                "again with the right encoding."
            ) from None
    if hasattr(source, "__arrow_c_stream__"):
        return pa.table(source)
    expected, way_out = "a path, a list of paths or a data frame", "use Bags.from_arrays for arrays"
    raise InputTypeError(argument, expected, type(source).__name__, way_out)
