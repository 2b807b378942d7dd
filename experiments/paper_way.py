"""The paper's way of learning on words: HistNetQ from random weights, end to end, for one loss.

By number of bins, with and without the Bag Mixer, on bags whose rows hardly repeat.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

import histnetq as hq
from experiments import paper
from experiments.bagged import BagExperiment
from experiments.budgets import Budget
from experiments.networks import Trials, run_network
from experiments.presets import PRESETS
from experiments.runs import Run, Runs, digest

__all__ = ["NAMES", "curves_table", "errors_table", "run_paper_way"]

_PAPER = PRESETS["lequa-t1b"]
# Parameters of all networks in this experiment, and of their training.
SETTING: dict[str, Any] = {**_PAPER.settings[0]}
# An epoch is of two updates, as it is of the 700 bags alone.
TRAINING = dataclasses.replace(_PAPER.training, bags_per_epoch=1000)
_BINS = (8, 64)
_SAMPLERS = {"mixed": hq.Mixer(_PAPER.real), "alone": None}
_VARIANTS = {f"{bins}-bins-{name}": (bins, sampler) for bins in _BINS for name, sampler in _SAMPLERS.items()}
NAMES = [*_VARIANTS]
_BESIDE = {  # the paper's numbers, on LeQua-T1B
    **{f"{bins}-bins-mixed": paper.BINS[str(bins)] for bins in _BINS},
    "64-bins-alone": paper.ABLATION["LeQua-T1B"]["HistNetQ-hard"],
}


def run_paper_way(
    experiment: BagExperiment, names: Sequence[str], minutes: float, epochs: int, say: Callable[[str], Any]
) -> dict[str, Run]:
    """Complete the missing runs; an interrupted network, or one with fewer minutes, resumes from its checkpoint.

    Parameters
    ----------
    names : some of `NAMES`
    say : told of every epoch

    Returns
    -------
    dict
        The run of each name, and all other finished runs.
    """
    place = experiment.directory / f"paper-way-{digest(experiment.identity, SETTING, TRAINING.identity())}"
    budget = Budget(trials=1, trial_epochs=1, epochs=epochs, minutes=minutes)

    def act(name: str, seed: int) -> Run:
        def tell(record: dict[str, float]) -> None:
            say(
                f"{name}, epoch {record['epoch']}: training {record['train_loss']:.4f}, "
                f"validation {record['validation_loss']:.4f}, {record['seconds']:.0f} s"
            )

        bins, sampler = _VARIANTS[name]
        trials = Trials(
            "HistNetQ-hard", seed, [{**SETTING, "n_bins": bins}], dataclasses.replace(TRAINING, callbacks=(tell,)),
            budget, lambda quantifier: quantifier.fit(experiment.data.bags, validation=experiment.data.validation),
            place / name, {"loss": "rae", "sampler": sampler},
        )  # fmt: skip
        return run_network(trials, experiment.data.test)

    runs = Runs(place / budget.name("rae"), seeds=1)
    runs.fill(names, act, say)
    return {name: found[0] for name in NAMES if (found := runs.read(name))}


def curves_table(runs: dict[str, Run]) -> pd.DataFrame:
    """One row per network and epoch: its losses, and the seconds of training up to its end."""
    tables = []
    for name, run in runs.items():
        train, validation, seconds = run.curves.T
        epochs = np.arange(1, len(train) + 1)
        columns = {"epoch": epochs, "seconds": seconds.cumsum().round(1), "train": train, "validation": validation}
        tables.append(pd.DataFrame({"setting": name, **columns}))
    return pd.concat(tables, ignore_index=True)


def errors_table(test: hq.Bags, runs: dict[str, Run]) -> pd.DataFrame:
    """Mean errors on the test bags, of the epoch that was best on the validation bags; beside: the paper's."""
    rows = []
    for name, run in runs.items():
        errors = {m.upper(): float(hq.metrics.MEASURES[m](test.prevalences, run.estimates, test.sizes).mean())
                  for m in ("ae", "rae")}  # fmt: skip
        beside = [f"{number:.4f}" for number in _BESIDE[name]] if name in _BESIDE else ["–", "–"]
        about = {"epochs": str(len(run.curves)), "minutes": f"{run.fit_seconds / 60:.0f}"}
        rows.append({"setting": name, **errors, "validation": run.validation, **about,
                     "AE, paper": beside[0], "RAE, paper": beside[1]})  # fmt: skip
    return pd.DataFrame(rows)
