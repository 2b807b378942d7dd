"""`Comparison`: errors of several quantifiers on the same bags, tested against the best and printed as a table."""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from histnetq.metrics import MEASURES
from histnetq.simplex import Floats

if TYPE_CHECKING:
    import pandas as pd

BASELINE = "training mean"  # row whose estimates are always the training prevalences
CLEAR = 0.001  # a smaller p-value gets no mark
_STATISTICS = ["mean", "sd", "best", "p_value", "mark", "wins", "direction"]
_MISSING = (np.nan, np.nan, False, np.nan, "", np.nan, "")
_LATEX = str.maketrans(
    {c: rf"\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "†": r"$\dag$", "‡": r"$\ddag$", "↓": r"$\downarrow$", "–": "--"}
)


class Comparison:
    """Errors of several methods on the same bags, tested against the best method; it prints as a table.

    For each measure, the method with the lowest mean error is the best (the first one, if there are several). All
    remaining methods are tested against it by a two-sided Wilcoxon signed-rank test on the errors of the bags. Methods
    that are not clearly different are marked: † if 0.001 ≤ p ≤ `alpha`, ‡ if p > `alpha`. The test asks which method is
    better on typical bags, while a few bad bags change the mean, so a small p-value may favour the method with the
    worse mean. Such a method has an arrow ↓: its error is lower than the best method's on more than half of the bags.

    Parameters
    ----------
    errors : pandas.DataFrame
        One row per bag, and columns (method, measure) with the errors, averaged over seeds.
    n_seeds : dict of str and int
        The number of seeds of each method; 0 for a method without a result, which gets a row of dashes.
    shift : (n_bags,) array or None
        L1 distance of each bag's prevalences from the training prevalences, if these are known.
    alpha : float
        A difference with a p-value above `alpha` is marked ‡.

    Attributes
    ----------
    measures : list of str
        The names of the measures.
    table : pandas.DataFrame
        One row per method and columns (measure, statistic). The statistics are `mean` and `sd` over the bags; `best`,
        whether the method is the best; `p_value`, NaN for the best; `mark`; `wins`, the fraction of bags with a lower
        error than the best method's; and `direction`, "lower" or "higher" if the error is lower or higher on more than
        half of the bags, else "". The last column is `n_seeds`.

    Examples
    --------
    >>> from histnetq import Bags, compare
    >>> bags = Bags.from_arrays([np.zeros((2, 1))] * 6, [[0.5, 0.5]] * 6)
    >>> p = np.linspace(0.4, 0.45, 6)
    >>> found = compare({"A": np.c_[p, 1 - p], "B": np.c_[p - 0.1, 1.1 - p]}, bags, measures="ae")
    >>> found.table["ae"][["mean", "best", "p_value"]].round(3)
    statistic   mean   best  p_value
    method
    A          0.075   True      NaN
    B          0.175  False    0.031
    """

    def __init__(self, errors: pd.DataFrame, n_seeds: dict[str, int], shift: Floats | None, alpha: float) -> None:
        import pandas as pd

        self.errors, self.shift, self.alpha = errors, shift, alpha
        self.measures = list(dict.fromkeys(errors.columns.get_level_values("measure")))
        parts = {m: _summary(errors.xs(m, axis=1, level="measure"), list(n_seeds), alpha) for m in self.measures}
        self.table = pd.concat(parts, axis=1, names=["measure", "statistic"])
        self.table["n_seeds", ""] = list(n_seeds.values())

    def by_shift(self, bins: int | ArrayLike = 10) -> pd.DataFrame:
        """Return the mean errors of the bags in bins of the amount of shift.

        Parameters
        ----------
        bins : int or array-like of rising edges, default=10
            The number of bins of equal width over the observed range; or the edges, and bags outside them are left
            out. As in `numpy.histogram`, a bin includes its lower edge, and the last bin includes both edges.

        Returns
        -------
        pandas.DataFrame
            One row per bin: the number of bags in it, and the mean error of each method and measure.

        Examples
        --------
        >>> import histnetq as hq
        >>> bags = hq.Bags.from_arrays([np.zeros((2, 1))] * 2, [[0.5, 0.5], [0.2, 0.8]])
        >>> found = hq.compare({"A": [[0.4, 0.6], [0.2, 0.8]]}, bags, measures="ae", train_prevalences=[0.5, 0.5])
        >>> found.by_shift(bins=2)["A", "ae"].round(3).tolist()
        [0.1, 0.0]
        """
        import pandas as pd

        if self.shift is None:
            raise ValueError(
                "train_prevalences: expected the training prevalences, got none and no quantifier knows them; "
                "pass train_prevalences= to compare."
            )
        shift = np.round(self.shift, 12)  # 0.19999999999999996 belongs above an edge at 0.2
        edges = _edges(bins, shift)
        inside = (shift >= edges[0]) & (shift <= edges[-1])
        place = np.searchsorted(edges[:-1], shift[inside], side="right") - 1
        table = self.errors[inside].groupby(place).mean().reindex(range(len(edges) - 1))
        table.insert(0, ("n_bags", ""), np.bincount(place, minlength=len(edges) - 1))
        return table.set_axis(pd.IntervalIndex.from_breaks(edges, closed="left", name="shift"))

    def to_markdown(self) -> str:
        """Write a Markdown table, with the best method in bold.

        Returns
        -------
        str
            The table and its legend.

        Examples
        --------
        >>> import histnetq as hq
        >>> bags = hq.Bags.from_arrays([np.zeros((2, 1))] * 2, [[0.5, 0.5], [0.2, 0.8]])
        >>> found = hq.compare({"A": [[0.4, 0.6], [0.2, 0.8]]}, bags, measures="ae", train_prevalences=[0.5, 0.5])
        >>> print(found.to_markdown())
        | method | AE |
        | :-- | --: |
        | A | **0.0500 ± 0.0707** |
        <BLANKLINE>
        2 bags; mean ± sd over the bags. Bold: best (lowest mean).
        """
        head, *rows = self._rows(lambda text: text.replace("|", r"\|"), "**{}**")
        rule = [":--"] + ["--:"] * (len(head) - 1)
        return "\n".join([f"| {' | '.join(row)} |" for row in (head, rule, *rows)] + ["", *self._legend("Bold:")])

    def to_latex(self) -> str:
        r"""Write a LaTeX tabular for the package booktabs, with the best method in bold.

        Returns
        -------
        str
            The tabular, without a legend.

        Examples
        --------
        >>> import histnetq as hq
        >>> bags = hq.Bags.from_arrays([np.zeros((2, 1))] * 2, [[0.5, 0.5], [0.2, 0.8]])
        >>> found = hq.compare({"A": [[0.4, 0.6], [0.2, 0.8]]}, bags, measures="ae", train_prevalences=[0.5, 0.5])
        >>> print(found.to_latex())
        \begin{tabular}{lr}
        \toprule
        method & AE \\
        \midrule
        A & \textbf{0.0500 $\pm$ 0.0707} \\
        \bottomrule
        \end{tabular}
        """
        rows = self._rows(lambda text: text.translate(_LATEX), r"\textbf{{{}}}")
        head, *lines = (" & ".join(row) + r" \\" for row in rows)
        opening = rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}"
        return "\n".join([opening, r"\toprule", head, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"])

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write a CSV file with one row per method and measure, in full precision.

        Parameters
        ----------
        path : path, optional
            The file to write. Default: the text is returned.

        Returns
        -------
        str or None
            The text, if no path was given.

        Examples
        --------
        >>> import histnetq as hq
        >>> bags = hq.Bags.from_arrays([np.zeros((2, 1))] * 2, [[0.5, 0.5], [0.2, 0.8]])
        >>> found = hq.compare({"A": [[0.4, 0.6], [0.2, 0.8]]}, bags, measures="ae", train_prevalences=[0.5, 0.5])
        >>> print(found.to_csv().splitlines()[0])
        method,measure,mean,sd,best,p_value,mark,wins,direction,n_bags,n_seeds
        """
        return self.to_frame().to_csv(path, index=False, lineterminator="\n")

    def to_frame(self) -> pd.DataFrame:
        """Return all statistics as a table with one row per method and measure.

        Returns
        -------
        pandas.DataFrame
            The columns method, measure, mean, sd, best, p_value, mark, wins, direction, n_bags and n_seeds.

        Examples
        --------
        >>> import histnetq as hq
        >>> bags = hq.Bags.from_arrays([np.zeros((2, 1))] * 2, [[0.5, 0.5], [0.2, 0.8]])
        >>> found = hq.compare({"A": [[0.4, 0.6], [0.2, 0.8]]}, bags)
        >>> found.to_frame()[["method", "measure", "mean", "sd"]].round(3)
          method measure   mean     sd
        0      A      ae  0.050  0.071
        1      A     rae  0.067  0.094
        """
        table = self.table[self.measures].stack(level="measure", future_stack=True).assign(n_bags=len(self.errors))
        table["n_seeds"] = np.repeat(self.table["n_seeds"].to_numpy(), len(self.measures))
        return table.reset_index().rename_axis(columns=None)

    def __repr__(self) -> str:
        name, *columns = zip(*self._rows(str, "{} *"), strict=True)
        padded = [[cell.ljust(max(map(len, name))) for cell in name]]
        for column in columns:
            # Cells are left-aligned, so that marks do not move numbers; headers and dashes are centred.
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
        """Return the cells with their header. The number of seeds is shown if a method has several."""
        columns, seeds = [["method", *self.table.index]], self.table["n_seeds"]
        if seeds.max() > 1:
            columns.append(["seeds", *(str(n) if n else "–" for n in seeds)])
        columns = [[escape(cell) for cell in column] for column in columns]
        for measure in self.measures:
            part = self.table[measure]
            styled = zip(np.where(part["best"], best, "{}"), _cells(part), strict=True)
            cells = [style.format(escape(cell)) for style, cell in styled]
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
    """Return "mean ± sd marks" of each method for one measure, all with the same number of decimals."""
    # Four decimals; fewer if the lowest mean is above 1, more if it would show fewer than three digits.
    lowest = part["mean"][part["mean"] > 0].min()
    magnitude = -1 if np.isnan(lowest) else int(np.floor(np.log10(lowest)))
    decimals = max(0, 3 - magnitude) if magnitude >= 0 else min(8, max(4, 2 - magnitude))
    means, sds = ([f"{x:.{decimals}f}" for x in part[name]] for name in ("mean", "sd"))
    suffixes = [f" {marks}".rstrip() for marks in part["mark"] + np.where(part["direction"] == "lower", "↓", "")]
    wide, wide_sd = max(map(len, means)), max(map(len, sds))
    cells = zip(means, sds, suffixes, strict=True)
    return ["–" if m == "nan" else f"{m:>{wide}} ± {sd:>{wide_sd}}{suffix}" for m, sd, suffix in cells]


def _summary(errors: pd.DataFrame, methods: list[str], alpha: float) -> pd.DataFrame:
    """Return the statistics of one measure: errors (n_bags, methods with a result) → one row for each method."""
    import pandas as pd
    from scipy.stats import wilcoxon

    means, sds = errors.mean(), errors.std().fillna(0.0)
    best = means.index[np.isclose(means, means.min(), rtol=1e-12, atol=0).argmax()]
    rows = dict.fromkeys(methods, _MISSING)
    for name in errors:
        # Errors are scaled by the largest one, so that rounding errors count as ties and not as small differences.
        unit = max(errors[[name, best]].abs().to_numpy().max(), np.finfo(float).tiny)
        gap = np.round((errors[name] - errors[best]).to_numpy() / unit, 12)
        p_value = float(wilcoxon(gap[gap != 0]).pvalue) if gap.any() else 1.0
        mark = "" if p_value < CLEAR else "†" if p_value <= alpha else "‡"
        wins = float((gap < 0).mean())
        direction = "lower" if wins > 0.5 else "higher" if (gap > 0).mean() > 0.5 else ""
        rows[name] = (means[name], sds[name], False, p_value, mark, wins, direction)
    rows[best] = (means[best], sds[best], True, *_MISSING[3:])
    return pd.DataFrame.from_dict(rows, orient="index", columns=_STATISTICS).rename_axis("method")


def _edges(bins: int | ArrayLike, shift: Floats) -> Floats:
    edges = np.asarray(bins)
    if edges.ndim == 0 and edges.dtype.kind in "iu" and edges >= 1:
        return np.histogram_bin_edges(shift, int(edges))
    if edges.ndim == 1 and len(edges) >= 2 and edges.dtype.kind in "iuf" and (np.diff(edges) > 0).all():
        return edges.astype(float)
    raise ValueError(f"bins: expected a number of at least 1 or at least 2 rising edges, got {bins!r}.")
