"""Transition tables from a table of counts: how many of each category chose each class."""

from __future__ import annotations

import warnings
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_fraction
from histnetq.errors import InputError, InputWarning, Option
from histnetq.quantifiers.classical.linear import LinearQ
from histnetq.quantifiers.classical.transitions import Transitions
from histnetq.simplex import Floats
from histnetq.tables.columns import Codes, counted, read_numbers
from histnetq.tables.table_files import Table, open_table

__all__ = ["transition_table"]

_MOST = 100  # categories, or classes
_DIFFER = 0.1  # relative difference of the totals that is worth a warning


def transition_table(
    table: Any,
    *,
    categories: str,
    classes: str,
    group: str | None = None,
    occasion: str | None = None,
    known: Any = None,
    coverage: float = 0.9,
) -> pd.DataFrame:
    """Estimate how many of each category chose each class, from the totals of many units.

    This is what ``histnetq transitions`` does. A row of the table is a unit, such as a polling place, with the votes of
    each party and of each candidate. See `LinearQ.transitions`.

    Parameters
    ----------
    table : path, list of paths, or data frame
        One row per unit.
    categories : str
        Pattern of the columns of categories, such as ``"party_*"``, where ``*`` is the category.
    classes : str
        Pattern of the columns of classes, such as ``"candidate_*"``. If the totals of a unit differ, the counts of
        classes are scaled to the total of the categories.
    group : str, default=None
        Column with the group of each unit, such as its electorate, which has a table of its own.
    occasion : str, default=None
        Column with the occasion of each unit, such as its election. Groups of other occasions are estimated apart.
    known : path or data frame, default=None
        Known tables of some groups, with the columns group, from, to and count; they calibrate the intervals of the
        remaining groups, the only ones in the result.
    coverage : float, default=0.9
        Probability that an interval contains the true share.

    Returns
    -------
    DataFrame
        One row per group (the first is "all"), category and class, with columns `group`, `from`, `to`, `count`, `share`
        and, with known tables, `lower` and `upper`.

    Examples
    --------
    >>> votes = pd.DataFrame({"party_x": [90, 50, 10], "party_y": [10, 50, 90], "to_a": [82, 50, 18]})
    >>> votes["to_b"] = 100 - votes["to_a"]
    >>> found = transition_table(votes, categories="party_*", classes="to_*")
    >>> found.round({"count": 0, "share": 1})
      group from to  count  share
    0   all    x  a  135.0    0.9
    1   all    x  b   15.0    0.1
    2   all    y  a   15.0    0.1
    3   all    y  b  135.0    0.9
    """
    check_fraction("coverage", coverage)
    source = open_table(table, "table")
    names = {"categories": _match(source, categories, "categories"), "classes": _match(source, classes, "classes")}
    both = set(names["categories"]) & set(names["classes"])
    if both:
        raise InputError("classes", "other columns than the categories", f"{min(both)!r} twice", "give two patterns")
    x, y, groups, occasions = _read(source, [*names["categories"]], [*names["classes"]], group, occasion)
    known_counts = None if known is None else _read_known(known, group, *(list(n.values()) for n in names.values()))
    parts = []
    for one in dict.fromkeys(occasions.tolist()):
        own = occasions == one
        bags = _as_bags(x[own], y[own], list(names["classes"].values()))
        parts.append(LinearQ().fit(bags).transitions(bags, groups[own]))
    counts, labels = np.concatenate([part.counts for part in parts]), np.concatenate([part.groups for part in parts])
    times = np.repeat(np.arange(len(parts)), [len(part.groups) for part in parts])
    named = np.array(list(names["categories"].values())), np.array(list(names["classes"].values()))
    found = Transitions(counts, labels, *named)
    if known_counts is not None:
        found = _with_intervals(found, known_counts, times, coverage)
    frames = [found.overall().to_frame(), *([] if group is None else [found.to_frame()])]
    return pd.concat(frames, ignore_index=True)


def _match(table: Table, pattern: str, argument: str) -> dict[str, str]:
    """Return the columns that a pattern matches, with the part of each that stands for ``*``."""
    start, star, end = pattern.partition("*")
    if not star or "*" in end:
        raise InputError(argument, "a pattern with one *, such as 'party_*'", repr(pattern), "write * for the name")
    literal = "".join(f"[{letter}]" if letter in "[?" else letter for letter in pattern)
    found = {name: name[len(start) : len(name) - len(end)] for name in table.columns if fnmatchcase(name, literal)}
    if not 2 <= len(found) <= _MOST:
        expected = f"a pattern of 2 to {_MOST} columns"
        raise InputError(argument, expected, f"{pattern!r}, which matches {len(found)}", "correct the pattern")
    return found


def _read(
    table: Table, categories: list[str], classes: list[str], group: str | None, occasion: str | None
) -> tuple[Floats, Floats, NDArray, NDArray]:
    """Return the counts of the units that have both kinds, and their groups and occasions."""
    keys = [None if name is None else Codes(table.name, [name], table.written) for name in (group, occasion)]
    table.require([name for name in (group, occasion) if name is not None])
    numbers: list[Floats] = []
    codes: tuple[list[NDArray], list[NDArray]] = ([], [])
    for n, batch in table.batches([*categories, *classes], [name for name in (group, occasion) if name is not None]):
        numbers.append(np.stack([read_numbers(batch, c, table.name, n) for c in (*categories, *classes)], axis=1))
        for found, key in zip(codes, keys, strict=True):
            found.append(np.zeros(batch.num_rows, np.int64) if key is None else key.of(batch, n))
    counts = np.concatenate(numbers)
    if (counts < 0).any():
        row, column = np.argwhere(counts < 0)[0]
        place = f"{counted(int(row))} has {counts[row, column]:g} in column {[*categories, *classes][column]!r}"
        raise InputError(table.name, problem=f"{place}, expected a count of at least 0", remedy="correct it")
    if (parts := np.argwhere(counts[:, : len(categories)] % 1)).size:
        row, column = parts[0]
        place = f"{counted(int(row))} has {counts[row, column]:g} in column {categories[column]!r}"
        remedy = "give totals of the categories instead of shares"
        raise InputError(table.name, problem=f"{place}, expected a whole number", remedy=remedy)
    own, times = (np.concatenate(part) for part in codes)
    x, y = np.split(counts, [len(categories)], axis=1)
    used = (x.sum(1) > 0) & (y.sum(1) > 0)
    if not used.any():
        raise InputError(table.name, problem="has no unit with counts of both kinds", remedy="check the patterns")
    for code in range(own.max() + 1 if group and occasion else 0):
        if len(np.unique(times[own == code])) > 1:
            problem = f"group {keys[0].values[code]!r} has units of several occasions"  # type: ignore[union-attr]
            raise InputError(table.name, problem=problem, remedy="name the groups of each occasion differently")
    _warn_of_totals(table.name, x[used], y[used])
    names = np.array(["all"] if keys[0] is None else [str(value) for value in keys[0].values])
    return x[used], y[used], names[own[used]], times[used]


def _warn_of_totals(table: str, x: Floats, y: Floats) -> None:
    """Warn if there are fewer units than categories, or if the totals of both kinds differ much."""
    if len(x) < x.shape[1]:
        problem = f"has {len(x)} units for {x.shape[1]} categories, too few to tell the categories apart"
        warnings.warn(InputWarning(table, problem=problem, remedy="give more units"), stacklevel=4)
    totals = y.sum(1)
    are_shares = any((abs(totals / whole - 1) < 0.02).all() for whole in (1, 100))
    differ = abs(totals - x.sum(1)).sum() / x.sum()
    if differ > _DIFFER and not are_shares:
        problem = f"the totals of the categories and of the classes differ by {100 * differ:.0f} %, and are made equal"
        remedy = "add a column of the people who have no category or no class, or the shares may be wrong"
        warnings.warn(InputWarning(table, problem=problem, remedy=remedy), stacklevel=4)


def _as_bags(x: Floats, y: Floats, classes: list[str]) -> Bags:
    unit, category = np.nonzero(x)
    return Bags(
        np.eye(x.shape[1], dtype=np.float32), category, np.searchsorted(unit, np.arange(len(x) + 1)),
        weights=x[unit, category], prevalences=y, classes=classes, normalize=True,
    )  # fmt: skip


def _read_known(source: Any, group: str | None, categories: list[str], classes: list[str]) -> dict[str, Floats]:
    """Return the known table of each group."""
    if group is None:
        raise InputError("known", "with groups", "none", ("name the column of groups by ", Option("group")))
    table = open_table(source, "known")
    names = ["group", "from", "to"]
    table.require([*names, "count"])
    keys, parts = Codes(table.name, names, table.written), []
    for n, batch in table.batches(["count"], names):
        parts.append((keys.of(batch, n), read_numbers(batch, "count", table.name, n)))
    cell, count = (np.concatenate(part) for part in zip(*parts, strict=True))
    sums = np.bincount(cell, count)
    found: dict[str, Floats] = {}
    places = [{name: i for i, name in enumerate(some)} for some in (categories, classes)]
    for (one, row, column), value in zip(keys.place, sums.tolist(), strict=True):
        if str(row) not in places[0] or str(column) not in places[1] or value < 0:
            problem = f"has {value:g} from {str(row)!r} to {str(column)!r}, expected counts of the table's columns"
            raise InputError(table.name, problem=problem, remedy="correct it")
        own = found.setdefault(str(one), np.zeros((len(categories), len(classes))))
        own[places[0][str(row)], places[1][str(column)]] = value
    return found


def _with_intervals(found: Transitions, known: dict[str, Floats], times: NDArray, coverage: float) -> Transitions:
    """Return the tables of the groups that are not known, with intervals calibrated on those that are."""
    there = np.array([str(name) in known for name in found.groups])
    if there.sum() < 1 or there.all():
        problem = f"has tables of {there.sum()} of {len(there)} groups, expected some but not all"
        raise InputError("known", problem=problem, remedy="add or remove tables")
    truth = np.stack([known[str(name)] for name in found.groups[there]])
    asked, calibrated = (
        Transitions(found.counts[part], found.groups[part], found.categories, found.classes) for part in (~there, there)
    )
    return asked.with_intervals(calibrated, truth, coverage, times[there])
