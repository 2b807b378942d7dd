"""Scores of a model of one's own on scikit-learn's digits: tables of them, and how well its accuracy is foreseen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.naive_bayes import GaussianNB

import histnetq as hq

__all__ = ["foreseen", "write_tables"]

_SPECIES = np.array(["cod", "cod", "cod", "eel", "eel", "eel", "hake", "hake", "hake", "hake"])  # of each digit
_TRAINED, _SCORED = 300, 900  # images that the model is trained on, and rows of scored.csv; the others are new
_SITES = (40, 25)
_KINDS: dict[str, Any] = {
    "logistic regression": lambda: LogisticRegression(max_iter=2000),
    "naive Bayes": lambda: GaussianNB(var_smoothing=1e-2),
}


def write_tables(folder: Path, seed: int = 0) -> list[Path]:
    """Write scored.csv, new.csv without the labels, and checked.csv, new.csv with them.

    The model tells digits apart by a few pixels. The digits 0 to 2 are called cod, 3 to 5 eel and the others hake, and
    sites have mixes of their own.
    """
    rng = np.random.default_rng(seed)
    X, y = load_digits(return_X_y=True)
    X = X[:, 2::5]
    order = rng.permutation(len(y))
    trained, scored, new = np.split(order, [_TRAINED, _TRAINED + _SCORED])
    model = LogisticRegression(max_iter=2000).fit(X[trained], y[trained])
    folder.mkdir(parents=True, exist_ok=True)
    labels = ["species", "y", "kind"]
    tables = [_table(model, X[some], y[some], n, rng) for some, n in zip((scored, new), _SITES, strict=True)]
    written = {"scored": tables[0], "new": tables[1].drop(columns=labels), "checked": tables[1]}
    for name, table in written.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return [folder / f"{name}.csv" for name in written]


def _table(model: Any, X: NDArray, y: NDArray, n_sites: int, rng: np.random.Generator) -> pd.DataFrame:
    p = model.predict_proba(X)
    names, place = np.unique(_SPECIES, return_inverse=True)
    by_species = np.stack([p[:, place == j].sum(1) for j in range(len(names))], axis=1)
    mixes = rng.dirichlet(np.full(len(names), 0.7), n_sites)
    below = np.cumsum(mixes / mixes.sum(0), axis=0)
    site = (rng.random(len(y))[:, None] > below[:, place[y]].T).sum(1)
    scores = {f"p_{name}": by_species[:, j].round(4) for j, name in enumerate(names)}
    odd = p[:, 1::2].sum(1).round(4)
    kind = np.where(y % 2 == 1, "spam", "ham")
    return pd.DataFrame(
        {"site": site, "species": _SPECIES[y], **scores, "y": y, "y_pred": p.argmax(1), "kind": kind, "score": odd}
    ).sort_values("site", kind="stable", ignore_index=True)


def foreseen(seeds: int, n_bags: int = 200, bag_size: int = 200) -> pd.DataFrame:
    """Errors of expected accuracy and F1: mean absolute differences from the truth, over bags of all mixes.

    Beside methods stand the accuracy and F1 of the labelled rows, and the mean confidence of the model.
    """
    found: list[dict[str, Any]] = []
    X, y = load_digits(return_X_y=True)
    X = X[:, 2::5]
    for kind, seed in ((kind, seed) for kind in _KINDS for seed in range(seeds)):
        order = np.random.default_rng(seed).permutation(len(y))
        trained, scored, new = np.split(order, [_TRAINED, _TRAINED + 700])
        model = _KINDS[kind]().fit(X[trained], y[trained])
        known, later = model.predict_proba(X[scored]), model.predict_proba(X[new])
        bags = hq.APP(bag_size).draw(hq.Bags.from_labels(later, y[new]), n_bags, random_state=seed)
        truth = _scored(y[new], later.argmax(1), bags)
        plain = pd.DataFrame(_measured(y[scored], known.argmax(1)), index=range(n_bags), columns=truth.columns)
        sure = np.array([later[bags[i].index].max(1).mean() for i in range(n_bags)])
        guesses = {
            "that of the labelled rows": plain,
            "mean confidence": truth.assign(accuracy=sure, f1=np.nan),
            **{
                name: q.fit_posteriors(known, y[scored]).estimate_performance(bags).reset_index(drop=True)
                for name, q in _methods().items()
            },
        }
        found += [
            {"model": kind, "guess": name, "seed": seed, **(guess - truth).abs().mean().to_dict()}
            for name, guess in guesses.items()
        ]
    return pd.DataFrame(found)


def _methods() -> dict[str, Any]:
    return {"ACC": hq.ACC(), "PACC": hq.PACC(), "EMQ, bcts": hq.EMQ(rescaling="bcts"), "KDEy": hq.KDEy()}


def _measured(y_true: NDArray, y_pred: NDArray) -> dict[str, float]:
    f1 = f1_score(y_true, y_pred, labels=np.union1d(y_true, y_pred), average="macro", zero_division=0)
    return {"accuracy": float(accuracy_score(y_true, y_pred)), "f1": float(f1)}


def _scored(y_true: NDArray, y_pred: NDArray, bags: hq.Bags) -> pd.DataFrame:
    return pd.DataFrame([_measured(y_true[bag.index], y_pred[bag.index]) for bag in bags])
