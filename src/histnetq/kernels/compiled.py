"""The histogram kernels for the CPU, compiled by numba; `plain` documents the same functions.

Work is divided into blocks of features and into ranges of rows or bags, so that no two tasks write the same element. A
block is wide enough to read rows in long runs, and narrow enough that its counters stay in the second-level cache. The
tasks run on torch's threads, with the interpreter lock released.

A table of equal-width buckets locates values among the edges, and the bins that reach them. A larger value never has a
smaller bucket number, even after rounding, so the search from the bucket's first edge is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from histnetq.kernels.jit import njit
from histnetq.kernels.plain import Bins, Entries
from histnetq.kernels.precision import code_dtype
from histnetq.kernels.threads import run_threads

_WIDEST_BLOCK = 160  # features processed together
_ROWS, _COLUMNS = 256, 32  # rows and features coded together, so that both and the tables stay in the cache
_WORTH_A_THREAD = 1 << 14  # numbers that justify another thread
_KINDS = {"soft": 0, "rbf": 1, "sigmoid": 2}


def hard_codes(values: Tensor, edges: Tensor) -> Tensor:
    codes = torch.empty(values.shape, dtype=code_dtype(edges.shape[1]))
    # Buckets of values and edges must agree, so edges are never in a narrower dtype.
    table = _edge_table(_array(edges.to(torch.promote_types(edges.dtype, values.dtype))))
    run_pieces(len(values), values.numel(), _codes, values, *table, codes)
    return codes


def hard_count(codes: Tensor, ranks: Tensor, entries: Entries) -> Tensor:
    dtype = torch.int64 if entries.weights is None else entries.weights.dtype
    inside = torch.empty((len(entries.offsets) - 1, len(ranks), ranks.shape[2]), dtype=dtype)
    _run_blocks(len(inside), _count, entries, codes, ranks, inside)
    return inside


def hard_density(
    codes: Tensor, ranks: Tensor, entries: Entries, totals: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    density = torch.empty((len(totals), len(ranks), ranks.shape[2]), dtype=dtype)
    skew = torch.empty_like(density)
    _run_blocks(len(totals), _density, entries, codes, ranks, totals, density, skew)
    return density, skew


def hard_scatter(codes: Tensor, ranks: Tensor, grad: Tensor, entries: Entries) -> Tensor:
    out = zeros(codes.shape, grad.dtype)
    _run_blocks(1, _scatter, entries, codes, ranks, grad, out)
    return out


def smooth_sum(bins: Bins, values: Tensor, entries: Entries) -> Tensor:
    sums = torch.empty((len(entries.offsets) - 1, *bins.centers.shape), dtype=torch.float64)
    _run_blocks(len(sums), _sum, entries, values, *_reach(bins, values), sums)
    return sums


def smooth_grad(bins: Bins, values: Tensor, grad: Tensor, entries: Entries) -> tuple[Tensor, Tensor, Tensor]:
    grad_values = zeros(values.shape, values.dtype)
    grad_centers, grad_scales = (zeros(bins.centers.shape, torch.float64) for _ in range(2))
    _run_blocks(
        1, _grad, entries, values, *_reach(bins, values), grad, grad_values, grad_centers, grad_scales
    )  # fmt: skip
    return grad_values, grad_centers.to(bins.centers.dtype), grad_scales.to(bins.scales.dtype)


def _run_blocks(n_bags: int, kernel: Callable[..., None], entries: Entries, values: Tensor, *args: Any) -> None:
    """Run a kernel for all blocks of features of `n_bags` bags; see `run_pieces`."""
    # Equal blocks, as many as the threads or a multiple.
    n_features, n_threads = values.shape[1], torch.get_num_threads()
    block = -(-n_features // (n_threads * -(-n_features // (n_threads * _WIDEST_BLOCK))))
    n_tasks, n_numbers = n_bags * -(-n_features // block), len(entries.rows) * n_features
    run_pieces(n_tasks, n_numbers, kernel, block, *unpacked(entries), values, *args)


def run_pieces(n_tasks: int, n_numbers: int, kernel: Callable[..., None], *args: Any) -> None:
    """Call ``kernel(start, stop, ...)`` for all tasks, in as many pieces as there are threads to use.

    Tensors among the arguments become arrays, which the kernel may write to if they are contiguous.
    """
    n_pieces = max(1, min(torch.get_num_threads(), n_tasks, n_numbers // _WORTH_A_THREAD))
    pieces = pairwise([n_tasks * i // n_pieces for i in range(n_pieces + 1)])
    arrays = [_array(arg) if isinstance(arg, Tensor) else arg for arg in args]

    def work() -> None:
        for start, stop in pieces:  # a shared iterator: each thread takes the next piece
            kernel(start, stop, *arrays)

    run_threads(work, n_pieces)


def unpacked(entries: Entries) -> tuple[Tensor | np.ndarray | bool, ...]:
    """Return index, offsets, weights and whether there are weights, as compiled code always needs an array."""
    index, offsets, weights = entries
    return index, offsets, np.ones(1, np.int64) if weights is None else weights, weights is not None


def zeros(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Return a tensor of zeros made by numpy, which gets zeroed pages from the system; torch would use its threads."""
    return torch.from_numpy(np.zeros(shape, str(dtype).removeprefix("torch.")))


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()


def _reach(bins: Bins, values: Tensor) -> tuple[Any, ...]:
    """Return the arrays of the bins, and the windows of bins whose φ exceeds machine epsilon for each bucket."""
    kind, centers, scales, gamma = bins
    dtype = torch.promote_types(centers.dtype, values.dtype)
    middle, wide, digits = centers.to(dtype), scales.to(dtype), -math.log(torch.finfo(dtype).eps)
    reach = {"soft": 1 / wide, "rbf": math.sqrt(digits) / wide, "sigmoid": wide + digits / gamma}[kind]
    reach = reach * (1 + 1e-5)  # against rounding
    windows = _windows(_array(middle - reach), _array(middle + reach), 4 * centers.shape[1])
    scalar = np.float32 if values.dtype == torch.float32 else np.float64
    return _KINDS[kind], centers, scales, scalar(gamma), *windows


@njit(cache=True, inline="always")
def _bucket(v, low, step, zero, top):
    # Clamped before the conversion, in an order that turns NaN into 0, so that no value becomes an invalid index.
    return np.uint32(max(zero, min((v - low) * step, top)))


@njit(cache=True, nogil=True)
def _bucket_step(low, high, n_buckets):
    """Return the buckets per unit, or 0 (everything in one bucket) if that is not a finite positive number."""
    step = n_buckets / (high - low) if high > low else 0.0
    return step if math.isfinite(step) else 0.0


@njit(cache=True, nogil=True)
def _edge_table(edges):
    """Edges padded with infinity; per feature the number of edges below each bucket, buckets per unit, and the most
    edges in one bucket."""
    n_features, n_edges = edges.shape
    zero, top = edges.dtype.type(0), edges.dtype.type(n_edges)
    first = np.empty((n_features, n_edges + 1), np.uint32)
    steps = np.empty(n_features, edges.dtype)
    most = np.zeros(n_features, np.int64)
    for k in range(n_features):
        steps[k] = _bucket_step(edges[k, 0], edges[k, n_edges - 1], n_edges)
        j = 0
        for b in range(n_edges + 1):
            first[k, b] = j
            while j < n_edges and _bucket(edges[k, j], edges[k, 0], steps[k], zero, top) <= b:
                j += 1
            most[k] = max(most[k], j - first[k, b])
    # Padded by no more than the branchless search may read past the last edge, to stay in the cache.
    padded = np.full((n_features, n_edges + max(8, 2 * most.max())), np.inf, edges.dtype)
    padded[:, :n_edges] = edges
    return padded, first, steps, most


@njit(cache=True, nogil=True)
def _codes(start, stop, values, padded, first, steps, most, codes):
    for row in range(start, stop, _ROWS):
        _some_codes(row, min(row + _ROWS, stop), values, padded, first, steps, most, codes)


@njit(cache=True, nogil=True)
def _some_codes(start, stop, values, padded, first, steps, most, codes):
    n_features = values.shape[1]
    n_edges = first.shape[1] - 1
    zero, top, last = values.dtype.type(0), values.dtype.type(n_edges), np.uint32(n_edges)
    for begin in range(0, n_features, _COLUMNS):
        end = min(begin + _COLUMNS, n_features)
        stride = np.uint32(1)
        while stride <= most[begin:end].max():
            stride *= np.uint32(2)
        if stride <= 8:
            # Three unrolled steps are several times faster than the loop below.
            for i in range(start, stop):
                for k in range(begin, end):
                    v = values[i, k]
                    j = first[k, _bucket(v, padded[k, 0], steps[k], zero, top)]
                    j += np.uint32(4) * np.uint32(padded[k, j + np.uint32(3)] <= v)
                    j += np.uint32(2) * np.uint32(padded[k, j + np.uint32(1)] <= v)
                    j += np.uint32(padded[k, j] <= v)
                    codes[i, k] = min(j, last)
            continue
        for i in range(start, stop):
            for k in range(begin, end):
                v = values[i, k]
                j = first[k, _bucket(v, padded[k, 0], steps[k], zero, top)]
                s = stride
                while s > np.uint32(1):
                    s >>= np.uint32(1)
                    j += s * np.uint32(padded[k, j + s - np.uint32(1)] <= v)
                codes[i, k] = min(j, last)


@njit(cache=True, nogil=True)
def _weight_above(above, begin, end, bag, codes, index, offsets, weights, weighted):
    """Fill `above` with the weight of a bag at or above each code, for features `begin` to `end`."""
    above[:] = 0
    for e in range(offsets[bag], offsets[bag + 1]):
        row = index[e]
        w = weights[e] if weighted else weights[0]
        for k in range(begin, end):
            above[k - begin, codes[row, k]] += w
    for k in range(end - begin):
        for c in range(above.shape[1] - 2, -1, -1):
            above[k, c] += above[k, c + 1]


@njit(cache=True, nogil=True)
def _count(start, stop, block, index, offsets, weights, weighted, codes, ranks, inside):
    _, n_features, n_bins = inside.shape
    n_blocks = (n_features + block - 1) // block
    above = np.empty((block, 4 * n_bins + 1), weights.dtype)
    for task in range(start, stop):
        bag = task // n_blocks
        begin = (task % n_blocks) * block
        end = min(begin + block, n_features)
        _weight_above(above, begin, end, bag, codes, index, offsets, weights, weighted)
        for k in range(begin, end):
            for b in range(n_bins):
                low, high = ranks[k, 0, b], ranks[k, 3, b]
                inside[bag, k, b] = above[k - begin, low] - above[k - begin, max(low, high)]


@njit(cache=True, nogil=True)
def _density(start, stop, block, index, offsets, weights, weighted, codes, ranks, totals, density, skew):
    _, n_features, n_bins = density.shape
    n_blocks = (n_features + block - 1) // block
    above = np.empty((block, 4 * n_bins + 1), weights.dtype)
    for task in range(start, stop):
        bag = task // n_blocks
        begin = (task % n_blocks) * block
        end = min(begin + block, n_features)
        _weight_above(above, begin, end, bag, codes, index, offsets, weights, weighted)
        for k in range(begin, end):
            for b in range(n_bins):
                low, high = ranks[k, 0, b], ranks[k, 3, b]
                if high <= low:
                    density[bag, k, b] = 0
                    skew[bag, k, b] = 0
                    continue
                at_low, at_high = above[k - begin, low], above[k - begin, high]
                left = at_low - above[k - begin, ranks[k, 1, b]]
                right = above[k - begin, ranks[k, 2, b]] - at_high
                density[bag, k, b] = (at_low - at_high) / totals[bag]
                skew[bag, k, b] = right - left


@njit(cache=True, nogil=True)
def _scatter(start, stop, block, index, offsets, weights, weighted, codes, ranks, grad, out):
    n_bags, n_features, n_bins = grad.shape
    n_codes = 4 * n_bins + 1
    for task in range(start, stop):
        begin = task * block
        end = min(begin + block, n_features)
        one = out.dtype.type(1)
        jumps = np.empty(n_codes, np.float64)
        slopes = np.empty((block, n_codes), out.dtype)
        for bag in range(n_bags):
            for k in range(begin, end):
                jumps[:] = 0.0
                for b in range(n_bins):
                    if ranks[k, 3, b] > ranks[k, 0, b]:
                        g = grad[bag, k, b]
                        jumps[ranks[k, 0, b]] += g
                        jumps[ranks[k, 1, b]] -= g
                        jumps[ranks[k, 2, b]] -= g
                        jumps[ranks[k, 3, b]] += g
                slope = 0.0
                for c in range(n_codes):
                    slope += jumps[c]
                    slopes[k - begin, c] = slope
            for e in range(offsets[bag], offsets[bag + 1]):
                row = index[e]
                w = one * weights[e] if weighted else one
                for k in range(begin, end):
                    out[row, k] += w * slopes[k - begin, codes[row, k]]


@njit(cache=True, inline="always")
def _phi(kind, v, center, scale, gamma, one):
    """Return φ and its derivatives by the value and by the scale, in the dtype of the value."""
    gap = v - center
    if kind == 0:
        value = one - scale * abs(gap)
        if value <= 0:
            return one - one, one - one, one - one
        return value, -math.copysign(scale, gap) if gap != 0 else one - one, -abs(gap)
    if kind == 1:
        t = scale * gap
        value = math.exp(-(t * t))
        return value, -(one + one) * scale * t * value, -(one + one) * t * gap * value
    low = one / (one + math.exp(-gamma * (gap + scale)))
    high = one / (one + math.exp(-gamma * (gap - scale)))
    low_slope, high_slope = gamma * low * (one - low), gamma * high * (one - high)
    return low - high, low_slope - high_slope, low_slope + high_slope


@njit(cache=True)
def _windows(low, high, n_buckets):
    """Return, per feature and bucket, the first bin that reaches into the bucket and one past the last bin."""
    n_features, n_bins = low.shape
    opens = np.full((n_features, n_buckets + 1), n_bins, np.int32)
    closes = np.zeros((n_features, n_buckets + 1), np.int32)
    zero, top = low.dtype.type(0), low.dtype.type(n_buckets)
    origin = np.empty(n_features, low.dtype)
    limit = np.empty(n_features, low.dtype)
    steps = np.empty(n_features, low.dtype)
    for k in range(n_features):
        origin[k], limit[k] = low[k].min(), high[k].max()
        steps[k] = _bucket_step(origin[k], limit[k], n_buckets)
        for b in range(n_bins):
            begin = _bucket(low[k, b], origin[k], steps[k], zero, top)
            end = _bucket(high[k, b], origin[k], steps[k], zero, top)
            for j in range(begin, end + 1):
                opens[k, j] = min(opens[k, j], b)
                closes[k, j] = max(closes[k, j], b + 1)
    return opens, closes, origin, limit, steps


@njit(cache=True, nogil=True)
def _sum(
    start, stop, block, index, offsets, weights, weighted, values, kind, centers, scales, gamma,
    opens, closes, origin, limit, steps, sums,
):  # fmt: skip
    _, n_features, n_bins = sums.shape
    n_buckets = 4 * n_bins
    zero, one, top = values.dtype.type(0), values.dtype.type(1), values.dtype.type(n_buckets)
    n_blocks = (n_features + block - 1) // block
    for task in range(start, stop):
        bag = task // n_blocks
        begin = (task % n_blocks) * block
        end = min(begin + block, n_features)
        total = np.zeros((block, n_bins), np.float64)
        for e in range(offsets[bag], offsets[bag + 1]):
            row = index[e]
            w = weights[e] if weighted else weights[0]
            for k in range(begin, end):
                v = values[row, k]
                if not (v >= origin[k] and v <= limit[k]):
                    continue
                j = _bucket(v, origin[k], steps[k], zero, top)
                for b in range(opens[k, j], closes[k, j]):
                    total[k - begin, b] += w * _phi(kind, v, centers[k, b], scales[k, b], gamma, one)[0]
        sums[bag, begin:end] = total[: end - begin]


@njit(cache=True, nogil=True)
def _grad(
    start, stop, block, index, offsets, weights, weighted, values, kind, centers, scales, gamma,
    opens, closes, origin, limit, steps, grad, grad_values, grad_centers, grad_scales,
):  # fmt: skip
    n_bags, n_features, n_bins = grad.shape
    n_buckets = 4 * n_bins
    zero, one, top = values.dtype.type(0), values.dtype.type(1), values.dtype.type(n_buckets)
    for task in range(start, stop):
        begin = task * block
        end = min(begin + block, n_features)
        for bag in range(n_bags):
            for e in range(offsets[bag], offsets[bag + 1]):
                row = index[e]
                w = weights[e] if weighted else weights[0]
                for k in range(begin, end):
                    v = values[row, k]
                    if not (v >= origin[k] and v <= limit[k]):
                        continue
                    j = _bucket(v, origin[k], steps[k], zero, top)
                    slope = zero
                    for b in range(opens[k, j], closes[k, j]):
                        _, by_value, by_scale = _phi(kind, v, centers[k, b], scales[k, b], gamma, one)
                        pull = w * grad[bag, k, b] * by_value
                        slope += pull
                        grad_centers[k, b] -= pull
                        grad_scales[k, b] += w * grad[bag, k, b] * by_scale
                    grad_values[row, k] += slope
