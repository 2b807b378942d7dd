"""What workers do: each task takes plain data and returns facts and bytes; files go to directories of the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from histnetq.web.errors import told_to_users
from histnetq.web.estimate_work import EstimateWork
from histnetq.web.json_rows import rows_as_table
from histnetq.web.limits import Limits
from histnetq.web.model_store import Shelf
from histnetq.web.serializers import Reading, csv_parts, estimate_file, is_trusted, json_parts
from histnetq.web.tables import look_at
from histnetq.workflows.estimating import Estimates

Tell = Callable[..., None]
Found = tuple[dict[str, Any], bytes]


def predict(
    shelf: Shelf,
    tell: Tell,
    *,
    model: str,
    path: str,
    limits: dict[str, int],
    wide: bool,
    as_text: bool,
    options: dict[str, Any],
) -> Found:
    """Estimate the bags of a body that was received."""
    bounds = Limits(**limits)
    with told_to_users():
        file = _as_table(Path(path), bounds)
    found, messages = estimate_file(shelf.model(model), Reading(file, bounds), **options)
    facts = {"summary": summarise(found)}
    with told_to_users():
        parts = (csv_parts if as_text else json_parts)(found, wide)
        rows = list(bounds.answered(parts, "send fewer bags, or ask for wide=true"))
    if as_text:
        return facts, b"".join(rows)
    doubted = int((~is_trusted(found)).sum())
    told = json.dumps({"model": model, "bags": len(found), "doubted": doubted, "messages": messages})
    return facts, b"".join([told[:-1].encode(), b',"estimates":', *rows, b"}"])


def look(shelf: Shelf, tell: Tell, *, path: str, n_lines: int, limits: dict[str, int]) -> Found:
    """Describe the columns and first rows of a table that was received."""
    file, bounds = Path(path), Limits(**limits)
    with told_to_users(file.parent):
        bounds.check_file(file)
        about = look_at(file, n_lines, bounds)
    return {"about": about}, b""


def estimate(shelf: Shelf, tell: Tell, **asked: Any) -> Found:
    """Do the job that estimates a table."""
    found, result = EstimateWork(shelf, tell, **asked).estimate()
    return {"summary": summarise(found)}, json.dumps(result, allow_nan=False).encode()


def report(shelf: Shelf, tell: Tell, **asked: Any) -> Found:
    """Write the report of such a job."""
    EstimateWork(shelf, tell, **asked).write_report()
    return {}, b""


TASKS: dict[str, Callable[..., Found]] = {"predict": predict, "look": look, "estimate": estimate, "report": report}


def summarise(found: Estimates) -> dict[str, Any]:
    """Return what is counted: bags and rows, mean shares of the classes, and the part of each that is trusted."""
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


def _as_table(path: Path, limits: Limits) -> Path:
    """Give a body that can be read as a table: rows as JSON become a Parquet file."""
    if path.suffix != ".json":
        return path
    made = path.with_suffix(".parquet")
    parquet.write_table(rows_as_table(path.read_bytes(), limits), made)
    return made
