"""Estimates from labels of some rows of a bag, combined with a model's posteriors of all rows of the bag.

A stratum *h* has *N* rows and the share *W* of the bag's weight, and *n* of its rows were drawn and labelled. For each
class, *y* is the mean label and *f* the mean posterior of the drawn rows, and *F* is the mean posterior of all rows of
the bag. The estimate is ``λ F + Σ_h W (y − λ f)``. It is unbiased for every factor λ and every model, because the rows
were drawn at random. For each class, λ minimises the variance of the estimate; λ = 0 uses only the labels.

The variance of the estimate is ``Σ_h W² (1 − n/N) / n · v``, where *v* is the sample variance of ``y − λ f``. If a
class is rare or the model is good, few or no labels differ from their posteriors, and *v* is not reliable. The interval
therefore consists of all shares ``θ`` that are compatible with the estimate, given the variance that the estimate would
have for a true share of ``θ``. Suppose that positive and negative differences occur at rates *a* and *b*, so that the
variance is ``U (a + b)`` with ``U = Σ_h W² (1 − n/N) / n``. If the true share is ``θ = estimate + δ``, the most likely
rates have the sum ``a + b = (s + √(s² + 4δ² + 4δD)) / 2``, where *s* is the sum and *D* the difference of the observed
rates. The ends of the interval are then given by the outer roots of ``δ³ − κ(s + cκ)δ − κ²D = 0``, where ``κ = t² U``
for a quantile *t*, and ``c = 1``. Without a model, this is Wilson's interval for a rare class. If a class is common,
unobserved positive and negative differences cancel, and ``c = 1`` is too conservative. For such classes *c* decreases
to a value that was chosen by simulation (`experiments/audit.py`).

The quantile *t* is of Student's distribution. It has two degrees of freedom for each effective square, at least 15 and
at most the number of drawn rows minus the number of strata. The effective number of squares is ``(Σ q)² / Σ q²``, where
*q* are the squared differences that add up to the variance. If rows have different weights, a sample without heavy rows
has a small variance, and its squares look equal. The effective number of squares and the smallest *c* are therefore
multiplied by the effective number of the squared weights, divided by its value for equal weights; the lower limit of 15
is multiplied by the root of this ratio.

References
----------
Angelopoulos, Duchi & Zrnic (2023), *PPI++: efficient prediction-powered inference*.
Tango (1998), *Equivalence test and confidence interval for the difference in proportions for the paired-sample design*.
Olofsson et al. (2014), *Good practices for estimating area and assessing accuracy of land change*.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2
from scipy.stats import t as student

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_fraction
from histnetq.errors import InputError
from histnetq.simplex import Floats, Ints, project
from histnetq.uncertainty.intervals import Intervals
from histnetq.uncertainty.row_samples import RowSample

_CARE = 0.2  # value of c for common classes; c is 1 for rare classes
_FEWEST_FREE = 15  # smallest number of degrees of freedom; κ already allows for few differences


def extend_labels(
    posteriors: Floats, bags: Bags, sample: RowSample, labels: Ints, n_classes: int, coverage: float
) -> Intervals:
    """Return the intervals of each bag from the class codes of drawn rows and from posteriors of all rows.

    The posteriors ``(n_entries, n_known)`` are for the first `n_known` classes. The model does not know the remaining
    classes, which get posteriors of 0.
    """
    check_fraction("coverage", coverage)
    posteriors = np.pad(posteriors, ((0, 0), (0, n_classes - posteriors.shape[1])))
    first, group = sample.groups
    order, n_drawn = np.argsort(group, kind="stable"), np.bincount(group)
    starts = np.cumsum(n_drawn) - n_drawn
    bag, share, n_rows = sample.bags[first], sample.shares[first], sample.stratum_rows[first]
    if ((n_drawn < 2) & (n_rows > 1)).any():
        raise InputError("sample", "at least 2 drawn rows of each stratum", "only 1", "draw more rows")
    weights = bags.entry_weights().astype(np.float64)
    drawn_weights = weights[sample.entries]
    parts = (drawn_weights / np.bincount(group, drawn_weights)[group])[:, None]
    # Jackknife factors of the differences; they are 1 if the rows of a stratum have equal weights.
    units = (n_drawn[group] - 1)[:, None] * parts / np.where(parts < 1, 1 - parts, 1)

    def summed(values: Floats) -> Floats:
        """Sum over strata: (n_drawn, n_classes) → (n_strata, n_classes)."""
        return np.add.reduceat(values[order], starts)

    def by_bag(values: Floats) -> Floats:
        """Sum over bags: (n_strata, n_classes) → (n_bags, n_classes); strata are sorted by bag."""
        return np.add.reduceat(values, np.searchsorted(bag, np.arange(len(bags))))

    factor = (share**2 * (1 - n_drawn / n_rows) / n_drawn)[:, None]  # of a stratum's sample variance
    unbiased = factor / np.maximum(n_drawn - 1, 1)[:, None]
    y, f = np.eye(n_classes)[labels], posteriors[sample.entries]
    y_means, f_means = summed(parts * y), summed(parts * f)
    y_far, f_far = units * (y - y_means[group]), units * (f - f_means[group])
    common, own = by_bag(unbiased * summed(y_far * f_far)), by_bag(unbiased * summed(f_far**2))
    tuned = np.clip(common / np.where(own > 0, own, np.inf), 0, 1)
    bag_means = np.add.reduceat(weights[:, None] * posteriors, bags.offsets[:-1])
    bag_means /= np.add.reduceat(weights, bags.offsets[:-1])[:, None]
    raw = tuned * bag_means + by_bag(share[:, None] * (y_means - tuned[bag] * f_means))
    far = y_far - tuned[sample.bags] * f_far
    second, third, fourth = (by_bag(unbiased ** (k // 2) * summed(far**k)) for k in (2, 3, 4))
    unit, free = by_bag(factor * summed(units**2) / n_drawn[:, None]), np.bincount(bag, n_drawn - 1)[:, None]
    of_units, of_rows = (
        _equal_squares(*(by_bag(unbiased**k * summed(size ** (2 * k))) for k in (1, 2)))
        for size in (units, np.ones_like(units))
    )
    even = np.where(of_rows > 0, of_units / np.where(of_rows > 0, of_rows, 1), 1)
    lower, upper = _ends(raw, second, third, fourth, unit, even, np.maximum(free, 1), coverage)
    estimates = project(raw)
    lower, upper = np.minimum(np.clip(lower, 0, 1), estimates), np.maximum(np.clip(upper, 0, 1), estimates)
    radius = _radius(estimates, lower, upper, coverage)
    return Intervals.around(estimates, lower, upper, bags.sizes, coverage, radius)


def _equal_squares(second: Floats, fourth: Floats) -> Floats:
    """Return the effective number of squares, from the sum of the squares and the sum of their squares."""
    number: Floats = second**2 / np.where(fourth > 0, fourth, np.inf)
    return number


def _ends(
    raw: Floats, second: Floats, third: Floats, fourth: Floats, unit: Floats, even: Floats, free: Ints, coverage: float
) -> tuple[Floats, Floats]:
    """Return estimates plus the outer roots of ``δ³ − κ(s + cκ)δ − κ²D = 0``, from sums of powers of differences.

    `even` is the effective number of squares with these weights, divided by the number with equal weights.
    """
    known = np.where(unit > 0, unit, 1)  # unit is 0 if all rows are labelled
    squares = even * _equal_squares(second, fourth)
    effective = np.minimum(np.maximum(2 * squares, _FEWEST_FREE * np.sqrt(even)), free)
    # Fitting λ has used up one effective square, which is two degrees of freedom.
    seen = second / known * (1 + 2 / effective)
    skew = np.clip(third / known, -seen, seen)
    reach = student.ppf((1 + coverage) / 2, effective) ** 2 * unit
    rarer = np.minimum(np.clip(raw, 0, 1), np.clip(1 - raw, 0, 1))
    common = _CARE * even
    care = common + (1 - common) * (reach / np.where(unit > 0, reach + rarer, 1)) ** 2
    size = 2 * np.sqrt(reach * (seen + care * reach) / 3)
    cosine = np.where(size > 0, 4 * reach**2 * skew / np.where(size > 0, size, 1) ** 3, 0)
    angle = np.arccos(np.clip(cosine, -1, 1)) / 3
    return raw + size * np.cos(angle + 2 * np.pi / 3), raw + size * np.cos(angle)


def _radius(estimates: Floats, lower: Floats, upper: Floats, coverage: float) -> Floats:
    """Return the Hellinger radius of each joint region, from the half-widths of the class intervals.

    Half-widths are measured between square roots of prevalences and combined by chi-squared quantiles.
    """
    ends = (np.abs(np.sqrt(end) - np.sqrt(estimates)) for end in (lower, upper))
    distances = np.square(np.maximum(*ends)).sum(1) / 2
    free = estimates.shape[1] - 1
    return np.sqrt(distances * chi2.ppf(coverage, free) / free / chi2.ppf(coverage, 1))
