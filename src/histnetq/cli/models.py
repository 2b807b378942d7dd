"""Commands that make models: fit, tune, compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.columns import columns_told
from histnetq.cli.group import KNOWN, PATH, command_line, main, options, refuse_unknown, say, write_table
from histnetq.data.files import is_first_process

if TYPE_CHECKING:
    from histnetq.cli.fitting import Workbench
    from histnetq.quantifiers.base import Quantifier


@main.command()
@options("TRAIN", "bag", *KNOWN, "features", "weight", "missing", "method")
@click.option("--loss", default="ae", show_default=True, help="Loss that networks are trained for, such as ae or rae.")
@options("scratch", "calibration", "seed", "model", "force", "json")
def fit(
    train: list[str], method: str, loss: str, calibration: float, seed: int, output: Path, force: bool, as_json: bool,
    **table: Any,
) -> None:  # fmt: skip
    """Fit a quantifier to the rows of TRAIN, Parquet or CSV files, and keep it.

    \b
    Examples: histnetq fit rows.csv --bag tow --prevalences tows.csv -o model
              histnetq fit rows.csv --bag tow --label species --method emq -o model
              histnetq fit rows.csv --bag tow --label species --method auto -o model
              torchrun --nproc-per-node 2 -m histnetq fit rows.csv --bag tow --label species -o model
    """
    bench = _workbench(train, table, loss=loss, calibration=calibration, random_state=seed)
    if method == "auto":
        model, comparison = bench.fit_best()
        if not as_json:
            click.echo(f"{comparison}\n\n{model.provenance_['why']}")
    else:
        model = bench.fit(method)
    _keep(model, output, force, as_json)


@main.command()
@options("TRAIN", "bag", *KNOWN, "features", "weight", "missing", "method")
@click.option("--trials", default=20, show_default=True, type=click.IntRange(1),
              help="Number of trials in all, with those that the storage holds.")  # fmt: skip
@click.option("--storage", help="Journal file or database URL of the trials; the same command again continues them.")
@options("scratch", "calibration", "seed", "model", "force", "json")
def tune(
    train: list[str], method: str, trials: int, storage: str | None, calibration: float, seed: int, output: Path,
    force: bool, as_json: bool, **table: Any,
) -> None:  # fmt: skip
    """Search for good parameters of a quantifier on the rows of TRAIN, and keep the best model.

    Example: histnetq tune rows.csv --bag tow --label species --method emq --trials 20 -o model
    """
    model = _workbench(train, table, calibration=calibration, random_state=seed).tune(method, trials, storage)
    if not as_json:
        click.echo(model.provenance_["why"])
    _keep(model, output, force, as_json)


@main.command()
@options("TABLE", "bag", *KNOWN, "features", "weight", "missing", "methods")
@click.option("--model", "models", multiple=True, type=PATH, help="A stored model to compare; as often as wanted.")
@options("seed", "table", "force", "json")
def compare(
    table: list[str], methods: list[str] | None, models: tuple[Path, ...], seed: int, output: Path | None,
    force: bool, as_json: bool, features: list[str] | None, **known: Any,
) -> None:  # fmt: skip
    """Compare methods on a quarter of the bags of TABLE, kept apart; or stored models on all of them.

    \b
    Examples: histnetq compare rows.csv --bag tow --label species --methods emq,pacc,histnetq
              histnetq compare checked.csv --bag tow --label species --model old --model new
    """
    from histnetq.cli.estimating import compare_models

    if models and (methods is not None or features is not None):
        raise click.UsageError("expected --model alone, or --methods and --features: stored models have their own.")
    learned: list[str] = []
    facts: dict[str, Any] = {}
    if models:
        refuse_unknown(known["prevalences"], known["label"])
        found = compare_models(models, table, **known)
    else:
        bench = _workbench(table, {"features": features, **known}, random_state=seed)
        found, learned = bench.compare(methods), columns_told(bench.bags.feature_names, bench.table_facts)
        facts = {"features": bench.bags.feature_names, **bench.table_facts}
    means = found.table.xs("mean", axis=1, level="statistic")
    if output is not None:
        write_table(means.reset_index(), output, force)
    facts = {"bags": len(found.errors), "methods": means.astype(float).to_dict("index"), **facts}
    say(as_json, facts, [*learned, str(found), *([] if output is None else [f"written to {output}."])])


def _workbench(train: list[str], table: dict[str, Any], **options: Any) -> Workbench:
    from histnetq.cli.fitting import Workbench
    from histnetq.data.tables import read_bags

    refuse_unknown(table["prevalences"], table["label"])
    return Workbench(read_bags(train, **table), about={"command": command_line(), "sources": train}, **options)


def _keep(model: Quantifier, output: Path, force: bool, as_json: bool) -> None:
    """Save the model and tell what it is."""
    if is_first_process():
        model.save(output, overwrite=force)
    names, known = model.feature_names_ or [], model.provenance_
    facts = {
        "model": str(output), "method": type(model).__name__, "bags": known["bags"],
        "calibration_bags": known["calibration_bags"], "features": names, "classes": model.classes_.tolist(),
        "why": known.get("why"), "left_out": known.get("left_out", {}),
        "dropped_rows": known.get("dropped_rows", 0), "filled_cells": known.get("filled_cells", 0),
    }  # fmt: skip
    lines = [
        f"{facts['method']} learned {len(facts['classes'])} classes from {known['bags']} bags and "
        f"{len(names)} features; kept in {output}.",
        *columns_told(names, known),
        f"Calibrated by {known['calibration_bags']} other bags: predict gives intervals."
        if known["calibration_bags"]
        else "Too few bags to keep some apart for intervals: predict gives estimates alone"
        + ("; --interval bootstrap gives intervals." if getattr(model, "resamples", False) else "."),
    ]
    say(as_json, facts, lines)
