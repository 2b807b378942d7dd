"""Parameters are checked by one method, on `fit` and on `load` alike: types, ranges and upper limits."""

from __future__ import annotations

import itertools
import json
import shutil

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

import histnetq as hq
from histnetq.bags.limits import LONGEST_NAME, brief
from histnetq.persistence.skops_files import dump_classifier
from histnetq.registry import REGISTRY
from tests.conftest import FOLDS, QUANTIFIERS, exactly, known_bags, labelled, learn
from tests.persistence.test_tampered import forge, inside, refusal, stored, told_by_info

NAN, INF = float("nan"), float("inf")
ITERATIONS = "max_iter: expected a whole number of at most 100,000, got 1000000000000000; lower it."
WRONG = [
    ("EMQ", "max_iter", 10**15, ITERATIONS),
    ("KDEy", "max_iter", 10**15, ITERATIONS),
    ("HDx", "max_iter", 10**15, "max_iter: expected a whole number of at most 10,000, got 1000000000000000; lower it."),
    ("EMQ", "max_iter", 0, "max_iter: expected a whole number of at least 1, got 0."),
    ("EMQ", "max_iter", 5.0, "max_iter: expected a whole number of at least 1, got 5.0."),
    ("EMQ", "max_iter", True, "max_iter: expected a whole number of at least 1, got True."),
    ("EMQ", "tol", -1, "tol: expected a number of at least 0, got -1."),
    ("KDEy", "tol", -1, "tol: expected a number of at least 0, got -1."),
    ("HDx", "tol", "small", "tol: expected a number of at least 0, got 'small'."),
    ("HDx", "tol", 2.0, "tol: expected a number of at most 1, got 2.0; lower it."),
    (
        "EMQ-mean",
        "prior",
        [1.0, 2e9],
        "prior: expected one of 'uniform', 'training', 'bags', or concentrations above 0 and at most 1,000,000, got "
        "(1.0, 2000000000.0); give one number, or one for each class.",
    ),
    ("KDEy", "bandwidth", 1e9, "bandwidth: expected a number of at most 1e+06, got 1000000000.0; lower it."),
    ("RLLS", "alpha", 1e9, "alpha: expected a number of at most 1e+06, got 1000000000.0; lower it."),
    ("DyS-topsoe", "n_bins", 10**9, "n_bins: expected a whole number of at most 100,000, got 1000000000; lower it."),
    (
        "DyS-topsoe",
        "n_bins",
        [2] * 200,
        "n_bins: expected at most 100 numbers of bins, got 200 numbers; give such as 10.",
    ),
    ("CC", "cv", 10**9, "cv: expected at most 1,000,000 folds, got 1000000000; lower it."),
    ("ReadMe", "n_subsets", 10**7, "n_subsets: expected a whole number of at most 1,000,000, got 10000000; lower it."),
    ("Corrected", "n_bags", 10**9, "n_bags: expected a whole number of at most 10,000,000, got 1000000000; lower it."),
    ("QuaNet", "n_steps", 3 * 10**8, "n_steps: expected a whole number of at most 10,000, got 300000000; lower it."),
    ("DeepSets-mean", "head", [1] * 300, "head: expected at most 100 layers, got 300; give fewer."),
    ("DeepSets-mean", "encoder", [1] * 300, "encoder: expected at most 100 layers, got 300; give fewer."),
    ("DeepSets-mean", "head", [10**9], "head: expected a whole number of at most 1,000,000, got 1000000000; lower it."),
    ("DeepSets-mean", "pooling", "sum", "pooling: expected one of 'mean', 'median', 'max', got 'sum'."),
    ("GMNet", "n_dims", 10**9, "n_dims: expected a whole number of at most 1,000,000, got 1000000000; lower it."),
    ("EMNetQ", "prior", 1e9, "prior: expected a pseudo-count of at most 1e+06, got 1000000000.0; lower it."),
    ("EMNetQ", "label_weight", 1e9, "label_weight: expected a number of at most 1e+06, got 1000000000.0; lower it."),
    (
        "HistNetQ-soft",
        "loss",
        "best",
        "loss: expected one of ae, rae, nae, nrae, se, mse, kld, nkld, nmd, macro_nmd or "
        "a callable (p_true, p_pred), got 'best'.",
    ),
    (
        "EMQ",
        "random_state",
        2**200,
        f"random_state: expected a whole number below 2**128, or None, got {2**200}; 0 gives the same draws each time.",
    ),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A function that gives the directory of a model of a kind, which is saved once."""
    place, number = tmp_path_factory.mktemp("saved"), itertools.count()

    def give(name):
        if not (place / name).exists():
            learn(QUANTIFIERS[name]()).save(place / name)
        return shutil.copytree(place / name, place / f"{name} {next(number)}")

    return give


@pytest.mark.parametrize(("name", "parameter", "value", "message"), WRONG)
def test_fit_and_load_refuse_the_same_values_in_the_same_words(saved, name, parameter, value, message):
    q, given = QUANTIFIERS[name](), tuple(value) if isinstance(value, list) else value
    q.set_params(**{parameter: given})
    with pytest.raises(ValueError, match=exactly(message)):
        learn(q)
    model = saved(name)
    inside("params", parameter, value=value)(model)
    with pytest.raises(ValueError, match=exactly(message)):
        hq.load(model)


@pytest.mark.parametrize("kind", REGISTRY)
def test_no_parameter_is_left_unchecked(kind):
    model = REGISTRY[kind].load()()
    model._check_params()
    for name in model.get_params(deep=False):
        for value in ({"a": 1}, NAN, -INF, [[1]]):
            changed = REGISTRY[kind].load()(**{name: value})
            with pytest.raises((ValueError, TypeError), match=rf"^{name}: expected "):
                changed._check_params()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("epochs", 10**12, "training: expected epochs to be at most 1,000,000, got 1000000000000; lower it."),
        ("minutes", 1e300, "training: expected minutes to be at most 10,000,000, got 1e+300; lower it."),
        ("clip", INF, "training: expected clip to be at most 1,000,000,000,000, got inf; lower it."),
        ("refit", "yes", "training: expected refit to be True or False, got 'yes'."),
        ("standardize", 1, "training: expected standardize to be True or False, got 1."),
        ("device", 7, "training: expected device to be a short text, got 7."),
        ("checkpoint", ["x"], "training: expected checkpoint to be a short text, got ['x']."),
        ("lr", True, "training: expected lr to be a number, got True."),
        ("callbacks", 5, "training: expected callbacks to be a tuple of functions, got 5."),
    ],
)
def test_options_of_training_have_types_and_limits(option, value, message):
    with pytest.raises((ValueError, TypeError), match=exactly(message)):
        hq.Training(**{option: value})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: hq.APP(10**10),
            "bag_size: expected a whole number of at most 1,000,000,000, got 10000000000; lower it.",
        ),
        (lambda: hq.NPP("x"), "bag_size: expected a positive whole number or a range (low, high), got 'x'."),
        (lambda: hq.Dirichlet("x"), "alpha: expected a positive number or one per class, got 'x'."),
        (
            lambda: hq.CovariateShift(strength=None),
            "strength: expected a finite number from -1,000,000 to 1,000,000, got None.",
        ),
        (lambda: hq.Mixer("x"), "real_proportion: expected a number from 0 to 1, got 'x'."),
        (lambda: hq.Combined(rows=5), "rows: expected a protocol such as APP(), got 5."),
    ],
)
def test_protocols_refuse_wrong_parameters_when_they_are_made(make, message):
    with pytest.raises((ValueError, TypeError), match=exactly(message)):
        make()


def test_a_stored_model_on_no_device_computes_on_one_that_there_is(saved):
    model = saved("DeepSets-mean")
    expected = hq.load(model).predict(known_bags())
    inside("params", "training", "fields", "device", value="meta")(model)
    np.testing.assert_array_equal(hq.load(model).predict(known_bags()), expected)
    with pytest.raises(ValueError, match=r"^device: 'meta' cannot be used here \(it holds no numbers\); use 'auto' or"):
        hq.DeepSets(training=hq.Training(epochs=1, device="meta")).fit(known_bags())


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("place", [("params", "tol"), ("provenance",), ("learned", "note")])
def test_json_without_nan_and_infinity(saved, place, value):
    model = saved("EMQ")
    inside(*place, value=value)(model)
    told = f"path: {model / 'config.json'} is damaged, expected the JSON that save() wrote; save again."
    assert refusal(model) == told
    assert told_by_info(model).exit_code == 2


@pytest.mark.parametrize("place", [("params", "tol"), ("provenance", "seconds"), ("learned", "note")])
def test_numbers_of_json_that_python_reads_as_infinity(saved, place):
    model = saved("EMQ")
    inside(*place, value=INF)(model)
    text = (model / "config.json").read_text()
    (model / "config.json").write_text(text.replace("Infinity", "1e999"))
    told = f"path: {model / 'config.json'} is damaged, expected the JSON that save() wrote; save again."
    assert refusal(model) == told
    assert told_by_info(model).exit_code == 2


@pytest.mark.parametrize("place", [("classes",), ("feature_names",), ("provenance",)])
def test_halves_of_characters_are_refused(saved, place):
    model = saved("EMQ")
    inside(*place, value=["a", "b", "\ud800"] if place != ("provenance",) else {"why": "\ud800"})(model)
    told = f"path: {model / 'config.json'} is damaged, expected the JSON that save() wrote; save again."
    assert refusal(model) == told
    assert told_by_info(model).exit_code == 2


@pytest.mark.parametrize("entry", [{}, [], 0])
def test_manifests_of_very_many_entries_are_refused_before_they_are_read(saved, entry, monkeypatch):
    model = saved("MLPE")
    inside("provenance", value={"x": [entry] * 1_000_000})(model)
    monkeypatch.setattr(json, "loads", None)
    assert refusal(model).endswith("entries, expected at most 1,000,000; save again.")


def test_a_model_of_very_many_entries_is_not_saved(tmp_path):
    q = hq.CC().fit(*labelled())
    q.provenance_ = {"x": [0] * 1_000_000}
    with pytest.raises(ValueError, match=r"^save: the model has more than 1,000,000 names and parameters, expected "):
        q.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_nan_is_never_written(tmp_path):
    q = hq.CC().fit(*labelled())
    q.provenance_ = {"error": NAN}
    message = "save: a parameter or the provenance holds NaN or infinity, expected finite numbers; change it first."
    with pytest.raises(ValueError, match=exactly(message)):
        q.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("levels", [150, 900, 5000])
def test_deep_json_is_refused(saved, levels):
    model = saved("CC")
    text = (model / "config.json").read_text().replace('"cv": 3', '"cv": ' + "[" * levels + "]" * levels)
    config = json.loads(text) if levels < 500 else None
    if config is None:
        (model / "config.json").write_text(text)
    else:
        forge(model, config)
    assert refusal(model).endswith("is damaged, expected the JSON that save() wrote; save again.")
    assert told_by_info(model).exit_code == 2


@pytest.mark.parametrize("columns", [[0, 0, 0], [0, 1, 1], {"0": 1}, "012"])
def test_columns_of_a_classifier_are_different_classes(saved, columns):
    model = saved("CC")
    inside("learned", "columns", value=columns)(model)
    told = "path: the stored classifier has other classes than the model; save again."
    assert refusal(model) == told


def test_two_steps_of_one_name_hide_no_cache(tmp_path):
    steps = [("a", make_pipeline(LogisticRegression())), ("b", LogisticRegression())]
    pipeline = Pipeline(steps)
    pipeline.steps[0][1].memory = str(tmp_path)
    pipeline.steps = [("a", pipeline.steps[0][1]), ("a", pipeline.steps[1][1])]
    assert pipeline.get_params()["a"] is pipeline.steps[1][1], "the first step is not among the parameters"
    with pytest.raises(TypeError, match=r"a pipeline has a cache, expected memory=None"):
        dump_classifier(pipeline)


def test_a_plain_pipeline_has_steps_of_different_names(saved):
    model = saved("CC")
    config, arrays = stored(model)
    steps = config["learned"]["classifier"]["steps"]
    steps[0][0] = steps[1][0]
    forge(model, config, arrays)
    assert "two steps of a pipeline have the same name" in refusal(model)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("ACC", "matrix"),
        ("DyS-topsoe", "positive"),
        ("EDx", "distances"),
        ("HDx", "histograms"),
        ("MS", "thresholds"),
        ("KDEy", "kernels"),
        ("ReadMe", "profiles"),
        ("EMQ-bcts", "scale"),
        ("QuaNet", "rates.soft"),
        ("QuaNet", "rates.hard"),
        ("DeepSets-mean", "prepare.mean"),
        ("CC", "classifier/1/coef_"),
        ("CC", "training_posteriors"),
    ],
)
def test_half_precision_is_read_as_the_precision_of_fit(saved, name, array):
    model = saved(name)
    config, arrays = stored(model)
    arrays[array] = arrays[array].astype(np.float16)
    forge(model, config, arrays)
    expected = learn(QUANTIFIERS[name]()).predict(known_bags())
    np.testing.assert_allclose(hq.load(model).predict(known_bags()), expected, atol=0.1)


@pytest.mark.parametrize(
    ("name", "array", "value"),
    [
        ("ACC", "matrix", 1.5),
        ("PACC", "matrix", -0.5),
        ("KDEy", "shares", -1.0),
        ("KDEy", "kernels", 7.0),
        ("DyS-topsoe", "negative", -0.25),
        ("DyS-topsoe", "positive", 5e-324),
        ("HDx", "histograms", 3.0),
        ("HDx", "low", 1e300),
        ("HDx", "high", -1e30),
        ("MS", "thresholds", 9.0),
        ("MS", "false_rates", -3.0),
        ("ReadMe", "profiles", 2.0),
        ("QuaNet", "rates.soft", -4.0),
        ("RLLS", "bound", -1.0),
        ("DeepSets-mean", "prepare.scale", 0.0),
        ("DeepSets-mean", "prepare.scale", -1.0),
        ("CC", "classifier/0/scale_", 5e-324),
        ("CC", "classifier/0/mean_", 1e300),
    ],
)
def test_numbers_that_fit_cannot_give_are_refused(saved, name, array, value):
    model = saved(name)
    config, arrays = stored(model)
    arrays[array] = arrays[array].copy()
    arrays[array].reshape(-1)[0] = value
    forge(model, config, arrays)
    refusal(model)


def test_leaves_of_forests_hold_shares_of_classes(tmp_path):
    hq.CC("forest", **FOLDS).fit(*labelled()).save(tmp_path / "model")
    config, arrays = stored(tmp_path / "model")
    arrays["classifier/values"] = arrays["classifier/values"] * 3
    forge(tmp_path / "model", config, arrays)
    assert "the shares of the classes in a leaf are below 0, or do not add up to 1" in refusal(tmp_path / "model")


def test_forests_start_a_bounded_number_of_threads(tmp_path):
    hq.CC("forest", **FOLDS).fit(*labelled()).save(tmp_path / "model")
    config, _ = stored(tmp_path / "model")
    config["learned"]["classifier"]["params"] |= {"n_jobs": 10**6, "n_estimators": 10**6}
    forge(tmp_path / "model", config)
    assert "the trees ask for 1000000 jobs, expected at most 1,000" in refusal(tmp_path / "model")


@pytest.mark.parametrize("classes", [["a", "a\0", "b"], [2**53, 2**53 + 1, 0.5]])
def test_classes_that_become_equal_as_an_array_are_refused(saved, classes):
    model = saved("MLPE")
    inside("classes", value=classes)(model)
    assert refusal(model) == "path: two classes of the model have the same name; save the model again."


def test_more_than_a_thousand_members_are_refused_by_fit_and_load(tmp_path, saved):
    message = "members: expected at most 1,000 members, got 1,001; use fewer."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.Ensemble([hq.CC()] * 1001).fit(*labelled())
    model = saved("Ensemble")
    config, arrays = stored(model)
    config["learned"]["members"] = config["learned"]["members"][:1] * 1001
    forge(model, config, arrays)
    assert refusal(model) == "path: expected at most 1,000 members, got 1,001; use fewer."


def test_nested_quantifiers_are_checked_too(saved):
    model = saved("Ensemble")
    inside("params", "members", 0, "params", "cv", value=10**9)(model)
    with pytest.raises(ValueError, match=exactly("cv: expected at most 1,000,000 folds, got 1000000000; lower it.")):
        hq.load(model)
    model = saved("Corrected")
    inside("params", "quantifier", "params", "random_state", value=-1)(model)
    with pytest.raises(ValueError, match=r"^random_state: expected a whole number of at least 0, or None, got -1; "):
        hq.load(model)


LONG = "n" * (LONGEST_NAME + 1)
TOO_LONG = f"expected names of at most 1,000 characters, got one of 1,001 ({brief(LONG)}); shorten it."


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: hq.Bags.from_labels([[0.0], [1.0]], ["a", LONG]), "y"),
        (lambda: hq.Bags.from_labels([[0.0], [1.0]], np.array(["a", LONG])), "y"),
        (lambda: hq.Bags.from_labels([[0.0], [1.0]], ["a", "b"], classes=["a", "b", LONG]), "classes"),
        (lambda: hq.Bags.from_labels([[0.0], [1.0]], ["a", "b"], groups=["a", LONG]), "groups"),
        (lambda: hq.Bags([[0.0]], prevalences=[[0.5, 0.5]], classes=["a", LONG]), "classes"),
        (lambda: hq.Bags([[0.0]], ids=[LONG]), "ids"),
        (lambda: hq.Bags([[0.0]], feature_names=[LONG]), "feature_names"),
        (lambda: hq.CC().fit([[0.0], [1.0]] * 5, ["a", LONG] * 5), "y"),
    ],
)
def test_names_have_at_most_a_thousand_characters(make, argument):
    with pytest.raises(ValueError, match=exactly(f"{argument}: {TOO_LONG}")):
        make()


def test_a_name_of_a_thousand_characters_is_taken(tmp_path):
    name = "n" * LONGEST_NAME
    q = hq.CC(random_state=0).fit([[0.0], [1.0]] * 5, ["a", name] * 5)
    q.save(tmp_path / "model")
    assert hq.load(tmp_path / "model").classes_.tolist() == ["a", name]


@pytest.mark.parametrize(("key", "value"), [("classes", ["a", "b", LONG]), ("feature_names", ["w", "x", "y", LONG])])
def test_long_names_in_a_stored_model_are_refused(saved, key, value):
    model = saved("CC")
    inside(key, value=value)(model)
    assert "of at most 1,000 characters" in refusal(model)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"bag,x,y\n{LONG},1,a\nb,2,b\n",
            "column 'bag' has a name of 1,001 characters, expected at most 1,000; shorten it.",
        ),
        (
            f"bag,x,y\na,1,{LONG}\nb,2,b\n",
            "column 'y' has a name of 1,001 characters, expected at most 1,000; shorten it.",
        ),
        (
            f"bag,{LONG},y\na,1,a\nb,2,b\n",
            f"has a column name of 1,001 characters ({LONG[:20]!r}…), expected at most 1,000; rename the column.",
        ),
    ],
)
def test_long_names_in_a_table_are_refused(tmp_path, text, words):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=exactly(f"{tmp_path / 't.csv'}: {words}")):
        hq.read_bags(tmp_path / "t.csv", bag="bag", label="y")


@pytest.mark.parametrize("weights", [[0.0], [1e308], [5e-324], [2**62]])
def test_weights_of_training_that_rows_cannot_have_are_refused(saved, weights):
    model = saved("PACC")
    config, arrays = stored(model)
    arrays["training_weights"] = np.repeat(np.array(weights), len(arrays["training_labels"]))
    forge(model, config, arrays)
    assert refusal(model) == ("path: the array 'training_weights' has other numbers than weights of rows; save again.")


def test_a_method_has_learned_from_some_rows(saved):
    model = saved("EMQ")
    config, arrays = stored(model)
    arrays |= {name: arrays[name][:0] for name in ("training_posteriors", "training_labels")}
    forge(model, config, arrays)
    assert refusal(model) == "path: the array 'training_labels' has no rows; save the model again."
