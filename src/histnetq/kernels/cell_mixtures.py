"""The mixture of classes that explains the counts of a bag in cells, under a Dirichlet prior, compiled."""

from __future__ import annotations

import numpy as np

from histnetq.kernels.jit import njit

_FEWEST, _MOST_STEPS, _MOST_NEWTON = 4, 60, 12  # steps of EM, and then steps of Newton's method
_CLOSE = 1e-6  # largest change of a share at the end


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
    p, new, trial = np.empty(k), np.empty(k), np.empty(k)
    hessian, gradient = np.empty((k, k)), np.empty(k)
    for bag in range(first, last):
        begin, end = offsets[bag], offsets[bag + 1]
        alpha = prior[bag]
        size, weight_of_prior = 0.0, alpha.sum()
        for e in range(begin, end):
            size += weights[e]
        total = size + weight_of_prior
        for c in range(k):
            p[c] = alpha[c] / weight_of_prior
        for level in range(n_levels):
            table = emissions[level]
            done = False
            for step in range(_MOST_STEPS):
                _expect(table, p, cells, weights, begin, end, new)
                change = 0.0
                for c in range(k):
                    after = (new[c] + alpha[c]) / total
                    change = max(change, abs(after - p[c]))
                    p[c] = after
                if step >= _FEWEST and change < _CLOSE:
                    done = True
                    break
            if not done:
                _expect(table, p, cells, weights, begin, end, new)
                value = _fit(table, p, cells, weights, begin, end)
                for c in range(k):
                    value += alpha[c] * np.log(p[c])
                for _ in range(_MOST_NEWTON):
                    _curvature(table, p, cells, weights, begin, end, weight_of_prior, True, hessian)
                    for c in range(k):
                        gradient[c] = new[c] + alpha[c] - total * p[c]
                    move = np.linalg.solve(hessian, gradient)
                    length, improved = 1.0, False
                    for _ in range(6):
                        top = -np.inf
                        for c in range(k):
                            trial[c] = np.log(p[c]) + length * max(-4.0, min(4.0, move[c]))
                            top = max(top, trial[c])
                        norm = 0.0
                        for c in range(k):
                            trial[c] = np.exp(trial[c] - top)
                            norm += trial[c]
                        for c in range(k):
                            trial[c] = max(trial[c] / norm, 1e-300)
                        _expect(table, trial, cells, weights, begin, end, gradient)
                        found = _fit(table, trial, cells, weights, begin, end)
                        for c in range(k):
                            found += alpha[c] * np.log(trial[c])
                        if found >= value:
                            improved = True
                            break
                        length /= 4
                    if not improved:
                        break
                    change = 0.0
                    for c in range(k):
                        change = max(change, abs(trial[c] - p[c]))
                        p[c], new[c] = trial[c], gradient[c]
                    value = found
                    if change < _CLOSE:
                        break
            _expect(table, p, cells, weights, begin, end, new)
            for c in range(k):
                shares[bag, level, c] = p[c]
                expected[bag, level, c] = new[c] / size
            if level == middle:
                _curvature(table, p, cells, weights, begin, end, total, False, hessian)
                _spread(
                    table, p, cells, weights, begin, end, hessian, size, total, noise, spreads[bag], covariances, bag
                )


@njit(cache=True, nogil=True, error_model="numpy")
def _expect(table, p, cells, weights, begin, end, expected):  # type: ignore[no-untyped-def]
    """Compute the expected number of rows of each class."""
    k = len(p)
    expected[:] = 0.0
    for e in range(begin, end):
        row = table[cells[e]]
        total = 0.0
        for c in range(k):
            total += row[c] * p[c]
        factor = weights[e] / total
        for c in range(k):
            expected[c] += factor * row[c]
    for c in range(k):
        expected[c] *= p[c]


@njit(cache=True, nogil=True, error_model="numpy")
def _fit(table, p, cells, weights, begin, end):  # type: ignore[no-untyped-def]
    """Return the log-likelihood of a mixture."""
    value = 0.0
    for e in range(begin, end):
        total = 0.0
        for c in range(len(p)):
            total += table[cells[e], c] * p[c]
        value += weights[e] * np.log(total)
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def _curvature(table, p, cells, weights, begin, end, total, is_outer, hessian):  # type: ignore[no-untyped-def]
    """Compute the precision of the logits; the direction that changes no share gets the mean precision.

    With `is_outer`, the part of the rows is the sum of products of their slopes, which is positive definite anywhere,
    and `total` is the weight of the prior. Otherwise it is the observed information, which is exact at the maximum, and
    `total` is the weight of the rows and the prior.
    """
    k = len(p)
    hessian[:] = 0.0
    part = np.empty(k)
    for e in range(begin, end):
        row = table[cells[e]]
        norm = 0.0
        for c in range(k):
            part[c] = row[c] * p[c]
            norm += part[c]
        for c in range(k):
            part[c] = part[c] / norm - (p[c] if is_outer else 0.0)
        for c in range(k):
            scaled = part[c] * weights[e]
            for d in range(c + 1):
                hessian[c, d] += scaled * part[d]
            if not is_outer:
                hessian[c, c] -= scaled
    trace = 0.0
    for c in range(k):
        hessian[c, c] += total * p[c] * (1 - p[c])
        for d in range(c):
            hessian[c, d] -= total * p[c] * p[d]
        trace += max(hessian[c, c], 0.0)
    trace = max(trace / k, 1e-9)
    for c in range(k):
        hessian[c, c] += 1e-9 * trace
        for d in range(c + 1):
            hessian[c, d] += trace / k
            hessian[d, c] = hessian[c, d]


@njit(cache=True, nogil=True, error_model="numpy")
def _spread(  # type: ignore[no-untyped-def]
    table, p, cells, weights, begin, end, hessian, size, total, noise, spreads, covariances, bag
):
    """Compute the variance of a bag's parts, and what the sampling of labelled rows adds to it."""
    k = len(p)
    inverse = np.linalg.inv(hessian)
    jacobian = np.empty((k, k))
    for c in range(k):
        for d in range(k):
            jacobian[c, d] = (p[c] if c == d else 0.0) - p[c] * p[d]
    reach = jacobian @ inverse
    covariance = reach @ jacobian
    for c in range(k):
        own = p[c] * (1 - p[c]) / total
        spreads[0, c] = max(covariance[c, c] - own, 1e-4 * own)
    squares, means, mass = np.zeros((k, k)), np.zeros((k, k)), np.zeros(k)
    part, moved = np.empty(k), np.empty(k)
    for e in range(begin, end):
        row = table[cells[e]]
        norm = 0.0
        for c in range(k):
            part[c] = row[c] * p[c]
            norm += part[c]
        for c in range(k):
            part[c] /= norm
        for c in range(k):
            value = 0.0
            for d in range(k):
                value += reach[c, d] * (part[d] - p[d])
            moved[c] = value * size
        for d in range(k):
            w = weights[e] * part[d]
            if w > 1e-12:
                mass[d] += w
                for c in range(k):
                    means[d, c] += w * moved[c]
                    squares[d, c] += w * moved[c] * moved[c]
    for c in range(k):
        value = 0.0
        for d in range(k):
            if mass[d] > 0:
                mean = means[d, c] / mass[d]
                value += p[d] * p[d] * noise[d] * max(squares[d, c] / mass[d] - mean * mean, 0.0)
        spreads[1, c] = value
    if len(covariances):
        for c in range(k):
            for d in range(k):
                covariances[bag, c, d] = covariance[c, d] - ((p[c] if c == d else 0.0) - p[c] * p[d]) / total


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
        Limits of the log-odds of the first and the second class, and of the second and the third class.
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
        a, b = np.log(values[0]), np.log(values[1])
        if k == 2:
            odds = b - a if tops[1] == 1 else a - b
            out[row] = np.searchsorted(first, odds, side="right")
            continue
        i, j = np.searchsorted(first, a - b, side="right"), np.searchsorted(second, b - np.log(values[2]), side="right")
        out[row] = ((tops[0] * k + tops[1]) * (len(first) + 1) + i) * (len(second) + 1) + j
