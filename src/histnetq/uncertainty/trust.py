"""Whether bags are mixes of the classes that calibration bags are made of: a p-value of what no mix explains."""

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
DOUBT = 0.01  # p-value from which a bag is doubted
_FEWEST_IN_TAIL, _TAIL = 10, 0.1  # of the scores, by which p-values go on beyond them
_LEAST_OWN = 0.3  # of the variance of a calibration bag, however much of what is known comes from itself
_RARE = 0.001  # part of the rows that lie outside the range, on each side
_EQUAL = 1e-12  # variance of a feature within a bag, up to which all rows count as equal: rounding
_LEAST_VARIED = 0.005  # variance of a class over its squared range, below which its rows may all be equal
_MOST_VARIED = 0.25  # the same of a class with one half of its rows at each end
_TESTS = 3  # of which the smallest p-value is taken
_MOST_NAMED = 3  # features in one sentence


@dataclass(frozen=True)
class Trust:
    """What calibration bags are made of, and how far they are from mixes of their classes.

    The mean over a bag of any function of its rows is the mix of its means over the classes, whatever the proportions.
    What is left of the means of some functions (`Tests`) when the best mix (`Mixes`) is taken out is small, and how
    small is known for each mix and size (`Chance`). Three tests look at the largest of what is left, at the squares
    along the main directions, and at those of their products. The smallest of the three p-values is compared with those
    of the calibration bags, whose tail is continued by an exponential one, and is three times itself at least.

    Attributes
    ----------
    columns, origin, unit, paired
        Those of `Moments`.
    whitening
        That of `Tests`.
    center, classes, solver, mix
        Those of `Mixes`.
    design, precision, variance, third, unsure, blur, cross, fourth, between
        Those of `Chance`.
    low, high : (n_columns,)
        Range of all but one in a thousand rows on each side, in units from the origin.
    scores : (n_bags,), rising
        Minus logarithms of the smallest p-values of the calibration bags.
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
        # In the order that files have: matrix products round otherwise for another one.
        for name, array in vars(self).items():
            object.__setattr__(self, name, np.ascontiguousarray(array))

    @classmethod
    def of(cls, bags: Bags, random_state: int = 0) -> Trust:
        """Learn from calibration bags with known prevalences; the seed draws rows to look at one by one."""
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
            **vars(tests.moments), whitening=tests.whitening, **vars(mixes), **vars(chance), low=low, high=high,
            scores=np.sort(np.maximum(scores, 0)), smallest=np.array([sizes.min()]),
        )  # fmt: skip

    @classmethod
    def unchecked(cls, sizes: ArrayLike) -> Trust:
        """Trust that knows no more than the sizes of calibration bags."""
        known: dict[str, Any] = {"smallest": np.array([np.min(sizes)], dtype=np.float64)}
        return cls(**{field.name: known.get(field.name, np.zeros(0)) for field in fields(cls)})

    @classmethod
    def from_stored(cls, arrays: dict[str, NDArray], n_features: int, n_classes: int) -> Trust:
        """Trust that was saved; of the first version, which was blind to dependence, the sizes alone."""
        if any(array.dtype.kind not in "iuf" or not np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("path: trust has something else than finite numbers; calibrate and save again.")
        smallest = arrays.get("smallest", np.zeros(0))
        if "columns" not in arrays and smallest.shape == (1,):
            return cls.unchecked(smallest)
        if arrays.keys() != {field.name for field in fields(cls)} or not _fits(arrays, n_features, n_classes):
            raise ValueError("path: trust has arrays of sizes that do not belong together; calibrate and save again.")
        kinds: dict[str, Any] = {"columns": np.int64}
        return cls(**{name: array.astype(kinds.get(name, np.float64)) for name, array in arrays.items()})

    @property
    def moments(self) -> Moments | None:
        """Which sums over a bag's rows it needs; None if it knows sizes alone."""
        return Moments(self.columns, self.origin, self.unit, self.paired) if len(self.columns) else None

    @property
    def _tests(self) -> Tests:
        return Tests(Moments(self.columns, self.origin, self.unit, self.paired), self.whitening)

    def p_values(self, means: Floats, sizes: ArrayLike) -> Floats:
        """(n_bags,): how often bags are as far from every mix by chance, from the means of their moments."""
        tests = self._tests
        mixes = Mixes(self.center, self.classes, self.solver, self.mix)
        chance = Chance(**{field.name: getattr(self, field.name) for field in fields(Chance)})
        left, found = mixes.split(tests.of(means))
        sizes, found = np.asarray(sizes, dtype=np.float64), project(found)
        parts = found / sizes[:, None] + chance.unknown(found)
        scores = -chance.log_p(left, found, sizes, parts, tests.summed)
        # Calibration bags may seem nearer than new ones, as the classes were learned from their rows.
        by_chance = np.minimum(_TESTS * np.exp(-scores), 1)
        return np.maximum(by_chance, tail_probabilities(scores, self.scores))

    def judge(
        self, sums: Floats | None, totals: NDArray, sizes: ArrayLike, names: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """One row per bag: p_value (NaN without sums), small (smaller than every calibration bag), trust.

        Parameters
        ----------
        sums : (n_bags, n_sums), optional
            What `moments` gives; by default bags are unchecked.
        totals, sizes : (n_bags,)
            Total weights and sizes of the bags.
        names : sequence of str, optional
            Names of all features.
        """
        import pandas as pd

        small, moments = np.asarray(sizes) < self.smallest[0], self.moments
        if sums is None or moments is None:
            words = np.where(small, "unchecked; small", "unchecked")
            return pd.DataFrame({"p_value": np.nan, "small": small, "trust": words})
        means = moments.means(sums, totals)
        p = self.p_values(means, sizes)
        outside = self._outside(means[:, : len(self.columns)], np.asarray(sizes, dtype=np.float64))
        told = np.array([""] + [self._tell(bag, names) for bag in outside[outside.any(1)]], dtype=object)
        told = told[np.where(outside.any(1), np.cumsum(outside.any(1)), 0)]
        words = np.where((p <= DOUBT) | outside.any(1), "unusual", "").astype(object) + told
        for found, word in ((self._repeated(means, np.asarray(sizes)), "repeated rows"), (small, "small")):
            words = words + np.where(found & (words != ""), "; ", "") + np.where(found, word, "")
        return pd.DataFrame({"p_value": p, "small": small, "trust": np.where(words == "", "ok", words)})

    def _outside(self, values: Floats, sizes: Floats) -> NDArray[np.bool_]:
        """(n_bags, n_columns): whether the mean of a feature is one that hardly a row has.

        The fewer rows, the farther: the mean of one row has to be as far outside the range as the range is wide. Of a
        feature that never varied, half of the rows have to be elsewhere.
        """
        width = self.high - self.low
        margin = np.where(width > 0, width / sizes[:, None], FARTHEST / 2)
        found: NDArray[np.bool_] = (values > self.high + margin) | (values < self.low - margin)
        return found

    def _repeated(self, means: Floats, sizes: NDArray) -> NDArray[np.bool_]:
        """(n_bags,): whether all rows of a bag are equal, and rows of the known classes would hardly be so by chance.

        A class with variance *v* of a feature within a range of width *r* has at least the part ``v / r²`` of its rows
        off any one value, so that *n* of its rows are equal with a probability of at most ``(1 - v / r²)ⁿ``.
        """
        n, known = len(self.columns), self.center + self.classes
        values = means[:, :n]
        equal = (means[:, n : 2 * n] - values**2 <= _EQUAL).all(1)
        variance, width = (known[:, self._tests.squares] - known[:, :n] ** 2).min(0), self.high - self.low
        varied = np.minimum(variance / np.where(width > 0, width, np.inf) ** 2, _MOST_VARIED)
        # Clipped values are alike whatever they were.
        most = np.where(np.abs(values) < FARTHEST, varied, 0.0).max(1)
        found: NDArray[np.bool_] = equal & (most >= _LEAST_VARIED) & (sizes * np.log1p(-most) <= np.log(DOUBT))
        return found

    def _tell(self, outside: NDArray[np.bool_], names: Sequence[str] | None) -> str:
        columns = self.columns[outside].tolist()
        named = [f"feature {j}" if names is None else names[j] for j in columns[:_MOST_NAMED]]
        more = f" and {len(columns) - _MOST_NAMED} more" if len(columns) > _MOST_NAMED else ""
        return f": {', '.join(named)}{more} outside the range of training"


def tail_probabilities(scores: Floats, known: Floats) -> Floats:
    """(n,): how often scores are as high, by known ones that rise; beyond most of these by an exponential tail.

    Examples
    --------
    >>> tail_probabilities(np.array([0.0, 100.0]), np.arange(50) / 10).round(3)
    array([1., 0.])
    """
    n, n_tail = len(known), min(len(known), max(_FEWEST_IN_TAIL, round(_TAIL * len(known))))
    begin = known[n - n_tail]
    # As wide as that of one p-value at least, and by two standard errors wider than it looks.
    width = max(1.0, (known[n - n_tail :] - begin).mean()) * (1 + 2 * n_tail**-0.5)
    beyond = (1 + n_tail) / (1 + n) * np.exp(-np.maximum(scores - begin, 0) / width)
    counted = (1 + n - np.searchsorted(known, scores, side="left")) / (1 + n)
    return np.where(scores > begin, beyond, counted)


def _means(moments: Moments, bags: Bags) -> Floats:
    return moments.means(moments.sums(bags), total_weights(bags))


def _fits(arrays: dict[str, NDArray], n_features: int, n_classes: int) -> bool:
    """Whether stored arrays have the sizes that belong together, and name columns that there are."""
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
