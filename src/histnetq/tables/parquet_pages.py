"""The pages of Parquet files: how large they say to be when they are unpacked, which is what memory is taken for.

A file also describes itself at its end, and that description need not be true. Whoever reads a page takes memory for
as many bytes as its own head names, and refuses a page that unpacks to others, so that these heads cannot lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, NamedTuple

_HEAD = 1 << 16  # bytes that the head of a page has at most; it may hold texts, the least and greatest of a column
_DEEPEST = 16  # structures inside one another
_TYPE, _UNPACKED, _PACKED = 1, 2, 3  # fields of a head
_DETAILS = {5: "data", 7: "dictionary", 8: "data"}  # fields with further ones
_N_VALUES, _ENCODINGS = 1, {5: 2, 7: 2, 8: 4}  # the fields of the number of values and of the encoding in these


class Page(NamedTuple):
    """The sizes of a page, packed and unpacked, the number of its values, and its encoding, -1 where there is none."""

    packed: int
    unpacked: int
    n_values: int
    encoding: int


def read_pages(file: IO[bytes], start: int, n_bytes: int) -> Iterator[Page]:
    """Read the heads of the pages in a part of a file, one after the other; raise ValueError where there is none.

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
        key = next((key for key in _DETAILS if isinstance(fields.get(key), dict)), None)
        details: dict[int, Any] = {} if key is None else fields[key]
        n_values, encoding = details.get(_N_VALUES, 0), -1 if key is None else details.get(_ENCODINGS[key], -1)
        if not isinstance(n_values, int) or n_values < 0:
            raise ValueError("a page has no number of values")
        yield Page(packed, unpacked, n_values, encoding)
        start += head.place + packed


class _Head:
    """A structure in Thrift's compact form, of which numbers and structures are kept."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        """Read the fields of a structure by their numbers."""
        if depth > _DEEPEST:
            raise ValueError("a page is described at too great depth")
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
        raise ValueError("the head of a page cannot be read")  # it has neither lists nor sets nor maps

    def _byte(self) -> int:
        if self.place >= len(self.content):
            raise ValueError("the head of a page is cut off")
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
                raise ValueError("a number in the head of a page is too long")

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
