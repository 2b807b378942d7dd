"""HDy in pictures: a bag's histogram of posteriors as a mixture of those of both classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import histnetq as hq
from experiments.bagged import BagExperiment
from experiments.figures import draw_mixture

__all__ = ["mixture_panels"]

_BINS = 20


def mixture_panels(experiment: BagExperiment) -> list[Callable[..., Any]]:
    """Return the plots of three validation bags with few, some and many rows of the second class."""
    data = experiment.data
    crossed, pool = experiment.posteriors.get({"C": 0.01, "class_weight": None})
    labels = experiment.posteriors.labels
    edges = np.linspace(0, 1, _BINS + 1)
    parts = [_shares(crossed[labels == k, 1], edges) for k in range(2)]
    truth = data.validation.prevalences
    assert truth is not None
    panels: list[Callable[..., Any]] = []
    for wanted in (0.15, 0.5, 0.85):
        bag = data.validation[[int(np.abs(truth[:, 1] - wanted).argmin())]]
        p = experiment.estimate(hq.HDy(), bag)[0]
        assert bag.prevalences is not None
        title = f"HDy finds {p[1]:.2f} {data.classes[1]}, truth {bag.prevalences[0, 1]:.2f}"
        names = dict(zip(map(str, data.classes), parts, strict=True))
        panels.append(
            partial(
                draw_mixture, title=title, edges=edges, parts=names, bag=_shares(pool[bag.index, 1], edges),
                mixture=p[0] * parts[0] + p[1] * parts[1],
            )
        )  # fmt: skip
    return panels


def _shares(values: NDArray, edges: NDArray) -> NDArray[np.float64]:
    return np.histogram(values, edges)[0] / len(values)
