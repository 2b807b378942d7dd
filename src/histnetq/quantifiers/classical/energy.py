"""Matching by energy distance, on posteriors and on features: ED and EDx."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import take_dense
from histnetq.bags.fingerprint import digest_arrays
from histnetq.kernels.cores import over_bags
from histnetq.kernels.jit import njit
from histnetq.persistence.saving import Arrays, StoredArrays
from histnetq.quantifiers.classical.on_features import (
    Columns,
    FeatureQuantifier,
    class_shares,
    row_chunks,
    rows_of_classes,
)
from histnetq.quantifiers.classical.posteriors import Floats, Ints, PosteriorQuantifier
from histnetq.quantifiers.classical.quadratic import solve_quadratic
from histnetq.sketches.posteriors import bag_means
from histnetq.sketches.sketcher import Sketcher

_MOST_KNOTS = 512  # per feature; interpolated distances are wrong by 1e-6 of the range, or 1e-5 in its tails


class _StoredDistances(StoredArrays):
    """Mean distances from knots, checked because compiled code looks them up."""

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        super().restore(model, arrays, learned)
        n_columns = int(np.prod(model.input_shape_)) if isinstance(model, EDx) else len(model.classes_)
        double = model.knots_.dtype == model.distances_.dtype == np.float64
        if len(model.knots_) != n_columns or not model.knots_.size or not double:
            raise ValueError("path: the arrays of distances do not fit the features; save again.")
        if not (np.diff(model.knots_, axis=1) >= 0).all():
            raise ValueError("path: the array 'knots' is not sorted; save again.")


_STORED = _StoredDistances(knots_="features knots", distances_="features knots classes", matrix_="classes classes")


@dataclass(eq=False, repr=False, kw_only=True)
class ED(PosteriorQuantifier):
    """Energy distance of posteriors: the mixture of the classes with the smallest energy distance from the bag.

    The distance between two rows is the sum of the absolute differences of their posteriors. A bag is summarised by the
    mean distances of its rows from the rows of each class, and a quadratic programme finds the mixture. `EDx` uses
    features instead of posteriors.

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
    knots_ : (n_classes, n_knots)
        Values of each posterior with known mean distances, which are interpolated between them.
    distances_ : (n_classes, n_knots, n_classes)
        Mean distance of the rows of each class from each knot.
    matrix_ : (n_classes, n_classes)
        Mean distances between the rows of any two classes.

    References
    ----------
    Kawakubo, du Plessis & Sugiyama (2016), *Computationally efficient class-prior estimation under class balance change
    using energy distance*; Castaño, Alonso, González & del Coz (2024), *QuantificationLib: a Python library for
    quantification and prevalence estimation*.

    Examples
    --------
    >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
    >>> ED().fit_posteriors(P, [0, 1] * 10).predict_posteriors(P[:3]).round(2)
    array([0.67, 0.33])
    """

    stored = (*PosteriorQuantifier.stored, _STORED)

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        values, shares = rows_of_classes(posteriors, labels, weights)
        self.knots_, self.distances_ = distance_tables(Columns(values), shares)
        self.matrix_ = mean_distances(values, self.knots_, self.distances_).T @ shares

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        return nearest_mixture(self.matrix_, bag_means(self._distances(posteriors), index, offsets, weights))

    def _distances(self, posteriors: Floats) -> Floats:
        return mean_distances(posteriors, self.knots_, self.distances_)

    def _sketcher(self) -> Sketcher:
        name = f"sums of distances {digest_arrays(self.distances_)}"
        return self._sums_sketcher(name, self._distances, lambda means: nearest_mixture(self.matrix_, means))


@dataclass(eq=False, repr=False, kw_only=True)
class EDx(FeatureQuantifier):
    """Energy distance of features: the mixture of the classes with the smallest energy distance from the bag.

    It needs no classifier. The distance between two rows is the sum of the absolute differences of their features, each
    divided by its standard deviation in training. `ED` uses posteriors instead of features.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    knots_ : (n_features, n_knots)
        Values of each feature with known mean distances, which are interpolated between them.
    distances_ : (n_features, n_knots, n_classes)
        Mean distance of the rows of each class from each knot.
    matrix_ : (n_classes, n_classes)
        Mean distances between the rows of any two classes.

    References
    ----------
    Kawakubo, du Plessis & Sugiyama (2016), *Computationally efficient class-prior estimation under class balance change
    using energy distance*; Castaño, Alonso, González & del Coz (2024), *QuantificationLib: a Python library for
    quantification and prevalence estimation*.

    Examples
    --------
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 5), [0, 0, 1, 1] * 5
    >>> EDx().fit(X, y).predict([[0.0], [1.0], [0.9], [1.0]]).round(2)
    array([0.25, 0.75])
    """

    stored = (_STORED,)

    def _learn(self, columns: Columns, labels: Ints, weights: Floats | None) -> None:
        n_classes = len(self.train_prevalences_)
        shares = class_shares(labels, weights, n_classes)
        self.knots_, distances = distance_tables(columns, shares)
        w = np.full(len(labels), 1 / len(labels)) if weights is None else weights / weights.sum()
        self.distances_ = distances / _deviations(columns, w)[:, None, None]
        self.matrix_ = np.zeros((n_classes, n_classes))
        for some in np.array_split(np.arange(len(labels)), 1 + len(labels) * columns.n_columns // (1 << 22)):
            rows = take_dense(columns.rows, some)
            self.matrix_ += mean_distances(rows, self.knots_, self.distances_).T @ shares[some]

    def _sums(self, bags: Bags) -> Floats:
        """Return the sums over rows of their mean distances from each class: (n_bags, n_classes)."""
        sums = np.zeros((len(bags), len(self.classes_)))
        for rows, member in row_chunks(bags, len(self.knots_)):
            sums += member @ mean_distances(rows, self.knots_, self.distances_)
        return sums

    def _estimate(self, sums: NDArray, totals: NDArray) -> Floats:
        seen = self.train_prevalences_ > 0  # a class without rows has no distances, so it is estimated as absent
        p, means = np.zeros(sums.shape), sums / np.asarray(totals, np.float64)[:, None]
        p[:, seen] = nearest_mixture(self.matrix_[np.ix_(seen, seen)], means[:, seen])
        return p

    def _sums_of(self) -> str:
        return f"sums of distances {digest_arrays(self.knots_)} {digest_arrays(self.distances_)}"


def _deviations(columns: Columns, weights: Floats) -> Floats:
    """Return the standard deviation of each column, or 1 if a column is constant."""
    found = np.empty(columns.n_columns)
    for d in range(columns.n_columns):
        values = columns.take([d])[:, 0]
        found[d] = np.sqrt(weights @ (values - weights @ values) ** 2)
    return np.where(found > 0, found, 1.0)


def distance_tables(columns: Columns, shares: Floats) -> tuple[Floats, Floats]:
    """Return some values of each column, its knots, and the mean absolute differences of each class's rows from them.

    Parameters
    ----------
    columns : Columns
    shares : (n_rows, n_classes)
        Weight of each row in the mean of each class.

    Returns
    -------
    knots : (n_columns, n_knots)
        All different values of a column, or 512 quantiles; sorted, with repeats at the end.
    distances : (n_columns, n_knots, n_classes)

    Examples
    --------
    >>> knots, distances = distance_tables(Columns(np.array([[0.0], [1.0], [3.0]])), np.array([[0.5], [0.0], [0.5]]))
    >>> knots.tolist(), distances[0, :, 0].tolist()
    ([[0.0, 1.0, 3.0]], [1.5, 1.5, 1.5])
    """
    found = []
    for d in range(columns.n_columns):
        values = columns.take([d])[:, 0]
        order = np.argsort(values, kind="stable")
        ascending, w = values[order], shares[order]
        knots = np.unique(values)
        if len(knots) > _MOST_KNOTS:
            knots = np.unique(np.quantile(values, np.linspace(0, 1, _MOST_KNOTS), method="nearest"))
        middle = ascending[len(ascending) // 2]  # sums around it keep the digits of values far from 0
        below = np.concatenate([np.zeros((1, w.shape[1])), np.cumsum(w, axis=0)])
        moment = np.concatenate([np.zeros((1, w.shape[1])), np.cumsum(w * (ascending - middle)[:, None], axis=0)])
        at = np.searchsorted(ascending, knots, side="right")
        distances = (knots - middle)[:, None] * (2 * below[at] - below[-1]) + moment[-1] - 2 * moment[at]
        found.append((knots, distances))
    n_knots = max(len(knots) for knots, _ in found)
    return (
        np.stack([np.pad(knots, (0, n_knots - len(knots)), mode="edge") for knots, _ in found]),
        np.stack([np.pad(table, ((0, n_knots - len(table)), (0, 0)), mode="edge") for _, table in found]),
    )


def mean_distances(values: Floats, knots: Floats, distances: Floats) -> Floats:
    """Return the mean distance of each row from the rows of each class: (n_rows, n_columns) → (n_rows, n_classes).

    Values are clipped to the first and last knot: beyond them, the distances from all classes grow by the same amount,
    which does not change the best mixture.

    Examples
    --------
    >>> mean_distances(np.array([[0.5]]), np.array([[0.0, 1.0]]), np.array([[[0.0, 1.0], [1.0, 0.0]]]))
    array([[0.5, 0.5]])
    """
    values = np.ascontiguousarray(values, dtype=np.float64)
    out = np.zeros((len(values), distances.shape[2]))
    over_bags(lambda first, last: _interpolate(values, knots, distances, first, last, out), np.arange(len(values) + 1))
    return out


@njit(cache=True, nogil=True)
def _interpolate(values, knots, distances, first, last, out):  # type: ignore[no-untyped-def]
    n_knots, n_classes = knots.shape[1], out.shape[1]
    for d in range(len(knots)):
        at, table = knots[d], distances[d]
        for i in range(first, last):
            x = min(max(values[i, d], at[0]), at[n_knots - 1])
            low, high = 0, n_knots - 1
            while high - low > 1:
                middle = (low + high) // 2
                if at[middle] <= x:
                    low = middle
                else:
                    high = middle
            width = at[high] - at[low]
            part = (x - at[low]) / width if width > 0.0 else 0.0
            for c in range(n_classes):
                out[i, c] += table[low, c] + part * (table[high, c] - table[low, c])


def nearest_mixture(matrix: Floats, distances: Floats) -> Floats:
    """Minimise the energy distance ``2 p · d − pᵀ matrix p`` over the simplex: (n_bags, n_classes) → the same.

    Examples
    --------
    >>> nearest_mixture(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.25, 0.75]]))
    array([[0.75, 0.25]])
    """
    matrix = (matrix + matrix.T) / 2
    scale = max(float(matrix.max()), 1e-300)
    # Adding a constant to all entries does not change the minimum on the simplex, and makes the diagonal positive.
    gram = 2 - matrix / scale
    return solve_quadratic(gram, -(distances - distances.mean(1, keepdims=True)) / scale)
