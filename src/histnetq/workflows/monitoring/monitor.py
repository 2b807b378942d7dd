"""`monitor`: class mixes over time, compared with a reference."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_fraction
from histnetq.errors import InputError, InputTypeError, InputWarning, Option
from histnetq.quantifiers.base import Quantifier
from histnetq.simplex import Floats
from histnetq.sketches.sketch import BagSketch
from histnetq.tables.files import whole_file
from histnetq.tables.places import local_path
from histnetq.workflows.estimating import Place, as_model, warn_of_fixed
from histnetq.workflows.monitoring.alerts import FEWEST, check_rate, find_alerts
from histnetq.workflows.monitoring.chunk_reading import How, read_chunks
from histnetq.workflows.monitoring.chunks import Chunks, Clock, parse_range
from histnetq.workflows.monitoring.null_simulation import drawing_of
from histnetq.workflows.monitoring.state import MonitorState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEW = 6  # chunks; a reference with fewer always has a warning
_NAMED = 5  # classes in a sentence
_GOOD, _WIDE = 20, 0.65  # chunks of a good reference; distance of thresholds that is worth a warning with fewer
_COVERAGE = 0.9
_DIGITS = 9  # decimals of estimates, more than are significant
COLUMNS = (
    "chunk", "start", "end", "period", "class", "n", "estimate", "lower", "upper", "reference", "threshold_lower",
    "threshold_upper", "alert", "verdict",
)  # fmt: skip
PERFORMANCE = ("accuracy", "f1")  # columns of the expected performance of the classifier


class Monitored(pd.DataFrame):
    """The table that `monitor` returns: one row for each segment, chunk and class, in temporal order.

    Parameters
    ----------
    data : DataFrame
        The rows.
    index, columns, dtype, copy : optional
        As in `pandas.DataFrame`.

    Examples
    --------
    >>> issubclass(Monitored, pd.DataFrame)
    True
    """

    @property
    def segments(self) -> list[str]:
        """Columns that name the segments."""
        return [str(column) for column in self.columns[: self.columns.get_loc("chunk")]]

    def plot(self, **segment: Any) -> Figure:
        """Draw the mix over time, each class with its intervals, thresholds and alerts, and the expected accuracy.

        Parameters
        ----------
        **segment : dict
            The segment to draw, such as ``region="north"``, if there are several.

        Returns
        -------
        matplotlib.figure.Figure
            A figure with one panel for the mix, one for each class, and one for the expected accuracy if it is known.

        Examples
        --------
        >>> import histnetq as hq
        >>> rows = pd.DataFrame({"x": [0.0, 1.0] * 133, "t": pd.date_range("2025-08-04", periods=266, freq="D")})
        >>> q = hq.CC(random_state=0).fit(rows[["x"]], ["a", "b"] * 133)
        >>> found = hq.monitor(q, rows, time="t", period="W", reference="2025-08..2026-03")
        >>> len(found.plot().axes)
        3
        """
        from histnetq.evaluation.monitor_plots import draw_all

        return draw_all(_pick_segment(self, segment))


def count_chunks(table: Monitored) -> dict[str, int]:
    """Count all chunks, the chunks to analyse, the chunks with an alert, and the chunks whose rows look different."""
    facts = {"alert": "any", "period": "first", "verdict": "first"}
    chunks = table.groupby([*table.segments, "chunk"], sort=False).agg(facts)
    return {
        "chunks": len(chunks),
        "analysis": int((chunks["period"] == "analysis").sum()),
        "alerts": int(chunks["alert"].sum()),
        "different": int((chunks["verdict"] == "rows look different").sum()),
    }


def _pick_segment(table: Monitored, segment: dict[str, Any]) -> pd.DataFrame:
    """Return the rows of one segment; refuse a choice of several segments or of none."""
    names = table.segments
    if unknown := [name for name in segment if name not in names]:
        raise ValueError(f"segment: expected some of {names}, got {unknown[0]!r}; name a column of `by`.")
    chosen = table
    for name, value in segment.items():
        chosen = chosen[chosen[name] == str(value)]
    if not len(chosen):
        raise ValueError(f"segment: no rows have {segment}; name an existing segment.")
    if names and len(chosen[names].drop_duplicates()) > 1:
        raise ValueError(f"segment: expected one, got several; name it by {', '.join(names)}.")
    return pd.DataFrame(chosen)


def monitor(
    quantifier: Quantifier | Place,
    source: Any,
    *,
    time: str,
    period: str | None = None,
    chunk_size: int | None = None,
    chunk_number: int | None = None,
    reference: str | None = None,
    by: str | Sequence[str] = (),
    timezone: str | None = None,
    weight: str | None = None,
    missing: str = "refuse",
    false_alarms: float = 0.05,
    coverage: float = _COVERAGE,
    random_state: int = 0,
    state: str | os.PathLike[str] | None = None,
    accuracy: bool = False,
    weight_kind: str = "survey",
) -> Monitored:
    """Estimate the class mix in chunks of time, and find the chunks whose mix differs from a reference.

    In each segment, the probability of one or more alerts in 52 chunks without a shift is at most `false_alarms`. Half
    of it is for single chunks, all at the same level. Half of it is for sums of changes, which detect slow drift and
    restart after 52 chunks. An alert lasts until later chunks show that the class is back at its reference. Thresholds
    come from a simulation with rows that the classifier was not trained on, at the size of the chunk. The simulation
    includes the uncertainty of the reference mean, and variation of the mix between chunks.

    Parameters
    ----------
    quantifier : Quantifier or path
        A fitted quantifier, or the directory of a stored one; a network must be calibrated.
    source : path, glob, list of paths, or data frame
        Rows with the features by name, as in `read_bags`. Files may be larger than memory if the quantifier has
        sketches.
    time : str
        Column of times: timestamps, dates or texts such as ``2026-03-31T18:00``.
    period : {"min", "h", "D", "W", "M", "Q", "Y"}, default=None
        Chunks by minute, hour, day, week from Monday, month, quarter or year. Chunks without rows are left out.
    chunk_size : int, default=None
        Rows per chunk, in temporal order within each segment, instead of `period`.
    chunk_number : int, default=None
        Number of chunks of equal size in each segment, instead of `period`.
    reference : str, default=None
        A range such as ``2026-01..2026-06``, both ends included. The chunks that begin in it are the reference, and all
        other chunks are compared with them. None takes the first half of the chunks.
    by : str or sequence of str, default=()
        Columns that divide the rows into segments, each with its own reference.
    timezone : str, default=None
        Time zone of days and months, such as ``Europe/Madrid``; None takes the zone of the column, or leaves the times
        unchanged if it has none.
    weight : str, default=None
        Column of weights.
    missing : {"refuse", "drop", "mean"}, default="refuse"
        "refuse" raises an error if values are missing, "drop" leaves out their rows, and "mean" replaces missing values
        by the training mean.
    false_alarms : float, default=0.05
        Probability of one or more alerts in 52 chunks without a shift, at least 0.01.
    coverage : float, default=0.9
        Probability that an interval contains the truth, if the quantifier is calibrated.
    random_state : int, default=0
        Seed of the simulation.
    state : path, default=None
        A Parquet file that keeps the sketches of the chunks between calls; it is created if it does not exist. Files
        that an earlier call read are skipped.
    accuracy : bool, default=False
        Whether to add the expected accuracy and F1 of the classifier in each chunk, see
        `Quantifier.estimate_performance`: for methods that use a classifier, and for models of scores of labelled rows.
        All rows are then read into memory, and there can be no `state`.
    weight_kind : {"survey", "count"}, default="survey"
        Meaning of the weights: survey weights, or counts, where a row with the count k is k equal rows.

    Returns
    -------
    Monitored
        A data frame with one row for each chunk and class. The columns are the columns of `by`, then chunk, start, end,
        period ("reference" or "analysis"), class, n, estimate, lower, upper (NaN if not calibrated), reference,
        threshold_lower, threshold_upper, alert and verdict. The verdict is "unchanged"; "moved" if any class has an
        alert; "rows look different" if no mix of the classes explains the rows (see `Quantifier.trust`), so that the
        estimate is doubtful; or "no reference" in a segment with fewer than two chunks in the reference. With
        `accuracy`, the last columns are accuracy and f1, with equal values for all classes of a chunk.

    Examples
    --------
    >>> import histnetq as hq
    >>> rows = pd.DataFrame({"x": [0.0, 1.0] * 133, "t": pd.date_range("2025-08-04", periods=266, freq="D")})
    >>> q = hq.CC(random_state=0).fit(rows[["x"]], ["a", "b"] * 133)
    >>> found = hq.monitor(q, rows, time="t", period="W", reference="2025-08..2026-03")
    >>> found.loc[found["class"] == "a", ["chunk", "period", "n", "alert", "verdict"]].tail(4)
             chunk     period  n  alert    verdict
    68  2026-03-30  reference  7  False  unchanged
    70  2026-04-06   analysis  7  False  unchanged
    72  2026-04-13   analysis  7  False  unchanged
    74  2026-04-20   analysis  7  False  unchanged
    """
    by = (by,) if isinstance(by, str) else tuple(by)
    how = How(time, period, chunk_size, chunk_number, timezone, by, weight, missing, weight_kind)
    given = as_model(quantifier), source, how, reference, state, random_state
    table, kept = monitor_chunks(*given, false_alarms=false_alarms, coverage=coverage, accuracy=accuracy)
    if state is not None and kept is not None:
        with whole_file(local_path(state, "state"), "state") as partial:
            kept.save(partial)
    return table


def monitor_chunks(
    model: Quantifier,
    source: Any,
    how: How,
    reference: str | None,
    state: str | os.PathLike[str] | None = None,
    random_state: int = 0,
    check: Callable[[Bags | BagSketch, int], None] | None = None,
    *,
    false_alarms: float,
    coverage: float,
    accuracy: bool = False,
) -> tuple[Monitored, MonitorState | None]:
    """Return the table of `monitor`, and the updated state, which the caller saves, if there is one.

    `check` may refuse the chunks and the number of classes before anything is estimated.
    """
    # Wrong options are refused before rows are read.
    if reference is not None:
        parse_range(reference)
    check_rate(false_alarms)
    check_fraction("coverage", coverage)
    drawing_of(model)
    if accuracy:
        _check_accuracy(model, state)
    if state is None:
        kept, (bags, chunks) = None, read_chunks(model, source, how, Clock(how.timezone), as_rows=accuracy)
    else:
        kept = MonitorState.load(local_path(state, "state"), how, model)
        bags, chunks = kept.add(model, source)
    if check is not None:
        check(bags, len(model.classes_))
    if reference is None:
        reference = _first_half(bags, chunks, how)
    rates = {"false_alarms": false_alarms, "coverage": coverage}
    table = judge_chunks(model, bags, chunks, how.by, reference, random_state=random_state, accuracy=accuracy, **rates)
    return table, kept


def _check_accuracy(model: Quantifier, state: Any) -> None:
    """Refuse the expected accuracy for a model without a confusion matrix, and together with a state."""
    can = model.capabilities()
    if can.performance is None:
        expected = "a model with a confusion matrix, which methods such as EMQ learn from labelled rows"
        raise InputTypeError("accuracy", expected, can.kind, "use one of them, or leave it out")
    if state is not None:
        got = ("a ", Option("state"), " of sketches")
        raise InputError("accuracy", "the rows of all chunks", got, "leave one of them out")


def _first_half(bags: Bags | BagSketch, chunks: Chunks, how: How) -> str:
    """Return the range of the first half of the chunks, which is the default reference."""
    begins = np.sort([json.loads(str(name))[0] for name in np.asarray(bags.ids)])
    first, last = chunks.describe(begins[[0, (len(begins) - 1) // 2]])["start"].dt.tz_localize(None)
    form = "%Y-%m-%d" if how.period in ("D", "W", "M", "Q", "Y") else "%Y-%m-%dT%H:%M"
    return f"{first:{form}}..{last:{form}}"


def judge_chunks(
    model: Quantifier, bags: Bags | BagSketch, chunks: Chunks, by: Sequence[str], reference: str, *,
    false_alarms: float, coverage: float, random_state: int = 0, accuracy: bool = False,
) -> Monitored:  # fmt: skip
    """Estimate chunks, compare them with the reference, and return the table."""
    keys = [json.loads(str(name)) for name in np.asarray(bags.ids)]
    numbers = np.array([key[0] for key in keys], np.int64)
    about = chunks.describe(numbers)
    segments = pd.DataFrame(
        [key[1:] for key in keys], columns=[f"by_{c}" if c in (*COLUMNS, *PERFORMANCE) else c for c in by]
    )
    held = chunks.is_reference(about, reference)
    if not held.any():
        first, last = about["start"].min(), about["end"].max()
        raise ValueError(
            f"reference: expected chunks in {reference}, got none, because the first begins at {first} and the last "
            f"ends at {last}; give another range."
        )
    estimates, ends = _estimate(model, bags, coverage)
    expected = _expected_performance(model, bags, estimates) if accuracy else None
    sizes, classes = np.asarray(bags.sizes), np.asarray(model.classes_)
    different = _look_different(model, bags)
    order = np.lexsort([numbers, *(segments[c] for c in reversed(segments.columns))])
    groups = segments.iloc[order].groupby(list(segments.columns), sort=False).indices if len(by) else {"": ...}
    parts = []
    for name, own in groups.items():
        some = order[own]
        alerts, known = _alerts(model, name, estimates[some], sizes[some], held[some], false_alarms, random_state)
        moved = np.where(alerts["alert"].any(1), "moved", "unchanged" if known else "no reference")
        verdict = np.where(different[some], "rows look different", moved)
        flat = {"estimate": estimates[some], "lower": ends[0][some], "upper": ends[1][some], **alerts}
        part = _long(about.iloc[some], segments.iloc[some], held[some], sizes[some], classes, flat, verdict)
        parts.append(part if expected is None else part.assign(**_repeated(expected.iloc[some], len(classes))))
    table = Monitored(pd.concat(parts, ignore_index=True))
    table.attrs["reference"] = reference
    return table


def _estimate(model: Quantifier, bags: Bags | BagSketch, coverage: float) -> tuple[Floats, tuple[Floats, Floats]]:
    if model.calibration_ is None:
        estimates = model.predict(bags)
        return estimates, (np.full_like(estimates, np.nan), np.full_like(estimates, np.nan))
    found = model.predict_interval(bags, coverage)
    return found.estimates, (found.lower, found.upper)


def _expected_performance(model: Quantifier, bags: Bags | BagSketch, estimates: Floats) -> pd.DataFrame:
    """Return the expected accuracy and F1 of the classifier in each chunk."""
    performance = model.capabilities().performance
    assert isinstance(bags, Bags)
    assert performance is not None
    return performance(bags, estimates)


def _repeated(expected: pd.DataFrame, times: int) -> dict[str, NDArray]:
    return {name: np.repeat(expected[name].to_numpy().round(_DIGITS), times) for name in PERFORMANCE}


def _look_different(model: Quantifier, bags: Bags | BagSketch) -> NDArray[np.bool_]:
    """(n_chunks,): whether no mix of the classes explains the rows."""
    if model.trust_ is None:
        return np.zeros(len(bags), bool)
    found = model.trust(bags)
    warn_of_fixed(found, "chunk")
    return found["trust"].str.startswith("unusual").to_numpy()


def _alerts(
    model: Quantifier, name: Any, estimates: Floats, sizes: NDArray, held: NDArray[np.bool_], false_alarms: float,
    random_state: int,
) -> tuple[dict[str, NDArray], bool]:  # fmt: skip
    """Return columns ``(n_chunks, n_classes)`` about alerts, and whether the segment has a reference."""
    n, where = int(held.sum()), f" of segment {name!r}" if name else ""
    if n < FEWEST and name:
        warning = f"The reference{where} has {n} chunks and needs {FEWEST}: the segment has no alerts."
        warnings.warn(warning, UserWarning, stacklevel=4)
        nothing = np.full_like(estimates, np.nan)
        columns = dict.fromkeys(("reference", "threshold_lower", "threshold_upper"), nothing)
        return columns | {"alert": np.zeros(estimates.shape, bool)}, False
    found = find_alerts(estimates, sizes, held, drawing_of(model), false_alarms=false_alarms, random_state=random_state)
    if n < _GOOD:
        _warn_if_wide(model.classes_, found.lower[~held], found.upper[~held], n, where)
    reference = np.broadcast_to(found.reference, estimates.shape)
    limits = {"threshold_lower": found.lower, "threshold_upper": found.upper}
    return {"reference": reference, **limits, "alert": found.alert}, True


def describe_limits(table: pd.DataFrame) -> str:
    """Return a line about the limits outside which a chunk alone raises an alert, or an empty text without limits.

    It names at most five classes, the one with the widest limits first. Limits depend on the size of the chunk; these
    are the widest of all chunks outside the reference.
    """
    late = table[table["period"] == "analysis"].dropna(subset=["threshold_lower", "threshold_upper"])
    ends = late.groupby("class", sort=False).agg({"threshold_lower": "min", "threshold_upper": "max"})
    if ends.empty:
        return ""
    ends = ends.loc[(ends["threshold_lower"] - ends["threshold_upper"]).sort_values(kind="stable").index]
    shown = [f"{name} {low:.2f} to {high:.2f}" for name, low, high in ends.head(_NAMED).itertuples()]
    shown += [f"narrower ones for {len(ends) - _NAMED} more classes"] if len(ends) > _NAMED else []
    return (
        f"A chunk alone raises an alert if the share of a class is outside its limits: {', '.join(shown)}. "
        "Smaller changes raise an alert only if they last."
    )


def _warn_if_wide(classes: NDArray, lower: Floats, upper: Floats, n: int, where: str) -> None:
    """Warn if a reference of `n` chunks has thresholds that only large changes exceed."""
    if len(lower) and ((upper - lower).max() > _WIDE or n < _FEW):
        row, column = np.unravel_index((upper - lower).argmax(), lower.shape)
        ends = f"{lower[row, column]:.2f} to {upper[row, column]:.2f}"
        problem = (
            f"the reference{where} has {n} chunks, and their variation is so uncertain that estimates of class "
            f"{str(classes[column])!r} from {ends} raise no alert"
        )
        remedy = f"name a reference of {_GOOD} chunks or more, or use shorter chunks"
        warnings.warn(InputWarning("reference", problem=problem, remedy=remedy), stacklevel=5)


def _long(
    about: pd.DataFrame, segments: pd.DataFrame, held: NDArray, sizes: NDArray, classes: NDArray,
    flat: dict[str, NDArray], verdict: NDArray,
) -> pd.DataFrame:  # fmt: skip
    """Return one row per chunk and class."""
    chunk = np.repeat(np.arange(len(about)), len(classes))
    parts = [part.iloc[chunk].reset_index(drop=True) for part in (segments, about)]
    period = np.where(held, "reference", "analysis")[chunk]
    n = sizes if sizes.dtype.kind in "iu" else sizes.round(2)
    columns = {"period": period, "class": np.tile(classes, len(about)), "n": n[chunk]}
    columns |= {
        name: values.ravel() if name == "alert" else values.ravel().round(_DIGITS) for name, values in flat.items()
    }
    return pd.concat([*parts, pd.DataFrame({**columns, "verdict": verdict[chunk]})], axis=1)
