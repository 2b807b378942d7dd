"""The rows of the networks: one architecture, another pooling layer in each, learned from bags alone."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import histnetq as hq
from experiments.choices import draw_settings, setting_text
from experiments.runs import Run
from histnetq.datasets import Dataset

__all__ = ["NETWORKS", "run_network", "run_on_bags"]

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


def run_on_bags(name: str, seed: int, data: Dataset, trials: int, epochs: int, work: Path) -> Run:
    """Learn from bags alone; choose by RAE on the validation bags, then estimate the test bags."""
    return run_network(
        name, seed, draw_settings(SPACE, trials, seed), dataclasses.replace(TRAINING, epochs=epochs), 1 / 20,
        lambda quantifier: quantifier.fit(data.bags, validation=data.validation),
        data.test, work / "trials", loss="rae",
    )  # fmt: skip


def run_network(
    name: str,
    seed: int,
    settings: Sequence[dict[str, Any]],
    training: hq.Training,
    slowest: float,
    fit: Callable[[Any], Any],
    test: hq.Bags,
    directory: Path,
    **fixed: Any,
) -> Run:
    """Train the network in each setting, keep the one of the lowest validation loss, and estimate the test bags.

    A trial that was cut off continues from its last epoch, and a finished one is read from its checkpoint.

    Parameters
    ----------
    slowest : float
        The lowest learning rate, as a part of the first.
    fit : quantifier → None
    directory : of the checkpoints
    **fixed : parameters of the quantifier that all settings share
    """
    best: tuple[float, Any, dict[str, Any]] | None = None
    for number, setting in enumerate(settings):
        options = {key: value for key, value in setting.items() if key in training.get_params()}
        own = {key: value for key, value in setting.items() if key not in options}
        checkpoint = str(directory / f"{name}-seed{seed}-{number}")
        options |= {"min_lr": slowest * setting["lr"], "checkpoint": checkpoint}
        trained = dataclasses.replace(training, **options)
        quantifier = NETWORKS[name](**own, **fixed, training=trained, random_state=seed)
        fit(quantifier)
        if best is None or quantifier.validation_loss_ < best[0]:
            best = quantifier.validation_loss_, quantifier, setting
    assert best is not None
    error, quantifier, setting = best
    began = time.perf_counter()
    estimates = quantifier.predict(test)
    took = time.perf_counter() - began
    chosen = f"{setting_text(setting)}, epochs={quantifier.best_epoch_} of {len(quantifier.history_['epoch'])}"
    return Run(estimates, chosen, len(settings), error, float(quantifier.history_["seconds"].sum()), took)
