"""Is learning from bags bound to prior shift? Bags under prior and under covariate shift, of the same rows.

Symmetric methods learn from development bags under one kind of shift, asymmetric ones from the labelled rows. All are
scored on test bags under both kinds. Covariate shift here tilts the distribution of the inputs by an exponential factor
along a random direction of each bag; labels follow their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import histnetq as hq
from experiments.bagged import BagExperiment
from experiments.budgets import Budget
from experiments.choices import mean_error
from experiments.networks import Trials, run_network
from experiments.runs import Run, Runs

__all__ = ["ASYMMETRIC", "SYMMETRIC", "run_shift_types"]

ASYMMETRIC = ("MLPE", "CC", "PCC", "ACC", "PACC", "EMQ-NoCalib", "EMQ-BCTS", "KDEy")
SYMMETRIC = ("DeepSets-avg", "HistNetQ-hard", "HistNetQ-soft", "EMNetQ")
_KINDS: dict[str, Callable[[int], Any]] = {
    "prior": lambda size: hq.APP(size),
    "covariate": lambda size: hq.CovariateShift(size, strength=1.5),
}
_SIZES = {"bags": 700, "validation": 300, "test": 1000}


def run_shift_types(
    experiment: BagExperiment, labels: NDArray, budget: Budget, say: Callable[[str], Any]
) -> pd.DataFrame:
    """AE and RAE of every method for both kinds of shift.

    Parameters
    ----------
    labels : (n_pool,) of all rows, to count proportions
    """
    drawn = {kind: _draw(experiment, kind, labels) for kind in _KINDS}
    directory, rows = experiment.place("shift-types", budget), []
    for learned, bags in drawn.items():
        runs = Runs(directory / learned, budget.seeds)

        def act(name: str, seed: int, bags: dict[str, hq.Bags] = bags, learned: str = learned) -> Run:
            return _symmetric(experiment, name, seed, bags, drawn, budget, directory / learned / "trials")

        runs.fill(SYMMETRIC, act, say)
        for name in SYMMETRIC:
            scores = pd.DataFrame([_scores(np.split(run.estimates, 2), drawn) for run in runs.read(name)]).mean()
            rows.append({"method": name, "learned from": f"bags under {learned} shift", **scores})
    for name in ASYMMETRIC:
        estimates = [_asymmetric(experiment, name, bags["test"]) for bags in drawn.values()]
        rows.append({"method": name, "learned from": "labelled rows", **_scores(estimates, drawn)})
    return pd.DataFrame(rows)


def _draw(experiment: BagExperiment, kind: str, labels: NDArray) -> dict[str, hq.Bags]:
    """Bags of this kind from the rows of the data set's own bags, which share none."""
    data, protocol = experiment.data, _KINDS[kind](int(experiment.data.test.sizes[0]))
    bags = {}
    for seed, (part, n_bags) in enumerate(_SIZES.items()):
        own = np.unique(getattr(data, part).index)
        pool = hq.Bags(data.train.rows, own, labels=labels, classes=data.classes)
        drawn = protocol.draw(pool, n_bags, random_state=seed)
        # Without the rows' labels: their proportions are all that is known.
        bags[part] = hq.Bags(
            drawn.rows, drawn.index, drawn.offsets, prevalences=drawn.prevalences, classes=data.classes
        )
    return bags


def _symmetric(
    experiment: BagExperiment, name: str, seed: int, bags: dict[str, hq.Bags], drawn: dict[str, dict[str, hq.Bags]],
    budget: Budget, directory: Path,
) -> Run:  # fmt: skip
    preset = experiment.preset
    tests = hq.Bags.concat([own["test"] for own in drawn.values()])
    trials = Trials(
        name, seed, preset.settings_of(name)[:1], preset.training, budget,
        lambda quantifier: quantifier.fit(bags["bags"], validation=bags["validation"]),
        directory, {"loss": "rae", "sampler": hq.Mixer(preset.real)},
    )  # fmt: skip
    return run_network(trials, tests)


def _asymmetric(experiment: BagExperiment, name: str, test: hq.Bags) -> NDArray[np.float64]:
    from experiments.classical import CLASSICAL

    if name == "MLPE":
        return hq.MLPE().fit(experiment.data.train).predict(test)
    return experiment.estimate(CLASSICAL[name].make(0, int(test.sizes[0])), test)


def _scores(estimates: Sequence[NDArray], drawn: dict[str, dict[str, hq.Bags]]) -> dict[str, float]:
    """Mean errors of the estimates for the test bags of each kind."""
    return {
        f"{measure} under {kind} shift": mean_error(measure, bags["test"], own)
        for (kind, bags), own in zip(drawn.items(), estimates, strict=True)
        for measure in ("ae", "rae")
    }
