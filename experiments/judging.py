"""Coverage and width of the intervals of `judge` in simulated batches, and those of other packages."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import binom
from scipy.stats import t as student

from histnetq.uncertainty.judging.joint_likelihood import joint_interval
from histnetq.uncertainty.judging.judged_rows import JudgedRows
from histnetq.uncertainty.judging.planning import FIRST_LOOK, sequential_level
from histnetq.uncertainty.judging.score_intervals import pool_small_strata, score_interval

__all__ = ["ROUTES", "cells", "count_intervals", "run_cells", "run_differences", "run_peers", "run_sequential"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LABELS, CLASSES, JUDGES, SHARES, SIZES = (
    (60, 100, 150, 300),
    (2, 4),
    (0.7, 0.85, 0.95, "unequal"),
    (0.5, 0.2, 0.05),
    (500, 5000),
)
ROUTES = ("random", "by-verdict", "earlier batch", "both, stable judge", "clustered", "drifting judge")
_SLOW = ("earlier batch", "both, stable judge", "clustered")
_LEVEL, _EXPECTED, _CLUSTER, _ALIKE = 0.9, 10, 10, 4.0  # rows per cluster, and how little alike they are
_LEAST_POOLED = 3
Z = float(ndtri((1 + _LEVEL) / 2))


def cells(route: str) -> Iterator[tuple[int, int, Any, float, int]]:
    """A balanced fraction of all settings: a quarter, or about an eighth of those that take long."""
    grid = (LABELS, CLASSES, JUDGES, SHARES, SIZES)
    offset, modulus = ROUTES.index(route), 8 if route in _SLOW else 4
    for place in product(*(range(len(each)) for each in grid)):
        n, k, judge, share, size = place
        code = sum(place) if modulus == 4 else n + 3 * judge + 2 * k + 4 * size + 5 * share
        if (code + offset) % modulus == 0:
            yield tuple(each[i] for each, i in zip(grid, place, strict=True))  # type: ignore[misc]


def world(n_classes: int, judge: Any, share: float) -> tuple[Floats, Floats]:
    """Shares of the classes, and the probabilities of verdicts (n_classes, n_verdicts)."""
    shares = np.full(n_classes, (1 - share) / (n_classes - 1))
    shares[0] = share
    right = np.linspace(0.6, 0.95, n_classes) if judge == "unequal" else np.full(n_classes, judge)
    rates = np.repeat(((1 - right) / (n_classes - 1))[:, None], n_classes, 1)
    np.fill_diagonal(rates, right)
    return shares, rates


def count_intervals(
    labelled: Ints, sizes: Ints, target: str, pool: bool, level: float = _LEVEL
) -> tuple[Floats, Floats, Floats]:
    """The intervals of `judge` from counts of many batches: (n_batches, n_verdicts, n_classes) and (…, n_verdicts)."""
    n_rows = sizes.sum(1)[:, None]
    counts, rows = labelled.astype(float), sizes.astype(float)
    if pool:
        pooled = pool_small_strata(labelled.sum(2), _LEAST_POOLED)
        together = (counts * pooled[..., None]).sum(1, keepdims=True), (rows * pooled).sum(1, keepdims=True)
        counts = np.concatenate([counts * ~pooled[..., None], together[0]], 1)
        rows = np.concatenate([rows * ~pooled, together[1]], 1)
    m = counts.sum(2)
    if target == "batch":
        counts = counts / np.maximum(1 - m / np.maximum(rows, 1), 1e-12)[..., None]
    pairs = np.stack([counts, counts.sum(2, keepdims=True) - counts], -1).swapaxes(1, 2)
    weights = np.broadcast_to((rows / n_rows)[:, None], pairs.shape[:-1])
    free = np.maximum(m.sum(1) - (rows > 0).sum(1), 1)
    z = student.ppf((1 + level) / 2, free)[:, None]
    found, lower, upper = score_interval(pairs, weights, z, np.inf if target == "batch" else n_rows)
    if target == "batch":
        known = labelled.sum(1)
        lower = np.maximum(lower, known / n_rows)
        upper = np.minimum(upper, 1 - (known.sum(1, keepdims=True) - known) / n_rows)
    return found, np.minimum(lower, found), np.maximum(upper, found)


def _draw(counts: Ints, n: Any, rng: np.random.Generator) -> Ints:
    """Draw rows without replacement: (n_batches, n_cells) → the same shape."""
    n = np.broadcast_to(n, len(counts))
    return np.array([rng.multivariate_hypergeometric(own, k) for own, k in zip(counts, n, strict=True)])


def _simulate(route: str, cell: Any, n_batches: int, rng: np.random.Generator) -> tuple[Floats, ...]:
    """Truth, both ends, labels that are expected of each class, and widths of Wilson's intervals."""
    n, n_classes, judge, share, size = cell
    shares, rates = world(n_classes, judge, share)
    if route == "clustered":
        return _clustered(shares, rates, n, size, n_batches, rng)
    full = rng.multinomial(size, (shares[:, None] * rates).ravel(), n_batches)
    table = full.reshape(-1, n_classes, n_classes)  # class × verdict
    truth, sizes = table.sum(2) / size, table.sum(1)
    expected, own = n * shares, np.zeros_like(table)
    if route == "by-verdict":
        wanted = np.minimum(n // n_classes, sizes)
        for v in range(n_classes):
            own[:, :, v] = _draw(table[:, :, v], wanted[:, v], rng)
        joint = shares[:, None] * rates
        expected = (joint / joint.sum(0) * n / n_classes).sum(1)
    elif route != "earlier batch":
        own = _draw(full, n, rng).reshape(table.shape)
    labelled = own.swapaxes(1, 2)
    if route in ("earlier batch", "both, stable judge"):
        past = rng.multinomial(n, (rates / n_classes).ravel(), n_batches).reshape(table.shape).swapaxes(1, 2)
        parts = np.array_split(np.arange(n_batches), max(n_batches // 100, 1))
        ends = [joint_interval((sizes - labelled.sum(2))[p], labelled[p], past[p], Z) for p in parts]
        _, lower, upper = (np.concatenate(each) for each in zip(*ends, strict=True))
        if route == "earlier batch":
            expected = np.full(n_classes, n / n_classes)
    else:
        _, lower, upper = count_intervals(labelled, sizes, "batch", route != "by-verdict")
    return truth, lower, upper, expected, _wilson(own.sum(2) / n, n / (1 - n / size))


def _clustered(
    shares: Floats, rates: Floats, n: int, size: int, n_batches: int, rng: np.random.Generator
) -> tuple[Floats, ...]:
    """Clusters of rows that are alike, for the process; labels are drawn at random from the rows."""
    k, clusters = len(shares), np.repeat(np.arange(size // _CLUSTER), _CLUSTER)
    problems, wilson = [], []
    for _ in range(n_batches):
        mix = rng.dirichlet(_ALIKE * shares, size // _CLUSTER).cumsum(1)[:, :-1]
        truth = (rng.random(size)[:, None] > mix[clusters]).sum(1)
        verdicts = (rng.random(size)[:, None] > rates.cumsum(1)[truth, :-1]).sum(1)
        labels = np.full(size, -1)
        drawn = rng.permutation(size)[:n]
        labels[drawn] = truth[drawn]
        rows = JudgedRows(verdicts, labels, k, k, np.zeros(k, int), clusters=clusters)
        problems.append(rows.evidence(_LEVEL, "process")[:4])
        wilson.append(_wilson(np.bincount(truth[drawn], minlength=k) / n, n))
    counts, weights = np.zeros((n_batches, k, k, 2)), np.zeros((n_batches, k, k))
    for b, (own, parts, _, _) in enumerate(problems):
        counts[b, :, : own.shape[1]], weights[b, :, : own.shape[1]] = own, parts
    z, rows_ = (np.array([np.broadcast_to(each[i], k) for each in problems]) for i in (2, 3))
    _, lower, upper = score_interval(counts, weights, z, rows_)
    return np.broadcast_to(shares, lower.shape), lower, upper, n * shares, np.array(wilson)


def _wilson(p: Floats, n: Any) -> Floats:
    """Width of Wilson's interval for n effective labels."""
    found: Floats = 2 * np.sqrt(Z**2 * p * (1 - p) / n + Z**4 / (4 * n**2)) / (1 + Z**2 / n)
    return found


def run_cells(route: str, n_batches: int, path: Path, limit: int | None = None) -> pd.DataFrame:
    """Coverage and width of each class of each cell; cells that are in the file are not repeated."""
    done = pd.read_csv(path) if path.exists() else None
    for i, cell in enumerate(cells(route)):
        named = dict(zip(("labels", "classes", "accuracy", "share", "rows"), cell, strict=True))
        if done is not None and ((done["route"] == route) & (done["cell"] == i)).any():
            continue
        if limit is not None and (limit := limit - 1) < 0:
            break
        rng = np.random.default_rng([ROUTES.index(route), i])
        truth, lower, upper, expected, wilson = _simulate(route, cell, n_batches, rng)
        held = (lower <= truth + 1e-9) & (truth <= upper + 1e-9)
        table = pd.DataFrame({
            "route": route, "cell": i, **named, "class": np.arange(len(expected)), "expected": expected,
            "coverage": held.mean(0), "width": (upper - lower).mean(0), "wilson": wilson.mean(0), "batches": n_batches,
        })  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(path, mode="a", header=not path.exists(), index=False, lineterminator="\n")
    return pd.read_csv(path)


def verdicts(found: pd.DataFrame) -> pd.DataFrame:
    """For each route and kind of class: coverage, width, and cells that fail at a one-sided p below 0.001."""
    table = found.assign(kind=np.where(found["expected"] >= _EXPECTED, "10 labels or more", "rarer"))
    hits = (table["coverage"] * table["batches"]).round()
    few = (table["route"] == "earlier batch") & (table["labels"] == 60) & (table["classes"] == 4)
    least = np.where(few, 0.85, 0.88)
    table["below"] = binom.cdf(hits, table["batches"], least) < 0.001
    table["above"] = (table["kind"] != "rarer") & (binom.sf(hits - 1, table["batches"], 0.93) < 0.001)
    table["ratio"] = table["width"] / table["wilson"].where(table["route"] != "earlier batch")
    by_cell = table.groupby(["route", "kind", "cell"], sort=False).agg(
        below=("below", "any"), above=("above", "any"), ratio=("ratio", "mean")
    )
    cells_ = by_cell.groupby(["route", "kind"], sort=False).agg(
        cells=("below", "size"), below=("below", "sum"), above=("above", "sum"), widest=("ratio", "max")
    )
    about = table.groupby(["route", "kind"], sort=False).agg(
        mean=("coverage", "mean"), lowest=("coverage", "min"), highest=("coverage", "max"), width=("ratio", "mean")
    )
    return about.join(cells_).reset_index()


def run_sequential(n_runs: int, most: int, size: int, judge: Any, share: float) -> dict[str, Any]:
    """How many runs ever miss with a look after every 20 labels, and the final width next to that of one look."""
    rng = np.random.default_rng([7, most, size])
    shares, rates = world(2, judge, share)
    full = rng.multinomial(size, (shares[:, None] * rates).ravel(), n_runs)
    table = full.reshape(-1, 2, 2)
    truth, sizes = table.sum(2) / size, table.sum(1)
    own, missed, level = np.zeros_like(full), np.zeros(n_runs, bool), sequential_level(_LEVEL)
    for _ in range(most // FIRST_LOOK):
        own += _draw(full - own, FIRST_LOOK, rng)
        labelled = own.reshape(table.shape).swapaxes(1, 2)
        _, lower, upper = count_intervals(labelled, sizes, "batch", True, level)
        missed |= (lower[:, 0] > truth[:, 0] + 1e-9) | (upper[:, 0] < truth[:, 0] - 1e-9)
    _, low, high = count_intervals(labelled, sizes, "batch", True)
    widths = (upper - lower)[:, 0].mean() / (high - low)[:, 0].mean()
    about = {"rows": size, "most labels": most, "accuracy": judge, "share": share, "runs": n_runs}
    return {**about, "ever missed": missed.mean(), "final width": widths}


def run_differences(n_batches: int, labels: int, judge: Any, share: float, size: int = 2000) -> dict[str, Any]:
    """Coverage of the difference of two systems with the same share but other judges' errors, and false "better"."""
    rng = np.random.default_rng([8, labels])
    found = []
    for own in (judge, min(judge + 0.1, 0.97)):
        shares, rates = world(2, own, share)
        full = rng.multinomial(size, (shares[:, None] * rates).ravel(), n_batches)
        labelled = _draw(full, labels, rng).reshape(-1, 2, 2).swapaxes(1, 2)
        sizes = full.reshape(-1, 2, 2).sum(1)
        found.append([each[:, 0] for each in count_intervals(labelled, sizes, "process", True)])
    (a, a_low, a_high), (b, b_low, b_high) = found
    lower = b - a - np.hypot(b - b_low, a_high - a)
    upper = b - a + np.hypot(b_high - b, a - a_low)
    about = {"labels": labels, "accuracy": judge, "share": share, "rows": size, "batches": n_batches}
    return {
        **about,
        "coverage": ((lower <= 0) & (upper >= 0)).mean(),
        "false better": ((lower > 0) | (upper < 0)).mean(),
    }


def run_peers(python: str, n_batches: int, work: Path) -> pd.DataFrame:
    """Intervals of this package and of others for the process, from the same labels drawn at random, of two classes."""
    settings = product((60, 300), (0.7, 0.85, 0.95), (0.5, 0.2, 0.05))
    return pd.concat([_with_peers(python, n_batches, work, *each) for each in settings], ignore_index=True)


def _with_peers(python: str, n_batches: int, work: Path, n: int, judge: float, share: float) -> pd.DataFrame:
    """Coverage and width of each package in one setting; finished settings are not repeated."""
    given, got, done = (work / f"{n_batches}-{n}-{judge}-{share}{end}" for end in (" counts.npz", " ends.npz", ".csv"))
    if done.exists():
        return pd.read_csv(done)
    work.mkdir(parents=True, exist_ok=True)
    rng, size = np.random.default_rng([9, n, round(100 * judge), round(100 * share)]), SIZES[int(judge == 0.85)]
    shares, rates = world(2, judge, share)
    full = rng.multinomial(size, (shares[:, None] * rates).ravel(), n_batches)
    own = _draw(full, n, rng)
    np.savez(given, full=full, labelled=own)
    subprocess.run([python, str(Path(__file__).parent / "judge_peers.py"), str(given), str(got)], check=True)
    labelled, sizes = own.reshape(-1, 2, 2).swapaxes(1, 2), full.reshape(-1, 2, 2).sum(1)
    _, lower, upper = (each[:, 0] for each in count_intervals(labelled, sizes, "process", True))
    ends = {"histnetq": np.stack([lower, upper], 1), **np.load(got)}
    parts = []
    for name, (low, high) in {name: each.T for name, each in ends.items()}.items():
        ok = np.isfinite(low)
        held = (low <= share + 1e-9) & (share <= high + 1e-9)
        parts.append({
            "labels": n, "accuracy": judge, "share": share, "rows": size, "package": name,
            "coverage": held[ok].mean() if ok.any() else np.nan,
            "width": (high - low)[ok].mean() if ok.any() else np.nan, "answered": ok.mean(), "batches": n_batches,
        })  # fmt: skip
    table = pd.DataFrame(parts)
    table.to_csv(done, index=False)
    return table
