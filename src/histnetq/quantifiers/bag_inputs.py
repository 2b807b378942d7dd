"""The bags that a quantifier takes: what it learned of their features, and how arrays become bags of these."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from histnetq.bags.bags import Bags
from histnetq.bags.same_features import require_features, require_range
from histnetq.bags.text_features import TextFeatures
from histnetq.errors import InputError, Option, Way
from histnetq.sketches.sketch import BagSketch
from histnetq.tables.columns import FeatureSpec


class BagInputs(BaseEstimator):
    """The part of a `Quantifier` that knows its classes and features, and checks the bags that it is given."""

    classes_: NDArray
    input_shape_: tuple[int, ...]
    feature_names_: list[str] | None
    train_prevalences_: NDArray[np.float64]
    provenance_: dict[str, Any]
    text_: TextFeatures
    double_: bool = False  # whether float32 is too coarse for some feature
    scores_: bool = False  # whether the features are probabilities of the classes, in the order of these

    @property
    def n_features_in_(self) -> int:
        """Numbers in one row; absent before `fit`, and for texts."""
        if not getattr(self, "input_shape_", None):
            raise AttributeError(f"{type(self).__name__} has no n_features_in_; call fit with rows of numbers first.")
        return int(np.prod(self.input_shape_))

    @property
    def feature_names_in_(self) -> NDArray:
        """(n_features,): names of the columns; absent where they had none."""
        if getattr(self, "feature_names_", None) is None:
            raise AttributeError(f"{type(self).__name__} has no feature_names_in_; call fit with named columns first.")
        return np.array(self.feature_names_, dtype=object)

    def _learned_from(
        self, classes: NDArray, shape: tuple[int, ...], names: list[str] | None, prevalences: NDArray[np.float64],
        double: bool = False, scores: bool = False, text: TextFeatures | None = None,
    ) -> None:  # fmt: skip
        """Keep what every quantifier knows; drop the calibration, trust, provenance and texts of an earlier fit."""
        for name in ("calibration_", "trust_", "provenance_", "text_"):
            self.__dict__.pop(name, None)
        self.classes_, self.input_shape_, self.feature_names_ = classes, shape, names
        self.train_prevalences_, self.double_, self.scores_ = prevalences, double, scores
        if text is not None:
            self.text_ = text

    def reading(self) -> FeatureSpec:
        """Tell how the features are read from a table, which they are matched with by name.

        Returns
        -------
        FeatureSpec
            Names, precision, means in training if it was a table, the range in which the model can compute, and
            whether the features are scores.

        Examples
        --------
        >>> import pandas as pd, histnetq as hq
        >>> rows = pd.DataFrame({"seconds": [1.7e9, 1.7e9 + 60] * 10})
        >>> hq.CC().fit(rows, ["a", "b"] * 10).reading()
        FeatureSpec(names=('seconds',), double=True, means=None, low=None, high=None, scores=False)
        """
        self._require_fitted()
        if len(self.input_shape_) > 1:
            expected, got = (
                "one of columns, as tables have them",
                f"one of images or arrays of shape {self.input_shape_}",
            )
            by_option = Way("add ", Option("images", True), on=("command",))
            remedy = (Way("read images by read_images", on=("python", "service")), by_option)
            raise InputError("model", expected, got, remedy)
        if self.feature_names_ is None:
            raise ValueError("model: was fitted without column names, which tables are matched by; fit it to a table.")
        means = getattr(self, "provenance_", {}).get("feature_means")
        low, high = (None if end is None else tuple(end.tolist()) for end in self._range() or (None, None))
        known = None if means is None else tuple(means)
        return FeatureSpec(
            tuple(self.feature_names_), self.double_, known, low, high, self.scores_, getattr(self, "text_", None)
        )

    def _range(self) -> tuple[NDArray, NDArray] | None:
        """Give the lowest and highest value of each number in a row with which estimates can be computed, if any."""
        return None

    def _bags_to_estimate(self, X: Any) -> Bags:
        """Give bags, a list of arrays, or one bag as an array of rows, as `Bags` with the features of training."""
        bags = self._as_bags(X)
        self._require_same_features(bags)
        return bags

    def _as_bags(self, X: Any, row_axes: int | None = None) -> Bags:
        """Give bags, a list of arrays, or one bag as an array; refuse if there are none, or nothing was learned."""
        self._require_fitted()
        if isinstance(X, BagSketch):
            raise TypeError("X: expected rows, got a sketch, which holds none; pass the Bags themselves.")
        if not isinstance(X, Bags):
            return Bags.from_arrays(X) if self._are_several(X, row_axes) else Bags(X)
        if len(X) == 0:
            raise ValueError("X: expected at least one bag, got none; check how the bags were selected.")
        return X

    def _are_several(self, X: Any, row_axes: int | None = None) -> bool:
        """Whether these are bags, and not one bag that was given as an array or a list of its rows.

        What has one axis more than a row is a bag; rows have as many as those of training by default.
        """
        if isinstance(X, BagSketch):
            return X.ids is not None
        if not isinstance(X, list | tuple) or len(X) == 0 or isinstance(X[0], Bags):
            return isinstance(X, Bags)
        try:
            n_axes = np.ndim(X[0])
        except ValueError:  # rows of different lengths, which are refused where the array is made
            return True
        return bool(n_axes == 1 + (len(self.input_shape_) if row_axes is None else row_axes))

    def _require_fitted(self) -> None:
        if not hasattr(self, "classes_"):
            raise NotFittedError(f"{type(self).__name__} is not fitted; call fit first, or load a saved model.")

    def _require_same_features(self, bags: Bags, streamed: bool = False) -> None:
        require_features(bags, self.input_shape_, self.feature_names_, getattr(self, "text_", None))
        found = self._range()
        if found is not None:
            require_range(bags, *found, numbered=not streamed)
