from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from histnetq.uncertainty.judging.joint_likelihood import joint_interval

RATES = np.array([[0.85, 0.15], [0.1, 0.9]])  # class × verdict
NONE = np.zeros((2, 2))


def test_ends_are_those_of_the_profile_likelihood():
    n, e, z2 = np.array([300.0, 700.0]), np.array([[45.0, 5.0], [5.0, 45.0]]), 1.645**2

    def loss(logits, theta):
        rates = 1 / (1 + np.exp(-logits))  # of the first verdict, for both classes
        p = theta * rates[0] + (1 - theta) * rates[1]
        own = e[0] @ np.log(rates) + e[1] @ np.log1p(-rates)
        return -2 * (n[0] * np.log(p) + n[1] * np.log1p(-p) + own)

    def profile(theta):
        return minimize(loss, [2.0, -2.0], args=(theta,)).fun

    estimate, lower, upper = joint_interval(n, NONE, e, np.sqrt(z2), batch=False)
    best = profile(estimate[0])
    assert estimate[0] == pytest.approx((0.3 - 0.1) / 0.8, abs=1e-3)
    assert profile(lower[0]) - best == pytest.approx(z2, abs=0.02)
    assert profile(upper[0]) - best == pytest.approx(z2, abs=0.02)


def test_exact_error_rates_leave_only_the_sampling_error():
    lower, upper = joint_interval([300, 700], NONE, 1e7 * RATES.T, 1.645, batch=False)[1:]
    assert upper[0] - lower[0] == pytest.approx(2 * 1.645 * np.sqrt(0.21 / 1000) / 0.75, rel=0.02)


def test_labels_of_this_batch_shorten_intervals():
    earlier = np.array([[40, 5], [5, 40]])
    alone = joint_interval([300, 700], NONE, earlier, 1.645)
    more = joint_interval([210, 590], [[70, 20], [5, 105]], earlier, 1.645)
    assert (more[2] - more[1] < alone[2] - alone[1]).all()


@pytest.mark.parametrize("batch", [True, False])
def test_intervals_hold_after_a_shift_of_the_mix(batch):
    rng, n_batches, share = np.random.default_rng(0), 300, 0.2
    size = rng.binomial(1000, share, n_batches)
    verdicts = rng.multinomial(size, RATES[0]) + rng.multinomial(1000 - size, RATES[1])
    earlier = np.stack([rng.multinomial(60, rates, n_batches) for rates in RATES], -1)
    _, lower, upper = joint_interval(verdicts, np.zeros((n_batches, 2, 2)), earlier, 1.645, batch)
    truth = size / 1000 if batch else share
    assert 0.84 <= ((lower[:, 0] <= truth) & (truth <= upper[:, 0])).mean() <= 0.95
