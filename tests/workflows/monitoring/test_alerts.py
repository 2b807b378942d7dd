"""Alerts keep their rate, are never revised, and find what has moved."""

from __future__ import annotations

import numpy as np
import pytest

import histnetq as hq
from histnetq.workflows.monitoring.alerts import HORIZON, find_alerts
from histnetq.workflows.monitoring.null_simulation import drawing_of

REFERENCE = 26


def draw(mix, size, n_draws, rng):
    """Estimates without error: the shares of the rows themselves."""
    return rng.multinomial(size, mix, n_draws) / size


def stream(mixes, size, seed=0):
    rng = np.random.default_rng(seed)
    return rng.multinomial(size, mixes) / size


def held(n):
    return np.arange(n) < REFERENCE


def constant(mix, n):
    return np.tile(mix, (n, 1))


def watch(estimates, size, **options):
    return find_alerts(estimates, np.full(len(estimates), size), held(len(estimates)), draw, **options)


def test_later_chunks_change_nothing_that_was_said():
    p = stream(constant([0.3, 0.5, 0.2], 60), 400)
    p[50:] = [0.5, 0.3, 0.2]
    whole, part = watch(p, 400), watch(p[:45], 400)
    for name in ("lower", "upper", "changed", "drifted"):
        np.testing.assert_array_equal(getattr(whole, name)[:45], getattr(part, name))


def test_a_shift_is_found_in_the_classes_that_have_it():
    p = stream(constant([0.4, 0.3, 0.3], 30), 1000)
    p[28:] += [0.1, -0.1, 0.0]
    found = watch(p, 1000)
    assert found.changed[28:, :2].all()
    assert not found.changed[:28].any()
    assert not found.changed[:, 2].any()
    np.testing.assert_allclose(found.reference, [0.4, 0.3, 0.3], atol=0.01)


def test_small_changes_add_up():
    p = stream(constant([0.5, 0.5], REFERENCE + 30), 250)
    p[REFERENCE:] += [0.055, -0.055]
    found = watch(p, 250)
    assert found.drifted[:, 0].sum() > 2 * found.changed[:, 0].sum()


def test_a_sum_of_changes_falls_when_they_end():
    p = stream(constant([0.5, 0.5], REFERENCE + 40), 250)
    p[REFERENCE : REFERENCE + 10] += [0.15, -0.15]
    found = watch(p, 250)
    assert found.drifted[REFERENCE + 3 : REFERENCE + 10].all()
    assert not found.drifted[REFERENCE + 20 :].any()


def test_two_classes_mirror_each_other():
    p = stream(constant([0.3, 0.7], 40), 300)
    found, turned = watch(p, 300), watch(p[:, ::-1], 300)
    np.testing.assert_allclose(found.lower[:, 0], 1 - found.upper[:, 1])
    np.testing.assert_allclose(found.upper[:, 0], turned.upper[:, 1], atol=0.02)


def test_mixes_that_vary_in_the_reference_widen_the_thresholds():
    rng = np.random.default_rng(0)
    share = rng.beta(20, 20, 60)  # a standard deviation of 0.08, of chance 0.016
    wide = watch(stream(np.c_[share, 1 - share], 1000), 1000)
    narrow = watch(stream(constant([0.5, 0.5], 60), 1000), 1000)
    assert (wide.upper - wide.lower)[0, 0] > 3 * (narrow.upper - narrow.lower)[0, 0]
    assert not wide.changed.any()


def test_fewer_chunks_and_fewer_rows_make_wider_thresholds():
    p = stream(constant([0.5, 0.5], 60), 500)
    sizes = np.where(np.arange(60) < 50, 500, 100)
    found = find_alerts(p, sizes, held(60), draw)
    few = find_alerts(p, sizes, np.arange(60) < 3, draw)
    widths = found.upper - found.lower
    assert widths[-1, 0] > 1.8 * widths[0, 0]
    assert (few.upper - few.lower)[0, 0] > 1.5 * widths[0, 0]


def test_a_class_that_the_reference_lacks_is_found():
    p = stream(constant([0.6, 0.4, 0.0], 40), 500)
    p[-1] = [0.5, 0.4, 0.1]
    assert watch(p, 500).changed[-1, 2]


def test_one_chunk_is_no_reference():
    with pytest.raises(ValueError, match="reference: expected at least 2 chunks with rows, got 1; widen it"):
        find_alerts([[0.5, 0.5]] * 3, [9, 9, 9], [True, False, False], draw)


@pytest.mark.hard
@pytest.mark.parametrize(("mix", "spread"), [(0.5, 0.0), (0.05, 0.0), (0.5, 0.05), (0.05, 0.015)])
def test_the_rate_of_false_alarms_is_held(mix, spread):
    n_streams, size = 300, 250
    rng, n, any_alert = np.random.default_rng(1), REFERENCE + HORIZON, 0
    for seed in range(n_streams):
        strength = mix * (1 - mix) / max(spread, 1e-9) ** 2 - 1
        share = rng.beta(mix * strength, (1 - mix) * strength, n) if spread else np.full(n, mix)
        found = watch(stream(np.c_[1 - share, share], size, seed), size)
        any_alert += (found.changed | found.drifted).any()
    assert any_alert / n_streams <= 0.05 + 2 * (0.05 * 0.95 / n_streams) ** 0.5


def posteriors():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=600)
    p = np.exp(rng.normal(size=(600, 3)) + 3 * np.eye(3)[y])
    return p / p.sum(1, keepdims=True), y


def test_held_out_rows_are_drawn_by_class():
    q = hq.PACC().fit_posteriors(*posteriors())
    mix = np.array([0.6, 0.3, 0.1])
    found = drawing_of(q)(mix, 400, 500, np.random.default_rng(0))
    np.testing.assert_allclose(found.mean(0), mix, atol=0.01)
    chance = np.sqrt(mix * (1 - mix) / 400)
    assert (found.std(0) > chance).all()
    assert (found.std(0) < 2 * chance).all()


def test_weights_of_held_out_rows_count():
    X, weights = np.array([[0.0], [0.0], [1.0]] * 20), np.array([1.0, 1e-9, 1.0] * 20)
    bags = hq.Bags(X, labels=np.array([0, 1, 1] * 20), classes=["a", "b"], weights=weights, weight_kind="survey")
    q = hq.CC(random_state=0).fit(bags)
    found = drawing_of(q)(np.array([0.5, 0.5]), 100, 50, np.random.default_rng(0))
    np.testing.assert_allclose(found.mean(0), [0.5, 0.5], atol=0.03)


def test_a_calibrated_network_draws_by_its_errors():
    q = hq.MLPE().fit([[0.0], [1.0]], ["a", "b"])
    with pytest.raises(ValueError, match="model: MLPE is not calibrated, so the random error of its"):
        drawing_of(q)
    rng = np.random.default_rng(0)
    bags = hq.Bags.from_arrays(list(rng.normal(size=(40, 30, 1))), rng.dirichlet([1, 1], 40), classes=["a", "b"])
    found = drawing_of(q.calibrate(bags))(np.array([0.5, 0.5]), 100, 400, rng)
    assert found.std(0)[0] > 0.1, "its errors are large"
    np.testing.assert_allclose(found.sum(1), 1)


def lasting_shift(shift, seed, before=26, during=60, after=26):
    """Shares of chunks of 400 rows: a reference of 0.5, a lasting shift, and the reference again."""
    rng = np.random.default_rng(seed)
    share = 0.5 + shift * np.repeat([0.0, 1.0, 0.0], [before, during, after])
    p = rng.binomial(400, share) / 400
    found = find_alerts(np.stack([p, 1 - p], 1), np.full(len(p), 400), np.arange(len(p)) < before, drawn_rows)
    return found, slice(before, before + during), slice(before + during, None)


def drawn_rows(mix, size, n_draws, rng):
    return rng.multinomial(size, mix, n_draws) / size


def n_ends(alerts):
    return int((np.diff(alerts.astype(int)) == -1).sum())


@pytest.mark.parametrize("shift", [0.05, -0.05, 0.07, 0.1])
def test_a_lasting_shift_does_not_flicker_between_moved_and_unchanged(shift):
    flickers, singles = 0, 0
    for seed in range(8):
        found, during, after = lasting_shift(shift, seed)
        assert found.alert[during].any()
        flickers += n_ends(found.alert[during, 0])
        singles += n_ends((found.changed | found.drifted)[during, 0])
        assert not found.alert[after][10:].any(), "an alert ends after the shift"
    assert flickers <= 3, "at most 3 interruptions in 8 streams of 60 chunks"
    assert abs(shift) > 0.08 or singles >= 20, "the estimates alone cross their limits again and again"


def test_an_alert_ends_soon_after_a_large_shift():
    for seed in range(5):
        found, during, after = lasting_shift(0.2, seed)
        assert found.alert[during].all()
        assert not found.alert[after][1:].any()
