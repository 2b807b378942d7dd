"""A column of texts as numbers: hashed words and pairs of words, weighted by rarity, in a few directions by an SVD."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from histnetq.tables.columns import encode
from histnetq.tables.table_files import Table

if TYPE_CHECKING:
    import pyarrow as pa

N_HASHED = 1 << 14
_MOST_DIRECTIONS = 100
_MOST_TEXTS = 50_000  # that the directions are learned from
_MOST_LETTERS = 100_000  # of a text that are read
_LETTERS_AT_ONCE = 1 << 22  # whose words are counted together
_MOST_IN_MEMORY = 1 << 28  # letters of the texts that the directions are learned from


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """What turns the texts of a column into features, as plain arrays.

    Parameters
    ----------
    column : str
        Name of the column.
    weights : (n_hashed,)
        Weight of each hashed word or pair of words: the rarer, the more.
    directions : (n_features, n_hashed)
        Directions of the largest variance.

    Examples
    --------
    >>> text = TextFeatures.fit("review", ["a good film", "a bad film", "good", "bad"] * 5, n_directions=2)
    >>> text.names, text.transform(["a good film", ""]).shape
    (['review~1', 'review~2'], (2, 2))
    """

    column: str
    weights: NDArray[np.float32]
    directions: NDArray[np.float32]

    @classmethod
    def fit(cls, column: str, texts: Sequence[str], n_directions: int = _MOST_DIRECTIONS) -> TextFeatures:
        """Learn weights and directions from texts; the same texts give the same ones."""
        from sklearn.utils.extmath import randomized_svd

        counts = _hashed(texts)
        seen = np.bincount(counts.indices, minlength=N_HASHED)
        weights = (np.log((1 + len(texts)) / (1 + seen)) + 1).astype(np.float32)
        n_directions = min(n_directions, len(texts) - 1, int((seen > 0).sum()) - 1)
        if n_directions < 1:
            raise ValueError(
                f"text: column {column!r} holds no texts that differ, expected at least 2; name another column."
            )
        directions = randomized_svd(_weighted(counts, weights), n_directions, random_state=0)[2]
        return cls(column, weights, directions.astype(np.float32))

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return [f"{self.column}~{j + 1}" for j in range(len(self.directions))]

    def is_same(self, other: TextFeatures) -> bool:
        """Tell whether these give the same features of the same texts."""
        return self is other or (
            self.column == other.column
            and np.array_equal(self.weights, other.weights)
            and np.array_equal(self.directions, other.directions)
        )

    def transform(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Give the features of texts: ``(n_texts, n_features)``."""
        ends = np.cumsum([len(text) for text in texts]) // _LETTERS_AT_ONCE
        starts = [0, *(1 + np.flatnonzero(np.diff(ends))).tolist(), len(texts)]
        parts = [self._transform(texts[a:b]) for a, b in itertools.pairwise(starts)]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _transform(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.asarray(_weighted(_hashed(texts), self.weights) @ self.directions.T, dtype=np.float32)


def read_text_features(table: Table, column: str) -> TextFeatures:
    """Learn the features of a column of texts from a table: of a long one, from texts at equal distances."""
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
    """Give the table with the features of its texts as further columns, which are computed as they are read."""
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
            f"text: column {column!r} of {name} holds bytes that are no UTF-8, expected texts; decode them first."
        ) from None


def _hashed(texts: Sequence[str]) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(n_features=N_HASHED, ngram_range=(1, 2), alternate_sign=False, norm=None).transform(texts)


def _weighted(counts: Any, weights: NDArray[np.float32]) -> Any:
    """Give rows of length 1, in which a word counts by the logarithm of its number and by its rarity."""
    from sklearn.preprocessing import normalize

    rows = counts.astype(np.float32)
    rows.data = (1 + np.log(rows.data)) * weights[rows.indices]
    return normalize(rows, copy=False)
