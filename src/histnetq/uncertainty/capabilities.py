"""`Capabilities` of a fitted model: data and callables for intervals and monitoring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.simplex import Floats, Ints
from histnetq.sketches.sketch import BagSketch
from histnetq.uncertainty.conformal import Calibration

if TYPE_CHECKING:
    import pandas as pd

# Posteriors (n_rows, n_classes), the row of each entry, offsets and weights of bags -> estimates (n_bags, n_classes).
Quantify = Callable[[Floats, Ints, Ints, NDArray | None], Floats]
# Variance from learning if new rows are read by a classifier that was fitted again, to all labelled rows. The unit is
# the variance for the held-out classifier. With 1, intervals of bags of 10,000 new rows were too narrow on real tables.
REFITTED = 2.0


@dataclass(frozen=True)
class HeldOutPosteriors:
    """Posteriors of held-out labelled training rows, and the functions that a method applies to posteriors.

    Attributes
    ----------
    posteriors : (n_rows, n_classes), float32
        Posteriors by classifiers that were not trained on these rows.
    labels : (n_rows,)
        Class codes of the rows.
    weights : (n_rows,), or None
    reads_class : bool
        Whether the method reads only the predicted class of a row.
    refitted : bool
        Whether the classifier of new rows is another one, which was fitted to all labelled rows.
    of_bags : callable
        Bags -> posteriors of the distinct rows in use, and the row of each entry.
    quantify : callable
        Posteriors, index, offsets and sized weights of bags -> estimates.
    relearn : callable
        Posteriors, labels and weights of labelled rows -> `quantify` of a copy of the method that is fitted to them.
    """

    posteriors: NDArray[np.float32]
    labels: NDArray[np.int32]
    weights: NDArray | None
    reads_class: bool
    refitted: bool
    of_bags: Callable[[Bags], tuple[Floats, Ints]]
    quantify: Quantify
    relearn: Callable[[Floats, Ints, NDArray | None], Quantify]

    @property
    def variation(self) -> float:
        """Variance from learning, in units of the variance if the classifier of new rows were the held-out one."""
        return REFITTED if self.refitted else 1.0


@dataclass(frozen=True)
class PosteriorOfParts:
    """The posterior distribution of the part of each class in bags.

    Attributes
    ----------
    shortest : callable
        Bags or sketches, and a probability -> lower and upper ends of the shortest intervals, (n_bags, n_classes) each.
    draw : callable
        Bags or sketches -> draws (n_bags, n_draws, n_classes).
    """

    shortest: Callable[[Bags | BagSketch, float], tuple[Floats, Floats]]
    draw: Callable[[Bags | BagSketch], Floats]


@dataclass(frozen=True)
class Capabilities:
    """Optional capabilities of a fitted model; each is None if the model does not have it.

    Attributes
    ----------
    kind : str
        Name of the method, for messages.
    n_classes : int
    estimate : callable
        Bags or sketches -> estimates.
    calibration : Calibration, or None
        Errors on calibration bags.
    posteriors : HeldOutPosteriors, or None
        Posteriors of held-out training rows, for classifier-based methods.
    standard_errors : callable, or None
        Bags -> standard errors of the estimates.
    posterior : PosteriorOfParts, or None
        The method's own posterior distribution.
    performance : callable, or None
        Bags and their estimates -> expected accuracy and F1 of the classifier in each bag.
    """

    kind: str
    n_classes: int
    estimate: Callable[[Bags | BagSketch], Floats]
    calibration: Calibration | None = None
    posteriors: HeldOutPosteriors | None = None
    standard_errors: Callable[[Bags], Floats] | None = None
    posterior: PosteriorOfParts | None = None
    performance: Callable[[Bags, Floats], pd.DataFrame] | None = None
