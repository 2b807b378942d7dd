"""Class probabilities of the rows of a table, given the estimated mix of their bag."""

from __future__ import annotations

from typing import Any

import pandas as pd

from histnetq.bags.bags import Bags
from histnetq.errors import Command, InputError, Option
from histnetq.quantifiers.base import Quantifier
from histnetq.simplex import Floats
from histnetq.sketches.sketch import is_sketch
from histnetq.tables.table_files import find_files

_DIGITS = 9  # decimals of probabilities


def refuse_without_rows(source: Any, missing: str, dask: str | None, sql_result: bool = False) -> None:
    """Refuse a source whose rows are not all read in this process."""
    if dask is not None or sql_result or stored_sketches(source):
        raise InputError("rows", "a table that is read here", ("sketches or ", Option("dask")), "leave one of them out")
    if missing == "drop":
        got = Option("missing", "drop")
        raise InputError("rows", "rows without missing values", got, "remove the rows with missing values first")


def stored_sketches(source: Any) -> list[str]:
    """Return the files of a source if they are sketches, else an empty list; refuse a mix of sketches and rows."""
    if hasattr(source, "columns"):  # a data frame
        return []
    files = find_files(source, "source")
    found = [file for file in files if is_sketch(file)]
    if found and len(found) < len(files):
        remedy = ("sketch the rows first, by ", Command("sketch", "sketch_stream"))
        raise InputError("source", problem="some files hold sketches and some hold rows", remedy=remedy)
    return found


def row_table(model: Quantifier, bags: Bags, estimates: Floats, names: pd.DataFrame) -> pd.DataFrame:
    """Return the number of each row of a table, the names of its bag, and its class probabilities.

    The pool of `bags` has the rows of the table in their order. `estimates`: (n_bags, n_classes). `names` has one row
    per bag, and the columns that name the bags.
    """
    found = model.predict_rows(bags, estimates).round(_DIGITS)
    classes = pd.DataFrame(found, columns=[str(name) for name in model.classes_])
    own = names.iloc[bags.bag_of_entry].reset_index(drop=True)
    frame = pd.concat([pd.DataFrame({"row": bags.index + 1}), own, classes], axis=1)
    if twice := frame.columns[frame.columns.duplicated()].tolist():
        problem = f"two columns would be named {twice[0]!r}"
        raise InputError("rows", problem=problem, remedy="rename the class, or the bag column")
    return frame.sort_values("row", ignore_index=True)
