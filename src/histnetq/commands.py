"""What the command line does with tables and models; it says nothing and asks nothing itself."""

from __future__ import annotations

import contextlib
import importlib
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from histnetq.bags import Bags
from histnetq.base import Quantifier, load
from histnetq.checks import check_choice
from histnetq.evaluation import evaluate
from histnetq.tables import read_bags

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["METHODS", "Fitted", "estimate", "fit_model", "refuse_existing", "score", "write_table"]

METHODS = {
    name.lower(): (module, name)
    for module, names in {
        "deep": ("HistNetQ", "DeepSets", "SetTransformer"),
        "quanet": ("QuaNet",),
        "classical": ("CC", "PCC", "ACC", "PACC", "EMQ", "HDy", "DyS", "KDEy", "MLPE"),
    }.items()
    for name in names
}
_FEWEST_TO_CALIBRATE = 20  # bags: fewer give intervals for no usual coverage


@dataclass(frozen=True)
class Fitted:
    """A fitted model, with the bags it was fitted to and those it was calibrated by (None if too few)."""

    model: Quantifier
    learned: Bags
    calibrated: Bags | None


def fit_model(bags: Bags, method: str, *, calibration: float = 0.25, random_state: int = 0) -> Fitted:
    """Fit a quantifier to bags of known proportions, or of labelled rows, and calibrate it by some that are kept apart.

    Parameters
    ----------
    method : name of a quantifier, in lower case
    calibration : float
        Part of the bags that is kept apart; 0 for none.
    """
    module, name = METHODS[check_choice("method", method, tuple(METHODS))]
    kind = getattr(importlib.import_module(f"histnetq.{module}"), name)
    network = module == "deep"
    if not network and bags.labels is None:
        raise ValueError(
            f"method: {name} learns from labelled rows, but these have none; name the label column, "
            "or use histnetq, deepsets or settransformer, which learn from proportions."
        )
    accepted = kind().get_params(deep=False)
    wanted = {"random_state": random_state, "classifier": _classifier()}
    model = kind(**{name: value for name, value in wanted.items() if name in accepted})
    learned, held = bags, None
    if calibration > 0 and round(calibration * len(bags)) >= _FEWEST_TO_CALIBRATE:
        learned, held = bags.split(1 - calibration, random_state)
    model.fit(learned if network or name == "MLPE" else _as_one(learned))
    if held is not None:
        model.calibrate(held)
    return Fitted(model, learned, held)


def _classifier() -> Any:
    """For columns of any units."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def _as_one(bags: Bags) -> Bags:
    """All rows as one bag, for methods that learn from labelled rows."""
    joined = bags.drawn(bags.index, np.array([0, len(bags.index)]), bags.weights, None)
    return joined.with_prevalences(joined.label_prevalences())


def estimate(
    path: str | os.PathLike[str],
    source: Any,
    *,
    bag: Sequence[str],
    weight: str | None = None,
    coverage: float | None = None,
) -> pd.DataFrame:
    """Estimate the bags of a table by a stored model: bag, class, estimate, lower and upper where calibrated, n."""
    import pandas as pd

    model = load(path)
    bags = read_bags(source, bag=bag, features=_features(model), weight=weight)
    if coverage is not None or hasattr(model, "calibration_"):
        return model.predict_interval(bags, 0.9 if coverage is None else coverage).to_frame(model.classes_, bags.ids)
    p, n_classes = model.predict(bags), len(model.classes_)
    return pd.DataFrame(
        {
            "bag": np.repeat(bags.ids, n_classes),
            "class": np.tile(model.classes_, len(bags)),
            "estimate": p.ravel(),
            "n": np.repeat(bags.sizes, n_classes),
        }
    )


def score(path: str | os.PathLike[str], source: Any, **options: Any) -> pd.DataFrame:
    """Errors of a stored model on bags of known proportions; options are those of `read_bags`."""
    model = load(path)
    bags = read_bags(source, features=_features(model), **options)
    return evaluate(model, bags)


def _features(model: Quantifier) -> list[str]:
    if model.feature_names_ is None:
        raise ValueError("model: was fitted without column names, which tables are matched by; fit it to a table.")
    return model.feature_names_


def refuse_existing(path: Path | None, force: bool) -> None:
    """Before the work is done, where it takes long."""
    if path is not None and path.exists() and not force:
        raise FileExistsError(f"output: {path} exists; choose another name or pass --force to replace it.")


def write_table(table: pd.DataFrame, path: Path, *, force: bool, index: bool = False) -> None:
    """Write a CSV or Parquet file, all of it or nothing."""
    refuse_existing(path, force)
    partial = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".parquet", ".pq"):
            table.to_parquet(partial, index=index)
        else:
            table.to_csv(partial, index=index, lineterminator="\n")
        os.replace(partial, path)
    except OSError as error:
        raise OSError(f"output: {path} cannot be written ({error.strerror or error}); choose another place.") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
