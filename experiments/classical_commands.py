"""The command that fills a table with the classical methods alone, on one or more data sets."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from experiments.arguments import budget_of, choose, load, main, options, wrote

__all__: list[str] = []

_SETS = ["imdb", "newsgroups", "goemotions", "words", "words-2"]


@main.command()
@click.option("--on", default="imdb,newsgroups,goemotions", show_default=True, help="Data sets, with commas between.")
@click.option("--trials", default=4, show_default=True, type=click.IntRange(1), help="Settings tried for each method.")
@options("methods", "data", "work", "output")
def classical(on: str, trials: int, methods: str | None, data: Path, work: Path, output: Path) -> None:
    """All classical methods but QuaNet, side by side.

    Example: python -m experiments classical --on imdb --methods MS,Friedman,EMQ-BCTS
    """
    from experiments.budgets import BUDGETS
    from experiments.classical import CLASSICAL
    from experiments.tables import write_table

    every = [name for name in CLASSICAL if name != "QuaNet"]
    chosen, budget = choose(methods, every), budget_of(BUDGETS, "quick", trials=trials)
    for name in choose(on, _SETS, "--on"):
        experiment = load(name, data, work)
        runs = experiment.runs(budget)
        runs.fill(chosen, partial(experiment.run, budget=budget), click.echo)
        bags = experiment.data
        about = (
            f"{experiment.preset.what}, {len(bags.test):,} test bags of {bags.test.sizes[0]}, from "
            f"{len(bags.train.index):,} labelled rows. One logistic regression for all, but for EDx, HDx and ReadMe, "
            f"which read the features; each method chosen among {trials} settings, or as many as it has, by RAE on "
            f"{len(bags.validation)} validation bags. EMQ-corrected learns from {len(bags.bags)} bags of known "
            f"proportions as well. Made by `python -m experiments classical --on {name} --trials {trials}`."
        )
        prevalences = bags.train.label_prevalences()[0]
        same, file = dict.fromkeys(("ae", "rae"), runs), output / f"classical-{name}"
        for comparison in write_table(bags.test, prevalences, same, every, file, about, experiment.preset.paper):
            click.echo(comparison)
        wrote(*(file.with_suffix(f".{ending}") for ending in ("csv", "md", "tex")))
