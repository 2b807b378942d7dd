import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

import histnetq as hq
from histnetq.quantifiers.classical import cross_fitting
from histnetq.quantifiers.classical.classifiers import made, shares_cores


def rows(n=400, seed=0):
    """Rows of four classes whose features are not centred and differ in scale."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    return (rng.normal(size=(n, 6)) + np.eye(4, 6)[y] * 2 + 5) * [1, 10, 1, 100, 1, 1], y


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(cross_fitting, "_SIDE_BY_SIDE", range(1 << 30))
    monkeypatch.setattr(cross_fitting, "count_cores", lambda: 2)


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def watched(monkeypatch, then):
    """Have each fit of a logistic regression call a function first."""
    fit = LogisticRegression.fit
    monkeypatch.setattr(LogisticRegression, "fit", lambda self, *given, **more: then() or fit(self, *given, **more))


def test_fits_run_at_the_same_time_on_one_thread_each(monkeypatch, two_cores):
    meeting, seen = threading.Barrier(2), []
    watched(monkeypatch, lambda: seen.append((meeting.wait(timeout=60), blas_threads())) or None)
    with threadpool_limits(2, "blas"):
        hq.EMQ(random_state=0).fit(*rows())
        assert blas_threads() == {2}
    assert len(seen) == 6
    assert all(threads == {1} for _, threads in seen)


@pytest.mark.parametrize("kind", ["plain", "sparse", "weighted", "several bags", "held out"])
def test_posteriors_do_not_depend_on_the_number_of_cores(monkeypatch, kind):
    X, y = rows()
    given = hq.Bags.from_labels(sparse.csr_matrix(X) if kind == "sparse" else X, y)
    if kind == "weighted":
        given = hq.Bags.from_labels(X, y, weights=1 + np.arange(len(y)) % 3)
    if kind == "several bags":
        given = hq.APP(30).draw(given, 20, random_state=0)
    cv = 0.3 if kind == "held out" else 4
    found = []
    for n_cores, sizes in [(1, range(0)), (1, range(1 << 30)), (2, range(1 << 30)), (7, range(1 << 30))]:
        monkeypatch.setattr(cross_fitting, "_SIDE_BY_SIDE", sizes)
        monkeypatch.setattr(cross_fitting, "count_cores", lambda n_cores=n_cores: n_cores)
        with threadpool_limits(1, "blas"):
            found.append(hq.EMQ(cv=cv, random_state=0).cross_fit(given))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].posteriors, other.posteriors)
        np.testing.assert_array_equal(found[0].labels, other.labels)
        np.testing.assert_array_equal(found[0].classifier[-1].coef_, other.classifier[-1].coef_)


def test_the_default_is_the_pipeline_that_one_would_write(two_cores):
    X, y = rows(2000)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    expected = cross_val_predict(pipeline, X, y, cv=folds, method="predict_proba")
    crossed = hq.EMQ(random_state=0).cross_fit(X, y)
    np.testing.assert_allclose(crossed.posteriors, expected, atol=1e-6)

    new = rows(3000, seed=1)[0][:900]
    posteriors, prior = pipeline.fit(X, y).predict_proba(new), np.bincount(y) / len(y)
    p = prior
    for _ in range(3000):
        scaled = posteriors * (p / prior)
        p = (scaled / scaled.sum(1, keepdims=True)).mean(0)
    np.testing.assert_allclose(hq.EMQ(random_state=0).fit(X, y).predict(new), p, atol=1e-4)


@pytest.mark.parametrize("fails", [0, 5])
def test_an_error_in_a_fit_is_raised_and_threads_are_given_back(monkeypatch, two_cores, fails):
    calls = []

    def fail():
        calls.append(None)
        if len(calls) == fails + 1:
            raise LookupError("lost")

    watched(monkeypatch, fail)
    with threadpool_limits(2, "blas"):
        with pytest.raises(LookupError, match=r"^lost$"):
            hq.EMQ(random_state=0).fit(*rows())
        assert blas_threads() == {2}


def test_two_fits_at_once_give_back_all_threads(two_cores):
    with threadpool_limits(2, "blas"):
        with ThreadPoolExecutor(2) as pool:
            first, again = pool.map(lambda _: hq.EMQ(random_state=0).fit(*rows()), range(2))
        assert blas_threads() == {2}
    np.testing.assert_array_equal(first.training_posteriors_, again.training_posteriors_)


class Subclass(LogisticRegression):
    pass


class NearestMean(ClassifierMixin, BaseEstimator):
    """A classifier that is not made for threads: it must be fitted here, and one fit must end before the next."""

    busy = False

    def fit(self, X, y):
        assert threading.current_thread() is threading.main_thread()
        assert not NearestMean.busy
        NearestMean.busy = True
        self.classes_ = np.unique(y)
        self.means_ = np.stack([X[y == c].mean(0) for c in self.classes_])
        NearestMean.busy = False
        return self

    def predict_proba(self, X):
        near = -np.abs(X[:, None] - self.means_).sum(2)
        p = np.exp(near - near.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True)


OWN = {
    "not made for threads": NearestMean(),
    "a subclass": make_pipeline(StandardScaler(), Subclass()),
    "cores of its own": RandomForestClassifier(5, n_jobs=2),
    "a search with processes": GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-3]}, cv=2, n_jobs=2),
    "OpenMP": HistGradientBoostingClassifier(max_iter=5),
    "a network": MLPClassifier((5,), max_iter=300, early_stopping=True),
    "a solver that draws": make_pipeline(StandardScaler(), LogisticRegression(solver="saga", max_iter=1000)),
    "another step": make_pipeline(MinMaxScaler(), LogisticRegression()),
    "a step left out": Pipeline([("scaler", "passthrough"), ("last", GaussianNB())]),
}


@pytest.mark.parametrize("classifier", OWN.values(), ids=OWN)
def test_other_classifiers_are_fitted_one_after_another(monkeypatch, two_cores, classifier):
    monkeypatch.setattr(cross_fitting, "_side_by_side", lambda fits: pytest.fail("side by side"))
    X, y = rows()
    first, again = (hq.EMQ(classifier, cv=2, random_state=0).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.training_posteriors_, again.training_posteriors_)
    assert first.predict(X[y < 2]).argmax() < 2


def test_logistic_regressions_share_the_cores():
    assert shares_cores(LogisticRegression())
    assert shares_cores(LogisticRegression(solver="newton-cholesky"))
    assert shares_cores(make_pipeline(StandardScaler(), LogisticRegression(C=3)))
    assert not shares_cores(LogisticRegression(solver="liblinear"))
    assert not any(shares_cores(made(name)) for name in ("forest", "boosting", "mlp", "bayes"))


@pytest.mark.parametrize(("n_rows", "together"), [(100, False), (3000, True)])
def test_few_rows_need_no_threads(monkeypatch, n_rows, together):
    calls, run = [], cross_fitting._side_by_side
    monkeypatch.setattr(cross_fitting, "_side_by_side", lambda fits: calls.append(None) or run(fits))
    hq.CC(cv=2, random_state=0).fit(*rows(n_rows))
    assert bool(calls) is together


@pytest.mark.filterwarnings("error::UserWarning:sklearn")
def test_a_classifier_that_was_fitted_to_a_data_frame_gets_its_columns_by_name():
    X, y = rows()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    scaled = make_pipeline(make_column_transformer((StandardScaler(), ["f", "b", "c"])), LogisticRegression())
    for by_name in (GaussianNB(), scaled):
        found = hq.PACC(by_name.fit(frame, y), cv=None).fit(frame, y).predict([frame[:99], frame[99:]])
        assert np.isfinite(found).all()
    np.testing.assert_array_equal(
        hq.CC(GaussianNB().fit(frame, y), cv=None).fit(frame, y).predict(frame),
        hq.CC(GaussianNB().fit(X, y), cv=None).fit(X, y).predict(X),
    )


def test_copies_of_a_row_are_in_one_fold_and_named():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(2, size=60)  # labels by chance
    copied = np.repeat(np.arange(60), 3)
    with pytest.warns(UserWarning, match="y: 67% of the labelled rows are copies of other rows, which are kept in the"):
        crossed = hq.EMQ(RandomForestClassifier(30, random_state=0), cv=5, random_state=0).cross_fit(
            X[copied], y[copied]
        )
    right = crossed.posteriors.argmax(1) == y[copied]
    assert right.mean() < 0.7, "no classifier knew a copy of the row that it predicts"


@pytest.mark.filterwarnings("error")
def test_equal_answers_of_different_people_are_divided_as_before():
    rng = np.random.default_rng(0)
    X, y = rng.integers(2, size=(200, 2)).astype(float), rng.integers(2, size=200)
    found = hq.EMQ(cv=5, random_state=0).cross_fit(X, y)
    assert len(np.unique(found.posteriors[(X == 0).all(1)], axis=0)) == 5
