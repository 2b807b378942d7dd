"""Priors of the mix of a bag: flat, near the training mix, given, or learned from the bags themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, ndtr, ndtri

from histnetq.bags.limits import brief
from histnetq.errors import InputError
from histnetq.quantifiers.classical.emq import TRAINING_ROWS
from histnetq.quantifiers.classical.pretrained_network import WIDER, PartsDistribution
from histnetq.registry import PRIORS
from histnetq.simplex import Floats

_ROUNDS, _FLAT_BAGS = 3, 2.0  # of learning a prior from bags; bags of the flat prior that are added to them
_FAR, _STEEP = 1.5, 2.0  # squared distance from the training mix, in variances, at which it is half trusted; the slope
_LOWEST, _HIGHEST = 0.02, 1e4  # concentrations
_RANKS = ndtr(ndtri(np.arange(1, 32, 2) / 32) / WIDER)  # of distributions without the factor of their widths


def check_prior(prior: Any) -> None:
    """Refuse anything but a name in `PRIORS` or positive concentrations."""
    if isinstance(prior, str) and prior in PRIORS:
        return
    try:
        found = np.asarray(prior, np.float64) if not isinstance(prior, str | bool | dict) else np.zeros(0)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.ndim > 1 or not found.size or not ((found >= _LOWEST) & (found <= _HIGHEST)).all():
        names = ", ".join(repr(name) for name in PRIORS)
        expected = f"{names}, or one or several numbers from {_LOWEST:g} to {_HIGHEST:,.0f}"
        raise InputError("prior", expected, brief(prior), "1 is a flat prior")


def concentrations(prior: Any, training: Floats) -> Floats:
    """Return the Dirichlet concentration of each class; those of "bags" are flat at first."""
    if isinstance(prior, str):
        return np.ones(len(training)) if prior != "training" else np.maximum(TRAINING_ROWS * training, _LOWEST)
    found = np.asarray(prior, np.float64)
    if found.ndim == 1 and len(found) != len(training):
        expected = f"one number, or one for each of the {len(training)} classes"
        raise InputError("prior", expected, f"{len(found)} numbers", "1 is a flat prior")
    return np.broadcast_to(found, len(training)).copy()


def learn_prior(infer: Callable[[Floats], list[PartsDistribution]], n_bags: int, training: Floats) -> Floats:
    """Return concentrations that suit the parts of all bags; they are flat unless the mixes resemble each other.

    The concentration matches the variance of parts over bags, which is the variance of their means plus the mean of
    their own variances. It is shrunk to a flat prior, as if two bags more had said so. A prior that expects pure bags
    would do more harm than good if a weak classifier only seems to find such bags, so no prior is less than flat.
    The mean of the prior is the mean of the bags or, as far as the bags allow, the training mix, which is known better:
    all bags share the errors of the classifier.
    """
    n_classes = len(training)
    alpha = np.ones(n_classes)
    if n_bags < 2:
        return alpha
    for _ in range(_ROUNDS):
        values = np.concatenate([part.quantiles(_RANKS) for part in infer(alpha)], axis=1)
        mean, own = values.mean((0, 1)), values.var(0).mean(0)
        total = max((values**2).mean((0, 1)).sum() - (mean**2).sum(), 1e-9)
        mean /= mean.sum()
        weight = np.clip((mean * (1 - mean)).sum() / total - 1, _LOWEST * n_classes, _HIGHEST)
        weight = np.exp((n_bags * np.log(weight) + _FLAT_BAGS * np.log(n_classes)) / (n_bags + _FLAT_BAGS))
        if weight <= n_classes:
            return np.ones(n_classes)
        rows = n_bags * (weight + 1)
        off = (mean - training) ** 2 / (own + mean * (1 - mean) / rows + 1e-6)
        trust = expit(_STEEP * (_FAR - off.mean()))
        middle = (1 - trust) * (rows * mean + _FLAT_BAGS) / (rows + _FLAT_BAGS * n_classes) + trust * training
        alpha = np.clip(middle * weight, _LOWEST, _HIGHEST)
    return alpha
