"""Data sets of labelled rows and bags, each with the networks' settings to choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import histnetq as hq
from experiments.npz import read_npz
from experiments.words import BINARY, MANY, BagPlan, load_words
from histnetq.datasets import Dataset, lequa2022

__all__ = ["FILES", "PRESETS", "Preset", "mostly_absolute", "read_labels", "read_split"]


@dataclass(frozen=True)
class Preset:
    """A data set and how networks are trained on it.

    Parameters
    ----------
    what : str
        For the reader of a table.
    load : directory → Dataset
    paper : str
        The column of the paper's table to compare with.
    settings : list of dict
        Of the networks, to choose from, the same for all; the first is that of experiments that vary one thing.
    likelihood : list of dict
        Of EMNetQ, which has no head.
    gaussians : list of dict
        Of GMNet.
    training : Training
    real : float
        Part of real bags beside mixed ones.
    pace : float
        The minutes of a budget are so many times longer here.
    study : float
        Networks whose variants are compared train so many times longer here.
    """

    what: str
    load: Callable[[Path], Dataset]
    paper: str
    settings: list[dict[str, Any]]
    likelihood: list[dict[str, Any]]
    gaussians: list[dict[str, Any]]
    training: hq.Training
    real: float
    pace: float = 1.0
    study: float = 1.0

    def settings_of(self, network: str) -> list[dict[str, Any]]:
        """The settings that a network is chosen from."""
        return {"EMNetQ": self.likelihood, "GMNet": self.gaussians}.get(network, self.settings)


def mostly_absolute(p_true: Any, p_pred: Any, sizes: Any) -> Any:
    """Geometric mean of AE, AE again and RAE: low where both are, at a price in RAE that AE is worth."""
    absolute, relative = hq.metrics.ae(p_true, p_pred, sizes), hq.metrics.rae(p_true, p_pred, sizes)
    return (absolute**2 * relative + _NOT_ZERO) ** (1 / 3)


_NOT_ZERO = 1e-9  # a root has no slope at zero
_ATTENTION = {"width": 64, "hidden": 64, "n_inducing": 8}


def _setting(encoder: tuple[int, ...], n_bins: int, **others: Any) -> dict[str, Any]:
    common = {"head": (256,), "cumulative": True, "lr": 1e-3, **_ATTENTION}
    return {"encoder": encoder, "n_bins": n_bins, **others, **common}


_BINARY = [
    _setting((64, 16), 32, dropout=0.5, weight_decay=0.3),
    _setting((256, 32), 32, dropout=0.7, weight_decay=0.1),
    _setting((64, 16), 32, dropout=0.7, weight_decay=0.3),
    _setting((128, 16), 16, dropout=0.5, weight_decay=0.3),
]
# With few distinct rows and many classes, few bins and dropout of inputs keep rows from being learned by heart.
_MANY_CLASSES = [
    _setting((256,), 2, dropout=0.3, weight_decay=0.1, input_dropout=0.5),
    _setting((256,), 2, dropout=0.5, weight_decay=0.3, input_dropout=0.5),
    _setting((256,), 4, dropout=0.3, weight_decay=0.1, input_dropout=0.5),
    _setting((256,), 2, dropout=0.3, weight_decay=0.1, input_dropout=0.3),
]


# Hardly a row is in two bags, and there is little to learn by heart.
_MANY_ROWS = [
    _setting((512, 64), 16, dropout=0.1, weight_decay=0.01),
    _setting((512, 64), 32, dropout=0.1, weight_decay=0.01),
    _setting((512, 128), 8, dropout=0.1, weight_decay=0.01),
    _setting((512, 64), 16, dropout=0.3, weight_decay=0.01),
]


def _likelihood(**others: Any) -> dict[str, Any]:
    return {"encoder": (), "batch_bags": 20, "lr": 3e-4, "warmup": 0, "patience": 3, "average": 50, **others}


_HIDDEN: dict[str, Any] = {"dropout": 0.5, "input_dropout": 0.2, "weight_decay": 0.1}
_BINARY_LIKELIHOOD = [
    _likelihood(prior=0.0, encoder=(64,), **_HIDDEN),
    _likelihood(prior=0.0, encoder=(128,), **_HIDDEN),
    _likelihood(prior=0.0, ridge=0.003),
]
_MANY_LIKELIHOOD = [
    _likelihood(prior=0.5, ridge=0.01),
    _likelihood(prior=0.5, ridge=0.02),
    _likelihood(prior=0.5, encoder=(128,), **_HIDDEN),
]


def _gaussians(
    encoder: tuple[int, ...], shape: tuple[int, int, int], dropout: float, weight_decay: float
) -> dict[str, Any]:
    """A setting of GMNet: blocks, Gaussians of each, and their dimensions."""
    return {
        "encoder": encoder, **dict(zip(("n_blocks", "n_gaussians", "n_dims"), shape, strict=True)), "head": (256,),
        "lr": 1e-3, "dropout": dropout, "weight_decay": weight_decay,
    }  # fmt: skip


# Small networks: their encoders have no dropout, and learn rows by heart sooner.
_BINARY_GAUSSIANS = [
    _gaussians((16,), (4, 20, 5), 0.5, 1.0),
    _gaussians((16,), (2, 10, 2), 0.5, 1.0),
    _gaussians((), (4, 20, 5), 0.5, 0.3),
    _gaussians((64, 16), (4, 20, 5), 0.5, 0.3),
]
_MANY_GAUSSIANS = [
    _gaussians((), (9, 30, 5), 0.5, 0.3),
    _gaussians((), (30, 10, 2), 0.5, 0.3),
    _gaussians((), (30, 10, 2), 0.5, 1.0),
    _gaussians((64,), (9, 30, 5), 0.5, 1.0),
]
_MANY_ROWS_GAUSSIANS = [
    _gaussians((512, 64), (9, 30, 5), 0.1, 0.01),
    _gaussians((512,), (30, 10, 2), 0.1, 0.01),
    _gaussians((), (30, 10, 2), 0.1, 0.01),
    _gaussians((512, 64), (9, 30, 5), 0.3, 0.01),
]
# GMNet's own, as published for CIFAR-10. There each block has 50 hidden units of its own, here all share as many.
_GMNET: dict[str, Any] = {
    "encoder": (450,), "n_blocks": 9, "n_gaussians": 100, "n_dims": 5, "head": (4000,), "lr": 5e-3, "min_lr": 1e-3,
    "dropout": 0.5, "weight_decay": 1e-3,
}  # fmt: skip
_ANALOGUE: dict[str, Any] = {"progress": False, "checkpoint_every": 5}


FILES = {
    "imdb": "binary_imdb_w2v300.npz",
    "newsgroups": "multi20_newsgroups_w2v300.npz",
    "goemotions": "multi28_goemotions_w2v300.npz",
}


def read_labels(name: str, folder: Path) -> NDArray[np.int64]:
    """The labels of all rows of an analogue, to judge by; learning from bags never sees them."""
    return _read(name, folder, "y")


def read_split(name: str, folder: Path) -> NDArray[np.int64]:
    """Return the part of each row: 0 labelled training rows, 1 development bags, 2 test bags."""
    return _read(name, folder, "split")


def _read(name: str, folder: Path, key: str) -> NDArray[np.int64]:
    with np.load(folder / FILES[name], allow_pickle=False) as file:
        return file[key].astype(np.int64)


def _npz(name: str) -> Callable[[Path], Dataset]:
    return lambda folder: read_npz(folder / FILES[name])


def _words(plan: BagPlan) -> Callable[[Path], Dataset]:
    return lambda folder: load_words(folder, plan)


# The paper's.
_LEQUA: dict[str, Any] = {"patience": 20, "min_lr": 1e-5, "progress": False}
_T1A: dict[str, Any] = {
    "encoder": (1024, 1024, 300), "head": (2048, 2048, 2048), "lr": 1e-4, "dropout": 0.5, "weight_decay": 1e-5,
    "n_bins": 32, "cumulative": False, "width": 512, "hidden": 256, "n_inducing": 32, "n_heads": 4,
}  # fmt: skip
_T1B: dict[str, Any] = {
    "encoder": (1024, 512), "head": (4096,), "lr": 5e-4, "dropout": 0.5, "weight_decay": 1e-5,
    "n_bins": 64, "cumulative": False, "width": 512, "hidden": 256, "n_inducing": 128, "n_heads": 4,
}  # fmt: skip


PRESETS = {
    "imdb": Preset(
        "IMDb film reviews, 2 classes (an analogue of LeQua's T1A)", _npz("imdb"), "LeQua-T1A",
        _BINARY, _BINARY_LIKELIHOOD, _BINARY_GAUSSIANS,
        hq.Training(batch_bags=20, warmup=5, patience=10, **_ANALOGUE), 0.5,
    ),
    "newsgroups": Preset(
        "20 newsgroups (an analogue of LeQua's T1B)", _npz("newsgroups"), "LeQua-T1B",
        _MANY_CLASSES, _MANY_LIKELIHOOD, _MANY_GAUSSIANS,
        hq.Training(batch_bags=10, warmup=10, patience=6, **_ANALOGUE), 0.5, 1.5, 2.4,
    ),
    "goemotions": Preset(
        "GoEmotions, 28 very unequal classes (an analogue of LeQua's T1B)", _npz("goemotions"), "LeQua-T1B",
        _MANY_CLASSES, _MANY_LIKELIHOOD, _MANY_GAUSSIANS,
        hq.Training(batch_bags=10, warmup=10, patience=6, **_ANALOGUE), 0.5, 1.5, 2.4,
    ),
    "lequa-t1a": Preset(
        "LeQua 2022, task T1A", lambda folder: lequa2022("T1A", folder), "LeQua-T1A",
        [_T1A], _BINARY_LIKELIHOOD, [_GMNET], hq.Training(bags_per_epoch=1000, batch_bags=20, **_LEQUA), 0.1,
    ),
    "lequa-t1b": Preset(
        "LeQua 2022, task T1B", lambda folder: lequa2022("T1B", folder), "LeQua-T1B",
        [_T1B], _MANY_LIKELIHOOD, [_GMNET],
        hq.Training(bags_per_epoch=5000, batch_bags=500, micro_bags=25, **_LEQUA), 0.5,
    ),
    "words": Preset(
        "Words of 28 languages (an analogue of LeQua's T1B in which rows hardly repeat)", _words(MANY), "LeQua-T1B",
        _MANY_ROWS, _MANY_LIKELIHOOD, _MANY_ROWS_GAUSSIANS,
        hq.Training(batch_bags=20, warmup=10, patience=6, **_ANALOGUE), 0.5, 10.0, 10.0,
    ),
    "words-2": Preset(
        "Portuguese and Spanish words (an analogue of LeQua's T1A)", _words(BINARY), "LeQua-T1A",
        _BINARY, _BINARY_LIKELIHOOD, _BINARY_GAUSSIANS,
        hq.Training(batch_bags=20, warmup=5, patience=10, **_ANALOGUE), 0.5, 5.0, 5.0,
    ),
}  # fmt: skip
