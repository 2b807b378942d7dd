"""The mixture of classes that explains the counts of a bag in cells, under a Dirichlet prior, compiled."""

from __future__ import annotations

import numpy as np

from histnetq.kernels.jit import njit

_MOST_CYCLES, _MOST_NEWTON = 25, 12  # pairs of steps of EM, and then steps of Newton's method
_FARTHEST = 64.0  # extrapolation
_CLOSE = 1e-6  # largest change of a share at the end
_FAST = {"reassoc", "contract"}


@njit(cache=True, nogil=True, error_model="numpy")
def explain(  # type: ignore[no-untyped-def]
    emissions, middle, prior, noise, cells, offsets, weights, first, last, shares, expected, spreads, covariances
):
    """Find, for each bag and level, the most probable mixture in the softmax basis, and its uncertainty.

    Parameters
    ----------
    emissions : (n_levels, n_cells, n_classes)
        Share of each cell among the rows of each class, up to a factor per cell.
    middle : int
        The level whose uncertainty is returned.
    prior : (n_bags, n_classes)
        Dirichlet concentrations.
    noise : (n_classes,)
        One over the effective number of labelled rows of each class.
    cells, weights : (n_entries,)
        Cell of each entry and its weight.
    offsets : (n_bags + 1,)
    first, last : int
        Range of bags, without the last.
    shares, expected : (n_bags, n_levels, n_classes)
        Outputs: the most probable mixture, and the expected part of the bag in each class.
    spreads : (n_bags, 2, n_classes)
        Outputs: variance of the bag's part in each class, and the part of the variance that the labelled rows cause.
    covariances : (n_bags, n_classes, n_classes), or no bags
        Output: covariance of the bag's parts.
    """
    n_levels, _, k = emissions.shape
    width = 0
    for bag in range(first, last):
        width = max(width, offsets[bag + 1] - offsets[bag])
    # Rows of the tile are an odd number of cache lines apart, so that all classes use different cache sets. The tile is
    # never sliced, as loops over slices are not vectorised.
    shape = (k, width // 16 * 16 + 24)
    tile, parts, mixed, moved, hessian = (
        np.empty(shape),
        np.empty(shape),
        np.empty(width),
        np.empty(width),
        np.empty((k, k)),
    )
    p, new = np.empty(k), np.empty(k)
    for bag in range(first, last):
        begin, end = offsets[bag], offsets[bag + 1]
        alpha, w = prior[bag], weights[begin:end]
        size, weight_of_prior = w.sum(), alpha.sum()
        p[:] = alpha / weight_of_prior
        for level in range(n_levels):
            _gather(emissions[level], cells[begin:end], tile)
            if not _climb(tile, w, alpha, size + weight_of_prior, mixed, p, new):
                _expect(tile, p, w, mixed, new)
                _refine(tile, w, alpha, size + weight_of_prior, mixed, parts, hessian, p, new)
            _expect(tile, p, w, mixed, new)
            shares[bag, level], expected[bag, level] = p, new / size
            if level == middle:
                total = size + weight_of_prior
                _curvature(tile, p, w, mixed, total, False, parts, hessian)
                _spread(p, w, hessian, size, total, noise, parts, moved, spreads[bag], covariances, bag)


@njit(cache=True, nogil=True, error_model="numpy")
def _gather(table, cells, tile):  # type: ignore[no-untyped-def]
    """Copy the emissions of the cells of a bag, class by class, so that loops over cells are vectorised."""
    for e in range(len(cells)):
        for c in range(len(tile)):
            tile[c, e] = table[cells[e], c]


@njit(cache=True, nogil=True, error_model="numpy")
def _climb(tile, w, alpha, total, mixed, p, new):  # type: ignore[no-untyped-def]
    """Move `p` by expectation maximisation, and return whether it arrived at the maximum.

    Each pair of steps is extrapolated, as in the SQUAREM method of Varadhan & Roland (2008).
    """
    k = len(p)
    first, second = np.empty(k), np.empty(k)
    for cycle in range(_MOST_CYCLES):
        _expect(tile, p, w, mixed, new)
        change = 0.0
        for c in range(k):
            after = (new[c] + alpha[c]) / total
            first[c] = after - p[c]
            change = max(change, abs(first[c]))
            p[c] = after
        if cycle > 0 and change < _CLOSE:
            return True
        _expect(tile, p, w, mixed, new)
        length, bend = 0.0, 0.0
        for c in range(k):
            after = (new[c] + alpha[c]) / total
            second[c] = after - p[c] - first[c]
            length += first[c] ** 2
            bend += second[c] ** 2
            p[c] = after
        # A factor of 1 is the second step itself. No share may become less than a tenth of what this step gives it.
        factor = min(np.sqrt(length / max(bend, 1e-300)), _FARTHEST)
        while factor > 1.01:
            is_inside = True
            for c in range(k):
                start = p[c] - 2 * first[c] - second[c]
                new[c] = start + 2 * factor * first[c] + factor**2 * second[c]
                is_inside &= new[c] >= 0.1 * p[c]
            if is_inside:
                p[:] = new
                break
            factor = (factor + 1) / 2 if factor > 1.1 else 1.0
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def _refine(tile, w, alpha, total, mixed, parts, hessian, p, new):  # type: ignore[no-untyped-def]
    """Move `p` to the maximum by Newton's method; `new` has the expected number of rows of each class at `p`."""
    k = len(p)
    trial, counts = np.empty(k), np.empty(k)
    value = _value(mixed, w, alpha, p)
    for _ in range(_MOST_NEWTON):
        _curvature(tile, p, w, mixed, alpha.sum(), True, parts, hessian)
        move = np.linalg.solve(hessian, new + alpha - total * p)
        length, improved, found = 1.0, False, value
        for _ in range(6):
            for c in range(k):
                trial[c] = np.log(p[c]) + length * max(-4.0, min(4.0, move[c]))
            trial[:] = np.exp(trial - trial.max())
            trial[:] = np.maximum(trial / trial.sum(), 1e-300)
            _expect(tile, trial, w, mixed, counts)
            found = _value(mixed, w, alpha, trial)
            if found >= value:
                improved = True
                break
            length /= 4
        if not improved:
            return
        change = np.abs(trial - p).max()
        p[:], new[:], value = trial, counts, found
        if change < _CLOSE:
            return


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def _expect(tile, p, w, mixed, expected):  # type: ignore[no-untyped-def]
    """Compute the expected number of rows of each class, and the weight over the likelihood of each cell."""
    mixed[: len(w)] = 0.0
    for c in range(len(p)):
        for e in range(len(w)):
            mixed[e] += tile[c, e] * p[c]
    for e in range(len(w)):
        mixed[e] = w[e] / mixed[e]
    for c in range(len(p)):
        total = 0.0
        for e in range(len(w)):
            total += tile[c, e] * mixed[e]
        expected[c] = total * p[c]


@njit(cache=True, nogil=True, error_model="numpy")
def _value(mixed, w, alpha, p):  # type: ignore[no-untyped-def]
    """Return the logarithm of the posterior density, up to a constant; `mixed` is what `_expect` returns at `p`."""
    value = 0.0
    for e in range(len(w)):
        if w[e] > 0:
            value += w[e] * np.log(w[e] / mixed[e])
    for c in range(len(p)):
        value += alpha[c] * np.log(p[c])
    return value


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def _curvature(tile, p, w, mixed, total, is_outer, parts, hessian):  # type: ignore[no-untyped-def]
    """Compute the precision of the logits; the direction that changes no share gets the mean precision.

    With `is_outer`, the part of the rows is the sum of products of their slopes, which is positive definite anywhere,
    and `total` is the weight of the prior. Otherwise it is the observed information, which is exact at the maximum, and
    `total` is the weight of the rows and the prior. `mixed` is what `_expect` returns at `p`, and `parts` becomes the
    probability of each class in each cell, less `p` with `is_outer`.
    """
    k = len(p)
    for c in range(k):
        less = p[c] if is_outer else 0.0
        for e in range(len(w)):
            parts[c, e] = (tile[c, e] * p[c] * (mixed[e] / w[e]) if w[e] > 0 else 0.0) - less
    trace = 0.0
    for c in range(k):
        for d in range(c + 1):
            value = 0.0
            for e in range(len(w)):
                value += w[e] * parts[c, e] * parts[d, e]
            hessian[c, d] = value - total * p[c] * p[d]
        if not is_outer:
            value = 0.0
            for e in range(len(w)):
                value += w[e] * parts[c, e]
            hessian[c, c] -= value
        hessian[c, c] += total * p[c]
        trace += max(hessian[c, c], 0.0)
    trace = max(trace / k, 1e-9)
    for c in range(k):
        hessian[c, c] += 1e-9 * trace
        for d in range(c + 1):
            hessian[c, d] += trace / k
            hessian[d, c] = hessian[c, d]


@njit(cache=True, nogil=True, error_model="numpy")
def _spread(p, w, hessian, size, total, noise, parts, moved, spreads, covariances, bag):  # type: ignore[no-untyped-def]
    """Compute the variance of a bag's parts, and what the sampling of labelled rows adds to it.

    `parts` has the probability of each class in each cell, and `moved` is room for a number of each cell.
    """
    k = len(p)
    jacobian = np.diag(p) - np.outer(p, p)
    reach = jacobian @ np.linalg.inv(hessian)
    covariance = reach @ jacobian
    for c in range(k):
        own = p[c] * (1 - p[c]) / total
        spreads[0, c] = max(covariance[c, c] - own, 1e-4 * own)
    for c in range(k):
        moved[: len(w)] = -size * (reach[c] @ p)
        for d in range(k):
            for e in range(len(w)):
                moved[e] += size * reach[c, d] * parts[d, e]
        spreads[1, c] = 0.0
        for d in range(k):
            spreads[1, c] += p[d] * p[d] * noise[d] * _variance(moved, w, parts[d])
    if len(covariances):
        covariances[bag] = covariance - jacobian / total


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def _variance(values, w, part):  # type: ignore[no-untyped-def]
    """Return the variance of values of cells over the rows of one class."""
    mass, mean, square = 0.0, 0.0, 0.0
    for e in range(len(w)):
        mass += w[e] * part[e]
        mean += w[e] * part[e] * values[e]
    if not mass > 1e-12:
        return 0.0
    mean /= mass
    for e in range(len(w)):
        square += w[e] * part[e] * (values[e] - mean) ** 2
    return square / mass


@njit(cache=True, nogil=True, error_model="numpy")
def find_cells(posteriors, order, floor, first, second, begin, end, out):  # type: ignore[no-untyped-def]
    """Find the cell of each row by its three likeliest classes.

    Parameters
    ----------
    posteriors : (n_rows, n_classes)
    order : (n_classes,)
        Order in which the classes are numbered, and in which ties are broken.
    floor : float
        Smallest posterior.
    first, second : (n_first,), (n_second,)
        Limits of the odds of the first and the second class, and of the second and the third class.
    begin, end : int
        Range of rows, without the last.
    out : (n_rows,)
        Output.
    """
    k = len(order)
    tops, values = np.empty(3, np.int64), np.empty(3)
    for row in range(begin, end):
        values[:], tops[:] = floor / 2, 0
        for c in range(k):
            p = posteriors[row, order[c]]
            if not p >= floor:  # also for NaN
                p = floor
            if p > values[0]:
                values[2], tops[2] = values[1], tops[1]
                values[1], tops[1] = values[0], tops[0]
                values[0], tops[0] = p, c
            elif p > values[1]:
                values[2], tops[2] = values[1], tops[1]
                values[1], tops[1] = p, c
            elif p > values[2]:
                values[2], tops[2] = p, c
        if k == 2:
            odds = values[1] / values[0] if tops[1] == 1 else values[0] / values[1]
            out[row] = np.searchsorted(first, odds, side="right")
            continue
        i = np.searchsorted(first, values[0] / values[1], side="right")
        j = np.searchsorted(second, values[1] / values[2], side="right")
        out[row] = ((tops[0] * k + tops[1]) * (len(first) + 1) + i) * (len(second) + 1) + j
