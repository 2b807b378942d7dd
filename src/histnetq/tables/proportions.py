"""Tables with the proportions of the classes in each bag, in wide or long format."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import check_names, nearest_name, refuse_lookalikes, shown
from histnetq.errors import InputError, Option
from histnetq.simplex import Floats, first_off_simplex
from histnetq.tables.columns import Codes, counted, read_numbers
from histnetq.tables.names import of_one_type
from histnetq.tables.table_files import Table, open_table

_TOTALS = ("total", "totals", "sum")  # names of columns that are no classes
_ROUNDED = 0.02  # largest relative difference of a column of this name from the sum of all classes, by rounding
_ALIKE = 0.8  # smallest similarity of a bag to the bag that it may be a typo of
_MOST_LISTED = 10  # bags that an error names
_ADD = ("add it, or drop the rows of this bag", "add them, or drop the rows of these bags")
_FEWEST = 3  # bags; in fewer, a class may be the sum of the rest by chance


def read_prevalences(source: Any, bags: Codes, counts: bool, classes: Sequence[Any] | None) -> tuple[Floats, NDArray]:
    """Return the proportions of the classes in these bags, (n_bags, n_classes), and the class names, (n_classes,)."""
    table, keys = open_table(source, "prevalences"), bags.columns
    table.require(keys)
    others = [column for column in table.columns if column not in keys]
    if not others:
        raise ValueError(f"{table.name}: has no columns of classes beside {', '.join(map(repr, keys))}; add them.")
    known = Codes(table.name, keys, table.written)
    found, values = _read_long(table, known) if set(others) == {"class", "value"} else _read_wide(table, known, others)
    if classes is None:
        found, values = _without_total(table.name, found, values)
    if len(found) == 1 and len(classes or ()) < 2:
        problem = f"has only the class {found[0]!r}, expected at least 2"
        raise InputError(table.name, problem=problem, remedy="add a column with the share of the others")
    p = values[_find_bags(table.name, known, bags)]
    wrong = first_off_simplex(p, normalize=counts)
    if wrong is not None:
        bag = bags.values[wrong.row]
        if wrong.fault == "negative":
            raise ValueError(f"{table.name}: bag {bag!s} has the negative number {p[wrong.row].min():g}; correct it.")
        if counts:
            raise ValueError(f"{table.name}: the counts of bag {bag!s} are all 0; drop the bag.")
        remedy = ("pass ", Option("counts", True), " if these are counts or percentages")
        raise InputError(table.name, problem=f"bag {bag!s} sums to {wrong.total:g}, expected 1", remedy=remedy)
    names, places = order_classes(found, classes, table.name)
    arranged = np.zeros((len(p), len(names)))
    arranged[:, places] = p / p.sum(1, keepdims=True)
    return arranged, names


def _find_bags(table: str, known: Codes, wanted: Codes) -> list[int]:
    """Return the row of each wanted bag; names are compared as texts, as only some file formats have typed names."""
    place = {tuple(map(str, key)): i for i, key in enumerate(known.keys)}
    found = [place.get(tuple(map(str, key))) for key in wanted.keys]
    lacking = [bag for bag, i in zip(wanted.values, found, strict=True) if i is None]
    used = set(found)
    extra = [str(bag) for i, bag in enumerate(known.values) if i not in used]
    if lacking:
        raise InputError(table, problem=_describe_lacking(lacking, extra), remedy=_ADD[len(lacking) > 1])
    if extra:
        warnings.warn(
            f"{table}: no rows belong to {len(extra):,} of its bags, such as {extra[0]!r}, which are ignored; correct "
            "their names if they have rows.", UserWarning, stacklevel=3,
        )  # fmt: skip
    return found  # type: ignore[return-value]


def _describe_lacking(bags: list[Any], others: list[str]) -> str:
    """Return the bags that a table of proportions lacks, each with the bag without rows that it resembles."""
    named = []
    for bag in map(str, bags[:_MOST_LISTED]):
        near = nearest_name(bag, others, _ALIKE)
        named.append(f"{bag!r}{'' if near in (None, bag) else f' (perhaps {near!r})'}")
    more = f" and {len(bags) - _MOST_LISTED:,} more" if len(bags) > _MOST_LISTED else ""
    return f"has no row for bag{'s' if len(bags) > 1 else ''} {', '.join(named)}{more}"


def _read_wide(table: Table, bags: Codes, classes: list[str]) -> tuple[list[Any], Floats]:
    """Read a table with one column per class; return the class names and the values, (n_bags, n_classes)."""
    parts = []
    for n, batch in table.batches(classes, bags.columns):
        numbers = bags.of(batch, n)
        again = np.flatnonzero(numbers != n + np.arange(len(numbers)))
        if again.size:
            row, bag = counted(n + int(again[0])), bags.values[numbers[again[0]]]
            raise ValueError(f"{table.name}: {row} names the bag {bag!s} again; give one row per bag.")
        parts.append(np.stack([read_numbers(batch, name, table.name, n) for name in classes], axis=1))
    return of_one_type(classes, written=True), np.concatenate(parts)


def _read_long(table: Table, bags: Codes) -> tuple[list[Any], Floats]:
    """Read a table with one row per bag and class; return the class names and values, (n_bags, n_classes)."""
    names, parts = Codes(table.name, ["class"], table.written), []
    for n, batch in table.batches(["value"], [*bags.columns, "class"]):
        values = read_numbers(batch, "value", table.name, n)
        parts.append((bags.of(batch, n), names.of(batch, n), values))
    row, column, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    found = np.zeros((len(bags.place), len(names.place)))
    place = row * found.shape[1] + column
    times = np.bincount(place, minlength=found.size)
    if times.max() > 1:
        i, j = divmod(int(np.argmax(times > 1)), found.shape[1])
        raise ValueError(
            f"{table.name}: bag {bags.values[i]!s} has class {names.values[j]!s} twice; give one value for each."
        )
    found.flat[place] = values
    return names.values, found


def _without_total(table: str, names: list[Any], values: Floats) -> tuple[list[Any], Floats]:
    """Leave out a class that is the sum of all remaining classes, with a warning; `values` is (n_bags, n_classes)."""
    half = values.sum(1) / 2
    for j, name in enumerate(names):
        is_named = str(name).strip().casefold() in _TOTALS
        tolerance = _ROUNDED if is_named else 1e-9
        is_sum = bool(np.allclose(values[:, j], half, rtol=tolerance)) and half.any()
        if is_sum and len(names) > 2 and (is_named or len(values) >= _FEWEST):
            warnings.warn(
                f"{table}: {name!r} is the sum of the other classes in every bag, so it is left out; remove it from "
                "the table.", UserWarning, stacklevel=3,
            )  # fmt: skip
            return names[:j] + names[j + 1 :], np.delete(values, j, axis=1)
        if is_named:
            problem = f"{name!r} would be a class, but is named as a total"
            raise InputError(table, problem=problem, remedy="remove it, or rename it if it is a class")
    return names, values


def order_classes(found: Sequence[Any], classes: Sequence[Any] | None, where: str) -> tuple[NDArray, NDArray[np.int64]]:
    """Return the classes, (n_classes,), sorted by default, and the position of each found class among them.

    `where` names the table and column of the found classes in errors.
    """
    refuse_lookalikes(where, found)
    wanted = sorted(found) if classes is None else list(classes)
    place = {str(name): i for i, name in enumerate(wanted)}
    unknown = [name for name in found if str(name) not in place]
    if unknown:
        raise ValueError(f"classes: {unknown[0]!r} occurs but is not among {shown(np.array(wanted))}; add it.")
    names = check_names("classes", wanted, len(wanted), "class")
    if len(names) < 2:
        raise ValueError(f"prevalences: expected at least 2 classes, got {len(names)}; add the columns of the others.")
    return names, np.array([place[str(name)] for name in found])
