"""The main job end to end on scikit-learn's digits: train, compare, predict with intervals, write the report."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from histnetq.data.bags import Bags
from histnetq.datasets import digits
from histnetq.evaluation.errors import compare
from histnetq.metrics import ae
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.baseline import MLPE
from histnetq.quantifiers.counting import CC
from histnetq.quantifiers.likelihood import EMQ
from histnetq.quantifiers.networks import DeepQuantifier, DeepSets, HistNetQ
from histnetq.report import write_report
from histnetq.training.options import Training
from histnetq.uncertainty.intervals import Intervals

_TRAINING = Training(epochs=60, patience=6)
_CALIBRATION_BAGS = 200


def run_demo(say: Callable[[str], None], output: Path) -> dict[str, float]:
    """Train classical and deep quantifiers on half of the digits and score them on bags drawn from the other half.

    Parameters
    ----------
    say : where each line of the story goes
    output : directory of the report

    Returns
    -------
    dict : mean absolute error of each method
    """
    data = digits()
    assert data.train.labels is not None
    X, y = data.train.rows, data.classes[data.train.labels]
    calibration, test = data.test[:_CALIBRATION_BAGS], data.test[_CALIBRATION_BAGS:]
    say(
        f"Handwritten digits: {len(X)} labelled images to learn from. Of other images: {len(calibration)} bags of 100 "
        f"to calibrate intervals by, {len(test)} to estimate."
    )
    quantifiers: dict[str, Quantifier] = {
        "CC": CC(random_state=0),
        "EMQ": EMQ(calibration="bcts", random_state=0),
        "DeepSets": DeepSets(loss="ae", training=_TRAINING, random_state=0),
        "HistNetQ": HistNetQ(loss="ae", training=_TRAINING, random_state=0),
        "mean of training": MLPE(),
    }
    for name, quantifier in quantifiers.items():
        _learn(name, quantifier, X, y, say)
    estimates = {name: quantifier.predict(test) for name, quantifier in quantifiers.items()}
    comparison = compare(estimates, test)
    say(f"\n{comparison}")
    network = quantifiers["HistNetQ"].calibrate(calibration)
    found = network.predict_interval(test, coverage=0.9)
    _one_bag(test, found, say)
    rivals = {name: p for name, p in estimates.items() if name in ("CC", "EMQ", "DeepSets")}
    output.mkdir(parents=True, exist_ok=True)
    path = output / "report.html"
    try:
        write_report(
            path, model=network, bags=test, intervals=found, trust=network.trust(test).assign(unseen=0.0),
            rivals=rivals, command="histnetq demo", sources=["scikit-learn's digits"], force=True,
        )  # fmt: skip
        say(f"\nThe report is in {path}; open it in a browser.")
    except ImportError as error:  # without the extra
        say(f"\nNo report: {error}")
    return comparison.table["ae", "mean"].to_dict()


def _learn(name: str, quantifier: Quantifier, X: np.ndarray, y: np.ndarray, say: Callable[[str], None]) -> None:
    if not isinstance(quantifier, DeepQuantifier):
        quantifier.fit(X, y)
        return
    say(f"Training {name} on bags drawn from the labelled images …")
    began = time.perf_counter()
    quantifier.fit(X, y)
    epochs, seconds = len(quantifier.history_["epoch"]), time.perf_counter() - began
    say(f"  {epochs} epochs in {seconds:.0f} s, best was epoch {quantifier.best_epoch_}")


def _one_bag(test: Bags, found: Intervals, say: Callable[[str], None]) -> None:
    assert test.prevalences is not None
    assert test.classes is not None
    typical = int(np.argsort(ae(test.prevalences, found.estimates))[len(test) // 2])
    held = found.contains(test.prevalences).mean()
    say(f"\nOf the {found.coverage:.0%} intervals {held:.1%} hold the truth. Bag {typical}, whose error is the median:")
    say(f"{'digit':>7}{'true':>8}{'estimate':>10}{'interval':>14}")
    columns = test.prevalences, found.estimates, found.lower, found.upper
    for digit, true, estimate, lower, upper in zip(test.classes, *(c[typical] for c in columns), strict=True):
        say(f"{digit:>7}{true:>8.2f}{estimate:>10.2f}{f'{lower:.2f}-{upper:.2f}':>14}  {'█' * round(40 * estimate)}")
