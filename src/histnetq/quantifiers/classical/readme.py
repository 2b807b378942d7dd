"""Frequencies of profiles of a few features: ReadMe."""

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
_MOST_FEATURES = 16  # in a profile; each feature doubles the number of profiles


class _StoredProfiles(StoredArrays):
    """Features of the profiles, and the share of each profile in each class."""

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        super().restore(model, arrays, learned)
        chosen, n_features = model.subsets_, int(np.prod(model.input_shape_))
        if not ((chosen >= 0) & (chosen < n_features)).all():
            raise ValueError("path: the array 'subsets' has other numbers than feature numbers; save again.")
        if model.profiles_.shape[1] != 1 << chosen.shape[1] or len(model.limits_) != n_features:
            raise ValueError("path: the array 'profiles' does not have one row per profile; save again.")


@dataclass(eq=False, repr=False, kw_only=True)
class ReadMe(FeatureQuantifier):
    """Hopkins and King's ReadMe: the mixture of the classes that explains the frequencies of word profiles in a bag.

    The profile of a row says which features of a small subset are present. For each of many random subsets, least
    squares finds the mixture of the classes whose frequencies of profiles fit the bag best. The estimate is the mean
    over the subsets. A feature is present if it exceeds its median in training: a rare word is present if it occurs, a
    flag if it is set, and a measurement if it is high.

    Parameters
    ----------
    n_subsets : int, default=300
        Number of random subsets of the features.
    subset_size : int, default=8
        Number of features in a profile, at most 16; there are 2 to this power profiles.
    random_state : int, default=None
        Seed of the subsets; None draws a new seed each time.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    limits_ : (n_features,)
        Thresholds: a feature is present if it is above its threshold.
    subsets_ : (n_subsets, subset_size)
        Features of each subset.
    profiles_ : (n_subsets, n_profiles, n_classes)
        Share of the rows of each class with each profile.

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
        """Return the sums over rows of the shares of their profiles in each class: (n_bags, n_subsets, n_classes)."""
        sums = np.zeros((len(bags), len(self.subsets_), len(self.classes_)))
        for rows, member in row_chunks(bags, max(len(self.limits_), len(self.subsets_))):
            _add(_codes(rows > self.limits_, self.subsets_), self.profiles_, member, sums)
        return sums

    def _estimate(self, sums: NDArray, totals: NDArray) -> Floats:
        seen = self.train_prevalences_ > 0  # a class without rows has no profiles, so it is estimated as absent
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
    """Return the weighted median, or the next lower value if the median is the maximum."""
    w = np.ones(len(values)) if weights is None else weights
    kept, order = values[w > 0], np.argsort(values[w > 0], kind="stable")
    reached = np.cumsum(w[w > 0][order])
    middle = float(kept[order[np.searchsorted(reached, 0.5 * reached[-1])]])
    below = kept[kept < middle]
    return middle if (kept > middle).any() or not below.size else float(below.max())


def _codes(present: NDArray[np.bool_], subsets: Ints) -> NDArray[np.int32]:
    """Return the number of the profile of each row in each subset: (n_rows, n_features) → (n_subsets, n_rows)."""
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
    """Add the shares of the rows' profiles to the sums of each bag; `member` has the weight of each row in each bag."""
    arguments = codes, profiles, member.indptr, member.indices, member.data
    over_bags(lambda first, last: _gather(*arguments, first, last, sums), member.indptr)


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
