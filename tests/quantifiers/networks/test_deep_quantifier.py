"""What the networks do beyond the common laws."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

import histnetq as hq
from histnetq.kernels import dense_compiled, using
from histnetq.nn import Cumulative
from histnetq.training import batches as inference
from histnetq.training import encoding
from histnetq.training.supervision import Supervision
from tests.conftest import QUICK, SMALL, exactly, known_bags, labelled


def small(**changes) -> hq.HistNetQ:
    return hq.HistNetQ(n_bins=4, **{**SMALL, **changes})


def test_the_users_encoder_is_copied_never_trained():
    encoder = nn.Linear(4, 3)
    before = encoder.weight.detach().clone()
    q = small(encoder=encoder).fit(known_bags())
    assert torch.equal(encoder.weight, before)
    assert not torch.equal(q.network_.encoder.weight, before)
    assert q.get_params()["encoder"] is encoder


def test_encoder_factory_gets_the_shape_of_a_row():
    shapes = []

    def factory(shape):
        shapes.append(shape)
        return nn.Linear(shape[0], 3)

    small(encoder=factory).fit(known_bags())
    assert shapes == [(4,)]


@pytest.mark.parametrize(
    ("encoder", "error", "message"),
    [
        ((), ValueError, r"encoder: expected None, layer sizes, an nn.Module or a factory, got \(\)"),
        ((4, 0.5), ValueError, r"encoder: expected None, layer sizes"),
        (lambda shape: 3, TypeError, "encoder: expected the factory to return an nn.Module, got int"),
        (nn.Unflatten(1, (2, 2)), ValueError, r"encoder: expected it to map rows \(1, 4\) to features \(1, n\)"),
    ],
)
def test_wrong_encoders(encoder, error, message):
    with pytest.raises(error, match=message):
        small(encoder=encoder).fit(known_bags())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: hq.HistNetQ(bins="round", training=QUICK),
            "bins: expected one of 'hard', 'soft', 'rbf', 'sigmoid', got",
        ),
        (
            lambda: hq.DeepSets(pooling="sum", training=QUICK),
            "pooling: expected one of 'mean', 'median', 'max', got 'sum'",
        ),
        (lambda: small(loss="rmse"), "loss: expected one of ae, rae, .* or a callable"),
        (
            lambda: small(sampler="mixer"),
            r"sampler: expected 'auto', None or a protocol such as Mixer\(\), got 'mixer'",
        ),
        (lambda: hq.HistNetQ(n_bins=0, training=QUICK), "n_bins: expected a whole number of at least 1, got 0"),
        (lambda: hq.HistNetQ(n_bins=2.5, training=QUICK), "n_bins: expected a whole number of at least 1, got 2.5"),
        (lambda: small(head=512), r"head: expected the sizes of its hidden layers, such as \(512,\), got 512"),
        (lambda: small(sampler=hq.Combined()), "sampler: Combined draws from labelled rows too, but fit got bags only"),
        (lambda: small(sampler=hq.APP()), "sampler: APP draws from labelled rows, but fit got bags without labels"),
    ],
)
def test_wrong_names(make, message):
    with pytest.raises(ValueError, match=message):
        make().fit(known_bags())


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (None, r"sampler: None trains on the given bags only, but fit got labelled rows; use APP\(\)"),
        (hq.Mixer(), "sampler: Mixer draws from bags, but fit got labelled rows only"),
    ],
)
def test_samplers_that_lack_bags(sampler, message):
    with pytest.raises(ValueError, match=message):
        small(sampler=sampler).fit(*labelled())


def test_labelled_rows_have_the_columns_of_the_bags_beside_them():
    bags = known_bags()
    bags.feature_names = list("wxyz")
    q = small().fit(*labelled(), bags=bags)
    assert q.feature_names_ == list("wxyz")


def test_bags_beside_bags_are_refused():
    with pytest.raises(TypeError, match=r"bags: expected with labelled rows, fit\(X, y, bags=…\), got Bags twice"):
        small().fit(known_bags(), bags=known_bags())


def test_classes_of_rows_and_bags_are_aligned_by_name():
    X, y = labelled()
    bags = known_bags()
    swapped = hq.Bags(
        bags.rows, bags.index, bags.offsets, prevalences=bags.prevalences[:, [2, 0]] / 1.0, classes=["c", "a"],
        normalize=True,
    )  # fmt: skip
    given = Supervision.of(X, y, swapped)
    assert given.classes.tolist() == ["c", "a", "b"]
    assert given.rows.prevalences.tolist() == [[1 / 3, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(given.bags.prevalences[:, 2], 0)
    assert given.rows.rows is given.bags.rows


def test_labelled_rows_are_split_before_bags_are_drawn():
    X, y = labelled(50)
    kept, held = Supervision.of(X, y, None).split(0.3, seed=0)
    assert not set(kept.rows.index) & set(held.rows.index)
    assert len(kept.rows.index) + len(held.rows.index) == 50
    for part in (kept, held):
        assert np.bincount(part.rows.labels[part.rows.index]).min() >= 5


def test_a_class_with_one_row_is_learned_from():
    X, y = labelled(21)
    y = y.astype("<U9")
    y[0] = "rare"
    kept, held = Supervision.of(X, y, None).split(0.3, seed=0)
    rare = kept.classes.tolist().index("rare")
    assert (kept.rows.labels[kept.rows.index] == rare).sum() == 1
    assert (held.rows.labels[held.rows.index] == rare).sum() == 0


def statistics(X) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(X.shape[0]) % 2
    return Supervision.of(X, y, None).statistics()


def test_standardising_dense_rows(monkeypatch):
    monkeypatch.setattr("histnetq.training.supervision._CHUNK", 30)
    X = np.random.default_rng(0).normal(1e5, [1e-2, 3.0, 50.0], size=(40, 3))
    mean, scale = statistics(X)
    np.testing.assert_allclose(mean, X.mean(0), rtol=1e-12)
    np.testing.assert_allclose(scale, X.std(0), rtol=1e-6)


def test_constant_features_are_left_as_they_are():
    X = np.column_stack([np.full(6, 7.0), np.arange(6.0)])
    mean, scale = statistics(X)
    assert mean[0] == 7
    assert scale[0] == 1


def test_standardising_sparse_rows_does_not_centre():
    X = sparse.random(30, 5, density=0.3, random_state=0, format="csr")
    mean, scale = statistics(X)
    assert (mean == 0).all()
    np.testing.assert_allclose(scale, np.sqrt((X.toarray() ** 2).mean(0)))


@pytest.mark.parametrize("shape", [(20, 6, 6), (20, 3, 6, 6)])
def test_standardising_images_by_channel(shape):
    X = np.random.default_rng(0).integers(0, 255, size=shape).astype(np.uint8)
    mean, scale = statistics(X)
    axes = (0, len(shape) - 2, len(shape) - 1)
    np.testing.assert_allclose(mean, X.astype(float).mean(axes, keepdims=True)[0])
    np.testing.assert_allclose(scale, X.astype(float).std(axes, keepdims=True)[0])


def test_images_get_a_convolutional_encoder():
    X = np.random.default_rng(0).integers(0, 255, size=(40, 8, 8)).astype(np.uint8)
    q = small(encoder=None).fit(X, np.arange(40) % 2)
    assert type(q.network_.encoder).__name__ == "CNN"
    assert q.predict(X).shape == (2,)


def test_without_standardising():
    q = small(training=dataclasses.replace(QUICK, standardize=False)).fit(known_bags())
    assert isinstance(q.network_.prepare, nn.Identity)


def test_the_auxiliary_loss_trains_the_classifier():
    X, y = labelled()
    q = small(label_weight=1.0).fit(X, y)
    start = small(label_weight=1.0, training=dataclasses.replace(QUICK, lr=1e-12)).fit(X, y)
    assert not torch.allclose(q.network_.classifier.weight, start.network_.classifier.weight, atol=1e-4)
    assert small().fit(X, y).network_.classifier is None


def test_every_pool_row_is_encoded_once(monkeypatch):
    q = small().fit(known_bags())
    X = np.random.default_rng(0).normal(size=(600, 4))
    index = np.random.default_rng(1).integers(0, 300, size=5000)
    bags = hq.Bags(X, index, np.arange(0, 5001, 50))
    encoded = []
    encode, to_bins = q.network_.encode, dense_compiled.encode_bins
    monkeypatch.setattr(q.network_, "encode", lambda rows: (encoded.append(len(rows)), encode(rows))[1])
    monkeypatch.setattr(
        dense_compiled, "encode_bins", lambda rows, used, *rest: (encoded.append(len(used)), to_bins(rows, used, *rest))
    )
    q.predict(bags)
    with using("plain"):
        q.predict(bags)
    assert encoded == [300, 256, 256], "once by compiled layers, and in blocks of 256 by torch's"


@pytest.mark.parametrize("pooling", ["mean", "median"])
def test_bounded_memory_changes_nothing(monkeypatch, pooling):
    q = hq.DeepSets(pooling, **SMALL).fit(known_bags())
    bags = known_bags(30, seed=2)
    whole = q.predict(bags)
    monkeypatch.setattr(inference, "_POOLED_AT_ONCE", 20)
    monkeypatch.setattr(inference, "_GATHERED_AT_ONCE", 100)
    monkeypatch.setattr(encoding, "_FEATURES_IN_MEMORY", 10)
    np.testing.assert_allclose(q.predict(bags), whole, atol=1e-7)


def test_a_row_does_not_depend_on_its_neighbours():
    # One bag among others and alone go through the encoder in blocks of the same shape.
    q = small(encoder=(300, 64)).fit(known_bags())
    X = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)
    bags = hq.Bags(X, offsets=np.cumsum([0, 3, 500, 497]))
    features = inference.encode_rows(q.network_, bags, np.arange(1000))
    for start, stop in [(0, 3), (3, 503), (700, 1000)]:
        alone = inference.encode_rows(q.network_, bags, np.arange(start, stop))
        assert torch.equal(alone, features[start:stop])


def test_feature_names_must_agree():
    X, y = labelled()
    bags = hq.Bags.from_labels(X, y, groups=np.arange(120) // 10, feature_names=["p", "q", "r", "s"])
    q = small().fit(bags)
    with pytest.raises(ValueError, match="rows: column 1 is 'z', expected 'q' as in training"):
        q.predict(hq.Bags(X, feature_names=["p", "z", "r", "s"]))


def test_any_callable_is_a_loss():
    assert small(loss=lambda p_true, p_pred: ((p_true - p_pred) ** 2).sum(-1)).fit(known_bags()).validation_loss_ > 0
    assert small(loss=hq.CostSensitiveAE((1, 2, 3))).fit(known_bags()).validation_loss_ > 0


def test_a_failed_fit_leaves_the_quantifier_as_it_was():
    q = small().fit(known_bags())
    before = q.predict(known_bags())
    with pytest.raises(RuntimeError, match="on purpose"):
        q.set_params(loss=failing).fit(*labelled(40, n_classes=2))
    np.testing.assert_array_equal(q.predict(known_bags()), before)
    fresh = small(loss=failing)
    with pytest.raises(RuntimeError, match="on purpose"):
        fresh.fit(known_bags())
    assert not hasattr(fresh, "classes_")


def failing(p_true, p_pred):
    raise RuntimeError("on purpose")


def test_history_is_stored(tmp_path):
    q = small().fit(known_bags())
    q.save(tmp_path / "model")
    back = hq.load(tmp_path / "model")
    assert back.history_["epoch"].tolist() == [1, 2]
    assert back.validation_loss_ == q.validation_loss_


def test_other_byte_orders_and_wide_numbers():
    X, y = labelled()
    q = small().fit(X.astype(">f8"), y)
    np.testing.assert_allclose(q.predict(X.astype(np.longdouble)), q.predict(X), atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"training": {"epochs": 3}}, TypeError, "training: expected a Training object such as Training"),
        ({"label_weight": -1}, ValueError, "label_weight: expected a number of at least 0, got -1"),
        ({"random_state": "a"}, ValueError, "random_state: expected a whole number of at least 0, or None, got 'a'"),
        ({"sampler": hq.Mixer}, ValueError, "sampler: expected 'auto', None or a protocol such as"),
        ({"encoder": nn.Linear(3, 8)}, ValueError, r"encoder: cannot take rows of shape \(4,\)"),
    ],
)
def test_wrong_parameters(changes, error, message):
    with pytest.raises(error, match=message):
        small(**changes).fit(known_bags())


def test_standardising_counts_weights_as_copies():
    X, y = labelled(30)
    counts = np.random.default_rng(0).integers(1, 5, size=30)
    weighted = hq.Bags.from_labels(X, y, weights=counts)
    copied = hq.Bags.from_labels(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    for one, other in zip(
        Supervision(weighted, None).statistics(), Supervision(copied, None).statistics(), strict=True
    ):
        np.testing.assert_allclose(one, other)


def test_features_in_small_units_are_standardised():
    _, scale = statistics(np.random.default_rng(0).normal(0, 1e-9, size=(50, 1)))
    assert 5e-10 < scale[0] < 2e-9


def test_all_labelled_rows_are_learned_from_beside_bags():
    kept, held = Supervision.of(*labelled(), known_bags()).split(0.3, seed=0)
    assert len(kept.rows.index) == 120
    assert held.rows is None
    assert len(kept.bags) + len(held.bags) == 12


def test_histograms_in_small_groups_change_nothing(monkeypatch):
    q = small().fit(known_bags())
    bags = known_bags(30, seed=2)
    whole = q.predict(bags)
    monkeypatch.setattr(inference, "_CODED_AT_ONCE", 100)
    monkeypatch.setattr(encoding, "_FEATURES_IN_MEMORY", 10)
    np.testing.assert_allclose(q.predict(bags), whole, atol=1e-7)


def test_bags_that_share_few_rows_are_encoded_in_groups(monkeypatch):
    q = small().fit(known_bags())
    bags = hq.Bags(np.random.default_rng(0).normal(size=(600, 4)), offsets=np.arange(0, 601, 20))
    whole, shapes = q.predict(bags), []
    encode = encoding.BinCounts.encode

    def noted(bins, network, some, used):
        shapes.append(len(used))
        return encode(bins, network, some, used)

    monkeypatch.setattr(encoding.BinCounts, "encode", noted)
    monkeypatch.setattr(inference, "_ENCODED_AT_ONCE", 50 * q.network_.pooling.n_features)
    np.testing.assert_allclose(q.predict(bags), whole, atol=1e-12)
    assert sum(shapes) == 600
    assert max(shapes) <= 50


def test_features_far_from_zero_keep_their_digits():
    X, y = labelled()
    q = small().fit(X, y)
    far = small().fit(X + np.array([0, 1.7e9, -5e6, 3e7]), y)
    np.testing.assert_allclose(far.predict(X + np.array([0, 1.7e9, -5e6, 3e7])), q.predict(X), atol=1e-4)


def test_validation_bags_choose_the_best_epoch():
    train, validation = known_bags(), known_bags(6, seed=1)
    q = hq.DeepSets(**SMALL).fit(train, validation=validation)
    loss = hq.metrics.ae(validation.prevalences, q.predict(validation)).mean()
    assert q.validation_loss_ == pytest.approx(loss, rel=1e-5)
    reordered = hq.Bags(
        validation.rows, validation.index, validation.offsets,
        prevalences=validation.prevalences[:, ::-1], classes=["c", "b", "a"],
    )  # fmt: skip
    again = hq.DeepSets(**SMALL).fit(train, validation=reordered)
    np.testing.assert_array_equal(again.predict(train), q.predict(train))
    np.testing.assert_allclose(q.train_prevalences_, train.prevalences.mean(0))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (np.zeros((3, 4)), TypeError, "validation: expected Bags, got ndarray; make them with Bags.from_arrays."),
        (
            hq.Bags(np.zeros((3, 5)), prevalences=[[1, 0, 0]]),
            ValueError,
            "validation: expected rows of shape (4,) as in training, got (5,); "
            "give the same columns in the same order.",
        ),
    ],
)
def test_wrong_validation_bags(wrong, error, message):
    with pytest.raises(error, match=exactly(message)):
        hq.DeepSets(**SMALL).fit(known_bags(), validation=wrong)


def test_the_head_reads_cumulative_histograms_if_asked_to():
    bags = known_bags()
    q = hq.HistNetQ(n_bins=4, encoder=(3,), head=(8,), cumulative=True, training=QUICK, random_state=0).fit(bags)
    plain = hq.HistNetQ(n_bins=4, encoder=(3,), head=(8,), training=QUICK, random_state=0).fit(bags)
    assert isinstance(q.network_.head[0], Cumulative)
    assert not isinstance(plain.network_.head[0], Cumulative)
    histograms = torch.rand(5, 12)
    expected = histograms.reshape(5, 3, 4).cumsum(2) - torch.tensor([0.25, 0.5, 0.75, 1.0])
    torch.testing.assert_close(q.network_.head[0](histograms), expected.reshape(5, 12))
