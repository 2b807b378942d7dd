"""Estimates from labels of some rows of the bag itself, extended by a model's posteriors to all of its rows.

In a stratum *h* of the rows, of which *n* of *N* were drawn, with the part *W* of the bag's weight, the mean label of
class *k* is *y*, and that of the posteriors *f*. The estimate is ``λ F + Σ_h W (y − λ f)``, where *F* is the mean
posterior of all rows: right on average for every factor λ and every model, as rows were drawn at random. The factor is
the one of least variance, for each class; 0 leaves the labels alone.

Its variance is ``Σ_h W² (1 − n/N) / n · s²``, with the variance *s²* of ``y − λ f`` in the sample. Of a rare class, or
with a good model, few labels or none differ from what is expected, and *s²* is no measure. The interval then holds
those shares ``θ`` from which the estimate is no further than chance allows where the share is ``θ``. Let differences
upwards and downwards occur at rates *a* and *b*, so that the variance is ``U (a + b)``, ``U = Σ_h W² (1 − n/N) / n``.
Where the share is ``θ = estimate + δ``, the most likely rates have ``a + b = (s + √(s² + 4δ² + 4δD)) / 2`` for seen
rates of the sum *s* and the difference *D*. So the ends are the outer roots of ``δ³ − κ(s + cκ)δ − κ²D = 0`` with
``κ = t² U``, a quantile *t* and ``c = 1``. Without a model, this is Wilson's interval of a rare class. Where a class is
common, unseen differences upwards and downwards cancel, and ``c = 1`` is too careful: *c* falls to a value that was
chosen by simulation (`experiments/audit.py`). The quantile is Student's, with as many degrees of freedom as the
variance has: two for each of so many equal squares as tell as much. Where rows have different weights, a sample that
lacks heavy rows has both a small variance and squares that seem equal; the squares are then taken for as many fewer as
the weights alone would make them, and *c* for as much smaller.

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

_CARE = 0.2  # c of common classes; that of rare ones is 1
_FEWEST_FREE = 15  # degrees of freedom of a variance from few differences, which κ allows for


def extend_labels(
    posteriors: Floats, bags: Bags, sample: RowSample, labels: Ints, n_classes: int, coverage: float
) -> Intervals:
    """Intervals from the class codes of drawn rows, of each bag, and from posteriors of all rows.

    Posteriors ``(n_entries, n_known)`` are those of the first classes; of the others the model knows nothing.
    """
    check_fraction("coverage", coverage)
    posteriors = np.pad(posteriors, ((0, 0), (0, n_classes - posteriors.shape[1])))
    first, group = sample.groups
    order, n_drawn = np.argsort(group, kind="stable"), np.bincount(group)
    starts = np.cumsum(n_drawn) - n_drawn
    bag, share, n_rows = sample.bags[first], sample.shares[first], sample.stratum_rows[first]
    if ((n_drawn < 2) & (n_rows > 1)).any():
        raise InputError("sample", "at least 2 drawn rows of each stratum", "one alone", "draw more rows")
    weights = bags.entry_weights().astype(np.float64)
    drawn_weights = weights[sample.entries]
    parts = (drawn_weights / np.bincount(group, drawn_weights)[group])[:, None]
    # By the jackknife; 1 where all rows weigh as much.
    units = (n_drawn[group] - 1)[:, None] * parts / np.where(parts < 1, 1 - parts, 1)

    def summed(values: Floats) -> Floats:
        """(n_drawn, n_classes) → (n_strata, n_classes)."""
        return np.add.reduceat(values[order], starts)

    def by_bag(values: Floats) -> Floats:
        """(n_strata, n_classes) → (n_bags, n_classes); strata stand bag by bag."""
        return np.add.reduceat(values, np.searchsorted(bag, np.arange(len(bags))))

    factor = (share**2 * (1 - n_drawn / n_rows) / n_drawn)[:, None]  # of a variance in the sample
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
    """How many equal squares have these sums of squares and of their squares."""
    number: Floats = second**2 / np.where(fourth > 0, fourth, np.inf)
    return number


def _ends(
    raw: Floats, second: Floats, third: Floats, fourth: Floats, unit: Floats, even: Floats, free: Ints, coverage: float
) -> tuple[Floats, Floats]:
    """The outer roots of ``δ³ − κ(s + cκ)δ − κ²D = 0`` around the estimates, from sums of powers of differences.

    `even` is 1 where all rows weigh as much; else it is by how much weights make equal squares fewer.
    """
    known = np.where(unit > 0, unit, 1)  # 0 where all rows have labels
    # The tuned factor has fitted one of the squares.
    squares = even * _equal_squares(second, fourth)
    effective = np.minimum(np.maximum(2 * squares, _FEWEST_FREE * np.sqrt(even)), free)
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
    """Hellinger distances that hold all classes at once, from how far each class's interval reaches on their scale."""
    ends = (np.abs(np.sqrt(end) - np.sqrt(estimates)) for end in (lower, upper))
    distances = np.square(np.maximum(*ends)).sum(1) / 2
    free = estimates.shape[1] - 1
    return np.sqrt(distances * chi2.ppf(coverage, free) / free / chi2.ppf(coverage, 1))
