"""Models that were altered by someone who also recomputed their checksums: each is refused in one sentence."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import histnetq as hq
from histnetq.cli import main
from histnetq.persistence.model_files import _checksum
from tests.conftest import SMALL, exactly, known_bags, labelled


def stored(model):
    """Give the manifest and the arrays of a model directory."""
    config = json.loads((model / "config.json").read_text())
    return config, load_arrays((model / config["weights"]).read_bytes())


def forge(model, config, arrays=None, raw=None):
    """Write a manifest and arrays with the checksums that they should have."""
    config.pop("sha256", None)
    if arrays is not None:
        raw = save_arrays({name: np.asarray(array, order="C") for name, array in arrays.items()})
    if raw is not None:
        (model / config["weights"]).unlink()
        digest = hashlib.sha256(raw).hexdigest()
        config |= {"weights": f"weights-{digest[:16]}-{'0' * 16}.safetensors", "weights_sha256": digest}
        (model / config["weights"]).write_bytes(raw)
    (model / "config.json").write_text(json.dumps(config | {"sha256": _checksum(config)}))


def entry(**changes):
    """Change entries of the manifest."""

    def tamper(model):
        config, _ = stored(model)
        forge(model, config | changes)

    return tamper


def without(key):
    def tamper(model):
        config, _ = stored(model)
        del config[key]
        forge(model, config)

    return tamper


def array(name, change):
    """Change an array; None deletes it."""

    def tamper(model):
        config, arrays = stored(model)
        found = arrays.pop(name)
        if change is not None:
            arrays[name] = change(found)
        forge(model, config, arrays)

    return tamper


def inside(*path, value):
    """Change something deep in the manifest."""

    def tamper(model):
        config, _ = stored(model)
        place = config
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        forge(model, config)

    return tamper


def step(*path, value):
    """Change something in a step of the stored pipeline."""
    return inside("learned", "classifier", "steps", *path, value=value)


def raw_config(text):
    return lambda model: (model / "config.json").write_text(text)


def raw_weights(content):
    return lambda model: forge(model, stored(model)[0], raw=content)


def set_at(place, value):
    def change(found):
        changed = found.copy()
        changed.reshape(-1)[place] = value
        return changed

    return change


def instead(name, make):
    """Put something else in the place of a file."""

    def tamper(model):
        path = model / (stored(model)[0]["weights"] if name == "weights" else name)
        path.unlink()
        make(path)

    return tamper


def loop(path):
    path.symlink_to(path.name)


def sparse(n_bytes):
    def make(path):
        with path.open("wb") as file:
            file.truncate(n_bytes)

    return make


def shorter(found):
    return found[:-1]


def header(told):
    text = json.dumps(told).encode()
    return len(text).to_bytes(8, "little") + text + b"\0" * 16


NAN, INF = float("nan"), float("inf")
IN_CONFIG = {
    "no estimator": without("estimator"),
    "an estimator that is a list": entry(estimator=["CC"]),
    "an estimator of another name": entry(estimator="os.system"),
    "an estimator of a very long name": entry(estimator="C" * 10**6),
    "no classes": without("classes"),
    "an empty list of classes": entry(classes=[], train_prevalences=[]),
    "classes that are a text": entry(classes="abc"),
    "classes of texts and numbers": entry(classes=["a", 1, "c"]),
    "a class twice": entry(classes=["a", "a", "c"]),
    "classes of lists": entry(classes=[["a"], ["b"], ["c"]]),
    "a class beyond 64 bits": entry(classes=[1, 2, 10**30]),
    "a class that is NaN": entry(classes=[1.0, 2.0, NAN]),
    "one class too many": entry(classes=["a", "b", "c", "d"]),
    "no prevalences": without("train_prevalences"),
    "prevalences off the simplex": entry(train_prevalences=[0.5, 0.5, 0.5]),
    "negative prevalences": entry(train_prevalences=[1.5, -0.25, -0.25]),
    "prevalences with NaN": entry(train_prevalences=[0.5, 0.5, NAN]),
    "prevalences that are texts": entry(train_prevalences=["a", "b", "c"]),
    "no shape of rows": without("input_shape"),
    "a negative shape of rows": entry(input_shape=[-4], feature_names=None),
    "a huge shape of rows": entry(input_shape=[10**12], feature_names=None),
    "a shape of rows with a fraction": entry(input_shape=[4.5]),
    "a shape of rows that is a number": entry(input_shape=4),
    "too few names of features": entry(feature_names=["x", "y"]),
    "names of features that are numbers": entry(feature_names=[1, 2, 3, 4]),
    "names of features that are a text": entry(feature_names="abcd"),
    "no parameters": without("params"),
    "parameters that are a list": entry(params=[]),
    "no learned values": without("learned"),
    "learned values that are a text": entry(learned="x"),
    "no names of features": without("feature_names"),
    "no provenance": without("provenance"),
    "a provenance that is a number": entry(provenance=7),
    "a provenance with bags that are a text": entry(provenance={"calibration_bags": "many"}),
    "a provenance with columns that are a list": entry(provenance={"left_out": ["x"]}),
    "a provenance with errors of other types": entry(provenance={"errors": {"bags": 3, "ae": [1]}}),
    "a path in place of the weights": entry(weights="../../etc/passwd"),
    "weights of a wrong type": entry(weights=["x"]),
    "a checksum of a wrong type": entry(weights_sha256=7),
    "a format that is a list": entry(format=[2]),
    "a format of the future": entry(format=99),
    "a format that is true": entry(format=True),
    "a wrong checksum": lambda model: (model / "config.json").write_text(
        json.dumps(stored(model)[0] | {"provenance": {"why": "I say so"}})
    ),
    "JSON of 10,000 levels": raw_config('{"format": 2, "x": ' + "[" * 10000 + "]" * 10000 + "}"),
    "JSON with a number of 100,000 digits": raw_config('{"format": 2, "x": ' + "9" * 100000 + "}"),
    "a list in place of the manifest": raw_config("[1, 2]"),
    "no text at all": lambda model: (model / "config.json").write_bytes(b"\xff\xfe\x00\x80" * 100),
    "an empty manifest": raw_config(""),
    "a manifest of 2 GB": instead("config.json", sparse(2 << 30)),
    "a directory as manifest": instead("config.json", lambda path: path.mkdir()),
    "a pipe as manifest": instead("config.json", os.mkfifo),
    "a loop of links as manifest": instead("config.json", loop),
    "a device as manifest": instead("config.json", lambda path: path.symlink_to("/dev/zero")),
    "no weights": instead("weights", lambda path: None),
    "a directory as weights": instead("weights", lambda path: path.mkdir()),
    "a pipe as weights": instead("weights", os.mkfifo),
    "a loop of links as weights": instead("weights", loop),
    "endless weights": instead("weights", lambda path: path.symlink_to("/dev/zero")),
    "empty weights": raw_weights(b""),
    "weights of 3 bytes": raw_weights(b"abc"),
    "weights with a huge header": raw_weights(b"\xff" * 8 + b"{}"),
    "weights with a header of another size": raw_weights(
        header({"x": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}})
    ),
    "weights with a header that is a list": raw_weights(header([])),
}  # fmt: skip
IN_WEIGHTS = {
    "an unknown parameter": inside("params", "no_such", value=1),
    "a parameter of an unknown type": inside("params", "cv", value={"type": "os.system", "fields": {}}),
    "a parameter without fields": inside("params", "cv", value={"type": "APP"}),
    "a parameter with unknown fields": inside("params", "cv", value={"type": "APP", "fields": {"x": 1}}),
    "a solver that there is none of": inside("params", "solver", value="bash"),
    "a number in place of the classifier": inside("learned", "classifier", value=7),
    "a classifier of another kind": inside("learned", "classifier", value={"type": "SVC", "params": {}, "prefix": ""}),
    "a classifier without a type": inside("learned", "classifier", value={"steps": []}),
    "a pipeline without steps": inside("learned", "classifier", "steps", value=[]),
    "a pipeline in another order": step(0, value=["x", {"type": "GaussianNB", "params": {}, "prefix": ""}]),
    "an unknown parameter of the classifier": step(1, 1, "params", "no_such", value=1),
    "a parameter of a wrong type of the classifier": step(1, 1, "params", "C", value="x"),
    "a nested parameter of the classifier": step(1, 1, "params", "C", value={"a": 1}),
    "a huge number of features of the classifier": step(0, 1, "n_features", value=10**12),
    "columns of other classes": inside("learned", "columns", value=[0, 1, 7]),
    "too few columns": inside("learned", "columns", value=[0, 1]),
    "columns that are texts": inside("learned", "columns", value=["a", "b", "c"]),
    "no coefficients": array("classifier/1/coef_", None),
    "coefficients of another shape": array("classifier/1/coef_", lambda a: a[:, :-1]),
    "coefficients with infinity": array("classifier/1/coef_", set_at(0, INF)),
    "coefficients that are whole numbers": array("classifier/1/coef_", lambda a: a.astype(np.int8)),
    "a scale of 0": array("classifier/0/scale_", set_at(0, 0.0)),
    "a class of the classifier twice": array("classifier/1/classes_", set_at(0, 1)),
    "no matrix": array("matrix", None),
    "a matrix of another shape": array("matrix", shorter),
    "a matrix with NaN": array("matrix", set_at(0, NAN)),
    "a matrix of complex numbers in disguise": array("matrix", lambda a: a.astype(np.uint8).reshape(-1)),
    "too few labels": array("training_labels", shorter),
    "labels of no class": array("training_labels", set_at(0, 99)),
    "negative labels": array("training_labels", set_at(0, -1)),
    "labels that are fractions": array("training_labels", lambda a: a.astype(np.float32)),
    "posteriors of another shape": array("training_posteriors", lambda a: a[:, :2]),
    "no posteriors": array("training_posteriors", None),
    "posteriors above 1": array("training_posteriors", set_at(0, 7)),
    "negative posteriors": array("training_posteriors", set_at(0, -0.5)),
    "posteriors that are whole numbers": array("training_posteriors", lambda a: a.astype(np.int32)),
    "a calibration without scores": array("calibration/scores", None),
    "scores of another number of classes": array("calibration/scores", lambda a: a[:, :-1]),
    "fewer joint scores than scores": array("calibration/joint_scores", shorter),
    "scores with NaN": array("calibration/scores", set_at(0, NAN)),
    "trust around a point of another size": array("trust/center", shorter),
    "trust in other directions": array("trust/whitening", lambda a: a[:, :-1]),
    "trust in columns that there are not": array("trust/columns", set_at(0, 10**6)),
    "trust in columns below the first": array("trust/columns", set_at(0, -1)),
    "trust in units of nothing": array("trust/unit", set_at(0, 0)),
    "trust in numbers without end": array("trust/variance", set_at(0, NAN)),
    "scores without end": array("calibration/scores", set_at(0, INF)),
    "coefficients of scales without end": array("calibration/coefficients", set_at(0, -INF)),
    "a matrix without end": array("matrix", set_at(0, INF)),
    "trust without scores": array("trust/scores", lambda a: a[:0]),
}  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    place = tmp_path_factory.mktemp("original") / "model"
    q = hq.ACC(make_pipeline(StandardScaler(), LogisticRegression()), random_state=0).fit(*labelled())
    q.feature_names_ = list("wxyz")
    q.calibrate(known_bags(30)).save(place)
    return place


@pytest.fixture
def model(original, tmp_path):
    return shutil.copytree(original, tmp_path / "model")


def refusal(path):
    """The one sentence by which `load` refuses a model."""
    with pytest.raises((ValueError, OSError)) as caught:
        hq.load(path)
    told = str(caught.value)
    assert "\n" not in told
    assert len(told) < 700
    assert "path: " in told or told.startswith(("encoder: ", "solver: "))
    return told


def told_by_info(path):
    found = CliRunner().invoke(main, ["info", str(path)])
    assert isinstance(found.exception, SystemExit | None), found.exception
    assert found.exit_code in (0, 2)
    assert "Traceback" not in found.output
    return found


def test_the_original_loads(model):
    assert hq.load(model).classes_.tolist() == ["a", "b", "c"]
    assert told_by_info(model).exit_code == 0
    forge(model, *stored(model))
    assert hq.load(model).classes_.tolist() == ["a", "b", "c"], "only what is wrong is refused below"


@pytest.mark.parametrize("kind", IN_CONFIG)
def test_a_tampered_manifest_is_refused(model, kind):
    IN_CONFIG[kind](model)
    refusal(model)
    found = told_by_info(model)
    assert found.exit_code == 2, found.output
    assert found.output.count("\n") == 1


@pytest.mark.parametrize("kind", IN_WEIGHTS)
def test_tampered_arrays_and_classifiers_are_refused(model, kind):
    IN_WEIGHTS[kind](model)
    refusal(model)
    told_by_info(model)


def test_there_are_enough_kinds():
    assert len(IN_CONFIG) + len(IN_WEIGHTS) >= 40


TREES = {
    "a child far behind the tree": ("left_child", "left", 10**6),
    "a child that is its parent": ("left_child", "left", 0),
    "a feature far behind the row": ("feature", "feature_idx", 10**6),
    "a negative feature": ("feature", "feature_idx", -5),
    "a threshold that is infinite": ("threshold", "num_threshold", INF),
    "two parents of a node": ("right_child", "right", "left"),
}


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("made", ["forest", "boosting"])
def test_trees_that_would_read_other_memory_are_never_made(tmp_path, made, kind):
    of_forest, of_boosting, value = TREES[kind]
    name = f"classifier/nodes/{of_forest if made == 'forest' else of_boosting}"
    if value == "left":
        other = f"classifier/nodes/{'left_child' if made == 'forest' else 'left'}"

        def tamper(model):
            config, arrays = stored(model)
            arrays[name] = set_at(0, arrays[other][0])(arrays[name])
            forge(model, config, arrays)
    else:
        tamper = array(name, set_at(0, value))
    classifier = (
        RandomForestClassifier(3, random_state=0)
        if made == "forest"
        else HistGradientBoostingClassifier(max_iter=2, random_state=0)
    )
    hq.CC(classifier, random_state=0).fit(*labelled()).save(tmp_path / "model")
    tamper(tmp_path / "model")
    told = refusal(tmp_path / "model")
    assert ("has NaN or infinity" if value == INF else "the stored classifier is damaged") in told


@pytest.mark.parametrize("change", [
    array("classifier/sizes", set_at(0, 10**9)), array("classifier/sizes", set_at(0, 0)),
    array("classifier/sizes", None), array("classifier/values", shorter), array("classifier/nodes/threshold", shorter),
    array("classifier/nodes/feature", lambda a: a.astype(float)),
])  # fmt: skip
def test_forests_of_other_sizes_are_refused(tmp_path, change):
    hq.CC(RandomForestClassifier(3, random_state=0), random_state=0).fit(*labelled()).save(tmp_path / "model")
    change(tmp_path / "model")
    assert "the stored classifier is damaged" in refusal(tmp_path / "model")


@pytest.mark.parametrize("change", [
    array("classifier/coef0", shorter), array("classifier/bias1", None),
    inside("learned", "classifier", "params", "activation", value="eval"),
    inside("learned", "classifier", "params", "hidden_layer_sizes", value=[10**12]),
    inside("learned", "classifier", "params", "hidden_layer_sizes", value=["x"]),
])  # fmt: skip
def test_neural_classifiers_of_other_sizes_are_refused(tmp_path, change):
    few = MLPClassifier((4,), max_iter=5, random_state=0)
    with pytest.warns(UserWarning, match="iterations"):
        hq.CC(few, random_state=0).fit(*labelled()).save(tmp_path / "model")
    change(tmp_path / "model")
    assert "the stored classifier is damaged" in refusal(tmp_path / "model")


@pytest.mark.parametrize("change", [
    array("encoder.1.weight", shorter), array("head.1.bias", None),
    inside("params", "encoder", value=[10**9, 10**9]), inside("params", "encoder", value=["x"]),
    inside("params", "head", value=[10**10]), inside("params", "n_bins", value=10**10),
    inside("params", "n_bins", value=-1), inside("params", "training", value=None),
    inside("params", "training", "fields", "dtype", value="os"), inside("learned", "history", value=[]),
    inside("learned", value={}),
])  # fmt: skip
def test_networks_of_other_sizes_are_refused_without_their_memory(tmp_path, change):
    hq.HistNetQ(bins="soft", n_bins=4, **SMALL).fit(known_bags()).save(tmp_path / "model")
    change(tmp_path / "model")
    with pytest.raises((ValueError, TypeError)) as caught:
        hq.load(tmp_path / "model")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [
    array("positive", lambda a: a[:, :-2]), inside("params", "n_bins", value=[4, 80000]),
    inside("params", "n_bins", value=-3), array("negative", None),
])  # fmt: skip
def test_histograms_of_other_bins_are_refused(tmp_path, change):
    hq.DyS(random_state=0).fit(*labelled()).save(tmp_path / "model")
    change(tmp_path / "model")
    with pytest.raises(ValueError) as caught:
        hq.load(tmp_path / "model")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["trust/origin", "trust/paired", "calibration/scores", "calibration/joint_scores"])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int64])
def test_numbers_of_another_type_are_read_as_those_that_compiled_code_knows(model, name, kind):
    array(name, lambda found: found.astype(kind))(model)
    q, bags = hq.load(model), known_bags(4, seed=1)
    assert np.isfinite(q.trust(bags)["p_value"]).all()
    assert np.isfinite(q.predict_interval(bags, 0.9).lower).all()


def test_a_network_that_cannot_compute_gives_no_estimates(tmp_path):
    hq.HistNetQ(bins="soft", n_bins=4, **SMALL).fit(known_bags()).save(tmp_path / "model")
    for name in ("head.1.bias", "head.4.weight"):
        array(name, lambda found: np.full_like(found, 3e38))(tmp_path / "model")
    with pytest.raises(ValueError, match=r"^model: cannot compute an estimate for 4 of 4 bags, "):
        hq.load(tmp_path / "model").predict(known_bags(4, seed=1))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("shares", lambda found: found * [1.0, -2.0, 1.0]),
        ("shares", lambda found: found * 0),
        ("kernels", lambda found: found * -3),
        ("kernels", lambda found: np.full_like(found, np.nan)),
    ],
)
def test_kernels_of_no_densities_are_refused(tmp_path, name, change):
    hq.KDEy(random_state=0).fit(*labelled()).save(tmp_path / "model")
    array(name, change)(tmp_path / "model")
    assert re.match(r"path: (the array|.* has) '?(kernels|shares)?'?", refusal(tmp_path / "model"))


def test_estimates_off_the_simplex_are_refused():
    q, bags = hq.KDEy(random_state=0).fit(*labelled()), known_bags(4, seed=1)
    q._quantify = lambda posteriors, index, offsets, weights: np.tile([4.69, -3.69, 0.0], (4, 1))
    sentence = (
        "model: estimated proportions from -3.69 to 4.69 in 4 bags, expected numbers in [0, 1] that sum to 1 in each "
        "bag; its file may be damaged, fit it again."
    )
    for ask in (q.predict, q.bootstrap_interval, q.bayes_interval, q.predict_rows, q.estimate_performance, q.score):
        with pytest.raises(ValueError, match=exactly(sentence)):
            ask(bags)


@pytest.mark.parametrize("value", [-1e6, 1e6])
def test_leaves_that_hold_no_probabilities_are_refused(tmp_path, value):
    hq.HDy("forest", random_state=0).fit(*labelled()).save(tmp_path / "model")
    array("classifier/values", lambda found: np.full_like(found, value))(tmp_path / "model")
    with pytest.raises(ValueError) as caught:
        hq.load(tmp_path / "model").predict_interval(known_bags(4, seed=1), method="bootstrap")
    assert "\n" not in str(caught.value)


def test_distances_without_knots_are_refused(tmp_path):
    hq.EDx().fit(*labelled()).save(tmp_path / "model")
    for name in ("knots", "distances"):
        array(name, lambda found: found[:, :0])(tmp_path / "model")
    assert refusal(tmp_path / "model") == "path: the arrays of distances do not fit the features; save again."
