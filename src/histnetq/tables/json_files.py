"""JSON files of results: a list with one object per row, as ``--json`` prints it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def write_file(frame: pd.DataFrame, path: Path, index: bool, name: str) -> None:
    """Write a data frame."""
    path.write_text(as_records(frame.reset_index() if index else frame) + "\n", encoding="utf-8")


def as_records(frame: pd.DataFrame) -> str:
    """Return the rows of a data frame as JSON objects, with times in ISO 8601.

    Examples
    --------
    >>> import pandas as pd
    >>> as_records(pd.DataFrame({"tow": ["a"], "estimate": [0.25]}))
    '[{"tow":"a","estimate":0.25}]'
    """
    return str(frame.to_json(orient="records", date_format="iso"))
