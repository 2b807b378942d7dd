"""Split-conformal intervals: how far estimates of calibration bags were from the truth says how far new ones may be."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls
from sklearn.exceptions import NotFittedError

from histnetq.data.bags import Bags
from histnetq.data.checks import check_fraction
from histnetq.sketches.sketch import BagSketch
from histnetq.uncertainty.intervals import IntervalMethod, Intervals, hellinger

Floats = NDArray[np.float64]
_FOR_SCALE = 1 / 3  # of the calibration bags
_FEWEST_FOR_SCALE = 5
_LOWEST_SCALE = 1e-6


@dataclass(frozen=True)
class Calibration:
    """What calibration bags say about the errors of a quantifier.

    The error of class *c* in a bag of size *n* with estimate *p̂* is measured in units of its scale,
    ``σ_c² = a_c + b_c / n + p̂ (1 − p̂) (d_c + e_c / n)`` with coefficients of at least 0: bags of different sizes, and
    rare and common classes, become comparable. The error of a bag as a whole is the Hellinger distance between its
    prevalences and their estimate, in units of ``√(a + b / n)`` alike. The scales are fitted on one third of the bags,
    and the scores are those of the others, so that the scores are exchangeable with those of new bags.

    Attributes
    ----------
    coefficients : (n_classes, 4)
        Of the scale of each class, in the order of `_class_terms`.
    joint_coefficients : (2,)
        Of the scale of the Hellinger distance.
    scores : (n_scores, n_classes), rising in each column
        Absolute errors of the other bags, in units of their scales.
    joint_scores : (n_scores,), rising
        Hellinger distances of the same bags, in units of their scales.
    """

    coefficients: Floats
    joint_coefficients: Floats
    scores: Floats
    joint_scores: Floats

    @classmethod
    def of(cls, p_true: ArrayLike, p_pred: ArrayLike, sizes: ArrayLike, random_state: int = 0) -> Calibration:
        """Calibrate by the true and estimated prevalences ``(n_bags, n_classes)`` of bags of these sizes."""
        p_true, p_pred, sizes = (np.asarray(a, dtype=np.float64) for a in (p_true, p_pred, sizes))
        fitted, scored = split_for_scale(len(p_true), random_state)
        errors, terms = np.abs(p_true - p_pred), _class_terms(p_pred, sizes)
        coefficients = np.stack([_fit_scale(errors[fitted, c], terms[fitted, c]) for c in range(errors.shape[1])])
        distances = hellinger(p_true, p_pred)
        joint_coefficients = fit_size_scale(distances[fitted], sizes[fitted])
        return cls(
            coefficients,
            joint_coefficients,
            np.sort((errors / _scale(terms, coefficients))[scored], axis=0),
            np.sort((distances / scale_by_size(sizes, joint_coefficients))[scored]),
        )

    def intervals(self, estimates: Floats, sizes: ArrayLike, coverage: float) -> Intervals:
        """Intervals around the estimates ``(n_bags, n_classes)`` of bags of these sizes."""
        coverage, sizes = check_fraction("coverage", coverage), np.asarray(sizes, dtype=np.float64)
        rank = self._rank(coverage)
        reach = self.scores[rank - 1] * _scale(_class_terms(estimates, sizes), self.coefficients)
        radius = self.joint_scores[rank - 1] * scale_by_size(sizes, self.joint_coefficients)
        return Intervals.around(estimates, estimates - reach, estimates + reach, sizes, coverage, radius)

    def _rank(self, coverage: float) -> int:
        """The rank of the score that bounds a new one with at least this probability."""
        n_scores = len(self.joint_scores)
        rank = math.ceil(round((n_scores + 1) * coverage, 9))
        if rank > n_scores:
            scores = math.ceil(round(coverage / (1 - coverage), 9))
            needed, most = _n_bags_for(scores), math.floor(1000 * n_scores / (n_scores + 1)) / 1000
            raise ValueError(
                f"coverage: {coverage:g} needs at least {needed} calibration bags, got {_n_bags_for(n_scores)}; "
                f"calibrate with more bags, or ask for at most {most:g}."
            )
        return rank


class Conformal(IntervalMethod):
    """Intervals by the errors of calibration bags, which hold whatever the quantifier if bags are exchangeable."""

    name = "conformal"

    def intervals(self, model: Any, bags: Bags | BagSketch, coverage: float) -> Intervals:  # type: ignore[override]
        require_calibrated(model)
        return model.calibration_.intervals(np.atleast_2d(model.predict(bags)), bags.sizes, coverage)


def require_calibrated(model: Any) -> None:
    """Refuse a model that has not seen calibration bags."""
    if not hasattr(model, "calibration_"):
        raise NotFittedError(
            f"{type(model).__name__} is not calibrated; call calibrate with bags of rows not used in training first."
        )


def split_for_scale(n_bags: int, random_state: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The calibration bags that fit scales, drawn by this seed, and the others, which are measured by them."""
    n_scale = _n_for_scale(n_bags)
    if n_bags <= n_scale:
        raise ValueError(
            f"bags: expected at least {_FEWEST_FOR_SCALE + 1} calibration bags, got {n_bags}; "
            "draw more of them from rows not used in training."
        )
    order = np.random.default_rng(random_state).permutation(n_bags)
    return order[:n_scale], order[n_scale:]


def fit_size_scale(errors: Floats, sizes: Floats) -> Floats:
    """(2,): coefficients of the scale ``√(a + b / n)`` that errors (n_bags,) of bags of these sizes have."""
    return _fit_scale(errors, _size_terms(sizes))


def scale_by_size(sizes: Floats, coefficients: Floats) -> Floats:
    """(n_bags,): the scale of bags of these sizes."""
    return _scale(_size_terms(sizes), coefficients)


def _n_for_scale(n_bags: int) -> int:
    return max(_FEWEST_FOR_SCALE, round(_FOR_SCALE * n_bags))


def _n_bags_for(n_scores: int) -> int:
    """The fewest calibration bags that leave this many for the scores."""
    return next(n for n in itertools.count(n_scores) if n - _n_for_scale(n) >= n_scores)


def _size_terms(sizes: Floats) -> Floats:
    """(n_bags, 2): what the squared error of a bag may be made of."""
    return np.stack([np.full_like(sizes, 0.01), 1 / sizes], axis=-1)


def _class_terms(p_pred: Floats, sizes: Floats) -> Floats:
    """(n_bags, n_classes, 4): what the squared error of a class may be made of."""
    spread = np.stack([np.ones_like(p_pred), 4 * p_pred * (1 - p_pred)], axis=-1)
    return (_size_terms(sizes)[:, None, :, None] * spread[:, :, None, :]).reshape(*p_pred.shape, 4)


def _fit_scale(errors: Floats, terms: Floats) -> Floats:
    """Coefficients of at least 0 by which the terms ``(n_bags, k)`` give the squared errors."""
    # In units of what a bag may be off, so that a few large errors of small bags do not decide alone.
    units = terms.sum(1)
    coefficients: Floats = nnls(terms / units[:, None], errors**2 / units)[0]
    return coefficients


def _scale(terms: Floats, coefficients: Floats) -> Floats:
    return np.sqrt(np.maximum((terms * coefficients).sum(-1), _LOWEST_SCALE**2))
