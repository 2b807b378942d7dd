"""EMNetQ where each row is in one bag, in a few or in many: how much labels that proportions imply are worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import histnetq as hq
from experiments.bagged import BagExperiment
from experiments.choices import mean_error
from experiments.presets import mostly_absolute

__all__ = ["run_sharing"]

_TIMES = (1, 4, 16)  # bags that a row is in, at most
_PART = 0.8  # of the rows that are dealt out each time: proportions differ, and no class may run out
_SLOWLY = hq.Training(epochs=60, lr=3e-4, patience=3, average=50)
_FAST = hq.Training(epochs=60, lr=1e-2, patience=10, average=50, input_dropout=0.05, weight_decay=0.3)
_METHODS: dict[str, Any] = {
    "from recovered labels, goes on slowly": {"ridge": 0.003, "training": _SLOWLY},
    "from recovered labels, goes on fast": {"ridge": 0.003, "training": _FAST},
    "from random scores": {"ridge": None, "training": _FAST},
}


def run_sharing(experiment: BagExperiment, labels: NDArray[np.int64], say: Callable[[str], Any]) -> pd.DataFrame:
    """AE and RAE on the calibration bags, which nothing else looks at; validation bags choose the epoch.

    Parameters
    ----------
    labels : (n_pool,) of all rows, to count proportions
    """
    data, found = experiment.data, []
    held = data.calibration
    assert held is not None
    for times in _TIMES:
        bags = _deal(experiment, labels, times)
        for name, setting in _METHODS.items():
            q = hq.EMNetQ(prior=0.0, loss=mostly_absolute, random_state=0, **setting)
            q.fit(bags, validation=data.validation)
            scores = {measure.upper(): mean_error(measure, held, q.predict(held)) for measure in ("ae", "rae")}
            found.append({"bags of a row": str(times), "bags": str(len(bags)), "EMNetQ starts": name, **scores})
            say(f"{found[-1]}")
    return pd.DataFrame(found)


def _deal(experiment: BagExperiment, labels: NDArray[np.int64], times: int) -> hq.Bags:
    """Deal the rows of the training bags out to bags of uniform proportions, each row at most once a time."""
    data, rng = experiment.data, np.random.default_rng(0)
    rows, size = np.unique(data.bags.index), int(data.bags.sizes[0])
    n_bags, index, shares = int(_PART * len(rows)) // size, [], []
    for _ in range(times):
        stacks = [rng.permutation(rows[labels[rows] == c]) for c in range(2)]
        while True:
            drawn = np.rint(size * rng.uniform(size=n_bags)).astype(int)
            counts = np.stack([size - drawn, drawn], axis=1)
            if (counts.sum(0) <= [len(stack) for stack in stacks]).all():
                break
        dealt = np.concatenate([stack[:n] for stack, n in zip(stacks, counts.sum(0), strict=True)])
        bag = np.concatenate([np.repeat(np.arange(n_bags), own) for own in counts.T])
        index.append(dealt[np.argsort(bag, kind="stable")])
        shares.append(counts / size)
    offsets = size * np.arange(times * n_bags + 1)
    return hq.Bags(
        data.bags.rows, np.concatenate(index), offsets, prevalences=np.concatenate(shares), classes=data.classes
    )
