"""Warnings about columns that spoil estimates: codes of missing values, copies of the label, places and times."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from histnetq.errors import InputWarning, Option, Way
from histnetq.tables.column_inspection import find_bag_facts

_SAMPLE = 20_000  # rows that are compared with the label, or searched for runs
_FIRST = 1000  # rows that decide first which columns have few values
_FEWEST_ROWS, _FEWEST_OF_CLASS = 50, 5  # fewer rows determine a label by chance
_FEW_VALUES, _PER_CLASS = 10, 3  # largest number of values of a copy of the label, and per class
_TOLD = 0.98  # smallest mean share of the classes that a copy of the label tells
_FEWEST_IN_RUNS, _FEWEST_PLACES = 100, 5  # rows and values
_RUNS = 0.25  # largest number of changes from row to row, as a share of the number in random order
_MOST_NAMED = 4  # columns
_CLEAR = 0.05  # smallest distance of a frequent code from other values, as a share of their range
_FREQUENT = 0.01  # share of the rows
_YEARS, _DATES, _SECONDS = (1900, 2100), (19_000_101, 21_001_231), (631_152_000, 4_102_444_800)
_PLACES = {  # words of the name of a column
    "lat", "latitude", "lon", "lng", "longitude", "easting", "northing", "station", "transect", "site", "zip",
    "zipcode", "postcode", "year", "month", "date", "datetime", "timestamp", "id", "uuid",
}  # fmt: skip
_WHOLE_NAMES = {
    "long", "time", "day", "hour", "week", "plot", "index", "idx", "key", "region", "district", "location", "sample",
    "batch", "subject", "patient", "participant", "session", "cruise", "haul", "trap", "camera",
}  # fmt: skip
_BIRTH = {"birth", "born"}  # such a year belongs to the row
_COUNTS = {"n", "count", "counts", "number", "abundance", "freq", "frequency", "individuals", "specimens"}  # by name


class Suspect(NamedTuple):
    """A number that may be a code for missing values: its rows, and the range of all other values."""

    value: float
    n_rows: int
    low: float
    high: float


def warn_of_columns(
    table: str,
    columns: dict[int, str],
    rows: NDArray,
    ends: tuple[NDArray, NDArray],
    labels: NDArray | None = None,
    *,
    label: str = "",
    places: bool = False,
) -> None:
    """Warn of features that are likely to spoil estimates.

    Parameters
    ----------
    table : str
        Name of the table in messages.
    columns : dict
        The column of each feature that is checked, by its position.
    rows : (n_rows, n_features)
        The features; NaN is a missing value.
    ends : pair of arrays
        The smallest and the largest value of each feature.
    labels : (n_rows,), optional
        Class codes.
    label : str, default=""
        Name of the column of the labels.
    places : bool, default=False
        Whether to look for places, times and identifiers.
    """
    for j, found in find_codes(rows, ends).items():
        if j in columns:
            _warn_of_code(table, columns[j], found)
    if labels is not None:
        told = {columns[j]: words for j, words in find_near_copies(rows, labels).items() if j in columns}
        _warn_of_near_copies(table, told, label)
    if places:
        _warn_of_places(table, list(dict.fromkeys(columns[j] for j in find_places(rows, columns))))


def warn_of_counts(table: str, columns: Sequence[str]) -> None:
    """Warn of features whose names say that they count rows; `columns` are the features that are whole numbers."""
    if found := [column for column in columns if column.lower() in _COUNTS]:
        problem = f"column {found[0]!r} looks like counts, but the model learns from it as a feature"
        kind = Way(
            "pass ", Option("weight", found[0]), " and ", Option("weight_kind", "count"), on=("python", "service")
        )
        named = Way("name it by ", Option("count_column"), on=("command",))
        remedy = (
            kind,
            named,
            " if a row stands for so many equal rows, or leave it out",
            Way(" by ", Option("ignore")),
        )
        _warn(table, problem, remedy)


def warn_of_class_names(table: str, columns: Sequence[str], classes: Sequence[Any]) -> None:
    """Warn of a feature with the name of a class: it may be the share of the class."""
    names = {name for name in map(str, classes) if not name.isdecimal()}  # pixels are often numbered as classes are
    if found := [column for column in columns if column in names]:
        problem = f"column {found[0]!r} has the name of a class, but the model learns from it as a feature"
        remedy = ("leave it out", Way(" by ", Option("ignore")), " if it was made from the proportions")
        _warn(table, problem, remedy)


def find_codes(rows: NDArray, ends: tuple[NDArray, NDArray]) -> dict[int, Suspect]:
    """Return the columns with a number such as -999 or 9999 far from all other values.

    Examples
    --------
    >>> rows = np.array([[1.0], [2.5], [-999.0], [4.0]])
    >>> find_codes(rows, (rows.min(0), rows.max(0)))
    {0: Suspect(value=-999.0, n_rows=1, low=1.0, high=4.0)}
    """
    found = {}
    for j, (low, high) in enumerate(zip(*ends, strict=True)):
        for value in (low, high):
            if math.isfinite(value) and low < high and _is_code(float(value)):
                suspect = _examined(rows[:, j], float(value))
                if suspect is not None:
                    found[j] = suspect
                    break
    return found


def _is_code(value: float) -> bool:
    """Return whether a number has only nines, at least two of them if it is positive, or is -32768."""
    digits = f"{abs(value):.6g}".replace(".", "")
    return value == -32768 or (set(digits) == {"9"} and (value < 0 or len(digits) > 1))


def _examined(values: NDArray, code: float) -> Suspect | None:
    is_code = values == values.dtype.type(code)
    others = values[~is_code & ~np.isnan(values)]
    if not len(others):
        return None
    low, high, n_rows = float(others.min()), float(others.max()), int(is_code.sum())
    gap, width = (low - code if code < low else code - high), high - low
    many_digits = abs(code) >= 99
    if code < 0 <= low:  # negative nines among numbers without a sign
        is_far = many_digits or n_rows > 1
    else:
        is_frequent = n_rows >= max(5, _FREQUENT * len(values)) and abs(code) >= 999
        is_far = gap >= width or (is_frequent and gap >= _CLEAR * width)
        is_far &= many_digits and (n_rows > 1 or gap >= 10 * width)
    return Suspect(float(f"{code:.6g}"), n_rows, low, high) if is_far else None


def find_near_copies(rows: NDArray, labels: NDArray) -> dict[int, str]:
    """Return the columns with few values that nearly determine the label, or are determined by it, in words.

    Exact copies are found, too. All classes count the same, and so do all values of a column.

    Examples
    --------
    >>> labels = np.arange(300) % 3
    >>> rows = np.stack([np.where(np.arange(300) < 4, 0, labels), labels == 2, np.arange(300) % 7], axis=1)
    >>> find_near_copies(rows.astype(float), labels)
    {0: 'tells 99 % of the classes', 1: 'has one value for each class'}
    """
    some = np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLE)).astype(np.int64)
    kept = some[np.isin(labels[some], np.flatnonzero(np.bincount(labels[some]) >= _FEWEST_OF_CLASS))]
    classes, codes = np.unique(labels[kept], return_inverse=True)
    if len(kept) < _FEWEST_ROWS or len(classes) < 2:
        return {}
    most, found = max(_FEW_VALUES, _PER_CLASS * len(classes)), {}
    for j in _with_few_values(rows[kept[:: max(1, len(kept) // _FIRST)]], most):
        values, place = np.unique(rows[kept, j], return_inverse=True)
        if 2 <= len(values) <= most:
            counts = np.zeros((len(values), len(classes)))
            np.add.at(counts, (place, codes), 1)
            if words := _in_words(counts):
                found[j] = words
    return found


def _with_few_values(rows: NDArray, most: int) -> list[int]:
    changes = np.diff(np.sort(rows, axis=0), axis=0) != 0
    return np.flatnonzero(changes.sum(0) < most).tolist()


def _in_words(counts: NDArray) -> str:
    """Say how a column and the label determine each other; `counts` (n_values, n_classes) are numbers of rows."""
    n_values, n_classes = counts.shape
    told = _told(counts / counts.sum(0))
    if told >= _TOLD:
        return f"tells {told:.0%} of the classes".replace("%", " %")
    of_class = _told((counts / counts.sum(1, keepdims=True)).T)
    return "has one value for each class" if n_values < n_classes and of_class >= _TOLD else ""


def _told(shares: NDArray) -> float:
    """Return the mean share of the columns that the best choice for each row of `shares` finds."""
    best = shares.argmax(1)
    found = np.zeros(shares.shape[1])
    np.add.at(found, best, shares[np.arange(len(best)), best])
    return float(found.mean())


def find_places(rows: NDArray, columns: dict[int, str]) -> list[int]:
    """Return the columns that look like places, times or identifiers by their names, values or runs of equal values.

    Examples
    --------
    >>> rows = np.stack([np.repeat(np.arange(20), 10), np.arange(200) % 7], axis=1)
    >>> find_places(rows, {0: "depth", 1: "rings"}), find_places(rows, {0: "depth", 1: "site_no"})
    ([0], [0, 1])
    """
    first = rows[:_SAMPLE]
    found = [
        j for j, column in columns.items()
        if _names_a_place(column) or _are_times(first[:, j]) or _is_in_runs(first[:, j])
    ]  # fmt: skip
    if found:  # columns that are constant within each place, such as its depth
        place = np.unique(first[:, found], axis=0, return_inverse=True)[1].ravel()
        found += find_bag_facts(first, place, [j for j in columns if j not in found])
    return sorted(found)


def _names_a_place(column: str) -> bool:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", column)
    parts = {word.lower() for word in words}
    return bool(parts & _PLACES and not parts & _BIRTH) or column.lower() in _WHOLE_NAMES


def _are_times(values: NDArray) -> bool:
    """Return whether all numbers are years, dates such as 20260131, or seconds since 1970."""
    low, high = np.nanmin(values), np.nanmax(values)
    if not any(first <= low < high <= last for first, last in (_YEARS, _DATES, _SECONDS)):
        return False
    if (values != np.rint(values)).any():
        return bool(low >= _SECONDS[0])
    if not _DATES[0] <= low <= _DATES[1]:
        return len(values) >= _FEWEST_PLACES
    return bool(((values // 100 % 100 <= 12) & (values % 100 <= 31)).all())


def _is_in_runs(values: NDArray) -> bool:
    """Return whether a value changes far less often from row to row than it would in random order."""
    if len(values) < _FEWEST_IN_RUNS:
        return False
    n_rows = np.unique(values, return_counts=True)[1]
    in_random_order = (len(values) - 1) * (1 - ((n_rows / len(values)) ** 2).sum())
    return len(n_rows) >= _FEWEST_PLACES and (np.diff(values) != 0).sum() <= _RUNS * in_random_order


def _listed(columns: Sequence[str]) -> str:
    shown = [repr(column) for column in columns[:_MOST_NAMED]]
    if len(columns) > _MOST_NAMED:
        return f"{', '.join(shown)} and {len(columns) - _MOST_NAMED} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _warn(table: str, problem: str, remedy: Any) -> None:
    warnings.warn(InputWarning(table, problem=problem, remedy=remedy), stacklevel=4)


def _warn_of_code(table: str, column: str, found: Suspect) -> None:
    others = f"{found.low:g} to {found.high:g} in all other rows"
    problem = f"column {column!r} has {found.value:g} in {found.n_rows:,} row{'s' * (found.n_rows > 1)} and {others}"
    drop = Way(" and pass ", Option("missing", "drop"), " or ", Option("missing", "mean"))
    _warn(table, problem, (f"if {found.value:g} stands for a missing value, leave these cells empty", drop))


def _warn_of_near_copies(table: str, told: dict[str, str], label: str) -> None:
    if told:
        column, words = next(iter(told.items()))
        others = f", and {_listed(list(told)[1:])} similarly" if len(told) > 1 else ""
        problem = f"column {column!r} {words} in {label!r}{others}" if label else f"column {column!r} {words}{others}"
        leave = ("if new tables lack it or it was made from the label, leave it out", Way(" by ", Option("ignore")))
        _warn(table, problem, leave)


def _warn_of_places(table: str, columns: list[str]) -> None:
    if columns:
        one = len(columns) == 1
        looks = "looks like a place, a time or an identifier, which tells samples apart instead of classes"
        if not one:
            looks = "look like places, times or identifiers, which tell samples apart instead of classes"
        problem = f"column{'s' * (not one)} {_listed(columns)} {looks}"
        bag = Way("name the column of samples as ", Option("bag"), ", or ", on=("python", "command"))
        _warn(table, problem, (bag, f"leave {'it' if one else 'them'} out", Way(" by ", Option("ignore"))))
