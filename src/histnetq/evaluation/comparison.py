"""`Comparison`: errors of several quantifiers on the same bags, tested against the best and printed as a table."""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.metrics import MEASURES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CLEAR", "Comparison"]

Floats = NDArray[np.float64]
CLEAR = 0.001  # a p-value below gets no mark
_STATISTICS = ["mean", "sd", "best", "p_value", "mark", "wins", "direction"]
_MISSING = (np.nan, np.nan, False, np.nan, "", np.nan, "")
_LATEX = str.maketrans(
    {c: rf"\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "†": r"$\dag$", "‡": r"$\ddag$", "↓": r"$\downarrow$", "–": "--"}
)


class Comparison:
    """What `compare` gives; prints as a table.

    For each measure the method of the lowest mean is the best (the first given, if several). The others are tested
    against it by a two-sided Wilcoxon signed-rank test on the errors of the bags and marked if not clearly different:
    † if 0.001 ≤ p ≤ `alpha`, ‡ if p > `alpha`. The test asks which method is better on typical bags, while a few bad
    bags move the mean, so a small p-value may speak *for* the method of the worse mean. Hence the arrow ↓: a lower
    error than the best method's on more than half of the bags.

    Attributes
    ----------
    errors : DataFrame
        One row per bag, columns (method, measure), averaged over seeds.
    table : DataFrame
        One row per method, columns (measure, statistic): `mean`; `sd` over the bags; `best`; `p_value`, NaN for the
        best; `mark`; `wins`, the fraction of bags with a lower error than the best method's; `direction`, "lower" or
        "higher" if the error is so on more than half of the bags, else "". And `n_seeds`.
    shift : (n_bags,) or None
        L1 distance of each bag's prevalences from those in training.
    """

    def __init__(self, errors: pd.DataFrame, n_seeds: dict[str, int], shift: Floats | None, alpha: float) -> None:
        import pandas as pd

        self.errors, self.shift, self.alpha = errors, shift, alpha
        self.measures = list(dict.fromkeys(errors.columns.get_level_values("measure")))
        parts = {m: _summary(errors.xs(m, axis=1, level="measure"), list(n_seeds), alpha) for m in self.measures}
        self.table = pd.concat(parts, axis=1, names=["measure", "statistic"])
        self.table["n_seeds", ""] = list(n_seeds.values())

    def by_shift(self, bins: int | ArrayLike = 10) -> pd.DataFrame:
        """Mean errors of the bags in bins of the amount of shift, and the number of bags in each bin.

        Parameters
        ----------
        bins : int, or rising edges
            That many bins of equal width over the observed range; or the edges, outside of which bags are left out.
            As in `numpy.histogram` a bin holds its lower edge, and the last one both.
        """
        import pandas as pd

        if self.shift is None:
            raise ValueError(
                "train_prevalences: expected the prevalences in training, got none and no quantifier knows them; "
                "pass train_prevalences= to compare."
            )
        shift = np.round(self.shift, 12)  # 0.2 belongs above an edge at 0.2, also if it came out as 0.19999999999999996
        edges = _edges(bins, shift)
        inside = (shift >= edges[0]) & (shift <= edges[-1])
        place = np.searchsorted(edges[:-1], shift[inside], side="right") - 1
        table = self.errors[inside].groupby(place).mean().reindex(range(len(edges) - 1))
        table.insert(0, ("n_bags", ""), np.bincount(place, minlength=len(edges) - 1))
        return table.set_axis(pd.IntervalIndex.from_breaks(edges, closed="left", name="shift"))

    def to_markdown(self) -> str:
        """A Markdown table; the best is bold."""
        head, *rows = self._rows(lambda text: text.replace("|", r"\|"), "**{}**")
        rule = [":--"] + ["--:"] * (len(head) - 1)
        return "\n".join([f"| {' | '.join(row)} |" for row in (head, rule, *rows)] + ["", *self._legend("Bold:")])

    def to_latex(self) -> str:
        """A LaTeX tabular for the package booktabs; the best is bold."""
        rows = self._rows(lambda text: text.translate(_LATEX), r"\textbf{{{}}}")
        head, *lines = (" & ".join(row) + r" \\" for row in rows)
        opening = rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}"
        return "\n".join([opening, r"\toprule", head, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"])

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write one row per method and measure, in full precision; without a path, give the text."""
        table = self.table[self.measures].stack(level="measure", future_stack=True).assign(n_bags=len(self.errors))
        table["n_seeds"] = np.repeat(self.table["n_seeds"].to_numpy(), len(self.measures))
        return table.to_csv(path, lineterminator="\n")

    def __repr__(self) -> str:
        name, *columns = zip(*self._rows(str, "{} *"), strict=True)
        padded = [[cell.ljust(max(map(len, name))) for cell in name]]
        for column in columns:
            # A mark moves no number: cells start at the same place, headers and dashes stand in the middle.
            width = max(map(len, column))
            padded.append([c.ljust(width) if "±" in c else c.center(width) for c in column])
        lines = ["   ".join(row).rstrip() for row in zip(*padded, strict=True)]
        return "\n".join([*lines, "", *self._legend("*")])

    def _repr_html_(self) -> str:
        head, *rows = self._rows(html.escape, "<b>{}</b>")
        lines = [f"<th>{'</th><th>'.join(head)}</th>", *(f"<td>{'</td><td>'.join(row)}</td>" for row in rows)]
        body = "\n".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table>\n{body}\n</table>\n<p>{html.escape(' '.join(self._legend('Bold:')))}</p>"

    def _rows(self, escape: Callable[[str], str], best: str) -> list[list[str]]:
        """The cells with their header; seeds are shown if a method has several."""
        columns, seeds = [["method", *self.table.index]], self.table["n_seeds"]
        if seeds.max() > 1:
            columns.append(["seeds", *(str(n) if n else "–" for n in seeds)])
        columns = [[escape(cell) for cell in column] for column in columns]
        for measure in self.measures:
            part = self.table[measure]
            cells = [escape(cell) for cell in _cells(part)]
            cells = [best.format(cell) if is_best else cell for cell, is_best in zip(cells, part["best"], strict=True)]
            columns.append([escape(measure.upper() if measure in MEASURES else measure), *cells])
        return [list(row) for row in zip(*columns, strict=True)]

    def _legend(self, best: str) -> list[str]:
        n_bags, seeds = len(self.errors), self.table["n_seeds"]
        averaged = ", of errors averaged over seeds" if seeds.max() > 1 else ""
        lines = [f"{n_bags} bag{'s' * (n_bags > 1)}; mean ± sd over the bags{averaged}. {best} best (lowest mean)."]
        if (seeds > 0).sum() > 1:
            marks = f"† {CLEAR} ≤ p ≤ {self.alpha:g}, ‡ p > {self.alpha:g}, no mark p < {CLEAR}"
            lines.append(f"Wilcoxon signed-rank test against the best: {marks}.")
        if any((self.table[m]["direction"] == "lower").any() for m in self.measures):
            lines.append("↓ lower error than the best on more than half of the bags.")
        return lines


def _cells(part: pd.DataFrame) -> list[str]:
    """Each method's "mean ± sd marks" of one measure, all with the same number of decimals."""
    # Four decimals; fewer if the lowest mean is above 1, more if it would show fewer than three digits.
    lowest = part["mean"][part["mean"] > 0].min()
    magnitude = -1 if np.isnan(lowest) else int(np.floor(np.log10(lowest)))
    decimals = max(0, 3 - magnitude) if magnitude >= 0 else min(8, max(4, 2 - magnitude))
    means, sds = ([f"{x:.{decimals}f}" for x in part[name]] for name in ("mean", "sd"))
    arrows = np.where(part["direction"] == "lower", "↓", "")
    suffixes = [f" {mark}{arrow}".rstrip() for mark, arrow in zip(part["mark"], arrows, strict=True)]
    wide, wide_sd = max(map(len, means)), max(map(len, sds))
    cells = zip(means, sds, suffixes, strict=True)
    return ["–" if m == "nan" else f"{m:>{wide}} ± {sd:>{wide_sd}}{suffix}" for m, sd, suffix in cells]


def _summary(errors: pd.DataFrame, methods: list[str], alpha: float) -> pd.DataFrame:
    """Statistics of one measure: errors (n_bags, methods with a result) → one row for each of `methods`."""
    import pandas as pd

    means, sds = errors.mean(), errors.std().fillna(0.0)
    best = means.index[np.isclose(means, means.min(), rtol=1e-12, atol=0).argmax()]
    rows = dict.fromkeys(methods, _MISSING)
    for name in errors:
        p_value, wins, losses = _versus(errors[name].to_numpy(), errors[best].to_numpy())
        mark = "" if p_value < CLEAR else "†" if p_value <= alpha else "‡"
        direction = "lower" if wins > 0.5 else "higher" if losses > 0.5 else ""
        rows[name] = (means[name], sds[name], False, p_value, mark, wins, direction)
    rows[best] = (means[best], sds[best], True, *_MISSING[3:])
    return pd.DataFrame.from_dict(rows, orient="index", columns=_STATISTICS).rename_axis("method")


def _versus(a: Floats, b: Floats) -> tuple[float, float, float]:
    """Wilcoxon's p-value for errors a against b (n_bags,), and the fractions of bags where a is lower and higher."""
    from scipy.stats import wilcoxon

    # In units of the largest error, so that rounding errors make ties and not small differences.
    gap = np.round((a - b) / max(np.abs(a).max(), np.abs(b).max(), np.finfo(float).tiny), 12)
    p_value = float(wilcoxon(gap[gap != 0]).pvalue) if gap.any() else 1.0
    return p_value, float((gap < 0).mean()), float((gap > 0).mean())


def _edges(bins: int | ArrayLike, shift: Floats) -> Floats:
    edges = np.asarray(bins)
    if edges.ndim == 0 and edges.dtype.kind in "iu" and edges >= 1:
        return np.histogram_bin_edges(shift, int(edges))
    if edges.ndim == 1 and len(edges) >= 2 and edges.dtype.kind in "iuf" and (np.diff(edges) > 0).all():
        return edges.astype(float)
    raise ValueError(f"bins: expected a number of at least 1 or at least 2 rising edges, got {bins!r}.")
