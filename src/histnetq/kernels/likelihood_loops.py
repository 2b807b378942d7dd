"""The loops of the likelihood kernels, compiled by numba; they work on bags or rows from `start` to `stop`.

Bags are maximised one at a time. A few steps of expectation maximisation, which never fail, are followed by Newton
steps on the classes that are present. About five of these reach machine precision, where expectation maximisation would
take thousands. A Newton step minimises its quadratic model subject to p ≥ 0, which finds the classes that are absent.

The rows of a bag are contiguous in a tile, class by class, so that loops over them are vectorised. A bag that fits into
one tile is gathered once.

Divisions follow numpy: invalid likelihoods give NaN instead of an arithmetic error.
"""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import math

import numpy as np

from histnetq.kernels.jit import njit

_TILE = 1 << 17  # numbers in a tile
_CHUNK = 504  # rows whose products are summed while they are in the cache
_WARM = 4  # steps of expectation maximisation before the first Newton step
_STEPS = 100  # largest number of steps; rounding ends the iterations much earlier
_SWEEPS = 10  # sweeps of coordinate descent
_STEP = 1e-12  # shorter Newton steps are not taken
_ABSENT = 1e-12  # prevalence, per unit of slope, that counts as 0; also the slope below which a class stays absent
_FLAT = 1e-15  # smaller slopes are rounding errors
_FAST = {"reassoc", "contract"}


@njit(cache=True, nogil=True, error_model="numpy")
def maximise_bags(start, stop, likelihoods, index, offsets, weights, weighted, totals, prior, out, curvature):
    n_classes = likelihoods.shape[1]
    tile, scaled, bends = _room(n_classes)
    for bag in range(start, stop):
        rows, share = _present(index, weights, weighted, totals[bag], offsets[bag], offsets[bag + 1])
        p, floor, mixed = out[bag], prior / totals[bag], np.empty(len(rows))
        p[:] = 1.0 / n_classes
        if len(rows):
            _gather(likelihoods, rows, 0, tile)
            _climb(likelihoods, rows, share, floor, tile, scaled, bends, p, mixed)
        if len(curvature):
            chosen, _, _ = _choose(p, np.zeros(n_classes), floor)
            _bends(likelihoods, rows, share, floor, tile, p, mixed, chosen, scaled, bends)
            for a in range(len(chosen)):
                for b in range(len(chosen)):
                    curvature[bag, chosen[a], chosen[b]] = bends[a, b]


@njit(cache=True, nogil=True)
def _room(n_classes):
    """Allocate a tile, and arrays for the sums of products of classes, four classes at a time."""
    # Rows are an odd number of cache lines apart, so that equal positions of all classes use different cache sets.
    width = max(_CHUNK, _TILE // n_classes // 16 * 16 + 8)
    n = (n_classes + 3) // 4 * 4
    return np.empty((n_classes, width)), np.zeros((n, _CHUNK)), np.empty((n, n))


@njit(cache=True, nogil=True, error_model="numpy")
def _present(index, weights, weighted, total, begin, end):
    """Return the rows of the entries with positive weight, and their share of the total."""
    if not weighted:
        return index[begin:end], np.full(end - begin, weights[0] / total)
    kept = begin + np.flatnonzero(weights[begin:end] > 0)
    return index[kept], weights[kept] / total


@njit(cache=True, nogil=True)
def _climb(likelihoods, rows, share, floor, tile, scaled, bends, p, mixed):
    """Move p to the maximum, and set `mixed` to the likelihood of each row there."""
    n_classes, moved = len(p), np.empty(len(rows))
    slopes, new, step = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    _mix(likelihoods, rows, tile, p, mixed)
    size, last = np.inf, 1.0
    for count in range(_STEPS):
        residual = _slopes(likelihoods, rows, share, floor, tile, p, mixed, slopes)
        if math.isnan(residual):
            p[:] = np.nan
        # The next step is shorter than the last one by the same factor as the slopes.
        if not residual > _FLAT or size * residual < _STEP * last or (size < 1e-6 and residual > 0.5 * last):
            return
        if count < _WARM:
            p *= slopes
            _mix(likelihoods, rows, tile, p, mixed)
            continue
        chosen, falls, low = _choose(p, slopes, floor)
        k = len(chosen)
        _bends(likelihoods, rows, share, floor, tile, p, mixed, chosen, scaled, bends)
        for a in range(k):
            # All prevalences sum to one, so a penalty on the sum only improves the conditioning of the system.
            bends[a, :k] += 1.0
            # Damping in proportion to the slopes keeps the rate of convergence, and equal classes stay equal.
            bends[a, a] *= 1.0 + max(1e-14, 1e-3 * residual)
        _minimise(bends[:k, :k], falls, low, step)
        last = residual
        size = _move(likelihoods, rows, share, floor, tile, p, chosen, step, mixed, moved, new)


@njit(cache=True, nogil=True)
def _choose(p, slopes, floor):
    """Return the classes that are or should be present, 1 minus their slopes, and how far their p may fall."""
    chosen = np.flatnonzero((p > 0.0) | (slopes > 1.0 + _ABSENT))
    # With a prior no class vanishes, so a step removes at most 90 % of its prevalence.
    return chosen, 1.0 - slopes[chosen], p[chosen] * (-0.9 if floor > 0.0 else -1.0)


@njit(cache=True, nogil=True)
def _gather(likelihoods, rows, begin, tile):
    """Fill the tile with rows from `begin` on, and return their number."""
    n = min(tile.shape[1], len(rows) - begin)
    for i in range(n):
        row = rows[begin + i]
        for c in range(len(tile)):
            tile[c, i] = likelihoods[row, c]
    return n


@njit(cache=True, nogil=True)
def _turn(likelihoods, rows, begin, tile):
    """Make sure that the rows from `begin` on are in the tile, and return their number."""
    return len(rows) if len(rows) <= tile.shape[1] else _gather(likelihoods, rows, begin, tile)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _mix(likelihoods, rows, tile, p, mixed):
    """Compute the likelihood of each row under the mixture p of the classes."""
    for begin in range(0, len(rows), tile.shape[1]):
        n = _turn(likelihoods, rows, begin, tile)
        part = mixed[begin : begin + n]
        part[:] = 0.0
        for c in range(len(p)):
            if p[c] != 0.0:
                for i in range(n):
                    part[i] += tile[c, i] * p[c]


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _slopes(likelihoods, rows, share, floor, tile, p, mixed, slopes):
    """Compute the slopes of the mean log-likelihood, and return the residual of the condition that they are 1.

    A class with almost no prevalence and a slope below 1 is set to 0.
    """
    slopes[:] = 0.0
    scale = np.empty(min(len(rows), tile.shape[1]))
    for begin in range(0, len(rows), tile.shape[1]):
        n = _turn(likelihoods, rows, begin, tile)
        for i in range(n):
            scale[i] = share[begin + i] / mixed[begin + i]
        for c in range(len(p)):
            total = 0.0
            for i in range(n):
                total += tile[c, i] * scale[i]
            slopes[c] += total
    residual = 0.0
    for c in range(len(p)):
        if floor > 0.0:
            slopes[c] += floor / p[c]
        elif p[c] <= _ABSENT * (1.0 - slopes[c]):
            p[c] = 0.0
        if p[c] > 0.0 or slopes[c] > 1.0 + _ABSENT:
            residual = max(residual, abs(slopes[c] - 1.0) * (math.sqrt(p[c]) if p[c] > 0.0 else 1.0))
    return np.nan if math.isnan(slopes.sum()) else residual


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _bends(likelihoods, rows, share, floor, tile, p, mixed, chosen, scaled, bends):
    """Compute minus the second derivatives of the mean log-likelihood, for the chosen classes."""
    k = len(chosen)
    bends[:] = 0.0
    scale = np.empty(_CHUNK)
    for begin in range(0, len(rows), tile.shape[1]):
        n = _turn(likelihoods, rows, begin, tile)
        for first in range(0, n, _CHUNK):
            size = min(_CHUNK, n - first)
            for i in range(size):
                scale[i] = math.sqrt(share[begin + first + i]) / mixed[begin + first + i]
            for a in range(k):
                source, target = tile[chosen[a], first : first + size], scaled[a]
                for i in range(size):
                    target[i] = source[i] * scale[i]
            _add_products(scaled, k, size, bends)
    for a in range(k):
        if floor > 0.0:
            bends[a, a] += floor / p[chosen[a]] ** 2
        for b in range(a):
            bends[b, a] = bends[a, b]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_products(x, k, n, out):
    """Add the products of all pairs of k rows to the lower half, four by two rows at a time to save memory reads."""
    for a in range(0, k, 4):
        for b in range(0, a + 4, 2):
            s00, s10, s20, s30 = 0.0, 0.0, 0.0, 0.0
            s01, s11, s21, s31 = 0.0, 0.0, 0.0, 0.0
            for i in range(n):
                s00 += x[a, i] * x[b, i]
                s10 += x[a + 1, i] * x[b, i]
                s20 += x[a + 2, i] * x[b, i]
                s30 += x[a + 3, i] * x[b, i]
                s01 += x[a, i] * x[b + 1, i]
                s11 += x[a + 1, i] * x[b + 1, i]
                s21 += x[a + 2, i] * x[b + 1, i]
                s31 += x[a + 3, i] * x[b + 1, i]
            out[a, b] += s00
            out[a + 1, b] += s10
            out[a + 2, b] += s20
            out[a + 3, b] += s30
            out[a, b + 1] += s01
            out[a + 1, b + 1] += s11
            out[a + 2, b + 1] += s21
            out[a + 3, b + 1] += s31


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _minimise(bends, falls, low, step):
    """Compute the step d ≥ low, with low ≤ 0, that approximately minimises ``falls · d + ½ d · bends d``.

    If the solution of one linear system is within the bounds, it is the step. Otherwise sweeps of coordinate descent
    find the active bounds, and a system on the remaining classes is solved. `falls` becomes the slopes at the step.
    """
    k = len(falls)
    step[:k] = 0.0
    if _approach(bends, falls, low, step):
        return
    for _ in range(_SWEEPS):
        for a in range(k):
            change = max(low[a], step[a] - falls[a] / bends[a, a]) - step[a]
            step[a] += change
            for b in range(k):
                falls[b] += bends[a, b] * change
    _approach(bends, falls, low, step)


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _approach(bends, falls, low, step):
    """Go to the minimum over the classes without an active bound, or to the first bound; return if it was reached."""
    inner = np.flatnonzero((step[: len(falls)] > low) | (falls < 0.0))
    way = np.empty(len(inner))
    if not _solve(bends, falls, inner, way):
        return False
    part = 1.0
    for x, a in enumerate(inner):
        if step[a] + way[x] < low[a]:
            part = min(part, (low[a] - step[a]) / way[x])
    for x, a in enumerate(inner):
        change = max(low[a], step[a] + part * way[x]) - step[a]
        step[a] += change
        for b in range(len(falls)):
            falls[b] += bends[a, b] * change
    return part == 1.0


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _solve(bends, falls, inner, way):
    """Compute minus ``bends⁻¹ falls`` on the inner classes by a Cholesky factorisation; return False if it fails."""
    k = len(inner)
    factor, scale = np.empty((k, k)), np.empty(k)
    for i in range(k):
        scale[i] = 1.0 / math.sqrt(bends[inner[i], inner[i]])
        way[i] = -falls[inner[i]] * scale[i]
        for j in range(i + 1):
            left = bends[inner[i], inner[j]] * scale[i] * scale[j]
            for q in range(j):
                left -= factor[i, q] * factor[j, q]
            if j < i:
                factor[i, j] = left / factor[j, j]
            elif left > 1e-15:
                factor[i, i] = math.sqrt(left)
            else:
                return False
    for i in range(k):
        for q in range(i):
            way[i] -= factor[i, q] * way[q]
        way[i] /= factor[i, i]
    for i in range(k - 1, -1, -1):
        for q in range(i + 1, k):
            way[i] -= factor[q, i] * way[q]
        way[i] /= factor[i, i]
    way *= scale
    return True


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _move(likelihoods, rows, share, floor, tile, p, chosen, step, mixed, moved, new):
    """Move p by the step, halved until the likelihood does not decrease.

    Return the largest change of p; 1 if it does not predict the next step, 0 if no part of the step is possible.
    """
    part = 1.0
    for _ in range(40):
        new[:] = 0.0
        total = 0.0
        for a in range(len(chosen)):
            new[chosen[a]] = max(0.0, p[chosen[a]] + part * step[a])
            total += new[chosen[a]]
        new /= total
        _mix(likelihoods, rows, tile, new, moved)
        if _rise(share, mixed, moved, floor, p, new) >= -_FLAT:
            size, whole = 0.0, part == 1.0
            for c in range(len(p)):
                size = max(size, abs(new[c] - p[c]) / (p[c] if floor > 0.0 else 1.0))
                whole = whole and (new[c] > 0.0 or p[c] == 0.0)
            p[:], mixed[:] = new, moved
            return size if whole else 1.0
        part *= 0.5
    return 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _rise(share, mixed, moved, floor, p, new):
    """Return the increase of the mean log-likelihood from the first mixture to the second."""
    rise = 0.0
    for i in range(len(share)):
        if not moved[i] > 0.0:
            return -np.inf
        rise += share[i] * math.log(moved[i] / mixed[i])
    if floor > 0.0:
        for c in range(len(p)):
            rise += floor * math.log(new[c] / p[c])
    return rise


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def scatter_rows(start, stop, likelihoods, p, pull, index, offsets, weights, weighted, out, means):
    # A task owns some rows and reads all entries: bags share rows, and no two tasks may write the same element.
    n_classes = likelihoods.shape[1]
    joint = np.empty(n_classes)
    for bag in range(len(p)):
        for e in range(offsets[bag], offsets[bag + 1]):
            row = index[e]
            if row < start or row >= stop:
                continue
            mixed, mean = 0.0, 0.0
            for c in range(n_classes):
                joint[c] = p[bag, c] * likelihoods[row, c]
                mixed += joint[c]
                mean += joint[c] * pull[bag, c]
            if mixed == 0.0:
                continue
            mean /= mixed
            means[e] = mean
            w = weights[e] if weighted else weights[0]
            if w > 0:
                for c in range(n_classes):
                    out[row, c] += w / mixed * joint[c] * (pull[bag, c] - mean)
