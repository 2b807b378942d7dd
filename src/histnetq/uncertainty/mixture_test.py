"""Parts of the test whether a bag is a mix of the classes: test functions, best mix, and noise of the residual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh
from scipy.stats import chi2, gamma, norm

from histnetq.bags.bags import Bags
from histnetq.simplex import Ints
from histnetq.sketches.moments import Moments
from histnetq.uncertainty.groups import Groups

Floats = NDArray[np.float64]
_MOST_COLUMNS = 2048  # largest number of features that are tested
_MOST_PAIRED = 30  # largest number of features or directions that are paired, with 465 products
_MOST_DIRECTIONS = 100  # largest number of main directions
_LEAST_VARIANCE = 1e-4  # smallest variance of a main direction, in squared units; smaller ones are mostly rounding
_NUMBERS = 1 << 23  # largest number of values in a sample: rows times tests
_ROWS_IN_PAIRS = 2500  # number of rows whose pairwise products are summed
_FROM_ALL = 20  # number of rows of all classes that are added to the moments of each class
_LEAST_PART = 0.25  # smallest moment of a class, as a share of the moment of all rows
_LEAST_ALONE = 0.01  # smallest value of 1 - h in `as_if_unseen`
_NEVER = 1e6  # variance of a test that never varied
_STANDARD_ERRORS = 3.0  # number of standard errors that are added to a variance
_NORMAL_THIRD = 1.6  # mean absolute cube of standard normal values
_BY_CHANCE = 0.001  # significance level of a difference between classes in one test
_LEAST_STRENGTH = 1.5  # smallest squared difference between classes that is used, in units of its noise


@dataclass(frozen=True)
class Tests:
    """Functions of rows whose means over a bag are tested.

    They are the values and squares of the features, the products of all pairs of features if there are at most 30, the
    values along the main directions, and the products of pairs of the first 30 main directions. Sparse rows have only
    values and squares.

    Attributes
    ----------
    moments : Moments
        Sums over rows that determine the means of all tests.
    whitening : (n_directions, n_features)
        Main directions, scaled to a standard deviation of 1 within groups.
    """

    moments: Moments
    whitening: Floats

    @classmethod
    def fit(cls, bags: Bags, sample: Groups) -> Tests:
        """Choose origins, units and directions from a sample of the rows."""
        rows = bags.rows[sample.rows]
        rows = rows if sparse.issparse(rows) else rows.reshape(len(rows), -1)
        columns = _most_varied(rows)
        n, rows = len(columns), rows[:, columns]
        if sparse.issparse(rows):
            # The origin is 0 and there are no pairs, so that rows stay sparse.
            squares, counts = (np.asarray(part.sum(0), np.float64).ravel() for part in (rows.multiply(rows), rows != 0))
            unit = np.sqrt(squares / np.maximum(counts, 1))
            return cls(Moments(columns, np.zeros(n), np.where(unit > 0, unit, 1), np.zeros((0, n))), np.zeros((0, n)))
        origin, unit = _usual(rows.astype(np.float64))
        values = Moments(np.arange(n), origin, unit, np.zeros((0, n))).of_rows(rows)[0]
        whitening = _main_directions(sample.centered(values))
        paired = np.eye(n) if n <= _MOST_PAIRED else whitening[:_MOST_PAIRED]
        return cls(Moments(columns, origin, unit, paired), whitening)

    def of(self, means: Floats) -> Floats:
        """Return the tests (n_bags, n_tests) from the means of the moments (n_bags, n_sums)."""
        n, k = len(self.moments.origin), len(self.moments.paired)
        values, rest = means[:, :n], means[:, n:]
        if not self._pairs_features:
            return np.hstack([values, rest[:, :n], values @ self.whitening.T, rest[:, n:]])
        i, j = np.triu_indices(k)
        products = np.empty((len(means), k, k))
        products[:, i, j] = products[:, j, i] = rest[:, n:]
        turned = self.whitening @ products @ self.whitening.T
        i, j = np.triu_indices(len(self.whitening))
        return np.hstack([values, rest[:, n:], values @ self.whitening.T, turned[:, i, j]])

    def of_rows(self, rows: NDArray) -> Floats:
        """Return the tests of single rows: (n_rows, n_tests)."""
        values, directed = self.moments.of_rows(rows)
        i, j = np.triu_indices(directed.shape[1])
        return self.of(np.hstack([values, values**2, directed[:, i] * directed[:, j]]))

    def as_if_unseen(self, centered: Floats, n_seen: int) -> Floats:
        """Return factors (n_rows, n_tests) that correct the tests of rows that the directions were fitted to.

        The standard deviation of a direction includes the row itself. Let *z_k* be the distance of a row along
        direction *k* in standard deviations. If the directions were fitted to the remaining rows, this distance would
        be larger by the factor ``1 / sqrt((1 - h_k-1) (1 - h_k))`` with ``h_k = Σ_l≤k z_l² / n`` for *n* seen rows. So
        a direction that is wide because of a single row counts as uncertain.
        """
        values, products = self.summed
        alone = np.maximum(1 - np.cumsum(centered[:, values] ** 2, axis=1) / n_seen, _LEAST_ALONE)
        farther = 1 / np.sqrt(alone * np.hstack([np.ones((len(alone), 1)), alone[:, :-1]]))
        i, j = np.triu_indices(len(self.whitening) if self._pairs_features else len(self.moments.paired))
        factors = np.ones(centered.shape)
        factors[:, values], factors[:, products] = farther, farther[:, i] * farther[:, j]
        return factors

    @property
    def summed(self) -> tuple[slice, slice]:
        """Slices of the tests: the values along the main directions, and the products of these values."""
        n, k, m = len(self.moments.origin), len(self.moments.paired), len(self.whitening)
        start = n + (k * (k + 1) // 2 if self._pairs_features else n)
        return slice(start, start + m), slice(start + m, None)

    @property
    def squares(self) -> Ints:
        """Positions of the squares of the features among the tests."""
        n = len(self.moments.origin)
        i, j = np.triu_indices(n)
        return n + (np.flatnonzero(i == j) if self._pairs_features else np.arange(n))

    @property
    def _pairs_features(self) -> bool:
        return 0 < len(self.moments.paired) == len(self.moments.origin)


@dataclass(frozen=True)
class Mixes:
    """Means of the tests in all mixes of the classes.

    Attributes
    ----------
    center : (n_tests,)
        Mean of the tests over all rows.
    classes : (n_classes, n_tests)
        Means of the tests in each class, minus `center`.
    solver : (n_classes, n_tests)
        Matrix that maps tests minus `center` to mixes, up to a multiple of `mix`.
    mix : (n_classes,)
        Proportions of the classes in all rows.
    """

    center: Floats
    classes: Floats
    solver: Floats
    mix: Floats

    @classmethod
    def fit(cls, tests: Floats, groups: Groups, rows: Floats, sample: Groups, design: Floats) -> Mixes:
        """Learn from the tests ``(n_groups, n_tests)`` of groups with this design, and from tests of sampled rows."""
        shares = groups.sizes / groups.sizes.sum()
        center, mix = shares @ tests, shares @ groups.mixes
        classes = groups.solver() @ (tests - center)
        precision = 1 / _varied((sample.centered(rows) ** 2).mean(0))
        own = (rows - center) ** 2
        variance = np.maximum(sample.row_weights() @ own - classes**2, _LEAST_PART * own.mean(0))
        # Tests without a significant difference between classes would pull the mixes towards the mean.
        unknown = np.einsum("c,dcc,dk->k", mix, design, variance, optimize=True)
        degrees = max(len(mix) - 1, 1)
        informative = mix @ classes**2 > unknown * chi2.isf(_BY_CHANCE, degrees) / degrees
        precision = precision * informative
        weighted = classes * precision
        noise = np.einsum("dij,d->ij", design, variance @ precision)
        noise += np.eye(len(mix)) * (1e-12 + 1e-9 * np.trace(noise))
        strengths, contrasts = eigh(weighted @ classes.T, noise)
        seen = strengths > _LEAST_STRENGTH
        inverse = (contrasts[:, seen] / (strengths[seen] - 1)) @ contrasts[:, seen].T
        return cls(center, classes, inverse @ weighted, mix)

    def split(self, tests: Floats) -> tuple[Floats, Floats]:
        """Return the residuals ``(n, n_tests)`` and the best mixes ``(n, n_classes)``, which may be outside [0, 1]."""
        away = tests - self.center
        mixes = away @ self.solver.T
        return away - mixes @ self.classes, mixes + (1 - mixes.sum(1, keepdims=True)) * self.mix


@dataclass(frozen=True)
class Chance:
    """Distribution of the residuals of bags that are mixes of the classes.

    The residual of a test in a bag of size *n* with the mix *p* has the variance ``Σ_c V_c (p_c / n + h_c(p)) + B``.
    *V_c* is the variance of the residuals of rows of class *c*, *h_c* comes from the uncertainty of the class means,
    and *B* is the variance between bags, whatever their size.

    Attributes
    ----------
    design : (n_classes, n_classes, n_classes)
        ``h_c(p) = pᵀ design_c p``.
    precision : (n_tests,)
        Weights of the tests in sums of squares: inverse variances, smaller for tests with an uncertain variance.
    variance, third : (n_classes, n_tests)
        Means of the squares and of the absolute cubes of the residuals of rows of each class.
    unsure : (n_classes, n_tests)
        Three standard errors of the variance, which are large if it depends on few rows.
    blur : (n_classes, n_classes)
        Variances of the best mixes of single rows, with one row of this array for each class.
    cross : (2, n_classes, n_classes)
        Traces of products of the classes' covariance matrices, for the two sums of squares.
    fourth : (2, n_classes)
        Mean square of the sum of squares of a single row, for the two sums of squares.
    between : (n_tests,)
        Variance *B* between bags.
    """

    design: Floats
    precision: Floats
    variance: Floats
    third: Floats
    unsure: Floats
    blur: Floats
    cross: Floats
    fourth: Floats
    between: Floats

    @classmethod
    def fit(cls, left: Floats, mixes: Floats, sample: Groups, design: Floats, summed: tuple[slice, slice]) -> Chance:
        """Learn from the residuals ``(n_rows, n_tests)`` and the best mixes of single rows, with B = 0."""
        weights, off = sample.row_weights(), _off(design)
        few = _FROM_ALL * off.sum(1, keepdims=True)

        def by_class(values: Floats) -> Floats:
            pooled = values.mean(0)
            found: Floats = (np.maximum(weights @ values, _LEAST_PART * pooled) + few * pooled) / (1 + few)
            return found

        variance, third = by_class(left**2), by_class(np.abs(left) ** 3)
        unsure = _STANDARD_ERRORS * np.sqrt(off @ np.maximum(by_class(left**4) - variance**2, 0))
        # A test gets little weight in sums of squares if its variance depends on few rows of some class.
        sure = (variance / np.maximum(variance + unsure, 1e-300)).min(0)
        precision = sure**2 / _varied((left**2).mean(0))
        parts = [(left * np.sqrt(precision))[:, part] for part in summed]
        fourth = np.stack([by_class((part**2).sum(1, keepdims=True) ** 2)[:, 0] for part in parts])
        first = sample.first(_ROWS_IN_PAIRS)
        cross = np.stack([_cross(part[: len(first.rows)], first.row_weights()) for part in parts])
        blur = np.maximum(weights @ mixes**2 - np.eye(mixes.shape[1]), 0)
        return cls(design, precision, _varied(variance), third, unsure, blur, cross, fourth, np.zeros(left.shape[1]))

    def unknown(self, mixes: Floats) -> Floats:
        """Return *h* for the mix of each bag: (n_bags, n_classes)."""
        found: Floats = np.einsum("bi,cij,bj->bc", mixes, self.design, mixes, optimize=True)
        return found

    def between_bags(self, left: Floats, parts: Floats) -> Floats:
        """Estimate *B* from residuals of bags; `parts` (n_bags, n_classes) are factors of the classes' variances."""
        expected = parts @ self.variance
        trusted = 1 / expected**2
        found: Floats = np.maximum(((left**2 - expected) * trusted).sum(0) / trusted.sum(0), 0)
        return found

    def log_p(self, left: Floats, mixes: Floats, sizes: Floats, parts: Floats, summed: tuple[slice, slice]) -> Floats:
        """Return the logarithm of the smallest p-value of three tests: (n_bags,).

        `parts` (n_bags, n_classes) are the factors of the classes' variances.
        """
        variance = parts @ self.variance + self._blurred(mixes, sizes) + self.between
        bound = variance + parts @ self.unsure
        heavy = mixes @ self.third / sizes[:, None] ** 2 / bound**1.5 - _NORMAL_THIRD / np.sqrt(sizes)[:, None]
        farthest = _normal(np.abs(left) / np.sqrt(bound), np.maximum(heavy, 0)).max(1)
        found = [np.log(2 * left.shape[1]) + norm.logsf(farthest)]
        for part, cross, fourth in zip(summed, self.cross, self.fourth, strict=True):
            weight = self.precision[part]
            if not len(weight):
                continue
            mean, own = variance[:, part] @ weight, self.variance[:, part] @ weight
            products = np.einsum("bc,cd,bd->b", parts, cross, parts) / (parts @ own) ** 2
            spread = 2 * mean**2 * np.maximum(products, 1 / len(weight))
            spread += np.maximum(mixes @ fourth - (mixes @ own) ** 2, 0) / sizes**3
            spread += _STANDARD_ERRORS**2 * parts**2 @ (_off(self.design) @ np.maximum(fourth - own**2, 0))
            found.append(gamma.logsf((left[:, part] ** 2 @ weight) * mean / spread, mean**2 / spread))
        return np.min(found, axis=0)

    def _blurred(self, mixes: Floats, sizes: Floats) -> Floats:
        """Return the standard error of the variance that comes from the uncertainty of the mix: (n_bags, n_tests)."""
        uncertain = mixes @ self.blur / sizes[:, None]
        mean = mixes @ self.variance
        squares = uncertain @ self.variance**2 - 2 * mean * (uncertain @ self.variance)
        squares += mean**2 * uncertain.sum(1, keepdims=True)
        found: Floats = np.sqrt(np.maximum(squares, 0)) / sizes[:, None]
        return found


def sample_size(n_tests: int) -> int:
    """Return the number of rows to sample, if each row has this number of tests."""
    return max(1000, min(_NUMBERS // n_tests, 20_000))


def _most_varied(rows: Any) -> Ints:
    """Return the columns whose values change most often from one row to the next, at most `_MOST_COLUMNS`, sorted."""
    if rows.shape[1] <= _MOST_COLUMNS:
        return np.arange(rows.shape[1])
    n_different = np.asarray((rows[1:] != rows[:-1]).sum(0)).ravel()
    return np.sort(np.argsort(-n_different, kind="stable")[:_MOST_COLUMNS])


def _usual(flat: Floats) -> tuple[Floats, Floats]:
    """Return origin and unit of each feature: the median, and the first measure of spread that is not 0."""
    tail, quarter, origin, upper, top = np.quantile(flat, [0.005, 0.25, 0.5, 0.75, 0.995], axis=0)
    spreads = (upper - quarter) / 1.349, np.clip(flat, tail, top).std(0), flat.std(0)
    least = 1e-9 * np.abs(origin) + 1e-300  # spread of a constant feature by rounding
    unit = np.select([spread > least for spread in spreads], spreads, 1e-6 * np.abs(origin) + 1e-12)
    return origin, unit


def _main_directions(values: Floats) -> Floats:
    """Return directions scaled so that centered values have variance 1, widest first: (n_directions, n_features)."""
    strengths, directions = np.linalg.eigh(values.T @ values / len(values))
    kept = np.argsort(-strengths)[:_MOST_DIRECTIONS]
    kept = kept[strengths[kept] > _LEAST_VARIANCE]
    whitening: Floats = (directions[:, kept] / np.sqrt(strengths[kept])).T
    return whitening


def _cross(values: Floats, weights: Floats) -> Floats:
    """Return traces of products of the classes' covariance matrices, without the bias of a row's own product."""
    products = (values @ values.T) ** 2
    np.fill_diagonal(products, 0)
    found: Floats = np.maximum(weights @ products @ weights.T, _LEAST_PART * products.mean())
    return found


def _off(design: Floats) -> Floats:
    """Return the factors (n_classes, n_classes) of the classes' row variances (columns) in class means' variances."""
    return np.einsum("kcc->ck", design)


def _normal(values: Floats, heavy: Floats) -> Floats:
    """Turn standardised sums into normal values that are at most as rare, by Bernstein's bound with third moments."""
    return values / np.sqrt(1 + heavy * values / 2)


def _varied(variance: Floats) -> Floats:
    """Replace variances of 0 by a very large one, so that a test that never varied has no influence."""
    return np.where(variance > 1e-9, variance, _NEVER)
