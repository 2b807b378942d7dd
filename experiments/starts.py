"""Networks that start at random weights, and that learn labels and rehearse first."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import histnetq as hq
from experiments.presets import PRESETS
from experiments.runs import Run, Runs, digest
from experiments.staged import compact

__all__ = ["NETWORKS", "run_starts", "starts_table"]

NETWORKS: dict[str, Callable[..., Any]] = {
    "DeepSets": hq.DeepSets, "SetTransformer": hq.SetTransformer, "GMNet": hq.GMNet,
}  # fmt: skip
_STARTS = {"random": None, "in stages": 0.01}


def run_starts(
    on: str, networks: Sequence[str], most: float, seeds: int, data: Path | None, work: Path, say: Callable[[str], Any]
) -> pd.DataFrame:
    """Train each network until it has taken so many seconds of processor time, its start included.

    Runs that are done are not repeated. The result has one row per network, start and seed that there is, with the AE
    on validation and test bags.
    """
    given, validation, test = _case(on, data)
    runs = Runs(work / f"starts-{on}-{digest(test.fingerprint(), most)}", seeds)

    def act(name: str, seed: int) -> Run:
        network, start = name.split(", ")
        began = time.process_time()
        training = hq.Training(progress=False, callbacks=(partial(_is_late, began + most),))
        q = NETWORKS[network](ridge=_STARTS[start], training=training, random_state=seed)
        q.fit(*given, validation=validation)
        seconds = time.process_time() - began
        text = f"epochs={q.best_epoch_} of {len(q.history_['epoch'])}"
        began = time.process_time()
        estimates = q.predict(test)
        return Run(estimates, text, 1, q.validation_loss_, seconds, time.process_time() - began)

    runs.fill([", ".join(pair) for pair in itertools.product(networks, _STARTS)], act, say)
    found = []
    for network, start in itertools.product(NETWORKS, _STARTS):
        for seed, run in enumerate(runs.read(f"{network}, {start}")):
            error = float(np.mean(hq.metrics.ae(test.prevalences, run.estimates)))
            found.append({
                "data": on, "network": network, "start": start, "seed": seed, "validation": run.validation,
                "test": error, "seconds": run.fit_seconds, "setting": run.params, "n_bags": len(test),
            })  # fmt: skip
    return pd.DataFrame(found).round(6)


def _case(on: str, data: Path | None) -> tuple[tuple[Any, ...], hq.Bags | None, hq.Bags]:
    """Return training data, validation bags (None holds some out), and test bags."""
    if on == "digits":
        digits = hq.datasets.digits()
        assert digits.train.labels is not None
        return (digits.train.rows, digits.train.labels), None, digits.test
    assert data is not None
    found = PRESETS[on].load(data)
    return (compact(found.bags),), compact(found.validation), found.test


def _is_late(end: float, record: dict[str, float]) -> bool:
    """Return whether training has used up its processor time."""
    return time.process_time() > end


def starts_table(found: pd.DataFrame) -> str:
    """Means over the seeds, as a table in Markdown."""
    lines = [
        "| network | start | AE, validation | AE, test | seconds |",
        "| :-- | :-- | --: | --: | --: |",
    ]
    for (network, start), part in found.groupby(["network", "start"], sort=False):
        mean = part[["validation", "test", "seconds"]].mean()
        cells = f"{mean['validation']:.4f} | {mean['test']:.4f} | {mean['seconds']:.0f}"
        lines.append(f"| {network} | {start} | {cells} |")
    return "\n".join(lines)
