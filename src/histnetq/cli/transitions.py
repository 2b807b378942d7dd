"""The command that estimates transition tables: transitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from histnetq.cli.group import main, print_table, say
from histnetq.cli.options import PLACE, TABLE_FILE, option, options
from histnetq.report.sentences import count
from histnetq.tables.files import write_files


@main.command()
@options("TABLE")
@option("--from", "categories", required=True, help="Pattern of the columns of categories, such as 'party_*'.")
@option("--to", "classes", required=True, help="Pattern of the columns of classes, such as 'candidate_*'.")
@option("--group", help="Column with the group of each row, which gets a table of its own, such as the electorate.")
@option("--occasion", help="Column with the occasion of each row, such as the election; estimated apart.")
@option("--known", type=PLACE, help="Known tables with the columns group, from, to and count, to calibrate intervals.")
@option("--coverage", default=0.9, help="Probability that an interval contains the true share.")
@option("-o", "--output", type=TABLE_FILE, help="File of the table.  [default: print the table of all groups]")
@options("force", "json")
def transitions(table: list[str], output: Path | None, force: bool, as_json: bool, **given: Any) -> None:
    """Estimate how many of each category chose each class.

    A row of TABLE is a unit, such as a polling place, with its totals: one column per category, such as the votes of
    each party, and one per class, such as the votes of each candidate. No row of a single voter is needed.

    \b
    Example: histnetq transitions votes.csv --from 'party_*' --to 'candidate_*' --group electorate -o table.csv
             histnetq transitions votes.csv --from 'party_*' --to 'candidate_*' --group electorate --occasion year \\
                 --known published.csv -o table.csv
    """
    from histnetq.workflows.transitions import transition_table

    found = transition_table(table, **given)
    write_files(("output", output, found, force))
    if output is None:
        print_table(found[found["group"] == "all"], as_json)
        return
    n_groups = found["group"].nunique()
    say(as_json, {"output": str(output), "tables": n_groups}, [f"{count(n_groups, 'table')} written to {output}."])
