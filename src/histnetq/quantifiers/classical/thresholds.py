"""Adjusted counts above thresholds of posteriors: the median sweep and its variants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import check_choice
from histnetq.kernels.cores import over_bags
from histnetq.kernels.jit import njit
from histnetq.persistence.saving import Arrays, StoredArrays
from histnetq.quantifiers.classical.one_against_rest import OneAgainstRest
from histnetq.quantifiers.classical.posteriors import Floats, Ints, PosteriorQuantifier
from histnetq.sketches.posteriors import PosteriorSketcher, bag_sums
from histnetq.sketches.sketcher import Sketcher

_SWEEPS = {"median": 1e-9, "median2": 0.25}  # smallest difference of the rates at a threshold
_POLICIES = (*_SWEEPS, "max", "t50", "x")


class _StoredThresholds(StoredArrays):
    """Thresholds and rates of all judged classes, checked because compiled code relies on them."""

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        super().restore(model, arrays, learned)
        starts, n_judged = model.starts_, len(model._judged())
        if (
            len(starts) != n_judged + 1
            or starts[0] != 0
            or starts[-1] != len(model.thresholds_)
            or not (np.diff(starts) > 0).all()
        ):
            raise ValueError("path: the array 'starts' does not divide the thresholds among classes; save again.")
        if not (np.abs(model.true_rates_ - model.false_rates_) > 0).all():
            raise ValueError("path: the arrays of rates are equal somewhere, expected different ones; save again.")


@dataclass(eq=False, repr=False, kw_only=True)
class MS(OneAgainstRest):
    """Median sweep: the median of the adjusted counts at all thresholds of the posterior, or at one threshold only.

    At each threshold, the share of a bag's rows at or above it is adjusted by the true and false positive rates, and
    clipped to [0, 1]. With more than two classes, each class is estimated against the rest, and the proportions are
    normalised. If no threshold separates a class from the rest, its training prevalence is the estimate.

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
    policy : {"median", "median2", "max", "t50", "x"}, default="median"
        "median" is the median over all thresholds (MS), and "median2" over thresholds whose rates differ by more than
        0.25 (MS2). Three policies use one threshold: "max" has the largest difference of the rates (MAX), "t50" a true
        positive rate of one half (T50), and "x" equal false positive and false negative rates (X).

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    classifier_ : classifier
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None after `fit_posteriors`.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    thresholds_ : (n_thresholds,)
        Thresholds of all judged classes, concatenated.
    true_rates_ : (n_thresholds,)
        Share of the rows of the class at or above each threshold.
    false_rates_ : (n_thresholds,)
        Share of all other rows at or above each threshold.
    starts_ : (n_judged + 1,)
        Position of the first threshold of each judged class.

    References
    ----------
    Forman (2008), *Quantifying counts and costs via classification*.

    Examples
    --------
    >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
    >>> MS().fit_posteriors(P, [0, 1] * 10).predict_posteriors(P[:3]).round(2)
    array([0.67, 0.33])
    """

    policy: str = "median"
    stored = (
        *PosteriorQuantifier.stored,
        _StoredThresholds(
            thresholds_="share: thresholds",
            true_rates_="size: thresholds",
            false_rates_="share: thresholds",
            starts_="whole: starts",
        ),
    )

    def _check_params(self) -> None:
        super()._check_params()
        check_choice("policy", self.policy, _POLICIES)

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        w = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
        found = [
            _chosen(self.policy, float(self.train_prevalences_[c]), *rates_above(posteriors[:, c], labels == c, w))
            for c in self._judged()
        ]
        parts = (np.concatenate(part) for part in zip(*found, strict=True))
        self.thresholds_, self.true_rates_, self.false_rates_ = parts
        self.starts_ = np.concatenate([[0], np.cumsum([len(part[0]) for part in found])])

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        found = np.empty((len(offsets) - 1, len(self._judged())))
        for i, c in enumerate(self._judged()):
            some = slice(self.starts_[i], self.starts_[i + 1])
            cells = np.searchsorted(self.thresholds_[some], posteriors[:, c], side="right")
            rates = self.true_rates_[some], self.false_rates_[some]
            found[:, i] = median_adjusted(cells, *rates, index, offsets, weights)
        return self._normalise(found)

    def _sketcher(self) -> Sketcher:
        return super()._sketcher() if self.policy in _SWEEPS else _CountsAbove(self)


class _CountsAbove(PosteriorSketcher):
    """Counts of the rows at or above the one threshold of each judged class."""

    def __init__(self, q: MS) -> None:
        super().__init__(q._bag_posteriors, q._quantify, q.training_posteriors_)
        self.q, self.name = q, f"counts above {q.thresholds_.tolist()}"

    def summarise(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> NDArray:
        above = bag_sums(posteriors[:, self.q._judged()] >= self.q.thresholds_, index, offsets, weights)
        return above if weights is not None and weights.dtype.kind == "f" else above.astype(np.int64)

    def estimate(self, values: NDArray, totals: NDArray) -> Floats:
        shares, low = values / np.asarray(totals)[:, None], self.q.false_rates_
        return self.q._normalise(np.clip((shares - low) / (self.q.true_rates_ - low), 0, 1))


def rates_above(values: Floats, positive: NDArray[np.bool_], weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Return all different values as thresholds, and the shares of positive and negative rows at or above each.

    If there are no positive rows, their shares are 1; if there are no negative rows, their shares are 0.

    Examples
    --------
    >>> rates_above(np.array([0.2, 0.6, 0.6]), np.array([False, False, True]), np.ones(3))
    (array([0.2, 0.6]), array([1., 1.]), array([1. , 0.5]))
    """
    thresholds, place = np.unique(values, return_inverse=True)
    rates = []
    for some, without in ((positive, 1.0), (~positive, 0.0)):
        above = np.cumsum(np.bincount(place, weights * some, len(thresholds))[::-1])[::-1]
        rates.append(above / above[0] if above[0] > 0 else np.full(len(thresholds), without))
    return thresholds, rates[0], rates[1]


def _chosen(policy: str, prior: float, thresholds: Floats, high: Floats, low: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the thresholds that a policy chooses, with their rates."""
    kept = np.flatnonzero(np.abs(high - low) > _SWEEPS["median"])
    if policy == "median2":
        kept = np.flatnonzero(high - low > _SWEEPS[policy])
    if not kept.size:
        # All rows are above a threshold of 0, and these rates adjust their share to the training prevalence.
        return np.zeros(1), np.array([1 / max(prior, 1e-12)]), np.zeros(1)
    if policy not in _SWEEPS:
        scores = {"max": low - high, "t50": np.abs(high - 0.5), "x": np.abs(1 - high - low)}[policy]
        # Among equally good thresholds, such as all between two rows of the class, take the most different rates.
        kept = kept[np.lexsort((low[kept] - high[kept], scores[kept].round(12)))[:1]]
    return thresholds[kept], high[kept], low[kept]


def median_adjusted(
    cells: Ints, true_rates: Floats, false_rates: Floats, index: Ints, offsets: Ints, weights: NDArray | None
) -> Floats:
    """Return the median over thresholds of the adjusted share of each bag's rows at or above the threshold: (n_bags,).

    Parameters
    ----------
    cells : (n_rows,)
        Number of thresholds at or below the value of each row.
    true_rates, false_rates : (n_thresholds,)
        Shares of positive and negative rows at or above each threshold; they must differ.

    Examples
    --------
    >>> rates = np.array([1.0, 0.8]), np.array([0.5, 0.0])
    >>> median_adjusted(np.array([0, 1, 2, 2]), *rates, np.arange(4), np.array([0, 4]), None)
    array([0.5625])
    """
    w = np.ones(1) if weights is None else weights.astype(np.float64)
    out = np.empty(len(offsets) - 1)
    arguments = cells, true_rates, false_rates, index, offsets, w, weights is not None
    over_bags(lambda first, last: _sweep(*arguments, first, last, out), offsets)
    return out


@njit(cache=True, nogil=True)
def _sweep(  # type: ignore[no-untyped-def]
    cells, true_rates, false_rates, index, offsets, weights, weighted, first, last, out
):
    n = len(true_rates)
    counts, found = np.empty(n + 1), np.empty(n)
    for bag in range(first, last):
        counts[:] = 0.0
        total = 0.0
        for e in range(offsets[bag], offsets[bag + 1]):
            w = weights[e] if weighted else weights[0]
            counts[min(max(cells[index[e]], 0), n)] += w
            total += w
        above = 0.0
        for i in range(n - 1, -1, -1):
            above += counts[i + 1]
            share = (above / total - false_rates[i]) / (true_rates[i] - false_rates[i])
            found[i] = min(max(share, 0.0), 1.0)
        out[bag] = np.median(found)
