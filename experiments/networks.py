"""The rows of the networks: one architecture, another pooling layer in each, learned from bags alone."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import histnetq as hq
from experiments.runs import Run
from histnetq.datasets import Dataset

__all__ = ["NETWORKS", "run_network"]

NETWORKS: dict[str, Callable[..., Any]] = {
    "DeepSets-avg": lambda **common: hq.DeepSets("mean", **common),
    "DeepSets-median": lambda **common: hq.DeepSets("median", **common),
    "DeepSets-max": lambda **common: hq.DeepSets("max", **common),
    "SetTransformer": lambda **common: hq.SetTransformer(**common),
    "HistNetQ-hard": lambda **common: hq.HistNetQ("hard", **common),
    "HistNetQ-soft": lambda **common: hq.HistNetQ("soft", **common),
    "HistNetQ-rbf": lambda **common: hq.HistNetQ("rbf", **common),
    "HistNetQ-sigmoid": lambda **common: hq.HistNetQ("sigmoid", **common),
}
# The same for all networks.
SPACE: dict[str, list[Any]] = {
    "encoder": [(16,), (64, 16), (256, 32)],
    "head": [(256,), (1024,)],
    "lr": [1e-3, 3e-3],
    "dropout": [0.3, 0.5, 0.7],
    "weight_decay": [0.01, 0.3],
}
TRAINING = hq.Training(patience=6, progress=False, checkpoint_every=5)


def run_network(name: str, seed: int, data: Dataset, trials: int, epochs: int, work: Path) -> Run:
    """Choose by RAE on the validation bags among `trials` settings, then estimate the test bags.

    The validation bags also stop training. A trial that was cut off continues from its last epoch, and a finished one
    is read from its checkpoint.
    """
    best: tuple[float, Any, dict[str, Any], float] | None = None
    for number, setting in enumerate(_settings(trials, seed)):
        options = dataclasses.replace(
            TRAINING, epochs=epochs,
            lr=setting["lr"], min_lr=setting["lr"] / 20, dropout=setting["dropout"],
            weight_decay=setting["weight_decay"], checkpoint=str(work / "trials" / f"{name}-seed{seed}-{number}"),
        )  # fmt: skip
        quantifier = NETWORKS[name](
            encoder=setting["encoder"], head=setting["head"], loss="rae", training=options, random_state=seed
        )
        quantifier.fit(data.bags, validation=data.validation)
        seconds = float(quantifier.history_["seconds"].sum())
        if best is None or quantifier.validation_loss_ < best[0]:
            best = quantifier.validation_loss_, quantifier, setting, seconds
    assert best is not None
    error, quantifier, setting, seconds = best
    began = time.perf_counter()
    estimates = quantifier.predict(data.test)
    took = time.perf_counter() - began
    chosen = ", ".join(f"{k}={v}" for k, v in setting.items()) + f", epochs={quantifier.best_epoch_}"
    return Run(estimates, chosen, trials, error, seconds, took)


def _settings(trials: int, seed: int) -> list[dict[str, Any]]:
    """So many different settings, the same for all networks."""
    every = [dict(zip(SPACE, values, strict=True)) for values in itertools.product(*SPACE.values())]
    chosen = np.random.default_rng([seed, len(every)]).permutation(len(every))[:trials]
    return [every[i] for i in chosen]
