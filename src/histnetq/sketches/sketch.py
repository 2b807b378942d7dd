"""`BagSketch`: summaries of bags without their rows. The sketches of parts of a bag can be added."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from histnetq.simplex import Floats, Ints
from histnetq.tables.budget import Charge, TooLargeError, name_array
from histnetq.tables.files import refuse_existing, require_parquet, whole_file
from histnetq.tables.parquet_files import read_parquet_schema
from histnetq.tables.places import as_place

FORMAT = 2
_KEY = b"histnetq.sketch"
_FIELDS = ("n_rows", "totals", "squares", "unseen", "values", "moments")


@dataclass(frozen=True)
class Maker:
    """Origin of a sketch; only sketches of the same origin can be added, and only its models can use them.

    Attributes
    ----------
    quantifier : str
        Name of the method.
    fingerprint : str
        Checksum of everything that converts rows to states. The conversion of states to prevalences may differ.
    merge : "sum" or "max"
        How the states of parts of a bag are merged.
    moments : str, optional
        Checksum of everything that converts rows to moments; None without moments.
    keys : tuple of str, optional
        Columns that name the bags; the ids join the values of several columns by ``/``.
    """

    quantifier: str
    fingerprint: str
    merge: str = "sum"
    moments: str | None = None
    keys: tuple[str, ...] | None = None

    @property
    def in_words(self) -> str:
        """Method and start of the fingerprint, for messages."""
        return f"{self.quantifier} (fingerprint {self.fingerprint[:8]})"


@dataclass(frozen=True)
class BagSketch:
    """A small table with one row per bag, which `Quantifier.sketch` computes from any part of the bags' rows.

    ``a + b`` merges the states of bags with equal ids and keeps all other bags. The result is exact for counts (hard
    histograms, CC, ACC, HDy, DyS) and for maxima, and exact up to the rounding of float64 for all other states. The
    order of adding does not matter.

    Parameters
    ----------
    ids : array of shape (n_bags,) or None
        Names of the bags; None for one bag that was given as an array.
    n_rows : array of int, shape (n_bags,)
        Number of rows of each bag.
    totals : array of shape (n_bags,)
        Sum of the weights of each bag.
    squares : array of shape (n_bags,)
        Sum of the squared weights of each bag; for counts, the sum of the counts.
    unseen : array of int, shape (n_bags,)
        Number of rows with a category that is unknown to the model.
    values : array of shape (n_bags, ...)
        The states.
    moments : array of shape (n_bags, n_moments)
        Sums of the features, their squares and products, for `Quantifier.trust`; the width may be 0.
    maker : Maker
        Origin of the sketch.

    Examples
    --------
    >>> from histnetq import CC
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 5), ["a", "a", "b", "b"] * 5
    >>> q = CC().fit(X, y)
    >>> morning, evening = q.sketch([[0.0], [1.0]]), q.sketch([[1.0], [1.0]])
    >>> q.predict(morning + evening)
    array([0.25, 0.75])
    """

    ids: NDArray | None
    n_rows: Ints
    totals: NDArray
    squares: NDArray
    unseen: Ints
    values: NDArray
    moments: Floats
    maker: Maker

    def __len__(self) -> int:
        return len(self.n_rows)

    def __repr__(self) -> str:
        about = f"n_bags={len(self)}, n_rows={self.n_rows.sum()}, {self.nbytes} bytes"
        return f"BagSketch({self.maker.quantifier}, {about})"

    def __add__(self, other: BagSketch) -> BagSketch:
        if not isinstance(other, BagSketch):
            return NotImplemented
        return SketchSum().add(self).add(other).result()

    def __radd__(self, other: Any) -> BagSketch:
        """Add to 0, so that ``sum(sketches)`` works."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    @property
    def sizes(self) -> NDArray:
        """Sizes of the bags, (n_bags,), as in `Bags.sizes`."""
        return self.totals if self.totals.dtype.kind in "iu" else self.totals**2 / self.squares

    def sized(self) -> tuple[NDArray, NDArray]:
        """Return states and total weights, scaled so that the total weight of each bag is its size.

        Counts have these units. Survey weights have any unit, which affects states that are sums.

        Returns
        -------
        values : (n_bags, ...)
            The states.
        totals : (n_bags,)
            The total weights.

        Examples
        --------
        >>> from histnetq import Bags, CC
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> bags = Bags(np.array([[0.0], [1.0], [1.0]]), weights=[2.0, 1.0, 1.0], weight_kind="survey")
        >>> values, totals = q.sketch(bags).sized()
        >>> values.round(2), totals.round(2)
        (array([[1.33, 1.33]]), array([2.67]))
        """
        if self.totals.dtype.kind in "iu" or self.maker.merge != "sum":
            return self.values, self.totals
        unit = (self.sizes / self.totals).reshape(-1, *[1] * (self.values.ndim - 1))
        return self.values * unit, self.sizes

    @property
    def nbytes(self) -> int:
        """Size in memory in bytes."""
        return sum(getattr(self, name).nbytes for name in _FIELDS)

    def roll_up(self, to: Callable[[Any], Any] | Mapping[Any, Any] | Sequence[Any]) -> BagSketch:
        """Merge bags into larger bags.

        Parameters
        ----------
        to : callable, mapping or sequence
            The larger bag that each bag is merged into: a function of its id, a mapping from ids, or a list.

        Returns
        -------
        BagSketch
            The sketch of the larger bags, in the order of their first occurrence.

        Examples
        --------
        >>> from histnetq import CC, Bags
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> hours = q.sketch(Bags([[0.0], [1.0], [1.0]], offsets=[0, 1, 2, 3], ids=["mon-08", "mon-09", "tue-08"]))
        >>> days = hours.roll_up(lambda hour: hour[:3])
        >>> days.ids.tolist(), q.predict(days).tolist()
        (['mon', 'tue'], [[0.5, 0.5], [0.0, 1.0]])
        """
        if self.ids is None:
            raise ValueError("roll_up: expected bags with ids, got one bag without; add sketches of it by a + b.")
        names = self.ids.tolist()
        if isinstance(to, Mapping):
            if unknown := [name for name in names if name not in to]:
                raise ValueError(f"to: has no larger bag for {unknown[0]!r}; add it.")
            to = to.__getitem__
        new = [to(name) for name in names] if callable(to) else list(to)
        if len(new) != len(names):
            raise ValueError(
                f"to: expected a list of {len(names)} larger bags, one for each bag, got {len(new)}; correct it."
            )
        return SketchSum().add(replace(self, ids=np.asarray(new), maker=replace(self.maker, keys=None))).result()

    def roll_up_keys(self, keys: Sequence[str]) -> BagSketch:
        """Merge the bags that have the same values in some of the columns that name them.

        Parameters
        ----------
        keys : sequence of str
            Columns that name the merged bags, a subset of `Maker.keys`.

        Returns
        -------
        BagSketch
            The sketch of the larger bags, in the order of their first occurrence.

        Examples
        --------
        >>> import dataclasses
        >>> from histnetq import CC, Bags
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> hours = q.sketch(Bags([[0.0], [1.0], [1.0]], offsets=[0, 1, 2, 3], ids=["mon/08", "mon/09", "tue/08"]))
        >>> named = dataclasses.replace(hours, maker=dataclasses.replace(hours.maker, keys=("day", "hour")))
        >>> named.roll_up_keys(["day"]).ids.tolist()
        ['mon', 'tue']
        """
        known = self.maker.keys or ()
        unknown = [key for key in keys if key not in known]
        if unknown or self.ids is None:
            raise ValueError(
                f"bag: {(unknown or list(keys))[0]!r} does not name these bags, which are named by "
                f"{', '.join(map(repr, known)) or 'no column'}; name some of these."
            )
        if tuple(keys) == known:
            return self
        parts = [str(name).split("/") for name in self.ids.tolist()]
        if any(len(part) != len(known) for part in parts):
            raise ValueError("bag: some ids have a '/' in a value, so their columns cannot be told apart; use roll_up.")
        places = [known.index(key) for key in keys]
        rolled = self.roll_up(["/".join(part[i] for i in places) for part in parts])
        return replace(rolled, maker=replace(rolled.maker, keys=tuple(keys)))

    def save(self, path: str | os.PathLike[str] | BinaryIO, *, overwrite: bool = False) -> None:
        """Write a Parquet file with one row per bag; the metadata of its schema contain the origin of the sketch.

        Parameters
        ----------
        path : str, path or binary file
            File to write.
        overwrite : bool, default=False
            Whether to replace an existing file.

        Examples
        --------
        >>> import io
        >>> from histnetq import CC
        >>> file, q = io.BytesIO(), CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> q.sketch([[0.0], [1.0]]).save(file)
        >>> q.predict(BagSketch.load(file))
        array([0.5, 0.5])
        """
        from pyarrow import parquet

        if not isinstance(path, str | os.PathLike):
            parquet.write_table(self.to_arrow(), path, compression="zstd")
            return
        place = as_place(path)
        require_parquet(place, "path")
        refuse_existing(place, overwrite)
        with whole_file(place) as partial:
            parquet.write_table(self.to_arrow(), partial, compression="zstd")

    @classmethod
    def load(cls, path: str | os.PathLike[str] | BinaryIO) -> BagSketch:
        """Read a file that `save` wrote.

        Parameters
        ----------
        path : str, path or binary file
            File to read.

        Returns
        -------
        BagSketch
            The sketch that was saved.

        Examples
        --------
        >>> import io
        >>> from histnetq import CC
        >>> file, q = io.BytesIO(), CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> q.sketch([[0.0], [1.0]]).save(file)
        >>> BagSketch.load(file).n_rows
        array([2])
        """
        import pyarrow as pa

        from histnetq.sketches.sketch_files import check_numbers, no_sketches, read_fields, read_ids, read_maker

        if isinstance(path, str | os.PathLike):
            path = as_place(path)
        try:
            schema = read_parquet_schema(path)
            about = json.loads((schema.metadata or {})[_KEY])
        except (FileNotFoundError, ConnectionError, TooLargeError):
            raise
        except (KeyError, ValueError, RecursionError, OSError, pa.ArrowException):
            raise no_sketches(path) from None
        maker, shape, n_moments = read_maker(about, path)
        shapes = {"values": shape, "moments": (n_moments,)}
        fields, names = read_fields(path, schema, {name: shapes.get(name, ()) for name in _FIELDS})
        check_numbers(fields, maker, path)
        return cls(ids=read_ids(names, schema, path), maker=maker, **fields)

    @classmethod
    def from_sql(cls, table: Any, *, missing: str = "refuse") -> BagSketch:
        """Read the result of a query of `Quantifier.to_sql`.

        The result is checked, because any program may have written it. The sketches of two results, such as of two
        days, can be added.

        Parameters
        ----------
        table : path, list of paths, or data frame
            The result as a CSV, Parquet or JSON file, or several files with parts of it; or a pandas, polars or arrow
            table.
        missing : {"refuse", "drop"}, default="refuse"
            What to do with rows that lack a value, which the query counts: raise an error, or leave them out.

        Returns
        -------
        BagSketch
            The sketches of the bags.

        Examples
        --------
        >>> import histnetq as hq, pandas as pd
        >>> scored = pd.DataFrame({"p_a": [0.9, 0.2] * 10, "p_b": [0.1, 0.8] * 10, "y": ["a", "b"] * 10})
        >>> q = hq.CC().fit(hq.read_bags(scored, proba="p_*", label="y"))
        >>> try:
        ...     BagSketch.from_sql(scored)
        ... except ValueError as error:
        ...     print(error)
        table: has no column 'histnetq_model', which the result of every query has; run the query of to_sql again.
        """
        from histnetq.sketches.sql.results import read_result

        return read_result(table, missing)

    def to_arrow(self) -> Any:
        """Return an Arrow table with one row per bag; the metadata of its schema contain the origin of the sketch.

        Returns
        -------
        pyarrow.Table
            The table that `save` writes.

        Examples
        --------
        >>> from histnetq import CC
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> q.sketch([[0.0], [1.0]]).to_arrow().num_rows
        1
        """
        import pyarrow as pa

        columns: dict[str, Any] = {}
        if self.ids is not None:
            columns["id"] = pa.array(plain_ids(self.ids).tolist())
        for name in _FIELDS:
            array = getattr(self, name)
            if array.ndim == 1:
                columns[name] = pa.array(array)
            elif size := math.prod(array.shape[1:]):
                flat = np.ascontiguousarray(_narrow(array)).reshape(-1)
                columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(flat), size)
        about = {"format": FORMAT, "shape": self.values.shape[1:], "n_moments": self.moments.shape[1]}
        about["maker"] = asdict(self.maker)
        return pa.table(columns).replace_schema_metadata({_KEY: json.dumps(about)})


class NoSketchError(ValueError):
    """A sum without any sketches."""


class SketchSum:
    """A sum of sketches that grows in place; bags are in the order of their first occurrence."""

    def __init__(self) -> None:
        self._place: dict[Any, int] = {}  # row of each bag; the id of a bag without a name is None
        self._fields: dict[str, NDArray] = {}
        self._maker: Maker | None = None
        self._charges: dict[str, Charge] = {}

    def add(self, part: BagSketch) -> SketchSum:
        """Add a sketch; raise an error if another model made it."""
        if part.ids is not None:
            part = replace(part, ids=plain_ids(part.ids))
        self._maker = maker = part.maker if self._maker is None else self._joint_maker(self._maker, part)
        names = [None] if part.ids is None else part.ids.tolist()
        bags = np.array([self._place.setdefault(name, len(self._place)) for name in names], np.int64)
        different = len(np.unique(bags)) == len(bags)
        if maker.moments is None:
            part = replace(part, moments=np.empty((len(part), 0)))
            self._fields["moments"] = np.empty((len(self._fields.get("moments", ())), 0))
        for name in _FIELDS:
            merge = np.maximum if name == "values" and maker.merge == "max" else np.add
            new = getattr(part, name)
            held = self._room(name, len(self._place), new, -np.inf if merge is np.maximum else 0)
            new = new.astype(held.dtype, copy=False)  # unsigned counts stay exact beyond 2 ** 53
            if different:
                held[bags] = merge(held[bags], new)
            else:
                merge.at(held, bags, new)
        return self

    def result(self) -> BagSketch:
        """Return the sum so far."""
        if self._maker is None:
            raise NoSketchError("sketches: expected at least one, got none; check where the rows come from.")
        fields = {name: array[: len(self._place)].copy() for name, array in self._fields.items()}
        ids = None if None in self._place else name_array(list(self._place))
        return BagSketch(ids=ids, maker=self._maker, **fields)

    def _room(self, name: str, n: int, new: NDArray, empty: float) -> NDArray:
        """Return the array of a field, with room for at least n bags and a type that holds its sum with `new`."""
        held = self._fields.get(name, np.empty((0, *new.shape[1:]), new.dtype))
        dtype = np.result_type(held, new)
        if name == "values" and held.dtype.kind in "iu" and new.dtype.kind in "iu":
            # No count is larger than the total weight of its bag.
            dtype = np.min_scalar_type(int(self._fields["totals"].max(initial=0)))
        if len(held) < n or held.dtype != dtype:
            n_grown = max(n, 2 * len(held)) if len(held) < n else len(held)
            n_bytes = 3 * n_grown * math.prod(new.shape[1:]) * dtype.itemsize
            self._charges.setdefault(name, Charge()).grow_to(n_bytes, f"sketches of {n:,} bags", "use fewer bags")
            grown = np.full((n_grown, *new.shape[1:]), empty, dtype)
            grown[: len(held)] = held
            self._fields[name] = held = grown
        return held

    def _joint_maker(self, first: Maker, part: BagSketch) -> Maker:
        """Return the common origin of the sum and the part; raise an error if they cannot be added."""
        other, known = part.maker, next(iter(self._place), None)
        if first.fingerprint != other.fingerprint:
            raise ValueError(
                f"sketches: expected all of one model, got {first.in_words} and {other.in_words}; sketch the rows "
                "again with one of them."
            )
        held, new = self._fields["values"].shape[1:], part.values.shape[1:]
        if new != held:
            raise ValueError(f"sketches: expected states of one shape, got {held} and {new}; sketch the rows again.")
        if (known is None) != (part.ids is None):
            raise ValueError("sketches: some have bag ids and some have none; give all of them ids.")
        if part.ids is not None and len(part) and isinstance(known, str) != (part.ids.dtype.kind not in "iufb"):
            raise TypeError(
                f"sketches: expected ids of one type, got {known!r} and {part.ids.tolist()[0]!r}; convert all to texts."
            )
        # Moments of different checksums cannot be added. Only `trust` needs them, so they are dropped.
        moments = first.moments if first.moments == other.moments else None
        return replace(first, moments=moments, keys=first.keys if first.keys == other.keys else None)


def plain_ids(ids: NDArray) -> NDArray:
    """Return ids unchanged if they are numbers or texts, and as texts otherwise."""
    return ids if ids.dtype.kind in "iufbU" else np.array([str(name) for name in ids])


def is_sketch(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a Parquet file that `BagSketch.save` wrote."""
    try:
        return _KEY in (read_parquet_schema(os.fspath(path)).metadata or {})
    except (TooLargeError, ConnectionError):
        raise
    except (ValueError, OSError):  # these include arrow's errors
        return False


def _narrow(array: NDArray) -> NDArray:
    """Return counts in the smallest type that holds them."""
    return array.astype(np.min_scalar_type(int(array.max(initial=0)))) if array.dtype.kind in "iu" else array
