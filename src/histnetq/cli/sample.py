"""The command that draws rows for labelling: sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from histnetq.cli.group import count, main, say, write_files
from histnetq.cli.options import PATH, option, options


@main.command()
@options("MODEL", "NEW", "bags", "weight", "missing")
@option(
    "--n",
    default=200,
    type=click.IntRange(10),
    help="Number of rows drawn from each bag; smaller bags give all their rows.",
)
@options("seed")
@option("-o", "--output", type=PATH, required=True, help="CSV or Parquet file of the drawn rows.")
@options("force", "json")
def sample(model: Path, new: list[str], output: Path, force: bool, as_json: bool, **reading: Any) -> None:
    """Draw rows of each bag for labelling.

    More rows of NEW are drawn where MODEL is uncertain. Fill in the column label of the output file; predict --audited
    then returns estimates and intervals that hold under any shift, because the labels are of the bag itself. The
    columns audit_... identify the rows and their probabilities: do not change them. You may sort the rows and delete
    columns of NEW.

    \b
    Example: histnetq sample model new.csv --bag site --n 200 -o to_label.csv
             histnetq predict model new.csv --bag site --audited to_label.csv
    """
    from histnetq.workflows.auditing import sample_table

    drawn = sample_table(model, new, random_state=reading.pop("seed"), **reading)
    n_bags = len(drawn.drop_duplicates(reading["bag"])) if reading["bag"] else 1
    write_files(("output", output, drawn, force))
    facts = {"output": str(output), "rows": len(drawn), "bags": n_bags}
    line = f"{count(len(drawn), 'row')} of {count(n_bags, 'bag')} drawn, written to {output}; "
    say(as_json, facts, [line + "fill in the column label, and then pass the file to histnetq predict --audited."])
