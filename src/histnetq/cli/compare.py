"""The command that compares methods or stored models: compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.fit import printed_notes, workbench
from histnetq.cli.group import main, say
from histnetq.cli.options import COLUMNS, PLACE, TRAINING, how_to_read, option, options, was_given
from histnetq.report.sentences import describe_columns
from histnetq.tables.files import write_files

if TYPE_CHECKING:
    from histnetq.workflows.fitting import Workbench

_OF_TRAINING = ("methods", "classifier", *COLUMNS, "image_size", "color")


@main.command()
@options("TABLE", *TRAINING, "methods", "compared_classifier")
@option("--model", "models", multiple=True, type=PLACE, help="Stored model to compare; repeat it for several models.")
@options("seed", "table", "force", "json")
def compare(
    table: list[str], methods: list[str] | None, output: Path | None, force: bool, as_json: bool, **known: Any
) -> None:
    """Compare the errors of methods or of stored models.

    Methods are fitted to three quarters of the bags of TABLE, and compared on the held-out quarter by the mean absolute
    error (AE) and the mean relative absolute error (RAE). With --model, stored models are compared on all bags instead.

    \b
    Examples: histnetq compare rows.csv --bag tow --label species --methods emq,pacc,histnetq
              histnetq compare checked.csv --bag tow --label species --model old --model new
              histnetq compare reviews.csv --bag month --label stars --text review
              histnetq compare new-scans --images --label taxon --model old --model new
    """
    from histnetq.workflows.estimating import compare_models

    models, learned = known.pop("models"), list[str]()
    facts: dict[str, Any] = {}
    if models:
        _refuse_training_options(click.get_current_context())
        how = how_to_read(known)
        found = compare_models(
            models, table, **{name: how[name] for name in how if name not in (*_OF_TRAINING, "seed")}
        )
    else:
        bench = workbench(table, known)
        with printed_notes(as_json):
            found, learned = bench.compare(methods), _describe_inputs(bench)
        facts = {"features": bench.bags.feature_names, **bench.table_facts}
    means = found.table.xs("mean", axis=1, level="statistic")
    write_files(("output", output, found.to_frame(), force))
    facts = {"bags": len(found.errors), "methods": means.astype(float).to_dict("index"), **facts}
    say(as_json, facts, [*learned, *str(found).split("\n"), *([] if output is None else [f"Written to {output}."])])


def _refuse_training_options(ctx: click.Context) -> None:
    """Refuse options about training if stored models are compared."""
    for param in ctx.command.params:
        if param.name in _OF_TRAINING and was_given(ctx, param):
            raise click.UsageError(f"expected no {param.opts[0]} with --model: stored models have their own.")


def _describe_inputs(bench: Workbench) -> list[str]:
    """Return lines about the inputs of the methods."""
    bags, shape = bench.bags, bench.bags.rows.shape[1:]
    if len(shape) > 1:
        return [f"Learns from images of {shape[-1]} x {shape[-1]} pixels."]
    return describe_columns(bags.feature_names, bench.table_facts, bags.scores is not None, bags.text)
