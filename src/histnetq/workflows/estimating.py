"""`estimate`: prevalences, intervals and trust for the bags of a table. Also errors and comparisons of models."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_choice
from histnetq.bags.class_names import add_columns, with_all_classes
from histnetq.bags.indexing import natural_keys
from histnetq.errors import InputError, InputWarning, Option
from histnetq.evaluation.comparison import Comparison
from histnetq.evaluation.errors import compare, evaluate
from histnetq.metrics import MEASURES
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.loading import load
from histnetq.simplex import Floats
from histnetq.sketches.sketch import BagSketch, SketchSum
from histnetq.sketches.tables import sketch_table
from histnetq.tables.budget import require
from histnetq.tables.images import is_image_table
from histnetq.tables.places import count_bytes
from histnetq.tables.table_files import find_files
from histnetq.uncertainty.intervals import Intervals
from histnetq.uncertainty.methods import INTERVALS, choose_interval
from histnetq.workflows.reading import Reader, columns_of, reader, require_known
from histnetq.workflows.row_probabilities import refuse_without_rows, row_table, stored_sketches

Place = str | os.PathLike[str]
COVERAGE = 0.9  # probability that an interval contains the truth
_BAG_BYTES, _NUMBER_BYTES = 3500, 100  # memory of a bag's estimates and report: for the bag, and for each class
_SMALL_TABLE = 1 << 25  # bytes of files whose rows are kept in memory for Bayesian intervals that nobody asked for
_DIGITS = 9  # decimals of written estimates, more than are significant
_MOST_NAMED = 4  # columns in a warning
_OWN = ("class", "estimate", "lower", "upper", "n", "trust")  # columns of the result


@dataclass(frozen=True)
class Estimates:
    """Estimates of bags, sorted by the names of the bags; `estimate` returns them.

    Parameters
    ----------
    names : DataFrame
        One row per bag, and a column for each column that names the bags.
    about : DataFrame
        One row per bag: its size `n` and `trust`; for audited bags also the number of `labels`, and the `method`.
    classes : (n_classes,)
        Names of the classes.
    values : dict of str and (n_bags, n_classes)
        The estimates under "estimate"; with intervals, also "lower" and "upper".
    rows : DataFrame, default=None
        The class probabilities of each row, if requested.

    Examples
    --------
    >>> import histnetq as hq
    >>> q = hq.CC().fit(pd.DataFrame({"x": [0.0, 1.0] * 10}), ["a", "b"] * 10)
    >>> len(hq.estimate(q, pd.DataFrame({"x": [0.0, 1.0, 1.0]}), interval="bayes"))
    1
    """

    names: pd.DataFrame
    about: pd.DataFrame
    classes: NDArray
    values: Mapping[str, Floats]
    rows: pd.DataFrame | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, some: slice) -> Estimates:
        """Return some of the bags, without row probabilities."""
        names, about = (part.iloc[some].reset_index(drop=True) for part in (self.names, self.about))
        return Estimates(names, about, self.classes, {name: array[some] for name, array in self.values.items()})

    @property
    def n_doubted(self) -> int:
        """Number of bags that should not be trusted."""
        return int((~self.about["trust"].isin(["ok", "unchecked"])).sum())

    @property
    def _class_names(self) -> NDArray:
        """Class names as objects, because in an array of texts each name takes the memory of the longest one."""
        return self.classes.astype(object) if self.classes.dtype.kind == "U" else self.classes

    def to_frame(self, wide: bool = False) -> pd.DataFrame:
        """Return the estimates as a data frame.

        Parameters
        ----------
        wide : bool, default=False
            Return one row per bag, with columns for the classes, instead of one row per bag and class.

        Returns
        -------
        DataFrame
            The names of the bags, classes and estimates, intervals, `n` and `trust`.

        Examples
        --------
        >>> import histnetq as hq
        >>> q = hq.CC().fit(pd.DataFrame({"x": [0.0, 1.0] * 10}), ["a", "b"] * 10)
        >>> found = hq.estimate(q, pd.DataFrame({"x": [0.0, 1.0, 1.0, 1.0]}), interval="bayes")
        >>> found.to_frame(wide=True)[["bag", "a", "b", "n"]]
           bag     a     b  n
        0  all  0.25  0.75  4
        """
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
            remedy = ("rename the class, or leave out ", Option("wide", True))
            raise InputError("wide", problem=f"two columns would be named {twice[0]!r}", remedy=remedy)
        return frame


def estimate(
    model: Quantifier | Place,
    table: Any,
    *,
    bag: str | Sequence[str] | None = None,
    weight: str | None = None,
    missing: str = "refuse",
    coverage: float | None = None,
    interval: str | None = None,
    rows: bool = False,
    images: bool = False,
    dask: str | None = None,
    weight_kind: str = "survey",
    sql_result: bool = False,
    **options: Any,
) -> Estimates:
    """Estimate the bags of a table, with intervals and trust; this is what ``histnetq predict`` does.

    Sketches replace the rows where this changes nothing: if the model's sketches are exact and neither the interval nor
    the result needs single rows, the table is read in one pass and may be larger than memory. Otherwise all rows are
    read into memory. `dask` and stored sketches always use sketches, which some methods bin (`sketch_kind`).

    Parameters
    ----------
    model : Quantifier or path
        A fitted quantifier, or the directory of a stored one.
    table : path, glob, list of paths, or data frame
        Rows with the features by name; or files of sketches, where sketches of the same bag are merged.
    bag : str or sequence of str, default=None
        Columns that name the bag of each row; None takes all rows as one bag.
    weight : str, default=None
        Column of weights.
    missing : {"refuse", "drop", "mean"}, default="refuse"
        "refuse" raises an error if values are missing, "drop" leaves out their rows, and "mean" replaces missing values
        by the training mean.
    coverage : float, default=None
        Probability that an interval contains the truth; None means 0.9.
    interval : str, default=None
        Interval method, see `Quantifier.predict_interval`. None means "conformal" for calibrated models. For other
        models it means "posterior" if the model has a posterior, else "bayes" if the method has a classifier and the
        table is small; if neither is possible, there are no intervals. A warning then gives the reason.
    rows : bool, default=False
        Also compute the class probabilities of each row.
    images : bool, default=False
        Whether `table` names images, as in `read_images`.
    dask : str, default=None
        Address of a Dask scheduler whose workers read the table, or "local".
    weight_kind : {"survey", "count"}, default="survey"
        Meaning of the weights: survey weights, or counts, where a row with the count k is k equal rows.
    sql_result : bool, default=False
        Whether `table` is the result of a query of `Quantifier.to_sql`; several files are its parts.
    **options : dict
        Options of `read_images` for images; ``progress=True`` shows the progress of Dask.

    Returns
    -------
    Estimates
        Estimates, intervals, sizes and trust by bag; `to_frame` returns a data frame.

    Examples
    --------
    >>> import pandas as pd, histnetq as hq
    >>> q = hq.CC().fit(pd.DataFrame({"x": [0.0, 1.0] * 10}), ["a", "b"] * 10)
    >>> rows = pd.DataFrame({"x": [0.0, 1.0, 1.0], "site": ["n", "n", "s"]})
    >>> hq.estimate(q, rows, bag="site", interval="bayes").to_frame().round(1)
      site class  estimate  lower  upper  n      trust
    0    n     a       0.5    0.5    0.5  2  unchecked
    1    n     b       0.5    0.5    0.5  2  unchecked
    2    s     a       0.0    0.0    0.0  1    one row
    3    s     b       1.0    1.0    1.0  1    one row
    """
    model, keys = as_model(model), columns_of(bag)
    if images:
        bags, unseen = reader(table, images=True, bag=keys, **options)(model)
        return _estimated(model, bags, unseen, _image_keys(table, keys), coverage, interval)
    needs_rows = "" if interval is None else INTERVALS[check_choice("interval", interval, tuple(INTERVALS))].needs_rows
    if rows:
        refuse_without_rows(table, missing, dask, sql_result)
        needs_rows = needs_rows or "probabilities are of rows"
    if interval is None and not sql_result and _should_keep_rows(model, table, dask):
        needs_rows = needs_rows or INTERVALS["bayes"].needs_rows
    options |= {"weight": weight, "weight_kind": weight_kind, "missing": missing, "dask": dask}
    options["sql_result"] = sql_result
    found, unseen = _find_bags(model, table, needs_rows, bag=keys, **options)
    keys = keys or (isinstance(found, BagSketch) and list(found.maker.keys or ())) or ["bag"]
    return _estimated(model, found, unseen, keys, coverage, interval, rows)


def sort_estimates(
    names: pd.DataFrame, sizes: NDArray, trust: Any, classes: NDArray, values: Mapping[str, Floats], **more: Any
) -> Estimates:
    """Sort the bags by name, and round the numbers to significant decimals."""
    order = np.lexsort([natural_keys(names[column]) for column in reversed(names.columns)])
    about = pd.DataFrame({"n": sizes if sizes.dtype.kind in "iu" else sizes.round(2), "trust": trust, **more})
    rounded = {name: array[order].round(_DIGITS) for name, array in values.items()}
    names, about = (part.iloc[order].reset_index(drop=True) for part in (names, about))
    return Estimates(names, about, classes, rounded)


def as_model(model: Quantifier | Place) -> Quantifier:
    """Return a quantifier as it is, or load a stored one."""
    return model if isinstance(model, Quantifier) else load(model)


def _estimated(
    model: Quantifier,
    bags: Bags | BagSketch,
    unseen: Floats,
    keys: list[str],
    coverage: float | None,
    interval: str | None,
    with_rows: bool = False,
) -> Estimates:
    """Estimate bags with trust, and with intervals if a method is named or possible."""
    n_bytes = len(bags) * (_BAG_BYTES + _NUMBER_BYTES * len(model.classes_))
    require(n_bytes, f"estimates of {len(bags):,} bags", "use fewer bags")
    level = COVERAGE if coverage is None else coverage
    _, found = find_intervals(model, bags, level, interval, required=coverage is not None, stacklevel=4)
    if found is None:
        values = {"estimate": model.predict(bags)}
    else:
        values = {"estimate": found.estimates, "lower": found.lower, "upper": found.upper}
    names = name_columns(np.asarray(bags.ids), keys)
    rows = row_table(model, bags, values["estimate"], names) if with_rows and isinstance(bags, Bags) else None
    trust = judge(model, bags, unseen)["trust"].to_numpy()
    return replace(sort_estimates(names, np.asarray(bags.sizes), trust, model.classes_, values), rows=rows)


def find_intervals(
    model: Quantifier,
    bags: Bags | BagSketch,
    coverage: float = COVERAGE,
    name: str | None = None,
    *,
    required: bool = False,
    stacklevel: int = 3,
) -> tuple[str, Intervals | None]:
    """Return the name of the interval method and the intervals of bags; without a name, `choose_interval` chooses it.

    A warning gives the reason if the chosen intervals are not conformal. If no method is possible, there are no
    intervals; if they are required, this is an error.
    """
    note = ""
    if name is None:
        choice = choose_interval(model.capabilities(), bags)
        name = "conformal" if choice.name is None and required else choice.name
        note = choice.note if name != "conformal" else ""
    found = None if name is None else model.predict_interval(bags, coverage, method=name)
    if note:  # after the intervals, because bags that are refused need no warning
        warnings.warn(note, UserWarning, stacklevel=stacklevel)
    return name or "", found


def _should_keep_rows(model: Quantifier, source: Any, dask: str | None) -> bool:
    """Return whether Bayesian intervals are possible and the table is small enough to keep its rows in memory."""
    can = model.capabilities()
    if (
        dask is not None
        or can.calibration is not None
        or can.posteriors is None
        or can.posterior is not None
        or stored_sketches(source)
    ):
        return False
    return hasattr(source, "columns") or sum(map(count_bytes, find_files(source, "source"))) <= _SMALL_TABLE


def name_columns(ids: NDArray, keys: Sequence[str]) -> pd.DataFrame:
    """Return the names of bags in their original columns; a column with the name of a result gets the prefix ``bag_``.

    Names that were joined from several columns by ``/`` are split, unless a value itself contains a ``/``.

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
    """Turn texts into whole numbers if all of them are; numbers of CSV files are read as texts."""
    return texts.astype(np.int64) if texts.str.fullmatch(r"0|-?[1-9]\d{0,17}").all() else texts


def sketch(
    model: Quantifier | Place,
    source: Any,
    *,
    images: bool = False,
    dask: str | None = None,
    progress: bool = False,
    **reading: Any,
) -> BagSketch:
    """Sketch the bags of a table or of images; `dask` and `progress` are as in `estimate`.

    Options of tables are `bag`, `weight` and `missing` as in `sketch_table`; options of images are those of
    `read_images`.
    """
    model = as_model(model)
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
        Result of `histnetq.evaluate`.
    floor : dict of str and float
        Mean errors of the baseline (training mean).
    coverage : dict of str and float
        Nominal coverage of the intervals (`nominal`), observed coverage (`seen`) and `mean width`; empty without
        intervals.
    learned_nothing : str
        A sentence if the network learned nothing, else empty.
    interval : str
        The interval method; empty without intervals.
    n_doubted : int
        Number of bags whose trust is neither "ok" nor "unchecked".
    """

    errors: pd.DataFrame
    floor: dict[str, float]
    coverage: dict[str, float]
    learned_nothing: str
    interval: str = ""
    n_doubted: int = 0

    @property
    def means(self) -> dict[str, float]:
        """Mean AE and RAE of the model."""
        return {name: float(self.errors[name].mean()) for name in self.floor}


def score(
    model: Quantifier | Place,
    source: Any,
    *,
    coverage: float = COVERAGE,
    interval: str | None = None,
    **options: Any,
) -> Score:
    """Measure the errors and intervals of a model on bags of known proportions.

    `interval` is as in `estimate`, and `reader` describes the remaining options.
    """
    if interval is not None:
        check_choice("interval", interval, tuple(INTERVALS))
    model = as_model(model)
    bags, unseen = _known_reader(source, **options)(model)
    errors = evaluate(model, bags)
    known = with_all_classes(bags.with_known_prevalences(), model.classes_).prevalences
    assert known is not None
    floor = add_columns(np.tile(model.train_prevalences_, (len(bags), 1)), known.shape[1])
    means = {name: float(MEASURES[name](known, floor, bags.sizes).mean()) for name in ("ae", "rae")}
    name, found = find_intervals(model, bags, coverage, interval)
    covered: dict[str, float] = {}
    if found is not None:
        held = found.contains(known[:, : len(model.classes_)]).mean()
        covered = {
            "nominal": found.coverage,
            "seen": float(held),
            "mean width": float((found.upper - found.lower).mean()),
        }
    doubted = ~judge(model, bags, unseen)["trust"].isin(["ok", "unchecked"])
    return Score(errors, means, covered, model.learned_nothing_, name, int(doubted.sum()))


def _known_reader(source: Any, *, label: str | None = None, images: bool = False, **options: Any) -> Reader:
    """Return the function that reads bags whose labels or proportions are known."""
    label = require_known(source, label, options.get("prevalences"), images)
    return reader(source, images=images, label=label, **options)


def compare_models(paths: Sequence[Place], source: Any, **options: Any) -> Comparison:
    """Compare stored models on the same bags of known proportions; options are those of `reader`."""
    read = _known_reader(source, **options)
    models = {str(path): load(path) for path in paths}
    bags = [read(model)[0] for model in models.values()]
    return compare({name: by_class(models[name], own) for name, own in zip(models, bags, strict=True)}, bags[0])


def judge(model: Quantifier, bags: Bags | BagSketch, unseen: Floats) -> pd.DataFrame:
    """Return one row per bag: p_value, small, unseen (fraction of rows with texts not seen in training), and trust.

    The trust of a bag with a single row is "one row" instead of "small".
    """
    if model.trust_ is not None:
        found = model.trust(bags)
        warn_of_fixed(found)
    else:
        found = pd.DataFrame({"p_value": np.nan, "small": False, "trust": "unchecked"}, index=np.asarray(bags.ids))
    words = found["trust"].replace({"ok": "", "unchecked": ""})
    one = (np.asarray(bags.sizes) == 1) & (found["small"] | (found["trust"] == "unchecked")).to_numpy()
    words = words.where(~one, "one row; " + words.str.replace(r"(; )?\bsmall\b", "", regex=True))
    words = words.where(unseen == 0, words + "; unseen values").str.strip("; ")
    return found.assign(unseen=unseen, trust=words.where(words != "", found["trust"]))


def warn_of_fixed(trusted: pd.DataFrame, what: str = "bag") -> None:
    """Warn of features that have one value in each bag, by the result of `Quantifier.trust`."""
    if fixed := trusted.attrs.get("fixed"):
        named = ", ".join(map(repr, fixed[:_MOST_NAMED])) + " and others" * (len(fixed) > _MOST_NAMED)
        one = len(fixed) == 1
        problem = (
            f"column{'s' * (not one)} {named} {'has' if one else 'have'} one value in each {what}, but several in each "
            f"class of the training rows, and so {'tells' if one else 'tell'} {what}s apart instead of classes"
        )
        remedy = f"fit the model again without {'it' if one else 'them'}"
        warnings.warn(InputWarning(f"{what}s", problem=problem, remedy=remedy), stacklevel=3)


def _find_bags(
    model: Quantifier,
    source: Any,
    needs_rows: str,
    *,
    bag: Sequence[str],
    weight: str | None,
    missing: str,
    dask: str | None,
    weight_kind: str,
    sql_result: bool,
    progress: bool = False,
) -> tuple[Bags | BagSketch, Floats]:
    """Return bags or their sketches, and the fraction of each bag's rows with texts not seen in training."""
    stored = [] if sql_result else stored_sketches(source)
    is_sketched = sql_result or bool(stored)
    if needs_rows and (is_sketched or dask is not None):
        raise ValueError(f"interval: {needs_rows}, which sketches do not contain; leave it out.")
    if is_sketched and (weight is not None or dask is not None):
        raise ValueError("weight, dask: expected a table of rows, got sketches, which are sums already; leave it out.")
    if sql_result:
        found = BagSketch.from_sql(source, missing=missing)
        found = found.roll_up_keys(bag) if bag else found
    elif stored:
        found = _add_up(stored, bag)
    elif dask is not None or (model.sketch_kind == "exact" and not needs_rows):
        how: dict[str, Any] = {"bag": bag, "weight": weight, "weight_kind": weight_kind, "missing": missing}
        found = sketch(model, source, dask=dask, progress=progress, **how)
    else:
        return reader(source, bag=bag, weight=weight, weight_kind=weight_kind, missing=missing)(model)
    return found, found.unseen / found.n_rows


def _add_up(files: Sequence[Place], bag: Sequence[str]) -> BagSketch:
    total = SketchSum()
    for file in files:
        part = BagSketch.load(file)
        total.add(part.roll_up_keys(bag) if bag else part)
    found = total.result()
    return replace(found, ids=np.zeros(1, np.int64)) if found.ids is None else found


def by_class(model: Quantifier, bags: Bags) -> pd.DataFrame:
    """Return the estimates of bags, with the classes as columns."""
    return pd.DataFrame(model.predict(bags), columns=[str(name) for name in model.classes_])
