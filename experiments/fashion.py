"""Fashion-MNIST with a frozen encoder: what the classifier says of each image is computed once, bags are learned fast.

The classifier is trained on 50,000 images. Everything else learns from the 10,000 validation images, which it has not
seen: the classical methods from their posteriors, the networks from bags of 500 of them drawn by APP, with the
posteriors as inputs. 3,000 of the 10,000 choose settings and stop training.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import histnetq as hq
from experiments.classical import CLASSICAL
from experiments.networks import NETWORKS
from experiments.runs import Run
from histnetq.datasets import Examples

__all__ = ["METHODS", "Frozen", "run"]

METHODS = [*CLASSICAL, *NETWORKS]
BAG_SIZE, TEST_BAGS, CHOOSING_BAGS = 500, 5_000, 500
_CHOOSING = 3_000  # images of the validation part that choose settings
TRAINING = hq.Training(epochs=200, bags_per_epoch=1000, batch_bags=10, patience=8, dropout=0.0, progress=False)
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


def _settings(name: str, trials: int) -> list[dict[str, Any]]:
    """At most so many settings; methods without parameters of their own have one."""
    if name in NETWORKS:
        return _NETWORK_SETTINGS[:trials]
    space = CLASSICAL[name].space
    every: list[dict[str, Any]] = [{}]
    for key, values in space.items():
        every = [{**setting, key: value} for setting in every for value in values]
    order = np.random.default_rng(len(every)).permutation(len(every))
    return [every[i] for i in order[:trials]]


def run(name: str, seed: int, loss: str, data: Frozen, trials: int, work: Path) -> Run:
    """One method with one seed, chosen (and, if a network, trained) for one measure."""
    if name == "MLPE":
        uniform = np.full((len(data.test), len(data.classes)), 1 / len(data.classes))
        return Run(uniform, "", 0, _error(loss, data.validation, uniform[: len(data.validation)]), 0.0, 0.0)
    if name in NETWORKS:
        return _run_network(name, seed, loss, data, trials, work)
    return _run_classical(name, seed, loss, data, trials)


def _run_classical(name: str, seed: int, loss: str, data: Frozen, trials: int) -> Run:
    """Choose a setting on the choosing images, then learn from all 10,000 and estimate the test bags."""
    options, best = _settings(name, trials), None
    for setting in options:
        quantifier = _fit(name, seed, setting, data, data.learning)
        error = _error(loss, data.validation, quantifier.predict_posteriors(data.validation))
        if best is None or error < best[0]:
            best = error, setting
    assert best is not None
    began = time.perf_counter()
    quantifier = _fit(name, seed, best[1], data, np.arange(len(data.labels)))
    fitted = time.perf_counter()
    estimates = quantifier.predict_posteriors(data.test)
    took = time.perf_counter() - fitted
    return Run(estimates, _text(best[1]), len(options), float(best[0]), fitted - began, took)


def _run_network(name: str, seed: int, loss: str, data: Frozen, trials: int, work: Path) -> Run:
    """Choose by the loss on bags of the choosing images, which also stop training, then estimate the test bags."""
    best: tuple[float, Any, dict[str, Any]] | None = None
    validation = _inputs(data.validation)
    for number, setting in enumerate(_settings(name, trials)):
        checkpoint = str(work / "trials" / f"{name}-{loss}-seed{seed}-{number}")
        training = dataclasses.replace(
            TRAINING, lr=setting["lr"], min_lr=setting["lr"] / 100, checkpoint=checkpoint, checkpoint_every=5
        )
        quantifier = NETWORKS[name](
            encoder=setting["encoder"], head=setting["head"], loss=loss, sampler=hq.APP(BAG_SIZE),
            training=training, random_state=seed,
        )  # fmt: skip
        rows = _scaled(data.posteriors[data.learning])
        quantifier.fit(rows, data.labels[data.learning], validation=validation)
        if best is None or quantifier.validation_loss_ < best[0]:
            best = quantifier.validation_loss_, quantifier, setting
    assert best is not None
    began = time.perf_counter()
    estimates = best[1].predict(_inputs(data.test))
    took = time.perf_counter() - began
    chosen = f"{_text(best[2])}, epochs={best[1].best_epoch_} of {len(best[1].history_['epoch'])}"
    return Run(estimates, chosen, trials, best[0], float(best[1].history_["seconds"].sum()), took)


def _fit(name: str, seed: int, setting: dict[str, Any], data: Frozen, rows: NDArray) -> Any:
    quantifier = CLASSICAL[name].make(seed, BAG_SIZE, **setting)
    return quantifier.fit_posteriors(data.posteriors[rows], data.labels[rows])


def _inputs(bags: hq.Bags) -> hq.Bags:
    return hq.Bags(_scaled(bags.rows), bags.index, bags.offsets, prevalences=bags.prevalences, classes=bags.classes)


def _scaled(posteriors: NDArray) -> NDArray[np.float32]:
    """Between −4 and 4, where the sigmoid before the histograms spreads them over the bins."""
    return (8 * (posteriors - 0.5)).astype(np.float32)


def _error(loss: str, bags: hq.Bags, estimates: NDArray[np.float64]) -> float:
    return float(hq.metrics.MEASURES[loss](bags.prevalences, estimates, bags.sizes).mean())


def _text(setting: dict[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in setting.items())
