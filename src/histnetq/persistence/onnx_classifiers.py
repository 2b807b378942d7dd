"""The built-in scikit-learn classifiers as ONNX graphs in double precision: from rows to class probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from histnetq.errors import InputTypeError
from histnetq.persistence.onnx_graphs import OnnxGraph, layer, softmax
from histnetq.persistence.tree_files import boosting_arrays, forest_arrays

_ACTIVATIONS = {"identity": "Identity", "logistic": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


def draw_classifier(graph: OnnxGraph, rows: str, classifier: Any) -> str:
    """Draw a fitted classifier, and return the name of the probabilities: (n_rows, n_classes of the classifier)."""
    *scalers, last = [step for _, step in classifier.steps] if type(classifier) is Pipeline else [classifier]
    if any(type(step) is not StandardScaler for step in scalers) or type(last) not in _DRAWN:
        kinds = ", ".join(type(step).__name__ for step in (*scalers, last))
        expected = "a built-in classifier: logistic, forest, boosting, mlp or bayes"
        raise InputTypeError("classifier", expected, kinds, "export it by its own tools, such as skl2onnx")
    for scaler in scalers:
        if scaler.with_mean:
            rows = graph.node("Sub", rows, graph.constant(scaler.mean_))
        if scaler.with_std:
            rows = graph.node("Div", rows, graph.constant(scaler.scale_))
    return _DRAWN[type(last)](graph, rows, last)


def _logistic(graph: OnnxGraph, rows: str, model: LogisticRegression) -> str:
    one_by_one = model.solver == "liblinear" or getattr(model, "multi_class", "auto") == "ovr"
    if len(model.classes_) > 2 and one_by_one:
        raise InputTypeError("classifier", "a multinomial logistic regression", "one per class", "use another solver")
    scores = layer(graph, rows, model.coef_.T, model.intercept_)
    return softmax(graph, scores) if len(model.classes_) > 2 else _of_two(graph, scores)


def _of_two(graph: OnnxGraph, scores: str) -> str:
    """Draw the probabilities of two classes from the log-odds of the second, (n_rows, 1)."""
    second = graph.node("Sigmoid", scores)
    first = graph.node("Sigmoid", graph.node("Neg", scores))
    return graph.node("Concat", first, second, axis=1)


def _mlp(graph: OnnxGraph, rows: str, model: MLPClassifier) -> str:
    for i, (weights, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        if i:
            rows = graph.node(_ACTIVATIONS[model.activation], rows)
        rows = layer(graph, rows, weights.astype(np.float64), bias.astype(np.float64))
    return _of_two(graph, rows) if len(model.classes_) == 2 else softmax(graph, rows)


def _bayes(graph: OnnxGraph, rows: str, model: GaussianNB) -> str:
    each = graph.node("Unsqueeze", rows, graph.constant([1], np.int64))  # (n_rows, 1, n_features)
    gap = graph.node("Sub", each, graph.constant(model.theta_))
    terms = graph.node("Div", graph.node("Mul", gap, gap), graph.constant(model.var_))
    sums = graph.node("ReduceSum", terms, graph.constant([2], np.int64), keepdims=0)
    known = np.log(model.class_prior_) - 0.5 * np.log(2 * np.pi * model.var_).sum(1)
    half = graph.node("Mul", sums, graph.constant(-0.5, np.float64))
    return softmax(graph, graph.node("Add", half, graph.constant(known)))


def _forest(graph: OnnxGraph, rows: str, model: Any) -> str:
    own = forest_arrays(model)
    leaves = own["nodes/left_child"] == -1
    names = ("left_child", "right_child", "feature", "threshold", "missing_go_to_left")
    # scikit-learn rounds rows to single precision, and compares them with thresholds of double precision.
    rounded = graph.cast(graph.cast(rows, np.float32), np.float64)
    shares = own["values"][leaves, 0] / len(own["sizes"])
    targets = np.tile(np.arange(shares.shape[1]), len(shares))
    drawn = _trees(graph, rounded, own["sizes"], leaves, [own[f"nodes/{name}"] for name in names], shares, targets)
    return graph.cast(drawn, np.float64)


def _boosting(graph: OnnxGraph, rows: str, model: HistGradientBoostingClassifier) -> str:
    own, per_round = boosting_arrays(model), model.n_trees_per_iteration_
    if own is None:
        raise InputTypeError("classifier", "boosting on numbers", "boosting on categories", "encode them as numbers")
    leaves = own["nodes/is_leaf"] != 0
    names = ("left", "right", "feature_idx", "num_threshold", "missing_go_to_left")
    tree = np.repeat(np.arange(len(own["sizes"])), own["sizes"])
    values, targets = own["nodes/value"][leaves, None], tree[leaves] % per_round
    sums = _trees(graph, rows, own["sizes"], leaves, [own[f"nodes/{name}"] for name in names], values, targets)
    scores = graph.node("Add", graph.cast(sums, np.float64), graph.constant(own["baseline"], np.float64))
    return _of_two(graph, scores) if per_round == 1 else softmax(graph, scores)


def _trees(
    graph: OnnxGraph,
    rows: str,
    sizes: NDArray,
    leaves: NDArray,
    nodes: list[NDArray],
    values: NDArray,
    targets: NDArray,
) -> str:
    """Draw trees whose values are summed, and return the name of the sums.

    `nodes` are the left and right children, features, thresholds, and whether missing values go left; `values`
    (n_leaves, n) are the values of a leaf, and `targets` (n_leaves · n,) the columns that they are added to.
    """
    from onnx import numpy_helper

    left, right, feature, threshold, missing = nodes
    tree = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(len(tree)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    n_values = values.shape[1]
    return graph.node(
        "TreeEnsembleRegressor",
        rows,
        domain="ai.onnx.ml",
        n_targets=int(targets.max()) + 1,
        nodes_treeids=tree.tolist(),
        nodes_nodeids=place.tolist(),
        nodes_modes=np.where(leaves, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_featureids=np.where(leaves, 0, feature).tolist(),
        nodes_truenodeids=np.where(leaves, 0, left).tolist(),
        nodes_falsenodeids=np.where(leaves, 0, right).tolist(),
        nodes_missing_value_tracks_true=np.where(leaves, 0, missing).astype(int).tolist(),
        nodes_values_as_tensor=numpy_helper.from_array(np.where(leaves, 0.0, threshold), "thresholds"),
        target_treeids=np.repeat(tree[leaves], n_values).tolist(),
        target_nodeids=np.repeat(place[leaves], n_values).tolist(),
        target_ids=targets.tolist(),
        target_weights_as_tensor=numpy_helper.from_array(np.ascontiguousarray(values, np.float64).ravel(), "values"),
    )


_DRAWN: dict[type, Callable[[OnnxGraph, str, Any], str]] = {
    LogisticRegression: _logistic,
    MLPClassifier: _mlp,
    GaussianNB: _bayes,
    RandomForestClassifier: _forest,
    ExtraTreesClassifier: _forest,
    HistGradientBoostingClassifier: _boosting,
}
