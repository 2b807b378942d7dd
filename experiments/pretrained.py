"""`hq.Pretrained` against other methods on development tables: few to many labels, small to large bags, several mixes.

All methods read the same out-of-fold posteriors of the same labelled rows, and estimate the same bags of other rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import histnetq as hq
from experiments.defaults import split_rows
from experiments.development_tables import DevelopmentTable
from experiments.pretraining import rare_mix
from histnetq.quantifiers.classical.pretrained import Pretrained

Floats = NDArray[np.float64]
LABELS = (50, 200, 1000, 0)  # labelled rows; 0 stands for all
SIZES = (50, 250, 1000)  # of bags
CLASSIFIERS = ("logistic", "forest", "boosting")
MIXES = ("uniform", "sparse", "near", "rare")
RIVALS = ("EMQ-BCTS", "EMQ-ridge", "EMQ-ridge-mean", "KDEy", "ED", "Ensemble", "Bayes", "Base")
_FEWEST, _FEWEST_IN_POOL = 3, 5  # rows of a class: labelled, and for bags
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


def choose_labelled(table: DevelopmentTable, n_labels: int, seed: int) -> tuple[NDArray, NDArray] | None:
    """Return labelled rows, with at least three of each class, and rows for bags; None if there are too few."""
    labelled, test = split_rows(table, seed)
    if n_labels:
        if n_labels >= len(labelled) or n_labels < _FEWEST * table.n_classes:
            return None
        order = np.random.default_rng((seed, n_labels)).permutation(labelled)
        codes = table.labels[order]
        first = np.concatenate([np.flatnonzero(codes == k)[:_FEWEST] for k in range(table.n_classes)])
        others = np.setdiff1d(np.arange(len(order)), first)[: n_labels - len(first)]
        labelled = np.sort(order[np.concatenate([first, others])])
    counts = [np.bincount(table.labels[rows], minlength=table.n_classes).min() for rows in (labelled, test)]
    return (labelled, test) if counts[0] >= 2 and counts[1] >= _FEWEST_IN_POOL else None


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


def run(table: DevelopmentTable, seed: int, n_labels: int, n_bags: int, with_bayes: bool) -> list[dict[str, Any]]:
    """Return one row per classifier, size of bags, mix and method."""
    chosen = choose_labelled(table, n_labels, seed)
    if chosen is None:
        return []
    labelled, test = chosen
    found: list[dict[str, Any]] = []
    for classifier in CLASSIFIERS:
        try:
            crossed = hq.EMQ(classifier, random_state=seed).cross_fit(table.rows[labelled], table.labels[labelled])
        except ValueError:  # such as a class with fewer rows than boosting needs
            continue
        posteriors = np.zeros((len(test), table.n_classes))
        posteriors[:, crossed.columns] = crossed.classifier.predict_proba(table.rows[test])
        training = np.bincount(crossed.labels, minlength=table.n_classes) / len(crossed.labels)
        fitted = {name: make().fit_posteriors(crossed.posteriors, crossed.labels) for name, make in methods().items()}
        for size in SIZES:
            rng = np.random.default_rng((seed, n_labels, size))
            drawn = draw_bags(rng, table.labels[test], training, size, n_bags)
            assert drawn.prevalences is not None
            bags = hq.Bags(posteriors, drawn.index, drawn.offsets)
            about = {"table": table.name, "classes": table.n_classes, "seed": seed, "labels": n_labels,
                     "classifier": classifier, "size": size}  # fmt: skip
            found += _errors(fitted, bags, drawn.prevalences, n_bags, with_bayes, about)
    return found


def _errors(
    fitted: dict[str, Any], bags: hq.Bags, truth: Floats, n_bags: int, with_bayes: bool, about: dict[str, Any]
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
    relative = fitted["Pretrained"].predict_for(bags, "rae")
    own = fitted["Pretrained"].predict_interval(bags, 0.9, method="posterior")
    intervals = {"Pretrained": (own.lower, own.upper)}
    if with_bayes:
        bayes = fitted["EMQ-BCTS"].bayes_interval(bags, 0.9, n_draws=_DRAWS)
        estimates["Bayes"], intervals["Bayes"] = _medians(fitted["EMQ-BCTS"], bags), (bayes.lower, bayes.upper)
    rows = []
    for kind, some in zip(MIXES, kinds, strict=True):
        for name, p in estimates.items():
            row = {**about, "mix": kind, "method": name, "ae": _mean(hq.metrics.ae(truth[some], p[some]))}
            for_rae = relative if name == "Pretrained" else p
            row["rae"] = _mean(hq.metrics.rae(truth[some], for_rae[some], bags.sizes[some]))
            if name in intervals:
                low, high = (ends[some] for ends in intervals[name])
                row["inside"] = _mean((low <= truth[some] + 1e-9) & (truth[some] <= high + 1e-9))
                row["width"] = _mean(high - low)
            rows.append(row)
    return rows


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


def run_all(
    tables: Sequence[DevelopmentTable], seeds: int, path: Path, n_bags: int, with_bayes: bool, say: Callable[[str], Any]
) -> pd.DataFrame:
    """Return all errors; each table, redraw and number of labels has a CSV file, and existing files are kept."""
    parts = path
    parts.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        for n_labels in LABELS:
            for table in tables:
                part = parts / f"{table.name}-{seed}-{n_labels}.csv"
                if part.exists():
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    rows = run(table, seed, n_labels, n_bags, with_bayes)
                unfinished = part.with_suffix(".part")
                pd.DataFrame(rows).to_csv(unfinished, index=False)
                unfinished.replace(part)
            say(f"labels {n_labels}, redraw {seed}: done")
    frames = [pd.read_csv(part) for part in sorted(parts.glob("*.csv")) if part.stat().st_size > 2]
    return pd.concat(frames, ignore_index=True)


def means(found: pd.DataFrame) -> pd.DataFrame:
    """Return means over redraws, classifiers and sizes of bags."""
    keys = ["table", "classes", "labels", "mix", "method"]
    return found.groupby(keys)[["ae", "rae", "inside", "width"]].mean().round(5).reset_index()


def ratios(found: pd.DataFrame, rival: str, measure: str = "ae", n_resamples: int = 2000) -> tuple[float, float, float]:
    """Return the geometric mean over tables of the ratio of errors to a rival, and a 95 % interval over tables."""
    keys = ["table", "classes", "seed", "labels", "classifier", "size", "mix"]
    errors = found[found["method"].isin(["Pretrained", rival])].pivot_table(measure, keys, "method").dropna()
    logs = np.log((errors["Pretrained"] + _SMALLEST) / (errors[rival] + _SMALLEST)).groupby("table").mean().to_numpy()
    rng = np.random.default_rng(0)
    resampled = logs[rng.integers(len(logs), size=(n_resamples, len(logs)))].mean(1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high))


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
    """Return, by mix, the ratios to EMQ-BCTS of RAE and of the AE with the prior "bags", and facts on intervals."""
    rows = []
    for kind in MIXES:
        some = found[found["mix"] == kind]
        own, bayes = (some[some["method"] == name] for name in ("Pretrained", "Bayes"))
        alike = some[some["method"].isin(["Pretrained, bags", "EMQ-BCTS"])]
        alike = alike.assign(method=alike["method"].replace("Pretrained, bags", "Pretrained"))
        row = {"mix": kind, "AE": own["ae"].mean()}
        for name, (middle, low, high) in {
            'RAE, to EMQ-BCTS': ratios(some, "EMQ-BCTS", "rae"), 'prior="bags", to EMQ-BCTS': ratios(alike, "EMQ-BCTS")
        }.items():  # fmt: skip
            row[name] = f"{middle:.3f} ({low:.2f}–{high:.2f})"
        row |= {"coverage": own["inside"].mean(), "width": own["width"].mean()}
        row |= {"coverage, Bayes": bayes["inside"].mean(), "width, Bayes": bayes["width"].mean()}
        rows.append(row)
    return pd.DataFrame(rows)
