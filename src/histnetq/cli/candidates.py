"""The methods that `fit` chooses among, where none is named."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from histnetq.data.bags import Bags
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.cross_fitting import CrossFitted
from histnetq.quantifiers.posteriors import PosteriorQuantifier
from histnetq.quantifiers.registry import METHODS
from histnetq.simplex import Floats
from histnetq.training.progress import in_words

MINUTES_TO_COMPARE = 1.0  # of training for each network that is tried
MINUTES_TO_FIT = 10.0  # of training for the one that is chosen


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


def from_proportions() -> list[Candidate]:
    """Methods for bags of which the proportions are known alone."""
    return [Candidate("histnetq"), Candidate("emnetq"), Candidate("deepsets")]


class Trial:
    """Fits methods one after another and tells what each of them scored, and about how long the others will take.

    Parameters
    ----------
    models : dict
        Unfitted quantifiers by their names.
    tell : callable
        Where sentences go.
    """

    def __init__(self, models: Mapping[str, Quantifier], tell: Callable[[str], None]) -> None:
        self.models, self.tell = models, tell
        self.crossed: tuple[str, CrossFitted] | None = None  # the posteriors of one classifier, and its name
        self.slowest = 0.0  # seconds

    def run(self, learned: Bags, held: Bags, error: Callable[[Floats], float]) -> dict[str, Floats]:
        """Fit all to some bags, and give their estimates of others: (n_bags, n_classes)."""
        found: dict[str, Floats] = {}
        for name, model in self.models.items():
            began = time.perf_counter()
            found[name] = self._fitted(model, learned).predict(held)
            seconds = time.perf_counter() - began
            self.slowest = max(self.slowest, seconds)
            left = self._left(list(self.models.values())[len(found) :])
            self.tell(f"  {name}: AE {error(found[name]):.4f} after {in_words(seconds)}; about {in_words(left)} left.")
        return found

    def _fitted(self, model: Quantifier, learned: Bags) -> Quantifier:
        if not isinstance(model, PosteriorQuantifier):
            return model.fit(learned)
        if self.crossed is None or self.crossed[0] != model.classifier:
            self.crossed = model.classifier, model.cross_fit(learned)
        return model.fit_crossed(self.crossed[1])

    def _left(self, models: list[Quantifier]) -> float:
        """Seconds that these models and the last fit of the best will take, as far as those before tell."""
        networks = [model for model in models if not isinstance(model, PosteriorQuantifier)]
        classifiers = {model.classifier for model in models if isinstance(model, PosteriorQuantifier)}
        waiting = classifiers - ({self.crossed[0]} if self.crossed else set())
        return len(networks) * 60 * MINUTES_TO_COMPARE + (len(waiting) + 1) * self.slowest
