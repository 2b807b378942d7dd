"""JSON as tables: values are parsed within limits, and objects become rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from histnetq.errors import InputError
from histnetq.tables.budget import Charge, TooLargeError, current_budget, require, within_budget
from histnetq.tables.table_files import BATCH_ROWS, Table, name_files

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LARGEST", "as_text", "flatten", "parse_json", "table_of"]

LARGEST = 256 << 20  # bytes of JSON that are parsed at once: a file, a line, or a part of an archive
_DEEPEST = 4  # levels of objects that become columns of their own
_MOST_COLUMNS, _MOST_CELLS = 2_000, 100_000_000
_CELL, _ROW = 100, 200  # bytes of memory that a value and a row take, besides texts
_HOLDER, _MEMBER = (
    250,
    150,
)  # bytes of memory that an object or a list takes, and each of its values, while it is parsed
_WHOLE = 1 << 63  # limit of whole numbers in a table


def parse_json(text: bytes, place: str) -> Any:
    """Return the value that a JSON text holds; `place` names the text in errors. NaN and Infinity are missing values.

    Examples
    --------
    >>> parse_json(b'{"verdict": "bad", "score": NaN}', "row.json")
    {'verdict': 'bad', 'score': None}
    """
    if len(text) > LARGEST:
        raise TooLargeError(f"{place}: has more than {LARGEST >> 20} MB of JSON, expected less; split it.")
    if current_budget() is not None:
        n_bytes = len(text) + _HOLDER * (text.count(b"{") + text.count(b"[")) + _MEMBER * text.count(b",")
        require(n_bytes, "rows of JSON", "send them in parts, or as Parquet")
    try:
        return json.loads(text, parse_constant=lambda name: None)
    except RecursionError:
        problem = "nests lists or objects too deeply"
    except UnicodeDecodeError:
        problem = "is not encoded in UTF-8"
    except json.JSONDecodeError as error:
        problem = f"is not JSON ({error.msg}, line {error.lineno}, column {error.colno})"
    except ValueError:  # Python refuses to read whole numbers of thousands of digits
        problem = "has a whole number of more than 4,300 digits"
    raise InputError(place, problem=problem, remedy="write the file again")


def as_text(value: Any) -> str | None:
    """Return a value as a text: a text unchanged, None as None, and other values as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def flatten(record: dict[str, Any], name: str = "", depth: int = 1) -> dict[str, Any]:
    """Return the values of an object by column: inner objects as columns with dotted names, and lists as JSON texts.

    Examples
    --------
    >>> flatten({"id": 7, "judge": {"verdict": "bad", "reasons": ["rude"]}})
    {'id': 7, 'judge.verdict': 'bad', 'judge.reasons': '["rude"]'}
    """
    found: dict[str, Any] = {}
    for key, value in record.items():
        column = f"{name}.{key}" if name else key
        inner = isinstance(value, dict) and depth < _DEEPEST
        parts = flatten(value, column, depth + 1) if inner else {column: _as_cell(value)}
        twice = next((part for part in parts if part in found), None)
        if twice is not None:
            raise ValueError(f"has two values of {twice[:80]!r}, expected one; rename one")
        found |= parts
    return found


def _as_cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return as_text(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -_WHOLE <= value < _WHOLE:
        return str(value)  # a text keeps all digits
    return value


def table_of(paths: list[str], rows: Iterable[dict[str, Any]]) -> Table:
    """Return rows as a table; a column that some rows lack has missing values there."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {}
    name, charge, budget, n, n_bytes = name_files(paths), Charge(), current_budget(), 0, 0
    for n, row in enumerate(rows, 1):
        for column, value in row.items():
            if column not in columns:
                _check_name(name, column)
            cells = columns.setdefault(column, [])
            cells += [None] * (n - 1 - len(cells))
            cells.append(value)
            n_bytes += _CELL + (len(value) if isinstance(value, str) else 0)
        n_bytes += _ROW
        if len(columns) > _MOST_COLUMNS or n * len(columns) > _MOST_CELLS:
            got = f"expected at most {_MOST_COLUMNS:,} columns and {_MOST_CELLS:,} cells"
            raise TooLargeError(
                f"{name}: has {len(columns):,} columns in {n:,} rows, {got}; keep those that are needed."
            )
        if budget is not None:
            budget.check_cells(n, len(columns))
            charge.grow_to(n_bytes, "rows of JSON", "send them in parts, or as Parquet")
    table = pa.table({column: _as_array(cells + [None] * (n - len(cells))) for column, cells in columns.items()})

    def batches(chosen: list[str], names: list[str], kept: Charge = charge) -> Iterator[pa.RecordBatch]:
        return within_budget(table.select(chosen).to_batches(BATCH_ROWS))

    return Table(name, table.schema, batches)


def _check_name(table: str, column: str) -> None:
    try:
        column.encode()
    except UnicodeEncodeError:
        problem = f"has a column name with an invalid character (a lone surrogate), {ascii(column)[:80]}"
        raise InputError(table, problem=problem, remedy="rename the column") from None


def _as_array(cells: list[Any]) -> pa.Array:
    """Return a column as truth values, numbers or, if its values are of different types, texts."""
    import pyarrow as pa

    kinds = {type(value) for value in cells} - {type(None)}
    if kinds and kinds in ({bool}, {int}):
        return pa.array(cells)
    if kinds and kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in cells], pa.float64())
    texts = [as_text(value) for value in cells]
    try:
        return pa.array(texts, pa.string())
    except (UnicodeEncodeError, pa.ArrowInvalid):  # JSON can hold half of a surrogate pair, and Unicode cannot
        return pa.array([text and text.encode("utf-8", "replace").decode() for text in texts], pa.string())
