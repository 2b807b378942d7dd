"""What commands tell of the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from histnetq.bags.text_features import TextFeatures

_OWN_MODEL = (
    "These are taken to be scores of rows that your model was not trained on: of others they are too sure, and all "
    "estimates would be wrong."
)


def columns_told(names: Sequence[str] | None, facts: Mapping[str, Any], scored: bool = False) -> list[str]:
    """Lines that say which columns are learned from, which are not, and what was done about missing values.

    Of scores, they say which rows these must be of.

    Examples
    --------
    >>> columns_told(["length"], {"left_out": {"fish_no": "constant"}})
    ['Learns from length. Leaves out fish_no (constant); name it with --features to use it.']
    """
    left_out, dropped, filled = (facts.get(name) for name in ("left_out", "dropped_rows", "filled_cells"))
    line = f"Learns from {', '.join(names or ['columns without names'])}."
    if left_out:
        them = "it" if len(left_out) == 1 else "them"
        line += f" Leaves out {listed(left_out)}; name {them} with --features to use {them}."
    return [
        line,
        *([_OWN_MODEL] if scored else []),
        *([f"Rows left out, as some feature has no value in them: {dropped:,}."] if dropped else []),
        *([f"Cells without a value that got the mean of their column: {filled:,}."] if filled else []),
    ]


def columns_shown(names: Sequence[str] | None, text: TextFeatures | None) -> Sequence[str] | None:
    """Name the columns that features come from: features of texts by the column of these."""
    if text is None or names is None:
        return names
    return [*names[: -len(text.names)], f"the texts of {text.column}"]


def listed(left_out: Mapping[str, str]) -> str:
    """Name columns with the reasons why they are left out."""
    return ", ".join(f"{column} ({why})" for column, why in left_out.items())
