"""Work beside one busy process over the same work on a quiet machine, and what waiting without spinning costs there.

How threads wait is read when OpenMP is loaded, so each piece of work is a process of its own. The machine must be
quiet.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

from benchmarks.timing import in_turns, seconds_of

__all__ = ["busy_process", "run"]

_TRAINING = (sys.executable, "-m", "benchmarks.busy")
# GNU OpenMP's own number of turns, where nothing is said about waiting; it goes before OMP_WAIT_POLICY.
_SPINNING = {"GOMP_SPINCOUNT": "300000"}


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio, comparison, target)."""
    seconds = in_turns(
        {
            "quiet": _trained,
            "busy": partial(_trained, busy=True),
            "quiet, spinning": partial(_trained, _SPINNING),
            "busy, spinning": partial(_trained, _SPINNING, busy=True),
        },
        rounds=3,
    )
    detail = ", ".join(f"{name} {s:.1f} s" for name, s in seconds.items())
    yield f"Training HistNetQ beside a busy process over quiet ({detail})", seconds["busy"] / seconds["quiet"], "≤", 2.2
    yield "Training HistNetQ, quiet, over threads that spin", seconds["quiet"] / seconds["quiet, spinning"], "≤", 1.05
    with tempfile.TemporaryDirectory() as place:
        demo = partial(_work, (sys.executable, "-m", "histnetq", "demo", "-o", place))
        taken = {"quiet": seconds_of(demo), "busy": seconds_of(partial(demo, busy=True))}
    detail = ", ".join(f"{name} {s:.0f} s" for name, s in taken.items())
    yield f"The demo beside a busy process over quiet ({detail})", taken["busy"] / taken["quiet"], "≤", 2.2


def _trained(environment: dict[str, str] | None = None, busy: bool = False) -> float:
    """Seconds of training, without those of loading."""
    return float(_work(_TRAINING, environment, busy))


def _work(command: Sequence[str], environment: dict[str, str] | None = None, busy: bool = False) -> str:
    """Return the output of a command that runs next to a busy process or alone."""
    with busy_process() if busy else nullcontext():
        env = {**os.environ, **(environment or {})}
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout


@contextmanager
def busy_process() -> Iterator[None]:
    """Keep one core busy meanwhile."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def train(epochs: int) -> None:
    """Train on labelled rows of 64 features and 10 classes."""
    import numpy as np

    import histnetq as hq

    rng = np.random.default_rng(0)
    y = rng.integers(10, size=5_000)
    X = (rng.normal(size=(len(y), 64)) + rng.normal(size=(10, 64))[y]).astype(np.float32)
    training = hq.Training(epochs=epochs, patience=epochs, bags_per_epoch=200, progress=False)
    hq.HistNetQ(encoder=(256, 64), head=(512,), training=training, random_state=0).fit(X, y)


if __name__ == "__main__":
    train(1)  # compiles
    print(seconds_of(partial(train, 10)))
