"""The choice of a classifier by its log-loss on held-out rows, for the default fit to labelled rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from histnetq.bags.bags import Bags
from histnetq.quantifiers.classical.cross_fitting import CrossFitted
from histnetq.quantifiers.classical.posteriors import PosteriorQuantifier
from histnetq.quantifiers.classical.rescaling import fit_scales, rescale
from histnetq.registry import CLASSIFIERS
from histnetq.training.progress import report_event

COMPARED = ("logistic", "forest", "boosting")
_MOST_ROWS = 5_000  # largest number of rows that classifiers are compared on
_HELD_OUT = 0.3  # fraction of these rows that is held out once, if they are a part of the rows
_FEWEST_OF_CLASS = 2  # rows in that part
_LEAST = 1e-12  # smallest posterior whose logarithm is taken
_NUMBERS_PER_UNIT = 200_000  # a boosted tree on this many numbers takes twice as long as the smallest tree
_MOST_UNITS = 40  # about half a minute of boosting on one core


@dataclass(frozen=True)
class Choice:
    """The chosen classifier with its posteriors and the CPU seconds of its fit, and the log-losses of all."""

    name: str
    crossed: CrossFitted
    losses: dict[str, float]
    seconds: float
    skipped: str = ""

    @property
    def rounded(self) -> dict[str, float]:
        """The log-losses for provenance."""
        return {name: round(loss, 6) for name, loss in self.losses.items()}

    @property
    def words(self) -> str:
        """The log-losses, and the classifier that was skipped, in plain sentences."""
        others = ", ".join(f"{name} {loss:.4f}" for name, loss in self.losses.items() if name != self.name)
        chosen = f"The classifier is {CLASSIFIERS[self.name].words}, with the lowest log-loss on held-out rows: "
        return f"{chosen}{self.losses[self.name]:.4f} ({others}). {self.skipped}".rstrip()


def affordable(names: Sequence[str], rows: Bags) -> tuple[list[str], str]:
    """Return the classifiers without boosting if it would take long, and a sentence that says so."""
    if "boosting" not in names:
        return list(names), ""
    assert rows.classes is not None
    n_rows, n_classes = len(rows.index), len(rows.classes)
    n_sets = 1 if n_classes == 2 else n_classes  # of trees
    is_sparse = sparse.issparse(rows.rows)
    if not is_sparse and n_sets * (1 + n_rows * rows.n_features / _NUMBERS_PER_UNIT) <= _MOST_UNITS:
        return list(names), ""
    size = f"{len(rows.index):,} rows, {rows.n_features:,} features and {n_classes} classes"
    why = "it cannot read sparse rows" if is_sparse else f"it takes long on {size}"
    return [name for name in names if name != "boosting"], f"Boosting is skipped because {why}."


def choose_classifier(make: Callable[[str], PosteriorQuantifier], bags: Bags, random_state: int) -> Choice:
    """Cross-fit several classifiers and return the one with the lowest log-loss.

    The posteriors are rescaled before the comparison, as the quantifier rescales them. More than 5,000 rows are
    compared on a part; the chosen classifier is then cross-fitted on all.
    """
    names, skipped = affordable(COMPARED, bags)
    is_part = len(bags.index) > _MOST_ROWS
    compared, folds = (_part(bags, random_state), {"cv": _HELD_OUT}) if is_part else (bags, {})
    found, losses, seconds = dict[str, CrossFitted](), dict[str, float](), dict[str, float]()
    for name in names:
        began = time.process_time()
        with warnings.catch_warnings():
            if found:  # the first classifier has said so
                warnings.filterwarnings("ignore", ".*copies of other rows", UserWarning)
            found[name] = make(name).set_params(**folds).cross_fit(compared)
        seconds[name] = time.process_time() - began
        losses[name] = log_loss(found[name])
        report_event("note", text=f"  {name}: log-loss {losses[name]:.4f} on held-out rows.")
    best = min(losses, key=losses.__getitem__)
    if is_part:
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*copies of other rows", UserWarning)
            found[best] = make(best).cross_fit(bags)
        seconds[best] = time.process_time() - began
    return Choice(best, found[best], losses, seconds[best], skipped)


def log_loss(crossed: CrossFitted) -> float:
    """Return the weighted mean log-loss of held-out posteriors after rescaling by "ridge"."""
    scales = fit_scales(crossed.posteriors, crossed.labels, "ridge", crossed.weights)
    own = rescale(crossed.posteriors, *scales)[np.arange(len(crossed.labels)), crossed.labels]
    return float(np.average(-np.log(np.maximum(own, _LEAST)), weights=crossed.weights))


def _part(bags: Bags, random_state: int) -> Bags:
    """Draw labelled rows without replacement, the same fraction of each class and at least two rows of it."""
    assert bags.labels is not None
    entries = np.random.default_rng(random_state).permutation(len(bags.index))
    labels = bags.labels[bags.index[entries]]
    chosen = list[np.ndarray]()
    for code in np.unique(labels[labels >= 0]):
        of_class = entries[labels == code]
        chosen.append(of_class[: max(_FEWEST_OF_CLASS, round(_MOST_ROWS * len(of_class) / len(entries)))])
    kept = np.sort(np.concatenate(chosen))
    weights = None if bags.weights is None else bags.weights[kept]
    return bags.drawn(bags.index[kept], np.array([0, len(kept)]), weights, None)
