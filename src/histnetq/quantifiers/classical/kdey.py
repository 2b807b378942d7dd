"""Maximum likelihood on kernel densities of posteriors: KDEy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import check_number
from histnetq.persistence.saving import Arrays, StoredArrays
from histnetq.quantifiers.classical.emq import check_iterations, maximise_mixture
from histnetq.quantifiers.classical.on_features import rows_of_classes
from histnetq.quantifiers.classical.posterior_checks import describe_fault
from histnetq.quantifiers.classical.posteriors import Floats, Ints, PosteriorQuantifier

_CELLS_AT_ONCE = 1 << 21  # rows × kernels
_SMOOTH = 0.02  # with this bandwidth or more, single precision has relative errors below 1e-3
_LEAST = -80.0  # smaller exponents are raised to this: they do not change sums, and float32 has no normal numbers there
_FAR = 1e-25  # a row with a smaller sum of kernels is far from all of them


class _StoredKernels(StoredArrays):
    """Centres of the kernels, and the share of each kernel in the density of each class."""

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        super().restore(model, arrays, learned)
        if describe_fault(model.kernels_.astype(np.float64)) is not None:
            raise ValueError("path: the array 'kernels' has other numbers than probabilities; save again.")
        if not (model.shares_ >= 0).all() or not np.allclose(model.shares_.sum(0), 1):
            raise ValueError("path: the array 'shares' has numbers below 0 or that do not sum to 1; save again.")


@dataclass(eq=False, repr=False, kw_only=True)
class KDEy(PosteriorQuantifier):
    """Kernel density estimation: the mixture of the classes' densities of posteriors that makes the bag most likely.

    This is the variant KDEy-ML of the paper.

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
    bandwidth : float, default=0.1
        Standard deviation of the Gaussian kernels on the simplex of posteriors.
    tol : float, default=1e-7
        Iterations end when the mean change of a prevalence is below this.
    max_iter : int, default=5000
        Largest number of iterations, at most 100,000.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    classifier_ : classifier
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None after `fit_posteriors`.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    kernels_ : (n_kernels, n_classes)
        Centres of the kernels.
    shares_ : (n_kernels, n_classes)
        Weight of each kernel in the density of each class.

    References
    ----------
    Moreo, González & del Coz (2024), *Kernel density estimation for multiclass quantification*.

    Examples
    --------
    >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
    >>> KDEy().fit_posteriors(P, [0, 1] * 10).predict_posteriors(P[:3]).round(2)
    array([0.67, 0.33])
    """

    bandwidth: float = 0.1
    tol: float = 1e-7
    max_iter: int = 5000
    stored = (
        *PosteriorQuantifier.stored,
        _StoredKernels(kernels_="share: kernels classes", shares_="share: kernels classes"),
    )

    def _check_params(self) -> None:
        super()._check_params()
        check_number("bandwidth", self.bandwidth, 0, 1e6, above=True)
        check_iterations(self.tol, self.max_iter)

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        self.kernels_, self.shares_ = rows_of_classes(posteriors, labels, weights)

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        densities = kernel_densities(posteriors, self.kernels_, self.shares_, self.bandwidth)
        return maximise_mixture(densities, index, offsets, weights, self.tol, self.max_iter)


def kernel_densities(values: Floats, kernels: Floats, shares: Floats, bandwidth: float) -> Floats:
    """Return the density of each value under each class, up to a factor per value.

    Tiles of rows are computed by matrix products: the exponents, their exponentials, and the sums per class.

    Parameters
    ----------
    values : (n_rows, d)
    kernels : (n_kernels, d)
    shares : (n_kernels, n_classes)
        Weight of each kernel in the density of each class.

    Returns
    -------
    (n_rows, n_classes)

    Examples
    --------
    >>> kernel_densities(np.array([[0.0]]), np.array([[0.0], [2.0]]), np.eye(2), 1.0).round(3)
    array([[1.   , 0.135]])
    """
    kind = np.float32 if bandwidth >= _SMOOTH else np.float64
    right = _exponents(kernels, bandwidth).T.astype(kind)
    sums = shares.astype(kind)
    out = np.empty((len(values), shares.shape[1]))
    step = max(1, _CELLS_AT_ONCE // len(kernels))
    tile = np.empty((min(step, len(values)), len(kernels)), kind)
    for start in range(0, len(values), step):
        rows = values[start : start + step]
        cells = tile[: len(rows)]
        np.matmul(_powers(rows).astype(kind), right, out=cells)
        np.maximum(cells, _LEAST, out=cells)
        np.exp(cells, out=cells)
        out[start : start + step] = cells @ sums
    far = np.flatnonzero(out.sum(1) < _FAR)
    for start in range(0, len(far), step):
        some = far[start : start + step]
        exponents = _powers(values[some]) @ _exponents(kernels, bandwidth).T
        out[some] = np.exp(exponents - exponents.max(1, keepdims=True)) @ shares
    return out


def _powers(values: Floats) -> Floats:
    """Extend values, (n, d) → (n, d + 2), so that their product with `_exponents` is −‖value − kernel‖² / 2h²."""
    return np.concatenate([values, (values**2).sum(1, keepdims=True), np.ones((len(values), 1))], axis=1)


def _exponents(kernels: Floats, bandwidth: float) -> Floats:
    scale = 1 / (2 * bandwidth**2)
    ones = np.ones((len(kernels), 1))
    return scale * np.concatenate([2 * kernels, -ones, -(kernels**2).sum(1, keepdims=True)], axis=1)
