"""Whether bags look like those a quantifier was calibrated by: a conformal p-value of their distance from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
_MOST_DIRECTIONS = 10
_DOUBT = 0.01  # p-value from which a bag is doubted
_FARTHEST = 10.0  # units at which a moment counts no more: one feature that never varied before is no other world


@dataclass(frozen=True)
class Trust:
    """What calibration bags look like, by the mean and the standard deviation of each feature in a bag.

    A third of the bags says how bags usually differ: along their main directions, and in the rest. The distance of a
    bag from the usual is measured in these units, and in units of ``√(a + b / n)``, as small bags differ more. The
    p-value of a bag is the part of the other calibration bags that are at least as far: low for bags unlike them, and
    uniform for bags that are exchangeable with them.

    Attributes
    ----------
    center, unit : (n_moments,)
    directions : (n_directions, n_moments)
    spread : (n_directions + 1,)
        Mean square along each direction, and in the rest.
    coefficients : (2,)
        a and b.
    scores : (n_scores,), rising
        Distances of the other bags.
    smallest : (1,)
        Size of the smallest calibration bag.
    """

    center: Floats
    unit: Floats
    directions: Floats
    spread: Floats
    coefficients: Floats
    scores: Floats
    smallest: Floats

    @classmethod
    def of(cls, moments: Floats, sizes: ArrayLike, random_state: int = 0) -> Trust:
        """Learn from the moments ``(n_bags, n_moments)`` of calibration bags of these sizes."""
        sizes = np.asarray(sizes, dtype=np.float64)
        usual, scored = _split(len(moments), random_state)
        center, unit = moments[usual].mean(0), moments[usual].std(0)
        unit = np.maximum(unit, 1e-6 * np.abs(center) + 1e-12)  # a feature that never varied may by rounding
        standard = _standard(moments[usual], center, unit)
        strengths, directions = np.linalg.svd(standard, full_matrices=False)[1:]
        n = min(_MOST_DIRECTIONS, len(usual) // 3, len(directions))
        spread = np.append(strengths[:n] ** 2, (strengths[n:] ** 2).sum()) / len(usual)
        parts = center, unit, directions[:n], np.maximum(spread, 1e-6)
        distances = _distances(moments, *parts)
        coefficients = _fit_scale(distances[usual], sizes[usual])
        scores = np.sort((distances / _scale(sizes, coefficients))[scored])
        return cls(*parts, coefficients, scores, np.array([sizes.min()]))

    @property
    def threshold(self) -> float:
        """The p-value up to which a bag is unusual: 0.01, or the lowest that there is if the bags are few."""
        return max(_DOUBT, 1 / (1 + len(self.scores)))

    def p_values(self, moments: Floats, sizes: ArrayLike) -> Floats:
        """(n_bags,): the part of the calibration bags, a new bag counted as one, that are at least as far."""
        distances = _distances(moments, self.center, self.unit, self.directions, self.spread)
        scale = _scale(np.asarray(sizes, dtype=np.float64), self.coefficients)
        n_scores = len(self.scores)
        farther = n_scores - np.searchsorted(self.scores, distances / scale, side="left")
        p: Floats = (1 + farther) / (1 + n_scores)
        return p

    def judge(self, moments: Floats | None, sizes: ArrayLike) -> pd.DataFrame:
        """One row per bag: p_value (NaN without moments), small (smaller than every calibration bag), trust."""
        import pandas as pd

        sizes = np.asarray(sizes)
        p = np.full(len(sizes), np.nan) if moments is None else self.p_values(moments, sizes)
        doubted = p <= self.threshold
        small = sizes < self.smallest[0]
        words = np.select([doubted & small, doubted, small], ["unusual; small", "unusual", "small"], "ok")
        return pd.DataFrame({"p_value": p, "small": small, "trust": words})


def _standard(moments: Floats, center: Floats, unit: Floats) -> Floats:
    return np.clip((moments - center) / unit, -_FARTHEST, _FARTHEST)


def _distances(moments: Floats, center: Floats, unit: Floats, directions: Floats, spread: Floats) -> Floats:
    """(n_bags,): root mean square of a bag's coordinates, each in units of its usual size."""
    standard = _standard(moments, center, unit)
    along = standard @ directions.T
    rest = np.maximum((standard**2).sum(1) - (along**2).sum(1), 0)
    squares = np.column_stack([along**2, rest]) / spread
    distances: Floats = np.sqrt(squares.mean(1))
    return distances


def _split(n_bags: int, random_state: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One third of the bags, drawn by this seed, and the others, which are measured by them."""
    order = np.random.default_rng(random_state).permutation(n_bags)
    n_usual = max(5, round(n_bags / 3))
    return order[:n_usual], order[n_usual:]


def _fit_scale(errors: Floats, sizes: Floats) -> Floats:
    """(2,): coefficients of the scale ``√(a + b / n)`` that distances (n_bags,) of bags of these sizes have."""
    terms = _terms(sizes)
    units = terms.sum(1)
    coefficients: Floats = nnls(terms / units[:, None], errors**2 / units)[0]
    return coefficients


def _scale(sizes: Floats, coefficients: Floats) -> Floats:
    return np.sqrt(np.maximum(_terms(sizes) @ coefficients, 1e-12))


def _terms(sizes: Floats) -> Floats:
    return np.stack([np.full_like(sizes, 0.01), 1 / sizes], axis=-1)
