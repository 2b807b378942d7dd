"""One method on a data set of labelled rows and bags: chosen on the validation bags, scored on the test bags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import histnetq as hq
from experiments.budgets import Budget
from experiments.classical import CLASSICAL, CLASSIFIER, Posteriors, run_classical
from experiments.networks import NETWORKS, run_network
from experiments.presets import Preset
from experiments.runs import Run, Runs
from histnetq.datasets import Dataset

__all__ = ["METHODS", "BagExperiment", "about"]

METHODS = [*CLASSICAL, *NETWORKS]


class BagExperiment:
    """A preset's data, loaded, with the directory of what is computed once."""

    def __init__(self, name: str, preset: Preset, data: Dataset, work: Path) -> None:
        self.preset, self.data = preset, data
        self.directory = work / f"{name}-{data.train.fingerprint()[:8]}"
        self.posteriors = Posteriors(data, self.directory)

    def runs(self, budget: Budget) -> Runs:
        """Where the runs of this budget are kept."""
        return Runs(self.directory / budget.name("rae"), budget.seeds)

    def run(self, method: str, seed: int, budget: Budget) -> Run:
        """A network learns from the bags alone, a classical method from the labelled rows."""
        if method not in NETWORKS:
            return run_classical(method, seed, self.data, self.posteriors, budget.trials)
        return self.train(method, seed, self.preset.settings[: budget.trials], budget, "trials")

    def train(
        self, method: str, seed: int, settings: Sequence[dict[str, Any]], budget: Budget, place: str, **fixed: Any
    ) -> Run:
        """Train a network for RAE on the bags in each of these settings; checkpoints are kept at `place`."""
        data, shared = self.data, {"loss": "rae", "sampler": hq.Mixer(self.preset.real), **fixed}
        return run_network(
            method, seed, settings, self.preset.training, budget,
            lambda quantifier: quantifier.fit(data.bags, validation=data.validation),
            data.test, self.directory / place, **shared,
        )  # fmt: skip


def about(name: str, experiment: BagExperiment, budget: Budget) -> str:
    """What the table of an experiment shows, in words."""
    data = experiment.data
    return (
        f"{experiment.preset.what}, {len(data.test):,} test bags of {data.test.sizes[0]}. Classical methods: logistic "
        f"regression ({', '.join(CLASSIFIER)} chosen), trained on {len(data.train.index):,} labelled rows. Networks: "
        f"encoders of their own, learned from {len(data.bags)} bags of known proportions. Every method is chosen among "
        f"{budget.trials} settings by RAE on {len(data.validation)} validation bags, networks after "
        f"{budget.trial_epochs} epochs, the best going on to at most {budget.epochs}{budget.limit()}; "
        f"seeds: {budget.seeds}. "
        f"Made by `python -m experiments {name}`."
    )
