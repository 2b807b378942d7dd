"""Labels that proportions imply."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import softmax

import histnetq as hq
from histnetq.training.pretraining.label_recovery import _SLACK, memberships, recover_labels
from tests.conftest import labelled


def drawn(n_rows: int = 300, n_bags: int = 200, size: int = 50) -> tuple[csr_matrix, np.ndarray, np.ndarray]:
    X, y = labelled(n_rows)
    bags = hq.APP(size).draw(hq.Bags.from_labels(X, y), n_bags, random_state=0)
    return memberships(bags, bags.index, n_rows), bags.prevalences, np.unique(y, return_inverse=True)[1]


def test_rows_in_many_bags_give_their_labels_away():
    members, p, codes = drawn()
    found = recover_labels(members, p, np.zeros((300, 3)))
    assert (found.argmax(1) == codes).mean() > 0.97


def test_labels_agree_with_the_proportions_up_to_the_slack():
    # By the equations in the docstring: multipliers follow from what is missing, and labels from the multipliers.
    members, p, _ = drawn(n_bags=20)
    logits = np.random.default_rng(0).normal(size=(300, 3))
    found = recover_labels(members, p, logits)
    sizes = np.asarray(members.sum(1))
    missing = p * sizes - members @ found
    assert np.abs(missing / sizes).max() < 0.06
    np.testing.assert_allclose(found, softmax(logits + members.T @ (missing / (_SLACK * sizes)), axis=1), atol=5e-3)


def test_rows_of_one_bag_get_its_proportions():
    members = csr_matrix(np.kron(np.eye(2), np.ones(4)))
    p = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    np.testing.assert_allclose(recover_labels(members, p, np.zeros((8, 3))), np.repeat(p, 4, axis=0), atol=0.03)


def test_what_is_known_of_rows_is_kept():
    logits = np.array([[5.0, 0], [0, 5], [0, 0], [0, 0]])
    found = recover_labels(csr_matrix(np.ones((1, 4))), np.array([[0.5, 0.5]]), logits)
    np.testing.assert_allclose(found, softmax(logits, axis=1), atol=1e-6)


def test_order_and_names_do_not_matter():
    members, p, _ = drawn(n_bags=30)
    logits = np.random.default_rng(1).normal(size=(300, 3))
    expected = recover_labels(members, p, logits)
    rng = np.random.default_rng(2)
    rows, bags, classes = rng.permutation(300), rng.permutation(30), rng.permutation(3)
    found = recover_labels(members[bags][:, rows], p[bags][:, classes], logits[rows][:, classes])
    np.testing.assert_allclose(found, expected[rows][:, classes], atol=2e-3)


def test_a_weight_is_as_many_copies():
    p, weights = np.array([[0.7, 0.3]]), np.array([1, 3, 2])
    logits = np.array([[1.0, 0], [0, 1], [0, 0]])
    found = recover_labels(csr_matrix(weights[None].astype(float)), p, logits)
    copies = recover_labels(csr_matrix(np.ones((1, 6))), p, np.repeat(logits, weights, axis=0))
    # A row of weight 3 has one label, of three copies each has its own: the pull is as strong on each of them.
    assert found[0, 0] == pytest.approx(copies[0, 0], abs=0.15)
    counts = weights @ found
    np.testing.assert_allclose(counts / 6, p[0], atol=0.03)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_unit_of_survey_weights_is_arbitrary(unit):
    drawn_weights = np.random.default_rng(0).uniform(0.5, 1.5, 20)
    bags = hq.Bags(np.zeros((20, 1)), offsets=[0, 8, 20], weights=unit * drawn_weights, weight_kind="survey")
    members = memberships(bags, bags.index, 20)
    np.testing.assert_allclose(np.asarray(members.sum(1))[:, 0], bags.sizes)
    np.testing.assert_allclose(members[0].data / members[0].data[0], drawn_weights[:8] / drawn_weights[0])
