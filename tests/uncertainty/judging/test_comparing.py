from __future__ import annotations

import numpy as np
import pytest

from histnetq.uncertainty.judging.comparing import difference, holm
from histnetq.uncertainty.judging.judged_rows import JudgedRows


def _systems(rng, n=400):
    """Two systems with the same prompts, whose truth and verdicts are similar."""
    truth = rng.random(n) < 0.4
    for _ in range(2):
        own = np.where(rng.random(n) < 0.2, rng.random(n) < 0.4, truth).astype(int)
        verdicts = np.where(rng.random(n) < 0.1, 1 - own, own)
        yield JudgedRows(verdicts, np.where(rng.random(n) < 0.5, own, -1), 2, 2, np.zeros(2, int))


def test_pairs_shorten_intervals_of_differences_that_stay_valid():
    rng, units = np.random.default_rng(0), (np.arange(400), np.arange(400))
    held, widths = [], []
    for _ in range(150):
        one, other = (rows.shares(0.9, "process") for rows in _systems(rng))
        found = [difference(one, other, each, 0.9) for each in (units, None)]
        held.append([lower[0] <= 0 <= upper[0] for _, lower, upper, _ in found])
        widths.append([upper[0] - lower[0] for _, lower, upper, _ in found])
    paired, unpaired = np.mean(widths, 0)
    assert paired < 0.92 * unpaired
    assert np.mean(held, 0)[0] > 0.84


def test_p_values_are_small_where_intervals_leave_out_zero():
    rng = np.random.default_rng(1)
    one, other = (rows.shares(0.9, "process") for rows in _systems(rng))
    apart, lower, upper, p = difference(one, other, None, 0.9)
    assert apart == pytest.approx(-apart[::-1])
    assert (((lower > 0) | (upper < 0)) == (p < 0.1)).all()


def test_holm_keeps_the_order_of_p_values():
    assert holm(np.array([0.5, 0.001, 0.02])) == pytest.approx([0.5, 0.003, 0.04])
