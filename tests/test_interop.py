"""Our quantifiers and bags inside QuaPy give what they give here, and QuaPy's here what they give there."""

from __future__ import annotations

import copy
import itertools
import pickle
import sys
from functools import partial

import numpy as np
import pytest
import quapy as qp
from quapy.method import aggregative
from quapy.method.base import BaseQuantifier, OneVsAllGeneric, newOneVsAll
from quapy.method.non_aggregative import DMx, MaximumLikelihoodPrevalenceEstimation
from quapy.model_selection import GridSearchQ
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import histnetq as hq
from histnetq.interop import QuapyQuantifier, bags_from_quapy, bags_to_quapy, from_quapy, to_quapy
from tests.conftest import SMALL, exactly, known_bags, labelled


def collection(**kwargs) -> qp.data.LabelledCollection:
    return qp.data.LabelledCollection(*labelled(**kwargs))


def protocols() -> dict[str, qp.protocol.AbstractProtocol]:
    """Protocols of every kind, all on 3 classes."""
    data, other = collection(seed=1), collection(seed=2)
    samples = [data.sampling(7, 0.2, 0.8, 0.0, random_state=0), data.sampling(9, random_state=1)]
    return {
        "APP": qp.protocol.APP(data, sample_size=10, n_prevalences=3, repeats=2),
        "UPP": qp.protocol.UPP(data, sample_size=10, repeats=5, random_state=7),
        "NPP": qp.protocol.NPP(data, sample_size=10, repeats=5, return_type="labelled_collection"),
        "Dirichlet": qp.protocol.DirichletProtocol(data, 2.0, sample_size=10, repeats=5),
        "ProtocolFromIndex": qp.protocol.ProtocolFromIndex(data, [[0, 1, 1], [5, 4]]),
        "IterateProtocol": qp.protocol.IterateProtocol(samples),
        "DomainMixer": qp.protocol.DomainMixer(data, other, sample_size=10, mixture_points=3),
        "bags": bags_to_quapy(known_bags()),
    }


ON_ONE_POOL = ["APP", "UPP", "NPP", "Dirichlet", "ProtocolFromIndex"]


@pytest.mark.parametrize(
    "make",
    [partial(hq.PACC, random_state=0), partial(hq.EMQ, random_state=0), lambda: hq.HistNetQ(n_bins=4, **SMALL)],
    ids=["PACC", "EMQ", "HistNetQ"],
)
def test_evaluation_in_quapy_equals_ours(make):
    X, y = labelled()
    q = to_quapy(make()).fit(X, y)
    assert isinstance(q, BaseQuantifier)
    assert q.classes_.tolist() == ["a", "b", "c"]
    bags = known_bags()
    p = make().fit(X, y).predict(bags)
    expected = hq.metrics.ae(bags.prevalences, p)
    protocol = bags_to_quapy(bags)
    assert qp.evaluation.evaluate(q, protocol, "mae") == pytest.approx(expected.mean(), abs=1e-6)
    report = qp.evaluation.evaluation_report(q, protocol, error_metrics=["ae", "se"])
    np.testing.assert_allclose(report["ae"], expected, atol=1e-6)
    np.testing.assert_allclose(np.stack(report["estim-prev"]), p, atol=1e-6)


def test_evaluation_on_quapys_protocol_equals_ours_on_its_bags():
    q = hq.EMQ().fit(*labelled())
    protocol = qp.protocol.UPP(collection(seed=1), sample_size=20, repeats=10)
    bags = bags_from_quapy(protocol)
    ours = hq.metrics.ae(bags.prevalences, q.predict(bags)).mean()
    assert qp.evaluation.evaluate(to_quapy(q), protocol, "mae") == pytest.approx(ours, abs=1e-12)


def test_grid_search_chooses_what_a_loop_chooses():
    X, y = labelled()
    held = collection(seed=3)
    protocol = qp.protocol.UPP(held, sample_size=20, repeats=20)
    grid = {"rescaling": [None, "bcts"], "classifier__C": [1e-4, 1.0]}
    search = GridSearchQ(
        to_quapy(hq.EMQ(LogisticRegression(max_iter=1000), random_state=0)),
        grid,
        protocol,
        error="mae",
        refit=True,
        raise_errors=True,
    ).fit(X, y)
    bags = bags_from_quapy(protocol)
    errors = {}
    for calibration, C in itertools.product(*grid.values()):
        q = hq.EMQ(LogisticRegression(C=C, max_iter=1000), rescaling=calibration, random_state=0).fit(X, y)
        errors[calibration, C] = hq.metrics.ae(bags.prevalences, q.predict(bags)).mean()
    best = min(errors, key=errors.get)
    assert len(set(errors.values())) == 4
    assert search.best_params_ == {"rescaling": best[0], "classifier__C": best[1]}
    assert search.best_score_ == pytest.approx(errors[best], abs=1e-12)
    again = hq.EMQ(LogisticRegression(C=best[1], max_iter=1000), rescaling=best[0], random_state=0)
    again.fit(np.concatenate([X, held.X]), np.concatenate([y, held.y]))
    np.testing.assert_allclose(search.predict(held.X), again.predict(held.X), atol=1e-12)


def test_grid_search_over_a_network():
    grid = {"n_bins": [2, 4], "training__lr": [1e-3, 1e-2]}
    search = GridSearchQ(to_quapy(hq.HistNetQ(**SMALL)), grid, bags_to_quapy(known_bags()), refit=False)
    search.fit(*labelled())
    assert len(search.param_scores_) == 4
    chosen = search.best_model().quantifier
    assert (chosen.n_bins, chosen.training.lr) == tuple(search.best_params_.values())


def test_one_versus_all_equals_a_loop():
    X, y = labelled()
    q = newOneVsAll(to_quapy(hq.PACC(random_state=0)))
    assert isinstance(q, OneVsAllGeneric)
    q.fit(X, y)
    each = np.array([hq.PACC(random_state=0).fit(X, y == c).predict(X[:30])[1] for c in "abc"])
    np.testing.assert_allclose(q.predict(X[:30]), each / each.sum(), atol=1e-12)
    assert q.dict_binary_quantifiers["a"].classes_.tolist() == [False, True]


def test_the_adapter_is_a_view():
    q = hq.EMQ()
    adapter = to_quapy(q)
    assert repr(adapter) == "to_quapy(EMQ())"
    assert not hasattr(adapter, "classes_")
    adapter.set_params(rescaling="bcts", classifier__C=0.5).fit(*labelled())
    assert (q.rescaling, q.classifier[-1].C, q.classifier[-1].max_iter) == ("bcts", 0.5, 1000)
    assert adapter.get_params() == q.get_params()
    assert adapter.quantify(labelled()[0]).shape == (3,)
    assert from_quapy(adapter) is q


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda q: pickle.loads(pickle.dumps(q))])
def test_copies_of_the_adapter_are_apart(duplicate):
    X, y = labelled()
    q = to_quapy(hq.EMQ()).fit(X, y)
    twin = duplicate(q)
    assert isinstance(twin, BaseQuantifier)
    assert twin.quantifier is not q.quantifier
    np.testing.assert_array_equal(twin.predict(X), q.predict(X))
    twin.set_params(rescaling="ts")
    assert q.quantifier.rescaling == "auto"


def test_clone_of_the_adapter_is_unfitted():
    twin = clone(to_quapy(hq.EMQ(cv=3)).fit(*labelled()))
    assert twin.get_params()["cv"] == 3
    with pytest.raises(NotFittedError, match=exactly("EMQ is not fitted; call fit first, or load a saved model.")):
        twin.predict(np.zeros((2, 4)))


def test_columns_are_sorted_by_class_inside_quapy():
    bags = known_bags()
    reversed_bags = bags.with_classes(["c", "b", "a"])
    for ordered, other in zip(bags_to_quapy(bags)(), bags_to_quapy(reversed_bags)(), strict=True):
        np.testing.assert_array_equal(ordered[1], other[1])
    q = hq.HistNetQ(n_bins=4, **SMALL).fit(reversed_bags)
    adapter = to_quapy(q)
    assert adapter.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(adapter.predict(bags[0].gather()), q.predict(bags[0].gather())[::-1])
    ours = hq.metrics.ae(reversed_bags.prevalences, q.predict(reversed_bags)).mean()
    assert qp.evaluation.evaluate(adapter, bags_to_quapy(reversed_bags), "mae") == pytest.approx(ours, abs=1e-6)


QUAPYS = {
    "CC": aggregative.CC,
    "PACC": aggregative.PACC,
    "EMQ": aggregative.EMQ,
    "KDEyML": aggregative.KDEyML,
    "OneVsAll": lambda: newOneVsAll(aggregative.HDy()),
    "DMx": DMx,
    "MLPE": MaximumLikelihoodPrevalenceEstimation,
    "GridSearchQ": lambda: GridSearchQ(
        aggregative.PCC(), {"classifier__C": [0.1, 1]}, bags_to_quapy(known_bags()), refit=False
    ),
}


@pytest.mark.parametrize("name", QUAPYS)
def test_quapys_quantifiers_equal_themselves(name):
    X, y = labelled()
    direct = QUAPYS[name]().fit(X, y)
    bags = known_bags(5)
    expected = np.stack([direct.predict(bag.gather()) for bag in bags])
    q = from_quapy(QUAPYS[name]()).fit(X, y)
    assert isinstance(q, hq.Quantifier)
    assert q.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(q.train_prevalences_, 1 / 3)
    np.testing.assert_allclose(q.predict(bags), expected, atol=1e-9)
    np.testing.assert_allclose(q.predict(bags[0].gather()), expected[0], atol=1e-9)
    fitted = from_quapy(direct, classes=["a", "b", "c"] if name == "DMx" else None)  # DMx does not tell its classes
    assert fitted.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(fitted.predict(bags), expected, atol=1e-9)


def test_each_row_is_classified_once():
    class Counting(LogisticRegression):
        n_rows = 0

        def predict_proba(self, X):
            Counting.n_rows += X.shape[0]
            return super().predict_proba(X)

    X, y = labelled()
    q = from_quapy(aggregative.PACC(Counting())).fit(X, y)
    Counting.n_rows = 0
    q.predict(hq.Bags(X, [0, 1, 1, 2, 0, 2], [0, 2, 6]))
    assert Counting.n_rows == 3


def test_fitting_leaves_the_given_quantifier_alone():
    given = aggregative.PACC()
    q = from_quapy(given).fit(*labelled())
    assert not hasattr(given, "Pte_cond_estim_")
    assert to_quapy(q) is q.quantifier_
    assert to_quapy(from_quapy(given)) is given


def test_clone_params_and_repr_of_quapys():
    q = from_quapy(aggregative.EMQ()).fit(*labelled())
    assert repr(q).startswith("QuapyQuantifier(quantifier=EMQ(")
    twin = clone(q).set_params(quantifier__classifier__C=0.5)
    assert (twin.quantifier.classifier.C, q.quantifier.classifier.C) == (0.5, 1.0)
    with pytest.raises(NotFittedError, match=r"^QuapyQuantifier is not fitted; call fit first"):
        twin.predict(known_bags())


@pytest.mark.parametrize("name", ["CC", "DMx"])
def test_counts_are_copies(name):
    X, y = labelled()
    q = from_quapy(QUAPYS[name]()).fit(X, y)
    counts = hq.Bags(X, [0, 1, 2, 3], [0, 2, 4], weights=[3, 1, 2, 5])
    copies = hq.Bags(X, [0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 3], [0, 4, 11])
    np.testing.assert_array_equal(q.predict(counts), q.predict(copies))
    repeats = np.arange(120) % 3 + 1
    weighted = clone(q).fit(hq.Bags.from_labels(X, y, weights=repeats))
    repeated = clone(q).fit(np.repeat(X, repeats, 0), np.repeat(y, repeats))
    np.testing.assert_allclose(weighted.train_prevalences_, [1 / 6, 2 / 6, 3 / 6])
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-9)
    protocol = [rows.tolist() for rows, _ in bags_to_quapy(counts.with_prevalences([[1, 0], [0, 1]]))()]
    assert protocol == [bag.gather().tolist() for bag in copies]


def test_rows_without_labels_are_left_out():
    X, y = labelled()
    codes = np.unique(y, return_inverse=True)[1]
    some = hq.Bags(X, labels=np.where(np.arange(120) < 60, codes, -1), classes=["a", "b", "c"])
    q, expected = from_quapy(aggregative.PCC()).fit(some), from_quapy(aggregative.PCC()).fit(X[:60], y[:60])
    np.testing.assert_array_equal(q.predict(X), expected.predict(X))


@pytest.mark.parametrize("name", protocols())
def test_bags_of_a_protocol_are_its_samples(name):
    protocol = protocols()[name]
    bags = bags_from_quapy(protocol)
    assert len(bags) == protocol.total()
    assert bags.ids.tolist() == list(range(len(bags)))
    for bag, sample in zip(bags, protocol(), strict=True):
        rows, prevalence = sample.Xp if isinstance(sample, qp.data.LabelledCollection) else sample
        np.testing.assert_array_equal(bag.gather(), rows)
        np.testing.assert_allclose(bag.prevalences[0], prevalence, rtol=1e-15)
    if name != "bags":  # which knows prevalences alone
        assert bags.classes.tolist() == ["a", "b", "c"]
        np.testing.assert_allclose(bags.label_prevalences(), bags.prevalences)


@pytest.mark.parametrize("name", ON_ONE_POOL)
def test_no_row_is_copied(name):
    protocol = protocols()[name]
    assert bags_from_quapy(protocol).rows is protocol.data.instances


def test_a_collection_is_one_labelled_bag():
    X, y = labelled()
    data = qp.data.LabelledCollection(sparse.csr_matrix(X), y, classes=["a", "b", "c", "d"])
    bags = bags_from_quapy(data)
    assert bags.rows is data.instances
    assert bags.classes.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_allclose(bags.prevalences, [[1 / 3, 1 / 3, 1 / 3, 0]])
    assert bags.classes[bags.labels].tolist() == y.tolist()


def test_bags_to_quapy_and_back():
    bags = hq.Bags.from_labels(*labelled(), groups=np.arange(120) % 7)
    bags.prevalences = None  # counted from labels
    protocol = bags_to_quapy(bags)
    assert protocol.total() == 7
    back = bags_from_quapy(pickle.loads(pickle.dumps(protocol)))
    np.testing.assert_array_equal(back.gather(), bags.gather())
    np.testing.assert_array_equal(back.prevalences, bags.label_prevalences())
    assert repr(protocol).startswith("bags_to_quapy(Bags(n_bags=7")


def survey_bags() -> hq.Bags:
    return hq.Bags(np.zeros((2, 4)), weights=[0.5, 1.5], weight_kind="survey", prevalences=[[1, 0]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: to_quapy(aggregative.CC()),
            TypeError,
            "quantifier: expected a quantifier of histnetq, got CC; make one such as EMQ().",
        ),
        (
            lambda: from_quapy(hq.CC()),
            TypeError,
            "quantifier: expected a quantifier of QuaPy, got CC; make one such as quapy.method.aggregative.EMQ().",
        ),
        (
            lambda: from_quapy(aggregative.CC()).fit(*labelled()).save("x"),
            TypeError,
            "save: CC is QuaPy's and has no format without code; pickle quantifier_, or use a quantifier of histnetq.",
        ),
        (
            lambda: from_quapy(aggregative.CC()).fit(*labelled()).predict(survey_bags()),
            ValueError,
            "weights: QuaPy knows no weights, expected none or counts, got survey weights; make the bags without "
            "weights or with weight_kind='count'.",
        ),
        (
            lambda: bags_to_quapy(survey_bags()),
            ValueError,
            "weights: QuaPy knows no weights, expected none or counts, got survey weights; make the bags without "
            "weights or with weight_kind='count'.",
        ),
        (
            lambda: from_quapy(aggregative.CC()).fit(known_bags()),
            ValueError,
            "bags: this quantifier learns from labelled rows, got bags of known proportions; use fit(X, y), Bags with "
            "labels, or HistNetQ, which learns from proportions.",
        ),
        (
            lambda: from_quapy(aggregative.CC()).fit(np.zeros((2, 4))),
            TypeError,
            "y: expected a label for each row of X, got None; this quantifier learns from labelled rows.",
        ),
        (
            lambda: from_quapy(aggregative.CC()).fit(*labelled()).predict(np.zeros((2, 3))),
            ValueError,
            "rows: expected 4 features as in training, got 3 features; give the same columns in the same order.",
        ),
        (
            lambda: bags_from_quapy(np.zeros((2, 4))),
            TypeError,
            "source: expected a LabelledCollection or a protocol of QuaPy, got ndarray; pass the .training or "
            ".test of a Dataset.",
        ),
        (
            lambda: bags_from_quapy(qp.protocol.IterateProtocol([])),
            ValueError,
            "source: expected a protocol that yields samples, got none from it; check its parameters.",
        ),
        (
            lambda: bags_to_quapy(hq.Bags(np.zeros((2, 4)))),
            ValueError,
            "bags: expected the proportions of each bag, got none; pass them by bags.with_prevalences(P).",
        ),
        (
            lambda: bags_to_quapy(np.zeros((2, 4))),
            TypeError,
            "bags: expected Bags, got ndarray; make them with Bags.from_arrays.",
        ),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=exactly(message)):
        call()


def test_names_of_classes_may_be_given():
    class Silent(BaseQuantifier):
        def fit(self, X, y):
            return self

        def predict(self, X):
            return np.array([0.25, 0.75])

    with pytest.raises(NotFittedError):
        from_quapy(Silent()).predict(np.zeros((2, 4)))
    q = from_quapy(Silent(), classes=["no", "yes"])
    assert q.classes_.tolist() == ["no", "yes"]
    assert q.predict(hq.Bags(np.zeros((4, 2)), offsets=[0, 1, 4])).tolist() == [[0.25, 0.75]] * 2
    assert isinstance(q, QuapyQuantifier)
    assert q.fit(*labelled()).classes_.tolist() == ["a", "b", "c"]


def test_several_bags_as_arrays_for_a_quantifier_that_was_fitted_in_quapy():
    X, y = labelled()
    fitted = aggregative.CC(LogisticRegression()).fit(X, y)
    expected = np.stack([fitted.predict(X[:30]), fitted.predict(X[30:])])
    assert from_quapy(fitted).predict([X[:30], X[30:]]).tolist() == expected.tolist()
    assert from_quapy(fitted).predict(X[:30].tolist()).tolist() == expected[0].tolist()


def test_without_quapy(monkeypatch):
    for name in [name for name in sys.modules if name == "quapy" or name.startswith("quapy.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "quapy", None)
    with pytest.raises(ImportError, match=exactly("interop: needs QuaPy; pip install quapy.")):
        bags_from_quapy(None)
