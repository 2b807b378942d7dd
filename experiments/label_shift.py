"""Class weights under label shift on Fashion-MNIST, by the protocol of Alexandari, Kundaje & Shrikumar (2020).

Classifiers are dense networks on pixels, or the convolutional one of `fashion-mnist`. Every draw takes so many labelled
images that they have not seen, to calibrate by and to learn from, and as many test images for each shift of the
classes. All methods get the same posteriors of the same draws.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import wilcoxon
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

import histnetq as hq
from experiments.images import encoded_images
from experiments.runs import Run, Runs, digest, save_arrays
from histnetq.datasets import Examples
from histnetq.evaluation.comparison import Comparison
from histnetq.quantifiers.classical.emq import maximise_likelihood
from histnetq.quantifiers.classical.rescaling import fit_scales, rescale
from histnetq.simplex import apportion

__all__ = [
    "CLASSIFIERS", "COMBINED", "METHODS", "SHIFTS", "SIZES", "Draw", "Scored", "against", "calibration_errors",
    "comparisons", "draw_all", "errors_of", "learn", "scored_images", "weights_table",
]  # fmt: skip

Floats = NDArray[np.float64]
CLASSIFIERS = {
    "dense": "two hidden layers of 256 and 128 on pixels, 15 epochs",
    "cnn": "two convolutions and a dense layer, trained with dropout and mirror images",
}
SIZES = (2_000, 4_000, 8_000)
_DIRICHLET, _TWEAKED = (0.1, 1.0, 5.0, 10.0), (0.01, 0.9)
_TWEAKED_CLASS = 3
SHIFTS = [*(f"α = {alpha:g}" for alpha in _DIRICHLET), *(f"ρ = {rho:g}" for rho in _TWEAKED)]
_CALIBRATIONS = ("ts", "bcts", "shrunk", "vs")
_ECE_BINS = 15
_EPOCHS = 15  # of the dense networks
_LEVEL = 0.01  # of the one-sided test against one method, as in the source


@dataclass(frozen=True)
class Scored:
    """Posteriors of a classifier on labelled images that it has not seen: to learn from, and for tests."""

    held: hq.Bags
    test: hq.Bags

    @property
    def accuracy(self) -> float:
        return float((self.test.rows.argmax(1) == self.test.labels).mean())


@dataclass(eq=False)
class Draw:
    """Posteriors and labels of rows to learn from, and a bag of test rows for each shift."""

    posteriors: Floats
    labels: NDArray[np.int64]
    test: hq.Bags
    scales: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)

    @property
    def prior(self) -> Floats:
        """Prevalences of the classes among the rows to learn from, (n_classes,)."""
        counts = np.bincount(self.labels, minlength=self.posteriors.shape[1])
        return counts / counts.sum()

    def rescaled(self, kind: str | None) -> Draw:
        """The same with posteriors calibrated by "ts", "bcts" or "vs" on the rows to learn from."""
        if kind is None:
            return self
        if kind not in self.scales:
            self.scales[kind] = fit_scales(self.posteriors, self.labels, kind)
        pool = rescale(self.test.rows, *self.scales[kind])
        bags = hq.Bags(pool, self.test.index, self.test.offsets, prevalences=self.test.prevalences)
        return Draw(rescale(self.posteriors, *self.scales[kind]), self.labels, bags)


def _learned(quantifier: Any, calibration: str | None = None) -> Callable[[Draw], Floats]:
    def estimate(draw: Draw) -> Floats:
        seen = draw.rescaled(calibration)
        classes = range(seen.posteriors.shape[1])
        found: Floats = (
            clone(quantifier).fit_posteriors(seen.posteriors, seen.labels, classes).predict_posteriors(seen.test)
        )
        return found

    return estimate


def _by_mean_posteriors(calibration: str | None) -> Callable[[Draw], Floats]:
    """EM as the source has it: mean posteriors are the prior, not the classes' part of the labels."""

    def estimate(draw: Draw) -> Floats:
        seen = draw.rescaled(calibration)
        prior = seen.posteriors.mean(0)
        weights = maximise_likelihood(seen.test.rows, prior, seen.test.index, seen.test.offsets) / prior
        p: Floats = weights * draw.prior
        return p / p.sum(1, keepdims=True)

    return estimate


# Posteriors are calibrated once for all: "EMQ-BCTS" is what `hq.EMQ(rescaling="bcts")` gives.
METHODS: dict[str, Callable[[Draw], Floats]] = {
    "EMQ": _learned(hq.EMQ(rescaling=None)),
    "EMQ-TS": _learned(hq.EMQ(rescaling=None), "ts"),
    "EMQ-BCTS": _learned(hq.EMQ(rescaling=None), "bcts"),
    "EMQ-shrunk": _learned(hq.EMQ(rescaling=None), "shrunk"),
    "EMQ-VS": _learned(hq.EMQ(rescaling=None), "vs"),
    "EMQ-mean-prior": _by_mean_posteriors(None),
    "EMQ-TS-mean-prior": _by_mean_posteriors("ts"),
    "BBSE-hard": _learned(hq.BBSE(mode="hard")),
    "BBSE-soft": _learned(hq.BBSE()),
    "BBSE-soft-BCTS": _learned(hq.BBSE(), "bcts"),
    "RLLS-hard": _learned(hq.RLLS(mode="hard")),
    "RLLS-soft": _learned(hq.RLLS()),
    "RLLS-soft-BCTS": _learned(hq.RLLS(), "bcts"),
    "PACC": _learned(hq.PACC()),
    "HDy": _learned(hq.HDy()),
    "KDEy": _learned(hq.KDEy()),
    "KDEy-BCTS": _learned(hq.KDEy(), "bcts"),
    "ED": _learned(hq.ED()),
    "ED-BCTS": _learned(hq.ED(), "bcts"),
}
# Means of the estimates of several methods; the first equals `hq.Ensemble()`.
COMBINED = {
    "Ensemble": ("EMQ-BCTS", "KDEy", "PACC"),
    "Ensemble-BCTS": ("EMQ-BCTS", "KDEy-BCTS", "ED-BCTS"),
}


def scored_images(images: Examples, kind: str, seed: int, work: Path, say: Callable[[str], Any]) -> Scored:
    """Train a classifier, "dense" or "cnn", on the training images, or read its cached results."""
    assert images.validation is not None
    assert images.train.labels is not None
    rows = images.validation.index
    if kind == "dense":
        held, test = _dense(images, work / "label-shift" / f"dense-{seed}.npz", seed)
    else:
        name = "images.npz" if seed == 0 else f"images-{seed}.npz"
        encoded = encoded_images(images, work / "fashion-mnist" / name, say, seed)
        held, test = encoded["train_posteriors"][rows], encoded["test_posteriors"]
    classes = range(len(images.classes))
    scored = Scored(
        hq.Bags(held, labels=images.train.labels[rows], classes=classes),
        hq.Bags(test, labels=images.test.labels, classes=classes),
    )
    say(f"classifier {seed}: test accuracy {scored.accuracy:.4f}")
    return scored


def _dense(images: Examples, path: Path, seed: int) -> tuple[Floats, Floats]:
    """Posteriors of the validation and test images by two hidden layers on pixels, kept on disk."""
    if not path.exists():
        assert images.validation is not None
        assert images.train.labels is not None
        model = MLPClassifier((256, 128), batch_size=128, max_iter=_EPOCHS, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # so many epochs are asked for
            model.fit(_pixels(images.train), images.train.labels[images.train.index])
        held, test = (model.predict_proba(_pixels(part)) for part in (images.validation, images.test))
        save_arrays(path, held=held, test=test)
    with np.load(path) as file:
        return file["held"].astype(np.float64), file["test"].astype(np.float64)


def _pixels(images: hq.Bags) -> NDArray[np.float32]:
    return images.rows[images.index].reshape(len(images.index), -1).astype(np.float32) / 255


def draw_all(scored: Scored, n_draws: int, seed: int) -> list[Draw]:
    """So many draws of each size, the sizes one after another."""
    return [_draw(scored, size, [seed, size, n]) for size, n in itertools.product(SIZES, range(n_draws))]


def _draw(scored: Scored, size: int, seed: list[int]) -> Draw:
    rng, held = np.random.default_rng(seed), scored.held
    assert held.labels is not None
    assert held.classes is not None
    rows = rng.choice(len(held.labels), size, replace=False)
    bags = _shifted(scored.test, _mixes(len(held.classes), rng), size, rng)
    return Draw(held.rows[rows], held.labels[rows], bags)


def _mixes(n_classes: int, rng: np.random.Generator) -> Floats:
    """One mix of each shift, (n_shifts, n_classes)."""
    drawn = [rng.dirichlet(np.full(n_classes, alpha)) for alpha in _DIRICHLET]
    tweaked = [np.full(n_classes, (1 - rho) / (n_classes - 1)) for rho in _TWEAKED]
    for mix, rho in zip(tweaked, _TWEAKED, strict=True):
        mix[_TWEAKED_CLASS] = rho
    return np.array([*drawn, *tweaked])


def _shifted(pool: hq.Bags, mixes: Floats, size: int, rng: np.random.Generator) -> hq.Bags:
    """A bag of so many labelled rows of the pool for each mix, with replacement within the classes."""
    assert pool.labels is not None
    n_bags, n_classes = mixes.shape
    counts = apportion(mixes, np.full(n_bags, size))
    of_class, by_class = np.bincount(pool.labels, minlength=n_classes), np.argsort(pool.labels, kind="stable")
    label = np.repeat(np.tile(np.arange(n_classes), n_bags), counts.ravel())
    index = by_class[(np.cumsum(of_class) - of_class)[label] + rng.integers(of_class[label])]
    return hq.Bags(pool.rows, index, size * np.arange(n_bags + 1), prevalences=counts / size, classes=range(n_classes))


def learn(
    images: Examples,
    kind: str,
    draws: Sequence[Sequence[Draw]],
    methods: Sequence[str],
    work: Path,
    say: Callable[[str], Any],
) -> Runs:
    """Estimate all bags of the draws of each classifier, where that is not done yet."""
    place = digest(images.train.fingerprint(), images.test.fingerprint(), SIZES, SHIFTS, len(draws[0]))
    runs = Runs(work / "label-shift" / f"{kind}-{place}", len(draws))

    def act(method: str, seed: int) -> Run:
        began = time.process_time()
        estimates = np.concatenate([METHODS[method](draw) for draw in draws[seed]])
        return Run(estimates, "", 1, float("nan"), time.process_time() - began, 0.0)

    _calibrate(draws, runs, say)
    runs.fill(methods, act, say)
    return runs


def _calibrate(draws: Sequence[Sequence[Draw]], runs: Runs, say: Callable[[str], Any]) -> None:
    """Fit the scales of all draws, or read those that were fitted before."""
    names = {f"scales of {kind}": kind for kind in _CALIBRATIONS}

    def act(name: str, seed: int) -> Run:
        began = time.process_time()
        found = [fit_scales(draw.posteriors, draw.labels, names[name]) for draw in draws[seed]]
        return Run(np.array(found), "", 1, float("nan"), time.process_time() - began, 0.0)

    runs.fill(names, act, say)
    for name, kind in names.items():
        for own, run in zip(draws, runs.read(name), strict=True):
            for draw, (scale, bias) in zip(own, run.estimates, strict=True):
                draw.scales[kind] = scale, bias


def errors_of(draws: Sequence[Sequence[Draw]], runs: Runs) -> pd.DataFrame:
    """Errors of the methods that all classifiers are finished with.

    One row per classifier, size, number of the draw and shift; columns (method, measure). "mse" is the mean squared
    error of the weights: prevalences in the bag divided by the training prevalences.
    """
    keys = range(len(draws)), SIZES, range(len(draws[0]) // len(SIZES)), SHIFTS
    index = pd.MultiIndex.from_product(keys, names=["classifier", "size", "draw", "shift"])
    every = [draw for own in draws for draw in own]
    truth = np.concatenate([draw.test.prevalences for draw in every])
    prior = np.repeat([draw.prior for draw in every], len(SHIFTS), axis=0)
    estimates = {
        method: np.concatenate([run.estimates for run in found])
        for method in METHODS
        if len(found := runs.read(method)) == len(draws)
    }
    for name, members in COMBINED.items():
        if all(member in estimates for member in members):
            estimates[name] = np.mean([estimates[member] for member in members], axis=0)
    errors = {}
    for method, p in estimates.items():
        errors[method, "mse"] = (((p - truth) / prior) ** 2).mean(1)
        errors[method, "ae"] = hq.metrics.ae(truth, p)
    return pd.DataFrame(errors, index=index).rename_axis(columns=["method", "measure"])


def comparisons(errors: pd.DataFrame) -> pd.DataFrame:
    """All methods against the best of each size and shift: what `Comparison` tells, and the mean of each classifier."""
    parts, methods = [], list(dict.fromkeys(errors.columns.get_level_values("method")))
    for size, shift in itertools.product(SIZES, SHIFTS):
        part = errors.xs((size, shift), level=("size", "shift"))
        found = Comparison(part, dict.fromkeys(methods, 1), None, alpha=0.05).to_frame()
        found = found.rename(columns={"n_bags": "draws"}).drop(columns="n_seeds")
        found.insert(0, "size", size)
        found.insert(1, "shift", shift)
        means = part.groupby(level="classifier").mean()
        for classifier, own in means.iterrows():
            pairs = zip(found["method"], found["measure"], strict=True)
            found[f"mean, classifier {classifier}"] = [own[pair] for pair in pairs]
        parts.append(found)
    return pd.concat(parts, ignore_index=True)


def against(errors: pd.DataFrame, method: str, measure: str = "mse") -> pd.DataFrame:
    """In how many settings, a size and a shift each, another method is better or worse than this one.

    The test is Wilcoxon's, one-sided and at .01. `ratio` is the geometric mean over the settings of the ratio of mean
    errors.
    """
    table, rows = errors.xs(measure, axis=1, level="measure"), []
    settings = [table.xs(pair, level=("size", "shift")) for pair in itertools.product(SIZES, SHIFTS)]
    for other in table.columns.drop(method):
        gaps = [(part[other] - part[method]).to_numpy() for part in settings]
        ratios = [part[other].mean() / part[method].mean() for part in settings]
        better, worse = (sum(_is_clear(gap, side) for gap in gaps) for side in ("less", "greater"))
        rows.append({
            "method": other, "ratio": float(np.exp(np.mean(np.log(ratios)))), "better": better, "worse": worse,
            "neither": len(gaps) - better - worse,
        })  # fmt: skip
    return pd.DataFrame(rows)


def _is_clear(gap: Floats, side: str) -> bool:
    gap = gap[gap != 0]
    return len(gap) > 0 and float(wilcoxon(gap, alternative=side).pvalue) < _LEVEL


def calibration_errors(scored: Sequence[Scored], draws: Sequence[Sequence[Draw]]) -> pd.DataFrame:
    """How well posteriors of the test images are calibrated: mean negative log-likelihood, and expected error in bins.

    Means over the classifiers and the draws of each size.
    """
    rows = []
    for (own, of_own), kind in itertools.product(zip(scored, draws, strict=True), (None, *_CALIBRATIONS)):
        assert own.test.labels is not None
        for draw in of_own:
            p = draw.rescaled(kind).test.rows
            loss = -np.log(np.maximum(p[np.arange(len(p)), own.test.labels], 1e-12)).mean()
            name = "none" if kind is None else kind.upper()
            rows.append({"size": len(draw.labels), "calibration": name, "nll": loss, "ece": _ece(p, own.test.labels)})
    return pd.DataFrame(rows).groupby(["size", "calibration"], sort=False).mean().reset_index()


def _ece(posteriors: Floats, labels: NDArray[np.int64]) -> float:
    """Expected calibration error: mean gap between confidence and accuracy in bins of the confidence."""
    confidence, right = posteriors.max(1), posteriors.argmax(1) == labels
    place = np.minimum((confidence * _ECE_BINS).astype(int), _ECE_BINS - 1)
    return float(np.abs(np.bincount(place, confidence - right)).sum() / len(labels))


def weights_table(found: pd.DataFrame, size: int, measure: str) -> str:
    """Means in thousandths, as a table in Markdown: bold for the best, and Wilcoxon's marks against it."""
    part = found[(found["size"] == size) & (found["measure"] == measure)]
    lines = [f"| method | {' | '.join(SHIFTS)} |", "| :-- |" + " --: |" * len(SHIFTS)]
    for method, own in part.groupby("method", sort=False):
        cells = [f"{1000 * row['mean']:.2f}{row['mark']}" for _, row in own.iterrows()]
        cells = [f"**{cell}**" if best else cell for cell, best in zip(cells, own["best"], strict=True)]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)
