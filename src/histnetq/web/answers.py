"""Estimates of an uploaded table, by the functions of the command line, and the forms in which they are told."""

from __future__ import annotations

import io
import json
import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from histnetq.data.table_files import watched
from histnetq.monitoring.monitor import check_options, judge_chunks
from histnetq.monitoring.reading import How, read_chunks
from histnetq.quantifiers.base import Quantifier
from histnetq.report.estimating import Estimates, estimate_by
from histnetq.web.limits import Limits
from histnetq.web.refusals import RefusedError, told_to_users

COVERAGE = 0.9  # of intervals, where none is asked for
FALSE_ALARMS = 0.05
SHOWN_BAGS = 10_000
_told: ContextVar[list[str] | None] = ContextVar("told", default=None)


@dataclass(frozen=True)
class Reading:
    """A table that is being read for someone: its limits, and who hears how many rows were read."""

    path: Path
    limits: Limits
    step: Callable[[int], None] = lambda n_rows: None

    @contextmanager
    def __call__(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Check the file, then watch it being read; give the list of warnings to come."""
        messages: list[str] = []
        n_read = 0

        def look(batch: pa.RecordBatch) -> None:
            nonlocal n_read
            self.limits.check_batch(batch)
            n_read += batch.num_rows
            self.limits.check_cells(n_read, batch.num_columns)  # whatever the file says of itself
            self.step(batch.num_rows)

        token = _told.set(messages)
        try:
            with told_to_users(self.path.parent), watched(look):
                self.limits.check_file(self.path, texts)
                yield messages
        finally:
            _told.reset(token)


def collect_warnings() -> None:
    """Let warnings of the library go to whom they are about; this is for the whole process."""
    warnings.filterwarnings("always", category=UserWarning, module="histnetq")
    others = warnings.showwarning

    def tell(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        messages = _told.get()
        if messages is None or not issubclass(category, UserWarning):
            others(message, category, *place, **more)
        elif len(messages) < 20:
            messages.append(str(message))

    warnings.showwarning = tell


def estimate_file(model: Quantifier, reading: Reading, **options: Any) -> tuple[Estimates, list[str]]:
    """Estimate the bags of a file as `histnetq predict` does, and give warnings, too."""
    with reading(_columns(model, options["bag"])) as messages:
        found = estimate_by(model, [str(reading.path)], **options)
    if len(found) > 1 and (found.about["n"] == 1).all():
        messages.append(f"Each of the {len(found):,} bags has one row alone: is this the right bag column?")
    return found, [message.replace(f"{reading.path.parent}/", "") for message in messages]


def monitor_file(
    model: Quantifier, reading: Reading, *, time: str, period: str, reference: str | None, by: Sequence[str],
    coverage: float, missing: str,
) -> tuple[pd.DataFrame, str, list[str]]:  # fmt: skip
    """Give what `histnetq monitor` finds in a file, the reference, and warnings.

    Without a reference, the first half of the periods is it.
    """
    with reading([*_columns(model, by), time]) as messages:
        how = How(time, period, by=tuple(by), missing=missing)
        check_options(model, reference or "2000..2001", FALSE_ALARMS, coverage)
        bags, chunks = read_chunks(model, [str(reading.path)], how, how.clock())
        if reference is None:
            begins = np.sort([json.loads(str(name))[0] for name in np.asarray(bags.ids)])
            first, last = chunks.describe(begins[[0, (len(begins) - 1) // 2]])["start"].dt.tz_localize(None)
            form = "%Y-%m-%dT%H:%M" if period in ("min", "h") else "%Y-%m-%d"
            reference = f"{first:{form}}..{last:{form}}"
        table = judge_chunks(
            model, bags, chunks, how.by, reference, false_alarms=FALSE_ALARMS, coverage=coverage
        )  # fmt: skip
    return table, reference, [message.replace(f"{reading.path.parent}/", "") for message in messages]


def _columns(model: Quantifier, others: Sequence[str]) -> list[str]:
    """The columns of a table that may hold texts and are read."""
    return [*others, *{name.partition("=")[0] for name in model.feature_names_ or () if "=" in name}]


def as_csv(frame: pd.DataFrame) -> str:
    """Give the CSV file that a command writes."""
    text = io.StringIO()
    frame.to_csv(text, index=False, lineterminator="\n")
    return text.getvalue()


def as_records(found: Estimates, wide: bool) -> str:
    """Give the rows of the table as a command prints them for machines."""
    if wide:
        return str(found.to_frame(wide).to_json(orient="records"))
    # Not by a data frame, which takes several times as long for the few bags of most requests.
    n_classes = len(found.classes)
    names = [np.repeat(found.names[column].to_numpy(object), n_classes) for column in found.names.columns]
    about = [np.repeat(found.about[column].to_numpy(object), n_classes) for column in found.about.columns]
    values = [np.where(np.isnan(array), np.array(None, object), array).ravel() for array in found.values.values()]
    keys = [*map(str, found.names.columns), "class", *found.values, *found.about.columns]
    columns = [*names, np.tile(found.classes.astype(object), len(found)), *values, *about]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return json.dumps([dict(zip(keys, row, strict=True)) for row in rows], separators=(",", ":"))


def is_trusted(found: Estimates) -> NDArray[np.bool_]:
    """(n_bags,): whether nothing speaks against a bag."""
    trust = found.about["trust"].to_numpy(object)
    return (trust == "ok") | (trust == "unchecked")


def tell_estimates(found: Estimates) -> dict[str, Any]:
    """Give the first bags, their names, and arrays in the order of the classes."""
    few = slice(SHOWN_BAGS)
    values = {name: array[few].tolist() for name, array in found.values.items()}
    n_shown = len(values["estimate"])
    ends = {name: values.get(name, [None] * n_shown) for name in ("lower", "upper")}
    columns = (
        found.names[few].to_numpy().tolist(), found.about["n"][few].tolist(), found.about["trust"][few].tolist(),
        values["estimate"], ends["lower"], ends["upper"],
    )  # fmt: skip
    keys = ("name", "n", "trust", "estimate", "lower", "upper")
    return {
        "classes": found.classes.tolist(), "keys": list(map(str, found.names.columns)), "n_bags": len(found),
        "shown_bags": n_shown, "n_doubted": found.n_doubted, "intervals": "lower" in found.values,
        "bags": [dict(zip(keys, bag, strict=True)) for bag in zip(*columns, strict=True)],
    }  # fmt: skip


def tell_chunks(table: pd.DataFrame, n_classes: int) -> list[dict[str, Any]]:
    """Give the chunks of time, with arrays in the order of the classes."""
    arrays = ("estimate", "lower", "upper", "reference", "threshold_lower", "threshold_upper", "alert")
    own = table.iloc[::n_classes]
    columns: dict[str, list[Any]] = {
        "chunk": own["chunk"].astype(str).tolist(), "start": [t.isoformat() for t in own["start"]],
        "end": [t.isoformat() for t in own["end"]], "n": own["n"].tolist(), "period": own["period"].tolist(),
        "verdict": own["verdict"].tolist(),
    }  # fmt: skip
    segments = table.columns[: table.columns.get_loc("chunk")]
    columns["segment"] = own[segments].to_numpy(object).tolist()
    for name in arrays:
        values = table[name].to_numpy().reshape(-1, n_classes)
        columns[name] = values.tolist()
        if values.dtype.kind == "f":  # a segment may have no reference, and a model no intervals
            known = ~np.isnan(values).any(1)
            columns[name] = [row if there else None for row, there in zip(columns[name], known.tolist(), strict=True)]
    return [dict(zip(columns, chunk, strict=True)) for chunk in zip(*columns.values(), strict=True)]


def command(*words: Any, **options: Any) -> str:
    """Write a command line, without options that are None, and with those that are lists once for each entry.

    Examples
    --------
    >>> command("predict", "models/cod", "my rows.csv", bag=["tow"], coverage=None)
    "histnetq predict models/cod 'my rows.csv' --bag tow"
    """
    return shlex.join(["histnetq", *arguments(*words, **options)])


def arguments(*words: Any, **options: Any) -> list[str]:
    """Give the words of such a command after its name."""
    line = [str(word) for word in words]
    for name, value in options.items():
        flag = "-o" if name == "output" else f"--{name}"
        for one in value if isinstance(value, list) else [] if value is None else [value]:
            line += [flag] if one is True else [flag, str(one)] if not str(one).startswith("-") else [f"{flag}={one}"]
    return line


def rows_as_table(content: bytes, limits: Limits) -> pa.Table:
    """Give a table from JSON: a list of objects, whose values are texts, numbers, truth values or null."""

    try:
        rows = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"body: cannot be read as JSON ({_short(error)}); send a list of objects.") from None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise RefusedError(400, 'body: expected a list of objects, one for each row, such as [{"x": 1.5}]; send one.')
    names = dict.fromkeys(name for row in rows for name in row)
    limits.check_cells(len(rows), len(names))  # each row may name others
    columns = {name: [row.get(name) for row in rows] for name in names}
    for name, cells in columns.items():
        if any(isinstance(cell, list | dict) for cell in cells):
            raise RefusedError(400, f"body: {name[:80]!r} holds a list or an object, expected one value; leave it out.")
    try:
        return pa.table({name: _as_array(cells) for name, cells in columns.items()})
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError) as error:
        raise RefusedError(
            400, f"body: a column has values of different kinds ({_short(error)}); send one kind in each."
        ) from None


def _as_array(cells: list[Any]) -> Any:
    """An array of one kind; whole numbers beside others are numbers like these."""

    if any(isinstance(cell, float) for cell in cells) and not any(isinstance(cell, str | bool) for cell in cells):
        return pa.array([None if cell is None else float(cell) for cell in cells], pa.float64())
    return pa.array(cells)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120].rstrip(".")
