"""`TableFacts`: facts about the table that bags were read from, which travel with the bags."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TableFacts:
    """Facts about a table that was read into bags.

    Attributes
    ----------
    left_out : dict
        Columns that are not features, each with the reason.
    means : (n_features,)
        Mean of each feature over its rows without missing values.
    dropped : int
        Number of rows that were dropped because a feature is missing.
    filled : int
        Number of missing values that were filled with the mean.
    weight : str, optional
        Column of the weights.
    weight_kind : str, optional
        Their meaning, "survey" or "count".
    """

    left_out: dict[str, str] = field(default_factory=dict)
    means: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    dropped: int = 0
    filled: int = 0
    weight: str | None = None
    weight_kind: str | None = None
