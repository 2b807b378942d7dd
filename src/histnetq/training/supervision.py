"""`Supervision`: the training data of a quantifier, and how a part of it is held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import column_names, take_dense, used_rows
from histnetq.bags.class_names import are_scores
from histnetq.bags.classifier_rows import require_numbers
from histnetq.bags.limits import brief
from histnetq.bags.protocols import APP, Combined, Mixer, SamplingProtocol
from histnetq.bags.same_features import require_features
from histnetq.bags.text_features import TextFeatures

_CHUNK = 1 << 24  # numbers read at a time to compute means and standard deviations
_BAGS_PER_EPOCH = 500  # bags drawn from labelled rows
_FEWEST_PER_EPOCH = 200  # smallest number of bags drawn from bags
_FEWEST_WHOLE = 20  # with fewer bags of labelled rows, rows are held out instead of whole bags


@dataclass(frozen=True)
class Supervision:
    """Labelled rows, bags with prevalences, or both, with the same classes.

    If the rows of the bags are labelled, the labelled rows and the bags share one pool. Rows that are held out from one
    are then held out from both.

    Attributes
    ----------
    rows : Bags or None
        All labelled rows as one bag.
    bags : Bags or None
        Bags with prevalences.
    one_pool : bool
        Whether the labelled rows are rows of the bags.
    how : str
        For held-out data, a description such as "8 of 40 bags, whole".
    """

    rows: Bags | None
    bags: Bags | None
    one_pool: bool = False
    how: str = ""

    @classmethod
    def of(cls, X: Any, y: Any, bags: Bags | None) -> Supervision:
        """Check the arguments of `fit`: ``(bags)``, ``(bags, prevalences)``, ``(X, y)`` or ``(X, y, bags=bags)``."""
        if isinstance(X, Bags) and bags is not None:
            raise TypeError("bags: expected with labelled rows, fit(X, y, bags=…), got Bags twice; use Bags.concat.")
        if isinstance(X, Bags):
            return cls._of_bags((X if y is None else X.with_prevalences(y)).with_known_prevalences())
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
        named = {"classes": list(dict.fromkeys(names)), "feature_names": column_names(X) or bags.feature_names}
        both = Bags.concat([Bags.from_labels(X, y, **named), bags])
        return cls(both[:1], both[1:])

    @classmethod
    def _of_bags(cls, bags: Bags) -> Supervision:
        """Take bags and their labelled rows; a single bag of labelled rows counts as labelled rows without bags."""
        if bags.labels is None:
            return cls(None, bags)
        rows = _labelled_part(bags, bags.labels[bags.index] >= 0)
        given = cls(rows, bags, one_pool=rows is not None)
        return cls(rows, None) if len(bags) == 1 and given._is_all_labelled() else given

    def _is_all_labelled(self) -> bool:
        """Return whether all rows of the bags are labelled and the prevalences equal the proportions of the labels."""
        if not self.one_pool or len(self.rows.index) < len(self.bags.index):  # type: ignore[union-attr]
            return False
        return bool(np.allclose(self.bags.prevalences, self.bags.label_prevalences(), atol=1e-6))  # type: ignore

    @property
    def _first(self) -> Bags:
        return self.rows if self.bags is None else self.bags  # type: ignore[return-value]

    @property
    def classes(self) -> NDArray:
        return self._first.classes  # type: ignore[return-value]

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self._first.rows.shape[1:])

    @property
    def are_scores(self) -> bool:
        """Return whether rows are class probabilities, with columns in the order of the classes."""
        return are_scores(self._first)

    @property
    def pool(self) -> Any:
        return self._first.rows

    @property
    def n_values(self) -> int:
        """Return the number of values in the rows of all pools."""
        parts = [part for part in (self.rows, None if self.one_pool else self.bags) if part is not None]
        return sum(int(np.prod(part.rows.shape)) for part in parts)

    @property
    def feature_names(self) -> list[str] | None:
        return self._first.feature_names

    @property
    def text(self) -> TextFeatures | None:
        return self._first.text

    def prevalences(self) -> NDArray[np.float64]:
        """Return the prevalences of the labelled rows if they are not in bags, or else the mean over the bags."""
        if self.rows is not None and not self.one_pool:
            return self.rows.label_prevalences()[0]
        return self.bags.prevalences.mean(0)  # type: ignore[union-attr]

    def split(self, fraction: float, seed: int) -> tuple[Supervision, Supervision]:
        """Split off a fraction of the bags, or of the labelled rows of each class; return the rest and that part.

        Rows are held out if there are no bags. They are also held out if all rows are labelled and there are fewer than
        20 bags or the bags share rows. Validation bags are then drawn from the held-out rows, which are removed from
        the remaining bags. Otherwise whole bags are held out, together with the labels of their rows, so that
        validation data are never used for training. There is one exception: if bags share rows and some rows are
        unlabelled, the held-out bags may share rows with the training bags, and the validation loss is then too
        optimistic.
        """
        if self.bags is None:
            return self._split_rows(fraction, seed)
        rows, entries = self.rows, self.bags.index
        if self._is_all_labelled():
            share_rows = len(used_rows(entries, self.bags.rows.shape[0])[0]) < len(entries)
            if len(self.bags) < _FEWEST_WHOLE or share_rows:
                return self._split_rows(fraction, seed)
        kept, held = self.bags.split(1 - fraction, seed)
        if self.one_pool and rows is not None:
            labels = np.array(kept.labels)
            labels[held.index] = -1
            kept = kept.replaced(labels=labels)
            rows = _labelled_part(kept, labels[kept.index] >= 0)
        how = f"{len(held)} of {len(self.bags)} bags, whole"
        return replace(self, rows=rows, bags=kept), Supervision(None, held, how=how)

    def _split_rows(self, fraction: float, seed: int) -> tuple[Supervision, Supervision]:
        labelled: Bags = self.rows  # type: ignore[assignment]
        rows = np.unique(labelled.index)
        out = _drawn_of_each_class(rows, labelled, fraction, seed)
        held = np.isin(labelled.index, out)
        bags = None if self.bags is None else _without_rows(self.bags, out)
        how = f"bags drawn from {len(out)} of {len(rows)} labelled rows"
        kept = replace(self, rows=_labelled_part(labelled, ~held), bags=bags)
        return kept, Supervision(_labelled_part(labelled, held), None, how=how)

    def joined(self, bags: Bags) -> Supervision:
        """Return the same data with more bags; data without bags are returned unchanged."""
        if self.bags is None:
            return self
        if self.rows is None:
            return Supervision(None, Bags.concat([self.bags, bags]))
        everything = Bags.concat([Bags.concat([self.rows, self.bags]), bags])  # rows and bags share a pool
        return replace(self, rows=everything[:1], bags=everything[1:])

    def check_validation(self, bags: Bags) -> Bags:
        """Check validation bags, and return them with prevalences and with the classes of the training data."""
        if not isinstance(bags, Bags):
            raise TypeError(f"validation: expected Bags, got {type(bags).__name__}; make them with Bags.from_arrays.")
        if tuple(bags.rows.shape[1:]) != self.input_shape:
            raise ValueError(
                f"validation: expected rows of shape {self.input_shape} as in training, "
                f"got {tuple(bags.rows.shape[1:])}; give the same columns in the same order."
            )
        require_features(bags, self.input_shape, self.feature_names, self.text)
        require_numbers(bags.rows)
        bags = bags.with_known_prevalences().with_classes(self.classes)
        bags.feature_names = self.feature_names
        return bags

    def choose_sampler(self, wanted: str | SamplingProtocol | None) -> SamplingProtocol | None:
        """Return the protocol that draws the training bags; None uses the given bags only."""
        if wanted == "auto":
            return Mixer() if self.rows is None else APP() if self.bags is None else Combined()
        if wanted is None and self.bags is None:
            raise ValueError("sampler: None trains on the given bags only, but fit got labelled rows; use APP().")
        if wanted is None:
            return None
        assert not isinstance(wanted, str)
        name, needs = type(wanted).__name__, wanted.draws_from
        if needs in ("bags", "both") and self.bags is None:
            raise ValueError(f"sampler: {name} draws from bags, but fit got labelled rows only; use APP().")
        if needs == "rows" and self.rows is None and self.bags is not None and self.bags.labels is None:
            raise ValueError(f"sampler: {name} draws from labelled rows, but fit got bags without labels; use Mixer().")
        if needs == "both" and self.rows is None:
            raise ValueError(f"sampler: {name} draws from labelled rows too, but fit got bags only; use Mixer().")
        return wanted

    def drawing(self, sampler: SamplingProtocol | None, n_bags: int | None) -> Callable[[np.random.Generator], Bags]:
        """Return a function that draws the bags of an epoch."""
        if sampler is None:
            return lambda rng: self._first
        if n_bags is None:
            n_bags = _BAGS_PER_EPOCH if self.bags is None else max(len(self.bags), _FEWEST_PER_EPOCH)
        labelled = self.rows is not None and sampler.draws_from == "rows"
        source = (self.rows, self.bags) if sampler.draws_from == "both" else self.rows if labelled else self.bags
        return lambda rng: sampler.draw(source, n_bags, rng)

    def validation_bags(self, sampler: SamplingProtocol | None, n_bags: int, seed: int) -> Bags:
        """Return the held-out bags, or validation bags drawn from the held-out rows."""
        if self.bags is not None:
            return self.bags
        sampler = sampler.rows if isinstance(sampler, Combined) else sampler
        draws_rows = sampler is not None and sampler.draws_from == "rows"
        return (sampler if draws_rows else APP()).draw(self.rows, n_bags, seed)  # type: ignore[union-attr]

    def statistics(self, change: Callable[[NDArray], NDArray] = np.asarray) -> tuple[NDArray, NDArray]:
        """Return the mean and standard deviation of each feature, or of each channel of images, over all used rows.

        Sparse rows are not centred: their mean is 0 and their scale is the root mean square. The function `change` is
        applied to the rows first.
        """
        pool = self._first.rows
        parts = [part for part in (self.rows, self.bags) if part is not None]
        used, place = used_rows(np.concatenate([part.index for part in parts]), pool.shape[0])
        weights = np.bincount(place, np.concatenate([part.entry_weights() for part in parts]).astype(np.float64))
        image = len(pool.shape) > 2
        step = max(1, _CHUNK // self._first.n_features)
        # Sums are taken around the mean of the first rows: squares of features far from 0 would lose digits.
        first = change(take_dense(pool, used[:step])).astype(np.float64)
        centred = float(not hasattr(pool, "tocsr"))
        shift = first.mean((0, -2, -1) if image else 0, keepdims=True) * centred
        sums = np.zeros((2, *shift.shape))  # sums of the differences and of their squares
        for start in range(0, len(used), step):
            x = change(take_dense(pool, used[start : start + step])) - shift
            moments = np.stack([np.tensordot(weights[start : start + step], v, 1)[None] for v in (x, x**2)])
            sums += moments.mean((-2, -1), keepdims=True) if image else moments
        first_moment, second_moment = sums / weights.sum()
        offset = first_moment * centred
        mean, scale = shift + offset, np.sqrt(np.maximum(second_moment - offset**2, 0))
        scale[scale <= 1e-12 * np.abs(mean)] = 1.0
        return mean[0], scale[0]


def labelled_rows(X: Any, y: Any) -> Bags:
    """Check the arguments of a quantifier that learns from labels only, and return Bags with labels."""
    if not isinstance(X, Bags) and y is None:
        raise TypeError("y: expected a label for each row of X, got None; this quantifier learns from labelled rows.")
    if not isinstance(X, Bags):
        return Bags.from_labels(X, y)
    if y is not None or X.labels is None or X.classes is None:
        raise ValueError(
            "bags: this quantifier learns from labelled rows, got bags of known proportions; use fit(X, y), Bags with "
            "labels, or HistNetQ, which learns from proportions."
        )
    return X


def _labelled_part(labelled: Bags, chosen: NDArray[np.bool_]) -> Bags | None:
    """Return the chosen entries as one bag with the prevalences of their labels; None if there are none."""
    if not chosen.any():
        return None
    index, weights = labelled.index[chosen], None if labelled.weights is None else labelled.weights[chosen]
    part = labelled.drawn(index, np.array([0, len(index)]), weights, None)
    return part.with_prevalences(part.label_prevalences())


def _without_rows(bags: Bags, out: NDArray[np.int64]) -> Bags | None:
    """Return the bags without these rows, with the prevalences of the remaining labels; None if no rows remain."""
    stays = ~np.isin(bags.index, out)
    ends = np.concatenate([[0], np.cumsum(stays)])[bags.offsets]
    left = np.flatnonzero(np.diff(ends))
    weights = None if bags.weights is None else bags.weights[stays]
    part = bags.select(left, bags.index[stays], np.append(ends[left], ends[-1]), weights)
    return part.with_prevalences(part.label_prevalences()) if len(left) else None


def _drawn_of_each_class(rows: NDArray, labelled: Bags, fraction: float, seed: int) -> NDArray[np.int64]:
    """Draw a fraction of the rows of each class."""
    assert labelled.labels is not None
    labels = labelled.labels[rows]
    order = np.lexsort((np.random.default_rng(seed).random(len(rows)), labels))
    labels = labels[order]
    counts = np.bincount(labels)
    rank = np.arange(len(rows)) - (np.cumsum(counts) - counts)[labels]
    # Every class keeps at least one row for training, and a class with two rows or more holds out at least one.
    quota = np.minimum(np.maximum(np.round(fraction * counts), 1), counts - 1)
    held = rank < quota[labels]
    if not held.any():
        raise ValueError(
            f"y: expected at least 2 rows of some class, to hold out some for validation, got {len(rows)} rows "
            f"of {len(labelled.classes)} classes; add rows."  # type: ignore[arg-type]
        )
    return np.sort(rows[order[held]])


def check_sampler(sampler: Any, words: str = "'auto', None or a protocol such as Mixer()") -> None:
    """Refuse anything but "auto", None and a protocol; `words` name the allowed values."""
    if sampler is None or (isinstance(sampler, str) and sampler == "auto" and "auto" in words):
        return
    if isinstance(sampler, str | type) or not hasattr(sampler, "draw"):
        raise ValueError(f"sampler: expected {words}, got {brief(sampler)}.")
