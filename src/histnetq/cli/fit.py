"""The command that fits a model: fit. The commands tune and compare use some of its functions."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from histnetq.cli.group import command_line, interrupted_place, main, say
from histnetq.cli.options import TRAINING, how_to_read, option, options
from histnetq.cli.terminal import Interrupted, echo
from histnetq.report.sentences import describe_fit
from histnetq.tables.files import is_first_process
from histnetq.training.progress import listening, report_event

if TYPE_CHECKING:
    from histnetq.quantifiers.base import Quantifier
    from histnetq.workflows.fitting import Workbench


@main.command()
@options("TRAIN", *TRAINING)
@option(
    "--method",
    default="auto",
    help="Method to fit, such as histnetq, emq or pacc. By default, labelled rows are learned by Pretrained on "
    "the best of a few classifiers; search compares several methods for some minutes and fits the best.",
)
@options("classifier", "rescaling")
@option(
    "--loss",
    default="ae",
    help="Loss that networks and pretrained minimise, such as ae (absolute error) or rae (relative absolute error).",
)
@options("calibration", "bag_size", "seed", "model", "force", "keep_interrupted", "json")
def fit(train: list[str], method: str, output: Path, force: bool, as_json: bool, **given: Any) -> None:
    """Fit a model to labelled rows or bags of known proportions.

    TRAIN are Parquet or CSV files. By default, labelled rows are learned by Pretrained on a logistic regression, a
    random forest or boosting, whichever has the lowest log-loss on held-out rows. Labelled rows need no
    bag column: intervals are then calibrated on bags of all sizes that are drawn from random halves of the rows.

    For bags of known proportions, LinearQ, HistNetQ, EMNetQ and DeepSets are compared on held-out bags, and the method
    with the lowest mean absolute error (AE) is fitted. With --method search, labelled rows are learned this way, too:
    HistNetQ, EMNetQ, and each of EMQ, KDEy and PACC with the three classifiers are compared, which takes minutes.

    Scores of your own classifier can replace features. With --proba, Pretrained is fitted to them; with --prediction,
    ACC. The classifier must have been trained on other rows.

    \b
    Examples: histnetq fit rows.csv --label species -o model
              histnetq fit rows.csv --label species --bag-size 500 -o model
              histnetq fit rows.csv --bag tow --label species --method search -o model
              histnetq fit rows.csv --bag tow --prevalences tows.csv -o model
              histnetq fit rows.csv --bag tow --label species --method emq --classifier forest -o model
              histnetq fit scored.csv --bag tow --label species --proba 'p_*' -o model
              histnetq fit reviews.csv --bag month --label stars --text review -o model
              histnetq fit scans --images --bag scan --prevalences scans.csv -o model
              torchrun --nproc-per-node 2 -m histnetq fit rows.csv --label species --method histnetq -o model
    """
    from histnetq.workflows.fitting import check_method

    check_method(method)
    bench = workbench(train, given)
    with printed_notes(as_json):
        model, comparison = bench.fit(method)
    shown = [] if comparison is None else ["", *str(comparison).split("\n"), ""]
    why = [model.provenance_["why"]] if "why" in model.provenance_ else []
    save_model(model, output, force, as_json, *shown, *why)


def printed_notes(as_json: bool) -> AbstractContextManager[None]:
    """Print notes about progress inside this context, unless the output is JSON."""

    def listen(event: dict[str, Any]) -> None:
        if event["kind"] == "note":
            echo(event["text"])

    return listening(None if as_json else listen)


def workbench(train: list[str], given: dict[str, Any]) -> Workbench:
    """Read the training data, and return them with the options about fitting."""
    from histnetq.workflows.fitting import read_workbench

    about = {"command": command_line(), "sources": train}
    return read_workbench(train, about=about, random_state=given.pop("seed"), **how_to_read(given))


def save_model(model: Quantifier, output: Path, force: bool, as_json: bool, *before: str) -> None:
    """Save the model, and then print the lines `before` and a description of the model."""
    from histnetq.workflows.model_cards import describe_fitted

    interrupted = model.provenance_.get("interrupted", "")
    place = interrupted_place(output) if interrupted else output
    report_event("saving")
    if is_first_process():
        model.save(place, overwrite=force)
    if interrupted:
        raise Interrupted(f"Interrupted {interrupted}: the model learned so far is kept in {place}.")
    facts = describe_fitted(model)
    say(as_json, {"model": str(output), **facts}, [*before, *describe_fit(model, facts, output)])
