"""The paper's equations in plain broadcasting torch with autograd, as the reference of the kernels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["naive_histogram"]


def naive_histogram(kind: str, rows: Tensor, n_bags: int, centers: Tensor, scales: Tensor, gamma: float) -> Tensor:
    """Histograms of equal bags: rows ``(n_bags · n, n_features)`` → ``(n_bags, n_features · n_bins)``."""
    v = torch.sigmoid(rows).view(n_bags, -1, rows.shape[1], 1)
    if kind == "hard":
        phi = _hard(v, centers, scales)
    elif kind == "soft":
        phi = torch.relu(1 - scales * (v - centers).abs())
    elif kind == "rbf":
        phi = torch.exp(-((scales * (v - centers)) ** 2))
    else:
        phi = torch.sigmoid(gamma * (v - centers + scales)) - torch.sigmoid(gamma * (v - centers - scales))
    return phi.mean(1).flatten(1)


def _hard(v: Tensor, centers: Tensor, half_widths: Tensor) -> Tensor:
    """1 inside the bin and 0 outside, with the slope of ``1.01^(w − |v − μ|)`` at the value 1 inside."""
    inside = (v >= centers - half_widths) & (v < centers + half_widths)
    exponent = math.log(1.01) * (half_widths - (v - centers).abs())
    return (1 + exponent - exponent.detach()) * inside
