"""Experiments that vary only one thing: the number of bins, or the Bag Mixer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

import histnetq as hq
from experiments import paper
from experiments.bagged import BagExperiment
from experiments.budgets import Budget
from experiments.choices import mean_error
from experiments.runs import Run, Runs

__all__ = ["BINS", "Found", "bin_variants", "joined", "mixer_table", "mixer_variants", "run_variants", "variant_table"]

BINS = (8, 16, 32, 64)
_MIXED = ("DeepSets-avg", "DeepSets-median", "DeepSets-max", "SetTransformer")


@dataclass(frozen=True)
class Found:
    """The results of the variants on one data set."""

    experiment: BagExperiment
    runs: dict[str, list[Run]]
    table: pd.DataFrame


Variants = Mapping[str, tuple[str, dict[str, Any]]]  # name → network and its parameters


def bin_variants() -> Variants:
    return {str(n): ("HistNetQ-hard", {"n_bins": n}) for n in BINS}


def mixer_variants(real: float) -> Variants:
    """All five networks on the given bags alone and with mixed ones; HistNetQ with few and with many real bags."""
    variants: dict[str, tuple[str, dict[str, Any]]] = {}
    for network in (*_MIXED, "HistNetQ-hard"):
        proportions = sorted({real, 0.1, 0.9}) if network == "HistNetQ-hard" else [real]
        variants[f"{network} alone"] = network, {"sampler": None}
        variants |= {f"{network} real {r}": (network, {"sampler": hq.Mixer(r)}) for r in proportions}
    return variants


def run_variants(
    experiment: BagExperiment, what: str, variants: Variants, budget: Budget, say: Callable[[str], Any]
) -> dict[str, list[Run]]:
    """The runs of each variant, those that are not done yet now."""

    def act(name: str, seed: int) -> Run:
        network, changed = variants[name]
        own = {key: value for key, value in changed.items() if key != "sampler"}
        fixed = {key: value for key, value in changed.items() if key == "sampler"}
        where = place / "trials" / name.replace(" ", "-")
        return experiment.train(network, seed, {**experiment.preset.settings[0], **own}, budget, where, **fixed)

    budget = budget.longer(experiment.preset.study)
    place = experiment.place(what, budget)
    runs = Runs(place, budget.seeds)
    runs.fill(variants, act, say)
    return {name: runs.read(name) for name in variants}


def variant_table(data: str, test: hq.Bags, found: Mapping[str, list[Run]]) -> pd.DataFrame:
    """One row per variant with its mean errors on the test bags."""
    rows = []
    for name, runs in found.items():
        errors = {m: sum(mean_error(m, test, run.estimates) for run in runs) / len(runs) for m in ("ae", "rae")}
        seconds = sum(run.fit_seconds for run in runs) / len(runs)
        validation = sum(run.validation for run in runs) / len(runs)
        about = {"n_bags": len(test), "n_seeds": len(runs), "chosen": runs[0].params}
        row = {"data": data, "variant": name, **errors, "validation": validation, "fit_seconds": round(seconds, 1)}
        rows.append({**row, **about})
    return pd.DataFrame(rows)


def mixer_table(table: pd.DataFrame, real: float, column: str) -> str:
    """Markdown: errors without the Bag Mixer, in parentheses how much higher than with it; the paper's beside."""
    lines = ["| network | real bags | AE | RAE | AE, paper | RAE, paper |", "| :-- | --: | --: | --: | --: | --: |"]
    by_name = table.set_index("variant")
    for name, row in by_name.iterrows():
        network, kind = str(name).split(" ", 1)
        mixed = by_name.loc[f"{network} real {real}"]
        numbers = paper.RESULTS[column][network]
        cells = [f"{row[m]:.4f}" for m in ("ae", "rae")]
        known = ["–", "–"]
        if kind == "alone":
            cells = [f"{row[m]:.4f} ({row[m] / mixed[m] - 1:+.1%})" for m in ("ae", "rae")]
            ratios = zip(paper.ABLATION[column][network], numbers, strict=True)
            known = [f"{without:.4f} ({without / base - 1:+.1%})" for without, base in ratios]
        elif kind == f"real {real}":
            known = [f"{number:.4f}" for number in numbers]
        share = "all, none mixed" if kind == "alone" else f"{float(kind.removeprefix('real ')):.0%}"
        lines.append(f"| {network} | {share} | {' | '.join(cells + known)} |")
    return "\n".join(lines)


def joined(found: Mapping[str, Found]) -> pd.DataFrame:
    """Concatenate the tables of all data sets."""
    return pd.concat([part.table for part in found.values()])
