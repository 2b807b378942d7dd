"""Names of bags and classes, converted so that every kind of table gives the same names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

_WHOLE = re.compile(r"(0|-?[1-9]\d{0,17})(\.0+)?")
_TRUTH = {"true": True, "false": False}


def name_of(value: Any) -> Any:
    """Return texts, integers and truth values unchanged, whole floats as integers, and other values as texts.

    Examples
    --------
    >>> [name_of(value) for value in ("cod", 7, 7.0, 7.5, True)]
    ['cod', 7, 7, '7.5', True]
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int) else str(value)


def written_name(value: Any) -> str:
    """Return a name as a text, with whole numbers written without decimals.

    Examples
    --------
    >>> [written_name(value) for value in ("cod", "7.0", 7.0, "07")]
    ['cod', '7', '7', '07']
    """
    text = str(name_of(value))
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else text


def of_one_type(names: Sequence[Any], written: bool) -> list[Any]:
    """Convert distinct names to one type: whole numbers, truth values or texts.

    With `written`, texts become whole numbers or truth values if all can. Numbers with leading zeros stay texts.

    Examples
    --------
    >>> of_one_type(["2", "10"], written=True), of_one_type(["2", "10"], written=False)
    ([2, 10], ['2', '10'])
    >>> of_one_type(["02", "10"], written=True), of_one_type([2, "x"], written=False)
    (['02', '10'], ['2', 'x'])
    >>> of_one_type(["TRUE", "FALSE"], written=True), of_one_type(["None", "1"], written=True)
    ([True, False], ['None', '1'])
    """
    if len({type(name) for name in names}) > 1:
        return [str(name) for name in names]
    if not written or not all(isinstance(name, str) for name in names):
        return list(names)
    if all(_WHOLE.fullmatch(name) for name in names):
        return [int(name.partition(".")[0]) for name in names]
    if all(name.lower() in _TRUTH for name in names):
        return [_TRUTH[name.lower()] for name in names]
    return list(names)


def are_fractions(values: Iterable[Any]) -> bool:
    """Return whether all values are numbers or texts of numbers, and not all of them are whole.

    Examples
    --------
    >>> are_fractions([1, "2.5"]), are_fractions([1, 2]), are_fractions(["cod", 2.5])
    (True, False, False)
    """
    try:
        return any(not float(value).is_integer() for value in values)
    except (TypeError, ValueError):
        return False
