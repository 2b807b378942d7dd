"""New Zealand's elections: from party votes to candidate votes of voting units, of which only totals are known.

A bag is a voting unit. Its rows are the party votes of its voters, eight groups as one-hot rows with counts as weights;
its label is the candidates' share of the votes. The ballot is secret: no voter's candidate is known. Units before 2020
are learned from, a sixth of which choose; those of 2020 are estimated.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import histnetq as hq
from experiments.budgets import Budget
from experiments.choices import draw_settings, mean_error, setting_text
from experiments.networks import NETWORKS, Trials, run_network
from experiments.runs import Run
from histnetq.sketches.posteriors import bag_means

__all__ = ["BUDGETS", "FILE", "METHODS", "Elections", "read_elections", "run"]

FILE = "natural_nz_elections_bags.npz"
_BASELINES = ("mean prevalence", "party share", "ridge on bag means")
METHODS = [*_BASELINES, *NETWORKS]
BUDGETS = {
    "quick": Budget(trials=4, trial_epochs=5, epochs=40, minutes=1.5),
    "full": Budget(trials=4, trial_epochs=10, epochs=100, seeds=5),
}
# With the number of bags in an epoch bounded: there are 30,000.
TRAINING = hq.Training(
    bags_per_epoch=10_000, batch_bags=100, patience=4, weight_decay=1e-4, min_lr=1e-5, standardize=False,
    progress=False, checkpoint_every=5,
)  # fmt: skip
SPACE: dict[str, list[Any]] = {
    "encoder": [(16,), (64,)],
    "head": [(256,)],
    "lr": [1e-3, 3e-3],
    "cumulative": [False],
    "dropout": [0.0],
    "width": [32],
    "hidden": [32],
    "n_inducing": [8],
}
# Settings of EMNetQ.
LIKELIHOOD: dict[str, list[Any]] = {
    "encoder": [(), (64,)],
    "ridge": [None],
    "prior": [0.5],
    "lr": [1e-2, 3e-3],
}


@dataclass(frozen=True)
class Elections:
    """Voting units as bags: before 2020, to learn from and to choose by, and of 2020."""

    before: hq.Bags
    train: hq.Bags
    validation: hq.Bags
    test: hq.Bags

    def mean(self) -> NDArray[np.float64]:
        """The mean prevalences before 2020."""
        assert self.before.prevalences is not None
        return self.before.prevalences.mean(0)


def read_elections(path: Path) -> Elections:
    """Read the voting units with at least one vote of each kind."""
    with np.load(path, allow_pickle=False) as file:
        counts, labels, year, groups = (
            file[name] for name in ("instance_counts", "prevalence", "year", "group_names")
        )  # fmt: skip
    used = (counts.sum(1) > 0) & (labels.sum(1) > 0)
    counts, labels, year = counts[used], labels[used], year[used]
    before, test = (_units(counts[part], labels[part], groups) for part in (year < 2020, year == 2020))
    return Elections(before, *before.split(5 / 6, 0), test)


def _units(counts: NDArray, labels: NDArray, groups: NDArray) -> hq.Bags:
    unit, group = np.nonzero(counts)
    offsets = np.searchsorted(unit, np.arange(len(counts) + 1))
    return hq.Bags(
        np.eye(len(groups), dtype=np.float32), group, offsets, weights=counts[unit, group].astype(np.int64),
        prevalences=labels, classes=groups, normalize=True,
    )  # fmt: skip


def run(name: str, seed: int, data: Elections, budget: Budget, work: Path) -> Run:
    """Choose settings by AE on the validation units; only ridge is finally fitted to all units."""
    if name in NETWORKS:
        trials = Trials(
            name, seed, draw_settings(LIKELIHOOD if name == "EMNetQ" else SPACE, budget.trials, 0), TRAINING, budget,
            lambda quantifier: quantifier.fit(data.train, validation=data.validation),
            work / "trials", {"loss": "ae", "sampler": hq.Mixer(0.9)},
        )  # fmt: skip
        return run_network(trials, data.test)
    began = time.perf_counter()
    if name == "ridge on bag means":
        settings: list[dict[str, Any]] = [{"alpha": alpha} for alpha in (1.0, 10.0, 100.0, 1000.0)]
        errors = [mean_error("ae", data.validation, _ridge(data.train, data.validation, **s)) for s in settings]
        best = int(np.argmin(errors))
        estimates = _ridge(data.before, data.test, **settings[best])
        return Run(estimates, setting_text(settings[best]), 4, errors[best], time.perf_counter() - began, 0.0)
    error = mean_error("ae", data.validation, _baseline(name, data.train, data.validation))
    return Run(_baseline(name, data.before, data.test), "", 0, error, time.perf_counter() - began, 0.0)


def _baseline(name: str, known: hq.Bags, asked: hq.Bags) -> NDArray[np.float64]:
    if name == "party share":
        return _shares(asked)
    assert known.prevalences is not None
    return np.tile(known.prevalences.mean(0), (len(asked), 1))


def _ridge(known: hq.Bags, asked: hq.Bags, alpha: float) -> NDArray[np.float64]:
    from sklearn.linear_model import Ridge

    model = Ridge(alpha).fit(_shares(known), known.prevalences)
    return hq.simplex.project(model.predict(_shares(asked)))


def _shares(bags: hq.Bags) -> NDArray[np.float64]:
    """Each bag's mean row."""
    return bag_means(bags.rows, bags.index, bags.offsets, bags.weights)
