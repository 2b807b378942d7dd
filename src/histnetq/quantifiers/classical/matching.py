"""Matching of histograms of posteriors: DyS and HDy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import check_bins, check_choice
from histnetq.kernels.cores import over_bags
from histnetq.kernels.jit import njit
from histnetq.persistence.saving import Arrays, StoredArrays
from histnetq.quantifiers.classical.one_against_rest import OneAgainstRest
from histnetq.quantifiers.classical.posteriors import Floats, Ints, PosteriorQuantifier
from histnetq.sketches.cell_rules import Between, CellRule
from histnetq.sketches.posteriors import PosteriorSketcher, count_cells, counted_entries

_DIVERGENCES = ("hellinger", "topsoe")
_LEAST = 1e-100  # smallest positive share of rows in a bin; products of smaller shares may be 0
_EXACT = 1e-10  # the search for a proportion ends at smaller steps


class _StoredHistograms(StoredArrays):
    """Histograms of the classes, checked because compiled code relies on their bins."""

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        super().restore(model, arrays, learned)
        wanted = len(model._judged()), int(model._matching()[0].sum())
        if model.positive_.shape != wanted or not model.positive_.dtype == model.negative_.dtype == np.float64:
            raise ValueError(f"path: the histograms have shape {model.positive_.shape}, expected {wanted}; save again.")
        for found in (model.positive_, model.negative_):
            if not ((found == 0) | (found > _LEAST)).all():
                raise ValueError("path: the histograms have other numbers than shares of rows; save again.")


@dataclass(eq=False, repr=False, kw_only=True)
class DyS(OneAgainstRest):
    """Distribution matching: the proportion whose mixture of class histograms is closest to the histogram of the bag.

    The histograms describe the posterior of one class, in the rows of this class and in all other rows. With more than
    two classes, each class is matched against the rest, and the proportions are normalised. The divergence is convex in
    the proportion, so its minimum is found exactly, without a grid.

    Parameters
    ----------
    classifier : str or scikit-learn classifier with `predict_proba`, default="logistic"
        A name ("logistic" on scaled features, "forest", "boosting", "mlp" or "bayes"), or a classifier. A classifier is
        cloned, never fitted in place; with ``cv=None`` it is used as it is.
    cv : int, float or None, default=5
        Number of cross-fitting folds, or the held-out fraction of the rows. None means that the classifier is already
        fitted; then pass to `fit` only rows that the classifier was not trained on.
    random_state : int, default=None
        Seed of the cross-validation split; None draws a new seed each time.
    n_bins : int or sequence of int, default=(2, 4, …, 20, 30)
        Number of bins on [0, 1]. With several numbers, the estimate is the median over them, as in the paper.
    divergence : {"topsoe", "hellinger"}, default="topsoe"
        Distance between histograms.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    classifier_ : classifier
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None after `fit_posteriors`.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    positive_ : (n_matched, sum of bins)
        Histograms of the rows of each matched class.
    negative_ : (n_matched, sum of bins)
        Histograms of the rest.

    References
    ----------
    Maletzke et al. (2019), *DyS: a framework for mixture models in quantification*.

    Examples
    --------
    >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
    >>> DyS().fit_posteriors(P, [0, 1] * 10).predict_posteriors(P[:3]).round(2)
    array([0.67, 0.33])
    """

    n_bins: int | Sequence[int] = (*range(2, 21, 2), 30)
    divergence: str = "topsoe"
    stored = (
        *PosteriorQuantifier.stored,
        _StoredHistograms(positive_="share: matched bins", negative_="share: matched bins"),
    )

    def _matching(self) -> tuple[NDArray[np.int64], str]:
        """Return the checked numbers of bins, and the divergence."""
        return np.array(check_bins(self.n_bins)), check_choice("divergence", self.divergence, _DIVERGENCES)

    def _check_params(self) -> None:
        super()._check_params()
        self._matching()

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        bins, _ = self._matching()
        judged = self._judged()
        w = np.ones(len(labels)) if weights is None else weights
        self.positive_ = np.stack([histograms(posteriors[:, c], w * (labels == c), bins, 1.0) for c in judged])
        self.negative_ = np.stack([histograms(posteriors[:, c], w * (labels != c), bins, 0.0) for c in judged])

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        found = [
            self._match(i, np.ascontiguousarray(posteriors[:, c]), index, offsets, weights)
            for i, c in enumerate(self._judged())
        ]
        return self._normalise(np.stack(found, axis=1))

    def _match(self, i: int, values: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        bins, divergence = self._matching()
        prior = self.train_prevalences_[self._judged()[i]]
        return match_histograms(
            values, self.positive_[i], self.negative_[i], prior, bins, divergence, index, offsets, weights
        )

    def _sketcher(self) -> PosteriorSketcher:
        return _CountsBetweenEdges(self)


class _CountsBetweenEdges(PosteriorSketcher):
    """Counts of the matched posteriors between all edges of all histograms, which give the counts of all bins."""

    def __init__(self, q: DyS) -> None:
        super().__init__(q._bag_posteriors, q._quantify, q.training_posteriors_)
        bins = q._matching()[0].tolist()
        self.q, self.name = q, f"counts between the edges of {bins} bins"
        self.edges = np.unique(np.concatenate([np.arange(1, n) * (1.0 / n) for n in bins]))

    def cell_rules(self) -> list[CellRule]:
        return [Between(c, self.edges) for c in self.q._judged()]

    def summarise(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> NDArray:
        cells, n_cells = np.searchsorted(self.edges, posteriors, side="right"), len(self.edges) + 1
        counts = [count_cells(cells[:, c], index, offsets, weights, n_cells) for c in self.q._judged()]
        return np.stack(counts, axis=1)

    def estimate(self, values: NDArray, totals: NDArray) -> Floats:
        # The lowest value of each cell represents its rows, because it is in the same bins.
        lowest = np.concatenate([[0.0], self.edges])
        found = [self.q._match(i, lowest, *counted_entries(values[:, i])) for i in range(values.shape[1])]
        return self.q._normalise(np.stack(found, axis=1))


@dataclass(eq=False, repr=False, kw_only=True)
class HDy(DyS):
    """Hellinger distance of posteriors: `DyS` with the Hellinger distance, as the median over 10, 20, …, 110 bins.

    Parameters
    ----------
    classifier : str or scikit-learn classifier with `predict_proba`, default="logistic"
        A name ("logistic" on scaled features, "forest", "boosting", "mlp" or "bayes"), or a classifier. A classifier is
        cloned, never fitted in place; with ``cv=None`` it is used as it is.
    cv : int, float or None, default=5
        Number of cross-fitting folds, or the held-out fraction of the rows. None means that the classifier is already
        fitted; then pass to `fit` only rows that the classifier was not trained on.
    random_state : int, default=None
        Seed of the cross-validation split; None draws a new seed each time.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    classifier_ : classifier
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None after `fit_posteriors`.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    positive_ : (n_matched, sum of bins)
        Histograms of the rows of each matched class.
    negative_ : (n_matched, sum of bins)
        Histograms of the rest.

    References
    ----------
    González-Castro, Alaiz-Rodríguez & Alegre (2013), *Class distribution estimation based on the Hellinger distance*.

    Examples
    --------
    >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
    >>> HDy().fit_posteriors(P, [0, 1] * 10).predict_posteriors(P[:3]).round(2)
    array([0.67, 0.33])
    """

    n_bins: int | Sequence[int] = field(default=tuple(range(10, 111, 10)), init=False)
    divergence: str = field(default="hellinger", init=False)


def histograms(values: Floats, weights: NDArray, bins: NDArray[np.int64], without: float) -> Floats:
    """Concatenate histograms on [0, 1] for each number of bins, each of mass 1: (n_rows,) → (Σ bins,).

    If all weights are 0, the mass is at the value `without`.

    Examples
    --------
    >>> histograms(np.array([0.1, 0.6, 0.7]), np.ones(3), np.array([2, 4]), 1.0).round(2)
    array([0.33, 0.67, 0.33, 0.  , 0.67, 0.  ])
    """
    if not weights.sum() > 0:
        values, weights = np.array([without]), np.ones(1)
    values = np.clip(values, 0, 1)  # rounding may move a posterior outside
    counted = [np.histogram(values, bins=int(b), range=(0, 1), weights=weights)[0] for b in bins]
    return np.concatenate(counted) / weights.sum()


def match_histograms(
    values: Floats,
    positive: Floats,
    negative: Floats,
    prior: float,
    bins: NDArray[np.int64],
    divergence: str,
    index: Ints,
    offsets: Ints,
    weights: NDArray | None = None,
) -> Floats:
    """Return the proportion *a* whose mixture ``a · positive + (1 − a) · negative`` is closest to each bag's histogram.

    Parameters
    ----------
    values : (n_rows,) in [0, 1]
    positive, negative : (Σ bins,)
        Histograms of the two classes; see `histograms`.
    prior : float
        The result if the histograms of the classes are equal.
    bins : (n,)
        Numbers of bins; the result is the median over them.

    Returns
    -------
    (n_bags,)
    """
    w = np.ones(1) if weights is None else weights.astype(np.float64)
    out = np.empty(len(offsets) - 1)
    topsoe = check_choice("divergence", divergence, _DIVERGENCES) == "topsoe"
    arguments = values, positive, negative, prior, bins, topsoe, index, offsets, w, weights is not None
    over_bags(lambda first, last: _match(*arguments, first, last, out), offsets)
    return out


@njit(cache=True, nogil=True)
def _match(  # type: ignore[no-untyped-def]
    values, positive, negative, prior, bins, topsoe, index, offsets, weights, weighted, first, last, out
):
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(bins)))
    steps = 1.0 / bins
    counts = np.empty(starts[-1])
    widest = bins.max()
    base, slope, target = np.empty(widest), np.empty(widest), np.empty(widest)
    found = np.empty(len(bins))
    for bag in range(first, last):
        counts[:] = 0.0
        total = 0.0
        for e in range(offsets[bag], offsets[bag + 1]):
            # NaN fails the first comparison and counts as 0, so that the bin of any x exists.
            x = values[index[e]]
            x = min(x, 1.0) if x > 0.0 else 0.0
            w = weights[e] if weighted else weights[0]
            total += w
            for r in range(len(bins)):
                # Rounding may move a value across an edge, so it is compared with the edges themselves.
                i = min(int(x * bins[r]), bins[r] - 1)
                if x < i * steps[r]:
                    i -= 1
                elif i < bins[r] - 1 and x >= (i + 1) * steps[r]:
                    i += 1
                counts[starts[r] + i] += w
        for r in range(len(bins)):
            n = 0
            for j in range(starts[r], starts[r + 1]):
                used = positive[j] + negative[j] > 0.0 and (topsoe or counts[j] > 0.0)
                if used and positive[j] != negative[j]:
                    base[n], slope[n] = negative[j], positive[j] - negative[j]
                    target[n] = counts[j] / total if topsoe else np.sqrt(counts[j] / total)
                    n += 1
            found[r] = _nearest(base[:n], slope[:n], target[:n], topsoe) if n else prior
        out[bag] = np.median(found)


@njit(cache=True, nogil=True, error_model="numpy")
def _nearest(base, slope, target, topsoe):  # type: ignore[no-untyped-def]
    """Return the root in [0, 1] of a decreasing function by Newton steps, or bisection if a step leaves the bracket."""
    if _pull(0.0, base, slope, target, topsoe)[0] <= 0.0:
        return 0.0
    if _pull(1.0, base, slope, target, topsoe)[0] >= 0.0:
        return 1.0
    low, high, a = 0.0, 1.0, 0.5
    for _ in range(100):
        value, change = _pull(a, base, slope, target, topsoe)
        if value > 0.0:
            low = a
        else:
            high = a
        after = a - value / change if change < 0.0 else low
        if not low < after < high:
            after = 0.5 * (low + high)
        moved, a = abs(after - a), after
        if moved < _EXACT:
            break
    return a


@njit(cache=True, nogil=True, error_model="numpy")
def _pull(a, base, slope, target, topsoe):  # type: ignore[no-untyped-def]
    """Return the first and second derivative of the affinity of mixture and target by the proportion."""
    value = change = 0.0
    for j in range(len(base)):
        mixed = max(base[j] + a * slope[j], 0.0)
        if topsoe:
            if mixed == 0.0 and target[j] > 0.0:
                return np.inf * slope[j], -np.inf
            ratio = 2.0 * mixed / (mixed + target[j]) if target[j] > 0.0 else 2.0
            value -= slope[j] * np.log(ratio)
            if target[j] > 0.0:
                change -= slope[j] ** 2 * target[j] / (mixed * (mixed + target[j]))
        else:
            if mixed == 0.0:
                return np.inf * slope[j], -np.inf
            part = target[j] * slope[j] / (2.0 * np.sqrt(mixed))
            value += part
            change -= part * slope[j] / (2.0 * mixed)
    return value, change
