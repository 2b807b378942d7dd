"""Pretraining of networks: rows with labels, scores of rows that an encoder was not trained on, and simulated bags."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch import nn

import histnetq as hq
from histnetq.metrics import as_loss
from histnetq.nn import MLP, Unmixing
from histnetq.training.pretraining import head_pretraining, histnetq_start, label_pretraining
from histnetq.training.pretraining.label_pretraining import ScoredRows, class_shares, learn_scores
from histnetq.training.pretraining.training_rows import TrainingRows
from histnetq.training.supervision import Supervision
from tests.conftest import QUICK, exactly, hard_unless, known_bags, labelled

NO_EPOCHS = dataclasses.replace(QUICK, minutes=0)


def examples_of(X, y=None, bags=None, seed: int = 0) -> TrainingRows:
    given = Supervision.of(X, y, bags)
    network = hq.HistNetQ(encoder=())._network(given.input_shape, len(given.classes), None)
    found = TrainingRows.of(given, network, np.random.default_rng(seed))
    assert found is not None
    return found


def unlabelled(bags: hq.Bags) -> hq.Bags:
    return hq.Bags(
        bags.rows, bags.index, bags.offsets, prevalences=bags.prevalences, classes=bags.classes.tolist(),
    )  # fmt: skip


def noise(copies: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Rows that say nothing of their labels, but so many numbers each that these are easily learned by heart."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400 // copies, 400)), rng.permutation(np.arange(400 // copies) % 2)
    return np.tile(X, (copies, 1)), np.tile(y, copies)


# Each two values of two parameters are quick together.
QUICKLY_JUDGED = [
    ("folds", 1, (), "rows"), ("folds", 2, (16,), "rows"), ("bags apart", 1, (16,), "rows"),
    ("bags apart", 1, (), "bags"), ("bags apart", 2, (16,), "bags"), ("folds", 2, (), "bags"),
    ("rows apart", 1, (16,), "rows"), ("rows apart", 2, (16,), "bags"), ("rows apart", 1, (), "bags"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("judged_in", "copies", "hidden", "source"),
    hard_unless(
        lambda *case: case in QUICKLY_JUDGED,
        itertools.product(["folds", "bags apart", "rows apart"], [1, 2], [(), (16,)], ["rows", "bags"]),
    ),
)
def test_judged_rows_were_never_learned_from(judged_in, copies, hidden, source, monkeypatch):
    monkeypatch.setattr(label_pretraining, "_MOST_IN_FOLDS", 0 if judged_in == "bags apart" else 10**9)
    monkeypatch.setattr(label_pretraining, "_FEWEST_UPDATES", 100)
    X, y = noise(copies)
    given = (X, y)
    if source == "bags":  # a row and its copy are in different bags
        order = np.random.default_rng(1).permutation(len(X))
        pool = hq.Bags(X, order, np.arange(0, len(X) + 1, 4), labels=y, classes=[0, 1])
        given = (unlabelled(pool.with_prevalences(pool.label_prevalences())),)
    examples = examples_of(*given)
    groups, learned = examples.groups(), {}
    fit, encode = label_pretraining._Learner.fit, label_pretraining.apply_in_batches

    def watched_fit(self, module, examples, among, known_only=False):
        learned.setdefault(id(module), set()).update(groups[among])
        return fit(self, module, examples, among, known_only)

    def watched_encode(module, rows, among):
        assert learned[id(module)]
        assert learned[id(module)].isdisjoint(groups[among])
        return encode(module, rows, among)

    monkeypatch.setattr(label_pretraining._Learner, "fit", watched_fit)
    monkeypatch.setattr(label_pretraining, "apply_in_batches", watched_encode)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = MLP(400, (*hidden, 2))
        judged = learn_scores(
            encoder, examples, 1e-4, 0.0, np.random.default_rng(0), in_folds=judged_in != "rows apart"
        )
    shared = source == "bags" and copies == 2
    apart = judged_in == "rows apart" or (judged_in == "bags apart" and not shared)
    assert (len(judged.rows) < len(X)) == apart
    assert (len(judged.bags) > 0) == (source == "bags" and not (judged_in == "rows apart" and shared))
    if source == "rows":  # whose labels their scores must know nothing of, and the encoder knows by heart
        truth = examples.labels.argmax(1)
        accuracy = (judged.scores.numpy().argmax(1) == truth[judged.rows]).mean()
        assert abs(accuracy - 0.5) < 3.5 * 0.5 / (len(judged.rows) / copies) ** 0.5
        with torch.no_grad():
            own = encoder(examples.rows).numpy().argmax(1) == truth
        assert (np.delete(own, judged.rows) if apart else own).mean() > 0.9


def test_rows_that_are_the_same_share_a_number():
    X, y = labelled(50)
    examples = examples_of(np.concatenate([X, X[::-1]]), np.concatenate([y, y[::-1]]))
    groups = examples.groups()
    assert groups.max() == 49
    first = {}
    for row, group in zip(examples.rows.numpy(), groups, strict=True):
        assert first.setdefault(row.tobytes(), group) == group
    assert len(set(first.values())) == 50


def test_rows_kept_apart_have_no_double_among_those_learned_from():
    X, y = labelled(200)
    examples = examples_of(np.concatenate([X, X[:60]]), np.concatenate([y, y[:60]]))
    groups = examples.groups()
    judged, bags, learned = label_pretraining._hold_out(examples, groups, np.random.default_rng(0))
    assert len(bags) == 0
    assert len(judged) == 52
    assert not set(groups[judged]) & set(groups[learned])


def test_bags_that_share_too_many_rows_are_not_kept_apart():
    examples = examples_of(known_bags(60))
    assert label_pretraining._hold_out(examples, examples.groups(), np.random.default_rng(0)) is None


def test_known_labels_leave_the_rest_of_the_proportions_to_others():
    X, _ = labelled(20)
    labels = np.array([0] * 9 + [-1] + [1] * 4 + [-1] * 6)
    bags = hq.Bags(
        X, np.arange(20), [0, 10, 20], prevalences=[[0.9, 0.1], [0.2, 0.8]], labels=labels, classes=["a", "b"]
    )
    examples = examples_of(bags)
    assert examples.has_implied_labels
    assert examples.known().tolist() == (labels >= 0).tolist()
    np.testing.assert_array_equal(examples.labels[labels >= 0], np.eye(2)[labels[labels >= 0]])
    assert examples.labels[9, 1] > 0.8, "the only one that can be b"
    np.testing.assert_allclose(examples.labels[14:, 0], 2 / 6, atol=0.05)


def test_known_labels_come_first():
    seen = []

    def learn(module, rows, labels, priors, weights):
        seen.append(len(rows))

    X, _ = labelled(120)
    labels = np.where(np.arange(120) < 40, np.arange(120) % 3, -1)
    bags = hq.Bags(X, np.arange(120), range(0, 121, 10), prevalences=np.full((12, 3), 1 / 3), labels=labels,
                   classes=list("abc"))  # fmt: skip
    examples = examples_of(bags)
    learner = label_pretraining._Learner(nn.Linear(4, 3), learn, np.random.default_rng(0))
    learner.fit(learner.module, examples, np.arange(120), known_only=True)
    learner.fit(learner.module, examples, np.arange(120))
    learner.fit(learner.module, examples, np.arange(2, 120, 3), known_only=True)  # labels of one class only
    assert seen == [40, 120, 40]


def test_bags_of_labelled_rows_need_no_recovery():
    X, y = labelled(120)
    pool = hq.Bags.from_labels(X, y)
    bags = hq.Bags(X, np.arange(120), range(0, 121, 10), labels=pool.labels, classes=list("abc"))
    examples = examples_of(bags)
    assert not examples.has_implied_labels
    np.testing.assert_array_equal(examples.labels, np.eye(3)[pool.labels])


def test_flat_scores_are_sharpened():
    X, y = labelled(1200)
    bags = unlabelled(hq.APP(60).draw(hq.Bags.from_labels(X, y), 60, random_state=0))
    examples = examples_of(bags)
    rows, means = examples.rows.double(), 1.5 * torch.arange(3)[:, None] * torch.tensor([1, -1, 0, 0.5])
    likely = -0.5 * ((rows[:, None, :] - means) ** 2).sum(2)
    for flat in (1 / 8, 1 / 32):
        found = label_pretraining._sharpened(flat * likely, examples, np.random.default_rng(0))
        assert 0.5 < float((found / likely).mean()) < 2


def test_noise_is_not_sharpened():
    X, y = noise()
    examples = examples_of(unlabelled(hq.APP(10).draw(hq.Bags.from_labels(X, y), 60, random_state=0)))
    scores = torch.from_numpy(np.random.default_rng(0).normal(scale=0.1, size=(len(examples.rows), 2)))
    assert torch.equal(label_pretraining._sharpened(scores, examples, np.random.default_rng(0)), scores)


def test_shares_of_classes_sum_to_one():
    X, y = labelled(150)
    for examples in (examples_of(X, y), examples_of(known_bags(40)), examples_of(X, y, known_bags(40))):
        rows = np.arange(0, len(examples.rows), 2)
        scores = torch.from_numpy(np.random.default_rng(0).normal(scale=9.0, size=(len(rows), 3)))
        shares = class_shares(examples, ScoredRows(rows, scores, np.arange(0)))
        np.testing.assert_allclose(shares.sum(0), 1)
        assert shares.min() >= 0


def test_batches_of_a_start_have_no_single_rows():
    # BatchNorm1d refuses these.
    rows = torch.randn(129, 4, generator=torch.Generator().manual_seed(0))
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    labels, weights = torch.eye(2)[torch.arange(129) % 2], torch.full((129,), 1 / 129)
    label_pretraining._learn(module, rows, labels, torch.zeros(129, 2), weights, 0.0)


class Own(nn.Module):
    """An encoder of one's own for images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU())

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layers(rows)


def images(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 1, 8, 8))
    X[:, :, :4] += 0.5 * y[:, None, None, None]
    return X.astype(np.float32), y


# Networks on features, that start as HistNetQ does if they are asked to.
ON_FEATURES = {
    "deepsets": lambda **kw: hq.DeepSets("mean", head=(32,), **kw),
    "settransformer": lambda **kw: hq.SetTransformer(16, 16, 4, 2, head=(32,), **kw),
    "gmnet": lambda **kw: hq.GMNet(3, 8, 2, head=(32,), **kw),
}


def proportions(X, y, bag_size: int = 10) -> hq.Bags:
    """Bags of rows that do not repeat, from bags of the first class to bags of the last, with proportions alone."""
    order = np.argsort(y + 1.5 * np.random.default_rng(0).random(len(X)))
    pool = hq.Bags(X, order, range(0, len(X) + 1, bag_size), labels=y, classes=range(int(y.max()) + 1))
    return unlabelled(pool.with_prevalences(pool.label_prevalences()))


METHODS = {"histnetq": hq.HistNetQ, "emnetq": hq.EMNetQ, **ON_FEATURES}


@pytest.mark.parametrize(
    ("method", "encoder", "source"),
    hard_unless(
        lambda *case: case in [("histnetq", "own", "rows"), ("emnetq", "CNN", "rows"), ("deepsets", "own", "bags")],
        itertools.product(METHODS, ["CNN", "own"], ["rows", "bags"]),
    ),
)
def test_images_and_encoders_of_ones_own_start(method, encoder, source, monkeypatch):
    monkeypatch.setattr(label_pretraining, "_FEWEST_UPDATES", 300)
    X, y = images(600)
    training = dataclasses.replace(NO_EPOCHS, epochs=15)
    own = None if encoder == "CNN" else lambda shape: Own()
    q = METHODS[method](encoder=own, ridge=0.01, training=training, random_state=0)
    q.fit(*((X, y) if source == "rows" else (proportions(X, y),)))
    assert q.best_epoch_ == 0
    fresh = hq.APP(100).draw(hq.Bags.from_labels(*images(600, seed=1)), 30, random_state=0)
    assert hq.evaluate(q, fresh)["ae"].mean() < 0.15


SOURCES = ["rows", "bags", "bags that share rows"]


@pytest.mark.parametrize(
    ("method", "source"),
    hard_unless(
        lambda *case: case in list(zip(ON_FEATURES, SOURCES, strict=True)), itertools.product(ON_FEATURES, SOURCES)
    ),
)
def test_networks_on_features_start_better_than_random(method, source):
    pools = [(X, np.unique(y, return_inverse=True)[1]) for X, y in (labelled(600), labelled(600, seed=3))]
    drawn = [hq.APP(40).draw(hq.Bags.from_labels(*pool), 100, random_state=0) for pool in pools]
    given, fresh = {
        "rows": (pools[0], drawn[1]),
        "bags": ((proportions(*pools[0]),), proportions(*pools[1])),
        "bags that share rows": ((unlabelled(drawn[0]),), drawn[1]),
    }[source]
    training = dataclasses.replace(QUICK, epochs=5)
    made = [
        ON_FEATURES[method](encoder=(16,), ridge=ridge, training=training, random_state=0).fit(*given)
        for ridge in (0.01, None)
    ]
    errors = [hq.metrics.ae(fresh.prevalences, q.predict(fresh)).mean() for q in made]
    assert errors[0] < 0.75 * errors[1]
    assert [q.history_["lr"][0] for q in made] == pytest.approx([1e-4, 1e-3]), "a tenth, where weights are good already"


def test_networks_start_at_random_weights_unless_asked():
    assert hq.HistNetQ(head=(8,))._start() is None, "the paper's way, whatever the penalty that a model was saved with"
    assert hq.DeepSets()._start() is hq.SetTransformer()._start() is None
    assert hq.DeepSets(ridge=0.1)._start() is not None
    with pytest.raises(ValueError, match=exactly("ridge: expected a number above 0, or None, got 'much'.")):
        hq.DeepSets(ridge="much", training=QUICK).fit(known_bags())


@pytest.mark.parametrize("ridge", [0.01, None])
def test_a_random_start_still_trains(ridge):
    few = known_bags(3) if ridge else known_bags(40)
    training = dataclasses.replace(QUICK, epochs=30, lr=0.01, bags_per_epoch=40, patience=99)
    q = hq.HistNetQ(n_bins=5, encoder=(8,), ridge=ridge, training=training, random_state=0).fit(few)
    assert q.best_epoch_ > 0
    assert q.history_["train_loss"][-1] < 0.8 * q.history_["train_loss"][0]
    assert q.history_["lr"][0] == 0.01, "not the low rate of weights that are good already"


def test_the_start_is_better_than_as_many_epochs_without():
    X, y = labelled(600)
    fresh = hq.APP(40).draw(hq.Bags.from_labels(*labelled(600, seed=3)), 100, random_state=1)
    errors = [
        hq.evaluate(hq.HistNetQ(encoder=(), ridge=ridge, training=QUICK, random_state=0).fit(X, y), fresh)["ae"].mean()
        for ridge in (0.01, None)
    ]
    assert errors[0] < 0.06
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("make", [partial(hq.HistNetQ, encoder=()), ON_FEATURES["settransformer"]])
def test_the_same_seed_gives_the_same_start(make, monkeypatch):
    monkeypatch.setattr(label_pretraining, "_FEWEST_UPDATES", 50)
    monkeypatch.setattr(head_pretraining, "_STEPS", {False: 50, True: 50})
    X, y = labelled(120)
    found = [
        make(ridge=0.01, training=NO_EPOCHS, random_state=seed).fit(X, y).predict(known_bags()) for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 0


def test_sparse_rows_of_double_precision():
    X, y = labelled(300)
    training = dataclasses.replace(NO_EPOCHS, dtype="float64")
    q = hq.HistNetQ(encoder=(), training=training, random_state=0).fit(csr_matrix(X), y)
    assert {p.dtype for p in q.network_.parameters()} == {torch.float64}
    fresh = hq.APP(40).draw(hq.Bags.from_labels(*labelled(300, seed=3)), 50, random_state=1)
    assert hq.evaluate(q, fresh)["ae"].mean() < 0.08


def test_weights_tell_how_often_rows_are_in_bags():
    # All bags have the same rows: their weights alone are what differs.
    X, _ = labelled(150)
    codes, rng = np.arange(150) % 3, np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=60)
    weights = np.maximum(rng.poisson(6 * p[:, codes]), 1)
    bags = hq.Bags(
        X, np.tile(np.arange(150), 60), range(0, 9001, 150), labels=None, classes=list("abc"), weights=weights.ravel(),
        prevalences=np.stack([weights[:, codes == c].sum(1) for c in range(3)], 1) / weights.sum(1, keepdims=True),
    )  # fmt: skip
    q = hq.HistNetQ(encoder=(), training=NO_EPOCHS, random_state=0).fit(bags)
    head = q.network_.head
    assert head.get_buffer("spread").max() > 0.1
    assert float(head.get_buffer("size")) == pytest.approx(np.exp(np.log(bags.sizes).mean()), rel=0.1)
    assert hq.evaluate(q, bags)["ae"].mean() < 0.06


def judging(n_bags: int = 200, size: int = 50) -> hq.Bags:
    return unlabelled(hq.APP(size).draw(hq.Bags.from_labels(*labelled()), n_bags, random_state=0))


def test_simulated_bags_are_like_training():
    shares, rng = np.full((30, 3), 1 / 30), np.random.default_rng(0)
    y = np.repeat(list("abc"), [80, 15, 5])
    natural = hq.NPP(100).draw(hq.Bags.from_labels(np.zeros((100, 1)), y), 100, random_state=0)
    counts = head_pretraining.SimulatedBags(shares, natural, hq.NPP(100), rng)._counts(rng)
    np.testing.assert_allclose(counts.mean(0), [80, 15, 5], atol=3)
    counts = head_pretraining.SimulatedBags(shares, judging(), hq.APP(40), rng)._counts(rng)
    assert counts.sum(1).tolist() == [40] * 100
    np.testing.assert_allclose(counts.mean(0) / 40, 1 / 3, atol=0.1)
    counts = head_pretraining.SimulatedBags(shares, judging(), None, rng)._counts(rng)
    assert counts.sum(1).tolist() == [50] * 100
    huge = hq.Bags(np.zeros((3, 1)), weights=[10**9] * 3, prevalences=[[0.2, 0.3, 0.5]], classes=list("abc"))
    assert head_pretraining.SimulatedBags(shares, huge, None, rng)._counts(rng).sum() == head_pretraining._ENTRIES


@pytest.mark.parametrize("honest", [True, False])
def test_a_pretrained_head_is_kept_if_it_is_better(honest):
    rng, bags = np.random.default_rng(0), judging()
    templates = torch.tensor([[[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.1, 0.3, 0.6]]])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = Unmixing(1, 3, 3)
    head.set_templates(templates)

    def histograms(p):
        return torch.as_tensor(p, dtype=torch.float32) @ (templates[0].T ** 1.5)  # not quite what the templates say

    def estimate_batch():
        p = rng.dirichlet(np.ones(3), size=100)
        told = p if honest else p[:, [1, 2, 0]]
        return torch.as_tensor(told, dtype=torch.float32), head(histograms(p)).softmax(1), torch.full((100,), 50.0)

    loss, seen = as_loss("ae"), histograms(bags.prevalences)
    before, first = head.templates.detach().clone(), histnetq_start._mean_loss(head, bags, seen, loss)
    histnetq_start._pretrain_if_useful(head, estimate_batch, (bags, seen), loss, 200)
    last = histnetq_start._mean_loss(head, bags, seen, loss)
    assert torch.equal(head.templates, before) == (not honest)
    assert last < 0.8 * first if honest else last == first


def test_bags_of_judged_rows_follow_the_protocol():
    # The shift of inputs is that of the rows, and not of their numbers.
    X, y = labelled(300)
    examples = examples_of(X, y)
    drawn, rows = examples.bags_among(
        np.empty(0, np.int64), np.arange(300), hq.CovariateShift(200, 3.0), 40, np.random.default_rng(0)
    )
    means = np.stack([examples.rows.numpy()[part].mean(0) for part in np.split(rows, drawn.offsets[1:-1])])
    assert means.std(0).max() > 0.4 * examples.rows.numpy().std(0).max()


def polling_places(n_bags=160, n_parties=8, one_row_each=True):
    """Bags of one-hot party votes of known candidate totals, where each party votes for candidates its own way."""
    rng = np.random.default_rng(0)
    choices = rng.dirichlet(np.full(3, 0.4), n_parties)
    votes = np.stack([rng.multinomial(80, rng.dirichlet(np.ones(n_parties))) for _ in range(n_bags)])
    totals = np.stack([sum(rng.multinomial(n, p) for n, p in zip(row, choices, strict=True)) for row in votes])
    bag, party = np.nonzero(votes)
    rows, offsets = np.eye(n_parties, dtype=np.float32), np.searchsorted(bag, np.arange(n_bags + 1))
    known = {"prevalences": totals / 80, "classes": list("abc")}
    if one_row_each:
        return hq.Bags(rows, party, offsets, weights=votes[bag, party], **known)
    return hq.Bags.from_arrays([np.repeat(rows, row, axis=0) for row in votes], **known)


@pytest.mark.parametrize(("one_row_each", "encoder"), [(True, None), (True, ()), (False, ())])
def test_categorical_rows_are_learned_from(one_row_each, encoder):
    bags = polling_places(one_row_each=one_row_each)
    learned, new = bags[:120], bags[120:]
    training = hq.Training(epochs=12, progress=False)
    q = hq.HistNetQ(encoder=encoder, training=training, random_state=0).fit(learned)
    assert not q.learned_nothing_
    constant = np.tile(learned.prevalences.mean(0), (len(new), 1))
    error, floor = (hq.metrics.ae(new.prevalences, p).mean() for p in (q.predict(new), constant))
    assert error < 0.6 * floor


def test_few_distinct_rows_that_hardly_repeat_are_not_learned_by_heart():
    rng = np.random.default_rng(0)
    few = hq.Bags.from_arrays([rng.normal(size=(5, 2)) for _ in range(6)], prevalences=[[0.5, 0.5]] * 6)
    network = hq.HistNetQ()._network((2,), 2, None)
    rows = TrainingRows.of(Supervision.of(few, None, None), network, rng)
    assert learn_scores(network.encoder[0], rows, 0.01, 0.0, rng) is None
