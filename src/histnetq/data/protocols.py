"""Sampling protocols: labelled rows, or bags of known proportions, and a seed → new `Bags` on the same pool.

Every protocol has ``draw(source, n_bags, random_state) → Bags`` and an attribute `draws_from` that says what `source`
is: ``"rows"`` (a `Bags` whose pool rows are labelled; all rows in its bags are drawn from), ``"bags"`` (a `Bags` with
prevalences) or ``"both"`` (a pair of the two on one pool). They are frozen dataclasses and hold no random state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags, ranges
from histnetq.data.checks import take_dense
from histnetq.simplex import apportion, count_labels, draw_uniform

__all__ = ["APP", "NPP", "Combined", "CovariateShift", "Dirichlet", "Mixer", "Protocol"]

Ints = NDArray[np.int64]
Size = int | tuple[int, int] | None
_DEFAULT_SIZE = 250
_TILT_CHUNK = 1 << 24  # bags × rows handled at a time under covariate shift


class Protocol:
    """Base of the protocols: where new bags come from."""

    draws_from: ClassVar[str] = "rows"

    def draw(self, source: Any, n_bags: int, random_state: Any = None) -> Bags:
        """Draw `n_bags` bags; the same seed gives the same bags."""
        raise NotImplementedError


@dataclass(frozen=True)
class APP(Protocol):
    """Artificial prevalences: proportions uniform on the simplex, rows drawn with replacement within each class.

    The drawn counts equal the declared prevalences exactly.

    Parameters
    ----------
    bag_size : int, (low, high) or None
        Rows per bag, or a range to draw sizes from. None takes the sizes of the source's bags at random if it has
        several, else 250.

    References
    ----------
    Forman (2005); Smith & Tromble (2004) for the uniform draw.

    Examples
    --------
    >>> source = Bags.from_labels(np.zeros((6, 1)), list("aabbbb"))
    >>> APP(bag_size=10).draw(source, 3, random_state=0)
    Bags(n_bags=3, sizes=10, rows=(6, 1) float64, classes=['a', 'b'], prevalences, labels)
    """

    bag_size: Size = None

    def draw(self, source: Bags, n_bags: int, random_state: Any = None) -> Bags:
        rng = np.random.default_rng(random_state)
        pool = _LabelledRows(source)
        sizes = _draw_sizes(self.bag_size, source, n_bags, rng)
        return pool.draw(self._prevalences(n_bags, len(pool.present), rng), sizes, rng)

    def _prevalences(self, n_bags: int, n_classes: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return draw_uniform(n_bags, n_classes, rng)


@dataclass(frozen=True)
class Dirichlet(APP):
    """Like `APP` with proportions from a Dirichlet distribution; ``alpha=1`` is APP, larger stays nearer the middle.

    Parameters
    ----------
    alpha : float or sequence of float
        Concentration, one number or one per class that occurs in the source.
    """

    alpha: float | tuple[float, ...] = 1.0

    def _prevalences(self, n_bags: int, n_classes: int, rng: np.random.Generator) -> NDArray[np.float64]:
        alpha = np.asarray(self.alpha, dtype=float)
        if alpha.ndim > 1 or alpha.size not in (1, n_classes) or not ((alpha > 0) & (alpha < np.inf)).all():
            raise ValueError(f"alpha: expected a positive number or one per class ({n_classes}), got {self.alpha!r}.")
        return rng.dirichlet(np.broadcast_to(alpha, n_classes), size=n_bags)


@dataclass(frozen=True)
class NPP(Protocol):
    """Natural prevalences: rows drawn from all labelled rows alike, with replacement; proportions vary by chance."""

    bag_size: Size = None

    def draw(self, source: Bags, n_bags: int, random_state: Any = None) -> Bags:
        rng = np.random.default_rng(random_state)
        pool = _LabelledRows(source)
        sizes = _draw_sizes(self.bag_size, source, n_bags, rng)
        starts = np.zeros(sizes.sum(), np.int64)
        return _labelled_bags(source, pool.pick(starts, np.full_like(starts, len(pool.rows)), rng), sizes)


@dataclass(frozen=True)
class CovariateShift(Protocol):
    """Bags whose inputs shift and whose labels follow: P(X) changes from bag to bag while P(Y|X) stays.

    Each bag has a random direction *u* of feature space; a row *x* is drawn, with replacement, with probability
    proportional to ``exp(strength · ⟨u, z(x)⟩)`` where *z* standardises the projections ⟨u, x⟩ to unit variance.

    Parameters
    ----------
    strength : float
        0 is `NPP`; 1 moves the bag's mean about one standard deviation along its direction.
    """

    bag_size: Size = None
    strength: float = 1.0

    def __post_init__(self) -> None:
        if not np.isfinite(self.strength):
            raise ValueError(f"strength: expected a finite number, got {self.strength!r}.")

    def draw(self, source: Bags, n_bags: int, random_state: Any = None) -> Bags:
        rng = np.random.default_rng(random_state)
        pool = _LabelledRows(source)
        rows = pool.rows
        sizes = _draw_sizes(self.bag_size, source, n_bags, rng)
        x = take_dense(source.rows, rows).reshape(len(rows), -1).astype(np.float64)
        x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1.0)
        drawn = np.empty(sizes.sum(), np.int64)
        ends = np.cumsum(sizes)
        step = max(1, _TILT_CHUNK // len(rows))
        for first in range(0, n_bags, step):
            chunk = slice(first, min(first + step, n_bags))
            cdf = self._cumulative(x, pool.weights, chunk.stop - first, rng)
            span = slice(ends[first] - sizes[first], ends[chunk.stop - 1])
            bag = np.repeat(np.arange(len(cdf)), sizes[chunk])
            # One search in one sorted array: bag b's distribution function occupies the interval (b, b + 1].
            place = np.searchsorted((cdf + np.arange(len(cdf))[:, None]).ravel(), bag + rng.random(len(bag)), "right")
            drawn[span] = np.minimum(place - bag * len(rows), len(rows) - 1)
        return _labelled_bags(source, rows[drawn], sizes)

    def _cumulative(
        self, x: NDArray[np.float64], weights: NDArray | None, n_bags: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        scores = rng.standard_normal((n_bags, x.shape[1])) @ x.T
        scores /= np.maximum(scores.std(1, keepdims=True), 1e-12)
        tilt = np.exp(self.strength * scores - (self.strength * scores).max(1, keepdims=True))
        cdf = np.cumsum(tilt if weights is None else tilt * weights, axis=1)
        return cdf / cdf[:, -1:]


@dataclass(frozen=True)
class Mixer(Protocol):
    """Bag Mixer: random halves of two bags joined, labelled with the size-weighted mean of their proportions.

    Halves are exact and drawn without replacement. With count weights a half is a multivariate hypergeometric draw of
    half the copies; with survey weights it is half of the entries, and halves count by their total weight.

    Parameters
    ----------
    real_proportion : float
        Part of the drawn bags that are bags of the source, unmixed.

    References
    ----------
    Pérez-Mon et al., *Quantification using permutation-invariant networks based on histograms*, section 3.1.

    Examples
    --------
    >>> source = Bags(np.zeros((8, 1)), offsets=[0, 4, 8], prevalences=[[1, 0], [0, 1]])
    >>> Mixer(real_proportion=0).draw(source, 1, random_state=0).prevalences
    array([[0.5, 0.5]])
    """

    real_proportion: float = 0.5
    draws_from: ClassVar[str] = "bags"

    def __post_init__(self) -> None:
        _check_proportion("real_proportion", self.real_proportion)

    def draw(self, source: Bags, n_bags: int, random_state: Any = None) -> Bags:
        _refuse_no_bags(n_bags)
        rng = np.random.default_rng(random_state)
        _refuse_other_sources(source)
        if source.prevalences is None:
            raise ValueError("Mixer: expected bags with prevalences, got none; pass prevalences= when making the bags.")
        n_real = round(self.real_proportion * n_bags)
        real = source[_cycle(len(source), n_real, rng)]
        real = real.drawn(real.index, real.offsets, real.weights, real.prevalences)
        if n_real == n_bags:
            return real
        if len(source) < 2:
            raise ValueError(
                f"Mixer: expected at least 2 bags to mix, got {len(source)}; add bags or use sampler=None."
            )
        mixed = self._mix(source, n_bags - n_real, rng)
        both = Bags.concat([real, mixed]) if n_real else mixed
        return both.drawn(both.index, both.offsets, both.weights, both.prevalences)

    def _mix(self, source: Bags, n_bags: int, rng: np.random.Generator) -> Bags:
        first = rng.integers(len(source), size=n_bags)
        second = (first + rng.integers(1, len(source), size=n_bags)) % len(source)
        pairs = source[np.stack([first, second], axis=1).ravel()]
        halves = _halve(pairs, rng)
        # By counting, not reduceat: the smaller half of a single row is empty and weighs nothing.
        mass = np.bincount(halves.bag_of_entry, halves.weights, minlength=2 * n_bags).reshape(n_bags, 2, 1)
        labels = (mass * pairs.prevalences.reshape(n_bags, 2, -1)).sum(1) / mass.sum(1)  # type: ignore[union-attr]
        return halves.drawn(halves.index, halves.offsets[::2], halves.weights, labels)


@dataclass(frozen=True)
class Combined(Protocol):
    """Some bags from labelled rows, the others from labelled bags.

    Parameters
    ----------
    rows, bags : Protocol
        How to draw from each kind of supervision.
    row_proportion : float
        Part of the bags drawn from labelled rows.
    """

    rows: Protocol = field(default_factory=APP)
    bags: Protocol = field(default_factory=Mixer)
    row_proportion: float = 0.5
    draws_from: ClassVar[str] = "both"

    def __post_init__(self) -> None:
        _check_proportion("row_proportion", self.row_proportion)

    def draw(self, source: tuple[Bags, Bags], n_bags: int, random_state: Any = None) -> Bags:
        _refuse_no_bags(n_bags)
        rng = np.random.default_rng(random_state)
        if not isinstance(source, tuple) or len(source) != 2:
            raise TypeError(
                f"source: expected the pair (labelled rows, bags) on one pool, got {type(source).__name__}; "
                "make it by Bags.concat and slices."
            )
        labelled, bags = source
        n_rows = round(self.row_proportion * n_bags)
        parts: Sequence[Bags] = [
            protocol.draw(part, n, rng)
            for protocol, part, n in ((self.rows, labelled, n_rows), (self.bags, bags, n_bags - n_rows))
            if n > 0
        ]
        both = Bags.concat(parts)
        return both.drawn(both.index, both.offsets, both.weights, both.prevalences)


class _LabelledRows:
    """The labelled rows of a source, grouped by class; a row's chance to be drawn is its weight in the source."""

    def __init__(self, source: Bags) -> None:
        _refuse_other_sources(source)
        if source.labels is None or source.classes is None:
            raise ValueError("source: expected labelled rows, got bags without labels; make them by Bags.from_labels.")
        rows = np.unique(source.index)
        rows = rows[source.labels[rows] >= 0]
        if rows.size == 0:
            raise ValueError("source: none of its rows has a label, expected at least one of each class.")
        labels = source.labels[rows]
        order = np.argsort(labels, kind="stable")
        self.source = source
        self.rows = rows[order]
        self.weights = None
        if source.weights is not None:
            place = np.searchsorted(rows, source.index).clip(max=len(rows) - 1)
            kept = rows[place] == source.index
            total = np.bincount(place[kept], source.weights[kept], minlength=len(rows))
            # The mean over the bags a row is in, so that weights of one are no weights.
            self.weights = (total / np.bincount(place[kept], minlength=len(rows)))[order]
        self.counts = np.bincount(labels, minlength=len(source.classes))
        self.starts = np.cumsum(self.counts) - self.counts
        self.present = np.flatnonzero(self.counts)

    def draw(self, prevalences: NDArray[np.float64], sizes: Ints, rng: np.random.Generator) -> Bags:
        """Bags of these sizes; `prevalences` has a column for each class that is present."""
        counts = np.zeros((len(sizes), len(self.counts)), np.int64)
        counts[:, self.present] = apportion(prevalences, sizes)
        label = np.repeat(np.tile(np.arange(len(self.counts)), len(sizes)), counts.ravel())
        # With replacement: APP may ask for more of a rare class than the pool holds.
        index = self.pick(self.starts[label], self.counts[label], rng)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return self.source.drawn(index, offsets, None, counts / sizes[:, None])

    def pick(self, starts: Ints, counts: Ints, rng: np.random.Generator) -> Ints:
        """One row of each range ``starts[i]`` to ``starts[i] + counts[i]`` of `self.rows`."""
        if self.weights is None:
            return self.rows[starts + rng.integers(counts)]
        reach = np.concatenate([[0.0], np.cumsum(self.weights)])
        low, high = reach[starts], reach[starts + counts]
        place = np.searchsorted(reach, low + rng.random(len(starts)) * (high - low), "right") - 1
        return self.rows[np.clip(place, starts, starts + counts - 1)]


def _refuse_other_sources(source: Any) -> None:
    if not isinstance(source, Bags):
        raise TypeError(f"source: expected Bags, got {type(source).__name__}; make them by Bags.from_labels(X, y).")


def _labelled_bags(source: Bags, index: Ints, sizes: Ints) -> Bags:
    bags = source.drawn(index, np.concatenate([[0], np.cumsum(sizes)]), None, None)
    counts = count_labels(source.labels[index], bags.bag_of_entry, len(sizes), len(source.classes), None)  # type: ignore[index, arg-type]
    bags.prevalences = counts / sizes[:, None]
    return bags


def _draw_sizes(bag_size: Size, source: Bags, n_bags: int, rng: np.random.Generator) -> Ints:
    _refuse_no_bags(n_bags)
    if bag_size is None:
        sizes = np.round(source.sizes).astype(np.int64) if len(source) > 1 else np.array([_DEFAULT_SIZE])
        return np.maximum(rng.choice(sizes, size=n_bags), 1)
    ends = np.atleast_1d(np.asarray(bag_size))
    if ends.dtype.kind not in "iu" or ends.shape not in ((1,), (2,)) or not 1 <= ends[0] <= ends[-1]:
        raise ValueError(f"bag_size: expected a positive whole number or a range (low, high), got {bag_size!r}.")
    return rng.integers(ends[0], ends[-1], size=n_bags, endpoint=True)


def _refuse_no_bags(n_bags: int) -> None:
    if n_bags < 1:
        raise ValueError(f"n_bags: expected at least 1, got {n_bags}.")


def _check_proportion(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: expected a number from 0 to 1, got {value!r}.")


def _cycle(n: int, count: int, rng: np.random.Generator) -> Ints:
    """`count` of `n` numbers in random order, none twice before all were once."""
    rounds = [rng.permutation(n) for _ in range(-(-count // n))]
    return np.concatenate([*rounds, np.empty(0, np.int64)])[:count].astype(np.int64)


def _halve(pairs: Bags, rng: np.random.Generator) -> Bags:
    """A random half of every bag; odd bags are rounded up at even places and down at odd ones."""
    up = np.arange(len(pairs)) % 2 == 0
    if pairs.weights is not None and pairs.weight_kind == "count":
        sizes = pairs.sizes
        if sizes.max() >= 10**9:
            raise ValueError(f"Mixer: expected bags of fewer than 10⁹ copies, got {sizes.max()}; divide the counts.")
        counts = _hypergeometric(pairs.weights, pairs.offsets, (sizes + up) // 2, rng)
        kept = counts > 0
        offsets = np.concatenate([[0], np.cumsum(kept)])[pairs.offsets]
        return pairs.drawn(pairs.index[kept], offsets, counts[kept], None)
    lengths = np.diff(pairs.offsets)
    order = np.argsort(pairs.bag_of_entry + rng.random(len(pairs.index)))
    taken = (lengths + up) // 2
    chosen = np.sort(order[ranges(pairs.offsets[:-1], taken)])
    weights = None if pairs.weights is None else pairs.weights[chosen]
    return pairs.drawn(pairs.index[chosen], np.concatenate([[0], np.cumsum(taken)]), weights, None)


def _hypergeometric(counts: Ints, offsets: Ints, taken: Ints, rng: np.random.Generator) -> Ints:
    """Draw ``taken[i]`` items without replacement from the multiset of each segment, by repeated halving.

    A segment's draw is split between its left and right half by a univariate draw, all segments at once, so that a
    segment of n entries takes log2(n) steps.
    """
    drawn = np.zeros_like(counts)
    total = np.concatenate([[0], np.cumsum(counts)])
    start, stop = offsets[:-1], offsets[1:]
    while True:
        single = stop - start == 1
        drawn[start[single]] = taken[single]
        open_ = ~single & (stop > start)
        if not open_.any():
            return drawn
        start, stop, taken = start[open_], stop[open_], taken[open_]
        middle = (start + stop) // 2
        left = rng.hypergeometric(total[middle] - total[start], total[stop] - total[middle], taken)
        taken = np.concatenate([left, taken - left])
        start, stop = np.concatenate([start, middle]), np.concatenate([middle, stop])
