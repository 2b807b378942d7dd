"""Gibbs sampling of the labels of a bag's rows from their posterior, compiled."""

from __future__ import annotations

import numpy as np

from histnetq.kernels.jit import njit


@njit(cache=True, nogil=True)
def sweep(  # type: ignore[no-untyped-def]
    likelihoods, index, offsets, weights, first, last, seed, step, n_sweeps, n_kept, labels, counts, kept
):
    """Repeatedly draw the label of each entry given all other labels in its bag.

    The prevalences are integrated out: the probability of a class is proportional to the prior plus the weight of the
    class among the remaining entries of the bag, times the likelihood of the row. Random numbers depend on the seed,
    the sweep and the position of an entry in its bag, so the draws of a bag do not depend on other bags.

    Parameters
    ----------
    likelihoods : (n_rows, n_classes)
        Likelihood of each row under each class, up to a factor per row.
    weights : (n_entries,)
        Weight of each entry.
    first, last : int
        Range of bags, without the last.
    seed, step : int
        Seed of all draws, and the number of earlier sweeps.
    n_sweeps, n_kept : int
        Number of sweeps, and how many of the last sweeps are kept.
    labels : (n_entries,)
        Current label of each entry, -1 before the first sweep; changed in place.
    counts : (n_bags, n_classes)
        Weight of each class plus the prior; changed in place.
    kept : (n_bags, n_kept, n_classes)
        Output: the counts after each kept sweep.
    """
    n_classes = likelihoods.shape[1]
    sums = np.empty(n_classes)
    for bag in range(first, last):
        for s in range(n_sweeps):
            for entry in range(offsets[bag], offsets[bag + 1]):
                row, w = index[entry], weights[entry]
                if labels[entry] >= 0:
                    counts[bag, labels[entry]] -= w
                total = 0.0
                for c in range(n_classes):
                    total += counts[bag, c] * likelihoods[row, c]
                    sums[c] = total
                drawn = total * _uniform(seed, step + s, entry - offsets[bag])
                c = 0
                while c < n_classes - 1 and sums[c] <= drawn:
                    c += 1
                labels[entry] = c
                counts[bag, c] += w
            if s >= n_sweeps - n_kept:
                kept[bag, s - n_sweeps + n_kept] = counts[bag]


@njit(cache=True, nogil=True)
def _uniform(seed, step, place):  # type: ignore[no-untyped-def]
    """Return a number in [0, 1) that depends on three numbers, by bit mixing as in SplitMix64 (Steele et al., 2014)."""
    bits = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    bits = _mixed(bits + np.uint64(step) * np.uint64(0xD1B54A32D192ED03))
    bits = _mixed(bits + np.uint64(place) * np.uint64(0x8CB92BA72F3D8DD7))
    return float(bits >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True)
def _mixed(bits):  # type: ignore[no-untyped-def]
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
