"""Features of a text column, computed while a table is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from histnetq.bags.text_features import TextFeatures
from histnetq.tables.columns import encode
from histnetq.tables.table_files import Table

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_TEXTS = 50_000  # texts that the SVD learns from
_MOST_LETTERS = 100_000  # characters of each text that are read
_MOST_IN_MEMORY = 1 << 28  # characters of all texts that the SVD learns from


def read_text_features(table: Table, column: str) -> TextFeatures:
    """Learn the features of a text column; a long table is thinned to rows at equal distances."""
    _require_texts(table, column)
    texts: list[str] = []
    step, n_letters = 1, 0
    for first, batch in table.batches([], [column]):
        part = _texts_of(batch, column, table.name)[-first % step :: step]
        texts += part
        n_letters += sum(map(len, part))
        while len(texts) > _MOST_TEXTS or (n_letters > _MOST_IN_MEMORY and len(texts) > 2):
            texts, step = texts[::2], 2 * step
            n_letters = sum(map(len, texts))
    return TextFeatures.fit(column, texts)


def with_text(table: Table, text: TextFeatures) -> Table:
    """Return the table with the text features as additional columns, which are computed while it is read."""
    import pyarrow as pa

    _require_texts(table, text.column)
    places = {name: j for j, name in enumerate(text.names)}

    def batches(columns: list[str], names: list[str]) -> Iterator[pa.RecordBatch]:
        wanted = [column for column in columns if column in places]
        plain = [column for column in columns if column not in places]
        read, as_texts = list(dict.fromkeys([*plain, text.column])), list(dict.fromkeys([*names, text.column]))
        if not wanted:
            read, as_texts = plain, names
        for batch in table.read_columns(read, as_texts):
            if wanted:
                found = text.transform(_texts_of(batch, text.column, table.name))
                arrays = {name: batch.column(name) for name in plain}
                arrays |= {name: pa.array(np.ascontiguousarray(found[:, places[name]])) for name in wanted}
                batch = pa.record_batch(arrays)
            yield batch

    known = [pa.field(name, kind) for name, kind in table.types.items()]
    schema = pa.schema([*known, *(pa.field(name, pa.float32()) for name in text.names)])
    return Table(table.name, schema, batches, table.written)


def _require_texts(table: Table, column: str) -> None:
    import pyarrow as pa

    table.require([column])
    kind: Any = table.types[column]
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise ValueError(f"text: column {column!r} of {table.name} holds {kind}, expected texts; name another column.")


def _texts_of(batch: pa.RecordBatch, column: str, name: str) -> list[str]:
    try:
        codes, different = encode(batch.column(column))
        texts = [(value or "")[:_MOST_LETTERS] for value in different.to_pylist()]
        return [texts[code] for code in codes.tolist()]
    except UnicodeDecodeError:
        raise ValueError(
            f"text: column {column!r} of {name} holds bytes that are not UTF-8, expected texts; decode them first."
        ) from None
