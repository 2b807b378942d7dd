"""True prevalence of a condition, from test results and the sensitivity and specificity of the test."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, NamedTuple

from scipy.special import ndtri

from histnetq.bags.checks import check_fraction, check_whole
from histnetq.errors import InputError


class Prevalence(NamedTuple):
    """An estimated prevalence with its interval.

    Parameters
    ----------
    estimate : float
        The estimated prevalence.
    lower : float
        Lower end of the interval.
    upper : float
        Upper end of the interval.
    """

    estimate: float
    lower: float
    upper: float


def rogan_gladen(
    positives: int,
    n: int,
    sensitivity: float,
    specificity: float,
    *,
    n_sensitivity: int | None = None,
    n_specificity: int | None = None,
    coverage: float = 0.9,
) -> Prevalence:
    """Estimate the true prevalence in a population from tests of a random sample.

    The estimate is ``(positives / n + specificity − 1) / (sensitivity + specificity − 1)``, clipped to [0, 1].
    The interval allows for the sampling error. It also allows for errors of the sensitivity and the specificity, if
    `n_sensitivity` and `n_specificity` are given.

    Parameters
    ----------
    positives : int
        Number of positive tests.
    n : int
        Number of tests.
    sensitivity : float
        Share of tests that are positive if the condition is present.
    specificity : float
        Share of tests that are negative if the condition is absent.
    n_sensitivity : int, default=None
        Number of tests with the condition that gave the sensitivity; None treats the sensitivity as exact.
    n_specificity : int, default=None
        Number of tests without the condition that gave the specificity; None treats the specificity as exact.
    coverage : float, default=0.9
        Intended probability, between 0 and 1, that the interval contains the true prevalence.

    Returns
    -------
    Prevalence
        The numbers `estimate`, `lower` and `upper`.

    References
    ----------
    Rogan & Gladen (1978), *Estimating prevalence from the results of a screening test*.
    Lang & Reiczigel (2014), *Confidence limits for prevalence of disease adjusted for estimated sensitivity and
    specificity*.

    Examples
    --------
    >>> found = rogan_gladen(60, 200, sensitivity=0.9, specificity=0.8, n_sensitivity=100, n_specificity=100)
    >>> [round(value, 3) for value in found]
    [0.143, 0.021, 0.248]
    """
    check_whole("n", n)
    if isinstance(positives, bool) or not isinstance(positives, Integral) or not 0 <= positives <= n:
        raise InputError("positives", f"a whole number from 0 to n = {n}", repr(positives), "count the positive tests")
    positives, n = int(positives), int(n)
    se, sp = _check_share("sensitivity", sensitivity), _check_share("specificity", specificity)
    if se + sp <= 1:
        way_out = "use a test that is better than chance, or swap positive and negative"
        raise InputError("sensitivity, specificity", "a sum of more than 1", f"{se + sp:g}", way_out)
    z = float(ndtri((1 + check_fraction("coverage", coverage)) / 2))
    estimate = (positives / n + sp - 1) / (se + sp - 1)
    # Pseudo-tests keep all rates away from 0 and 1: z²/2 of each outcome in the sample, 1 of each for a given rate.
    apparent = (positives + z**2 / 2) / (n + z**2)
    se, se_variance = _shrunk("n_sensitivity", se, n_sensitivity)
    sp, sp_variance = _shrunk("n_specificity", sp, n_specificity)
    if se + sp <= 1:  # too few tests to know that the test is better than chance
        return Prevalence(min(max(estimate, 0.0), 1.0), 0.0, 1.0)
    center = (apparent + sp - 1) / (se + sp - 1)
    moved = 2 * z**2 * (center * se_variance - (1 - center) * sp_variance)
    variance = apparent * (1 - apparent) / (n + z**2) + center**2 * se_variance + (1 - center) ** 2 * sp_variance
    reach = z * math.sqrt(variance) / (se + sp - 1)
    estimate, lower, upper = (min(max(v, 0.0), 1.0) for v in (estimate, center + moved - reach, center + moved + reach))
    return Prevalence(estimate, min(lower, estimate), max(upper, estimate))


def read_rate(name: str, text: str) -> tuple[float, int | None]:
    """Return a rate and the number of tests that gave it, from a number, or from counts such as ``90/100``.

    Examples
    --------
    >>> read_rate("sensitivity", "90/100"), read_rate("sensitivity", "0.9")
    ((0.9, 100), (0.9, None))
    """
    found, slash, total = text.partition("/")
    try:
        if not slash:
            return float(text), None
        n = check_whole(f"n_{name}", int(total))
        if 0 <= int(found) <= n:
            return int(found) / n, n
    except ValueError:
        pass
    way_out = "write a share, or right tests and all tests of a validation study"
    raise InputError(name, "a number from 0 to 1, or counts such as 90/100", repr(text), way_out)


def _check_share(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise InputError(name, "a number from 0 to 1", repr(value), "divide counts by their sum")
    return float(value)


def _shrunk(name: str, rate: float, n: int | None) -> tuple[float, float]:
    """Return a rate after adding one pseudo-test of each outcome, and its variance; an exact rate does not change."""
    if n is None:
        return rate, 0.0
    check_whole(name, n)
    rate = (n * rate + 1) / (n + 2)
    return rate, rate * (1 - rate) / (n + 2)
