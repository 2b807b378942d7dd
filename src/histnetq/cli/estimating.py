"""Estimate and judge the bags of a table by stored models."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from histnetq.data.bags import Bags
from histnetq.data.table_files import find_files
from histnetq.data.tables import read_bags_and_unseen
from histnetq.evaluation.comparison import Comparison
from histnetq.evaluation.errors import compare, evaluate
from histnetq.metrics import MEASURES
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.saving import load
from histnetq.report import write_report
from histnetq.simplex import Floats
from histnetq.sketches.sketch import BagSketch, SketchSum, is_sketch
from histnetq.sketches.tables import sketch_table
from histnetq.uncertainty.methods import INTERVALS

Place = str | os.PathLike[str]


def estimate(
    path: Place, source: Any, *, coverage: float | None = None, interval: str | None = None, **reading: Any
) -> pd.DataFrame:
    """Estimate the bags of a table, or of sketches, by a stored model: bag, class, estimate, lower and upper, n, trust.

    Parameters
    ----------
    source : paths
        Of tables, which are read in one pass where the model's sketches are exact and no bootstrap is asked for; or of
        sketches that `sketch` wrote, all of them added up.
    interval : str, optional
        A name from `histnetq.uncertainty.methods`; default: conformal if the model is calibrated, else none.
    **reading
        `bag`, the columns that name the bags (none keeps the bags of sketches as they are), and `weight`, `dask` and
        `progress` as in `sketch`.
    """
    model = load(path)
    whole = "" if interval is None else INTERVALS[interval].needs_rows
    bags, unseen = _find_bags(model, source, whole, **reading)
    n_classes = len(model.classes_)
    if interval is None and (coverage is not None or hasattr(model, "calibration_")):
        interval = "conformal"
    if interval is None:
        columns = {"bag": np.repeat(np.asarray(bags.ids), n_classes), "class": np.tile(model.classes_, len(bags))}
        columns |= {"estimate": model.predict(bags).ravel(), "n": np.repeat(bags.sizes, n_classes)}
        frame = pd.DataFrame(columns)
    else:
        found = model.predict_interval(bags, 0.9 if coverage is None else coverage, method=interval)
        frame = found.to_frame(model.classes_, bags.ids)
    return frame.assign(trust=np.repeat(judge(model, bags, unseen)["trust"].to_numpy(), n_classes))


def sketch(
    model: Quantifier, source: Any, *, bag: Sequence[str], weight: str | None, dask: str | None, progress: bool
) -> BagSketch:
    """Sketch the bags of a table.

    Parameters
    ----------
    dask : str or None
        Address of the scheduler whose workers read the table, or "local".
    progress : bool
        Whether their progress is shown.
    """
    if dask is None:
        return sketch_table(model, source, bag=bag, weight=weight)
    from histnetq.sketches.on_dask import sketch_dask

    return sketch_dask(model, source, bag=bag, weight=weight, client=dask, progress=progress)


def score(path: Place, source: Any, **options: Any) -> tuple[pd.DataFrame, dict[str, float]]:
    """Errors of a stored model on bags of known proportions, and mean ones of its training's mean instead of it.

    Options are those of `read_bags`.
    """
    model = load(path)
    bags = _reader(source, **options)(model)[0]
    errors, known = evaluate(model, bags), bags.with_known_prevalences().with_classes(model.classes_)
    floor = np.tile(model.train_prevalences_, (len(bags), 1))
    means = {name: float(MEASURES[name](known.prevalences, floor, bags.sizes).mean()) for name in ("ae", "rae")}
    return errors, means


def compare_models(paths: Sequence[Place], source: Any, **options: Any) -> Comparison:
    """Compare stored models on the same bags of known proportions; options are those of `read_bags`."""
    read = _reader(source, **options)
    models = {str(path): load(path) for path in paths}
    bags = [read(model)[0] for model in models.values()]
    return compare({name: _by_class(models[name], own) for name, own in zip(models, bags, strict=True)}, bags[0])


def report(
    path: Path, model_path: Place, source: Any, *, against: Sequence[Place] = (), coverage: float = 0.9,
    command: str = "", force: bool = False, **options: Any,
) -> None:  # fmt: skip
    """Write a page about a stored model and the bags of a table, of known proportions or not."""
    model, read = load(model_path), _reader(source, **options)
    bags, unseen = read(model)
    intervals = model.predict_interval(bags, coverage) if hasattr(model, "calibration_") else None
    others = {str(other): load(other) for other in against}
    rivals = {name: _by_class(other, read(other)[0]) for name, other in others.items()}
    write_report(
        path, model=model, bags=bags, intervals=intervals, trust=judge(model, bags, unseen), rivals=rivals,
        command=command, sources=source if isinstance(source, list) else [source], force=force,
    )  # fmt: skip


def judge(model: Quantifier, bags: Bags | BagSketch, unseen: Floats) -> pd.DataFrame:
    """One row per bag: p_value, small, unseen (part of its rows with texts not met in training), trust in words."""
    if hasattr(model, "trust_"):
        found = model.trust(bags)
    else:
        found = pd.DataFrame({"p_value": np.nan, "small": False, "trust": "unchecked"}, index=np.asarray(bags.ids))
    words = found["trust"].where(unseen == 0, found["trust"].replace({"ok": "", "unchecked": ""}) + "; unseen values")
    return found.assign(unseen=unseen, trust=words.str.removeprefix("; "))


def _find_bags(
    model: Quantifier, source: Any, whole: str, *, bag: Sequence[str], weight: str | None = None,
    dask: str | None = None, progress: bool = False,
) -> tuple[Bags | BagSketch, Floats]:  # fmt: skip
    """Bags or their sketches, and the part of each bag's rows with texts not met in training."""
    files = find_files(source, "source")
    stored = [is_sketch(file) for file in files]
    if any(stored) and not all(stored):
        raise ValueError("source: some files hold sketches and some rows; sketch the rows first, by histnetq sketch.")
    if whole and (any(stored) or dask is not None):
        raise ValueError(f"interval: {whole}, which sketches do not hold; leave it out.")
    if any(stored) and (weight is not None or dask is not None):
        raise ValueError("weight, dask: expected beside rows, got sketches, which hold the sums already; leave it out.")
    if not any(stored) and not bag:
        raise ValueError("bag: expected the column that says which bag a row belongs to, got none; add --bag.")
    if any(stored):
        found = _add_up(files, bag)
    elif dask is not None or (model.sketch_kind == "exact" and not whole):
        found = sketch(model, source, bag=bag, weight=weight, dask=dask, progress=progress)
    else:
        return _reader(source, bag=bag, weight=weight)(model)
    return found, found.unseen / found.n_rows


def _add_up(files: Sequence[Place], bag: Sequence[str]) -> BagSketch:
    total = SketchSum()
    for file in files:
        part = BagSketch.load(file)
        total.add(part.roll_up_keys(bag) if bag else part)
    found = total.result()
    return replace(found, ids=np.zeros(1, np.int64)) if found.ids is None else found


def _by_class(model: Quantifier, bags: Bags) -> pd.DataFrame:
    """Estimates with the classes as columns."""
    return pd.DataFrame(model.predict(bags), columns=[str(name) for name in model.classes_])


def _reader(source: Any, **options: Any) -> Callable[[Quantifier], tuple[Bags, Floats]]:
    """Return what reads the bags of this table for a model, and which part of a bag's rows has texts new to it.

    The table is read once for all models with the same feature columns.
    """

    @functools.cache
    def read(features: tuple[str, ...]) -> tuple[Bags, Floats]:
        return read_bags_and_unseen(source, features=list(features), **options)

    def read_for(model: Quantifier) -> tuple[Bags, Floats]:
        if model.feature_names_ is None:
            raise ValueError("model: was fitted without column names, which tables are matched by; fit it to a table.")
        return read(tuple(model.feature_names_))

    return read_for
