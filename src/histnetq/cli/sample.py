"""The command that draws rows for labelling: sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from histnetq.cli.group import main, say
from histnetq.cli.options import TABLE_FILE, WRITTEN_ENDINGS, option, options
from histnetq.report.sentences import count
from histnetq.tables.files import write_files


@main.command()
@options("MODEL", "NEW", "bags", "weight", "missing")
@option(
    "--n",
    default=200,
    type=click.IntRange(10),
    help="Number of rows drawn from each bag; smaller bags give all their rows.",
)
@options("seed")
@option("-o", "--output", type=TABLE_FILE, required=True, help=f"File of the drawn rows: {WRITTEN_ENDINGS}.")
@options("force", "json")
def sample(model: Path, new: list[str], output: Path, force: bool, as_json: bool, **reading: Any) -> None:
    """Draw rows of each bag for labelling.

    More rows of NEW are drawn where MODEL is uncertain. Write the class of each row into the column named label of the
    output file. Then predict --audited gives estimates and intervals that are valid even if NEW differs from the
    training data in any way, because they use labels of rows of the bag itself.

    The columns audit_... contain the numbers of the rows and their probabilities of being drawn: do not change
    them. You may sort the rows of the output file, and delete columns that were copied from NEW.

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
