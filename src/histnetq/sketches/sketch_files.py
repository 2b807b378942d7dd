"""What a file of sketches may hold: everything in it is checked, as any program may have written it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.sketches.sketch import FORMAT, Maker

_AGAIN = "make the sketches again with histnetq sketch."


def read_maker(about: Any, path: Any) -> tuple[Maker, tuple[int, ...], int]:
    """Give where sketches come from, the shape of their states and how many moments they have, from the metadata."""
    if not isinstance(about, dict) or about.get("format") not in (1, FORMAT):
        found = about.get("format") if isinstance(about, dict) else None
        raise ValueError(
            f"path: {path} has format {found!r}, this version of histnetq reads {FORMAT}; upgrade histnetq."
        )
    made: Any = about.get("maker")
    shape: Any = about.get("shape")
    n_moments: Any = about.get("n_moments") if about["format"] == FORMAT else 0
    if about["format"] == 1 and isinstance(made, dict):
        made = {name: value for name, value in made.items() if name != "origin"}  # of moments that no model reads
    right = isinstance(made, dict) and {"quantifier", "fingerprint"} <= made.keys() <= _MAKER.keys()
    right = right and all(_MAKER[name](value) for name, value in made.items())
    right = right and isinstance(shape, list) and all(type(n) is int and 0 <= n < 2**31 for n in [*shape, n_moments])
    if not right or math.prod(shape) >= 2**31:
        raise ValueError(f"path: {path} does not tell which model made its sketches; {_AGAIN}")
    told: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in made.items()}
    return Maker(**told), tuple(shape), n_moments


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or (isinstance(value, list) and all(map(fits, value)))


_MAKER: dict[str, Callable[[Any], bool]] = {
    "quantifier": _is_text,
    "fingerprint": _is_text,
    "merge": lambda value: value in ("sum", "max"),
    "moments": lambda value: value is None or _is_text(value),
    "keys": _is_list_of(_is_text),
}


def read_ids(table: Any, path: Any) -> NDArray | None:
    """Give the names of the bags; None for one bag without a name."""
    if "id" not in table.column_names:
        if table.num_rows != 1:
            raise ValueError(f"path: {path} has {table.num_rows} bags without ids, expected one; {_AGAIN}")
        return None
    ids = table.column("id").to_pylist()
    kinds = {type(name) for name in ids}
    if len(set(map(str, ids))) != len(ids) or len(kinds) > 1 or not kinds <= {str, int, float, bool}:
        raise ValueError(f"path: {path} has bags of the same id or without one; {_AGAIN}")
    return np.array(ids) if ids else np.array([], str)


def check_numbers(fields: dict[str, NDArray], maker: Maker, path: Any) -> None:
    """Refuse numbers that no rows can have given."""
    n_rows, values = fields["n_rows"], fields["values"]
    right = {
        "n_rows": n_rows >= 0,
        "totals": np.isfinite(fields["totals"]) & (fields["totals"] >= 0),
        "squares": np.isfinite(fields["squares"]) & (fields["squares"] >= 0),
        "unseen": (fields["unseen"] >= 0) & (fields["unseen"] <= n_rows),
        "values": values >= 0 if values.dtype.kind == "i" else ~np.isnan(values) & (values < np.inf),
        "moments": np.isfinite(fields["moments"]),
    }
    if maker.merge == "sum":
        right["values"] = right["values"] & np.isfinite(values)
    for name, fits in right.items():
        if not fits.all():
            raise ValueError(f"path: {path} has a number in {name!r} that no rows can have given; {_AGAIN}")


def read_column(table: Any, name: str, shape: tuple[int, ...], path: Any) -> NDArray:
    """Give a column of a file as numbers of shape ``(n_bags, *shape)``; those without numbers are not in files."""
    size, n_bags = math.prod(shape), table.num_rows
    if size == 0:
        return np.empty((n_bags, *shape))
    if name not in table.column_names:
        raise ValueError(f"path: {path} has no column {name!r}, which every sketch needs; {_AGAIN}")
    column = table.column(name).combine_chunks()
    fits = getattr(column.type, "list_size", ()) == (size if shape else ())
    flat = column.flatten() if shape and fits else column
    numbers, n_missing = flat.to_numpy(zero_copy_only=False), column.null_count + flat.null_count
    wanted, kinds = ("whole numbers", "iu") if name in ("n_rows", "unseen") else ("numbers", "iuf")
    if not fits or n_missing or numbers.dtype.kind not in kinds:
        raise ValueError(
            f"path: {path} has a damaged column {name!r}, expected {wanted}, {size} per bag, got {column.type}"
            f"{' with missing values' * (n_missing > 0)}; {_AGAIN}"
        )
    return numbers.reshape(n_bags, *shape)
