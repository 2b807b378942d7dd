"""Number of cores of this machine, and work on bags in threads; this module loads neither torch nor numba."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_FEWEST_ENTRIES = 1 << 14  # smaller work takes less time than starting a thread
_RUNS_PER_CORE = 4  # several, as bags differ in their number of iterations


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over_bags(work: Callable[[int, int], None], offsets: NDArray[np.int64]) -> None:
    """Call ``work(first, last)`` in threads for ranges of bags with about equal numbers of entries.

    `work` should be compiled code that releases the interpreter lock.
    """
    n_bags, cores = len(offsets) - 1, count_cores()
    n_runs = min(n_bags, cores * _RUNS_PER_CORE)
    if cores == 1 or n_runs == 1 or offsets[-1] < _FEWEST_ENTRIES:
        work(0, n_bags)
        return
    cuts = np.searchsorted(offsets, np.linspace(0, offsets[-1], n_runs + 1))
    cuts[0], cuts[-1] = 0, n_bags
    with ThreadPoolExecutor(cores) as pool:
        for done in [pool.submit(work, int(a), int(b)) for a, b in pairwise(cuts) if b > a]:
            done.result()
