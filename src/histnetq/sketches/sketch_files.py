"""Reading of sketch files; everything in a file is checked, as any program may have written it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.errors import Command, InputError
from histnetq.sketches.sketch import FORMAT, Maker
from histnetq.tables.budget import Charge, TooLargeError, name_array, require
from histnetq.tables.columns import encode
from histnetq.tables.parquet_files import count_parquet_rows, parquet_bytes, read_parquet
from histnetq.tables.table_files import can_name, is_number, release_memory

_AGAIN = ("make the sketches again with ", Command("sketch", "sketch_stream"))
_COPIES = 3  # copies of the numbers in memory: as read, added, and inside a method
# Words for messages and numpy's kinds of types: first for sums, second for numbers of rows.
_WANTED = (("numbers", "iuf"), ("whole numbers", "iu"))


def read_maker(about: Any, path: Any) -> tuple[Maker, tuple[int, ...], int]:
    """Return the origin of sketches, the shape of their states and their number of moments from the metadata."""
    if not isinstance(about, dict) or about.get("format") not in (1, FORMAT):
        found = about.get("format") if isinstance(about, dict) else None
        raise ValueError(
            f"path: {path} has format {found!r}, this version of histnetq reads {FORMAT}; upgrade histnetq."
        )
    made: Any = about.get("maker")
    shape: Any = about.get("shape")
    n_moments: Any = about.get("n_moments") if about["format"] == FORMAT else 0
    if about["format"] == 1 and isinstance(made, dict):
        made = {name: value for name, value in made.items() if name != "origin"}  # moments that no model reads
    right = isinstance(made, dict) and {"quantifier", "fingerprint"} <= made.keys() <= _MAKER.keys()
    right = right and all(_MAKER[name](value) for name, value in made.items())
    right = right and isinstance(shape, list) and all(type(n) is int and 0 <= n < 2**31 for n in [*shape, n_moments])
    if not right or math.prod(shape) >= 2**31:
        raise InputError("path", problem=f"{path} does not say which model made its sketches", remedy=_AGAIN)
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in made.items()}
    return Maker(**given), tuple(shape), n_moments


def read_fields(path: Any, schema: Any, shapes: dict[str, tuple[int, ...]]) -> tuple[dict[str, NDArray], list[Any]]:
    """Return the numbers of each field, (n_bags, *shape), and the names of the bags (None without a name).

    Types are checked, and memory is charged, before any column is read.
    """
    import pyarrow as pa

    for name, shape in shapes.items():
        _check_kind(schema, name, shape, path)
    n_bags, n_numbers = sum(count_parquet_rows(path)), sum(map(math.prod, shapes.values()))
    n_bytes = 8 * n_bags * n_numbers + parquet_bytes(path, "id")
    require(_COPIES * n_bytes, f"sketches of {n_bags:,} bags", "send fewer")
    named = "id" in schema.names and can_name(schema.field("id").type)
    columns = {name: shape for name, shape in shapes.items() if math.prod(shape)}
    parts: dict[str, list[NDArray]] = {name: [] for name in columns}
    ids, charge = list[Any](), Charge()
    try:
        for batch in read_parquet(path, [*columns, *["id"] * named]):
            for name, shape in columns.items():
                parts[name].append(_numbers(batch.column(name), name, math.prod(shape), bool(shape), path))
            ids += _names(batch.column("id"), charge) if named else [None] * batch.num_rows
    except (TooLargeError, _DamagedError):
        raise
    except (ValueError, OSError, pa.ArrowException):
        raise no_sketches(path) from None
    release_memory()
    fields = {name: np.concatenate(some) if some else np.empty(0, np.int64) for name, some in parts.items()}
    shaped = {name: fields.get(name, np.empty(0)).reshape(len(ids), *shape) for name, shape in shapes.items()}
    return shaped, ids


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_MAKER: dict[str, Callable[[Any], bool]] = {
    "quantifier": _is_text,
    "fingerprint": _is_text,
    "merge": lambda value: value in ("sum", "max"),
    "moments": lambda value: value is None or _is_text(value),
    "keys": lambda value: value is None or (isinstance(value, list) and all(map(_is_text, value))),
}


def _names(column: Any, charge: Charge) -> list[Any]:
    codes, different = encode(column)
    names = different.to_pylist()
    charge.add_names((name,) for name in names)
    return [names[code] for code in codes.tolist()]


def read_ids(ids: list[Any], schema: Any, path: Any) -> NDArray | None:
    """Return the names of the bags as an array, or None for one bag without a name."""
    if "id" not in schema.names:
        if len(ids) != 1:
            problem = f"{path} has {len(ids)} bags without ids, expected one"
            raise InputError("path", problem=problem, remedy=_AGAIN)
        return None
    kinds = {type(name) for name in ids}
    if len(set(map(str, ids))) != len(ids) or len(kinds) > 1 or not kinds <= {str, int, float, bool}:
        raise InputError("path", problem=f"{path} has bags of the same id or without one", remedy=_AGAIN)
    return name_array(ids) if ids else np.array([], str)


def check_numbers(fields: dict[str, NDArray], maker: Maker, path: Any) -> None:
    """Raise an error for numbers that cannot come from any rows."""
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
            problem = f"{path} has a number in {name!r} that no rows can have given"
            raise InputError("path", problem=problem, remedy=_AGAIN)


def _check_kind(schema: Any, name: str, shape: tuple[int, ...], path: Any) -> None:
    """Raise an error if this column is missing or has another size; fields of size 0 have no column."""
    size = math.prod(shape)
    if size == 0:
        return
    if name not in schema.names:
        raise InputError("path", problem=f"{path} has no column {name!r}, which every sketch needs", remedy=_AGAIN)
    kind = schema.field(name).type
    number = kind.value_type if shape and hasattr(kind, "list_size") else kind
    if getattr(kind, "list_size", ()) != (size if shape else ()) or not is_number(number):
        raise _damaged(path, name, size, str(kind))


def _numbers(column: Any, name: str, size: int, listed: bool, path: Any) -> NDArray:
    """Return the numbers of some bags as a flat array."""
    _, kinds = _WANTED[name in ("n_rows", "unseen")]
    flat = column.flatten() if listed else column
    n_missing = column.null_count + flat.null_count
    numbers = flat.to_numpy(zero_copy_only=False)
    if n_missing or numbers.dtype.kind not in kinds or len(numbers) != len(column) * size:
        raise _damaged(path, name, size, f"{column.type}{' with missing values' * (n_missing > 0)}")
    return numbers


def no_sketches(path: Any) -> InputError:
    """Return the error about a file that holds no sketches."""
    remedy = ("make them with ", Command("sketch", "sketch_stream"))
    return InputError("path", problem=f"{path} holds no sketches", remedy=remedy)


class _DamagedError(InputError):
    """A damaged column in a sketch file."""


def _damaged(path: Any, name: str, size: int, got: str) -> _DamagedError:
    wanted, _ = _WANTED[name in ("n_rows", "unseen")]
    problem = f"{path} has a damaged column {name!r}, expected {wanted}, {size} per bag, got {got}"
    return _DamagedError("path", problem=problem, remedy=_AGAIN)
