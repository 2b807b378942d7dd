"""Inputs of the pretrained network: a few numbers for each class of a bag, computed from its counts in cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from histnetq.kernels.cell_mixtures import explain
from histnetq.kernels.cores import over_bags
from histnetq.quantifiers.classical.simplex_cells import MIDDLE, N_LEVELS, LearnedCells
from histnetq.simplex import Floats, Ints

N_NUMBERS = 24  # of a class


@dataclass(frozen=True)
class Described:
    """Bags as the network reads them; classes are in the order of the cells' edges.

    Attributes
    ----------
    numbers : (n_bags, n_classes, N_NUMBERS)
        Inputs of the network.
    levels : (n_bags, n_levels, n_classes)
        Logits of the expected parts of the bag, at each level of trust in the classifier.
    unit : (n_bags, n_classes)
        Standard deviation of these logits.
    expected : (n_bags, n_levels, n_classes)
        Expected parts of the bag.
    covariances : (n_bags, n_classes, n_classes), or no bags
        Covariance of the parts.
    sizes : (n_bags,)
    """

    numbers: Floats
    levels: Floats
    unit: Floats
    expected: Floats
    covariances: Floats
    sizes: Floats


def half(sizes: Floats) -> Floats:
    """Return half a row of a bag, which keeps logits finite: (n_bags,) → (n_bags, 1)."""
    return 0.5 / sizes[:, None]


def logits(parts: Floats, halves: Floats) -> Floats:
    """Return logits of parts of bags, after half a row is added on both sides."""
    found: Floats = np.log((parts + halves) / (1 - parts + halves))
    return found


def from_logits(values: Floats, halves: Floats) -> Floats:
    """Return parts of bags from their logits; a part of less than half a row is none."""
    found: Floats = np.clip((1 + 2 * halves) * expit(values) - halves, 0, 1)
    return found


def describe(
    learned: LearnedCells,
    cells: Ints,
    offsets: Ints,
    weights: Floats,
    sizes: Floats,
    prior: Floats,
    joint: bool = False,
) -> Described:
    """Describe bags by their entries in cells; `prior` has Dirichlet concentrations, (n_bags, n_classes)."""
    n_bags, n_classes = len(offsets) - 1, len(learned.counts)
    shares = np.empty((n_bags, N_LEVELS, n_classes))
    expected, spreads = np.empty_like(shares), np.empty((n_bags, 2, n_classes))
    covariances = np.empty((n_bags if joint else 0, n_classes, n_classes))
    known = learned.emissions, MIDDLE, prior, 1 / (learned.counts + 1), cells, offsets, weights
    over_bags(lambda a, b: explain(*known, a, b, shares, expected, spreads, covariances), offsets)
    halves = half(sizes)
    levels = logits(expected, halves[:, None])
    middle = expected[:, MIDDLE]
    slope = (1 + 2 * halves) / ((middle + halves) * (1 - middle + halves))
    own, labelled = np.sqrt(spreads[:, 0]) * slope, np.sqrt(spreads[:, 1]) * slope
    floor = 0.1 * halves * slope  # a tenth of half a row
    unit = np.sqrt(own**2 + labelled**2 + floor**2)
    counted = _first_classes(learned, cells, offsets, weights)
    at = levels[:, MIDDLE]
    others = np.clip((levels[:, [0, 1, 3]] - at[:, None]), -8, 8)
    by_unit = np.clip(others / unit[:, None], -8, 8) / 2
    n = learned.counts
    tokens = [
        at / 2, *np.moveaxis(others, 1, 0), *np.moveaxis(by_unit, 1, 0),
        np.clip(logits(counted, halves) - at, -8, 8) / 2,
        np.log(unit), np.log(own + 1e-3), np.log(labelled + 1e-3),
        np.clip(middle * n_classes, 0, 30) / 5, np.sqrt(middle),
        _rows(np.log(n) / 3 - 1.5, n_bags), _rows(np.log(n.sum() * np.ones_like(n)) / 3 - 2, n_bags),
        _rows(np.log(n / n.sum() * n_classes), n_bags),
        _rows(learned.recalls, n_bags), _rows(learned.confidences, n_bags),
        _rows(learned.recalls - learned.confidences, n_bags),
        np.repeat((np.log(sizes) / 3 - 1.5)[:, None], n_classes, 1),
        np.full((n_bags, n_classes), np.log(n_classes) / 2 - 1),
        np.log(prior), np.log(prior.sum(1, keepdims=True) / n_classes) * np.ones_like(prior),
        np.full((n_bags, n_classes), learned.recalls.mean()),
    ]  # fmt: skip
    return Described(np.stack(tokens, axis=2), levels, unit, expected, covariances, sizes)


def _first_classes(learned: LearnedCells, cells: Ints, offsets: Ints, weights: Floats) -> Floats:
    """Return the share of rows of each bag whose cell has its largest posterior at each class."""
    n_bags, n_classes = len(offsets) - 1, len(learned.counts)
    top = learned.points.argmax(1)[cells]
    place = np.repeat(np.arange(n_bags), np.diff(offsets)) * n_classes + top
    counts = np.bincount(place, weights, n_bags * n_classes).reshape(n_bags, n_classes)
    found: Floats = counts / counts.sum(1, keepdims=True)
    return found


def _rows(values: NDArray, n_bags: int) -> Floats:
    return np.broadcast_to(values, (n_bags, len(values)))
