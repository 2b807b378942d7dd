"""Coverage of intervals: quantifiers are trained once, and held-out rows are split repeatedly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import histnetq as hq
from experiments.presets import PRESETS, read_labels, read_split
from histnetq.tables.files import whole_file

__all__ = ["DATA", "LEVELS", "Trained", "kept_table", "load_trained", "run_bootstrap", "run_conformal", "summary"]

DATA = ("digits", "imdb", "newsgroups")
LEVELS = (0.8, 0.9, 0.95)
_EPOCHS = 40


@dataclass(frozen=True)
class Trained:
    """Quantifiers, labelled rows that none of them has seen, and the sizes of bags to draw from these."""

    models: dict[str, Any]
    held: hq.Bags
    sizes: tuple[int, int]
    learned: hq.Bags


def kept_table(name: str, data: Path | None, work: Path, n_splits: int, n_bags: int) -> pd.DataFrame:
    """The rows of `run_conformal` and `run_bootstrap` for a data set, each computed once and kept."""
    parts, trained = [], None
    kinds = {"conformal": n_splits, "bootstrap": n_bags}
    for kind, n in kinds.items():
        path = work / f"{name}-{kind}-{n}.csv"
        if not path.exists():
            trained = trained or load_trained(name, data, work)
            if kind == "conformal":
                found = run_conformal(name, trained, n, n_calibration=1000, n_test=2000)
            else:
                found = run_bootstrap(name, trained, n, n_resamples=200)
            with whole_file(path) as partial:
                found.to_csv(partial, index=False)
        parts.append(pd.read_csv(path))
    return pd.concat(parts)


def load_trained(name: str, data: Path | None, work: Path) -> Trained:
    """The quantifiers of a data set, trained if they are not in the work directory."""
    if name == "digits":
        return _on_digits(work)
    if data is None:
        raise ValueError(f"data: {name} needs the directory of the texts; name it by --data.")
    preset = PRESETS[name]
    texts = preset.load(data)
    held = np.flatnonzero(read_split(name, data) == 2)
    setting = {k: v for k, v in preset.settings[0].items() if k not in ("width", "hidden", "n_inducing")}
    options = {k: setting.pop(k) for k in list(setting) if k in preset.training.get_params()}
    training = dataclasses.replace(preset.training, **options, epochs=_EPOCHS)
    network = hq.HistNetQ("hard", **setting, loss="rae", training=training, random_state=0)
    size = int(texts.test.sizes[0])
    models = {
        "HistNetQ": _kept(work / f"{name}-histnetq", lambda: network.fit(texts.bags, validation=texts.validation)),
        **_classical(name, texts.train, 0.01, work),
    }
    rows = hq.Bags(texts.train.rows, held, labels=read_labels(name, data), classes=texts.classes)
    return Trained(models, rows, (size // 5, size), texts.train)


def _on_digits(work: Path) -> Trained:
    digits = hq.datasets.digits()
    learned, pool = digits.train, digits.test
    assert learned.labels is not None
    labels = digits.classes[learned.labels]
    training = hq.Training(epochs=60, patience=6, progress=False)
    network = hq.HistNetQ(loss="ae", training=training, random_state=0)
    models = {
        "HistNetQ": _kept(work / "digits-histnetq", lambda: network.fit(learned.rows, labels)),
        **_classical("digits", learned, 1.0, work),
    }
    return Trained(models, hq.Bags(pool.rows, labels=pool.labels, classes=pool.classes), (20, 100), learned)


def _classical(name: str, learned: hq.Bags, C: float, work: Path) -> dict[str, Any]:
    classifier = LogisticRegression(C=C, max_iter=1000)
    return {
        "EMQ": _kept(work / f"{name}-emq", lambda: hq.EMQ(classifier, rescaling="bcts").fit(learned)),
        "PACC": _kept(work / f"{name}-pacc", lambda: hq.PACC(classifier).fit(learned)),
    }


def _kept(path: Path, make: Callable[[], Any]) -> Any:
    if not path.exists():
        make().save(path)
    return hq.load(path)


def run_conformal(name: str, trained: Trained, n_splits: int, n_calibration: int, n_test: int) -> pd.DataFrame:
    """One row per method, split and level: coverage of the intervals and of the joint region, and mean width."""
    rows = []
    for split, calibration, test in _splits(trained, n_splits, n_calibration, n_test):
        assert test.prevalences is not None
        for method, model in trained.models.items():
            estimates = model.calibrate(calibration).predict(test)
            for level in LEVELS:
                found = model.calibration_.intervals(estimates, test.sizes, level)
                rows.append(_row(name, method, "conformal", level, split, found, test))
    return pd.DataFrame(rows)


def run_bootstrap(name: str, trained: Trained, n_bags: int, n_resamples: int) -> pd.DataFrame:
    """The same on a few bags for the bootstrap, ours and QuaPy's, of EMQ and PACC, beside the conformal intervals."""
    rows = []
    _, calibration, test = next(_splits(trained, 1, 1000, n_bags))
    for method in ("EMQ", "PACC"):
        model = trained.models[method].calibrate(calibration)
        for level in LEVELS:
            ours = model.bootstrap_interval(test, level, n_resamples=n_resamples)
            rows.append(_row(name, method, "bootstrap", level, 0, ours, test))
            conformal = model.predict_interval(test, level)
            rows.append(_row(name, method, "conformal, the same bags", level, 0, conformal, test))
        rows += _quapy_rows(name, method, model.classifier_, trained.learned, test, n_resamples)
    return pd.DataFrame(rows)


def _splits(trained: Trained, n_splits: int, n_calibration: int, n_test: int) -> Iterator[tuple[int, hq.Bags, hq.Bags]]:
    """Draw calibration bags and test bags from two halves of the held-out rows."""
    held = trained.held
    assert held.labels is not None
    for split in range(n_splits):
        halves = train_test_split(held.index, stratify=held.labels[held.index], test_size=0.5, random_state=split)
        drawn = [
            hq.APP(trained.sizes).draw(
                hq.Bags(held.rows, np.sort(half), labels=held.labels, classes=held.classes), n, random_state=split
            )
            for half, n in zip(halves, (n_calibration, n_test), strict=True)
        ]
        yield split, drawn[0], drawn[1]


def _row(
    name: str, method: str, kind: str, level: float, split: int, found: hq.Intervals, test: hq.Bags
) -> dict[str, Any]:
    p = test.prevalences
    assert p is not None
    return {
        "data": name, "method": method, "interval": kind, "level": level, "split": split,
        "coverage": found.contains(p).mean(), "joint": found.region.contains(p).mean(),
        "width": (found.upper - found.lower).mean(), "n_bags": len(test),
    }  # fmt: skip


def _quapy_rows(
    name: str, method: str, classifier: Any, learned: hq.Bags, test: hq.Bags, n_resamples: int
) -> list[dict[str, Any]]:
    """QuaPy's bootstrap around the same method and classifier; joint: all classes in their intervals at once."""
    import quapy
    from quapy.method.aggregative import EMQ, PACC
    from quapy.method.confidence import AggregativeBootstrap, ConfidenceIntervals
    from sklearn.base import clone

    quapy.environ["N_JOBS"] = 1
    own = {"EMQ": EMQ.EMQ_BCTS, "PACC": PACC}[method](clone(classifier))
    model = AggregativeBootstrap(own, n_train_samples=1, n_test_samples=n_resamples, random_state=0)
    assert learned.labels is not None
    model.fit(learned.gather(), learned.labels[learned.index])
    held: dict[float, list[tuple[float, float, float]]] = {level: [] for level in LEVELS}
    assert test.prevalences is not None
    for bag, p in zip(test, test.prevalences, strict=True):
        samples = model.predict_conf(bag.gather())[1].samples
        for level in LEVELS:
            region = ConfidenceIntervals(samples, confidence_level=level)
            low, high = region.I_low, region.I_high
            inside = (low <= p + 1e-12) & (p <= high + 1e-12)
            held[level].append((inside.mean(), float(inside.all()), (high - low).mean()))
    return [
        {
            "data": name, "method": method, "interval": "QuaPy's bootstrap", "level": level, "split": 0,
            **dict(zip(("coverage", "joint", "width"), np.mean(found, axis=0), strict=True)), "n_bags": len(test),
        }
        for level, found in held.items()
    ]  # fmt: skip


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Means over the splits, and how far single splits are from them."""
    keys = ["data", "method", "interval", "level"]
    grouped = table.groupby(keys, sort=False)
    found = grouped[["coverage", "joint", "width"]].mean()
    spread = grouped[["coverage", "joint"]].std().fillna(0.0).add_suffix("_sd")
    return found.join(spread).join(grouped.agg(splits=("split", "nunique"), n_bags=("n_bags", "first"))).reset_index()
