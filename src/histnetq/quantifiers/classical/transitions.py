"""Transition tables: how many of each category are of each class, from the totals of many units alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.checks import check_fraction
from histnetq.simplex import Floats
from histnetq.uncertainty.conformal import Calibration

__all__ = ["Transitions", "estimate_transitions"]

_ROUNDS = 50  # more rounds follow chance differences between units
_PRIOR = 0.3  # weight of the associations of all groups, relative to the units of a group
_LEAST = 1e-12
_FEWEST = 6  # known groups of a calibrated cell
_FEWEST_OCCASIONS = 3  # below, how much they differ is unknown
_HIGHEST, _LEVELS = 0.99, 10  # levels of intervals that are widened
_FITS = {"unit": 3, "group": 5, "last": 30}  # steps of proportional fitting


@dataclass(frozen=True, eq=False)
class Transitions:
    """Transition tables of groups: how many of each category are of each class.

    Parameters
    ----------
    counts : (n_groups, n_categories, n_classes)
        Estimated numbers. The sums over classes and over categories are the known totals.
    groups, categories, classes : (n_groups,), (n_categories,), (n_classes,)
        Names.
    lower, upper : (n_groups, n_categories, n_classes), optional
        Intervals of the shares.

    Examples
    --------
    >>> counts = [[[30.0, 10.0], [5.0, 55.0]], [[10.0, 10.0], [0.0, 80.0]]]
    >>> found = Transitions(np.array(counts), np.array(["n", "s"]), np.array(["x", "y"]), np.array(["a", "b"]))
    >>> found.shares[0]
    array([[0.75      , 0.25      ],
           [0.08333333, 0.91666667]])
    >>> found.overall().shares.round(2).tolist()
    [[[0.67, 0.33], [0.04, 0.96]]]
    """

    counts: Floats
    groups: NDArray
    categories: NDArray
    classes: NDArray
    lower: Floats | None = None
    upper: Floats | None = None

    @property
    def shares(self) -> Floats:
        """The share of each class in a category, (n_groups, n_categories, n_classes); 0 in an empty category."""
        found: Floats = self.counts / np.maximum(self.counts.sum(-1, keepdims=True), _LEAST)
        return found

    def overall(self) -> Transitions:
        """Return the table of all groups together.

        Errors of groups may all have the same sign. The interval is thus the mean of the intervals of the groups,
        weighted by the size of the category.

        Returns
        -------
        Transitions
            One group, "all".

        Examples
        --------
        >>> names = np.array(["n", "s"]), np.array(["x", "y"]), np.array(["a", "b"])
        >>> Transitions(np.array([[[3.0, 1.0], [1.0, 5.0]], [[1.0, 3.0], [2.0, 2.0]]]), *names).overall().counts
        array([[[4., 4.],
                [3., 7.]]])
        """
        sizes = self.counts.sum(-1, keepdims=True)
        weights = sizes / np.maximum(sizes.sum(0), _LEAST)
        ends = [None if end is None else (weights * end).sum(0, keepdims=True) for end in (self.lower, self.upper)]
        names = np.array(["all"]), self.categories, self.classes
        return Transitions(self.counts.sum(0, keepdims=True), *names, *ends)

    def errors(self, true_counts: ArrayLike) -> Floats:
        """Return the fraction of each group that is in the wrong cell, ``½ Σ |n̂ − n| / N``.

        Parameters
        ----------
        true_counts : (n_groups, n_categories, n_classes)
            The true tables.

        Returns
        -------
        (n_groups,)
            Errors between 0 and 1.

        Examples
        --------
        >>> names = np.array(["all"]), np.array(["x", "y"]), np.array(["a", "b"])
        >>> Transitions(np.array([[[3.0, 1.0], [1.0, 5.0]]]), *names).errors([[[4, 0], [0, 6]]])
        array([0.2])
        """
        truth = np.asarray(true_counts, dtype=np.float64)
        totals = truth.sum((1, 2))
        scaled = self.counts * (totals / np.maximum(self.counts.sum((1, 2)), _LEAST))[:, None, None]
        found: Floats = 0.5 * np.abs(scaled - truth).sum((1, 2)) / np.maximum(totals, _LEAST)
        return found

    def with_intervals(
        self, known: Transitions, true_counts: ArrayLike, coverage: float = 0.9, occasions: ArrayLike | None = None
    ) -> Transitions:
        """Return the tables with conformal intervals of the shares.

        Each cell is calibrated alone, as the estimates of a class in bags are, on the known groups that have both its
        category and its class. With too few of them, the interval is from 0 to 1. The intervals are valid if the
        groups are exchangeable with the known ones.

        Parameters
        ----------
        known : Transitions
            Estimates for groups whose tables are known, such as the districts of earlier elections, made like these.
        true_counts : (n_known_groups, n_categories, n_classes)
            The true tables of these groups.
        coverage : float, default=0.9
            Probability that an interval contains the true share.
        occasions : (n_known_groups,), default=None
            The occasion of each known group, such as its election. The groups of one occasion are alike, so intervals
            are widened until those from other occasions contain this part of the known shares.

        Returns
        -------
        Transitions
            The same tables, with `lower` and `upper`.

        Examples
        --------
        >>> rng, names = np.random.default_rng(0), (np.array(["x", "y"]), np.array(["a", "b"]))
        >>> truth = rng.integers(20, 80, size=(40, 2, 2))
        >>> known = Transitions(truth + rng.uniform(-5, 5, truth.shape), np.arange(40), *names)
        >>> found = Transitions(np.array([[[30.0, 30.0], [20.0, 60.0]]]), np.array(["new"]), *names)
        >>> found.with_intervals(known, truth).lower.shape
        (1, 2, 2)
        """
        truth, level = np.asarray(true_counts, dtype=np.float64), check_fraction("coverage", coverage)
        if occasions is not None:
            level = _level(known, truth, coverage, np.asarray(occasions))
        return self._bounded(_calibrate(known.shares, truth), level)

    def _bounded(self, calibrations: dict[tuple[int, int], Calibration], level: float) -> Transitions:
        """Return the tables with intervals; a cell without a calibration has the interval from 0 to 1."""
        cells = _cells(self.counts)
        lower, upper = np.zeros_like(self.counts), np.where(cells, 1.0, 0.0)
        for (row, column), calibration in calibrations.items():
            here = cells[:, row, column]
            if here.any() and level <= 1 - 1 / (len(calibration.joint_scores) + 1):
                p, sizes = self.shares[here, row, column], self.counts[here, row].sum(-1)
                found = calibration.intervals(np.stack([p, 1 - p], axis=1), sizes, level)
                lower[here, row, column], upper[here, row, column] = found.lower[:, 0], found.upper[:, 0]
        return replace(self, lower=lower, upper=upper)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per group, category and class, with columns `group`, `from`, `to`, `count` and `share`.

        Returns
        -------
        DataFrame
            Intervals are in the columns `lower` and `upper`.

        Examples
        --------
        >>> names = np.array(["all"]), np.array(["x", "y"]), np.array(["a", "b"])
        >>> print(Transitions(np.array([[[3.0, 1.0], [1.0, 5.0]]]), *names).to_frame()[:2].to_string(index=False))
        group from to  count  share
          all    x  a    3.0   0.75
          all    x  b    1.0   0.25
        """
        shape = self.counts.shape
        columns: dict[str, Any] = {
            "group": np.repeat(self.groups, shape[1] * shape[2]),
            "from": np.tile(np.repeat(self.categories, shape[2]), shape[0]),
            "to": np.tile(self.classes, shape[0] * shape[1]),
            "count": self.counts.ravel(),
            "share": self.shares.ravel(),
        }
        ends = {"lower": self.lower, "upper": self.upper}
        return pd.DataFrame(columns | {name: end.ravel() for name, end in ends.items() if end is not None})


def estimate_transitions(
    categories: ArrayLike,
    classes: ArrayLike,
    sizes: ArrayLike,
    start: ArrayLike,
    groups: Sequence[Any] | NDArray | None = None,
    names: tuple[Sequence[Any] | NDArray, Sequence[Any] | NDArray] | None = None,
) -> Transitions:
    """Estimate the transition table of each group of units from the totals of the units.

    Expectation maximisation alternates two steps. First, the table of every unit is fitted to the unit's totals, by
    iterative proportional fitting of the group's current table. Second, the table of a group is the sum of the tables
    of its units, plus a prior: the table with the group's totals with the odds ratios of all groups together.
    A unit counts the same whatever its size, because units differ by more than chance. Fifty rounds are made.

    Parameters
    ----------
    categories : (n_units, n_categories)
        The share of each category in each unit, such as of the voters of each party.
    classes : (n_units, n_classes)
        The share of each class in each unit. A class without a share in a whole group is absent from its table.
    sizes : (n_units,)
        Sizes of the units.
    start : (n_categories, n_classes)
        A positive table to start with, such as the slopes of a regression.
    groups : (n_units,), optional
        Names of the groups. By default, all units are one group.
    names : pair of sequences, optional
        Names of the categories and of the classes; numbers by default.

    Returns
    -------
    Transitions
        The tables, with groups in sorted order.

    References
    ----------
    Deming & Stephan (1940), *On a least squares adjustment of a sampled frequency table*; King, Rosen & Tanner (2004),
    *Ecological inference: new methodological strategies*.

    Examples
    --------
    Nine tenths of category 0, and a fifth of category 1, are of class 0:

    >>> x = np.linspace(0.1, 0.9, 30)[:, None] * [1, -1] + [0, 1]
    >>> found = estimate_transitions(x, x @ [[0.9, 0.1], [0.2, 0.8]], np.full(30, 100), np.ones((2, 2)) + np.eye(2))
    >>> found.shares.round(1)[0]
    array([[0.9, 0.1],
           [0.2, 0.8]])
    """
    x, y, size = (np.asarray(part, dtype=np.float64) for part in (categories, classes, sizes))
    found, group = np.unique(np.zeros(len(x), int) if groups is None else np.asarray(groups), return_inverse=True)
    order = np.argsort(group, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    units = [(x[part], y[part]) for part in parts]
    totals = np.stack([one.sum(0) for one, _ in units]), np.stack([other.sum(0) for _, other in units])
    common = np.asarray(start, dtype=np.float64)
    tables = _fit_groups(common, *totals)
    for _ in range(_ROUNDS):
        slopes = _normalized(tables)
        expected = np.stack([
            _fit_units(p, *unit, np.ones(len(unit[0])), _FITS["unit"]) for p, unit in zip(slopes, units, strict=True)
        ])  # fmt: skip
        common = _pool(expected, common, totals)
        tables = expected + _PRIOR * _fit_groups(common, *totals)
    counts = np.stack([
        _fit_units(p, *unit, size[part], _FITS["last"])
        for p, unit, part in zip(_normalized(tables), units, parts, strict=True)
    ])  # fmt: skip
    n_categories, n_classes = common.shape
    named = names or (np.arange(n_categories), np.arange(n_classes))
    of_groups = np.array(["all"]) if groups is None else found
    return Transitions(counts, of_groups, *(np.asarray(some) for some in named))


def _cells(counts: Floats) -> NDArray[np.bool_]:
    """Return whether a cell has both units of its category and of its class: (n_groups, n_categories, n_classes)."""
    found: NDArray[np.bool_] = (counts.sum(2) > 0)[:, :, None] & (counts.sum(1) > 0)[:, None]
    return found


def _calibrate(shares: Floats, truth: Floats) -> dict[tuple[int, int], Calibration]:
    """Calibrate every cell that enough of the known groups have."""
    cells, found = _cells(truth), {}
    for row, column in np.argwhere(cells.sum(0) >= _FEWEST).tolist():
        there = cells[:, row, column]
        sizes, p = truth[there, row].sum(-1), shares[there, row, column]
        true_p = truth[there, row, column] / sizes
        of_both, estimated = (np.stack([one, 1 - one], axis=1) for one in (true_p, p))
        found[row, column] = Calibration.of(of_both, estimated, sizes)
    return found


def _level(known: Transitions, truth: Floats, coverage: float, occasions: NDArray) -> float:
    """Return the level at which intervals from other occasions contain this part of the known shares."""
    parts = [occasions == one for one in np.unique(occasions)]
    if len(parts) < _FEWEST_OCCASIONS:
        return coverage
    sizes = truth.sum(2, keepdims=True)
    shares, cells = truth / np.maximum(sizes, _LEAST), _cells(truth)
    others = [(part, _calibrate(known.shares[~part], truth[~part])) for part in parts]
    for level in np.linspace(coverage, _HIGHEST, _LEVELS):
        inside = []
        for part, calibrations in others:
            found = replace(known, counts=known.counts[part])._bounded(calibrations, float(level))
            assert found.lower is not None
            held = (found.lower <= shares[part]) & (shares[part] <= found.upper)
            inside.append(held[cells[part]].mean())
        if np.mean(inside) >= coverage:
            return float(level)
    return _HIGHEST


def _fit_units(table: Floats, x: Floats, y: Floats, weights: Floats, steps: int) -> Floats:
    """Return the weighted sum of the unit tables a_r p_rc b_c with margins x (n_units, n_categories) and y."""
    a = x
    for _ in range(steps):
        b = y / np.maximum(a @ table, _LEAST)
        a = x / np.maximum(b @ table.T, _LEAST)
    found: Floats = table * (a.T @ (weights[:, None] * b))
    return found


def _fit_groups(common: Floats, rows: Floats, columns: Floats) -> Floats:
    """Fit one table to the margins of every group: (n_groups, n_categories, n_classes)."""
    b = np.ones(columns.shape)
    for _ in range(_FITS["group"]):
        a = rows / np.maximum(b @ common.T, _LEAST)
        b = columns / np.maximum(a @ common, _LEAST)
    found: Floats = a[:, :, None] * common * b[:, None, :]
    return found


def _pool(tables: Floats, common: Floats, totals: tuple[Floats, Floats]) -> Floats:
    """Fit the table whose odds ratios are common to all groups, by two steps of proportional fitting."""
    for _ in range(2):
        fitted = _fit_groups(common, *totals).sum(0)
        common = common * tables.sum(0) / np.maximum(fitted, _LEAST)
    return common


def _normalized(tables: Floats) -> Floats:
    found: Floats = tables / np.maximum(tables.sum(-1, keepdims=True), _LEAST)
    return found
