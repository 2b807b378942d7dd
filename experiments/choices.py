"""Settings to choose from, and the error they are chosen by."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import histnetq as hq

__all__ = ["draw_settings", "mean_error", "setting_text"]


def draw_settings(space: Mapping[str, Sequence[Any]], trials: int, seed: int) -> list[dict[str, Any]]:
    """At most so many different combinations of the values, at random; more trials only add to them.

    Examples
    --------
    >>> draw_settings({"n_bins": [8], "lr": [0.1]}, trials=5, seed=0)
    [{'n_bins': 8, 'lr': 0.1}]
    """
    every = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    return [every[i] for i in np.random.default_rng([seed, len(every)]).permutation(len(every))[:trials]]


def setting_text(setting: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in setting.items())


def mean_error(measure: str, bags: hq.Bags, estimates: NDArray[np.float64]) -> float:
    return float(hq.metrics.MEASURES[measure](bags.prevalences, estimates, bags.sizes).mean())
