"""Matching of histograms of features: HDx."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.kernels.cores import over_bags
from histnetq.kernels.jit import njit
from histnetq.quantifiers.on_features import Columns, FeatureQuantifier, class_shares, row_chunks
from histnetq.quantifiers.saving import Arrays, StoredArrays
from histnetq.simplex import Floats, Ints
from histnetq.sketches.sketcher import Sketcher

_CELLS_AT_ONCE = 1 << 22  # of bags × features × bins
_LEAST = 1e-9  # distance of histograms below which they count as equal


class _StoredHistograms(StoredArrays):
    """Histograms of the classes, whose bins compiled code counts on."""

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        super().restore(model, arrays, learned)
        wanted = int(np.prod(model.input_shape_)), sum(model._bins()), len(model.classes_)
        if model.histograms_.shape != wanted or model.histograms_.dtype != np.float64:
            raise ValueError(
                f"path: the histograms have shape {model.histograms_.shape}, expected {wanted}; save again."
            )
        if (model.histograms_ < 0).any() or len(model.low_) != wanted[0]:
            raise ValueError("path: the histograms are below 0 or lack the ranges of features; save again.")


@dataclass(eq=False, repr=False, kw_only=True)
class HDx(FeatureQuantifier):
    """Hellinger distance of features: the mixture whose histograms are nearest to the bag's, on average over features.

    It needs no classifier. Bins are equally wide over the range of a feature in training, and values beyond fall into
    the outer ones.

    Parameters
    ----------
    n_bins : int or sequence of int, default=10
        Bins of each feature; of several numbers, the median of the prevalences is taken, and normalised. The first
        publication has 10, 20, …, 110.
    tol : float, default=1e-7
        Mean change of a prevalence at which iterations end.
    max_iter : int, default=1000
        Iterations at the most.

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
        Share of each class's rows in each bin.

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
    max_iter: int = 1000
    stored = (_StoredHistograms(low_="features", high_="features", histograms_="features bins classes"),)

    def _bins(self) -> list[int]:
        bins = np.atleast_1d(np.asarray(self.n_bins))
        if bins.ndim != 1 or not bins.size or not all(isinstance(b, int) and b >= 2 for b in bins.tolist()):
            raise ValueError(f"n_bins: expected whole numbers of at least 2, got {self.n_bins!r}; give such as 10.")
        found: list[int] = bins.tolist()
        return found

    def _check(self) -> None:
        self._bins()

    def _learn(self, columns: Columns, labels: Ints, weights: Floats | None) -> None:
        n_classes, bins = len(self.train_prevalences_), self._bins()
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
        """The bin of each feature of each row, (n_rows, n_features), for each number of bins."""
        low, high = self.low_[features], self.high_[features]
        width = np.where(high > low, high - low, 1.0)
        place = np.clip((rows - low) / width, 0, 1)
        return [np.minimum(place * n, n - 1).astype(np.int32) for n in self._bins()]

    def _counts(self, bags: Bags) -> NDArray:
        """Weight of each bag's rows in each bin of each feature: (n_bags, n_features, sum of bins)."""
        counts, starts = np.zeros((len(bags), *self.histograms_.shape[:2])), np.cumsum([0, *self._bins()])
        for rows, member in row_chunks(bags, len(self.low_)):
            for codes, start in zip(self._codes(rows), starts, strict=False):
                _count(codes + np.int32(start), member.indptr, member.indices, member.data, counts)
        return counts if bags.weights is not None and bags.weights.dtype.kind == "f" else counts.astype(np.int64)

    def _predict(self, bags: Bags) -> Floats:
        step = max(1, _CELLS_AT_ONCE // self.histograms_[:, :, 0].size)
        return np.concatenate(
            [self._estimate(self._counts(bags[a : a + step])) for a in range(0, len(bags), step)]
        )  # fmt: skip

    def _estimate(self, counts: NDArray) -> Floats:
        starts = np.cumsum([0, *self._bins()])
        found = [
            match_features(counts[:, :, a:b], self.histograms_[:, a:b], self.tol, self.max_iter)
            for a, b in pairwise(starts)
        ]
        p = np.median(found, axis=0)
        return p / p.sum(1, keepdims=True)

    def _sketcher(self) -> Sketcher:
        return _CountedBins(self)


class _CountedBins(Sketcher):
    """Counts of a bag's rows in the bins of all features."""

    def __init__(self, q: HDx) -> None:
        self.q = q

    def identity(self) -> str:
        ends = hashlib.sha256(np.concatenate([self.q.low_, self.q.high_]).tobytes()).hexdigest()
        return f"counts in {self.q._bins()} bins between {ends}"

    def state(self, bags: Bags) -> NDArray:
        return self.q._counts(bags)

    def estimate(self, values: NDArray, totals: NDArray) -> Floats:
        return self.q._estimate(values)


@njit(cache=True, nogil=True)
def _count(codes, starts, rows, weights, counts):  # type: ignore[no-untyped-def]
    for bag in range(len(starts) - 1):
        for e in range(starts[bag], starts[bag + 1]):
            for d in range(codes.shape[1]):
                counts[bag, d, codes[rows[e], d]] += weights[e]


def match_features(counts: NDArray, histograms: Floats, tol: float = 1e-7, max_iter: int = 1000) -> Floats:
    """Minimise the mean Hellinger distance of mixture and bag over features: the prevalences (n_bags, n_classes).

    Each iteration minimises a bound that touches the distance at the present prevalences, so that it never grows: a
    feature weighs the more the nearer it is matched, and a class is multiplied by the square of the pull of its bins.

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
    out = np.empty((len(counts), histograms.shape[2]))
    sizes = np.full(len(counts), counts[0].size if len(counts) else 0)

    def work(first: int, last: int) -> None:
        _match(np.ascontiguousarray(counts[first:last]), histograms, tol, max_iter, out[first:last])

    over_bags(work, np.concatenate([[0], np.cumsum(sizes)]))
    return out


@njit(cache=True, nogil=True)
def _match(counts, histograms, tol, max_iter, out):  # type: ignore[no-untyped-def]
    n_features, n_bins, n_classes = histograms.shape
    pull, total_pull, new = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    for bag in range(len(counts)):
        total = counts[bag, 0].sum()
        p = out[bag]
        p[:] = 1.0 / n_classes
        for _ in range(max_iter):
            total_pull[:] = 0.0
            for d in range(n_features):
                pull[:] = 0.0
                affinity = 0.0
                for b in range(n_bins):
                    if counts[bag, d, b] <= 0:
                        continue
                    mixed = 0.0
                    for c in range(n_classes):
                        mixed += p[c] * histograms[d, b, c]
                    if mixed > 0.0:
                        ratio = np.sqrt(counts[bag, d, b] / total / mixed)
                        affinity += ratio * mixed
                        for c in range(n_classes):
                            pull[c] += ratio * histograms[d, b, c]
                distance = max(np.sqrt(max(2.0 - 2.0 * affinity, 0.0)), _LEAST)
                for c in range(n_classes):
                    total_pull[c] += pull[c] / distance
            scale = 0.0
            for c in range(n_classes):
                new[c] = p[c] * total_pull[c] ** 2
                scale += new[c]
            change = 0.0
            for c in range(n_classes):
                after = new[c] / scale if scale > 0.0 else p[c]
                change += abs(after - p[c])
                p[c] = after
            if change / n_classes < tol:
                break
