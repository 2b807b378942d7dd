"""Bayes decisions: the estimate with the least expected loss, given draws of the prevalences of each bag."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from histnetq import metrics
from histnetq.errors import InputError, InputTypeError
from histnetq.metrics import CostSensitiveAE, Measure, as_loss
from histnetq.simplex import Floats, first_off_simplex

_AT_ONCE = 1 << 21  # numbers that are worked on together
_MOST_TRIED = 200  # draws that are tried as estimates
_STEPS = 0.5 ** np.arange(2, 12)  # sizes of the steps that refine the best candidate
_DIGITS = 9  # of the levels of quantiles; nearer levels are equal up to rounding
_TOLERANCE = 1e-6  # of the sums of draws

Rule = Callable[[Floats, Floats, Floats], Floats]  # draws, their weights, sizes -> estimates


def decide(
    draws: ArrayLike, loss: str | Measure, sizes: ArrayLike | None = None, weights: ArrayLike | None = None
) -> Floats:
    """Return the prevalences of each bag with the least mean loss over draws from their posterior.

    The minimum is exact for the names in `histnetq.metrics.MEASURES` except "nkld", and for `CostSensitiveAE`. The
    squared error and "kld" have the mean of the draws. Absolute errors have a quantile of each class. The levels of the
    quantiles are as near to the median as the sum of 1 allows; with two classes they are the medians. The match
    distance "nmd" has the medians of the cumulative prevalences, and so has "macro_nmd", which equals "nmd" for one
    bag. For any other loss, candidates are compared: the mean, the quantiles of "ae" and up to 200 of the draws. The
    best one is then refined by moving prevalence to or from one class at a time.

    Parameters
    ----------
    draws : (n_bags, n_draws, n_classes)
        Prevalences that are drawn from the posterior of each bag.
    loss : str or callable
        A name in `histnetq.metrics.MEASURES`, or a function ``(p_true, p_pred)`` that returns one number per row.
    sizes : (n_bags,), default=None
        Bag sizes, for losses that are smoothed.
    weights : (n_bags, n_draws), default=None
        Weight of each draw; None gives all draws the same weight.

    Returns
    -------
    (n_bags, n_classes)
        The estimates.

    Examples
    --------
    >>> draws = np.array([[[1.0, 0.0], [1.0, 0.0], [0.4, 0.6]]])
    >>> decide(draws, "ae"), decide(draws, "se")
    (array([[1., 0.]]), array([[0.8, 0.2]]))
    >>> decide(draws, lambda p_true, p_pred: abs(p_true - p_pred).max(-1)).round(3)
    array([[1., 0.]])
    """
    p, w, n_rows = _checked(draws, weights, sizes)
    measure = as_loss(loss)
    if n_rows is None and any(measure is smoothed for smoothed in _SMOOTHED):
        raise InputError("sizes", "the size of each bag", "None", "the loss smooths by 1 / (2 · size)")
    if isinstance(loss, CostSensitiveAE):
        rule: Rule = partial(_cost_sensitive, loss)
    else:  # a callable may have no hash
        rule = next((rule for known, rule in _RULES.items() if known is measure), partial(_search, measure))
    known = np.ones(len(p)) if n_rows is None else n_rows
    out, step = np.empty((len(p), p.shape[2])), max(1, _AT_ONCE // (p.shape[1] * p.shape[2]))
    for first in range(0, len(p), step):
        some = slice(first, first + step)
        out[some] = rule(p[some], w[some], known[some])
    out = np.maximum(out, 0.0)
    return out / out.sum(1, keepdims=True)


def _mean(draws: Floats, weights: Floats, sizes: Floats) -> Floats:
    found: Floats = (weights[:, None] @ draws)[:, 0]
    return found


def _absolute(draws: Floats, weights: Floats, sizes: Floats) -> Floats:
    return _quantiles(draws, np.broadcast_to(weights[..., None], draws.shape))


def _cost_sensitive(loss: CostSensitiveAE, draws: Floats, weights: Floats, sizes: Floats) -> Floats:
    loss(draws[:1, 0], draws[:1, 0])  # refuses a wrong number of classes
    return _quantiles(draws, weights[..., None] * np.asarray(loss.weights))


def _normalised(draws: Floats, weights: Floats, sizes: Floats) -> Floats:
    """Minimise "nae", which divides the absolute error by the largest one that is possible for the truth."""
    return _absolute(draws, weights / (1 - draws.min(2)), sizes)


def _relative(draws: Floats, weights: Floats, sizes: Floats) -> Floats:
    return _quantiles(draws, weights[..., None] / (draws + 0.5 / sizes[:, None, None]))


def _normalised_relative(draws: Floats, weights: Floats, sizes: Floats) -> Floats:
    """Minimise "nrae", which divides the relative error by the largest one that is possible for the smoothed truth."""
    n_classes, eps = draws.shape[2], 0.5 / sizes[:, None]
    least = (draws.min(2) + eps) / (n_classes * eps + 1)
    return _relative(draws, weights / (n_classes - 1 + (1 - least) / least), sizes)


def _cumulative(draws: Floats, weights: Floats, sizes: Floats) -> Floats:
    """Minimise the match distance: medians of cumulative prevalences, which never decrease."""
    sums = draws.cumsum(2)[..., :-1]
    order = sums.argsort(1)
    values, levels = np.take_along_axis(sums, order, 1), weights[np.arange(len(sums))[:, None, None], order].cumsum(1)
    levels = np.round(levels, _DIGITS)  # the ends of a gap at level 1/2 are equally good
    low = np.take_along_axis(values, (levels < 0.5).sum(1)[:, None], 1)[:, 0]
    high = np.take_along_axis(values, np.minimum((levels <= 0.5).sum(1), values.shape[1] - 1)[:, None], 1)[:, 0]
    return np.diff((low + high) / 2, axis=1, prepend=0.0, append=1.0)


_RULES: dict[Measure, Rule] = {
    metrics.ae: _absolute, metrics.nae: _normalised, metrics.rae: _relative, metrics.nrae: _normalised_relative,
    metrics.se: _mean, metrics.kld: _mean, metrics.nmd: _cumulative, metrics.macro_nmd: _cumulative,
}  # fmt: skip
_SMOOTHED = (metrics.rae, metrics.nrae, metrics.kld, metrics.nkld)


def _quantiles(draws: Floats, weights: Floats) -> Floats:
    """Minimise the sum over classes of the mean of ``weight · |truth − estimate|`` on the simplex, exactly.

    The slope of the loss of each class rises at each draw. An estimate is best if all classes have the same slope. The
    estimates start at 0, and the gaps between draws, and from the last draw to 1, are crossed in the order of their
    slopes until the sum is 1. Gaps of the slope at which this happens are crossed in part.
    """
    order = draws.argsort(1)
    values, w = np.take_along_axis(draws, order, 1), np.take_along_axis(weights, order, 1)
    totals, start = w.sum(1, keepdims=True), np.zeros((len(draws), 1, draws.shape[2]))
    slopes = (2 * np.concatenate([start, w.cumsum(1)], axis=1) - totals) / totals.max(2, keepdims=True)
    slopes, gaps = np.round(slopes, _DIGITS), np.diff(values, axis=1, prepend=start, append=start + 1)
    flat = slopes.reshape(len(draws), -1)
    by_slope = flat.argsort(1)
    reached = np.take_along_axis(gaps.reshape(flat.shape), by_slope, 1).cumsum(1)
    place = np.minimum((reached < 1 - 1e-12).sum(1), flat.shape[1] - 1)
    last = flat[np.arange(len(flat)), by_slope[np.arange(len(flat)), place]][:, None, None]
    found: Floats = np.where(slopes < last, gaps, 0.0).sum(1)
    partly = np.where(slopes == last, gaps, 0.0).sum(1)
    room = partly.sum(1, keepdims=True)
    return found + partly * (1 - found.sum(1, keepdims=True)) / np.where(room > 0, room, 1.0)


def _search(measure: Measure, draws: Floats, weights: Floats, sizes: Floats) -> Floats:
    """Compare candidates by their mean loss, and refine the best one."""
    n_draws, n_classes = draws.shape[1:]
    tried = draws[:, np.linspace(0, n_draws - 1, min(n_draws, _MOST_TRIED)).round().astype(int)]
    usual = np.stack([_mean(draws, weights, sizes), _absolute(draws, weights, sizes)], axis=1)
    candidates = np.concatenate([usual, tried], axis=1)
    bags = np.arange(len(draws))
    risks = _risks(measure, candidates, draws, weights, sizes)
    chosen = risks.argmin(1)
    best, least = candidates[bags, chosen], risks[bags, chosen]
    for step in np.repeat(_STEPS, 2):
        towards = best[:, None] + step * (np.eye(n_classes) - best[:, None])
        away = best[:, None] * (1 - step * np.eye(n_classes))
        totals = away.sum(2, keepdims=True)
        moved = np.concatenate([towards, away / np.where(totals > 0, totals, 1.0)], axis=1)
        risks = _risks(measure, moved, draws, weights, sizes)
        # Equally good moves are averaged, so that the order of the classes has no effect.
        equal = risks <= risks.min(1, keepdims=True) + 1e-9 * abs(least[:, None])
        middle = (moved * equal[..., None]).sum(1) / equal.sum(1, keepdims=True)
        risk = _risks(measure, middle[:, None], draws, weights, sizes)[:, 0]
        better = risk < least - 1e-9 * abs(least)  # more than rounding
        best, least = np.where(better[:, None], middle, best), np.where(better, risk, least)
    return best


def _risks(measure: Measure, candidates: Floats, draws: Floats, weights: Floats, sizes: Floats) -> Floats:
    """Return the mean loss of each candidate over the draws: (n_bags, n_candidates)."""
    n_bags, n_draws, n_classes = draws.shape
    out = np.empty(candidates.shape[:2])
    step = max(1, _AT_ONCE // (n_bags * n_draws * n_classes))
    for first in range(0, candidates.shape[1], step):
        some = candidates[:, first : first + step]
        shape = (n_bags, some.shape[1], n_draws, n_classes)
        truth, guess = np.broadcast_to(draws[:, None], shape), np.broadcast_to(some[:, :, None], shape)
        each = np.broadcast_to(sizes[:, None, None], shape[:3])
        losses = np.asarray(measure(truth.reshape(-1, n_classes), guess.reshape(-1, n_classes), each.reshape(-1)))
        if losses.shape != (truth.size // n_classes,) or not np.isfinite(losses).all():
            got = "NaN or infinity" if losses.shape == (truth.size // n_classes,) else f"shape {losses.shape}"
            way_out = "reduce only the last axis, and smooth logarithms and divisions"
            raise InputError("loss", f"one finite number for each of {truth.size // n_classes:,} rows", got, way_out)
        out[:, first : first + step] = (losses.reshape(shape[:3]) * weights[:, None]).sum(2)
    return out


def _checked(draws: Any, weights: Any, sizes: Any) -> tuple[Floats, Floats, Floats | None]:
    """Return draws as numbers, weights that sum to 1 for each bag, and sizes."""
    try:
        p = np.asarray(draws, np.float64)
        w = np.ones(p.shape[:2]) if weights is None else np.asarray(weights, np.float64)
        known = None if sizes is None else np.broadcast_to(np.asarray(sizes, np.float64), p.shape[:1])
    except (TypeError, ValueError):
        raise InputTypeError(
            "draws", "arrays of numbers, and one size per bag", "others", "check draws, sizes and weights"
        ) from None
    has_shape = p.ndim == 3 and p.shape[1] > 0 and p.shape[2] > 1
    if not has_shape or first_off_simplex(p.reshape(-1, p.shape[2]), tolerance=_TOLERANCE):
        got = "others" if has_shape else f"shape {p.shape}"
        expected = "prevalences of at least 2 classes that sum to 1, shape (n_bags, n_draws, n_classes)"
        raise InputError("draws", expected, got, "draw at least one vector for each bag")
    if w.shape != p.shape[:2] or not (np.isfinite(w) & (w >= 0)).all() or not (w.sum(1) > 0).all():
        got = f"shape {w.shape}" if w.shape != p.shape[:2] else "others"
        expected = f"numbers of at least 0, not all 0 in a bag, shape {p.shape[:2]}"
        raise InputError("weights", expected, got, "None gives all draws the same weight")
    if known is not None and not (np.isfinite(known) & (known > 0)).all():
        raise InputError("sizes", "numbers above 0", repr(sizes), "give the number of rows of each bag")
    return p, w / w.sum(1, keepdims=True), known
