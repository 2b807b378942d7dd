"""Posteriors that are not probabilities are refused in one sentence, wherever they enter."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import histnetq as hq
from histnetq.quantifiers.classical.posterior_checks import check_posteriors
from histnetq.registry import REGISTRY
from tests.conftest import FOLDS, QUANTIFIERS, exactly, labelled

FAR = 1e6
READERS = [name for name, make in QUANTIFIERS.items() if "classifier" in make().get_params(deep=False)]
SENTENCE = (
    "classifier: returned {got} for {n} of {n} rows, expected probabilities between 0 and 1 that sum to 1; "
    "check the classifier and its inputs."
)


class LostFarAway(LogisticRegression):
    """A classifier whose posteriors of rows far away are all one number."""

    lost = np.nan

    def predict_proba(self, X):
        p = super().predict_proba(X)
        p[np.abs(X[:, 0]) > FAR / 2] = self.lost
        return p


class Infinite(LostFarAway):
    lost = np.inf


class Negative(LostFarAway):
    lost = -0.25


class Sums(LostFarAway):
    lost = 0.25


def far_rows(n=40):
    return labelled(n)[0] + FAR


def test_all_methods_that_read_a_classifier_are_here():
    kinds = {name for name, entry in REGISTRY.items() if "classifier" in entry.load()().get_params(deep=False)}
    assert kinds == {name.split("-")[0] for name in READERS}
    assert len(kinds) >= 14


@pytest.mark.parametrize("name", READERS)
def test_a_classifier_that_returns_nan_is_refused(name):
    X, y = labelled()
    with pytest.raises(ValueError, match=exactly(SENTENCE.format(got="NaN", n=40))):
        QUANTIFIERS[name](classifier=LostFarAway()).fit(X + FAR, y)
    q = QUANTIFIERS[name](classifier=LostFarAway()).fit(X, y)
    message = exactly(SENTENCE.format(got="NaN", n=40))
    with pytest.raises(ValueError, match=message):
        q.predict(far_rows())
    if name != "QuaNet":
        for method in ("bootstrap", "bayes"):
            with pytest.raises(ValueError, match=message):
                q.predict_interval(far_rows(), method=method)
        for ask in (q.sketch, q.predict_rows, q.estimate_performance):
            with pytest.raises(ValueError, match=message):
                ask(far_rows())


@pytest.mark.parametrize("name", ["Ensemble", "Corrected"])
def test_composed_methods_refuse_it_too(name):
    X, y = labelled()
    inner = hq.PACC(LostFarAway(), **FOLDS)
    q = hq.Ensemble((inner, hq.MLPE())) if name == "Ensemble" else hq.Corrected(inner, random_state=0)
    q.fit(X, y)
    with pytest.raises(ValueError, match=r"^classifier: returned NaN for 40 of 40 rows"):
        q.predict(far_rows())


def test_all_of_4000_rows():
    X, y = labelled(4000)
    q = hq.CC(LostFarAway(), **FOLDS).fit(X, y)
    with pytest.raises(ValueError, match=exactly(SENTENCE.format(got="NaN", n="4,000"))):
        q.predict(X + FAR)


@pytest.mark.parametrize(
    ("kind", "got"),
    [(Infinite, "infinity"), (Negative, "numbers from -0.25 to 1"), (Sums, "numbers that sum to 0.75")],
)
def test_other_numbers_that_are_no_probabilities(kind, got):
    q = hq.HDy(kind(), **FOLDS).fit(*labelled())
    with pytest.raises(ValueError, match=exactly(SENTENCE.format(got=got, n=40))):
        q.predict(far_rows())


def test_a_classifier_with_a_column_too_many():
    class Wide(LostFarAway):
        def predict_proba(self, X):
            return np.hstack([super().predict_proba(X), np.zeros((len(X), 1))])

    message = (
        "classifier: returned probabilities of shape (40, 4), expected (40, 3), one row per example and one column per "
        "class; check the classifier."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        hq.CC(Wide(), **FOLDS).fit(*labelled())


def test_rounding_is_clipped_and_rescaled():
    p = check_posteriors(np.array([[1 + 5e-7, -5e-7], [0.3, 0.7004], [0.25, 0.75]]), 2)
    assert p.min() >= 0
    assert p.max() <= 1
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-15)
    np.testing.assert_allclose(p, [[1, 0], [0.3, 0.7], [0.25, 0.75]], atol=3e-4)
    for wrong in ([[1 + 2e-6, 0.0]], [[1.0, -2e-6]], [[0.5, 0.502]], [[np.nan, 1.0]]):
        with pytest.raises(ValueError, match=r"^posteriors: expected rows of probabilities that sum to 1, got "):
            check_posteriors(np.array(wrong), 2)


def test_given_posteriors_say_what_came():
    q = hq.HDy().fit_posteriors([[0.9, 0.1], [0.2, 0.8]] * 10, ["a", "b"] * 10)
    message = (
        "posteriors: expected rows of probabilities that sum to 1, got NaN for 1 of 2 rows; "
        "apply a softmax to scores first."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        q.predict_posteriors(hq.Bags.trusted(np.array([[0.5, 0.5], [np.nan, 0.5]]), np.arange(2), np.array([0, 2])))
