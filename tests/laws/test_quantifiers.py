"""The laws that every quantifier keeps."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import re

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import histnetq as hq
from histnetq.quantifiers.networks.deep_quantifier import DeepQuantifier
from tests.conftest import (
    CLASSICAL,
    QUANTIFIERS,
    REPRESENTATIVES,
    STARTING,
    bags_to_learn,
    exactly,
    known_bags,
    labelled,
    learn,
    learned,
)


@pytest.fixture(scope="session")
def fitted_to_bags(make_starting):
    return make_starting().fit(known_bags())


def shuffled(bags: hq.Bags, seed: int = 0) -> hq.Bags:
    """The same bags with their entries in another order."""
    order = np.argsort(bags.bag_of_entry + np.random.default_rng(seed).random(len(bags.index)), kind="stable")
    return bags.drawn(bags.index[order], bags.offsets, None, None)


def test_estimates_lie_on_the_simplex(fitted):
    p = fitted.predict(known_bags(20, seed=3))
    assert p.shape == (20, 3)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)


def test_the_order_of_rows_is_irrelevant(fitted):
    bags = known_bags(seed=4)
    np.testing.assert_allclose(fitted.predict(shuffled(bags)), fitted.predict(bags), atol=1e-6)


def test_many_bags_equal_one_by_one(fitted):
    bags = known_bags(seed=5)
    alone = np.concatenate([fitted.predict(bag) for bag in bags])
    as_arrays = np.stack([fitted.predict(bag.gather()) for bag in bags])
    np.testing.assert_allclose(alone, fitted.predict(bags), atol=1e-6)
    np.testing.assert_allclose(as_arrays, fitted.predict(bags), atol=1e-6)


def test_a_list_of_arrays_is_several_bags(representative):
    bags = known_bags(4, seed=5)
    arrays, expected = [bag.gather() for bag in bags], representative.predict(bags)
    for given in (arrays, tuple(arrays), [Frame(X) for X in arrays], [X.tolist() for X in arrays]):
        np.testing.assert_allclose(representative.predict(given), expected, atol=1e-6)
    assert representative.predict(arrays[:1]).shape == (1, 3)
    rows = arrays[0].tolist()
    for one in (rows, list(arrays[0]), rows[:1]):
        assert representative.predict(one).shape == (3,), "a list of rows is one bag"


def test_what_has_one_axis_more_than_a_row_is_a_bag():
    P = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    q = hq.PCC().fit_posteriors(P, ["a", "b", "a"])
    np.testing.assert_allclose(q.predict_posteriors([P[:1], P]), [P[0], P.mean(0)])
    np.testing.assert_allclose(q.predict_posteriors(P.tolist()), P.mean(0))
    texts = hq.CC(make_pipeline(CountVectorizer(), LogisticRegression()), cv=2).fit(["good", "bad"] * 4, ["p", "n"] * 4)
    assert texts.predict(["good", "bad"]).tolist() == [0.5, 0.5]
    assert texts.predict([["good", "bad"], ["bad"]]).tolist() == [[0.5, 0.5], [1.0, 0.0]]


def test_the_score_is_the_negative_error(representative):
    bags = known_bags(9, seed=5)
    expected = -hq.evaluate(representative, bags, measures="ae")["ae"].mean()
    assert representative.score(bags) == pytest.approx(expected)
    assert representative.score(hq.Bags(bags.rows, bags.index, bags.offsets), bags.prevalences) == pytest.approx(
        expected
    )
    assert representative.score([bag.gather() for bag in bags], bags.prevalences) == pytest.approx(expected)
    X, y = labelled(seed=3)
    assert representative.score(X, y) == pytest.approx(representative.score(hq.Bags.from_labels(X, y)))


def test_tools_of_scikit_learn_take_the_score():
    X, y = labelled(240)
    order = np.random.default_rng(0).permutation(len(X))
    found = GridSearchCV(hq.PACC(random_state=0), {"cv": [2, 3]}, cv=3).fit(X[order], y[order])
    assert -0.2 < found.best_score_ < 0
    assert found.predict(X).shape == (3,)


@pytest.mark.parametrize("named", REPRESENTATIVES)
def test_names_of_quapy_are_answered_by_ours(named):
    q = QUANTIFIERS[named]()
    name = type(q).__name__
    with pytest.raises(
        AttributeError, match=exactly(f"{name} has no 'quantify'; call predict, which corresponds to QuaPy's quantify.")
    ):
        q.quantify([[0.0]])
    with pytest.raises(
        AttributeError, match=f"^{name} has no 'aggregate'; call predict_posteriors of methods such as PACC"
    ):
        q.aggregate([[0.5, 0.5]])
    with pytest.raises(AttributeError, match=f"^{name} has no feature_names_in_; call fit with named columns first.$"):
        _ = q.feature_names_in_
    assert not hasattr(q, "quantify")


def test_ragged_equals_alone(fitted):
    X = np.random.default_rng(0).normal(size=(5040, 4))
    bags = hq.Bags(X, offsets=np.cumsum([0, 1, 2, 37, 5000]))
    alone = np.stack([fitted.predict(bag.gather()) for bag in bags])
    np.testing.assert_allclose(fitted.predict(bags), alone, atol=1e-6)


def test_weight_k_equals_k_copies(fitted):
    bags = known_bags(seed=6)
    counts = np.random.default_rng(1).integers(1, 5, size=len(bags.index))
    copies = bags.drawn(
        np.repeat(bags.index, counts), np.concatenate([[0], np.cumsum(counts)])[bags.offsets], None, None
    )
    for kind in ("count", "survey"):
        if kind == "survey" and (
            isinstance(fitted, hq.EMNetQ | hq.Pretrained) or getattr(fitted, "estimate", "ml") != "ml"
        ):
            continue  # they depend on the size of a bag, which is Kish's for survey weights
        weighted = hq.Bags(bags.rows, bags.index, bags.offsets, weights=counts, weight_kind=kind)
        np.testing.assert_allclose(fitted.predict(weighted), fitted.predict(copies), atol=1e-6)


def surveyed(unit: float) -> hq.Bags:
    """Labelled rows in bags, with survey weights in this unit."""
    X, y = labelled(240)
    weights = np.random.default_rng(3).uniform(0.2, 3, len(X))
    groups = np.arange(len(X)) // 20
    return hq.Bags.from_labels(X, y, groups=groups, weights=unit * weights, weight_kind="survey")


# One unit for all, the others for one quantifier of each kind of fit.
UNITS = [
    pytest.param(name, unit, marks=() if unit == 1e3 or name in REPRESENTATIVES else pytest.mark.hard)
    for name in QUANTIFIERS
    for unit in (1e-3, 7.3, 1e3)
]


@pytest.mark.parametrize(("name", "unit"), UNITS)
def test_the_unit_of_survey_weights_is_irrelevant_to_estimates(name, unit):
    fitted = learned(name)
    expected, bags = fitted.predict(surveyed(1.0)), surveyed(unit)
    np.testing.assert_allclose(fitted.predict(bags), expected, atol=1e-6)
    if fitted.sketch_kind is not None:
        known = fitted.predict(fitted.sketch(surveyed(1.0)))
        np.testing.assert_allclose(fitted.predict(fitted.sketch(bags)), known, atol=1e-6)
    if isinstance(fitted, hq.EMNetQ):
        np.testing.assert_allclose(fitted.standard_errors(bags), fitted.standard_errors(surveyed(1.0)), atol=1e-6)


@functools.cache
def surveyed_estimates(name: str, unit: float) -> np.ndarray:
    """Estimates of a quantifier that learned from survey weights in this unit."""
    return QUANTIFIERS[name]().fit(surveyed(unit)).predict(known_bags(seed=8))


@pytest.mark.parametrize(("name", "unit"), UNITS)
def test_the_unit_of_survey_weights_is_irrelevant_to_learning(name, unit):
    np.testing.assert_allclose(surveyed_estimates(name, unit), surveyed_estimates(name, 1.0), atol=1e-4)


def test_no_weights_equal_all_ones(fitted):
    bags = known_bags(seed=7)
    ones = hq.Bags(bags.rows, bags.index, bags.offsets, weights=np.ones(len(bags.index)))
    np.testing.assert_array_equal(fitted.predict(ones), fitted.predict(bags))


def test_intervals_hold_the_estimate_and_survive_saving(representative, tmp_path):
    q = copy.deepcopy(representative)
    with pytest.raises(NotFittedError, match=r"is not calibrated; call calibrate with bags of rows not used in train"):
        q.predict_interval(known_bags())
    q.calibrate(known_bags(30, seed=8))
    bags = known_bags(9, seed=9)
    narrow, wide = (q.predict_interval(bags, coverage) for coverage in (0.5, 0.9))
    np.testing.assert_array_equal(wide.estimates, q.predict(bags))
    assert ((wide.lower >= 0) & (wide.lower <= wide.estimates)).all()
    assert ((wide.upper <= 1) & (wide.upper >= wide.estimates)).all()
    assert (narrow.upper - narrow.lower <= wide.upper - wide.lower + 1e-12).all()
    assert wide.region.contains(wide.estimates).all()
    q.save(tmp_path / "model")
    assert hq.load(tmp_path / "model").trust(bags).equals(q.trust(bags))
    assert q.trust(bags)["p_value"].between(0, 1).all()
    again = hq.load(tmp_path / "model").predict_interval(bags)
    np.testing.assert_allclose(again.upper, wide.upper, atol=1e-12)
    np.testing.assert_allclose(again.region.radius, wide.region.radius)
    one = q.predict_interval(bags[0].gather())
    assert one.lower.shape == (3,)
    np.testing.assert_allclose(one.upper, wide.upper[0], atol=1e-6)
    several = [bag.gather() for bag in bags]
    np.testing.assert_allclose(q.predict_interval(several).upper, wide.upper, atol=1e-6)
    assert q.trust(several)["trust"].tolist() == q.trust(bags)["trust"].tolist()
    assert learn(q).calibration_ is None, "what was calibrated is no more"


def test_classes_and_training_prevalences_are_kept(fitted):
    assert fitted.classes_.tolist() == ["a", "b", "c"]
    expected = bags_to_learn(fitted).prevalences.mean(0) if isinstance(fitted, DeepQuantifier) else np.full(3, 1 / 3)
    np.testing.assert_allclose(fitted.train_prevalences_, expected)


def test_relabelling_classes_relabels_the_output(make_starting, fitted_to_bags):
    bags = known_bags()
    renamed = hq.Bags(bags.rows, bags.index, bags.offsets, prevalences=bags.prevalences, classes=["x", "y", "z"])
    q = make_starting().fit(renamed)
    assert q.classes_.tolist() == ["x", "y", "z"]
    np.testing.assert_array_equal(q.predict(bags), fitted_to_bags.predict(bags))


@pytest.mark.parametrize("name", CLASSICAL)  # networks start from random weights
def test_reordering_classes_reorders_the_output(name):
    X, y = labelled()
    renamed = np.array([{"a": "z", "b": "y", "c": "x"}[label] for label in y])
    reordered = QUANTIFIERS[name]().fit(X, renamed).predict(known_bags())
    np.testing.assert_allclose(reordered, learned(name).predict(known_bags())[:, ::-1], atol=1e-3)


@pytest.mark.parametrize("name", QUANTIFIERS)
def test_the_same_seed_gives_the_same_estimates(name):
    np.testing.assert_array_equal(learn(QUANTIFIERS[name]()).predict(known_bags()), learned(name).predict(known_bags()))


def test_the_same_seed_gives_the_same_weights_and_leaves_the_global_random_state_alone(make_starting, fitted_to_bags):
    import torch

    bags, before = known_bags(), torch.get_rng_state()
    same, other = (make_starting(random_state=seed).fit(bags).predict(bags) for seed in (0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(same, fitted_to_bags.predict(bags))
    assert not np.array_equal(same, other)


@pytest.mark.parametrize("how", ["bags", "bags, prevalences", "rows", "both", "frame", "sparse", "labelled bags"])
def test_every_kind_of_supervision(make_starting, fitted_to_bags, how):
    X, y = labelled()
    bags = known_bags()
    if how == "bags":
        q = fitted_to_bags
    elif how == "bags, prevalences":
        q = make_starting().fit(hq.Bags(bags.rows, bags.index, bags.offsets), bags.prevalences)
        assert q.classes_.tolist() == [0, 1, 2]
    elif how == "rows":
        q = make_starting().fit(X, y)
    elif how == "both":
        q = make_starting(label_weight=0.5).fit(X, y, bags=bags)
    elif how == "frame":
        q = make_starting().fit(Frame(X), y)
        assert q.feature_names_ == ["c0", "c1", "c2", "c3"]
    elif how == "sparse":
        X = sparse.csr_matrix(np.where(np.abs(X) > 1, X, 0))
        q = make_starting().fit(X, y)
    else:
        q = make_starting(sampler=hq.APP(10), label_weight=1.0).fit(
            hq.Bags.from_labels(X, y, groups=np.arange(120) // 10)
        )
    assert q.predict(X).shape == (3,)


def test_learning_reduces_the_error(make):
    # A task so easy that a few seconds suffice: the class is the sign of the first feature.
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    X = rng.normal(size=(400, 2)) * 0.3 + np.stack([4.0 * y - 2, np.zeros(400)], 1)
    training = hq.Training(epochs=10, bags_per_epoch=60, batch_bags=10, lr=0.02, validation_bags=20, device="cpu")
    q = make(loss="ae", training=training, sampler=hq.APP(20)).fit(X, y)
    assert q.history_["validation_loss"][0] > q.validation_loss_
    assert q.validation_loss_ < 0.15


def test_clone_params_and_repr(make_any):
    q = make_any()
    twin = clone(q)
    assert twin is not q
    # Quantifiers within others are cloned, too: they are told by what they show.
    assert repr(twin.get_params()) == repr(q.get_params())
    assert type(q).__name__ in repr(q)


def test_training_options_are_parameters():
    q = QUANTIFIERS["DeepSets-mean"]()
    twin = clone(q)
    twin.set_params(training__lr=0.5, random_state=9)
    assert (twin.training.lr, q.training.lr) == (0.5, 0.001)
    assert twin.get_params()["training__lr"] == 0.5
    with pytest.raises(ValueError, match="training: no parameter 'speed', expected one of epochs"):
        twin.set_params(training__speed=1)


def test_clone_is_unfitted(representative):
    with pytest.raises(NotFittedError, match=r"is not fitted; call fit first, or load a saved model\.$"):
        clone(representative).predict(known_bags())


def test_save_and_load_round_trip(fitted, tmp_path):
    bags = known_bags(seed=8)
    fitted.save(tmp_path / "model")
    back = hq.load(tmp_path / "model")
    assert type(back) is type(fitted)
    assert repr(back) == repr(fitted)
    assert back.classes_.tolist() == fitted.classes_.tolist()
    np.testing.assert_array_equal(back.train_prevalences_, fitted.train_prevalences_)
    np.testing.assert_array_equal(back.predict(bags), fitted.predict(bags))
    assert len(list((tmp_path / "model").glob("weights-*.safetensors"))) == 1
    assert len(list((tmp_path / "model").iterdir())) == 2
    assert json.loads((tmp_path / "model/config.json").read_text())["classes"] == ["a", "b", "c"]


def test_training_on_given_bags_alone(make_starting):
    assert make_starting(sampler=None).fit(known_bags()).predict(known_bags()).shape == (12, 3)


def test_survey_and_count_weights_in_training(make_starting):
    bags = known_bags()
    for kind in ("count", "survey"):
        weights = np.random.default_rng(0).integers(1, 4, size=len(bags.index))
        weighted = hq.Bags(
            bags.rows, bags.index, bags.offsets, weights=weights, weight_kind=kind, prevalences=bags.prevalences
        )
        assert np.isfinite(make_starting().fit(weighted).predict(weighted)).all()


def outcome(call, *args):
    """What a call gives, and what it refuses."""
    try:
        return call(*args), ""
    except ValueError as error:
        return None, str(error)


def test_huge_numbers_give_estimates_or_are_refused_by_their_place(fitted):
    for dtype, huge in [*itertools.product([np.float32, np.float64], [1e12, 1e20, 3e38]), (np.float64, 1e300)]:
        rows = known_bags(seed=9).gather()[:30].astype(dtype)
        rows[17, 2] = huge
        mixed = rows.copy()
        mixed[5] = -huge * np.array([1, -1, 1, -1])
        for spoilt, place in ((rows, r"row 17, column 2"), (mixed, r"row 5, column 0")):
            for estimate in (fitted.predict, lambda X: fitted.predict_stream([(np.arange(30) // 10, X)])[1]):
                if estimate != fitted.predict and fitted.sketch_kind is None:
                    continue
                p, refusal = outcome(estimate, spoilt)
                bag = place.replace("row 17", "a row of bag 1").replace("row 5", "a row of bag 0")
                assert re.search(f"{place}|{bag}|^$", refusal), (dtype, huge, refusal)
                if not refusal:
                    np.testing.assert_allclose(p.sum(-1), 1)


@pytest.mark.parametrize("name", sorted({*REPRESENTATIVES, *STARTING}))
def test_huge_numbers_are_not_learned_from_in_silence(name):
    for huge in (1e30, 1e300):
        X, y = labelled()
        X[3, 1] = huge
        q, refusal = outcome(QUANTIFIERS[name]().fit, X, y)
        assert re.search("row 3, column 1|^$", refusal), refusal
        if not refusal:
            assert np.isfinite(q.predict(labelled(seed=1)[0])).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((3, 5)), r"rows: expected 4 features as in training, got 5 features; give the same columns"),
        (np.zeros((3, 4, 4)), r"rows: expected 4 features as in training, got rows of shape \(4, 4\)"),
        (
            np.full((3, 4), np.nan).tolist(),
            r"rows: row 0, column 0 is NaN or infinite, expected finite numbers; drop or impute",
        ),
        (np.zeros(4), r"rows: expected one row per example, shape \(n_rows, n_features\), got shape \(4,\)"),
        ([np.zeros((3, 4)), np.zeros((3, 5))], r"arrays: bag 1 has rows of shape \(5,\), expected \(4,\) as in bag 0"),
        ([np.zeros((3, 5)), np.zeros((2, 5))], r"rows: expected 4 features as in training, got 5 features"),
        ([[[1.0, 2, 3, 4], [5.0]], [[1.0, 2, 3, 4]]], r"arrays\[0\]: expected rows of one length, got a ragged list"),
        (known_bags()[:0], r"X: expected at least one bag, got none; check how the bags were selected\."),
        (np.zeros((0, 4)), r"bags: bag 0 is empty, expected at least one row"),
    ],
)
def test_wrong_rows_at_prediction(representative, wrong, message):
    with pytest.raises(ValueError, match=message):
        representative.predict(wrong)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((np.zeros((4, 2)), None), TypeError, "y: expected a label for each row of X, got None"),
        ((np.zeros((4, 2)), ["a"] * 4), ValueError, r"y: expected at least 2 classes, got only \['a'\]"),
        ((np.zeros((2, 2)), ["a", "b"]), ValueError, "y: expected at least 2 rows of some class"),
        ((np.zeros((4, 2)), ["a", "b"]), ValueError, r"y: expected one label per row, shape \(4,\), got \(2,\)"),
        ((hq.Bags(np.zeros((4, 2))), None), ValueError, "bags: expected the proportions of each bag, got none; pass"),
        (
            (hq.Bags(np.zeros((4, 2))), [[0.5, 0.5]]),
            ValueError,
            "bags: expected at least 2 bags to split into training and validation, got 1; add bags",
        ),
        (
            (hq.Bags(np.zeros((4, 2)), offsets=[0, 2, 4]), [[0.5, 0.5]]),
            ValueError,
            "prevalences: expected one row for each of the 2 bags, got 1 rows",
        ),
    ],
)
def test_wrong_supervision(args, error, message):
    with pytest.raises(error, match=message):
        QUANTIFIERS["HistNetQ-hard"]().fit(*args)


class Frame:
    """The little of a data frame that counts."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.columns = [f"c{i}" for i in range(values.shape[1])]

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self.values
