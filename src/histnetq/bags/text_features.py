"""Text features: hashed words and pairs of words, weighted by rarity and reduced by an SVD."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

N_HASHED = 1 << 14
_MOST_DIRECTIONS = 100
_LETTERS_AT_ONCE = 1 << 22  # characters of the texts that are processed together


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """Learned conversion of the texts of a column to features.

    Parameters
    ----------
    column : str
        Name of the column.
    weights : (n_hashed,)
        Weight of each hashed word or pair of words; rare ones have large weights.
    directions : (n_features, n_hashed)
        Leading right singular vectors of the weighted counts.

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
        """Learn the weights of words and the directions of the SVD; the same texts always give the same result."""
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
        """Return whether both compute the same features from the same texts."""
        return self is other or (
            self.column == other.column
            and np.array_equal(self.weights, other.weights)
            and np.array_equal(self.directions, other.directions)
        )

    def transform(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the features of texts, (n_texts, n_features)."""
        ends = np.cumsum([len(text) for text in texts]) // _LETTERS_AT_ONCE
        starts = [0, *(1 + np.flatnonzero(np.diff(ends))).tolist(), len(texts)]
        counts = (_hashed(texts[a:b]) for a, b in itertools.pairwise(starts))
        parts = [np.asarray(_weighted(part, self.weights) @ self.directions.T, np.float32) for part in counts]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _hashed(texts: Sequence[str]) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(n_features=N_HASHED, ngram_range=(1, 2), alternate_sign=False, norm=None).transform(texts)


def _weighted(counts: Any, weights: NDArray[np.float32]) -> Any:
    """Return rows of length 1 with the logarithm of each count times the weight of its word."""
    from sklearn.preprocessing import normalize

    rows = counts.astype(np.float32)
    rows.data = (1 + np.log(rows.data)) * weights[rows.indices]
    return normalize(rows, copy=False)
