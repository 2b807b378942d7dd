"""What a quantifier learns from: labelled rows, bags of known proportions, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.data.checks import column_names, take_dense, used_rows
from histnetq.data.protocols import APP, Combined, Mixer, Protocol

__all__ = ["Supervision"]

_CHUNK = 1 << 24  # numbers looked at together when standardising
_BAGS_PER_EPOCH = 500  # drawn from labelled rows
_FEWEST_PER_EPOCH = 200  # drawn from bags


@dataclass(frozen=True)
class Supervision:
    """Labelled rows (a single bag of them), bags with prevalences, or both on one pool with the same classes."""

    rows: Bags | None
    bags: Bags | None

    @classmethod
    def of(cls, X: Any, y: Any, bags: Bags | None) -> Supervision:
        """Sort out ``fit(bags)``, ``fit(bags, prevalences)``, ``fit(X, y)`` and ``fit(X, y, bags=bags)``."""
        if isinstance(X, Bags):
            if bags is not None:
                raise TypeError(
                    "bags: expected beside labelled rows, fit(X, y, bags=…), got Bags twice; use Bags.concat."
                )
            return cls(None, (X if y is None else X.with_prevalences(y)).with_known_prevalences())
        if y is None:
            raise TypeError(
                "y: expected a label for each row of X, got None; pass Bags with prevalences to learn without labels."
            )
        if bags is None:
            return cls(Bags.from_labels(X, y), None)
        if not isinstance(bags, Bags):
            raise TypeError(f"bags: expected Bags, got {type(bags).__name__}; make them with Bags.from_arrays.")
        bags = bags.with_known_prevalences()
        names = [*bags.classes.tolist(), *np.unique(np.asarray(y)).tolist()]  # type: ignore[union-attr]
        columns = column_names(X) or bags.feature_names
        rows = Bags.from_labels(X, y, classes=list(dict.fromkeys(names)), feature_names=columns)
        both = Bags.concat([rows, bags])
        return cls(both[:1], both[1:])

    @property
    def _first(self) -> Bags:
        first = self.rows if self.bags is None else self.bags
        assert first is not None
        return first

    @property
    def classes(self) -> NDArray:
        classes = self._first.classes
        assert classes is not None
        return classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self._first.rows.shape[1:])

    @property
    def feature_names(self) -> list[str] | None:
        return self._first.feature_names

    def prevalences(self) -> NDArray[np.float64]:
        """Prevalences of the labelled rows, or else the mean over the bags."""
        if self.rows is not None:
            return self.rows.label_prevalences()[0]
        assert self.bags is not None
        assert self.bags.prevalences is not None
        return self.bags.prevalences.mean(0)

    def split(self, fraction: float, seed: int) -> tuple[Supervision, Supervision]:
        """Hold out this fraction of the bags; without bags, of the labelled rows of each class.

        Labelled rows are thus split before bags are drawn from them. Bags are held out whole: give bags that share no
        rows, else validation is too kind.
        """
        if self.bags is not None:
            kept, held = self.bags.split(1 - fraction, seed)
            return Supervision(self.rows, kept), Supervision(None, held)
        assert self.rows is not None
        kept, held = _split_rows(self.rows, fraction, seed)
        return Supervision(kept, None), Supervision(held, None)

    def joined(self, bags: Bags) -> Supervision:
        """The same with more bags, if there are any: what is learned from labelled rows alone stays so."""
        if self.bags is None:
            return self
        if self.rows is None:
            return Supervision(None, Bags.concat([self.bags, bags]))
        everything = Bags.concat([Bags.concat([self.rows, self.bags]), bags])  # the pool of the first two is one
        return Supervision(everything[:1], everything[1:])

    def check_validation(self, bags: Bags) -> Bags:
        """Bags to validate on, with their prevalences and with the classes in the order of these."""
        if not isinstance(bags, Bags):
            raise TypeError(f"validation: expected Bags, got {type(bags).__name__}; make them with Bags.from_arrays.")
        if bags.rows.shape[1:] != self._first.rows.shape[1:]:
            raise ValueError(
                f"validation: expected rows of shape {self.input_shape} as in training, "
                f"got {tuple(bags.rows.shape[1:])}; give the same columns in the same order."
            )
        return bags.with_known_prevalences().with_classes(self.classes)

    def choose_sampler(self, wanted: str | Protocol | None) -> Protocol | None:
        """The protocol that training bags are drawn by; None for the given bags alone."""
        if wanted == "auto":
            if self.rows is None:
                return Mixer()
            return APP() if self.bags is None else Combined()
        if wanted is None:
            if self.bags is None:
                raise ValueError("sampler: None trains on given bags alone, but fit got labelled rows; use APP().")
            return None
        if isinstance(wanted, str | type) or not hasattr(wanted, "draw"):
            raise ValueError(f"sampler: expected 'auto', None or a protocol such as Mixer(), got {wanted!r}.")
        name, needs = type(wanted).__name__, wanted.draws_from
        if needs in ("bags", "both") and self.bags is None:
            raise ValueError(f"sampler: {name} draws from bags, but fit got labelled rows only; use APP().")
        if needs == "rows" and self.rows is None and self.bags is not None and self.bags.labels is None:
            raise ValueError(f"sampler: {name} draws from labelled rows, but fit got bags without labels; use Mixer().")
        if needs == "both" and self.rows is None:
            raise ValueError(f"sampler: {name} draws from labelled rows too, but fit got bags only; use Mixer().")
        return wanted

    def drawing(self, sampler: Protocol | None, n_bags: int | None) -> Callable[[np.random.Generator], Bags]:
        """A function that draws the bags of an epoch."""
        if sampler is None:
            return lambda rng: self._first
        if n_bags is None:
            n_bags = _BAGS_PER_EPOCH if self.bags is None else max(len(self.bags), _FEWEST_PER_EPOCH)
        if sampler.draws_from == "both":
            return lambda rng: sampler.draw((self.rows, self.bags), n_bags, rng)
        labelled = self.rows is not None and sampler.draws_from == "rows"
        source = self.rows if labelled else self.bags
        return lambda rng: sampler.draw(source, n_bags, rng)

    def validation_bags(self, sampler: Protocol | None, n_bags: int, seed: int) -> Bags:
        """Fixed bags to validate on: those held out, else some drawn from the rows held out."""
        if self.bags is not None:
            return self.bags
        return (sampler or APP()).draw(self.rows, n_bags, seed)

    def statistics(self) -> tuple[NDArray, NDArray]:
        """Mean and standard deviation of each feature, or of each channel of images, over all rows in use.

        Sparse rows are not centred: their mean is given as 0 and their scale is the root mean square.
        """
        pool = self._first.rows
        parts = [part for part in (self.rows, self.bags) if part is not None]
        entries = np.concatenate([part.index for part in parts])
        used, place = used_rows(entries, pool.shape[0])
        weights = np.bincount(place, np.concatenate([part.entry_weights() for part in parts]).astype(np.float64))
        image = len(pool.shape) > 2
        step = max(1, _CHUNK // self._first.n_features)
        # About the mean of the first rows: a sum of squares about 0 loses the digits of features far from 0.
        first = take_dense(pool, used[:step]).astype(np.float64)
        centred = not hasattr(pool, "tocsr")
        shift = first.mean((0, -2, -1) if image else 0, keepdims=True) if centred else np.zeros_like(first[:1])
        sums = squares = np.zeros(shift.shape)
        for start in range(0, len(used), step):
            x = take_dense(pool, used[start : start + step]) - shift
            w = weights[start : start + step]
            moments = [np.tensordot(w, v, 1)[None] for v in (x, x**2)]
            if image:
                moments = [m.mean((-2, -1), keepdims=True) for m in moments]
            sums, squares = sums + moments[0], squares + moments[1]
        offset = sums / weights.sum() if centred else np.zeros_like(shift)
        mean, scale = shift + offset, np.sqrt(np.maximum(squares / weights.sum() - offset**2, 0))
        scale[scale <= 1e-12 * np.abs(mean)] = 1.0
        return mean[0], scale[0]


def _split_rows(labelled: Bags, fraction: float, seed: int) -> tuple[Bags, Bags]:
    assert labelled.labels is not None
    rows = labelled.index
    labels = labelled.labels[rows]
    order = np.lexsort((np.random.default_rng(seed).random(len(rows)), labels))
    labels = labels[order]
    counts = np.bincount(labels)
    rank = np.arange(len(rows)) - (np.cumsum(counts) - counts)[labels]
    # At least one row of each class that has two is held out, and one of every class is learned from.
    quota = np.minimum(np.maximum(np.round(fraction * counts), 1), counts - 1)
    held = rank < quota[labels]
    if not held.any():
        raise ValueError(
            f"y: expected at least 2 rows of some class, to hold out some for validation, got {len(rows)} rows "
            f"of {len(labelled.classes)} classes; add rows."  # type: ignore[arg-type]
        )
    places = [np.sort(order[mask]) for mask in (~held, held)]
    kept, out = (
        labelled.select(
            slice(None), labelled.index[part], np.array([0, len(part)]),
            None if labelled.weights is None else labelled.weights[part],
        )
        for part in places
    )  # fmt: skip
    return kept, out
