"""The default method of `fit_best`, and the methods that its search compares."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from histnetq.bags.bags import Bags
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.classical.cross_fitting import CrossFitted
from histnetq.quantifiers.classical.posteriors import PosteriorQuantifier
from histnetq.registry import METHODS
from histnetq.simplex import Floats
from histnetq.training.progress import in_words, report_event

MINUTES_TO_COMPARE = 1.0  # training time of each network in a comparison
MINUTES_TO_FIT = 10.0  # training time of the chosen network
_FOLDS = (10, 5)  # numbers of folds for cross-calibration, in order of preference
_SECONDS_TO_CALIBRATE = 120.0  # total time for the fits of cross-calibration


@dataclass(frozen=True)
class Candidate:
    """A method in lower case, the name of its classifier (None: default), and parameters other than the defaults."""

    method: str
    classifier: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name in tables, such as "EMQ (forest)"."""
        name = METHODS[self.method].name if self.method in METHODS else self.method
        return name if self.classifier is None else f"{name} ({self.classifier})"


DEFAULT = Candidate("pretrained")  # for labelled rows and for scores of them


def from_labels(classifiers: Sequence[str | None] = ("logistic", "forest", "boosting")) -> list[Candidate]:
    """Return methods for labelled rows; methods on one classifier are adjacent, because they share its posteriors."""
    methods: tuple[tuple[str, dict[str, Any]], ...] = (("emq", {"rescaling": "bcts"}), ("kdey", {}), ("pacc", {}))
    classical = [Candidate(method, name, params) for name in classifiers for method, params in methods]
    return [*classical, Candidate("emnetq"), Candidate("histnetq")]


def from_scores() -> list[Candidate]:
    """Return methods for scores of labelled rows, which need no classifier."""
    return from_labels([None])


def from_proportions() -> list[Candidate]:
    """Return methods for bags with known proportions but without row labels; the first also learns from few bags."""
    return [Candidate("linearq"), Candidate("histnetq"), Candidate("emnetq"), Candidate("deepsets")]


def installed(candidates: Sequence[Candidate]) -> tuple[list[Candidate], str]:
    """Return the candidates whose packages are installed, and a sentence about the candidates that need torch."""
    found = [candidate for candidate in candidates if METHODS[candidate.method].is_installed()]
    others = [candidate.name for candidate in candidates if candidate not in found]
    if not others:
        return found, ""
    names = f"{', '.join(others[:-1])} and {others[-1]}"
    return found, f"{names} are skipped because torch is not installed; pip install 'histnetq[deep]'."


def affordable_folds(seconds: float) -> int:
    """Return the number of cross-calibration folds for a method whose fit takes this many seconds; 0 if it is too slow.

    Examples
    --------
    >>> affordable_folds(1), affordable_folds(20), affordable_folds(60)
    (10, 5, 0)
    """
    return next((folds for folds in _FOLDS if folds * seconds <= _SECONDS_TO_CALIBRATE), 0)


class Trial:
    """Fits methods one after another, and reports the error of each and the time left.

    The time left is known only if `bounded`: networks then train for at most `MINUTES_TO_COMPARE`.
    """

    def __init__(self, models: Mapping[str, Quantifier], bounded: bool) -> None:
        self.models, self.bounded = models, bounded
        self.crossed: tuple[str, CrossFitted] | None = None  # name and posteriors of the latest classifier
        self.slowest = 0.0  # seconds of the slowest classifier
        self.best = (math.inf, 0.0)  # lowest error so far, and the seconds of its fit

    def run(self, learned: Bags, held: Bags, error: Callable[[Floats], float]) -> dict[str, Floats]:
        """Fit all methods to `learned`, and return their estimates of the bags `held`: (n_bags, n_classes)."""
        found: dict[str, Floats] = {}
        for name, model in self.models.items():
            report_event("method", name=name)
            began = time.perf_counter()
            found[name] = self._fitted(model, learned).predict(held)
            seconds, value = time.perf_counter() - began, error(found[name])
            classical = isinstance(model, PosteriorQuantifier)
            self.best = min(self.best, (value, self.slowest if classical else seconds))
            seconds_left = self._left(len(found)) if self.bounded else None
            report_event("judged", name=name, error=value, seconds=seconds, left=seconds_left)
            left = "" if seconds_left is None else f"; about {in_words(seconds_left)} left"
            report_event("note", text=f"  {name}: AE {value:.4f} after {in_words(seconds)}{left}.")
        return found

    def _fitted(self, model: Quantifier, learned: Bags) -> Quantifier:
        if not isinstance(model, PosteriorQuantifier):
            return model.fit(learned)
        if self.crossed is None or self.crossed[0] != model.classifier:
            began = time.perf_counter()
            self.crossed = model.classifier, model.cross_fit(learned)
            self.slowest = max(self.slowest, time.perf_counter() - began)
        return model.fit_crossed(self.crossed[1])

    def _left(self, n_done: int) -> float:
        """Predict the seconds for the remaining models and for the final fit of the best one."""
        waiting = list(self.models.values())[n_done:]
        networks = [model for model in waiting if hasattr(model, "training")]
        classifiers = {model.classifier for model in waiting if isinstance(model, PosteriorQuantifier)}
        unfitted = classifiers - ({self.crossed[0]} if self.crossed else set())
        return len(networks) * 60 * MINUTES_TO_COMPARE + len(unfitted) * self.slowest + self.best[1]
