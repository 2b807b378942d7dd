"""Matching of histograms of features: HDx."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_bins
from histnetq.bags.fingerprint import digest_arrays
from histnetq.kernels.cores import over_bags
from histnetq.kernels.jit import njit
from histnetq.persistence.saving import Arrays, StoredArrays
from histnetq.quantifiers.classical.emq import check_iterations
from histnetq.quantifiers.classical.on_features import Columns, FeatureQuantifier, class_shares, row_chunks
from histnetq.quantifiers.classical.quadratic import solve_quadratic
from histnetq.simplex import Floats, Ints

_CELLS_AT_ONCE = 1 << 22  # bags × features × bins
_LEAST = 1e-6  # distance of histograms below which they count as equal
_FLOOR = 1e-12  # smallest share of a mixture in a bin
_REACH = 0.9  # largest fraction of the way to 0 in one step
_MOST_STEPS = 10_000  # Newton steps
_HALVINGS = 20  # largest number of halvings of a step
_FARTHEST = float(np.finfo(np.float32).max)  # largest number in a row
_ROUNDING = 1e-12  # growth of a distance that counts as rounding


class _StoredFeatureHistograms(StoredArrays):
    """Histograms of the classes, checked because compiled code relies on their bins."""

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        super().restore(model, arrays, learned)
        wanted = int(np.prod(model.input_shape_)), sum(check_bins(model.n_bins)), len(model.classes_)
        if model.histograms_.shape != wanted:
            raise ValueError(
                f"path: the histograms have shape {model.histograms_.shape}, expected {wanted}; save again."
            )
        if (model.histograms_ < 0).any() or len(model.low_) != wanted[0]:
            raise ValueError("path: the histograms are below 0 or lack the ranges of features; save again.")
        if not ((model.low_ >= -_FARTHEST) & (model.low_ <= model.high_) & (model.high_ <= _FARTHEST)).all():
            raise ValueError("path: the arrays 'low' and 'high' are not the ranges of features; save again.")


@dataclass(eq=False, repr=False, kw_only=True)
class HDx(FeatureQuantifier):
    """Hellinger distance of features: the mixture whose histograms are closest to the bag's, on average over features.

    It needs no classifier. Bins have equal widths over the training range of a feature, and values outside this range
    fall into the outermost bins.

    Parameters
    ----------
    n_bins : int or sequence of int, default=10
        Number of bins of each feature. With several numbers, the estimate is the normalised median over them. The
        original paper uses 10, 20, …, 110, which had larger errors on most of our development tables.
    tol : float, default=1e-7
        Iterations end when the mean change of a prevalence is below this.
    max_iter : int, default=100
        Largest number of iterations, at most 10,000.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    low_ : (n_features,)
        Lowest value of each feature in training.
    high_ : (n_features,)
        Highest value of each feature in training.
    histograms_ : (n_features, sum of bins, n_classes)
        Share of the rows of each class in each bin.

    References
    ----------
    González-Castro, Alaiz-Rodríguez & Alegre (2013), *Class distribution estimation based on the Hellinger distance*.

    Examples
    --------
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 5), [0, 0, 1, 1] * 5
    >>> HDx(n_bins=2).fit(X, y).predict([[0.0], [1.0], [0.9], [1.0]]).round(2)
    array([0.25, 0.75])
    """

    n_bins: int | Sequence[int] = 10
    tol: float = 1e-7
    max_iter: int = 100
    stored = (_StoredFeatureHistograms(low_="features", high_="features", histograms_="share: features bins classes"),)

    def _check_params(self) -> None:
        super()._check_params()
        check_bins(self.n_bins)
        check_iterations(self.tol, self.max_iter, _MOST_STEPS)

    def _learn(self, columns: Columns, labels: Ints, weights: Floats | None) -> None:
        n_classes, bins = len(self.train_prevalences_), check_bins(self.n_bins)
        shares = class_shares(labels, weights, n_classes)[np.arange(len(labels)), labels]
        self.low_, self.high_ = np.empty(columns.n_columns), np.empty(columns.n_columns)
        self.histograms_ = np.empty((columns.n_columns, sum(bins), n_classes))
        for d in range(columns.n_columns):
            values = columns.take([d])
            self.low_[d], self.high_[d] = values.min(), values.max()
            counted = [
                np.bincount(codes[:, 0] * n_classes + labels, shares, n * n_classes).reshape(n, n_classes)
                for n, codes in zip(bins, self._codes(values, slice(d, d + 1)), strict=True)
            ]
            self.histograms_[d] = np.concatenate(counted)

    def _codes(self, rows: Floats, features: slice = slice(None)) -> list[NDArray[np.int32]]:
        """Return the bin of each feature of each row, (n_rows, n_features), for each number of bins."""
        low, high = self.low_[features], self.high_[features]
        width = np.where(high > low, high - low, 1.0)
        place = (rows - low) / width
        # NaN fails the comparison and falls into the first bin: its conversion to an integer is undefined.
        place = np.where(place > 0, np.minimum(place, 1), 0.0)
        return [np.minimum(place * n, n - 1).astype(np.int32) for n in check_bins(self.n_bins)]

    def _sums(self, bags: Bags) -> NDArray:
        """Return the weight of each bag's rows in each bin of each feature: (n_bags, n_features, sum of bins)."""
        counts, starts = np.zeros((len(bags), *self.histograms_.shape[:2])), np.cumsum([0, *check_bins(self.n_bins)])
        for rows, member in row_chunks(bags, len(self.low_)):
            for codes, start in zip(self._codes(rows), starts, strict=False):
                _count(codes + np.int32(start), member.indptr, member.indices, member.data, counts)
        return counts if bags.weights is not None and bags.weights.dtype.kind == "f" else counts.astype(np.int64)

    def _predict(self, bags: Bags) -> Floats:
        step = max(1, _CELLS_AT_ONCE // self.histograms_[:, :, 0].size)
        predict = super()._predict
        return np.concatenate([predict(bags[a : a + step]) for a in range(0, len(bags), step)])

    def _estimate(self, sums: NDArray, totals: NDArray) -> Floats:
        starts = np.cumsum([0, *check_bins(self.n_bins)])
        found = [
            match_features(sums[:, :, a:b], self.histograms_[:, a:b], self.tol, self.max_iter)
            for a, b in pairwise(starts)
        ]
        p = np.median(found, axis=0)
        return p / p.sum(1, keepdims=True)

    def _sums_of(self) -> str:
        return f"counts in {check_bins(self.n_bins)} bins between {digest_arrays(self.low_, self.high_)}"


@njit(cache=True, nogil=True)
def _count(codes, starts, rows, weights, counts):  # type: ignore[no-untyped-def]
    for bag in range(len(starts) - 1):
        for e in range(starts[bag], starts[bag + 1]):
            for d in range(codes.shape[1]):
                counts[bag, d, min(max(codes[rows[e], d], 0), counts.shape[2] - 1)] += weights[e]


def match_features(counts: NDArray, histograms: Floats, tol: float = 1e-7, max_iter: int = 100) -> Floats:
    """Return the prevalences ``(n_bags, n_classes)`` that minimise the Hellinger distance, averaged over features.

    All bags take Newton steps on the simplex, which are halved until the distance falls. The curvature is the curvature
    of an upper bound that touches the distance, so it is never negative. Features that match well get large weights.

    Parameters
    ----------
    counts : (n_bags, n_features, n_bins)
    histograms : (n_features, n_bins, n_classes)
        Share of each class's rows in each bin.

    Examples
    --------
    >>> match_features(np.array([[[3, 1]]]), np.array([[[1.0, 0.0], [0.0, 1.0]]])).round(3)
    array([[0.75, 0.25]])
    """
    n_bags, n_classes = len(counts), histograms.shape[2]
    p, todo = np.full((n_bags, n_classes), 1 / n_classes), np.arange(n_bags)
    for _ in range(max_iter):
        here = p[todo]
        value, slope, curve = _slopes_of(counts, histograms, todo, here)
        scale = np.maximum(np.trace(curve, axis1=1, axis2=2) / n_classes, _LEAST)  # to entries of about 1
        right = ((curve @ here[:, :, None])[:, :, 0] - slope) / scale[:, None]
        goal = solve_quadratic(curve / scale[:, None, None], right)
        # A prevalence never reaches 0, where the slope of a bin that only this class explains is infinite.
        near = (goal < (1 - _REACH) * here).any(1, keepdims=True)
        step = np.where(near, _REACH, 1.0) * (goal - here)
        for _ in range(_HALVINGS):
            worse = np.flatnonzero(_slopes_of(counts, histograms, todo, here + step)[0] > value + _ROUNDING)
            step[worse] /= 2
            if not worse.size:
                break
        else:
            step[worse] = 0.0
        p[todo] = here + step
        todo = todo[np.abs(step).mean(1) >= tol]
        if not todo.size:
            break
    p = np.maximum(p, 0.0)
    return p / p.sum(1, keepdims=True)


def _slopes_of(counts: NDArray, histograms: Floats, bags: Ints, p: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the sum of the distances of each of these bags, its slope and its curvature."""
    n, n_classes = p.shape
    found = np.zeros(n), np.zeros((n, n_classes)), np.zeros((n, n_classes, n_classes))
    arguments = counts, histograms, bags, p
    over_bags(lambda first, last: _slopes(*arguments, first, last, *found), np.arange(n + 1) * counts[0].size)
    return found


@njit(cache=True, nogil=True)
def _slopes(counts, histograms, bags, p, first, last, value, slope, curve):  # type: ignore[no-untyped-def]
    n_features, n_bins, n_classes = histograms.shape
    mixed, root = np.empty(n_bins), np.empty(n_bins)
    for i in range(first, last):
        found = counts[bags[i]]
        total = found[0].sum()
        for d in range(n_features):
            affinity = 0.0
            for b in range(n_bins):
                if found[d, b] <= 0:
                    continue
                mixed[b] = 0.0
                for c in range(n_classes):
                    mixed[b] += p[i, c] * histograms[d, b, c]
                mixed[b] = max(mixed[b], _FLOOR)
                root[b] = np.sqrt(found[d, b] / total)
                affinity += root[b] * np.sqrt(mixed[b])
            distance = np.sqrt(max(2.0 - 2.0 * affinity, 0.0))
            value[i] += distance
            weight = 0.5 / max(distance, _LEAST)
            for b in range(n_bins):
                if found[d, b] <= 0:
                    continue
                pull = weight * root[b] / np.sqrt(mixed[b])
                bend = 0.5 * pull / mixed[b]
                for c in range(n_classes):
                    h = histograms[d, b, c]
                    if h > 0.0:
                        slope[i, c] -= pull * h
                        for other in range(c + 1):
                            curve[i, c, other] += bend * h * histograms[d, b, other]
        for c in range(n_classes):
            for other in range(c):
                curve[i, other, c] = curve[i, c, other]
