"""Estimates of an uploaded table, and their conversion to JSON and CSV."""

from __future__ import annotations

import io
import json
import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.errors import InputWarning, in_request
from histnetq.quantifiers.base import Quantifier
from histnetq.sketches.sketch import BagSketch
from histnetq.tables.budget import TooLargeError, limited_to
from histnetq.tables.files import write_csv
from histnetq.tables.table_files import release_memory, watched
from histnetq.web.errors import as_refusals
from histnetq.web.limits import TableLimits
from histnetq.workflows.auditing import estimate_audited, sample_table
from histnetq.workflows.estimating import Estimates, estimate
from histnetq.workflows.monitoring.chunk_reading import How
from histnetq.workflows.monitoring.monitor import monitor_chunks

COVERAGE = 0.9  # default coverage of intervals
FALSE_ALARMS = 0.05
SHOWN_BAGS, _SHOWN_NUMBERS = 10_000, 100_000  # bags, and bags times classes
_SHOWN_LETTERS = 1_000_000  # characters of the names of bags and of their trust
_AT_ONCE, _RECORD = 1 << 20, 100  # bytes of a response that are written together, and of a number with its keys
_MOST_IN_CHUNKS, _MOST_LETTERS = 50_000, 5_000_000  # chunks times classes, and characters of their names
_MOST_WARNINGS = 20


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect the warnings of a block as messages. This replaces the filters of the whole process."""
    messages: list[str] = []
    show = warnings.showwarning

    def collect(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, UserWarning):
            show(message, category, *place, **more)
            return
        text = in_request(message) if isinstance(message, InputWarning) else str(message)
        if len(messages) < _MOST_WARNINGS and text not in messages:
            messages.append(text)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module="histnetq")
        warnings.showwarning = collect
        yield messages


@dataclass(frozen=True)
class UploadedFile:
    """An uploaded table, its limits, and a function that is called with the number of rows that were just read."""

    path: Path
    limits: TableLimits
    step: Callable[[int], None] = lambda n_rows: None

    @contextmanager
    def reading(self) -> Iterator[list[str]]:
        """Check the file, and let the block read it within its budget; return a list that collects warnings."""
        try:
            watch, budget = watched(lambda batch: self.step(batch.num_rows)), limited_to(self.limits.budget())
            with collected() as messages, as_refusals(self.path.parent), watch, budget:
                self.limits.check_file(self.path)
                yield messages
            messages[:] = [message.replace(f"{self.path.parent}/", "") for message in messages]
        finally:
            release_memory()


def estimate_file(model: Quantifier, file: UploadedFile, **options: Any) -> tuple[Estimates, list[str]]:
    """Return the estimates of `histnetq predict` for a file, and its warnings."""
    with file.reading() as messages:
        found = estimate(model, [str(file.path)], **options)
    if len(found) > 1 and (found.about["n"] == 1).all():
        messages.append(f"Each of the {len(found):,} bags has one row alone: is this the right bag column?")
    return found, messages


def audit_file(
    model: Quantifier, file: UploadedFile, labelled: UploadedFile, **options: Any
) -> tuple[Estimates, list[str]]:
    """Return the estimates of `histnetq predict --audited` for a file and its labelled rows, and warnings."""
    with labelled.reading() as first, file.reading() as messages:
        found = estimate_audited(model, [str(file.path)], str(labelled.path), **options)
    return found, [*first, *messages]


def sample_file(model: Quantifier, file: UploadedFile, n: int, **options: Any) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows that `histnetq sample` draws from a file, and its warnings."""
    with file.reading() as messages:
        found = sample_table(model, [str(file.path)], n=n, **options)
    return found, messages


def monitor_file(
    model: Quantifier, file: UploadedFile, *, time: str, period: str, reference: str | None, by: Sequence[str],
    coverage: float, missing: str, accuracy: bool = False,
) -> tuple[pd.DataFrame, str, list[str]]:  # fmt: skip
    """Return the table of `histnetq monitor` for a file, the reference, and warnings.

    Without a reference, the first half of the periods is the reference.
    """
    with file.reading() as messages:
        how = How(time, period, by=tuple(by), missing=missing)
        asked = model, [str(file.path)], how, reference
        table, _ = monitor_chunks(
            *asked, check=_check_chunks, false_alarms=FALSE_ALARMS, coverage=coverage, accuracy=accuracy
        )
    return table, table.attrs["reference"], messages


def _check_chunks(bags: Bags | BagSketch, n_classes: int) -> None:
    """Refuse more chunks, or longer names of segments, than a response may contain."""
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
    """Yield the CSV file that `histnetq predict` writes, in parts."""
    for i, part in enumerate(_parts(found)):
        yield as_csv(part.to_frame(wide), header=i == 0)


def as_csv(frame: pd.DataFrame, header: bool = True) -> str:
    """Return a table as the command line writes it to a CSV file, with or without the header."""
    text = io.StringIO()
    write_csv(frame, text, header=header)
    return text.getvalue()


def json_parts(found: Estimates, wide: bool) -> Iterator[str]:
    """Yield the JSON list that `histnetq predict --json` prints, in parts."""
    yield "["
    for i, part in enumerate(_parts(found)):
        yield "," * (i > 0) + _as_records(part, wide)[1:-1]
    yield "]"


def _parts(found: Estimates) -> Iterator[Estimates]:
    """Yield the estimates of some bags at a time, so that each part of a response is small."""
    longest = max(map(len, map(str, found.classes)), default=0)
    n_bytes = len(found.classes) * len(found.values) * (_RECORD + longest)
    step = max(1, _AT_ONCE // n_bytes)
    for start in range(0, len(found), step):
        yield found[start : start + step]


def _as_records(found: Estimates, wide: bool) -> str:
    if wide:
        return str(found.to_frame(wide).to_json(orient="records"))
    # A data frame would take several times as long for the few bags of most requests.
    n_classes = len(found.classes)
    names = [np.repeat(found.names[column].to_numpy(object), n_classes) for column in found.names.columns]
    about = [np.repeat(found.about[column].to_numpy(object), n_classes) for column in found.about.columns]
    values = [np.where(np.isnan(array), np.array(None, object), array).ravel() for array in found.values.values()]
    keys = [*map(str, found.names.columns), "class", *found.values, *found.about.columns]
    columns = [*names, np.tile(found.classes.astype(object), len(found)), *values, *about]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return json.dumps([dict(zip(keys, row, strict=True)) for row in rows], separators=(",", ":"))


def is_trusted(found: Estimates) -> NDArray[np.bool_]:
    """Return whether each bag has no trust warning: (n_bags,)."""
    trust = found.about["trust"].to_numpy(object)
    return (trust == "ok") | (trust == "unchecked")


def describe_estimates(found: Estimates) -> dict[str, Any]:
    """Return the first bags with their names, and arrays in the order of the classes."""
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


def describe_chunks(table: pd.DataFrame, n_classes: int) -> list[dict[str, Any]]:
    """Return the chunks of time, with arrays in the order of the classes."""
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
    """Return a command line. Options that are None are left out, and lists repeat their option for each entry.

    Examples
    --------
    >>> command("predict", "models/cod", "my rows.csv", bag=["tow"], coverage=None)
    "histnetq predict models/cod 'my rows.csv' --bag tow"
    """
    line = ["histnetq", *map(str, words)]
    for name, value in options.items():
        flag = "-o" if name == "output" else f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list) else [] if value is None else [value]:
            line += [flag] if one is True else [flag, str(one)] if not str(one).startswith("-") else [f"{flag}={one}"]
    return shlex.join(line)
