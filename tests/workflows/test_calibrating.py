"""Calibration on random halves of labelled rows."""

from __future__ import annotations

import numpy as np
import pytest

import histnetq as hq
from histnetq.registry import CLASSIFIERS
from histnetq.uncertainty import half_splits
from histnetq.uncertainty.half_splits import SIZES, calibrate_by_halves, can_halve, check_sizes, draw_sizes
from histnetq.workflows.calibrating import calibrate_on_rows, trust_from_rows
from histnetq.workflows.fitting import Workbench


def normal_rows(n_rows, seed, n_classes=3, distance=1.5):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n_rows)
    X = rng.normal(size=(n_rows, n_classes))
    X[np.arange(n_rows), y] += distance
    return X, y


def labelled_bags(n_rows=600, seed=0, **how):
    return hq.Bags.from_labels(*normal_rows(n_rows, seed, **how))


def new_bags(size, n_bags, seed):
    return hq.APP(size).draw(labelled_bags(60_000, seed), n_bags, random_state=seed)


@pytest.fixture(scope="module")
def models():
    """Default models of 8 samples of 600 rows, on naive Bayes."""
    found = []
    for seed in range(8):
        bench = Workbench(labelled_bags(seed=seed), classifier="bayes", random_state=seed)
        found.append(bench.fit("auto")[0])
    return found


@pytest.mark.parametrize("size", [20, 100, 1000, 10_000])
def test_intervals_hold_at_every_size(models, size):
    inside, width = [], []
    for seed, model in enumerate(models):
        bags = new_bags(size, 40, 100 + seed)
        found = model.predict_interval(bags)
        inside.append(found.contains(bags.prevalences).mean())
        width.append((found.upper - found.lower).mean())
    # The model is one draw per sample of rows, so that the coverage of a few samples varies.
    assert 0.8 < np.mean(inside) <= 0.99
    assert np.mean(width) < {20: 0.5, 100: 0.25, 1000: 0.16, 10_000: 0.15}[size]


def test_intervals_of_scores_are_narrower_than_those_of_a_classifier_that_is_fitted_again(models):
    model, bags = models[0], new_bags(10_000, 10, 1)
    labelled = hq.Bags.from_labels(model.training_posteriors_.astype(float), model.training_labels_)
    scored = calibrate_on_rows(hq.Pretrained().fit_posteriors(labelled), labelled, SIZES, 5, 0)
    again, fixed = (m.calibration_.coefficients[:, :2].sum() for m in (model, scored))
    assert fixed == pytest.approx(again / 2, rel=0.3)
    assert model.predict_interval(bags).contains(bags.prevalences).mean() > 0.7


def test_intervals_of_large_bags_are_narrower(models):
    X = normal_rows(20, 7)[0]
    widths = [np.ptp([f.lower, f.upper], axis=0).mean() for f in
              (models[0].predict_interval(np.tile(X, (copies, 1))) for copies in (1, 5, 50, 500))]  # fmt: skip
    assert widths[0] > 1.5 * widths[1] > 1.5 * widths[2]
    assert widths[2] >= widths[3] > 0


@pytest.mark.filterwarnings("ignore:y. 75%")
@pytest.mark.parametrize("method", ["emq", "edx"])
def test_copies_of_rows_do_not_narrow_intervals(method):
    """Both halves of oversampled rows would otherwise have the same rows."""
    X, y = normal_rows(200, 0)
    width = []
    for times in (1, 4):
        rows = hq.Bags.from_labels(np.repeat(X, times, axis=0), np.repeat(y, times))
        classifier = "bayes" if method == "emq" else None
        model = Workbench(rows, classifier=classifier, random_state=0).fit(method)[0]
        found = model.predict_interval(new_bags(1000, 20, 100))
        width.append((found.upper - found.lower).mean())
    assert 0.8 < width[1] / width[0] < 1.5


def test_copies_stay_in_one_half():
    rows = hq.Bags.from_labels(np.zeros((60, 1)), np.arange(60) % 2)
    copies = np.arange(60) // 6 * 2 + np.arange(60) % 2  # three copies of each of 20 rows

    def learn(half):
        count = np.bincount(copies[half.index], minlength=20)
        assert set(count.tolist()) == {0, 3}
        return lambda bags: bags.prevalences + (count[copies[bags.index]] > 0).any()

    calibrate_by_halves(learn, rows, (10,), 5, 0, copies)


def test_a_fit_to_rows_uses_all_of_them(models):
    model = models[0]
    assert (len(model.training_labels_), model.provenance_["rows"]) == (600, 600)
    same = hq.Pretrained("bayes", random_state=0).fit(labelled_bags())
    bags = new_bags(50, 10, 1)
    np.testing.assert_array_equal(model.predict(bags), same.predict(bags))
    assert model.provenance_["calibration_bags"] == 560
    assert model.provenance_["calibrated"] == (
        "by 560 bags of 20 to 10,000 rows drawn from random halves of 600 rows, uniformly over all mixes: intervals "
        "hold for such bags"
    )


def test_ordinary_sizes_are_not_small(models):
    for size in (20, 50, 1000):
        found = models[0].trust(new_bags(size, 50, size))
        assert not found["small"].any()
        assert (found["trust"] == "ok").mean() > 0.8
    assert models[0].trust(new_bags(10, 5, 0))["small"].all()
    far = new_bags(50, 5, 0)
    assert (models[0].trust(far.replaced(rows=far.rows + 3))["trust"] != "ok").all()


def test_named_sizes_calibrate():
    model, _ = Workbench(labelled_bags(), classifier="bayes", bag_size=[300, 30]).fit("emq")
    assert "520 bags of 30 to 300 rows" in model.provenance_["calibrated"]
    assert model.trust(new_bags(29, 1, 0))["small"].all()
    model, _ = Workbench(labelled_bags(), classifier="bayes", bag_size=1000).fit("emq")
    assert "500 bags of 1,000 rows" in model.provenance_["calibrated"]


def test_a_method_without_posteriors_is_refitted_to_halves():
    learned = []

    class Counting(hq.HDx):
        def fit(self, X, y=None):
            learned.append(X.index)
            return super().fit(X, y)

    bags = labelled_bags(200)
    model = calibrate_on_rows(Counting().fit(bags), bags, (20, 100), 5, 0)
    assert [len(index) for index in learned[:1]] == [200]
    assert len(learned) == 6
    assert all(95 <= len(index) <= 105 for index in learned[1:])
    assert len(model.calibration_.joint_scores) == 500
    whole, _ = Workbench(bags, bag_size=50).fit("hdx")
    assert whole.provenance_["rows"] == 200
    assert "random halves of 200 rows" in whole.provenance_["calibrated"]


def test_a_slow_method_holds_rows_out(monkeypatch):
    monkeypatch.setattr("histnetq.workflows.fitting.affordable_folds", lambda seconds: 0)
    model, _ = Workbench(labelled_bags(400)).fit("hdx")
    assert model.provenance_["rows"] == 300
    assert "504 bags of 20 to 10,000 rows drawn from 100 held-out rows" in model.provenance_["calibrated"]
    assert not model.trust(new_bags(20, 5, 0))["small"].any()
    quick, _ = Workbench(labelled_bags(400), classifier="bayes").fit("pacc")
    assert quick.provenance_["rows"] == 400, "held-out posteriors cost no fits"


def test_halves_share_no_row_and_have_all_classes():
    bags = labelled_bags(101)
    rare = np.array(bags.labels)
    rare[:], rare[:2], rare[2:50] = 0, 2, 1
    bags, learned, estimated = bags.replaced(labels=rare), [], []

    def learn(half):
        learned.append(half.index)

        def estimate(others):
            estimated.append(others.index)
            return others.prevalences

        return estimate

    calibrate_by_halves(learn, bags, (20,), 6)
    for mine, theirs in zip(learned, estimated, strict=True):
        assert not np.isin(theirs, mine).any()
        assert set(rare[mine]) == set(rare[theirs]) == {0, 1, 2}
    assert len({tuple(index) for index in learned}) == 6


def test_weights_of_rows_count():
    X, y = normal_rows(400, 0)
    X[:200] += 5  # rows of weight nearly 0
    weights = np.repeat([1e-9, 1.0], 200)
    scores = []
    for rows in (
        hq.Bags.from_labels(X, y, weights=weights, weight_kind="survey"),
        hq.Bags.from_labels(X[200:], y[200:]),
    ):
        model = Workbench(rows, classifier="bayes").fit("emq")[0]
        scores.append(np.sqrt(model.calibration_.coefficients).sum())
    assert scores[0] == pytest.approx(scores[1], rel=0.5)


def test_few_rows_cannot_be_halved():
    assert can_halve(labelled_bags(40))
    assert not can_halve(labelled_bags(39))
    bags = labelled_bags(60)
    single = np.array(bags.labels)
    single[:], single[0] = 0, 1
    assert not can_halve(bags.replaced(labels=single))
    unlabelled = np.array(bags.labels)
    unlabelled[:30] = -1
    assert not can_halve(bags.replaced(labels=unlabelled))


def test_large_bags_are_drawn_smaller():
    drawn = draw_sizes(labelled_bags(50), [30, 10**9], 4, np.random.default_rng(0))
    assert drawn.sizes.tolist() == [30, 30, 10_000, 10_000]
    assert trust_from_rows(labelled_bags(400), SIZES, 0).smallest.tolist() == [20]


def test_many_posteriors_are_sampled(monkeypatch):
    bags = labelled_bags(2000)
    q = hq.EMQ("bayes", random_state=0).fit(bags)
    all_rows = calibrate_on_rows(q, bags, (10_000,), 0, 0).calibration_
    monkeypatch.setattr(half_splits, "_MOST_ROWS", 500)
    sampled = calibrate_on_rows(q, bags, (10_000,), 0, 0).calibration_
    p = np.full((1, 3), 1 / 3)
    widths = [np.ptp([f.lower, f.upper]) for f in (c.intervals(p, [10_000], 0.9) for c in (all_rows, sampled))]
    assert widths[0] == pytest.approx(widths[1], rel=0.35), "500 of 2,000 rows have twice the error"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (0, "bag_size: expected a whole number of at least 1, got 0."),
        (2.5, "bag_size: expected a whole number of at least 1, got 2.5."),
        ([], "bag_size: expected 1 to 20 sizes, got 0; name a few typical ones."),
        (10**10, "bag_size: expected a whole number of at most 1,000,000,000, got 10000000000; lower it."),
    ],
)
def test_wrong_sizes(given, words):
    with pytest.raises(ValueError) as error:
        check_sizes(given)
    assert str(error.value) == words


def test_sizes_of_bags_are_known():
    bags = hq.Bags.from_labels(*normal_rows(100, 0), groups=np.arange(100) // 5)
    with pytest.raises(ValueError) as error:
        Workbench(bags, bag_size=50).fit("emq")
    assert str(error.value) == (
        "bag_size: expected none for bags, whose own sizes count, got 50; leave it out, or leave out the bag column."
    )


def test_calibrated_models_are_stored(models, tmp_path):
    models[0].save(tmp_path / "model")
    loaded, bags = hq.load(tmp_path / "model"), new_bags(100, 5, 0)
    np.testing.assert_array_equal(loaded.predict_interval(bags).upper, models[0].predict_interval(bags).upper)
    assert CLASSIFIERS["bayes"].place.endswith(type(loaded.classifier_).__name__)


def test_few_labelled_bags_have_trust_without_calibration(tmp_path):
    rows = labelled_bags(300)
    bags = hq.Bags.from_labels(rows.rows, rows.classes[rows.labels], groups=np.arange(300) // 30)
    model, _ = Workbench(bags, classifier="bayes").fit("emq")
    assert model.calibration_ is None
    model.save(tmp_path / "model")
    other = hq.Bags(rows.rows[:60] + 50)
    assert hq.load(tmp_path / "model").trust(other)["trust"].tolist()[0].startswith("unusual")
    assert (model.trust(new_bags(60, 20, 2))["trust"] == "ok").mean() > 0.8
