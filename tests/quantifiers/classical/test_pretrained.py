"""The pretrained quantifier: what it reads, what it answers, and how it fails. Its weights are read, never trained."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import histnetq as hq
from histnetq.metrics import ae, rae, se
from histnetq.quantifiers.classical.bag_prior import learn_prior
from histnetq.quantifiers.classical.pretrained_network import PartsDistribution, read_networks
from histnetq.quantifiers.classical.simplex_cells import CellEdges, LearnedCells
from tests.conftest import FOLDS, exactly, known_bags, labelled
from tests.persistence.test_tampered import forge, refusal, stored


def scores(labels: np.ndarray, n_classes: int, sharp: float, rng: np.random.Generator) -> np.ndarray:
    """Exact posteriors under equal proportions of classes that are apart by `sharp`."""
    X = sharp * np.eye(n_classes)[labels] + rng.normal(size=(len(labels), n_classes))
    p = np.exp(sharp * X)
    return p / p.sum(1, keepdims=True)


def task(n_classes: int, n_labels: int, sharp: float, sizes, seed: int = 0):
    """A fitted quantifier on scores, and bags of scores with uniform mixes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n_labels) % n_classes
    mixes = rng.dirichlet(np.ones(n_classes), len(sizes))
    codes = np.concatenate([rng.choice(n_classes, m, p=p) for m, p in zip(sizes, mixes, strict=True)])
    offsets = np.cumsum([0, *sizes])
    truth = np.stack([np.bincount(codes[a:b], minlength=n_classes) / (b - a) for a, b in pairwise(offsets)])
    q = hq.Pretrained().fit_posteriors(scores(labels, n_classes, sharp, rng), labels)
    return q, hq.Bags(scores(codes, n_classes, sharp, rng), offsets=offsets), truth


@pytest.mark.parametrize(("n_classes", "size"), [(2, 5), (2, 300), (5, 100), (60, 400)])
def test_estimates_are_near_the_truth(n_classes, size):
    q, bags, truth = task(n_classes, 20 * n_classes, 3.0, [size] * 30)
    error = np.abs(q.predict_posteriors(bags) - truth).mean()
    assert error < 0.5 * np.abs(1 / n_classes - truth).mean()


def test_many_labels_and_rows_give_nearly_exact_estimates():
    q, bags, truth = task(3, 30_000, 1.5, [100_000, 200_000])
    np.testing.assert_allclose(q.predict_posteriors(bags), truth, atol=0.01)


def test_a_classifier_by_chance_returns_about_the_prior():
    off, widths = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        q = hq.Pretrained().fit_posteriors(rng.dirichlet(np.full(2, 50.0), 400), rng.integers(2, size=400))
        found = q.predict_interval(hq.Bags(rng.dirichlet(np.full(2, 50.0), 200)), method="posterior")
        off.append(abs(found.estimates - 0.5).max())
        widths.append((found.upper - found.lower).min())
    assert np.mean(off) < 0.2, "a flat prior has the mean distance 0.25"
    assert min(widths) > 0.6


def test_estimates_depend_neither_on_names_nor_on_the_order_of_classes():
    _, bags, _ = task(4, 200, 1.5, [50] * 5)
    order = np.array([2, 0, 3, 1])
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 4
    P = scores(labels, 4, 1.5, rng)
    place = np.argsort(order)
    permuted = hq.Pretrained().fit_posteriors(P[:, order], place[labels])
    first = hq.Pretrained().fit_posteriors(P, labels)
    moved = hq.Bags(bags.rows[:, order], bags.index, bags.offsets)
    for loss in ("ae", "rae"):
        expected = first.set_params(loss=loss).predict_posteriors(bags)[:, order]
        np.testing.assert_allclose(permuted.set_params(loss=loss).predict_posteriors(moved), expected, atol=1e-9)


def test_any_loss_at_prediction_time():
    q, bags, truth = task(3, 60, 1.0, [30] * 200)
    losses = {"ae": ae, "rae": lambda p, e: rae(p, e, np.full(len(p), 30.0)), "se": se}
    found = {name: q.predict_for(bags, name) for name in losses}
    for name, loss in losses.items():
        own, others = loss(truth, found[name]).mean(), [loss(truth, p).mean() for p in found.values()]
        assert own <= 1.03 * min(others), name
    worst = q.predict_for(bags, lambda p_true, p_pred: np.abs(p_true - p_pred).max(-1))
    np.testing.assert_allclose(worst.sum(1), 1)


def test_the_prior_moves_estimates_and_the_bags_can_tell_it():
    q, bags, _ = task(2, 40, 0.7, [20] * 100)
    rare = hq.Bags(
        bags.rows[np.random.default_rng(1).choice(20, (100, 20))].reshape(2000, 2), offsets=np.arange(0, 2001, 20)
    )
    flat = q.predict_posteriors(rare)
    near = q.set_params(prior=[1.0, 30.0]).predict_posteriors(rare)
    assert (near[:, 1] >= flat[:, 1]).mean() > 0.95
    alike = q.set_params(prior="bags").predict_posteriors(rare)
    assert alike.std(0).max() < flat.std(0).max(), "bags of one mix are estimated alike"
    np.testing.assert_allclose(
        q.predict_posteriors(rare[:1]), q.set_params(prior="uniform").predict_posteriors(rare[:1])
    )


def test_a_prior_is_learned_from_bags():
    def infer(alpha):
        values = np.log(np.tile([0.2, 0.8], (500, 1)) / np.tile([0.8, 0.2], (500, 1)))
        still = np.full((500, 2), 0.05)
        return [
            PartsDistribution(
                values, still, still, np.full((500, 1), 1e-3), np.full(500, 500.0), np.empty((0, 2, 2)), np.arange(2)
            )
        ]

    alpha = learn_prior(infer, 500, np.array([0.5, 0.5]))
    assert alpha[0] / alpha.sum() == pytest.approx(0.2, abs=0.01)
    assert alpha.sum() > 20
    near = learn_prior(infer, 500, np.array([0.205, 0.795]))
    assert near[0] / near.sum() == pytest.approx(0.205, abs=1e-3), "the training mix is known better"


def test_bags_of_any_mix_leave_the_prior_flat():
    q, bags, _ = task(3, 300, 1.5, [100] * 60)
    flat = q.predict_posteriors(bags)
    np.testing.assert_allclose(q.set_params(prior="bags").predict_posteriors(bags), flat, atol=0.02)


def test_intervals_hold_the_truth_and_sketches_have_the_same_ones():
    q, bags, truth = task(3, 300, 1.2, [100] * 300)
    found = q.predict_interval(bags, 0.9, method="posterior")
    assert 0.84 < found.contains(truth).mean() < 0.97
    assert found.region.contains(truth).mean() > 0.8
    again = q.predict_interval(q.sketch(bags), 0.9, method="posterior")
    np.testing.assert_array_equal(again.lower, found.lower)
    np.testing.assert_array_equal(again.region.radius, found.region.radius)


def test_streams_and_sketches_give_the_same_bits():
    q = hq.Pretrained(**FOLDS).fit(*labelled(240))
    bags = known_bags(7, seed=3)
    np.testing.assert_array_equal(q.predict(q.sketch(bags)), q.predict(bags))
    chunks = [(np.repeat(np.arange(7), bags.sizes.astype(int))[a::3], bags.gather()[a::3]) for a in range(3)]
    ids, p = q.predict_stream(chunks)
    np.testing.assert_array_equal(p[np.argsort(ids)], q.predict(bags))
    assert q.sketch_kind == "exact"


def test_survey_weights_undo_a_sampling_design():
    rng = np.random.default_rng(0)
    labels = rng.choice(2, 4000, p=[0.3, 0.7])
    P = scores(labels, 2, 1.2, rng)
    w = np.where(labels == 1, 0.25, 1.0)  # class 1 was sampled four times as often
    bag = hq.Bags(P, weights=w, weight_kind="survey")
    truth = w @ np.eye(2)[labels] / w.sum()
    for given in None, rng.choice([0.5, 2.0], 3000):  # weights of the labelled rows
        known = np.arange(3000) % 2
        rows = hq.Bags(scores(known, 2, 1.2, rng), labels=known, classes=[0, 1], weights=given, weight_kind="survey")
        q = hq.Pretrained().fit_posteriors(rows)
        found = q.predict_interval(bag, method="posterior")
        np.testing.assert_allclose(found.estimates[0], truth, atol=0.06)
        assert found.contains(truth[None]).all()
    unweighted = q.predict_interval(hq.Bags(P), method="posterior")
    assert (found.upper - found.lower).max() > 0.9 * (unweighted.upper - unweighted.lower).max()


def test_classes_without_overlap_are_counted():
    labels = np.arange(300) % 3
    q = hq.Pretrained().fit_posteriors(np.eye(3)[labels], labels)
    found = q.predict_interval(hq.Bags(np.eye(3)[[0] * 70 + [1] * 30]), method="posterior")
    np.testing.assert_allclose(found.estimates, [[0.7, 0.3, 0.0]], atol=0.01)
    assert (found.upper - found.lower).max() < 0.05


@pytest.mark.parametrize("n_labels", [6, 9])
def test_three_rows_of_a_class_are_enough(n_labels):
    labels = np.arange(n_labels) % (n_labels // 3)
    P = scores(labels, n_labels // 3, 3.0, np.random.default_rng(0))
    p = hq.Pretrained().fit_posteriors(P, labels).predict_posteriors(P)
    assert p.sum() == pytest.approx(1)


def test_ties_and_equal_classes_are_harmless():
    labels = np.arange(200) % 4
    p = np.full((200, 4), 0.25)
    p[:, :2] = np.where(labels < 2, 0.4, 0.1)[:, None]
    p /= p.sum(1, keepdims=True)
    found = hq.Pretrained().fit_posteriors(p, labels).predict_posteriors(p[:60])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, 0.25, atol=0.15)


def test_a_class_that_may_be_absent_has_an_interval_from_zero():
    q, _, _ = task(3, 300, 1.5, [10])
    rng = np.random.default_rng(0)
    bags = hq.Bags(scores(rng.integers(2, size=40 * 100), 3, 1.5, rng), offsets=np.arange(0, 4001, 100))
    found = q.predict_interval(bags, method="posterior")
    assert (found.lower[:, 2] == 0).mean() > 0.7
    assert (found.lower[:, :2] > 0).all()


def test_the_shortest_interval_of_a_symmetric_posterior_excludes_the_same_on_both_sides():
    one = np.zeros((1, 2))
    found = PartsDistribution(
        one, one + 0.3, one + 0.3, one[:, :1] + 1e-3, one[0, :1] + 500, np.empty((0, 2, 2)), np.arange(2)
    )
    np.testing.assert_allclose(found.shortest(0.9), found.quantiles(np.array([0.05, 0.95])))


def test_bags_of_five_rows_and_of_a_million_rows_together():
    q, bags, truth = task(3, 300, 2.0, [5, 1_000_000, 5])
    found = q.predict_interval(bags, method="posterior")
    assert abs(found.estimates - truth)[1].max() < 0.1
    assert (found.upper - found.lower)[1].max() < (found.upper - found.lower)[[0, 2]].max(1).min()


def test_an_absent_class_is_estimated_near_zero():
    rng = np.random.default_rng(0)
    q, _, _ = task(4, 400, 2.0, [10])
    p = q.predict_posteriors(scores(rng.integers(3, size=2000), 4, 2.0, rng))
    assert p[3] < 0.02


def test_drift_is_survived_and_trust_tells_it():
    rng = np.random.default_rng(0)
    X, y = labelled(300)
    q = hq.Pretrained(**FOLDS).fit(X, y)
    found = q.predict_interval(hq.Bags(X + 20 * rng.normal(size=X.shape[1:])), method="posterior")
    assert np.isfinite(found.estimates).all()
    assert (found.lower <= found.estimates).all()
    doubts = q.calibrate(known_bags(20)).trust(hq.Bags(X + 20.0))["trust"]
    assert doubts[0].startswith("unusual")


def test_copies_of_a_class_share_its_part():
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 3
    p = scores(labels, 3, 2.0, rng)
    doubled = np.concatenate([p[:, :2], p[:, 2:] / 2, p[:, 2:] / 2], axis=1)
    halved = np.where(labels == 2, 2 + rng.integers(2, size=600), labels)
    rows = np.where(rng.random(1000) < 0.5, 0, 2)
    q = hq.Pretrained().fit_posteriors(doubled, halved)
    found = q.predict_posteriors(scores(rows, 3, 2.0, rng)[:, [0, 1, 2, 2]] * [1, 1, 0.5, 0.5])
    assert found[2:].sum() == pytest.approx((rows == 2).mean(), abs=0.06)


def test_a_wrong_prior_does_little_harm_to_large_bags():
    q, bags, truth = task(3, 600, 2.0, [3000] * 10)
    flat = np.abs(q.predict_posteriors(bags) - truth).mean()
    wrong = np.abs(q.set_params(prior=[20.0, 1.0, 1.0]).predict_posteriors(bags) - truth).mean()
    assert wrong < 2 * flat + 0.01


@pytest.mark.parametrize("prior", ["flat", 0, -1, [1.0, 0.0], 1e9, True, None])
def test_wrong_priors_are_refused(prior):
    expected = r"^prior: expected 'uniform', 'training', 'bags', or one or several numbers from 0.02 to 10,000, got "
    with pytest.raises(ValueError, match=expected):
        hq.Pretrained(prior=prior).fit_posteriors([[0.9, 0.1], [0.1, 0.9]] * 5, [0, 1] * 5)


def test_a_prior_of_other_classes_is_refused():
    message = "prior: expected one number, or one for each of the 2 classes, got 3 numbers; 1 is a flat prior."
    q = hq.Pretrained(prior=[1, 2, 3]).fit_posteriors([[0.9, 0.1], [0.1, 0.9]] * 5, [0, 1] * 5)
    with pytest.raises(ValueError, match=exactly(message)):
        q.predict_posteriors([[0.9, 0.1]])


def test_cells_find_every_row_and_log_odds_rise_with_them():
    rng = np.random.default_rng(0)
    labels = np.arange(500) % 2
    edges = CellEdges.of(scores(labels, 2, 1.0, rng), labels, np.ones(500))
    p = np.linspace(0, 1, 999)
    cells = edges.of_rows(np.stack([1 - p, p], axis=1))
    assert (np.diff(cells) * (1 if edges.order[1] == 1 else -1) >= 0).all()
    assert cells.min() == 0
    assert cells.max() == edges.n_cells - 1
    learned = LearnedCells.of(scores(labels, 2, 1.0, rng), labels, None)
    assert (learned.emissions > 0).all()
    np.testing.assert_allclose(learned.points.sum(1), 1, atol=1e-6)


def test_the_shipped_weights_are_small_and_complete():
    networks = read_networks()
    assert sum(values.size for network in networks for values in network.values()) * 4 < 3_000_000
    layers = {"first", "second", "mixed", "third", "again", "fourth", "out"}
    assert all({name.partition(".")[0] for name in network} == layers for network in networks)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cells/order", lambda a: np.zeros_like(a)),
        ("cells/first", lambda a: a[::-1].copy()),
        ("cells/first", lambda a: a[:-1]),
        ("cells/emissions", lambda a: np.zeros_like(a)),
        ("cells/emissions", lambda a: a[:, :-1]),
        ("cells/points", lambda a: a * 0.5),
        ("cells/counts", lambda a: -a),
        ("cells/recalls", lambda a: a * np.nan),
    ],
)
def test_altered_cells_are_refused(tmp_path, name, change):
    hq.Pretrained(**FOLDS).fit(*labelled()).save(tmp_path / "model")
    config, arrays = stored(tmp_path / "model")
    forge(tmp_path / "model", config, arrays | {name: change(arrays[name])})
    assert refusal(tmp_path / "model").endswith(("again.", "again"))
