"""Commands that make models: fit, tune, compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.columns import columns_shown, columns_told
from histnetq.cli.group import (
    LEARNED,
    PATH,
    command_line,
    interrupted_place,
    main,
    options,
    say,
    was_given,
    write_table,
)  # fmt: skip
from histnetq.cli.reading import how_to_read, read_training, require_known
from histnetq.cli.terminal import Interrupted, echo
from histnetq.registry import METHODS
from histnetq.tables.files import is_first_process
from histnetq.training.progress import listening, report_event

if TYPE_CHECKING:
    from histnetq.quantifiers.base import Quantifier
    from histnetq.training.progress import Listener
    from histnetq.workflows.fitting import Workbench

_LEARNING = ("methods", "classifier", "features", "ignore", "proba", "prediction", "text", "image_size", "color")


@main.command()
@options("TRAIN", *LEARNED)
@click.option("--method", default="auto", show_default=True,
              help="This method is fitted, such as histnetq, emq or pacc; auto takes the best of a few.")  # fmt: skip
@options("classifier")
@click.option("--loss", default="ae", show_default=True, help="Networks are trained for this loss, such as ae or rae.")
@options("calibration", "seed", "model", "force", "keep_interrupted", "json")
def fit(
    train: list[str], method: str, output: Path, force: bool, as_json: bool, loss: str, seed: int,
    calibration: float, classifier: str | None, keep_interrupted: bool, **table: Any,
) -> None:  # fmt: skip
    """Fit a quantifier to the rows of TRAIN, Parquet or CSV files, and keep it.

    By default a few methods are compared on a quarter of the bags, and the best of them is fitted to all: of labelled
    rows EMQ, KDEy and PACC on a logistic regression and on a random forest, EMNetQ and HistNetQ; of bags with known
    proportions HistNetQ, EMNetQ and DeepSets. Labelled rows need no bags: some are drawn from a quarter of the rows.

    Scores of a model of your own take the place of features: with --proba, EMQ, KDEy, PACC, EMNetQ and HistNetQ are
    compared on them, and with --prediction ACC is fitted. They must be of rows that the model was not trained on.

    \b
    Examples: histnetq fit rows.csv --label species -o model
              histnetq fit rows.csv --bag tow --label species -o model
              histnetq fit rows.csv --bag tow --prevalences tows.csv -o model
              histnetq fit rows.csv --bag tow --label species --method emq --classifier forest -o model
              histnetq fit scored.csv --bag tow --label species --proba 'p_*' -o model
              histnetq fit reviews.csv --bag month --label stars --text review -o model
              histnetq fit scans --images --bag scan --prevalences scans.csv -o model
              torchrun --nproc-per-node 2 -m histnetq fit rows.csv --label species --method histnetq -o model
    """
    from histnetq.bags.checks import check_choice

    check_choice("method", method, ("auto", *METHODS))
    chosen = {"loss": loss, "calibration": calibration, "classifier": classifier, "random_state": seed}
    bench = _workbench(train, table, **chosen, keep_interrupted=keep_interrupted)
    with listening(_listener(as_json)):
        model, comparison = bench.fit(method)
    shown = [] if comparison is None else ["", *str(comparison).split("\n"), ""]
    _keep(model, output, force, as_json, *shown, *([model.provenance_["why"]] if "why" in model.provenance_ else []))


@main.command()
@options("TRAIN", *LEARNED, "method", "classifier")
@click.option("--trials", default=20, show_default=True, type=click.IntRange(1),
              help="So many trials are done in all, with those that the storage holds.")  # fmt: skip
@click.option("--storage", help="This journal file or database URL keeps the trials; the same command continues them.")
@options("calibration", "seed", "model", "force", "keep_interrupted", "json")
def tune(
    train: list[str], method: str, trials: int, storage: str | None, output: Path, force: bool, as_json: bool,
    seed: int, calibration: float, classifier: str | None, keep_interrupted: bool, **table: Any,
) -> None:  # fmt: skip
    """Search for good parameters of a quantifier on the rows of TRAIN, and keep the best model.

    Methods from cc to quanet try all classifiers; with --classifier, parameters of that one are searched instead. With
    scores of a model of your own (--proba), parameters of the method alone are searched.

    \b
    Examples: histnetq tune rows.csv --bag tow --label species --method emq --trials 20 -o model
              histnetq tune scored.csv --bag tow --label species --proba 'p_*' --method kdey --trials 20 -o model
              histnetq tune scans --images --label taxon --method pacc -o model
    """
    chosen = {"calibration": calibration, "classifier": classifier, "random_state": seed}
    bench = _workbench(train, table, **chosen, keep_interrupted=keep_interrupted)
    with listening(_listener(as_json)):
        model = bench.tune(method, trials, storage)
    _keep(model, output, force, as_json, model.provenance_["why"])


@main.command()
@options("TABLE", *LEARNED, "methods", "classifier")
@click.option(
    "--model", "models", multiple=True, type=PATH, help="This stored model is compared; give it again for others."
)
@options("seed", "table", "force", "json")
def compare(
    table: list[str], methods: list[str] | None, classifier: str | None, models: tuple[Path, ...], seed: int,
    output: Path | None, force: bool, as_json: bool, **known: Any,
) -> None:  # fmt: skip
    """Compare methods on a quarter of the bags of TABLE, kept apart; or stored models on all of them.

    \b
    Examples: histnetq compare rows.csv --bag tow --label species --methods emq,pacc,histnetq
              histnetq compare checked.csv --bag tow --label species --model old --model new
              histnetq compare reviews.csv --bag month --label stars --text review
              histnetq compare new-scans --images --label taxon --model old --model new
    """
    from histnetq.workflows.estimating import compare_models

    learned: list[str] = []
    facts: dict[str, Any] = {}
    if models:
        _refuse_own(click.get_current_context())
        how = how_to_read(known) | {"label": require_known(table, known)}
        found = compare_models(models, table, **{name: how[name] for name in how if name not in _LEARNING})
    else:
        bench = _workbench(table, known, classifier=classifier, random_state=seed)
        with listening(_listener(as_json)):
            found, learned = bench.compare(methods), _inputs_told(bench)
        facts = {"features": bench.bags.feature_names, **bench.table_facts}
    means = found.table.xs("mean", axis=1, level="statistic")
    if output is not None:
        write_table(found.to_frame(), output, force)
    facts = {"bags": len(found.errors), "methods": means.astype(float).to_dict("index"), **facts}
    say(as_json, facts, [*learned, *str(found).split("\n"), *([] if output is None else [f"written to {output}."])])


def _refuse_own(ctx: click.Context) -> None:
    """Refuse options about learning where stored models are compared."""
    for option in ctx.command.params:
        if option.name in _LEARNING and was_given(ctx, option):
            raise click.UsageError(f"expected no {option.opts[0]} beside --model: stored models have their own.")


def _inputs_told(bench: Workbench) -> list[str]:
    """Lines that say what is learned from."""
    bags, shape = bench.bags, bench.bags.rows.shape[1:]
    if len(shape) > 1:
        return [f"Learns from images of {shape[-1]} x {shape[-1]} pixels."]
    return columns_told(columns_shown(bags.feature_names, bags.text), bench.table_facts, bags.scores is not None)


def _listener(as_json: bool) -> Listener | None:
    """Print notes about progress, unless the output is for machines."""

    def listen(event: dict[str, Any]) -> None:
        if event["kind"] == "note":
            echo(event["text"])

    return None if as_json else listen


def _workbench(train: list[str], given: dict[str, Any], **chosen: Any) -> Workbench:
    from histnetq.workflows.fitting import Workbench

    scored = given["proba"] is not None or given["prediction"] is not None
    if scored and chosen.get("classifier") is not None:
        raise click.UsageError("expected no --classifier beside --proba or --prediction, which are a classifier's.")
    hard, about = given["prediction"] is not None, {"command": command_line(), "sources": train}
    return Workbench(read_training(train, given), hard=hard, about=about, **chosen)


def _keep(model: Quantifier, output: Path, force: bool, as_json: bool, *before: str) -> None:
    """Save the model, and only then tell what comes before and what the model is."""
    interrupted = model.provenance_.get("interrupted", "")
    place = interrupted_place(output) if interrupted else output
    report_event("saving")
    if is_first_process():
        model.save(place, overwrite=force)
    if interrupted:
        raise Interrupted(f"Interrupted {interrupted}: what was learned so far is kept in {place}.")
    names, known = model.feature_names_ or [], model.provenance_
    shown = columns_shown(names, getattr(model, "text_", None))
    facts = {
        "model": str(output), "method": type(model).__name__, "bags": known["bags"],
        "calibration_bags": known["calibration_bags"], "features": names, "classes": model.classes_.tolist(),
        "why": known.get("why"), "left_out": known.get("left_out", {}),
        "dropped_rows": known.get("dropped_rows", 0), "filled_cells": known.get("filled_cells", 0),
        "scores": model.scores_,
    }  # fmt: skip
    rows_alone, side = known["bags"] == 1, model.input_shape_[-1]
    images = len(model.input_shape_) > 1
    seen = f"images of {side} x {side} pixels" if images else f"{len(names)} features"
    source = f"{known['rows']:,} rows" if rows_alone else f"{known['bags']} bags"
    lines = [
        *before,
        f"{facts['method']} learned {len(facts['classes'])} classes from {source} and {seen}; kept in {output}.",
        *([] if images else columns_told(shown, known, model.scores_)),
        f"Calibrated {known['calibrated']}{'' if rows_alone else ': predict gives intervals'}."
        if known["calibration_bags"]
        else f"{known['uncalibrated'].capitalize()}: predict gives estimates alone"
        + (", or intervals by --interval bayes." if getattr(model, "resamples", False) else "."),
    ]
    say(as_json, facts, lines)
