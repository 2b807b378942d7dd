"""The tasks of workers. Each takes plain data and returns a dictionary and bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from histnetq.web.errors import RefusedError, as_refusals
from histnetq.web.estimate_work import EstimateWork
from histnetq.web.json_rows import rows_as_table
from histnetq.web.limits import TableLimits
from histnetq.web.model_store import Shelf
from histnetq.web.serializers import UploadedFile, csv_parts, estimate_file, is_trusted, json_parts
from histnetq.web.tables import look_at
from histnetq.workflows.estimating import Estimates

Send = Callable[..., None]
Found = tuple[dict[str, Any], bytes]


def predict(
    shelf: Shelf,
    send: Send,
    *,
    model: str,
    path: str,
    limits: dict[str, int],
    wide: bool,
    as_text: bool,
    options: dict[str, Any],
) -> Found:
    """Estimate the bags in the body of a request."""
    bounds = TableLimits(**limits)
    with as_refusals():
        file = _as_table(Path(path), bounds)
    try:
        found, messages = estimate_file(shelf.model(model), UploadedFile(file, bounds), **options)
    except RefusedError as error:
        raise RefusedError(error.status, error.sentence.replace(file.name, Path(path).name)) from error
    messages = [message.replace(file.name, Path(path).name) for message in messages]
    facts = {"summary": summarise(found)}
    with as_refusals():
        parts = (csv_parts if as_text else json_parts)(found, wide)
        rows = list(bounds.answered(parts, "send fewer bags, or ask for wide=true"))
    if as_text:
        return facts, b"".join(rows)
    doubted = int((~is_trusted(found)).sum())
    about = json.dumps({"model": model, "bags": len(found), "doubted": doubted, "messages": messages})
    return facts, b"".join([about[:-1].encode(), b',"estimates":', *rows, b"}"])


def look(shelf: Shelf, send: Send, *, path: str, n_lines: int, limits: dict[str, int]) -> Found:
    """Describe the columns and first rows of an uploaded table."""
    file, bounds = Path(path), TableLimits(**limits)
    with as_refusals(file.parent):
        bounds.check_file(file)
        about = look_at(file, n_lines, bounds)
    return {"about": about}, b""


def estimate(shelf: Shelf, send: Send, **asked: Any) -> Found:
    """Run a job that estimates the class proportions of the bags of a table."""
    found, result = EstimateWork(shelf, send, **asked).estimate()
    return {"summary": summarise(found)}, json.dumps(result, allow_nan=False).encode()


def report(shelf: Shelf, send: Send, **asked: Any) -> Found:
    """Write the report of a job that estimated a table."""
    EstimateWork(shelf, send, **asked).write_report()
    return {}, b""


TASKS: dict[str, Callable[..., Found]] = {"predict": predict, "look": look, "estimate": estimate, "report": report}


def summarise(found: Estimates) -> dict[str, Any]:
    """Return the numbers of bags and rows, the mean share of each class, and the trusted part of that share."""
    shares, trusted = found.values["estimate"], is_trusted(found)
    total = shares.sum(0)
    safe = np.divide(shares[trusted].sum(0), total, out=np.ones_like(total), where=total > 0)
    return {
        "bags": len(found),
        "rows": float(found.about["n"].sum()),
        "classes": [str(name) for name in found.classes.tolist()],
        "shares": shares.mean(0).tolist(),
        "trusted": safe.tolist(),
    }


def _as_table(path: Path, limits: TableLimits) -> Path:
    """Return the path of a readable table: JSON rows are converted to a Parquet file."""
    if path.suffix != ".json":
        return path
    made = path.with_suffix(".parquet")
    parquet.write_table(rows_as_table(path.read_bytes(), limits), made)
    return made
