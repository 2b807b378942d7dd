"""The rows of the classical methods: one logistic regression for all, chosen per method on validation bags.

Methods on features have no classifier, and are chosen among their own settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import histnetq as hq
from experiments.choices import draw_settings, mean_error, setting_text
from experiments.runs import Run, save_arrays
from histnetq.bags.memmap import row_chunks
from histnetq.datasets import Dataset

__all__ = ["CLASSICAL", "CLASSIFIERS", "ORDINAL", "Posteriors", "run_classical"]

# Parameters of the logistic regression; each combination with a method's own parameters is one trial.
CLASSIFIERS: list[dict[str, Any]] = [
    {"C": 0.01, "class_weight": None},
    {"C": 0.1, "class_weight": None},
    {"C": 0.001, "class_weight": "balanced"},
    {"C": 0.01, "class_weight": "balanced"},
]


@dataclass(frozen=True)
class Method:
    """How a method is made, its own parameters to choose from, and what it reads.

    It reads "posteriors"; or "features", and no classifier; or posteriors as "features of bags", which are made of
    other methods, and learn from the bags of known proportions as well if they correct these.
    """

    make: Callable[..., Any]
    space: dict[str, list[Any]] = field(default_factory=dict)
    reads: str = "posteriors"


def _quanet(seed: int, bag_size: int, lr: float, hidden: int) -> hq.QuaNet:
    training = hq.Training(epochs=30, patience=5, lr=lr, progress=False)
    return hq.QuaNet(hidden=hidden, sampler=hq.APP(bag_size), training=training, random_state=seed)


def _plain(kind: Any, **fixed: Any) -> Callable[..., Any]:
    return lambda seed, bag_size, **params: kind(**fixed, **params)


CLASSICAL: dict[str, Method] = {
    "MLPE": Method(_plain(hq.MLPE)),
    "CC": Method(_plain(hq.CC)),
    "PCC": Method(_plain(hq.PCC)),
    "ACC": Method(_plain(hq.ACC)),
    "PACC": Method(_plain(hq.PACC)),
    "HDy": Method(_plain(hq.HDy)),
    "DyS": Method(_plain(hq.DyS), {"n_bins": [5, 10, 20, 40], "divergence": ["topsoe", "hellinger"]}),
    "KDEy": Method(_plain(hq.KDEy), {"bandwidth": [0.03, 0.06, 0.1, 0.15, 0.2]}),
    "EMQ-NoCalib": Method(_plain(hq.EMQ)),
    "EMQ-BCTS": Method(_plain(hq.EMQ, rescaling="bcts")),
    "EMQ-shrunk": Method(_plain(hq.EMQ, rescaling="shrunk")),
    "MS": Method(_plain(hq.MS), {"policy": ["median", "median2", "max", "t50", "x"]}),
    "Friedman": Method(_plain(hq.Friedman)),
    "BBSE": Method(_plain(hq.BBSE), {"mode": ["soft", "hard"]}),
    "RLLS": Method(_plain(hq.RLLS), {"mode": ["soft", "hard"]}),
    "ED": Method(_plain(hq.ED)),
    "EDx": Method(_plain(hq.EDx), reads="features"),
    "HDx": Method(_plain(hq.HDx), {"n_bins": [5, 10, 20, 40]}, reads="features"),
    "ReadMe": Method(_plain(hq.ReadMe, random_state=0), {"subset_size": [4, 6, 8, 10]}, reads="features"),
    "Ensemble": Method(_plain(hq.Ensemble), reads="features of bags"),
    "EMQ-corrected": Method(_plain(hq.Corrected, random_state=0), reads="features of bags"),
    "QuaNet": Method(_quanet, {"lr": [1e-3, 3e-4], "hidden": [32, 64]}),
}

# Further methods for ordered classes.
ORDINAL: dict[str, Method] = {
    "PACC-smooth": Method(_plain(hq.PACC), {"smoothness": [0.0003, 0.003, 0.03]}),
    "EMQ-smooth": Method(_plain(hq.EMQ), {"smoothness": [0.1, 0.3, 0.5]}),
}


class Posteriors:
    """Cross-fitted posteriors of the training rows, and posteriors of the whole pool, kept on disk."""

    def __init__(self, data: Dataset, directory: Path) -> None:
        self.data, self.directory = data, directory
        assert data.train.labels is not None
        self.labels = data.train.labels[data.train.index]

    def get(self, params: dict[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Posteriors (n_train, n_classes) and (n_pool, n_classes) of a logistic regression with these parameters."""
        path = self.directory / f"posteriors-{params['C']:g}-{params['class_weight']}.npz"
        if not path.exists():
            # Rows that are not centred take several times as many iterations.
            model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, **params))
            rows, every = self.data.train.gather(), self.data.train.rows
            folds = StratifiedKFold(5, shuffle=True, random_state=0)
            crossed = cross_val_predict(model, rows, self.labels, cv=folds, method="predict_proba")
            model.fit(rows, self.labels)
            # Part by part: the pool may be larger than memory.
            pool = np.concatenate([model.predict_proba(every[chunk]) for chunk in row_chunks(every)])
            save_arrays(path, crossed=crossed, pool=pool)
        with np.load(path) as file:
            return file["crossed"], file["pool"]


def run_classical(
    name: str, seed: int, data: Dataset, posteriors: Posteriors, trials: int, measure: str = "rae"
) -> Run:
    """Choose by a measure on the validation bags among `trials` settings, then estimate the test bags."""
    if name == "MLPE":
        return _floor(data, measure)
    method, bag_size = {**CLASSICAL, **ORDINAL}[name], int(data.test.sizes[0])
    best: tuple[float, Any, dict[str, Any], float, Any] | None = None
    shared = {} if method.reads == "features" else {"classifier": CLASSIFIERS}
    settings = draw_settings({**shared, **method.space}, trials, seed)
    if shared and len(settings) < trials:
        raise ValueError(f"trials: expected at most {len(settings)}, the settings that every method has, got {trials}.")
    for setting in settings:
        own = {k: v for k, v in setting.items() if k in method.space}
        crossed, pool = posteriors.get(setting["classifier"]) if shared else (None, None)
        quantifier = method.make(seed, bag_size, **own)
        began = time.perf_counter()  # on given posteriors: the classifier is the same for all
        _fit(quantifier, method.reads, data, posteriors.labels, crossed, pool)
        seconds = time.perf_counter() - began
        error = mean_error(measure, data.validation, _predict(quantifier, data.validation, pool))
        if best is None or error < best[0]:
            best = error, quantifier, {**setting.get("classifier", {}), **own}, seconds, pool
    assert best is not None
    error, quantifier, setting, seconds, pool = best
    began = time.perf_counter()
    estimates = _predict(quantifier, data.test, pool)
    took = time.perf_counter() - began
    return Run(estimates, setting_text(setting), len(settings), error, seconds, took)


def _fit(quantifier: Any, reads: str, data: Dataset, labels: NDArray[np.int64], crossed: Any, pool: Any) -> None:
    """Learn from features or from posteriors; a correction also from the bags of known proportions."""
    if reads == "features":
        quantifier.fit(data.train)
        return
    classes = range(len(data.classes))
    if reads == "posteriors":
        quantifier.fit_posteriors(crossed, labels, classes=classes)
        return
    rows = _scores(hq.Bags(crossed, labels=labels, classes=classes))
    if isinstance(quantifier, hq.Corrected):
        known = data.bags
        bags = hq.Bags(pool, known.index, known.offsets, prevalences=known.prevalences, classes=classes)
        quantifier.fit(rows, bags=_scores(bags))
    else:
        quantifier.fit(rows)


def _scores(bags: hq.Bags) -> hq.Bags:
    """Mark the rows as class probabilities."""
    bags.scores = bags.classes
    return bags


def _floor(data: Dataset, measure: str) -> Run:
    """The training prevalences, which leave nothing to choose."""
    quantifier = hq.MLPE().fit(data.train)
    error = mean_error(measure, data.validation, quantifier.predict(data.validation))
    return Run(quantifier.predict(data.test), "", 0, error, 0.0, 0.0)


def _predict(quantifier: Any, bags: hq.Bags, pool: NDArray[np.float64] | None) -> NDArray[np.float64]:
    given = bags if pool is None else hq.Bags(pool, bags.index, bags.offsets)
    predict = getattr(quantifier, "predict_posteriors", quantifier.predict)  # which checks no names of columns
    estimates: NDArray[np.float64] = predict(given)
    return estimates
