from __future__ import annotations

import numpy as np
import pytest

from histnetq.uncertainty.judging.judged_rows import JudgedRows


def _rows(rng, n=2000, chance=0.1, share=0.3, **options):
    truth = (rng.random(n) < share).astype(int)
    verdicts = np.where(rng.random(n) < 0.1, 1 - truth, truth)
    drawn = rng.random(n) < (chance if np.isscalar(chance) else np.asarray(chance)[verdicts])
    return truth, JudgedRows(verdicts, np.where(drawn, truth, -1), 2, 2, **options)


def test_all_rows_labelled_leaves_nothing_to_estimate():
    truth, rows = _rows(np.random.default_rng(0), 200, 1.1)
    found = rows.shares(0.9, "batch")
    assert found.estimate[1] == pytest.approx(truth.mean())
    assert found.lower == pytest.approx(found.upper)
    process = rows.shares(0.9, "process")
    assert process.upper[1] - process.lower[1] == pytest.approx(2 * 1.645 * np.sqrt(0.3 * 0.7 / 200), rel=0.1)


@pytest.mark.parametrize("target", ["batch", "process"])
def test_labels_chosen_by_verdict_are_unbiased_and_covered(target):
    rng, held, errors = np.random.default_rng(0), [], []
    for _ in range(200):
        truth, rows = _rows(rng, chance=(0.02, 0.4))
        found = rows.shares(0.9, target)
        goal = truth.mean() if target == "batch" else 0.3
        held.append(found.lower[1] <= goal <= found.upper[1])
        errors.append(found.estimate[1] - goal)
    assert np.mean(held) == pytest.approx(0.9, abs=0.06)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(len(errors))


def test_known_probabilities_equal_strata_if_they_are_constant():
    _, rows = _rows(np.random.default_rng(0))
    share = (rows.labels >= 0).mean()
    given = JudgedRows(rows.verdicts, rows.labels, 2, 2, probability=np.full(2000, share))
    one, other = rows.shares(0.9, "batch"), given.shares(0.9, "batch")
    assert one.estimate == pytest.approx(other.estimate)
    assert one.lower == pytest.approx(other.lower, abs=2e-3)


def test_clusters_widen_intervals_of_the_process_only():
    rng = np.random.default_rng(0)
    truth = np.repeat(rng.random(50) < 0.4, 40).astype(int)  # all rows of a cluster are alike
    labels = np.where(rng.random(2000) < 0.2, truth, -1)
    rows = [JudgedRows(truth, labels, 2, 2, clusters=each) for each in (None, np.arange(2000) // 40)]
    alone, clustered = (each.shares(0.9, "process") for each in rows)
    expected = 2 * 1.68 * np.sqrt(0.24 / 50)
    assert clustered.upper[1] - clustered.lower[1] == pytest.approx(expected, rel=0.15)
    assert alone.upper[1] - alone.lower[1] < 0.3 * expected
    assert rows[1].shares(0.9, "batch").lower == pytest.approx(rows[0].shares(0.9, "batch").lower)


def test_influences_add_up_to_the_variance():
    rng, sums, errors = np.random.default_rng(0), [], []
    for _ in range(300):
        _, rows = _rows(rng, 800, 0.2)
        found = rows.shares(0.9, "process")
        sums.append((found.influence**2).sum(0)[1])
        errors.append(found.estimate[1] - 0.3)
    assert np.mean(sums) == pytest.approx(np.mean(np.square(errors)), rel=0.2)
