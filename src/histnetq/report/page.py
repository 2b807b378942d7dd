"""`write_report`: one self-contained HTML page about a quantifier and its estimates."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.class_names import add_columns, with_all_classes
from histnetq.bags.indexing import natural_keys
from histnetq.evaluation.comparison import BASELINE, Comparison
from histnetq.evaluation.errors import compare, describe_missed, evaluate
from histnetq.quantifiers.base import Quantifier
from histnetq.report.figures import figures
from histnetq.report.templates import escaped, require_pages, template
from histnetq.tables.files import refuse_existing, require_page, whole_file
from histnetq.tables.places import as_place
from histnetq.uncertainty.intervals import Intervals, Region
from histnetq.uncertainty.trust import DOUBT

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ReportContent:
    """The content of a report. `table` and `comparison` contain errors if the truth is known.

    `classes` are the classes of the model, followed by classes that occur only in the truth and have estimates of 0.
    Intervals exist only for the classes of the model.
    """

    model: Quantifier
    bags: Bags
    classes: NDArray
    estimates: NDArray[np.float64]
    intervals: Intervals | None
    trust: pd.DataFrame | None
    command: str
    sources: Sequence[Any]
    table: pd.DataFrame | None = None
    comparison: Comparison | None = None

    @property
    def order(self) -> NDArray[np.int64]:
        """The order of the bags when sorted by name."""
        return np.argsort(natural_keys(self.bags.ids), kind="stable")

    @property
    def missed(self) -> NDArray:
        """The classes that occur only in the truth."""
        return self.classes[len(self.model.classes_) :]

    def observed(self, found: Intervals) -> tuple[float, float]:
        """Return the observed coverages of the intervals and of the joint regions."""
        p: Any = self.bags.prevalences
        region = Region(add_columns(found.region.estimates, len(self.classes)), found.region.radius)
        own = len(self.model.classes_)
        return float(found.contains(p[:, :own]).mean()), float(region.contains(p).mean())


def write_report(
    path: str | os.PathLike[str],
    *,
    model: Quantifier,
    bags: Bags,
    intervals: Intervals | None = None,
    trust: pd.DataFrame | None = None,
    rivals: Mapping[str, ArrayLike | pd.DataFrame] | None = None,
    command: str = "",
    sources: Sequence[Any] = (),
    overwrite: bool = False,
) -> None:
    """Write one HTML file about a quantifier: its training, its estimates, and whether they can be trusted.

    Parameters
    ----------
    path : path
        The file to write. It is written as a whole or not at all.
    model : Quantifier
        A fitted quantifier. Its ``provenance_``, if it has one, describes how it was fitted.
    bags : Bags
        The bags that the report is about. The report shows errors if their prevalences are known.
    intervals : Intervals, optional
        The result of ``model.predict_interval`` for the bags. Default: the report shows estimates only.
    trust : pandas.DataFrame, optional
        The result of ``model.trust`` for the bags, with one row per bag: `p_value`, which may be NaN, and `trust`,
        which is "ok", "unchecked" or the reason for doubt. Further columns are not shown.
    rivals : dict, optional
        Estimates of other methods by their names, for the table of errors: (n_bags, n_classes) in the order of
        ``model.classes_``, or data frames with the classes as columns.
    command : str, default=""
        The command that creates this report.
    sources : sequence, default=()
        The names of the source files of the bags.
    overwrite : bool, default=False
        Whether an existing file is replaced.
    """
    path = as_place(path)
    require_page(path)
    refuse_existing(path, overwrite)
    require_pages()
    if trust is not None and (len(trust) != len(bags) or not {"p_value", "trust"} <= set(trust)):
        raise ValueError(
            f"trust: expected {len(bags)} rows with p_value and trust, got {len(trust)} with {', '.join(trust)}."
        )
    expected, got = (len(bags), len(model.classes_)), None if intervals is None else np.shape(intervals.estimates)
    if got not in (None, expected):
        raise ValueError(
            f"intervals: expected shape (n_bags, n_classes) = {expected}, got {got}; make them of these bags."
        )
    estimates = model.predict(bags) if intervals is None else intervals.estimates
    content = ReportContent(model, bags, model.classes_, estimates, intervals, trust, command, sources)
    text = _page(content if bags.prevalences is None else _with_errors(content, rivals or {}))
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def _with_errors(content: ReportContent, rivals: Mapping[str, Any]) -> ReportContent:
    name, bags = type(content.model).__name__, with_all_classes(content.bags, content.model.classes_)
    classes: Any = bags.classes
    prior = add_columns(content.model.train_prevalences_[None], len(classes))[0]
    p = add_columns(content.estimates, len(classes))
    estimates: dict[str, Any] = {f"{name} (reported)" if name in rivals else name: p}
    for key, other in rivals.items():  # arrays are in the order of the model's classes; frames name their classes
        estimates[key] = other if hasattr(other, "columns") else add_columns(np.asarray(other), len(classes))
    estimates.setdefault(BASELINE, np.tile(prior, (len(bags), 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the page itself warns about classes without estimates
        comparison = compare(estimates, bags, train_prevalences=prior)
    table = evaluate(p, bags, measures="ae", train_prevalences=prior)
    return replace(content, bags=bags, classes=classes, estimates=p, table=table, comparison=comparison)


def _page(content: ReportContent) -> str:
    heads, columns = zip(*_columns(content), strict=True)
    reasons = ["unchecked"] * len(content.bags) if content.trust is None else list(content.trust["trust"])
    doubts = ["" if why in ("ok", "unchecked") else why for why in reasons]
    rows = list(zip(doubts, map("".join, zip(*columns, strict=True)), strict=True))
    means = {} if content.comparison is None else dict(content.comparison.table["ae", "mean"])
    rivals = [name for name in list(means)[1:] if name != BASELINE]
    packages = ["histnetq", "numpy", *(["torch"] if "torch" in sys.modules else [])]
    return template("page.html").render(
        content=content, n_warnings=sum(map(bool, doubts)) if set(reasons) - {"unchecked"} else None,
        doubt=DOUBT, baseline=BASELINE, means=means, nearest=min(rivals, key=means.__getitem__, default=None),
        figures=list(figures(content)), heads=heads, longest=max(len(str(bag)) for bag in content.bags.ids),
        rows=[rows[i] for i in content.order],
        missed=describe_missed(content.missed, content.model.classes_) if len(content.missed) else "",
        versions={"python": platform.python_version()} | {name: metadata.version(name) for name in packages},
        date=f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
    )  # fmt: skip


def _columns(content: ReportContent) -> Iterator[tuple[tuple[str, bool], Iterable[str]]]:
    """Yield the columns of the table of bags: the name, whether the column holds numbers, and the cells."""
    ids, sizes, p_true = content.bags.ids, content.bags.sizes, content.bags.prevalences
    yield ("bag", ids.dtype.kind in "iuf"), (f'<th scope="row">{escaped(bag)}</th>' for bag in ids)
    yield ("n", True), (f"<td>{n:.{int(sizes.dtype.kind == 'f')}f}</td>" for n in sizes)
    for j, name in enumerate(content.classes):
        parts = [[f"<td>{100 * p:.1f}" for p in content.estimates[:, j]]]
        if content.intervals is not None and j < content.intervals.lower.shape[1]:
            ends = 100 * content.intervals.lower[:, j], 100 * content.intervals.upper[:, j]
            parts.append([f"<small>{low:.1f}–{high:.1f}</small>" for low, high in zip(*ends, strict=True)])
        if p_true is not None:
            parts.append([f"<small>true {100 * p:.1f}</small>" for p in p_true[:, j]])
        yield (str(name), True), ("".join(cell) + "</td>" for cell in zip(*parts, strict=True))
    if content.table is not None:
        yield ("AE", True), (f"<td>{error:.4f}</td>" for error in content.table["ae"])
    if content.trust is not None:
        yield ("p-value", True), (f"<td>{'–' if p != p else f'{p:.3f}'}</td>" for p in content.trust["p_value"])
        yield ("trust", False), (f'<td class="text">{escaped(said)}</td>' for said in content.trust["trust"])
