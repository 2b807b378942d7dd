"""The sigmoid before the histograms, with reproducible rounding; its inverse; and its derivative."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_CHUNK = 1 << 22  # numbers squashed at a time if the squashed values are not kept
_IN_ONE_THREAD = 1 << 15  # numbers that torch computes in one thread
_VECTORS = 1 << 8  # a number of values that fills whole vector registers


def squashed(rows: Tensor) -> Tensor:
    """Compute the sigmoid such that equal values have equal results, at any position and with any number of threads.

    torch computes the last numbers of an array, or of a thread's part of it, with different instructions.
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
    """Return the smallest float32 whose `squashed` value is at or above each edge; NaN if there is none."""
    return torch.tensor(_search(edges.numpy().tobytes())).view_as(edges)


@lru_cache(maxsize=16)  # the search takes milliseconds, and streams repeat it with the same edges
def _search(numbers: bytes) -> NDArray[np.float32]:
    edges = torch.from_numpy(np.frombuffer(numbers, np.float32).copy())
    # A bisection over the bits of floats, which are in the order of the numbers if negative bits are reversed.
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
    """Multiply a gradient in place by the derivative of the sigmoid at `rows`, in chunks."""
    for part, x in zip(in_parts(grad), in_parts(rows), strict=True):
        value = torch.sigmoid(x)
        part.mul_(value).mul_(value.neg_().add_(1))


def in_parts(rows: Tensor) -> tuple[Tensor, ...]:
    return rows.split(max(1, _CHUNK // max(1, rows.shape[1])))
