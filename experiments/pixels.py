"""Fashion-MNIST from its pixels, as in the paper: encoder and quantifier learn together, from bags drawn by APP."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import histnetq as hq
from experiments.budgets import Budget
from experiments.fashion import BAG_SIZE, CHOOSING_BAGS, TEST_BAGS
from experiments.images import encoded_images, make_encoder, trained_encoder
from experiments.networks import Trials, run_network
from experiments.runs import Run, Runs
from histnetq.datasets import Examples

__all__ = ["fill", "run_on_images"]

# The paper's; training ends after the minutes of a run.
TRAINING = hq.Training(
    bags_per_epoch=500, batch_bags=2, patience=10, weight_decay=0.0, dropout=0.1, standardize=False,
    min_lr=1e-5, progress=False,
)  # fmt: skip
SETTING: dict[str, Any] = {
    "head": (1024,), "lr": 3e-4, "cumulative": False, "width": 512, "hidden": 256, "n_inducing": 32, "n_heads": 4,
}  # fmt: skip


def fill(
    images: Examples,
    methods: Sequence[str],
    measures: Sequence[str],
    seeds: int,
    encoder: str,
    minutes: float,
    epochs: int,
    directory: Path,
    say: Callable[[str], Any],
) -> tuple[hq.Bags, dict[str, Runs], str]:
    """Complete the missing runs; return the test bags, the runs of each measure and a description."""
    made: Any = make_encoder
    if encoder == "finetune":
        made = trained_encoder(encoded_images(images, directory / "images.npz", say))
    runs = {}
    for measure in ("ae", "rae"):
        runs[measure] = Runs(directory / encoder / f"{measure}-{minutes:g}min", seeds)
        act = partial(
            run_on_images,
            loss=measure,
            data=images,
            encoder=made,
            minutes=minutes,
            epochs=epochs,
            work=directory / encoder,
            say=say,
        )
        if measure in measures:
            runs[measure].fill(methods, act, say)
    where = {"scratch": "learned anew", "finetune": "of the classifier, trained on"}[encoder]
    about = (
        f"Fashion-MNIST, {TEST_BAGS:,} test bags of {BAG_SIZE} by APP. Encoder {where}, with the quantifier, from "
        f"{TRAINING.bags_per_epoch} bags of {BAG_SIZE} training images per epoch; the paper's hyperparameters, "
        f"{minutes:g} minutes of training for each measure; seeds: {seeds}. "
        f"Made by `python -m experiments fashion-mnist --encoder {encoder} --minutes {minutes:g}`, method by method."
    )
    return hq.APP(BAG_SIZE).draw(images.test, TEST_BAGS, random_state=2), runs, about


def run_on_images(
    name: str,
    seed: int,
    loss: str,
    data: Examples,
    encoder: Any,
    minutes: float,
    epochs: int,
    work: Path,
    say: Callable[[str], Any],
) -> Run:
    """Train one network for one measure on the training images, validate it, and estimate the test bags.

    Parameters
    ----------
    encoder : of `hq.HistNetQ`, on images
    say : told of every epoch
    """
    assert data.validation is not None
    validation = hq.APP(BAG_SIZE).draw(data.validation, CHOOSING_BAGS, random_state=1)
    test = hq.APP(BAG_SIZE).draw(data.test, TEST_BAGS, random_state=2)

    def tell(record: dict[str, float]) -> None:
        say(
            f"{name}, seed {seed}, {loss}, epoch {record['epoch']}: training {record['train_loss']:.4f}, "
            f"validation {record['validation_loss']:.4f}, {record['seconds']:.0f} s"
        )

    training = dataclasses.replace(TRAINING, callbacks=(tell,))
    trials = Trials(
        name, seed, [SETTING], training, Budget(trials=1, trial_epochs=1, epochs=epochs, minutes=minutes),
        lambda quantifier: quantifier.fit(data.train, validation=validation),
        work / "trials" / loss, {"loss": loss, "sampler": hq.APP(BAG_SIZE), "encoder": encoder},
    )  # fmt: skip
    return run_network(trials, test)
