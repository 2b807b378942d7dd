"""Networks that learn in stages: labels teach the encoder, drawn bags the head, real bags both.

One network per measure, chosen on the validation bags; the test bags are scored once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import softmax

import histnetq as hq
from experiments.choices import setting_text
from experiments.classical import Posteriors
from experiments.runs import Run, Runs, digest
from histnetq.bags.checks import used_rows
from histnetq.datasets import Dataset
from histnetq.training.batches import prepare_rows

__all__ = [
    "MEASURES",
    "METHODS",
    "SETTINGS",
    "Staged",
    "compact",
    "encoder_posteriors",
    "make_network",
    "names_of",
    "staged_table",
]

MEASURES = ("ae", "rae")
_HIDDEN = {"dropout": 0.5, "input_dropout": 0.2, "weight_decay": 0.1}
_WORDS = {"encoder": (512,), "ridge": 0.001, "dropout": 0.3, "input_dropout": 0.1, "weight_decay": 0.02}
# Parameters of HistNetQ and options of its training, to choose from.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "imdb": [{"encoder": (64,), "n_bins": 8, "refit": True, **_HIDDEN}],
    "newsgroups": [{"encoder": (), "n_bins": 16, "ridge": 0.01, "refit": True}],
    "goemotions": [{"encoder": (), "n_bins": 8, "ridge": 0.01, "refit": True}],
    "words": [{**_WORDS, "n_bins": 16}],
    "words-2": [{**_WORDS, "n_bins": 16}],
}
_BESIDE = "EMQ-BCTS"  # on a logistic regression of the labelled rows, and on the encoder of the network
METHODS = ["HistNetQ", "HistNetQ-labels", _BESIDE]
_AT_ONCE = 2000  # rows


class Staged:
    """A data set, its settings, and the directory of its cached results.

    Parameters
    ----------
    name : str
        One of `SETTINGS`.
    data : Dataset
        Labelled rows and bags.
    work : Path
        Directory of finished runs.
    minutes : float
        Each network is trained so long at most, its start included.
    seeds : int
        Seeds 0, 1, …
    """

    def __init__(self, name: str, data: Dataset, work: Path, minutes: float, seeds: int) -> None:
        self.name, self.data, self.minutes = name, data, minutes
        bags = [part.fingerprint() for part in (data.bags, data.validation, data.test)]
        place = digest(bags, SETTINGS[name], minutes)
        directory = work / f"staged-{name}-{data.train.fingerprint()[:8]}"
        self.runs, self.posteriors = Runs(directory / place, seeds), Posteriors(data, directory)
        self.compact = {"bags": compact(data.bags), "validation": compact(data.validation)}

    def fill(self, methods: Sequence[str], measures: Sequence[str], say: Callable[[str], Any]) -> None:
        """Complete the missing runs."""
        networks = [m for m in methods if m != _BESIDE]
        self.runs.fill([f"{m}-{measure}" for m in networks for measure in measures], self._network, say)
        if _BESIDE in methods:
            Runs(self.runs.directory, 1).fill([_BESIDE], lambda *_: self._classical(), say)

    def _network(self, what: str, seed: int) -> Run:
        method, _, measure = what.rpartition("-")
        began = time.perf_counter()
        found = [self._fit(setting, measure, seed, method == "HistNetQ-labels") for setting in SETTINGS[self.name]]
        best = int(np.argmin([q.validation_loss_ for q in found]))
        seconds = (time.perf_counter() - began) / len(found)
        q, history = found[best], found[best].history_
        if method == "HistNetQ-labels":
            self._write_beside(q, f"{_BESIDE} on the encoder of {what}", seed)
        began = time.perf_counter()
        estimates = q.predict(self.data.test)
        took = time.perf_counter() - began
        text = f"{setting_text(SETTINGS[self.name][best])}, epochs={q.best_epoch_} of {len(history['epoch'])}"
        curves = np.stack([history[c] for c in ("train_loss", "validation_loss", "seconds")], axis=1)
        return Run(estimates, text, len(found), q.validation_loss_, seconds, took, curves)

    def _fit(self, setting: dict[str, Any], measure: str, seed: int, labels: bool) -> Any:
        training = hq.Training(minutes=self.minutes, patience=2, progress=False)
        q = make_network({**setting, "loss": measure}, training, seed)
        if not labels:
            return q.fit(self.compact["bags"], validation=self.compact["validation"])
        rows, y = self._labelled()
        return q.fit(rows, self.data.classes[y], bags=self.compact["bags"], validation=self.compact["validation"])

    def _labelled(self) -> tuple[NDArray, NDArray[np.int64]]:
        index, labels = self.data.train.index, self.data.train.labels
        assert labels is not None
        return np.asarray(self.data.train.rows[index]), labels[index]

    def _write_beside(self, q: Any, what: str, seed: int) -> None:
        """Score EMQ-BCTS on the scores of the network's encoder, calibrated on the labelled rows."""
        rows, y = self._labelled()
        own = hq.Bags(rows)
        emq = hq.EMQ(rescaling="bcts").fit_posteriors(
            encoder_posteriors(q, own, np.arange(len(rows))), y, classes=range(len(self.data.classes))
        )
        test = self.data.test
        used, index = used_rows(test.index, test.rows.shape[0])
        began = time.perf_counter()
        estimates = emq.predict_posteriors(hq.Bags(encoder_posteriors(q, test, used), index, test.offsets))
        run = Run(estimates, "", 1, float("nan"), 0.0, time.perf_counter() - began)
        self.runs.keep(what, seed, run)

    def _classical(self) -> Run:
        crossed, pool = self.posteriors.get({"C": 0.1, "class_weight": None})
        began = time.perf_counter()
        emq = hq.EMQ(rescaling="bcts")
        emq.fit_posteriors(crossed, self.posteriors.labels, classes=range(len(self.data.classes)))
        test = self.data.test
        estimates = emq.predict_posteriors(hq.Bags(pool, test.index, test.offsets))
        return Run(estimates, "C=0.1", 1, float("nan"), 0.0, time.perf_counter() - began)


def staged_table(experiment: Staged, names: Sequence[str]) -> pd.DataFrame:
    """One row per method and seed: mean errors of the test bags, the validation loss, and the time."""
    test, found = experiment.data.test, []
    assert test.prevalences is not None
    for name in names:
        for seed, run in enumerate(experiment.runs.read(name)):
            row = {"data": experiment.name, "method": name, "seed": seed, "validation": run.validation}
            for measure in MEASURES:
                errors = getattr(hq.metrics, measure)(test.prevalences, run.estimates, test.sizes)
                row[measure] = float(np.mean(errors))
            minutes = run.fit_seconds / 60
            found.append({**row, "minutes": minutes, "setting": run.params, "n_bags": len(test)})
    return pd.DataFrame(found)


def names_of(methods: Sequence[str], measures: Sequence[str]) -> list[str]:
    """Rows of the table, in order."""
    rows = []
    for method in methods:
        if method == _BESIDE:
            rows.append(_BESIDE)
            continue
        for measure in measures:
            rows.append(f"{method}-{measure}")
            if method == "HistNetQ-labels":
                rows.append(f"{_BESIDE} on the encoder of {method}-{measure}")
    return rows


def compact(bags: hq.Bags) -> hq.Bags:
    """The same bags on a pool of the rows that they use, in memory."""
    used, index = used_rows(bags.index, bags.rows.shape[0])
    rows = np.asarray(bags.rows[used], dtype=np.float32)
    return hq.Bags(rows, index, bags.offsets, prevalences=bags.prevalences, classes=bags.classes)


def make_network(setting: dict[str, Any], training: hq.Training, seed: int) -> hq.HistNetQ:
    """HistNetQ by a setting, which holds options of training and parameters of its own."""
    options = {name: setting[name] for name in setting.keys() & training.get_params()}
    own = {name: value for name, value in setting.items() if name not in options}
    return hq.HistNetQ(**own, training=replace(training, **options), random_state=seed)


def encoder_posteriors(q: Any, bags: hq.Bags, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return class probabilities of pool rows from the scores of HistNetQ or EMNetQ: (n_rows, n_classes)."""
    network = q.network_
    scores = network.encoder[0] if isinstance(q, hq.HistNetQ) else network.encoder
    parts = np.array_split(rows, max(1, len(rows) // _AT_ONCE))
    with torch.no_grad():
        found = [scores(prepare_rows(network, bags, some).unflatten(1, bags.rows.shape[1:])) for some in parts]
    return softmax(torch.cat(found).double().numpy(), axis=1)
