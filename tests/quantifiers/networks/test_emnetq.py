"""EMNetQ beyond the common laws: probabilities of rows, standard errors, and what its encoder may be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import histnetq as hq
from histnetq.quantifiers.classical.emq import maximise_likelihood
from tests.conftest import QUICK, exactly, known_bags, labelled


def fitted(**changes) -> hq.EMNetQ:
    return hq.EMNetQ(**{"training": QUICK, "random_state": 0, **changes}).fit(known_bags())


def test_estimates_are_those_of_emq_on_the_same_scores():
    q, bags = fitted(encoder=(8,), ridge=None, prior=0.0), known_bags()
    with torch.no_grad():
        scores = q.network_.encode(torch.as_tensor(bags.rows, dtype=torch.float32)).double()
    n = len(q.classes_)
    posteriors, prior = scores.softmax(1).numpy(), np.full(n, 1 / n)
    expected = maximise_likelihood(posteriors, prior, bags.index, bags.offsets, tol=1e-9, max_iter=10**5)
    np.testing.assert_allclose(q.predict(bags), expected, atol=1e-5)


def test_row_probabilities_average_to_the_estimate():
    # At the fixed point of expectation maximisation, where no prevalence is shrunk.
    q, bags = fitted(ridge=None, prior=0.0), known_bags()
    posteriors = q.predict_rows(bags)
    assert posteriors.shape == (len(bags.index), len(q.classes_))
    np.testing.assert_allclose(posteriors.sum(1), 1)
    means = np.add.reduceat(posteriors, bags.offsets[:-1]) / bags.sizes[:, None]
    np.testing.assert_allclose(means, q.predict(bags), atol=1e-4)


def test_row_probabilities_at_given_prevalences():
    q, (X, _) = fitted(), labelled()
    even = q.predict_rows(X, [1 / 3, 1 / 3, 1 / 3])
    odds = q.predict_rows(X, [0.5, 0.25, 0.25]) / even
    np.testing.assert_allclose(odds[:, 0] / odds[:, 1], 2)
    assert (q.predict_rows(X, [0, 0.5, 0.5])[:, 0] == 0).all()
    bags = known_bags()
    np.testing.assert_allclose(q.predict_rows(bags), q.predict_rows(bags, q.predict(bags)), rtol=1e-12)


def test_row_probabilities_of_weighted_rows():
    q, (X, _) = fitted(), labelled()
    counts = np.arange(len(X)) % 3 + 1
    found = q.predict_rows(hq.Bags(X, weights=counts))
    copies = q.predict_rows(np.repeat(X, counts, axis=0))
    np.testing.assert_allclose(np.repeat(found, counts, axis=0), copies, atol=1e-6)


def test_rows_are_classified_without_a_single_label():
    rng = np.random.default_rng(0)
    X, y = labelled(3000)
    codes = np.unique(y, return_inverse=True)[1]
    drawn = [rng.choice(len(X), 60, p=(w := rng.dirichlet([1, 1, 1])[codes]) / w.sum()) for _ in range(150)]
    shares = np.stack([np.bincount(codes[rows], minlength=3) for rows in drawn]) / 60
    bags = hq.Bags.from_arrays([X[rows] for rows in drawn], shares, classes=["a", "b", "c"])
    q = hq.EMNetQ(training=hq.Training(epochs=30, lr=0.02), random_state=0).fit(bags)
    means = np.stack([X[codes == c].mean(0) for c in range(3)])
    nearest = ((X[:, None] - means) ** 2).sum(2).argmin(1)
    accuracy = (q.predict_rows(X).argmax(1) == codes).mean()
    assert accuracy > (nearest == codes).mean() - 0.03


def test_standard_errors_shrink_with_the_root_of_the_rows():
    X, y = labelled()
    q = hq.EMNetQ(prior=0.0, label_weight=1.0, training=hq.Training(epochs=5, lr=0.03), random_state=0).fit(X, y)
    one, four = q.standard_errors(X), q.standard_errors(np.concatenate([X] * 4))
    np.testing.assert_allclose(one, 2 * four, rtol=1e-3)
    weighted = hq.Bags(X, weights=np.full(len(X), 4))
    np.testing.assert_allclose(q.standard_errors(weighted)[0], four, rtol=1e-6)


def test_standard_errors_are_those_of_repeated_draws():
    rng = np.random.default_rng(1)
    X, y = labelled(4000)
    q = hq.EMNetQ(training=hq.Training(epochs=10, lr=0.02), random_state=0).fit(X, y)
    bags = hq.Bags(X, rng.choice(len(X), 300 * 100), np.arange(0, 30_001, 100))
    spread = q.predict(bags).std(0)
    np.testing.assert_allclose(q.standard_errors(bags).mean(0), spread, rtol=0.15)


@pytest.mark.parametrize("encoder", [None, (), (6,), nn.Linear(4, 5), lambda shape: nn.Linear(shape[0], 5)])
def test_encoders(encoder):
    q = fitted(encoder=encoder)
    assert q.network_.pooling.n_features == 3
    np.testing.assert_allclose(q.predict(known_bags()).sum(1), 1)


def test_images_are_encoded_by_a_cnn():
    rng = np.random.default_rng(0)
    images, y = rng.normal(size=(60, 8, 8)), np.arange(60) % 2
    assert hq.EMNetQ(training=QUICK, random_state=0).fit(images, y).predict(images).shape == (2,)


def test_labels_of_rows_help():
    X, y = labelled(300)
    right, training = [], hq.Training(epochs=4, lr=0.03)
    for weight in (0.0, 1.0):
        q = hq.EMNetQ(ridge=None, label_weight=weight, training=training, random_state=0).fit(X, y, bags=known_bags())
        even = np.full(3, 1 / 3)
        right.append((q.classes_[q.predict_rows(X, even).argmax(1)] == y).mean())
    assert right[1] > right[0]


def test_a_prior_draws_tiny_bags_to_equal_prevalences():
    X = labelled()[0][:1]
    free, held = (fitted(prior=prior).predict(X) for prior in (0.0, 100.0))
    assert np.abs(held - 1 / 3).max() < 0.05 < np.abs(free - 1 / 3).max()


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: fitted(prior=-1.0), "prior: expected a pseudo-count of at least 0, got -1.0."),
        (lambda: fitted(prior=None), "prior: expected a pseudo-count of at least 0, got None."),
        (
            lambda: hq.Training(average=None),
            "training: expected average to be a whole number of at least 1, got None.",
        ),
        (lambda: fitted(encoder="wide"), "encoder: expected None, layer sizes, an nn.Module or a factory, got 'wide'."),
        (
            lambda: fitted().predict_rows(labelled()[0][:, :2]),
            "rows: expected 4 features as in training, got 2 features; give the same columns in the same order.",
        ),
        (
            lambda: fitted().predict_rows(labelled()[0], [0.5, 0.4, 0.3]),
            "prevalences: row 0 sums to 1.2, expected 1 ± 0.001; pass normalize=True to rescale counts or percentages.",
        ),
    ],
)
def test_wrong_input(act, message):
    with pytest.raises(ValueError, match=exactly(message)):
        act()


def test_sketches_lose_little():
    """Cells are made from training rows; estimates of other bags from them hardly have larger errors."""
    q, held = hq.EMNetQ(training=QUICK, random_state=0).fit(known_bags(60)), known_bags(60, seed=9)
    errors = [np.abs(p - held.prevalences).mean() for p in (q.predict(held), q.predict(q.sketch(held)))]
    assert errors[1] < 1.03 * errors[0] + 1e-4


def test_models_without_rows_for_cells_say_so():
    q = hq.EMNetQ(training=hq.Training(epochs=1), random_state=0).fit(known_bags())
    q.cell_rows_ = None
    message = "sketch: EMNetQ was fitted by an earlier version, which kept no rows for sketches; fit it again."
    with pytest.raises(TypeError, match=exactly(message)):
        q.sketch(known_bags())
