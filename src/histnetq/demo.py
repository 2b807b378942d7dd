"""The main job end to end on scikit-learn's digits: train, compare on unseen bags of unseen rows, predict one bag."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from histnetq.bags import Bags
from histnetq.base import Quantifier
from histnetq.classical import CC, EMQ, MLPE
from histnetq.deep import DeepQuantifier, DeepSets, HistNetQ
from histnetq.evaluation import compare
from histnetq.metrics import ae
from histnetq.options import Training
from histnetq.protocols import APP

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
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
    test = APP(bag_size=100).draw(Bags.from_labels(X_test, y_test), n_bags=500, random_state=1)
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
    comparison = compare(quantifiers, test)
    say("")
    say(str(comparison))
    _one_bag(test, quantifiers["HistNetQ"].predict(test), y_test, say)
    return comparison.table["ae", "mean"].to_dict()


def _one_bag(test: Bags, p: NDArray, y_test: NDArray, say: Callable[[str], None]) -> None:
    assert test.prevalences is not None
    typical = int(np.argsort(ae(test.prevalences, p))[len(test) // 2])
    say("")
    say(f"Bag {typical}, whose error is the median, estimated by HistNetQ:")
    say(f"{'digit':>7}{'true':>8}{'estimate':>10}")
    for digit, true, estimate in zip(np.unique(y_test), test.prevalences[typical], p[typical], strict=True):
        say(f"{digit:>7}{true:>8.2f}{estimate:>10.2f}  {'█' * round(40 * estimate)}")
