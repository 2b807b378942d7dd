"""The histogram kernels for the CPU, compiled by numba; the functions and their meaning are those of `plain`.

Work is cut into blocks of features, wide enough to read rows in long runs and so narrow that the counters of a block
stay in the second-level cache, and over rows or bags where no two tasks write the same place. The tasks run on torch's
threads, with the interpreter lock released.

Values find their place among the edges, or the bins that reach them, through a table of equal-width buckets: a bucket
number never falls as the value rises, rounding included, so that the search from the bucket's first edge is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from histnetq.kernels.precision import code_dtype
from histnetq.kernels.threads import run_threads

__all__ = ["hard_codes", "hard_count", "hard_density", "hard_scatter", "smooth_grad", "smooth_sum"]

_WIDEST_BLOCK = 160  # features handled together
_ROWS, _COLUMNS = 256, 32  # coded together: rows that stay in the cache, features whose tables do
_WORTH_A_THREAD = 1 << 14  # numbers
_KINDS = {"soft": 0, "rbf": 1, "sigmoid": 2}


def hard_codes(values: Tensor, edges: Tensor) -> Tensor:
    n_edges = edges.shape[1]
    dtype = code_dtype(n_edges)
    codes = torch.empty(values.shape, dtype=dtype)
    # Buckets of values and edges must agree, so edges are never in a narrower dtype.
    table = _edge_table(_array(edges.to(torch.promote_types(edges.dtype, values.dtype))))
    _run(len(values), values.numel(), _codes, _array(values), *table, codes.numpy())
    return codes


def hard_count(codes: Tensor, ranks: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
    n_bags, n_features = len(offsets) - 1, len(ranks)
    inside = torch.empty((n_bags, n_features, ranks.shape[2]), dtype=torch.int64 if weights is None else weights.dtype)
    _run(
        n_bags * _n_blocks(n_features), len(index) * n_features, _count, _block(n_features),
        _array(codes), _array(ranks), *_layout(index, offsets, len(codes)), *_weights(weights), inside.numpy(),
    )  # fmt: skip
    return inside


def hard_density(
    codes: Tensor, ranks: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None, totals: Tensor, like: Tensor
) -> tuple[Tensor, Tensor]:
    n_bags, n_features = len(offsets) - 1, len(ranks)
    density = torch.empty((n_bags, n_features, ranks.shape[2]), dtype=like.dtype)
    skew = torch.empty_like(density)
    _run(
        n_bags * _n_blocks(n_features), len(index) * n_features, _density, _block(n_features),
        _array(codes), _array(ranks), *_layout(index, offsets, len(codes)), *_weights(weights), _array(totals),
        density.numpy(), skew.numpy(),
    )  # fmt: skip
    return density, skew


def hard_scatter(
    codes: Tensor, ranks: Tensor, grad: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None
) -> Tensor:
    out = _zeros(codes.shape, grad.dtype)
    _run(
        _n_blocks(codes.shape[1]), len(index) * codes.shape[1], _scatter, _block(codes.shape[1]),
        _array(codes), _array(ranks), _array(grad), *_layout(index, offsets, len(codes)), *_weights(weights),
        out.numpy(),
    )  # fmt: skip
    return out


def smooth_sum(
    kind: str,
    values: Tensor,
    centers: Tensor,
    scales: Tensor,
    gamma: float,
    index: Tensor,
    offsets: Tensor,
    weights: Tensor | None,
) -> Tensor:
    sums = torch.empty((len(offsets) - 1, *centers.shape), dtype=torch.float64)
    _run(
        sums.shape[0] * _n_blocks(sums.shape[1]), len(index) * sums.shape[1], _sum, _block(sums.shape[1]),
        _KINDS[kind], _array(values), _array(centers), _array(scales), _scalar(values, gamma),
        *_reach(kind, values, centers, scales, gamma), *_layout(index, offsets, len(values)), *_weights(weights),
        sums.numpy(),
    )  # fmt: skip
    return sums


def smooth_grad(
    kind: str,
    values: Tensor,
    centers: Tensor,
    scales: Tensor,
    gamma: float,
    grad: Tensor,
    index: Tensor,
    offsets: Tensor,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_values = _zeros(values.shape, values.dtype)
    grad_centers = _zeros(centers.shape, torch.float64)
    grad_scales = _zeros(centers.shape, torch.float64)
    _run(
        _n_blocks(centers.shape[0]), len(index) * centers.shape[0], _grad, _block(centers.shape[0]),
        _KINDS[kind], _array(values), _array(centers), _array(scales), _scalar(values, gamma),
        *_reach(kind, values, centers, scales, gamma), _array(grad),
        *_layout(index, offsets, len(values)), *_weights(weights),
        grad_values.numpy(), grad_centers.numpy(), grad_scales.numpy(),
    )  # fmt: skip
    return grad_values, grad_centers.to(centers.dtype), grad_scales.to(scales.dtype)


def _run(n_tasks: int, n_numbers: int, kernel: Callable[..., None], *args: Any) -> None:
    """Call ``kernel(start, stop, ...)`` for all tasks, in as many pieces as there are threads to use."""
    n_pieces = max(1, min(torch.get_num_threads(), n_tasks, n_numbers // _WORTH_A_THREAD))
    cuts = [n_tasks * i // n_pieces for i in range(n_pieces + 1)]
    pieces = pairwise(cuts)

    def work() -> None:
        for start, stop in pieces:  # shared: each thread takes the next piece
            kernel(start, stop, *args)

    run_threads(work, n_pieces)


def _block(n_features: int) -> int:
    """Width of equal blocks, as many as the threads or a multiple."""
    n_threads = torch.get_num_threads()
    n_blocks = n_threads * -(-n_features // (n_threads * _WIDEST_BLOCK))
    return -(-n_features // n_blocks)


def _n_blocks(n_features: int) -> int:
    return -(-n_features // _block(n_features))


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()


def _layout(index: Tensor, offsets: Tensor, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays, checked: compiled code would read and write past the end of the rows."""
    rows, bounds = _array(index), _array(offsets)
    if len(bounds) < 1 or bounds[0] != 0 or bounds[-1] != len(rows) or (np.diff(bounds) < 0).any():
        raise ValueError(f"offsets: expected to rise from 0 to the number of entries ({len(rows)}), got {bounds}.")
    if len(rows) and (rows.min() < 0 or rows.max() >= n_rows):
        raise ValueError(f"index: expected numbers of the {n_rows} rows, got {rows.min()} to {rows.max()}.")
    return rows, bounds


def _zeros(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    # By numpy, which gets zeroed pages from the system: torch would wake its threads to write zeros.
    return torch.from_numpy(np.zeros(shape, str(dtype).removeprefix("torch.")))


def _scalar(like: Tensor, value: float) -> np.floating:
    return np.float32(value) if like.dtype == torch.float32 else np.float64(value)


def _weights(weights: Tensor | None) -> tuple[np.ndarray, bool]:
    return (np.ones(1, np.int64), False) if weights is None else (_array(weights), True)


def _reach(kind: str, values: Tensor, centers: Tensor, scales: Tensor, gamma: float) -> tuple[np.ndarray, ...]:
    """Windows of the bins, from the interval outside which φ is zero or below machine epsilon."""
    dtype = torch.promote_types(centers.dtype, values.dtype)
    centers, scales = centers.to(dtype), scales.to(dtype)
    digits = -math.log(torch.finfo(centers.dtype).eps)
    if kind == "soft":
        reach = 1 / scales
    elif kind == "rbf":
        reach = math.sqrt(digits) / scales
    else:
        reach = scales + digits / gamma
    reach = reach * (1 + 1e-5)  # against rounding
    return _windows(_array(centers - reach), _array(centers + reach), 4 * centers.shape[1])


@njit(cache=True, inline="always")
def _bucket(v, low, step, zero, top):
    # Clamped before the conversion, in an order that turns a NaN into 0: no value may become a stray address.
    return np.uint32(max(zero, min((v - low) * step, top)))


@njit(cache=True, nogil=True)
def _bucket_step(low, high, n_buckets):
    """Buckets per unit, or 0 (everything in one bucket) where that is not a finite positive number."""
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
    # Padded, so that the search without branches may look past the last edge; no more, to stay in the cache.
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
            # Three steps written out, several times faster than the loop below.
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
def _count(start, stop, block, codes, ranks, index, offsets, weights, weighted, inside):
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
def _density(start, stop, block, codes, ranks, index, offsets, weights, weighted, totals, density, skew):
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
def _scatter(start, stop, block, codes, ranks, grad, index, offsets, weights, weighted, out):
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
    """φ and its derivatives by the value and by the scale, in the dtype of the value."""
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
    """Per feature and bucket, the first bin that reaches into the bucket and one past the last."""
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
    start, stop, block, kind, values, centers, scales, gamma, opens, closes, origin, limit, steps,
    index, offsets, weights, weighted, sums,
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
    start, stop, block, kind, values, centers, scales, gamma, opens, closes, origin, limit, steps,
    grad, index, offsets, weights, weighted,
    grad_values, grad_centers, grad_scales,
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
