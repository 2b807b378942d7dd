"""The command that fits a model: fit. Also what fit, tune and compare share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.columns import describe_columns, name_inputs
from histnetq.cli.group import command_line, interrupted_place, main, say
from histnetq.cli.options import TRAINING, how_to_read, option, options
from histnetq.cli.terminal import Interrupted, echo
from histnetq.registry import METHODS
from histnetq.tables.files import is_first_process
from histnetq.training.progress import listening, report_event

if TYPE_CHECKING:
    from histnetq.quantifiers.base import Quantifier
    from histnetq.training.progress import Listener
    from histnetq.workflows.fitting import Workbench


_OF_WORKBENCH = {name: name for name in ("loss", "calibration", "classifier", "rescaling", "keep_interrupted")}
_OF_WORKBENCH["seed"] = "random_state"


@main.command()
@options("TRAIN", *TRAINING)
@option(
    "--method",
    default="auto",
    help="Method to fit, such as histnetq, emq or pacc; auto compares a few and fits the best.",
)
@options("classifier", "rescaling")
@option("--loss", default="ae", help="Loss that networks minimise, such as ae or rae.")
@options("calibration", "seed", "model", "force", "keep_interrupted", "json")
def fit(train: list[str], method: str, output: Path, force: bool, as_json: bool, **given: Any) -> None:
    """Fit a model to labelled rows or bags of known proportions.

    TRAIN are Parquet or CSV files. By default a few methods are compared on a quarter of the bags, and the best one is
    fitted to all bags. For labelled rows, these are EMQ, KDEy and PACC on a logistic regression and on a random forest,
    EMNetQ and HistNetQ. For bags of known proportions, these are HistNetQ, EMNetQ and DeepSets. Labelled rows need no
    bag column: bags are then drawn from a quarter of the rows.

    Scores of your own classifier can replace features. With --proba, EMQ, KDEy, PACC, EMNetQ and HistNetQ are compared
    on them; with --prediction, ACC is fitted. The classifier must not be trained on these rows.

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
    bench = workbench(train, given)
    with listening(listener(as_json)):
        model, comparison = bench.fit(method)
    shown = [] if comparison is None else ["", *str(comparison).split("\n"), ""]
    why = [model.provenance_["why"]] if "why" in model.provenance_ else []
    save_model(model, output, force, as_json, *shown, *why)


def listener(as_json: bool) -> Listener | None:
    """Return a function that prints notes about progress; None if the output is JSON."""

    def listen(event: dict[str, Any]) -> None:
        if event["kind"] == "note":
            echo(event["text"])

    return None if as_json else listen


def workbench(train: list[str], given: dict[str, Any]) -> Workbench:
    """Read the training data, and return them with the options of the workbench."""
    from histnetq.workflows.fitting import Workbench
    from histnetq.workflows.reading import read_training

    hard, scored = given["prediction"] is not None, given["proba"] is not None
    if (hard or scored) and given["classifier"] is not None:
        raise click.UsageError("expected no --classifier beside --proba or --prediction, which are a classifier's.")
    chosen = {python: given.pop(name) for name, python in _OF_WORKBENCH.items() if name in given}
    about = {"command": command_line(), "sources": train}
    return Workbench(read_training(train, **how_to_read(given)), hard=hard, about=about, **chosen)


def save_model(model: Quantifier, output: Path, force: bool, as_json: bool, *before: str) -> None:
    """Save the model, and then print the lines `before` and what the model is."""
    interrupted = model.provenance_.get("interrupted", "")
    place = interrupted_place(output) if interrupted else output
    report_event("saving")
    if is_first_process():
        model.save(place, overwrite=force)
    if interrupted:
        raise Interrupted(f"Interrupted {interrupted}: what was learned so far is kept in {place}.")
    names, known = model.feature_names_ or [], model.provenance_
    shown = name_inputs(names, model.text_)
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
        *([] if images else describe_columns(shown, known, model.scores_)),
        f"Calibrated {known['calibrated']}{'' if rows_alone else ': predict gives intervals'}."
        if known["calibration_bags"]
        else f"{known['uncalibrated'].capitalize()}: predict gives estimates alone"
        + (", or intervals by --interval bayes." if model.capabilities().posteriors is not None else "."),
    ]
    say(as_json, facts, lines)
