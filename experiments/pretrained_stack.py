"""The mean of the posteriors of three classifiers against the classifier with the lowest log-loss, for `Pretrained`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import histnetq as hq
from experiments.development_scores import Scored, read_scores
from experiments.pretrained import MIXES, draw_bags
from histnetq.quantifiers.classical.rescaling import fit_scales, rescale

_SMALLEST, _SIZE = 0.001, 250


def compare_stacks(place: Path, n_bags: int = 20) -> pd.DataFrame:
    """Return one row per number of labelled rows: how often the stack has the lower log-loss, and ratios of errors."""
    groups: dict[tuple[str, int, int], list[Scored]] = {}
    for scored in read_scores(place):
        groups.setdefault((scored.table, scored.redraw, scored.n_labels), []).append(scored)
    rows = []
    for (table, _, n_labels), members in groups.items():
        if len(members) < 2:
            continue
        parts = {"posteriors": np.mean([one.posteriors for one in members], axis=0),
                 "pool": np.mean([one.pool for one in members], axis=0)}  # fmt: skip
        best, stack = min(members, key=_log_loss), replace(members[0], **parts)
        gain = _log_loss(best) - _log_loss(stack)
        log_ratio = np.log(_error(stack, n_bags) + _SMALLEST) - np.log(_error(best, n_bags) + _SMALLEST)
        rows.append({"table": table, "labels": n_labels or "all", "gain": gain, "log": log_ratio})
    found = pd.DataFrame(rows)
    return pd.DataFrame([_summary(name, some) for name, some in [*found.groupby("labels"), ("together", found)]])


def _summary(name: object, some: pd.DataFrame) -> dict[str, object]:
    better = some[some["gain"] > 0]
    return {
        "labelled rows": name, "fits": len(some), "lower log-loss": (some["gain"] > 0).mean(),
        "AE, all fits": np.exp(some.groupby("table")["log"].mean().mean()),
        "AE, lower log-loss": np.exp(better.groupby("table")["log"].mean().mean()),
    }  # fmt: skip


def _log_loss(scored: Scored) -> float:
    scales = fit_scales(scored.posteriors, scored.labels, "ridge")
    own = rescale(scored.posteriors, *scales)[np.arange(len(scored.labels)), scored.labels]
    return float(-np.log(np.maximum(own, 1e-12)).mean())


def _error(scored: Scored, n_bags: int) -> float:
    """Return the mean AE of `Pretrained` over all mixes."""
    drawn = draw_bags(np.random.default_rng(scored.seed), scored.pool_labels, scored.training, _SIZE, n_bags)
    truth: NDArray[np.float64] | None = drawn.prevalences
    assert truth is not None
    assert len(truth) == n_bags * len(MIXES)
    q = hq.Pretrained().fit_posteriors(scored.posteriors, scored.labels)
    return float(np.abs(q.predict(hq.Bags(scored.pool, drawn.index, drawn.offsets)) - truth).mean())
