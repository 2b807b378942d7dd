"""Growth of the resident set by forward and backward of the hard layer, in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

__all__ = ["peak", "run"]

_ROWS, _FEATURES, _BINS, _BAG = 200_000, 300, 32, 250


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio, comparison, target)."""
    for kind in ("HardHistogram", "RBFHistogram"):
        command = [sys.executable, "-m", "benchmarks.memory", kind]
        growth = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        what = f"{kind} forward and backward on {_ROWS:,} × {_FEATURES} rows: memory growth over the input"
        yield what, growth, "≤", 3.0


def measure(kind: str) -> float:
    """Peak growth as a multiple of the input's size."""
    import torch

    from histnetq import nn

    layer = getattr(nn, kind)(_FEATURES, _BINS)
    small = torch.randn(_BAG, _FEATURES, requires_grad=True)
    layer(small, torch.tensor([0, _BAG])).sum().backward()  # compiles, starts threads
    rows = torch.randn(_ROWS, _FEATURES, requires_grad=True)
    offsets = torch.arange(0, _ROWS + 1, _BAG)
    before = peak()
    layer(rows, offsets).square().sum().backward()
    return (peak() - before) / (rows.numel() * rows.element_size())


def peak() -> int:
    """Maximum resident set of this process in bytes; getrusage would include that of the process that started it."""
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))


if __name__ == "__main__":
    print(measure(sys.argv[1]))
