"""What a quantifier learns from, and how some of it is held out, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import column_names, take_dense, used_rows
from histnetq.bags.class_names import are_scores
from histnetq.bags.limits import brief
from histnetq.bags.protocols import APP, Combined, Mixer, Protocol
from histnetq.bags.same_features import require_features
from histnetq.bags.text_features import TextFeatures

_CHUNK = 1 << 24  # numbers looked at together when standardising
_BAGS_PER_EPOCH = 500  # drawn from labelled rows
_FEWEST_PER_EPOCH = 200  # drawn from bags
_FEWEST_WHOLE = 20  # bags of labelled rows, of which some are held out whole


@dataclass(frozen=True)
class Supervision:
    """Labelled rows (a single bag of them), bags with prevalences, or both on one pool with the same classes.

    Rows that are labelled and lie in bags are one pool: the labelled rows are those of the bags, and what is held out
    of one is held out of the other.

    Attributes
    ----------
    rows : Bags or None
        All labelled rows as one bag.
    bags : Bags or None
        Bags with prevalences.
    one_pool : bool
        Whether the labelled rows are the rows of the bags.
    how : str
        How these were kept apart from others, in words.
    """

    rows: Bags | None
    bags: Bags | None
    one_pool: bool = False
    how: str = ""

    @classmethod
    def of(cls, X: Any, y: Any, bags: Bags | None) -> Supervision:
        """Sort out ``fit(bags)``, ``fit(bags, prevalences)``, ``fit(X, y)`` and ``fit(X, y, bags=bags)``."""
        if isinstance(X, Bags) and bags is not None:
            raise TypeError("bags: expected beside labelled rows, fit(X, y, bags=…), got Bags twice; use Bags.concat.")
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
        """Bags, and their labelled rows where there are some; a single bag of labelled rows is rows alone."""
        if bags.labels is None:
            return cls(None, bags)
        rows = _labelled_part(bags, bags.labels[bags.index] >= 0)
        given = cls(rows, bags, one_pool=rows is not None)
        return cls(rows, None) if len(bags) == 1 and given._is_all_labelled() else given

    def _is_all_labelled(self) -> bool:
        """Whether the rows of all bags are labelled, and the labels are what the prevalences are counted from."""
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
        """Whether rows are probabilities of the classes; their columns must be in the order of these."""
        return are_scores(self._first)

    @property
    def pool(self) -> Any:
        return self._first.rows

    @property
    def feature_names(self) -> list[str] | None:
        return self._first.feature_names

    @property
    def text(self) -> TextFeatures | None:
        return self._first.text

    def prevalences(self) -> NDArray[np.float64]:
        """Prevalences of labelled rows that lie in no bags, or else the mean over the bags."""
        if self.rows is not None and not self.one_pool:
            return self.rows.label_prevalences()[0]
        return self.bags.prevalences.mean(0)  # type: ignore[union-attr]

    def split(self, fraction: float, seed: int) -> tuple[Supervision, Supervision]:
        """Hold out this fraction: of whole bags, or of the labelled rows of each class.

        Rows are held out where there are no bags, and where the rows of fewer than 20 bags, or of bags that share rows,
        are all labelled: bags to validate on are then drawn from the rows held out, and the other bags go on without
        these. Otherwise whole bags are held out, and the labels of their rows with them, so that nothing that validates
        is ever drawn for training. Only bags that share rows, of which some have no label, are held out as they are:
        give bags that share none, else validation is too kind.
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
        apart = np.isin(labelled.index, out)
        bags = None if self.bags is None else _without_rows(self.bags, out)
        how = f"bags drawn from {len(out)} of {len(rows)} labelled rows"
        kept = replace(self, rows=_labelled_part(labelled, ~apart), bags=bags)
        return kept, Supervision(_labelled_part(labelled, apart), None, how=how)

    def joined(self, bags: Bags) -> Supervision:
        """Give the same with more bags; what is learned from labelled rows alone stays so."""
        if self.bags is None:
            return self
        if self.rows is None:
            return Supervision(None, Bags.concat([self.bags, bags]))
        everything = Bags.concat([Bags.concat([self.rows, self.bags]), bags])  # the pool of the first two is one
        return replace(self, rows=everything[:1], bags=everything[1:])

    def check_validation(self, bags: Bags) -> Bags:
        """Give bags to validate on with their prevalences, and with the classes in the order of these."""
        if not isinstance(bags, Bags):
            raise TypeError(f"validation: expected Bags, got {type(bags).__name__}; make them with Bags.from_arrays.")
        if tuple(bags.rows.shape[1:]) != self.input_shape:
            raise ValueError(
                f"validation: expected rows of shape {self.input_shape} as in training, "
                f"got {tuple(bags.rows.shape[1:])}; give the same columns in the same order."
            )
        require_features(bags, self.input_shape, self.feature_names, self.text)
        bags = bags.with_known_prevalences().with_classes(self.classes)
        bags.feature_names = self.feature_names
        return bags

    def choose_sampler(self, wanted: str | Protocol | None) -> Protocol | None:
        """Give the protocol that training bags are drawn by; None for the given bags alone."""
        if wanted == "auto":
            return Mixer() if self.rows is None else APP() if self.bags is None else Combined()
        if wanted is None and self.bags is None:
            raise ValueError("sampler: None trains on given bags alone, but fit got labelled rows; use APP().")
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

    def drawing(self, sampler: Protocol | None, n_bags: int | None) -> Callable[[np.random.Generator], Bags]:
        """Give a function that draws the bags of an epoch."""
        if sampler is None:
            return lambda rng: self._first
        if n_bags is None:
            n_bags = _BAGS_PER_EPOCH if self.bags is None else max(len(self.bags), _FEWEST_PER_EPOCH)
        labelled = self.rows is not None and sampler.draws_from == "rows"
        source = (self.rows, self.bags) if sampler.draws_from == "both" else self.rows if labelled else self.bags
        return lambda rng: sampler.draw(source, n_bags, rng)

    def validation_bags(self, sampler: Protocol | None, n_bags: int, seed: int) -> Bags:
        """Give fixed bags to validate on: those held out, else some drawn from the rows held out."""
        if self.bags is not None:
            return self.bags
        sampler = sampler.rows if isinstance(sampler, Combined) else sampler
        draws_rows = sampler is not None and sampler.draws_from == "rows"
        return (sampler if draws_rows else APP()).draw(self.rows, n_bags, seed)  # type: ignore[union-attr]

    def statistics(self, change: Callable[[NDArray], NDArray] = np.asarray) -> tuple[NDArray, NDArray]:
        """Mean and standard deviation of each feature, or of each channel of images, over all rows in use.

        Sparse rows are not centred: their mean is given as 0 and their scale is the root mean square. A function may
        `change` the numbers of rows first.
        """
        pool = self._first.rows
        parts = [part for part in (self.rows, self.bags) if part is not None]
        used, place = used_rows(np.concatenate([part.index for part in parts]), pool.shape[0])
        weights = np.bincount(place, np.concatenate([part.entry_weights() for part in parts]).astype(np.float64))
        image = len(pool.shape) > 2
        step = max(1, _CHUNK // self._first.n_features)
        # About the mean of the first rows: a sum of squares about 0 loses the digits of features far from 0.
        first = change(take_dense(pool, used[:step])).astype(np.float64)
        centred = float(not hasattr(pool, "tocsr"))
        shift = first.mean((0, -2, -1) if image else 0, keepdims=True) * centred
        sums = np.zeros((2, *shift.shape))  # of the distances and of their squares
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
    """Bags with labels, for quantifiers that learn from these alone: from ``fit(X, y)`` or ``fit(bags)``."""
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
    """The chosen entries as one bag with the prevalences of their labels; None if there are none."""
    if not chosen.any():
        return None
    index, weights = labelled.index[chosen], None if labelled.weights is None else labelled.weights[chosen]
    part = labelled.drawn(index, np.array([0, len(index)]), weights, None)
    return part.with_prevalences(part.label_prevalences())


def _without_rows(bags: Bags, out: NDArray[np.int64]) -> Bags | None:
    """The bags without these rows, with the prevalences of what is left of them; None if nothing is."""
    stays = ~np.isin(bags.index, out)
    ends = np.concatenate([[0], np.cumsum(stays)])[bags.offsets]
    left = np.flatnonzero(np.diff(ends))
    weights = None if bags.weights is None else bags.weights[stays]
    part = bags.select(left, bags.index[stays], np.append(ends[left], ends[-1]), weights)
    return part.with_prevalences(part.label_prevalences()) if len(left) else None


def _drawn_of_each_class(rows: NDArray, labelled: Bags, fraction: float, seed: int) -> NDArray[np.int64]:
    """This fraction of the rows of each class, drawn at random."""
    assert labelled.labels is not None
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
    return np.sort(rows[order[held]])


def check_sampler(sampler: Any, words: str = "'auto', None or a protocol such as Mixer()") -> None:
    """Refuse anything but "auto", None and a protocol; `words` say what is expected."""
    if sampler is None or (isinstance(sampler, str) and sampler == "auto" and "auto" in words):
        return
    if isinstance(sampler, str | type) or not hasattr(sampler, "draw"):
        raise ValueError(f"sampler: expected {words}, got {brief(sampler)}.")
