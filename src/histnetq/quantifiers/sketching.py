"""`Sketching`: the part of a quantifier that makes sketches of bags and reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.sketches.moments import moment_sums
from histnetq.sketches.sketch import BagSketch, Maker
from histnetq.sketches.streams import sum_sketches
from histnetq.uncertainty.trust import Trust

__all__ = ["Sketching"]


class Sketching:
    """Base of `Quantifier`.

    A subclass whose bags can be put together from parts says so by `sketch_kind` and implements `_state`, `_from_state`
    and `_state_identity`.
    """

    trust_: Trust

    def sketch(self, X: Any) -> BagSketch:
        """Reduce rows to sketches of their bags, which add up and which `predict`, `predict_interval` and `trust` take.

        Parameters
        ----------
        X : Bags, or one bag as an array of rows
            Any part of the rows of the bags. Bags are told apart by their ids.
        """
        bags = self._bags_to_estimate(X)
        self._require_same_features(bags)
        return self._sketch(bags, self.sketch_maker(), named=isinstance(X, Bags))

    def predict_stream(self, chunks: Iterable[Any]) -> tuple[NDArray, NDArray[np.float64]]:
        """Estimate bags whose rows come in pieces, in any order, in one pass and in memory for the bags alone.

        Parameters
        ----------
        chunks : iterable of (ids, rows), of (ids, rows, weights), or of Bags
            Some rows, and the id of the bag of each. Weights of an integer type are counts, others survey weights.

        Returns
        -------
        ids : (n_bags,), in the order in which they first occur
        prevalences : (n_bags, n_classes)
        """
        found = self.sketch_stream(chunks)
        assert found.ids is not None
        return found.ids, self.predict(found)

    def sketch_stream(self, chunks: Iterable[Any], *, n_threads: int | None = None) -> BagSketch:
        """The sketch of all rows that come in pieces, see `predict_stream`; on all cores, at most 8, by default."""
        maker = self.sketch_maker()

        def work(bags: Bags) -> BagSketch:
            self._require_same_features(bags)
            return self._sketch(bags, maker)

        return sum_sketches(chunks, work, n_threads)

    @property
    def sketch_kind(self) -> str | None:
        """How estimates from sketches are beside those from rows: "exact" or "binned"; None if there are none."""
        return None

    def sketch_maker(self) -> Maker:
        """What stands in the sketches of this model; refused if it can make none."""
        self._require_fitted()
        if self.sketch_kind is None:
            raise TypeError(f"sketch: {self._why_no_sketch()}")
        identity = hashlib.sha256(self._state_identity().encode()).hexdigest()
        origin = None
        if hasattr(self, "trust_") and len(self.trust_.center):
            origin = tuple(np.split(self.trust_.center, 2)[0].tolist())
        return Maker(type(self).__name__, identity, self._state_merge(), origin)

    def _sketch(self, bags: Bags, maker: Maker, named: bool = True) -> BagSketch:
        weights, starts, n_rows = bags.weights, bags.offsets[:-1], np.diff(bags.offsets)
        totals = n_rows if weights is None else np.add.reduceat(weights, starts)
        moments = np.empty((len(bags), 0))
        if maker.origin is not None:
            moments = moment_sums(bags, np.array(maker.origin))
        return BagSketch(
            ids=bags.ids if named else None, n_rows=n_rows, totals=totals,
            squares=totals if weights is None or bags.weight_kind == "count" else np.add.reduceat(weights**2, starts),
            unseen=np.zeros(len(bags), np.int64), values=self._state(bags), moments=moments, maker=maker,
        )  # fmt: skip

    def _state(self, bags: Bags) -> NDArray:
        """(n_bags, ...): what is kept of the rows of each bag; whole numbers wherever the weights are."""
        raise NotImplementedError

    def _from_state(self, values: NDArray, totals: NDArray) -> NDArray[np.float64]:
        """Estimates ``(n_bags, n_classes)`` from states of whole bags and the total weights."""
        raise NotImplementedError

    def _state_identity(self) -> str:
        """Text that differs for what would make other states, and is the same after saving and loading."""
        raise NotImplementedError

    def _state_merge(self) -> str:
        return "sum"

    def _why_no_sketch(self) -> str:
        return f"{type(self).__name__} needs all rows of a bag at once; use HistNetQ or PACC, whose sketches add up."

    def _require_own(self, sketch: BagSketch) -> None:
        maker = self.sketch_maker()
        if maker.fingerprint != sketch.maker.fingerprint:
            raise ValueError(
                f"sketch: expected one that this {maker.quantifier} ({maker.fingerprint[:8]}) made, got one of "
                f"{sketch.maker.quantifier} ({sketch.maker.fingerprint[:8]}); sketch the rows again with this model."
            )

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Estimate the prevalence of each class."""
        raise NotImplementedError

    def _bags_to_estimate(self, X: Any) -> Bags:
        raise NotImplementedError

    def _require_fitted(self) -> None:
        raise NotImplementedError

    def _require_same_features(self, bags: Bags) -> None:
        raise NotImplementedError
