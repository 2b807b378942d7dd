"""Fit, choose and tune quantifiers on the bags of a table, and calibrate them by bags that are kept apart."""

from __future__ import annotations

import datetime
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from histnetq.data.bags import Bags
from histnetq.data.checks import check_choice
from histnetq.evaluation.comparison import Comparison
from histnetq.evaluation.errors import compare
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.registry import METHODS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Fitted", "compare_methods", "fit_best", "fit_model", "tune_model"]

_FROM_LABELS, _FROM_PROPORTIONS = ("emq", "pacc", "kdey", "histnetq"), ("histnetq", "emnetq", "deepsets")
_FLOOR = "mean of training"
_LOSS = "ae"  # of networks: the measure that methods are chosen by
_FEWEST_TO_CALIBRATE = 20  # bags: fewer give intervals for no usual coverage
_FEWEST_TO_JUDGE = 3


@dataclass(frozen=True)
class Fitted:
    """A fitted model, with the bags it was fitted to and those it was calibrated by (None if too few)."""

    model: Quantifier
    learned: Bags
    calibrated: Bags | None


def fit_model(
    bags: Bags,
    method: str,
    *,
    loss: str = _LOSS,
    calibration: float = 0.25,
    random_state: int = 0,
    about: Mapping[str, Any] | None = None,
) -> Fitted:
    """Fit a quantifier to bags of known proportions, or of labelled rows, and calibrate it by some that are kept apart.

    Parameters
    ----------
    method : name of a quantifier, in lower case
    loss : str
        What networks are trained for, a name from `histnetq.metrics`.
    calibration : float
        Part of the bags that is kept apart; 0 for none.
    about : dict, optional
        Where the bags come from, for the model's `provenance_`.
    """
    began = time.perf_counter()
    learned, held = _kept_apart(bags, calibration, random_state)
    model = _make(method, bags, random_state, loss).fit(learned)
    return _finished(model, learned, held, began, about)


def fit_best(
    bags: Bags,
    *,
    loss: str = _LOSS,
    calibration: float = 0.25,
    random_state: int = 0,
    about: Mapping[str, Any] | None = None,
) -> tuple[Fitted, Comparison]:
    """Compare a few methods on bags that are kept apart, and fit the one of the lowest mean AE to all."""
    began = time.perf_counter()
    learned, held = _kept_apart(bags, calibration, random_state)
    comparison = compare_methods(learned, None, loss=loss, random_state=random_state)
    errors = comparison.table["ae", "mean"].astype(float).sort_values()
    best = next(name for name in errors.index if name != _FLOOR)
    others = ", ".join(f"{name} {errors[name]:.4f}" for name in errors.index if name != best)
    why = (
        f"{best} has the lowest mean AE of the methods on {len(comparison.errors)} bags kept apart: "
        f"{errors[best]:.4f} ({others})."
    )
    if errors.index[0] == _FLOOR:
        why += f" But {_FLOOR} errs less: these features tell little about the classes."
    model = _make(best.lower(), bags, random_state, loss).fit(learned)
    return _finished(model, learned, held, began, {**(about or {}), "why": why}), comparison


def compare_methods(
    bags: Bags, methods: Sequence[str] | None, *, loss: str = _LOSS, held_out: float = 0.25, random_state: int = 0
) -> Comparison:
    """Fit methods to most of the bags and compare them on the others; default: a few that suit what is known."""
    n_held = round(held_out * len(bags))
    if n_held < _FEWEST_TO_JUDGE:
        raise ValueError(
            f"bags: expected at least {round(_FEWEST_TO_JUDGE / held_out)} bags to compare methods on a part of them, "
            f"got {len(bags)}; name one method, or give more bags."
        )
    if methods is None:
        methods = _FROM_PROPORTIONS if bags.labels is None else _FROM_LABELS
    made = [_make(method, bags, random_state, loss) for method in methods]
    learned, held = bags.split(1 - held_out, random_state)
    floor = _make("mlpe", learned, random_state).fit(learned)
    fitted = {type(model).__name__: model.fit(learned) for model in made}
    return compare({**fitted, _FLOOR: floor}, held)


def tune_model(
    bags: Bags,
    method: str,
    trials: int,
    *,
    storage: str | None = None,
    calibration: float = 0.25,
    random_state: int = 0,
    about: Mapping[str, Any] | None = None,
) -> tuple[Fitted, pd.DataFrame]:
    """Search the method's parameters by AE on bags that are kept apart, fit the best; also a table of the trials."""
    from histnetq.evaluation.tuning import tune

    began = time.perf_counter()
    model = _make(method, bags, random_state)
    if not METHODS[method].space:
        raise ValueError(f"method: {type(model).__name__} has nothing to tune; fit it.")
    learned, held = _kept_apart(bags, calibration, random_state)
    found = tune(
        model, METHODS[method].space, learned, trials=trials, measure="ae", storage=storage, random_state=random_state
    )
    assert found.quantifier is not None
    why = f"The best of {len(found.trials)} trials by mean AE, {found.best_value:.4f}: {found.best_params}."
    return _finished(found.quantifier, learned, held, began, {**(about or {}), "why": why}), found.trials


def _make(method: str, bags: Bags, random_state: int, loss: str = _LOSS) -> Quantifier:
    """An unfitted quantifier for these bags."""
    entry = METHODS[check_choice("method", method, tuple(METHODS))]
    kind = entry.load()
    if bags.labels is None and entry.learns_from == "labels":
        raise ValueError(
            f"method: {entry.name} learns from labelled rows, but these have none; name the label column, "
            "or use histnetq, emnetq, deepsets or settransformer, which learn from proportions."
        )
    accepted = kind().get_params(deep=False)
    wanted = {"random_state": random_state, "classifier": _classifier(), "loss": loss}
    model: Quantifier = kind(**{name: value for name, value in wanted.items() if name in accepted})
    return model


def _classifier() -> Any:
    """For columns of any units."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def _kept_apart(bags: Bags, calibration: float, random_state: int) -> tuple[Bags, Bags | None]:
    if calibration > 0 and round(calibration * len(bags)) >= _FEWEST_TO_CALIBRATE:
        return bags.split(1 - calibration, random_state)
    return bags, None


def _finished(
    model: Quantifier, learned: Bags, held: Bags | None, began: float, about: Mapping[str, Any] | None
) -> Fitted:
    if held is not None:
        model.calibrate(held)
    versions = {name: metadata.version(name) for name in ("histnetq", "numpy", "scikit-learn", "torch")}
    model.provenance_ = {
        **(about or {}), "bags": len(learned), "rows": len(learned.index),
        "calibration_bags": 0 if held is None else len(held), "seconds": round(time.perf_counter() - began, 1),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": {"python": platform.python_version(), **versions},
    }  # fmt: skip
    return Fitted(model, learned, held)
