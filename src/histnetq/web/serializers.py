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

from histnetq.bags.bags import Bags
from histnetq.quantifiers.base import Quantifier
from histnetq.sketches.sketch import BagSketch
from histnetq.tables.budget import TooLargeError, limited_to
from histnetq.tables.files import write_csv
from histnetq.tables.table_files import release_memory, watched
from histnetq.web.errors import told_to_users
from histnetq.web.limits import Limits
from histnetq.workflows.estimating import Estimates, estimate
from histnetq.workflows.monitoring.chunk_reading import How
from histnetq.workflows.monitoring.monitor import monitor_chunks

COVERAGE = 0.9  # of intervals, where none is asked for
FALSE_ALARMS = 0.05
SHOWN_BAGS, _SHOWN_NUMBERS = 10_000, 100_000  # bags, and bags times classes
_SHOWN_LETTERS = 1_000_000  # of the names of bags and of what speaks against them
_AT_ONCE, _RECORD = 1 << 20, 100  # bytes of an answer that are written together, and of a number with its keys
_MOST_IN_CHUNKS, _MOST_LETTERS = 50_000, 5_000_000  # chunks times classes, and letters of their names
_told: ContextVar[list[str] | None] = ContextVar("told", default=None)


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect the warnings of what is done inside."""
    messages: list[str] = []
    token = _told.set(messages)
    try:
        yield messages
    finally:
        _told.reset(token)


@dataclass(frozen=True)
class Reading:
    """A table that is being read for someone: its limits, and who hears how many rows were read."""

    path: Path
    limits: Limits
    step: Callable[[int], None] = lambda n_rows: None

    @contextmanager
    def __call__(self) -> Iterator[list[str]]:
        """Check the file, then watch it being read within its budget; give the list of warnings to come."""

        def look(batch: pa.RecordBatch) -> None:
            self.step(batch.num_rows)

        try:
            budget = limited_to(self.limits.budget())
            with collected() as messages, told_to_users(self.path.parent), watched(look), budget:
                self.limits.check_file(self.path)
                yield messages
        finally:
            release_memory()


def collect_warnings() -> None:
    """Let warnings of the library go to whom they are about; this is for the whole process."""
    warnings.filterwarnings("always", category=UserWarning, module="histnetq")
    others = warnings.showwarning

    def tell(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        messages = _told.get()
        if messages is None or not issubclass(category, UserWarning):
            others(message, category, *place, **more)
        elif len(messages) < 20 and str(message) not in messages:
            messages.append(str(message))

    warnings.showwarning = tell


def estimate_file(model: Quantifier, reading: Reading, **options: Any) -> tuple[Estimates, list[str]]:
    """Estimate the bags of a file as `histnetq predict` does, and give warnings, too."""
    with reading() as messages:
        found = estimate(model, [str(reading.path)], **options)
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
    with reading() as messages:
        how = How(time, period, by=tuple(by), missing=missing)
        asked = model, [str(reading.path)], how, reference
        table, _ = monitor_chunks(*asked, check=_check_chunks, false_alarms=FALSE_ALARMS, coverage=coverage)
    found = [message.replace(f"{reading.path.parent}/", "") for message in messages]
    return table, table.attrs["reference"], found


def _check_chunks(bags: Bags | BagSketch, n_classes: int) -> None:
    """Refuse more chunks, and longer names of segments, than an answer may hold."""
    most = max(1, _MOST_IN_CHUNKS // n_classes)
    if len(bags) > most:
        raise TooLargeError(
            f"period: expected at most {most:,} chunks, got {len(bags):,}; use longer periods or fewer segments."
        )
    n_letters = n_classes * sum(len(str(name)) for name in np.asarray(bags.ids))
    if n_letters > _MOST_LETTERS:
        raise TooLargeError(
            f"by: expected names of segments with at most {_MOST_LETTERS:,} letters in all chunks and classes, got "
            f"{n_letters:,}; use shorter names or fewer segments."
        )


def csv_parts(found: Estimates, wide: bool) -> Iterator[str]:
    """Give the CSV file that a command writes, in parts."""
    for i, part in enumerate(_parts(found)):
        yield as_csv(part.to_frame(wide), header=i == 0)


def as_csv(frame: pd.DataFrame, header: bool = True) -> str:
    """Give the CSV file that a command writes, with the line of names or without."""
    text = io.StringIO()
    write_csv(frame, text, header=header)
    return text.getvalue()


def json_parts(found: Estimates, wide: bool) -> Iterator[str]:
    """Give the rows of the table as a command prints them for machines, in parts."""
    yield "["
    for i, part in enumerate(_parts(found)):
        yield "," * (i > 0) + _as_records(part, wide)[1:-1]
    yield "]"


def _parts(found: Estimates) -> Iterator[Estimates]:
    """Some bags at a time, so many that their part of an answer is small."""
    longest = max(map(len, map(str, found.classes)), default=0)
    n_bytes = len(found.classes) * len(found.values) * (_RECORD + longest)
    step = max(1, _AT_ONCE // n_bytes)
    for start in range(0, len(found), step):
        yield found[start : start + step]


def _as_records(found: Estimates, wide: bool) -> str:
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
    most = max(1, min(SHOWN_BAGS, _SHOWN_NUMBERS // len(found.classes)))
    texts = [*(found.names[column][:most] for column in found.names.columns), found.about["trust"][:most]]
    letters = np.cumsum(sum(text.astype(str).str.len().to_numpy() for text in texts))
    few = slice(max(1, int(np.searchsorted(letters, _SHOWN_LETTERS, side="right"))))
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
