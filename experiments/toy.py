"""Can a histogram stand in for the mean, median and maximum? A small network learns each of them.

A histogram layer of 64 bins on one feature, dense layers of 32 and 16 units and one output learn a statistic of
vectors of 100 values, uniform between 0 and a random maximum in [0, 1]. The layer does not squash: values lie in
[0, 1] already.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from histnetq.nn import MLP, HardHistogram, RBFHistogram, SigmoidHistogram, SoftHistogram

__all__ = ["PAPER", "run_toy"]

PAPER = {"mean": 0.0055, "median": 0.0090, "max": 0.0219}

_LAYERS: dict[str, type] = {
    "hard": HardHistogram, "soft": SoftHistogram, "rbf": RBFHistogram, "sigmoid": SigmoidHistogram,
}  # fmt: skip
_STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda v: v.mean(1),
    "median": lambda v: v.median(1).values,
    "max": lambda v: v.amax(1),
}
_LENGTH, _BATCH, _TEST, _LR = 100, 100, 10_000, 2e-3


def run_toy(statistic: str, bins: str, bin_lr: float, steps: int, seed: int) -> dict[str, str | int | float]:
    """Train on fresh vectors and measure the mean absolute error on 10,000 others.

    Parameters
    ----------
    bin_lr : float
        Learning rate of the bins as a multiple of the learning rate of the dense layers.
    """
    began = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        histogram, head = _LAYERS[bins](1, 64, squash=None), MLP(64, (32, 16, 1))
    groups: list[dict[str, Any]] = [{"params": head.parameters()}]
    if bin_lr and list(histogram.parameters()):
        groups.append({"params": histogram.parameters(), "lr": _LR * bin_lr})
    optimizer = torch.optim.AdamW(groups, lr=_LR, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def error(vectors: Tensor) -> Tensor:
        offsets = torch.arange(len(vectors) + 1) * _LENGTH
        estimate = head(histogram(vectors.reshape(-1, 1), offsets)).squeeze(1)
        return (estimate - _STATISTICS[statistic](vectors)).abs().mean()

    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        error(_draw(_BATCH, generator)).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        result = float(error(_draw(_TEST, generator)))
    return {
        "statistic": statistic,
        "bins": bins,
        "bin_lr": bin_lr,
        "seed": seed,
        "steps": steps,
        "batch": _BATCH,
        "test_vectors": _TEST,
        "absolute_error": result,
        "seconds": round(time.perf_counter() - began, 1),
    }


def _draw(n: int, generator: torch.Generator) -> Tensor:
    return torch.rand((n, _LENGTH), generator=generator) * torch.rand((n, 1), generator=generator)
