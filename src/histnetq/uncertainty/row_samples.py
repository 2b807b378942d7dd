"""Stratified random samples of rows to label, with strata by predicted class and certainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_index
from histnetq.errors import InputError
from histnetq.simplex import Floats, Ints

FEWEST_LABELS = 10  # smallest number of labels of a bag with at least 10 rows
_FEWEST = 3  # smallest number of labels of a stratum with at least 3 rows
_OWN, _HALVED = 6, 16  # smallest expected number of labels of a predicted class with one stratum, and with two strata
_NEYMAN = 0.5  # share of the labels that are allocated by expected errors; the remaining labels are allocated by size
_UNFORESEEN = 0.1  # variance of every row's label in addition to the variance that its posteriors predict


@dataclass(frozen=True)
class RowSample:
    """Rows of some bags that were drawn at random from strata, to be labelled.

    Parameters
    ----------
    entries : (n_drawn,) of int
        Positions of the drawn rows among the entries of the bags.
    rows : (n_drawn,) of int
        Numbers of the drawn rows in the pool of the bags, ``bags.rows``.
    bags : (n_drawn,) of int
        The bag of each drawn row.
    strata : (n_drawn,) of int
        The stratum of each drawn row, numbered from 0 in its bag.
    stratum_rows : (n_drawn,) of int
        Number of rows of the stratum.
    shares : (n_drawn,)
        Share of the stratum in the weight of its bag, or in the number of rows without weights.

    Examples
    --------
    >>> drawn = RowSample.simple(Bags(np.zeros((8, 1))), [5, 2])
    >>> drawn.entries, drawn.probabilities
    (array([5, 2]), array([0.25, 0.25]))
    """

    entries: Ints
    rows: Ints
    bags: Ints
    strata: Ints
    stratum_rows: Ints
    shares: Floats

    @classmethod
    def simple(cls, bags: Bags, rows: ArrayLike) -> RowSample:
        """Describe rows that were drawn without strata: a simple random sample of each bag, without replacement.

        Parameters
        ----------
        bags : Bags
            The bags.
        rows : (n_drawn,) of int
            Numbers of the drawn rows in the pool of the bags; each row is in exactly one bag.

        Returns
        -------
        RowSample
            The rows in this order, with all rows of a bag as one stratum.

        Examples
        --------
        >>> RowSample.simple(Bags(np.zeros((8, 1)), offsets=[0, 6, 8]), [5, 2]).stratum_rows
        array([6, 6])
        """
        chosen = check_index(rows, bags.rows.shape[0])
        times = np.bincount(bags.index, minlength=bags.rows.shape[0])[chosen]
        if (times != 1).any() or len(np.unique(chosen)) < len(chosen):
            raise InputError(
                "rows", "different rows, each in exactly one bag", "others", "name each row of the bags once"
            )
        order = np.argsort(bags.index, kind="stable")
        entries = order[np.searchsorted(bags.index[order], chosen)]
        bag = bags.bag_of_entry[entries]
        return cls(
            entries,
            bags.index[entries],
            bag,
            np.zeros(len(bag), np.int64),
            np.diff(bags.offsets)[bag],
            np.ones(len(bag)),
        )

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def groups(self) -> tuple[Ints, Ints]:
        """First drawn row of each stratum of each bag, and the stratum of each drawn row: (n_drawn,)."""
        names = self.bags * (self.strata.max(initial=0) + 1) + self.strata
        _, first, group = np.unique(names, return_index=True, return_inverse=True)
        return first, group

    @property
    def probabilities(self) -> Floats:
        """Probability of each drawn row to be drawn: (n_drawn,)."""
        group = self.groups[1]
        return np.bincount(group)[group] / self.stratum_rows


def draw_rows(posteriors: Floats, bags: Bags, n: int, rng: np.random.Generator) -> RowSample:
    """Draw up to `n` rows of each bag, with strata from the posteriors ``(n_entries, n_classes)`` of its rows."""
    weights, bag = bags.entry_weights().astype(np.float64), bags.bag_of_entry
    n_labels = np.minimum(n, np.diff(bags.offsets))
    totals = np.bincount(bag, weights)
    stratum = _stratify(posteriors, bag, weights / totals[bag], n_labels)
    first = np.unique(stratum, return_index=True)[1]
    bag_of = bag[first]
    n_rows, weight = np.bincount(stratum), np.bincount(stratum, weights)
    foreseen = 1 - (posteriors**2).sum(1) + _UNFORESEEN
    # The standard deviation is of weight times label, in units of the mean weight of the stratum.
    spread = np.sqrt(np.bincount(stratum, weights**2 * foreseen) * n_rows) / weight
    shares = weight / totals[bag_of]
    n_drawn = _allocate(n_labels, bag_of, n_rows, shares, spread)
    order = np.lexsort((rng.random(len(stratum)), stratum))
    place = np.arange(len(order)) - (np.cumsum(n_rows) - n_rows)[stratum[order]]
    entries = np.sort(order[place < n_drawn[stratum[order]]])
    drawn = stratum[entries]
    number = drawn - np.searchsorted(bag_of, bag[entries])  # strata are numbered bag by bag
    return RowSample(entries, bags.index[entries], bag[entries], number, n_rows[drawn], shares[drawn])


def _stratify(posteriors: Floats, bag: Ints, shares: Floats, n_labels: Ints) -> Ints:
    """Return the stratum of each entry, numbered bag by bag: (n_entries,)."""
    n_classes = posteriors.shape[1]
    predicted = bag * n_classes + posteriors.argmax(1)
    doubt = np.sqrt(np.maximum(1 - posteriors.max(1), 0)) + 1e-9
    # With unequal weights, the labels are worth as much as fewer labels of rows with equal weights.
    effective = n_labels / np.bincount(bag, shares**2) / np.bincount(bag)
    expected = np.bincount(predicted, shares, len(n_labels) * n_classes) * np.repeat(effective, n_classes)
    # Split a predicted class where the cumulative sum of its standard deviations reaches half of the total.
    order = np.lexsort((doubt, predicted))
    summed, total = np.cumsum(doubt[order]), np.bincount(predicted, doubt, len(expected))
    unsure = np.empty(len(doubt), bool)
    unsure[order] = summed - (np.cumsum(total) - total / 2)[predicted[order]] > 0
    own, halved = (expected >= _OWN)[predicted], (expected >= _HALVED)[predicted]
    within = np.where(own, 1 + 2 * posteriors.argmax(1) + (unsure & halved), 0)
    codes: Ints = np.unique(bag * (1 + 2 * n_classes) + within, return_inverse=True)[1]
    return codes


def _allocate(n_labels: Ints, bag: Ints, n_rows: Ints, shares: Floats, spread: Floats) -> Ints:
    """Return the number of rows to draw from each stratum, which add up to the labels of each bag: (n_strata,)."""
    neyman = shares * spread
    wanted = (1 - _NEYMAN) * shares + _NEYMAN * neyman / np.bincount(bag, neyman)[bag]
    fewest = np.minimum(n_rows, _FEWEST)
    low, high = np.zeros(len(n_labels)), np.zeros(len(n_labels))
    np.maximum.at(high, bag, n_rows / wanted)
    for _ in range(60):  # bisect for the factor that makes the clipped numbers add up
        middle = (low + high) / 2
        enough = np.bincount(bag, np.clip(middle[bag] * wanted, fewest, n_rows)) >= n_labels
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    exact = np.clip(high[bag] * wanted, fewest, n_rows)
    counts = np.floor(exact + 1e-9).astype(np.int64)
    missing = n_labels - np.bincount(bag, counts).astype(np.int64)
    order = np.lexsort((counts - exact, bag))
    place = np.arange(len(order)) - np.searchsorted(bag, bag[order])
    counts[order] += place < missing[bag[order]]
    return counts
