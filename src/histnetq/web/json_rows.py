"""Conversion of JSON rows to an Arrow table, in parts: Python objects take many times the memory of the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from histnetq.web.errors import RefusedError
from histnetq.web.limits import TableLimits

_WINDOW = 1 << 18  # characters that are decoded together
_LONGEST_ROW = 1 << 22
_CELLS_AT_ONCE = 1 << 17
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
        for row in _objects(content.decode(json.detect_encoding(content), "surrogatepass")):
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
    except pa.ArrowException as error:
        raise _mixed(error) from None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list; raise ValueError if the text is not JSON."""
    place = _after_space(text, 0)
    if text[place : place + 1] != "[":
        json.loads(text[:_LONGEST_ROW])  # raises the error for text that is not JSON
        raise _no_rows()
    place, values = _after_space(text, place + 1), _Values(text)
    if text[place : place + 1] == "]" and _after_space(text, place + 1) == len(text):
        return
    while True:
        row, place = values.read(place)
        if not isinstance(row, dict):
            raise _no_rows()
        yield row
        place = _after_space(text, place)
        sign = text[place : place + 1]
        after = _after_space(text, place + 1)
        if sign == "]" and after == len(text):
            return
        if sign != ",":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, place)
        place = after


class _Values:
    """Values in a text. Each is decoded from a short part of it, so that no huge value is ever in memory."""

    def __init__(self, text: str) -> None:
        self.text, self.start, self.part = text, 0, text[:_WINDOW]

    def read(self, place: int) -> tuple[Any, int]:
        """Return the value that begins at a place, and the place after it."""
        size = _WINDOW
        while True:
            try:
                value, end = _decoder.raw_decode(self.part, place - self.start)
                return value, self.start + end
            except json.JSONDecodeError as error:
                if self.start + len(self.part) >= len(self.text):
                    raise json.JSONDecodeError(error.msg, self.text, self.start + error.pos) from None
                if self.start == place and size > _LONGEST_ROW:
                    raise RefusedError(
                        413, f"body: a row has more than {_LONGEST_ROW:,} characters, expected fewer; shorten it."
                    ) from None
                self.start, self.part = place, self.text[place : place + size]
                size *= 4


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place


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
