"""Predicting many bags at once against one by one: rows that bags share are encoded once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import histnetq as hq
from benchmarks.timing import side_by_side

__all__ = ["run"]

_POOL, _BAGS, _SIZE, _SAMPLE = 10_000, 5_000, 500, 40


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio, comparison, target)."""
    rng = np.random.default_rng(0)
    training = hq.Training(epochs=1, bags_per_epoch=2, batch_bags=2, validation_bags=2)
    images = hq.HistNetQ(encoder=None, head=(1024,), training=training, random_state=0)
    text = hq.HistNetQ(encoder=(1024, 1024, 300), head=(2048, 2048, 2048), training=training, random_state=0)
    for name, quantifier, shape, n_classes, target in (
        ("Fashion-MNIST", images, (28, 28), 10, 50.0),
        ("T1A", text, (300,), 2, 20.0),
    ):
        X = rng.normal(size=(_POOL, *shape)).astype(np.float32)
        quantifier.fit(X[:600], np.arange(600) % n_classes)
        bags = hq.Bags(X, rng.integers(_POOL, size=_BAGS * _SIZE), np.arange(_BAGS + 1) * _SIZE)
        ratio, detail = _measure(quantifier, bags)
        yield f"{name} encoder, {_BAGS:,} bags of {_SIZE}: times faster than one by one ({detail})", ratio, "≥", target


def _measure(quantifier: hq.HistNetQ, bags: hq.Bags) -> tuple[float, str]:
    # One by one, all bags would take minutes, so a sample is timed.
    rows = [bag.gather() for bag in bags[:_SAMPLE]]
    singles = np.stack([quantifier.predict(X) for X in rows])
    gap = np.abs(singles - quantifier.predict(bags)[:_SAMPLE]).max()
    if gap > 1e-5:
        raise AssertionError(f"together and one by one differ by {gap}")
    contestants = {"one": lambda: [quantifier.predict(X) for X in rows], "all": lambda: quantifier.predict(bags)}
    seconds = side_by_side(contestants, rounds=3)
    alone = seconds["one"] / _SAMPLE * len(bags)
    detail = f"together {seconds['all']:.1f} s, one by one {alone:.0f} s from {_SAMPLE} of them"
    return alone / seconds["all"], detail
