"""Conversion of table columns to numbers: codes of bags and classes, features, and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import refuse_long_names
from histnetq.bags.limits import LONGEST_NAME
from histnetq.errors import InputError, Option, Way
from histnetq.tables.budget import Charge, is_text
from histnetq.tables.names import name_of, of_one_type, written_name
from histnetq.tables.table_files import OTHER_FEATURES, Table, can_name, is_number

if TYPE_CHECKING:
    import pyarrow as pa

    from histnetq.bags.text_features import TextFeatures

_MOST_CATEGORIES = 1000
_LONGEST_SHOWN = 40  # characters of a cell in messages
_SIGNED = r"\s*[+-]?\d*(,\d+|[.,]?\d+\s*%)\s*"  # decimal commas and percent signs
MOST_COUNTED = 1e15  # largest count, far below the numbers that a float cannot tell apart
OTHER = "1 - "  # before the name of a score column: the scores of the second of two classes


class Codes:
    """Integer codes of the values in one or several columns, in the order of their first occurrence.

    With several columns, each combination of values has a code. Without columns, all rows have the value "all".
    `written` says that the columns are read as texts, which become whole numbers or truth values if all of them can.

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
        self._charge = Charge()

    def of(self, batch: pa.RecordBatch, first_row: int) -> NDArray[np.int64]:
        """Return the codes of the rows, (n_rows,)."""
        import pandas as pd

        columns = [_distinct(batch, column, self.table, first_row) for column in self.columns]
        local = np.zeros(batch.num_rows, np.int64)
        if not columns:
            self.place.setdefault((), 0)
            return local
        for codes, values in columns:
            # Renumbering after each column keeps the codes below the number of rows.
            local = pd.factorize(local * len(values) + codes)[0]
        first = np.flatnonzero(np.diff(np.maximum.accumulate(local), prepend=-1))
        keys = zip(*([values[i] for i in codes[first].tolist()] for codes, values in columns), strict=True)
        n_before = len(self.place)
        places = np.array([self.place.setdefault(key, len(self.place)) for key in keys], np.int64)
        self._charge.add_names(islice(reversed(self.place), len(self.place) - n_before))
        return places[local]

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        """Return the value in each column for each code."""
        if not self.columns:
            return list(self.place)
        columns = [of_one_type(list(column), self.written) for column in zip(*self.place, strict=True)]
        return list(zip(*columns, strict=True))

    @property
    def values(self) -> list[Any]:
        """Return the value of each code; the values of several columns are joined by ``/``."""
        values = [key[0] if len(key) == 1 else "/".join(map(str, key)) or "all" for key in self.keys]
        refuse_long_names(self.table, values)
        keys: dict[str, Any] = {}
        for key, value in zip(self.place, map(str, values), strict=True):
            other = keys.setdefault(value, key)
            if other is not key:
                raise ValueError(f"{self.table}: {other} and {key} would both be named {value!r}; change one of them.")
        return values


def refuse_nothing(batch: pa.RecordBatch, columns: Sequence[str], table: str, first_row: int) -> None:
    """Raise an error for a row without a value in one of these columns."""
    for column in columns:
        if batch.column(column).null_count:
            row = counted(first_row + int(np.flatnonzero(batch.column(column).is_null())[0]))
            raise ValueError(f"{table}: {row} has nothing in column {column!r}; fill it in or drop the row.")


def counted(row: int) -> str:
    """Return the name of a row in messages; the first row below the header is row 1."""
    return f"row {row + 1}"


def _distinct(batch: pa.RecordBatch, column: str, table: str, first_row: int) -> tuple[NDArray[np.int64], list[Any]]:
    refuse_nothing(batch, [column], table, first_row)
    codes, different = encode(batch.column(column))
    refuse_long_cells(different, column, table)
    return codes, [name_of(value) for value in different.to_pylist()]


def encode(array: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return a code for each row, and the distinct values; a missing value is null.

    A dictionary array is not expanded to one text per row.

    Examples
    --------
    >>> import pyarrow as pa
    >>> texts = pa.DictionaryArray.from_arrays(pa.array([2, 0, None, 2]), ["a", "b", "c"])
    >>> codes, different = encode(texts)
    >>> codes.tolist(), different.to_pylist()
    ([1, 0, 2, 1], ['a', 'c', None])
    """
    import pyarrow as pa

    if not hasattr(array, "dictionary"):
        encoded = array.dictionary_encode("encode")
        return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary
    n = len(array.dictionary)
    codes = array.indices.cast(pa.int64()).fill_null(n).to_numpy(zero_copy_only=False)
    used = np.bincount(codes, minlength=n + 1) > 0
    places = pa.array(np.flatnonzero(used), mask=np.flatnonzero(used) == n)
    return (np.cumsum(used) - 1)[codes], array.dictionary.take(places)


def refuse_long_cells(different: pa.Array, column: str, table: str) -> None:
    """Raise an error if a name of a class or bag is too long."""
    import pyarrow.compute as pc

    longest = (pc.max(pc.binary_length(different)).as_py() or 0) if is_text(different.type) else 0
    if longest > LONGEST_NAME:
        longest = pc.max(pc.utf8_length(different)).as_py()
    if longest > LONGEST_NAME:
        raise ValueError(
            f"{table}: column {column!r} has a name of {longest:,} characters, expected at most {LONGEST_NAME:,}; "
            "shorten it."
        )


@dataclass(frozen=True)
class FeatureSpec:
    """The features of a fitted model, and how to read them from a table.

    Attributes
    ----------
    names : tuple of str
        Names of the features.
    double : bool
        Whether rows are kept in double precision.
    means : tuple of float, optional
        Training mean of each feature, which replaces missing values.
    low, high : tuple of float, optional
        Smallest and largest allowed value of each feature.
    scores : bool, default=False
        Whether the features are class probabilities, one per class and in the order of the classes.
    text : TextFeatures, optional
        How features are computed from a text column.
    weight : str, optional
        Column of the weights that the model was fitted with.
    weight_kind : str, optional
        Meaning of these weights, "survey" or "count".
    """

    names: tuple[str, ...]
    double: bool
    means: tuple[float, ...] | None = None
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    scores: bool = False
    text: TextFeatures | None = field(default=None, repr=False)
    weight: str | None = field(default=None, repr=False)
    weight_kind: str | None = field(default=None, repr=False)


class Feature(NamedTuple):
    """A feature: the numbers of a column, 1 minus these numbers, or an indicator of one value of a text column."""

    column: str
    value: str | None = None
    complement: bool = False

    @property
    def name(self) -> str:
        if self.complement:
            return f"{OTHER}{self.column}"
        return self.column if self.value is None else f"{self.column}={self.value}"


@dataclass(frozen=True)
class Plan:
    """The features of a table, and the excluded columns with the reason for each (`left_out`)."""

    parts: list[Feature]
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [feature.name for feature in self.parts]

    @property
    def texts(self) -> list[str]:
        return sorted({feature.column for feature in self.parts if feature.value is not None})

    @property
    def numbers(self) -> list[str]:
        return [feature.column for feature in self.parts if feature.value is None]


def plan_features(
    table: Table, special: list[str], features: Sequence[str] | None, scores: bool = False, learned: bool = False
) -> Plan:
    """Choose the features of a table; `special` columns have another use, and `learned` names come from a model."""
    left_out: dict[str, str] = {}
    if features is None:
        others = [column for column in table.columns if column not in special]
        features = [column for column in others if is_number(table.types[column])]
        texts = [column for column in others if not is_number(table.types[column])]
        _refuse_spoilt_numbers(table, texts)
        left_out = {column: _no_numbers(table.types[column]) for column in texts}
        if not features:
            next(table.batches(special))  # raises its own error for a table without rows
            _refuse_texts_only(table, special, texts)
    if isinstance(features, str) or not features:
        remedy = f"pass [{features!r}]" if features else "name at least one column, or leave it out"
        raise InputError("features", "a list of column names", repr(features), remedy)
    parts: list[Feature] = []
    for name in features:
        column, _, value = name.partition("=")
        if name in special:
            raise ValueError(
                f"features: expected columns other than the bag, label and weight columns, got {name!r}; leave it out, "
                "or name another column as bag, label or weight."
            )
        if name in table.types:
            if is_number(table.types[name]) or scores:  # texts instead of scores raise an error when they are read
                parts.append(Feature(name))
            else:
                _refuse_spoilt_numbers(table, [name])
                if learned:
                    _refuse_texts_for_numbers(table, name)
                parts += [Feature(name, value) for value in _categories(table, name)]
        elif scores and name.removeprefix(OTHER) in table.types:
            parts.append(Feature(name.removeprefix(OTHER), complement=True))
        elif value and column in table.types:
            parts.append(Feature(column, value))
        else:
            table.require([name], learned)
    refuse_long_names(table.name, [part.name for part in parts])
    return Plan(parts, left_out)


def _refuse_texts_only(table: Table, special: list[str], texts: list[str]) -> None:
    """Raise an error for a table without columns of numbers, and name the columns of texts."""
    problem = f"has no columns of numbers beside {', '.join(map(repr, special))}"
    if not texts:
        raise InputError(table.name, problem=problem, remedy="add columns to learn from")
    named = f"{', '.join(map(repr, texts[:3]))}{', …' if len(texts) > 3 else ''}"
    ways = ("name columns of categories as ", Option("features"), Way(", or a column of sentences as ", Option("text")))
    raise InputError(table.name, problem=f"{problem}, only texts in {named}", remedy=ways)


def _no_numbers(kind: Any) -> str:
    import pyarrow as pa

    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
    return "texts" if texts else str(kind)


def _categories(table: Table, column: str) -> list[str]:
    found: set[str] = set()
    for _, batch in table.batches([], [column]):
        found.update(str(value) for value in encode(batch.column(column))[1].to_pylist() if value is not None)
        if len(found) > _MOST_CATEGORIES:
            raise ValueError(
                f"{table.name}: column {column!r} has more than {_MOST_CATEGORIES} different texts, too many for "
                "categories; leave it out of the features."
            )
    if not found:
        raise ValueError(f"{table.name}: column {column!r} has no values; leave it out of the features.")
    return sorted(found)


def _refuse_spoilt_numbers(table: Table, texts: list[str]) -> None:
    """Raise an error for a numeric column with a typo, which would otherwise be excluded as a text column."""
    import pandas as pd

    texts = [column for column in texts if can_name(table.types[column])]
    if not texts:
        return
    _, batch = next(table.batches([], texts))
    for column in texts:
        values = pd.Series(batch.column(column)[:1000].to_pylist(), dtype=object).dropna().astype(str)
        wrong = values[pd.to_numeric(values, errors="coerce").isna()]
        signed = values[values.str.fullmatch(_SIGNED)]
        if 2 * len(signed) > len(values):
            problem = f"column {column!r} holds texts such as {signed.iloc[0]!r} ({counted(signed.index[0])})"
            remedy = ("convert them to numbers without percent signs and decimal commas", *OTHER_FEATURES)
            raise InputError(table.name, problem=f"{problem}, expected numbers", remedy=remedy)
        if 0 < len(wrong) < len(values) / 2:
            text, row = wrong.iloc[0], counted(wrong.index[0])
            problem = f"column {column!r} holds numbers and the text {text!r} ({row})"
            raise InputError(table.name, problem=problem, remedy=("correct it", *OTHER_FEATURES))


def _refuse_texts_for_numbers(table: Table, column: str) -> None:
    """Raise an error for texts in a column that held numbers when a model was fitted; an empty column is told later."""
    _, batch = next(table.batches([], [column]))
    texts = batch.column(column)[:1000].drop_null()
    if len(texts):
        shown = str(texts[0])[:_LONGEST_SHOWN]
        problem = f"column {column!r} holds texts such as {shown!r}, expected numbers as in training"
        raise InputError(table.name, problem=problem, remedy="convert them to the numbers that the model has learned")


def is_exact(kind: Any) -> bool:
    """Return whether float32 holds all numbers of a column of this type exactly."""
    import pyarrow as pa

    kinds = pa.types
    narrow = kinds.is_integer(kind) and kind.bit_width <= 16
    return bool(narrow or kinds.is_boolean(kind) or kinds.is_float16(kind) or kinds.is_float32(kind))


def read_features(
    batch: pa.RecordBatch, plan: Plan, table: str, first_row: int, dtype: Any = np.float32
) -> tuple[NDArray, NDArray[np.bool_]]:
    """Return the features, (n_rows, n_features), NaN if missing, and which rows have an unknown category, (n_rows,)."""
    out = np.zeros((batch.num_rows, len(plan.parts)), dtype)
    unseen = np.zeros(batch.num_rows, bool)
    for j, (column, value, complement) in enumerate(plan.parts):
        if value is None:
            numbers = _numbers(batch, column, table, first_row, np.float32)
            out[:, j] = 1.0 - numbers if complement else numbers
    for column in plan.texts:
        codes, different = encode(batch.column(column))
        values = different.to_pylist()
        places = [j for j, (name, value, _) in enumerate(plan.parts) if name == column and value is not None]
        known = [plan.parts[j].value for j in places]
        texts = [str(value) if str(value) in known else written_name(value) for value in values]
        matches = np.array([[text == name for name in known] for text in texts], dtype)
        missing = np.array([value is None for value in values])
        unseen |= ((matches == 0).all(1) & ~missing)[codes]
        matches[missing] = np.nan
        out[:, places] = matches[codes]
    return out, unseen


def read_numbers(batch: pa.RecordBatch, column: str, table: str, first_row: int) -> NDArray[np.float64]:
    """Return the numbers of a column, (n_rows,); raise an error for a missing or infinite number."""
    values = _numbers(batch, column, table, first_row, np.float64).astype(np.float64, copy=False)
    missing = np.flatnonzero(np.isnan(values))
    if missing.size:
        place = f"{counted(first_row + int(missing[0]))} has nothing in column {column!r}"
        raise ValueError(f"{table}: {place}, expected a number; fill it in or drop the row.")
    return values


def read_weights(
    batch: pa.RecordBatch, column: str, table: str, first_row: int, kind: str = "survey"
) -> NDArray[np.float64] | NDArray[np.int64]:
    """Return the weights of the rows, (n_rows,); raise an error for a negative weight, and for a count in parts."""
    weights = read_numbers(batch, column, table, first_row)
    negative = np.flatnonzero(weights < 0)
    if negative.size:
        row, weight = counted(first_row + int(negative[0])), weights[negative[0]]
        problem = f"{row} has {weight:g} in column {column!r}, expected a weight of at least 0"
        raise InputError(table, problem=problem, remedy="correct it or drop the row")
    if kind == "survey":
        return weights
    counts = weights.astype(np.int64)
    wrong = np.flatnonzero((counts != weights) | (weights > MOST_COUNTED))
    if wrong.size:
        row, weight = counted(first_row + int(wrong[0])), weights[wrong[0]]
        problem = f"{row} has {weight:g} in column {column!r}, expected a count, which is a whole number"
        remedy = ("name it as ", Option("weight"), " if it is a survey weight")
        raise InputError(table, problem=problem, remedy=remedy)
    return counts


def _numbers(batch: pa.RecordBatch, column: str, table: str, first_row: int, held: Any) -> NDArray:
    """Return the numbers of a column, (n_rows,), NaN if missing; raise an error for numbers too large for `held`."""
    import pyarrow as pa

    array = batch.column(column)
    if not is_number(array.type):
        kind = array.type.value_type if hasattr(array, "dictionary") else array.type
        raise ValueError(
            f"{table}: column {column!r} holds {kind}, expected numbers; correct its cells, or leave the column out."
        )
    if pa.types.is_boolean(array.type) or pa.types.is_decimal(array.type):
        array = array.cast(pa.float64() if pa.types.is_decimal(array.type) else pa.int8())
    values = array.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        usable = np.isfinite(values.astype(held, copy=False))
    if not usable.all():
        too_large = np.flatnonzero(~usable & ~np.isnan(values))
        if too_large.size:
            row, value = counted(first_row + int(too_large[0])), values[too_large[0]]
            what = f"{value:g} (too large)" if np.isfinite(value) else str(value)
            problem = f"{row} has {what} in column {column!r}, expected a number"
            raise InputError(table, problem=problem, remedy=("correct it, drop the row", *OTHER_FEATURES))
    return values


def refuse_out_of_range(rows: NDArray, plan: Plan, low: NDArray, high: NDArray, table: str, first_row: int) -> None:
    """Raise an error for a row with a number outside the range that a model can compute with."""
    wrong = np.argwhere((rows < low) | (rows > high))
    if wrong.size:
        i, j = wrong[0]
        where = f"{counted(first_row + int(i))} has {rows[i, j]:g} in column {plan.parts[j].column!r}"
        raise ValueError(
            f"{table}: {where}, expected {low[j]:.3g} to {high[j]:.3g}, beyond which the model cannot compute; "
            "correct it or drop the row."
        )
