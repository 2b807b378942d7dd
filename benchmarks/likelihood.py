"""Maximum likelihood as a layer against unrolled expectation maximisation: forward and backward, and memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.timing import side_by_side
from histnetq.kernels import using
from histnetq.nn.likelihood import Likelihood

__all__ = ["run"]

_UNROLLED = 25
# bags, size, classes: times faster than unrolled.
_SHAPES = {(20, 500, 28): 5.0, (20, 500, 10): 2.0, (20, 500, 2): 2.0}
_ROWS, _BAG, _CLASSES = 200_000, 250, 28


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio, comparison, target)."""
    for (n_bags, size, n_classes), target in _SHAPES.items():
        seconds = _measure(n_bags, size, n_classes)
        detail = ", ".join(f"{name} {1e3 * s:.1f} ms" for name, s in seconds.items())
        what = f"{n_bags}×{size} rows, {n_classes} classes: times faster than {_UNROLLED} unrolled steps ({detail})"
        yield f"maximum likelihood, {what}", seconds["unrolled"] / seconds["compiled"], "≥", target
    # Rows that tell the classes apart take few steps, rows that hardly do take many.
    for overlap, margin in (("little", 6.0), ("much", 0.5)):
        command = [sys.executable, "-m", "benchmarks.likelihood", str(margin)]
        growth = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        what = f"maximum likelihood on {_ROWS:,} × {_CLASSES} rows, {overlap} overlap"
        yield f"{what}: memory growth over the input", growth, "≤", 5.0


def draw_scores(n_rows: int, n_classes: int, margin: float) -> Tensor:
    """Scores of rows of all classes, higher by the margin for the row's own."""
    scores = torch.randn(n_rows, n_classes, generator=torch.Generator().manual_seed(0))
    scores[torch.arange(n_rows), torch.arange(n_rows) * 7919 % n_classes] += margin
    return scores.requires_grad_()


def unrolled(scores: Tensor, n_bags: int) -> Tensor:
    """Expectation maximisation of equal bags by its formula, differentiated step by step."""
    n_classes = scores.shape[1]
    likelihoods = (scores - scores.amax(1, keepdim=True)).exp().view(n_bags, -1, n_classes)
    p = torch.full((n_bags, 1, n_classes), 1 / n_classes)
    for _ in range(_UNROLLED):
        joint = p * likelihoods
        p = (joint / joint.sum(2, keepdim=True)).mean(1, keepdim=True)
    return p[:, 0]


def unrolled_softmax(scores: Tensor, n_bags: int) -> Tensor:
    """The same on logarithms, faster for many classes."""
    s = scores.view(n_bags, -1, scores.shape[1])
    p = torch.full((n_bags, 1, scores.shape[1]), 1 / scores.shape[1])
    for _ in range(_UNROLLED):
        p = torch.softmax(s + p.log(), dim=2).mean(1, keepdim=True)
    return p[:, 0]


def _measure(n_bags: int, size: int, n_classes: int) -> dict[str, float]:
    scores, layer = draw_scores(n_bags * size, n_classes, 2.0), Likelihood(n_classes)
    offsets = torch.arange(n_bags + 1) * size
    grad = torch.randn(n_bags, n_classes, generator=torch.Generator().manual_seed(1))

    def both_ways(forward: Callable[[], Tensor], kernels: str = "compiled") -> Callable[[], None]:
        def act() -> None:
            scores.grad = None
            with using(kernels):
                forward().backward(grad)

        return act

    contestants = {
        "compiled": both_ways(lambda: layer(scores, offsets)),
        "plain": both_ways(lambda: layer(scores, offsets), "plain"),
        "unrolled": both_ways(lambda: unrolled(scores, n_bags)),
        "unrolled softmax": both_ways(lambda: unrolled_softmax(scores, n_bags)),
    }
    return side_by_side(contestants, rounds=21)


def measure(margin: float) -> float:
    """Peak growth of forward and backward, as a multiple of the input's size."""
    from benchmarks.memory import peak

    layer = Likelihood(_CLASSES)
    layer(draw_scores(_BAG, _CLASSES, margin), torch.tensor([0, _BAG])).square().sum().backward()  # compiles
    scores, offsets = draw_scores(_ROWS, _CLASSES, margin), torch.arange(0, _ROWS + 1, _BAG)
    before = peak()
    layer(scores, offsets).square().sum().backward()
    return (peak() - before) / (scores.numel() * scores.element_size())


if __name__ == "__main__":
    print(measure(float(sys.argv[1])))
