"""Which rows of a bag to label: strata by predicted class and doubt, and a random draw from each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_index
from histnetq.errors import InputError
from histnetq.simplex import Floats, Ints

FEWEST_LABELS = 10  # of a bag that has as many rows
_FEWEST = 3  # labels of a stratum that has as many rows
_OWN, _HALVED = 6, 16  # labels that a predicted class must expect for a stratum of its own, and for two
_NEYMAN = 0.5  # part of the labels that goes where the model expects errors; the others go by size
_UNFORESEEN = 0.1  # variance of every row's label beside the one that its posteriors foresee


@dataclass(frozen=True)
class RowSample:
    """Rows of some bags that were drawn at random from strata, to be labelled.

    Parameters
    ----------
    entries : (n_drawn,) of int
        Places of the drawn rows among the entries of the bags.
    rows : (n_drawn,) of int
        Numbers of the drawn rows in the pool of the bags, ``bags.rows``.
    bags : (n_drawn,) of int
        The bag of each drawn row.
    strata : (n_drawn,) of int
        The stratum of each drawn row, numbered from 0 in its bag.
    stratum_rows : (n_drawn,) of int
        How many rows the stratum has.
    shares : (n_drawn,)
        The part of its bag's weight, or rows, that the stratum has.

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
        """Describe rows that were drawn otherwise: a simple random sample of each bag, without replacement.

        Parameters
        ----------
        bags : Bags
            The bags.
        rows : (n_drawn,) of int
            Numbers of the drawn rows in the pool of the bags, each in one bag alone.

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
                "rows", "different rows, each in one bag alone", "others", "name each row of the bags once"
            )
        order = np.argsort(bags.index, kind="stable")
        entries = order[np.searchsorted(bags.index[order], chosen)]
        bag = bags.bag_of_entry[entries]
        return cls(
            entries, bags.index[entries], bag, np.zeros(len(bag), np.int64), np.diff(bags.offsets)[bag],
            np.ones(len(bag)),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def groups(self) -> tuple[Ints, Ints]:
        """The first drawn row of each stratum of each bag, and (n_drawn,): which of these strata each row is of."""
        names = self.bags * (self.strata.max(initial=0) + 1) + self.strata
        _, first, group = np.unique(names, return_index=True, return_inverse=True)
        return first, group

    @property
    def probabilities(self) -> Floats:
        """(n_drawn,): the probability with which each drawn row was drawn."""
        group = self.groups[1]
        return np.bincount(group)[group] / self.stratum_rows


def draw_rows(posteriors: Floats, bags: Bags, n: int, rng: np.random.Generator) -> RowSample:
    """Draw up to `n` rows of each bag by these posteriors ``(n_entries, n_classes)`` of its rows."""
    weights, bag = bags.entry_weights().astype(np.float64), bags.bag_of_entry
    n_labels = np.minimum(n, np.diff(bags.offsets))
    totals = np.bincount(bag, weights)
    stratum = _stratify(posteriors, bag, weights / totals[bag], n_labels)
    first = np.unique(stratum, return_index=True)[1]
    bag_of = bag[first]
    n_rows, weight = np.bincount(stratum), np.bincount(stratum, weights)
    foreseen = 1 - (posteriors**2).sum(1) + _UNFORESEEN
    # Of rows with weights, the label counts in units of their mean weight.
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
    """(n_entries,): the stratum of each entry, numbered bag by bag."""
    n_classes = posteriors.shape[1]
    predicted = bag * n_classes + posteriors.argmax(1)
    doubt = np.sqrt(np.maximum(1 - posteriors.max(1), 0)) + 1e-9
    # Labels of rows with different weights tell as much as fewer of equal ones.
    effective = n_labels / np.bincount(bag, shares**2) / np.bincount(bag)
    expected = np.bincount(predicted, shares, len(n_labels) * n_classes) * np.repeat(effective, n_classes)
    # Rows of a class are cut in two where the sum of their standard deviations is halved.
    order = np.lexsort((doubt, predicted))
    summed, total = np.cumsum(doubt[order]), np.bincount(predicted, doubt, len(expected))
    unsure = np.empty(len(doubt), bool)
    unsure[order] = summed - (np.cumsum(total) - total / 2)[predicted[order]] > 0
    own, halved = (expected >= _OWN)[predicted], (expected >= _HALVED)[predicted]
    within = np.where(own, 1 + 2 * posteriors.argmax(1) + (unsure & halved), 0)
    codes: Ints = np.unique(bag * (1 + 2 * n_classes) + within, return_inverse=True)[1]
    return codes


def _allocate(n_labels: Ints, bag: Ints, n_rows: Ints, shares: Floats, spread: Floats) -> Ints:
    """(n_strata,): how many rows are drawn of each stratum; those of a bag add up to its number of labels."""
    neyman = shares * spread
    wanted = (1 - _NEYMAN) * shares + _NEYMAN * neyman / np.bincount(bag, neyman)[bag]
    fewest = np.minimum(n_rows, _FEWEST)
    low, high = np.zeros(len(n_labels)), np.zeros(len(n_labels))
    np.maximum.at(high, bag, n_rows / wanted)
    for _ in range(60):  # the factor by which what is wanted, within its bounds, adds up
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
