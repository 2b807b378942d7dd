"""Rules by which the posteriors of a row decide its cell, in compiled code and in SQL to the last bit.

Rules compare posteriors, or a ratio of two, with stored limits. Comparisons and divisions of float64 give the same
result in every engine, and logarithms do not.
"""

from __future__ import annotations

from dataclasses import dataclass

from histnetq.simplex import Floats


@dataclass(frozen=True)
class Largest:
    """One cell for each class; a row is in the cell of its largest posterior, and of the first one of equal ones."""

    n_cells: int


@dataclass(frozen=True)
class Between:
    """The cell is the number of `edges`, rising, that the posterior of the class `of` is not below."""

    of: int
    edges: Floats

    @property
    def n_cells(self) -> int:
        return len(self.edges) + 1


@dataclass(frozen=True)
class Odds:
    """The cell is the number of `edges` that the ratio of two posteriors is not below; posteriors are at least `floor`.

    Attributes
    ----------
    above, below : int
        The classes whose ratio is taken.
    floor : float
        Smallest posterior.
    edges : (n_edges,)
        Rising limits of the ratio.
    by_log : tuple of float, optional
        Logarithm before the first edge, and step of the logarithms, if they are equally far apart.
    """

    above: int
    below: int
    floor: float
    edges: Floats
    by_log: tuple[float, float] | None = None

    @property
    def n_cells(self) -> int:
        return len(self.edges) + 1


@dataclass(frozen=True)
class LikeliestClasses:
    """Cells by the first and second class of a row, the odds of these two, and the odds of the second and third class.

    The cell is ``((first · n_classes + second) · n_firsts + i) · n_seconds + j``.

    Attributes
    ----------
    order : tuple of int
        Order of the classes, which numbers them and breaks ties.
    floor : float
        Smallest posterior.
    first, second : (n_firsts - 1,), (n_seconds - 1,)
        Rising limits of the two odds, which count as in `Odds`.
    """

    order: tuple[int, ...]
    floor: float
    first: Floats
    second: Floats

    @property
    def n_cells(self) -> int:
        return len(self.order) ** 2 * (len(self.first) + 1) * (len(self.second) + 1)


CellRule = Largest | Between | Odds | LikeliestClasses
