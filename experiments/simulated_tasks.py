"""Simulated quantification tasks: real classifiers fitted to simulated rows, for pretraining.

A task keeps the out-of-fold posteriors and labels of its labelled rows, and posteriors of further rows of each class.
So bags of any mix can be drawn later. Task *i* depends only on the seed and on *i*. Tasks are written in shards of 25.
Existing shards are skipped, so an interrupted run resumes.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import histnetq as hq

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SHARD = 25  # tasks in a file
_MOST_CLASSES, _MOST_ROWS = 30, 4000
_POOL, _FEWEST_IN_POOL = 6000, 150  # rows for bags: in all, and of each class
_FEWEST = 3  # labelled rows of a class


@dataclass(frozen=True)
class Task:
    """One simulated task.

    Attributes
    ----------
    posteriors : (n_labelled, n_classes)
        Out-of-fold posteriors of labelled rows.
    labels : (n_labelled,)
    pool : (n_pool, n_classes)
        Posteriors of rows for bags, sorted by class.
    pool_labels : (n_pool,)
    """

    posteriors: NDArray[np.float32]
    labels: Ints
    pool: NDArray[np.float32]
    pool_labels: Ints


def simulate(seed: int, number: int) -> Task:
    """Simulate one task; rows, labels and the classifier are random."""
    rng = np.random.default_rng((seed, number))
    n_classes = _n_classes(rng)
    n = int(np.exp(rng.uniform(np.log(max(25, 4 * n_classes)), np.log(_MOST_ROWS))))
    per_class = max(_FEWEST_IN_POOL, _POOL // n_classes)
    shares = _training_shares(rng, n_classes)
    counts = np.maximum(rng.multinomial(n, shares), _FEWEST)
    draw = _rows_of_classes(rng, n_classes)
    X = np.concatenate([draw(c, int(k)) for c, k in enumerate(counts)])
    y = np.repeat(np.arange(n_classes), counts)
    pool = np.concatenate([draw(c, per_class) for c in range(n_classes)])
    if rng.random() < 0.05:  # drift between labelled rows and bags
        scale = X.std(0) * rng.uniform(0, 0.15)
        pool = pool + scale * rng.normal(size=X.shape[1])
    crossed = hq.EMQ(_classifier(rng, n_classes), cv=5, random_state=0).cross_fit(X.astype(np.float32), y)
    found = np.zeros((len(pool), n_classes), np.float32)
    found[:, crossed.columns] = crossed.classifier.predict_proba(pool.astype(np.float32))
    return Task(
        crossed.posteriors.astype(np.float32), crossed.labels, found, np.repeat(np.arange(n_classes), per_class)
    )


def write_tasks(place: Path, seed: int, first: int, last: int) -> None:
    """Write shards from `first` up to `last`; shards that exist are kept."""
    place.mkdir(parents=True, exist_ok=True)
    for shard in range(first, last):
        path = place / f"tasks-{seed}-{shard:05d}.npz"
        if path.exists():
            continue
        arrays: dict[str, NDArray] = {}
        for i in range(SHARD):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    task = simulate(seed, shard * SHARD + i)
                except ValueError as error:  # such as a classifier that overflows
                    print(f"task {shard * SHARD + i}: {str(error)[:100]}", flush=True)
                    continue
            arrays |= {
                f"{i}/posteriors": _packed(task.posteriors),
                f"{i}/labels": task.labels.astype(np.uint8),
                f"{i}/pool": _packed(task.pool),
                f"{i}/pool_labels": task.pool_labels.astype(np.uint8),
            }
        unfinished = path.with_suffix(f".{os.getpid()}.part")
        with open(unfinished, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        os.replace(unfinished, path)


def read_tasks(path: Path) -> list[Task]:
    """Read the tasks of a shard."""
    with np.load(path, allow_pickle=False) as arrays:
        numbers = sorted({int(name.partition("/")[0]) for name in arrays.files})
        return [
            Task(
                _unpacked(arrays[f"{i}/posteriors"]), arrays[f"{i}/labels"].astype(np.int64),
                _unpacked(arrays[f"{i}/pool"]), arrays[f"{i}/pool_labels"].astype(np.int64),
            )
            for i in numbers
        ]  # fmt: skip


def _packed(posteriors: NDArray[np.float32]) -> NDArray[np.float16]:
    """Return logarithms in half precision: three digits of the logarithm, and 0 as minus infinity."""
    with np.errstate(divide="ignore"):
        return np.log(posteriors).astype(np.float16)


def _unpacked(logs: NDArray[np.float16]) -> NDArray[np.float32]:
    p = np.exp(logs.astype(np.float32))
    found: NDArray[np.float32] = p / p.sum(1, keepdims=True)
    return found


def _n_classes(rng: np.random.Generator) -> int:
    """Two classes in a third of the tasks, else up to 30, small numbers more often."""
    if rng.random() < 0.33:
        return 2
    return int(np.exp(rng.uniform(np.log(3), np.log(_MOST_CLASSES + 1))))


def _training_shares(rng: np.random.Generator, n_classes: int) -> Floats:
    concentration = rng.choice([0.7, 2.0, 10.0, 1000.0])
    return rng.dirichlet(np.full(n_classes, concentration))


def _rows_of_classes(rng: np.random.Generator, n_classes: int) -> Any:
    """Return a function that draws rows of a class: class code, number of rows -> (n_rows, n_features)."""
    kind = rng.choice(["mixtures", "teacher", "tree"], p=[0.5, 0.3, 0.2])
    made = {"mixtures": _mixtures, "teacher": _teacher, "tree": _tree}[kind](rng, n_classes)
    steps = np.exp(rng.uniform(np.log(0.1), np.log(2.0))) if rng.random() < 0.25 else 0.0
    n_noise = int(rng.integers(1, 9)) if rng.random() < 0.3 else 0

    def draw(c: int, n: int) -> Floats:
        rows: Floats = made(c, n)
        if steps:  # whole numbers, which tie
            rows = np.round(rows / steps) * steps
        return np.hstack([rows, rng.normal(size=(n, n_noise))])

    return draw


def _mixtures(rng: np.random.Generator, n_classes: int) -> Any:
    """Draw each class from a mixture of normal distributions; some classes resemble each other."""
    d, n_parts = int(rng.integers(1, 13)), int(rng.integers(1, 5))
    apart = np.exp(rng.uniform(np.log(0.25), np.log(6.0))) * np.sqrt(1 + np.log2(n_classes) / 4)
    group = rng.integers(0, max(2, n_classes // 2), n_classes) if rng.random() < 0.3 else np.arange(n_classes)
    centres = rng.normal(size=(n_classes, d))[group] + 0.4 * rng.normal(size=(n_classes, d)) * (group.max() < n_classes)
    means = apart * (centres[:, None] + rng.uniform(0, 1.2) * rng.normal(size=(n_classes, n_parts, d)))
    shares = rng.dirichlet(np.full(n_parts, rng.choice([0.5, 3.0])), n_classes)
    mixing = np.eye(d) + rng.uniform(0, 1) * rng.normal(size=(n_classes, d, d)) / np.sqrt(d)
    scales = np.exp(0.4 * rng.uniform() * rng.normal(size=(n_classes, n_parts, d)))
    heavy = rng.choice([0.0, 4.0], p=[0.7, 0.3])
    swapped = rng.uniform(0, 0.15) if rng.random() < 0.2 else 0.0  # rows with a wrong label

    def draw(c: int, n: int) -> Floats:
        classes = np.where(rng.random(n) < swapped, rng.integers(0, n_classes, n), c)
        part = (rng.random(n)[:, None] > np.cumsum(shares[classes], 1)).sum(1).clip(max=n_parts - 1)
        noise = rng.normal(size=(n, d)) * scales[classes, part]
        if heavy:
            noise /= np.sqrt(rng.chisquare(heavy, (n, 1)) / heavy)
        return means[classes, part] + np.einsum("nij,nj->ni", mixing[classes], noise)

    return draw


def _by_rejection(rng: np.random.Generator, n_classes: int, rows: Any, label: Any) -> Any:
    """Draw rows of a class from rows that a rule labels; classes without rows borrow the nearest scores."""
    X = rows(20_000)
    scores = label(X)
    codes = scores.argmax(1)
    members = [np.flatnonzero(codes == c) for c in range(n_classes)]
    for c in range(n_classes):
        if len(members[c]) < 200:  # the rows that are nearest to the class
            members[c] = np.argsort(scores.max(1) - scores[:, c])[:200]

    def draw(c: int, n: int) -> Floats:
        chosen = X[rng.choice(members[c], n)]
        return chosen + 0.05 * X.std(0) * rng.normal(size=chosen.shape)

    return draw


def _teacher(rng: np.random.Generator, n_classes: int) -> Any:
    """Label rows by a random network with noise."""
    d, width = int(rng.integers(2, 16)), int(rng.integers(4, 33))
    first, second = rng.normal(size=(d, width)) / np.sqrt(d), rng.normal(size=(width, n_classes)) / np.sqrt(width)
    sharp, noise = np.exp(rng.uniform(0, 2)), np.exp(rng.uniform(np.log(0.005), np.log(0.5)))

    def label(X: Floats) -> Floats:
        scores = np.tanh(sharp * X @ first) @ second
        scores = (scores - scores.mean(0)) / scores.std(0)
        found: Floats = scores + noise * rng.gumbel(size=scores.shape)
        return found

    return _by_rejection(rng, n_classes, lambda n: rng.normal(size=(n, d)), label)


def _tree(rng: np.random.Generator, n_classes: int) -> Any:
    """Label rows by a random tree with a random class mix in each leaf; some features are categories."""
    d, depth = int(rng.integers(2, 12)), int(rng.integers(2, 8))
    coded = rng.random(d) < rng.uniform(0, 0.8)
    features, cuts = rng.integers(0, d, (2**depth, depth)), rng.normal(size=(2**depth, depth))
    leaves = rng.dirichlet(np.full(n_classes, rng.choice([0.02, 0.1, 0.5])), 2**depth)

    def rows(n: int) -> Floats:
        X = rng.normal(size=(n, d))
        return np.where(coded, np.clip(np.round(X * 1.5), -3, 3), X)

    def label(X: Floats) -> Floats:
        leaf = np.zeros(len(X), np.int64)
        for level in range(depth):
            right = X[np.arange(len(X)), features[leaf, level]] > cuts[leaf, level]
            leaf = (2 * leaf + right) % 2**depth
        found: Floats = np.log(np.maximum(leaves[leaf], 1e-6)) + rng.gumbel(size=(len(X), n_classes))
        return found

    return _by_rejection(rng, n_classes, rows, label)


def _classifier(rng: np.random.Generator, n_classes: int) -> Any:
    """Choose a classifier and its parameters."""
    kind = rng.choice(
        ["logistic", "forest", "boosting", "bayes", "neighbours", "mlp"], p=[0.4, 0.28, 0.25, 0.03, 0.02, 0.02]
    )
    weight = "balanced" if rng.random() < 0.04 else None
    if kind == "logistic":
        found = LogisticRegression(C=float(np.exp(rng.uniform(-4, 4))), max_iter=300, class_weight=weight)
        return make_pipeline(StandardScaler(), found)
    if kind == "forest":
        leaf = int(rng.choice([1, 1, 3, 10]))
        n_trees = int(rng.choice([30, 100, 100]))
        return RandomForestClassifier(n_trees, min_samples_leaf=leaf, class_weight=weight, random_state=0)
    if kind == "boosting":
        n_trees, leaves = (100, 31) if rng.random() < 0.4 and n_classes <= 8 else (int(rng.choice([15, 40])), 15)
        return HistGradientBoostingClassifier(max_iter=n_trees, max_leaf_nodes=leaves, random_state=0)
    if kind == "bayes":
        return GaussianNB()
    if kind == "neighbours":
        return make_pipeline(StandardScaler(), KNeighborsClassifier(int(rng.choice([3, 10, 30]))))
    return make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=60, early_stopping=True, random_state=0))
