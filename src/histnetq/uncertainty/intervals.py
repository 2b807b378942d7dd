"""`Intervals` around estimates, and `IntervalMethod`, the interface of every interval method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.bags import Bags
from histnetq.simplex import Floats, check_prevalences
from histnetq.sketches.sketch import BagSketch

if TYPE_CHECKING:
    import pandas as pd

    from histnetq.uncertainty.capabilities import Capabilities


class IntervalMethod:
    """Interface of an interval method; `histnetq.uncertainty.methods` lists all methods.

    Attributes
    ----------
    name : str
        Name in `Quantifier.predict_interval` and ``--interval``.
    needs : str
        Attribute of `Capabilities` that must not be None.
    needs_rows : str
        Reason why the method needs rows instead of sketches; empty if sketches suffice.
    options : tuple of str
        Names of the options.
    """

    name: str
    needs: str
    needs_rows = ""
    options: tuple[str, ...] = ()

    def refusal(self, kind: str) -> Exception:
        """Return the error for a model of this kind without the required capability."""
        raise NotImplementedError

    def intervals(self, model: Capabilities, bags: Bags | BagSketch, coverage: float, **options: Any) -> Intervals:
        """Return the intervals of bags, from capabilities that include the required one."""
        raise NotImplementedError


@dataclass(frozen=True)
class Region:
    """A joint region of each bag: the prevalences within a Hellinger distance of the estimate.

    Attributes
    ----------
    estimates : (n_bags, n_classes)
        The centre of each region.
    radius : (n_bags,)
        The largest Hellinger distance from the centre.
    """

    estimates: Floats
    radius: Floats

    def contains(self, p: ArrayLike) -> NDArray[np.bool_]:
        """Return whether the prevalences ``(n_bags, n_classes)`` are inside the regions of the bags: (n_bags,)."""
        p = np.atleast_2d(np.asarray(p, dtype=np.float64))
        p = check_prevalences(p, len(self.estimates), self.estimates.shape[1])
        inside: NDArray[np.bool_] = hellinger(p, self.estimates) <= self.radius + 1e-9
        return inside


@dataclass(frozen=True)
class Intervals:
    """Estimates with an interval for each class and a joint region for each bag.

    A calibrated interval contains the true prevalence with probability `coverage`, and so does a joint region, if the
    bag is exchangeable with the calibration bags. There is no such guarantee for bags of another origin.

    Parameters
    ----------
    estimates : (n_bags, n_classes), or (n_classes,) for one bag given as rows
        The estimated prevalences.
    lower : array
        Lower ends of the intervals, in the shape of the estimates.
    upper : array
        Upper ends of the intervals, in the shape of the estimates.
    sizes : (n_bags,)
        Sizes of the bags.
    coverage : float
        Intended probability that an interval contains the true prevalence.
    region : Region
        The joint region of each bag.

    Examples
    --------
    >>> import histnetq as hq
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 10), ["a", "a", "b", "b"] * 10
    >>> found = hq.PACC(random_state=0).fit(X, y).bootstrap_interval(X, 0.8)
    >>> found.coverage, found.contains([0.5, 0.5]).tolist()
    (0.8, [True, True])
    """

    estimates: Floats
    lower: Floats
    upper: Floats
    sizes: Floats
    coverage: float
    region: Region

    @classmethod
    def around(
        cls, estimates: Floats, lower: Floats, upper: Floats, sizes: ArrayLike, coverage: float, radius: Floats
    ) -> Intervals:
        """Make intervals that are within [0, 1] and contain the estimates.

        Parameters
        ----------
        estimates : (n_bags, n_classes)
            The estimated prevalences.
        lower : (n_bags, n_classes)
            Lower ends; an end above the estimate is moved to the estimate, and an end below 0 to 0.
        upper : (n_bags, n_classes)
            Upper ends; an end below the estimate is moved to the estimate, and an end above 1 to 1.
        sizes : (n_bags,)
            Sizes of the bags.
        coverage : float
            Intended probability that an interval contains the true prevalence.
        radius : (n_bags,)
            Radius of each joint region.

        Returns
        -------
        Intervals
            The intervals with their joint regions.

        Examples
        --------
        >>> p = np.array([[0.1, 0.9]])
        >>> Intervals.around(p, p - 0.2, p + 0.2, [50], 0.9, np.array([0.2])).lower.round(2)
        array([[0. , 0.7]])
        """
        low, high = np.clip(np.minimum(lower, estimates), 0, 1), np.clip(np.maximum(upper, estimates), 0, 1)
        return cls(estimates, low, high, np.asarray(sizes, np.float64), coverage, Region(estimates, radius))

    def of_one(self) -> Intervals:
        """Drop the axis of bags from the intervals of a single bag.

        Returns
        -------
        Intervals
            The same intervals in the shape ``(n_classes,)``.

        Examples
        --------
        >>> p = np.array([[0.1, 0.9]])
        >>> Intervals.around(p, p, p, [50], 0.9, np.zeros(1)).of_one().estimates
        array([0.1, 0.9])
        """
        return replace(self, estimates=self.estimates[0], lower=self.lower[0], upper=self.upper[0])

    def contains(self, p: ArrayLike) -> NDArray[np.bool_]:
        """Return whether each interval contains the prevalence of its class.

        Parameters
        ----------
        p : array
            Prevalences in the shape of the estimates.

        Returns
        -------
        array of bool
            True for each interval that contains the prevalence, in the shape of the estimates.

        Examples
        --------
        >>> p = np.array([[0.1, 0.9]])
        >>> Intervals.around(p, p - 0.2, p + 0.2, [50], 0.9, np.zeros(1)).contains([[0.4, 0.6]])
        array([[False, False]])
        """
        p = np.asarray(p, dtype=np.float64)
        inside: NDArray[np.bool_] = (self.lower - 1e-12 <= p) & (p <= self.upper + 1e-12)
        return inside

    def to_frame(self, classes: ArrayLike, ids: ArrayLike | None = None) -> pd.DataFrame:
        """Put the intervals into a table with one row per bag and class.

        Parameters
        ----------
        classes : (n_classes,)
            Names of the classes.
        ids : (n_bags,), default=None
            Names of the bags; None numbers them from 0.

        Returns
        -------
        DataFrame
            A table with the columns bag, class, estimate, lower, upper and n.

        Examples
        --------
        >>> p = np.array([[0.1, 0.9]])
        >>> Intervals.around(p, p - 0.1, p + 0.1, [50], 0.9, np.zeros(1)).to_frame(["a", "b"])
           bag class  estimate  lower  upper     n
        0    0     a       0.1    0.0    0.2  50.0
        1    0     b       0.9    0.8    1.0  50.0
        """
        import pandas as pd

        estimates, lower, upper = (np.atleast_2d(a) for a in (self.estimates, self.lower, self.upper))
        n_bags, n_classes = estimates.shape
        ids = np.arange(n_bags) if ids is None else np.asarray(ids)
        columns: dict[str, Any] = {"bag": np.repeat(ids, n_classes), "class": np.tile(np.asarray(classes), n_bags)}
        columns |= {"estimate": estimates.ravel(), "lower": lower.ravel(), "upper": upper.ravel()}
        return pd.DataFrame({**columns, "n": np.repeat(self.sizes, n_classes)})


def hellinger(p: Floats, q: Floats) -> Floats:
    """Return the Hellinger distance between prevalences ``(..., n_classes)``."""
    return np.sqrt(np.square(np.sqrt(p) - np.sqrt(np.maximum(q, 0))).sum(-1) / 2)
