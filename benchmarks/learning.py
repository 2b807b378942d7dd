"""Learning in stages against learning end to end from random weights: the time to the loss that the latter ends with.

The data are those of `python -m experiments imdb` and `newsgroups`, in the directory that HISTNETQ_DATA names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import histnetq as hq
from experiments.presets import PRESETS
from experiments.staged import SETTINGS, make_network

__all__ = ["run"]

_MINUTES = 5.0


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio, comparison, target); nothing without the data."""
    place = os.environ.get("HISTNETQ_DATA")
    if place is None:
        print("     HISTNETQ_DATA names no directory of data: nothing is measured")
        return
    for name in ("imdb", "newsgroups"):
        data = PRESETS[name].load(Path(place))
        loss, before = _from_random_weights(name, data)
        reached, seconds = _in_stages(name, data)
        what = (
            f"HistNetQ from {len(data.bags)} bags of {name}, in stages with an encoder of one layer ({seconds:.1f} s, "
            f"validation AE {reached:.4f}): times faster than from random weights ({before:.0f} s to their lowest one "
            f"within {_MINUTES:g} minutes, {loss:.4f})"
        )
        yield what, before / seconds if reached <= loss else 0.0, "≥", 10.0


def _from_random_weights(name: str, data: hq.datasets.Dataset) -> tuple[float, float]:
    """The lowest validation loss, and the seconds to it."""
    preset = PRESETS[name]
    known = hq.HistNetQ().get_params().keys() | hq.Training().get_params().keys()  # settings are of all networks
    setting = {name: value for name, value in preset.settings[0].items() if name in known}
    training = replace(preset.training, patience=1000, minutes=_MINUTES)
    q = make_network({**setting, "ridge": None}, training, 0)
    q.fit(data.bags, validation=data.validation)
    return q.validation_loss_, float(q.history_["seconds"][: q.best_epoch_].sum())


def _in_stages(name: str, data: hq.datasets.Dataset) -> tuple[float, float]:
    """Return the lowest validation loss and the seconds until it, including pretraining."""
    setting = {**SETTINGS[name][0], "encoder": (), "refit": False}
    q = make_network(setting, hq.Training(progress=False, patience=1), 0)
    began = time.perf_counter()
    q.fit(data.bags, validation=data.validation)
    after = float(q.history_["seconds"][q.best_epoch_ :].sum())
    return q.validation_loss_, time.perf_counter() - began - after
