"""Checks of the parts of bags and of common arguments; each error names the argument and a remedy."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral, Number, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.classifier_rows import ClassifierRows, stack_classifier_rows
from histnetq.bags.indexing import offsets_of
from histnetq.bags.limits import LONGEST_NAME, MOST_BINS, brief
from histnetq.bags.memmap import join_on_disk, row_chunks
from histnetq.errors import InputError, InputTypeError, Way
from histnetq.simplex import Ints

_LARGEST = float(np.finfo(np.float32).max)
_COARSE = 1e-5  # largest rounding error of float32, as a fraction of a column's range
_LEAST_WEIGHT, _MOST_WEIGHT = 1e-100, 1e100  # limits of survey weights, whose squares must be finite, too
_LARGEST_SEED = 2**128 - 1  # numpy draws seeds up to here
MOST_FRACTIONS = 20  # different numbers with fractions among labels, such as grades
_MOST_COMPARED, _LONGEST_COMPARED = 1000, 100  # names, and their characters, that are compared with a wrong name
_MOST_HISTOGRAMS = 100  # histograms of one feature with different numbers of bins


def as_pool(rows: Any, name: str = "rows") -> Any:
    """Check a pool of rows without copying it: an array or CSR matrix of finite numbers, or a list of texts.

    Data frames and 2-D arrays with texts or missing values become `ClassifierRows`.
    """
    if isinstance(rows, ClassifierRows):
        return rows
    if _are_texts(rows):
        return np.asarray(rows, dtype=object)
    given = rows
    if hasattr(rows, "tocsr"):
        rows = rows.tocsr()
    elif hasattr(rows, "detach"):
        rows = rows.detach().cpu().numpy()
    elif not isinstance(rows, np.ndarray):
        rows = _as_array(rows, name)
    if np.ma.is_masked(rows):
        raise InputError(name, "a value everywhere", "a masked array", "fill or drop the masked values first")
    if rows.dtype.kind not in "fiub":
        return _for_classifier(given, _not_numbers(given, rows, name))
    if rows.ndim < 2:
        way_out = "use reshape(-1, 1) for a single feature, reshape(1, -1) for a single row"
        raise InputError(name, "one row per example, shape (n_rows, n_features)", f"shape {rows.shape}", way_out)
    if 0 in rows.shape[1:]:
        raise ValueError(f"{name}: expected at least one feature, got shape {rows.shape}; check the selected columns.")
    try:
        _refuse_not_finite(rows, name, columns=column_names(given))
    except ValueError as refusal:
        if rows.ndim == 2 and isinstance(rows, np.ndarray):
            _refuse_not_finite(rows, name, or_nan=True)
            return _for_classifier(given, refusal)
        raise
    return rows


def _for_classifier(given: Any, refusal: Exception) -> ClassifierRows:
    """Return data frames and 2-D arrays for classifiers that accept texts or missing values; refuse anything else."""
    frame = column_names(given) is not None
    if frame and not hasattr(given, "iloc"):  # polars and arrow
        given = given.to_pandas()
    if frame or (isinstance(given, np.ndarray) and given.ndim == 2 and given.dtype.kind in "OUf"):
        return ClassifierRows(given, refusal)
    raise refusal


def _not_numbers(given: Any, rows: Any, name: str) -> TypeError:
    kind = f"dtype {rows.dtype}" if rows.ndim else type(rows.item()).__name__
    if hasattr(given, "iloc"):
        named = zip(given.columns, given.dtypes, strict=True)
        kind = next((f"dtype {dtype} in column {c!r}" for c, dtype in named if dtype.kind not in "fiub"), kind)
    return TypeError(f"{name}: expected numbers, got {kind}; encode categories and dates first.")


def _as_array(rows: Any, name: str) -> NDArray:
    if isinstance(rows, list | tuple) and len(rows) and hasattr(rows[0], "offsets"):
        raise TypeError(f"{name}: expected one Bags, got a list of them; join them with Bags.concat.")
    if isinstance(rows, list | tuple) and len(rows) and np.ndim(rows[0]) >= 2:
        way_out = "use Bags.from_arrays for several bags"
        raise InputTypeError(name, "one array of rows", f"a list of {len(rows)}", way_out)
    try:
        array = np.asarray(rows)
    except ValueError:
        raise InputError(name, "rows of one length", "a ragged list", "give every row the same features") from None
    if array.dtype == object and array.ndim:
        with contextlib.suppress(TypeError, ValueError):  # a data frame with numeric columns of different types
            return array.astype(np.float64)
    return array


def _are_texts(rows: Any) -> bool:
    """Return whether rows are texts, which a pipeline with a vectoriser accepts unchanged."""
    flat = isinstance(rows, list | tuple) or (getattr(rows, "ndim", None) == 1 and not hasattr(rows, "tocsr"))
    return flat and len(rows) > 0 and all(isinstance(row, str) for row in rows)


def used_rows(index: Ints, n_rows: int) -> tuple[Ints, Ints]:
    """Return the sorted rows that occur in `index`, and `index` as positions among these rows."""
    if n_rows > 8 * len(index):
        used, renumbered = np.unique(index, return_inverse=True)
        return used, renumbered
    occurs = np.zeros(n_rows, bool)
    occurs[index] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[index]


def take_dense(rows: Any, index: Any) -> NDArray:
    """Return the chosen rows of a pool as a dense array."""
    taken = rows[index]
    return taken.toarray() if hasattr(taken, "toarray") else np.asarray(taken)


def column_names(rows: Any) -> list[str] | None:
    """Return the column names of a data frame, or None for anything else."""
    columns = getattr(rows, "columns", None)
    return None if columns is None else [str(c) for c in columns]


def _refuse_not_finite(rows: Any, name: str, or_nan: bool = False, columns: list[str] | None = None) -> None:
    values = rows.data if hasattr(rows, "indptr") else rows
    if values.dtype.kind != "f" or values.size == 0:
        return
    for chunk in row_chunks(values):
        part = values[chunk]
        fits = np.isfinite(part) if part.dtype.itemsize <= 4 else np.abs(part) <= _LARGEST  # NaN is neither
        if or_nan:
            fits |= np.isnan(part)
        if not fits.all():
            first = np.argwhere(~fits)[0]
            value, where = part[tuple(first)], [first[0] + chunk.start, *first[1:]]
            if values is not rows:
                where = [np.searchsorted(rows.indptr, where[0], "right") - 1, rows.indices[where[0]]]
            place = f"row {where[0]}"
            if len(where) == 2:
                place += f", column {where[1] if columns is None else repr(columns[where[1]])}"
            if np.isfinite(value):
                raise ValueError(
                    f"{name}: {place} is {value:g}, expected at most {_LARGEST:.3g}, the largest number of float32; "
                    "correct or rescale it."
                )
            raise ValueError(
                f"{name}: {place} is NaN or infinite, expected finite numbers; drop or impute such rows first."
            )


def loses_digits(error: NDArray, low: NDArray, high: NDArray) -> NDArray[np.bool_]:
    """Return whether the rounding `error` is too large for columns with numbers between `low` and `high`."""
    return error > _COARSE * np.maximum(high - low, 0)  # 0 if a column has no numbers yet


def needs_double(rows: Any) -> bool:
    """Return whether float32 is too coarse for some column of a pool, such as seconds since 1970.

    Examples
    --------
    >>> needs_double(np.array([[1.7e9], [1.7e9 + 60]])), needs_double(np.array([[0.1], [60.1]]))
    (True, False)
    """
    if (
        hasattr(rows, "tocsr")
        or rows.dtype.kind not in "fiu"
        or rows.dtype.itemsize < (8 if rows.dtype.kind == "f" else 4)
    ):
        return False
    low, high, error = np.inf, -np.inf, 0.0
    for chunk in row_chunks(rows):
        part = rows[chunk]
        low, high = np.minimum(low, part.min(0)), np.maximum(high, part.max(0))
        error = np.maximum(error, np.abs(part - part.astype(np.float32)).max(0))
    return bool(loses_digits(np.asarray(error), np.asarray(low), np.asarray(high)).any())


def check_index(index: ArrayLike, n_rows: int) -> Ints:
    array = np.asarray(index)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"index: expected a flat list of row numbers, got dtype {array.dtype} of shape {array.shape}.")
    stray = array[(array < 0) | (array >= n_rows)]
    if stray.size:
        expected = f"expected 0 to {n_rows - 1} for a pool of {n_rows} rows"
        raise ValueError(f"index: row {stray[0]} is out of range, {expected}.")
    return array.astype(np.int64, copy=False)


def check_offsets(offsets: ArrayLike, n_entries: int) -> Ints:
    array = np.asarray(offsets)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise TypeError(f"offsets: expected n_bags + 1 whole numbers, got dtype {array.dtype} of shape {array.shape}.")
    array = array.astype(np.int64)
    if array[0] != 0 or array[-1] != n_entries or (np.diff(array) < 0).any():
        got = f"got {array[0]} … {array[-1]}{'' if (np.diff(array) >= 0).all() else ', not rising'}"
        raise ValueError(f"offsets: expected to rise from 0 to the number of entries ({n_entries}), {got}.")
    return array


def check_weights(weights: ArrayLike, kind: str, n_entries: int) -> NDArray:
    w = np.asarray(weights)
    _check_length("weights", w, n_entries, "one number per entry")
    if w.dtype.kind not in "fiub" or not ((w >= 0) & (w < np.inf)).all():  # NaN is neither
        raise ValueError("weights: expected finite numbers of at least 0; drop or repair the others.")
    if kind == "survey":
        odd = w[(w > 0) & ((w < _LEAST_WEIGHT) | (w > _MOST_WEIGHT))]
        if odd.size:
            expected = f"0, or numbers from {_LEAST_WEIGHT:g} to {_MOST_WEIGHT:g} whose squares can be summed"
            raise InputError("weights", expected, f"{odd[0]:g}", "multiply all of them by one number")
        return w.astype(np.float64)
    counts = w.astype(np.int64)
    if (counts != w).any():
        expected, got = "whole numbers for weight_kind='count'", f"{w[counts != w][0]:g}"
        raise InputError("weights", expected, got, "pass weight_kind='survey'")
    return counts


def drop_weightless(index: Ints, offsets: Ints, weights: NDArray | None) -> tuple[Ints, Ints, NDArray | None]:
    """Drop entries of weight 0; raise an error for bags without entries."""
    if weights is not None and not weights.all():
        kept = weights > 0
        index, offsets, weights = index[kept], offsets_of(kept)[offsets], weights[kept]
    if len(offsets) == 1:
        raise ValueError("offsets: expected at least one bag, got none; give offsets (0, n_entries) for one bag.")
    empty = np.flatnonzero(np.diff(offsets) == 0)
    if empty.size:
        raise ValueError(f"bags: bag {empty[0]} is empty, expected at least one row; leave empty bags out.")
    return index, offsets, weights


def join_weights(weights: Sequence[ArrayLike], pools: Sequence[Any]) -> NDArray:
    arrays = [np.asarray(w) for w in weights]
    if len(arrays) != len(pools):
        raise ValueError(
            f"weights: expected a list with one array for each of the {len(pools)} bags, got {len(arrays)}."
        )
    for i, (w, pool) in enumerate(zip(arrays, pools, strict=True)):
        _check_length("weights", w, pool.shape[0], f"one number per row of bag {i}")
    return np.concatenate(arrays)


def _check_length(name: str, array: NDArray, n: int, expected: str) -> None:
    if array.shape != (n,):
        hint = ""
        if name == "y":
            hint = "; use y.ravel()" if array.shape == (n, 1) else "; pass X and y with the same rows"
        raise ValueError(f"{name}: expected {expected}, shape ({n},), got {array.shape}{hint}.")


def name_columns(prevalences: Any, classes: Any) -> tuple[Any, Any]:
    """Return prevalences and class names; columns of a data frame are put in the order of `classes`."""
    names = column_names(prevalences)
    if names is None:
        return prevalences, classes
    table = np.asarray(prevalences)
    if classes is None:
        return table, names
    wanted = [str(c) for c in classes]
    if sorted(wanted) != sorted(names):
        raise ValueError(f"prevalences: expected the columns {wanted}, got {names}; rename them or leave classes= out.")
    return table[:, [names.index(name) for name in wanted]], classes


def check_labels(labels: ArrayLike, n_rows: int, n_classes: int | None) -> Ints:
    codes = np.asarray(labels)
    if codes.shape != (n_rows,) or codes.dtype.kind not in "iu":
        expected, got = f"one class code per pool row, shape ({n_rows},)", f"{codes.dtype} of {codes.shape}"
        raise InputError("labels", expected, got, "use Bags.from_labels for class names")
    codes = codes.astype(np.int64, copy=False)
    too_high = n_classes is not None and codes.max(initial=-1) >= n_classes
    if codes.min(initial=0) < -1 or too_high:
        top = "the last class" if n_classes is None else n_classes - 1
        got = f"{codes.min()} to {codes.max()}"
        raise InputError("labels", f"codes from -1 (unknown) to {top}", got, "check classes=")
    return codes


def encode_labels(y: ArrayLike, classes: Sequence[Any] | None, n_rows: int) -> tuple[Ints, NDArray]:
    names = _as_labels("y", y, "class")
    _check_length("y", names, n_rows, "one label per row")
    found, codes = np.unique(names, return_inverse=True)
    if classes is None:
        if len(found) < 2:
            takes = "Bags.from_labels takes classes= with the names of those that have no rows"
            remedy = (Way(takes, on=("python",)), Way("add rows of others", on=("command", "service")))
            raise InputError("y", "at least 2 classes", f"only {found.tolist()}", remedy)
        if found.dtype.kind == "f":
            _refuse_continuous(found, len(names))
        refuse_lookalikes("y", found.tolist())
        return codes.astype(np.int64), found
    wanted = check_names("classes", classes, len(classes), "class")
    return match_names(found, wanted, "y: {} is not among classes {}; add it or correct the label.")[codes], wanted


def _refuse_continuous(found: NDArray, n_rows: int) -> None:
    """Raise an error for labels that are measurements; `found` are the different ones."""
    if len(found) == n_rows > 10:
        got = f"a different number in each of {n_rows} rows"
    elif len(found) > MOST_FRACTIONS and (found % 1 != 0).any():
        got = f"{len(found):,} different numbers with fractions"
    else:
        return
    other = Way("name a column of classes", on=("command", "service"))
    raise InputError("y", "classes", got, (Way("bin a continuous y", on=("python",)), other))


def match_names(names: NDArray, among: NDArray, refusal: str) -> Ints:
    """Return the position of each name in `among`; the error `refusal` has fields for the unknown name and for `among`.

    Names that are numbers in one table may be texts in another, so 1 and "1" are the same class.
    """
    place = {name: j for j, name in enumerate(among.tolist())}
    if (names.dtype.kind == "U") != (among.dtype.kind == "U"):
        place = {str(name): j for name, j in place.items()}
        names = names.astype(str)
    unknown = [name for name in names.tolist() if name not in place]
    if unknown:
        raise ValueError(refusal.format(repr(unknown[0]), shown(among)))
    return np.array([place[name] for name in names.tolist()], np.int64)


def sort_groups(groups: ArrayLike, n_rows: int) -> tuple[Ints, Ints, NDArray]:
    values = _as_labels("groups", groups, "bag")
    _check_length("groups", values, n_rows, "one bag name per row")
    ids, bag, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.argsort(bag, kind="stable"), offsets_of(counts), ids


def check_names(name: str, values: Sequence[Any] | NDArray, n: int, of: str) -> NDArray:
    array = _as_labels(name, values, "name")
    _check_length(name, array, n, f"one name per {of}")
    if name == "classes" and len(set(array.tolist())) < n:
        raise ValueError(f"classes: expected different names, got {array.tolist()}.")
    return array


def refuse_lookalikes(where: str, classes: Iterable[Any]) -> None:
    """Refuse class names that differ in spaces, and warn of names that differ only in case."""
    seen: dict[str, str] = {}
    for name in (name for name in classes if isinstance(name, str)):
        other = seen.setdefault(" ".join(name.casefold().split()), name)
        if other == name:
            continue
        if other.casefold() != name.casefold():
            got = f"{other!r} and {name!r}, which differ only in spaces or case"
            raise InputError(where, "a different name for each class", got, "write both the same way")
        warnings.warn(
            f"{where}: the classes {other!r} and {name!r} differ only in case; write both the same way if they are one "
            "class.", UserWarning, stacklevel=3,
        )  # fmt: skip


def _as_labels(name: str, values: Any, of: str) -> NDArray:
    """Return labels as an array of one type; numpy would convert missing values and numbers among strings to texts."""
    array = np.asarray(values, dtype=object if isinstance(values, list | tuple) else None)
    listed = array.ravel().tolist() if array.dtype.kind in "Of" else []
    refuse_long_names(name, listed if array.dtype.kind == "O" else array)
    if any(_is_missing(v) for v in listed):
        raise ValueError(f"{name}: expected a {of} for every row, got NaN or None; drop such rows or give them a {of}.")
    if array.dtype != object:
        return array
    kinds = {"number" if isinstance(v, Number) else type(v).__name__: v for v in listed}
    if len(kinds) > 1:
        first, second = list(kinds.values())[:2]
        raise TypeError(f"{name}: expected values of one type, got {first!r} and {second!r}; convert all to strings.")
    return np.asarray(listed).reshape(array.shape) if kinds.keys() <= {"number", "str", "bytes"} else array


def _is_missing(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, Number) and value != value)
    )


def check_feature_names(names: Sequence[str] | None, rows: Any) -> list[str] | None:
    if names is None:
        return None
    if len(rows.shape) != 2 or len(names) != rows.shape[1]:
        raise ValueError(f"feature_names: expected one per column of rows {tuple(rows.shape)}, got {len(names)}.")
    texts = [str(n) for n in names]
    refuse_long_names("feature_names", texts)
    return texts


def refuse_long_names(name: str, values: Sequence[Any] | NDArray) -> None:
    """Raise an error for names of more than `LONGEST_NAME` characters."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "US" or values.dtype.itemsize <= LONGEST_NAME:
            return
        values = values.ravel().tolist()
    longest = max((value for value in values if isinstance(value, str | bytes)), key=len, default="")
    if len(longest) > LONGEST_NAME:
        got = f"one of {len(longest):,} ({brief(longest)})"
        raise InputError(name, f"names of at most {LONGEST_NAME:,} characters", got, "shorten it")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        near = nearest_name(value, choices) if isinstance(value, str) else None
        remedy = "" if near is None else f"perhaps you mean {near!r}"
        raise InputError(name, f"one of {', '.join(map(repr, choices))}", brief(value), remedy)
    return value


def nearest_name(name: str, names: Iterable[Any], similarity: float = 0.6) -> str | None:
    """Return the most similar of these names, ignoring case, or None if no name is similar.

    Examples
    --------
    >>> nearest_name("Lenght", ["length", "depth"]), nearest_name("x", ["length", "depth"])
    ('length', None)
    """
    texts = list(map(str, itertools.islice(names, _MOST_COMPARED)))
    folded = {text.casefold()[:_LONGEST_COMPARED]: text for text in texts}
    found = difflib.get_close_matches(name.casefold()[:_LONGEST_COMPARED], folded, 1, similarity)
    return folded[found[0]] if found else None


def check_flag(name: str, value: Any) -> None:
    """Raise an error unless the value is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputTypeError(name, "True or False", brief(value))


def check_number(
    name: str,
    value: Any,
    low: float,
    high: float,
    *,
    above: bool = False,
    or_none: bool = False,
    what: str = "a number",
    remedy: str = "",
) -> None:
    """Raise an error unless the value is a number from `low` to `high`; `above` excludes `low` itself.

    Examples
    --------
    >>> check_number("tol", 2, 0, 1)
    Traceback (most recent call last):
    histnetq.errors.InputError: tol: expected a number of at most 1, got 2; lower it.
    """
    if value is None and or_none:
        return
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not (value > low if above else value >= low) or value == np.inf:  # NaN is neither
        wanted = f"{what} {'above' if above else 'of at least'} {low:g}{', or None' if or_none else ''}"
        raise InputError(name, wanted, brief(value), remedy)
    if value > high:
        raise InputError(name, f"{what} of at most {high:g}", brief(value), "lower it")


def check_integer(name: str, value: Any, low: int, high: int) -> int:
    """Return a whole number; raise an error unless it is from `low` to `high`.

    Examples
    --------
    >>> check_integer("max_iter", 10**15, 1, 1_000_000)
    Traceback (most recent call last):
    histnetq.errors.InputError: max_iter: expected a whole number of at most 1,000,000, got 1000000000000000; lower it.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < low:
        raise InputError(name, f"a whole number of at least {low}", brief(value))
    if int(value) > high:
        raise InputError(name, f"a whole number of at most {high:,}", brief(value), "lower it")
    return int(value)


def check_bins(n_bins: Any) -> list[int]:
    """Return one or several numbers of bins as a list.

    Examples
    --------
    >>> check_bins(10), check_bins((10, 20))
    ([10], [10, 20])
    """
    several = isinstance(n_bins, tuple | list | range) or (isinstance(n_bins, np.ndarray) and n_bins.ndim == 1)
    bins = list(n_bins) if several else [n_bins]
    if not bins or not all(isinstance(b, Integral) and not isinstance(b, bool) and int(b) >= 2 for b in bins):
        raise InputError("n_bins", "whole numbers of at least 2", brief(n_bins), "give such as 10")
    if len(bins) > _MOST_HISTOGRAMS:
        expected, got = f"at most {_MOST_HISTOGRAMS} numbers of bins", f"{len(bins):,} numbers"
        raise InputError("n_bins", expected, got, "give such as 10")
    return [check_integer("n_bins", b, 2, MOST_BINS) for b in bins]


def check_fraction(name: str, value: Any) -> float:
    """Return a number; raise an error unless it is strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < 1:  # type: ignore[operator]
        raise InputError(name, "a number between 0 and 1, such as 0.9", brief(value))
    return float(value)


def check_seed(random_state: Any) -> int | None:
    """Return a seed or None; raise an error for any other value."""
    whole = isinstance(random_state, Integral) and not isinstance(random_state, bool) and int(random_state) >= 0
    if random_state is not None and (not whole or random_state > _LARGEST_SEED):
        expected = "a whole number of at least 0, or None" if not whole else "a whole number below 2**128, or None"
        raise InputError("random_state", expected, brief(random_state), "0 gives the same draws each time")
    return None if random_state is None else int(random_state)


def check_whole(name: str, value: Any) -> int:
    """Return a whole number; raise an error unless it is at least 1."""
    return check_integer(name, value, 1, np.iinfo(np.int64).max)


def stack(pools: Sequence[Any]) -> Any:
    if len(pools) == 1:
        return pools[0]
    if any(isinstance(p, ClassifierRows) for p in pools):
        return stack_classifier_rows(list(pools))
    if any(hasattr(p, "tocsr") for p in pools):
        from scipy import sparse

        return sparse.vstack(pools, format="csr")
    if any(isinstance(p, np.memmap) for p in pools):
        return join_on_disk(pools)
    return np.concatenate(pools)


def shown(names: NDArray, most: int = 5) -> str:
    listed = names.tolist()
    return str(listed) if len(listed) <= most else f"[{listed[0]!r}, {listed[1]!r}, … {listed[-1]!r}] ({len(listed)})"
