"""Maximum likelihood under prior shift, by expectation maximisation: EMQ."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from histnetq.classical.calibration import calibrate, fit_calibration
from histnetq.classical.posteriors import ClassifierQuantifier, Floats, Ints

__all__ = ["EMQ", "maximise_likelihood"]

_FEWEST = 12  # iterations before convergence is believed


class EMQ(ClassifierQuantifier):
    """Expectation maximisation (SLD): the prevalences under which the bag's rows are most likely, given the posteriors.

    Parameters
    ----------
    calibration : None, "ts", "bcts", "vs" or "nbvs"
        How posteriors are calibrated first; see `histnetq.classical.calibration`.
    tol : float
        Mean change of a prevalence at which iterations end.
    max_iter : int
    classifier, cv, random_state
        See `ClassifierQuantifier`.

    References
    ----------
    Saerens, Latinne & Decaestecker (2002), *Adjusting the outputs of a classifier to new a priori probabilities*.
    """

    def __init__(
        self,
        classifier: Any = None,
        *,
        calibration: str | None = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        cv: int | float | None = 5,
        random_state: int | None = None,
    ) -> None:
        self.classifier = classifier
        self.calibration = calibration
        self.tol = tol
        self.max_iter = max_iter
        self.cv = cv
        self.random_state = random_state

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        n_classes = posteriors.shape[1]
        self.scale_, self.bias_ = np.ones(n_classes), np.zeros(n_classes)
        if self.calibration is not None:
            self.scale_, self.bias_ = fit_calibration(posteriors, labels, self.calibration, weights)

    def _arrays(self) -> dict[str, NDArray]:
        return {"scale": self.scale_, "bias": self.bias_}

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        if self.calibration is not None:
            posteriors = calibrate(posteriors, self.scale_, self.bias_)
        return maximise_likelihood(
            posteriors, self.train_prevalences_, index, offsets, weights, self.tol, self.max_iter
        )


def maximise_likelihood(
    posteriors: Floats,
    prior: Floats,
    index: Ints,
    offsets: Ints,
    weights: NDArray | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> Floats:
    """EM from the prior, each bag until its own convergence: (n_rows, n_classes) → (n_bags, n_classes).

    A class of prior 0 gets a prior of `tol` first, else it could never be found.

    Examples
    --------
    >>> p = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> maximise_likelihood(p, np.array([0.5, 0.5]), np.array([0, 0, 1]), np.array([0, 3])).round(2)
    array([[0.85, 0.15]])
    """
    prior = np.asarray(prior, dtype=np.float64)
    if (prior == 0).any():
        prior = (prior + tol) / (prior + tol).sum()
    ratios = np.ascontiguousarray(posteriors / prior)
    w = np.ones(1) if weights is None else weights.astype(np.float64)
    out = np.empty((len(offsets) - 1, len(prior)))
    _em(ratios, prior, index, offsets, w, weights is not None, tol, max_iter, out)
    return out


@njit(cache=True, nogil=True)
def _em(ratios, prior, index, offsets, weights, weighted, tol, max_iter, out):  # type: ignore[no-untyped-def]
    n_classes = len(prior)
    new = np.empty(n_classes)
    for bag in range(len(offsets) - 1):
        p = out[bag]
        p[:] = prior
        for iteration in range(max_iter):
            new[:] = 0.0
            total = 0.0
            for e in range(offsets[bag], offsets[bag + 1]):
                row = index[e]
                likelihood = 0.0
                for j in range(n_classes):
                    likelihood += ratios[row, j] * p[j]
                w = weights[e] if weighted else weights[0]
                if likelihood > 0.0:
                    total += w
                    for j in range(n_classes):
                        new[j] += w * ratios[row, j] / likelihood
            change = 0.0
            for j in range(n_classes):
                after = new[j] * p[j] / total if total > 0.0 else p[j]
                change += abs(after - p[j])
                p[j] = after
            if iteration >= _FEWEST - 1 and change / n_classes < tol:
                break
