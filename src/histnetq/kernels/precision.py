"""Data types of sums and of codes."""

from __future__ import annotations

import torch


def widest(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on devices without float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def code_dtype(n_edges: int) -> torch.dtype:
    """Return the smallest integer type that holds the numbers from 0 to `n_edges`."""
    return torch.uint8 if n_edges < 256 else torch.int16 if n_edges < 1 << 15 else torch.int32
