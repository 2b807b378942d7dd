"""Classify and count, and its corrections: CC, PCC, ACC, PACC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import check_choice
from histnetq.persistence.saving import StoredArrays
from histnetq.quantifiers.classical.ordinal import check_smoothness, curvature
from histnetq.quantifiers.classical.posteriors import Floats, Ints, PosteriorQuantifier
from histnetq.quantifiers.classical.quadratic import solve_quadratic
from histnetq.quantifiers.row_posteriors import confusions_of, misclassification
from histnetq.simplex import count_labels, project
from histnetq.sketches.posteriors import bag_means


@dataclass(eq=False, repr=False, kw_only=True)
class CC(PosteriorQuantifier):
    """Classify and count: the proportion of rows assigned to each class.

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

    References
    ----------
    Forman (2008), *Quantifying counts and costs via classification*.

    Examples
    --------
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 5), [0, 0, 1, 1] * 5
    >>> CC().fit(X, y).predict([[0.0], [1.0], [1.0], [1.0]])
    array([0.25, 0.75])
    """

    reads = "class"

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        return assigned_shares(posteriors, index, offsets, weights)


@dataclass(eq=False, repr=False, kw_only=True)
class PCC(PosteriorQuantifier):
    """Probabilistic classify and count: the mean of the posteriors, which are class probabilities of the rows.

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

    References
    ----------
    Bella et al. (2010), *Quantification via probability estimators*.

    Examples
    --------
    >>> PCC().fit_posteriors([[0.9, 0.1], [0.2, 0.8]], ["a", "b"]).predict_posteriors([[0.5, 0.5], [0.0, 1.0]])
    array([0.25, 0.75])
    """

    reads = "mean"

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        return bag_means(posteriors, index, offsets, weights)


@dataclass(eq=False, repr=False, kw_only=True)
class AdjustedCounting(PosteriorQuantifier):
    """Base of methods that find the prevalences whose expected counts, by a matrix of rates, fit the counts of a bag.

    With ``reads = "class"``, rows are counted in their assigned class; with "mean", posteriors are averaged.
    """

    stored = (*PosteriorQuantifier.stored, StoredArrays(matrix_="share: classes classes"))

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        rates = confusions_of if self.reads == "class" else misclassification
        self.matrix_ = rates(posteriors, labels, weights)

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        count = assigned_shares if self.reads == "class" else bag_means
        return self._adjust(count(posteriors, index, offsets, weights))

    def _adjust(self, counted: Floats) -> Floats:
        """Return the prevalences that explain the counts of each bag: (n_bags, n_classes) → the same."""
        raise NotImplementedError


@dataclass(eq=False, repr=False, kw_only=True)
class ACC(AdjustedCounting):
    """Adjusted classify and count: the prevalences whose expected counts fit the counts of a bag best.

    The expected counts follow from the misclassification rates of the training rows.

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
    solver : {"least-squares", "inverse"}, default="least-squares"
        The exact constrained least-squares solution; or the pseudo-inverse, projected to the simplex.
    smoothness : float, default=0.0
        Penalty of the squared second differences of the prevalences, added to the squared residuals, for ordered
        classes. The order is the order of `classes_`: sorted names, or the order in ``Bags.from_labels(...,
        classes=[...])``.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    classifier_ : classifier
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None after `fit_posteriors`.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    matrix_ : (n_classes, n_classes)
        Share of the rows of the class in the column that is assigned to the class in the row.

    References
    ----------
    Forman (2008), *Quantifying counts and costs via classification*; Bunse (2022), *On multi-class extensions of
    adjusted classify and count*; Bunse, Moreo, Sebastiani & Senz (2024), *Regularization-based methods for ordinal
    quantification*.

    Examples
    --------
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 5), [0, 0, 1, 1] * 5
    >>> ACC().fit(X, y).predict([[0.0], [1.0], [1.0], [1.0]])
    array([0.25, 0.75])
    """

    reads = "class"
    solver: str = "least-squares"
    smoothness: float = 0.0

    def _check_params(self) -> None:
        super()._check_params()
        check_choice("solver", self.solver, ("least-squares", "inverse"))
        if check_smoothness(self.smoothness) and self.solver == "inverse":
            raise ValueError("smoothness: expected 0 with solver='inverse', which has no penalty; use 'least-squares'.")

    def _adjust(self, counted: Floats) -> Floats:
        if self.solver == "inverse":
            return project(counted @ np.linalg.pinv(self.matrix_).T)
        return solve_mixture(self.matrix_, counted, self.smoothness)


@dataclass(eq=False, repr=False, kw_only=True)
class PACC(ACC):
    """Probabilistic adjusted classify and count: ACC on mean posteriors.

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
    solver : {"least-squares", "inverse"}, default="least-squares"
        The exact constrained least-squares solution; or the pseudo-inverse, projected to the simplex.
    smoothness : float, default=0.0
        Penalty of the squared second differences of the prevalences, added to the squared residuals, for ordered
        classes. The order is the order of `classes_`: sorted names, or the order in ``Bags.from_labels(...,
        classes=[...])``.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    classifier_ : classifier
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None after `fit_posteriors`.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    matrix_ : (n_classes, n_classes)
        Mean posteriors of the rows of the class in the column.

    References
    ----------
    Bella et al. (2010), *Quantification via probability estimators*; Bunse (2022), *On multi-class extensions of
    adjusted classify and count*; Bunse, Moreo, Sebastiani & Senz (2024), *Regularization-based methods for ordinal
    quantification*.

    Examples
    --------
    >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
    >>> PACC().fit_posteriors(P, [0, 1] * 10).predict_posteriors(P[:3]).round(2)
    array([0.67, 0.33])
    """

    reads = "mean"


def assigned_shares(posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
    """Share of each bag's rows that is assigned to each class: (n_rows, n_classes) → (n_bags, n_classes).

    Examples
    --------
    >>> assigned_shares(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0, 1, 1, 1]), np.array([0, 4]), None)
    array([[0.25, 0.75]])
    """
    n_bags = len(offsets) - 1
    bag = np.repeat(np.arange(n_bags), np.diff(offsets))
    counts = count_labels(posteriors.argmax(1)[index], bag, n_bags, posteriors.shape[1], weights)
    return counts / counts.sum(1, keepdims=True)


def solve_mixture(matrix: Floats, targets: Floats, smoothness: float = 0.0, *, simplex: bool = True) -> Floats:
    """Minimise ``‖matrix · p − target‖²`` over the simplex, or over ``p ≥ 0``, exactly, for all targets at once.

    A penalty of squared second differences can make the prevalences of ordered classes smooth.

    Parameters
    ----------
    matrix : (k, n_classes)
    targets : (n_bags, k)
    smoothness : float
        Weight of the penalty.
    simplex : bool
        Whether prevalences must sum to 1.

    Returns
    -------
    (n_bags, n_classes)

    Examples
    --------
    >>> solve_mixture(np.array([[0.9, 0.2], [0.1, 0.8]]), np.array([[0.55, 0.45], [1.0, 0.0]]))
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    gram = matrix.T @ matrix
    if smoothness > 0:
        gram = gram + smoothness * curvature(matrix.shape[1])
    return solve_quadratic(gram, targets @ matrix, simplex=simplex)
