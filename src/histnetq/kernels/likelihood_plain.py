"""The likelihood kernels in plain torch, for any device and all bags at once.

Names used throughout: `likelihoods`, (n_rows, n_classes), are known up to a factor per row; entries have float64
weights; `prior` is a pseudo-count per class; `totals`, (n_bags,), are the weight of each bag plus its pseudo-counts.
The mean log-likelihood of a bag is ``Σ_i w_i log Σ_c p_c L_ic + prior · Σ_c log p_c`` divided by its total.
"""

from __future__ import annotations

import torch
from torch import Tensor

from histnetq.kernels.plain import Entries, bag_of_entry

_STEPS = 200  # largest number of steps; about twenty are usual
_BOUNDARY = 0.99  # largest fraction of the way to the boundary in one step
_PIECE = 64  # rows multiplied at a time


def maximise(
    likelihoods: Tensor, entries: Entries, totals: Tensor, prior: float, curved: bool
) -> tuple[Tensor, Tensor]:
    """Find the maximum of the mean log-likelihood on the simplex and, with `curved`, its curvature there.

    Returns
    -------
    p : (n_bags, n_classes)
    curvature : (n_bags, n_classes, n_classes), or without bags
        Minus the second derivatives, ``Σ_i w_i L_ic L_id / (L_i · p)²`` plus ``prior / p_c²`` on the diagonal, over the
        total; rows and columns of absent classes are zero.
    """
    rows, shares, bag = _pieces(likelihoods, entries, totals)
    floors = prior / totals[:, None]
    p = _interior(rows, shares, bag, floors)
    if not curved:
        return p, p.new_zeros((0, p.shape[1], p.shape[1]))
    bends = _products(rows * (p > 0)[bag, None] / (rows @ p[bag, :, None]), shares, bag, len(p))
    return p, bends + torch.diag_embed(torch.where(p > 0, floors / p.square(), 0.0))


def _interior(rows: Tensor, shares: Tensor, bag: Tensor, floors: Tensor) -> Tensor:
    """Return the maximum, (n_bags, n_classes), by a primal-dual interior-point method.

    It follows the points p with ``z = 1 − Σ share · L / (L · p)`` and ``p z = μ`` as μ falls to the floor set by the
    prior, updating p and z together by Newton's method. Where the floor is zero, one of them ends there.
    """
    n_bags, n_classes, eps = len(floors), rows.shape[2], torch.finfo(rows.dtype).eps
    p = rows.new_full((n_bags, n_classes), 1 / n_classes)
    z = torch.ones_like(p)
    done = empty = torch.bincount(bag, minlength=n_bags) == 0
    for _ in range(_STEPS):
        ratios = rows / (rows @ p[bag, :, None])
        slopes = _sums((shares[:, None] @ ratios)[:, 0], bag, n_bags)
        gap = (p * z - floors).abs().mean(1, keepdim=True)
        off = (p.sqrt() * (1 - slopes - z)).abs().amax(1)
        done = done | ~((gap[:, 0] > eps**1.15 + 4 * eps * floors[:, 0]) | (off > 8 * eps))
        if bool(done.all()):
            break
        target, root = floors + torch.minimum(0.1 * gap, gap**1.5), p.sqrt()
        # Scaling by √p, and a penalty on the sum of p, which is one anyway, keep the systems far from singular.
        bends = (_products(ratios, shares, bag, n_bags) + 1) * root[:, :, None] * root[:, None, :]
        bends = bends + torch.diag_embed(z.clamp(min=100 * eps))
        step = root * torch.linalg.solve_ex(bends, root * (slopes - 1) + target / root)[0]
        z_step = target / p - z - z * step / p
        moved = p + _reach(p, step) * step
        p = torch.where(done[:, None], p, moved / moved.sum(1, keepdim=True))
        z = torch.where(done[:, None], z, z + _reach(z, z_step) * z_step)
    p = torch.where((floors == 0) & (p < z) & ~empty[:, None], 0.0, p)
    return p / p.sum(1, keepdim=True)


def _reach(x: Tensor, step: Tensor) -> Tensor:
    """Return the fraction of the step, at most 1, that keeps x positive, (n_bags, 1)."""
    limit = torch.where(step < 0, -_BOUNDARY * x / step, 1.0)
    return limit.amin(1, keepdim=True).clamp(max=1.0)


def scatter(
    likelihoods: Tensor, p: Tensor, pull: Tensor, entries: Entries, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Gradients of the log-likelihoods and of the weights.

    Parameters
    ----------
    pull : (n_bags, n_classes), zero for classes that are absent.

    Returns
    -------
    (n_rows, n_classes) of the dtype, ``Σ w r ∘ (pull − r · pull)`` over the entries of each row;
    and (n_entries,), ``r · pull``.
    """
    index, offsets, weights = entries
    bag = bag_of_entry(offsets)
    joint = p[bag] * likelihoods[index].to(p.dtype)
    mixed = joint.sum(1, keepdim=True)
    r = torch.where(mixed == 0, 0.0, joint / mixed)
    means = (r * pull[bag]).sum(1, keepdim=True)
    slopes = r * (pull[bag] - means)
    if weights is not None:
        slopes = torch.where(weights[:, None] > 0, slopes * weights[:, None], 0.0)
    return torch.zeros_like(likelihoods).index_add_(0, index, slopes).to(dtype), means[:, 0]


def _pieces(likelihoods: Tensor, entries: Entries, totals: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Divide the bags into pieces of equal size; the last piece of a bag is padded with rows of weight 0.

    Returns
    -------
    rows : (n_pieces, size, n_classes), shares of the total : (n_pieces, size), bag : (n_pieces,)
    """
    index, offsets, weights = entries
    bag = bag_of_entry(offsets)
    shares = totals.reciprocal()[bag]
    if weights is not None:
        kept = weights > 0  # entries of weight 0 may have any value
        index, bag, shares = index[kept], bag[kept], (shares * weights)[kept]
    counts = torch.bincount(bag, minlength=len(totals))
    size = max(1, min(_PIECE, len(index) // max(1, len(totals))))
    n_pieces = (counts + size - 1) // size
    fill = n_pieces * size - counts
    place = torch.arange(len(index), device=index.device) + (fill.cumsum(0) - fill)[bag]
    total = int(n_pieces.sum())
    rows = shares.new_ones((total * size, likelihoods.shape[1]))
    rows.index_copy_(0, place, likelihoods[index].to(shares.dtype))
    filled = shares.new_zeros(total * size).index_copy_(0, place, shares)
    whole = torch.repeat_interleave(torch.arange(len(totals), device=index.device), n_pieces)
    return rows.view(total, size, likelihoods.shape[1]), filled.view(total, size), whole


def _sums(values: Tensor, bag: Tensor, n_bags: int) -> Tensor:
    return values.new_zeros((n_bags, *values.shape[1:])).index_add_(0, bag, values)


def _products(ratios: Tensor, shares: Tensor, bag: Tensor, n_bags: int) -> Tensor:
    """Return the sums of the products of classes, (n_bags, n_classes, n_classes)."""
    return _sums(ratios.mT @ (ratios * shares[:, :, None]), bag, n_bags)
