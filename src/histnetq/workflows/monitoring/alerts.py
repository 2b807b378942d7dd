"""Alerts about class mixes that change, at a stated false alarm rate.

Estimates of chunks without a shift vary for three reasons: rows are drawn at random, the true mix varies from chunk to
chunk, and the mean of the reference is not known exactly. A simulation of all three gives the limits. An estimate
beyond its limits is an alert, and so is a sum of small changes beyond its limit. The alert lasts until later estimates
show that the class is back at its reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from histnetq.errors import InputError
from histnetq.simplex import Floats, Ints

Draw = Callable[[Floats, int, int, np.random.Generator], Floats]

HORIZON = 52  # chunks that the false alarm rate refers to; sums of changes restart after them
FEWEST = 2  # smallest number of chunks of a reference
_LEAST = 0.01  # lowest false alarm rate: the simulation is too small for rarer events
_ALLOWANCE = 0.9  # standard deviations; only the change beyond them adds to the sum
_RETURN = np.log(200)  # a change lasts until chunks are 200 times as likely without it
_POOL = 2000  # simulated estimates for each size
_MOST_ROWS = 1024  # largest simulated chunk; errors of larger chunks shrink as 1 / √n
_DRAWS, _STREAMS = 20_000, 2000  # simulated single chunks, and simulated streams of chunks
_SMOOTH = 0.2  # weight of normal noise in the simulated errors, which extends their tails
_TAIL = 0.975  # quantile that standardises changes on each side
_STEP = np.log(1.02)  # logarithm of the ratio of neighbouring sizes with separate limits
_SPREADS = 80  # grid points for the standard deviation between chunks


@dataclass(frozen=True)
class Alerts:
    """Limits of estimates without a shift, and the alerts.

    Attributes
    ----------
    reference : (n_classes,)
        Mean mix of the chunks in the reference.
    lower, upper : (n_chunks, n_classes)
        Limits of single estimates.
    changed, drifted : (n_chunks, n_classes) of bool
        Whether the estimate is beyond its limits, and whether the sum of the changes so far is beyond its limit.
    lasting : (n_chunks, n_classes) of bool
        Whether a change of an earlier chunk still lasts.
    """

    reference: Floats
    lower: Floats
    upper: Floats
    changed: NDArray[np.bool_]
    drifted: NDArray[np.bool_]
    lasting: NDArray[np.bool_]

    @property
    def alert(self) -> NDArray[np.bool_]:
        """True if the class has an alert for any of the three reasons, (n_chunks, n_classes)."""
        return self.changed | self.drifted | self.lasting


def find_alerts(
    estimates: ArrayLike,
    sizes: ArrayLike,
    is_reference: ArrayLike,
    draw: Draw,
    *,
    false_alarms: float = 0.05,
    random_state: int = 0,
) -> Alerts:
    """Find the chunks whose mix differs from the mix of the reference.

    The probability of one or more alerts in 52 chunks without a shift is at most `false_alarms`. Half of it is for
    single chunks, all at the same level, and half for sums of changes. An alert lasts until chunks show that the class
    is back at its reference. The alerts of a chunk depend on the reference and on earlier chunks, but not on later
    chunks.

    Parameters
    ----------
    estimates : (n_chunks, n_classes)
        Estimated mixes in temporal order.
    sizes : (n_chunks,)
        Numbers of rows.
    is_reference : (n_chunks,) of bool
        Chunks of the reference; at least two.
    draw : callable
        ``draw(mix, size, n_draws, rng)`` → (n_draws, n_classes): estimates of chunks of `size` rows drawn at random
        from a mix.
    false_alarms : float, default=0.05
        Probability of one or more alerts in 52 chunks without a shift.
    random_state : int, default=0
        Seed of the simulation.

    Returns
    -------
    Alerts
        The limits and alerts of all chunks; chunks of the reference have no alerts.

    Examples
    --------
    >>> def draw(mix, size, n_draws, rng):
    ...     return rng.multinomial(size, mix, n_draws) / size
    >>> p = draw([0.5, 0.5], 400, 30, np.random.default_rng(0))
    >>> p[25:] += [0.2, -0.2]
    >>> found = find_alerts(p, np.full(30, 400), np.arange(30) < 20, draw)
    >>> found.changed[:, 0].nonzero()[0].tolist()
    [25, 26, 27, 28, 29]
    """
    p, n, held = np.asarray(estimates, np.float64), np.asarray(sizes, np.float64), np.asarray(is_reference, bool)
    level = check_rate(false_alarms)
    if held.sum() < FEWEST:
        raise ValueError(f"reference: expected at least {FEWEST} chunks with rows, got {held.sum()}; widen it.")
    two = p.shape[1] == 2  # the second share is 1 minus the first
    columns = np.array([0]) if two else np.arange(p.shape[1])
    null = Unshifted.fit(p[held], n[held], columns, draw, random_state)
    steps, place = np.unique(_step(n), return_inverse=True)
    limits = [null.limits(float(np.exp(step * _STEP)), level) for step in steps.tolist()]
    up, down, reach = (np.array(part)[place] for part in zip(*limits, strict=True))
    octaves, place = np.unique(np.ceil(np.log2(n)), return_inverse=True)
    drift = np.array([null.drift_limit(float(2**octave), level) for octave in octaves.tolist()])[place]
    expected = null.expected(n)
    lower, upper = expected - reach[:, None] * down, expected + reach[:, None] * up
    change = p[:, columns] - expected
    sided = np.stack([change / up, -change / down], axis=1)  # in standard deviations: (n_chunks, 2, n_columns)
    beyond = (sided > reach[:, None, None]) & ~held[:, None, None]
    changed = beyond.any(1)
    drifted, lasting = np.zeros_like(changed), np.zeros_like(changed)
    drifted[~held], lasting[~held] = _follow(sided[~held], beyond[~held], drift[~held])
    mean = null.mean
    if two:
        mean = np.concatenate([mean, 1 - mean])
        lower, upper = np.hstack([lower, 1 - upper]), np.hstack([upper, 1 - lower])
        changed, drifted, lasting = (np.repeat(part, 2, axis=1) for part in (changed, drifted, lasting))
    return Alerts(mean, np.clip(lower, 0, 1), np.clip(upper, 0, 1), changed, drifted, lasting)


def check_rate(false_alarms: float) -> float:
    """Refuse a false alarm rate that is not a probability, or is too small for the simulation."""
    if not isinstance(false_alarms, Real) or not _LEAST <= float(false_alarms) < 1:
        raise InputError(
            "false_alarms", f"a number from {_LEAST} to below 1", repr(false_alarms), "give one such as 0.05"
        )
    return float(false_alarms)


class Noise:
    """Simulated errors of estimates, for chunks drawn from one mix whose sizes are powers of 2."""

    def __init__(self, draw: Draw, mix: Floats, columns: Ints, random_state: int) -> None:
        self.draw, self.mix, self.columns, self.random_state = draw, mix, columns, random_state
        self._known: dict[int, tuple[Floats, Floats]] = {}

    def errors(self, size: float) -> Floats:
        """(n_pool, n_columns): simulated errors minus their mean."""
        octave = _octave(size)
        return self._simulated(octave)[1] * np.sqrt(2**octave / size)

    def bias(self, size: float) -> Floats:
        """(n_columns,): mean of the estimates minus the mix."""
        return self._simulated(_octave(size))[0]

    def variance(self, size: float) -> Floats:
        """(n_columns,): variance of the errors, at least the square of one row's share."""
        return np.maximum(self.errors(size).var(0), size**-2.0)

    def _simulated(self, octave: int) -> tuple[Floats, Floats]:
        if octave not in self._known:
            rng = np.random.default_rng([self.random_state, octave])
            found = self.draw(self.mix, 2**octave, _POOL, rng)[:, self.columns]
            self._known[octave] = found.mean(0) - self.mix[self.columns], found - found.mean(0)
        return self._known[octave]


@dataclass(frozen=True)
class Unshifted:
    """Distribution of estimates of chunks without a shift, learned from a reference.

    The true mix of a chunk varies around the mean with an unknown standard deviation, the spread. The estimate varies
    around the true mix by `Noise`. A grid of spreads is weighted by the likelihood of the reference and by the prior
    ``1 / (s + spread)``, where *s* is the standard deviation of the noise. For large spreads, this is the prior whose
    predictions of a normal variable have exact levels. A reference of few chunks therefore gives wide limits.

    Attributes
    ----------
    mean : (n_columns,)
        Mean mix.
    spreads, weights : (n_spreads, n_columns)
        Standard deviations between chunks, and their posterior probabilities.
    centers, unsure : (n_spreads, n_columns)
        Mean mix for each spread, and its standard error.
    noise : Noise
        Errors of estimates.
    """

    mean: Floats
    spreads: Floats
    weights: Floats
    centers: Floats
    unsure: Floats
    noise: Noise

    @classmethod
    def fit(cls, estimates: Floats, sizes: Floats, columns: Ints, draw: Draw, random_state: int) -> Unshifted:
        """Learn the distribution from the estimates ``(n_chunks, n_classes)`` of a reference."""
        mix = np.clip(np.average(estimates, axis=0, weights=sizes), 0, 1)
        noise = Noise(draw, mix / mix.sum(), columns, random_state)
        found, place = np.unique(sizes, return_inverse=True)
        own = np.array([noise.variance(size) for size in found.tolist()])[place]
        p = estimates[:, columns] - np.array([noise.bias(size) for size in found.tolist()])[place]
        typical, most = np.sqrt(own.mean(0)), np.sqrt(mix * (1 - mix))[columns]
        wide = np.geomspace(typical / 20, np.maximum(most, 2 * typical), _SPREADS - 1)
        spreads = np.concatenate([np.zeros((1, len(columns))), wide])
        variances = own + spreads[:, None] ** 2
        precision = (1 / variances).sum(1)
        centers = (p / variances).sum(1) / precision
        misfit = ((p - centers[:, None]) ** 2 / variances + np.log(variances)).sum(1) + np.log(precision)
        prior = np.diff(spreads, axis=0, append=spreads[-1:]) / (typical + spreads)
        weights = np.exp((misfit.min(0) - misfit) / 2) * prior
        weights /= weights.sum(0)
        return cls((weights * centers).sum(0), spreads, weights, centers, precision**-0.5, noise)

    def expected(self, sizes: Floats) -> Floats:
        """(n_chunks, n_columns): mean estimates of chunks of these sizes."""
        octaves, place = np.unique([_octave(size) for size in sizes.tolist()], return_inverse=True)
        return self.mean + np.array([self.noise.bias(2.0**octave) for octave in octaves.tolist()])[place]

    def changes(self, size: float, n_streams: int, n_chunks: int, rng: np.random.Generator) -> Floats:
        """(n_streams, n_chunks, n_columns): simulated changes of chunks of this size; each stream has one reference."""
        column, drawn = np.arange(len(self.mean)), rng.random((len(self.mean), n_streams))
        below = np.cumsum(self.weights, axis=0).T
        chosen = np.stack([np.searchsorted(row, at) for row, at in zip(below, drawn, strict=True)], axis=1)
        chosen = np.minimum(chosen, _SPREADS - 1)
        off = self.centers[chosen, column] - self.mean + self.unsure[chosen, column] * rng.normal(size=chosen.shape)
        mixes = _varied_mixes(self.mean, self.spreads[chosen, column], n_chunks, rng)
        pool, variance = self.noise.errors(size), self.noise.variance(size)
        errors = pool[rng.integers(len(pool), size=(n_streams, n_chunks))]
        normal = rng.normal(size=errors.shape) * np.sqrt(variance)
        errors = np.sqrt(1 - _SMOOTH**2) * errors + _SMOOTH * normal
        # The variance of drawing rows, p (1 − p) / n, is larger for mixes closer to one half.
        share = np.clip(self.mean + mixes, 0, 1)
        more = (share * (1 - share) - self.mean * (1 - self.mean)) / (size * variance)
        return off[:, None] + mixes + np.sqrt(np.maximum(1 + more, 0)) * errors

    def limits(self, size: float, level: float) -> tuple[Floats, Floats, float]:
        """Return scales of changes up and down, and the factor that makes limits of them for chunks of this size.

        Any of 52 chunks is beyond these limits with a probability of half the level.
        """
        rng = np.random.default_rng([self.noise.random_state, round(1000 * size), 1])
        changes = self.changes(size, _DRAWS, 1, rng)
        up, down = _scales(changes, size)
        farthest = np.maximum(changes / up, -changes / down).max((1, 2))
        return up, down, float(np.quantile(farthest, 1 - level / 2 / HORIZON))

    def drift_limit(self, size: float, level: float) -> float:
        """Return the limit that sums of changes of 52 chunks of this size exceed with half the level's probability."""
        rng = np.random.default_rng([self.noise.random_state, round(1000 * size), 2])
        changes = self.changes(size, _STREAMS, HORIZON, rng)
        up, down = _scales(changes, size)
        highest = np.zeros(_STREAMS)
        for sided in (changes / up, -changes / down):
            total = np.cumsum(sided - _ALLOWANCE, axis=1)
            before = np.minimum.accumulate(np.concatenate([np.zeros_like(total[:, :1]), total[:, :-1]], axis=1), axis=1)
            highest = np.maximum(highest, (total - before).max((1, 2)))
        return float(np.quantile(highest, 1 - level / 2))


def _scales(changes: Floats, size: float) -> tuple[Floats, Floats]:
    """(n_columns,) each: standard deviations of changes up and down, at least the share of half a row."""
    ends = np.quantile(changes, [1 - _TAIL, _TAIL], axis=(0, 1)) / ndtri(_TAIL)
    return np.maximum(ends[1], 0.5 / size), np.maximum(-ends[0], 0.5 / size)


def _varied_mixes(mean: Floats, spreads: Floats, n_chunks: int, rng: np.random.Generator) -> Floats:
    """(n_streams, n_chunks, n_columns): deviations of mixes from the mean, with the skewness of beta distributions."""
    most = np.maximum(mean * (1 - mean), 1e-9)  # largest possible variance of a mix
    part = np.minimum(spreads**2 / most, 1)
    skewness = np.clip(2 * (1 - 2 * mean) * np.sqrt(part / most) / (1 + part), -2, 2)
    normal = rng.normal(size=(len(spreads), n_chunks, len(mean)))
    return spreads[:, None] * (normal + skewness[:, None] / 6 * (normal**2 - 1))


def _follow(sided: Floats, beyond: NDArray[np.bool_], limits: Floats) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether the sum of changes is beyond the limit of a chunk, and whether an earlier change still lasts.

    `sided` (n_chunks, 2, n_classes) has the changes up and down, and `beyond` whether they are beyond their own limits.
    Sums are cut at the limit, so that they fall as soon as the changes end. A change ends when its size, which is the
    mean since it began, is a much less likely explanation of the chunks than no change.
    """
    drifted, lasting = np.zeros((2, len(sided), sided.shape[2]), bool)
    sums, summed, size, meant, against = np.zeros((5, *sided.shape[1:]))
    lasts = np.zeros(sums.shape, bool)
    for t, (z, limit) in enumerate(zip(sided, limits.tolist(), strict=True)):
        sums = np.maximum((0.0 if t % HORIZON == 0 else sums) + z - _ALLOWANCE, 0)
        summed = np.where(sums > 0, summed + 1, 0)  # chunks that the sum consists of
        found = sums > limit
        # The logarithm of how much more likely the chunks are without the change than with it.
        against = np.where(lasts, np.maximum(against + size**2 / 2 - size * z, 0), 0)
        ends = lasts & (against > _RETURN) & ~found & ~beyond[t]
        lasts &= ~ends
        drifted[t], lasting[t] = found.any(0), lasts.any(0)
        begins = (found | beyond[t]) & ~lasts
        meant = np.where(begins, np.where(beyond[t], 1, summed), meant + (against == 0))
        mean = np.where(against == 0, size + (z - size) / np.maximum(meant, 1), size)
        drift = _ALLOWANCE + sums / np.maximum(summed, 1)
        size = np.maximum(np.where(begins, np.where(beyond[t], z, drift), mean), _ALLOWANCE)
        lasts |= begins
        sums = np.where(ends, 0, np.minimum(sums, limit))
    return drifted, lasting


def _step(sizes: Floats) -> Ints:
    """(n_chunks,): number of the largest size with separate limits that is not above each size."""
    return np.floor(np.log(sizes) / _STEP + 1e-9).astype(np.int64)


def _octave(size: float) -> int:
    """Return the power of 2 nearest to a size, at most the largest simulated size."""
    return int(min(max(round(np.log2(size)), 0), np.log2(_MOST_ROWS)))
