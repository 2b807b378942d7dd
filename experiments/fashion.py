"""Fashion-MNIST with a frozen encoder: what the classifier says of each image is computed once, bags are learned fast.

The classifier is trained on 50,000 images. Everything else learns from the 10,000 validation images, which it has not
seen: the classical methods from their posteriors, the networks from bags of 500 of them drawn by APP, with the
posteriors as inputs. 3,000 of the 10,000 choose settings and stop training.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import histnetq as hq
from experiments.choices import draw_settings, mean_error, setting_text
from experiments.classical import CLASSICAL
from experiments.networks import NETWORKS, run_network
from experiments.runs import Run
from histnetq.datasets import Examples

__all__ = ["METHODS", "Frozen", "run"]

METHODS = [*CLASSICAL, *NETWORKS]
BAG_SIZE, TEST_BAGS, CHOOSING_BAGS = 500, 5_000, 500
_CHOOSING = 3_000  # images of the validation part that choose settings
TRAINING = hq.Training(
    epochs=200, bags_per_epoch=1000, batch_bags=10, patience=8, dropout=0.0, progress=False, checkpoint_every=5
)
_NETWORK_SETTINGS: list[dict[str, Any]] = [
    {"encoder": (32,), "head": (512,), "lr": 1e-3},
    {"encoder": (64, 32), "head": (1024,), "lr": 1e-3},
    {"encoder": (64,), "head": (1024,), "lr": 5e-4},
]


class Frozen:
    """Posteriors of the validation and test images, and the bags to choose by and to be scored on."""

    def __init__(self, data: Examples, encoded: dict[str, NDArray]) -> None:
        assert data.validation is not None
        assert data.train.labels is not None
        rows = np.random.default_rng(0).permutation(data.validation.index)
        posteriors, labels = encoded["train_posteriors"], data.train.labels
        self.classes = data.classes
        self.posteriors, self.labels = posteriors[rows], labels[rows]
        self.learning, self.choosing = np.arange(_CHOOSING, len(rows)), np.arange(_CHOOSING)
        chosen = hq.Bags.from_labels(self.posteriors[self.choosing], self.labels[self.choosing])
        self.validation = hq.APP(BAG_SIZE).draw(chosen, CHOOSING_BAGS, random_state=1)
        tested = hq.Bags(encoded["test_posteriors"], labels=data.test.labels, classes=range(len(data.classes)))
        self.test = hq.APP(BAG_SIZE).draw(tested, TEST_BAGS, random_state=2)


def run(name: str, seed: int, loss: str, data: Frozen, trials: int, work: Path) -> Run:
    """One method with one seed, chosen (and, if a network, trained) for one measure."""
    if name == "MLPE":
        uniform = np.full((len(data.test), len(data.classes)), 1 / len(data.classes))
        return Run(uniform, "", 0, mean_error(loss, data.validation, uniform[: len(data.validation)]), 0.0, 0.0)
    if name in NETWORKS:
        return _run_network(name, seed, loss, data, trials, work)
    return _run_classical(name, seed, loss, data, trials)


def _run_classical(name: str, seed: int, loss: str, data: Frozen, trials: int) -> Run:
    """Choose a setting on the choosing images, then learn from all 10,000 and estimate the test bags."""
    options, best = draw_settings(CLASSICAL[name].space, trials, seed), None
    for setting in options:
        quantifier = _fit(name, seed, setting, data, data.learning)
        error = mean_error(loss, data.validation, quantifier.predict_posteriors(data.validation))
        if best is None or error < best[0]:
            best = error, setting
    assert best is not None
    began = time.perf_counter()
    quantifier = _fit(name, seed, best[1], data, np.arange(len(data.labels)))
    fitted = time.perf_counter()
    estimates = quantifier.predict_posteriors(data.test)
    took = time.perf_counter() - fitted
    return Run(estimates, setting_text(best[1]), len(options), float(best[0]), fitted - began, took)


def _run_network(name: str, seed: int, loss: str, data: Frozen, trials: int, work: Path) -> Run:
    """Choose by the loss on bags of the choosing images, which also stop training, then estimate the test bags."""
    rows, labels = _scaled(data.posteriors[data.learning]), data.labels[data.learning]
    validation = _inputs(data.validation)
    return run_network(
        name, seed, _NETWORK_SETTINGS[:trials], TRAINING, 1 / 100,
        lambda quantifier: quantifier.fit(rows, labels, validation=validation),
        _inputs(data.test), work / "trials" / loss, loss=loss, sampler=hq.APP(BAG_SIZE),
    )  # fmt: skip


def _fit(name: str, seed: int, setting: dict[str, Any], data: Frozen, rows: NDArray) -> Any:
    quantifier = CLASSICAL[name].make(seed, BAG_SIZE, **setting)
    return quantifier.fit_posteriors(data.posteriors[rows], data.labels[rows])


def _inputs(bags: hq.Bags) -> hq.Bags:
    return hq.Bags(_scaled(bags.rows), bags.index, bags.offsets, prevalences=bags.prevalences, classes=bags.classes)


def _scaled(posteriors: NDArray) -> NDArray[np.float32]:
    """Between −4 and 4, where the sigmoid before the histograms spreads them over the bins."""
    return (8 * (posteriors - 0.5)).astype(np.float32)
