"""The sigmoid before the histograms: rounded alike wherever a number stands, its inverse, and its slope."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_CHUNK = 1 << 22  # numbers squashed at a time where the squashed values are not kept
_IN_ONE_THREAD = 1 << 15  # numbers that torch does not share out among threads
_VECTORS = 1 << 8  # numbers that fill whole vector registers


def squashed(rows: Tensor) -> Tensor:
    """Compute the sigmoid, which rounds a value alike wherever it stands and whatever the number of threads.

    The last numbers of an array, or of a thread's part of it, would be computed by other instructions than the rest.
    """
    if rows.device.type != "cpu":
        return torch.sigmoid(rows)
    flat = rows.reshape(-1)
    n_whole = flat.numel() // _VECTORS * _VECTORS
    out = torch.empty_like(flat)
    for start in range(0, n_whole, _IN_ONE_THREAD):
        stop = min(start + _IN_ONE_THREAD, n_whole)
        torch.sigmoid(flat[start:stop], out=out[start:stop])
    if n_whole < flat.numel():
        rest = torch.nn.functional.pad(flat[n_whole:], (0, _VECTORS - (flat.numel() - n_whole)))
        out[n_whole:] = torch.sigmoid(rest)[: flat.numel() - n_whole]
    return out.view(rows.shape)


def unsquashed(edges: Tensor) -> Tensor:
    """Find the smallest float32 whose sigmoid, as `squashed` rounds it, is at or above each edge; NaN if none is."""
    return torch.tensor(_search(edges.numpy().tobytes())).view_as(edges)


@lru_cache(maxsize=16)  # takes milliseconds, and streams ask for the same edges again and again
def _search(numbers: bytes) -> NDArray[np.float32]:
    edges = torch.from_numpy(np.frombuffer(numbers, np.float32).copy())
    # Numbers between −∞ and ∞ are halved by their bits, which rise with them if those of negative ones count backwards.
    high = torch.full(edges.shape, torch.inf).view(torch.int32).long()
    low = -high
    for _ in range(32):
        middle = (low + high) >> 1
        reached = squashed(_float_of(middle)) >= edges
        low, high = torch.where(reached, low, middle + 1), torch.where(reached, middle, high)
    return torch.where(edges <= 1, _float_of(high), torch.nan).numpy()


def _float_of(bits: Tensor) -> Tensor:
    return torch.copysign(bits.abs().int().view(torch.float32), bits)


def through_sigmoid(grad: Tensor, rows: Tensor) -> None:
    """Multiply a gradient in place by the slope of the sigmoid at `rows`, some at a time."""
    for part, x in zip(in_parts(grad), in_parts(rows), strict=True):
        value = torch.sigmoid(x)
        part.mul_(value).mul_(value.neg_().add_(1))


def in_parts(rows: Tensor) -> tuple[Tensor, ...]:
    return rows.split(max(1, _CHUNK // max(1, rows.shape[1])))
