"""A table of the classes' proportions in each bag, wide or long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.data.checks import shown
from histnetq.data.table_columns import Codes, read_numbers
from histnetq.data.table_files import Table, open_table

__all__ = ["order_classes", "read_prevalences"]


def read_prevalences(
    source: Any, keys: list[str], ids: NDArray, counts: bool, classes: Sequence[Any] | None
) -> tuple[NDArray[np.float64], list[Any]]:
    """(n_bags, n_classes) for these bags, and the names of the classes."""
    table = open_table(source, "prevalences")
    table.require(keys)
    others = [column for column in table.columns if column not in keys]
    if not others:
        raise ValueError(f"{table.name}: has no columns of classes beside {', '.join(map(repr, keys))}; add them.")
    found = _read_long(table, keys) if set(others) == {"class", "value"} else _read_wide(table, keys, others)
    known, names, values = found
    place = {str(bag): i for i, bag in enumerate(known)}
    lacking = [bag for bag in ids if str(bag) not in place]
    if len(lacking) == len(ids):
        raise ValueError(
            f"{table.name}: has none of the bags, such as {ids[0]!s}; its first is {known[0]!s}. "
            "Check that both tables name bags alike."
        )
    if lacking:
        raise ValueError(f"{table.name}: has no row for bag {lacking[0]!s}; add it, or drop the rows of this bag.")
    p = values[[place[str(bag)] for bag in ids]]
    _check_proportions(table.name, p, ids, counts)
    wanted = order_classes(names, classes)
    order = {str(name): i for i, name in enumerate(names)}
    columns = np.array([order.get(str(name), -1) for name in wanted])
    p = np.where(columns >= 0, p[:, columns], 0.0)
    return p / p.sum(1, keepdims=True), wanted


def _read_wide(table: Table, keys: list[str], classes: list[str]) -> tuple[list[Any], list[Any], NDArray[np.float64]]:
    codes, parts, n = Codes(table.name, keys), [], 0
    for batch in table.batches(classes, keys):
        numbers = codes.of(batch, n)
        if len(codes.place) < n + batch.num_rows:
            row = next(i for i, code in enumerate(numbers.tolist()) if code != n + i)
            raise ValueError(
                f"{table.name}: row {n + row} names the bag {codes.values[numbers[row]]!s} again; give one row per bag."
            )
        parts.append(np.stack([read_numbers(batch, name, table.name, n) for name in classes], axis=1))
        n += batch.num_rows
    if n == 0:
        raise ValueError(f"{table.name}: has no rows; check the file.")
    return codes.values, list(classes), np.concatenate(parts)


def _read_long(table: Table, keys: list[str]) -> tuple[list[Any], list[Any], NDArray[np.float64]]:
    bags, names, parts, n = Codes(table.name, keys), Codes(table.name, ["class"]), [], 0
    for batch in table.batches(["value"], [*keys, "class"]):
        values = read_numbers(batch, "value", table.name, n)
        parts.append((bags.of(batch, n), names.of(batch, n), values))
        n += batch.num_rows
    if n == 0:
        raise ValueError(f"{table.name}: has no rows; check the file.")
    row, column, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    found = np.zeros((len(bags.place), len(names.place)))
    times = np.zeros_like(found)
    np.add.at(times, (row, column), 1)
    if times.max() > 1:
        i, j = (int(k) for k in np.argwhere(times > 1)[0])
        raise ValueError(
            f"{table.name}: bag {bags.values[i]!s} has class {names.values[j]!s} twice; give one value for each."
        )
    found[row, column] = values
    return bags.values, names.values, found


def _check_proportions(table: str, p: NDArray[np.float64], ids: NDArray, counts: bool) -> None:
    sums = p.sum(1)
    wrong = (p < 0).any(1) | (sums <= 0) if counts else (p < 0).any(1) | (np.abs(sums - 1) > 1e-3)
    if not wrong.any():
        return
    i = int(np.flatnonzero(wrong)[0])
    if (p[i] < 0).any():
        raise ValueError(f"{table}: bag {ids[i]!s} has the negative number {p[i].min():g}; correct it.")
    if counts:
        raise ValueError(f"{table}: the counts of bag {ids[i]!s} are all 0; drop the bag.")
    raise ValueError(f"{table}: bag {ids[i]!s} sums to {sums[i]:g}, expected 1; pass counts=True if these are counts.")


def order_classes(found: Sequence[Any], classes: Sequence[Any] | None) -> list[Any]:
    """The classes in their order; those found must be among those given."""
    if classes is None:
        return sorted(found)
    known = {str(name) for name in classes}
    unknown = [name for name in found if str(name) not in known]
    if unknown:
        raise ValueError(f"classes: {unknown[0]!r} occurs but is not among {shown(np.array(list(classes)))}; add it.")
    return list(classes)
