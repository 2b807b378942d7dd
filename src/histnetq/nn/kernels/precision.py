"""The number type for sums."""

from __future__ import annotations

import torch

__all__ = ["widest"]


def widest(device: torch.device) -> torch.dtype:
    """float64, or float32 on devices that have nothing wider."""
    return torch.float32 if device.type == "mps" else torch.float64
