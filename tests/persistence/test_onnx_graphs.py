"""ONNX graphs give the numbers of the models."""

from __future__ import annotations

import json
import re
import sys

import fsspec
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import histnetq as hq
from histnetq.bags.bags import Bags
from histnetq.persistence.onnx_classifiers import draw_classifier
from histnetq.persistence.onnx_graphs import OnnxGraph
from histnetq.training.encoding import encode_rows
from tests.conftest import QUICK, SMALL

LIMIT = 1e-5


def labelled(n_classes, n_rows=400, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n_rows)
    X = rng.normal(np.multiply.outer(y, [1.0, -0.5, 0.0]) + np.array([0.0, 5.0, 1e4]), [1.0, 2.0, 50.0])
    return X, np.array(list("abcde"))[y]


def run(path, X):
    """The outputs of a graph by name."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"rows": np.asarray(X, np.float64)}), strict=True))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "classifier",
    ["logistic", "forest", "boosting", "mlp", "bayes", ExtraTreesClassifier(10, random_state=0), LogisticRegression()],
    ids=str,
)
def test_posteriors_of_rows(tmp_path, classifier, n_classes):
    X, y = labelled(n_classes)
    q = hq.PACC(classifier, cv=0.3, random_state=0).fit(X, y)
    new = np.concatenate([labelled(n_classes, 3000, seed=1)[0], X])
    path = tmp_path / "rows.onnx"
    q.to_onnx(path)
    found = run(path, new)["posteriors"]
    assert abs(found - q.classifier_.predict_proba(new)).max() <= LIMIT
    assert abs(q.predict_posteriors(found) - q.predict(new)).max() <= LIMIT
    assert path.stat().st_size < 3_000_000


def test_rows_at_thresholds_and_missing_values_take_the_same_way(tmp_path):
    X, y = np.round(labelled(2)[0], 1), labelled(2)[1]
    X[::7, 0] = np.nan
    for classifier in (RandomForestClassifier(20, random_state=0), HistGradientBoostingClassifier(max_iter=20)):
        classifier.fit(X, y)
        trees = [tree.tree_.threshold for tree in getattr(classifier, "estimators_", [])]
        at = np.concatenate([*trees, X[:, 0]])
        at = at[~np.isinf(at)]  # a split between missing and other values
        new = np.stack([at, at, np.resize(X[:, 2], len(at))], axis=1)
        graph = OnnxGraph((3,), {})
        graph.output(draw_classifier(graph, "rows", classifier), "posteriors", np.float64, ("n_rows", 2))
        graph.save(tmp_path / "rows.onnx", overwrite=True)
        assert abs(run(tmp_path / "rows.onnx", new)["posteriors"] - classifier.predict_proba(new)).max() <= LIMIT


NETWORKS = {
    "hard": lambda **kw: hq.HistNetQ("hard", 5, **{**SMALL, **kw}),
    "soft": lambda **kw: hq.HistNetQ("soft", 5, **{**SMALL, **kw}),
    "rbf": lambda **kw: hq.HistNetQ("rbf", 5, **{**SMALL, **kw}),
    "sigmoid": lambda **kw: hq.HistNetQ("sigmoid", 5, **{**SMALL, **kw}),
    "cumulative": lambda **kw: hq.HistNetQ("hard", 5, cumulative=True, **{**SMALL, **kw}),
    "mean": lambda **kw: hq.DeepSets("mean", **{**SMALL, **kw}),
    "max": lambda **kw: hq.DeepSets("max", **{**SMALL, **kw}),
}
FEATURES = {
    "unmix": lambda **kw: hq.HistNetQ("hard", 5, **{**SMALL, "encoder": (), "head": "unmix", **kw}),
    "median": lambda **kw: hq.DeepSets("median", **{**SMALL, **kw}),
    "GMNet": lambda **kw: hq.GMNet(2, 5, 2, **{**SMALL, **kw}),
    "SetTransformer": lambda **kw: hq.SetTransformer(8, 8, 3, 2, **{**SMALL, **kw}),
    "EMNetQ": lambda **kw: hq.EMNetQ(training=QUICK, random_state=0, **kw),
}


@pytest.mark.parametrize("name", NETWORKS | FEATURES)
@pytest.mark.parametrize("n_classes", [2, pytest.param(3, marks=pytest.mark.hard)])
def test_features_of_rows_and_estimates_of_bags(tmp_path, name, n_classes):
    X, y = labelled(n_classes)
    bags = hq.APP(30).draw(Bags.from_labels(X, y), 20, random_state=0)
    q = (NETWORKS | FEATURES)[name]().fit(bags)
    q.to_onnx(tmp_path / "net.onnx")
    bag = labelled(n_classes, 500, seed=1)[0]
    found = run(tmp_path / "net.onnx", bag)
    with torch.no_grad():
        expected = encode_rows(q.network_, Bags(bag), np.arange(500)).numpy()
    features = found["scores" if name == "EMNetQ" else "features"]
    assert abs(features - expected).max() <= LIMIT * max(1, abs(expected).max())
    assert ("prevalences" in found) == (name in NETWORKS)
    if name in NETWORKS:
        assert abs(found["prevalences"][0] - q.predict(bag)).max() <= LIMIT


def test_images_and_scores(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=80)
    X = rng.normal(y[:, None, None], 1.0, (80, 9, 11)).astype(np.float32)
    q = hq.DeepSets("mean", head=(4,), training=QUICK, random_state=0).fit(hq.APP(10).draw(Bags.from_labels(X, y), 8))
    q.to_onnx(tmp_path / "images.onnx")
    assert abs(run(tmp_path / "images.onnx", X)["prevalences"][0] - q.predict(X)).max() <= LIMIT


def test_the_file_says_what_it_is(tmp_path):
    X, y = labelled(3)
    q = hq.CC("logistic", cv=0.3, random_state=0).fit(X, y)
    q.to_onnx(tmp_path / "rows.onnx")
    model = onnx.load(tmp_path / "rows.onnx")
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert about == {"method": "CC", "classes": json.dumps(["a", "b", "c"]), "features": "null"}
    shapes = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.output}
    assert shapes == {"posteriors": ["n_rows", 3]}


def test_what_cannot_be_exported_is_one_sentence(tmp_path, monkeypatch):
    X, y = labelled(2)
    path = tmp_path / "rows.onnx"
    with pytest.raises(
        TypeError, match=r"^to_onnx: expected a method with a built-in classifier, or a network, got MLPE;"
    ):
        hq.MLPE().fit(X, y).to_onnx(path)
    scored = hq.PCC().fit_posteriors([[0.9, 0.1], [0.2, 0.8]], ["a", "b"])
    with pytest.raises(TypeError, match=r"^to_onnx: expected a model with a classifier, got a model of given scores; "):
        scored.to_onnx(path)
    for classifier in (SGDClassifier(loss="log_loss"), make_pipeline(MinMaxScaler(), LogisticRegression())):
        q = hq.CC(classifier, cv=0.3, random_state=0).fit(X, y)
        with pytest.raises(
            TypeError, match=r"^classifier: expected a built-in classifier: logistic, forest, boosting, "
        ):
            q.to_onnx(path)
    own = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    q = hq.DeepSets("mean", **{**SMALL, "encoder": own}).fit(hq.APP(20).draw(Bags.from_labels(X, y), 8, random_state=0))
    with pytest.raises(
        TypeError, match=r"^encoder: expected layers of this library, got Tanh; export a module of your"
    ):
        q.to_onnx(path)
    q = hq.CC(cv=0.3, random_state=0).fit(X, y)
    with pytest.raises(
        ValueError, match=r"^path: expected a file name that ends in .onnx, got 'rows.bin'; choose such a"
    ):
        q.to_onnx("rows.bin")
    path.write_text("mine")
    with pytest.raises(
        FileExistsError, match=re.escape(f"path: {path} exists; choose another name or pass overwrite=")
    ):
        q.to_onnx(path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"^to_onnx: needs onnx; pip install 'histnetq\[onnx\]'.$"):
        q.to_onnx(path, overwrite=True)
    assert path.read_text() == "mine"


def test_a_graph_goes_to_object_storage(tmp_path):
    X, y = labelled(2)
    hq.CC(cv=0.3, random_state=0).fit(X, y).to_onnx("memory://graphs/rows.onnx", overwrite=True)
    with fsspec.open("memory://graphs/rows.onnx", "rb") as file:
        assert onnx.load_from_string(file.read()).producer_name == "histnetq"
