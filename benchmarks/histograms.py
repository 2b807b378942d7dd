"""Histogram layers against the plain formula, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.naive import naive_histogram
from benchmarks.timing import side_by_side
from histnetq.kernels import using
from histnetq.nn import BINS
from histnetq.nn.histograms import Histogram

__all__ = ["run"]

_SHAPES = ((20, 250, 300, 32), (4, 1000, 512, 64))
_WANTED = {("hard", 32): 40.0, ("hard", 64): 30.0}


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio, comparison, target)."""
    for n_bags, size, n_features, n_bins in _SHAPES:
        for kind, make in BINS.items():
            seconds = _measure(kind, make(n_features, n_bins), n_bags, size)
            shape = f"{n_bags}×{size} rows, {n_features} features, {n_bins} bins"
            detail = ", ".join(f"{name} {1e3 * s:.1f} ms" for name, s in seconds.items())
            ratio = seconds["naive"] / seconds["compiled"]
            yield (
                f"{kind} histogram, {shape}: times faster than naive ({detail})",
                ratio,
                "≥",
                _WANTED.get((kind, n_bins), 10.0),
            )


def _measure(kind: str, layer: Histogram, n_bags: int, size: int) -> dict[str, float]:
    torch.manual_seed(0)
    rows = torch.randn(n_bags * size, layer.n_features, requires_grad=True)
    offsets = torch.arange(n_bags + 1) * size
    grad = torch.randn(n_bags, layer.width)
    gamma = getattr(layer, "gamma", 0.0)

    def ours() -> None:
        rows.grad = None
        layer.zero_grad()
        layer(rows, offsets).backward(grad)

    def plain() -> None:
        with using("plain"):
            ours()

    def naive() -> None:
        rows.grad = None
        layer.zero_grad()
        naive_histogram(kind, rows, n_bags, *layer.bins(), gamma).backward(grad)

    return side_by_side({"compiled": ours, "plain": plain, "naive": naive}, rounds=5)
