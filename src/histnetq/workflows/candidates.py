"""The methods that `fit` chooses among, where none is named."""

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
from histnetq.training.progress import in_words, tell_event

MINUTES_TO_COMPARE = 1.0  # of training for each network that is tried
MINUTES_TO_FIT = 10.0  # of training for the one that is chosen
_FOLDS = (10, 5)  # by which all bags calibrate, in the order of preference
_SECONDS_TO_CALIBRATE = 120.0  # of work, for the fits without a fold


@dataclass(frozen=True)
class Candidate:
    """A method, the classifier that it uses, and parameters that differ from its defaults.

    Attributes
    ----------
    method : str
        Name of the method in lower case.
    classifier : str or None
        Name of its classifier; None for the default, and for methods that have none.
    params : dict
        Other parameters.
    """

    method: str
    classifier: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name in tables, such as "EMQ (forest)"."""
        name = METHODS[self.method].name if self.method in METHODS else self.method
        return name if self.classifier is None else f"{name} ({self.classifier})"


def from_labels(classifiers: Sequence[str] = ("logistic", "forest")) -> list[Candidate]:
    """Methods for labelled rows; those on one classifier follow one another, as they share its posteriors."""
    methods: tuple[tuple[str, dict[str, Any]], ...] = (("emq", {"calibration": "bcts"}), ("kdey", {}), ("pacc", {}))
    classical = [Candidate(method, name, params) for name in classifiers for method, params in methods]
    return [*classical, Candidate("emnetq"), Candidate("histnetq")]


def from_scores() -> list[Candidate]:
    """Methods for scores of labelled rows, which no classifier is fitted to."""
    shared = [Candidate("emq", params={"calibration": "bcts"}), Candidate("kdey"), Candidate("pacc")]
    return [*shared, Candidate("emnetq"), Candidate("histnetq")]


def from_proportions() -> list[Candidate]:
    """Methods for bags of which the proportions are known alone."""
    return [Candidate("histnetq"), Candidate("emnetq"), Candidate("deepsets")]


def installed(candidates: Sequence[Candidate]) -> tuple[list[Candidate], str]:
    """Give the candidates that can be made here, and a sentence about those that cannot, as torch is not installed."""
    found = [candidate for candidate in candidates if METHODS[candidate.method].is_installed()]
    others = " and ".join(candidate.name for candidate in candidates if candidate not in found)
    if not found:
        raise ImportError(
            "method: bags of which the proportions alone are known need networks, and these need torch; "
            "pip install 'histnetq[deep]'."
        )
    return found, f"{others} are left out, as torch is not installed; pip install 'histnetq[deep]'." if others else ""


def affordable_folds(seconds: float) -> int:
    """Tell in how many folds all bags may calibrate a method of which one fit takes so long; 0 if it takes too long.

    Examples
    --------
    >>> affordable_folds(1), affordable_folds(20), affordable_folds(60)
    (10, 5, 0)
    """
    return next((folds for folds in _FOLDS if folds * seconds <= _SECONDS_TO_CALIBRATE), 0)


class Trial:
    """Fits methods one after another and tells what each of them scored, and about how long the others will take.

    Parameters
    ----------
    models : dict
        Unfitted quantifiers by their names.
    tell : callable
        Where sentences go.
    bounded : bool
        Whether networks train for `MINUTES_TO_COMPARE` at most, by which the time that is left is known.
    """

    def __init__(self, models: Mapping[str, Quantifier], tell: Callable[[str], None], bounded: bool) -> None:
        self.models, self.tell, self.bounded = models, tell, bounded
        self.crossed: tuple[str, CrossFitted] | None = None  # the posteriors of one classifier, and its name
        self.slowest = 0.0  # seconds that a classifier took
        self.best = (math.inf, 0.0)  # lowest error so far, and the seconds of a fit like that

    def run(self, learned: Bags, held: Bags, error: Callable[[Floats], float]) -> dict[str, Floats]:
        """Fit all to some bags, and give their estimates of others: (n_bags, n_classes)."""
        found: dict[str, Floats] = {}
        for name, model in self.models.items():
            tell_event("method", name=name)
            began = time.perf_counter()
            found[name] = self._fitted(model, learned).predict(held)
            seconds, value = time.perf_counter() - began, error(found[name])
            classical = isinstance(model, PosteriorQuantifier)
            self.best = min(self.best, (value, self.slowest if classical else seconds))
            seconds_left = self._left(len(found)) if self.bounded else None
            tell_event("judged", name=name, error=value, seconds=seconds, left=seconds_left)
            left = "" if seconds_left is None else f"; about {in_words(seconds_left)} left"
            self.tell(f"  {name}: AE {value:.4f} after {in_words(seconds)}{left}.")
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
        """Seconds that the other models, and a last fit of the best, will take, as far as those before tell."""
        others = list(self.models.values())[n_done:]
        networks = [model for model in others if not isinstance(model, PosteriorQuantifier)]
        classifiers = {model.classifier for model in others if isinstance(model, PosteriorQuantifier)}
        waiting = classifiers - ({self.crossed[0]} if self.crossed else set())
        return len(networks) * 60 * MINUTES_TO_COMPARE + len(waiting) * self.slowest + self.best[1]
