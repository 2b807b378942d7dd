"""The main job end to end on scikit-learn's digits: train, compare on unseen bags of unseen rows, predict one bag."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from histnetq.bags import Bags
from histnetq.base import Quantifier
from histnetq.classical import CC, EMQ, MLPE
from histnetq.datasets import digits
from histnetq.deep import DeepQuantifier, DeepSets, HistNetQ
from histnetq.evaluation import compare
from histnetq.metrics import ae
from histnetq.options import Training

__all__ = ["run_demo"]

_TRAINING = Training(epochs=60, patience=6)


def run_demo(say: Callable[[str], None]) -> dict[str, float]:
    """Train classical and deep quantifiers on half of the digits and score them on bags drawn from the other half.

    Parameters
    ----------
    say : where each line of the story goes

    Returns
    -------
    dict : mean absolute error of each method
    """
    data = digits()
    assert data.train.labels is not None
    X, y, test = data.train.rows, data.classes[data.train.labels], data.test
    say(
        f"Handwritten digits: {len(X)} labelled images to learn from; {len(test)} bags of 100 other images to estimate."
    )
    quantifiers: dict[str, Quantifier] = {
        "mean of training": MLPE(),
        "CC": CC(random_state=0),
        "EMQ": EMQ(calibration="bcts", random_state=0),
        "DeepSets": DeepSets(loss="ae", training=_TRAINING, random_state=0),
        "HistNetQ": HistNetQ(loss="ae", training=_TRAINING, random_state=0),
    }
    for name, quantifier in quantifiers.items():
        began = time.perf_counter()
        if isinstance(quantifier, DeepQuantifier):
            say(f"Training {name} on bags drawn from the labelled images …")
        quantifier.fit(X, y)
        if isinstance(quantifier, DeepQuantifier):
            epochs, seconds = len(quantifier.history_["epoch"]), time.perf_counter() - began
            say(f"  {epochs} epochs in {seconds:.0f} s, best was epoch {quantifier.best_epoch_}")
    estimates = {name: quantifier.predict(test) for name, quantifier in quantifiers.items()}
    comparison = compare(estimates, test)
    say("")
    say(str(comparison))
    _one_bag(test, estimates["HistNetQ"], say)
    return comparison.table["ae", "mean"].to_dict()


def _one_bag(test: Bags, p: NDArray, say: Callable[[str], None]) -> None:
    assert test.prevalences is not None
    assert test.classes is not None
    typical = int(np.argsort(ae(test.prevalences, p))[len(test) // 2])
    say("")
    say(f"Bag {typical}, whose error is the median, estimated by HistNetQ:")
    say(f"{'digit':>7}{'true':>8}{'estimate':>10}")
    for digit, true, estimate in zip(test.classes, test.prevalences[typical], p[typical], strict=True):
        say(f"{digit:>7}{true:>8.2f}{estimate:>10.2f}  {'█' * round(40 * estimate)}")
