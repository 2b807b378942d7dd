"""The command group of all experiments, its common options, and their parsing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from experiments.bagged import BagExperiment
    from experiments.budgets import Budget

__all__ = ["RESULTS", "budget_of", "choose", "load", "main", "options", "wrote"]

RESULTS = Path(__file__).parent / "results"


class _Commands(click.Group):
    """Commands whose errors are one sentence."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (ValueError, OSError) as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=_Commands)
def main() -> None:
    """The paper's experiments, one command each.

    Finished runs are kept, one per method and seed, and not repeated; a network that was cut off continues from its
    last checkpoint.
    """


_OPTIONS = {
    "methods": click.option("--methods", help="Comma-separated methods.  [default: all]"),
    "budget": click.option(
        "--budget", "budget_name", type=click.Choice(["quick", "full"]), default="quick", show_default=True,
        help="Minutes to an hour, or as much as the paper's.",
    ),
    "seeds": click.option("--seeds", type=click.IntRange(1), help="Runs of each method, seeded 0, 1, …"),
    "trials": click.option("--trials", type=click.IntRange(1), help="Settings tried for each method, at most."),
    "epochs": click.option("--epochs", type=click.IntRange(1), help="Epochs of the networks, at most."),
    "data": click.option(
        "--data", envvar="HISTNETQ_DATA", type=click.Path(path_type=Path), required=True,
        help="Directory of the data sets; also by the variable HISTNETQ_DATA.",
    ),
    "work": click.option(
        "--work", type=click.Path(path_type=Path), default=Path("runs"), show_default=True,
        help="Directory of finished runs, which are not repeated.",
    ),
    "output": click.option(
        "--output", type=click.Path(path_type=Path), default=RESULTS, show_default="experiments/results",
        help="Directory of tables and figures.",
    ),
}  # fmt: skip


def options(*names: str) -> Callable[[Any], Any]:
    def add(command: Any) -> Any:
        for name in reversed(names):
            command = _OPTIONS[name](command)
        return command

    return add


def choose(named: str | None, every: list[str], option: str = "--methods") -> list[str]:
    """Return the items that an option names, among the known ones."""
    wanted = every if named is None else named.split(",")
    unknown = [name for name in wanted if name not in every]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(every)}.", param_hint=option)
    return wanted


def budget_of(budgets: Mapping[str, Budget], name: str, **changed: int | None) -> Budget:
    """Return the named budget, changed by the given options."""
    changed = {key: value for key, value in changed.items() if value is not None}
    budget: Budget = dataclasses.replace(budgets[name], **changed)  # type: ignore[arg-type]
    return budget


def load(name: str, data: Path, work: Path) -> BagExperiment:
    from experiments.bagged import BagExperiment
    from experiments.presets import PRESETS

    preset = PRESETS[name]
    try:
        return BagExperiment(name, preset, preset.load(data), work)
    except FileNotFoundError as error:
        raise click.BadParameter(str(error), param_hint="--data") from None


def wrote(*paths: Path) -> None:
    click.echo(f"written to {', '.join(map(str, paths))}")
