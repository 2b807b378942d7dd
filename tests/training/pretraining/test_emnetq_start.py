"""What EMNetQ starts from: scores by labels, known or implied by proportions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import histnetq as hq
from tests.conftest import QUICK, exactly, known_bags, labelled

STILL = hq.Training(epochs=1, lr=1e-9, min_lr=1e-9, validation_bags=20, device="cpu")  # the start and no more


def many_bags(n_rows: int = 600, n_bags: int = 150, size: int = 40) -> hq.Bags:
    X, y = labelled(n_rows)
    drawn = hq.APP(size).draw(hq.Bags.from_labels(X, y), n_bags, random_state=0)
    return hq.Bags(X, drawn.index, drawn.offsets, prevalences=drawn.prevalences, classes=["a", "b", "c"])


def accuracy(q: hq.EMNetQ) -> float:
    X, y = labelled(3000, seed=7)
    return float((q.classes_[q.predict_rows(X).argmax(1)] == y).mean())


@pytest.mark.parametrize(("encoder", "source"), [(None, "bags"), ((32,), "bags"), (None, "rows"), ((32,), "both")])
def test_rows_are_told_apart_as_with_labels(encoder, source):
    training = hq.Training(epochs=1, lr=1e-9, min_lr=1e-9, validation_bags=20, dropout=0.0)
    q = hq.EMNetQ(encoder, prior=0.0, training=training, random_state=0)
    X, y = labelled(600)
    if source == "bags":
        q.fit(many_bags())
    elif source == "rows":
        q.fit(X, y)
    else:
        q.fit(X, y, bags=many_bags())
    X_test, y_test = labelled(3000, seed=7)
    assert accuracy(q) > LogisticRegression().fit(X, y).score(X_test, y_test) - 0.02


def test_the_start_is_better_than_a_few_epochs_without():
    bags, fresh = many_bags(), hq.APP(40).draw(hq.Bags.from_labels(*labelled(600, seed=3)), 100, random_state=1)
    errors = [
        hq.evaluate(hq.EMNetQ(ridge=ridge, training=QUICK, random_state=0).fit(bags), fresh)["ae"].mean()
        for ridge in (0.01, None)
    ]
    assert errors[0] < 0.5 * errors[1]


def test_epoch_0_may_be_the_best_and_training_may_still_help():
    q = hq.EMNetQ(training=hq.Training(epochs=3, lr=5.0, min_lr=5.0), random_state=0).fit(many_bags())
    assert q.best_epoch_ == 0
    assert q.validation_loss_ < q.history_["validation_loss"].min()
    np.testing.assert_array_equal(q.history_["epoch"], [1, 2, 3])


def test_the_scores_serve_the_loss():
    # Trained for RAE, small prevalences are made smaller than when trained for AE.
    bags, thresholds = many_bags(size=20), []
    for loss in ("ae", "rae"):
        q = hq.EMNetQ(loss=loss, prior=0.0, training=STILL, random_state=0).fit(bags)
        thresholds.append(float(q.network_.pooling.threshold.detach()))
    assert thresholds[1] > thresholds[0]


def test_few_rows_start_from_random_scores():
    small = known_bags(3)
    q = hq.EMNetQ(training=QUICK, random_state=0).fit(small)
    assert len(np.unique(small.index)) < 100
    assert q.best_epoch_ > 0


def test_the_same_seed_gives_the_same_scores(monkeypatch):
    monkeypatch.setattr("histnetq.training.pretraining.label_pretraining._FEWEST_UPDATES", 50)
    monkeypatch.setattr("histnetq.training.pretraining.label_pretraining._MOST_EPOCHS", 3)
    first, second = (
        hq.EMNetQ((8,), training=STILL, random_state=3).fit(many_bags()).predict(known_bags()) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_double_precision_sparse_rows_and_absent_classes():
    from scipy.sparse import csr_matrix

    bags = many_bags()
    p = np.insert(bags.prevalences, 1, 0.0, axis=1)
    sparse = hq.Bags(csr_matrix(bags.rows), bags.index, bags.offsets, prevalences=p, classes=list("axbc"))
    training = hq.Training(epochs=1, lr=1e-9, min_lr=1e-9, dtype="float64")
    q = hq.EMNetQ(prior=0.0, training=training, random_state=0).fit(sparse)
    assert next(q.network_.parameters()).dtype == torch.float64
    assert q.predict(sparse)[:, 1].max() < 0.02
    assert accuracy(q) > 0.8


def test_counts_are_copies():
    X, _ = labelled()
    q = hq.EMNetQ(prior=0.0, training=STILL, random_state=0).fit(many_bags())
    np.testing.assert_allclose(
        q.predict(hq.Bags(X[:20], weights=np.full(20, 3)))[0], q.predict(np.repeat(X[:20], 3, axis=0)), atol=1e-5
    )


@pytest.mark.parametrize("kind", ["bool", ">f8", "int64"])
def test_rows_of_every_kind_of_numbers(kind):
    # Of bools there are few different rows, and no start.
    bags = many_bags()
    rows = bags.rows > 0.5 if kind == "bool" else (bags.rows * 1000 + (1.7e12 if kind == "int64" else 0)).astype(kind)
    given = hq.Bags(rows, bags.index, bags.offsets, prevalences=bags.prevalences, classes=list("abc"))
    q = hq.EMNetQ(ridge=0.01, prior=0.0, training=STILL, random_state=0).fit(given)
    assert hq.evaluate(q, given)["ae"].mean() < (0.5 if kind == "bool" else 0.08)


def test_labels_of_the_same_rows_elsewhere_do_not_make_scores_look_better():
    # The bags are made of the labelled rows, of which there are few for so many features.
    rng = np.random.default_rng(0)
    X, y = labelled(300)
    X = np.concatenate([X, rng.normal(size=(300, 150))], axis=1)
    bags = hq.APP(40).draw(hq.Bags.from_labels(X, y), 100, random_state=0)
    unlabelled = hq.Bags(X, bags.index, bags.offsets, prevalences=bags.prevalences, classes=list("abc"))
    q = hq.EMNetQ(prior=0.0, loss="ae", training=STILL, random_state=0).fit(X, y, bags=unlabelled)
    fresh, labels = labelled(300, seed=5)
    fresh = np.concatenate([fresh, rng.normal(size=(300, 150))], axis=1)
    test = hq.APP(40).draw(hq.Bags.from_labels(fresh, labels), 100, random_state=1)
    assert hq.evaluate(q, test)["ae"].mean() < 0.112


def test_models_without_a_threshold_are_loaded(tmp_path):
    q = hq.EMNetQ(ridge=None, training=QUICK, random_state=0).fit(known_bags())
    q.ridge = 0.01  # as the default of a model that was saved before there was a choice
    q.save(tmp_path / "model")
    loaded = hq.load(tmp_path / "model")
    assert loaded.ridge is None
    np.testing.assert_array_equal(loaded.predict(known_bags()), q.predict(known_bags()))


@pytest.mark.parametrize("ridge", [0, -1.0, "much", True, float("inf")])
def test_wrong_ridge(ridge):
    with pytest.raises(ValueError, match=exactly(f"ridge: expected a number above 0, or None, got {ridge!r}.")):
        hq.EMNetQ(ridge=ridge, training=QUICK, random_state=0).fit(known_bags())
