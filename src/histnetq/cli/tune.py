"""The command that tunes a method: tune."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from histnetq.cli.fit import printed_notes, save_model, workbench
from histnetq.cli.group import main
from histnetq.cli.options import TRAINING, option, options


@main.command()
@options("TRAIN", *TRAINING, "method", "tuned_classifier")
@option("--trials", default=20, type=click.IntRange(1), help="Total number of trials, including those already stored.")
@option(
    "--storage",
    help="File or database URL that stores the trials. Run the same command again to continue an interrupted search.",
)
@options("calibration", "bag_size", "seed", "model", "force", "keep_interrupted", "json")
def tune(
    train: list[str],
    method: str,
    trials: int,
    storage: str | None,
    output: Path,
    force: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Search for the best parameters of a method.

    Models are fitted to the rows of TRAIN, and the model with the lowest mean absolute error (AE) on held-out bags is
    saved. Classifier-based methods try all classifiers; with --classifier, the parameters of this classifier are
    searched instead. With --proba, only parameters of the method are searched.

    \b
    Examples: histnetq tune rows.csv --bag tow --label species --method emq --trials 20 -o model
              histnetq tune scored.csv --bag tow --label species --proba 'p_*' --method kdey --trials 20 -o model
              histnetq tune scans --images --label taxon --method pacc -o model
    """
    bench = workbench(train, given)
    with printed_notes(as_json):
        model = bench.tune(method, trials, storage)
    save_model(model, output, force, as_json, model.provenance_["why"])
