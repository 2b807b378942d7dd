"""One method on a data set of labelled rows and bags: chosen on the validation bags, scored on the test bags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import histnetq as hq
from experiments.budgets import Budget
from experiments.classical import CLASSICAL, CLASSIFIERS, Posteriors, run_classical
from experiments.networks import NETWORKS, Trials, run_network
from experiments.presets import Preset, mostly_absolute
from experiments.runs import Run, Runs, digest
from histnetq.datasets import Dataset

__all__ = ["METHODS", "BagExperiment", "about"]

_BOTH = "EMNetQ-labels"  # learns from the labelled rows beside the bags
METHODS = [*CLASSICAL, *NETWORKS, _BOTH]
_LABEL_WEIGHT = 0.05


class BagExperiment:
    """The loaded data of a preset, and the directory of its cached results."""

    def __init__(self, name: str, preset: Preset, data: Dataset, work: Path) -> None:
        self.preset, self.data = preset, data
        self.directory = work / f"{name}-{data.train.fingerprint()[:8]}"
        bags = [part.fingerprint() for part in (data.bags, data.validation, data.test)]
        self.identity = digest(
            bags,
            preset.settings,
            preset.likelihood,
            preset.gaussians,
            mostly_absolute,
            _LABEL_WEIGHT,
            preset.training.identity(),
            preset.real,
            CLASSIFIERS,
        )
        self.posteriors = Posteriors(data, self.directory)

    def place(self, what: str, budget: Budget) -> Path:
        """The directory of runs and checkpoints of this budget."""
        return self.directory / f"{what}-{self.identity}-{budget.name('rae')}"

    def estimate(self, quantifier: Any, bags: hq.Bags) -> NDArray[np.float64]:
        """Estimates of a classical method on one logistic regression, untuned, fitted to the labelled rows."""
        crossed, pool = self.posteriors.get({"C": 0.01, "class_weight": None})
        quantifier.fit_posteriors(crossed, self.posteriors.labels, classes=range(len(self.data.classes)))
        found: NDArray[np.float64] = quantifier.predict_posteriors(hq.Bags(pool, bags.index, bags.offsets))
        return found

    def runs(self, budget: Budget) -> Runs:
        """The runs of this budget."""
        return Runs(self.place("all", budget), budget.seeds)

    def run(self, method: str, seed: int, budget: Budget) -> Run:
        """A network learns from the bags alone, a classical method from the labelled rows, one network from both."""
        if method in CLASSICAL:
            return run_classical(method, seed, self.data, self.posteriors, budget.trials)
        return run_network(self.trials(method, seed, budget), self.data.test)

    def trials(self, method: str, seed: int, budget: Budget) -> Trials:
        """The settings of a network; EMNetQ learns at last from the validation bags, too."""
        place = self.place("all", budget)
        if method == _BOTH:
            settings = [{**own, "label_weight": _LABEL_WEIGHT} for own in self.preset.likelihood][: budget.trials]
            sampler = hq.Combined(hq.APP(int(self.data.test.sizes[0])), hq.Mixer(self.preset.real))
            return self._trials("EMNetQ", seed, settings, budget, self._fit_both, place / "both", sampler=sampler)
        settings = self.preset.settings_of(method)[: budget.trials]
        return self._trials(method, seed, settings, budget, self._fit_bags, place / "trials")

    def train(
        self, method: str, seed: int, setting: dict[str, Any], budget: Budget, directory: Path, **fixed: Any
    ) -> Run:
        """Train a network in one setting; checkpoints are kept in the directory."""
        trials = self._trials(method, seed, [setting], budget, self._fit_bags, directory, **fixed)
        return run_network(trials, self.data.test)

    def _trials(
        self, method: str, seed: int, settings: Sequence[dict[str, Any]], budget: Budget, fit: Callable[[Any], Any],
        directory: Path, **fixed: Any,
    ) -> Trials:  # fmt: skip
        likelihood = method == "EMNetQ"
        loss = mostly_absolute if likelihood else "rae"
        shared = {"loss": loss, "sampler": hq.Mixer(self.preset.real), **fixed}
        return Trials(method, seed, settings, self.preset.training, budget, fit, directory, shared, likelihood)

    def _fit_bags(self, quantifier: Any) -> None:
        quantifier.fit(self.data.bags, validation=self.data.validation)

    def _fit_both(self, quantifier: Any) -> None:
        rows, labels = self.data.train.index, self.data.train.labels
        assert labels is not None
        quantifier.fit(
            self.data.train.rows[rows], self.data.classes[labels[rows]],
            bags=self.data.bags, validation=self.data.validation,
        )  # fmt: skip


def about(name: str, experiment: BagExperiment, budget: Budget) -> str:
    """Describe the table of an experiment."""
    data, n_settings = experiment.data, len(experiment.preset.settings[: budget.trials])
    return (
        f"{experiment.preset.what}, {len(data.test):,} test bags of {data.test.sizes[0]}. Classical methods: logistic "
        f"regression ({', '.join(CLASSIFIERS[0])} chosen), trained on {len(data.train.index):,} labelled rows. "
        f"Networks: encoders of their own, learned from {len(data.bags)} bags of known proportions. Every method but "
        f"EMNetQ is chosen among {budget.trials} settings ({n_settings} of networks) by RAE on {len(data.validation)} "
        f"validation bags, {budget.words()}. EMNetQ is trained for and chosen by the geometric mean of AE, AE and RAE, "
        "from labels that the proportions imply, and, once chosen, anew on the validation bags as well. "
        f"Made by `python -m experiments {name}`."
    )
