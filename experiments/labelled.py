"""Networks that learn in stages from labelled rows alone, a table or images, beside EMQ-BCTS on their own encoder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import histnetq as hq
from experiments.fashion import BAG_SIZE, CHOOSING_BAGS, TEST_BAGS
from experiments.runs import Run, Runs, digest
from experiments.staged import encoder_posteriors

__all__ = ["METHODS", "Rows", "errors_of", "images_of", "learn", "table_of"]

METHODS = ["HistNetQ", "EMNetQ", "EMQ-BCTS"]
_BESIDE = "EMQ-BCTS on the encoder of {}"
_HELD = 0.2  # of the rows to learn from: they stop training, and calibrate EMQ on a network's encoder


@dataclass(frozen=True)
class Rows:
    """Labelled rows, each pool taken as one bag: to learn from, held out to choose by, and to draw test bags from."""

    name: str
    train: hq.Bags
    held: hq.Bags
    test: hq.Bags


def images_of(data: hq.datasets.Examples, n: int | None) -> Rows:
    """Fashion-MNIST: all training images and those for validation, or so many of the former, a part of them held."""
    assert data.validation is not None
    if n is None:
        return Rows("fashion-mnist", data.train, data.validation, data.test)
    rows = np.random.default_rng(0).permutation(data.train.index)[:n]
    n_held = round(_HELD * n)
    train, held = (_part(data.train, some) for some in (rows[n_held:], rows[:n_held]))
    return Rows(f"fashion-mnist-{n}", train, held, data.test)


def table_of(path: Path, label: str) -> Rows:
    """A table of numbers and a column of labels: half of the rows are for tests."""
    frame = pd.read_csv(path)
    if label not in frame:
        raise ValueError(f"{path} has no column {label!r}; it has {', '.join(map(str, frame))}.")
    whole = hq.Bags.from_labels(frame.drop(columns=label).to_numpy(np.float32), frame[label].to_numpy())
    rows = np.random.default_rng(0).permutation(len(frame))
    half, n_held = len(rows) // 2, round(_HELD * (len(rows) // 2))
    parts = rows[n_held:half], rows[:n_held], rows[half:]
    return Rows(path.stem, *(_part(whole, some) for some in parts))


def learn(
    rows: Rows, methods: Sequence[str], minutes: float, seeds: int, work: Path, say: Callable[[str], Any]
) -> tuple[hq.Bags, Runs]:
    """Complete the missing runs; return the test bags and all runs."""
    protocol = hq.APP(BAG_SIZE)
    validation = protocol.draw(rows.held, CHOOSING_BAGS, random_state=1)
    test = protocol.draw(rows.test, TEST_BAGS, random_state=2)
    place = digest(rows.train.fingerprint(), validation.fingerprint(), test.fingerprint(), minutes)
    runs = Runs(work / f"labelled-{rows.name}-{place}", seeds)

    def act(method: str, seed: int) -> Run:
        began = time.perf_counter()
        q = _make(method, minutes, seed)
        if method == "EMQ-BCTS":  # what networks hold out, it learns from
            q.fit(*(np.concatenate(pair) for pair in zip(_labelled(rows.train), _labelled(rows.held), strict=True)))
        else:
            q.fit(*_labelled(rows.train), validation=validation)
        seconds = time.perf_counter() - began
        if method != "EMQ-BCTS":
            runs.keep(_BESIDE.format(method), seed, _beside(q, rows.held, test))
        began = time.perf_counter()
        estimates = q.predict(test)[:, _columns(q, test)]
        loss = getattr(q, "validation_loss_", float("nan"))
        return Run(estimates, "", 1, loss, seconds, time.perf_counter() - began)

    runs.fill(methods, act, say)
    return test, runs


def errors_of(rows: Rows, test: hq.Bags, runs: Runs) -> pd.DataFrame:
    """One row per method and seed: mean errors of the test bags, and the time."""
    found = []
    for method in METHODS:
        for name in (method, _BESIDE.format(method)):
            for seed, run in enumerate(runs.read(name)):
                errors = {
                    m: float(getattr(hq.metrics, m)(test.prevalences, run.estimates, test.sizes).mean())
                    for m in ("ae", "rae")
                }
                about: dict[str, Any] = {"data": rows.name, "method": name, "seed": seed, "validation": run.validation}
                found.append({**about, **errors, "minutes": run.fit_seconds / 60, "n_bags": len(test)})
    return pd.DataFrame(found)


def _make(method: str, minutes: float, seed: int) -> Any:
    if method == "EMQ-BCTS":
        return hq.EMQ(rescaling="bcts", random_state=seed)
    training = hq.Training(minutes=minutes, patience=2, progress=False)
    network = {"HistNetQ": hq.HistNetQ, "EMNetQ": hq.EMNetQ}[method]
    return network(sampler=hq.APP(BAG_SIZE), training=training, random_state=seed)


def _beside(q: Any, held: hq.Bags, test: hq.Bags) -> Run:
    """EMQ-BCTS on the scores of the network's encoder, calibrated on rows that were held out."""
    began = time.perf_counter()
    assert held.labels is not None
    assert held.classes is not None
    emq = hq.EMQ(rescaling="bcts").fit_posteriors(
        encoder_posteriors(q, held, held.index)[:, _columns(q, held)],
        held.labels[held.index],
        classes=range(len(held.classes)),
    )
    pool = encoder_posteriors(q, test, np.arange(test.rows.shape[0]))[:, _columns(q, test)]
    estimates = emq.predict_posteriors(hq.Bags(pool, test.index, test.offsets))
    return Run(estimates, "", 1, float("nan"), 0.0, time.perf_counter() - began)


def _columns(q: Any, bags: hq.Bags) -> NDArray[np.int64]:
    """The columns of a quantifier's estimates, in the order of the bags' classes."""
    assert bags.classes is not None
    return np.array([list(q.classes_).index(name) for name in bags.classes])


def _labelled(bags: hq.Bags) -> tuple[NDArray, NDArray]:
    assert bags.labels is not None
    assert bags.classes is not None
    return np.asarray(bags.rows[bags.index]), np.asarray(bags.classes)[bags.labels[bags.index]]


def _part(bags: hq.Bags, rows: NDArray[np.int64]) -> hq.Bags:
    """Some rows of the pool, as one bag of a pool of their own."""
    assert bags.labels is not None
    return hq.Bags(np.ascontiguousarray(bags.rows[rows]), labels=bags.labels[rows], classes=bags.classes)
