"""Checks of the parts that bags are made of, each with an error that names the argument and the way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "as_pool",
    "check_choice",
    "check_feature_names",
    "check_index",
    "check_labels",
    "check_names",
    "check_offsets",
    "check_weights",
    "column_names",
    "encode_labels",
    "join_weights",
    "shown",
    "sort_groups",
    "stack",
    "take_dense",
    "used_rows",
]

Ints = NDArray[np.int64]
_CHECK_CHUNK = 1 << 24  # numbers checked for NaN at a time


def as_pool(rows: Any, name: str = "rows") -> Any:
    """Check a pool of rows, without copying it: a numpy array or a CSR matrix of finite numbers."""
    if hasattr(rows, "tocsr"):
        rows = rows.tocsr()
    elif hasattr(rows, "detach"):
        rows = rows.detach().cpu().numpy()
    elif not isinstance(rows, np.ndarray):
        rows = np.asarray(rows)
    if rows.ndim < 2:
        raise ValueError(
            f"{name}: expected one row per example, shape (n_rows, n_features), got shape {rows.shape}; "
            "use reshape(-1, 1) for a single feature."
        )
    if rows.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected numbers, got dtype {rows.dtype}; encode categories and dates first.")
    _refuse_not_finite(rows, name)
    return rows


def used_rows(index: Ints, n_rows: int) -> tuple[Ints, Ints]:
    """The rows that occur in `index`, in order, and `index` renumbered to them."""
    if n_rows > 8 * len(index):
        used, renumbered = np.unique(index, return_inverse=True)
        return used, renumbered
    occurs = np.zeros(n_rows, bool)
    occurs[index] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[index]


def take_dense(rows: Any, index: NDArray) -> NDArray:
    """The chosen rows of a pool as a dense array."""
    taken = rows[index]
    return taken.toarray() if hasattr(taken, "toarray") else np.asarray(taken)


def column_names(rows: Any) -> list[str] | None:
    """The column names of a data frame, None for anything else."""
    columns = getattr(rows, "columns", None)
    return None if columns is None else [str(c) for c in columns]


def _refuse_not_finite(rows: Any, name: str) -> None:
    values = rows.data if hasattr(rows, "indptr") else rows
    if values.dtype.kind != "f" or values.size == 0:
        return
    step = max(1, _CHECK_CHUNK // max(1, values[0].size))
    for start in range(0, len(values), step):
        finite = np.isfinite(values[start : start + step])
        if not finite.all():
            where = np.argwhere(~finite)[0] + [start, *[0] * (finite.ndim - 1)]
            if values is not rows:
                where = [np.searchsorted(rows.indptr, where[0], "right") - 1, rows.indices[where[0]]]
            place = f"row {where[0]}" + (f", column {where[1]}" if len(where) == 2 else "")
            raise ValueError(
                f"{name}: {place} is NaN or infinite, expected finite numbers; drop or impute such rows first."
            )


def check_index(index: ArrayLike, n_rows: int) -> Ints:
    array = np.asarray(index)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"index: expected a flat list of row numbers, got dtype {array.dtype} of shape {array.shape}.")
    array = array.astype(np.int64, copy=False)
    if array.size and (array.min() < 0 or array.max() >= n_rows):
        wrong = array[(array < 0) | (array >= n_rows)][0]
        raise ValueError(f"index: row {wrong} is out of range, expected 0 to {n_rows - 1} for a pool of {n_rows} rows.")
    return array


def check_offsets(offsets: ArrayLike, n_entries: int) -> Ints:
    array = np.asarray(offsets)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise TypeError(f"offsets: expected n_bags + 1 whole numbers, got dtype {array.dtype} of shape {array.shape}.")
    array = array.astype(np.int64)
    if array[0] != 0 or array[-1] != n_entries or (np.diff(array) < 0).any():
        raise ValueError(
            f"offsets: expected to rise from 0 to the number of entries ({n_entries}), "
            f"got {array[0]} … {array[-1]}{'' if (np.diff(array) >= 0).all() else ', not rising'}."
        )
    return array


def check_weights(weights: ArrayLike, kind: str, n_entries: int) -> NDArray:
    w = np.asarray(weights)
    if w.shape != (n_entries,):
        raise ValueError(f"weights: expected one number per entry, shape ({n_entries},), got {w.shape}.")
    if w.dtype.kind not in "fiub" or not np.isfinite(w).all() or (w < 0).any():
        raise ValueError("weights: expected finite numbers of at least 0; drop or repair the others.")
    if kind == "survey":
        return w.astype(np.float64)
    counts = w.astype(np.int64)
    if (counts != w).any():
        raise ValueError(
            f"weights: expected whole numbers for weight_kind='count', got {w[counts != w][0]:g}; "
            "pass weight_kind='survey'."
        )
    return counts


def join_weights(weights: Sequence[ArrayLike], pools: Sequence[Any]) -> NDArray:
    arrays = [np.asarray(w) for w in weights]
    if len(arrays) != len(pools):
        raise ValueError(
            f"weights: expected a list with one array for each of the {len(pools)} bags, got {len(arrays)}."
        )
    for i, (w, pool) in enumerate(zip(arrays, pools, strict=True)):
        if w.shape != (pool.shape[0],):
            raise ValueError(
                f"weights: expected one number per row of bag {i}, shape ({pool.shape[0]},), got {w.shape}."
            )
    return np.concatenate(arrays)


def check_labels(labels: ArrayLike, n_rows: int, n_classes: int | None) -> Ints:
    codes = np.asarray(labels)
    if codes.shape != (n_rows,) or codes.dtype.kind not in "iu":
        raise ValueError(
            f"labels: expected one class code per pool row, shape ({n_rows},), got {codes.dtype} of {codes.shape}; "
            "use Bags.from_labels for class names."
        )
    codes = codes.astype(np.int64, copy=False)
    too_high = n_classes is not None and codes.max(initial=-1) >= n_classes
    if codes.min(initial=0) < -1 or too_high:
        top = "the last class" if n_classes is None else n_classes - 1
        raise ValueError(
            f"labels: expected codes from -1 (unknown) to {top}, got {codes.min()} to {codes.max()}; check classes=."
        )
    return codes


def encode_labels(y: ArrayLike, classes: Sequence[Any] | None, n_rows: int) -> tuple[Ints, NDArray]:
    names = np.asarray(y)
    if names.shape != (n_rows,):
        raise ValueError(f"y: expected one label per row, shape ({n_rows},), got {names.shape}.")
    if (names.dtype.kind == "f" and not np.isfinite(names).all()) or (
        names.dtype.kind == "O" and any(name is None or name != name for name in names)
    ):
        raise ValueError("y: expected a class for every row, got NaN or None; drop such rows or give them a class.")
    found, codes = np.unique(names, return_inverse=True)
    if classes is None:
        if len(found) < 2:
            raise ValueError(
                f"y: expected at least 2 classes, got only {found.tolist()}; pass classes= with all names."
            )
        return codes.astype(np.int64), found
    wanted = check_names("classes", classes, len(classes), "class")
    place = {name: j for j, name in enumerate(wanted.tolist())}
    unknown = [name for name in found.tolist() if name not in place]
    if unknown:
        raise ValueError(f"y: {unknown[0]!r} is not among classes {shown(wanted)}; add it or correct the label.")
    return np.array([place[name] for name in found.tolist()], np.int64)[codes], wanted


def sort_groups(groups: ArrayLike, n_rows: int) -> tuple[Ints, Ints, NDArray]:
    values = np.asarray(groups)
    if values.shape != (n_rows,):
        raise ValueError(f"groups: expected one bag name per row, shape ({n_rows},), got {values.shape}.")
    ids, bag, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.argsort(bag, kind="stable"), np.concatenate([[0], np.cumsum(counts)]), ids


def check_names(name: str, values: Sequence[Any] | NDArray, n: int, of: str) -> NDArray:
    array = np.asarray(values)
    if array.shape != (n,):
        raise ValueError(f"{name}: expected one name per {of}, shape ({n},), got {array.shape}.")
    if name == "classes" and len(set(array.tolist())) < n:
        raise ValueError(f"classes: expected different names, got {array.tolist()}.")
    return array


def check_feature_names(names: Sequence[str] | None, rows: Any) -> list[str] | None:
    if names is None:
        return None
    if len(rows.shape) != 2 or len(names) != rows.shape[1]:
        raise ValueError(f"feature_names: expected one per column of rows {tuple(rows.shape)}, got {len(names)}.")
    return [str(n) for n in names]


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}.")
    return value


def stack(pools: Sequence[Any]) -> Any:
    if len(pools) == 1:
        return pools[0]
    if any(hasattr(p, "tocsr") for p in pools):
        from scipy import sparse

        return sparse.vstack(pools, format="csr")
    return np.concatenate(pools)


def shown(names: NDArray) -> str:
    listed = names.tolist()
    return str(listed) if len(listed) <= 5 else f"[{listed[0]!r}, {listed[1]!r}, … {listed[-1]!r}] ({len(listed)})"
