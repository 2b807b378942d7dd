"""Rows that only a classifier reads pass through unchanged: text columns, categories and missing values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import histnetq as hq
from histnetq.bags.shared_rows import part_copied

NUMBERS = make_column_selector(dtype_include="number")
ENCODED = make_column_transformer((StandardScaler(), NUMBERS), (OneHotEncoder(), ["colour"]))
PIPELINE = make_pipeline(ENCODED, LogisticRegression())
BOOSTING = HistGradientBoostingClassifier(max_iter=10, random_state=0)


def frame(n: int = 200, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    colour = np.where(rng.random(n) < 0.2 + 0.6 * y, "red", "blue")
    return pd.DataFrame({"size": rng.normal(size=n) + y, "colour": colour}), y


def with_gaps(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 3)) + y[:, None]
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


class Recording(LogisticRegression):
    """A classifier that keeps the rows that it was fitted to, and reads their first column."""

    def fit(self, X, y):
        self.seen_ = X
        return super().fit(np.asarray(X)[:, :1].astype(float), y)

    def predict_proba(self, X):
        self.asked_ = X
        return super().predict_proba(np.asarray(X)[:, :1].astype(float))


def test_rows_reach_the_classifier_untouched():
    X, y = frame()
    X["colour"] = X["colour"].astype("category")
    q = hq.PACC(Recording(), random_state=0).fit(X, y)
    pd.testing.assert_frame_equal(q.classifier_.seen_, X)
    q.predict(X[:7])
    pd.testing.assert_frame_equal(q.classifier_.asked_, X[:7])
    Z = with_gaps()[0]
    Z[:, 0] = 0.0
    np.testing.assert_array_equal(hq.PACC(Recording()).fit(Z, y).classifier_.seen_, Z)


@pytest.mark.parametrize("name", ["CC", "PACC", "EMQ", "KDEy"])
@pytest.mark.parametrize(("make", "classifier"), [(frame, PIPELINE), (with_gaps, BOOSTING)])
def test_methods_take_what_their_classifier_takes(name, make, classifier):
    (X, y), (new, truth) = make(), make(seed=1)
    q = getattr(hq, name)(classifier, random_state=0).fit(X, y)
    assert abs(q.predict(new)[1] - 0.5) < 0.2
    assert abs(q.predict(new[truth == 1])[1] - 1.0) < 0.4
    several = q.predict([new[:50], new[50:]])
    np.testing.assert_allclose(several, [q.predict(new[:50]), q.predict(new[50:])])
    bags = hq.Bags.from_labels(new, truth, groups=np.arange(200) // 50)
    drawn = hq.APP(20).draw(bags, 30, random_state=0)
    q.calibrate(drawn)
    assert set(q.trust(bags)["trust"]) <= {"unchecked", "unchecked; small"}
    assert len(hq.evaluate(q, drawn)) == 30
    _, p = q.predict_stream([(np.arange(200) // 50, new)])
    np.testing.assert_allclose(p, q.predict(q.sketch(bags)), atol=1e-12)


def test_frames_of_numbers_reach_column_transformers_with_names():
    X, y = frame()
    numeric = X[["size"]].assign(other=1.0)
    by_name = make_pipeline(make_column_transformer((StandardScaler(), ["size"])), LogisticRegression())
    p = hq.EMQ(by_name, random_state=0).fit(numeric, y).predict(numeric)
    alone = make_pipeline(StandardScaler(), LogisticRegression())
    np.testing.assert_allclose(p, hq.EMQ(alone, random_state=0).fit(X[["size"]], y).predict(X[["size"]]))


def test_prefitted_pipelines_composed_methods_and_the_baseline():
    X, y = frame()
    fitted = make_pipeline(ENCODED, LogisticRegression()).fit(X, y)
    same = hq.CC(fitted, cv=None).fit(X, y)
    assert same.predict(X)[1] == fitted.predict(X).mean()
    both = hq.Ensemble([hq.PACC(PIPELINE, random_state=0), hq.MLPE()]).fit(X, y)
    assert both.predict(X[y == 1])[1] > 0.6
    assert hq.Corrected(hq.PACC(PIPELINE, random_state=0), n_bags=30, random_state=0).fit(X, y).predict(X).shape == (2,)


def test_models_with_missing_values_are_saved(tmp_path):
    X, y = with_gaps()
    q = hq.EMQ(BOOSTING, random_state=0).fit(X, y)
    q.save(tmp_path / "model")
    np.testing.assert_array_equal(hq.load(tmp_path / "model").predict(X), q.predict(X))


@pytest.mark.parametrize("method", [hq.EMQ(), hq.EMQ("forest"), hq.HDx(), hq.HistNetQ()], ids=repr)
def test_other_methods_refuse_such_rows(method):
    X, y = frame()
    with pytest.raises(TypeError, match=r"^X: expected numbers, got dtype \w+ in column 'colour'; encode categories"):
        method.fit(X, y)
    Z, y = with_gaps()
    i, j = np.argwhere(np.isnan(Z))[0]
    with pytest.raises(ValueError, match=rf"^X: row {i}, column {j} is NaN or infinite, expected finite numbers; drop"):
        method.fit(Z, y)


def test_missing_values_at_prediction_and_validation():
    Z, y = with_gaps()
    clean = np.nan_to_num(Z)
    for fitted in (hq.PACC().fit(clean, y), hq.HDx().fit(clean, y)):
        with pytest.raises(ValueError, match=r"^rows: row .* is NaN or infinite"):
            fitted.predict(Z)
        with pytest.raises(ValueError, match=r"^rows: row .* is NaN or infinite"):
            fitted.predict_stream([(y, Z)])
    with pytest.raises(ValueError, match=r"^X: row .* is NaN or infinite"):
        hq.HistNetQ().fit(clean, y, validation=hq.Bags.from_labels(Z, y))
    with pytest.raises(ValueError, match=r"^rows: row .* is NaN or infinite"):
        hq.PACC().fit_posteriors([[0.9, 0.1], [0.2, 0.8]], [0, 1]).predict_posteriors(np.array([[np.nan, 1.0]]))


def test_bags_of_such_rows_are_joined_and_compared():
    X, _ = frame(40)
    bags = hq.Bags.from_arrays([X[:20], X[20:]])
    assert str(bags) == "Bags(n_bags=2, sizes=20, rows=(40, 2) object)"
    pd.testing.assert_frame_equal(bags.rows.values, X)
    Z, _ = with_gaps(40)
    gaps = pd.DataFrame(Z, columns=list("abc"))
    pd.testing.assert_frame_equal(
        hq.Bags.from_arrays([gaps.fillna(0.0), gaps]).rows.values[40:].reset_index(drop=True), gaps
    )
    assert hq.Bags.concat([bags, bags[:1]]).rows.shape == (40, 2)
    assert part_copied(bags) == 0.0
    measured = pd.concat([X, gaps], axis=1)
    assert part_copied(hq.Bags.from_arrays([measured, measured])) == 1.0
    assert bags.fingerprint() == hq.Bags.from_arrays([X[:20], X[20:]]).fingerprint() != bags[:1].fingerprint()
