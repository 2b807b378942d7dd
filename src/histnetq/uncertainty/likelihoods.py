"""Likelihoods of rows under each class and their uncertainty, learned from held-out labelled rows.

Both classes hold draws of the likelihoods. Each draw stands for the result of learning from another sample of labelled
rows of the same size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from histnetq.simplex import Floats, Ints

_FLOOR = 1e-6  # smallest posterior; there are too few labelled rows to distinguish rarer events
_WEAK = 1.0  # precision of the parameters' prior, in units of rows


@dataclass(frozen=True)
class RowLikelihoods:
    """Likelihoods of rows from their posteriors, which are rescaled by labelled rows.

    Rescaled posteriors are ``softmax(scale · log p + bias)``. Divided by the training prevalences, they are likelihoods
    up to a factor per row. The scale and the biases are drawn from a normal distribution. Its mean maximises the
    penalised likelihood of the labels. Its covariance is the sampling covariance of this maximum, over samples with the
    same number of rows of each class.

    Attributes
    ----------
    prior : (n_classes,)
        Training prevalences.
    parameters : (n_draws, n_classes + 1)
        The logarithm of the scale, and the biases.

    References
    ----------
    Alexandari, Kundaje & Shrikumar (2020), *Maximum likelihood with bias-corrected calibration is hard-to-beat at
    label shift adaptation*.
    """

    prior: Floats
    parameters: Floats

    @classmethod
    def drawn(
        cls, posteriors: Floats, labels: Ints, weights: NDArray | None, n_draws: int, rng: np.random.Generator,
        variation: float = 1.0,
    ) -> RowLikelihoods:  # fmt: skip
        """Learn from the posteriors ``(n_rows, n_classes)`` and labels of rows, and draw likelihoods.

        The sampling covariance is multiplied by `variation`.
        """
        n_classes = posteriors.shape[1]
        w = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
        prior = np.bincount(labels, w, minlength=n_classes) / w.sum()
        logs = np.where(prior > 0, _logs(posteriors), -np.inf)
        known = np.where(prior > 0, logs, 0.0)

        def slopes(parameters: Floats, scores: Floats) -> Floats:
            """Return the gradient of the log-likelihood of each row's label: (n_rows, n_classes + 1)."""
            error = np.eye(n_classes)[labels] - softmax(scores, axis=1)
            return np.column_stack([np.exp(parameters[0]) * (error * known).sum(1), error])

        def loss(parameters: Floats) -> tuple[float, Floats]:
            scores = np.exp(parameters[0]) * logs + parameters[1:]
            fits = log_softmax(scores, axis=1)[np.arange(len(labels)), labels]
            value = _WEAK / 2 * parameters @ parameters - w @ fits
            return value / w.sum(), (_WEAK * parameters - w @ slopes(parameters, scores)) / w.sum()

        found = minimize(loss, np.zeros(n_classes + 1), jac=True, method="L-BFGS-B", options={"maxiter": 1000}).x
        by_row = slopes(found, np.exp(found[0]) * logs + found[1:])
        centered = by_row - _class_means(by_row, labels, w, n_classes)[labels]
        weak = _WEAK * np.eye(n_classes + 1)
        solved = np.linalg.inv((by_row.T * w) @ by_row + weak)
        spread, axes = np.linalg.eigh(solved @ ((centered.T * w) @ centered + weak) @ solved)
        root = axes * np.sqrt(variation * np.maximum(spread, 0))
        return cls(prior, found + rng.normal(size=(n_draws, n_classes + 1)) @ root.T)

    def of(self, posteriors: Floats) -> Iterator[Floats]:
        """Yield the likelihoods ``(n_rows, n_classes)`` of rows with these posteriors, for each draw."""
        logs, share = np.where(self.prior > 0, _logs(posteriors), -np.inf), np.where(self.prior > 0, self.prior, 1.0)
        for parameters in self.parameters:
            yield softmax(np.exp(parameters[0]) * logs + parameters[1:], axis=1) / share


@dataclass(frozen=True)
class CellLikelihoods:
    """Likelihoods of rows from their predicted classes.

    For each true class, the shares of the predicted classes are drawn from their posterior, a Dirichlet distribution.
    Its prior counts as one row of each class. This row is predicted correctly as often as all labelled rows, and its
    errors are divided equally among the wrong classes.

    Attributes
    ----------
    shares : (n_draws, n_classes, n_classes)
        Share of each predicted class (second axis) among the rows of each true class (third axis).
    """

    shares: Floats

    @classmethod
    def drawn(
        cls, posteriors: Floats, labels: Ints, weights: NDArray | None, n_draws: int, rng: np.random.Generator,
        variation: float = 1.0,
    ) -> CellLikelihoods:  # fmt: skip
        """Learn from the posteriors ``(n_rows, n_classes)`` and labels of rows, and draw likelihoods.

        The counts are divided by `variation`.
        """
        n_classes = posteriors.shape[1]
        w = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
        cells = np.bincount(posteriors.argmax(1) * n_classes + labels, w, minlength=n_classes**2)
        counts = cells.reshape(n_classes, n_classes)
        wrong = (counts.sum() - np.trace(counts) + 0.5) / (counts.sum() + 1)
        before = np.full((n_classes, n_classes), wrong / max(n_classes - 1, 1))
        np.fill_diagonal(before, 1 - wrong)
        return cls.around(counts / variation + before, n_draws, rng)

    @classmethod
    def around(cls, concentrations: Floats, n_draws: int, rng: np.random.Generator) -> CellLikelihoods:
        """Draw shares from Dirichlet distributions; each column of `concentrations` is one distribution."""
        drawn = rng.standard_gamma(np.broadcast_to(concentrations, (n_draws, *concentrations.shape)))
        # A column of very small concentrations may be all 0, which would give 0 / 0.
        drawn = np.maximum(drawn, np.finfo(np.float64).tiny)
        return cls(drawn / drawn.sum(1, keepdims=True))

    def of(self, posteriors: Floats) -> Iterator[Floats]:
        """Yield the likelihoods ``(n_rows, n_classes)`` of rows with these posteriors, for each draw."""
        cells = posteriors.argmax(1)
        for shares in self.shares:
            yield shares[cells]


def _logs(posteriors: Floats) -> Floats:
    return np.log(np.maximum(posteriors, _FLOOR))


def _class_means(values: Floats, labels: Ints, weights: Floats, n_classes: int) -> Floats:
    """Return the weighted mean of the values ``(n_rows, k)`` in each class: (n_classes, k)."""
    member = np.zeros((len(labels), n_classes))
    member[np.arange(len(labels)), labels] = weights
    totals = member.sum(0)
    return member.T @ values / np.where(totals > 0, totals, 1.0)[:, None]
