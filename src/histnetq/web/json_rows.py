"""Conversion of JSON rows to an Arrow table, in parts: Python objects take many times the memory of the text."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from histnetq.web.errors import RefusedError
from histnetq.web.limits import TableLimits

_WINDOW = 1 << 18  # bytes that are decoded together
_LONGEST_ROW = 1 << 22
_CELLS_AT_ONCE = 1 << 17
_CONTINUING = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that continue a character
_SPACE = re.compile(r"[ \t\n\r]*")
_decoder = json.JSONDecoder(parse_constant=lambda name: _refuse(f"{name} is not a number of JSON"))


def rows_as_table(content: bytes, limits: TableLimits) -> pa.Table:
    """Return a table from a JSON list of objects, whose values are strings, numbers, booleans or null.

    Examples
    --------
    >>> rows_as_table(b'[{"x": 1}, {"x": 2.5, "tow": "a"}]', TableLimits(1000)).to_pylist()
    [{'x': 1.0, 'tow': None}, {'x': 2.5, 'tow': 'a'}]
    """
    names: dict[str, None] = {}
    parts: list[pa.Table] = []
    rows: list[dict[str, Any]] = []
    n_rows = 0
    try:
        for row in _objects(_Text(content)):
            n_rows += 1
            rows.append(row)
            names.update(dict.fromkeys(row))
            if len(rows) * len(names) >= _CELLS_AT_ONCE or len(rows) >= _CELLS_AT_ONCE:
                limits.check_cells(n_rows, len(names))  # each row may have further names
                parts.append(_as_part(rows))
                rows = []
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"body: cannot be read as JSON ({_short(error)}); send a list of objects.") from None
    limits.check_cells(n_rows, len(names))
    if not n_rows:
        raise _no_rows()
    try:
        return pa.concat_tables([*parts, *([_as_part(rows)] if rows else [])], promote_options="permissive")
    except MemoryError:  # also an exception of Arrow
        raise
    except pa.ArrowException as error:
        raise _mixed(error) from None


def _objects(text: _Text) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list; raise ValueError if the text is not JSON."""
    if text.next_sign() != "[":
        text.read_value()  # raises the error for text that is not JSON
        raise _no_rows()
    text.skip_sign()
    if text.next_sign() == "]":
        text.end()
        return
    while True:
        row = text.read_value()
        if not isinstance(row, dict):
            raise _no_rows()
        yield row
        sign = text.next_sign()
        if sign == "]":
            text.end()
            return
        if sign != ",":
            raise text.error("Expecting ',' delimiter")
        text.skip_sign()


class _Text:
    """A JSON text that is decoded in short parts, because a character may take four bytes and objects take more."""

    def __init__(self, content: bytes) -> None:
        encoding = json.detect_encoding(content)
        self.content = content if encoding == "utf-8" else _as_utf8(content, encoding)
        self.content = self.content.removeprefix(codecs.BOM_UTF8)
        self.start = self.stop = self.place = 0  # bytes of the part, and the place in its characters
        self.part = ""
        self._refill(_WINDOW)

    def next_sign(self) -> str:
        """Skip white space, and return the next character; empty at the end of the text."""
        while True:
            found = _SPACE.match(self.part, self.place)
            self.place = found.end() if found else self.place
            if self.place < len(self.part) or self.stop == len(self.content):
                return self.part[self.place : self.place + 1]
            self._refill(_WINDOW)

    def skip_sign(self) -> None:
        """Go on to the next character."""
        self.place += 1

    def end(self) -> None:
        """Go on to the next character, and refuse anything but white space after it."""
        self.skip_sign()
        if self.next_sign():
            raise self.error("Extra data")

    def read_value(self) -> Any:
        """Return the value that begins at the next character; refuse a very long one."""
        self.next_sign()
        size = _WINDOW
        while True:
            try:
                value, self.place = _decoder.raw_decode(self.part, self.place)
                return value
            except json.JSONDecodeError as error:
                if self.stop == len(self.content):
                    self.place = error.pos
                    raise self.error(error.msg) from None
                if self.place == 0 and size > _LONGEST_ROW:
                    raise RefusedError(
                        413, f"body: a row has more than {_LONGEST_ROW:,} characters, expected fewer; shorten it."
                    ) from None
                self._refill(size)
                size *= 4

    def error(self, words: str) -> ValueError:
        """Return an error with the line, column and number of the next character, as `json` counts them."""
        before = self.content[: self._byte()]
        n_lines, line = before.count(b"\n"), before.rpartition(b"\n")[2]
        n, column = (len(part.translate(None, _CONTINUING)) for part in (before, line))
        return ValueError(f"{words}: line {n_lines + 1} column {column + 1} (char {n})")

    def _byte(self) -> int:
        return self.start + len(self.part[: self.place].encode("utf-8", "surrogatepass"))

    def _refill(self, size: int) -> None:
        """Decode about `size` bytes from the current place on."""
        self.start, self.place = self._byte(), 0
        found = self.content[self.start : self.start + size]
        if self.start + size < len(self.content):  # end before the last character, which may be cut
            ends = range(len(found) - 4, len(found))
            found = found[: max((i for i in ends if found[i] & 0xC0 != 0x80), default=len(found))]
        self.stop, self.part = self.start + len(found), found.decode("utf-8", "surrogatepass")


def _as_utf8(content: bytes, encoding: str) -> bytes:
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    parts = range(0, len(content), _WINDOW)
    texts = (decoder.decode(content[i : i + _WINDOW], i + _WINDOW >= len(content)) for i in parts)
    return b"".join(text.encode("utf-8", "surrogatepass") for text in texts)


def _as_part(rows: list[dict[str, Any]]) -> pa.Table:
    """Return some rows as a table."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    for name, cells in columns.items():
        if any(isinstance(cell, list | dict) for cell in cells):
            raise RefusedError(400, f"body: {name[:80]!r} holds a list or an object, expected one value; leave it out.")
    if not columns:
        return pa.table({"": pa.nulls(len(rows))}).select([])
    try:
        return pa.table({name: _as_array(cells) for name, cells in columns.items()})
    except MemoryError:
        raise
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError) as error:
        raise _mixed(error) from None


def _as_array(cells: list[Any]) -> Any:
    """Return an array of one type; integers become floats if there are floats among them."""
    if any(isinstance(cell, float) for cell in cells) and not any(isinstance(cell, str | bool) for cell in cells):
        return pa.array([None if cell is None else float(cell) for cell in cells], pa.float64())
    return pa.array(cells)


def _no_rows() -> RefusedError:
    return RefusedError(400, 'body: expected a list of objects, one for each row, such as [{"x": 1.5}]; send one.')


def _mixed(error: Exception) -> RefusedError:
    return RefusedError(400, f"body: a column has values of different kinds ({_short(error)}); send one kind in each.")


def _refuse(reason: str) -> None:
    raise ValueError(reason)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120].rstrip(".")
