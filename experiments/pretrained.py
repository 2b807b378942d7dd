"""`hq.Pretrained` against other methods on development tables: few to many labels, small to large bags, several mixes.

All methods read the same out-of-fold posteriors of the same labelled rows, and estimate the same bags of other rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls

import histnetq as hq
from experiments.development_scores import Scored, read_scores
from experiments.pretraining import rare_mix
from histnetq.quantifiers.classical.pretrained import Pretrained

Floats = NDArray[np.float64]
SIZES = (50, 250, 1000)  # of bags
MIXES = ("uniform", "sparse", "near", "rare")
CLASSICAL = ("EMQ-BCTS", "EMQ-ridge", "EMQ-ridge-mean", "KDEy", "ED")
LEARNED = ("Stack", "Chosen")  # on bags of the user's own out-of-fold rows
RIVALS = (*CLASSICAL, "Ensemble", *LEARNED, "Bayes", "Base")
_LEARNING_BAGS, _LEARNING_SIZE = 50, 250  # bags of each kind of mix that these learn from
_COVERAGE = 0.9
_DRAWS = 200  # of Bayesian intervals, whose medians are a rival
_SMALLEST = 0.001  # added to errors before their ratio


class Base(Pretrained):
    """The mixture that the pretrained network corrects, without the network."""

    def _estimates(self, entries: Any, loss: Any) -> Floats:
        from histnetq.quantifiers.classical.cell_tokens import describe
        from histnetq.quantifiers.classical.simplex_cells import MIDDLE

        prior = np.ones((len(entries.sizes), len(self.classes_)))
        found = describe(self.cells_, entries.cells, entries.offsets, entries.weights, entries.sizes, prior)
        estimates: Floats = found.expected[:, MIDDLE][:, np.argsort(self.cells_.edges.order)]
        return estimates


def methods() -> dict[str, Callable[[], Any]]:
    """Return constructors of the compared methods, all on posteriors."""
    return {
        "Pretrained": hq.Pretrained, "Pretrained, bags": lambda: hq.Pretrained(prior="bags"),
        "EMQ-BCTS": lambda: hq.EMQ(rescaling="bcts"), "EMQ-ridge": lambda: hq.EMQ(rescaling="ridge"),
        "EMQ-ridge-mean": lambda: hq.EMQ(rescaling="ridge", estimate="mean"), "KDEy": hq.KDEy, "ED": hq.ED,
        "Base": Base,
    }  # fmt: skip


def draw_bags(rng: np.random.Generator, labels: NDArray, training: Floats, size: int, n_bags: int) -> hq.Bags:
    """Draw bags of rows with replacement: `n_bags` of each kind of mix, in the order of `MIXES`."""
    k = len(training)
    mixes = np.concatenate([
        rng.dirichlet(np.ones(k), n_bags), rng.dirichlet(np.full(k, 0.3), n_bags),
        rng.dirichlet(np.maximum(50 * training, 1e-2), n_bags), [rare_mix(rng, k) for _ in range(n_bags)],
    ])  # fmt: skip
    counts = np.stack([rng.multinomial(size, p) for p in mixes / mixes.sum(1, keepdims=True)])
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(k + 1))
    codes = np.repeat(np.tile(np.arange(k), len(mixes)), counts.ravel())
    index = order[starts[codes] + (rng.random(len(codes)) * np.diff(starts)[codes]).astype(np.int64)]
    return hq.Bags(np.zeros((len(labels), 1)), index, np.arange(len(mixes) + 1) * size, prevalences=counts / size)


def run(scored: Scored, n_bags: int, with_bayes: bool) -> list[dict[str, Any]]:
    """Return one row per size of bags, mix and method."""
    fitted = {name: make().fit_posteriors(scored.posteriors, scored.labels) for name, make in methods().items()}
    weights, found = learn_weights(scored, fitted), list[dict[str, Any]]()
    for size in SIZES:
        rng = np.random.default_rng((scored.seed, size))
        drawn = draw_bags(rng, scored.pool_labels, scored.training, size, n_bags)
        assert drawn.prevalences is not None
        bags = hq.Bags(scored.pool, drawn.index, drawn.offsets)
        about = {"table": scored.table, "classes": scored.n_classes, "seed": scored.redraw, "labels": scored.n_labels,
                 "classifier": scored.classifier, "size": size}  # fmt: skip
        found += _errors(fitted, bags, drawn.prevalences, n_bags, with_bayes, about, weights)
    return found


def learn_weights(scored: Scored, fitted: dict[str, Any]) -> dict[str, Floats]:
    """Return the weights of classical methods of a stack and of the best one, on bags of the labelled rows.

    The bags have all mixes, and their rows have out-of-fold posteriors. The weights of the stack have the least
    squared error, are not negative, and sum to 1.
    """
    rng = np.random.default_rng((scored.seed, 0))
    drawn = draw_bags(rng, scored.labels, scored.training, _LEARNING_SIZE, _LEARNING_BAGS)
    truth: Any = drawn.prevalences
    bags = hq.Bags(scored.posteriors, drawn.index, drawn.offsets)
    off = np.stack([fitted[name].predict(bags) - truth for name in CLASSICAL])  # (n_methods, n_bags, n_classes)
    flat = off.reshape(len(CLASSICAL), -1)
    sure = 1e3 * np.abs(flat).max()  # a row that makes the weights sum to 1
    weights = nnls(np.vstack([flat.T, np.full(len(CLASSICAL), sure)]), np.append(np.zeros(flat.shape[1]), sure))[0]
    return {"Stack": weights / weights.sum(), "Chosen": np.eye(len(CLASSICAL))[np.abs(flat).mean(1).argmin()]}


def _errors(
    fitted: dict[str, Any],
    bags: hq.Bags,
    truth: Floats,
    n_bags: int,
    with_bayes: bool,
    about: dict[str, Any],
    weights: dict[str, Floats],
) -> list[dict[str, Any]]:
    """Return the errors of all methods, and the coverage and width of intervals, for each kind of mix."""
    kinds = [slice(i * n_bags, (i + 1) * n_bags) for i in range(len(MIXES))]
    estimates: dict[str, Floats] = {}
    for name, q in fitted.items():
        if name == "Pretrained, bags":  # bags of one kind of mix are estimated together
            estimates[name] = np.concatenate([q.predict(bags[some]) for some in kinds])
        else:
            estimates[name] = q.predict(bags)
    estimates["Ensemble"] = np.mean([estimates[name] for name in ("EMQ-BCTS", "KDEy", "ED")], axis=0)
    for name in LEARNED:
        estimates[name] = np.tensordot(weights[name], [estimates[one] for one in CLASSICAL], 1)
    relative = fitted["Pretrained"].predict_for(bags, "rae")
    own = fitted["Pretrained"].predict_interval(bags, _COVERAGE, method="posterior")
    intervals = {"Pretrained": (own.lower, own.upper)}
    if with_bayes:
        bayes = fitted["EMQ-BCTS"].bayes_interval(bags, _COVERAGE, n_draws=_DRAWS)
        estimates["Bayes"], intervals["Bayes"] = _medians(fitted["EMQ-BCTS"], bags), (bayes.lower, bayes.upper)
    rows = []
    for kind, some in zip(MIXES, kinds, strict=True):
        for name, p in estimates.items():
            errors = hq.metrics.ae(truth[some], p[some])
            halves = errors[: n_bags // 2], errors[n_bags // 2 :]
            row = {**about, "mix": kind, "method": name, "ae": _mean(errors), "first": _mean(halves[0]),
                   "second": _mean(halves[1])}  # fmt: skip
            for_rae = relative if name == "Pretrained" else p
            row["rae"] = _mean(hq.metrics.rae(truth[some], for_rae[some], bags.sizes[some]))
            if name in intervals:
                low, high = intervals[name]
                row |= _judged(low[some], high[some], truth[some])
            rows.append(row)
    return rows


def _judged(low: Floats, high: Floats, truth: Floats) -> dict[str, float]:
    """Return the coverage of intervals, of those of absent classes, their width and their interval score."""
    inside = (low <= truth + 1e-9) & (truth <= high + 1e-9)
    missed = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    return {
        "inside": _mean(inside), "absent": _mean(truth == 0), "inside, absent": _mean(inside & (truth == 0)),
        "width": _mean(high - low), "score": _mean(high - low + 2 / (1 - _COVERAGE) * missed),
    }  # fmt: skip


def _medians(q: Any, bags: hq.Bags) -> Floats:
    """Return the medians of the posterior that Bayesian intervals draw from, scaled to sum to 1."""
    from histnetq.uncertainty.bayes import draw_counts
    from histnetq.uncertainty.likelihoods import RowLikelihoods

    known = q.training_posteriors_.astype(np.float64), q.training_labels_.astype(np.int64), None
    likelihoods = RowLikelihoods.drawn(*known, _DRAWS // 5, np.random.default_rng(0))
    ones, flat = np.ones(len(bags.index)), np.ones(bags.rows.shape[1])
    drawn = draw_counts(likelihoods, bags.rows, bags.index, bags.offsets, ones, flat, 0)
    middle = np.median(drawn / drawn.sum(2, keepdims=True), axis=1)
    found: Floats = middle / middle.sum(1, keepdims=True)
    return found


def _mean(values: Any) -> float:
    return round(float(np.mean(values)), 6)


def run_all(scores: Path, redraws: int, parts: Path, n_bags: int, with_bayes: bool) -> pd.DataFrame:
    """Return all errors; each file of scores has a CSV file, and existing files are kept."""
    parts.mkdir(parents=True, exist_ok=True)
    frames = []
    for scored in read_scores(scores, redraws):
        part = parts / f"{scored.name}.csv"
        if not part.exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows = run(scored, n_bags, with_bayes)
            unfinished = part.with_suffix(".part")
            pd.DataFrame(rows).to_csv(unfinished, index=False)
            unfinished.replace(part)
        frames.append(pd.read_csv(part))
    return pd.concat(frames, ignore_index=True)


def means(found: pd.DataFrame) -> pd.DataFrame:
    """Return means over redraws, classifiers and sizes of bags."""
    keys = ["table", "classes", "labels", "mix", "method"]
    return found.groupby(keys)[["ae", "rae", "inside", "width", "score"]].mean().round(5).reset_index()


_CASE = ["table", "classes", "seed", "labels", "classifier", "size", "mix"]


def ratios(found: pd.DataFrame, rival: str, measure: str = "ae", own: str = "Pretrained") -> tuple[float, float, float]:
    """Return the geometric mean over tables of the ratio of errors to a rival, and a 95 % interval over tables."""
    errors = found[found["method"].isin([own, rival])].pivot_table(measure, _CASE, "method").dropna()
    return _over_tables(_logs(errors[own], errors[rival]))


def hindsight(found: pd.DataFrame) -> tuple[float, float, float]:
    """Return the ratio to the classical method that is the best on the first half of the bags, on the other half."""
    errors = found.pivot_table(["first", "second"], _CASE, "method").dropna(axis=1, how="all")
    chosen = errors["first"][list(CLASSICAL)].to_numpy().argmin(1)
    rival = errors["second"][list(CLASSICAL)].to_numpy()[np.arange(len(errors)), chosen]
    return _over_tables(_logs(errors["second"]["Pretrained"], rival))


def _logs(own: pd.Series, rival: Any) -> pd.Series:
    return np.log((own + _SMALLEST) / (rival + _SMALLEST))


def _over_tables(logs: pd.Series, n_resamples: int = 2000) -> tuple[float, float, float]:
    by_table = logs.groupby("table").mean().to_numpy()
    rng = np.random.default_rng(0)
    resampled = by_table[rng.integers(len(by_table), size=(n_resamples, len(by_table)))].mean(1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(np.exp(by_table.mean())), float(np.exp(low)), float(np.exp(high))


def by_separability(found: pd.DataFrame) -> pd.Series:
    """Return the third of the tables that each row belongs to, by the mean AE of EMQ-BCTS for uniform mixes."""
    some = found[(found["method"] == "EMQ-BCTS") & (found["mix"] == "uniform")]
    means_of_tables = some.groupby("table")["ae"].mean()
    thirds = pd.qcut(means_of_tables.rank(method="first"), 3, labels=["separable", "between", "hard"])
    return found["table"].map(thirds.astype(str))


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Return the ratios of errors to each rival, by mix and number of classes."""
    rows = []
    for kind, classes in [(kind, None) for kind in MIXES] + [("uniform", 2), ("uniform", 3)]:
        some = found[found["mix"] == kind]
        if classes is not None:
            some = some[some["classes"] == 2] if classes == 2 else some[some["classes"] > 2]
        name = kind if classes is None else f"{kind}, {'two classes' if classes == 2 else 'more'}"
        row = {"mix": name, "tables": some["table"].nunique()}
        for rival in RIVALS:
            if (some["method"] == rival).any():
                middle, low, high = ratios(some, rival)
                row[rival] = f"{middle:.3f} ({low:.2f}–{high:.2f})"
        rows.append(row)
    return pd.DataFrame(rows)


def facts(found: pd.DataFrame) -> pd.DataFrame:
    """Return, by mix, more ratios: for RAE, of the prior "bags", and to the best classical method with hindsight."""
    rows = []
    for kind in MIXES:
        some = found[found["mix"] == kind]
        row = {"mix": kind, "AE": some.loc[some["method"] == "Pretrained", "ae"].mean()}
        for name, (middle, low, high) in {
            "RAE, to EMQ-BCTS": ratios(some, "EMQ-BCTS", "rae"),
            'prior="bags", to EMQ-BCTS': ratios(some, "EMQ-BCTS", own="Pretrained, bags"),
            "to the best with hindsight": hindsight(some),
        }.items():
            row[name] = f"{middle:.3f} ({low:.2f}–{high:.2f})"
        rows.append(row)
    return pd.DataFrame(rows)


def intervals_by(found: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return facts on 90 % intervals by mix and another column, beside those of Bayesian intervals if there are any."""
    rows = []
    for (kind, value), some in found.groupby(["mix", column], sort=False):
        own, bayes = (some[some["method"] == name] for name in ("Pretrained", "Bayes"))
        row = {"mix": kind, column: value, "coverage": own["inside"].mean()}
        row["coverage of absent classes"] = own["inside, absent"].sum() / max(own["absent"].sum(), 1e-9)
        row |= {"width": own["width"].mean(), "interval score": own["score"].mean()}
        if len(bayes):
            row |= {"coverage, Bayes": bayes["inside"].mean(), "interval score, Bayes": bayes["score"].mean()}
        rows.append(row)
    return pd.DataFrame(rows)


def worst_tables(found: pd.DataFrame, n_worst: int = 5) -> pd.DataFrame:
    """Return the tables with the largest ratios to EMQ-BCTS for uniform mixes, with a 95 % interval over fits."""
    rows, some = [], found[found["mix"] == "uniform"]
    for table, own in some.groupby("table"):
        errors = own.pivot_table("ae", ["seed", "labels", "classifier"], "method")
        logs = _logs(errors["Pretrained"], errors["EMQ-BCTS"]).to_numpy()
        resampled = logs[np.random.default_rng(0).integers(len(logs), size=(2000, len(logs)))].mean(1)
        low, high = np.exp(np.quantile(resampled, [0.025, 0.975]))
        rows.append({"table": table, "ratio": np.exp(logs.mean()), "from": low, "to": high, "AE": own.loc[
            own["method"] == "Pretrained", "ae"].mean()})  # fmt: skip
    return pd.DataFrame(rows).sort_values("ratio", ascending=False).head(n_worst)
