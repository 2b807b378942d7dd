"""Columns of a table → numbers: codes of values, features, weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from histnetq.data.table_files import Table, is_number
from histnetq.data.table_names import name_of, of_one_type

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_CATEGORIES = 1000


class Codes:
    """Numbers for the values of one column, or of several together, in the order in which they first occur.

    Without columns all rows have one value, "all".

    Examples
    --------
    >>> import pyarrow as pa
    >>> codes = Codes("rows.csv", ["site", "day"])
    >>> codes.of(pa.record_batch({"site": ["n", "s", "n"], "day": [1, 1, 1]}), first_row=0)
    array([0, 1, 0])
    >>> codes.values
    ['n/1', 's/1']
    """

    def __init__(self, table: str, columns: Sequence[str], written: bool = False) -> None:
        self.table, self.columns, self.written = table, list(columns), written
        self.place: dict[tuple[Any, ...], int] = {}

    def of(self, batch: pa.RecordBatch, first_row: int) -> NDArray[np.int64]:
        """(n_rows,): the number of each row's value, or of the values of several columns."""
        import pandas as pd

        columns = [_distinct(batch, column, self.table, first_row) for column in self.columns]
        local = np.zeros(batch.num_rows, np.int64)
        if not columns:
            self.place.setdefault((), 0)
            return local
        for codes, values in columns:
            # Numbered afresh after each column: there are never more combinations than rows.
            local = pd.factorize(local * len(values) + codes)[0]
        first = np.flatnonzero(np.diff(np.maximum.accumulate(local), prepend=-1))
        keys = zip(*([values[i] for i in codes[first].tolist()] for codes, values in columns), strict=True)
        return np.array([self.place.setdefault(key, len(self.place)) for key in keys], np.int64)[local]

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        """The value in each column for each number."""
        if not self.columns:
            return list(self.place)
        columns = [of_one_type(list(column), self.written) for column in zip(*self.place, strict=True)]
        return list(zip(*columns, strict=True))

    @property
    def values(self) -> list[Any]:
        """The value of each number; those of several columns as one text, with ``/`` between them.

        `written` ones are texts, which become whole numbers or truth values if all of a column are.
        """
        values = [key[0] if len(key) == 1 else "/".join(map(str, key)) or "all" for key in self.keys]
        keys: dict[str, Any] = {}
        for key, value in zip(self.place, map(str, values), strict=True):
            other = keys.setdefault(value, key)
            if other is not key:
                raise ValueError(f"{self.table}: {other} and {key} would both be named {value!r}; change one of them.")
        return values


def _distinct(batch: pa.RecordBatch, column: str, table: str, first_row: int) -> tuple[NDArray[np.int64], list[Any]]:
    array = batch.column(column)
    if array.null_count:
        row = first_row + int(np.flatnonzero(array.is_null())[0])
        raise ValueError(f"{table}: row {row} has nothing in column {column!r}; fill it in or drop the row.")
    encoded = array if hasattr(array, "dictionary") else array.dictionary_encode()
    values = [name_of(value) for value in encoded.dictionary.to_pylist()]
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), values


@dataclass(frozen=True)
class Plan:
    """Which columns make the features: numbers as they are, or an indicator of one value of a column of texts."""

    parts: list[tuple[str, str | None]]

    @property
    def names(self) -> list[str]:
        return [column if value is None else f"{column}={value}" for column, value in self.parts]

    @property
    def texts(self) -> list[str]:
        return sorted({column for column, value in self.parts if value is not None})

    @property
    def numbers(self) -> list[str]:
        return [column for column, value in self.parts if value is None]


def plan_features(table: Table, special: list[str], features: Sequence[str] | None) -> Plan:
    if features is None:
        others = [column for column in table.columns if column not in special]
        features = [column for column in others if is_number(table.types[column])]
        _refuse_spoilt_numbers(table, [column for column in others if not is_number(table.types[column])])
        if not features:
            next(table.batches(special))  # a table without rows is refused as such
            raise ValueError(
                f"{table.name}: has no columns of numbers beside {', '.join(map(repr, special))}; name the features."
            )
    if isinstance(features, str) or not features:
        raise ValueError(f"features: expected a list of column names, got {features!r}.")
    parts: list[tuple[str, str | None]] = []
    for name in features:
        column, _, value = name.partition("=")
        if name in special:
            raise ValueError(f"features: {name!r} is the bag, label or weight column and no feature; leave it out.")
        if name in table.types:
            if is_number(table.types[name]):
                parts.append((name, None))
            else:
                _refuse_spoilt_numbers(table, [name])
                parts += [(name, value) for value in _categories(table, name)]
        elif value and column in table.types:
            parts.append((column, value))
        else:
            table.require([name])
    return Plan(parts)


def _categories(table: Table, column: str) -> list[str]:
    codes = Codes(table.name, [column])
    for row, batch in table.batches([], [column]):
        codes.of(batch, row)
        if len(codes.place) > _MOST_CATEGORIES:
            raise ValueError(
                f"{table.name}: column {column!r} has more than {_MOST_CATEGORIES} different texts, too many for "
                "categories; leave it out of the features."
            )
    return sorted(map(str, codes.values))


def _refuse_spoilt_numbers(table: Table, texts: list[str]) -> None:
    """A column of numbers with a slip of the pen is no column of texts to be left out in silence."""
    import pandas as pd

    if not texts:
        return
    _, batch = next(table.batches(texts))
    for column in texts:
        values = pd.Series(batch.column(column)[:1000].to_pylist(), dtype=object).dropna().astype(str)
        wrong = values[pd.to_numeric(values, errors="coerce").isna()]
        if 0 < len(wrong) < len(values) / 2:
            raise ValueError(
                f"{table.name}: column {column!r} holds numbers and the text {wrong.iloc[0]!r} (row {wrong.index[0]}); "
                "correct it, or name the features without this column."
            )


def read_features(
    batch: pa.RecordBatch, plan: Plan, table: str, first_row: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """(n_rows, n_features), and (n_rows,): whether a row has a text that no feature stands for."""
    out = np.zeros((batch.num_rows, len(plan.parts)), np.float32)
    unseen = np.zeros(batch.num_rows, bool)
    for j, (column, value) in enumerate(plan.parts):
        if value is None:
            out[:, j] = read_numbers(batch, column, table, first_row, np.float32)
    for column in plan.texts:
        codes, values = _distinct(batch, column, table, first_row)
        places = [j for j, (name, value) in enumerate(plan.parts) if name == column and value is not None]
        matches = np.array([[str(value) == plan.parts[j][1] for j in places] for value in values])
        out[:, places] = matches[codes]
        unseen |= ~matches[codes].any(1)
    return out, unseen


def read_numbers(batch: pa.RecordBatch, column: str, table: str, first_row: int, dtype: Any = np.float64) -> NDArray:
    """(n_rows,): finite numbers of this type."""
    import pyarrow as pa

    array = batch.column(column)
    if not is_number(array.type):
        raise ValueError(f"{table}: column {column!r} holds {array.type}, expected numbers.")
    if pa.types.is_boolean(array.type) or pa.types.is_decimal(array.type):
        array = array.cast(pa.float64() if pa.types.is_decimal(array.type) else pa.int8())
    exact = array.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        values = exact.astype(dtype, copy=False)
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argmin(finite))
        too_large = f"{exact[row]:g} (too large)" if np.isfinite(exact[row]) else str(values[row])
        what = "nothing" if np.isnan(values[row]) else too_large
        found = f"row {first_row + row} has {what} in column {column!r}"
        way_out = "fill it in, drop the row, or name the features without this column"
        raise ValueError(f"{table}: {found}, expected a number; {way_out}.")
    return values
