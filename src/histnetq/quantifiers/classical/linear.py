"""Ridge regression of prevalences on the mean rows of bags: LinearQ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_number, check_seed, needs_double, take_dense, used_rows
from histnetq.bags.class_names import align
from histnetq.bags.fingerprint import digest_arrays
from histnetq.bags.protocols import APP
from histnetq.errors import InputError
from histnetq.metrics import ae
from histnetq.persistence.saving import StoredArrays
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.classical.on_features import Columns, row_chunks
from histnetq.quantifiers.classical.transitions import Transitions, estimate_transitions
from histnetq.simplex import Floats, project
from histnetq.sketches.moments import total_weights
from histnetq.sketches.posteriors import bag_means
from histnetq.sketches.sketcher import Sketcher
from histnetq.training.supervision import Supervision

if TYPE_CHECKING:
    from typing_extensions import Self

_PENALTIES = 10.0 ** np.arange(-6, 2.5, 0.5)  # multiples of the mean variance of the mean rows
_DRAWN_BAGS = 500  # bags drawn from labelled rows without bags
_MOST_WIDE_BAGS = 4096  # largest number of bags if there are even more features
_NUMBERS_AT_ONCE = 1 << 24  # bags × features
_LEAST_SLOPE = 0.01  # a start of 0 in a transition table would remain 0
_LEAST = 1e-12  # smallest eigenvalue, relative to the largest, that is not rounding


@dataclass(eq=False, repr=False, kw_only=True)
class LinearQ(Quantifier):
    """Ridge regression of the prevalences on the mean row of a bag, projected to the simplex.

    It learns from the proportions of bags in a fraction of a second, and is the baseline that a network should beat.
    For categorical rows, whose mean is the share of each category, it is Goodman's ecological regression. The penalty
    is the one with the lowest mean absolute error of leave-one-out estimates, which have a closed form. Larger bags
    have a larger weight, up to twice the weight of a bag of the usual size.

    Parameters
    ----------
    penalty : float, default=None
        Ridge penalty, as a multiple of the mean variance of the standardised mean rows; None chooses it.
    random_state : int, default=None
        Seed of the bags that are drawn from labelled rows without bags; None draws a new seed each time.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    center_ : (n_features,)
        Training mean of the rows.
    coef_ : (n_features, n_classes)
        Change of the estimate if a feature of the mean row grows by 1.
    intercept_ : (n_classes,)
        Estimate of a bag whose mean row is `center_`, before the projection.

    References
    ----------
    Goodman (1953), *Ecological regressions and behavior of individuals*; Szabó et al. (2016), *Learning theory for
    distribution regression*.

    Examples
    --------
    Three quarters of the voters of party 0, and a quarter of the voters of party 1, choose candidate a:

    >>> bags = Bags.from_arrays([[[1.0, 0.0]] * n + [[0.0, 1.0]] * (20 - n) for n in range(21)])
    >>> a = np.linspace(0.25, 0.75, 21)
    >>> q = LinearQ().fit(bags, np.stack([a, 1 - a], axis=1))
    >>> q.predict([[1.0, 0.0]]).round(2)
    array([0.75, 0.25])
    """

    penalty: float | None = None
    random_state: int | None = None
    stored = (StoredArrays(center_="features", coef_="features classes", intercept_="classes"),)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from bags of known proportions, or from bags that are drawn from labelled rows.

        Parameters
        ----------
        X : Bags, or array of rows
            Bags with prevalences, or labelled rows.
        y : array, default=None
            With bags: their prevalences, if they do not carry them. With rows: the label of each row.

        Returns
        -------
        LinearQ
            The fitted quantifier itself.
        """
        self._check_params()
        given = Supervision.of(X, y, None)
        if not given.input_shape:
            raise TypeError("rows: LinearQ expects numbers, got texts; vectorise them first, as by TfidfVectorizer.")
        bags = given.bags
        if bags is None:
            assert given.rows is not None
            bags = APP().draw(given.rows, _DRAWN_BAGS, self.random_state)
        center, scale = (np.broadcast_to(part, given.input_shape).ravel() for part in given.statistics())
        means = _MeanRows(_few_if_wide(bags), center, scale)
        slopes, self.intercept_ = _regress(means, self.penalty)
        self.center_, self.coef_ = center.astype(np.float64), slopes / scale[:, None]
        known = given.classes, given.input_shape, given.feature_names, given.prevalences()
        self._learned_from(*known, needs_double(given.pool), given.are_scores, given.text)
        return self

    def _check_params(self) -> None:
        super()._check_params()
        check_number("penalty", self.penalty, 0, 1e12, above=True, or_none=True)
        check_seed(self.random_state)

    def transitions(self, bags: Bags, groups: Any = None) -> Transitions:
        """Estimate how many of each category are of each class: a transition table per group of bags.

        For example, bags are polling places, rows are party votes, prevalences are the shares of the candidates, and
        groups are electorates: the table tells which candidates the voters of each party chose. The known totals of
        every bag are kept, the slopes of the regression are the start, and groups learn from each other
        (`estimate_transitions`).

        Parameters
        ----------
        bags : Bags
            Bags of categorical rows, each with a single 1. Without prevalences, the estimates of the bags are used.
        groups : (n_bags,), default=None
            Name of the group of each bag; None puts all bags into one group.

        Returns
        -------
        Transitions
            The tables.

        Examples
        --------
        >>> bags = Bags.from_arrays([[[1.0, 0.0]] * n + [[0.0, 1.0]] * (20 - n) for n in range(21)])
        >>> a = np.linspace(0.25, 0.75, 21)
        >>> bags = bags.replaced(classes=np.array(["a", "b"])).with_prevalences(np.stack([a, 1 - a], axis=1))
        >>> LinearQ().fit(bags).transitions(bags).shares.round(2).tolist()
        [[[0.75, 0.25], [0.25, 0.75]]]
        """
        bags = self._bags_to_estimate(bags)
        used, index = used_rows(bags.index, bags.rows.shape[0])
        rows = take_dense(bags.rows, used).astype(np.float64)
        if rows.ndim != 2 or not (np.isin(rows, (0, 1)).all() and (rows.sum(1) == 1).all()):
            remedy = "pass one categorical column, or numbers of each category as weights"
            raise InputError("bags", "categorical rows, each with a single 1", "other numbers", remedy)
        if groups is not None and len(groups) != len(bags):
            raise InputError("groups", f"{len(bags)} names, one per bag", len(groups), "pass one for each")
        known: Any = self.predict(bags) if bags.prevalences is None else align(bags, self.classes_).prevalences
        slopes = self.intercept_ + (np.eye(len(self.center_)) - self.center_) @ self.coef_
        return estimate_transitions(
            bag_means(rows, index, bags.offsets, bags.weights), known, total_weights(bags),
            np.clip(slopes, _LEAST_SLOPE, None), groups,
            (bags.feature_names or np.arange(len(self.center_)), self.classes_),
        )  # fmt: skip

    def _predict(self, bags: Bags) -> Floats:
        return self._estimate(self._sums(bags), total_weights(bags))

    def _sums(self, bags: Bags) -> Floats:
        """Return the sums of the linear scores of the rows of each bag: (n_bags, n_classes)."""
        sums = np.zeros((len(bags), len(self.intercept_)))
        for rows, member in row_chunks(bags, len(self.center_)):
            sums += member @ ((rows - self.center_) @ self.coef_)
        return sums

    def _estimate(self, sums: Floats, totals: Floats) -> Floats:
        return project(self.intercept_ + sums / np.asarray(totals, dtype=np.float64)[:, None])

    def _sketcher(self) -> Sketcher:
        return _Scores(self)


class _Scores(Sketcher):
    """Sketches that are sums of linear scores. Estimates from them are exact."""

    def __init__(self, q: LinearQ) -> None:
        self.q = q

    def identity(self) -> str:
        return f"sums of linear scores {digest_arrays(self.q.center_, self.q.coef_)}"

    def state(self, bags: Bags) -> Floats:
        return self.q._sums(bags)

    def estimate(self, values: Floats, totals: Floats) -> Floats:
        return self.q._estimate(values, totals)


class _MeanRows:
    """Standardised mean rows of bags, times the square roots of the weights of the bags, some columns at a time."""

    def __init__(self, bags: Bags, center: Floats, scale: Floats) -> None:
        used, self.index = used_rows(bags.index, bags.rows.shape[0])
        self.bags, self.columns, self.center, self.scale = bags, Columns(bags.rows[used]), center, scale
        # The error of a mean row has a part that falls with the number of rows, and a part that does not.
        weights = bags.sizes / (bags.sizes + np.exp(np.log(bags.sizes).mean()))
        self.weights = weights / weights.sum()
        self.shape = len(bags), self.columns.n_columns
        self.mean = np.zeros(self.shape[1])

    def take(self, some: slice) -> Floats:
        """Return some columns, minus their weighted means: (n_bags, n_taken)."""
        rows = (self.columns.take(some) - self.center[some]) / self.scale[some]
        means = bag_means(rows, self.index, self.bags.offsets, self.bags.weights)
        self.mean[some] = self.weights @ means
        return np.sqrt(self.weights)[:, None] * (means - self.mean[some])

    def blocks(self) -> list[slice]:
        """Return slices of columns that fit in memory together with the rows of the bags."""
        step = max(1, _NUMBERS_AT_ONCE // max(self.columns.rows.shape[0], self.shape[0]))
        return [slice(start, start + step) for start in range(0, self.shape[1], step)]

    def spectrum(self) -> tuple[Floats, Floats]:
        """Return left singular vectors (n_bags, rank) of all columns, and their squared singular values (rank,)."""
        n_bags, n_features = self.shape
        if n_features > n_bags:
            products = sum((part @ part.T for part in map(self.take, self.blocks())), np.zeros((n_bags, n_bags)))
            values, vectors = np.linalg.eigh(products)
            kept = values > _LEAST * max(values[-1], 1e-300)
            return vectors[:, kept], values[kept]
        every = np.concatenate([self.take(some) for some in self.blocks()], axis=1)
        vectors, singular, _ = np.linalg.svd(every, full_matrices=False)
        kept = singular**2 > _LEAST * max(singular[0] ** 2, 1e-300)
        return vectors[:, kept], singular[kept] ** 2


def _few_if_wide(bags: Bags) -> Bags:
    """Return the bags, or the largest of them if there are very many bags and even more features."""
    if min(len(bags), bags.n_features) <= _MOST_WIDE_BAGS:
        return bags
    return bags[np.sort(np.argsort(-bags.sizes, kind="stable")[:_MOST_WIDE_BAGS])]


def _regress(means: _MeanRows, penalty: float | None) -> tuple[Floats, Floats]:
    """Return slopes (n_features, n_classes) on standardised features, and the intercept (n_classes,)."""
    p, weights = means.bags.prevalences, means.weights
    assert p is not None
    mean = weights @ p
    root = np.sqrt(weights)[:, None]
    vectors, variances = means.spectrum()
    wanted = root * (p - mean)
    along, unit = vectors.T @ wanted, variances.mean() if len(variances) else 1.0
    chosen = _best_penalty(vectors, variances / unit, wanted, p, weights) if penalty is None else penalty
    dual = vectors @ (along / (variances + chosen * unit)[:, None])
    slopes = np.concatenate([means.take(some).T @ dual for some in means.blocks()])
    return slopes, mean - means.mean @ slopes


def _best_penalty(vectors: Floats, variances: Floats, wanted: Floats, p: Floats, weights: Floats) -> float:
    """Return the penalty with the lowest weighted mean AE of leave-one-out estimates."""
    along, errors = vectors.T @ wanted, []
    for penalty in _PENALTIES:
        shrunk = variances / (variances + penalty)
        missed = wanted - vectors @ (shrunk[:, None] * along)
        # Without a bag, its error is larger by this factor; the first term is the bag's part of the mean.
        own = weights + np.square(vectors) @ shrunk
        left_out = missed / (np.maximum(1 - own, 1e-9) * np.sqrt(weights))[:, None]
        errors.append(float(weights @ ae(p, project(p - left_out))))
    return float(_PENALTIES[int(np.argmin(errors))])
