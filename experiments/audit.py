"""Coverage and width of audited intervals, next to Wilson's intervals from the labels alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

import histnetq as hq
from histnetq.tables.files import whole_file
from histnetq.uncertainty.audit import extend_labels
from histnetq.uncertainty.row_samples import draw_rows

__all__ = ["DATA", "LABELS", "SHIFTS", "run_audit", "summary"]

Floats = NDArray[np.float64]
# Rows of a bag.
DATA = {"digits": 1000, "4 normal classes": 1000, "3 classes far apart": 1000, "2 normal classes": 1000}
SHIFTS = (
    "prior shift", "covariate shift", "features moved", "a new class", "survey weights", "wrong model: other names",
    "wrong model: noise", "wrong model: sure of one class",
)  # fmt: skip
LABELS = (200,)
_COVERAGE = 0.9
_EXPECTED = 10  # labels of a class that is not called rare
_AT_ONCE = 50  # bags


@dataclass(frozen=True)
class Altered:
    """A quantifier with wrong posteriors: from other rows, from other classes, or all of one class."""

    model: Any
    how: str

    @property
    def classes_(self) -> NDArray:
        return np.asarray(self.model.classes_)

    def predict_rows(self, bags: hq.Bags) -> Floats:
        found: Floats = self.model.predict_rows(bags)
        if self.how.endswith("noise"):
            return found[np.random.default_rng(0).permutation(len(found))]
        if self.how.endswith("other names"):
            return np.roll(found, 1, axis=1)
        return 0.01 * found + 0.99 * np.eye(found.shape[1])[:1]


class World:
    """Labelled rows, a quantifier that has learned from other ones, and bags that are shifted."""

    def __init__(self, name: str) -> None:
        self.name, self.size, rng = name, DATA[name], np.random.default_rng(0)
        if name == "digits":
            digits = hq.datasets.digits()
            assert digits.train.labels is not None
            assert digits.test.labels is not None
            self.X, self.y = np.asarray(digits.test.gather()), digits.test.labels[digits.test.index]
            X, y = np.asarray(digits.train.gather()), digits.train.labels[digits.train.index]
        else:
            n_classes = int(name[0])
            center = (3.0 if name.endswith("far apart") else 1.7) * np.eye(n_classes, 4)
            y = rng.integers(n_classes, size=22_000)
            X = rng.normal(size=(len(y), 4)) + center[y]
            (X, self.X), (y, self.y) = np.split(X, [2000]), np.split(y, [2000])
        self.n_classes = int(y.max()) + 1
        self.model = hq.EMQ(random_state=0).fit(X, y)
        known = y < self.n_classes - 1
        self.blind = hq.EMQ(random_state=0).fit(X[known], y[known]) if self.n_classes > 2 else None

    def rows(self, shift: str, n_bags: int, rng: np.random.Generator) -> Iterator[NDArray]:
        """The numbers of the rows of each bag."""
        of_class = [np.flatnonzero(self.y == k) for k in range(self.n_classes)]
        for _ in range(n_bags):
            if shift == "covariate shift":
                direction = rng.normal(size=self.X.shape[1])
                score = (self.X - self.X.mean(0)) @ direction
                p = np.exp(1.5 * score / score.std())
                yield rng.choice(len(self.y), self.size, p=p / p.sum())
            else:
                counts = rng.multinomial(self.size, rng.dirichlet(np.ones(self.n_classes)))
                yield np.concatenate([rng.choice(own, n) for own, n in zip(of_class, counts, strict=True)])

    def bags(self, shift: str, n_bags: int, rng: np.random.Generator) -> tuple[hq.Bags, NDArray]:
        """Shifted bags, and the class of each entry."""
        index = np.concatenate(list(self.rows(shift, n_bags, rng)))
        offsets, weights, kind = np.arange(n_bags + 1) * self.size, None, "count"
        X = self.X
        if shift == "features moved":
            X = X + 0.7 * X.std() * rng.normal(size=X.shape[1])
        if shift == "survey weights":
            weights, kind = rng.gamma(2.0, 0.5, len(index)), "survey"
        return hq.Bags(X, index, offsets, weights=weights, weight_kind=kind), self.y[index]

    def quantifier(self, shift: str) -> Any:
        if shift == "a new class":
            return self.blind
        return Altered(self.model, shift) if shift.startswith("wrong") else self.model


def run_audit(name: str, n_bags: int, sizes: tuple[int, ...], work: Path) -> Iterator[pd.DataFrame]:
    """The summary of each shift; those that are finished are kept in the directory `work`, and not repeated."""
    world = World(name)
    for shift in SHIFTS:
        model = world.quantifier(shift)
        if model is None:
            continue
        place = work / f"{name}, {shift.replace(':', ',')}, {n_bags}.csv"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            found = summary(pd.concat(_audited(world, shift, model, n_bags, sizes)))
            with whole_file(place) as file:
                found.to_csv(file, index=False)
        yield pd.read_csv(place)


def _audited(world: World, shift: str, model: Any, n_bags: int, sizes: tuple[int, ...]) -> Iterator[pd.DataFrame]:
    """One row per bag and class: the share, whether the interval holds it, its width and that of Wilson's."""
    rng = np.random.default_rng(0)
    for start in range(0, n_bags, _AT_ONCE):
        bags, y = world.bags(shift, min(_AT_ONCE, n_bags - start), rng)
        posteriors = model.predict_rows(bags)
        yield from (_audit(world, shift, posteriors, bags, y, n, start) for n in sizes)


def _audit(
    world: World, shift: str, posteriors: Floats, bags: hq.Bags, y: NDArray, n: int, seed: int
) -> pd.DataFrame:  # fmt: skip
    """Repeat `hq.sample_rows` and `hq.audit` with posteriors that are computed once."""
    classes = np.arange(world.n_classes)
    drawn = draw_rows(posteriors, bags, n, np.random.default_rng(seed))
    found = extend_labels(posteriors, bags, drawn, y[drawn.entries], world.n_classes, _COVERAGE)
    labelled = hq.Bags.trusted(
        y, np.arange(len(y)), bags.offsets, weights=bags.weights, weight_kind=bags.weight_kind, labels=y,
        classes=classes,
    )  # fmt: skip
    p = labelled.label_prevalences()
    # As many labels of rows drawn at random, without weights: what one has without a model.
    among = np.random.default_rng(seed).random((len(bags), world.size)).argpartition(n, axis=1)[:, :n]
    counts = (np.take_along_axis(y.reshape(len(bags), -1), among, 1)[:, :, None] == classes).sum(1)
    predicted, n_classes = posteriors.argmax(1), len(classes)
    return pd.DataFrame({
        "data": world.name, "shift": shift, "labels": n, "share": p.ravel(), "held": found.contains(p).ravel(),
        "error": np.abs(found.estimates - p).ravel(), "plain_error": np.abs(counts / n - p).ravel(),
        "width": (found.upper - found.lower).ravel(), "wilson": _wilson_width(counts / n, n).ravel(),
        "joint": np.repeat(found.region.contains(p), n_classes), "accuracy": (predicted == y).mean(),
    })  # fmt: skip


def _wilson_width(p: Floats, n: int) -> Floats:
    z2 = float(ndtri((1 + _COVERAGE) / 2)) ** 2
    width: Floats = 2 * np.sqrt(z2 * p * (1 - p) / n + z2**2 / (4 * n**2)) / (1 + z2 / n)
    return width


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Coverage and widths by shift, of classes that expect 10 labels and more, and of rarer ones that are there."""
    expected = table["share"] * table["labels"]
    kinds = {"common": expected >= _EXPECTED, "rare": (expected < _EXPECTED) & (table["share"] > 0)}
    keys = ["data", "shift", "labels"]
    parts = []
    for kind, which in kinds.items():
        found = table[which].groupby(keys, sort=False)[["held", "width", "wilson", "error", "plain_error"]].mean()
        ratio, errors = found["width"] / found["wilson"], found["error"] / found["plain_error"]
        own = pd.DataFrame({f"{kind}_coverage": found["held"], f"{kind}_width": ratio, f"{kind}_error": errors})
        parts.append(own)
    about = table.groupby(keys, sort=False).agg(accuracy=("accuracy", "mean"), joint=("joint", "mean"))
    return about.join(parts).reset_index()
