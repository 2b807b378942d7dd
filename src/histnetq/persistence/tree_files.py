"""Trees of forests and of boosting as plain arrays, which are checked before compiled code reads them.

Compiled trees do not check their indices, so a wrong index would read memory outside the tree. Therefore every index
is checked before a tree is constructed: children come after their parent and within the tree, every node except the
first is the child of exactly one parent, and features are below the number of features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from sklearn.tree._tree import NODE_DTYPE, Tree

Arrays = dict[str, NDArray]
_ROUNDED = 1e-6  # the shares in a leaf may differ from a sum of 1 by this rounding error
_MOST_JOBS = 1000  # threads that a forest may ask for
_LEAF = -1  # index of the children of a leaf in a forest
_BOOSTED = ("value", "count", "feature_idx", "num_threshold", "missing_go_to_left", "left", "right", "gain", "depth",
            "is_leaf", "bin_threshold")  # fmt: skip


def forest_arrays(forest: Any) -> Arrays:
    """Return the concatenated trees of a fitted forest: nodes, shares of the classes in each node, and tree sizes."""
    states = [tree.tree_.__getstate__() for tree in forest.estimators_]
    nodes = np.concatenate([state["nodes"] for state in states])
    arrays = {f"nodes/{name}": nodes[name] for name in NODE_DTYPE.names}
    values = np.concatenate([state["values"] for state in states])
    return {**arrays, "values": values, "sizes": np.array([len(state["nodes"]) for state in states])}


def restore_forest(forest: Any, arrays: Arrays, n_features: int) -> None:
    """Set the trees of a forest whose classes are already set."""
    n_classes = len(forest.classes_)
    if forest.n_jobs is not None and forest.n_jobs > _MOST_JOBS:  # predicting would start this many threads
        raise ValueError(f"the trees ask for {forest.n_jobs} jobs, expected at most {_MOST_JOBS:,}")
    sizes, nodes = _checked_records(arrays, NODE_DTYPE, NODE_DTYPE.names)
    leaf = nodes["left_child"] == _LEAF
    if (leaf != (nodes["right_child"] == _LEAF)).any():
        raise ValueError("a node of the trees has one child, expected two or none")
    depths = _checked_depths(sizes, nodes["left_child"], nodes["right_child"], leaf, nodes["feature"], n_features)
    values = checked_array(arrays, "values", (len(nodes), 1, n_classes))
    if not (values >= 0).all() or not (np.abs(values[leaf].sum(2) - 1) <= _ROUNDED).all():
        raise ValueError("the shares of the classes in a leaf are below 0, or do not add up to 1")
    kind = ExtraTreeClassifier if type(forest).__name__ == "ExtraTreesClassifier" else DecisionTreeClassifier
    params = {name: getattr(forest, name) for name in forest.estimator_params}
    forest.n_features_in_, forest.n_classes_, forest.n_outputs_ = n_features, n_classes, 1
    forest.estimator_, forest.estimators_ = kind(), []
    ends = np.cumsum(sizes)
    for start, end, depth in zip((ends - sizes).tolist(), ends.tolist(), depths.tolist(), strict=True):
        tree = Tree(n_features, np.array([n_classes], np.intp), 1)
        tree.__setstate__(
            {"max_depth": depth, "node_count": end - start, "nodes": nodes[start:end], "values": values[start:end]}
        )
        member = kind(**params)
        member.tree_, member.classes_, member.n_classes_ = tree, np.arange(n_classes, dtype=np.float64), n_classes
        member.n_features_in_, member.n_outputs_ = n_features, 1
        forest.estimators_.append(member)


def boosting_arrays(model: Any) -> Arrays | None:
    """Return the concatenated trees of a boosted classifier, or None if it splits by categories."""
    predictors = [tree for trees in model._predictors for tree in trees]
    nodes = np.concatenate([tree.nodes for tree in predictors])
    if model._preprocessor is not None or nodes["is_categorical"].any():
        return None
    arrays = {f"nodes/{name}": nodes[name] for name in _BOOSTED}
    sizes = np.array([len(tree.nodes) for tree in predictors])
    return {**arrays, "sizes": sizes, "baseline": model._baseline_prediction}


def restore_boosting(model: HistGradientBoostingClassifier, arrays: Arrays, n_features: int) -> None:
    """Set the trees of a boosted classifier whose classes are already set."""
    from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

    n_classes = len(model.classes_)
    per_round = 1 if n_classes <= 2 else n_classes
    sizes, nodes = _checked_records(arrays, PREDICTOR_RECORD_DTYPE, _BOOSTED)
    if len(sizes) % per_round:
        raise ValueError(f"there are {len(sizes)} trees, expected {per_round} in each round")
    left, right = nodes["left"].astype(np.int64), nodes["right"].astype(np.int64)
    _checked_depths(sizes, left, right, nodes["is_leaf"] != 0, nodes["feature_idx"], n_features)
    no_categories = np.zeros((0, 8), np.uint32)
    ends = np.cumsum(sizes)
    trees = [
        TreePredictor(nodes[start:end], no_categories, no_categories)
        for start, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True)
    ]
    model._predictors = [trees[i : i + per_round] for i in range(0, len(trees), per_round)]
    model._baseline_prediction = checked_array(arrays, "baseline", (1, per_round))
    model.n_features_in_, model.n_trees_per_iteration_ = n_features, per_round
    model._loss, model._preprocessor, model.is_categorical_ = model._get_loss(None), None, None
    model._is_categorical_remapped = None
    mapper = _BinMapper(n_bins=256)
    mapper.is_categorical_, mapper.bin_thresholds_ = np.zeros(n_features, np.uint8), []
    model._bin_mapper = mapper


def checked_array(arrays: Arrays, name: str, shape: tuple[int, ...], kinds: str = "f") -> NDArray:
    """Return an array; raise an error unless it has this shape, a type of these kinds and finite numbers."""
    if name not in arrays:
        raise ValueError(f"the array {name!r} is missing")
    array = arrays[name]
    if array.shape != shape or array.dtype.kind not in kinds or not np.isfinite(array).all():
        raise ValueError(
            f"the array {name!r} is {array.dtype} of shape {array.shape}, expected finite numbers of shape {shape}"
        )
    return array.astype(np.float64) if array.dtype == np.float16 else array


def _checked_records(
    arrays: Arrays, dtype: np.dtype, names: tuple[str, ...]
) -> tuple[NDArray[np.int64], NDArray[np.void]]:
    """Return the number of nodes of each tree, and all nodes as the records that compiled code reads."""
    sizes = arrays.get("sizes", np.empty(0))
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or not len(sizes) or not ((sizes > 0) & (sizes < 2**31)).all():
        raise ValueError("the sizes of the trees are missing, or are not whole numbers above 0")
    n_nodes = sum(sizes.tolist())
    columns = {name: checked_array(arrays, f"nodes/{name}", (n_nodes,), "biuf") for name in names}
    records = np.zeros(n_nodes, dtype)
    for name, column in columns.items():
        wanted = records[name].dtype
        if column.dtype.kind != wanted.kind or column.dtype.itemsize > wanted.itemsize:
            raise ValueError(f"the array 'nodes/{name}' is {column.dtype}, expected {wanted}")
        records[name] = column
    return sizes.astype(np.int64), records


def _checked_depths(
    sizes: NDArray[np.int64], left: NDArray, right: NDArray, leaf: NDArray, feature: NDArray, n_features: int
) -> NDArray[np.int64]:  # fmt: skip
    """Check that nodes, (n_nodes,), form trees of these sizes with valid features; return the depth of each tree."""
    ends = np.cumsum(sizes)
    starts = ends - sizes
    own = np.repeat(starts, sizes)  # first node of the tree of each node
    inner = np.flatnonzero(~leaf)
    children = np.stack([left[inner], right[inner]]).astype(np.int64)
    place, size = inner - own[inner], np.repeat(sizes, sizes)[inner]
    if not ((children > place) & (children < size)).all():
        raise ValueError("a node of the trees has a child that does not come after it in its tree")
    if not ((feature[inner] >= 0) & (feature[inner] < n_features)).all():
        raise ValueError(f"a node of the trees asks for a feature that is not among the {n_features}")
    absolute = children + own[inner]
    parents = np.bincount(absolute.reshape(-1), minlength=len(leaf))
    parents[starts] += 1
    if (parents != 1).any():
        raise ValueError("a node of the trees, other than a root, has no parent or several parents")
    depths = np.zeros(len(sizes), np.int64)
    tree_of, where = np.repeat(np.arange(len(sizes)), sizes), np.full(len(leaf), -1)
    where[inner] = np.arange(len(inner))
    level, depth = starts, 0
    while len(level := absolute[:, where[level[~leaf[level]]]].reshape(-1)):
        depth += 1
        depths[tree_of[level]] = depth
    return depths
