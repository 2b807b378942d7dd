"""The posterior of the mix of a bag, given likelihoods of its rows and a Dirichlet prior, by a Laplace approximation.

A bag is drawn from a population with unknown prevalences. These have a Dirichlet prior, and logarithms of them have a
normal approximation around their mode, which becomes exact as bags grow. Given the prevalences, the mix of the bag
itself is the mean of the posteriors of its rows. Everything is deterministic, and bags do not affect each other.

References
----------
MacKay (1998), *Choice of basis for Laplace approximation*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

from histnetq.kernels.cores import over_bags
from histnetq.kernels.jit import njit
from histnetq.simplex import Floats, Ints

_DRAWS = 64  # from the approximation, for more than two classes
_GRID = np.linspace(-12, 12, 97)  # standard deviations from the mode, for two classes
_LARGEST = 4096  # bags of more rows use straight lines around the mode
_AT_ONCE = 1 << 20  # numbers of draws that are worked on together
_LEAST = 1e-12  # prevalence
_TIED = 6  # digits to which prevalences of classes are compared
_CONCENTRATIONS = 0.05, 1000.0  # smallest and largest of a fitted prior


@dataclass(frozen=True)
class MixDraws:
    """Draws from the posterior of some bags.

    Attributes
    ----------
    bags : slice
        The bags.
    mixes : (n_bags, n_draws, n_classes)
        Expected mix of the bag itself, given the prevalences of each draw.
    prevalences : (n_bags, n_draws, n_classes)
        Prevalences of the population.
    weights : (n_bags, n_draws)
        Weights of the draws, which sum to 1.
    """

    bags: slice
    mixes: Floats
    prevalences: Floats
    weights: Floats


def draw_mixes(
    likelihoods: Floats, modes: Floats, prior: Floats, index: Ints, offsets: Ints, weights: NDArray | None = None
) -> Iterator[MixDraws]:
    """Yield draws for runs of bags that fit in memory together.

    With two classes, the draws are a grid of prevalences, and their weights are the exact posterior. With more classes,
    the draws have equal weights.

    Parameters
    ----------
    likelihoods : (n_rows, n_classes)
        Likelihood of each row under each class, up to a factor per row.
    modes : (n_bags, n_classes)
        Modes of the logarithms of the prevalences: ``(counts + prior) / (size + sum of prior)``, where the counts are
        those expected at the mode.
    prior : (n_classes,)
        Concentrations of the Dirichlet prior.
    weights : (n_entries,), default=None
        Weights of the entries, whose sum is the size of each bag.
    """
    n_classes = modes.shape[1]
    scaled = likelihoods / np.maximum(likelihoods.max(1, keepdims=True), np.finfo(np.float64).tiny)
    w = np.ones(1) if weights is None else weights.astype(np.float64)
    step = max(1, _AT_ONCE // (n_classes * (len(_steps(n_classes)) + n_classes)))
    for first in range(0, len(modes), step):
        some = slice(first, min(first + step, len(modes)))
        entries = index, offsets[some.start : some.stop + 1], w, weights is not None
        yield MixDraws(some, *_drawn(scaled, np.maximum(modes[some], _LEAST), prior, *entries))


def fit_prior(mean_logs: Floats, n_bags: int) -> Floats:
    """Return the Dirichlet concentrations that make mean logarithms of prevalences most likely, (n_classes,).

    One bag of a flat prior is added to the bags, so that few bags do not make the prior too narrow.

    Examples
    --------
    >>> fit_prior(np.array([digamma(8.0), digamma(2.0)]) - digamma(10.0), 10**6).round(2)
    array([8., 2.])
    """
    n_classes = len(mean_logs)
    wanted = (n_bags * mean_logs + digamma(1.0) - digamma(float(n_classes))) / (n_bags + 1)
    found = np.ones(n_classes)
    for _ in range(200):  # Minka's fixed point
        target = digamma(found.sum()) + wanted
        guess = np.where(target >= -2.22, np.exp(target) + 0.5, -1 / (np.minimum(target, -2.22) - digamma(1.0)))
        for _ in range(5):
            guess -= (digamma(guess) - target) / polygamma(1, guess)
        found = np.clip(guess, *_CONCENTRATIONS)
    return found


def _drawn(
    scaled: Floats, modes: Floats, prior: Floats, index: Ints, offsets: Ints, w: Floats, weighted: bool
) -> tuple[Floats, Floats, Floats]:
    """Return mixes, prevalences and weights of the draws of consecutive bags."""
    n_bags, n_classes = modes.shape
    counts, products = np.zeros((n_bags, n_classes)), np.zeros((n_bags, n_classes, n_classes))
    entries = scaled, index, offsets, w, weighted
    over_bags(lambda first, last: _moments(*entries, modes, first, last, counts, products), offsets)
    sizes, noise = counts.sum(1), counts[:, :, None] * np.eye(n_classes) - products
    moves = _moves(modes, (sizes + prior.sum())[:, None, None] * _covariance(modes) - noise, prior)
    shifted = np.log(modes)[:, None] + moves
    p = np.exp(shifted - shifted.max(2, keepdims=True))
    p = np.maximum(p / p.sum(2, keepdims=True), _LEAST)
    # Straight lines around the mode, which large bags keep.
    mixes = np.maximum((counts[:, None] + moves @ noise) / sizes[:, None, None], 0.0)
    mixes /= mixes.sum(2, keepdims=True)
    is_small, is_exact = sizes <= _LARGEST, n_classes == 2
    logs = np.tile(-np.square(_GRID if is_exact else np.zeros(p.shape[1])) / 2, (n_bags, 1))
    arguments = *entries, p, is_small, is_exact
    over_bags(lambda first, last: _follow(*arguments, first, last, mixes, logs), offsets)
    if is_exact:
        logs[is_small] += np.log(p[is_small]) @ prior
    weights = np.exp(logs - logs.max(1, keepdims=True))
    return mixes, p, weights / weights.sum(1, keepdims=True)


def _covariance(p: Floats) -> Floats:
    return p[:, :, None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None, :]


def _moves(modes: Floats, curvature: Floats, prior: Floats) -> Floats:
    """Return the differences of logarithms of prevalences from the mode: (n_bags, n_draws, n_classes).

    The same noise serves all bags. The classes of a bag take it in the order of their prevalences, so that the order of
    their names has no effect.
    """
    n_classes = modes.shape[1]
    centred = np.eye(n_classes) - 1 / n_classes
    values, axes = np.linalg.eigh(centred @ curvature @ centred)
    # The direction without effect comes first. Others have at least the curvature of the prior, up to rounding.
    spread = 1 / np.sqrt(np.maximum(values, prior.min() / 2))
    root = centred @ ((axes * spread[:, None]) @ axes.transpose(0, 2, 1)) @ centred
    steps = _steps(n_classes)
    if n_classes == 2:
        return steps @ root
    places = np.round(modes, _TIED).argsort(1, kind="stable").argsort(1)
    return steps.T[places].transpose(0, 2, 1) @ root


@cache
def _steps(n_classes: int) -> Floats:
    """Return standard steps, (n_draws, n_classes): a grid for two classes, otherwise normal noise with its mirror."""
    if n_classes == 2:
        return _GRID[:, None] * np.array([1.0, -1.0]) / np.sqrt(2)
    half = np.random.default_rng(0).normal(size=(_DRAWS // 2, n_classes))
    return np.concatenate([half, -half])


@njit(cache=True, nogil=True, error_model="numpy")
def _moments(  # type: ignore[no-untyped-def]
    scores, index, offsets, weights, weighted, modes, first, last, counts, products
):
    """Add up the posteriors of the rows of each bag at its mode, and their products."""
    n_classes = modes.shape[1]
    p = np.empty(n_classes)
    for bag in range(first, last):
        for entry in range(offsets[bag], offsets[bag + 1]):
            total = 0.0
            for j in range(n_classes):
                p[j] = scores[index[entry], j] * modes[bag, j]
                total += p[j]
            w = weights[entry] if weighted else 1.0
            for j in range(n_classes):
                p[j] = p[j] / total if total > 0.0 else modes[bag, j]
                counts[bag, j] += w * p[j]
                for k in range(j + 1):
                    products[bag, j, k] += w * p[j] * p[k]
        for j in range(n_classes):
            for k in range(j):
                products[bag, k, j] = products[bag, j, k]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def _follow(  # type: ignore[no-untyped-def]
    scores, index, offsets, weights, weighted, p, is_small, with_logs, first, last, mixes, logs
):
    """Compute the expected mix of each small bag at each draw, and the logarithm of the likelihood of the bag."""
    n_draws, n_classes = p.shape[1:]
    share, product, parts = np.empty(n_draws), np.empty(n_draws), np.empty((n_classes, n_draws))
    for bag in range(first, last):
        if not is_small[bag]:
            continue
        draws = p[bag].T.copy()
        parts[:] = 0.0
        logs[bag] = 0.0
        product[:] = 1.0
        begin, end = offsets[bag], offsets[bag + 1]
        for entry in range(begin, end):
            share[:] = 1e-300
            for j in range(n_classes):
                score = scores[index[entry], j]
                for m in range(n_draws):
                    share[m] += score * draws[j, m]
            w = weights[entry] if weighted else 1.0
            if with_logs and weighted:
                for m in range(n_draws):
                    logs[bag, m] += w * np.log(share[m])
            elif with_logs:
                for m in range(n_draws):
                    product[m] *= share[m]
                if (entry - begin) % 16 == 15 or entry == end - 1:  # before products become too small
                    for m in range(n_draws):
                        logs[bag, m] += np.log(product[m])
                    product[:] = 1.0
            for m in range(n_draws):
                share[m] = w / share[m]
            for j in range(n_classes):
                score = scores[index[entry], j]
                for m in range(n_draws):
                    parts[j, m] += score * share[m]
        for m in range(n_draws):
            total = 0.0
            for j in range(n_classes):
                parts[j, m] *= draws[j, m]
                total += parts[j, m]
            for j in range(n_classes):
                mixes[bag, m, j] = parts[j, m] / total
