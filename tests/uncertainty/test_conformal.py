"""Conformal intervals: valid for exchangeable bags whatever the quantifier, and fitted to the sizes of bags."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import histnetq as hq
from histnetq.bags.shared_rows import part_copied, part_shared
from histnetq.training.options import TrainingInterrupted
from histnetq.uncertainty.conformal import Calibration
from tests.conftest import exactly


def pretended(n_bags, seed, n_classes=3, smallest=20, largest=500):
    """Prevalences, estimates that err by 1 / √n and more for common classes, and sizes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(smallest, largest + 1, size=n_bags)
    p_true = rng.dirichlet(np.ones(n_classes), n_bags)
    p_pred = np.stack([rng.dirichlet(n * p + 0.5) for n, p in zip(sizes, p_true, strict=True)])
    return p_true, p_pred, sizes


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.95])
def test_coverage_of_exchangeable_bags(coverage):
    held, joint = [], []
    for seed in range(20):
        p_true, p_pred, sizes = pretended(1000, seed)
        calibration = Calibration.of(p_true[:300], p_pred[:300], sizes[:300])
        found = calibration.intervals(p_pred[300:], sizes[300:], coverage)
        held.append(found.contains(p_true[300:]).mean())
        joint.append(found.region.contains(p_true[300:]).mean())
    # 200 scores each: a split's coverage has a standard deviation of at most √(¼ / 200) = 0.035, the mean of 20 0.008.
    assert abs(np.mean(held) - coverage) < 0.025
    assert abs(np.mean(joint) - coverage) < 0.025


def test_small_bags_get_wider_intervals_and_both_are_covered():
    p_true, p_pred, sizes = pretended(6000, seed=1)
    calibration = Calibration.of(p_true[:3000], p_pred[:3000], sizes[:3000])
    found = calibration.intervals(p_pred[3000:], sizes[3000:], 0.9)
    inside, width = found.contains(p_true[3000:]), found.upper - found.lower
    small, large = sizes[3000:] < 100, sizes[3000:] > 300
    assert width[small].mean() > 1.5 * width[large].mean()
    assert found.region.radius[small].mean() > 1.5 * found.region.radius[large].mean()
    assert abs(inside[small].mean() - 0.9) < 0.04
    assert abs(inside[large].mean() - 0.9) < 0.04


def test_without_scale_the_interval_is_a_quantile_of_the_errors():
    # One size, estimates of ½: every scale is nearly the same and cancels.
    p_true = 0.5 + np.stack([np.linspace(-0.3, 0.3, 601), -np.linspace(-0.3, 0.3, 601)], axis=1)
    p_pred, sizes = np.full((601, 2), 0.5), np.full(601, 50)
    found = Calibration.of(p_true, p_pred, sizes, random_state=3).intervals(p_pred[:1], [50], 0.9)
    np.testing.assert_allclose(found.upper[0], 0.5 + 0.27, atol=0.003)
    np.testing.assert_allclose(found.lower[0], 0.5 - 0.27, atol=0.003)


def rare(n_bags, seed, n_classes):
    """Prevalences of which most are 0, estimates of bags of 100 rows that are exactly 0 where little is there."""
    rng = np.random.default_rng(seed)
    p_true = rng.dirichlet(np.full(n_classes, 0.2), n_bags)
    counts = rng.multinomial(100, p_true)
    p_pred = np.maximum(counts / 100 + rng.normal(size=p_true.shape) * 0.02 * np.sqrt(p_true + 0.02) - 0.005, 0)
    return counts / 100, p_pred / p_pred.sum(1, keepdims=True), np.full(n_bags, 100)


@pytest.mark.parametrize("n_classes", [3, 10, 26])
@pytest.mark.parametrize("n_bags", [20, 40, 80])
def test_few_bags_give_intervals_that_are_neither_empty_nor_everything(n_bags, n_classes):
    held, at_zero = [], []
    for seed in range(20):
        p_true, p_pred, sizes = rare(n_bags + 200, seed, n_classes)
        calibration = Calibration.of(p_true[:n_bags], p_pred[:n_bags], sizes[:n_bags])
        found = calibration.intervals(p_pred[n_bags:], sizes[n_bags:], 0.9)
        width, inside = found.upper - found.lower, found.contains(p_true[n_bags:])
        assert width.max() < 0.3
        assert (width > 0).all()
        held.append(inside.mean())
        at_zero.append(inside[p_pred[n_bags:] == 0].mean())
    assert abs(np.mean(held) - 0.9) < 0.025
    assert np.mean(at_zero) > 0.88


def test_all_calibration_bags_are_yardsticks_whatever_their_number():
    p_true, p_pred, sizes = pretended(38, 0)
    assert Calibration.of(p_true, p_pred, sizes).scores.shape == (38, 3)


@given(st.permutations(range(3)), st.integers(0, 5))
def test_relabelling_classes_relabels_the_intervals(order, seed):
    p_true, p_pred, sizes = pretended(60, seed)
    here = Calibration.of(p_true, p_pred, sizes).intervals(p_pred, sizes, 0.8)
    there = Calibration.of(p_true[:, order], p_pred[:, order], sizes).intervals(p_pred[:, order], sizes, 0.8)
    np.testing.assert_allclose(there.upper, here.upper[:, order], atol=1e-9)
    np.testing.assert_allclose(there.region.radius, here.region.radius, atol=1e-9)


def test_perfect_estimates_have_intervals_of_no_width():
    p, _, sizes = pretended(40, 0)
    found = Calibration.of(p, p, sizes).intervals(p, sizes, 0.9)
    np.testing.assert_allclose(found.upper - found.lower, 0, atol=1e-9)
    assert found.region.contains(p).all()


def test_too_few_bags():
    p_true, p_pred, sizes = pretended(19, 0)
    calibration = Calibration.of(p_true, p_pred, sizes)
    assert calibration.intervals(p_pred, sizes, 0.95).coverage == 0.95
    message = (
        "coverage: 0.96 needs at least 24 calibration bags, got 19; "
        "calibrate with more bags, or ask for at most 0.95."
    )  # fmt: skip
    with pytest.raises(ValueError, match=exactly(message)):
        calibration.intervals(p_pred, sizes, 0.96)
    with pytest.raises(ValueError, match="bags: expected at least 6 calibration bags, got 5; draw more of them"):
        Calibration.of(p_true[:5], p_pred[:5], sizes[:5])


def test_a_coverage_next_to_one_is_refused_at_once():
    p_true, p_pred, sizes = pretended(40, 0)
    with pytest.raises(ValueError, match="calibration bags, got 40; calibrate with more bags"):
        Calibration.of(p_true, p_pred, sizes).intervals(p_pred, sizes, 0.99999999999)


@pytest.mark.parametrize("coverage", [0, 1, 90, "0.9", True, float("nan")])
def test_wrong_coverage(coverage):
    p_true, p_pred, sizes = pretended(40, 0)
    with pytest.raises(ValueError, match=r"coverage: expected a number between 0 and 1, such as 0\.9, got"):
        Calibration.of(p_true, p_pred, sizes).intervals(p_pred, sizes, coverage)


def test_a_table_of_intervals():
    p_true, p_pred, sizes = pretended(40, 0)
    found = Calibration.of(p_true, p_pred, sizes).intervals(p_pred[:2], sizes[:2], 0.8)
    frame = found.to_frame(["a", "b", "c"], ids=["north", "south"])
    assert list(frame) == ["bag", "class", "estimate", "lower", "upper", "n"]
    assert frame["bag"].tolist() == ["north"] * 3 + ["south"] * 3
    assert frame["class"].tolist() == ["a", "b", "c"] * 2
    np.testing.assert_array_equal(frame["n"], np.repeat(sizes[:2], 3))
    np.testing.assert_array_equal(frame["upper"], found.upper.ravel())


def test_calibration_needs_bags_with_known_proportions():
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    q = hq.PACC().fit(X, y)
    with pytest.raises(TypeError, match=r"bags: expected Bags, got ndarray"):
        q.calibrate(X)
    with pytest.raises(ValueError, match="bags: expected the proportions of each bag, got none"):
        q.calibrate(hq.Bags(X, offsets=np.arange(0, 61, 6)))


def two_normals(n_bags, seed, size=20):
    """Labelled bags of two overlapping classes that share no rows."""
    rng = np.random.default_rng(seed)
    y = (rng.random((n_bags, size)) < rng.random((n_bags, 1))).astype(int).ravel()
    X = rng.normal(size=(len(y), 2)) + 1.5 * y[:, None]
    return hq.Bags.from_labels(X, y, groups=np.repeat(np.arange(n_bags), size))


class Recorder(hq.CC):
    """A quantifier that knows which rows it and its copies have learned from, and refuses to estimate these."""

    def fit(self, X, y=None):
        self.seen_ = X.gather()
        self.fits.append(len(X))
        return super().fit(X, y)

    def _predict(self, bags):
        assert not np.isin(bags.gather(), self.seen_).any(), "a bag was estimated by a model that had learned from it"
        return super()._predict(bags)


def test_each_bag_is_estimated_without_it_and_the_model_learns_from_all():
    bags, q = two_normals(30, 0), Recorder(random_state=0)
    q.fits = []
    q.cross_calibrate(bags, folds=5)
    assert q.fits == [24] * 5 + [30]
    assert len(q.calibration_.joint_scores) == 30
    plain = hq.CC(random_state=0).fit(bags)
    np.testing.assert_array_equal(q.predict(two_normals(9, 1)), plain.predict(two_normals(9, 1)))
    again = hq.CC(random_state=0).cross_calibrate(bags, folds=5)
    np.testing.assert_array_equal(again.calibration_.scores, q.calibration_.scores)
    trusted = plain.calibrate(bags).trust(two_normals(9, 1))
    assert again.trust(two_normals(9, 1)).equals(trusted), "trust looks at bags, not at estimates"


@pytest.mark.hard
def test_coverage_from_few_bags_that_are_learned_from():
    apart, crossed = [], []
    for seed in range(20):
        known, new = two_normals(60, seed), two_normals(200, 1000 + seed)
        truth = new.label_prevalences()
        learned, held = known.split(0.75, seed)
        for coverages, q in (
            (apart, hq.PACC(cv=2, random_state=0).fit(learned).calibrate(held)),
            (crossed, hq.PACC(cv=2, random_state=0).cross_calibrate(known)),
        ):
            coverages.append(q.predict_interval(new).contains(truth).mean())
    assert abs(np.mean(crossed) - 0.9) < 0.02
    # 60 scores have a standard deviation of √(0.09 / 60) = 0.039, and 15 twice that.
    assert np.std(crossed) < 0.75 * np.std(apart)


def test_bags_that_share_rows_are_not_crossed():
    bags = two_normals(20, 0)
    message = (
        "bags: expected bags that share no rows, as each bag is estimated by a model fitted without it, got {} of "
        "the rows in several bags; calibrate with held-out bags."
    )
    drawn = hq.APP(20).draw(bags, 30, random_state=0)
    with pytest.raises(ValueError, match="bags that share no rows, as each bag is estimated by a model fitted"):
        hq.PACC().cross_calibrate(drawn)
    copied = np.random.default_rng(0).normal(size=(200, 2))
    copied = np.tile(copied, (2, 1))
    twins = hq.Bags.from_labels(copied, np.tile(np.arange(200) % 2, 2), groups=np.repeat(np.arange(20), 20))
    with pytest.raises(ValueError, match=exactly(message.format("100%"))):
        hq.PACC().cross_calibrate(twins)
    few = copied + np.where(np.arange(400) % 20 == 0, 0.0, np.arange(400))[:, None]
    nearly_all_differ = hq.Bags.from_labels(few, np.tile(np.arange(200) % 2, 2), groups=np.repeat(np.arange(20), 20))
    assert hq.PACC().cross_calibrate(nearly_all_differ, folds=2).calibration_ is not None


def test_equal_answers_of_different_people_are_not_shared_rows():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=600)
    answers = rng.integers(3, size=(600, 3)) + (rng.random((600, 3)) < 0.3 * y[:, None])
    one_hot = (answers[:, :, None] == np.arange(4)).reshape(600, -1).astype(np.float32)
    for rows in (answers, one_hot, answers[:, :1], sparse.csr_matrix(one_hot)):
        bags = hq.Bags.from_labels(rows, y, groups=np.arange(600) % 30)
        known = bags.replaced(labels=None)
        assert part_copied(bags) == part_copied(known) == 0
        assert hq.PACC().cross_calibrate(bags, folds=2).calibration_ is not None


def test_rows_that_bags_share():
    X = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [2.0, 2.0]])
    assert part_shared(hq.Bags(X, offsets=[0, 2, 5, 6])) == 0
    assert part_shared(hq.Bags(X, index=[0, 1, 1, 2], offsets=[0, 2, 4])) == 0.5


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, lambda X: np.array([str(x) for x in X], object)])
def test_rows_that_are_copied_to_other_bags(kind):
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[[40, 41]] = X[[0, 1]]  # in another bag
    X[[2, 42]] = X[[3, 43]]  # in the same bag
    bags = hq.Bags(kind(X), offsets=[0, 30, 60], labels=np.arange(60) // 20 % 2)
    assert part_copied(bags.replaced(labels=None)) == pytest.approx(4 / 60), "twins in one bag are not shared"
    assert part_copied(bags) == pytest.approx(4 / 60), "the labels of copies are equal"
    assert part_copied(bags.replaced(labels=np.arange(60) // 30)) == 0, "equal rows with different labels"
    rounded = np.random.default_rng(0).normal(size=(150, 4)).round(1)  # lengths in millimetres
    assert part_copied(hq.Bags(kind(np.tile(rounded, (4, 1))), offsets=np.arange(0, 601, 50))) > 0.9


@pytest.mark.parametrize("folds", [1, 21, 2.0, True, None])
def test_wrong_folds(folds):
    with pytest.raises(ValueError, match=r"^folds: expected a whole number "):
        hq.PACC().cross_calibrate(two_normals(20, 0), folds=folds)


def test_too_few_bags_to_cross():
    with pytest.raises(ValueError, match="bags: expected at least 6 calibration bags, got 5"):
        hq.PACC().cross_calibrate(two_normals(5, 0), folds=2)
    with pytest.raises(TypeError, match="bags: expected Bags, got ndarray"):
        hq.PACC().cross_calibrate(two_normals(20, 0).rows)


def test_a_classifier_that_is_fitted_stays_so_and_checkpoints_are_left_alone(tmp_path):
    bags, other = two_normals(20, 0), two_normals(20, 1)
    known = LogisticRegression().fit(other.rows, other.labels)
    q = hq.PACC(known, cv=None).cross_calibrate(bags, folds=2)
    assert q.classifier_ is known
    training = hq.Training(epochs=1, bags_per_epoch=4, validation_bags=4, checkpoint=tmp_path / "run", device="cpu")
    q = hq.DeepSets(encoder=(4,), head=(4,), training=training, random_state=0).cross_calibrate(bags, folds=2)
    alone = hq.DeepSets(encoder=(4,), head=(4,), training=training, random_state=0).fit(bags)
    np.testing.assert_array_equal(alone.predict(other), q.predict(other))
    assert q.training.checkpoint == training.checkpoint


def test_an_interruption_of_one_fold_ends_all(monkeypatch):
    def interrupted(self, X, y=None):
        warnings.warn("training interrupted", TrainingInterrupted, stacklevel=2)
        return self

    monkeypatch.setattr(hq.CC, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hq.CC().cross_calibrate(two_normals(20, 0))


def test_small_bags_of_an_accurate_model_have_no_wider_intervals_than_needed():
    rng = np.random.default_rng(0)
    sizes = np.repeat([20, 200, 10_000], 300)
    p_true = np.stack([rng.integers(n + 1) / n for n in sizes])[:, None] * [1, -1] + [0, 1]
    # The estimate of one bag in ten of 20 rows is off by a row; the errors of large bags have a normal distribution.
    off = np.where(sizes < 100, (rng.random(900) < 0.1) / sizes, 0.3 / np.sqrt(sizes) * np.abs(rng.normal(size=900)))
    p_pred = np.clip(p_true + off[:, None] * [1, -1], 0, 1)
    found = Calibration.of(p_true, p_pred, sizes).intervals(p_pred, sizes, 0.9)
    width = (found.upper - found.lower)[(sizes == 20) & (p_pred[:, 0] > 0.2) & (p_pred[:, 0] < 0.8)]
    assert width.mean() < 0.14


def test_the_part_of_the_model_does_not_depend_on_sizes():
    p_true, p_pred, sizes = pretended(500, seed=0)
    calibration = Calibration.of(p_true, p_pred + 0.05 * np.array([1, -1, 0]), sizes)
    less = calibration.with_model_part(0.25)
    estimates, sizes = np.full((2, 3), 1 / 3), np.array([20, 10**8])
    wide, narrow = (c.intervals(estimates, sizes, 0.9) for c in (calibration, less))
    ratio = (narrow.upper - narrow.lower) / (wide.upper - wide.lower)
    np.testing.assert_allclose(ratio[1], 0.5, atol=1e-3)
    assert (ratio[0] > 0.6).all()
    assert narrow.region.radius[1] == pytest.approx(wide.region.radius[1] / 2, rel=1e-3)
    np.testing.assert_array_equal(less.scores, calibration.scores)
