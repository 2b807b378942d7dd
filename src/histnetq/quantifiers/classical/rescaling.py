"""Rescaling of posteriors by factors and biases of their logarithms: temperature and vector scaling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, null_space
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from histnetq.bags.checks import check_choice
from histnetq.registry import RESCALINGS

Floats = NDArray[np.float64]
_FLOOR = 1e-12  # posteriors of exactly 0 have no logarithm
_RIDGE_OF_SCALE, _RIDGE_OF_BIAS = 1.0, 1.0  # precisions of the priors of "ridge", in units of rows
_CALIBRATED = 0.01  # prior probability, in "ridge", that the posteriors need no rescaling
_SPREADS = np.concatenate([[0.0], np.geomspace(1e-6, 10.0, 200)])  # variances of biases to choose from


def fit_scales(
    posteriors: Floats, labels: NDArray[np.int64], kind: str, weights: NDArray | None = None
) -> tuple[Floats, Floats]:
    """Fit scales and biases that make the labels most likely under ``softmax(scale · log p + bias)``.

    Parameters
    ----------
    posteriors : (n_rows, n_classes)
    labels : (n_rows,) of class codes
    kind : "ts", "bcts", "shrunk", "ridge", "vs" or "nbvs"
        One scale; one scale and a bias per class; the same with biases shrunk in proportion to their sampling noise;
        the same with the logarithm of the scale and the biases shrunk like ridge regression, and by the probability
        that the posteriors are calibrated; a scale and a bias per class; a scale per class.

    Returns
    -------
    scale, bias : (n_classes,) each

    References
    ----------
    Alexandari, Kundaje & Shrikumar (2020), *Maximum likelihood with bias-corrected calibration is hard-to-beat at
    label shift adaptation*.
    """
    check_choice("rescaling", kind, RESCALINGS)
    w = np.ones(len(labels)) if weights is None else weights.astype(float)
    w = w / w.sum()
    logits = _logits(posteriors)
    if kind == "ridge":
        scale, bias, value = _ridge(logits, labels, w)
        needed = 1 - _calibrated(logits, labels, w, scale, bias, value)
        return scale**needed, bias * needed
    if kind != "shrunk":
        return _most_likely(logits, labels, w, one_scale=kind in ("ts", "bcts"), biased=kind in ("bcts", "vs"))
    n_rows = 1 / (w @ w)  # effective number of rows
    spread = _spread_of_biases(logits, *_most_likely(logits, labels, w), w, n_rows)
    if spread == 0:
        return _most_likely(logits, labels, w, biased=False)
    return _most_likely(logits, labels, w, penalty=1 / (n_rows * spread))


def _most_likely(
    logits: Floats,
    labels: NDArray[np.int64],
    w: Floats,
    one_scale: bool = True,
    biased: bool = True,
    penalty: float = 0.0,
) -> tuple[Floats, Floats]:
    """Maximise the mean log-likelihood, with weights of sum one, minus half the penalty times the squared biases."""
    n_classes = logits.shape[1]
    n_scales = 1 if one_scale else n_classes
    truth = np.zeros_like(logits)
    truth[np.arange(len(labels)), labels] = 1

    def loss(parameters: Floats) -> tuple[float, Floats]:
        scale, bias = parameters[:n_scales], parameters[n_scales:]
        scores = logits * scale + (bias if biased else 0.0)
        error = (softmax(scores, axis=1) - truth) * w[:, None]
        by_scale = (error * logits).sum(0)
        gradient = [by_scale.sum(keepdims=True) if one_scale else by_scale]
        if biased:
            gradient.append(error.sum(0) + penalty * bias)
        value = -(w * log_softmax(scores, axis=1)[np.arange(len(labels)), labels]).sum() + penalty * (bias @ bias) / 2
        return value, np.concatenate(gradient)

    start = np.concatenate([np.ones(n_scales), np.zeros(n_classes if biased else 0)])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-9}).x
    scale = np.broadcast_to(found[:n_scales], n_classes).copy()
    bias = found[n_scales:] if biased else np.zeros(n_classes)
    return scale, bias - bias.mean()


def best_floor(posteriors: Floats, labels: NDArray[np.int64], weights: NDArray, floors: Sequence[float]) -> float:
    """Return the floor of posteriors with the largest penalised likelihood after rescaling by "ridge".

    Forests give posteriors of 0 to rows that may still be of the class. How likely this is differs by data set.
    """
    w = weights / weights.sum()
    values = [_ridge(np.log(np.maximum(posteriors, floor)), labels, w)[2] for floor in floors]
    return floors[int(np.argmin(values))]


def _ridge(logits: Floats, labels: NDArray[np.int64], w: Floats) -> tuple[Floats, Floats, float]:
    """Maximise the log-likelihood with normal priors of the logarithm of the scale and of the biases.

    Also return the negative penalised log-likelihood.
    """
    n_rows, truth = 1 / (w @ w), np.eye(logits.shape[1])[labels]
    precision = np.concatenate([[_RIDGE_OF_SCALE], np.full(logits.shape[1], _RIDGE_OF_BIAS)]) / n_rows

    def loss(parameters: Floats) -> tuple[float, Floats]:
        scale = np.exp(parameters[0])
        fits = log_softmax(scale * logits + parameters[1:], axis=1)
        error = (np.exp(fits) - truth) * w[:, None]
        slopes = np.concatenate([[scale * (error * logits).sum()], error.sum(0)])
        value = precision @ parameters**2 / 2 - w @ fits[np.arange(len(labels)), labels]
        return value, precision * parameters + slopes

    done = minimize(loss, np.zeros(len(precision)), jac=True, method="L-BFGS-B", options={"maxiter": 1000})
    return np.full(logits.shape[1], np.exp(done.x[0])), done.x[1:] - done.x[1:].mean(), float(done.fun)


def _calibrated(
    logits: Floats, labels: NDArray[np.int64], w: Floats, scale: Floats, bias: Floats, value: float
) -> float:
    """Return the probability that a scale of 1 and no biases are right, by Laplace's approximation.

    Without it, large bags would have the errors of the biases, however well the classifier is calibrated. `value` is
    what `_ridge` returns with the scale and the biases.
    """
    n_rows = 1 / (w @ w)
    unscaled = -w @ log_softmax(logits, axis=1)[np.arange(len(labels)), labels]
    information = n_rows * _information(logits, softmax(logits * scale + bias, axis=1), w)
    information[0] *= scale[0]  # of the logarithm of the scale
    information[:, 0] *= scale[0]
    precision = np.concatenate([[_RIDGE_OF_SCALE], np.full(len(bias), _RIDGE_OF_BIAS)])
    ratio = np.linalg.slogdet(np.eye(len(precision)) + information / precision)[1]
    return float(expit(np.log(_CALIBRATED / (1 - _CALIBRATED)) + ratio / 2 - n_rows * (unscaled - value)))


def _information(logits: Floats, p: Floats, w: Floats) -> Floats:
    """Return the information of a row about the scale and the biases: (1 + n_classes, 1 + n_classes)."""
    weighted, mean = p * w[:, None], (p * logits).sum(1)
    of_biases = np.diag(weighted.sum(0)) - p.T @ weighted
    across = (weighted * (logits - mean[:, None])).sum(0)
    of_scale = (weighted * logits**2).sum() - w @ mean**2
    found: Floats = np.block([[np.array([[of_scale]]), across[None]], [across[:, None], of_biases]])
    return found


def _spread_of_biases(logits: Floats, scale: Floats, bias: Floats, w: Floats, n_rows: float) -> float:
    """Return the variance of the true biases that makes the estimated biases most likely; 0 if noise explains them.

    The covariance of the estimation errors, of one scale and biases of sum zero, is the inverse of the information.
    """
    information = n_rows * _information(logits, softmax(logits * scale + bias, axis=1), w)
    free = block_diag(1.0, null_space(np.ones((1, len(bias)))))
    reduced = free.T @ information @ free
    reduced += 1e-12 * (1 + np.trace(reduced)) * np.eye(len(reduced))  # a class without rows has no information
    variances, directions = np.linalg.eigh(np.linalg.inv(reduced)[1:, 1:])
    found = directions.T @ (free[1:, 1:].T @ bias)
    total = np.maximum(variances, np.finfo(float).tiny) + _SPREADS[:, None]
    return float(_SPREADS[np.argmin((np.log(total) + found**2 / total).sum(1))])


def rescale(posteriors: Floats, scale: Floats, bias: Floats) -> Floats:
    """Return ``softmax(scale · log p + bias)``: (n_rows, n_classes) → the same.

    Examples
    --------
    >>> rescale(np.array([[0.8, 0.2]]), np.array([0.5, 0.5]), np.zeros(2)).round(3)
    array([[0.667, 0.333]])
    """
    return softmax(_logits(posteriors) * scale + bias, axis=1)


def _logits(posteriors: Floats) -> Floats:
    return np.log(np.maximum(posteriors, _FLOOR))
