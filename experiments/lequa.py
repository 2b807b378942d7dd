"""LeQua from its data to a submission: networks chosen on validation bags, trained on all bags, averaged over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import histnetq as hq
from experiments.budgets import Budget
from experiments.networks import Trials, run_network
from experiments.presets import PRESETS
from experiments.runs import Run, Runs, digest
from experiments.tables import to_markdown, write_frame
from histnetq.datasets import Dataset, lequa_errors, write_submission

__all__ = ["METHODS", "RECIPES", "Recipe", "Submission", "run_recipe", "submit"]

_LABELS = "-labels"  # learns from the labelled rows beside the bags
_NETWORKS = {"HistNetQ": "HistNetQ-hard", "EMNetQ": "EMNetQ"}
METHODS = [*_NETWORKS, *(f"{name}{_LABELS}" for name in _NETWORKS)]
_LABEL_WEIGHT = 0.05
_HISTOGRAMS: list[dict[str, Any]] = [{"n_bins": 16}, {"n_bins": 32, "dropout": 0.3}]
_TRAINING = hq.Training(progress=False, checkpoint_every=5)


@dataclass(frozen=True)
class Recipe:
    """A task, what networks are trained for, and how many times more minutes than others they get.

    `published` are the lowest AE and RAE of any method that its authors published for this task, None where these are
    unknown to us.
    """

    task: str
    year: int
    likelihood: Sequence[dict[str, Any]]
    loss: str = "rae"
    pace: float = 1.0
    published: tuple[float, float] | None = None

    def settings(self, method: str) -> list[dict[str, Any]]:
        """The settings of a method to choose from."""
        name = method.removesuffix(_LABELS)
        labelled = {"label_weight": _LABEL_WEIGHT} if name != method and name == "EMNetQ" else {}
        return [{**own, **labelled} for own in (_HISTOGRAMS if name == "HistNetQ" else self.likelihood)]


_BINARY, _MANY = PRESETS["lequa-t1a"].likelihood, PRESETS["lequa-t1b"].likelihood
RECIPES = {
    "lequa2022-t1a": Recipe("T1A", 2022, _BINARY, pace=2.0, published=(0.0224, 0.1071)),
    "lequa2022-t1b": Recipe("T1B", 2022, _MANY, pace=10.0, published=(0.0107, 0.7574)),
    "lequa2024-t1": Recipe("T1", 2024, _BINARY, pace=2.0, published=(0.0202, 0.1067)),
    "lequa2024-t2": Recipe("T2", 2024, _MANY, pace=10.0, published=(0.0134, 0.9508)),
    "lequa2024-t3": Recipe("T3", 2024, _MANY, loss="nmd", pace=2.0),
    "lequa2024-t4": Recipe("T4", 2024, _BINARY, pace=2.0),
}


@dataclass(frozen=True)
class Submission:
    """The finished runs of a task's methods, and the submitted estimates."""

    recipe: Recipe
    data: Dataset
    runs: dict[str, list[Run]]

    def best(self) -> str:
        """The method of the lowest validation loss, on the average of its seeds."""
        return min(self.runs, key=lambda method: np.mean([run.validation for run in self.runs[method]]))

    def estimates(self, method: str) -> Any:
        """Estimates of the test bags, averaged over the seeds."""
        return np.mean([run.estimates for run in self.runs[method]], axis=0)

    def table(self) -> pd.DataFrame:
        """A row for each method: its validation loss and, where the truth is known, the errors of its ensemble."""
        rows: list[dict[str, Any]] = []
        for method, runs in self.runs.items():
            loss = float(np.mean([run.validation for run in runs]))
            row: dict[str, Any] = {"method": method, "seeds": str(len(runs)), f"validation {self.recipe.loss}": loss}
            if self.data.test.prevalences is not None:
                row |= lequa_errors(self.recipe.task, self.data.test, self.estimates(method))
            rows.append({**row, "chosen": runs[0].params})
        return pd.DataFrame(rows)

    def about(self, name: str, budget: Budget) -> str:
        """Describe the experiment for the reader of the table, with published results."""
        data, recipe = self.data, self.recipe
        published = ""
        if recipe.published is not None:
            ae, rae = recipe.published
            published = f" As published, the best of any method has an MAE of {ae} and an MRAE of {rae}."
        return (
            f"LeQua {recipe.year}, task {recipe.task}, {len(data.test):,} test bags of {data.test.sizes[0]}. Networks "
            f"learn from {len(data.bags)} bags of known proportions (those called labels, from "
            f"{len(data.train.index):,} labelled rows, too). They train for and are chosen by {recipe.loss.upper()} on "
            f"{len(data.validation)} validation bags among at most {budget.trials} settings, {budget.words()}; then "
            "they are trained anew on all bags. Errors are those of the mean of all seeds' estimates. "
            f"{self.best()} is submitted.{published} "
            f"Made by `python -m experiments {name}`."
        )


def submit(
    name: str, data: Dataset, methods: Sequence[str], budget: Budget, work: Path, output: Path,
    say: Callable[[str], Any],
) -> list[Path]:  # fmt: skip
    """Complete the missing runs, write the submission and its table, and return their paths."""
    recipe = RECIPES[name]
    budget = budget.at(recipe.pace)
    parts = [part.fingerprint() for part in (data.train, data.bags, data.validation, data.test)]
    identity = digest(parts, recipe.likelihood, _HISTOGRAMS, recipe.loss, _LABEL_WEIGHT, _TRAINING.identity())
    place = work / f"{name}-{identity}-{budget.name(recipe.loss)}"
    runs = Runs(place, budget.seeds)
    runs.fill(methods, partial(run_recipe, recipe=recipe, data=data, budget=budget, place=place), say)
    found = Submission(recipe, data, {method: runs.read(method) for method in methods})
    best, path = found.best(), output / f"{name}-submission.zip"
    write_submission(path, found.estimates(best), recipe.task, overwrite=True)
    table = found.table()
    write_frame(output / name, table, f"{found.about(name, budget)}\n\n{to_markdown(table)}")
    say(f"\n{to_markdown(table)}\n\n{best} is submitted.")
    return [path, output / f"{name}.csv", output / f"{name}.md"]


def run_recipe(method: str, seed: int, recipe: Recipe, data: Dataset, budget: Budget, place: Path) -> Run:
    """Train a network in some settings, the best of them anew on all bags, and estimate the test bags."""
    name = method.removesuffix(_LABELS)

    def fit(quantifier: Any) -> None:
        if name == method:
            quantifier.fit(data.bags, validation=data.validation)
            return
        rows, labels = data.train.index, data.train.labels
        assert labels is not None
        quantifier.fit(
            data.train.rows[rows], data.classes[labels[rows]], bags=data.bags, validation=data.validation
        )  # fmt: skip

    settings = recipe.settings(method)[: budget.trials]
    directory = place / ("both" if name != method else "bags")
    trials = Trials(
        _NETWORKS[name], seed, settings, _TRAINING, budget, fit, directory, {"loss": recipe.loss}, refit=True
    )
    return run_network(trials, data.test)
