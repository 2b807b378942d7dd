"""How large uploaded tables may be, checked before their cells are read: a small file may unpack to a huge table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from histnetq.web.pages import read_pages
from histnetq.web.refusals import RefusedError

_MB = 1 << 20
_BLOCK = 4 * _MB  # of a CSV file: no row is longer
_BATCH_ROWS = 1 << 17  # that are read at once
_LARGEST_FOOTER = 16 * _MB
_LARGEST_CHUNK = 512 * _MB  # of one column in one group of rows, unpacked: it may be one page, which is read at once
_LARGEST_TEXTS = 256 * _MB  # of the rows that are read at once
_LIGHT, _MOST_BY_SNAPPY = ("UNCOMPRESSED", "SNAPPY"), 22  # three bytes of Snappy stand for 64 at most
_NUMBERS = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE")
_DELTA_BYTE_ARRAY = 7  # each text is the beginning of the one before and some more: few bytes may stand for many
_SEPARATORS = b",;\t|"


@dataclass(frozen=True)
class Limits:
    """Limits of an uploaded table.

    Attributes
    ----------
    bytes : int
        Size of the file. Unpacked, it may have four times as many.
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
        """Bytes of all cells."""
        return 4 * self.bytes

    def check_bytes(self, n: int) -> None:
        """Refuse a body of so many bytes."""
        if n > self.bytes:
            raise RefusedError(413, f"body: expected at most {self.bytes:,} bytes, got more; send a smaller file.")

    def check_rows(self, n: int) -> None:
        """Refuse so many rows."""
        _refuse_more("rows", n, self.rows, "send them in parts")

    def check_cells(self, n_rows: int, n_columns: int) -> None:
        """Refuse so many rows and columns, or so many cells that they do not fit."""
        _refuse_more("columns", n_columns, self.columns, "send those that are needed")
        self.check_rows(n_rows)
        _refuse_more("cells", n_rows * n_columns, self.unpacked // 8, "send them in parts")

    def check_file(self, path: Path, texts: Sequence[str] = ()) -> None:
        """Refuse a file that is too large in any way; the cells of the columns `texts` are looked at, too."""
        if is_parquet(path):
            self._check_parquet(path, texts)
        else:
            self._check_header(path)

    def check_batch(self, batch: pa.RecordBatch) -> None:
        """Refuse rows with a text that is too large."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self._check_cells(name, column.dictionary if hasattr(column, "dictionary") else column)

    def _check_header(self, path: Path) -> None:
        """Refuse a CSV file with too many cells in any line of its beginning, where the names of the columns are."""
        with path.open("rb") as file:
            signs = np.frombuffer(file.read(_BLOCK), np.uint8)
        ends = np.append(np.flatnonzero(signs == ord("\n")), len(signs))
        for separator in _SEPARATORS:
            n_before = np.searchsorted(np.flatnonzero(signs == separator), ends)
            most = int(np.diff(n_before, prepend=0).max())
            _refuse_more("columns", most + 1, self.columns, "send those that are needed")

    def _check_parquet(self, path: Path, texts: Sequence[str]) -> None:

        _check_footer(path)
        try:
            file = parquet.ParquetFile(path, pre_buffer=False, thrift_string_size_limit=_LARGEST_FOOTER)
            about = file.metadata
            _refuse_more("columns", about.num_columns, self.columns, "send those that are needed")
            self.check_rows(about.num_rows)
            self._check_unpacked(about)
            _check_pages(path, about)
            known = [name for name in texts if name in file.schema_arrow.names]
            wide = [name for name in known if _is_text(file.schema_arrow.field(name).type)]
            if wide:
                self._check_texts(path, wide)
        except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
            reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
            raise RefusedError(422, f"{path.name}: cannot be read as Parquet ({reason}); write it again.") from None

    def _check_unpacked(self, about: Any) -> None:
        n_groups, n_columns = about.num_row_groups, about.num_columns
        if n_groups * n_columns > 1_000_000:
            raise RefusedError(
                422, f"table: expected at most 1,000,000 parts, got {n_groups:,} groups of rows; write it in fewer."
            )
        groups = [about.row_group(i) for i in range(n_groups)]
        if sum(group.num_rows for group in groups) != about.num_rows:
            raise ValueError("its groups have other rows than it says")
        sizes = [part.total_uncompressed_size for group in groups for part in map(group.column, range(n_columns))]
        if min(sizes, default=0) < 0 or max(sizes, default=0) > _LARGEST_CHUNK:
            raise RefusedError(
                413,
                f"table: a column unpacks to more than {_LARGEST_CHUNK:,} bytes; write smaller groups of rows.",
            )
        total = max(sum(sizes), 8 * about.num_rows * n_columns)
        if total > self.unpacked:
            raise RefusedError(
                413, f"table: expected at most {self.unpacked:,} bytes when unpacked, got {total:,}; send it in parts."
            )

    def _check_texts(self, path: Path, columns: Sequence[str]) -> None:
        """Refuse texts that are too large, which a short list of different ones may stand for in the file."""

        file = parquet.ParquetFile(path, pre_buffer=False, read_dictionary=list(columns))
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
            total = 0
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                different = column.dictionary if hasattr(column, "dictionary") else column
                self._check_cells(name, different)
                sizes = pc.binary_length(different)
                total += pc.sum(sizes.take(column.indices) if different is not column else sizes).as_py() or 0
            if total > _LARGEST_TEXTS:
                raise RefusedError(
                    413, f"table: {batch.num_rows:,} rows have {total:,} bytes of text, expected at most "
                    f"{_LARGEST_TEXTS:,}; shorten the texts.",
                )  # fmt: skip

    def _check_cells(self, name: str, cells: Any) -> None:

        if _is_text(cells.type) and len(cells):
            longest = pc.max(pc.binary_length(cells)).as_py() or 0
            if longest > self.cell_bytes:
                raise RefusedError(
                    413, f"table: column {name[:80]!r} has a cell of {longest:,} bytes, expected at most "
                    f"{self.cell_bytes:,}; shorten it.",
                )  # fmt: skip


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its name."""
    return path.suffix in (".parquet", ".pq")


def _check_pages(path: Path, about: Any) -> None:
    """Refuse pages that unpack to more than the file says of their columns, or to an unknown number of bytes."""
    is_small = path.stat().st_size * _MOST_BY_SNAPPY <= _LARGEST_CHUNK
    with path.open("rb") as file:
        for group in map(about.row_group, range(about.num_row_groups)):
            for part in map(group.column, range(about.num_columns)):
                if not (is_small and part.compression in _LIGHT and part.physical_type in _NUMBERS):
                    _check_part(file, part)


def _check_part(file: IO[bytes], part: Any) -> None:
    begins = [place for place in (part.dictionary_page_offset, part.data_page_offset) if place]
    total = 0
    for page in read_pages(file, min(begins), part.total_compressed_size):
        total += page.unpacked
        if page.encoding == _DELTA_BYTE_ARRAY:
            raise RefusedError(
                422, f"table: column {part.path_in_schema[:80]!r} has texts that stand for parts of one another; "
                "write it without delta encoding.",
            )  # fmt: skip
        if total > part.total_uncompressed_size:
            raise ValueError("a column unpacks to more bytes than it says")


def _is_text(kind: Any) -> bool:

    kinds = pa.types
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    known = (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
    return any(is_one(kind) for is_one in known)


def _check_footer(path: Path) -> None:
    """Refuse a file that is no Parquet, or whose description of itself is huge, before that is read."""
    size = path.stat().st_size
    with path.open("rb") as file:
        begin = file.read(4)
        file.seek(max(0, size - 8), os.SEEK_SET)
        end = file.read(8)
    if size < 12 or begin != b"PAR1" or end[4:] != b"PAR1":
        raise RefusedError(422, f"{path.name}: is no whole Parquet file; send all of one.")
    if int.from_bytes(end[:4], "little") > min(_LARGEST_FOOTER, size):
        raise RefusedError(422, f"{path.name}: describes itself at too great length; write fewer columns and groups.")


def _refuse_more(what: str, got: int, most: int, way_out: str) -> None:
    if got > most or got < 0:
        raise RefusedError(413, f"table: expected at most {most:,} {what}, got {got:,}; {way_out}.")
