"""Headers of Parquet pages, which state the decompressed size of each page.

The footer of a file also states sizes, but it may be wrong. The sizes in page headers can be relied on: a reader
allocates the stated number of bytes, and rejects a page that decompresses to another number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, NamedTuple

_HEAD = 1 << 16  # largest page header in bytes; a header may contain the least and greatest text of a column
_DEEPEST = 16  # largest depth of nested structures
_UNPACKED, _PACKED = 2, 3  # fields of a page header: decompressed and compressed size
# Fields that describe a page of data, of a dictionary, or of data in version 2; each with its field of the encoding.
_ENCODINGS = {5: 2, 7: 2, 8: 4}
_N_VALUES = 1  # field of the number of values in these


class Page(NamedTuple):
    """Compressed and decompressed size of a page, its number of values, and its encoding (-1 if it has none)."""

    packed: int
    unpacked: int
    n_values: int
    encoding: int


def read_pages(file: IO[bytes], start: int, n_bytes: int) -> Iterator[Page]:
    """Yield the pages in part of a file, as their headers describe them; raise ValueError for a damaged header.

    Examples
    --------
    >>> import io
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> sink = io.BytesIO()
    >>> parquet.write_table(pa.table({"x": [0.0] * 1000}), sink, use_dictionary=False, compression="zstd")
    >>> about = parquet.read_metadata(sink).row_group(0).column(0)
    >>> [page.unpacked >= 8000 for page in read_pages(sink, about.data_page_offset, about.total_compressed_size)]
    [True]
    """
    end = start + n_bytes
    while start < end:
        file.seek(start)
        head = _Head(file.read(min(_HEAD, end - start)))
        fields = head.read_struct()
        packed, unpacked = fields.get(_PACKED, -1), fields.get(_UNPACKED, -1)
        if not isinstance(packed, int) or not isinstance(unpacked, int) or packed < 0 or unpacked < 0:
            raise ValueError("a page has no size")
        key = next((key for key in _ENCODINGS if isinstance(fields.get(key), dict)), None)
        details: dict[int, Any] = {} if key is None else fields[key]
        n_values, encoding = details.get(_N_VALUES, 0), -1 if key is None else details.get(_ENCODINGS[key], -1)
        if not isinstance(n_values, int) or n_values < 0:
            raise ValueError("a page has no number of values")
        yield Page(packed, unpacked, n_values, encoding)
        start += head.place + packed


class _Head:
    """A reader of structures in Thrift's compact encoding; it keeps numbers and nested structures only."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        """Read the fields of a structure by their numbers."""
        if depth > _DEEPEST:
            raise ValueError("the header of a page has too many nested levels")
        found: dict[int, Any] = {}
        field = 0
        while kind := self._byte():
            step, kind = kind >> 4, kind & 15
            field = field + step if step else self._number()
            found[field] = self._read(kind, depth)
        return found

    def _read(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # true and false
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._number()
        if kind == 7:
            return self._skip(8)
        if kind == 8:
            return self._skip(self._varint())
        if kind == 12:
            return self.read_struct(depth + 1)
        raise ValueError("the header of a page cannot be read")  # page headers contain no lists, sets or maps

    def _byte(self) -> int:
        if self.place >= len(self.content):
            raise ValueError("the header of a page is cut off")
        self.place += 1
        return self.content[self.place - 1]

    def _skip(self, n: int) -> None:
        self.place += n

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("a number in the header of a page is too long")

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
