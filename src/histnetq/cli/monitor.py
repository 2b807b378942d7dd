"""The command that detects changes over time: monitor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.group import command_line, main, print_table, say
from histnetq.cli.options import PAGE_FILE, PATH, TABLE_FILE, WEIGHTS, option, options
from histnetq.cli.terminal import echo
from histnetq.registry import PERIODS, WRITTEN_ENDINGS
from histnetq.tables.files import refuse_existing, refuse_inputs, refuse_same_file, write_files

if TYPE_CHECKING:
    from histnetq.workflows.monitoring.state import MonitorState

_EXIT_ON_ALERT = 3


@main.command()
@options("MODEL", "NEW")
@option("--time", required=True, help="Column of the times of the rows.")
@option("--period", type=click.Choice(PERIODS), help="Chunks by minute, hour, day, week, month, quarter or year.")
@option("--chunk-size", type=click.IntRange(1), help="Rows per chunk, instead of --period.")
@option("--chunk-number", type=click.IntRange(1), help="Number of chunks of equal size, instead of --period.")
@option(
    "--reference",
    help="Range of chunks to compare all later and earlier chunks with, such as 2026-01..2026-06.  [default: the first "
    "half of the chunks]",
)
@option(
    "--by",
    multiple=True,
    help="Column that divides the rows into segments, each with its own reference; repeat it for several columns.",
)
@option(
    "--timezone",
    help="Time zone of days and months, such as Europe/Madrid.  [default: the zone of the column; times without a zone "
    "are used as they are]",
)
@options(*WEIGHTS, "missing")
@option(
    "--false-alarms",
    type=float,
    default=0.05,
    help="Probability of one or more false alarms in 52 chunks (a year of weeks), over all classes of a segment.",
)
@options("coverage")
@option(
    "--state",
    type=PATH,
    help="Parquet file that keeps sketches (small summaries) of the chunks between runs. Files of NEW that an earlier "
    "run read are skipped. The state file is created or updated.",
)
@option(
    "--accuracy",
    is_flag=True,
    help="Add the expected accuracy and F1 of the classifier in each chunk, assuming that only the class proportions "
    "have changed. It needs a method that uses a classifier, or a model of scores, and all rows must fit into memory.",
)
@option("-o", "--output", type=PAGE_FILE, help="HTML page about the class proportions over time.")
@option(
    "--csv",
    type=TABLE_FILE,
    help=f"File of the table: {WRITTEN_ENDINGS}.  [default: print the table, unless -o or --prometheus is given]",
)
@option(
    "--prometheus",
    type=PATH,
    help="File for the estimates and alerts of the last chunk as Prometheus metrics, in the text format of "
    "node_exporter. An existing file is always replaced.",
)
@option("--fail-on-alert", is_flag=True, help="End with exit code 3 if any chunk has an alert.")
@options("force", "json")
def monitor(
    model: Path,
    new: list[str],
    reference: str | None,
    state: Path | None,
    output: Path | None,
    csv: Path | None,
    prometheus: Path | None,
    force: bool,
    as_json: bool,
    fail_on_alert: bool,
    false_alarms: float,
    coverage: float,
    accuracy: bool,
    **chunks: Any,
) -> None:
    """Detect changes of the class proportions over time.

    MODEL estimates the class proportions of NEW in chunks of time. The resulting table has one row for each chunk and
    class. Its columns are the columns of --by, and then chunk, start, end, period (reference or analysis), class, n,
    estimate, lower, upper, reference (mean of the reference chunks), threshold_lower, threshold_upper, alert, verdict.
    With --accuracy, the last columns are accuracy and f1, which are equal for all classes of a chunk.

    The verdict of a chunk is "unchanged"; "moved" if a class has an alert; "rows look different" if no mix of the known
    classes explains the rows; or "no reference" if its segment has fewer than two reference chunks.

    The rows may be larger than memory and may be in any order: late rows are added to their chunk. With --state, run
    the command again when there are new files; a file that is given twice counts once.

    \b
    Example: histnetq monitor model rows/*.parquet --time ts --period W --reference 2026-01..2026-06 -o monitor.html
    """
    from histnetq.quantifiers.loading import load
    from histnetq.report.monitor_page import page
    from histnetq.report.prometheus import expose
    from histnetq.tables.table_files import find_files
    from histnetq.workflows.monitoring.chunk_reading import How
    from histnetq.workflows.monitoring.monitor import count_chunks, describe_limits, monitor_chunks

    places = {"output": output, "csv": csv, "prometheus": prometheus, "state": state}
    refuse_inputs(find_files(new, "source"), model, **places)
    refuse_same_file(**places)
    replaced = {"output": force, "csv": force, "prometheus": True, "state": True}
    for name, place in places.items():
        refuse_existing(place, replaced[name], name)
    quantifier = load(model)
    rates: dict[str, Any] = {"false_alarms": false_alarms, "coverage": coverage}
    table, kept = monitor_chunks(quantifier, new, How(**chunks), reference, state, accuracy=accuracy, **rates)
    about: dict[str, Any] = {"method": type(quantifier).__name__, "checked": quantifier.trust_ is not None}
    about |= {"reference": table.attrs["reference"], "command": command_line()}
    contents = {
        "output": output and page(table, **about, **rates),
        "csv": table,
        "prometheus": expose(table),
        "state": kept and kept.save,
    }
    write_files(*((name, place, contents[name], replaced[name]) for name, place in places.items()))
    if reference is None and not as_json:
        echo(f"Reference: {table.attrs['reference']}, the first half of the chunks.", err=True)
    n_chunks, written = count_chunks(table), [path for path in (output, csv, prometheus) if path is not None]
    if written:
        facts = {"reference": table.attrs["reference"], **n_chunks, "written": [str(path) for path in written]}
        _say_written(facts, describe_limits(table), kept, as_json)
    else:
        print_table(table, as_json)
    if fail_on_alert and n_chunks["alerts"]:
        click.get_current_context().exit(_EXIT_ON_ALERT)


def _say_written(facts: dict[str, Any], limits: str, state: MonitorState | None, as_json: bool) -> None:
    """Print how many chunks have alerts or look different, the limits of alerts, and the paths of the written files."""
    lines = [f"{facts['alerts']} of {facts['analysis']} chunks outside the reference have an alert."]
    if not facts["analysis"]:
        lines = ["All chunks are in the reference, so there are no chunks to compare with it."]
    if facts["different"]:
        lines.append(f"The rows of {facts['different']} chunks look different from every mix of the classes.")
    if state is not None:
        facts["files_read"] = state.n_new
        lines.append(f"Files read: {state.n_new}, known before: {len(state.files) - state.n_new}.")
    lines += [limits] if limits else []
    say(as_json, facts, [*lines, f"Written to {', '.join(facts['written'])}."])
