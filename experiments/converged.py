"""The paper's effects at convergence: bins, Bag Mixer, loss and networks, on words of ten languages.

Every network learns the paper's way (random weights, end to end, patience 20, a plateau schedule) on few, fixed
features, so that it ends by patience and not by the clock. Development bags and weights differ by seed; the test bags
are the same.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import histnetq as hq
from experiments import paper
from experiments.networks import NETWORKS
from experiments.runs import digest
from experiments.words import BagPlan, RowPlan, load_words
from histnetq.datasets import Dataset
from histnetq.tables.files import whole_file
from histnetq.training.options import LearnedNothing

__all__ = [
    "BAG_COUNTS", "FINDINGS", "LANGUAGES", "PLANS", "Finding", "Setting", "judge", "means_table",
    "read_table", "reason", "run_settings", "verdicts_table",
]  # fmt: skip

LANGUAGES = (
    "danish", "dutch", "english", "french", "german", "italian", "polish", "portuguese", "spanish", "swedish",
)  # fmt: skip
ROWS = RowPlan(n_features=64, sample=30_000, languages=LANGUAGES)
_VALIDATION, _TEST, _BAG_SIZE = 200, 1_000, 250
_LABELLED = 50  # rows that nothing here uses
BAG_COUNTS = (100, 400, 1_600)
_REAL = {True: 0.5, False: 1.0}  # Mixer or none; an epoch has as many bags in both
# An epoch is of ten updates, as the paper's is on LeQua-T1B (5,000 bags in batches of 500).
TRAINING: dict[str, Any] = {
    "epochs": 10_000, "bags_per_epoch": 250, "batch_bags": 25, "lr": 1e-3, "min_lr": 1e-5, "patience": 20,
    "dropout": 0.1, "weight_decay": 1e-5, "refit": False, "progress": False,
}  # fmt: skip
_NETWORK: dict[str, Any] = {"encoder": (64, 32), "head": (256,)}
_ATTENTION = {"width": 64, "hidden": 64, "n_inducing": 8}


@dataclass(frozen=True)
class Setting:
    """A network, what it is trained for, and its bags.

    Parameters
    ----------
    network : str
        A name of the paper's Table 1.
    bins : int
        Bins of HistNetQ.
    mixer : bool
        Half of the bags of an epoch come from the Bag Mixer, or all are given bags.
    loss : str
    bags : int
        Training bags.
    seed : int
        Of the development bags and of the weights.
    """

    network: str
    bins: int
    mixer: bool
    loss: str
    bags: int
    seed: int


@dataclass(frozen=True)
class Finding:
    """An effect in the paper: the errors of one setting over those of another.

    Parameters
    ----------
    name : str
    worse, better : dict
        What distinguishes the two settings.
    paper : (float, float)
        AE of both in the paper, on LeQua-T1B.
    """

    name: str
    worse: dict[str, Any]
    better: dict[str, Any]
    paper: tuple[float, float]


_LOSSES = ("rae", "ae")
_TABLE_1 = [name for name in paper.RESULTS["LeQua-T1B"] if name in NETWORKS]


def _effects(seeds: int) -> list[Setting]:
    return [
        Setting("HistNetQ-hard", bins, mixer, loss, 500, seed)
        for seed in range(seeds) for loss in _LOSSES for bins in (8, 64) for mixer in (True, False)
    ]  # fmt: skip


def _networks(seeds: int) -> list[Setting]:
    return [Setting(name, 64, True, loss, 500, seed) for seed in range(seeds) for loss in _LOSSES for name in _TABLE_1]


def _bag_counts(seeds: int) -> list[Setting]:
    return [
        Setting("HistNetQ-hard", 64, mixer, loss, bags, seed)
        for seed in range(seeds) for bags in BAG_COUNTS for loss in _LOSSES for mixer in (True, False)
    ]  # fmt: skip


# By seed first, so that results of an unfinished plan are balanced.
PLANS: dict[str, Callable[[int], list[Setting]]] = {
    "effects": _effects,
    "networks": _networks,
    "bags": _bag_counts,
}
_BASE = {"network": "HistNetQ-hard", "bins": 64, "mixer": True, "bags": 500}
_NUMBERS = paper.RESULTS["LeQua-T1B"]
FINDINGS = [
    Finding("64 bins are better than 8", {**_BASE, "bins": 8}, _BASE, (paper.BINS["8"][0], paper.BINS["64"][0])),
    Finding("the Bag Mixer helps", {**_BASE, "mixer": False}, _BASE,
            (paper.ABLATION["LeQua-T1B"]["HistNetQ-hard"][0], _NUMBERS["HistNetQ-hard"][0])),
    *(Finding(f"HistNetQ with hard bins is better than {name}", {**_BASE, "network": name}, _BASE,
              (_NUMBERS[name][0], _NUMBERS["HistNetQ-hard"][0]))
      for name in _TABLE_1 if name != "HistNetQ-hard"),
]  # fmt: skip


def run_settings(
    settings: Sequence[Setting], minutes: float, data: Path, output: Path, say: Callable[[str], Any]
) -> pd.DataFrame:
    """Run what is not in ``converged.csv`` yet, and write it and its curves after every run."""
    output.mkdir(parents=True, exist_ok=True)
    table, curves = read_table(output), read_table(output, "converged-curves.csv")
    for setting in settings:
        key = asdict(setting)
        if len(table) and (table[list(key)] == pd.Series(key)).all(axis=1).any():
            continue
        found, history = _run(setting, _load(data, setting), minutes, data / "converged" / digest(key))
        table = pd.concat([table, pd.DataFrame([{**key, **found}])], ignore_index=True)
        curves = pd.concat([curves, pd.DataFrame({**key, **history})], ignore_index=True)
        for name, frame in (("converged.csv", table), ("converged-curves.csv", curves)):
            with whole_file(output / name) as partial:
                frame.to_csv(partial, index=False, float_format="%.5g")
        say(f"{setting}: {found}")
    return table


def read_table(output: Path, name: str = "converged.csv") -> pd.DataFrame:
    """Read the finished runs, one per row, or their curves; an empty table if there are none."""
    return pd.read_csv(output / name) if (output / name).exists() else pd.DataFrame()


def _load(data: Path, setting: Setting) -> Dataset:
    plan = BagPlan(
        _LABELLED, _BAG_SIZE, LANGUAGES, setting.bags, _VALIDATION, _TEST, seed=100 + setting.seed
    )  # test bags have a seed of their own
    return load_words(data, plan, ROWS)


def _run(setting: Setting, data: Dataset, minutes: float, checkpoint: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train one network, or go on from its checkpoint; return its row of the table and its curves.

    The limit is CPU time, so that a busy machine does not end runs.
    """
    began = time.process_time()
    own = {"n_bins": setting.bins} if setting.network.startswith("HistNetQ") else {}
    own |= _ATTENTION if setting.network == "SetTransformer" else {}
    network = NETWORKS[setting.network](
        **_NETWORK, **own, loss=setting.loss, sampler=hq.Mixer(_REAL[setting.mixer]), random_state=setting.seed,
        training=hq.Training(
            **TRAINING, checkpoint=str(checkpoint), checkpoint_every=5,
            callbacks=(lambda record: time.process_time() - began > 60 * minutes,),
        ),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="training interrupted")
        warnings.simplefilter("ignore", LearnedNothing)
        network.fit(data.bags, validation=data.validation)
    took, history = time.process_time() - began, network.history_
    found: dict[str, Any] = {
        "epochs": len(history["epoch"]), "best_epoch": network.best_epoch_,
        "reason": reason(history["lr"], network.best_epoch_), "cpu_minutes": took / 60,
        "learned": not network.learned_nothing_, "validation": network.validation_loss_,
    }  # fmt: skip
    found |= _errors(data, network.predict(data.test))
    every = slice(None, None, max(1, len(history["epoch"]) // 200))
    return found, {name: history[name][every] for name in ("epoch", "train_loss", "validation_loss")}


def reason(lr: NDArray[np.float64], best_epoch: int) -> str:
    """Tell whether a run ended because of patience at the lowest rate; otherwise, the clock ended it."""
    at_floor = np.flatnonzero(lr <= TRAINING["min_lr"] * (1 + 1e-9))
    stale = len(lr) - max(best_epoch, int(at_floor[0])) if len(at_floor) else 0
    return "patience" if stale >= TRAINING["patience"] else "clock"


def _errors(data: Dataset, p_pred: NDArray[np.float64]) -> dict[str, float]:
    """Mean AE and RAE on the test bags, and on each third of them by their shift from the training mean."""
    p_true, sizes = data.test.prevalences, data.test.sizes
    assert p_true is not None
    shift = np.abs(p_true - data.bags.with_known_prevalences().prevalences.mean(0)).sum(1)  # type: ignore[union-attr]
    thirds = np.array_split(np.argsort(shift, kind="stable"), 3)
    found = {}
    for name in ("ae", "rae"):
        each = hq.metrics.MEASURES[name](p_true, p_pred, sizes)
        found[name] = float(np.mean(each))
        found |= {f"{name}_{part}_shift": float(np.mean(each[third]))
                  for part, third in zip(("low", "middle", "high"), thirds, strict=True)}  # fmt: skip
    return found


def means_table(table: pd.DataFrame) -> pd.DataFrame:
    """One row per setting with its means over seeds, and how many runs learned anything and ended by patience."""
    known = table.assign(patience=table["reason"] == "patience", worst=table["ae"])
    grouped = known.groupby(["network", "bins", "mixer", "loss", "bags"], sort=False)
    found = grouped.agg(
        runs=("seed", "size"), patience=("patience", "sum"), learned=("learned", "sum"), epochs=("epochs", "mean"),
        ae=("ae", "mean"), worst_ae=("worst", "max"), rae=("rae", "mean"),
    ).reset_index()  # fmt: skip
    return found.assign(epochs=found["epochs"].round().astype(int))


def verdicts_table(table: pd.DataFrame) -> pd.DataFrame:
    """The verdict on each finding of the paper, for networks trained for each loss."""
    found = pd.DataFrame([judge(table, finding, loss) for loss in _LOSSES for finding in FINDINGS])
    return found[found["seeds"] > 0].fillna("–")


def judge(table: pd.DataFrame, finding: Finding, loss: str) -> dict[str, Any]:
    """Judge a finding by the log ratio of the test AE over seeds.

    It holds if the 95 % interval over seeds excludes no effect and reaches at least a quarter of the paper's log ratio.
    It does not hold if the interval ends below that quarter, and is undecided otherwise.
    """
    from scipy import stats

    both = [_ae(table, {**which, "loss": loss}) for which in (finding.worse, finding.better)]
    ratios = np.log(both[0] / both[1]).dropna()
    quarter = np.log(finding.paper[0] / finding.paper[1]) / 4
    row: dict[str, Any] = {"finding": finding.name, "loss": loss, "seeds": len(ratios)}
    if len(ratios) < 2:
        return {**row, "verdict": "undecided"}
    mean, error = float(ratios.mean()), float(ratios.std(ddof=1)) / len(ratios) ** 0.5
    reach = float(stats.t.ppf(0.975, len(ratios) - 1)) * error
    sign = np.sign(quarter)
    low, high = sorted((sign * (mean - reach), sign * (mean + reach)))
    verdict = "does not hold" if high < abs(quarter) else "holds" if low > 0 else "undecided"
    numbers = {"AE": both[0].mean(), "AE of the better": both[1].mean(), "ratio": np.exp(mean),
               "low": np.exp(mean - reach), "high": np.exp(mean + reach),
               "ratio, paper": np.exp(4 * quarter)}  # fmt: skip
    return {**row, **{name: float(value) for name, value in numbers.items()}, "verdict": verdict}


def _ae(table: pd.DataFrame, which: dict[str, Any]) -> pd.Series:
    """The test AE of one setting by seed."""
    chosen = table[(table[list(which)] == pd.Series(which)).all(axis=1)]
    return chosen.set_index("seed")["ae"].sort_index()
