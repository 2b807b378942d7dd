from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from histnetq.uncertainty.judging.judged_rows import JudgedRows
from histnetq.uncertainty.judging.planning import FIRST_LOOK, labels_needed, sequential_level, worth


def _rows(rng, n_rows, drawn):
    truth = (rng.random(n_rows) < 0.2).astype(int)
    verdicts = np.where(rng.random(n_rows) < 0.1, 1 - truth, truth)
    labels = np.full(n_rows, -1)
    labels[drawn(verdicts)] = truth[drawn(verdicts)]
    return truth, JudgedRows(verdicts, labels, 2, 2, np.zeros(2, int))


@pytest.mark.parametrize("n", [40, 150, 500])
def test_labels_without_a_judge_are_worth_their_number(n):
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(2000) < n, rng.random(2000) < 0.3, -1).astype(int)
    rows = JudgedRows(np.zeros(2000, int), labels, 1, 2, np.zeros(1, int))
    for target, n_rows in (("batch", 2000), ("process", np.inf)):
        found = rows.shares(0.9, target)
        assert worth(found.upper - found.lower, found.estimate, 0.9, n_rows) == pytest.approx(n, rel=0.06)


def test_planned_labels_give_the_planned_width():
    rng, order = np.random.default_rng(0), np.random.default_rng(1).permutation(8000)
    _, pilot = _rows(rng, 8000, lambda verdicts: order)  # as many labels as there can be
    at_random, by_verdict = labels_needed(pilot.counts, pilot.sizes, 0.02, 0.9, batch=True)
    assert by_verdict.sum() < at_random
    _, rows = _rows(rng, 8000, lambda verdicts: order[: round(at_random)])
    found = rows.shares(0.9, "batch")
    assert (found.upper - found.lower) / 2 == pytest.approx(0.02, rel=0.15)

    def chosen(verdicts):
        return np.concatenate([np.flatnonzero(verdicts == v)[: round(n)] for v, n in enumerate(by_verdict)])

    _, rows = _rows(rng, 8000, chosen)
    found = rows.shares(0.9, "batch")
    assert (found.upper - found.lower) / 2 == pytest.approx(0.02, rel=0.25)


def test_a_process_cannot_be_known_better_than_by_labels_of_all_rows():
    counts, sizes = np.array([[40, 5], [5, 40]]), np.array([100, 100])
    assert np.isnan(labels_needed(counts, sizes, 0.01, 0.9, batch=False)[0])
    assert labels_needed(counts, sizes, 0.01, 0.9, batch=True)[0] < 200


def test_sequential_intervals_rarely_miss_at_any_look():
    level = sequential_level(0.9)
    assert ndtri((1 + level) / 2) / ndtri(0.95) < 1.6
    rng, missed = np.random.default_rng(0), 0
    for _ in range(100):
        order = rng.permutation(3000)
        truth, rows = _rows(rng, 3000, lambda verdicts, order=order: order)
        for n in range(FIRST_LOOK, 201, 60):
            labels = np.full(3000, -1)
            labels[order[:n]] = truth[order[:n]]
            found = JudgedRows(rows.verdicts, labels, 2, 2, np.zeros(2, int)).shares(level, "batch")
            if not found.lower[1] <= truth.mean() <= found.upper[1]:
                missed += 1
                break
    assert missed <= 12
