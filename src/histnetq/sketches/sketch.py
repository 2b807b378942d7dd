"""`BagSketch`: what is left of bags when their rows are gone. Sketches of parts of bags add up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from histnetq.data.files import refuse_existing, whole_file

__all__ = ["BagSketch", "Maker", "SketchSum", "is_sketch", "plain_ids"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_FORMAT = 1
_KEY = b"histnetq.sketch"
_FIELDS = ("n_rows", "totals", "squares", "unseen", "values", "moments")


@dataclass(frozen=True)
class Maker:
    """Where a sketch comes from, which says what it may be added to and who may read it.

    Attributes
    ----------
    quantifier : str
        Name of the method.
    fingerprint : str
        Checksum of all that turns rows into the state. What turns the state into prevalences may differ.
    merge : "sum" or "max"
        How states of parts of a bag are put together.
    origin : tuple of float, optional
        Point that the moments of the features are taken around; None if there are no moments.
    keys : tuple of str, optional
        Columns that name the bags; with several of them, their values stand in the ids with ``/`` between.
    """

    quantifier: str
    fingerprint: str
    merge: str = "sum"
    origin: tuple[float, ...] | None = None
    keys: tuple[str, ...] | None = None


@dataclass(frozen=True)
class BagSketch:
    """A small table with one row per bag, made by `Quantifier.sketch` of any part of the bags' rows.

    ``a + b`` adds the states of equal ids and keeps the others: exactly for counts (hard histograms, CC, ACC, HDy, DyS)
    and for the maximum, to the rounding of float64 for the rest. The order of adding is irrelevant.

    Attributes
    ----------
    ids : (n_bags,), or None for one bag that was given as an array
    n_rows, unseen : (n_bags,) of int
        Rows, and those with a text that the model has not met.
    totals, squares : (n_bags,)
        Sums of the weights, and of their squares (of counts: the sum of the counts).
    values : (n_bags, ...)
        The states.
    moments : (n_bags, 2 · n_features)
        Sums of the features and their squares around `Maker.origin`, for `Quantifier.trust`; or of width 0.
    maker : Maker

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
        """With 0, so that ``sum(sketches)`` works."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    @property
    def sizes(self) -> NDArray:
        """(n_bags,): as in `Bags.sizes`."""
        return self.totals if self.totals.dtype.kind in "iu" else self.totals**2 / self.squares

    @property
    def nbytes(self) -> int:
        """In memory."""
        return sum(getattr(self, name).nbytes for name in _FIELDS)

    def roll_up(self, to: Callable[[Any], Any] | Mapping[Any, Any] | Sequence[Any]) -> BagSketch:
        """Put bags together: by a function of the id, a mapping of ids, or a list with the wider bag of each bag.

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
        if callable(to):
            new = [to(name) for name in names]
        elif isinstance(to, Mapping):
            unknown = [name for name in names if name not in to]
            if unknown:
                raise ValueError(f"to: has no wider bag for {unknown[0]!r}; add it.")
            new = [to[name] for name in names]
        else:
            new = list(to)
            if len(new) != len(names):
                raise ValueError(f"to: expected the wider bag of each of the {len(names)} bags, got {len(new)}.")
        return SketchSum().add(replace(self, ids=np.asarray(new), maker=replace(self.maker, keys=None))).result()

    def roll_up_keys(self, keys: Sequence[str]) -> BagSketch:
        """Put together the bags that agree in these of the columns that name them."""
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
        """Write a Parquet file (or to an open one): a row per bag, what made it in the schema's metadata."""
        from pyarrow import parquet

        table = self._to_arrow()
        if not isinstance(path, str | os.PathLike):
            parquet.write_table(table, path, compression="zstd")
            return
        refuse_existing(Path(path), overwrite)
        with whole_file(Path(path)) as partial:
            parquet.write_table(table, partial, compression="zstd")

    @classmethod
    def load(cls, path: str | os.PathLike[str] | BinaryIO) -> BagSketch:
        """Read what `save` wrote."""
        import pyarrow as pa
        from pyarrow import parquet

        try:
            table = parquet.read_table(path if not isinstance(path, str | os.PathLike) else os.fspath(path))
            about = json.loads((table.schema.metadata or {})[_KEY])
        except (KeyError, pa.ArrowInvalid):
            raise ValueError(f"path: {path} holds no sketches; make them with histnetq sketch.") from None
        if about["format"] != _FORMAT:
            raise ValueError(
                f"path: {path} has format {about['format']!r}, this version of histnetq reads {_FORMAT}; "
                "upgrade histnetq."
            )
        return cls._from_arrow(table, about)

    def _to_arrow(self) -> Any:
        import pyarrow as pa

        columns: dict[str, Any] = {}
        if self.ids is not None:
            columns["id"] = pa.array(plain_ids(self.ids).tolist())
        for name in _FIELDS:
            array = getattr(self, name)
            if array.ndim == 1:
                columns[name] = pa.array(array)
            elif array[0].size:
                flat = np.ascontiguousarray(_narrow(array)).reshape(-1)
                columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(flat), array[0].size)
        about = {"format": _FORMAT, "shape": self.values.shape[1:], "maker": asdict(self.maker)}
        return pa.table(columns).replace_schema_metadata({_KEY: json.dumps(about)})

    @classmethod
    def _from_arrow(cls, table: Any, about: dict[str, Any]) -> BagSketch:
        def column(name: str, shape: Sequence[int], dtype: Any) -> NDArray:
            if name not in table.column_names:
                return np.empty((table.num_rows, *shape), dtype)
            array = table.column(name).combine_chunks()
            flat = (array.flatten() if hasattr(array, "flatten") and shape != () else array).to_numpy()
            return flat.reshape(table.num_rows, *shape)

        made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in about["maker"].items()}
        maker, ids = Maker(**made), None
        if "id" in table.column_names:
            ids = np.array(table.column("id").to_pylist())
        width = 0 if maker.origin is None else 2 * len(maker.origin)
        shapes = {"values": (tuple(about["shape"]), np.uint8), "moments": ((width,), np.float64)}
        fields = {name: column(name, *shapes.get(name, ((), np.int64))) for name in _FIELDS}
        return cls(ids=ids, maker=maker, **fields)


class SketchSum:
    """A sum of sketches that grows in place.

    Bags stand in the order in which they first came.
    """

    def __init__(self) -> None:
        self._place: dict[Any, int] = {}
        self._fields: dict[str, NDArray] = {}
        self._maker: Maker | None = None
        self._named = True

    def add(self, part: BagSketch) -> SketchSum:
        """Add a sketch; refused if another model made it."""
        if part.ids is not None:
            part = replace(part, ids=plain_ids(part.ids))
        self._refuse_other(part)
        names = [None] if part.ids is None else part.ids.tolist()
        bags = np.array([self._place.setdefault(name, len(self._place)) for name in names], np.int64)
        if len(np.unique(bags)) < len(bags):
            bags, part = _joined(part, bags)
        assert self._maker is not None
        if self._maker.origin != part.maker.origin:
            # Moments around different points do not add up; without them there is no trust, but all the rest.
            self._maker = replace(self._maker, origin=None)
            part = replace(part, moments=np.empty((len(part), 0)))
            self._fields["moments"] = np.empty((len(self._fields.get("moments", ())), 0))
        for name in _FIELDS:
            self._add(name, bags, getattr(part, name))
        return self

    def result(self) -> BagSketch:
        """The sum so far."""
        if self._maker is None:
            raise ValueError("sketches: expected at least one, got none; check where the rows come from.")
        n = len(self._place)
        fields = {name: array[:n].copy() for name, array in self._fields.items()}
        ids = np.array(list(self._place)) if self._named else None
        return BagSketch(ids=ids, maker=self._maker, **fields)

    def _add(self, name: str, bags: Ints, new: NDArray) -> None:
        largest = name == "values" and self._maker is not None and self._maker.merge == "max"
        held = self._fields.get(name)
        n = int(bags.max(initial=-1)) + 1
        dtype = new.dtype if held is None else np.result_type(held, new)
        if name == "values" and new.dtype.kind in "iu" and (held is None or held.dtype.kind in "iu"):
            # No count exceeds the weight of its bag.
            dtype = np.min_scalar_type(int(self._fields["totals"].max(initial=0)))
        if held is None or len(held) < n or held.dtype != dtype:
            room = n if held is None else max(len(held), 2 * len(held) if n > len(held) else 0, n)
            grown = np.full((room, *new.shape[1:]), -np.inf if largest else 0, dtype)
            if held is not None:
                grown[: len(held)] = held
            held = self._fields[name] = grown
        new = new.astype(dtype, copy=False)  # also as unsigned counts, which stay exact beyond 2 ** 53
        held[bags] = np.maximum(held[bags], new) if largest else held[bags] + new

    def _refuse_other(self, part: BagSketch) -> None:
        named = part.ids is not None
        if self._maker is None:
            self._maker, self._named = part.maker, named
            return
        first, other = self._maker, part.maker
        if first.fingerprint != other.fingerprint:
            raise ValueError(
                f"sketches: expected all of one model, got {first.quantifier} {first.fingerprint[:8]} and "
                f"{other.quantifier} {other.fingerprint[:8]}; sketch the rows again with one of them."
            )
        if self._named != named:
            raise ValueError("sketches: some have bag ids and some have none; give all of them ids.")
        known = next(iter(self._place))
        if named and len(part) and isinstance(known, str) != (part.ids.dtype.kind not in "iufb"):  # type: ignore[union-attr]
            raise TypeError(
                f"sketches: expected ids of one type, got {known!r} and {part.ids.tolist()[0]!r}; "  # type: ignore[union-attr]
                "convert all to texts."
            )
        if first.keys != other.keys:
            self._maker = replace(first, keys=None)


def plain_ids(ids: NDArray) -> NDArray:
    """Numbers and texts as they are, dates and whatever else as texts."""
    return ids if ids.dtype.kind in "iufbU" else np.array([str(name) for name in ids])


def is_sketch(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a Parquet file that `BagSketch.save` wrote."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return _KEY in (parquet.read_schema(os.fspath(path)).metadata or {})
    except (pa.ArrowInvalid, OSError):
        return False


def _joined(part: BagSketch, bags: Ints) -> tuple[Ints, BagSketch]:
    """The different numbers of these bags, and the part with the rows of equal ones put together."""
    order = np.argsort(bags, kind="stable")
    different, starts = np.unique(bags[order], return_index=True)

    def put(name: str) -> NDArray:
        array, largest = getattr(part, name)[order], name == "values" and part.maker.merge == "max"
        wide = array if array.dtype.kind == "f" else array.astype(np.int64)
        return (np.maximum if largest else np.add).reduceat(wide, starts) if wide[0].size else wide[starts]

    fields: dict[str, Any] = {name: put(name) for name in _FIELDS}
    ids = None if part.ids is None else part.ids[order][starts]
    return different, replace(part, ids=ids, **fields)


def _narrow(array: NDArray) -> NDArray:
    """Counts in the smallest type that holds them."""
    return array.astype(np.min_scalar_type(int(array.max(initial=0)))) if array.dtype.kind in "iu" else array
