"""Quantifiers that are made of others: ensembles, and corrections learned from bags."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import histnetq as hq
from histnetq.persistence.saving import to_config
from histnetq.quantifiers.classical import cross_fitting
from histnetq.quantifiers.composed import members as composed
from histnetq.quantifiers.composed.corrected import corrected, learn_correction
from tests.conftest import FOLDS, SMALL, exactly, known_bags, labelled
from tests.persistence.test_tampered import forge, stored


def members() -> tuple:
    return hq.PACC(**FOLDS), hq.EMQ(**FOLDS), hq.EDx()


@pytest.mark.parametrize("how", ["mean", "median"])
def test_an_ensemble_combines_its_members(how):
    X, y = labelled()
    bags = known_bags()
    found = np.stack([member.fit(X, y).predict(bags) for member in members()])
    expected = getattr(np, how)(found, axis=0)
    ours = hq.Ensemble(members(), how=how).fit(X, y).predict(bags)
    np.testing.assert_allclose(ours, expected / expected.sum(1, keepdims=True), atol=1e-12)


def test_members_that_find_another_class_each_are_averaged():
    q = hq.Ensemble(members(), how="median").fit(*labelled())
    np.testing.assert_allclose(q._combine(np.eye(3)[:, None, :]), [[1 / 3, 1 / 3, 1 / 3]])


def test_members_with_one_classifier_and_seed_share_its_fits(monkeypatch):
    fits = []
    fit = cross_fitting._fit
    monkeypatch.setattr(cross_fitting, "_fit", lambda *args: fits.append(1) or fit(*args))
    hq.Ensemble((hq.PACC(**FOLDS), hq.CC(**FOLDS), hq.EMQ(**FOLDS))).fit(*labelled())
    assert len(fits) == 4, "three folds, and all rows"
    hq.Ensemble((hq.CC(cv=3, random_state=0), hq.CC(cv=3, random_state=1))).fit(*labelled())
    assert len(fits) == 12


def test_an_ensemble_of_seeds_learns_from_bags_and_is_stored(tmp_path):
    bags = known_bags(40)
    q = hq.Ensemble([hq.DeepSets("mean", **{**SMALL, "random_state": seed}) for seed in (0, 1)]).fit(bags)
    one, other = (member.predict(bags) for member in q.members_)
    assert not np.array_equal(one, other)
    np.testing.assert_allclose(q.predict(bags), (one + other) / 2)
    np.testing.assert_allclose(q.predict(q.sketch(bags)), q.predict(bags), atol=1e-6)
    q.calibrate(known_bags(30, seed=1)).save(tmp_path / "model")
    back = hq.load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict(bags), q.predict(bags))
    np.testing.assert_allclose(back.predict_interval(bags).upper, q.predict_interval(bags).upper)


def test_an_ensemble_within_a_correction_is_stored(tmp_path):
    q = hq.Corrected(hq.Ensemble(members()), n_bags=40, random_state=0).fit(*labelled(240))
    q.save(tmp_path / "model")
    back = hq.load(tmp_path / "model")
    assert repr(back) == repr(q)
    np.testing.assert_array_equal(back.predict(known_bags()), q.predict(known_bags()))


def test_the_intervals_of_an_ensemble_hold_the_truth():
    X, y = labelled(2000, seed=1)
    rest = hq.Bags.from_labels(*labelled(2000, seed=2))
    held, test = (hq.APP(50).draw(rest, 200, random_state=seed) for seed in (0, 1))
    q = hq.Ensemble(random_state=0).fit(X, y).calibrate(held)
    assert 0.85 < q.predict_interval(test, 0.9).contains(test.prevalences).mean() < 0.96


@pytest.mark.parametrize("given", [(), ["EMQ"], 3])
def test_wrong_members_are_refused(given):
    with pytest.raises(
        TypeError, match=r"^members: expected quantifiers, got .*; give such as \[EMQ\(\), PACC\(\)\]\.$"
    ):
        hq.Ensemble(given).fit(*labelled())
    with pytest.raises(TypeError, match=r"^quantifier: expected a quantifier, got 'EMQ'; give one such as PACC\(\)\.$"):
        hq.Corrected("EMQ").fit(*labelled())


def test_what_cannot_be_stored_within_another_is_refused_before_anything_is_written(tmp_path):
    class Own(LogisticRegression):
        pass

    q = hq.Ensemble((hq.CC(Own(), cv=2),)).fit(*labelled())
    message = "members/0: a CC with its own classifier cannot be stored within another quantifier; save it by itself."
    with pytest.raises(TypeError, match=exactly(message)):
        q.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def tampered(**changes):
    return lambda config: config["learned"]["members"][0].update(changes)


@pytest.mark.parametrize(
    "change",
    [
        tampered(estimator="Popen"),
        tampered(estimator="EMNetQ"),
        tampered(classes=["a", "b", "x"]),
        tampered(input_shape=[5]),
        tampered(learned=None),
        tampered(params={"cv": 3, "unknown": 1}),
        lambda config: config["learned"].update(members=[]),
        lambda config: config["learned"].update(members=3),
        lambda config: config["learned"].pop("members"),
        lambda config: config["params"]["members"][0].update(quantifier="os.system"),
    ],
)
def test_tampered_members_are_refused(tmp_path, change):
    hq.Ensemble(members()).fit(*labelled()).save(tmp_path / "model")
    config, _ = stored(tmp_path / "model")
    changed = json.loads(json.dumps(config))
    change(changed)
    forge(tmp_path / "model", changed)
    with pytest.raises(ValueError, match=r"^path: .*(again|upgrade)"):
        hq.load(tmp_path / "model")


def test_a_correction_undoes_what_is_always_wrong():
    X, y = labelled(4000, seed=1)
    test = hq.APP(200).draw(hq.Bags.from_labels(*labelled(4000, seed=2)), 100, random_state=0)
    q = hq.Corrected(hq.PCC(random_state=0), random_state=0).fit(X, y)
    errors = [hq.metrics.ae(test.prevalences, p).mean() for p in (q.predict(test), q.members_[0].predict(test))]
    assert errors[0] < 0.3 * errors[1]


def test_nothing_is_corrected_without_need():
    rng = np.random.default_rng(0)
    p_true = rng.dirichlet(np.ones(3), 100)
    p_pred = hq.simplex.project(p_true + rng.normal(0, 0.02, p_true.shape))
    for pred, true in ((p_true, p_true), (rng.dirichlet(np.ones(3), 100), np.full((100, 3), 1 / 3))):
        slopes, shift = learn_correction(pred, true, 0)
        assert np.allclose(corrected(pred, slopes, shift), true, atol=0.05)
    slopes, shift = learn_correction(p_true, p_true, 0)
    assert not slopes.any()
    assert not shift.any()
    few = learn_correction(p_pred[:19], p_true[:19] ** 2, 0)
    assert not few[0].any(), "too few bags"


def test_a_correction_learns_from_bags_alone():
    bags = known_bags(80)
    q = hq.Corrected(hq.MLPE(), random_state=0).fit(bags)
    assert q.predict(bags).shape == (80, 3)
    np.testing.assert_allclose(q.train_prevalences_, bags.prevalences.mean(0))


def test_a_correction_learns_from_other_bags_where_they_are_given():
    X, y = labelled(600, seed=1)
    q = hq.Corrected(hq.PCC(**FOLDS), random_state=0).fit(X, y, bags=known_bags(60, seed=2))
    np.testing.assert_array_equal(q.members_[0].predict(X), hq.PCC(**FOLDS).fit(X, y).predict(X))
    assert q.slopes_.any()
    with pytest.raises(TypeError, match=exactly("bags: expected Bags, got list; make them with Bags.from_arrays.")):
        hq.Corrected(hq.PCC()).fit(X, y, bags=[X])


def test_each_member_is_described_once_when_it_is_stored(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(composed, "to_config", lambda *given: calls.append(1) or to_config(*given))
    q = hq.Ensemble([hq.CC(cv=2, random_state=0), hq.PACC(cv=2, random_state=0)]).fit(*labelled())
    q.save(tmp_path / "model")
    assert len(calls) == 2
