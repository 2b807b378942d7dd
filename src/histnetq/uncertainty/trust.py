"""Test whether bags are mixes of the classes in the calibration bags, with a p-value per bag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.bags import Bags
from histnetq.simplex import Ints, project
from histnetq.sketches.moments import FARTHEST, Moments, total_weights
from histnetq.uncertainty.groups import Groups
from histnetq.uncertainty.mixture_test import Chance, Mixes, Tests, sample_size

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
DOUBT = 0.01  # largest p-value of a doubted bag
_FEWEST_IN_TAIL, _TAIL = 10, 0.1  # smallest number, and share, of the scores that determine the exponential tail
_LEAST_OWN = 0.3  # smallest variance of a calibration bag, as a share of the variance of a new bag with known classes
_RARE = 0.001  # share of the rows outside the range, on each side
_EQUAL = 1e-12  # largest variance of a feature in a bag of equal rows, by rounding
_LEAST_VARIED = 0.005  # smallest variance over squared range of a class whose rows should not all be equal
_MOST_VARIED = 0.25  # variance over squared range of a class with half of its rows at each end
_TESTS = 3  # number of p-values per bag; the smallest one counts
_REPEATS = 20  # smallest number of rows, beyond one for each bag, that are not all equal by chance
_MOST_NAMED = 3  # largest number of features that are named in a sentence


@dataclass(frozen=True)
class Trust:
    """Means of test functions in the classes, and residuals of the calibration bags.

    Whatever the proportions are, the mean of a function over the rows of a bag is the mix of the means over the
    classes. So if the best mix (`Mixes`) is subtracted from the means of some functions (`Tests`), the residual is
    small. The distribution of the residual is known for each mix and size (`Chance`). Three tests use the largest
    residual, the sum of squares along the main directions, and the sum of squares of products of main directions. The
    smallest of the three p-values is compared with the smallest p-values of the calibration bags, with an exponential
    tail. The result is at least three times the smallest p-value.

    Attributes
    ----------
    columns, origin, unit, paired
        Attributes of `Moments`.
    whitening
        Attribute of `Tests`.
    center, classes, solver, mix
        Attributes of `Mixes`.
    design, precision, variance, third, unsure, blur, cross, fourth, between
        Attributes of `Chance`.
    low, high : (n_columns,)
        Range of each feature without one in a thousand rows on each side, in units from the origin.
    scores : (n_bags,), rising
        Negative logarithms of the smallest p-values of the calibration bags.
    smallest : (1,)
        Size of the smallest calibration bag.
    """

    columns: Ints
    origin: Floats
    unit: Floats
    paired: Floats
    whitening: Floats
    center: Floats
    classes: Floats
    solver: Floats
    mix: Floats
    design: Floats
    precision: Floats
    variance: Floats
    third: Floats
    unsure: Floats
    blur: Floats
    cross: Floats
    fourth: Floats
    between: Floats
    low: Floats
    high: Floats
    scores: Floats
    smallest: Floats

    def __post_init__(self) -> None:
        # Arrays in C order, as in files, because matrix products round differently in another memory order.
        for name, array in vars(self).items():
            object.__setattr__(self, name, np.ascontiguousarray(array))

    @classmethod
    def of(cls, bags: Bags, random_state: int = 0) -> Trust:
        """Learn from calibration bags with known prevalences, and from a random sample of their rows."""
        if bags.rows.dtype.kind not in "biuf":
            return cls.unchecked(bags.sizes)
        groups = Groups.of(bags).shuffled(np.random.default_rng(random_state))
        seen = groups.first(sample_size(bags.n_features))
        tests = Tests.fit(bags, seen)
        means = tests.of(_means(tests.moments, bags))
        by_group = tests.of(_means(tests.moments, groups.as_bags(bags)))
        sample = groups.first(sample_size(means.shape[1]))
        rows = tests.of_rows(bags.rows[sample.rows])
        design = groups.design()
        mixes = Mixes.fit(by_group, groups, rows, sample, design)
        left, found = mixes.split(rows)
        left *= tests.as_if_unseen(sample.centered(rows), len(np.unique(seen.rows)))
        chance = Chance.fit(left, found, sample, design, tests.summed)
        left, found = mixes.split(means)
        sizes = np.asarray(bags.sizes, dtype=np.float64)
        found = project(found)
        own = found / sizes[:, None]
        parts = np.maximum(own - chance.unknown(found), _LEAST_OWN * own)
        chance = replace(chance, between=chance.between_bags(left, parts))
        scores = -chance.log_p(left, found, sizes, parts, tests.summed)
        low, high = np.quantile(rows[:, : len(tests.moments.columns)], [_RARE, 1 - _RARE], axis=0)
        return cls(
            **vars(tests.moments),
            whitening=tests.whitening,
            **vars(mixes),
            **vars(chance),
            low=low,
            high=high,
            scores=np.sort(np.maximum(scores, 0)),
            smallest=np.array([sizes.min()]),
        )

    @classmethod
    def unchecked(cls, sizes: ArrayLike) -> Trust:
        """Return a `Trust` that knows only the sizes of the calibration bags."""
        known: dict[str, Any] = {"smallest": np.array([np.min(sizes)], dtype=np.float64)}
        return cls(**{field.name: known.get(field.name, np.zeros(0)) for field in fields(cls)})

    @classmethod
    def from_stored(cls, arrays: dict[str, NDArray], n_features: int, n_classes: int) -> Trust:
        """Restore a saved `Trust`; the first file version ignored dependent features, so only its sizes are used."""
        if any(array.dtype.kind not in "iuf" or not np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("path: the stored trust has values that are not finite numbers; calibrate and save again.")
        smallest = arrays.get("smallest", np.zeros(0))
        if "columns" not in arrays and smallest.shape == (1,):
            return cls.unchecked(smallest)
        if arrays.keys() != {field.name for field in fields(cls)} or not _fits(arrays, n_features, n_classes):
            raise ValueError("path: the stored trust has arrays of inconsistent sizes; calibrate and save again.")
        kinds: dict[str, Any] = {"columns": np.int64}
        return cls(**{name: array.astype(kinds.get(name, np.float64)) for name, array in arrays.items()})

    @property
    def moments(self) -> Moments | None:
        """Sums over the rows of a bag that `judge` needs; None if only sizes are known."""
        return Moments(self.columns, self.origin, self.unit, self.paired) if len(self.columns) else None

    @property
    def _tests(self) -> Tests:
        return Tests(Moments(self.columns, self.origin, self.unit, self.paired), self.whitening)

    def p_values(self, means: Floats, sizes: ArrayLike) -> Floats:
        """Return the p-values of bags from the means of their moments: (n_bags,)."""
        tests = self._tests
        mixes = Mixes(self.center, self.classes, self.solver, self.mix)
        chance = Chance(**{field.name: getattr(self, field.name) for field in fields(Chance)})
        left, found = mixes.split(tests.of(means))
        sizes, found = np.asarray(sizes, dtype=np.float64), project(found)
        parts = found / sizes[:, None] + chance.unknown(found)
        scores = -chance.log_p(left, found, sizes, parts, tests.summed)
        # Calibration bags may fit better than new bags, because the classes were learned from their rows.
        by_chance = np.minimum(_TESTS * np.exp(-scores), 1)
        return np.maximum(by_chance, tail_probabilities(scores, self.scores))

    def judge(
        self, sums: Floats | None, totals: NDArray, sizes: ArrayLike, names: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Return a table with p_value, small (smaller than every calibration bag) and trust of each bag.

        `sums` (n_bags, n_sums) are the sums that `moments` defines; without them, p_value is NaN and the bags are
        unchecked. `totals` and `sizes` (n_bags,) are total weights and sizes of the bags. `names` are names of all
        features. ``attrs["fixed"]`` lists the features that have one value in each bag, and vary in training.
        """
        import pandas as pd

        small, moments = np.asarray(sizes) < self.smallest[0], self.moments
        if sums is None or moments is None:
            words = np.where(small, "unchecked; small", "unchecked")
            return pd.DataFrame({"p_value": np.nan, "small": small, "trust": words})
        means = moments.means(sums, totals)
        p = self.p_values(means, sizes)
        outside = self._outside(means[:, : len(self.columns)], np.asarray(sizes, dtype=np.float64))
        details = np.array([""] + [self._describe(bag, names) for bag in outside[outside.any(1)]], dtype=object)
        details = details[np.where(outside.any(1), np.cumsum(outside.any(1)), 0)]
        words = np.where((p <= DOUBT) | outside.any(1), "unusual", "").astype(object) + details
        for found, word in ((self._repeated(means, np.asarray(sizes)), "repeated rows"), (small, "small")):
            words = words + np.where(found & (words != ""), "; ", "") + np.where(found, word, "")
        found = pd.DataFrame({"p_value": p, "small": small, "trust": np.where(words == "", "ok", words)})
        fixed = self.columns[self._fixed(means, np.asarray(sizes))].tolist()
        found.attrs["fixed"] = [f"feature {j}" if names is None else str(names[j]) for j in fixed]
        return found

    def _outside(self, values: Floats, sizes: Floats) -> NDArray[np.bool_]:
        """Return whether the mean of a feature is outside the range of almost all rows: (n_bags, n_columns).

        The mean of *n* rows must be outside by more than the width of the range divided by *n*. If a feature never
        varied in calibration, at least half of the rows must have another value.
        """
        width = self.high - self.low
        margin = np.where(width > 0, width / sizes[:, None], FARTHEST / 2)
        found: NDArray[np.bool_] = (values > self.high + margin) | (values < self.low - margin)
        return found

    def _repeated(self, means: Floats, sizes: NDArray) -> NDArray[np.bool_]:
        """Return whether all rows of a bag are equal although rows of the known classes vary: (n_bags,).

        If a feature has the variance *v* in a class and a range of width *r*, at least the share ``v / r²`` of the rows
        of the class differs from any given value. So *n* rows are equal with probability ``(1 - v / r²)ⁿ`` at most.
        """
        n, known = len(self.columns), self.center + self.classes
        values = means[:, :n]
        equal = (means[:, n : 2 * n] - values**2 <= _EQUAL).all(1)
        variance, width = (known[:, self._tests.squares] - known[:, :n] ** 2).min(0), self.high - self.low
        varied = np.minimum(variance / np.where(width > 0, width, np.inf) ** 2, _MOST_VARIED)
        # Clipped values are equal even if the original values were different.
        most = np.where(np.abs(values) < FARTHEST, varied, 0.0).max(1)
        found: NDArray[np.bool_] = equal & (most >= _LEAST_VARIED) & (sizes * np.log1p(-most) <= np.log(DOUBT))
        return found

    def _fixed(self, means: Floats, sizes: NDArray) -> NDArray[np.bool_]:
        """Return whether a feature has one value in each bag and other values in other bags: (n_columns,)."""
        several, n = sizes > 1, len(self.columns)
        if (sizes[several] - 1).sum() < _REPEATS:
            return np.zeros(n, bool)
        values = means[several, :n]
        equal = (means[several, n : 2 * n] - values**2 <= _EQUAL) & (np.abs(values) < FARTHEST)
        found: NDArray[np.bool_] = equal.all(0) & (np.ptp(values, axis=0) ** 2 > _EQUAL) & (self.high > self.low)
        return found

    def _describe(self, outside: NDArray[np.bool_], names: Sequence[str] | None) -> str:
        columns = self.columns[outside].tolist()
        named = [f"feature {j}" if names is None else names[j] for j in columns[:_MOST_NAMED]]
        more = f" and {len(columns) - _MOST_NAMED} more" if len(columns) > _MOST_NAMED else ""
        return f": {', '.join(named)}{more} outside the range of training"


def tail_probabilities(scores: Floats, known: Floats) -> Floats:
    """Return the probability of scores at least as high as these, given sorted known scores: (n,).

    High scores get the probability from an exponential tail, which is fitted to the highest known scores.

    Examples
    --------
    >>> tail_probabilities(np.array([0.0, 100.0]), np.arange(50) / 10).round(3)
    array([1., 0.])
    """
    n, n_tail = len(known), min(len(known), max(_FEWEST_IN_TAIL, round(_TAIL * len(known))))
    begin = known[n - n_tail]
    # The tail is at least as wide as the tail of one p-value, and two standard errors wider than its estimate.
    width = max(1.0, (known[n - n_tail :] - begin).mean()) * (1 + 2 * n_tail**-0.5)
    beyond = (1 + n_tail) / (1 + n) * np.exp(-np.maximum(scores - begin, 0) / width)
    counted = (1 + n - np.searchsorted(known, scores, side="left")) / (1 + n)
    return np.where(scores > begin, beyond, counted)


def _means(moments: Moments, bags: Bags) -> Floats:
    return moments.means(moments.sums(bags), total_weights(bags))


def _fits(arrays: dict[str, NDArray], n_features: int, n_classes: int) -> bool:
    """Return whether stored arrays have consistent sizes and refer to existing columns."""
    columns, paired, whitening = (arrays[name] for name in ("columns", "paired", "whitening"))
    n, c, shape = len(columns), n_classes, {name: array.shape for name, array in arrays.items()}
    if n == 0:
        return shape["smallest"] == (1,)
    n_sums = 2 * n + len(paired) * (len(paired) + 1) // 2
    n_tests = n_sums + len(whitening)
    if 0 < len(paired) == n:
        n_tests = n + n_sums - 2 * n + len(whitening) + len(whitening) * (len(whitening) + 1) // 2
    wanted = {
        "columns": (n,), "origin": (n,), "unit": (n,), "paired": (len(paired), n), "whitening": (len(whitening), n),
        "center": (n_tests,), "classes": (c, n_tests), "solver": (c, n_tests), "mix": (c,), "design": (c, c, c),
        "precision": (n_tests,), "variance": (c, n_tests), "third": (c, n_tests), "unsure": (c, n_tests),
        "blur": (c, c), "cross": (2, c, c), "fourth": (2, c), "between": (n_tests,), "low": (n,), "high": (n,),
        "smallest": (1,),
    }  # fmt: skip
    return (
        all(shape[name] == size for name, size in wanted.items())
        and arrays["scores"].ndim == 1
        and len(arrays["scores"]) > 0
        and columns.dtype.kind in "iu"
        and bool(((columns >= 0) & (columns < n_features)).all() and (arrays["unit"] > 0).all())
    )
