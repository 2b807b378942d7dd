"""Chunks of rows by time: calendar periods, or runs of consecutive rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.bags.checks import check_choice, check_whole
from histnetq.errors import InputError, Option
from histnetq.registry import PERIODS
from histnetq.tables.columns import Codes, counted, encode, refuse_long_cells, refuse_nothing
from histnetq.tables.table_files import Table

if TYPE_CHECKING:
    import pyarrow as pa

_UNITS = {"min": "m", "h": "h", "D": "D", "M": "M", "Y": "Y"}
_FIRST, _LAST = np.datetime64("1000-01-01", "s"), np.datetime64("9000-01-01", "s")  # years that pandas can print
_OFFSET = re.compile(r"[+-](?:0\d|1[0-4]):[0-5]\d")
_TIME = re.compile(r"[1-8]\d{3}(?:-\d\d(?:-\d\d(?:[T ]\d\d(?::\d\d(?::\d\d)?)?)?)?)?")
_YEAR_LAST = re.compile(r"\d{1,2}[-./]\d{1,2}[-./]\d{2,4}\b")
_MOST_SEGMENTS = 1000
_YEAR = 366 * 86_400  # seconds; the first chunk may begin this long before its first row
Times = NDArray[np.datetime64]


@dataclass
class Clock:
    """Reader of a column of times: as local times of a time zone, or unchanged if no zone is known.

    Attributes
    ----------
    zone : str or None
        Name of the time zone; None takes the zone of the column, or UTC for texts with an offset.
    aware : bool or None
        Whether the times have an offset from UTC; None before any times were read.
    """

    zone: str | None = None
    aware: bool | None = None

    def __post_init__(self) -> None:
        if self.zone is not None:
            check_zone(self.zone)

    def read(self, column: Any, table: str, name: str, first_row: int) -> Times:
        """(n_rows,) of datetime64[us]: times with an offset in UTC, and times without an offset unchanged."""
        import pyarrow as pa

        kind = column.type.value_type if hasattr(column, "dictionary") else column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return self._read_texts(column, table, name, first_row)
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise ValueError(
                f"{table}: column {name!r} holds {kind}, expected times; convert it with pandas.to_datetime."
            )
        column = column.dictionary_decode() if hasattr(column, "dictionary") else column
        self._know(getattr(kind, "tz", None) is not None, getattr(kind, "tz", None), table, name)
        times = column.to_numpy(zero_copy_only=False)
        return _within_reach(times, table, name, first_row).astype("datetime64[us]", copy=False)

    def _read_texts(self, column: Any, table: str, name: str, first_row: int) -> Times:
        place, different = encode(column)
        refuse_long_cells(different, name, table)
        texts = pd.Series(different.to_pylist(), dtype=object)
        offset = texts.str.contains(r"T?\d{1,2}:\d{2}.*(?:Z|[+-]\d{2}:?\d{2})$", regex=True)
        found = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
        if found.isna().any():
            i = int(found.isna().to_numpy()[place].argmax())
            year_last = re.match(_YEAR_LAST, texts[place[i]])
            year_first = "format the cells as YYYY-MM-DD, with the year first"
            remedy = year_first if year_last else "correct it or drop the row"
            raise ValueError(
                f"{table}: {counted(first_row + i)} has {texts[place[i]]!r} in column {name!r}, expected a time such "
                f"as 2026-03-31 or 2026-03-31T18:00:00+02:00; {remedy}."
            )
        if offset.nunique() > 1:
            raise ValueError(
                f"{table}: column {name!r} has times with an offset from UTC and times without; write all the same way."
            )
        self._know(bool(offset.iloc[0]), "UTC", table, name)
        return _within_reach(found.dt.tz_localize(None).to_numpy("datetime64[us]")[place], table, name, first_row)

    def _know(self, aware: bool, zone: str | None, table: str, name: str) -> None:
        if self.aware not in (None, aware):
            raise ValueError(
                f"{table}: column {name!r} {'has' if aware else 'lacks'} an offset from UTC, which earlier times "
                f"{'lack' if aware else 'have'}; write all the same way."
            )
        self.aware = aware
        if aware and self.zone is None:
            try:
                self.zone = check_zone(str(zone))
            except ValueError:
                problem = f"column {name!r} has times of {zone!r}, expected a known time zone"
                raise InputError(table, problem=problem, remedy=("name one by ", Option("timezone"))) from None

    def local(self, times: Times) -> Times:
        """Return the local times in the zone."""
        if not self.aware:
            return times
        shown = pd.DatetimeIndex(times).tz_localize("UTC").tz_convert(self.zone).tz_localize(None)
        return shown.to_numpy("datetime64[us]")

    def stamps(self, times: Times, instants: bool) -> pd.DatetimeIndex:
        """Return local times, or instants, as a pandas index with the time zone."""
        index = pd.DatetimeIndex(times.astype("datetime64[us]"))
        if self.zone is None:
            return index
        if instants and self.aware:
            return index.tz_localize("UTC").tz_convert(self.zone)
        return index.tz_localize(self.zone, ambiguous=np.ones(len(index), bool), nonexistent="shift_forward")


def _within_reach(times: Times, table: str, name: str, first_row: int) -> Times:
    """Return the times; refuse years before 1000 and after 8999."""
    ends = np.array([times.min(), times.max()]).astype("datetime64[s]")  # finer units overflow for years far away
    if not _FIRST <= ends[0] <= ends[1] < _LAST:
        seconds = times.astype("datetime64[s]")
        far = np.flatnonzero((seconds < _FIRST) | (seconds >= _LAST))
        year = times[far[0]].astype("datetime64[Y]").astype(np.int64) + 1970
        raise ValueError(
            f"{table}: {counted(first_row + int(far[0]))} has a time of the year {year} in column {name!r}, expected "
            "one from 1000 to 8999; correct it or drop the row."
        )
    return times


def check_zone(zone: str) -> str:
    """Return the name of a time zone; refuse unknown names."""
    from zoneinfo import ZoneInfo

    try:
        if not _OFFSET.fullmatch(zone):
            ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise InputError(
            "timezone", "the name of a zone, such as Europe/Madrid or UTC", repr(zone), "name one"
        ) from None
    return zone


@dataclass
class Periods:
    """Chunks by the calendar: minutes, hours, days, weeks from Monday, months, quarters or years.

    Days and longer periods begin at midnight of the clock's zone. For times with an offset, minutes and hours are in
    UTC, so that none is lost or doubled when the clocks change.
    """

    period: str
    clock: Clock

    def __post_init__(self) -> None:
        check_choice("period", self.period, PERIODS)

    @property
    def by_instant(self) -> bool:
        """Return whether chunks begin at an instant instead of a local time."""
        return self.period in ("min", "h")

    def of(self, times: Times, first_row: int) -> NDArray[np.int64]:
        """(n_rows,): start of each row's chunk, in seconds."""
        if self.by_instant or not self.clock.aware:
            first, last = self._starts(np.array([times.min(), times.max()])).tolist()
            return np.broadcast_to(np.int64(first), times.shape) if first == last else self._starts(times)
        return self._starts(self.clock.local(times))

    def _starts(self, times: Times) -> NDArray[np.int64]:
        return self._floor(times).astype("datetime64[s]").astype(np.int64)

    def has(self, chunk: int) -> bool:
        """Return whether a chunk begins at this second."""
        first, last = _FIRST.astype(np.int64), _LAST.astype(np.int64)
        if not first - _YEAR <= chunk < last:
            return False
        start = np.array([chunk]).astype("datetime64[s]")
        return bool(self._floor(start).astype("datetime64[s]")[0] == start[0])

    def _floor(self, times: Times) -> Times:
        if self.period == "W":
            days = times.astype("datetime64[D]").astype(np.int64)
            return ((days + 3) // 7 * 7 - 3).astype("datetime64[D]")  # 1970 began 3 days after a Monday
        if self.period == "Q":
            return (times.astype("datetime64[M]").astype(np.int64) // 3 * 3).astype("datetime64[M]")
        return times.astype(f"datetime64[{_UNITS[self.period]}]")

    def describe(self, chunks: NDArray[np.int64]) -> pd.DataFrame:
        """Return one row per chunk: `chunk` (its name), `start`, and `end` (exclusive)."""
        starts = chunks.astype("datetime64[s]")
        unit, n = {"W": ("D", 7), "Q": ("M", 3)}.get(self.period, (_UNITS.get(self.period), 1))
        ends = (starts.astype(f"datetime64[{unit}]") + n).astype("datetime64[s]")
        begin, end = (self.clock.stamps(times, self.by_instant) for times in (starts, ends))
        form = {"min": "%Y-%m-%dT%H:%M", "h": "%Y-%m-%dT%H:%M", "M": "%Y-%m", "Y": "%Y"}.get(self.period, "%Y-%m-%d")
        names = [f"{t.year}Q{t.quarter}" for t in begin] if self.period == "Q" else begin.strftime(form)
        return pd.DataFrame({"chunk": names, "start": begin, "end": end})

    def is_reference(self, about: pd.DataFrame, reference: Any) -> NDArray[np.bool_]:
        """(n_chunks,): whether each chunk begins in the reference."""
        return within(about["start"], reference)


class Runs:
    """Chunks of `size` consecutive rows, or `number` chunks, of each segment; all times are held in memory."""

    def __init__(
        self, table: Table, time: str, by: Sequence[str], clock: Clock, size: int | None, number: int | None
    ) -> None:
        self.clock, codes = clock, Codes(table.name, by, table.written)
        parts: list[tuple[Times, NDArray[np.int64]]] = []
        for n, batch in table.batches([], [time, *by]):
            refuse_nothing(batch, [time], table.name, n)
            parts.append((clock.read(batch.column(time), table.name, time, n), codes.of(batch, n)))
            _refuse_many(codes)
        times, segments = (np.concatenate(some) for some in zip(*parts, strict=True))
        order = np.lexsort([times, segments])
        counts = np.bincount(segments)
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        if size is not None:
            found = rank // min(check_whole("chunk_size", size), len(rank))
        else:
            n_chunks, fewest = check_whole("chunk_number", number), int(counts.min())
            if n_chunks > fewest:
                where = f"the {fewest} rows" if not by else f"the {fewest} rows of the smallest segment"
                raise InputError("chunk_number", f"at most {where}", str(n_chunks), "give fewer")
            found = rank * n_chunks // np.repeat(counts, counts)
        self._chunk = np.empty(len(order), np.int64)
        self._chunk[order] = np.unique(np.stack([segments[order], found]), axis=1, return_inverse=True)[1].ravel()
        first = np.flatnonzero(np.diff(self._chunk[order], prepend=-1))
        last = np.append(first[1:], len(order)) - 1
        self._names, self._starts, self._ends = found[first] + 1, times[order][first], times[order][last]

    def of(self, times: Times, first_row: int) -> NDArray[np.int64]:
        """(n_rows,): chunk of each row."""
        return self._chunk[first_row : first_row + len(times)]

    def describe(self, chunks: NDArray[np.int64]) -> pd.DataFrame:
        """Return one row per chunk: `chunk` (its number in the segment), `start` and `end` (first and last time)."""
        begin, end = (self.clock.stamps(times[chunks], True) for times in (self._starts, self._ends))
        return pd.DataFrame({"chunk": self._names[chunks], "start": begin, "end": end})

    def is_reference(self, about: pd.DataFrame, reference: Any) -> NDArray[np.bool_]:
        """(n_chunks,): whether each chunk lies completely in the reference."""
        return within(about["start"], reference) & within(about["end"], reference)


Chunks = Periods | Runs


def within(times: pd.Series, reference: Any) -> NDArray[np.bool_]:
    """(n_times,): whether each time is in a range such as ``2026-01..2026-06``, whose ends are both included.

    Examples
    --------
    >>> within(pd.Series(pd.to_datetime(["2026-01-05", "2026-06-30", "2026-07-01"])), "2026-01..2026-06").tolist()
    [True, True, False]
    """
    first, last = parse_range(reference)
    shown = times.dt.tz_localize(None).to_numpy("datetime64[us]")
    return (shown >= first) & (shown < last)


def parse_range(reference: Any) -> tuple[np.datetime64, np.datetime64]:
    """Return the first time of a range, and the first time after the range."""
    text = reference if isinstance(reference, str) else ""
    ends = [end.strip() for end in text.split("..")]
    try:
        if len(ends) != 2 or not all(map(_TIME.fullmatch, ends)):
            raise ValueError
        first, last = (np.datetime64(end) for end in ends)
    except ValueError:
        expected = "a range of times such as 2026-01..2026-06, without an offset from UTC"
        raise InputError("reference", expected, repr(reference), "name its first and last time") from None
    after = last + 1  # in its own unit: a year, month, day, hour, minute or second
    if last < first:
        raise InputError("reference", "a range that ends after it begins", repr(reference), "swap its ends")
    return first.astype("datetime64[us]"), after.astype("datetime64[us]")


def _refuse_many(segments: Codes) -> None:
    if len(segments.place) > _MOST_SEGMENTS:
        columns = " and ".join(map(repr, segments.columns))
        raise ValueError(
            f"by: expected at most {_MOST_SEGMENTS:,} segments, got more from {columns}; name columns with fewer "
            "values."
        )


def _encoded(chunks: NDArray[np.int64]) -> Any:
    """Return the chunks of rows as an arrow array; rows of a single chunk become a dictionary, which is fast."""
    import pyarrow as pa

    if chunks.strides != (0,):
        return pa.array(chunks)
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(chunks), np.int8)), pa.array(chunks[:1]))


def with_chunks(table: Table, time: str, by: Sequence[str], chunks: Chunks) -> tuple[Table, str]:
    """Return the table with one more column, the chunk of each row, and the name of this column."""
    import pyarrow as pa

    name = f"chunk of {time}"
    while name in table.types:
        name = f"another {name}"
    clock, segments = chunks.clock, Codes(table.name, by, table.written)

    def batches(columns: list[str], names: list[str]) -> Iterator[pa.RecordBatch]:
        others, own = [c for c in columns if c not in (name, *names)], [c for c in names if c != name]
        for n, batch in table.batches(others, list(dict.fromkeys([*own, time]))):
            refuse_nothing(batch, [time], table.name, n)
            times = clock.read(batch.column(time), table.name, time, n)
            if by:
                segments.of(batch, n)
                _refuse_many(segments)
            yield batch.append_column(name, _encoded(chunks.of(times, n)))

    schema = pa.schema([*table.types.items(), (name, pa.int64())])
    return Table(table.name, schema, batches, table.written), name
