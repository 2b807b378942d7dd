"""Every compiled kernel on numbers that no honest user gives: NaN, infinities, huge, negative and subnormal ones.

``python -m tests.kernel_fuzz 50`` runs each case with so many seeds and writes how many kernels and cases it ran. Under
``NUMBA_BOUNDSCHECK=1``, with a fresh ``NUMBA_CACHE_DIR``, an index outside of its array ends it with an IndexError. An
index can also land in a neighbouring histogram of the same array, so results are compared with plain formulas too.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch

from histnetq.bags.bags import Bags
from histnetq.kernels import (
    cell_mixtures,
    compiled,
    dense_compiled,
    gaussians_compiled,
    gaussians_plain,
    label_draws,
    likelihood_compiled,
    plain,
)
from histnetq.quantifiers.classical import emq as likelihood
from histnetq.quantifiers.classical import energy, matching, mix_posterior
from histnetq.quantifiers.classical import hdx as covariates
from histnetq.quantifiers.classical import readme as word_profiles
from histnetq.quantifiers.classical import thresholds as sweeping
from histnetq.sketches.moments import Moments

WILD = (
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    0.5,
    1 + 1e-7,
    1 + 1e-15,
    -1e-7,
    5e-324,
    -5e-324,
    1e-310,
    1e-40,
    3.4e38,
    -3.4e38,
    1e308,
    -1e308,
    1.7e308,
    2.0**31,
    -(2.0**31),
    2.0**63,
    -(2.0**63),
    1e6,
    -1e6,
)
N_ROWS, N_CLASSES, SIZES = 60, 3, (7, 1, 30, 50)
CASES: dict[str, tuple[Callable, tuple[str, ...]]] = {}


def case(module, *kernels):
    """Take a function of a random generator as a case that runs these kernels of a module of the package."""

    def listed(function):
        CASES[function.__name__] = function, tuple(f"{module}.{kernel}" for kernel in kernels)
        return function

    return listed


def wild(shape, rng, dtype=np.float64, finite=False, ordinary=0.5):
    """Draw numbers, the ordinary ones in [0, 1]."""
    odd = np.array([x for x in WILD if not finite or np.isfinite(x)])
    with np.errstate(over="ignore"):
        found = np.where(rng.random(shape) < ordinary, rng.random(shape), rng.choice(odd, shape)).astype(dtype)
    return np.nan_to_num(found, posinf=3e38, neginf=-3e38) if finite else found


def entries(rng, n_rows=N_ROWS):
    index = rng.integers(n_rows, size=sum(SIZES))
    return index, np.cumsum([0, *SIZES])


def tensors(rng, weighted):
    index, offsets = (torch.from_numpy(part) for part in entries(rng))
    return plain.Entries(index, offsets, torch.from_numpy(rng.random(len(index)) + 0.1) if weighted else None)


def near(got, wanted, rtol=1e-9, atol=1e-12):
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=rtol, atol=atol)


def within(values):
    """Values in [0, 1] that stand for any values: NaN counts as 0."""
    return np.clip(np.nan_to_num(values, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)


@case("kernels.cell_mixtures", "find_cells")
def cells_of_rows(rng):
    k, floor = int(rng.choice([2, 3, 5])), 1e-4
    posteriors, order = wild((N_ROWS, k), rng), rng.permutation(k)
    first, second = np.sort(rng.normal(size=7)), np.sort(rng.normal(size=0 if k == 2 else 3))
    found = np.full(N_ROWS, -1)
    cell_mixtures.find_cells(posteriors, order, floor, np.exp(first), np.exp(second), 0, N_ROWS, found)
    n_cells = 8 if k == 2 else k * k * 8 * 4
    assert ((found >= 0) & (found < n_cells)).all()
    p = np.where(posteriors >= floor, posteriors, floor)[:, order]
    for row in np.flatnonzero(np.isfinite(p).all(1)):
        one, two = (tops := np.argsort(-p[row], kind="stable"))[:2]
        logs = np.log(p[row])
        odds = logs[1] - logs[0] if k == 2 else logs[one] - logs[two]
        place = np.searchsorted(first, odds, side="right")
        if k > 2:
            other = np.searchsorted(second, logs[two] - logs[tops[2]], side="right")
            place = ((one * k + two) * 8 + place) * 4 + other
        assert found[row] == place


@case(
    "kernels.cell_mixtures",
    *("explain", "_gather", "_climb", "_refine", "_expect", "_value", "_curvature", "_spread", "_variance"),
)
def mixtures_of_cells(rng):
    k, n_cells, n_bags = N_CLASSES, 9, len(SIZES)
    table = np.clip(np.abs(wild((2, n_cells, k), rng, finite=True)), 1e-12, 1)
    cells, offsets = rng.integers(n_cells, size=sum(SIZES)), np.cumsum([0, *SIZES])
    weights = np.clip(np.abs(wild(len(cells), rng, finite=True)), 1e-6, 1e12)
    prior = np.clip(np.abs(wild((n_bags, k), rng, finite=True)), 0.02, 1e4)
    shares, expected = np.empty((n_bags, 2, k)), np.empty((n_bags, 2, k))
    spreads, covariances = np.empty((n_bags, 2, k)), np.empty((n_bags, k, k))
    known = table, 1, prior, np.full(k, 0.1), cells, offsets, weights
    cell_mixtures.explain(*known, 0, n_bags, shares, expected, spreads, covariances)
    near(shares.sum(2), 1, rtol=1e-6)
    near(expected.sum(2), 1, rtol=1e-6)
    assert (spreads >= 0).all()
    assert np.isfinite(covariances).all()


@case("quantifiers.classical.mix_posterior", "_moments", "_follow")
def posteriors_of_mixes(rng):
    scores, (index, offsets) = within(wild((N_ROWS, N_CLASSES), rng)), entries(rng)
    n_bags, weights = len(SIZES), rng.random(len(index)) + 0.1
    modes = rng.dirichlet(np.ones(N_CLASSES), n_bags)
    counts, products = np.zeros((n_bags, N_CLASSES)), np.zeros((n_bags, N_CLASSES, N_CLASSES))
    mix_posterior._moments(scores, index, offsets, weights, True, modes, 0, n_bags, counts, products)
    near(counts.sum(1), np.add.reduceat(weights, offsets[:-1]), rtol=1e-6)
    near(products.sum(2), counts, rtol=1e-6, atol=1e-6)
    draws, is_small = rng.dirichlet(np.ones(N_CLASSES), (n_bags, 8)), rng.random(n_bags) < 0.7
    mixes, logs = np.zeros((n_bags, 8, N_CLASSES)), np.zeros((n_bags, 8))
    mix_posterior._follow(scores, index, offsets, weights, True, draws, is_small, True, 0, n_bags, mixes, logs)
    assert (mixes[~is_small] == 0).all()
    assert not np.isnan(logs).any()


@case("quantifiers.classical.matching", "_match", "_nearest", "_pull")
def histograms_of_posteriors(rng):
    values, (index, offsets) = wild(N_ROWS, rng), entries(rng)
    bins = rng.choice(np.arange(2, 40), 3)
    classes = rng.random((2, bins.sum()))
    for divergence in ("hellinger", "topsoe"):
        found = matching.match_histograms(values, *classes, 0.3, bins, divergence, index, offsets)
        near(found, _matched(within(values), *classes, 0.3, bins, divergence == "topsoe", index, offsets), rtol=1e-6)
    odd, weights = wild((2, bins.sum()), rng), np.abs(wild(len(index), rng, finite=True)) + 1e-300
    matching.match_histograms(values, *odd, 0.3, bins, "topsoe", index, offsets, weights)


def _matched(values, positive, negative, prior, bins, topsoe, index, offsets):
    """The formula of `match_histograms`, bag by bag, with histograms by numpy's search."""
    out = []
    for begin, end in pairwise(offsets):
        found, start = [], 0
        for n in bins:
            cells = np.searchsorted(np.arange(1, n) * (1.0 / n), values[index[begin:end]], side="right")
            share = np.bincount(cells, minlength=n) / (end - begin)
            own, rest = positive[start : start + n], negative[start : start + n]
            told = np.ones(n, bool) if topsoe else share > 0
            target = share if topsoe else np.sqrt(share)
            parts = rest[told], (own - rest)[told], target[told]
            found.append(matching._nearest(*parts, topsoe) if told.any() else prior)
            start += n
        out.append(np.median(found))
    return out


@case(
    "kernels.compiled",
    "_bucket",
    "_bucket_step",
    "_edge_table",
    "_codes",
    "_some_codes",
    "_weight_above",
    "_count",
    "_density",
    "_scatter",
)
def hard_bins(rng):
    kind, n_bins = rng.choice([np.float32, np.float64]), int(rng.choice([1, 2, 5, 32]))
    values = torch.from_numpy(wild((N_ROWS, 3), rng, kind))
    edges = torch.from_numpy(np.sort(wild((3, 4 * n_bins), rng, kind, finite=True), axis=1))
    codes = compiled.hard_codes(values, edges)
    wanted = plain.hard_codes(values, edges)
    # What is no number is below all edges here and above all of them there; no bin holds it either way.
    assert torch.equal(codes, torch.where(values.isnan(), 0, wanted.long()).to(codes.dtype))
    ranks = np.sort(rng.integers(4 * n_bins + 1, size=(3, 4, n_bins)), axis=1)
    ranks, some = torch.from_numpy(np.ascontiguousarray(ranks)), tensors(rng, rng.random() < 0.5)
    near(compiled.hard_count(codes, ranks, some), plain.hard_count(codes, ranks, some))
    totals = torch.ones(len(SIZES), dtype=torch.float64)
    for got, expected in zip(
        *(k.hard_density(codes, ranks, some, totals, torch.float64) for k in (compiled, plain)), strict=True
    ):
        near(got, expected)
    grad = torch.from_numpy(rng.normal(size=(len(SIZES), 3, n_bins)))
    near(compiled.hard_scatter(codes, ranks, grad, some), plain.hard_scatter(codes, ranks, grad, some), atol=1e-9)
    odd = torch.from_numpy(np.sort(wild((3, 4 * n_bins), rng, kind), axis=1))
    assert compiled.hard_codes(values, odd).long().max() <= 4 * n_bins


@case("kernels.compiled", "_phi", "_windows", "_sum", "_grad")
def smooth_bins(rng):
    some, n_bins = tensors(rng, rng.random() < 0.5), int(rng.choice([1, 2, 8]))
    kind = rng.choice([np.float32, np.float64])
    centers, scales = rng.random((3, n_bins)).astype(kind), (rng.random((3, n_bins)) + 0.1).astype(kind)
    grad = torch.from_numpy(rng.normal(size=(len(SIZES), 3, n_bins)).astype(kind))
    for name in ("soft", "rbf", "sigmoid"):
        bins = plain.Bins(name, torch.from_numpy(centers), torch.from_numpy(scales), 50.0)
        values = torch.from_numpy(wild((N_ROWS, 3), rng, kind, finite=True))
        near(compiled.smooth_sum(bins, values, some), plain.smooth_sum(bins, values, some), rtol=1e-4, atol=1e-4)
        odd = plain.Bins(name, *(torch.from_numpy(wild((3, n_bins), rng, kind)) for _ in range(2)), 50.0)
        for chosen in (bins, odd):
            values = torch.from_numpy(wild((N_ROWS, 3), rng, kind))
            compiled.smooth_sum(chosen, values, some)
            compiled.smooth_grad(chosen, values, grad, some)


@case("kernels.gaussians_compiled", "_room", "_load", "_fill", "_weigh", "_sum", "_pull", "_grad", "_of_gaussian")
def gaussians(rng):
    kind = rng.choice([np.float32, np.float64])
    some = tensors(rng, rng.random() < 0.5)
    centers, factors = rng.random((2, 3, 2)).astype(kind), np.tril(rng.random((2, 3, 2, 2))).astype(kind)
    grad = torch.from_numpy(rng.normal(size=(len(SIZES), 2, 3)).astype(kind))
    bins = torch.from_numpy(centers), torch.from_numpy(factors)
    values = torch.from_numpy(rng.random((N_ROWS, 4)).astype(kind))
    near(gaussians_compiled.gaussian_sum(values, *bins, some), gaussians_plain.gaussian_sum(values, *bins, some), 1e-4)
    odd = torch.from_numpy(wild((2, 3, 2), rng, kind)), torch.from_numpy(wild((2, 3, 2, 2), rng, kind))
    for chosen in (bins, odd):
        values = torch.from_numpy(wild((N_ROWS, 4), rng, kind))
        gaussians_compiled.gaussian_sum(values, *chosen, some)
        gaussians_compiled.gaussian_grad(values, *chosen, grad, some)


@case(
    "kernels.dense_compiled",
    "_features",
    "_bins",
    "_room",
    "_load",
    "_forward",
    "_multiply",
    "_leak",
    "_log_odds",
    "exp_at_most_zero",
    "_log",
    "_reach",
)
def dense_layers(rng):
    n_in, n_out = int(rng.integers(1, 6)), int(rng.integers(2, 6))
    rows, index = wild((N_ROWS, n_in), rng, np.float32), rng.integers(N_ROWS, size=250)

    def numbers(*shape):
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    layers = [(numbers(5, n_in), numbers(5), 0.01), (numbers(n_out, 5), numbers(n_out), 1.0)]
    n_odds = 1 if n_out == 2 else n_out
    for odds in (None, (numbers(n_odds), numbers(n_odds).abs() + 0.1)):
        n_features = n_out if odds is None else n_odds
        packed = dense_compiled.pack((numbers(n_in), numbers(n_in), numbers(n_in)), layers, odds)
        features = torch.empty((len(index), n_features))
        dense_compiled.encode(rows, index, packed, features)
        thresholds = torch.from_numpy(wild((n_features, int(rng.integers(1, 40))), rng, np.float32))
        codes = torch.empty((len(index), n_features), dtype=torch.int32)
        dense_compiled.encode_bins(rows, index, packed, thresholds, codes)
        assert torch.equal(codes.long(), (features[:, :, None] >= thresholds).sum(-1))


@case("kernels.label_draws", "sweep", "_uniform", "_mixed")
def drawn_labels(rng):
    index, offsets = entries(rng)
    weights, labels = rng.integers(1, 5, len(index)).astype(float), np.full(len(index), -1)
    counts, kept = np.ones((len(SIZES), N_CLASSES)), np.zeros((len(SIZES), 2, N_CLASSES))
    label_draws.sweep(
        wild((N_ROWS, N_CLASSES), rng), index, offsets, weights, 0, len(SIZES), 1, 0, 3, 2, labels, counts, kept
    )
    assert ((labels >= 0) & (labels < N_CLASSES)).all()
    bag = np.repeat(np.arange(len(SIZES)), SIZES)
    near(counts, 1 + np.bincount(bag * N_CLASSES + labels, weights, counts.size).reshape(counts.shape))
    near(kept[:, -1], counts)


@case(
    "kernels.likelihood_loops",
    "maximise_bags",
    "scatter_rows",
    "_room",
    "_present",
    "_climb",
    "_choose",
    "_gather",
    "_turn",
    "_mix",
    "_slopes",
    "_bends",
    "_add_products",
    "_minimise",
    "_approach",
    "_solve",
    "_move",
    "_rise",
)
def most_likely_mixtures(rng):
    some, n_classes = tensors(rng, rng.random() < 0.5), int(rng.integers(2, 7))
    totals = torch.full((len(SIZES),), 10.0, dtype=torch.float64)
    pull = torch.from_numpy(rng.normal(size=(len(SIZES), n_classes)))
    for values in (
        rng.random((N_ROWS, n_classes)),
        wild((N_ROWS, n_classes), rng),
        wild((N_ROWS, n_classes), rng, finite=True),
    ):
        likelihoods = torch.from_numpy(values)
        for prior in (0.0, 0.5):
            p, _ = likelihood_compiled.maximise(likelihoods, some, totals, prior, True)
            likelihood_compiled.scatter(likelihoods, p, pull, some, torch.float64)


@case("quantifiers.classical.hdx", "_count", "_slopes")
def histograms_of_features(rng):
    index, offsets = entries(rng)
    q = covariates.HDx(n_bins=(2, 7))
    q.low_, q.high_ = np.sort(wild((2, 4), rng, finite=rng.random() < 0.5), axis=0)
    q.histograms_ = rng.random((4, 9, N_CLASSES))
    rows = wild((N_ROWS, 4), rng)
    rows[0], rows[1] = q.low_, q.high_
    for n, codes in zip((2, 7), q._codes(rows), strict=True):
        assert codes.min() >= 0
        assert codes.max() < n
        wide = np.isfinite(q.high_ - q.low_) & (q.high_ > q.low_)
        assert (codes[0] == 0).all()
        assert (codes[1][wide] == n - 1).all()
    counts = q._sums(Bags.trusted(rows, index, offsets))
    bag = np.repeat(np.arange(len(SIZES)), SIZES)
    for d in range(4):
        for start, codes in zip((0, 2), q._codes(rows), strict=True):
            wanted = np.zeros((len(SIZES), 7))
            np.add.at(wanted, (bag, codes[index, d]), 1)
            n = 2 if start == 0 else 7
            near(counts[:, d, start : start + n], wanted[:, :n])
    out = np.zeros((len(SIZES), 4, 9))
    odd = rng.integers(-(2**31), 2**31 - 1, size=(N_ROWS, 4)).astype(np.int32)
    covariates._count(odd, offsets, index, np.ones(len(index)), out)
    assert out.sum() == 4 * len(index)
    covariates._slopes_of(counts, wild(q.histograms_.shape, rng), np.arange(4), wild((4, N_CLASSES), rng))


@case("quantifiers.classical.thresholds", "_sweep")
def swept_thresholds(rng):
    posteriors, (index, offsets) = wild(N_ROWS, rng), entries(rng)
    thresholds, high, low = np.sort(rng.random(9)), rng.random(9) + 1.0, rng.random(9)
    cells = np.searchsorted(thresholds, posteriors, side="right")
    above = (cells[:, None] > np.arange(9)).astype(float)
    means = [above[index[a:b]].mean(0) for a, b in pairwise(offsets)]
    wanted = [np.median(np.clip((share - low) / (high - low), 0, 1)) for share in means]
    near(sweeping.median_adjusted(cells, high, low, index, offsets, None), wanted)
    odd = rng.choice([-1, -(2**62), 2**62, 10, 9], N_ROWS)
    found = sweeping.median_adjusted(odd, high, low, index, offsets, None)
    near(found, sweeping.median_adjusted(np.clip(odd, 0, 9), high, low, index, offsets, None))


@case("quantifiers.classical.energy", "_interpolate")
def interpolated_distances(rng):
    n_knots = int(rng.integers(1, 20))
    knots, table = np.sort(rng.normal(size=(2, n_knots)), axis=1), rng.random((2, n_knots, N_CLASSES))
    values = wild((N_ROWS, 2), rng)
    values[np.isnan(values)] = np.inf
    wanted = sum(
        np.stack([np.interp(values[:, d], knots[d], table[d, :, c]) for c in range(N_CLASSES)], axis=1)
        for d in range(2)
    )
    near(energy.mean_distances(values, knots, table), wanted)
    energy.mean_distances(wild((N_ROWS, 2), rng), np.sort(wild((2, n_knots), rng), axis=1), wild(table.shape, rng))


@case("quantifiers.classical.emq", "_em", "_smooth")
def expectation_maximisation(rng):
    index, offsets = entries(rng)
    smooth = likelihood.smoother(N_CLASSES, 0.5)
    for scores in (rng.random((N_ROWS, N_CLASSES)), wild((N_ROWS, N_CLASSES), rng)):
        for matrix in (None, smooth):
            prior = np.full(N_CLASSES, 1 / N_CLASSES)
            likelihood.maximise_likelihood(scores, prior, index, offsets, None, 1e-6, 50, matrix)
            likelihood.maximise_likelihood(scores, prior, index, offsets, wild(len(index), rng), 1e-6, 50, matrix)


@case("quantifiers.classical.readme", "_number", "_gather")
def word_profile_codes(rng):
    index, offsets = entries(rng)
    rows, limits = wild((N_ROWS, 5), rng), wild(5, rng)
    subsets = np.stack([rng.choice(5, 3, replace=False) for _ in range(4)])
    codes = word_profiles._codes(rows > limits, subsets)
    near(codes, ((rows > limits)[:, subsets] * [1, 2, 4]).sum(2).T)
    tables, sums = wild((4, 8, N_CLASSES), rng, finite=True), np.zeros((len(SIZES), 4, N_CLASSES))
    word_profiles._gather(codes, tables, offsets, index, np.ones(len(index)), 0, len(SIZES), sums)
    near(sums[1], [table[own[index[7]]] for table, own in zip(tables, codes, strict=True)])


@case("sketches.moments", "_add_sums", "_total", "_product")
def summed_moments(rng):
    index, offsets = entries(rng)
    for paired in (np.eye(3), rng.normal(size=(2, 3)), np.zeros((0, 3))):
        moments = Moments(np.array([2, 0, 1]), rng.random(3), rng.random(3) + 0.1, paired)
        rows = wild((N_ROWS, 3), rng, rng.choice([np.float32, np.float64]), finite=True)
        with np.errstate(over="ignore", invalid="ignore"):
            values = moments.of_rows(rows)[0] * 1024
        sums = moments.sums(Bags.trusted(rows, index, offsets))
        near(sums[:, :3], [values[index[a:b]].sum(0) for a, b in pairwise(offsets)])
        moments.sums(Bags.trusted(wild((N_ROWS, 3), rng), index, offsets, weights=wild(len(index), rng)))


def kernel_of(name):
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"histnetq.{module}"), function)


def run(name, n_seeds):
    """Run a case with so many seeds; overflow and NaN are what it is about."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        for seed in range(n_seeds):
            try:
                CASES[name][0](np.random.default_rng(seed))
            except Exception as error:
                error.add_note(f"case {name}, seed {seed}")
                raise


def main():
    n_seeds, kernels = int(sys.argv[1]), {kernel for _, listed in CASES.values() for kernel in listed}
    for name in CASES:
        run(name, n_seeds)
    made = {name: kernel_of(name) for name in kernels}
    inlined = {name for name, kernel in made.items() if kernel.targetoptions.get("inline") == "always"}
    missed = sorted(name for name, kernel in made.items() if name not in inlined and not kernel.signatures)
    if missed:
        raise SystemExit(f"No case has run {', '.join(missed)}.")
    sys.stdout.write(f"{len(kernels)} kernels, {len(CASES) * n_seeds} cases\n")


if __name__ == "__main__":
    main()
