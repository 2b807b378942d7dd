"""Frequencies of profiles of a few features at a time: ReadMe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_integer, check_seed, check_whole
from histnetq.bags.fingerprint import digest_arrays
from histnetq.kernels.cores import over_bags
from histnetq.kernels.jit import njit
from histnetq.persistence.saving import Arrays, StoredArrays
from histnetq.quantifiers.classical.on_features import Columns, FeatureQuantifier, class_shares, row_chunks
from histnetq.quantifiers.classical.quadratic import solve_quadratic
from histnetq.simplex import Floats, Ints

_NUMBERS_AT_ONCE = 1 << 21
_MOST_FEATURES = 16  # in a profile: each doubles the number of profiles


class _StoredProfiles(StoredArrays):
    """Features of the profiles, and how common profiles are in each class."""

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        super().restore(model, arrays, learned)
        chosen, n_features = model.subsets_, int(np.prod(model.input_shape_))
        if not ((chosen >= 0) & (chosen < n_features)).all():
            raise ValueError("path: the array 'subsets' has other numbers than those of features; save again.")
        if model.profiles_.shape[1] != 1 << chosen.shape[1] or len(model.limits_) != n_features:
            raise ValueError("path: the array 'profiles' has not a row of each profile; save again.")


@dataclass(eq=False, repr=False, kw_only=True)
class ReadMe(FeatureQuantifier):
    """Hopkins and King's ReadMe: how common profiles of words are, explained by how common they are in each class.

    A profile tells which of a few features are present in a row. For many random subsets of the features, the mixture
    of the classes' frequencies of profiles that fits the bag's best by least squares is found, and the prevalences are
    averaged. A feature is present where it exceeds its median in training: words of which most rows have none where
    they occur, flags where they are set, and other numbers where they are high.

    Parameters
    ----------
    n_subsets : int, default=300
        How many subsets of the features are drawn.
    subset_size : int, default=8
        Features in a profile, at most 16; two to this power are the profiles.
    random_state : int, default=None
        Seed of the subsets; None draws others each time.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    limits_ : (n_features,)
        Value that a present feature exceeds.
    subsets_ : (n_subsets, subset_size)
        Features of each subset.
    profiles_ : (n_subsets, n_profiles, n_classes)
        Share of each class's rows with each profile.

    References
    ----------
    Hopkins & King (2010), *A method of automated nonparametric content analysis for social science*.

    Examples
    --------
    >>> X, y = np.array([[0, 1], [1, 0]] * 5), ["a", "b"] * 5
    >>> ReadMe(random_state=0).fit(X, y).predict([[0, 1], [1, 0], [1, 0], [1, 0]]).round(2)
    array([0.25, 0.75])
    """

    n_subsets: int = 300
    subset_size: int = 8
    random_state: int | None = None
    stored = (
        _StoredProfiles(
            limits_="features", subsets_="whole: subsets size", profiles_="share: subsets profiles classes"
        ),
    )

    def _check_params(self) -> None:
        super()._check_params()
        check_integer("n_subsets", self.n_subsets, 1, 1_000_000)
        check_whole("subset_size", self.subset_size)
        if self.subset_size > _MOST_FEATURES:
            raise ValueError(f"subset_size: expected at most {_MOST_FEATURES}, got {self.subset_size}; take fewer.")
        check_seed(self.random_state)

    def _learn(self, columns: Columns, labels: Ints, weights: Floats | None) -> None:
        n_classes, rng = len(self.train_prevalences_), np.random.default_rng(self.random_state)
        size = min(self.subset_size, columns.n_columns)
        drawn = [rng.choice(columns.n_columns, size, replace=False) for _ in range(self.n_subsets)]
        self.subsets_ = np.sort(drawn, axis=1)
        shares = class_shares(labels, weights, n_classes)[np.arange(len(labels)), labels]
        self.limits_ = np.zeros(columns.n_columns)
        for d in np.unique(self.subsets_):
            self.limits_[d] = _limit(columns.take([d])[:, 0], weights)
        self.profiles_ = np.empty((self.n_subsets, 1 << size, n_classes))
        for table, chosen in zip(self.profiles_, self.subsets_, strict=True):
            codes = _codes(columns.take(chosen) > self.limits_[chosen], np.arange(size)[None])[0]
            table[:] = np.bincount(codes * n_classes + labels, shares, table.size).reshape(table.shape)

    def _sums(self, bags: Bags) -> Floats:
        """Sums over rows of how common their profiles are in each class: (n_bags, n_subsets, n_classes)."""
        sums = np.zeros((len(bags), len(self.subsets_), len(self.classes_)))
        for rows, member in row_chunks(bags, max(len(self.limits_), len(self.subsets_))):
            _add(_codes(rows > self.limits_, self.subsets_), self.profiles_, member, sums)
        return sums

    def _estimate(self, sums: NDArray, totals: NDArray) -> Floats:
        seen = self.train_prevalences_ > 0  # a class without rows has no profiles, and is not estimated
        means, p = sums[:, :, seen] / np.asarray(totals, np.float64)[:, None, None], np.zeros((len(sums), len(seen)))
        tables = self.profiles_[:, :, seen]
        grams = np.swapaxes(tables, 1, 2) @ tables
        scales = np.trace(grams, axis1=1, axis2=2) / grams.shape[1]  # to entries of about 1
        step = max(1, _NUMBERS_AT_ONCE // (len(sums) * grams[0].size))
        for some in np.split(np.arange(len(grams)), range(step, len(grams), step)):
            gram = np.tile(grams[some] / scales[some, None, None], (len(sums), 1, 1))
            linear = means[:, some] / scales[some, None]
            found = solve_quadratic(gram, linear.reshape(-1, linear.shape[2]))
            p[:, seen] += found.reshape(linear.shape).sum(1)
        return p / len(grams)

    def _sums_of(self) -> str:
        return f"sums of profiles {' '.join(map(digest_arrays, (self.limits_, self.subsets_, self.profiles_)))}"


def _limit(values: Floats, weights: Floats | None) -> float:
    """The median; or the next value below where none is higher."""
    w = np.ones(len(values)) if weights is None else weights
    kept, order = values[w > 0], np.argsort(values[w > 0], kind="stable")
    reached = np.cumsum(w[w > 0][order])
    middle = float(kept[order[np.searchsorted(reached, 0.5 * reached[-1])]])
    below = kept[kept < middle]
    return middle if (kept > middle).any() or not below.size else float(below.max())


def _codes(present: NDArray[np.bool_], subsets: Ints) -> NDArray[np.int32]:
    """Number of the profile of each row in each subset: (n_rows, n_features) → (n_subsets, n_rows)."""
    codes = np.zeros((len(subsets), len(present)), np.int32)
    _number(np.ascontiguousarray(present.T), subsets, codes)
    return codes


@njit(cache=True, nogil=True)
def _number(present, subsets, codes):  # type: ignore[no-untyped-def]
    for i in range(len(subsets)):
        for k in range(subsets.shape[1]):
            column = present[subsets[i, k]]
            for row in range(codes.shape[1]):
                codes[i, row] |= np.int32(column[row]) << np.int32(k)


def _add(codes: NDArray[np.int32], profiles: Floats, member: Any, sums: Floats) -> None:
    """Add to the sums of each bag how common the profiles of its rows are, by the weight of each row in each bag."""

    def work(first: int, last: int) -> None:
        _gather(codes, profiles, member.indptr, member.indices, member.data, first, last, sums)

    over_bags(work, member.indptr)


@njit(cache=True, nogil=True)
def _gather(codes, profiles, starts, rows, weights, first, last, sums):  # type: ignore[no-untyped-def]
    n_classes = profiles.shape[2]
    for bag in range(first, last):
        for i in range(len(profiles)):
            own, table = sums[bag, i], profiles[i]
            for e in range(starts[bag], starts[bag + 1]):
                shares = table[codes[i, rows[e]]]
                for c in range(n_classes):
                    own[c] += weights[e] * shares[c]
