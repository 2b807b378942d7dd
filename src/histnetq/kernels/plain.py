"""The histogram kernels in plain torch, for any device and dtype, without arrays of size rows × features × bins.

Values are ``(n_rows, n_features)``. The four functions that sum over bags take the rows of each bag as `Entries`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from histnetq.kernels.precision import code_dtype, widest

_CHUNK = 1 << 22  # numbers in one temporary


class Entries(NamedTuple):
    """The rows of each bag.

    Parameters
    ----------
    rows : (n_entries,) of int64
        The row of each entry.
    offsets : (n_bags + 1,) of int64
        Bag *i* holds the entries ``offsets[i]`` to ``offsets[i + 1]``.
    weights : (n_entries,) or None
        Counts of int64, or float64 weights; None means that all weights are 1.
    """

    rows: Tensor
    offsets: Tensor
    weights: Tensor | None


class Bins(NamedTuple):
    """Smooth bins.

    Parameters
    ----------
    kind : "soft", "rbf" or "sigmoid"
        Shape of φ.
    centers, scales : (n_features, n_bins)
        The scale is the inverse width for "soft" and "rbf", the half-width for "sigmoid".
    gamma : float
        Steepness of the sides of "sigmoid".
    """

    kind: str
    centers: Tensor
    scales: Tensor
    gamma: float


def bag_of_entry(offsets: Tensor) -> Tensor:
    """Return the bag of each entry, (n_entries,)."""
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
    for part in _entry_chunks(0, *values.shape):
        found = torch.searchsorted(edges, values[part].T.contiguous(), right=True, out_int32=True)
        codes[part] = found.T.to(dtype)
    return codes


def hard_count(codes: Tensor, ranks: Tensor, entries: Entries) -> Tensor:
    """Weight inside each bin of each bag.

    Parameters
    ----------
    codes : (n_rows, n_features), from `hard_codes`.
    ranks : (n_features, 4, n_bins)
        Smallest codes of values that have reached the bin's lower edge, reached its centre, passed its centre, and
        reached its upper edge. A bin is empty if its last rank is not above its first.

    Returns
    -------
    (n_bags, n_features, n_bins) of int64, or float64 with float weights.
    """
    shape, weights = (len(entries.offsets) - 1, ranks.shape[0], ranks.shape[2]), entries.weights
    inside = torch.empty(shape, dtype=torch.int64 if weights is None else weights.dtype, device=codes.device)
    for bags, reached in _weight_reached(codes, ranks, entries):
        inside[bags] = (reached[0] - reached[3]) * (ranks[:, 3] > ranks[:, 0])
    return inside


def hard_density(
    codes: Tensor, ranks: Tensor, entries: Entries, totals: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Fraction of each bag's weight inside each bin, and the fraction right of the centre minus the fraction left.

    Parameters
    ----------
    totals : (n_bags,) of float64
    dtype : torch.dtype
        Type of the result.

    Returns
    -------
    density, skew : (n_bags, n_features, n_bins)
    """
    shape = (len(totals), ranks.shape[0], ranks.shape[2])
    density, skew = (torch.empty(shape, dtype=dtype, device=codes.device) for _ in range(2))
    alive = ranks[:, 3] > ranks[:, 0]
    for bags, reached in _weight_reached(codes, ranks, entries):
        scale = totals[bags, None, None]
        density[bags] = ((reached[0] - reached[3]) * alive / scale).to(dtype)
        skew[bags] = ((reached[2] - reached[3] - reached[0] + reached[1]) * alive).to(dtype)
    return density, skew


def _weight_reached(codes: Tensor, ranks: Tensor, entries: Entries) -> Iterator[tuple[slice, Tensor]]:
    """Yield, for some bags at a time, the weight that has reached each of the 4 ranks: (4, n, n_features, n_bins)."""
    index, offsets, weights = entries
    n_features, _, n_bins = ranks.shape
    n_codes = 4 * n_bins + 1
    dtype = torch.int64 if weights is None else weights.dtype
    column = torch.arange(n_features, device=codes.device) * n_codes
    for bags, parts in _bag_chunks(offsets, n_features, n_codes):
        n = bags.stop - bags.start
        counts = torch.zeros(n * n_features * n_codes, dtype=dtype, device=codes.device)
        for part, bag in parts:
            place = codes[index[part]].long() + column + (bag * n_features * n_codes)[:, None]
            w = place.new_ones(1) if weights is None else weights[part][:, None]
            counts.scatter_add_(0, place.ravel(), w.to(dtype).expand(place.shape).reshape(-1))
        # Weight at or above each code, so that differences are weights between edges.
        above = counts.view(n, n_features, n_codes).flip(-1).cumsum(-1).flip(-1)
        yield bags, torch.stack([above.gather(-1, ranks[:, j].expand(n, -1, -1)) for j in range(4)])


def hard_scatter(codes: Tensor, ranks: Tensor, grad: Tensor, entries: Entries) -> Tensor:
    """Gradient of the values: each bin adds its gradient left of its centre and subtracts it on the right.

    Parameters
    ----------
    grad : (n_bags, n_features, n_bins)

    Returns
    -------
    (n_rows, n_features) of grad's dtype.
    """
    index, offsets, weights = entries
    n_features, _, n_bins = ranks.shape
    n_codes = 4 * n_bins + 1
    out = torch.zeros(codes.shape, dtype=grad.dtype, device=codes.device)
    wide = widest(codes.device)
    alive = (ranks[:, 3] > ranks[:, 0]).to(wide)
    column = torch.arange(n_features, device=codes.device)
    for bags, parts in _bag_chunks(offsets, n_features, n_codes):
        g = grad[bags].to(wide) * alive
        table = torch.zeros((len(g), n_features, n_codes), dtype=wide, device=codes.device)
        for j, sign in enumerate((1.0, -1.0, -1.0, 1.0)):
            table.scatter_add_(-1, ranks[:, j].expand(len(g), -1, -1), sign * g)
        table = table.cumsum(-1).to(grad.dtype)
        for part, bag in parts:
            rows = index[part]
            slope = table[bag[:, None], column, codes[rows].long()]
            if weights is not None:
                slope = slope * weights[part][:, None].to(slope.dtype)
            out.index_add_(0, rows, slope)
    return out


def smooth_sum(bins: Bins, values: Tensor, entries: Entries) -> Tensor:
    """Weighted sum of φ over the entries of each bag, one bin at a time: (n_bags, n_features, n_bins) of float64."""
    kind, centers, scales, gamma = bins
    index, offsets, weights = entries
    wide, bag = widest(values.device), bag_of_entry(offsets)
    sums = torch.zeros((len(offsets) - 1, *centers.shape), dtype=wide, device=values.device)
    for part in _entry_chunks(0, len(index), len(centers)):
        v = values[index[part]]
        for b in range(centers.shape[1]):
            value = _PHI[kind](v, centers[:, b], scales[:, b], gamma)[0].to(wide)
            if weights is not None:
                value *= weights[part][:, None]
            sums[:, :, b].index_add_(0, bag[part], value)
    return sums


def smooth_grad(bins: Bins, values: Tensor, grad: Tensor, entries: Entries) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of values, centres and scales for `grad`, (n_bags, n_features, n_bins)."""
    kind, centers, scales, gamma = bins
    index, offsets, weights = entries
    wide, bag = widest(values.device), bag_of_entry(offsets)
    grad_values = torch.zeros_like(values)
    grad_centers = torch.zeros(centers.shape, dtype=wide, device=values.device)
    grad_scales = torch.zeros_like(grad_centers)
    for part in _entry_chunks(0, len(index), len(centers)):
        v = values[index[part]]
        slope = torch.zeros_like(v)
        for b in range(centers.shape[1]):
            _, by_value, by_scale = _PHI[kind](v, centers[:, b], scales[:, b], gamma)
            g = grad[:, :, b][bag[part]]
            if weights is not None:
                g = g * weights[part][:, None].to(g.dtype)
            pull = g * by_value
            slope += pull
            grad_centers[:, b] -= pull.sum(0, dtype=wide)
            grad_scales[:, b] += (g * by_scale).sum(0, dtype=wide)
        grad_values.index_add_(0, index[part], slope)
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


def _entry_chunks(first: int, last: int, width: int) -> Iterator[slice]:
    step = max(1, _CHUNK // max(1, width))
    for start in range(first, last, step):
        yield slice(start, min(start + step, last))


def _bag_chunks(offsets: Tensor, n_features: int, n_codes: int) -> Iterator[tuple[slice, list[tuple[slice, Tensor]]]]:
    """Yield some bags at a time, and their entries in parts with the position of each entry's bag among these bags."""
    step = max(1, 4 * _CHUNK // max(1, n_features * n_codes))
    for start in range(0, len(offsets) - 1, step):
        bounds = offsets[start : start + step + 1]
        bag, first = bag_of_entry(bounds), int(bounds[0])
        parts = _entry_chunks(first, int(bounds[-1]), n_features)
        yield slice(start, start + len(bounds) - 1), [(p, bag[p.start - first : p.stop - first]) for p in parts]
