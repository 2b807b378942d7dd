"""Posterior intervals of counts against QuaPy's BayesianCC on the same predictions: processor time per bag."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator

import click
import numpy as np
from sklearn.linear_model import LogisticRegression

import histnetq as hq
from benchmarks.classical import Row, draw_posteriors

__all__ = ["run"]

# Name, classes, labelled rows, rows of a bag.
_SIZES = (("digits", 10, 898, 60), ("imdb", 2, 5_000, 150))
_OURS, _THEIRS = 100, 2  # bags


def run() -> Iterator[Row]:
    """Yield (what, ratio, comparison, target)."""
    if any(importlib.util.find_spec(name) is None for name in ("numpyro", "quapy", "stan")):
        click.echo(
            "bayes: left out, as QuaPy's BayesianCC needs numpyro, jax and pystan; pip install 'quapy[bayes]' first."
        )
        return
    for name, n_classes, n_labelled, bag_size in _SIZES:
        ours, theirs = _seconds_per_bag(n_classes, n_labelled, bag_size)
        sizes = f"{n_classes} classes, {n_labelled:,} labelled rows, bags of {bag_size}"
        what = f"Bayesian interval of ACC, target population, {name} sized ({sizes}): processor time, QuaPy's over ours"
        yield what, theirs / ours, "≥", 50


def _seconds_per_bag(n_classes: int, n_labelled: int, bag_size: int) -> tuple[float, float]:
    numpyro = importlib.import_module("numpyro")
    from quapy.method.confidence import BayesianCC

    numpyro.enable_validation(False)  # of counts, which fails with numpy's

    P, y = draw_posteriors(n_labelled, n_classes, seed=0)
    new, _ = draw_posteriors(_OURS * bag_size, n_classes, seed=1)
    bags = hq.Bags(new, offsets=np.arange(_OURS + 1) * bag_size)
    model = hq.ACC().fit_posteriors(P, y)

    def ours() -> None:
        model.predict_interval(bags, 0.95, method="bayes", target="population")

    known = LogisticRegression()
    known.classes_ = np.arange(n_classes)  # predictions are given, so that nothing else is asked of it
    other = BayesianCC(known, fit_classifier=False)
    other.aggregation_fit(P.argmax(1), y)
    found = new.argmax(1).reshape(_OURS, bag_size)

    def theirs() -> None:
        for predictions in found[1 : _THEIRS + 1]:
            other.aggregate(predictions)

    other.aggregate(found[0])  # compiles, as ours does
    ours()
    return _processor_seconds(ours) / _OURS, _processor_seconds(theirs) / _THEIRS


def _processor_seconds(act: Callable[[], None]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began
