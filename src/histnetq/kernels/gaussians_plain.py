"""The kernels of Gaussian likelihoods in plain torch: any device, any dtype, a chunk of entries at a time.

The features of a row are divided into blocks of equal width, and each block has its own Gaussians. Let v be the part of
a row in a block. A Gaussian with the centre μ and the lower triangular factor L of its precision matrix has

    φ(v) = exp(−½ |L (v − μ)|²),

the likelihood of v relative to the likelihood of the centre, between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from histnetq.kernels.plain import Entries, bag_of_entry
from histnetq.kernels.precision import widest

_CHUNK = 1 << 22  # numbers in one temporary


def gaussian_sum(values: Tensor, centers: Tensor, factors: Tensor, entries: Entries) -> Tensor:
    """Weighted sum of φ over the entries of each bag.

    Parameters
    ----------
    values : (n_rows, n_blocks * n_dims)
    centers : (n_blocks, n_gaussians, n_dims)
    factors : (n_blocks, n_gaussians, n_dims, n_dims), lower triangular.

    Returns
    -------
    (n_bags, n_blocks, n_gaussians) of float64.
    """
    index, offsets, weights = entries
    bag, wide = bag_of_entry(offsets), widest(values.device)
    sums = torch.zeros((len(offsets) - 1, *centers.shape[:2]), dtype=wide, device=values.device)
    for part in _chunks(len(index), centers.numel()):
        phi = _phi(values[index[part]], centers, factors)[0].to(wide)
        if weights is not None:
            phi = phi * weights[part][:, None, None]
        sums.index_add_(0, bag[part], phi)
    return sums


def gaussian_grad(
    values: Tensor, centers: Tensor, factors: Tensor, grad: Tensor, entries: Entries
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of values, centres and factors for `grad`, (n_bags, n_blocks, n_gaussians)."""
    index, offsets, weights = entries
    bag, wide = bag_of_entry(offsets), widest(values.device)
    grad_values = torch.zeros_like(values)
    grad_centers = torch.zeros(centers.shape, dtype=wide, device=values.device)
    grad_factors = torch.zeros(factors.shape, dtype=wide, device=values.device)
    for part in _chunks(len(index), centers.numel()):
        phi, gaps, moved = _phi(values[index[part]], centers, factors)
        pull = phi * grad[bag[part]]
        if weights is not None:
            pull = pull * weights[part][:, None, None].to(pull.dtype)
        slopes = pull[..., None] * torch.einsum("nbkj,bkji->nbki", moved, factors)
        grad_values.index_add_(0, index[part], -slopes.sum(2).flatten(1))
        grad_centers += slopes.sum(0, dtype=wide)
        grad_factors -= torch.einsum("nbk,nbkj,nbki->bkji", pull.to(wide), moved.to(wide), gaps.to(wide))
    return grad_values, grad_centers.to(centers.dtype), grad_factors.tril().to(factors.dtype)


def _phi(values: Tensor, centers: Tensor, factors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return φ, (n, n_blocks, n_gaussians), and v − μ and L (v − μ), which have the dimensions of a block last."""
    gaps = values.unflatten(1, (len(centers), 1, -1)) - centers
    moved = torch.einsum("nbki,bkji->nbkj", gaps, factors)
    return torch.exp(-0.5 * moved.square().sum(-1)), gaps, moved


def _chunks(n_entries: int, width: int) -> Iterator[slice]:
    step = max(1, _CHUNK // max(1, width))
    for start in range(0, n_entries, step):
        yield slice(start, min(start + step, n_entries))
