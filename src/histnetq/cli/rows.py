"""Class probabilities of the rows of a table, under the estimated mix of their bag."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from histnetq.cli.estimating import name_columns
from histnetq.data.table_files import find_files
from histnetq.data.tables import read_bags
from histnetq.quantifiers.saving import load
from histnetq.sketches.sketch import is_sketch

_DIGITS = 9  # decimals of probabilities


def estimate_rows(
    model_path: Path, source: Any, *, bag: Sequence[str], weight: str | None = None, missing: str = "refuse",
    dask: str | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Give the number of each row of a table, the names of its bag, and the probabilities of its classes.

    Parameters
    ----------
    model_path : path
        Directory of the model.
    source : paths
        Tables, whose rows are all held in memory.
    bag, weight, missing, dask
        As in `histnetq.cli.estimating.estimate`.
    """
    if dask is not None or any(is_sketch(file) for file in find_files(source, "source")):
        raise ValueError("row_file: expected tables that are read here, got sketches or --dask; leave one out.")
    if missing == "drop":
        raise ValueError(
            "row_file: expected every row to have a value, got --missing drop; leave out such rows before."
        )
    model = load(model_path)
    bags = read_bags(source, bag=bag, features=model.reading(), weight=weight, missing=missing)
    found = pd.DataFrame(model.predict_rows(bags).round(_DIGITS), columns=[str(name) for name in model.classes_])
    names = name_columns(np.asarray(bags.ids), list(bag) or ["bag"]).iloc[bags.bag_of_entry].reset_index(drop=True)
    frame = pd.concat([pd.DataFrame({"row": bags.index + 1}), names, found], axis=1)
    if twice := frame.columns[frame.columns.duplicated()].tolist():
        raise ValueError(f"row_file: two columns would be named {twice[0]!r}; rename the class, or the bag column.")
    return frame.sort_values("row", ignore_index=True)
