"""`LinearQ`: ridge regression of prevalences on mean rows, with a penalty by leave-one-out estimates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import Ridge

import histnetq as hq
from histnetq.quantifiers.classical import linear
from histnetq.sketches.posteriors import bag_means
from tests.conftest import exactly, known_bags


def votes(n_bags: int = 300, seed: int = 0) -> hq.Bags:
    """Polling places where 4 parties vote for 3 candidates; a row is a party, with the number of its voters."""
    rng = np.random.default_rng(seed)
    chances = np.array([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6], [0.2, 0.4, 0.4]])
    counts = np.array([rng.multinomial(n, rng.dirichlet([4, 3, 2, 1])) for n in rng.integers(20, 500, n_bags)])
    p = np.array([sum(rng.multinomial(n, c) for n, c in zip(row, chances, strict=True)) for row in counts])
    bag, party = np.nonzero(counts)
    offsets = np.searchsorted(bag, np.arange(n_bags + 1))
    names = {"prevalences": p, "classes": list("abc"), "normalize": True}
    return hq.Bags(np.eye(4), party, offsets, weights=counts[bag, party], **names)


def mean_rows(bags: hq.Bags) -> np.ndarray:
    return bag_means(bags.rows, bags.index, bags.offsets, bags.weights)


def test_categories_are_goodmans_regression():
    learn, test = votes()[:200], votes()[200:]
    q = hq.LinearQ().fit(learn)
    weights = learn.sizes / (learn.sizes + np.exp(np.log(learn.sizes).mean()))
    X, w = mean_rows(learn), np.sqrt(weights)[:, None]
    slopes = np.linalg.lstsq(w * X, w * learn.prevalences, rcond=None)[0]  # one row per party, without an intercept
    np.testing.assert_allclose(q.predict(test), hq.simplex.project(mean_rows(test) @ slopes), atol=5e-3)
    assert -q.score(test) < 0.4 * -hq.MLPE().fit(learn).score(test)


@pytest.mark.parametrize("penalty", [1e-4, 0.3])
@pytest.mark.parametrize("n_features", [4, 30])  # fewer and more features than bags
def test_estimates_equal_scikit_learns_weighted_ridge(penalty, n_features):
    bags, rng = known_bags(20), np.random.default_rng(1)
    bags = bags.replaced(rows=np.concatenate([bags.rows, rng.normal(size=(len(bags.rows), n_features - 4))], axis=1))
    q = hq.LinearQ(penalty=penalty).fit(bags)
    w = bags.sizes / (bags.sizes + np.exp(np.log(bags.sizes).mean()))
    used = bags.rows[bags.index]
    Z = mean_rows(bags.replaced(rows=(bags.rows - used.mean(0)) / used.std(0)))
    centred = np.sqrt(w / w.sum())[:, None] * (Z - w @ Z / w.sum())
    squares = np.linalg.svd(centred, compute_uv=False) ** 2
    unit = squares[squares > 1e-12 * squares[0]].mean()
    theirs = Ridge(penalty * unit * w.sum()).fit(Z, bags.prevalences, sample_weight=w)
    np.testing.assert_allclose(q.predict(bags), hq.simplex.project(theirs.predict(Z)), atol=1e-8)


def test_the_penalty_is_the_best_of_estimates_without_the_bag(monkeypatch):
    bags = known_bags(15)
    means = linear._MeanRows(bags, bags.rows.mean(0), bags.rows.std(0))
    vectors, variances = means.spectrum()
    unit, chosen, w = variances.mean(), [], means.weights
    monkeypatch.setattr(linear, "ae", lambda p, estimates: chosen.append(estimates) or np.zeros(len(p)))
    wanted = np.sqrt(w)[:, None] * (bags.prevalences - w @ bags.prevalences)
    linear._best_penalty(vectors, variances / unit, wanted, bags.prevalences, w)
    Z = mean_rows(bags.replaced(rows=(bags.rows - bags.rows.mean(0)) / bags.rows.std(0)))
    for penalty, estimates in zip(linear._PENALTIES, chosen, strict=True):
        for i in (0, 7):
            others = np.arange(15) != i
            model = Ridge(penalty * unit).fit(Z[others], bags.prevalences[others], sample_weight=w[others])
            np.testing.assert_allclose(estimates[i], hq.simplex.project(model.predict(Z[i : i + 1]))[0], atol=1e-6)


def test_sparse_rows_and_parts_of_the_columns_give_the_same_estimates(monkeypatch):
    bags = votes(30)
    dense = hq.LinearQ().fit(bags).predict(bags)
    np.testing.assert_allclose(
        hq.LinearQ().fit(bags.replaced(rows=csr_matrix(bags.rows))).predict(bags), dense, atol=1e-3
    )
    monkeypatch.setattr(linear, "_NUMBERS_AT_ONCE", 1)
    np.testing.assert_allclose(hq.LinearQ().fit(bags).predict(bags), dense, atol=1e-9)


def test_very_many_features_take_the_largest_bags(monkeypatch):
    monkeypatch.setattr(linear, "_MOST_WIDE_BAGS", 3)
    bags = votes(30)
    largest = bags[np.sort(np.argsort(-bags.sizes, kind="stable")[:3])]
    assert linear._few_if_wide(bags).sizes.tolist() == largest.sizes.tolist()


def test_equal_mean_rows_give_the_mean_of_the_bags():
    bags = hq.Bags.from_arrays([np.ones((3, 2))] * 4, prevalences=[[0.2, 0.8], [0.4, 0.6]] * 2)
    np.testing.assert_allclose(hq.LinearQ().fit(bags).predict(bags), [[0.3, 0.7]] * 4)


def test_texts_are_refused():
    message = "rows: LinearQ expects numbers, got texts; vectorise them first, as by TfidfVectorizer."
    with pytest.raises(TypeError, match=exactly(message)):
        hq.LinearQ().fit(["one", "two"] * 10, ["a", "b"] * 10)
