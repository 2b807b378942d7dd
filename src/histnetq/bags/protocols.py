"""Sampling protocols, which draw new bags from labelled rows or from bags with known prevalences.

Every protocol has ``draw(source, n_bags, random_state) → Bags`` and an attribute `draws_from`, the kind of `source`:
``"rows"`` (a `Bags` with labelled rows), ``"bags"`` (a `Bags` with prevalences) or ``"both"`` (a pair of the two on one
pool). Protocols are frozen dataclasses without random state. A new protocol implements ``_draw(source, n_bags, rng)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_integer, take_dense
from histnetq.bags.indexing import divide, offsets_of, ranges
from histnetq.bags.limits import brief
from histnetq.errors import InputError, InputTypeError, Option, Way
from histnetq.simplex import Floats, Ints, apportion, draw_uniform

__all__ = ["APP", "NPP", "Combined", "CovariateShift", "Dirichlet", "Mixer", "SamplingProtocol"]

Size = int | tuple[int, int] | None
_DEFAULT_SIZE = 250
_LARGEST_BAG = 1_000_000_000
_LARGEST_CONCENTRATION = 1e12
_STRONGEST = 1e6
_TILT_CHUNK = 1 << 24  # bags × rows handled at a time under covariate shift


class SamplingProtocol:
    """Base class of the sampling protocols."""

    draws_from: ClassVar[str] = "rows"

    def draw(self, source: Any, n_bags: int, random_state: Any = None) -> Bags:
        """Draw new bags; the same seed gives the same bags.

        Parameters
        ----------
        source : Bags, or a pair of Bags
            Labelled rows, bags with prevalences, or both, as the attribute `draws_from` requires.
        n_bags : int
            The number of bags.
        random_state : int or numpy.random.Generator, optional
            Seed of the draw.

        Returns
        -------
        Bags
            New bags with prevalences, on the pool of the source, numbered from 0.

        Examples
        --------
        >>> source = Bags.from_labels(np.zeros((6, 1)), list("aabbbb"))
        >>> NPP(bag_size=10).draw(source, 3, random_state=0).sizes
        array([10, 10, 10])
        """
        if n_bags < 1:
            raise ValueError(f"n_bags: expected at least 1, got {n_bags}.")
        if self.draws_from != "both" and not isinstance(source, Bags):
            raise TypeError(f"source: expected Bags, got {type(source).__name__}; make them by Bags.from_labels(X, y).")
        return self._draw(source, n_bags, np.random.default_rng(random_state))

    def _draw(self, source: Any, n_bags: int, rng: np.random.Generator) -> Bags:
        raise NotImplementedError


@dataclass(frozen=True)
class APP(SamplingProtocol):
    """Artificial prevalences: proportions uniform on the simplex, rows drawn with replacement within each class.

    The drawn counts equal the declared prevalences exactly.

    Parameters
    ----------
    bag_size : int or (low, high), optional
        Rows per bag, or a range to draw sizes from. By default, each size is the size of a random bag of the source,
        or 250 if the source has only one bag.

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

    def __post_init__(self) -> None:
        _check_bag_size(self.bag_size)

    def _draw(self, source: Bags, n_bags: int, rng: np.random.Generator) -> Bags:
        return _draw_by_class(self.bag_size, source, n_bags, draw_uniform, rng)


@dataclass(frozen=True)
class Dirichlet(SamplingProtocol):
    """Like `APP`, with proportions from a Dirichlet distribution.

    Parameters
    ----------
    alpha : float or sequence of float, default 1.0
        Concentration, as one number or one per class that occurs in the source. A concentration of 1 is `APP`;
        proportions under larger concentrations are more even.
    bag_size : int or (low, high), optional
        Rows per bag, or a range to draw sizes from. By default, each size is the size of a random bag of the source,
        or 250 if the source has only one bag.

    Examples
    --------
    >>> source = Bags.from_labels(np.zeros((6, 1)), list("aabbbb"))
    >>> Dirichlet(1000.0, bag_size=10).draw(source, 3, random_state=0).prevalences
    array([[0.5, 0.5],
           [0.5, 0.5],
           [0.5, 0.5]])
    """

    alpha: float | tuple[float, ...] = 1.0
    bag_size: Size = None

    def __post_init__(self) -> None:
        _check_bag_size(self.bag_size)
        given = self.alpha if isinstance(self.alpha, tuple | list | np.ndarray) else [self.alpha]
        if not len(given) or not all(_is_real(a) and 0 < a <= _LARGEST_CONCENTRATION for a in given):
            raise ValueError(f"alpha: expected a positive number or one per class, got {brief(self.alpha)}.")

    def _draw(self, source: Bags, n_bags: int, rng: np.random.Generator) -> Bags:
        return _draw_by_class(self.bag_size, source, n_bags, self._prevalences, rng)

    def _prevalences(self, n_bags: int, n_classes: int, rng: np.random.Generator) -> Floats:
        alpha = np.asarray(self.alpha, dtype=float)
        if alpha.size not in (1, n_classes):
            raise ValueError(f"alpha: expected a positive number or one per class ({n_classes}), got {self.alpha!r}.")
        return rng.dirichlet(np.broadcast_to(alpha, n_classes), size=n_bags)


@dataclass(frozen=True)
class NPP(SamplingProtocol):
    """Natural prevalences: rows drawn uniformly from all labelled rows, with replacement.

    Parameters
    ----------
    bag_size : int or (low, high), optional
        Rows per bag, or a range to draw sizes from. By default, each size is the size of a random bag of the source,
        or 250 if the source has only one bag.

    Examples
    --------
    >>> source = Bags.from_labels(np.zeros((6, 1)), list("aabbbb"))
    >>> NPP(bag_size=1000).draw(source, 2, random_state=0).prevalences.round(1)
    array([[0.3, 0.7],
           [0.3, 0.7]])
    """

    bag_size: Size = None

    def __post_init__(self) -> None:
        _check_bag_size(self.bag_size)

    def _draw(self, source: Bags, n_bags: int, rng: np.random.Generator) -> Bags:
        pool, sizes = _LabelledRows(source), _draw_sizes(self.bag_size, source, n_bags, rng)
        starts = np.zeros(sizes.sum(), np.int64)
        return _labelled_bags(source, pool.pick(starts, np.full_like(starts, len(pool.rows)), rng), sizes)


@dataclass(frozen=True)
class CovariateShift(SamplingProtocol):
    """Covariate shift: P(X) changes from bag to bag while P(Y|X) stays the same.

    Each bag has a random direction *u* of feature space. A row *x* is drawn, with replacement, with probability
    proportional to ``exp(strength · ⟨u, z(x)⟩)``, where *z* standardises the projections ⟨u, x⟩ to unit variance.

    Parameters
    ----------
    bag_size : int or (low, high), optional
        Rows per bag, or a range to draw sizes from. By default, each size is the size of a random bag of the source,
        or 250 if the source has only one bag.
    strength : float, default 1.0
        A strength of 0 is `NPP`, and 1 moves the bag's mean about one standard deviation along its direction.

    Examples
    --------
    >>> source = Bags.from_labels(np.arange(100.0)[:, None], np.arange(100) // 50)
    >>> CovariateShift(bag_size=50, strength=3.0).draw(source, 3, random_state=0).prevalences
    array([[0.02, 0.98],
           [0.98, 0.02],
           [0.  , 1.  ]])
    """

    bag_size: Size = None
    strength: float = 1.0

    def __post_init__(self) -> None:
        _check_bag_size(self.bag_size)
        if not _is_real(self.strength) or not abs(self.strength) <= _STRONGEST:
            wanted = f"a finite number from -{_STRONGEST:,.0f} to {_STRONGEST:,.0f}"
            raise ValueError(f"strength: expected {wanted}, got {brief(self.strength)}.")

    def _draw(self, source: Bags, n_bags: int, rng: np.random.Generator) -> Bags:
        pool, sizes = _LabelledRows(source), _draw_sizes(self.bag_size, source, n_bags, rng)
        rows = pool.rows
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

    def _cumulative(self, x: Floats, weights: NDArray | None, n_bags: int, rng: np.random.Generator) -> Floats:
        """Return the cumulative distribution over the rows for one random direction per bag, (n_bags, n_rows)."""
        scores = rng.standard_normal((n_bags, x.shape[1])) @ x.T
        scores /= np.maximum(scores.std(1, keepdims=True), 1e-12)
        tilt = np.exp(self.strength * scores - (self.strength * scores).max(1, keepdims=True))
        cdf = np.cumsum(tilt if weights is None else tilt * weights, axis=1)
        return cdf / cdf[:, -1:]


@dataclass(frozen=True)
class Mixer(SamplingProtocol):
    """Bag Mixer: random halves of two bags joined, labelled with the size-weighted mean of their proportions.

    Halves are exact and drawn without replacement. With count weights, a half is a multivariate hypergeometric draw of
    half the copies. With survey weights, it is half of the entries, and a half counts by its total weight.

    Parameters
    ----------
    real_proportion : float, default 0.5
        Fraction of the drawn bags that are unmixed bags of the source.

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

    def _draw(self, source: Bags, n_bags: int, rng: np.random.Generator) -> Bags:
        if source.prevalences is None:
            remedy = ("pass ", Option("prevalences"), " when making the bags")
            raise InputError("Mixer", "bags with prevalences", "none", remedy)
        n_real = round(self.real_proportion * n_bags)
        parts = [_numbered(source[_cycle(len(source), n_real, rng)])] if n_real else []
        if n_real < n_bags:
            if len(source) < 2:
                more = ("add bags", Way(" or use ", Option("sampler", None)))
                raise InputError("Mixer", "at least 2 bags to mix", len(source), more)
            parts.append(self._mix(source, n_bags - n_real, rng))
        return _numbered(Bags.concat(parts))

    def _mix(self, source: Bags, n_bags: int, rng: np.random.Generator) -> Bags:
        first = rng.integers(len(source), size=n_bags)
        second = (first + rng.integers(1, len(source), size=n_bags)) % len(source)
        pairs = source[np.stack([first, second], axis=1).ravel()]
        halves = _halve(pairs, rng)
        # bincount instead of reduceat: the smaller half of a bag with a single row is empty and has mass 0.
        mass = np.bincount(halves.bag_of_entry, halves.weights, minlength=2 * n_bags).reshape(n_bags, 2, 1)
        labels = (mass * pairs.prevalences.reshape(n_bags, 2, -1)).sum(1) / mass.sum(1)  # type: ignore[union-attr]
        return halves.drawn(halves.index, halves.offsets[::2], halves.weights, labels)


@dataclass(frozen=True)
class Combined(SamplingProtocol):
    """A mixture of bags drawn from labelled rows and bags drawn from bags with known prevalences.

    Parameters
    ----------
    rows : SamplingProtocol, default APP()
        Protocol that draws bags from labelled rows.
    bags : SamplingProtocol, default Mixer()
        Protocol that draws bags from bags with known prevalences.
    row_proportion : float, default 0.5
        Fraction of the bags that are drawn from labelled rows.

    Examples
    --------
    >>> source = Bags.from_labels(np.zeros((6, 1)), list("aabbbb"), groups=[0, 1, 0, 0, 1, 1])
    >>> Combined(rows=APP(bag_size=10)).draw((source, source), 4, random_state=0).sizes
    array([10, 10,  3,  3])
    """

    rows: SamplingProtocol = field(default_factory=APP)
    bags: SamplingProtocol = field(default_factory=Mixer)
    row_proportion: float = 0.5
    draws_from: ClassVar[str] = "both"

    def __post_init__(self) -> None:
        _check_proportion("row_proportion", self.row_proportion)
        for name, given in (("rows", self.rows), ("bags", self.bags)):
            if isinstance(given, type) or not hasattr(given, "draw"):
                raise TypeError(f"{name}: expected a protocol such as APP(), got {brief(given)}.")

    def _draw(self, source: tuple[Bags, Bags], n_bags: int, rng: np.random.Generator) -> Bags:
        if not isinstance(source, tuple) or len(source) != 2:
            expected, way_out = "the pair (labelled rows, bags) on one pool", "make it by Bags.concat and slices"
            raise InputTypeError("source", expected, type(source).__name__, way_out)
        n_rows = round(self.row_proportion * n_bags)
        shares = zip((self.rows, self.bags), source, (n_rows, n_bags - n_rows), strict=True)
        return _numbered(Bags.concat([protocol.draw(part, n, rng) for protocol, part, n in shares if n > 0]))


class _LabelledRows:
    """The labelled rows of a source, grouped by class; rows are drawn in proportion to their weights in the source."""

    def __init__(self, source: Bags) -> None:
        if source.labels is None or source.classes is None:
            raise ValueError("source: expected labelled rows, got bags without labels; make them by Bags.from_labels.")
        rows = np.unique(source.index)
        rows = rows[source.labels[rows] >= 0]
        if rows.size == 0:
            raise ValueError("source: none of its rows has a label, expected at least one of each class.")
        labels = source.labels[rows]
        order = np.argsort(labels, kind="stable")
        self.rows = rows[order]
        self.weights = None
        if source.weights is not None:
            place = np.searchsorted(rows, source.index).clip(max=len(rows) - 1)
            kept = rows[place] == source.index
            total = np.bincount(place[kept], source.weights[kept], minlength=len(rows))
            # The mean weight over the bags of a row, so that weights of 1 have no effect.
            self.weights = (total / np.bincount(place[kept], minlength=len(rows)))[order]
        self.counts = np.bincount(labels, minlength=len(source.classes))

    def pick(self, starts: Ints, counts: Ints, rng: np.random.Generator) -> Ints:
        """Draw one row from each range ``starts[i]`` to ``starts[i] + counts[i]`` of `self.rows`."""
        if self.weights is None:
            return self.rows[starts + rng.integers(counts)]
        reach = np.concatenate([[0.0], np.cumsum(self.weights)])
        low, high = reach[starts], reach[starts + counts]
        place = np.searchsorted(reach, low + rng.random(len(starts)) * (high - low), "right") - 1
        return self.rows[np.clip(place, starts, starts + counts - 1)]


def _draw_by_class(
    bag_size: Size, source: Bags, n_bags: int, prevalences: Callable[..., Floats], rng: np.random.Generator
) -> Bags:
    """Draw rows within each class to bags with the proportions ``prevalences(n_bags, n_classes, rng)``."""
    pool, sizes = _LabelledRows(source), _draw_sizes(bag_size, source, n_bags, rng)
    counts, present = np.zeros((n_bags, len(pool.counts)), np.int64), np.flatnonzero(pool.counts)
    counts[:, present] = apportion(prevalences(n_bags, len(present), rng), sizes)
    label = np.repeat(np.tile(np.arange(len(pool.counts)), n_bags), counts.ravel())
    # With replacement, as APP may need more rows of a rare class than the pool has.
    starts = np.cumsum(pool.counts) - pool.counts
    index = pool.pick(starts[label], pool.counts[label], rng)
    return source.drawn(index, offsets_of(sizes), None, counts / sizes[:, None])


def _labelled_bags(source: Bags, index: Ints, sizes: Ints) -> Bags:
    """Return bags of these rows, with prevalences counted from their labels."""
    bags = source.drawn(index, offsets_of(sizes), None, None)
    return bags.replaced(prevalences=bags.label_prevalences())


def _numbered(bags: Bags) -> Bags:
    """Return the bags with the ids 0, 1, …"""
    return bags.drawn(bags.index, bags.offsets, bags.weights, bags.prevalences)


def _draw_sizes(bag_size: Size, source: Bags, n_bags: int, rng: np.random.Generator) -> Ints:
    if bag_size is None:
        sizes = np.round(source.sizes).astype(np.int64) if len(source) > 1 else np.array([_DEFAULT_SIZE])
        return np.maximum(rng.choice(sizes, size=n_bags), 1)
    ends = np.atleast_1d(bag_size)
    return rng.integers(ends[0], ends[-1], size=n_bags, endpoint=True)


def _check_bag_size(bag_size: Any) -> None:
    if bag_size is None:
        return
    ends = list(bag_size) if isinstance(bag_size, tuple | list | np.ndarray) else [bag_size]
    whole = all(isinstance(n, Integral) and not isinstance(n, bool) for n in ends)
    if len(ends) not in (1, 2) or not whole or not 1 <= ends[0] <= ends[-1]:
        raise ValueError(f"bag_size: expected a positive whole number or a range (low, high), got {brief(bag_size)}.")
    check_integer("bag_size", ends[-1], 1, _LARGEST_BAG)


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_proportion(name: str, value: Any) -> None:
    if not _is_real(value) or not 0 <= value <= 1:
        raise ValueError(f"{name}: expected a number from 0 to 1, got {brief(value)}.")


def _cycle(n: int, count: int, rng: np.random.Generator) -> Ints:
    """Return `count` of the numbers below `n` in random order; no number repeats before all have occurred."""
    return np.concatenate([rng.permutation(n) for _ in range(-(-count // n))])[:count]


def _halve(pairs: Bags, rng: np.random.Generator) -> Bags:
    """Return a random half of every bag; odd sizes are rounded up in bags 0, 2, … and down in bags 1, 3, …"""
    up = np.arange(len(pairs)) % 2 == 0
    if pairs.weights is not None and pairs.weight_kind == "count":
        sizes = pairs.sizes
        if sizes.max() >= 10**9:
            raise ValueError(
                f"Mixer: expected counts that sum to less than 10⁹ in each bag, got {sizes.max()}; divide the counts "
                "of all rows by the same number."
            )
        counts = divide((sizes + up) // 2, pairs.weights, pairs.offsets, rng.hypergeometric)
        kept = counts > 0
        return pairs.drawn(pairs.index[kept], offsets_of(kept)[pairs.offsets], counts[kept], None)
    lengths = np.diff(pairs.offsets)
    order = np.argsort(pairs.bag_of_entry + rng.random(len(pairs.index)))
    taken = (lengths + up) // 2
    chosen = np.sort(order[ranges(pairs.offsets[:-1], taken)])
    weights = None if pairs.weights is None else pairs.weights[chosen]
    return pairs.drawn(pairs.index[chosen], offsets_of(taken), weights, None)
