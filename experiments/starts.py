"""Networks that start at random weights, and that learn labels and rehearse first, on scikit-learn's digits."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import histnetq as hq

__all__ = ["run_starts", "starts_table"]

_BAGS, _SIZE = 400, 100
_NETWORKS: dict[str, Callable[..., Any]] = {"DeepSets": hq.DeepSets, "SetTransformer": hq.SetTransformer}
_STARTS = {"random": None, "in stages": 0.01}


def run_starts(most: float, seeds: int, say: Callable[[str], Any]) -> pd.DataFrame:
    """Train each network until it has taken so many seconds of processor time, its start included.

    The result has one row per source, network, start and seed, with the AE on validation and test bags.
    """
    data = hq.datasets.digits()
    train = data.train
    assert train.labels is not None
    drawn = hq.APP(_SIZE).draw(train, _BAGS, random_state=2)
    bags = hq.Bags(drawn.rows, drawn.index, drawn.offsets, prevalences=drawn.prevalences, classes=drawn.classes)
    given = {"labels": (train.rows, train.labels), "proportions": (bags,)}
    found = []
    for source, network, start, seed in itertools.product(given, _NETWORKS, _STARTS, range(seeds)):
        began = time.process_time()
        training = hq.Training(progress=False, callbacks=(partial(_is_late, began + most),))
        q = _NETWORKS[network](ridge=_STARTS[start], training=training, random_state=seed).fit(*given[source])
        row = {
            "given": source, "network": network, "start": start, "seed": seed, "validation": q.validation_loss_,
            "test": float(np.mean(hq.metrics.ae(data.test.prevalences, q.predict(data.test)))),
            "seconds": time.process_time() - began, "best epoch": q.best_epoch_, "epochs": len(q.history_["epoch"]),
        }  # fmt: skip
        found.append(row)
        say(", ".join(f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()))
    return pd.DataFrame(found)


def _is_late(end: float, record: dict[str, float]) -> bool:
    """Tell whether the processor time has come at which training ends."""
    return time.process_time() > end


def starts_table(found: pd.DataFrame) -> str:
    """Means over the seeds, as a table in Markdown."""
    lines = [
        "| given | network | start | AE, validation | AE, test | seconds |",
        "| :-- | :-- | :-- | --: | --: | --: |",
    ]
    for (source, network, start), part in found.groupby(["given", "network", "start"], sort=False):
        mean = part[["validation", "test", "seconds"]].mean()
        cells = f"{mean['validation']:.4f} | {mean['test']:.4f} | {mean['seconds']:.0f}"
        lines.append(f"| {source} | {network} | {start} | {cells} |")
    return "\n".join(lines)
