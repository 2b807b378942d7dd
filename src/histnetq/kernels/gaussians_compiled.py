"""The kernels of Gaussian likelihoods for the CPU, compiled by numba; `gaussians_plain` documents the same functions.

Entries of a bag are gathered into tiles with contiguous values of each feature, so that loops over entries become
vector instructions. No array of size entries × Gaussians is stored, as the backward pass computes φ again. Threads
divide the sums by bag and block, and the gradients by block, so that no two threads write the same element.
"""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import math

import numpy as np
import torch
from numba import types
from numba.extending import overload
from torch import Tensor

from histnetq.kernels.compiled import run_pieces, unpacked, zeros
from histnetq.kernels.dense_compiled import exp_at_most_zero
from histnetq.kernels.jit import njit
from histnetq.kernels.plain import Entries

_TILE = 248  # entries: an odd number of cache lines, so that arrays do not compete for the same cache sets
_FAST = {"reassoc", "contract"}


def gaussian_sum(values: Tensor, centers: Tensor, factors: Tensor, entries: Entries) -> Tensor:
    n_blocks, n_gaussians, _ = centers.shape
    sums = torch.zeros((len(entries.offsets) - 1, n_blocks, n_gaussians), dtype=torch.float64)
    n_numbers = len(entries.rows) * factors[0].numel() * n_blocks
    run_pieces(len(sums) * n_blocks, n_numbers, _sum, *unpacked(entries), *_alike(values, centers, factors), sums)
    return sums


def gaussian_grad(
    values: Tensor, centers: Tensor, factors: Tensor, grad: Tensor, entries: Entries
) -> tuple[Tensor, Tensor, Tensor]:
    grad_values = zeros(values.shape, values.dtype)
    grad_centers, grad_factors = (zeros(t.shape, torch.float64) for t in (centers, factors))
    n_numbers = len(entries.rows) * factors.numel()
    args = *unpacked(entries), *_alike(values, centers, factors), grad, grad_values, grad_centers, grad_factors
    run_pieces(len(centers), n_numbers, _grad, *args)
    return grad_values, grad_centers.to(centers.dtype), grad_factors.to(factors.dtype)


def _alike(values: Tensor, centers: Tensor, factors: Tensor) -> tuple[Tensor, ...]:
    """Return all tensors in the precision of the values."""
    return values, centers.to(values.dtype), factors.to(values.dtype)


def _exp(x):
    """Return the exponential of a number of at most zero, in its precision."""


@overload(_exp)
def _exp_of(x):
    return (lambda x: exp_at_most_zero(x)) if x == types.float32 else (lambda x: math.exp(x))


@njit(cache=True, nogil=True)
def _room(n_dims, dtype):
    """Allocate the values of a tile, the gaps to a centre, the gaps times a factor, φ, and the weights."""
    shape = (n_dims, _TILE)
    x, gaps, moved = np.zeros(shape, dtype), np.zeros(shape, dtype), np.zeros(shape, dtype)
    return x, gaps, moved, np.zeros(_TILE, dtype), np.ones(_TILE)


@njit(cache=True, nogil=True)
def _load(first, n, index, weights, weighted, values, begin, x, w):
    """Fill a tile with entries from `first` on, from column `begin` on."""
    for r in range(n):
        row = index[first + r]
        for i in range(len(x)):
            x[i, r] = values[row, begin + i]
    if weighted:
        for r in range(n):
            w[r] = weights[first + r]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _fill(n, x, center, factor, gaps, moved, phi):
    """Compute the gaps, the gaps times a factor, and φ for the entries of a tile."""
    phi[:n] = 0
    half = phi.dtype.type(-0.5)
    for i in range(len(x)):
        c, row, gap = center[i], x[i], gaps[i]
        for r in range(n):
            gap[r] = row[r] - c
    for j in range(len(x)):
        own, f, gap = moved[j], factor[j, j], gaps[j]
        for r in range(n):
            own[r] = f * gap[r]
        for i in range(j):
            f, gap = factor[j, i], gaps[i]
            for r in range(n):
                own[r] += f * gap[r]
        for r in range(n):
            phi[r] += own[r] * own[r]
    for r in range(n):
        phi[r] = _exp(half * phi[r])


@njit(cache=True, nogil=True, fastmath=_FAST)
def _weigh(n, phi, w):
    total = 0.0
    for r in range(n):
        total += w[r] * phi[r]
    return total


@njit(cache=True, nogil=True)
def _sum(start, stop, index, offsets, weights, weighted, values, centers, factors, sums):
    n_blocks, n_gaussians, n_dims = centers.shape
    x, gaps, moved, phi, w = _room(n_dims, values.dtype)
    for task in range(start, stop):
        bag, b = task // n_blocks, task % n_blocks
        for first in range(offsets[bag], offsets[bag + 1], _TILE):
            n = min(_TILE, offsets[bag + 1] - first)
            _load(first, n, index, weights, weighted, values, b * n_dims, x, w)
            for k in range(n_gaussians):
                _fill(n, x, centers[b, k], factors[b, k], gaps, moved, phi)
                sums[bag, b, k] += _weigh(n, phi, w)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _pull(n, pull, factor, gaps, moved, slopes, firsts, seconds):
    """Add −pull · Lᵀ L (v − μ) to the slopes; and to the sums over entries of pull times gaps, and times two gaps."""
    for i in range(len(gaps)):
        gap, slope = gaps[i], slopes[i]
        for j in range(i, len(gaps)):
            f, own = factor[j, i], moved[j]
            for r in range(n):
                slope[r] -= f * (pull[r] * own[r])
        total = pull[0] * 0
        for r in range(n):
            total += pull[r] * gap[r]
        firsts[i] += total
        for j in range(i + 1):
            other = gaps[j]
            total = pull[0] * 0
            for r in range(n):
                total += (pull[r] * gap[r]) * other[r]
            seconds[i, j] += total


@njit(cache=True, nogil=True)
def _grad(
    start, stop, index, offsets, weights, weighted, values, centers, factors, grad,
    grad_values, grad_centers, grad_factors,
):  # fmt: skip
    n_gaussians, n_dims = centers.shape[1:]
    x, gaps, moved, phi, w = _room(n_dims, values.dtype)
    slopes = np.zeros((n_dims, _TILE), values.dtype)
    for b in range(start, stop):
        # Per Gaussian: sums of pulls times gaps, and of pulls times products of two gaps.
        firsts, seconds = np.zeros((n_gaussians, n_dims)), np.zeros((n_gaussians, n_dims, n_dims))
        for bag in range(len(offsets) - 1):
            for first in range(offsets[bag], offsets[bag + 1], _TILE):
                n = min(_TILE, offsets[bag + 1] - first)
                _load(first, n, index, weights, weighted, values, b * n_dims, x, w)
                slopes[:] = 0
                for k in range(n_gaussians):
                    _fill(n, x, centers[b, k], factors[b, k], gaps, moved, phi)
                    g = grad[bag, b, k]
                    for r in range(n):
                        phi[r] *= g * w[r]
                    _pull(n, phi, factors[b, k], gaps, moved, slopes, firsts[k], seconds[k])
                for r in range(n):
                    row = index[first + r]
                    for i in range(n_dims):
                        grad_values[row, b * n_dims + i] += slopes[i, r]
        for k in range(n_gaussians):
            _of_gaussian(factors[b, k], firsts[k], seconds[k], grad_centers[b, k], grad_factors[b, k])


@njit(cache=True, nogil=True)
def _of_gaussian(factor, firsts, seconds, grad_center, grad_factor):
    """Compute the gradients of the centre, Lᵀ L Σ g, and of the factor L, −L Σ g gᵀ.

    A gap g is a row minus the centre; `firsts` and `seconds` are the weighted sums of g and g gᵀ over the entries.
    """
    n_dims = len(factor)
    for j in range(n_dims):
        moved = 0.0
        for i in range(j + 1):
            moved += factor[j, i] * firsts[i]
        for i in range(j + 1):
            grad_center[i] += factor[j, i] * moved
            total = 0.0
            for m in range(j + 1):
                total += factor[j, m] * (seconds[m, i] if m >= i else seconds[i, m])
            grad_factor[j, i] -= total
