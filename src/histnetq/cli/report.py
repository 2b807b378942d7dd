"""The command that writes a page about a model: report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from histnetq.cli.group import command_line, main, say
from histnetq.cli.options import KNOWN, KNOWN_IMAGES, PAGE_FILE, PLACE, WEIGHTS, how_to_read, option, options


@main.command()
@options("MODEL", "TABLE", "bag", *KNOWN, *WEIGHTS, "missing", *KNOWN_IMAGES)
@option("--against", multiple=True, type=PLACE, help="Stored model to compare with; repeat it for several models.")
@options("coverage")
@option("-o", "--output", type=PAGE_FILE, default=Path("report.html"), help="HTML file.")
@options("force", "json")
def report(model: Path, table: list[str], output: Path, force: bool, as_json: bool, **known: Any) -> None:
    """Write an HTML report about a model and its estimates.

    MODEL estimates the bags of TABLE. The report includes errors if the proportions are known.

    \b
    Examples: histnetq report model new.csv --bag tow -o report.html
              histnetq report model checked.csv --bag tow --label species --against other
              histnetq report model new-scans --images
    """
    from histnetq.report.table_report import report_table

    report_table(output, model, table, command=command_line(), overwrite=force, **how_to_read(known))
    say(as_json, {"output": str(output)}, [f"Written to {output}; open it in a browser."])
