"""The command that detects changes over time: monitor."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.group import command_line, csv_text, main, say
from histnetq.cli.options import PATH, option, options
from histnetq.cli.terminal import echo
from histnetq.registry import PERIODS
from histnetq.tables.files import fill_table, refuse_existing, whole_file

if TYPE_CHECKING:
    import pandas as pd

    from histnetq.quantifiers.base import Quantifier
    from histnetq.workflows.monitoring.state import State

_ALERTED = 3  # exit code
_SHOWN = 6  # decimals of estimates in the terminal
_DIVIDED = ("time", "period", "chunk_size", "chunk_number", "timezone", "weight", "missing")  # rows, into chunks


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
    help="Time zone of days and months, such as Europe/Madrid.  [default: the zone of the column, or local times]",
)
@options("weight", "missing")
@option("--false-alarms", type=float, default=0.05, help="Probability of any false alarm in 52 chunks.")
@options("coverage")
@option(
    "--state", type=PATH, help="Parquet file of sketches of the chunks. Only new files are read, and it is updated."
)
@option("-o", "--output", type=PATH, help="HTML page about the class proportions over time.")
@option("--csv", type=PATH, help="CSV or Parquet file of the table.  [default: the terminal, without -o]")
@option("--prometheus", type=PATH, help="File of the last chunk in the format of node_exporter. It is always replaced.")
@option("--fail-on-alert", is_flag=True, help="End with exit code 3 if any chunk has an alert.")
@options("force", "json")
def monitor(
    model: Path,
    new: list[str],
    output: Path | None,
    csv: Path | None,
    prometheus: Path | None,
    force: bool,
    as_json: bool,
    fail_on_alert: bool,
    **asked: Any,
) -> None:
    """Detect changes of the class proportions over time.

    MODEL estimates the rows of NEW in chunks of time. The table has a row for each chunk and class: chunk, start, end,
    period (reference or analysis), class, n, estimate, lower, upper, reference, threshold_lower, threshold_upper, alert
    and verdict, after the columns of --by. The verdict is "unchanged", "moved", or "rows look different", if no mix of
    the classes explains the rows.

    The rows may be larger than memory and may be in any order: late rows are added to their chunk. With --state, run
    the command again when there are new files; a file that is given twice counts once.

    \b
    Example: histnetq monitor model rows/*.parquet --time ts --period W --reference 2026-01..2026-06 -o monitor.html
    """
    from histnetq.quantifiers.loading import load
    from histnetq.report.prometheus import expose

    _refuse_inputs(model, new, output=output, csv=csv, prometheus=prometheus, state=asked["state"])
    _refuse_twice(output=output, csv=csv, prometheus=prometheus, state=asked["state"])
    refuse_existing(csv, force, "csv")
    for name, place in (("prometheus", prometheus), ("state", asked["state"])):
        refuse_existing(place, True, name)
    quantifier = load(model)
    table, state = _run(quantifier, new, **asked)
    with contextlib.ExitStack() as written:  # all files appear together, once all are complete
        if csv is not None:
            fill_table(table, written.enter_context(whole_file(csv, "csv")), csv.suffix)
        if output is not None:
            _fill(written.enter_context(whole_file(output)), _page(quantifier, table, asked))
        if prometheus is not None:
            _fill(written.enter_context(whole_file(prometheus, "prometheus")), expose(table))
        if state is not None:
            state.save(written.enter_context(whole_file(asked["state"], "state")))
        refuse_existing(csv, force, "csv")
        refuse_existing(output, force)
    if asked["reference"] is None and not as_json:
        echo(f"Reference: {table.attrs['reference']}, the first half of the chunks.", err=True)
    n_alerts = _print(table, state, [path for path in (output, csv, prometheus) if path is not None], as_json)
    if fail_on_alert and n_alerts:
        click.get_current_context().exit(_ALERTED)


def _run(model: Quantifier, source: list[str], **asked: Any) -> tuple[pd.DataFrame, State | None]:
    """Return the table, and the state if one is kept."""
    from histnetq.workflows.monitoring.chunk_reading import How
    from histnetq.workflows.monitoring.monitor import monitor_chunks

    how = How(by=tuple(asked["by"]), **{name: asked[name] for name in _DIVIDED})
    rates = {name: asked[name] for name in ("false_alarms", "coverage")}
    return monitor_chunks(model, source, how, asked["reference"], asked["state"], **rates)


def _page(model: Quantifier, table: pd.DataFrame, asked: dict[str, Any]) -> str:
    from histnetq.report.monitor_page import page

    rates = {name: asked[name] for name in ("false_alarms", "coverage")}
    about: dict[str, Any] = {
        "method": type(model).__name__,
        "checked": model.trust_ is not None,
        "command": command_line(),
    }
    return page(table, reference=table.attrs["reference"], **about, **rates)


def _fill(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _refuse_inputs(model: Path, source: list[str], **places: Path | None) -> None:
    """Refuse to replace the rows, or to write into the model."""
    from histnetq.tables.table_files import find_files

    rows = {os.path.realpath(path) for path in find_files(source, "source")}
    for name, place in places.items():
        if place is None:
            continue
        target = Path(os.path.realpath(place))
        if str(target) in rows:
            raise ValueError(f"{name}: {place} is one of the files with rows, which it would replace; name another.")
        if Path(os.path.realpath(model)) in target.parents:
            raise ValueError(f"{name}: {place} is in the directory of the model, which stays as it is; name another.")


def _refuse_twice(**places: Path | None) -> None:
    """Refuse one file for two purposes."""
    known: dict[Path, str] = {}
    for name, place in places.items():
        if place is not None and place.is_file() | (not place.exists()):
            other = known.setdefault(place.resolve(), name)
            if other != name:
                raise ValueError(f"{name}: {place} is named by {other}, too; name another file.")


def _print(table: pd.DataFrame, state: State | None, written: list[Path], as_json: bool) -> int:
    """Print the results, and return the number of chunks with an alert."""
    segments = list(table.columns[: table.columns.get_loc("chunk")])
    chunks = table.groupby([*segments, "chunk"], sort=False).agg(
        {"alert": "any", "period": "first", "verdict": "first", "start": "first"}
    )
    n_alerts, verdicts = int(chunks["alert"].sum()), chunks["verdict"].value_counts()
    analysis = int((chunks["period"] == "analysis").sum())
    if not written:
        text = table.to_json(orient="records", date_format="iso") if as_json else csv_text(table.round(_SHOWN))
        echo(text.rstrip("\n"))
        return n_alerts
    facts = {
        "reference": table.attrs["reference"],
        "chunks": len(chunks),
        "analysis": analysis,
        "alerts": n_alerts,
        "different": int(verdicts.get("rows look different", 0)),
        "written": [str(path) for path in written],
    }
    lines = [f"{n_alerts} of {analysis} chunks beside the reference have an alert."]
    if not analysis:
        lines = ["All chunks are in the reference, so that there is none to compare with it."]
    if facts["different"]:
        lines.append(f"The rows of {facts['different']} chunks look different from every mix of the classes.")
    if state is not None:
        facts["files_read"] = state.n_new
        lines.append(f"Files read: {state.n_new}, known before: {len(state.files) - state.n_new}.")
    say(as_json, facts, [*lines, f"Written to {', '.join(map(str, written))}."])
    return n_alerts
