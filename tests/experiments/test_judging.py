from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import histnetq as hq
from experiments.judging import ROUTES, cells, count_intervals, run_cells, run_differences, run_sequential, verdicts


@pytest.mark.parametrize("target", ["batch", "process"])
def test_intervals_from_counts_are_those_of_judge(target):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 400)
    verdict = np.where(rng.random(400) < 0.2, rng.integers(0, 3, 400), truth)
    has = np.isin(np.arange(400), rng.permutation(400)[:60])
    names = np.array(["a", "b", "c"], object)
    frame = {"verdict": names[verdict], "label": np.where(has, names[truth], None)}
    table = hq.judge(frame, judge="verdict", human="label", labels="random", target=target).table
    labelled = np.zeros((1, 3, 3), int)
    np.add.at(labelled[0], (verdict[has], truth[has]), 1)
    found = count_intervals(labelled, np.bincount(verdict)[None], target, pool=True)
    for name, values in zip(("estimate", "lower", "upper"), found, strict=True):
        assert table[name].tolist() == pytest.approx(values[0].tolist(), abs=1e-7)


@pytest.mark.parametrize("route", ROUTES)
def test_fractions_have_all_values_about_equally_often(route):
    table = pd.DataFrame(cells(route))
    assert all(table[column].value_counts().agg(lambda n: n.max() <= 1.5 * n.min()) for column in table)


def test_finished_cells_are_kept(tmp_path):
    path = tmp_path / "cells.csv"
    first = run_cells("random", 20, path, 1)
    assert first["cell"].unique().tolist() == [0]
    both = run_cells("random", 20, path, 1)
    pd.testing.assert_frame_equal(both[both["cell"] == 0], first)
    assert set(verdicts(both)["route"]) == {"random"}


def test_small_runs_cover():
    assert run_sequential(50, 100, 500, 0.85, 0.2)["ever missed"] < 0.25
    assert run_differences(200, 100, 0.85, 0.2)["coverage"] > 0.8
