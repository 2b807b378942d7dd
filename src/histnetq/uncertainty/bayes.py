"""Bayesian intervals: the posterior of the class counts of a bag, without calibration bags."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import gammaincinv

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_choice, check_fraction, check_seed, check_whole
from histnetq.errors import InputError
from histnetq.kernels.cores import over_bags
from histnetq.kernels.label_draws import sweep
from histnetq.simplex import Floats, Ints, check_estimates
from histnetq.sketches.sketch import BagSketch
from histnetq.uncertainty.capabilities import Capabilities
from histnetq.uncertainty.intervals import IntervalMethod, Intervals, hellinger
from histnetq.uncertainty.likelihoods import CellLikelihoods, RowLikelihoods

_TARGETS = ("bag", "population")
_KEPT, _BURNED, _FIRST = 5, 4, 20  # sweeps per draw of likelihoods: kept, burn-in, extra burn-in of the first draw
_AT_ONCE = 1 << 22  # number of entries and drawn values of the bags that are processed together
_LARGEST = 1 << 27  # largest number of rows of a bag
_SAME = 1e-9  # tolerance for equal counts, as a share of the bag or in standard deviations
Likelihoods = RowLikelihoods | CellLikelihoods


class Bayes(IntervalMethod):
    """Intervals from draws of the labels of a bag's rows, given the posteriors or the predicted classes of the rows.

    Labels are drawn from their posterior under prior shift. The prevalences have a Dirichlet prior, flat by default.
    The likelihood of a row under each class is learned from the labelled training rows, and its uncertainty is drawn as
    well. It is larger if the classifier of new rows was fitted again to all labelled rows. Methods that count predicted
    classes (CC, ACC) use only the predicted class of a row; all others use its posteriors.

    The ends of all classes of a bag are the same number of posterior standard deviations away from the posterior mean.
    This number is chosen so that the intervals contain `coverage` of the classes on average. An interval is extended if
    it does not contain the estimate. Counts are whole numbers, so the interval of a class whose count is certain always
    contains it, and the intervals of the remaining classes contain theirs less often.
    """

    name = "bayes"
    needs = "posteriors"
    needs_rows = "the posterior of a bag's counts comes from its rows"
    options = ("target", "prior", "n_draws", "random_state")

    def refusal(self, kind: str) -> Exception:
        return ValueError(
            f"interval: {kind} has no posterior of counts; use a method on posteriors such as EMQ, or fit with more "
            "bags, so that some calibrate conformal intervals."
        )

    def intervals(  # type: ignore[override]
        self,
        model: Capabilities,
        bags: Bags | BagSketch,
        coverage: float,
        *,
        target: str = "bag",
        prior: Any = 1.0,
        n_draws: int = 300,
        random_state: int | None = 0,
    ) -> Intervals:
        known = model.posteriors
        assert isinstance(bags, Bags)
        assert known is not None
        coverage, n_draws = check_fraction("coverage", coverage), check_whole("n_draws", n_draws)
        check_choice("target", target, _TARGETS)
        concentrations = _check_prior(prior, model.n_classes)
        rng = np.random.default_rng(check_seed(random_state))
        _refuse_large(bags)
        kind, n_likelihoods = CellLikelihoods if known.reads_class else RowLikelihoods, -(-n_draws // _KEPT)
        learned = known.posteriors.astype(np.float64), known.labels.astype(np.int64), known.weights
        likelihoods = kind.drawn(*learned, n_likelihoods, rng, known.variation)
        posteriors, index = known.of_bags(bags)
        estimates = check_estimates(known.quantify(posteriors, index, bags.offsets, bags.sized_weights()))
        seed, noise = int(rng.integers(2**31)), rng.random((n_likelihoods * _KEPT, len(concentrations)))
        ends, radius = np.empty((2, *estimates.shape)), np.empty(len(bags))
        for some in _runs(bags, noise.size):
            part = _entries(bags, posteriors, index, some)
            counts = draw_counts(likelihoods, posteriors, *part, concentrations, seed)
            shares = _population(counts + concentrations, noise) if target == "population" else _shares(counts)
            ends[:, some] = _ends(shares, estimates[some], coverage)
            radius[some] = np.quantile(hellinger(shares, estimates[some][:, None]), coverage, axis=1)
        return Intervals.around(estimates, ends[0], ends[1], bags.sizes, coverage, radius)


def draw_counts(
    likelihoods: Likelihoods,
    posteriors: Floats,
    index: Ints,
    offsets: Ints,
    weights: Floats,
    prior: Floats,
    seed: int,
) -> Floats:
    """Draw the sizes of the classes in each bag by Gibbs sampling: (n_bags, n_draws, n_classes).

    `posteriors` (n_rows, n_classes) are of rows; `index` and `weights` (n_entries,) are the row and the size of each
    entry; `offsets` (n_bags + 1,) limit the entries of each bag; `prior` (n_classes,) has the Dirichlet concentrations
    of the prevalences. Five draws of the labels are kept for each draw of the likelihoods. Equal bags get equal draws.
    """
    used, place = np.unique(index, return_inverse=True)
    n_bags, step = len(offsets) - 1, 0
    kept: list[Floats] = []
    labels, counts = np.full(len(index), -1, np.int64), np.tile(prior, (n_bags, 1))
    for table in likelihoods.of(posteriors[used]):
        n_sweeps, found = _KEPT + _BURNED + (0 if kept else _FIRST), np.empty((n_bags, _KEPT, len(prior)))
        state = seed, step, n_sweeps, _KEPT, labels, counts, found

        def work(first: int, last: int, table: Floats = table, state: Any = state) -> None:
            sweep(table, place, offsets, weights, first, last, *state)

        over_bags(work, offsets)
        kept.append(found)
        step += n_sweeps
    return np.maximum(np.concatenate(kept, axis=1) - prior, 0)


def _ends(shares: Floats, estimates: Floats, coverage: float) -> tuple[Floats, Floats]:
    """Return ends of intervals that contain the part `coverage` of the draws ``(n_bags, n_draws, n_classes)``.

    The ends are a number of standard deviations away from the mean. This number makes the part inside as close to
    `coverage` as the discrete draws allow.
    """
    means, spread = shares.mean(1), np.maximum(shares.std(1), _SAME)
    low, high = np.minimum(means, estimates), np.maximum(means, estimates)
    away = np.maximum(low[:, None] - shares, shares - high[:, None])
    # Draws between the mean and the estimate are inside every interval.
    units = np.where(away <= _SAME, 0.0, np.abs(shares - means[:, None]) / spread[:, None])
    units = np.sort(units.reshape(len(units), -1), axis=1)
    at = units[:, [int(np.ceil(round(coverage * units.shape[1], 6))) - 1]]
    below, upto = (units < at - _SAME).mean(1), (units <= at + _SAME).mean(1)
    before = np.where(units < at - _SAME, units, 0.0).max(1)
    reach = (np.where(upto - coverage <= coverage - below, at[:, 0], before) + _SAME)[:, None]
    return np.minimum(low, means - reach * spread), np.maximum(high, means + reach * spread)


def _shares(counts: Floats) -> Floats:
    return counts / counts.sum(2, keepdims=True)


def _population(concentrations: Floats, noise: Floats) -> Floats:
    """Draw from Dirichlet distributions, with uniform noise ``(n_draws, n_classes)`` that all bags share."""
    drawn = np.maximum(gammaincinv(concentrations, noise), np.finfo(np.float64).tiny)
    return drawn / drawn.sum(2, keepdims=True)


def _runs(bags: Bags, n_drawn: int) -> Iterator[slice]:
    """Return runs of consecutive bags whose entries and draws fit in memory together."""
    run = np.cumsum(np.maximum(bags.sizes, np.diff(bags.offsets)) + n_drawn) // _AT_ONCE
    cuts = np.concatenate([[0], 1 + np.flatnonzero(np.diff(run)), [len(bags)]])
    return (slice(a, b) for a, b in pairwise(cuts.tolist()))


def _entries(bags: Bags, posteriors: Floats, index: Ints, some: slice) -> tuple[Ints, Ints, Floats]:
    """Return the rows, offsets and sizes of the entries of some bags, sorted so that their order has no effect.

    A row with a count *k* becomes *k* entries. A row with a survey weight is one entry, whose size is its part of the
    bag's effective size.
    """
    offsets = bags.offsets[some.start : some.stop + 1]
    bag = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    rows, sized = index[offsets[0] : offsets[-1]], bags.sized_weights()
    w = np.ones(len(rows)) if sized is None else sized[offsets[0] : offsets[-1]].astype(np.float64)
    if sized is not None and bags.weight_kind == "count":
        copies = w.astype(np.int64)
        rows, bag, w = np.repeat(rows, copies), np.repeat(bag, copies), np.ones(copies.sum())
    order = np.lexsort((w, *posteriors[rows].T, bag))
    return rows[order], np.searchsorted(bag[order], np.arange(len(offsets))), w[order]


def _check_prior(prior: Any, n_classes: int) -> Floats:
    try:
        found = np.asarray(prior, np.float64)
        found = np.broadcast_to(found, n_classes) if found.ndim <= 1 else np.zeros(0)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if isinstance(prior, bool) or not len(found) or not (np.isfinite(found) & (found > 0)).all():
        expected = f"one number above 0, or one for each of the {n_classes} classes"
        raise InputError("prior", expected, repr(prior), "1 is a flat prior")
    return found.copy()


def _refuse_large(bags: Bags) -> None:
    if max(np.asarray(bags.sizes).max(), np.diff(bags.offsets).max()) > _LARGEST:
        raise ValueError(
            f"interval: the posterior of counts is for bags of at most {_LARGEST:,} rows, got {bags.sizes.max():,.0f}; "
            "calibrate the model and use conformal intervals."
        )
