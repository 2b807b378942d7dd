"""Reading a table with times into one bag per chunk and segment, or one sketch if the model has exact sketches."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from histnetq.bags.bags import Bags
from histnetq.errors import InputError
from histnetq.quantifiers.base import Quantifier
from histnetq.sketches.sketch import BagSketch
from histnetq.sketches.tables import sketch_numbered
from histnetq.tables.budget import name_array
from histnetq.tables.long_tables import LongTable
from histnetq.tables.table_files import open_table
from histnetq.workflows.monitoring.chunks import Chunks, Clock, Periods, Runs, with_chunks


@dataclass(frozen=True)
class How:
    """Options that divide rows into chunks and segments; see `histnetq.monitor`."""

    time: str
    period: str | None = None
    chunk_size: int | None = None
    chunk_number: int | None = None
    timezone: str | None = None
    by: tuple[str, ...] = ()
    weight: str | None = None
    missing: str = "refuse"
    weight_kind: str = "survey"

    def __post_init__(self) -> None:
        given = [name for name in ("period", "chunk_size", "chunk_number") if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none of them"
            raise ValueError(f"period: expected one of period, chunk_size and chunk_number, got {got}; give one.")
        if self.time in self.by:
            raise InputError("by", "columns other than the time column", repr(self.time), "leave it out")
        if len(set(self.by)) < len(self.by):
            raise InputError("by", "different columns", " and ".join(map(repr, self.by)), "name each once")


def read_chunks(
    model: Quantifier, source: Any, how: How, clock: Clock, kept: bool = False, as_rows: bool = False
) -> tuple[Bags | BagSketch, Chunks]:
    """Read the chunks of a table as bags, or as sketches if these are exact or `kept`, with ids of `chunk_id`.

    With `as_rows`, they are always bags.
    """
    table = open_table(source, "source")
    table.require([how.time, *how.by])
    for argument, names in (("time", (how.time,)), ("by", how.by), ("weight", (how.weight,))):
        if used := [name for name in names if name in model.reading().names]:
            raise InputError(argument, "a column that is not a feature of the model", repr(used[0]), "name another")
    chunks: Chunks
    if how.period is not None:
        chunks = Periods(how.period, clock)
    else:
        chunks = Runs(table, how.time, how.by, clock, how.chunk_size, how.chunk_number)
    divided, column = with_chunks(table, how.time, how.by, chunks)
    keys = [column, *how.by]
    if as_rows or (model.sketch_kind != "exact" and not kept):
        long = LongTable(
            divided, keys, model.reading(), weight=how.weight, missing=how.missing, weight_kind=how.weight_kind
        )
        bags = long.as_bags(long.read())
        return bags.replaced(ids=name_array([chunk_id(*key) for key in long.bags.place])), chunks
    codes, found = sketch_numbered(model, divided, keys, how.weight, how.missing, None, how.weight_kind)
    if found is None:
        raise ValueError(f"{table.name}: all rows have weight 0, expected some positive weights; check the weights.")
    known = list(codes.place)
    ids = name_array([chunk_id(*known[i]) for i in np.asarray(found.ids).tolist()])
    return replace(found, ids=ids, maker=replace(found.maker, keys=None)), chunks


def is_chunk_id(name: Any, chunks: Periods, n_columns: int) -> bool:
    """Return whether a name is from `chunk_id`, for one of these chunks and a segment of `n_columns` columns.

    Examples
    --------
    >>> weeks = Periods("W", Clock())
    >>> is_chunk_id('[345600, "north"]', weeks, 1), is_chunk_id('[86400, "north"]', weeks, 1)
    (True, False)
    """
    try:
        chunk, *segment = json.loads(name)
    except (TypeError, ValueError, RecursionError):
        return False
    right = type(chunk) is int and len(segment) == n_columns and all(isinstance(value, str) for value in segment)
    return right and chunks.has(chunk)


def chunk_id(chunk: int, *segment: Any) -> str:
    """Return the name of the bag of a chunk and segment.

    Examples
    --------
    >>> chunk_id(86400, "north")
    '[86400, "north"]'
    """
    return json.dumps([chunk, *map(str, segment)])
