"""`run_demo`: three tasks on scikit-learn's digits with the methods that can do them, then intervals and a report.

It starts with the default method for labelled rows, `Pretrained`, which learns in seconds and has intervals at once.
Classical methods are made for labelled rows and for shifts of the proportions only. Networks learn from bags, so they
also work if no row has a label, and if bags differ in more than their proportions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.protocols import APP
from histnetq.datasets import digits
from histnetq.evaluation.comparison import BASELINE, Comparison
from histnetq.evaluation.errors import compare
from histnetq.metrics import ae
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.classical.baseline import MLPE
from histnetq.quantifiers.classical.counting import CC, PACC
from histnetq.quantifiers.classical.emq import EMQ
from histnetq.quantifiers.classical.pretrained import Pretrained
from histnetq.quantifiers.networks.deep_quantifier import DeepQuantifier
from histnetq.quantifiers.networks.emnetq import EMNetQ
from histnetq.quantifiers.networks.histnetq import HistNetQ
from histnetq.report.page import write_report
from histnetq.simplex import Floats
from histnetq.training.options import Training
from histnetq.uncertainty.intervals import Intervals

Say = Callable[[str], None]

# HistNetQ stops early, but the number of epochs also sets how long its head is pretrained.
_HISTNETQ, _EMNETQ = (Training(epochs=n, patience=3, validation=0.2) for n in (30, 15))
_CALIBRATION_BAGS, _TRAINING_BAGS, _BAG_SIZE = 200, 100, 100
# Ranges of a scanner's contrast, brightness and noise, for pixels from 0 (paper) to 16 (ink).
_CONTRAST, _BRIGHTNESS, _NOISE = (0.5, 1.0), (0.0, 4.0), (0.0, 4.0)


def run_demo(say: Say, output: Path) -> list[Comparison]:
    """Compare methods at three tasks on the digits, predict with intervals, and write a report.

    Parameters
    ----------
    say : function that prints a line
    output : directory of the report

    Returns
    -------
    list of Comparison : the errors of the methods in each of the three parts
    """
    data = digits(bag_size=_BAG_SIZE)
    calibration, test = data.test[:_CALIBRATION_BAGS], data.test[_CALIBRATION_BAGS:]
    say(
        f"Handwritten digits: {len(data.train.rows)} training images. From other images: {len(test)} test bags of\n"
        f"{_BAG_SIZE} images, and {len(calibration)} bags to calibrate intervals.\n"
        "AE is the mean absolute error of a class's proportion; RAE is this error relative to the proportion."
    )
    from_labels, first = _labelled_rows(data.train, test, say)
    second = _proportions_only(data.train, test, from_labels, say)
    third = _other_scanners(data.train, test, from_labels, say)
    _report(from_labels, calibration, test, output, say)
    return [first, second, third]


@dataclass(frozen=True)
class _Fitted:
    """Fitted quantifiers and their estimates of the test bags, by name."""

    quantifiers: dict[str, Quantifier]
    estimates: dict[str, Floats]


def _labelled_rows(train: Bags, test: Bags, say: Say) -> tuple[_Fitted, Comparison]:
    say(f"\n1. Labelled images. All methods learn from the same {len(train.rows)} images and their labels.")
    same = APP(_BAG_SIZE)  # The training bags of networks are drawn like the test bags.
    fitted = _fit(
        {
            "Pretrained": Pretrained(random_state=0),
            "CC": CC(random_state=0),
            "EMQ": EMQ(rescaling="bcts", random_state=0),
            "HistNetQ": HistNetQ(encoder=(64,), n_bins=8, sampler=same, training=_HISTNETQ, random_state=0),
            "EMNetQ": EMNetQ(encoder=(64,), sampler=same, training=_EMNETQ, random_state=0),
        },
        (train.rows, _labels(train)), test, say,
    )  # fmt: skip
    own = fitted.quantifiers["Pretrained"].predict_interval(test, method="posterior")
    _inside("Pretrained, without calibration", own, test, say)
    comparison = compare(fitted.estimates, test)
    _show(
        comparison,
        "Only the proportions shift here, as Pretrained and EMQ assume. With a label for every image, these and the\n"
        "networks that were trained here differ little: Pretrained is enough, and it is much faster. Counting (CC)\n"
        "has larger errors.",
        say,
    )
    return fitted, comparison


def _proportions_only(train: Bags, test: Bags, from_labels: _Fitted, say: Say) -> Comparison:
    bags = _without_labels(APP(_BAG_SIZE).draw(train, _TRAINING_BAGS, random_state=2))
    say(
        f"\n2. Proportions only. No image has a label. Known are\n"
        f"the proportions of {len(bags)} bags of {_BAG_SIZE} images."
    )
    fitted = _fit(_from_proportions(), (bags,), test, say)
    labelled = {f"({name} with labels)": from_labels.estimates[name] for name in ("CC", "EMQ")}
    comparison = compare(fitted.estimates | labelled, test)
    _show(
        comparison,
        "No classical method can follow: CC and EMQ, in brackets, had a label for every image. HistNetQ and EMNetQ\n"
        "have learned from proportions alone, and come close to them.",
        say,
    )
    return comparison


def _other_scanners(train: Bags, test: Bags, from_labels: _Fitted, say: Say) -> Comparison:
    drawn = APP(_BAG_SIZE).draw(train, _TRAINING_BAGS, random_state=3)
    bags, scanned = _scan(drawn, 4), _scan(test, 5)
    say(
        "\n3. Bags that differ in more than proportions. Each bag comes from its own scanner, with its own contrast,\n"
        f"brightness and noise. Networks learn only from the proportions of {len(bags)} such bags of {_BAG_SIZE}.\n"
        f"CC, EMQ and PACC learn from the {len(train.rows)} clean images of part 1 and their labels."
    )
    fitted = _fit(_from_proportions(), (bags,), scanned, say)
    classical: dict[str, Quantifier] = {name: from_labels.quantifiers[name] for name in ("CC", "EMQ")}
    classical["PACC"] = PACC(random_state=0).fit(train.rows, _labels(train))
    estimates = {name: quantifier.predict(scanned) for name, quantifier in classical.items()} | fitted.estimates
    informed = EMQ(rescaling="bcts", random_state=0).fit(bags.rows, _labels(drawn)[drawn.index])
    comparison = compare(estimates | {"(EMQ with labels)": informed.predict(scanned)}, scanned)
    _show(
        comparison,
        "EMQ and PACC fail, because they assume that images of a class look the same in all bags. The networks have\n"
        "learned from bags where they do not, and their errors are much smaller. EMQ in brackets shows what labels of\n"
        f"all {len(bags.rows)} scans in these bags would add.",
        say,
    )
    return comparison


def _labels(bags: Bags) -> NDArray:
    assert bags.labels is not None
    assert bags.classes is not None
    return np.asarray(bags.classes)[bags.labels]


def _fit(quantifiers: dict[str, Quantifier], known: tuple[Any, ...], test: Bags, say: Say) -> _Fitted:
    """Fit all methods to images and labels or to bags, and estimate the test bags."""
    for name, quantifier in quantifiers.items():
        began = time.perf_counter()
        quantifier.fit(*known)
        if isinstance(quantifier, Pretrained):
            seconds = time.perf_counter() - began
            say(f"  {name}: fitted in {seconds:.1f} s; its network was trained before, on simulated tasks.")
        if isinstance(quantifier, DeepQuantifier):
            epochs, seconds = len(quantifier.history_["epoch"]), time.perf_counter() - began
            best = quantifier.best_epoch_
            none = f"the pretrained weights, as none of {epochs} epochs was better"
            kept = f"epoch {best} of {epochs}" if best else none
            say(f"  {name}: trained in {seconds:.0f} s; kept {kept}.")
    return _Fitted(quantifiers, {name: quantifier.predict(test) for name, quantifier in quantifiers.items()})


def _from_proportions() -> dict[str, Quantifier]:
    """Return the methods that learn from proportions only."""
    return {
        "HistNetQ": HistNetQ(encoder=(64,), n_bins=8, training=_HISTNETQ, random_state=0),
        "EMNetQ": EMNetQ(encoder=(64,), training=_EMNETQ, random_state=0),
        BASELINE: MLPE(),
    }


def _without_labels(bags: Bags) -> Bags:
    return Bags(bags.rows, bags.index, bags.offsets, prevalences=bags.prevalences, classes=bags.classes)


def _scan(bags: Bags, seed: int) -> Bags:
    """Scan the images of each bag again, each bag with its own scanner."""
    rng = np.random.default_rng(seed)
    contrast, brightness, noise = (
        rng.uniform(*reach, size=len(bags))[bags.bag_of_entry, None] for reach in (_CONTRAST, _BRIGHTNESS, _NOISE)
    )
    clean = bags.rows[bags.index]
    rows = contrast * clean + brightness + noise * rng.standard_normal(clean.shape)
    return Bags(rows, offsets=bags.offsets, prevalences=bags.prevalences, classes=bags.classes)


def _show(comparison: Comparison, sentence: str, say: Say) -> None:
    table, _, _ = str(comparison).partition("\n\n")
    say(f"\n{table}\n\n{sentence}")


def _report(fitted: _Fitted, calibration: Bags, test: Bags, output: Path, say: Say) -> None:
    """Predict intervals with the HistNetQ that learned from labels, and write a report."""
    network = fitted.quantifiers["HistNetQ"].calibrate(calibration)
    found = network.predict_interval(test, coverage=0.9)
    _one_bag(test, found, say)
    output.mkdir(parents=True, exist_ok=True)
    path = output / "report.html"
    try:
        write_report(
            path, model=network, bags=test, intervals=found, trust=network.trust(test).assign(unseen=0.0),
            rivals={name: p for name, p in fitted.estimates.items() if name != "HistNetQ"},
            command="histnetq demo", sources=["scikit-learn's digits"], overwrite=True,
        )  # fmt: skip
        say(f"\nThe report is in {path}; open it in a browser.")
    except ImportError as error:  # without the extra
        say(f"\nNo report: {error}")


def _inside(name: str, found: Intervals, test: Bags, say: Say) -> None:
    assert test.prevalences is not None
    held = found.contains(test.prevalences).mean()
    say(f"  {name}: {held:.1%} of the {found.coverage:.0%} intervals contain the truth.")


def _one_bag(test: Bags, found: Intervals, say: Say) -> None:
    assert test.prevalences is not None
    assert test.classes is not None
    typical = int(np.argsort(ae(test.prevalences, found.estimates))[len(test) // 2])
    say("\nIntervals of the models from part 1")
    _inside("HistNetQ, calibrated", found, test, say)
    say(f"Bag {typical}, whose error is the median:")
    say(f"{'digit':>7}{'true':>8}{'estimate':>10}{'interval':>14}")
    columns = test.prevalences, found.estimates, found.lower, found.upper
    for digit, true, estimate, lower, upper in zip(test.classes, *(c[typical] for c in columns), strict=True):
        say(f"{digit:>7}{true:>8.2f}{estimate:>10.2f}{f'{lower:.2f}-{upper:.2f}':>14}  {'█' * round(40 * estimate)}")
