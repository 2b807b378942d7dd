"""The result of a query as sketches. Any program may have written it, so that everything in it is checked."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import check_choice
from histnetq.errors import Command, InputError, Option, Way
from histnetq.simplex import Floats, Ints
from histnetq.sketches.moments import FARTHEST, STEPS
from histnetq.sketches.sketch import BagSketch, Maker
from histnetq.tables.budget import name_array, require
from histnetq.tables.columns import Codes
from histnetq.tables.table_files import Table, is_number, open_table

PREFIX = "histnetq_"
MODEL, STATE, CELL, ROWS, TOTAL = (f"{PREFIX}{name}" for name in ("model", "state", "cell", "rows", "total"))
OF_SUMS = -1  # the state of a group that has sums: all rows of a bag
READ, MISSING, UNREADABLE = 0, -1, -2  # cells of a group with sums; the last two are cells of all groups
_AGAIN = ("run the query of ", Command("sql", "to_sql"), " again")
_COPIES = 3  # copies of the numbers in memory
_MOST_NUMBERS = 2**22  # in the state of a bag; 1,000 classes have a million cells
_MOST_BYTES = 2**31  # of the states of all bags: empty cells take memory, and no space in the result
_MOST_ROWS = 2**53  # rows of a bag; doubles hold all whole numbers up to it
_CLOSE = 1e-6  # largest relative difference of a sum of posteriors from the number of rows
_WRITTEN = re.compile(r"histnetq 1 (\w{1,40}) ([0-9a-f]{64}) ([0-9a-f]{64}|none) (counts|sums) (\d+(?:x\d+)*) (\d+)")


@dataclass(frozen=True)
class Origin:
    """The columns of a result beside the counts: the model, and the meaning of the numbers.

    Attributes
    ----------
    maker : Maker
        Origin of the sketch, without the columns that name the bags.
    shape : tuple of int
        Shape of the state of a bag.
    counts : bool
        Whether the state counts rows in cells; else it is the sum of the posteriors.
    n_moments : int
        Number of sums for trust.

    Examples
    --------
    >>> Origin.read(Origin(Maker("CC", "0" * 64), (2,), True, 0).written()).shape
    (2,)
    """

    maker: Maker
    shape: tuple[int, ...]
    counts: bool
    n_moments: int

    def written(self) -> str:
        """Return the origin as a text of letters, digits and spaces."""
        made, kind = self.maker, "counts" if self.counts else "sums"
        shape = "x".join(map(str, self.shape))
        return (
            f"histnetq 1 {made.quantifier} {made.fingerprint} {made.moments or 'none'} {kind} {shape} {self.n_moments}"
        )

    @classmethod
    def read(cls, text: str) -> Origin:
        """Return the origin from a text; raise ValueError for other texts."""
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise ValueError(text)
        method, fingerprint, moments, kind, sizes, n_moments = found.groups()
        shape, n = tuple(int(size) for size in sizes.split("x")), int(n_moments)
        most = 2 if kind == "counts" else 1  # dimensions
        if not 0 < math.prod(shape) <= _MOST_NUMBERS or len(shape) > most or (moments == "none") != (n == 0):
            raise ValueError(text)
        return cls(Maker(method, fingerprint, moments=None if n == 0 else moments), shape, kind == "counts", n)

    @property
    def n_sums(self) -> int:
        """Number of columns of sums."""
        return (0 if self.counts else math.prod(self.shape)) + self.n_moments

    @property
    def states(self) -> range:
        """The states that every bag has."""
        n_counted = (self.shape[0] if len(self.shape) == 2 else 1) if self.counts else 0
        return range(OF_SUMS if self.n_sums else 0, n_counted)


@dataclass(frozen=True)
class _Groups:
    """The rows of a result: one group of rows of a bag each; `sums` (n_groups, n_sums) is 0 for groups without sums."""

    bags: Ints
    state: Ints
    cell: Ints
    n_rows: Ints
    sums: Floats


def read_result(source: Any, missing: str = "refuse") -> BagSketch:
    """Return the sketches of bags from the result of a query; see `BagSketch.from_sql`."""
    check_choice("missing", missing, ("refuse", "drop"))
    table = open_table(source, "table")
    for name in (MODEL, STATE, CELL, ROWS, TOTAL):
        if name not in table.types:
            raise _wrong(table, f"has no column {name!r}, which the result of every query has")
    keys = [name for name in table.columns if not name.startswith(PREFIX)]
    bags = Codes(table.name, keys, table.written)
    origin = _read_origin(table)
    groups = _read_groups(table, origin, bags)
    names = bags.values
    kind = np.min_scalar_type(int(groups.n_rows.max())) if origin.counts else np.dtype(np.float64)
    if len(names) * math.prod(origin.shape) * kind.itemsize > _MOST_BYTES:
        problem = f"has {len(names):,} bags of {math.prod(origin.shape):,} numbers each, too many for the memory"
        raise InputError(table.name, problem=problem, remedy="query fewer bags at a time")
    require(
        _COPIES * 8 * len(names) * (math.prod(origin.shape) + origin.n_moments), "sketches of a result", "send less"
    )
    _check_complete(table, origin, groups, names)
    kept = _readable(table, groups, names, missing)
    return _sketches(table, origin, kept, names, tuple(keys))


def _read_origin(table: Table) -> Origin:
    codes = Codes(table.name, [MODEL])
    for n, batch in table.batches([], [MODEL]):
        codes.of(batch, n)
    texts = [str(key[0]) for key in codes.place]
    if len(texts) > 1:
        raise _wrong(table, f"has results of several models in column {MODEL!r}")
    try:
        return Origin.read(texts[0])
    except ValueError:
        raise _wrong(table, f"does not say in column {MODEL!r} which model it is for") from None


def _read_groups(table: Table, origin: Origin, bags: Codes) -> _Groups:
    """Read the groups; numbers that no group can have are errors."""
    sums: list[str] = []
    for i in range(origin.n_sums):
        sums.append(f"{PREFIX}sum{i}")
        if sums[i] not in table.types:
            raise _wrong(table, f"has no column {sums[i]!r}, which the result for this model has")
    parts: list[_Groups] = []
    totals: set[int] = set()
    for n, batch in table.batches([STATE, CELL, ROWS, TOTAL, *sums], bags.columns):
        state, cell, n_rows, total = (_whole_numbers(batch, name, table) for name in (STATE, CELL, ROWS, TOTAL))
        _require(table, STATE, (state >= origin.states.start) & (state < origin.states.stop))
        n_cells = np.where(state == OF_SUMS, 1, origin.shape[-1])
        _require(table, CELL, (cell >= UNREADABLE) & (cell < n_cells))
        _require(table, ROWS, (n_rows > 0) & (n_rows < _MOST_ROWS))
        totals |= set(np.unique(total).tolist())
        own = (state == OF_SUMS) & (cell == READ)
        found = np.zeros((len(state), len(sums)))
        for i, name in enumerate(sums):
            found[own, i] = _numbers(batch, name, table)[own]
            _require(table, name, np.isfinite(found[:, i]))
        parts.append(_Groups(bags.of(batch, n), state, cell, n_rows, found))
    groups = _Groups(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in _Groups.__dataclass_fields__)
    )
    if totals != {math.fsum(groups.n_rows)}:
        problem = f"counts {int(groups.n_rows.sum()):,} rows in all, and {_shown(totals)} by column {TOTAL!r}"
        raise _wrong(table, f"{problem}, so that some of its rows are missing or changed")
    return groups


def _shown(totals: set[int]) -> str:
    return f"{totals.pop():,}" if len(totals) == 1 else "several numbers"


def _check_complete(table: Table, origin: Origin, groups: _Groups, names: list[Any]) -> None:
    """Raise an error for a cell that is there twice, and for a bag whose states count different rows."""
    key = np.stack([groups.bags, groups.state, groups.cell], axis=1)
    different, counts = np.unique(key, axis=0, return_counts=True)
    if (counts > 1).any():
        bag, _, cell = different[np.argmax(counts > 1)].tolist()
        raise _wrong(table, f"has the cell {cell} of bag {names[bag]!r} twice")
    n_states, n_bags = len(origin.states), len(names)
    if n_states * n_bags > len(different):  # a text that claims many states must not take time or memory
        bag = int(np.argmin(np.bincount(groups.bags, minlength=n_bags)))
        raise _wrong(table, f"has too few rows for bag {names[bag]!r}")
    # Rows by state, bag, and what could be read: read, missing, unreadable.
    kinds = np.clip(-groups.cell, READ, -UNREADABLE)
    place = ((groups.state - origin.states[0]) * n_bags + groups.bags) * 3 + kinds
    rows = np.bincount(place, groups.n_rows, 3 * n_states * n_bags).reshape(n_states, n_bags, 3)
    differ = (rows != rows[0]).any((0, 2))
    if differ.any():
        raise _wrong(table, f"counts different numbers of rows of bag {names[int(np.argmax(differ))]!r}")


def _readable(table: Table, groups: _Groups, names: list[Any], missing: str) -> _Groups:
    """Return the groups of rows that could be read; raise an error for other rows, unless they should be dropped."""
    once = groups.state == groups.state[0]
    for cell, what in ((UNREADABLE, "numbers that the model cannot read"), (MISSING, "missing values")):
        lacking = once & (groups.cell == cell)
        if not lacking.any():
            continue
        n, bag = int(groups.n_rows[lacking].sum()), names[groups.bags[np.argmax(lacking)]]
        rows = f"{n:,} row{'s' if n > 1 else ''}"
        if cell == UNREADABLE:
            expected = "scores from 0 to 1 with the sum 1, known classes, or finite features"
            problem = f"counts {rows} with {what}, such as in bag {bag!r}, expected {expected}"
            raise InputError(table.name, problem=problem, remedy="correct the rows, and run the query again")
        if missing == "refuse":
            problem = f"counts {rows} with {what}, such as in bag {bag!r}"
            drop = Way(", or pass ", Option("missing", "drop"), " to leave out such rows")
            raise InputError(table.name, problem=problem, remedy=("fill them in", drop))
        warnings.warn(f"{table.name}: dropped {rows} with {what}.", UserWarning, stacklevel=4)
    kept = groups.cell >= READ
    return _Groups(*(getattr(groups, name)[kept] for name in _Groups.__dataclass_fields__))


def _sketches(table: Table, origin: Origin, groups: _Groups, names: list[Any], keys: tuple[str, ...]) -> BagSketch:
    used, bags = np.unique(groups.bags, return_inverse=True)
    if not len(used):
        raise _wrong(table, "has no rows that the model can read")
    if len(used) < len(names):
        lost = sorted(set(range(len(names))) - set(used.tolist()))
        more = f" and of {len(lost) - 1:,} other bags" if len(lost) > 1 else ""
        warnings.warn(
            f"{table.name}: no row of bag {names[lost[0]]!r}{more} has all features: left out.",
            UserWarning, stacklevel=4,
        )  # fmt: skip
    first = groups.state == origin.states[0]
    n_rows = np.zeros(len(used), np.int64)
    np.add.at(n_rows, bags[first], groups.n_rows[first])
    sums = np.zeros((len(used), origin.n_sums))
    of_sums = groups.state == OF_SUMS
    sums[bags[of_sums]] = groups.sums[of_sums]
    if origin.counts:
        counted = ~of_sums
        smallest = np.min_scalar_type(int(groups.n_rows.max()))
        values: NDArray = np.zeros((len(used), *origin.shape), smallest)
        flat = values.reshape(len(used), -1)
        flat[bags[counted], groups.state[counted] * origin.shape[-1] + groups.cell[counted]] = groups.n_rows[counted]
    else:
        values = sums[:, : math.prod(origin.shape)].reshape(-1, *origin.shape)
        right = (values >= 0).all(1) & (np.abs(values.sum(1) - n_rows) <= _CLOSE * n_rows)
        _require(table, f"{PREFIX}sum0", right)
    moments = sums[:, origin.n_sums - origin.n_moments :]
    largest = (FARTHEST * STEPS) ** 2 * n_rows[:, None]
    _require(table, f"{PREFIX}sum{origin.n_sums - 1}", (np.abs(moments) <= largest).all(1))
    return BagSketch(
        ids=name_array([names[i] for i in used.tolist()]), n_rows=n_rows, totals=n_rows, squares=n_rows,
        unseen=np.zeros(len(used), np.int64), values=values, moments=moments,
        maker=replace(origin.maker, keys=keys),
    )  # fmt: skip


def _numbers(batch: Any, name: str, table: Table) -> Floats:
    """Return a column as numbers, NaN for missing values."""
    import pyarrow as pa

    column = batch.column(name)
    if not is_number(column.type):
        raise _wrong(table, f"has {column.type} in column {name!r}, expected numbers")
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    numbers: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _whole_numbers(batch: Any, name: str, table: Table) -> Ints:
    numbers = _numbers(batch, name, table)
    _require(table, name, (np.abs(numbers) <= _MOST_ROWS) & (numbers == np.floor(numbers)))
    return numbers.astype(np.int64)


def _require(table: Table, name: str, right: Any) -> None:
    if not right.all():
        raise _wrong(table, f"has a number in column {name!r} that no query can have given")


def _wrong(table: Table, problem: str) -> InputError:
    return InputError(table.name, problem=problem, remedy=_AGAIN)
