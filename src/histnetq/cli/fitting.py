"""Fit, choose and tune quantifiers on the bags of a table, and calibrate them by bags that are kept apart."""

from __future__ import annotations

import datetime
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from histnetq.data.bags import Bags
from histnetq.data.checks import check_choice
from histnetq.evaluation.comparison import Comparison
from histnetq.evaluation.errors import compare
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.registry import METHODS

_FROM_LABELS, _FROM_PROPORTIONS = ("emq", "pacc", "kdey", "histnetq"), ("histnetq", "emnetq", "deepsets")
_FLOOR = "mean of training"
_HELD_OUT = 0.25  # part of the bags that methods are compared on
_FEWEST_TO_CALIBRATE = 20  # bags: fewer give intervals for no usual coverage
_FEWEST_TO_JUDGE = 3


@dataclass(frozen=True)
class Workbench:
    """Bags of known proportions, or of labelled rows, and how quantifiers are fitted to them.

    Attributes
    ----------
    bags : Bags
        All that is known.
    loss : str
        What networks are trained for, a name from `histnetq.metrics`.
    calibration : float
        Part of the bags that is kept apart to calibrate by; 0 for none.
    random_state : int
        Seed of all that is drawn.
    about : dict
        Where the bags come from, for the model's `provenance_`.
    """

    bags: Bags
    loss: str = "ae"  # the measure that methods are chosen by
    calibration: float = 0.25
    random_state: int = 0
    about: Mapping[str, Any] = field(default_factory=dict)

    def fit(self, method: str) -> Quantifier:
        """Fit a quantifier, by its name in lower case, and calibrate it by some bags that are kept apart."""
        began, (learned, held) = time.perf_counter(), self._kept_apart()
        return self._finished(self.make(method).fit(learned), learned, held, began)

    def fit_best(self) -> tuple[Quantifier, Comparison]:
        """Compare a few methods on bags that are kept apart, and fit the one of the lowest mean AE to all."""
        began, (learned, held) = time.perf_counter(), self._kept_apart()
        comparison = replace(self, bags=learned).compare(None)
        errors = comparison.table["ae", "mean"].astype(float).sort_values()
        best = next(name for name in errors.index if name != _FLOOR)
        others = ", ".join(f"{name} {errors[name]:.4f}" for name in errors.index if name != best)
        why = (
            f"{best} has the lowest mean AE of the methods on {len(comparison.errors)} bags kept apart: "
            f"{errors[best]:.4f} ({others})."
        )
        if errors.index[0] == _FLOOR:
            why += f" But {_FLOOR} errs less: these features tell little about the classes."
        return self._finished(self.make(best.lower()).fit(learned), learned, held, began, why=why), comparison

    def compare(self, methods: Sequence[str] | None) -> Comparison:
        """Fit methods to most of the bags and compare them on the others; default: a few that suit what is known."""
        if round(_HELD_OUT * len(self.bags)) < _FEWEST_TO_JUDGE:
            raise ValueError(
                f"bags: expected at least {round(_FEWEST_TO_JUDGE / _HELD_OUT)} bags to compare methods on a part of "
                f"them, got {len(self.bags)}; name one method, or give more bags."
            )
        if methods is None:
            methods = _FROM_PROPORTIONS if self.bags.labels is None else _FROM_LABELS
        made = [self.make(method) for method in methods]
        learned, held = self.bags.split(1 - _HELD_OUT, self.random_state)
        fitted = {type(model).__name__: model.fit(learned) for model in made}
        return compare({**fitted, _FLOOR: self.make("mlpe").fit(learned)}, held)

    def tune(self, method: str, trials: int, storage: str | None) -> Quantifier:
        """Search the method's parameters by AE on bags that are kept apart, and fit the best."""
        from histnetq.evaluation.tuning import tune

        began, model = time.perf_counter(), self.make(method)
        space = METHODS[method].space
        if not space:
            raise ValueError(f"method: {type(model).__name__} has nothing to tune; fit it.")
        learned, held = self._kept_apart()
        found = tune(
            model, space, learned, trials=trials, measure="ae", storage=storage, random_state=self.random_state
        )
        assert found.quantifier is not None
        why = f"The best of {len(found.trials)} trials by mean AE, {found.best_value:.4f}: {found.best_params}."
        return self._finished(found.quantifier, learned, held, began, why=why)

    @property
    def table_facts(self) -> dict[str, Any]:
        """What the reader of the table told beside the bags."""
        facts = self.bags.facts
        if facts is None:
            return {}
        means = facts.means.tolist()
        return {
            "left_out": facts.left_out, "feature_means": means, "dropped_rows": facts.dropped,
            "filled_cells": facts.filled,
        }  # fmt: skip

    def make(self, method: str) -> Quantifier:
        """Make an unfitted quantifier that can learn from the bags."""
        entry = METHODS[check_choice("method", method, tuple(METHODS))]
        if self.bags.labels is None and entry.learns_from == "labels":
            raise ValueError(
                f"method: {entry.name} learns from labelled rows, but these have none; name the label column, "
                "or use histnetq, emnetq, deepsets or settransformer, which learn from proportions."
            )
        model: Quantifier = entry.load()()
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))  # for columns of any units
        wanted = {"random_state": self.random_state, "classifier": classifier, "loss": self.loss}
        accepted = model.get_params(deep=False)
        return model.set_params(**{name: value for name, value in wanted.items() if name in accepted})

    def _kept_apart(self) -> tuple[Bags, Bags | None]:
        if self.calibration > 0 and round(self.calibration * len(self.bags)) >= _FEWEST_TO_CALIBRATE:
            return self.bags.split(1 - self.calibration, self.random_state)
        return self.bags, None

    def _finished(self, model: Quantifier, learned: Bags, held: Bags | None, began: float, **why: str) -> Quantifier:
        """Calibrate a fitted model, and note where it comes from."""
        if held is not None:
            model.calibrate(held)
        versions = {name: metadata.version(name) for name in ("histnetq", "numpy", "scikit-learn", "torch")}
        model.provenance_ = {
            **self.about, **why, **self.table_facts, "bags": len(learned), "rows": len(learned.index),
            "calibration_bags": 0 if held is None else len(held), "seconds": round(time.perf_counter() - began, 1),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "versions": {"python": platform.python_version(), **versions},
        }  # fmt: skip
        return model
