"""Commands that make models: fit, tune, compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.group import (
    KNOWN,
    PATH,
    command_line,
    interrupted_place,
    main,
    options,
    refuse_unknown,
    say,
    write_table,
)  # fmt: skip
from histnetq.cli.terminal import Interrupted
from histnetq.data.files import is_first_process

if TYPE_CHECKING:
    from histnetq.cli.fitting import Workbench
    from histnetq.quantifiers.base import Quantifier


@main.command()
@options("TRAIN", "bag", *KNOWN, "features", "weight", "method")
@click.option("--loss", default="ae", show_default=True, help="Networks are trained for this loss, such as ae or rae.")
@options("scratch", "calibration", "seed", "model", "force", "keep_interrupted", "json")
def fit(
    train: list[str], method: str, loss: str, calibration: float, seed: int, output: Path, force: bool, as_json: bool,
    keep_interrupted: bool, **table: Any,
) -> None:  # fmt: skip
    """Fit a quantifier to the rows of TRAIN, Parquet or CSV files, and keep it.

    \b
    Examples: histnetq fit rows.csv --bag tow --prevalences tows.csv -o model
              histnetq fit rows.csv --bag tow --label species --method emq -o model
              histnetq fit rows.csv --bag tow --label species --method auto -o model
              torchrun --nproc-per-node 2 -m histnetq fit rows.csv --bag tow --label species -o model
    """
    chosen = {"loss": loss, "calibration": calibration, "random_state": seed, "keep_interrupted": keep_interrupted}
    bench = _workbench(train, table, **chosen)
    if method == "auto":
        model, comparison = bench.fit_best()
        _keep(model, output, force, as_json, f"{comparison}\n\n{model.provenance_['why']}")
    else:
        _keep(bench.fit(method), output, force, as_json)


@main.command()
@options("TRAIN", "bag", *KNOWN, "features", "weight", "method")
@click.option("--trials", default=20, show_default=True, type=click.IntRange(1),
              help="So many trials are done in all, with those that the storage holds.")  # fmt: skip
@click.option("--storage", help="This journal file or database URL keeps the trials; the same command continues them.")
@options("scratch", "calibration", "seed", "model", "force", "keep_interrupted", "json")
def tune(
    train: list[str], method: str, trials: int, storage: str | None, calibration: float, seed: int, output: Path,
    force: bool, as_json: bool, keep_interrupted: bool, **table: Any,
) -> None:  # fmt: skip
    """Search for good parameters of a quantifier on the rows of TRAIN, and keep the best model.

    Example: histnetq tune rows.csv --bag tow --label species --method emq --trials 20 -o model
    """
    chosen = {"calibration": calibration, "random_state": seed, "keep_interrupted": keep_interrupted}
    model = _workbench(train, table, **chosen).tune(method, trials, storage)
    _keep(model, output, force, as_json, model.provenance_["why"])


@main.command()
@options("TABLE", "bag", *KNOWN, "features", "weight", "methods")
@click.option(
    "--model", "models", multiple=True, type=PATH, help="This stored model is compared; give it again for others."
)
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
    if models:
        refuse_unknown(known["prevalences"], known["label"])
        found = compare_models(models, table, **known)
    else:
        found = _workbench(table, {"features": features, **known}, random_state=seed).compare(methods)
    means = found.table.xs("mean", axis=1, level="statistic")
    if output is not None:
        write_table(means.reset_index(), output, force)
    facts = {"bags": len(found.errors), "methods": means.astype(float).to_dict("index")}
    say(as_json, facts, [str(found), *([] if output is None else [f"written to {output}."])])


def _workbench(train: list[str], table: dict[str, Any], **options: Any) -> Workbench:
    from histnetq.cli.fitting import Workbench
    from histnetq.data.tables import read_bags

    refuse_unknown(table["prevalences"], table["label"])
    return Workbench(read_bags(train, **table), about={"command": command_line(), "sources": train}, **options)


def _keep(model: Quantifier, output: Path, force: bool, as_json: bool, *before: str) -> None:
    """Save the model, and only then tell what comes before and what the model is."""
    interrupted = model.provenance_.get("interrupted", "")
    place = interrupted_place(output) if interrupted else output
    if is_first_process():
        model.save(place, overwrite=force)
    if interrupted:
        raise Interrupted(f"Interrupted {interrupted}: what was learned so far is kept in {place}.")
    names, known = model.feature_names_ or [], model.provenance_
    facts = {
        "model": str(output), "method": type(model).__name__, "bags": known["bags"],
        "calibration_bags": known["calibration_bags"], "features": names, "classes": model.classes_.tolist(),
        "why": known.get("why"),
    }  # fmt: skip
    lines = [
        *before,
        f"{facts['method']} learned {len(facts['classes'])} classes from {known['bags']} bags and "
        f"{len(names)} features; kept in {output}.",
        f"Calibrated by {known['calibration_bags']} other bags: predict gives intervals."
        if known["calibration_bags"]
        else "Too few bags to keep some apart for intervals: predict gives estimates alone"
        + ("; --interval bootstrap gives intervals." if getattr(model, "resamples", False) else "."),
    ]
    say(as_json, facts, lines)
