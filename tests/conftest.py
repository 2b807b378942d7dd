"""Small data and every quantifier, for all tests."""

from __future__ import annotations

import ast
import functools
import os
import re

import numpy as np
import pytest
import torch
from hypothesis import settings

import histnetq as hq
from histnetq.quantifiers.networks.deep_quantifier import DeepQuantifier

torch.set_num_threads(1)

# Elsewhere hypothesis looks at other examples each time; where a failure blocks others, at the same ones.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("searching", deadline=None, max_examples=25)
settings.load_profile("repeatable" if os.environ.get("CI") else "searching")

QUICK = hq.Training(epochs=2, bags_per_epoch=8, batch_bags=4, validation_bags=4, device="cpu")
FOLDS = {"cv": 3, "random_state": 0}
SMALL = {"encoder": (8, 6), "head": (12,), "training": QUICK, "random_state": 0}

QUANTIFIERS = {
    "HistNetQ-hard": lambda **kw: hq.HistNetQ("hard", 5, **{**SMALL, **kw}),
    "HistNetQ-soft": lambda **kw: hq.HistNetQ("soft", 5, **{**SMALL, **kw}),
    "HistNetQ-rbf": lambda **kw: hq.HistNetQ("rbf", 5, **{**SMALL, **kw}),
    "HistNetQ-sigmoid": lambda **kw: hq.HistNetQ("sigmoid", 5, **{**SMALL, **kw}),
    "HistNetQ-unmix": lambda **kw: hq.HistNetQ("hard", 5, **{**SMALL, "encoder": (), "head": "unmix", **kw}),
    "DeepSets-mean": lambda **kw: hq.DeepSets("mean", **{**SMALL, **kw}),
    "DeepSets-median": lambda **kw: hq.DeepSets("median", **{**SMALL, **kw}),
    "DeepSets-max": lambda **kw: hq.DeepSets("max", **{**SMALL, **kw}),
    "SetTransformer": lambda **kw: hq.SetTransformer(8, 8, 3, 2, **{**SMALL, **kw}),
    "SetTransformer-started": lambda **kw: hq.SetTransformer(8, 8, 3, 2, **{**SMALL, "ridge": 0.01, **kw}),
    "GMNet": lambda **kw: hq.GMNet(2, 5, 2, **{**SMALL, **kw}),
    "GMNet-started": lambda **kw: hq.GMNet(2, 5, 2, **{**SMALL, "ridge": 0.01, **kw}),
    "EMNetQ": lambda **kw: hq.EMNetQ(**{"encoder": (8,), "ridge": None, "training": QUICK, "random_state": 0, **kw}),
    "EMNetQ-started": lambda **kw: hq.EMNetQ(**{"training": QUICK, "random_state": 0, **kw}),
    "CC": lambda **kw: hq.CC(**{**FOLDS, **kw}),
    "PCC": lambda **kw: hq.PCC(**{**FOLDS, **kw}),
    "ACC": lambda **kw: hq.ACC(**{**FOLDS, **kw}),
    "PACC": lambda **kw: hq.PACC(**{**FOLDS, **kw}),
    "PACC-inverse": lambda **kw: hq.PACC(solver="inverse", **{**FOLDS, **kw}),
    "EMQ": lambda **kw: hq.EMQ(**{**FOLDS, **kw}),
    "EMQ-bcts": lambda **kw: hq.EMQ(rescaling="bcts", **{**FOLDS, **kw}),
    "EMQ-shrunk": lambda **kw: hq.EMQ(rescaling="shrunk", **{**FOLDS, **kw}),
    "EMQ-mean": lambda **kw: hq.EMQ(rescaling="bcts", estimate="mean", prior="training", **{**FOLDS, **kw}),
    "EMQ-median": lambda **kw: hq.EMQ(estimate="median", **{**FOLDS, **kw}),
    "Pretrained": lambda **kw: hq.Pretrained(**{**FOLDS, **kw}),
    "Pretrained-rae": lambda **kw: hq.Pretrained(loss="rae", prior=2.0, **{**FOLDS, **kw}),
    "HDy": lambda **kw: hq.HDy(**{**FOLDS, **kw}),
    "DyS-topsoe": lambda **kw: hq.DyS(**{**FOLDS, **kw}),
    "DyS-hellinger": lambda **kw: hq.DyS(n_bins=(4, 8, 16), divergence="hellinger", **{**FOLDS, **kw}),
    "KDEy": lambda **kw: hq.KDEy(**{**FOLDS, **kw}),
    "ACC-smooth": lambda **kw: hq.ACC(smoothness=0.1, **{**FOLDS, **kw}),
    "EMQ-smooth": lambda **kw: hq.EMQ(smoothness=0.3, **{**FOLDS, **kw}),
    "BBSE-soft": lambda **kw: hq.BBSE(**{**FOLDS, **kw}),
    "BBSE-hard": lambda **kw: hq.BBSE(mode="hard", **{**FOLDS, **kw}),
    "RLLS": lambda **kw: hq.RLLS(**{**FOLDS, **kw}),
    "Friedman": lambda **kw: hq.Friedman(**{**FOLDS, **kw}),
    "MS": lambda **kw: hq.MS(**{**FOLDS, **kw}),
    "MS-median2": lambda **kw: hq.MS(policy="median2", **{**FOLDS, **kw}),
    "MS-max": lambda **kw: hq.MS(policy="max", **{**FOLDS, **kw}),
    "MS-t50": lambda **kw: hq.MS(policy="t50", **{**FOLDS, **kw}),
    "MS-x": lambda **kw: hq.MS(policy="x", **{**FOLDS, **kw}),
    "ED": lambda **kw: hq.ED(**{**FOLDS, **kw}),
    "EDx": lambda **kw: hq.EDx(),
    "HDx": lambda **kw: hq.HDx(n_bins=(4, 8, 10)),
    "ReadMe": lambda **kw: hq.ReadMe(**{"n_subsets": 20, "subset_size": 3, "random_state": 0, **kw}),
    "Corrected": lambda **kw: hq.Corrected(hq.PCC(**FOLDS), **{"random_state": 0, **kw}),
    "Ensemble": lambda **kw: hq.Ensemble((hq.PACC(**FOLDS), hq.ACC(**FOLDS), hq.HDx()), **kw),
    "Ensemble-median": lambda **kw: hq.Ensemble((hq.PACC(**FOLDS), hq.EMQ(**FOLDS), hq.EDx()), how="median", **kw),
    "LinearQ": lambda **kw: hq.LinearQ(**{"random_state": 0, **kw}),
    "MLPE": lambda **kw: hq.MLPE(),
    "QuaNet": lambda **kw: hq.QuaNet(cv=3, **{"hidden": 6, "n_steps": 20, "training": QUICK, "random_state": 0, **kw}),
}
KIND = {name: getattr(hq, name.split("-")[0]) for name in QUANTIFIERS}
CLASSICAL = [name for name, kind in KIND.items() if getattr(kind, "resamples", False)]
NETWORKS = [name for name, kind in KIND.items() if issubclass(kind, DeepQuantifier)]


def one_for_each(*methods: str) -> list[str]:
    """One quantifier for each implementation of these methods: tests of shared code need no other."""
    found: dict[tuple, str] = {}
    for name, kind in KIND.items():
        found.setdefault(tuple(getattr(kind, method) for method in methods), name)
    return list(found.values())


REPRESENTATIVES = one_for_each("fit", "_predict")
# One network for each way to set the starting weights: random, or pretrained.
STARTING = ["HistNetQ-hard", "HistNetQ-unmix", "SetTransformer-started", "GMNet-started", "EMNetQ-started"]


def labelled(n: int = 120, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of overlapping normal classes, and their labels "a", "b", …"""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % n_classes
    X = rng.normal(size=(n, 4)) + 1.5 * codes[:, None] * np.array([1, -1, 0, 0.5])
    return X, np.array(list("abcdefgh"))[codes]


def known_bags(n_bags: int = 12, seed: int = 0) -> hq.Bags:
    """Ragged bags with known proportions and no labels."""
    drawn = hq.APP(bag_size=(5, 20)).draw(hq.Bags.from_labels(*labelled(seed=seed)), n_bags, random_state=seed)
    return hq.Bags(
        drawn.rows, drawn.index, drawn.offsets, prevalences=drawn.prevalences, classes=drawn.classes.tolist()
    )


def hard_unless(quick, cases) -> list:
    """Cases as parameters, of which those that are not quick are for `make test-hard` alone."""
    return [pytest.param(*case, marks=() if quick(*case) else pytest.mark.hard) for case in cases]


def exactly(message: str) -> str:
    """A pattern that matches this message and no other."""
    return f"^{re.escape(message)}$"


def types_to_trust(path, **custom) -> list[str]:
    """The classes that `load` asks to be trusted, by what it says."""
    try:
        hq.load(path, **custom)
    except ValueError as error:
        return ast.literal_eval(str(error).partition("trust=")[2].removesuffix(").") or "[]")
    return []


def bags_to_learn(quantifier: DeepQuantifier, seed: int = 0) -> hq.Bags:
    """Bags for a network: enough for a start from other than random weights, where it has such a start."""
    return known_bags(12 if quantifier._start() is None else 40, seed=seed)


def learn(quantifier: hq.Quantifier, seed: int = 0) -> hq.Quantifier:
    """Fit a quantifier on what it learns from: bags of known proportions, or labelled rows."""
    if isinstance(quantifier, DeepQuantifier):
        return quantifier.fit(bags_to_learn(quantifier, seed))
    return quantifier.fit(*labelled(seed=seed))


@pytest.fixture
def same_layers():
    """Layers made in a test start from the same weights every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="session", params=QUANTIFIERS)
def make_any(request):
    """A function that makes one kind of quantifier, with parameters to change."""
    return QUANTIFIERS[request.param]


@pytest.fixture(scope="session", params=NETWORKS)
def make(request):
    """A function that makes one kind of network, with parameters to change."""
    return QUANTIFIERS[request.param]


@functools.cache
def learned(name: str) -> hq.Quantifier:
    """A fitted quantifier of this name, which tests only read."""
    return learn(QUANTIFIERS[name]())


@pytest.fixture(scope="session", params=QUANTIFIERS)
def fitted(request):
    return learned(request.param)


@pytest.fixture(scope="session", params=REPRESENTATIVES)
def representative(request):
    """A fitted quantifier for each implementation of `fit` and of estimates."""
    return learned(request.param)


@pytest.fixture(scope="session", params=STARTING)
def make_starting(request):
    """A function that makes one network for each way to start, with parameters to change."""
    return QUANTIFIERS[request.param]
