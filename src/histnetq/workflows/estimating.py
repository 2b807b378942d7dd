"""Estimate and judge the bags of a table by stored models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.class_names import add_columns, with_all_classes
from histnetq.bags.indexing import natural_keys
from histnetq.evaluation.comparison import Comparison
from histnetq.evaluation.errors import compare, evaluate
from histnetq.metrics import MEASURES
from histnetq.persistence.saving import load
from histnetq.quantifiers.base import Quantifier
from histnetq.report.page import write_report
from histnetq.simplex import Floats
from histnetq.sketches.sketch import BagSketch, SketchSum, is_sketch
from histnetq.sketches.tables import sketch_table
from histnetq.tables.budget import require
from histnetq.tables.images import is_image_table
from histnetq.tables.table_files import find_files
from histnetq.uncertainty.methods import INTERVALS
from histnetq.workflows.reading import reader
from histnetq.workflows.row_probabilities import refuse_without_rows, row_table

Place = str | os.PathLike[str]
_COVERAGE = 0.9  # part of the intervals that should hold the truth
_BAG_BYTES, _NUMBER_BYTES = 1500, 100  # that the estimates of a bag take: once, and for each class
_DIGITS = 9  # decimals of estimates that are written: more than any has
_OWN = ("class", "estimate", "lower", "upper", "n", "trust")  # columns of the answer


@dataclass(frozen=True)
class Estimates:
    """Estimates of some bags, sorted by the names of the bags.

    Attributes
    ----------
    names : DataFrame
        One row per bag, and a column for each column that names the bags.
    about : DataFrame
        One row per bag: `n`, its size, and `trust`; of audited bags also `labels`, their number, and `method`.
    classes : (n_classes,)
    values : dict of str and (n_bags, n_classes)
        The estimates under "estimate"; with intervals, also "lower" and "upper".
    rows : DataFrame or None
        The class probabilities of each row, where they were asked for.
    """

    names: pd.DataFrame
    about: pd.DataFrame
    classes: NDArray
    values: Mapping[str, Floats]
    rows: pd.DataFrame | None = None

    @classmethod
    def of(
        cls, names: pd.DataFrame, sizes: NDArray, trust: Any, classes: NDArray, values: Mapping[str, Floats],
        **more: Any,
    ) -> Estimates:  # fmt: skip
        """Sort the bags by name, and round what has more digits than an estimate."""
        order = np.lexsort([natural_keys(names[column]) for column in reversed(names.columns)])
        about = pd.DataFrame({"n": sizes if sizes.dtype.kind in "iu" else sizes.round(2), "trust": trust, **more})
        rounded = {name: array[order].round(_DIGITS) for name, array in values.items()}
        names, about = (part.iloc[order].reset_index(drop=True) for part in (names, about))
        return cls(names, about, classes, rounded)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, some: slice) -> Estimates:
        """Give some of the bags, without rows."""
        names, about = (part.iloc[some].reset_index(drop=True) for part in (self.names, self.about))
        return Estimates(names, about, self.classes, {name: array[some] for name, array in self.values.items()})

    @property
    def n_doubted(self) -> int:
        """The number of bags that are not to be trusted."""
        return int((~self.about["trust"].isin(["ok", "unchecked"])).sum())

    @property
    def _class_names(self) -> NDArray:
        """Names that repeat by reference: as texts of one width, each would take the room of the longest."""
        return self.classes.astype(object) if self.classes.dtype.kind == "U" else self.classes

    def to_frame(self, wide: bool) -> pd.DataFrame:
        """Give a row per bag with columns for the classes, or a row per bag and class."""
        if not wide:
            repeated = np.repeat(np.arange(len(self)), len(self.classes))
            names, about = (part.iloc[repeated].reset_index(drop=True) for part in (self.names, self.about))
            flat = {name: values.ravel() for name, values in self.values.items()}
            return pd.concat(
                [names, pd.DataFrame({"class": np.tile(self._class_names, len(self)), **flat}), about], axis=1
            )
        columns = {str(name): self.values["estimate"][:, j] for j, name in enumerate(self.classes)}
        for j, name in enumerate(self.classes):
            columns |= {f"{name}_{end}": self.values[end][:, j] for end in ("lower", "upper") if end in self.values}
        frame = pd.concat([self.names, pd.DataFrame(columns), self.about], axis=1)
        if twice := frame.columns[frame.columns.duplicated()].tolist():
            raise ValueError(f"wide: two columns would be named {twice[0]!r}; rename the class, or leave out --wide.")
        return frame


def estimate(
    path: Place, source: Any, *, coverage: float | None = None, interval: str | None = None, with_rows: bool = False,
    **reading: Any,
) -> Estimates:  # fmt: skip
    """Estimate the bags of a table, or of sketches, by a stored model.

    Parameters
    ----------
    source : paths
        Of tables, which are read in one pass where the model's sketches are exact and intervals need no rows; or of
        sketches that `sketch` wrote, all of them added up.
    interval : str, optional
        A name from `histnetq.uncertainty.methods`; default: conformal if the model is calibrated, else none.
    with_rows : bool
        Whether the class probabilities of the rows, which all are in memory then, are given too.
    **reading
        `bag`, the columns that name the bags (none keeps the bags of sketches as they are, and takes a table for one
        bag), and `weight`, `missing`, `dask` and `progress` as in `sketch`; or `images` and the options of
        `read_images`.
    """
    return estimate_by(load(path), source, coverage=coverage, interval=interval, with_rows=with_rows, **reading)


def estimate_by(
    model: Quantifier, source: Any, *, coverage: float | None = None, interval: str | None = None,
    with_rows: bool = False, images: bool = False, progress: bool = False, **reading: Any,
) -> Estimates:  # fmt: skip
    """Estimate bags by a model that is loaded already; the rest is as in `estimate`."""
    if images:
        bags, unseen = reader(source, images=True, **reading)(model)
        return _estimated(model, bags, unseen, _image_keys(source, reading["bag"]), coverage, interval)
    whole = "" if interval is None else INTERVALS[interval].needs_rows
    if with_rows:
        refuse_without_rows(source, reading)
        whole = whole or "probabilities are of rows"
    found, unseen = _find_bags(model, source, whole, progress=progress, **reading)
    keys = reading["bag"] or (isinstance(found, BagSketch) and found.maker.keys) or ["bag"]
    return _estimated(model, found, unseen, list(keys), coverage, interval, with_rows)


def _estimated(
    model: Quantifier, bags: Bags | BagSketch, unseen: Floats, keys: list[str], coverage: float | None,
    interval: str | None, with_rows: bool = False,
) -> Estimates:  # fmt: skip
    """Estimate bags, with intervals where they are asked for or the model is calibrated, and judge them."""
    n_bytes = len(bags) * (_BAG_BYTES + _NUMBER_BYTES * len(model.classes_))
    require(n_bytes, f"estimates of {len(bags):,} bags", "use fewer bags")
    if interval is None and (coverage is not None or hasattr(model, "calibration_")):
        interval = "conformal"
    if interval is None:
        values = {"estimate": model.predict(bags)}
    else:
        found = model.predict_interval(bags, _COVERAGE if coverage is None else coverage, method=interval)
        values = {"estimate": found.estimates, "lower": found.lower, "upper": found.upper}
    names = name_columns(np.asarray(bags.ids), keys)
    rows = row_table(model, bags, values["estimate"], names) if with_rows and isinstance(bags, Bags) else None
    trust = judge(model, bags, unseen)["trust"].to_numpy()
    return replace(Estimates.of(names, np.asarray(bags.sizes), trust, model.classes_, values), rows=rows)


def name_columns(ids: NDArray, keys: Sequence[str]) -> pd.DataFrame:
    """Give the names of bags in the columns that they come from; a name of a column of the answer gets a ``bag_``.

    Names of several columns, joined by ``/``, are taken apart; they stay together where a value has a ``/`` itself.

    Examples
    --------
    >>> name_columns(np.array(["north/1", "south/2"]), ["site", "n"])
        site  bag_n
    0  north      1
    1  south      2
    """
    columns = [f"bag_{key}" if key in _OWN else key for key in keys]
    texts = pd.Series(ids.astype(str))
    parts = texts.to_frame() if len(keys) == 1 else texts.str.split("/", expand=True)
    if parts.shape[1] != len(keys) or parts.isna().any(axis=None):
        return pd.DataFrame({"/".join(keys): ids})
    return parts.apply(_as_numbers).set_axis(columns, axis=1)


def _as_numbers(texts: pd.Series) -> pd.Series:
    """Give whole numbers for texts that are nothing else: those of CSV files, too, come as texts."""
    return texts.astype(np.int64) if texts.str.fullmatch(r"0|-?[1-9]\d{0,17}").all() else texts


def sketch(
    model: Quantifier, source: Any, *, images: bool = False, dask: str | None = None, progress: bool = False,
    **reading: Any,
) -> BagSketch:  # fmt: skip
    """Sketch the bags of a table, or of images.

    Parameters
    ----------
    images : bool
        Whether the source holds images.
    dask : str or None
        Address of the scheduler whose workers read the table, or "local".
    progress : bool
        Whether their progress is shown.
    **reading
        `bag`, and `weight` and `missing` as in `sketch_table`; or the options of `read_images`.
    """
    if images:
        bags, _ = reader(source, images=True, **reading)(model)
        found = model.sketch_stream([bags])
        return replace(found, maker=replace(found.maker, keys=tuple(_image_keys(source, reading["bag"]))))
    if dask is None:
        return sketch_table(model, source, **reading)
    from histnetq.sketches.on_dask import sketch_dask

    return sketch_dask(model, source, client=dask, progress=progress, **reading)


def _image_keys(source: Any, bag: Sequence[str]) -> list[str]:
    return list(bag) or ["sample_id" if is_image_table(source) else "folder"]


@dataclass(frozen=True)
class Score:
    """Errors of a model on bags of known proportions.

    Attributes
    ----------
    errors : DataFrame
        What `histnetq.evaluate` gives.
    floor : dict of str and float
        Mean errors of the mean of training in place of the model.
    coverage : dict of str and float
        How many intervals should hold the truth (`nominal`), how many do (`seen`), and their `mean width`; empty
        without intervals.
    learned_nothing : str
        A sentence if the network learned nothing, else empty.
    """

    errors: pd.DataFrame
    floor: dict[str, float]
    coverage: dict[str, float]
    learned_nothing: str


def score(path: Place, source: Any, *, coverage: float = _COVERAGE, **options: Any) -> Score:
    """Measure the errors of a stored model on bags of known proportions; options are those of `reader`."""
    model = load(path)
    bags = reader(source, **options)(model)[0]
    errors = evaluate(model, bags)
    known = with_all_classes(bags.with_known_prevalences(), model.classes_).prevalences
    assert known is not None
    floor = add_columns(np.tile(model.train_prevalences_, (len(bags), 1)), known.shape[1])
    means = {name: float(MEASURES[name](known, floor, bags.sizes).mean()) for name in ("ae", "rae")}
    covered: dict[str, float] = {}
    if hasattr(model, "calibration_"):
        found = model.predict_interval(bags, coverage)
        held = found.contains(known[:, : len(model.classes_)]).mean()
        width = (found.upper - found.lower).mean()
        covered = {"nominal": coverage, "seen": float(held), "mean width": float(width)}
    return Score(errors, means, covered, getattr(model, "learned_nothing_", ""))


def compare_models(paths: Sequence[Place], source: Any, **options: Any) -> Comparison:
    """Compare stored models on the same bags of known proportions; options are those of `reader`."""
    read = reader(source, **options)
    models = {str(path): load(path) for path in paths}
    bags = [read(model)[0] for model in models.values()]
    return compare({name: _by_class(models[name], own) for name, own in zip(models, bags, strict=True)}, bags[0])


def report(
    path: Path, model_path: Place, source: Any, *, against: Sequence[Place] = (), coverage: float = _COVERAGE,
    command: str = "", sources: Sequence[str] | None = None, force: bool = False, **options: Any,
) -> None:  # fmt: skip
    """Write a page about a stored model and the bags of a table, of known proportions or not.

    The page calls the table by its path, or by the names in `sources`.
    """
    model, read = load(model_path), reader(source, **options)
    bags, unseen = read(model)
    intervals = model.predict_interval(bags, coverage) if hasattr(model, "calibration_") else None
    others = {str(other): load(other) for other in against}
    rivals = {name: _by_class(other, read(other)[0]) for name, other in others.items()}
    write_report(
        path, model=model, bags=bags, intervals=intervals, trust=judge(model, bags, unseen), rivals=rivals,
        command=command, force=force,
        sources=sources if sources is not None else source if isinstance(source, list) else [source],
    )  # fmt: skip


def judge(model: Quantifier, bags: Bags | BagSketch, unseen: Floats) -> pd.DataFrame:
    """One row per bag: p_value, small, unseen (part of its rows with texts not met in training), trust in words.

    A bag that is small because it has one row alone is called that.
    """
    if hasattr(model, "trust_"):
        found = model.trust(bags)
    else:
        found = pd.DataFrame({"p_value": np.nan, "small": False, "trust": "unchecked"}, index=np.asarray(bags.ids))
    words = found["trust"].replace({"ok": "", "unchecked": ""})
    one = (np.asarray(bags.sizes) == 1) & (found["small"] | (found["trust"] == "unchecked")).to_numpy()
    words = words.where(~one, "one row; " + words.str.replace(r"(; )?\bsmall\b", "", regex=True))
    words = words.where(unseen == 0, words + "; unseen values").str.strip("; ")
    return found.assign(unseen=unseen, trust=words.where(words != "", found["trust"]))


def _find_bags(
    model: Quantifier, source: Any, whole: str, *, bag: Sequence[str], weight: str | None = None,
    missing: str = "refuse", dask: str | None = None, progress: bool = False,
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
    if any(stored):
        found = _add_up(files, bag)
    elif dask is not None or (model.sketch_kind == "exact" and not whole):
        found = sketch(model, source, bag=bag, weight=weight, missing=missing, dask=dask, progress=progress)
    else:
        return reader(source, bag=bag, weight=weight, missing=missing)(model)
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
