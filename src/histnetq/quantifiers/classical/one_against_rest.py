"""The base of methods for two classes, which handle more classes by one class against the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from histnetq.quantifiers.classical.posteriors import Floats, PosteriorQuantifier


@dataclass(eq=False, repr=False, kw_only=True)
class OneAgainstRest(PosteriorQuantifier):
    """Base of methods that estimate one class against the rest.

    With two classes, the second is estimated, and the first has the remaining proportion. With more classes, each is
    estimated against the rest, and the estimates are normalised to the sum 1.
    """

    def _judged(self) -> list[int]:
        """Return the codes of the classes that are estimated against the rest."""
        return [1] if len(self.train_prevalences_) == 2 else list(range(len(self.train_prevalences_)))

    def _normalise(self, p: Floats) -> Floats:
        """Return prevalences, given the proportions of the judged classes: (n_bags, n_judged) → (n_bags, n_classes)."""
        return np.concatenate([1 - p, p], axis=1) if p.shape[1] == 1 else self._normalised(p)
