"""Memory of training on a pool of rows that stays on disk: one ten times as large takes little more.

Only private memory is counted, because the system may drop the pages of a memory-mapped file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["measure", "run"]

_FEATURES, _BAG = 250, 1000
_SMALL, _LARGE = 400, 4000  # bags, of a MB each


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio, comparison, target)."""
    peaks = []
    for n_bags in (_SMALL, _LARGE):
        command = [sys.executable, "-m", "benchmarks.pools", str(n_bags)]
        peaks.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    sizes = [n * _BAG * _FEATURES * 4 / 1e9 for n in (_SMALL, _LARGE)]
    what = (
        f"memory that an epoch and a prediction on a mapped {sizes[1]:g} GB take more than on {sizes[0]:g} GB "
        f"({peaks[1] / 1e6:.0f} and {peaks[0] / 1e6:.0f} MB), over the difference of the files"
    )
    yield what, (peaks[1] - peaks[0]) / ((sizes[1] - sizes[0]) * 1e9), "≤", 0.1


def measure(n_bags: int, directory: Path) -> int:
    """Most bytes of memory of its own that this process has while it trains for an epoch and predicts."""
    import numpy as np

    import histnetq as hq

    path = directory / "rows.npy"
    shape = (n_bags * _BAG, _FEATURES)
    np.lib.format.open_memmap(path, "w+", np.float32, shape).flush()  # zeros that take no disk
    rng = np.random.default_rng(0)
    training = hq.Training(epochs=1, bags_per_epoch=200, device="cpu")
    q = hq.HistNetQ(n_bins=8, encoder=(16,), head=(16,), training=training, random_state=0)
    with _Watch() as watch:
        rows = np.load(path, mmap_mode="r")
        offsets = np.arange(n_bags + 1) * _BAG
        bags = hq.Bags(rows, offsets=offsets, prevalences=rng.dirichlet([1.0, 1.0], size=n_bags))
        q.fit(bags).predict(bags)
    return watch.most


class _Watch:
    """The most memory of its own that the process has meanwhile."""

    def __enter__(self) -> _Watch:
        self.most, self._ended = 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.01):
            with open("/proc/self/status") as file:
                own = next(1024 * int(line.split()[1]) for line in file if line.startswith("RssAnon"))
            self.most = max(self.most, own)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        print(measure(int(sys.argv[1]), Path(name)))
