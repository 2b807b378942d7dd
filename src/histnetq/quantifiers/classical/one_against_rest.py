"""The base of methods for two classes, which more classes reach by one class against the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from histnetq.quantifiers.classical.posteriors import Floats, PosteriorQuantifier


@dataclass(eq=False, repr=False, kw_only=True)
class OneAgainstRest(PosteriorQuantifier):
    """Base: with two classes the second is judged; with more, each is, and the proportions are normalised."""

    def _judged(self) -> list[int]:
        """The classes that are judged against the rest."""
        return [1] if len(self.train_prevalences_) == 2 else list(range(len(self.train_prevalences_)))

    def _normalise(self, p: Floats) -> Floats:
        """Prevalences from the proportions of the judged classes: (n_bags, n_judged) → (n_bags, n_classes)."""
        return np.concatenate([1 - p, p], axis=1) if p.shape[1] == 1 else self._normalised(p)
