"""Priors of the mix of a bag: flat, near the training mix, given, or learned from the bags themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from histnetq.bags.limits import brief
from histnetq.errors import InputError
from histnetq.quantifiers.classical.emq import TRAINING_ROWS
from histnetq.quantifiers.classical.pretrained_network import PartsDistribution
from histnetq.registry import PRIORS
from histnetq.simplex import Floats

_ROUNDS, _FLAT_BAGS = 3, 2.0  # of learning a prior from bags; bags of the flat prior that are added to them
_LOWEST, _HIGHEST = 0.02, 1e4  # concentrations
_RANKS = np.arange(1, 32, 2) / 32


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


def learn_prior(infer: Callable[[Floats], list[PartsDistribution]], n_bags: int, n_classes: int) -> Floats:
    """Return concentrations that match the means and variances of the parts of all bags, by a few rounds.

    The variance of parts over bags is the variance of their means plus the mean of their own variances. Two bags of the
    flat prior are added, so that one bag alone changes the prior little.
    """
    alpha = np.ones(n_classes)
    if n_bags < 2:
        return alpha
    flat_square = 2 / (n_classes * (n_classes + 1))
    for _ in range(_ROUNDS):
        values = np.concatenate([part.quantiles(_RANKS) for part in infer(alpha)], axis=1)
        total = n_bags + _FLAT_BAGS
        mean = (values.mean(0).sum(0) + _FLAT_BAGS / n_classes) / total
        square = ((values**2).mean(0).sum(0) + _FLAT_BAGS * flat_square) / total
        mean = mean / mean.sum()
        variance = np.maximum((square - mean**2).sum(), 1e-9)
        weight = (mean * (1 - mean)).sum() / variance - 1
        alpha = np.clip(mean * np.clip(weight, _LOWEST * n_classes, _HIGHEST), _LOWEST, _HIGHEST)
    return alpha
