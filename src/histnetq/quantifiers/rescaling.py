"""Posteriors rescaled by factors and biases of their logarithms: temperature and vector scaling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from histnetq.data.checks import check_choice

Floats = NDArray[np.float64]
KINDS = ("ts", "bcts", "vs", "nbvs")
_FLOOR = 1e-12  # posteriors of exactly 0 have no logarithm


def fit_scales(
    posteriors: Floats, labels: NDArray[np.int64], kind: str, weights: NDArray | None = None
) -> tuple[Floats, Floats]:
    """Fit scales and biases that make the labels most likely under ``softmax(scale · log p + bias)``.

    Parameters
    ----------
    posteriors : (n_rows, n_classes)
    labels : (n_rows,) of class codes
    kind : "ts", "bcts", "vs" or "nbvs"
        One scale; one scale and a bias per class; a scale and a bias per class; a scale per class.

    Returns
    -------
    scale, bias : (n_classes,) each

    References
    ----------
    Alexandari, Kundaje & Shrikumar (2020), *Maximum likelihood with bias-corrected calibration is hard-to-beat at
    label shift adaptation*.
    """
    check_choice("calibration", kind, KINDS)
    logits = _logits(posteriors)
    n_classes = logits.shape[1]
    one_scale, biased = kind in ("ts", "bcts"), kind in ("bcts", "vs")
    n_scales = 1 if one_scale else n_classes
    w = np.ones(len(labels)) if weights is None else weights.astype(float)
    w = w / w.sum()
    truth = np.zeros_like(logits)
    truth[np.arange(len(labels)), labels] = 1

    def loss(parameters: Floats) -> tuple[float, Floats]:
        scale, bias = parameters[:n_scales], parameters[n_scales:]
        scores = logits * scale + (bias if biased else 0.0)
        error = (softmax(scores, axis=1) - truth) * w[:, None]
        by_scale = (error * logits).sum(0)
        gradient = [by_scale.sum(keepdims=True) if one_scale else by_scale]
        if biased:
            gradient.append(error.sum(0))
        value = -(w * log_softmax(scores, axis=1)[np.arange(len(labels)), labels]).sum()
        return value, np.concatenate(gradient)

    start = np.concatenate([np.ones(n_scales), np.zeros(n_classes if biased else 0)])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-9}).x
    scale = np.broadcast_to(found[:n_scales], n_classes).copy()
    bias = found[n_scales:] if biased else np.zeros(n_classes)
    return scale, bias - bias.mean()


def rescale(posteriors: Floats, scale: Floats, bias: Floats) -> Floats:
    """(n_rows, n_classes) → the same, ``softmax(scale · log p + bias)``.

    Examples
    --------
    >>> rescale(np.array([[0.8, 0.2]]), np.array([0.5, 0.5]), np.zeros(2)).round(3)
    array([[0.667, 0.333]])
    """
    return softmax(_logits(posteriors) * scale + bias, axis=1)


def _logits(posteriors: Floats) -> Floats:
    return np.log(np.maximum(posteriors, _FLOOR))
