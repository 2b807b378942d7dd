"""Pooling by mean likelihoods of the rows of a bag under learned Gaussians.

The features of a row are divided into blocks of equal width. Every block has its own Gaussians, with learned centres
and covariances. A bag is described by the mean likelihood of its rows under each Gaussian. Means of parts of a bag can
be merged, and a mixture of classes has the corresponding mixture of their means.

References
----------
Pérez-Mon, del Coz & González, *GMNet*, a network for quantification by Gaussian layers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from histnetq.kernels import backend
from histnetq.kernels.plain import Entries
from histnetq.nn.pooling import MergeablePooling, PoolingState, bag_totals
from histnetq.nn.squashing import squashed, through_sigmoid

_FAMILY = "gaussians_"
_NARROWEST = 1e-3  # smallest standard deviation of a feature when Gaussians are placed


class Gaussians(MergeablePooling):
    """Mean likelihood of a bag's rows under the Gaussians of each block of features.

    A sigmoid squashes the features to (0, 1). A Gaussian has a centre μ and a factor L of its precision matrix, which
    is lower triangular with a positive diagonal. The likelihood of the block v of a row, relative to the likelihood at
    the centre, is ``φ(v) = exp(−½ |L (v − μ)|²)``.

    Parameters
    ----------
    n_features : int
        Number of features of a row, a multiple of `n_blocks`.
    n_blocks : int, default 1
        Number of blocks that the features are divided into.
    n_gaussians : int, default 16
        Number of Gaussians of each block.

    Examples
    --------
    >>> layer = Gaussians(n_features=4, n_blocks=2, n_gaussians=3)
    >>> layer(torch.zeros(5, 4), offsets=torch.tensor([0, 2, 5])).shape
    torch.Size([2, 6])
    """

    def __init__(self, n_features: int, n_blocks: int = 1, n_gaussians: int = 16) -> None:
        for name, number in (("n_blocks", n_blocks), ("n_gaussians", n_gaussians)):
            if not hasattr(number, "__index__") or number < 1:
                raise ValueError(f"{name}: expected a whole number of at least 1, got {number!r}.")
        if n_features % n_blocks:
            raise ValueError(f"n_features: expected a multiple of n_blocks={n_blocks}, got {n_features}.")
        super().__init__(n_features, n_blocks * n_gaussians)
        self.n_blocks, self.n_gaussians = n_blocks, n_gaussians
        n_dims = n_features // n_blocks
        self.centers = nn.Parameter(torch.rand(n_blocks, n_gaussians, n_dims))
        # The width is about the distance between neighbours among n_gaussians points in a cube.
        scale = 2 * n_gaussians ** (1 / n_dims)
        self.log_scales = nn.Parameter(torch.full((n_blocks, n_gaussians, n_dims), math.log(scale)))
        self.slants = nn.Parameter(torch.zeros(n_blocks, n_gaussians, n_dims * (n_dims - 1) // 2))

    def factors(self) -> Tensor:
        """Return the current factors of the precision matrices.

        Returns
        -------
        Tensor of shape (n_blocks, n_gaussians, n_dims, n_dims)
            Lower triangular matrices L; ``Lᵀ L`` is the inverse of a covariance.

        Examples
        --------
        >>> Gaussians(1, n_gaussians=1).factors().tolist()
        [[[[2.0]]]]
        """
        n_dims = self.centers.shape[2]
        shape = torch.eye(n_dims, dtype=self.slants.dtype, device=self.slants.device)
        shape = shape.expand(*self.slants.shape[:2], n_dims, n_dims).clone()
        row, column = torch.tril_indices(n_dims, n_dims, -1, device=self.slants.device)
        shape[:, :, row, column] = self.slants
        return self.log_scales.exp()[..., None] * shape

    @torch.no_grad()
    def place(self, rows: Tensor, generator: torch.Generator) -> None:
        """Place the Gaussians at randomly drawn rows, with the widths of a kernel density estimate.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n_features)
            Features of rows, at least one.
        generator : torch.Generator
            Source of the draws.

        Examples
        --------
        >>> layer = Gaussians(1, n_gaussians=2)
        >>> layer.place(torch.zeros(5, 1), torch.Generator().manual_seed(0))
        >>> layer.centers.tolist()
        [[[0.5], [0.5]]]
        """
        values = squashed(rows).unflatten(1, (self.n_blocks, -1))
        n_rows, n_dims = len(values), values.shape[2]
        for block in range(self.n_blocks):
            n_copies = -(-self.n_gaussians // n_rows)
            order = torch.cat([torch.randperm(n_rows, generator=generator) for _ in range(n_copies)])
            self.centers[block] = values[order[: self.n_gaussians].to(values.device), block]
        width = self.n_gaussians ** (-1 / (n_dims + 4)) * values.std(0, correction=0).clamp(min=_NARROWEST)
        self.log_scales.copy_(-width.log()[:, None].expand_as(self.log_scales))
        self.slants.zero_()

    def pool(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        return _Function.apply(rows, self.centers, self.factors(), Entries(index, offsets, weights))

    def _values(self, rows: Tensor, entries: Entries) -> Tensor:
        centers, factors = self.centers.detach(), self.factors().detach()
        return backend(rows, _FAMILY).gaussian_sum(squashed(rows), centers, factors, entries)

    def finish(self, state: PoolingState) -> Tensor:
        return (state.values / state.totals[:, None, None]).flatten(1)

    def extra_repr(self) -> str:
        """Describe the layer's parameters.

        Returns
        -------
        str
            Text between the parentheses when the layer is printed.
        """
        return f"n_features={self.n_features}, n_blocks={self.n_blocks}, n_gaussians={self.n_gaussians}"


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, centers: Tensor, factors: Tensor, entries: Entries) -> Tensor:
        values = squashed(rows)
        sums = backend(rows, _FAMILY).gaussian_sum(values, centers, factors, entries)
        totals = bag_totals(entries.offsets, entries.weights)[:, None, None]
        ctx.save_for_backward(rows, values, centers, factors, totals, *entries)
        return (sums / totals).to(rows.dtype).flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, values, centers, factors, totals, *entries = ctx.saved_tensors
        per_entry = grads[0].view(-1, *centers.shape[:2]) / totals.to(rows.dtype)
        found = backend(rows, _FAMILY).gaussian_grad(values, centers, factors, per_entry, Entries(*entries))
        through_sigmoid(found[0], rows)
        return *found, None
