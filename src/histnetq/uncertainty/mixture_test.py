"""Bags as mixes of classes: what their rows are tested by, what no mix explains, and how far that is by chance."""

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
_MOST_COLUMNS = 2048
_MOST_PAIRED = 30  # features or directions: 465 products
_MOST_DIRECTIONS = 100
_LEAST_VARIANCE = 1e-4  # of a direction, in units of the features' own: below it there is little but rounding
_NUMBERS = 1 << 23  # of a sample of rows and their tests
_ROWS_IN_PAIRS = 2500  # whose products with one another are summed
_FROM_ALL = 20  # rows of all classes, by which the moments of a class with few rows are steadied
_LEAST_PART = 0.25  # of the variance of all rows, which that of a class has at least
_LEAST_ALONE = 0.01  # part of a row's squared distance that the other rows make
_NEVER = 1e6
_STANDARD_ERRORS = 3.0  # of a variance, by which it is taken to be more
_NORMAL_THIRD = 1.6  # mean of the absolute cubes of normal values
_BY_CHANCE = 0.001  # how often classes seem to differ in a test in which they do not
_LEAST_STRENGTH = 1.5  # of a difference between classes, in units of what is unknown of it


@dataclass(frozen=True)
class Tests:
    """The functions of rows whose means over a bag are tested.

    They are the values and squares of the features, products of pairs of up to 30 of them, values along the main
    directions, and products of pairs of these.

    Attributes
    ----------
    moments : Moments
        The sums from which the means of all tests follow.
    whitening : (n_directions, n_features)
        The main directions, in units of their standard deviations within groups.
    """

    moments: Moments
    whitening: Floats

    @classmethod
    def fit(cls, bags: Bags, sample: Groups) -> Tests:
        """Choose origins, units and directions by some rows of the bags."""
        rows = bags.rows[sample.rows]
        rows = rows if sparse.issparse(rows) else rows.reshape(len(rows), -1)
        columns = _most_varied(rows)
        n, rows = len(columns), rows[:, columns]
        if sparse.issparse(rows):
            # Around 0 and without pairs, so that rows stay sparse.
            squares, counts = (np.asarray(part.sum(0), np.float64).ravel() for part in (rows.multiply(rows), rows != 0))
            unit = np.sqrt(squares / np.maximum(counts, 1))
            return cls(Moments(columns, np.zeros(n), np.where(unit > 0, unit, 1), np.zeros((0, n))), np.zeros((0, n)))
        origin, unit = _usual(rows.astype(np.float64))
        values = Moments(np.arange(n), origin, unit, np.zeros((0, n))).of_rows(rows)[0]
        whitening = _main_directions(sample.centered(values))
        paired = np.eye(n) if n <= _MOST_PAIRED else whitening[:_MOST_PAIRED]
        return cls(Moments(columns, origin, unit, paired), whitening)

    def of(self, means: Floats) -> Floats:
        """(n_bags, n_tests) from the means of the moments."""
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
        """(n_rows, n_tests)."""
        values, directed = self.moments.of_rows(rows)
        i, j = np.triu_indices(directed.shape[1])
        return self.of(np.hstack([values, values**2, directed[:, i] * directed[:, j]]))

    def as_if_unseen(self, centered: Floats, n_seen: int) -> Floats:
        """(n_rows, n_tests): factors that make tests of rows as large as if the directions had not seen the row.

        Directions are as wide as the rows that they were fitted to. A row that is *z_k* times as far as direction *k*
        is wide, is ``1 / sqrt((1 - h_k-1) (1 - h_k))`` times farther in units of what the other rows give, with
        ``h_k = Σ_l≤k z_l² / n``. A row that is alone in a narrow direction thus makes the direction uncertain.
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
        """Which tests are the values along the main directions, and which the products of these."""
        n, k, m = len(self.moments.origin), len(self.moments.paired), len(self.whitening)
        start = n + (k * (k + 1) // 2 if self._pairs_features else n)
        return slice(start, start + m), slice(start + m, None)

    @property
    def squares(self) -> Ints:
        """Places of the squares of the features among the tests."""
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
        Mean of all rows.
    classes : (n_classes, n_tests)
        Means of the classes, less the center.
    solver : (n_classes, n_tests)
        What makes mixes of tests less the center, up to a multiple of `mix`.
    mix : (n_classes,)
        Proportions of the classes in all rows.
    """

    center: Floats
    classes: Floats
    solver: Floats
    mix: Floats

    @classmethod
    def fit(cls, tests: Floats, groups: Groups, rows: Floats, sample: Groups, design: Floats) -> Mixes:
        """Learn from the tests ``(n_groups, n_tests)`` of groups with this design, and from those of some rows."""
        shares = groups.sizes / groups.sizes.sum()
        center, mix = shares @ tests, shares @ groups.mixes
        classes = groups.solver() @ (tests - center)
        precision = 1 / _varied((sample.centered(rows) ** 2).mean(0))
        own = (rows - center) ** 2
        variance = np.maximum(sample.row_weights() @ own - classes**2, _LEAST_PART * own.mean(0))
        # Tests in which classes seem to differ by no more than what is unknown would draw mixes to the mean.
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
        """What no mix explains ``(n, n_tests)``, and the mixes that explain most, unbounded: ``(n, n_classes)``."""
        away = tests - self.center
        mixes = away @ self.solver.T
        return away - mixes @ self.classes, mixes + (1 - mixes.sum(1, keepdims=True)) * self.mix


@dataclass(frozen=True)
class Chance:
    """How far bags are from every mix of the classes by chance.

    What is left of a bag of size *n* has the variance ``Σ_c V_c (p_c / n + h_c(p)) + B``: *h* is what the rows that
    were learned from leave unknown about the classes, *B* how bags of any size differ.

    Attributes
    ----------
    design : (n_classes, n_classes, n_classes)
        ``h_c(p) = pᵀ design_c p``.
    precision : (n_tests,)
        Inverse variances of the tests in all rows, which are their weights in sums of squares.
    variance, third : (n_classes, n_tests)
        Means of the squares and of the absolute cubes of what is left of the rows of each class.
    unsure : (n_classes, n_tests)
        Three standard errors of the variance: much, if it rests on a few rows.
    blur : (n_classes, n_classes)
        Variances of the mixes that single rows of each class have, one row for each class.
    cross : (2, n_classes, n_classes)
        Traces of products of the classes' covariances, for the two sums of squares.
    fourth : (2, n_classes)
        Mean of the square of a row's own sum of squares.
    between : (n_tests,)
        B.
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
        """Learn from what is left of single rows ``(n_rows, n_tests)`` and from their mixes; B is 0."""
        weights, off = sample.row_weights(), _off(design)
        few = _FROM_ALL * off.sum(1, keepdims=True)

        def by_class(values: Floats) -> Floats:
            pooled = values.mean(0)
            found: Floats = (np.maximum(weights @ values, _LEAST_PART * pooled) + few * pooled) / (1 + few)
            return found

        variance, third = by_class(left**2), by_class(np.abs(left) ** 3)
        unsure = _STANDARD_ERRORS * np.sqrt(off @ np.maximum(by_class(left**4) - variance**2, 0))
        # A test whose variance rests on a few rows of some class weighs little in sums of squares.
        sure = (variance / np.maximum(variance + unsure, 1e-300)).min(0)
        precision = sure**2 / _varied((left**2).mean(0))
        parts = [(left * np.sqrt(precision))[:, part] for part in summed]
        fourth = np.stack([by_class((part**2).sum(1, keepdims=True) ** 2)[:, 0] for part in parts])
        first = sample.first(_ROWS_IN_PAIRS)
        cross = np.stack([_cross(part[: len(first.rows)], first.row_weights()) for part in parts])
        blur = np.maximum(weights @ mixes**2 - np.eye(mixes.shape[1]), 0)
        return cls(design, precision, _varied(variance), third, unsure, blur, cross, fourth, np.zeros(left.shape[1]))

    def unknown(self, mixes: Floats) -> Floats:
        """(n_bags, n_classes): h of each bag's mix."""
        found: Floats = np.einsum("bi,cij,bj->bc", mixes, self.design, mixes, optimize=True)
        return found

    def between_bags(self, left: Floats, parts: Floats) -> Floats:
        """B, from what is left of bags that have these parts ``(n_bags, n_classes)`` of the classes' variances."""
        expected = parts @ self.variance
        trusted = 1 / expected**2
        found: Floats = np.maximum(((left**2 - expected) * trusted).sum(0) / trusted.sum(0), 0)
        return found

    def log_p(self, left: Floats, mixes: Floats, sizes: Floats, parts: Floats, summed: tuple[slice, slice]) -> Floats:
        """(n_bags,): logarithm of the smallest p-value of three tests, for these parts of the classes' variances."""
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
        """(n_bags, n_tests): a standard error of the variance, as classes differ in it and the mix is uncertain."""
        uncertain = mixes @ self.blur / sizes[:, None]
        mean = mixes @ self.variance
        squares = uncertain @ self.variance**2 - 2 * mean * (uncertain @ self.variance)
        squares += mean**2 * uncertain.sum(1, keepdims=True)
        found: Floats = np.sqrt(np.maximum(squares, 0)) / sizes[:, None]
        return found


def sample_size(n_tests: int) -> int:
    """How many rows to look at one by one."""
    return max(1000, min(_NUMBERS // n_tests, 20_000))


def _most_varied(rows: Any) -> Ints:
    """The columns whose values differ most often from one row to the next, at most so many, in their order."""
    if rows.shape[1] <= _MOST_COLUMNS:
        return np.arange(rows.shape[1])
    n_different = np.asarray((rows[1:] != rows[:-1]).sum(0)).ravel()
    return np.sort(np.argsort(-n_different, kind="stable")[:_MOST_COLUMNS])


def _usual(flat: Floats) -> tuple[Floats, Floats]:
    """Origin and unit of each feature: the median, and the first measure of spread that is not 0."""
    tail, quarter, origin, upper, top = np.quantile(flat, [0.005, 0.25, 0.5, 0.75, 0.995], axis=0)
    spreads = (upper - quarter) / 1.349, np.clip(flat, tail, top).std(0), flat.std(0)
    least = 1e-9 * np.abs(origin) + 1e-300  # what never varied may by rounding
    unit = np.select([spread > least for spread in spreads], spreads, 1e-6 * np.abs(origin) + 1e-12)
    return origin, unit


def _main_directions(values: Floats) -> Floats:
    """(n_directions, n_features): along which centered values have variance 1, the widest first."""
    strengths, directions = np.linalg.eigh(values.T @ values / len(values))
    kept = np.argsort(-strengths)[:_MOST_DIRECTIONS]
    kept = kept[strengths[kept] > _LEAST_VARIANCE]
    whitening: Floats = (directions[:, kept] / np.sqrt(strengths[kept])).T
    return whitening


def _cross(values: Floats, weights: Floats) -> Floats:
    """Traces of products of the classes' covariances, without the bias that a row's product with itself has."""
    products = (values @ values.T) ** 2
    np.fill_diagonal(products, 0)
    found: Floats = np.maximum(weights @ products @ weights.T, _LEAST_PART * products.mean())
    return found


def _off(design: Floats) -> Floats:
    """(n_classes, n_classes): what the variance of a row of each class adds to that of a class's mean."""
    return np.einsum("kcc->ck", design)


def _normal(values: Floats, heavy: Floats) -> Floats:
    """Standardised sums → normal values that are as rare at most, by Bernstein's bound with third moments."""
    return values / np.sqrt(1 + heavy * values / 2)


def _varied(variance: Floats) -> Floats:
    """Variances, and a very large one instead of 0: a test that never varied decides nothing."""
    return np.where(variance > 1e-9, variance, _NEVER)
