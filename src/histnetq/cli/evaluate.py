"""The command that measures errors of a model: evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from histnetq.cli.group import main, say
from histnetq.cli.options import KNOWN, KNOWN_IMAGES, TABLE_FILE, WEIGHTS, WRITTEN_ENDINGS, how_to_read, option, options
from histnetq.report.sentences import describe_scores
from histnetq.tables.files import write_files


@main.command()
@options("MODEL", "TABLE", "bag", *KNOWN, *WEIGHTS, "missing", *KNOWN_IMAGES, "coverage", "interval")
@option("-o", "--output", type=TABLE_FILE, help=f"File of the errors of each bag: {WRITTEN_ENDINGS}.")
@options("force", "json")
def evaluate(model: Path, table: list[str], output: Path | None, force: bool, as_json: bool, **known: Any) -> None:
    """Measure the errors of a model on bags of known proportions.

    MODEL estimates the bags of TABLE. The mean absolute error (AE) and the mean relative absolute error (RAE) are
    printed. The estimate of a class that the model does not know is 0. The coverage and the mean width of the intervals
    are printed as well. They are the intervals that histnetq predict writes, or those that --interval names.

    \b
    Examples: histnetq evaluate model rows.csv --bag tow --label species
              histnetq evaluate model rows.csv --bag tow --label species --interval bayes
              histnetq evaluate model scans --images --label taxon
    """
    from histnetq.workflows.estimating import score

    found = score(model, table, **how_to_read(known))
    write_files(("output", output, found.errors, force))
    facts = {"bags": len(found.errors), **found.means, "baseline": found.floor}
    facts |= {"learned_nothing": found.learned_nothing, "doubted": found.n_doubted}
    if found.coverage:
        facts |= {"interval": found.interval, "coverage": found.coverage}
    say(as_json, facts, [*describe_scores(found), *([] if output is None else [f"Written to {output}."])])
