"""The histogram kernels in plain torch: any device, any dtype, nothing of size rows × features × bins.

Names used throughout: values ``(n_rows, n_features)``; entry *e* of a bag is row ``index[e]``; bag *i* holds the
entries ``offsets[i]`` to ``offsets[i + 1]``; weights ``(n_entries,)`` are int64 counts, float64, or None for ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from histnetq.kernels.precision import code_dtype, widest

__all__ = ["bag_of_entry", "hard_codes", "hard_count", "hard_density", "hard_scatter", "smooth_grad", "smooth_sum"]

_CHUNK = 1 << 22  # numbers in one temporary


def bag_of_entry(offsets: Tensor) -> Tensor:
    """(n_entries,): the bag of each entry."""
    return torch.repeat_interleave(torch.arange(len(offsets) - 1, device=offsets.device), offsets.diff())


def hard_codes(values: Tensor, edges: Tensor) -> Tensor:
    """Number of edges at or below each value.

    Parameters
    ----------
    values : (n_rows, n_features)
    edges : (n_features, n_edges), sorted along the last axis.

    Returns
    -------
    (n_rows, n_features) of the smallest integer type that holds ``n_edges``.
    """
    n_edges = edges.shape[1]
    dtype = code_dtype(n_edges)
    codes = torch.empty(values.shape, dtype=dtype, device=values.device)
    for part in _row_chunks(values):
        found = torch.searchsorted(edges, values[part].T.contiguous(), right=True, out_int32=True)
        codes[part] = found.T.to(dtype)
    return codes


def hard_count(codes: Tensor, ranks: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
    """Weight inside each bin of each bag.

    Parameters
    ----------
    codes : (n_rows, n_features), from `hard_codes`.
    ranks : (n_features, 4, n_bins)
        Codes from which on a value has reached the bin's lower edge, its centre, passed its centre, reached its
        upper edge. A bin whose upper rank is not above its lower one is empty.

    Returns
    -------
    (n_bags, n_features, n_bins) of int64, or float64 with float weights.
    """
    shape = (len(offsets) - 1, ranks.shape[0], ranks.shape[2])
    inside = torch.empty(shape, dtype=torch.int64 if weights is None else weights.dtype, device=codes.device)
    for bags, reached in _weight_reached(codes, ranks, index, offsets, weights):
        inside[bags] = (reached[0] - reached[3]) * (ranks[:, 3] > ranks[:, 0])
    return inside


def hard_density(
    codes: Tensor, ranks: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None, totals: Tensor, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Part of each bag's total weight inside each bin, and the weight right of the centre minus that left of it.

    Parameters
    ----------
    totals : (n_bags,) of float64
    like : a tensor of the result's dtype

    Returns
    -------
    density, skew : (n_bags, n_features, n_bins)
    """
    shape = (len(offsets) - 1, ranks.shape[0], ranks.shape[2])
    density, skew = like.new_empty(shape), like.new_empty(shape)
    alive = ranks[:, 3] > ranks[:, 0]
    for bags, reached in _weight_reached(codes, ranks, index, offsets, weights):
        scale = totals[bags, None, None]
        density[bags] = ((reached[0] - reached[3]) * alive / scale).to(like.dtype)
        skew[bags] = ((reached[2] - reached[3] - reached[0] + reached[1]) * alive).to(like.dtype)
    return density, skew


def _weight_reached(
    codes: Tensor, ranks: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None
) -> Iterator[tuple[slice, Tensor]]:
    """Some bags at a time, the weight that has reached each of the four ranks: (4, n, n_features, n_bins)."""
    n_features, _, n_bins = ranks.shape
    n_codes = 4 * n_bins + 1
    dtype = torch.int64 if weights is None else weights.dtype
    column = torch.arange(n_features, device=codes.device) * n_codes
    for bags in _bag_chunks(offsets, n_features * n_codes):
        first, last = int(offsets[bags.start]), int(offsets[bags.stop])
        n = bags.stop - bags.start
        counts = torch.zeros(n * n_features * n_codes, dtype=dtype, device=codes.device)
        bag = bag_of_entry(offsets[bags.start : bags.stop + 1])
        for part in _entry_chunks(first, last, n_features):
            local = bag[part.start - first : part.stop - first]
            place = codes[index[part]].long() + column + (local * n_features * n_codes)[:, None]
            w = place.new_ones(1) if weights is None else weights[part][:, None]
            counts.scatter_add_(0, place.ravel(), w.to(dtype).expand(place.shape).reshape(-1))
        # Weight at or above each code, so that differences of two are weights between edges.
        above = counts.view(n, n_features, n_codes).flip(-1).cumsum(-1).flip(-1)
        yield bags, torch.stack([above.gather(-1, ranks[:, j].expand(n, -1, -1)) for j in range(4)])


def hard_scatter(
    codes: Tensor, ranks: Tensor, grad: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None
) -> Tensor:
    """Gradient of the values: each bin adds its gradient left of its centre and subtracts it on the right.

    Parameters
    ----------
    grad : (n_bags, n_features, n_bins)

    Returns
    -------
    (n_rows, n_features) of grad's dtype.
    """
    n_features, _, n_bins = ranks.shape
    n_codes = 4 * n_bins + 1
    out = torch.zeros(codes.shape, dtype=grad.dtype, device=codes.device)
    wide = widest(codes.device)
    alive = (ranks[:, 3] > ranks[:, 0]).to(wide)
    for bags in _bag_chunks(offsets, n_features * n_codes):
        g = grad[bags].to(wide) * alive
        table = torch.zeros((len(g), n_features, n_codes), dtype=wide, device=codes.device)
        for j, sign in enumerate((1.0, -1.0, -1.0, 1.0)):
            table.scatter_add_(-1, ranks[:, j].expand(len(g), -1, -1), sign * g)
        table = table.cumsum(-1).to(grad.dtype)
        first, last = int(offsets[bags.start]), int(offsets[bags.stop])
        bag = bag_of_entry(offsets[bags.start : bags.stop + 1])
        for part in _entry_chunks(first, last, n_features):
            rows = index[part]
            code = codes[rows].long()
            local = bag[part.start - first : part.stop - first, None]
            slope = table[local, torch.arange(n_features, device=codes.device), code]
            if weights is not None:
                slope = slope * weights[part][:, None].to(slope.dtype)
            out.index_add_(0, rows, slope)
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
    """Weighted sum of φ over the entries of each bag, one bin at a time.

    Parameters
    ----------
    kind : "soft", "rbf" or "sigmoid"
    centers, scales : (n_features, n_bins)
        The scale is the inverse width for "soft" and "rbf", the half-width for "sigmoid".

    Returns
    -------
    (n_bags, n_features, n_bins) of float64.
    """
    n_features, n_bins = centers.shape
    wide = widest(values.device)
    sums = torch.zeros((len(offsets) - 1, n_features, n_bins), dtype=wide, device=values.device)
    bag = bag_of_entry(offsets)
    phi = _PHI[kind]
    for part in _entry_chunks(0, len(index), n_features):
        v = values[index[part]]
        for b in range(n_bins):
            value = phi(v, centers[:, b], scales[:, b], gamma)[0].to(wide)
            if weights is not None:
                value *= weights[part][:, None]
            sums[:, :, b].index_add_(0, bag[part], value)
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
    """Gradients of values, centres and scales for `grad` ``(n_bags, n_features, n_bins)``; φ is recomputed."""
    n_features, n_bins = centers.shape
    grad_values = torch.zeros_like(values)
    wide = widest(values.device)
    grad_centers = torch.zeros(centers.shape, dtype=wide, device=values.device)
    grad_scales = torch.zeros_like(grad_centers)
    bag = bag_of_entry(offsets)
    phi = _PHI[kind]
    for part in _entry_chunks(0, len(index), n_features):
        rows = index[part]
        v = values[rows]
        slope = torch.zeros_like(v)
        for b in range(n_bins):
            _, by_value, by_scale = phi(v, centers[:, b], scales[:, b], gamma)
            g = grad[:, :, b][bag[part]]
            if weights is not None:
                g = g * weights[part][:, None].to(g.dtype)
            pull = g * by_value
            slope += pull
            grad_centers[:, b] -= pull.sum(0, dtype=wide)
            grad_scales[:, b] += (g * by_scale).sum(0, dtype=wide)
        grad_values.index_add_(0, rows, slope)
    return grad_values, grad_centers.to(centers.dtype), grad_scales.to(scales.dtype)


Phi = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]


def _soft(v: Tensor, center: Tensor, scale: Tensor, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
    gap = v - center
    value = 1 - scale * gap.abs()
    gap = torch.where(value > 0, gap, 0.0)
    return value.clamp(min=0), -scale * gap.sign(), -gap.abs()


def _rbf(v: Tensor, center: Tensor, scale: Tensor, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
    gap = v - center
    value = torch.exp(-((scale * gap) ** 2))
    gap = torch.where(value > 0, gap, 0.0)  # a gap whose square overflows would make 0 · ∞ of the slopes
    return value, -2 * scale**2 * gap * value, -2 * scale * gap**2 * value


def _sigmoid(v: Tensor, center: Tensor, scale: Tensor, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
    low = torch.sigmoid(gamma * (v - center + scale))
    high = torch.sigmoid(gamma * (v - center - scale))
    low_slope, high_slope = gamma * low * (1 - low), gamma * high * (1 - high)
    return low - high, low_slope - high_slope, low_slope + high_slope


_PHI: dict[str, Phi] = {"soft": _soft, "rbf": _rbf, "sigmoid": _sigmoid}


def _row_chunks(values: Tensor) -> Iterator[slice]:
    return _entry_chunks(0, len(values), values.shape[1])


def _entry_chunks(first: int, last: int, width: int) -> Iterator[slice]:
    step = max(1, _CHUNK // max(1, width))
    for start in range(first, last, step):
        yield slice(start, min(start + step, last))


def _bag_chunks(offsets: Tensor, width: int) -> Iterator[slice]:
    step = max(1, math.floor(4 * _CHUNK / max(1, width)))
    for start in range(0, len(offsets) - 1, step):
        yield slice(start, min(start + step, len(offsets) - 1))
