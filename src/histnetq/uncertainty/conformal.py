"""Conformal intervals: the errors on calibration bags bound the errors on new bags."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls
from sklearn.exceptions import NotFittedError

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_fraction, check_whole
from histnetq.bags.shared_rows import part_copied, part_shared
from histnetq.errors import InputError, Option, StructuredError, Way
from histnetq.sketches.sketch import BagSketch
from histnetq.uncertainty.intervals import IntervalMethod, Intervals, hellinger

if TYPE_CHECKING:
    from histnetq.uncertainty.capabilities import Capabilities

Floats = NDArray[np.float64]
_FEWEST = 6  # smallest number of calibration bags
_FOLDS = 10
_MOST_ALIKE = 0.1  # largest share of copied rows; if their errors were 0, a coverage of 90 % would be 2 % lower
_LEAST_SCALE = 0.5  # rows of a bag; with a whole row, accurate models would get too wide intervals for small bags
_REFITS = 3  # number of fits of the scales, each with weights from the previous fit
_BORROWED = 20  # number of bags that the pooled scores of all classes count for


@dataclass(frozen=True)
class Calibration:
    """Errors of a quantifier on calibration bags, in units of their expected size.

    The error of class *c* in a bag of size *n* with estimate *p̂* is divided by its scale,
    ``σ_c² = f_c (a + b / n + p̂ (1 − p̂) (d + e / n))`` with nonnegative coefficients; the scale is at least half a
    row of the bag. This makes bags of different sizes, and rare and common classes, comparable. The coefficients are
    the same for all classes. The factor ``f_c`` of a class is shrunk towards 1 if there are few bags. The error of a
    whole bag is the Hellinger distance between its prevalences and their estimate, divided by ``√(a + b / n)`` in the
    same way.

    Each bag is scored with scales that were fitted to the remaining folds, so its score is distributed like the score
    of a new bag and no bag is spent on fitting scales. The half-width of an interval is a quantile of the scores of its
    class. The scores of all classes together count like 20 additional bags.

    Attributes
    ----------
    coefficients : (n_classes, 4)
        Coefficients of the scale of each class, in the order of `_class_terms`.
    joint_coefficients : (2,)
        Coefficients of the scale of the Hellinger distance.
    scores : (n_bags, n_classes), rising in each column
        Absolute errors of the bags, in units of their scales.
    joint_scores : (n_bags,), rising
        Hellinger distances of the bags, in units of their scales.
    least : (1,)
        Smallest scale, in rows of the bag; 1 in models that were stored without it.
    """

    coefficients: Floats
    joint_coefficients: Floats
    scores: Floats
    joint_scores: Floats
    least: Floats = field(default_factory=lambda: np.ones(1))

    @classmethod
    def of(cls, p_true: ArrayLike, p_pred: ArrayLike, sizes: ArrayLike, random_state: int = 0) -> Calibration:
        """Learn from the true and estimated prevalences ``(n_bags, n_classes)`` of bags of these sizes."""
        p_true, p_pred, sizes = (np.asarray(a, dtype=np.float64) for a in (p_true, p_pred, sizes))
        _refuse_few_bags(len(p_true))
        fold = np.random.default_rng(random_state).permutation(len(p_true)) % _FOLDS
        errors, terms, floors = np.abs(p_true - p_pred), _class_terms(p_pred, sizes), _LEAST_SCALE / sizes[:, None]
        distances, joint_terms = hellinger(p_true, p_pred)[:, None], _size_terms(sizes)[:, None]
        return cls(
            _fit_scales(errors, terms, floors),
            _fit_scales(distances, joint_terms, floors)[0],
            np.sort(_cross_scores(errors, terms, floors, fold), axis=0),
            np.sort(_cross_scores(distances, joint_terms, floors, fold)[:, 0]),
            np.array([_LEAST_SCALE]),
        )

    def intervals(self, estimates: Floats, sizes: ArrayLike, coverage: float) -> Intervals:
        """Return intervals around the estimates ``(n_bags, n_classes)`` of bags of these sizes."""
        coverage, sizes = check_fraction("coverage", coverage), np.asarray(sizes, dtype=np.float64)
        self._refuse_few(coverage)
        floors = self.least[0] / sizes[:, None]
        scales = _scale(_class_terms(estimates, sizes), self.coefficients, floors)
        reach = _quantiles(self.scores, coverage, _BORROWED) * scales
        joint = _scale(_size_terms(sizes)[:, None], self.joint_coefficients, floors)[:, 0]
        radius = _quantiles(self.joint_scores[:, None], coverage, 0)[0] * joint
        return Intervals.around(estimates, estimates - reach, estimates + reach, sizes, coverage, radius)

    def with_model_part(self, factor: float) -> Calibration:
        """Return a copy whose expected squared errors that do not depend on the size of a bag are multiplied.

        These are the errors of the model. The model to be used may have learned from more rows than the models that
        were calibrated, so that its errors are smaller.
        """
        of_classes, joint = self.coefficients.copy(), self.joint_coefficients.copy()
        of_classes[:, :2] *= factor  # the first terms of `_class_terms` do not depend on the size
        joint[0] *= factor
        return replace(self, coefficients=of_classes, joint_coefficients=joint)

    def _refuse_few(self, coverage: float) -> None:
        n = len(self.joint_scores)
        if round((n + 1) * coverage, 9) > n:
            needed, most = math.ceil(round(coverage / (1 - coverage), 9)), math.floor(1000 * n / (n + 1)) / 1000
            raise ValueError(
                f"coverage: {coverage:g} needs at least {needed} calibration bags, got {n}; "
                f"calibrate with more bags, or ask for at most {most:g}."
            )


class NotCalibratedError(StructuredError, NotFittedError):
    """Error about a model without calibrated intervals."""


def not_calibrated(kind: str) -> NotCalibratedError:
    """Return the error about a model of this kind that is not calibrated."""
    left_out = (Option("coverage"), " and ", Option("interval"), " out")
    remedy = (
        Way("call calibrate with bags of rows not used in training first", on=("python",)),
        Way("fit it to more bags, so that some calibrate it", on=("command",)),
        Way(", or leave ", *left_out, on=("command",)),
        Way("leave ", *left_out, ", or ask for a model that was fitted to more bags and calibrated", on=("service",)),
    )
    return NotCalibratedError("", problem=f"{kind} is not calibrated", remedy=remedy)


class Conformal(IntervalMethod):
    """Intervals from the errors on calibration bags; valid for every quantifier if bags are exchangeable."""

    name = "conformal"
    needs = "calibration"

    def refusal(self, kind: str) -> Exception:
        return not_calibrated(kind)

    def intervals(  # type: ignore[override]
        self, model: Capabilities, bags: Bags | BagSketch, coverage: float
    ) -> Intervals:
        assert model.calibration is not None
        return model.calibration.intervals(np.atleast_2d(model.estimate(bags)), bags.sizes, coverage)


def cross_estimates(
    fit_predict: Callable[[Bags, Bags], Floats], bags: Bags, folds: int, random_state: int = 0
) -> Floats:
    """Return cross-validated estimates (n_bags, n_classes) of bags with known prevalences.

    `fit_predict` takes training bags and held-out bags, and returns estimates of the held-out bags. Bags that share
    rows of the pool are refused, because a model would be trained on the rows that it estimates. Copies of rows in
    several bags are refused if they are more than a tenth of all rows. Rows that are equal by chance, such as the same
    answers of different people, are not copies. Scores are not compared.
    """
    _refuse_few_bags(len(bags))
    if not 2 <= check_whole("folds", folds) <= len(bags):
        raise InputError("folds", f"a whole number from 2 to {len(bags)}, the number of bags", folds, "give another")
    same = part_shared(bags)
    shared = same or (bags.scores is None and part_copied(bags))
    if same or shared > _MOST_ALIKE:
        raise ValueError(
            "bags: expected bags that share no rows, as each bag is estimated by a model fitted without it, got "
            f"{shared:.0%} of the rows in several bags; calibrate with held-out bags."
        )
    assert bags.prevalences is not None
    fold, found = np.random.default_rng(random_state).permutation(len(bags)) % folds, np.empty_like(bags.prevalences)
    for k in range(folds):
        found[fold == k] = fit_predict(bags[fold != k], bags[fold == k])
    return found


def _refuse_few_bags(n_bags: int) -> None:
    if n_bags < _FEWEST:
        raise ValueError(
            f"bags: expected at least {_FEWEST} calibration bags, got {n_bags}; "
            "draw more of them from rows not used in training."
        )


def _size_terms(sizes: Floats) -> Floats:
    """Return the terms of the squared error of each bag: (n_bags, 2)."""
    return np.stack([np.full_like(sizes, 0.01), 1 / sizes], axis=-1)


def _class_terms(p_pred: Floats, sizes: Floats) -> Floats:
    """Return the terms of the squared error of each class: (n_bags, n_classes, 4)."""
    spread = np.stack([np.ones_like(p_pred), 4 * p_pred * (1 - p_pred)], axis=-1)
    return (_size_terms(sizes)[:, None, :, None] * spread[:, :, None, :]).reshape(*p_pred.shape, 4)


def _fit_scales(errors: Floats, terms: Floats, floors: Floats) -> Floats:
    """Fit nonnegative coefficients (n_classes, k) of the terms ``(n_bags, n_classes, k)`` to the squared errors."""
    squares, flat = errors.ravel() ** 2, terms.reshape(-1, terms.shape[-1])
    # Dividing by the expected size keeps a few large errors from dominating.
    units = flat.sum(1)
    for _ in range(_REFITS):
        shape: Floats = nnls(flat / units[:, None], squares / units)[0]
        units = np.maximum(flat @ shape, np.broadcast_to(floors**2, errors.shape).ravel())
    ratios = (squares / units).reshape(errors.shape).sum(0)
    factors = (ratios + _BORROWED) / (len(errors) + _BORROWED)
    return factors[:, None] * shape


def _cross_scores(errors: Floats, terms: Floats, floors: Floats, fold: NDArray[np.int64]) -> Floats:
    """Divide the errors (n_bags, n_classes) by scales that were fitted to the remaining folds."""
    scores = np.empty_like(errors)
    for k in range(fold.max() + 1):
        here = fold == k
        coefficients = _fit_scales(errors[~here], terms[~here], floors[~here])
        scores[here] = errors[here] / _scale(terms[here], coefficients, floors[here])
    return scores


def _scale(terms: Floats, coefficients: Floats, floors: Floats) -> Floats:
    return np.sqrt(np.maximum((terms * coefficients).sum(-1), floors**2))


def _quantiles(scores: Floats, coverage: float, borrowed: int) -> Floats:
    """Return upper bounds (n_classes,) that contain a new score of each class with probability `coverage`.

    Each column of `scores` (n_bags, n_classes) is sorted. The pooled scores of all classes count like `borrowed` bags.
    The new score counts as the largest one. The bound is interpolated between two scores.
    """
    n, n_classes = scores.shape
    pooled = np.quantile(scores, (np.arange(n) + 0.5) / n)
    values = np.concatenate([scores, np.broadcast_to(pooled[:, None], scores.shape)])
    weights = np.repeat([1.0, borrowed / n], n)
    order = np.argsort(values, axis=0, kind="stable")
    values, below = np.take_along_axis(values, order, 0), np.cumsum(weights[order], axis=0)
    wanted = coverage * (n + borrowed + 1)
    return np.array([np.interp(wanted, below[:, c], values[:, c]) for c in range(n_classes)])
