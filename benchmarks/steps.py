"""A full training step against the same network whose pooling is the mean repeated to the same width; and GMNet's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.timing import side_by_side
from histnetq.metrics import rae
from histnetq.nn import MLP, BagNetwork, Gaussians, HardHistogram, Mean, Pooling

__all__ = ["run"]

# name: bags, size, inputs, encoder, bins, head, classes; T1B as one of its 20 accumulated parts.
_SHAPES = {
    "T1A": (20, 250, 300, (1024, 1024, 300), 32, (2048, 2048, 2048), 2),
    "T1B": (25, 1000, 300, (1024, 512), 64, (4096,), 28),
}
_BLOCKS, _GAUSSIANS, _DIMS = 9, 100, 5  # GMNet's published settings, after the same encoder


class RepeatedMean(Pooling):
    """The mean of each feature, `times` over: as wide as a histogram, at next to no cost."""

    def __init__(self, n_features: int, times: int) -> None:
        super().__init__(n_features, n_features * times)
        self.mean, self.times = Mean(n_features), times

    def pool(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        return self.mean.pool(rows, index, offsets, weights).repeat_interleave(self.times, dim=1)


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio, comparison, target)."""
    for name, (n_bags, size, n_inputs, encoder, n_bins, head, n_classes) in _SHAPES.items():
        torch.manual_seed(0)
        rows = torch.randn(n_bags * size, n_inputs)
        offsets = torch.arange(n_bags + 1) * size
        p_true = torch.rand(n_bags, n_classes).softmax(-1)
        sizes = torch.full((n_bags,), float(size))
        networks = {
            "histogram": (encoder, HardHistogram(encoder[-1], n_bins)),
            "mean": (encoder, RepeatedMean(encoder[-1], n_bins)),
            "Gaussians": ((*encoder, _BLOCKS * _DIMS), Gaussians(_BLOCKS * _DIMS, _BLOCKS, _GAUSSIANS)),
        }
        steps = {
            key: _step(BagNetwork(MLP(n_inputs, layers, 0.5), pooling, head, n_classes, dropout=0.5),
                       rows, offsets, p_true, sizes)
            for key, (layers, pooling) in networks.items()
        }  # fmt: skip
        seconds = side_by_side(steps, rounds=7)
        detail = ", ".join(f"{key} {1e3 * s:.0f} ms" for key, s in seconds.items())
        yield (
            f"{name} training step over the same with mean pooling ({detail})",
            (seconds["histogram"] / seconds["mean"]),
            "≤",
            1.2,
        )
        yield (
            f"{name} training step of GMNet over HistNetQ's ({detail})",
            seconds["Gaussians"] / seconds["histogram"],
            "≤",
            1.5,
        )


def _step(network: BagNetwork, rows: Tensor, offsets: Tensor, p_true: Tensor, sizes: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        rae(p_true, network(rows, offsets), sizes).mean().backward()
        optimizer.step()

    return step
