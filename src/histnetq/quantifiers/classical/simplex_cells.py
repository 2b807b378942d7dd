"""Cells of the simplex of posteriors, and what labelled rows say about them, for `Pretrained`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.limits import brief
from histnetq.kernels.cell_mixtures import find_cells
from histnetq.kernels.cores import over_bags
from histnetq.persistence.saving import Arrays, Stored, checked_numbers
from histnetq.quantifiers.classical.kdey import kernel_densities
from histnetq.quantifiers.classical.posterior_checks import describe_fault
from histnetq.quantifiers.classical.rescaling import best_floor, fit_scales, rescale
from histnetq.simplex import Floats, Ints
from histnetq.sketches.cell_rules import CellRule, LikeliestClasses, Odds

TRUST = (10.0, 100.0, np.inf)  # labelled rows of a class that the posteriors of the classifier count for in a group
_CELLS_OF_TWO, _TAILS = 64, (1 / 2048, 1 / 512, 1 / 128)  # cells for two classes, and quantiles for cells in the tails
_MOST_CELLS, _MOST_OF_PAIR = 4096, 96  # cells for more classes: in all, and for a pair of the likeliest classes
N_LEVELS, MIDDLE = len(TRUST) + 1, 2  # the last level has kernel densities; uncertainty is of the middle one
_FLOORS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # of posteriors, to choose from
_MOST_FOR_FLOOR = 5000  # rows that the floor is chosen by
_BANDWIDTH = 0.1  # of the kernel densities
_IN_GROUP = 5  # labelled rows in a group of cells
_SAMPLES = 20_000  # labelled rows and noisy copies of them, which find the posterior of a cell
_NOISE = 0.5  # of copies, in units of the usual bandwidth of kernel density estimates


_STORED = {
    "order": "whole: classes", "first": "firsts", "second": "seconds", "emissions": "share: levels cells classes",
    "points": "share: cells classes", "counts": "size: classes", "recalls": "share: classes",
    "confidences": "share: classes",
}  # fmt: skip


@dataclass(frozen=True)
class CellEdges:
    """Limits of the cells, in classes sorted by `order`.

    Two classes: intervals of the log-odds. More classes: pairs of the first and the second class of a row, divided by
    the log-odds of these two and by the log-odds of the second and the third class.

    Attributes
    ----------
    order : (n_classes,)
        Order of the classes that depends on data alone, so that new names of the classes do not change estimates.
    floor : float
        Smallest posterior that is distinguished from 0.
    first, second : (n_first,), (n_second,)
        Limits of the two kinds of log-odds; two classes have only the first.
    """

    order: Ints
    floor: float
    first: Floats
    second: Floats

    @classmethod
    def of(cls, posteriors: Floats, labels: Ints, w: Floats) -> CellEdges:
        """Choose limits by the posteriors ``(n_rows, n_classes)``, labels and weights of labelled rows."""
        n_classes = posteriors.shape[1]
        totals = _totals(labels, w, n_classes)
        order = np.lexsort((w @ posteriors**2, w @ posteriors, totals))[::-1]
        floor = _FLOORS[0]
        if posteriors.min() < floor:
            some = np.random.default_rng(0).permutation(len(labels))[:_MOST_FOR_FLOOR]
            floor = best_floor(posteriors[some], labels[some], w[some], _FLOORS)
        balanced = w / totals[labels]
        logs = _logs(posteriors[:, order], floor)
        if n_classes == 2:
            odds = logs[:, 1] - logs[:, 0]
            tails = np.concatenate([_TAILS, 1 - np.array(_TAILS)])
            n_even = (_CELLS_OF_TWO - len(tails)) // 3
            by_rank = np.concatenate([tails, np.linspace(0, 1, _CELLS_OF_TWO - len(tails) - n_even + 1)[1:-1]])
            even = np.linspace(odds.min(), odds.max(), n_even + 2)[1:-1]
            return cls(
                order, floor, _distinct(np.concatenate([_quantiles(odds, balanced, by_rank), even])), np.empty(0)
            )
        per_pair = max(1, min(_MOST_OF_PAIR, _MOST_CELLS // (n_classes * (n_classes - 1))))
        n_second = max(1, min(6, round(np.sqrt(per_pair / 2.5))))
        n_first = per_pair // n_second
        top = -np.sort(-logs, axis=1)[:, :3]
        first = _quantiles(top[:, 0] - top[:, 1], balanced, np.linspace(0, 1, n_first + 1)[1:-1])
        second = _quantiles(top[:, 1] - top[:, 2], balanced, np.linspace(0, 1, n_second + 1)[1:-1])
        return cls(order, floor, _distinct(first), _distinct(second))

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        n_classes, n_first = len(self.order), len(self.first) + 1
        return n_first if n_classes == 2 else n_classes**2 * n_first * (len(self.second) + 1)

    def of_rows(self, posteriors: Floats) -> Ints:
        """Return the cell of each row: (n_rows, n_classes) → (n_rows,)."""
        found = np.empty(len(posteriors), np.int64)
        known = np.ascontiguousarray(posteriors, np.float64), self.order, self.floor, *self._odds()
        over_bags(lambda a, b: find_cells(*known, a, b, found), np.arange(len(posteriors) + 1))
        return found

    def _odds(self) -> tuple[Floats, Floats]:
        # Odds are compared with the odds at the limits: a division rounds in the same way everywhere, a logarithm not.
        with np.errstate(over="ignore"):
            return np.exp(self.first), np.exp(self.second)

    def rule(self) -> CellRule:
        """Return the same cells as a rule for SQL."""
        first, second = self._odds()
        if len(self.order) == 2:
            return Odds(int(self.order[1]), int(self.order[0]), self.floor, first)
        return LikeliestClasses(tuple(self.order.tolist()), self.floor, first, second)


@dataclass(frozen=True)
class LearnedCells:
    """Statistics of labelled rows in cells; classes are in the order of the edges.

    Attributes
    ----------
    edges : CellEdges
    emissions : (n_levels, n_cells, n_classes)
        Share of each cell among the rows of each class, up to a factor per cell: at the levels of trust in the
        classifier of `TRUST`, and by kernel densities of the rows' posteriors.
    points : (n_cells, n_classes)
        Rescaled posterior that represents the rows of a cell.
    counts : (n_classes,)
        Effective number of labelled rows of each class.
    recalls, confidences : (n_classes,)
        Share of the rows of each class that are assigned to it, and their mean rescaled posterior of it.
    """

    edges: CellEdges
    emissions: NDArray[np.float64]
    points: Floats
    counts: Floats
    recalls: Floats
    confidences: Floats

    @classmethod
    def of(cls, posteriors: Floats, labels: Ints, weights: NDArray | None) -> LearnedCells:
        """Learn from out-of-fold posteriors ``(n_rows, n_classes)``, labels and weights of rows."""
        n_classes = posteriors.shape[1]
        w = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
        edges = CellEdges.of(posteriors, labels, w)
        p = np.exp(_logs(posteriors[:, edges.order], edges.floor))
        p /= p.sum(1, keepdims=True)
        codes = np.argsort(edges.order)[labels]
        scale, bias = fit_scales(p, codes, "ridge", w)
        rescaled = rescale(p, scale, bias)
        cells = edges.of_rows(posteriors)
        totals = _totals(codes, w, n_classes)
        raw, points = _points(edges, p, codes, w, scale, bias)
        emissions = np.concatenate(
            [_emissions(edges, cells, codes, w, rescaled, points), _smooth_emissions(cells, codes, w, raw)[None]]
        )
        is_survey = weights is not None and weights.dtype.kind == "f"
        counts = totals * w.sum() / (w @ w) if is_survey else totals
        hits = np.bincount(codes, w * (p.argmax(1) == codes), minlength=n_classes)
        sure = np.bincount(codes, w * rescaled[np.arange(len(codes)), codes], minlength=n_classes)
        emissions, points = (
            values.astype(np.float32).astype(np.float64) for values in (emissions, points)
        )  # as stored
        return cls(edges, emissions, points, counts, hits / totals, sure / totals)


class StoredCells(Stored):
    """The cells of a model, which compiled code reads, and its version of the network: everything is checked."""

    def __init__(self, versions: Collection[str]) -> None:
        self.versions = versions

    def described(self, model: Any) -> tuple[Arrays, dict[str, Any]]:
        cells: LearnedCells = model.cells_
        arrays: dict[str, NDArray] = {
            "order": cells.edges.order, "first": cells.edges.first, "second": cells.edges.second,
            "emissions": cells.emissions.astype(np.float32), "points": cells.points.astype(np.float32),
            "counts": cells.counts, "recalls": cells.recalls, "confidences": cells.confidences,
        }  # fmt: skip
        learned = {"cells_floor": cells.edges.floor, "network": model.version_}
        return {f"cells/{name}": values for name, values in arrays.items()}, learned

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        sizes = {"classes": len(model.classes_), "levels": N_LEVELS}
        found = {}
        for name, words in _STORED.items():
            if f"cells/{name}" not in arrays:
                raise ValueError(f"path: the array 'cells/{name}' is missing; save the model again.")
            found[name] = checked_numbers(f"cells/{name}", arrays[f"cells/{name}"], words, sizes)
        floor, edges = learned.get("cells_floor"), [found[name] for name in ("first", "second")]
        known: Any = floor in _FLOORS
        known &= np.array_equal(np.sort(found["order"]), np.arange(sizes["classes"]))
        known &= all(np.isfinite(limits).all() and (np.diff(limits) > 0).all() for limits in edges)
        known &= (found["counts"] > 0).all() and np.isfinite(found["counts"]).all() and (found["emissions"] > 0).all()
        known &= len(found["second"]) == 0 or sizes["classes"] > 2
        if known:
            own = CellEdges(found["order"].astype(np.int64), floor, *edges)  # type: ignore[arg-type]
            known = own.n_cells == sizes["cells"] and describe_fault(found["points"]) is None
        if not known:
            raise ValueError("path: the cells of the model have other numbers than `fit` gives them; save again.")
        names = ("emissions", "points", "counts", "recalls", "confidences")
        version = learned.get("network")
        if version not in self.versions:
            raise ValueError(f"path: the model was made with an unknown network {brief(version)}; upgrade histnetq.")
        model.version_ = version
        model.cells_ = LearnedCells(own, *(found[name] for name in names))


def _points(edges: CellEdges, p: Floats, codes: Ints, w: Floats, scale: Floats, bias: Floats) -> tuple[Floats, Floats]:
    """Return the posteriors that represent each cell, raw and rescaled: means of labelled rows and noisy copies."""
    n_rows, n_classes = p.shape
    copies = max(1, _SAMPLES // n_rows)
    rng = np.random.default_rng(0)
    logs = np.log(p)
    centred = logs - logs.mean(1, keepdims=True)
    bandwidth = _NOISE * centred.std(0) * n_rows ** (-1 / (4 + min(n_classes - 1, 4)))
    noise = rng.normal(size=(copies - 1, n_rows, n_classes)) * bandwidth
    copied = np.concatenate([logs[None], logs + noise]).reshape(-1, n_classes)
    copied = np.exp(copied - copied.max(1, keepdims=True))
    copied /= copied.sum(1, keepdims=True)
    back = np.empty_like(copied)
    back[:, edges.order] = copied
    cells, rescaled, weights = edges.of_rows(back), rescale(copied, scale, bias), np.tile(w, copies)
    far = _typical(edges, p)
    total = np.bincount(cells, weights, edges.n_cells)[:, None]
    light = w.mean() * 1e-3  # a cell without any row takes the typical posterior
    raw, points = (
        (np.stack([np.bincount(cells, weights * column, edges.n_cells) for column in values.T], axis=1) + light * usual)
        / (total + light)
        for values, usual in ((copied, far), (rescaled, rescale(far, scale, bias)))
    )
    return raw, points


def _typical(edges: CellEdges, p: Floats) -> Floats:
    """Return the posterior at the middle of each cell; other classes than the first share as they usually do."""
    n_classes = p.shape[1]
    first = _middles(edges.first)
    if n_classes == 2:
        logs = np.stack([np.zeros(len(first)), first], axis=1)
        return np.exp(logs - np.logaddexp(logs[:, :1], logs[:, 1:]))
    second = _middles(edges.second)
    usual = np.stack([p[p.argmax(1) == k].sum(0) + 1e-3 * p.sum(0) for k in range(n_classes)])
    one, two, i, j = (
        a.ravel()
        for a in np.meshgrid(*[np.arange(n_classes)] * 2, range(len(first)), range(len(second)), indexing="ij")
    )
    logs = np.log(usual)[one]
    logs[np.arange(len(one)), one] = -np.inf
    logs[np.arange(len(one)), two] = -np.inf
    logs += -first[i, None] - second[j, None] - logs.max(1, keepdims=True)
    logs[np.arange(len(one)), two] = -first[i]
    logs[np.arange(len(one)), one] = 0
    found = np.exp(logs)
    return found / found.sum(1, keepdims=True)


def _smooth_emissions(cells: Ints, codes: Ints, w: Floats, raw: Floats) -> Floats:
    """Return kernel densities of the classes at the posterior of each cell."""
    used, place = np.unique(cells, return_inverse=True)
    counts = np.stack([np.bincount(place, w * (codes == k), len(used)) for k in range(raw.shape[1])], axis=1)
    found = kernel_densities(raw, raw[used], counts / np.maximum(counts.sum(0), 1e-300), _BANDWIDTH)
    found /= found.max(1, keepdims=True)
    return np.maximum(found, 1e-12)


def _emissions(edges: CellEdges, cells: Ints, codes: Ints, w: Floats, rescaled: Floats, points: Floats) -> NDArray:
    """Blend the emissions by the classifier with counts of labelled rows in groups of neighbouring cells."""
    n_classes = points.shape[1]
    totals = _totals(codes, w, n_classes)
    rows_in = np.bincount(cells, minlength=edges.n_cells)
    top = (
        np.arange(edges.n_cells) // max(1, edges.n_cells // n_classes)
        if n_classes > 2
        else np.zeros(edges.n_cells, int)
    )
    start = np.cumsum(rows_in) - rows_in
    group = np.unique(np.stack([top, start // _IN_GROUP], axis=1), axis=0, return_inverse=True)[1].ravel()
    n_groups = group.max() + 1
    of_rows = group[cells]
    counted = np.stack([np.bincount(of_rows, w * (codes == k), n_groups) for k in range(n_classes)], axis=1)
    mass = np.stack([np.bincount(of_rows, w * column, n_groups) for column in rescaled.T], axis=1)
    mass *= totals / np.maximum(mass.sum(0), 1e-300)
    by_model = points / totals
    found = np.empty((len(TRUST), *points.shape))
    for level, trust in enumerate(TRUST):
        if np.isinf(trust):
            found[level] = by_model
            continue
        share = mass / totals
        ratio = (counted + trust * share) / np.maximum((totals + trust) * share, 1e-300)
        ratio = np.where(mass > 0, ratio, 1.0)
        found[level] = by_model * ratio[group]
    found /= found.max(2, keepdims=True)
    return np.maximum(found, 1e-12)


def _totals(codes: Ints, w: Floats, n_classes: int) -> Floats:
    """Return the weight of each class; a class without rows, as a resample may have, gets little."""
    found: Floats = np.maximum(np.bincount(codes, w, minlength=n_classes), 0.1 * w.mean())
    return found


def _logs(posteriors: Floats, floor: float) -> Floats:
    found: Floats = np.log(np.maximum(posteriors, floor))
    return found


def _quantiles(values: Floats, w: Floats, ranks: Floats) -> Floats:
    """Return weighted quantiles, interpolated between values."""
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(w[order])
    found: Floats = np.interp(ranks, (upto - w[order] / 2) / upto[-1], values[order])
    return found


def _distinct(edges: Floats) -> Floats:
    """Return sorted edges; rounding keeps posteriors from different machines on one side."""
    return np.unique(np.round(edges, 6)) + 5e-8


def _middles(edges: Floats) -> Floats:
    if len(edges) == 0:
        return np.ones(1)
    ends = np.concatenate([[edges[0] - 1], edges, [edges[-1] + 1]])
    found: Floats = (ends[1:] + ends[:-1]) / 2
    return found
