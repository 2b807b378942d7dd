"""The rows of the networks: one architecture, another pooling layer in each."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import histnetq as hq
from experiments.budgets import Budget
from experiments.choices import setting_text
from experiments.runs import Run

__all__ = ["NETWORKS", "Trials", "run_network"]

NETWORKS: dict[str, Callable[..., Any]] = {
    "DeepSets-avg": lambda **common: hq.DeepSets("mean", **common),
    "DeepSets-median": lambda **common: hq.DeepSets("median", **common),
    "DeepSets-max": lambda **common: hq.DeepSets("max", **common),
    "SetTransformer": lambda **common: hq.SetTransformer(**common),
    "HistNetQ-hard": lambda **common: hq.HistNetQ("hard", **common),
    "HistNetQ-soft": lambda **common: hq.HistNetQ("soft", **common),
    "HistNetQ-rbf": lambda **common: hq.HistNetQ("rbf", **common),
    "HistNetQ-sigmoid": lambda **common: hq.HistNetQ("sigmoid", **common),
    "GMNet": lambda **common: hq.GMNet(**common),
    "EMNetQ": lambda **common: hq.EMNetQ(**common),
}
# Parameters that some kinds of networks lack.
_OWN = {
    "HistNetQ": ("head", "n_bins", "cumulative"),
    "SetTransformer": ("head", "width", "hidden", "n_inducing", "n_heads"),
    "DeepSets": ("head",),
    "GMNet": ("head", "n_blocks", "n_gaussians", "n_dims", "ridge"),
    "EMNetQ": ("ridge", "prior", "label_weight"),
}


@dataclass(frozen=True)
class Trials:
    """A network in several settings; the setting with the lowest validation loss is trained further.

    A trial that was cut off continues from its last epoch, and a finished one is read from its checkpoint.

    Parameters
    ----------
    name : of the network
    settings : parameters of the quantifier and of `hq.Training`; parameters of other networks are ignored
    training : what all settings share
    fit : quantifier → None
    directory : of the checkpoints
    fixed : parameters of the quantifier that all settings share
    refit : whether the best one is trained anew on the validation bags as well
    """

    name: str
    seed: int
    settings: Sequence[dict[str, Any]]
    training: hq.Training
    budget: Budget
    fit: Callable[[Any], Any]
    directory: Path
    fixed: dict[str, Any]
    refit: bool = False

    def best(self) -> tuple[Any, str]:
        """The fitted quantifier, and its setting in words."""
        number = int(np.argmin([self._loss(n) for n in range(len(self.settings))])) if len(self.settings) > 1 else 0
        quantifier = self._fitted(number, self.budget.epochs, self.budget.minutes, self.refit)
        epochs = f"epochs={quantifier.best_epoch_} of {len(quantifier.history_['epoch'])}"
        return quantifier, f"{setting_text(_of_network(self.name, self.settings[number]))}, {epochs}"

    def _loss(self, number: int) -> float:
        budget = self.budget
        try:
            quantifier = self._fitted(number, min(budget.trial_epochs, budget.epochs), budget.trial_minutes)
        except FloatingPointError:  # this setting diverges; others may not
            return float("inf")
        return float(quantifier.validation_loss_)

    def _fitted(self, number: int, epochs: int, minutes: float | None, refit: bool = False) -> Any:
        setting = _of_network(self.name, self.settings[number])
        options = {key: value for key, value in setting.items() if key in self.training.get_params()}
        own = {key: value for key, value in setting.items() if key not in options}
        checkpoint = str(self.directory / f"{self.name}-seed{self.seed}-{number}")
        options |= {"checkpoint": checkpoint, "epochs": epochs, "minutes": minutes}
        trained = dataclasses.replace(self.training, refit=refit, **options)
        quantifier = NETWORKS[self.name](**own, **self.fixed, training=trained, random_state=self.seed)
        _fit_to_the_end(self.fit, quantifier)
        return quantifier


def run_network(trials: Trials, test: hq.Bags) -> Run:
    """Train the network in each setting, go on with the best, and estimate the test bags."""
    quantifier, chosen = trials.best()
    began = time.perf_counter()
    estimates = quantifier.predict(test)
    took = time.perf_counter() - began
    history = quantifier.history_
    return Run(
        estimates,
        chosen,
        len(trials.settings),
        quantifier.validation_loss_,
        float(history["seconds"].sum()),
        took,
        np.stack([history["train_loss"], history["validation_loss"], history["seconds"]], axis=1),
    )


def _fit_to_the_end(fit: Callable[[Any], Any], quantifier: Any) -> None:
    """Fit the network; an interruption ends the experiment instead of keeping the best weights."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="training interrupted")
        try:
            fit(quantifier)
        except UserWarning as warning:
            raise KeyboardInterrupt from warning


def _of_network(name: str, setting: dict[str, Any]) -> dict[str, Any]:
    foreign = set().union(*_OWN.values()) - set(_OWN[name.split("-")[0]])
    return {key: value for key, value in setting.items() if key not in foreign}
