"""Sketches of bags by a quantifier, of all rows at once or of a stream, and who made them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.quantifiers.bag_inputs import BagInputs
from histnetq.sketches.sketch import BagSketch, Maker
from histnetq.sketches.sketcher import NoSketcher, Sketcher, state_shape
from histnetq.sketches.streams import sum_sketches

if TYPE_CHECKING:
    from histnetq.uncertainty.trust import Trust


class Sketching(BagInputs):
    """The part of a `Quantifier` that makes sketches of bags, by the `Sketcher` of the method."""

    trust_: Trust

    if TYPE_CHECKING:  # every quantifier has it

        def predict(self, X: Any) -> NDArray[np.float64]: ...

    def sketch(self, X: Any) -> BagSketch:
        """Reduce rows to sketches of their bags, which add up and which `predict`, `predict_interval` and `trust` take.

        Parameters
        ----------
        X : Bags, or array of rows
            Any part of the rows of some bags, which are told apart by their ids; or of one bag.

        Returns
        -------
        BagSketch
            One small row per bag.

        Examples
        --------
        >>> from histnetq import CC
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> q.predict(q.sketch([[0.0], [1.0]]) + q.sketch([[1.0], [1.0]]))
        array([0.25, 0.75])
        """
        return self._sketch(self._bags_to_estimate(X), self.sketch_maker(), named=self._are_several(X))

    def predict_stream(self, chunks: Iterable[Any]) -> tuple[NDArray, NDArray[np.float64]]:
        """Estimate bags whose rows come in pieces, in any order, in one pass and in memory for the bags alone.

        Parameters
        ----------
        chunks : iterable of (ids, rows), of (ids, rows, weights), or of Bags
            Some rows, and the id of the bag of each. Weights of an integer type are counts, others survey weights.

        Returns
        -------
        ids : (n_bags,)
            Names of the bags, in the order in which they first occur.
        prevalences : (n_bags, n_classes)
            Their estimates.

        Examples
        --------
        >>> from histnetq import CC
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> ids, p = q.predict_stream([(["x", "y"], [[0.0], [1.0]]), (["x"], [[1.0]])])
        >>> ids.tolist(), p.tolist()
        (['x', 'y'], [[0.5, 0.5], [0.0, 1.0]])
        """
        found = self.sketch_stream(chunks)
        assert found.ids is not None
        return found.ids, self.predict(found)

    def sketch_stream(self, chunks: Iterable[Any], *, n_threads: int | None = None) -> BagSketch:
        """Sketch all rows that come in pieces, as `predict_stream` reads them.

        Parameters
        ----------
        chunks : iterable of (ids, rows), of (ids, rows, weights), or of Bags
            Some rows, and the id of the bag of each.
        n_threads : int, default=None
            Threads that work side by side; None takes one for each core, at most 8.

        Returns
        -------
        BagSketch
            The sum of the sketches of all pieces.

        Examples
        --------
        >>> from histnetq import CC
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> q.sketch_stream([(["x", "y"], [[0.0], [1.0]]), (["x"], [[1.0]])]).n_rows
        array([2, 1])
        """
        maker = self.sketch_maker()

        def work(bags: Bags) -> BagSketch:
            self._require_same_features(bags, streamed=True)
            return self._sketch(bags, maker)

        return sum_sketches(chunks, work, n_threads)

    @property
    def sketch_kind(self) -> str | None:
        """How estimates from sketches are beside those from rows: "exact" or "binned"; None if there are none."""
        return self._sketcher().kind

    def sketch_maker(self) -> Maker:
        """Tell what stands in the sketches of this model about where they come from; refuse if it can make none.

        Returns
        -------
        Maker
            The method, the fingerprint of all that turns rows into states, and how states are merged.

        Examples
        --------
        >>> from histnetq import CC
        >>> CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10).sketch_maker().quantifier
        'CC'
        """
        self._require_fitted()
        sketcher = self._sketcher()
        if isinstance(sketcher, NoSketcher):
            raise TypeError(f"sketch: {sketcher.reason}")
        fingerprint = hashlib.sha256(sketcher.identity().encode()).hexdigest()
        moments = self.trust_.moments if hasattr(self, "trust_") else None
        made = None if moments is None else moments.fingerprint()
        return Maker(type(self).__name__, fingerprint, sketcher.merge, made)

    def _sketcher(self) -> Sketcher:
        """Give what makes sketches of bags and reads them."""
        kind = type(self).__name__
        return NoSketcher(f"{kind} needs all rows of a bag at once; use HistNetQ or PACC, whose sketches add up.")

    def _sketch(self, bags: Bags, maker: Maker, named: bool = True) -> BagSketch:
        sketch = self._sketcher().sketch(bags, maker, named)
        moments = self.trust_.moments if hasattr(self, "trust_") else None
        return sketch if moments is None else dataclasses.replace(sketch, moments=moments.sums(bags))

    def _require_own(self, sketch: BagSketch) -> None:
        maker = self.sketch_maker()
        if maker.fingerprint != sketch.maker.fingerprint:
            raise ValueError(
                f"sketch: expected one that this {maker.quantifier} ({maker.fingerprint[:8]}) made, got one of "
                f"{sketch.maker.quantifier} ({sketch.maker.fingerprint[:8]}); sketch the rows again with this model."
            )
        # A file may name a wrong maker, and compiled code trusts the shape of states.
        wanted = state_shape(self._sketcher(), self.input_shape_, len(self.classes_))
        if sketch.values.shape[1:] != wanted:
            raise ValueError(
                f"sketch: expected states of shape {wanted} per bag, got {sketch.values.shape[1:]}; sketch the rows "
                "again with this model."
            )
        moments = self.trust_.moments if maker.moments is not None else None
        if moments is not None and maker.moments == sketch.maker.moments and sketch.moments.shape[1] != moments.n_sums:
            raise ValueError(
                f"sketch: expected {moments.n_sums} moments per bag, got {sketch.moments.shape[1]}; sketch the rows "
                "again with this model."
            )
