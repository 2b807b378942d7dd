"""Parquet files: all Parquet files are opened here, within the budget of this thread.

A small compressed file may contain a huge table. Therefore sizes are checked before any column is read, and text
columns are read as dictionary arrays: a list of distinct texts and one number per row.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from histnetq.tables.budget import Budget, TooLargeError, current_budget, within_budget
from histnetq.tables.parquet_pages import read_pages
from histnetq.tables.places import is_address, open_binary
from histnetq.tables.table_files import BATCH_ROWS, Part, Table, name_files, reading, refuse_other_columns

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_MB = 1 << 20
_BUFFER = _MB  # bytes of a column that are read from the file at once
_FOOTER = (4 * _MB, 16 * _MB)  # largest footer of a file, for small and large budgets
_PAGE = (16 * _MB, 512 * _MB)  # largest decompressed page, for small and large budgets
_LARGEST_CHUNK = 512 * _MB  # bytes of one decompressed column in one row group
_MOST_PARTS = 1_000_000  # row groups times columns
_LIGHT, _MOST_BY_SNAPPY = ("UNCOMPRESSED", "SNAPPY"), 22  # Snappy expands three bytes to at most 64
_NUMBERS = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE")
_TEXT, _CODED = "BYTE_ARRAY", (2, 8)  # the second are the dictionary encodings
_DELTA_BYTE_ARRAY = 7  # each text repeats the beginning of the previous one, so few bytes may expand to many
Source = str | os.PathLike[str] | IO[bytes]


class _RefusedEncoding(ValueError):  # noqa: N818
    """An encoding that can expand a few bytes to many."""


def open_files(paths: list[str], groups: Sequence[int] | None = None) -> Table:
    """Open Parquet files, or the row groups with these numbers, as one table."""
    schemas = []
    for path in paths:
        with reading(path, "cannot be read as Parquet", "write it again"):
            schemas.append(read_parquet_schema(path))
    refuse_other_columns(paths, [schema.names for schema in schemas])

    # pyarrow.dataset is not used: with its defaults, 2 million rows of 9 columns in two files took 0.34 s and 320 MB
    # more than the result, against 0.11 s and 97 MB here. With one batch ahead and no buffer it performs equally, but
    # it fails if a later file has other types than the first, and does not name the damaged file.
    def batches(columns: list[str], names: list[str]) -> Iterator[pa.RecordBatch]:
        for path in paths:
            with reading(path, "cannot be read", "write it again"):
                # One row group at a time, as the whole file may be larger than memory.
                yield from read_parquet(path, columns, groups)

    return Table(name_files(paths), schemas[0], batches)


def split_file(path: str, n_rows: int) -> list[Part]:
    """Split a file between row groups into parts of about `n_rows` rows."""
    sizes = np.array(count_parquet_rows(path), np.int64)
    part = (np.cumsum(sizes) - sizes) // n_rows  # part of each row group, by its first row
    return [Part(path, tuple(np.flatnonzero(part == k).tolist())) for k in np.unique(part)]


def write_file(frame: pd.DataFrame, path: Path, index: bool, name: str) -> None:
    """Write a data frame."""
    frame.to_parquet(path, index=index)


def read_parquet_schema(source: Source) -> pa.Schema:
    """Return the schema of a file, with its metadata."""
    return _open(source).schema_arrow


def count_parquet_rows(source: Source) -> list[int]:
    """Return the number of rows in each row group."""
    about = _open(source).metadata
    return [about.row_group(group).num_rows for group in range(about.num_row_groups)]


def read_parquet(
    source: Source, columns: Sequence[str], groups: Sequence[int] | None = None, most_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield batches of these columns, row group by row group; text columns are arrow dictionary arrays."""
    from pyarrow import parquet

    plain, budget = _open(source), current_budget()
    about, wanted = plain.metadata, set(columns)
    coded = _coded_texts(about) if budget is None else budget.checked[_key(source)]
    texts = [name for name in columns if name in coded]
    if budget is not None:
        _check_texts(about, texts, budget)
    buffer = 0 if budget is None else _BUFFER
    file = parquet.ParquetFile(
        _readable(source), metadata=about, pre_buffer=False, read_dictionary=texts, buffer_size=buffer
    )
    n_rows = min(most_rows, BATCH_ROWS if budget is None else _rows_at_once(budget, about, wanted))
    yield from within_budget(file.iter_batches(n_rows, row_groups=groups, columns=list(columns)))


def parquet_bytes(source: Source, column: str) -> int:
    """Return the decompressed size of a column in bytes, as stated in the file."""
    parts = _parts(_open(source).metadata)
    return sum(part.total_uncompressed_size for part in parts if part.path_in_schema == column)


def _parts(about: Any) -> Iterator[Any]:
    """Yield the metadata of each column in each row group."""
    for group in map(about.row_group, range(about.num_row_groups)):
        yield from map(group.column, range(about.num_columns))


def _coded_texts(about: Any) -> set[str]:
    """Return the text columns that are dictionary-encoded according to the file."""
    return {part.path_in_schema for part in _parts(about) if part.physical_type == _TEXT and part.has_dictionary_page}


def _check_texts(about: Any, texts: Sequence[str], budget: Budget) -> None:
    """Raise an error for large text dictionaries, as each row group holds its dictionary in memory twice."""
    for part in _parts(about):
        if part.total_uncompressed_size > budget.bytes // 4 and part.path_in_schema in texts:
            raise TooLargeError(
                f"table: column {part.path_in_schema[:80]!r} has {part.total_uncompressed_size:,} bytes of text in a "
                f"group of rows, expected at most {budget.bytes // 4:,}; write smaller groups of rows."
            )


def _rows_at_once(budget: Budget, about: Any, wanted: set[str]) -> int:
    """Return how many rows of average size fit into a sixteenth of the budget."""
    read = [p for p in _parts(about) if p.path_in_schema.partition(".")[0] in wanted or p.path_in_schema in wanted]
    n_bytes = sum(max(part.total_uncompressed_size, 8 * part.num_values) for part in read)
    return max(1, min(BATCH_ROWS, budget.bytes // 16 * max(1, about.num_rows) // max(1, n_bytes)))


def _open(source: Source) -> Any:
    """Open a file; raise an error if it does not fit into the budget."""
    from pyarrow import parquet

    file, budget = _readable(source), current_budget()
    if budget is None:
        return parquet.ParquetFile(file, pre_buffer=False)
    if _key(source) not in budget.checked:
        budget.checked[_key(source)] = _check(source, budget)
    return parquet.ParquetFile(source, pre_buffer=False, thrift_string_size_limit=_FOOTER[1])


def _readable(source: Source) -> Source:
    """Return what arrow reads; arrow itself would open an address by its own rules and settings."""
    return open_binary(os.fspath(source), whole_reads=True) if is_address(source) else source  # type: ignore[arg-type]


def _key(source: Source) -> str:
    return os.fspath(source) if isinstance(source, str | os.PathLike) else f"file {id(source)}"


def _check(source: Source, budget: Budget) -> set[str]:
    """Raise an error for a file that is too large; return its dictionary-encoded text columns."""
    import pyarrow as pa
    from pyarrow import parquet

    name = os.path.basename(source) if isinstance(source, str | os.PathLike) else "file"
    with open(source, "rb") if isinstance(source, str | os.PathLike) else nullcontext(source) as file:
        n_bytes = _check_footer(file, name, budget)
        try:
            found = parquet.ParquetFile(source, pre_buffer=False, thrift_string_size_limit=_FOOTER[1])
            about = found.metadata
            budget.check("columns", about.num_columns, budget.columns, "send those that are needed")
            budget.check("rows", about.num_rows, budget.rows, "send them in parts")
            _check_unpacked(about, budget)
            return _check_pages(file, n_bytes, about, budget)
        except (TooLargeError, _RefusedEncoding):
            raise
        except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
            reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
            raise ValueError(f"{name}: cannot be read as Parquet ({reason}); write it again.") from None


def _check_footer(file: IO[bytes], name: str, budget: Budget) -> int:
    """Raise an error for a file that is not Parquet or has a huge footer; return the size of the file in bytes."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    begin = file.read(4)
    file.seek(max(0, size - 8))
    end = file.read(8)
    if size < 12 or begin != b"PAR1" or end[4:] != b"PAR1":
        raise ValueError(f"{name}: is not a complete Parquet file; send the whole file.")
    if int.from_bytes(end[:4], "little") > min(_between(_FOOTER, budget.bytes // 64), size):
        raise ValueError(f"{name}: describes itself at too great length; write fewer columns and groups.")
    return size


def _between(ends: tuple[int, int], value: int) -> int:
    return min(max(value, ends[0]), ends[1])


def _check_unpacked(about: Any, budget: Budget) -> None:
    n_groups, n_columns = about.num_row_groups, about.num_columns
    if n_groups * n_columns > _MOST_PARTS:
        raise TooLargeError(
            f"table: expected at most {_MOST_PARTS:,} parts, got {n_groups:,} groups of rows; write it in fewer."
        )
    if sum(about.row_group(i).num_rows for i in range(n_groups)) != about.num_rows:
        raise ValueError("its groups have other rows than it says")
    widths = [max(8, about.schema.column(j).length or 0) for j in range(n_columns)]
    sizes = [part.total_uncompressed_size for part in _parts(about)]
    if min(sizes, default=0) < 0 or max(sizes, default=0) > _LARGEST_CHUNK:
        raise TooLargeError(
            f"table: a column unpacks to more than {_LARGEST_CHUNK:,} bytes; write smaller groups of rows."
        )
    _check_total(max(sum(sizes), about.num_rows * sum(widths)), budget)


def _check_total(n_bytes: int, budget: Budget) -> None:
    if n_bytes > budget.bytes:
        raise TooLargeError(
            f"table: expected at most {budget.bytes:,} bytes when unpacked, got {n_bytes:,}; send it in parts."
        )


def _check_pages(file: IO[bytes], n_bytes: int, about: Any, budget: Budget) -> set[str]:
    """Raise an error if pages unpack to more bytes than the file says, or to more values than the budget allows.

    Return the names of the text columns that are dictionary-encoded.
    """
    largest, coded = _between(_PAGE, budget.bytes // 8), set[str]()
    is_small, n_values = n_bytes * _MOST_BY_SNAPPY <= largest, 0
    for i, part in enumerate(_parts(about)):
        is_flat = about.schema.column(i % about.num_columns).max_repetition_level == 0
        if not (is_flat and is_small and part.compression in _LIGHT and part.physical_type in _NUMBERS):
            n, is_coded = _check_part(file, part, largest)
            n_values += n
            _check_total(8 * n_values, budget)
            if is_coded and is_flat and part.physical_type == _TEXT:
                coded.add(part.path_in_schema)
    return coded


def _check_part(file: IO[bytes], part: Any, largest: int) -> tuple[int, bool]:
    """Check the pages of a column in a row group; return its number of values and whether it has dictionary pages."""
    begins = [place for place in (part.dictionary_page_offset, part.data_page_offset) if place]
    total, n_values, is_coded = 0, 0, False
    for page in read_pages(file, min(begins), part.total_compressed_size):
        total += page.unpacked
        n_values += page.n_values
        is_coded |= page.encoding in _CODED
        if page.encoding == _DELTA_BYTE_ARRAY:
            raise _RefusedEncoding(
                f"table: column {part.path_in_schema[:80]!r} has the encoding DELTA_BYTE_ARRAY, which is refused "
                "because a small file can unpack to very long texts; write the file with another encoding."
            )
        if total > part.total_uncompressed_size:
            raise ValueError("a column unpacks to more bytes than it says")
        if page.unpacked > largest:
            raise TooLargeError(
                f"table: column {part.path_in_schema[:80]!r} has a page of {page.unpacked:,} bytes when unpacked, "
                f"expected at most {largest:,}; write smaller pages or groups of rows."
            )
    return n_values, is_coded
