"""Class weights under label shift, from misclassification rates and counts: BBSE and RLLS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import check_choice, check_number
from histnetq.persistence.saving import StoredArrays
from histnetq.quantifiers.classical.counting import AdjustedCounting, solve_mixture
from histnetq.quantifiers.classical.posteriors import Floats, Ints
from histnetq.quantifiers.classical.quadratic import solve_quadratic

_CONFIDENCE = 0.05  # probability that the error of the rates exceeds its bound
_ROUNDS = 200  # largest number of reweighting rounds
_EXACT = 1e-9  # the search ends when the relative change of a penalty is below this
_LEAST = 1e-12  # smallest divisor


@dataclass(eq=False, repr=False, kw_only=True)
class BBSE(AdjustedCounting):
    """Black box shift estimation: the class weights of at least 0 whose expected counts fit best, as prevalences.

    It is `ACC` ("hard") or `PACC` ("soft") without the condition that prevalences sum to 1. They are normalised
    afterwards. `class_weights` returns the weights.

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
    mode : {"soft", "hard"}, default="soft"
        "soft" averages the posteriors of rows, and "hard" counts the rows assigned to each class.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    classifier_ : classifier
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None after `fit_posteriors`.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    matrix_ : (n_classes, n_classes)
        Mean posteriors of the rows of the class in the column, or the shares of them assigned to each class.

    References
    ----------
    Lipton, Wang & Smola (2018), *Detecting and correcting for label shift with black box predictors*.

    Examples
    --------
    >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
    >>> BBSE().fit_posteriors(P, [0, 1] * 10).predict_posteriors(P[:3]).round(2)
    array([0.67, 0.33])
    """

    mode: str = "soft"

    @property
    def reads(self) -> str:  # type: ignore[override]
        """Return "mean" if posteriors are averaged, and "class" if assigned classes are counted."""
        return "mean" if self.mode == "soft" else "class"

    def _check_params(self) -> None:
        super()._check_params()
        check_choice("mode", self.mode, ("soft", "hard"))

    def _adjust(self, counted: Floats) -> Floats:
        return self._normalised(self._solve(counted))

    def _solve(self, counted: Floats) -> Floats:
        """Return prevalences that need not sum to 1, from the counts of each bag: (n_bags, n_classes)."""
        return solve_mixture(self.matrix_, counted, simplex=False)


@dataclass(eq=False, repr=False, kw_only=True)
class RLLS(BBSE):
    """Regularised learning under label shift: `BBSE` with weights shrunk towards 1, more if there are fewer rows.

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
    mode : {"soft", "hard"}, default="soft"
        "soft" averages the posteriors of rows, and "hard" counts the rows assigned to each class.
    alpha : float, default=0.01
        Factor of the penalty, which decreases with the number of training rows.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    classifier_ : classifier
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None after `fit_posteriors`.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    matrix_ : (n_classes, n_classes)
        Mean posteriors of the rows of the class in the column, or the shares of them assigned to each class.
    bound_ : (1,)
        Bound of the error of the rates, from the number of training rows.

    References
    ----------
    Azizzadenesheli, Liu, Yang & Anandkumar (2019), *Regularized learning for domain adaptation under label shifts*.

    Examples
    --------
    >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
    >>> RLLS().fit_posteriors(P, [0, 1] * 10).predict_posteriors(P[:3]).round(2)
    array([0.67, 0.33])
    """

    alpha: float = 0.01
    stored = (*BBSE.stored, StoredArrays(bound_="size: 1"))

    def _check_params(self) -> None:
        super()._check_params()
        check_number("alpha", self.alpha, 0, 1e6, remedy="0 has no penalty")

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        super()._learn(posteriors, labels, weights)
        n = len(labels) if weights is None else float(weights.sum() ** 2 / (weights.astype(float) ** 2).sum())
        n = float(weights.sum()) if weights is not None and weights.dtype.kind in "iu" else n
        spread = 2 * np.log(2 * posteriors.shape[1] / _CONFIDENCE) / n
        self.bound_ = np.array([3 * (spread / 3 + np.sqrt(spread))])

    def _solve(self, counted: Floats) -> Floats:
        prior = self.train_prevalences_
        return prior * penalised_weights(self.matrix_ * prior, counted, self.alpha * float(self.bound_[0]))


def penalised_weights(joint: Floats, targets: Floats, penalty: float) -> Floats:
    """Minimise ``‖joint · w − target‖ + penalty ‖w − 1‖`` over ``w ≥ 0``: (n_bags, k) → (n_bags, n_classes).

    The norms are not squared. Each round minimises squared norms that are divided by the norms of the previous round,
    which converges to the minimum for all bags.

    Examples
    --------
    >>> joint, targets = np.array([[0.4, 0.1], [0.1, 0.4]]), np.array([[0.65, 0.35]])
    >>> penalised_weights(joint, targets, 0.0).round(3), penalised_weights(joint, targets, 0.5).round(3)
    (array([[1.5, 0.5]]), array([[1., 1.]]))
    """
    n_classes = joint.shape[1]
    gram, linear, ones = joint.T @ joint, targets @ joint, np.eye(n_classes)
    ridge = np.full(len(targets), penalty)
    weights = np.ones((len(targets), n_classes))
    missing = targets - joint.sum(1)
    # Weights of 1 are optimal if no change is worth its penalty.
    worth = np.linalg.norm(missing @ joint, axis=1) > penalty * np.linalg.norm(missing, axis=1)
    todo = np.flatnonzero(worth)
    for _ in range(_ROUNDS):
        squares = gram + ridge[todo, None, None] * ones
        scale = np.trace(squares, axis1=1, axis2=2) / n_classes  # to entries of about 1
        right = linear[todo] + ridge[todo, None]
        weights[todo] = solve_quadratic(squares / scale[:, None, None], right / scale[:, None], simplex=False)
        missed = np.linalg.norm(weights[todo] @ joint.T - targets[todo], axis=1)
        moved = np.linalg.norm(weights[todo] - 1, axis=1)
        new = penalty * missed / np.maximum(moved, _LEAST)
        settled = (np.abs(new - ridge[todo]) <= _EXACT * ridge[todo]) | (new < _LEAST) | (moved < _EXACT)
        ridge[todo] = new
        todo = todo[~settled]
        if not todo.size:
            break
    return weights
