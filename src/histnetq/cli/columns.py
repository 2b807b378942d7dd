"""Messages about table columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from histnetq.bags.text_features import TextFeatures

_ABOUT_SCORES = (
    "The scores must come from rows that your classifier was not trained on: scores of training rows are "
    "overconfident, and all estimates would be wrong."
)


def describe_columns(
    names: Sequence[str] | None, facts: Mapping[str, Any], scored: bool = False, text: TextFeatures | None = None
) -> list[str]:
    """Return lines about the columns that are learned from, the columns that are not, and missing values.

    For scores, one more line names the rows that they must come from. All features of texts come from one column.

    Examples
    --------
    >>> describe_columns(["length"], {"left_out": {"fish_no": "constant"}})
    ['Learns from length. Leaves out fish_no (constant); name it with --features to use it.']
    """
    left_out, dropped, filled = (facts.get(name) for name in ("left_out", "dropped_rows", "filled_cells"))
    if names is not None and text is not None:
        names = [*names[: -len(text.names)], f"the texts of {text.column}"]
    line = f"Learns from {', '.join(names or ['columns without names'])}."
    if left_out:
        them = "it" if len(left_out) == 1 else "them"
        line += f" Leaves out {list_left_out(left_out)}; name {them} with --features to use {them}."
    return [
        line,
        *([_ABOUT_SCORES] if scored else []),
        *([f"Rows with missing values that were dropped: {dropped:,}."] if dropped else []),
        *([f"Missing values that were filled with the mean of their column: {filled:,}."] if filled else []),
    ]


def list_left_out(left_out: Mapping[str, str]) -> str:
    """Return the names of columns with the reasons why they are left out."""
    return ", ".join(f"{column} ({why})" for column, why in left_out.items())


def list_some(names: Sequence[object], most: int = 12) -> str:
    """Return the first names, and the number of remaining names.

    Examples
    --------
    >>> list_some(["cod", "eel", "tuna"], most=2)
    'cod, eel and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more
