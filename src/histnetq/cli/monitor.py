"""The command that watches a mix over time: monitor."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.group import PATH, command_line, csv_text, main, options, say
from histnetq.cli.terminal import echo
from histnetq.tables.files import fill_table, refuse_existing, whole_file

if TYPE_CHECKING:
    import pandas as pd

    from histnetq.quantifiers.base import Quantifier
    from histnetq.workflows.monitoring.state import State

_ALERTED = 3  # exit code
_SHOWN = 6  # decimals of estimates in the terminal
_DIVIDED = ("time", "period", "chunk_size", "chunk_number", "timezone", "weight", "missing")  # rows, into chunks
_METRICS = {
    "histnetq_share": ("estimate", "Estimated share of the class in the last chunk."),
    "histnetq_reference": ("reference", "Mean share of the class in the reference."),
    "histnetq_threshold_lower": ("threshold_lower", "Shares below are an alert."),
    "histnetq_threshold_upper": ("threshold_upper", "Shares above are an alert."),
    "histnetq_alert": ("alert", "Whether the class has an alert in the last chunk."),
    "histnetq_rows": ("n", "Rows of the last chunk."),
    "histnetq_chunk_start_seconds": ("start", "Begin of the last chunk, in seconds since 1970."),
}


@main.command()
@options("MODEL", "NEW")
@click.option("--time", required=True, help="This column holds the times of the rows.")
@click.option("--period", type=click.Choice(["min", "h", "D", "W", "M", "Q", "Y"]),
              help="Chunks are minutes, hours, days, weeks from Monday, months, quarters or years.")  # fmt: skip
@click.option("--chunk-size", type=click.IntRange(1), help="Chunks have so many rows instead, in the order of time.")
@click.option("--chunk-number", type=click.IntRange(1), help="There are so many chunks of equal size instead.")
@click.option("--reference", required=True,
              help="Chunks in this range are what others are compared with, such as 2026-01..2026-06.")  # fmt: skip
@click.option("--by", multiple=True, help="This column divides the rows into segments, each with its own reference; "
              "give it again for several columns.")  # fmt: skip
@click.option("--timezone", help="Days and months are those of this zone, such as Europe/Madrid.  [default: that of "
              "the column, or times as they stand]")  # fmt: skip
@options("weight", "missing")
@click.option("--false-alarms", type=float, default=0.05, show_default=True,
              help="Without a shift, some of 52 chunks have an alert with at most this probability.")  # fmt: skip
@click.option("--coverage", type=float, default=0.9, show_default=True,
              help="This part of the intervals should hold the truth.")  # fmt: skip
@click.option("--state", type=PATH, help="This Parquet file keeps sketches of the chunks: only files that it does not "
              "know are read, and it is brought up to date.")  # fmt: skip
@click.option("-o", "--output", type=PATH, help="A page about the mix over time goes to this HTML file.")
@click.option("--csv", type=PATH, help="The table goes to this CSV or Parquet file.  [default: the terminal, without "
              "-o]")  # fmt: skip
@click.option("--prometheus", type=PATH, help="The last chunk goes to this file, as node_exporter reads it; it is "
              "replaced each time.")  # fmt: skip
@click.option("--fail-on-alert", is_flag=True, help="The exit code is 3 if some chunk has an alert.")
@options("force", "json")
def monitor(
    model: Path, new: list[str], output: Path | None, csv: Path | None, prometheus: Path | None, force: bool,
    as_json: bool, fail_on_alert: bool, **asked: Any,
) -> None:  # fmt: skip
    """Has the mix of the classes moved? Estimate the MODEL's classes in chunks of time of the rows NEW.

    The table has a row for each chunk and class: chunk, start, end, period (reference or analysis), class, n, estimate,
    lower, upper, reference, threshold_lower, threshold_upper, alert and verdict; before them come the columns of --by.
    The verdict is unchanged, moved, or that rows look different: then no mix of the classes explains them.

    Rows may be larger than memory, and come in any order: late rows are added to their chunk. With --state, run the
    command again when there are new files; a file that is given twice counts once.

    \b
    Example: histnetq monitor model rows/*.parquet --time ts --period W --reference 2026-01..2026-06 -o monitor.html
    """
    from histnetq.quantifiers.loading import load

    _refuse_inputs(model, new, output=output, csv=csv, prometheus=prometheus, state=asked["state"])
    _refuse_twice(output=output, csv=csv, prometheus=prometheus, state=asked["state"])
    refuse_existing(csv, force, "csv")
    for name, place in (("prometheus", prometheus), ("state", asked["state"])):
        refuse_existing(place, True, name)
    quantifier = load(model)
    table, state = _run(quantifier, new, **asked)
    with contextlib.ExitStack() as written:  # all files take their places together, when all are there
        if csv is not None:
            fill_table(table, written.enter_context(whole_file(csv, "csv")), csv.suffix)
        if output is not None:
            _fill(written.enter_context(whole_file(output)), _page(quantifier, table, **asked))
        if prometheus is not None:
            _fill(written.enter_context(whole_file(prometheus, "prometheus")), _exposed(table))
        if state is not None:
            state.save(written.enter_context(whole_file(asked["state"], "state")))
        refuse_existing(csv, force, "csv")
        refuse_existing(output, force)
    n_alerts = _tell(table, state, [path for path in (output, csv, prometheus) if path is not None], as_json)
    if fail_on_alert and n_alerts:
        click.get_current_context().exit(_ALERTED)


def _run(model: Quantifier, source: list[str], **asked: Any) -> tuple[pd.DataFrame, State | None]:
    """Return the table, and the state if one is kept."""
    from histnetq.workflows.monitoring.chunk_reading import How
    from histnetq.workflows.monitoring.monitor import monitor_chunks

    how = How(by=tuple(asked["by"]), **{name: asked[name] for name in _DIVIDED})
    rates = {name: asked[name] for name in ("false_alarms", "coverage")}
    return monitor_chunks(model, source, how, asked["reference"], asked["state"], **rates)


def _page(model: Quantifier, table: pd.DataFrame, **asked: Any) -> str:
    from histnetq.report.monitor_page import page

    told = {name: asked[name] for name in ("reference", "false_alarms", "coverage")}
    checked = hasattr(model, "trust_")
    return page(table, method=type(model).__name__, checked=checked, command=command_line(), **told)


def _fill(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _refuse_inputs(model: Path, source: list[str], **places: Path | None) -> None:
    """Refuse to write over the rows, or into the model."""
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


def _exposed(table: pd.DataFrame) -> str:
    """Give the last chunk of each segment in Prometheus's text format."""
    segments = list(table.columns[: table.columns.get_loc("chunk")])
    newest = table.groupby(segments, sort=False)["start"].transform("max") if segments else table["start"].max()
    last = table[table["start"] == newest]
    lines = []
    for name, (column, about) in _METRICS.items():
        lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
        for row in last.to_dict("records"):
            labels = ",".join(f"{_label(key)}={_quoted(row[key])}" for key in [*segments, "class"])
            value = row[column].timestamp() if column == "start" else float(row[column])
            lines.append(f"{name}{{{labels}}} {value:.10g}")
    return "\n".join(lines) + "\n"


def _label(name: str) -> str:
    """Give the name of a column as a label may be named."""
    return re.sub(r"^(?=\d)", "_", re.sub(r"\W", "_", name, flags=re.ASCII))


def _quoted(value: Any) -> str:
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


def _tell(table: pd.DataFrame, state: State | None, written: list[Path], as_json: bool) -> int:
    """Print what was found, and give the number of chunks with an alert."""
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
        "chunks": len(chunks), "analysis": analysis, "alerts": n_alerts,
        "different": int(verdicts.get("rows look different", 0)), "written": [str(path) for path in written],
    }  # fmt: skip
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
