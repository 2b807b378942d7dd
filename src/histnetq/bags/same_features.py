"""Checks that bags have the features of a model's training data, within the range that the model can compute with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import shown, take_dense, used_rows
from histnetq.errors import InputError

_CHECK_CHUNK = 1 << 24  # numbers compared at a time


def require_features(bags: Any, shape: tuple[int, ...], names: list[str] | None, text: Any = None) -> None:
    """Raise an error if rows differ from training in their shape, column names or text features."""
    found, way_out = tuple(bags.rows.shape[1:]), "give the same columns in the same order"
    if found != shape:
        differences = _differences(bags.feature_names or (), names or ())
        if differences:
            raise InputError("rows", "the columns of training", differences, way_out)
        raise InputError("rows", f"{_shape_text(shape)} as in training", _shape_text(found), way_out)
    if None not in (bags.feature_names, names) and bags.feature_names != names:
        pairs = zip(bags.feature_names, names or (), strict=True)
        i, (got, expected) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        raise ValueError(f"rows: column {i} is {got!r}, expected {expected!r} as in training; {way_out}.")
    if None not in (bags.text, text) and not bags.text.is_same(text):
        expected, got = "the text features of training", "features of another SVD"
        raise InputError("rows", expected, got, "read them by features=q.reading(), or by text=bags.text of training")


def _differences(found: Sequence[str], names: Sequence[str]) -> str:
    """Return a phrase about missing and additional columns, or "" if one side has no names."""
    if not found or not names:
        return ""
    sides = (("no", names, set(found)), ("also", found, set(names)))
    columns = {word: [name for name in some if name not in others] for word, some, others in sides}
    return " and ".join(f"{word} {shown(np.array(listed))}" for word, listed in columns.items() if listed)


def require_range(bags: Any, low: NDArray, high: NDArray, numbered: bool = True) -> None:
    """Raise an error for a number outside these limits, (n_features,), which a model cannot compute with.

    The message names the row if rows are `numbered`, and the bag otherwise, as for the rows of a stream.
    """
    rows = bags.rows
    values = rows.data if hasattr(rows, "tocsr") else rows
    if not values.size or (values.min() >= low.max() and values.max() <= high.min()):
        return
    used = used_rows(bags.index, rows.shape[0])[0]
    step = max(1, _CHECK_CHUNK // len(low))
    for start in range(0, len(used), step):
        some = used[start : start + step]
        part = take_dense(rows, some).reshape(len(some), -1)
        wrong_ones = np.argwhere((part < low) | (part > high))
        if wrong_ones.size:
            i, j = wrong_ones[0]
            name = j if bags.feature_names is None else repr(bags.feature_names[j])
            bag = bags.ids[bags.bag_of_entry[np.argmax(bags.index == some[i])]]
            row = f"row {some[i]}" if numbered else f"a row of bag {bag}"
            raise InputError(
                "rows", f"{low[j]:.3g} to {high[j]:.3g}, beyond which the model cannot compute",
                f"{part[i, j]:g} in {row}, column {name}", "correct it or drop the row",
            )  # fmt: skip


def _shape_text(shape: tuple[int, ...]) -> str:
    if not shape:
        return "texts"
    return f"{shape[0]} features" if len(shape) == 1 else f"rows of shape {shape}"
