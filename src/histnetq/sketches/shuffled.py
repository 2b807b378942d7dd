"""Parts of bags on many machines: rows or packed sketches that a shuffle by bag brings together, and their sums.

An engine such as Spark or Dask reads a table in blocks of rows, in any order. A `Shuffle` turns a block into packed
sketches, one record for each bag in it. The engine shuffles these records by bag, or the rows themselves if they are
smaller, and sorts each partition by bag. `Shuffle.merge` then yields the sketches of whole bags, few at a
time, so that no process ever holds all bags.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from histnetq.errors import InputError
from histnetq.simplex import Ints
from histnetq.sketches.sketch import BagSketch, Maker, NoSketchError, SketchSum
from histnetq.sketches.sketcher import SketchingModel
from histnetq.sketches.tables import sketch_numbered
from histnetq.tables.columns import Codes, encode, refuse_nothing
from histnetq.tables.long_tables import LongTable, weightless
from histnetq.tables.table_files import BATCH_ROWS, NoRowsError, Table, can_name, without_nan

PACKED = "histnetq_sketch"  # column of packed sketches
BLOCK_ROWS = 1 << 18  # rows that become packed sketches together
_BAG = "histnetq_bag"  # column of the numbers of bags within a block
_RECORDS = 1 << 16  # largest number of records that are merged together
_FEWEST_RECORDS = 1 << 10
_NUMBERS = 1 << 24  # numbers in the states of bags that are merged together
_PROBED = 64  # bags that are packed to compare their size with the size of their rows
_HEAD = struct.Struct("<IccBI")  # bytes of the body, types of totals and of values, dimensions of a state, moments
_N_DIMENSIONS = 6  # place of the number of dimensions
_KINDS = np.typecodes["AllInteger"] + np.typecodes["Float"]  # of totals and of values


@dataclass(frozen=True)
class Shuffle:
    """The way from blocks of rows to sketches of whole bags.

    Parameters
    ----------
    model : Quantifier
        A fitted quantifier that supports sketches.
    keys : tuple of str
        Columns that name the bags.
    weight, weight_kind, missing
        As in `read_bags`.
    moments : bool
        Whether the sketches keep the moments that `Quantifier.trust` needs.
    order : str, optional
        A column whose value in the first row of a bag is kept beside the columns that name the bag.
    name : str
        Name of the table in messages.
    """

    model: SketchingModel
    keys: tuple[str, ...]
    weight: str | None = None
    weight_kind: str = "survey"
    missing: str = "refuse"
    moments: bool = False
    order: str | None = None
    name: str = "source"

    def columns(self, table: Table) -> tuple[list[str], list[str]]:
        """Return the columns of numbers to read, and the columns of names; the columns of bags come first.

        Examples
        --------
        >>> from histnetq import CC
        >>> import pandas as pd
        >>> q = CC().fit(pd.DataFrame({"x": [0.0, 1.0] * 10}), ["a", "b"] * 10)
        >>> table = Table("rows", pa.schema({"x": pa.float64(), "y": pa.float64(), "tow": pa.string()}), iter)
        >>> Shuffle(q, ("tow",)).columns(table)
        (['x'], ['tow'])
        """
        spec = self.model.reading()
        plan = self._long(table).plan
        numbers, texts = (plan.numbers, plan.texts) if spec.text is None else ([], [spec.text.column])
        if clash := {PACKED, _BAG} & {*self.keys, *numbers, *texts, self.weight}:
            raise InputError(self.name, problem=f"column {min(clash)!r} has a name that is in use", remedy="rename it")
        for key in self.keys:
            if not can_name(table.types[key]):
                raise ValueError(
                    f"{self.name}: column {key!r} holds {table.types[key]}, expected texts or numbers; convert it."
                )
        return [*([self.weight] if self.weight else []), *numbers], [*self.keys, *texts]

    def check(self, rows: pa.Table) -> None:
        """Raise an error for rows with values that are missing or too large, as reading them would."""
        for _ in self._long(Table(self.name, rows.schema, lambda columns, _: iter(rows.select(columns).to_batches()))):
            pass

    def _long(self, table: Table) -> LongTable:
        how = None, self.weight, self.missing
        return LongTable(table, list(self.keys), self.model.reading(), *how, weight_kind=self.weight_kind)

    def pack(self, rows: pa.Table) -> pa.Table:
        """Return one record for each bag of a block of rows: the columns that name it, and its packed sketch."""
        names, found = self.sketch(rows)
        return names.append_column(PACKED, pa.array(_packed(found, len(names)), pa.binary()))

    def prefers_rows(self, rows: pa.Table, rows_per_bag: float) -> bool:
        """Return whether rows are smaller than the packed sketches of bags with this number of rows in each part."""
        size = int(np.clip(rows_per_bag, 1, max(1, len(rows))))
        few = rows.slice(0, _PROBED * size)
        bags = pa.array(np.arange(len(few)) // size)
        probe = replace(self, keys=(_BAG,), order=None)
        packed = probe.pack(few.drop_columns(list(self.keys)).append_column(_BAG, bags))
        return packed.nbytes > few.nbytes

    def sketch(self, rows: pa.Table) -> tuple[pa.Table, BagSketch | None]:
        """Return the names of the bags of a block, (n_bags, n_keys), and sketches whose ids are places among them.

        A bag whose rows all have weight 0 has no sketch. Bags whose rows are all dropped are left out.
        """
        names, codes = self._number(rows)
        table = rows.drop_columns(list(self.keys)).append_column(_BAG, pa.array(codes))
        opened = Table(self.name, table.schema, lambda columns, _: iter(table.select(columns).to_batches(BATCH_ROWS)))
        how = [_BAG], self.weight, self.missing, 1, self.weight_kind
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*: no row of bag ")  # other blocks may have some
                bags, found = sketch_numbered(self.model, opened, *how)
        except NoRowsError:  # all rows are dropped
            return names[:0], None
        kept = np.array([key[0] for key in bags.place], np.int64)
        return names.take(kept), None if found is None else self._plain(found)

    def _plain(self, found: BagSketch) -> BagSketch:
        """Drop what nothing reads."""
        if self.moments:
            return replace(found, maker=replace(found.maker, keys=None))
        maker = replace(found.maker, moments=None, keys=None)
        return replace(found, moments=np.empty((len(found), 0)), maker=maker)

    def merge(self, batches: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[tuple[pa.Table, BagSketch]]:
        """Yield the names and the sketches of whole bags, given rows or packed sketches that are sorted by bag.

        Parameters
        ----------
        batches : iterable of tables or record batches
            All records of some bags; each bag's records follow one another.
        """
        held: tuple[pa.Table, BagSketch | None] | None = None
        blocks = Blocks(batches, _FEWEST_RECORDS)
        for block in blocks:
            names, found = self._unpacked(block) if PACKED in block.column_names else self.sketch(block)
            if found is not None:
                n_numbers = max(1, found.values[0].size)
                blocks.n_records = int(np.clip(_NUMBERS // n_numbers, _FEWEST_RECORDS, _RECORDS))
            if held is not None:
                names, found = self._sum([held, (names, found)])
            if not len(names):
                continue
            # The records of the last bag may go on in the next block.
            last = len(names) - 1
            if last:
                yield names[:last], self._whole(names[:last], _among(found, 0, last))
            held = names[last:], _among(found, last, last + 1)
        if held is not None:
            yield held[0], self._whole(*held)

    def _number(self, rows: pa.Table) -> tuple[pa.Table, Ints]:
        return number(rows, self.keys, self.name, () if self.order is None else (self.order,))

    def _unpacked(self, block: pa.Table) -> tuple[pa.Table, BagSketch | None]:
        names, codes = self._number(block)
        return names, self._unpack(block.column(PACKED).to_pylist(), codes)

    def _unpack(self, packed: list[bytes], codes: Ints) -> BagSketch | None:
        """Return the sums of packed sketches, whose ids are the codes of their bags; None if all are empty.

        Nothing is decompressed before the size that a head claims is found to be right for the model.
        """
        alike: dict[bytes, list[int]] = {}
        for i, data in enumerate(packed):
            if data:
                n_dimensions = int.from_bytes(data[_N_DIMENSIONS : _N_DIMENSIONS + 1])
                alike.setdefault(data[: _HEAD.size + 4 * n_dimensions], []).append(i)
        total, maker = SketchSum(), self._maker()
        try:
            for head, places in alike.items():
                size, kind = _body(head)
                empty = np.empty(0, kind)
                self.model._require_own(BagSketch(ids=empty["n_rows"], maker=maker, **{n: empty[n] for n in _FIELDS}))
                parts = (pa.decompress(packed[i][len(head) :], size, codec="zstd", asbytes=True) for i in places)
                fields = np.frombuffer(b"".join(parts), kind)
                total.add(BagSketch(ids=codes[places], maker=maker, **{name: fields[name] for name in _FIELDS}))
            return total.result()
        except NoSketchError:
            return None
        except (OSError, ValueError, struct.error) as error:
            problem = f"has a packed sketch that is damaged or of another model ({error})"
            raise InputError(self.name, problem=problem, remedy="compute it again") from None

    def _maker(self) -> Maker:
        maker = self.model.sketch_maker()
        return maker if self.moments else replace(maker, moments=None)

    def _sum(self, parts: list[tuple[pa.Table, BagSketch | None]]) -> tuple[pa.Table, BagSketch | None]:
        names, codes = self._number(pa.concat_tables([names for names, _ in parts]))
        total, first = SketchSum(), 0
        for part, found in parts:
            if found is not None:
                total.add(replace(found, ids=codes[first + np.asarray(found.ids)]))
            first += len(part)
        try:
            return names, total.result()
        except NoSketchError:
            return names, None

    def _whole(self, names: pa.Table, found: BagSketch | None) -> BagSketch:
        """Return the sketches in the order of the names; raise an error for a bag without one."""
        places = np.empty(0, np.int64) if found is None else np.asarray(found.ids)
        if found is None or len(places) < len(names):
            lacking = int(np.setdiff1d(np.arange(len(names)), places)[0])
            bags = Codes(self.name, self.keys)
            bags.place[tuple(names.column(key)[lacking].as_py() for key in self.keys)] = 0
            raise weightless(bags, 0)
        return take(found, np.argsort(places))


class Blocks:
    """Joins small batches and splits large ones into tables of `n_records` records, which may change on the way."""

    def __init__(self, batches: Iterable[pa.Table | pa.RecordBatch], n_records: int) -> None:
        self.batches, self.n_records = batches, n_records

    def __iter__(self) -> Iterator[pa.Table]:
        held, n_held = list[pa.Table](), 0
        for batch in self.batches:
            rest = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
            while len(rest):
                part = rest.slice(0, max(1, self.n_records - n_held))
                rest, n_held = rest.slice(len(part)), n_held + len(part)
                held.append(part)
                if n_held >= self.n_records:
                    yield pa.concat_tables(held)
                    held, n_held = [], 0
        if held:
            yield pa.concat_tables(held)


def number(rows: pa.Table, keys: tuple[str, ...], name: str, others: tuple[str, ...] = ()) -> tuple[pa.Table, Ints]:
    """Number the bags of rows in the order of their first occurrence: names (n_bags, n_keys), codes (n_rows,).

    The names include the values of other columns in the first row of each bag.

    Examples
    --------
    >>> names, codes = number(pa.table({"site": ["n", "s", "n"], "x": [1, 2, 3]}), ("site",), "rows")
    >>> names.to_pydict(), codes
    ({'site': ['n', 's']}, array([0, 1, 0]))
    """
    import pandas as pd

    named = without_nan(rows.select([*keys, *others]), keys)
    refuse_nothing(named, keys, name, 0)
    codes = np.zeros(len(rows), np.int64)
    for key in keys:
        column = named.column(key)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        own, different = encode(column.combine_chunks())
        codes = pd.factorize(codes * max(1, len(different)) + own)[0]
    first = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1)) if len(codes) else codes
    return named.take(first), codes


def take(found: BagSketch, places: NDArray) -> BagSketch:
    """Return some of the bags of a sketch.

    Examples
    --------
    >>> from histnetq import CC, Bags
    >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
    >>> take(q.sketch(Bags([[0.0], [1.0], [1.0]], offsets=[0, 1, 3])), np.array([1])).n_rows
    array([2])
    """
    fields = {name: getattr(found, name)[places] for name in _FIELDS}
    return replace(found, ids=None if found.ids is None else found.ids[places], **fields)


_FIELDS = ("n_rows", "totals", "squares", "unseen", "values", "moments")


def _among(found: BagSketch | None, first: int, last: int) -> BagSketch | None:
    """Return the bags whose ids are from `first` to `last`, counted from `first`."""
    if found is None:
        return None
    ids = np.asarray(found.ids)
    kept = take(found, np.flatnonzero((ids >= first) & (ids < last)))
    return replace(kept, ids=np.asarray(kept.ids) - first) if len(kept) else None


def _packed(found: BagSketch | None, n_bags: int) -> list[bytes]:
    """Return the compressed sketch of each bag, mostly zeros that take no space; empty for bags without a sketch."""
    packed = [b""] * n_bags
    if found is None:
        return packed
    values, shape = found.values, found.values.shape[1:]
    if values.dtype.kind in "iu":
        values = values.astype(np.min_scalar_type(int(values.max(initial=0))))
    kinds = found.totals.dtype.char.encode(), values.dtype.char.encode()
    numbers = [np.ascontiguousarray(a) for a in (found.n_rows, found.unseen, found.totals, found.squares)]
    dimensions = struct.pack(f"<{len(shape)}I", *shape)
    for i, place in enumerate(np.asarray(found.ids).tolist()):
        body = b"".join([*(a[i : i + 1].tobytes() for a in numbers), found.moments[i].tobytes(), values[i].tobytes()])
        head = _HEAD.pack(len(body), *kinds, len(shape), found.moments.shape[1]) + dimensions
        packed[place] = head + pa.compress(body, codec="zstd", asbytes=True)
    return packed


def _body(head: bytes) -> tuple[int, np.dtype]:
    """Return the size and the type of the body of a packed sketch; raise ValueError if they contradict each other."""
    size, totals_kind, values_kind, n_dimensions, n_moments = _HEAD.unpack(head[: _HEAD.size])
    shape = struct.unpack(f"<{n_dimensions}I", head[_HEAD.size :])
    totals, values = (kind.decode() for kind in (totals_kind, values_kind))
    if totals not in _KINDS or values not in _KINDS:
        raise ValueError("its head has an unknown type")
    kind = np.dtype([
        ("n_rows", "<i8"), ("unseen", "<i8"), ("totals", totals), ("squares", totals),
        ("moments", "<f8", (n_moments,)), ("values", values, shape),
    ])  # fmt: skip
    if kind.itemsize != size:
        raise ValueError("its head claims a wrong size")
    return size, kind
