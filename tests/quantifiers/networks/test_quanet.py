"""QuaNet: what its recurrent layer reads, and that the whole learns."""

from __future__ import annotations

import numpy as np
import torch

import histnetq as hq
from histnetq.nn import SortedLSTM
from histnetq.quantifiers.classical.counting import misclassification
from tests.conftest import QUICK, labelled


class Reader(SortedLSTM):
    """Tells which rows the layer reads."""

    def pool(self, rows, index, offsets, weights):
        return rows[self._in_order(rows, index, offsets, weights)].flatten(1)


def test_two_classes_are_read_in_the_order_of_the_second_posterior():
    second = torch.tensor([0.7, 0.1, 0.4, 0.9])
    rows = torch.stack([1 - second, second], 1)
    read = Reader(2, n_steps=4)(rows, torch.tensor([0, 4])).reshape(4, 2)
    assert read[:, 1].tolist() == second.sort().values.tolist()


def test_more_classes_are_read_by_likeliest_class_and_its_posterior():
    rows = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [0.2, 0.6, 0.2]])
    read = Reader(3, n_steps=4)(rows, torch.tensor([0, 4])).reshape(4, 3)
    assert torch.equal(read, rows[[2, 1, 3, 0]])


def test_bags_are_read_at_equal_steps_of_their_weight():
    second = torch.tensor([0.1, 0.2, 0.3, 0.6, 0.8])
    rows = torch.stack([1 - second, second], 1)
    weights = torch.tensor([1, 1, 2, 1, 3])
    read = Reader(2, n_steps=4)(rows, torch.tensor([0, 3, 5]), weights).reshape(2, 4, 2)[..., 1]
    np.testing.assert_allclose(read, [[0.1, 0.2, 0.3, 0.3], [0.6, 0.8, 0.8, 0.8]])


def test_statistics_are_appended_and_carry_no_gradient():
    def sizes(rows, index, offsets, weights):
        return (rows.sum() * offsets.diff())[:, None]

    rows = torch.rand(6, 2, requires_grad=True)
    pooled = SortedLSTM(2, hidden=3, n_steps=5, statistics=sizes, n_statistics=1)(rows, torch.tensor([0, 2, 6]))
    assert pooled.shape == (2, 7)
    np.testing.assert_allclose(pooled[:, -1].detach(), float(rows.detach().sum()) * np.array([2, 4]), rtol=1e-6)
    assert torch.autograd.grad(pooled[:, -1].sum(), rows, allow_unused=True)[0].abs().max() == 0


def test_rates_come_from_rows_that_no_training_bag_holds():
    y = labelled(300)[1]
    codes = np.unique(y, return_inverse=True)[1]
    P = np.abs(np.random.default_rng(0).normal(size=(300, 3))) + np.eye(3)[codes]
    P /= P.sum(1, keepdims=True)
    q = hq.QuaNet(training=QUICK, random_state=0).fit_posteriors(P, y)
    soft = q.network_.pooling.statistics.soft
    assert soft.shape == (3, 3)
    np.testing.assert_allclose(soft.sum(0), 1)
    assert not np.allclose(soft, misclassification(P, codes, None), atol=1e-3)


def test_it_learns_more_than_it_is_given():
    X, y = labelled(900, seed=1)
    test = hq.APP(100).draw(hq.Bags.from_labels(*labelled(900, seed=2)), 60, random_state=0)
    training = hq.Training(epochs=15, bags_per_epoch=100, batch_bags=10, validation_bags=40, device="cpu")
    q = hq.QuaNet(hidden=8, n_steps=30, loss="ae", sampler=hq.APP(100), training=training, random_state=0).fit(X, y)
    errors = {m: hq.metrics.ae(test.prevalences, m.predict(test)).mean() for m in (q, hq.CC().fit(X, y))}
    assert errors[q] < 0.75 * max(errors.values())
    assert q.history_["validation_loss"][0] > q.validation_loss_


def test_weights_of_training_rows_count_in_rates_and_drawn_bags():
    y = np.repeat([0, 1], 400)
    P = np.stack([np.tile([0.9, 0.3], 400), np.tile([0.1, 0.7], 400)], 1)
    weights = np.tile([1, 3], 400)
    q = hq.QuaNet(hidden=4, training=QUICK, random_state=0)
    q._learn_all(P, y, weights, np.arange(2))
    np.testing.assert_allclose(q.network_.pooling.statistics.hard[0], 0.25, atol=0.1)


def test_rows_that_tie_are_read_in_one_order():
    rows = torch.tensor([[0.6, 0.1, 0.3], [0.6, 0.3, 0.1], [0.6, 0.2, 0.2], [0.2, 0.2, 0.6]])
    layer = Reader(3, n_steps=4)
    read = layer(rows, torch.tensor([0, 4]))
    for order in ([3, 1, 0, 2], [2, 0, 3, 1]):
        assert torch.equal(layer(rows[order], torch.tensor([0, 4])), read)
