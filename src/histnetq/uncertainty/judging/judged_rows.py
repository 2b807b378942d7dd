"""Rows with the verdict of a judge, some of them with a human label, and the estimates from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtri
from scipy.stats import t as student

from histnetq.simplex import Floats, Ints
from histnetq.uncertainty.judging.score_intervals import pool_small_strata, score_interval

__all__ = ["JudgedRows", "ShareIntervals"]

_LEAST_LABELS = 3  # of a verdict that is a stratum of its own, if labels were drawn at random


@dataclass(frozen=True)
class ShareIntervals:
    """Estimated shares with their intervals, and what each unit contributes to the estimates.

    Parameters
    ----------
    estimate, lower, upper : array, shape (n_classes,)
        Shares of the classes, and the ends of their intervals.
    influence : array, shape (n_rows, n_classes)
        Part of each row in the error of the estimate.
    """

    estimate: Floats
    lower: Floats
    upper: Floats
    influence: Floats


@dataclass(frozen=True)
class JudgedRows:
    """Rows of one system with the stratum of their verdict, and human labels of some rows.

    Parameters
    ----------
    verdicts : array of int, shape (n_rows,)
        Stratum of each row: its verdict, or the verdict within a stratum of the sampling design.
    labels : array of int, shape (n_rows,)
        Code of the human label; -1 means that no human looked.
    n_verdicts, n_classes : int
        Number of strata and of classes.
    groups : array of int, shape (n_verdicts,), default=None
        Strata that may be pooled if they have few labels: those with the same number. None pools nothing.
    probability : array, shape (n_rows,), default=None
        Probability with which each row was drawn to be labelled; None means equal within each stratum.
    clusters : array of int, shape (n_rows,), default=None
        Cluster of each row, such as a conversation; None means independent rows.

    Examples
    --------
    >>> rows = JudgedRows(np.repeat([0, 1], 50), np.tile([0, -1, -1, 1, -1], 20), 2, 2)
    >>> rows.shares(0.9, "batch").estimate
    array([0.5, 0.5])
    """

    verdicts: Ints
    labels: Ints
    n_verdicts: int
    n_classes: int
    groups: Ints | None = None
    probability: Floats | None = None
    clusters: Ints | None = None

    @property
    def counts(self) -> Ints:
        """Numbers of labels by verdict and class, (n_verdicts, n_classes)."""
        has = self.labels >= 0
        cells = self.verdicts[has] * self.n_classes + self.labels[has]
        return np.bincount(cells, minlength=self.n_verdicts * self.n_classes).reshape(self.n_verdicts, -1)

    @property
    def sizes(self) -> Ints:
        """Number of rows with each verdict, (n_verdicts,)."""
        return np.bincount(self.verdicts, minlength=self.n_verdicts)

    def shares(self, level: float, target: Literal["batch", "process"]) -> ShareIntervals:
        """Return the shares of all classes with their intervals."""
        counts, weights, z, process_rows, influence = self.evidence(level, target)
        estimate, lower, upper = score_interval(counts, weights, z, process_rows)
        if target == "batch":  # labelled rows are known
            codes, n_rows = self.labels[self.labels >= 0], len(self.labels)
            known = np.bincount(codes, minlength=self.n_classes)
            lower = np.maximum(lower, known / n_rows)
            upper = np.minimum(upper, 1 - (len(codes) - known) / n_rows)
        return ShareIntervals(estimate, np.minimum(lower, estimate), np.maximum(upper, estimate), influence)

    def evidence(
        self, level: float, target: Literal["batch", "process"]
    ) -> tuple[Floats, Floats, Floats | float, Floats | float, Floats]:
        """Return the arguments of `score_interval`, and the influence of each row, for all classes."""
        strata = self._strata()
        n_strata, n_rows, has = int(strata.max()) + 1, len(strata), self.labels >= 0
        sizes = np.bincount(strata, minlength=n_strata)
        weights = sizes / n_rows
        own, codes = strata[has], self.labels[has]
        n_labels = np.bincount(own, minlength=n_strata)
        drawn = n_labels / np.maximum(sizes, 1)  # share of the rows of a stratum that have a label
        chance = drawn[own] if self.probability is None else self.probability[has]
        total = np.bincount(own, 1 / chance, n_strata)
        part = 1 / chance / total[own]
        left = 1 - chance if target == "batch" else np.ones_like(chance)
        variance = np.bincount(own, part**2 * left, n_strata)
        cells = np.bincount(own * self.n_classes + codes, part, n_strata * self.n_classes)
        inside = cells.reshape(n_strata, -1)  # class shares of each stratum
        effective = np.where(n_labels > 0, 1 / np.maximum(variance, 1e-15), 0)
        yes = (inside * effective[:, None]).T
        counts = np.stack([yes, np.where(n_labels > 0, effective - yes, 0)], -1)
        z: Floats | float = float(student.ppf((1 + level) / 2, max(len(own) - n_strata, 1)))
        whole = counts.sum((1, 2))[:, None]
        filled = np.where(n_labels[:, None] > 0, inside, counts[..., 0].sum(1) / np.maximum(whole[:, 0], 1e-300))
        influence = np.zeros((n_rows, self.n_classes))
        influence[has] = (weights[own] * part * np.sqrt(left))[:, None] * (np.eye(self.n_classes)[codes] - inside[own])
        process_rows: Floats | float = np.inf
        if target == "process":
            between, process_rows = (filled[strata] - weights @ filled) / n_rows, float(n_rows)
            influence += between
            if self.clusters is not None:
                of_labels, of_rows, both, free = _design_effects(influence - between, between, self.clusters)
                z = z * both * float(student.ppf((1 + level) / 2, free) / ndtri((1 + level) / 2))
                counts, process_rows = counts / of_labels[:, None, None], n_rows / of_rows
        return counts, np.broadcast_to(weights, counts.shape[:2]), z, process_rows, influence

    def bounds(self) -> ShareIntervals:
        """Return the shares that are possible in the batch, whatever the classes of rows without a label are."""
        known = np.bincount(self.labels[self.labels >= 0], minlength=self.n_classes)
        n, unknown = len(self.labels), int((self.labels < 0).sum())
        return ShareIntervals(
            np.full(self.n_classes, np.nan), known / n, (known + unknown) / n, np.zeros((n, self.n_classes))
        )

    def _strata(self) -> Ints:
        """Stratum of each row, after verdicts with few labels were pooled, numbered from 0."""
        place = np.arange(self.n_verdicts)
        n_labels = self.counts.sum(1)
        for group in np.unique(self.groups) if self.groups is not None else ():
            inside = np.flatnonzero((self.groups == group) & (self.sizes > 0))
            if len(inside):
                pooled = inside[pool_small_strata(n_labels[inside], _LEAST_LABELS)]
                place[pooled] = pooled[0]
        strata: Ints = np.unique(place[self.verdicts], return_inverse=True)[1]
        return strata


def _design_effects(of_labels: Floats, of_rows: Floats, clusters: Ints) -> tuple[Floats, Floats, Floats, float]:
    """Return the design effects of labels and of verdicts, the root of their joint effect, and degrees of freedom."""
    codes = np.unique(clusters, return_inverse=True)[1]
    sizes = np.bincount(codes).astype(float)
    n = len(sizes)

    def variances(influence: Floats) -> tuple[Floats, Floats]:
        sums = np.zeros((n, influence.shape[1]))
        np.add.at(sums, codes, influence)
        return (sums**2).sum(0) * n / max(n - 1, 1), (influence**2).sum(0)

    found = [variances(each) for each in (of_labels, of_rows, of_labels + of_rows)]
    effects = [np.where(v > 0, np.maximum(c / np.where(v > 0, v, 1), 1), 1) for c, v in found]
    apart = sum(effect * v for effect, (_, v) in zip(effects[:2], found[:2], strict=True))
    joint = np.where(apart > 0, np.sqrt(np.maximum(found[2][0] / np.where(apart > 0, apart, 1), 1)), 1)
    free = max(sizes.sum() ** 2 / (sizes**2).sum() - 1, 1.0)
    return effects[0], effects[1], joint, float(free)
