"""Differentiable histograms of every feature over the rows of a bag, normalised to densities.

All four layers map ``(n_rows, n_features)`` to ``(n_bags, n_features · n_bins)``, with the bins of a feature side by
side. By default, a sigmoid first squashes the features to (0, 1), and the initial bins are a partition of this range.

References
----------
Pérez-Mon, Moreo, del Coz & González, *Quantification using permutation-invariant networks based on histograms*,
section 4 and appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from histnetq.kernels import backend
from histnetq.kernels.plain import Bins, Entries
from histnetq.nn.pooling import MergeablePooling, PoolingState, bag_totals
from histnetq.nn.squashing import in_parts, squashed, through_sigmoid, unsquashed

_LN = math.log(1.01)
_SUMMED = 1 << 18  # numbers in the histograms of bags that are summed at a time in double precision


class Histogram(MergeablePooling):
    """Base of the histogram layers.

    Parameters
    ----------
    n_features : int
        Number of features of a row.
    n_bins : int, default 32
        Number of bins of each feature.
    squash : "sigmoid" or None, default "sigmoid"
        Function that maps features to (0, 1); None if the features are already in this range.
    """

    def __init__(self, n_features: int, n_bins: int = 32, squash: str | None = "sigmoid") -> None:
        if not hasattr(n_bins, "__index__") or n_bins < 1:
            raise ValueError(f"n_bins: expected a whole number of at least 1, got {n_bins!r}.")
        if squash not in ("sigmoid", None):
            raise ValueError(f"squash: expected 'sigmoid' or None, got {squash!r}.")
        super().__init__(n_features, n_features * n_bins)
        self.n_bins = n_bins
        self.squash = squash

    def finish(self, state: PoolingState) -> Tensor:
        return (state.values / state.totals[:, None, None]).flatten(1)

    def bins(self) -> tuple[Tensor, Tensor]:
        """Return the current bins.

        Returns
        -------
        centers : Tensor of shape (n_features, n_bins)
            Centre of each bin.
        scales : Tensor of shape (n_features, n_bins)
            Half-widths of hard and sigmoid bins, inverse widths of soft and RBF bins.

        Examples
        --------
        >>> centers, half_widths = HardHistogram(1, n_bins=2).bins()
        >>> centers.tolist(), half_widths.tolist()
        ([[0.25, 0.75]], [[0.25, 0.25]])
        """
        raise NotImplementedError

    def of_rows(self, rows: Tensor) -> Callable[..., Tensor]:
        """Return a function that computes histograms of bags of these rows; work per row is done once, if possible.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n_features)
            Features of all rows.

        Returns
        -------
        callable
            ``offsets, index, weights=None → (n_bags, n_features * n_bins)``, without gradients.

        Examples
        --------
        >>> pool = HardHistogram(1, n_bins=2, squash=None).of_rows(torch.tensor([[0.1], [0.7]]))
        >>> pool(torch.tensor([0, 2]), torch.tensor([1, 1])).tolist()
        [[0.0, 1.0]]
        """

        @torch.no_grad()
        def pool(offsets: Tensor, index: Tensor, weights: Tensor | None = None) -> Tensor:
            used, place = index.unique(return_inverse=True)
            return self(rows[used], offsets, weights, place)

        return pool

    def extra_repr(self) -> str:
        """Describe the layer's parameters.

        Returns
        -------
        str
            Text between the parentheses when the layer is printed.
        """
        return f"n_features={self.n_features}, n_bins={self.n_bins}, squash={self.squash!r}"

    def _initial_centers(self) -> Tensor:
        return ((torch.arange(self.n_bins) + 0.5) / self.n_bins).repeat(self.n_features, 1)


class HardHistogram(Histogram):
    """Hard bins with learnable centres and half-widths: a value counts 1 where it falls and 0 elsewhere.

    A value *v* is in a bin with centre μ and half-width *w* iff ``fl(μ − w) ≤ v < fl(μ + w)``; bins may overlap, leave
    gaps or be empty. A step has no useful derivative, so the backward pass uses the derivative of ``1.01^(w − |v −
    μ|)`` with the power taken as 1: ``±ln 1.01`` for *v* and μ, and ``ln 1.01`` for *w*, inside the bin; 0 outside.

    Parameters
    ----------
    n_features : int
        Number of features of a row.
    n_bins : int, default 32
        Number of bins of each feature.
    squash : "sigmoid" or None, default "sigmoid"
        Function that maps features to (0, 1); None if the features are already in this range.
    overlap : float, default 0
        Added to the initial half-width ``1 / (2 · n_bins)``; 0.001 reproduces the paper's code, whose bins overlap.

    Examples
    --------
    >>> layer = HardHistogram(n_features=1, n_bins=2, squash=None)
    >>> layer(torch.tensor([[0.1], [0.2], [0.7]]), offsets=torch.tensor([0, 2, 3])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, n_features: int, n_bins: int = 32, squash: str | None = "sigmoid", overlap: float = 0.0) -> None:
        super().__init__(n_features, n_bins, squash)
        # Edges are on a coarse grid, so that centre ± half-width is exact and neighbouring bins share an edge.
        edges = (torch.arange(n_bins + 1) * (2.0**22 / n_bins)).round() / 2.0**22
        self.centers = nn.Parameter(((edges[1:] + edges[:-1]) / 2).repeat(n_features, 1))
        self.half_widths = nn.Parameter((edges.diff() / 2 + overlap).repeat(n_features, 1))

    def bins(self) -> tuple[Tensor, Tensor]:
        return self.centers, self.half_widths

    def pool(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        entries = Entries(index, offsets, weights)
        return _HardFunction.apply(rows, self.centers, self.half_widths, entries, self.squash is not None)

    def of_rows(self, rows: Tensor) -> Callable[..., Tensor]:
        edges, ranks = hard_edges(self.centers.detach(), self.half_widths.detach())
        codes = _codes(rows, edges, self.squash is not None)

        def pool(offsets: Tensor, index: Tensor, weights: Tensor | None = None) -> Tensor:
            counts = backend(rows).hard_count(codes, ranks, Entries(index, offsets, weights))
            return self.finish(PoolingState(counts, bag_totals(offsets, weights))).to(rows.dtype)

        return pool

    def _values(self, rows: Tensor, entries: Entries) -> Tensor:
        edges, ranks = hard_edges(self.centers.detach(), self.half_widths.detach())
        codes = _codes(rows, edges, self.squash is not None)
        return backend(rows).hard_count(codes, ranks, entries)


class SmoothHistogram(Histogram):
    """Base of the layers with smooth bins, where a value may count in several bins."""

    kind: str
    gamma = 1.0

    def pool(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        (centers, scales), entries = self.bins(), Entries(index, offsets, weights)
        bins = Bins(self.kind, centers.detach(), scales.detach(), self.gamma)
        return _SmoothFunction.apply(rows, centers, scales, bins, entries, self.squash is not None)

    def _values(self, rows: Tensor, entries: Entries) -> Tensor:
        centers, scales = (t.detach() for t in self.bins())
        values = squashed(rows) if self.squash else rows
        return backend(rows).smooth_sum(Bins(self.kind, centers, scales, self.gamma), values, entries)


class _LearnedWidth(SmoothHistogram):
    """Base of layers with learnable centres and inverse widths, whose logarithm is learned to keep them positive."""

    initial_scale: float  # inverse width of a bin before training, times the number of bins

    def __init__(self, n_features: int, n_bins: int = 32, squash: str | None = "sigmoid") -> None:
        super().__init__(n_features, n_bins, squash)
        self.centers = nn.Parameter(self._initial_centers())
        self.log_inverse_widths = nn.Parameter(torch.full((n_features, n_bins), math.log(self.initial_scale * n_bins)))

    def bins(self) -> tuple[Tensor, Tensor]:
        return self.centers, self.log_inverse_widths.exp()


class SoftHistogram(_LearnedWidth):
    """Triangular bins, ``φ(v) = max(0, 1 − |v − μ| / w)``, which start with ``w = 1 / n_bins`` and so sum to one.

    Parameters
    ----------
    n_features : int
        Number of features of a row.
    n_bins : int, default 32
        Number of bins of each feature.
    squash : "sigmoid" or None, default "sigmoid"
        Function that maps features to (0, 1); None if the features are already in this range.

    Examples
    --------
    >>> layer = SoftHistogram(n_features=1, n_bins=2, squash=None)
    >>> layer(torch.tensor([[0.25], [0.5]]), offsets=torch.tensor([0, 1, 2])).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """

    kind = "soft"
    initial_scale = 1.0


class RBFHistogram(_LearnedWidth):
    """Gaussian bins, ``φ(v) = exp(−((v − μ) / w)²)``, which start with ``w = 1 / (2 · n_bins)``.

    Parameters
    ----------
    n_features : int
        Number of features of a row.
    n_bins : int, default 32
        Number of bins of each feature.
    squash : "sigmoid" or None, default "sigmoid"
        Function that maps features to (0, 1); None if the features are already in this range.

    Examples
    --------
    >>> layer = RBFHistogram(n_features=1, n_bins=2, squash=None)
    >>> layer(torch.tensor([[0.25], [0.5]]), offsets=torch.tensor([0, 1, 2]))
    tensor([[1.0000, 0.0183],
            [0.3679, 0.3679]], grad_fn=<...>)
    """

    kind = "rbf"
    initial_scale = 2.0


class SigmoidHistogram(SmoothHistogram):
    """Fixed bins with steep sides, ``φ(v) = σ(γ(v − μ + w/2)) − σ(γ(v − μ − w/2))`` with full width ``w = 1 / n_bins``.

    Parameters
    ----------
    n_features : int
        Number of features of a row.
    n_bins : int, default 32
        Number of bins of each feature.
    squash : "sigmoid" or None, default "sigmoid"
        Function that maps features to (0, 1); None if the features are already in this range.
    gamma : float, default 1000
        Steepness of the sides.

    Examples
    --------
    >>> layer = SigmoidHistogram(n_features=1, n_bins=2, squash=None)
    >>> layer(torch.tensor([[0.25], [0.5]]), offsets=torch.tensor([0, 1, 2])).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """

    kind = "sigmoid"

    def __init__(
        self, n_features: int, n_bins: int = 32, squash: str | None = "sigmoid", gamma: float = 1000.0
    ) -> None:
        super().__init__(n_features, n_bins, squash)
        if not gamma > 0:
            raise ValueError(f"gamma: expected a positive number, got {gamma!r}.")
        self.gamma = gamma
        self.register_buffer("centers", self._initial_centers())
        self.register_buffer("half_widths", torch.full((n_features, n_bins), 0.5 / n_bins))

    def bins(self) -> tuple[Tensor, Tensor]:
        return self.get_buffer("centers"), self.get_buffer("half_widths")


def hard_edges(centers: Tensor, half_widths: Tensor) -> tuple[Tensor, Tensor]:
    """Sort the edges of all bins of each feature, and find the rank of each bin's edges.

    A bin has four edges: its start, its centre, the next number after its centre (a value exactly at the centre has no
    gradient), and its end.

    Returns
    -------
    edges : (n_features, 4 · n_bins), sorted.
    ranks : (n_features, 4, n_bins) of int64
        A value has reached an edge iff the number of edges at or below the value is at least the edge's rank.
    """
    low, high = centers - half_widths, centers + half_widths
    past = torch.nextafter(centers, torch.full_like(centers, torch.inf))
    return _ranked(torch.stack([low, torch.minimum(centers, high), torch.minimum(past, high), high], dim=1))


def hard_thresholds(layer: HardHistogram) -> tuple[Tensor, Tensor]:
    """Return the float32 values, before the sigmoid, at which features enter and leave the bins of a layer.

    Returns
    -------
    thresholds : (n_features, 2 · n_bins), sorted; NaN, at the end, for an edge that no value reaches.
    ranks : (n_features, 4, n_bins) of int64
        Ranks for `hard_count`: a feature has entered a bin iff the number of thresholds at or below the feature is at
        least the first or second rank, and left it iff this number is at least the third or fourth rank.
    """
    centers, half_widths = (t.detach() for t in layer.bins())
    edges, ranks = _ranked(torch.stack([centers - half_widths, centers + half_widths], dim=1))
    return unsquashed(edges) if layer.squash else edges, ranks.repeat_interleave(2, dim=1)


def _ranked(edges: Tensor) -> tuple[Tensor, Tensor]:
    """Sort the edges of each feature, (n_features, n, n_bins) → (n_features, n · n_bins), and return their ranks."""
    flat = edges.flatten(1)
    ordered = flat.sort(dim=1).values
    return ordered, torch.searchsorted(ordered, flat, right=True).view_as(edges)


class _HardFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, centers: Tensor, half_widths: Tensor, entries: Entries, squash: bool) -> Tensor:
        edges, ranks = hard_edges(centers, half_widths)
        codes = _codes(rows, edges, squash)
        totals = bag_totals(entries.offsets, entries.weights)
        density, skew = backend(rows).hard_density(codes, ranks, entries, totals, rows.dtype)
        ctx.save_for_backward(rows if squash else None, codes, ranks, density, skew, totals, *entries)
        return density.flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, codes, ranks, density, skew, totals, *entries = ctx.saved_tensors
        grad = grads[0].view_as(density)
        grad_rows = None
        if ctx.needs_input_grad[0]:
            per_entry = grad * _LN / totals.to(grad.dtype)[:, None, None]
            grad_rows = backend(grad).hard_scatter(codes, ranks, per_entry, Entries(*entries))
            if rows is not None:
                through_sigmoid(grad_rows, rows)
        weights = entries[2]
        whole = weights is None or not weights.is_floating_point()
        return grad_rows, *_bin_gradients(grad, density, skew, totals, whole), None, None


def _bin_gradients(grad: Tensor, density: Tensor, skew: Tensor, totals: Tensor, whole: bool) -> tuple[Tensor, Tensor]:
    """Return the gradients of centres and half-widths: sums over bags of the gradient times `skew` and times `density`.

    The terms of the bags may nearly cancel, so they are converted back to counts and summed in double precision.
    """
    sums = torch.zeros((2, *grad.shape[1:]), dtype=totals.dtype, device=grad.device)
    step = max(1, _SUMMED // max(1, grad[0].numel()))
    for start in range(0, len(grad), step):
        part = slice(start, start + step)
        scale = totals[part, None, None]
        inside = density[part] * scale
        pull = _LN * grad[part].to(totals.dtype) / scale
        sums[0] += (pull * skew[part]).sum(0)
        sums[1] += (pull * (inside.round() if whole else inside)).sum(0)
    return sums[0].to(grad.dtype), sums[1].to(grad.dtype)


class _SmoothFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, centers: Tensor, scales: Tensor, bins: Bins, entries: Entries, squash: bool
    ) -> Tensor:
        sums = backend(rows).smooth_sum(bins, squashed(rows) if squash else rows, entries)
        totals = bag_totals(entries.offsets, entries.weights)[:, None, None]
        ctx.bins, ctx.squash = bins, squash
        ctx.save_for_backward(rows, totals, *entries)
        return (sums / totals).to(rows.dtype).flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, totals, *entries = ctx.saved_tensors
        per_entry = grads[0].view(-1, *ctx.bins.centers.shape) / totals.to(rows.dtype)
        values = torch.sigmoid(rows) if ctx.squash else rows
        found: tuple[Tensor, ...] = backend(rows).smooth_grad(ctx.bins, values, per_entry, Entries(*entries))
        if ctx.squash:
            through_sigmoid(found[0], rows)
        return *found, None, None, None


def _codes(rows: Tensor, edges: Tensor, squash: bool) -> Tensor:
    """Squash the rows in chunks and encode them by `hard_codes`."""
    encode = backend(rows).hard_codes
    parts = [encode(squashed(part), edges) for part in in_parts(rows)] if squash else [encode(rows, edges)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class Cumulative(nn.Module):
    """A layer that maps histograms to their cumulative sums minus the cumulative sums of a flat histogram.

    They contain the same information, but a shift of a feature changes many cumulative sums in one direction, while it
    changes single bins up and down. A head therefore learns from them in fewer steps.

    Parameters
    ----------
    n_bins : int
        Number of bins of each feature.

    Examples
    --------
    >>> Cumulative(4)(torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 1.0]])).tolist()
    [[0.75, 0.5, 0.25, 0.0, -0.25, -0.5, -0.75, 0.0]]
    """

    def __init__(self, n_bins: int) -> None:
        super().__init__()
        self.n_bins = n_bins

    def forward(self, histograms: Tensor) -> Tensor:
        """Compute the cumulative sums of each feature's bins.

        Parameters
        ----------
        histograms : Tensor of shape (n_bags, n_features * n_bins)
            Densities, the bins of a feature side by side.

        Returns
        -------
        Tensor of shape (n_bags, n_features * n_bins)
            Cumulative sums minus the cumulative sums of a flat histogram.
        """
        sums = histograms.unflatten(-1, (-1, self.n_bins)).cumsum(-1)
        flat = torch.arange(1, self.n_bins + 1, dtype=sums.dtype, device=sums.device) / self.n_bins
        return (sums - flat).flatten(-2)
