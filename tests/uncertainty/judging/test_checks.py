from __future__ import annotations

import numpy as np
import pytest

from histnetq.uncertainty.judging.checks import agreement, equal_error_rates, equal_mixes


@pytest.mark.parametrize("share", [0.3, 0.004])
def test_random_samples_have_unequal_mixes_at_the_stated_rate(share):
    rng = np.random.default_rng(0)
    p = []
    for _ in range(150):
        verdicts = rng.random(1000) < share
        drawn = rng.permutation(1000)[:100]
        one = np.bincount(verdicts[drawn], minlength=2)
        p.append(equal_mixes(one, np.bincount(verdicts, minlength=2) - one))
    assert np.mean(np.array(p) < 0.1) < 0.18


def test_unequal_mixes_and_error_rates_are_found():
    assert equal_mixes(np.array([60, 40]), np.array([900, 100])) < 1e-6
    assert equal_error_rates(np.array([[40, 10], [10, 40]]), np.array([[49, 1], [1, 49]])) < 0.02
    assert equal_error_rates(np.array([[40, 0], [0, 0]]), np.array([[0, 10], [0, 9]])) == 1


def test_agreement_of_two_humans():
    n, same, kappa = agreement(np.array([0, 1, 2, -1]), np.array([0, 1, 1, 1]))
    assert (n, same, kappa) == (3, pytest.approx(2 / 3), pytest.approx((2 / 3 - 3 / 9) / (6 / 9)))
    assert agreement(np.array([-1]), np.array([0]))[0] == 0
