"""The command that draws rows to be labelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from histnetq.cli.group import PATH, main, options, say, write_table


@main.command()
@options("MODEL", "NEW", "bags", "weight", "missing")
@click.option("--n", default=200, show_default=True, type=click.IntRange(10),
              help="So many rows of each bag are drawn, or all if it has no more.")  # fmt: skip
@options("seed")
@click.option("-o", "--output", type=PATH, required=True, help="The drawn rows go to this CSV or Parquet file.")
@options("force", "json")
def sample(model: Path, new: list[str], output: Path, force: bool, as_json: bool, **reading: Any) -> None:
    """Draw rows of each bag of NEW to be labelled by hand, more of them where the MODEL is in doubt.

    Fill in the column label of OUTPUT; predict --audited then gives estimates and intervals that hold whatever the
    shift, because the labels are of the bag itself. The columns audit_... are what predict finds the rows by, with the
    probability with which each was drawn: leave them as they are. Rows may be sorted, and columns of NEW left out.

    \b
    Example: histnetq sample model new.csv --bag site --n 200 -o to_label.csv
             histnetq predict model new.csv --bag site --audited to_label.csv
    """
    from histnetq.workflows.auditing import sample_table

    drawn = sample_table(model, new, random_state=reading.pop("seed"), **reading)
    n_bags = len(drawn.drop_duplicates(reading["bag"])) if reading["bag"] else 1
    write_table(drawn, output, force)
    facts = {"output": str(output), "rows": len(drawn), "bags": n_bags}
    say(as_json, facts, [
        f"{len(drawn):,} rows of {n_bags:,} bags drawn, written to {output}; fill in the column label, and then give "
        "the file to histnetq predict --audited.",
    ])  # fmt: skip
