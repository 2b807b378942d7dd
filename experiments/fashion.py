"""Fashion-MNIST with a frozen encoder: what the classifier says of each image is computed once, bags are learned fast.

The classifier is trained on 50,000 images. Everything else learns from the 10,000 validation images, which it has not
seen: the classical methods from their posteriors, the networks from bags of 500 of them drawn by APP, with the
log-odds of the posteriors as inputs. 3,000 of the 10,000 choose settings and stop training; of the other 7,000 the
networks see the mirror images, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

import histnetq as hq
from experiments import fashion_mnist
from experiments.budgets import Budget
from experiments.choices import draw_settings, mean_error, setting_text
from experiments.classical import CLASSICAL
from experiments.images import encoded_images
from experiments.networks import NETWORKS, Trials, run_network
from experiments.runs import Run, Runs, digest
from histnetq.datasets import Examples

__all__ = ["BUDGETS", "METHODS", "Frozen", "fill", "finished", "run"]

METHODS = [*(name for name, method in CLASSICAL.items() if method.reads == "posteriors"), *NETWORKS]
BUDGETS = {
    "quick": Budget(trials=4, trial_epochs=15, epochs=200, minutes=1.5, trial_minutes=1.5 / 8),
    "full": Budget(trials=4, trial_epochs=60, epochs=600, seeds=5),
}
BAG_SIZE, TEST_BAGS, CHOOSING_BAGS = 500, 5_000, 500
_CHOOSING = 3_000  # images of the validation part that choose settings
TRAINING = hq.Training(
    bags_per_epoch=1000, batch_bags=10, patience=8, warmup=5, min_lr=1e-5, dropout=0.0, standardize=False,
    progress=False, checkpoint_every=10,
)  # fmt: skip
SPACE: dict[str, list[Any]] = {
    "encoder": [nn.Identity(), (64, 32)],
    "head": [(512,)],
    "lr": [1e-3, 3e-3],
    "cumulative": [False],
    "width": [64],
    "hidden": [64],
    "n_inducing": [16],
}
# Settings of EMNetQ.
LIKELIHOOD: dict[str, list[Any]] = {
    "encoder": [(64,), (128,)], "ridge": [None], "prior": [0.0], "label_weight": [0.1, 0.3], "lr": [3e-3],
    "average": [100],
}  # fmt: skip


class Frozen:
    """Posteriors of the validation and test images, and the bags to choose by and to be scored on."""

    def __init__(self, data: Examples, encoded: dict[str, NDArray]) -> None:
        assert data.validation is not None
        assert data.train.labels is not None
        rows = np.random.default_rng(0).permutation(data.validation.index)
        posteriors, labels = encoded["train_posteriors"], data.train.labels
        self.classes, self.fitted = data.classes, dict[tuple[Any, ...], tuple[Any, float]]()
        self.posteriors, self.mirrored = posteriors[rows], encoded["mirrored_posteriors"][rows]
        self.labels = labels[rows]
        self.learning, self.choosing = np.arange(_CHOOSING, len(rows)), np.arange(_CHOOSING)
        chosen = hq.Bags.from_labels(self.posteriors[self.choosing], self.labels[self.choosing])
        self.validation = hq.APP(BAG_SIZE).draw(chosen, CHOOSING_BAGS, random_state=1)
        tested = hq.Bags(encoded["test_posteriors"], labels=data.test.labels, classes=range(len(data.classes)))
        self.test = hq.APP(BAG_SIZE).draw(tested, TEST_BAGS, random_state=2)
        bags = self.validation.fingerprint(), self.test.fingerprint()
        self.identity = digest(*bags, SPACE, LIKELIHOOD, TRAINING.identity())


def fill(
    images: Examples,
    methods: Sequence[str],
    measures: Sequence[str],
    budget: Budget,
    directory: Path,
    say: Callable[[str], Any],
) -> tuple[hq.Bags, dict[str, Runs], str]:
    """Complete the missing runs; return the test bags, the runs of each measure and a description."""
    encoded = encoded_images(images, directory / "images.npz", say)
    accuracy = float((encoded["test_posteriors"].argmax(1) == images.test.labels).mean())
    say(f"classifier: test accuracy {accuracy:.4f}")
    data, runs = Frozen(images, encoded), {}
    for measure in ("ae", "rae"):
        runs[measure] = Runs(_place(data, measure, budget, directory), budget.seeds)
        if measure in measures:
            act = partial(run, loss=measure, data=data, budget=budget, work=runs[measure].directory)
            runs[measure].fill(methods, act, say)
    about = (
        f"Fashion-MNIST, {len(data.test):,} test bags of {BAG_SIZE} by APP. Frozen encoder: the classifier "
        f"(test accuracy {accuracy:.4f}) says of each image how likely each class is. 10,000 images that it has not "
        "seen are left to learn from: 3,000 of them choose; networks learn from bags of the other 7,000 and of "
        f"their mirror images, classical methods at last from all. {budget.trials} settings where a method has as "
        f"many, {budget.words()}. An epoch has 1,000 bags. Networks are trained for the measure of their column. "
        "Made by `python -m experiments fashion-mnist`."
    )
    return data.test, runs, about


def finished(measure: str, budget: Budget, directory: Path) -> tuple[hq.Bags, NDArray[np.float64], Runs]:
    """The test bags, the prevalences in training, and the runs that are finished for this measure."""
    images = fashion_mnist.read_fashion_mnist()
    data = Frozen(images, encoded_images(images, directory / "images.npz", print))
    uniform = np.full(len(data.classes), 1 / len(data.classes))
    return data.test, uniform, Runs(_place(data, measure, budget, directory), budget.seeds)


def _place(data: Frozen, measure: str, budget: Budget, directory: Path) -> Path:
    """The directory of runs and checkpoints."""
    return directory / f"frozen-{data.identity}-{budget.name(measure)}"


def run(name: str, seed: int, loss: str, data: Frozen, budget: Budget, work: Path) -> Run:
    """One method with one seed, chosen (and, if a network, trained) for one measure."""
    if name == "MLPE":
        uniform = np.full((len(data.test), len(data.classes)), 1 / len(data.classes))
        return Run(uniform, "", 0, mean_error(loss, data.validation, uniform[: len(data.validation)]), 0.0, 0.0)
    if name in NETWORKS:
        return _run_network(name, seed, loss, data, budget, work)
    return _run_classical(name, seed, loss, data, budget.trials)


def _run_classical(name: str, seed: int, loss: str, data: Frozen, trials: int) -> Run:
    """Choose a setting on the choosing images, then learn from all 10,000 and estimate the test bags."""
    options, best = draw_settings(CLASSICAL[name].space, trials, seed), None
    for setting in options:
        quantifier, _ = _fit(name, seed, setting, data, data.learning)
        error = mean_error(loss, data.validation, quantifier.predict_posteriors(data.validation))
        if best is None or error < best[0]:
            best = error, setting
    assert best is not None
    quantifier, seconds = _fit(name, seed, best[1], data, np.arange(len(data.labels)))
    began = time.perf_counter()
    estimates = quantifier.predict_posteriors(data.test)
    took = time.perf_counter() - began
    return Run(estimates, setting_text(best[1]), len(options), float(best[0]), seconds, took)


def _run_network(name: str, seed: int, loss: str, data: Frozen, budget: Budget, work: Path) -> Run:
    """Choose by the loss on bags of the choosing images, which also stop training, then estimate the test bags."""
    rows = _inputs(np.concatenate([data.posteriors[data.learning], data.mirrored[data.learning]]))
    labels = np.tile(data.labels[data.learning], 2)
    validation, test = (_on_inputs(bags) for bags in (data.validation, data.test))
    trials = Trials(
        name, seed, draw_settings(LIKELIHOOD if name == "EMNetQ" else SPACE, budget.trials, 0), TRAINING, budget,
        lambda quantifier: quantifier.fit(rows, labels, validation=validation),
        work / "trials", {"loss": loss, "sampler": hq.APP(BAG_SIZE)},
    )  # fmt: skip
    return run_network(trials, test)


def _fit(name: str, seed: int, setting: dict[str, Any], data: Frozen, rows: NDArray) -> tuple[Any, float]:
    """Return the fitted method and its seconds; all measures share one fit."""
    key = name, seed, setting_text(setting), len(rows)
    if key not in data.fitted:
        quantifier = CLASSICAL[name].make(seed, BAG_SIZE, **setting)
        began = time.perf_counter()
        quantifier.fit_posteriors(data.posteriors[rows], data.labels[rows])
        data.fitted[key] = quantifier, time.perf_counter() - began
    return data.fitted[key]


def _on_inputs(bags: hq.Bags) -> hq.Bags:
    return hq.Bags(_inputs(bags.rows), bags.index, bags.offsets, prevalences=bags.prevalences, classes=bags.classes)


def _inputs(posteriors: NDArray) -> NDArray[np.float32]:
    """Return log-odds; the sigmoid before the histograms spreads them over the bins."""
    p = np.clip(posteriors, 1e-6, 1 - 1e-6)
    return (0.35 * np.log(p / (1 - p))).astype(np.float32)
