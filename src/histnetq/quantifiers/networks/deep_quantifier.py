"""The base of the networks, which learn from proportions of bags, from labelled rows, or from both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_number, needs_double
from histnetq.bags.classifier_rows import require_numbers
from histnetq.bags.protocols import SamplingProtocol
from histnetq.bags.same_features import require_range
from histnetq.metrics import Measure
from histnetq.nn import MLP, BagNetwork, MergeablePooling, Pooling, Standardize, StandardizeScores
from histnetq.nn.encoders import log_odds_of, n_outputs
from histnetq.persistence.saving import Arrays, Stored, StoredArrays
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.classical.given_scores import given_posteriors, scored_bags, take_scores
from histnetq.quantifiers.networks.encoders import Encoder, check_encoder, check_sizes, make_encoder
from histnetq.quantifiers.networks.stored_network import StoredNetwork, keep_trained
from histnetq.quantifiers.row_posteriors import confusions_of, log_likelihoods
from histnetq.sketches.networks import PooledStates, merge_of
from histnetq.sketches.sketcher import NoSketcher, Sketcher
from histnetq.training.batches import predict_bags
from histnetq.training.fitting import Start, Task, check_task
from histnetq.training.options import Training
from histnetq.training.supervision import Supervision

if TYPE_CHECKING:
    from typing_extensions import Self

    from histnetq.persistence.onnx_graphs import OnnxGraph

_FARTHEST = 1e12  # standard deviations from the mean; products of larger numbers overflow in attention


@dataclass(eq=False, repr=False, kw_only=True)
class DeepQuantifier(Quantifier):
    """Base of the networks; see `HistNetQ` for the parameters."""

    encoder: Encoder = None
    loss: str | Measure = "ae"
    sampler: str | SamplingProtocol | None = "auto"
    label_weight: float = 0.0
    training: Training = Training()  # noqa: RUF009 - immutable
    random_state: int | None = None
    ridge: float | None = None

    refits: ClassVar[bool] = False  # whether it learns from all data in the end if this is cheap
    stored: ClassVar[tuple[Stored, ...]] = (StoredNetwork(), StoredArrays(confusions_="share: classes classes?"))

    def fit(self, X: Any, y: Any = None, *, bags: Bags | None = None, validation: Bags | None = None) -> Self:
        """Learn from bags, from labelled rows, or from both.

        Parameters
        ----------
        X : Bags, or array of rows
            Bags with prevalences, whose rows may be labelled; or the labelled rows as an array, data frame or sparse
            matrix.
        y : array, default=None
            With bags: their prevalences ``(n_bags, n_classes)``, if they do not carry them. With rows: their labels.
        bags : Bags, default=None
            Bags with prevalences, in addition to labelled rows.
        validation : Bags, default=None
            Bags with prevalences that choose the best epoch; None holds out a part of the bags or rows.

        Returns
        -------
        DeepQuantifier
            The fitted quantifier itself.
        """
        self._check_params()
        given = Supervision.of(X, y, bags)
        require_numbers(given.pool)
        if not given.input_shape:
            raise TypeError("rows: networks expect numbers, got texts; embed or vectorise them first.")

        def make(learned: Supervision, held: Supervision, own: DeepQuantifier = self) -> BagNetwork:
            change = _log_odds if scored else np.asarray
            statistics = learned.statistics(change) if self.training.standardize else None
            for part in (given.rows, given.bags):
                if part is not None and not scored:
                    require_range(part, *_reach(statistics, given.input_shape))
            return own._network(given.input_shape, len(given.classes), make_standardize(statistics, scored))

        scored, other = given.are_scores, self._alternative(given.input_shape)
        alternative = None if other is None else partial(make, own=other)
        trained = Task(self, self.refits).train(given, make, validation, self._start(), alternative)
        keep_trained(self, trained)
        known = given.classes, given.input_shape, given.feature_names, given.prevalences()
        self._learned_from(*known, needs_double(given.pool), scored, given.text)
        self.confusions_: NDArray[np.float64] | None = None
        if scored and given.rows is not None:
            crossed = take_scores(given.rows)
            self.confusions_ = confusions_of(crossed.posteriors, crossed.labels, crossed.weights)
        self._finish(given)
        return self

    def fit_posteriors(self, posteriors: Any, y: Any = None, classes: Any = None) -> Self:
        """Learn from posteriors of a custom model for rows that it was not trained on, as log-odds.

        Parameters
        ----------
        posteriors : (n_rows, n_classes), or Bags
            Rows of probabilities; the columns of a data frame are matched by name. Or bags of such rows, with labels or
            prevalences, from `read_bags` with ``proba=``.
        y : (n_rows,), default=None
            The label of each row; None with bags.
        classes : sequence, default=None
            Names of the columns; None takes the sorted values of `y`.

        Returns
        -------
        DeepQuantifier
            The fitted quantifier itself. It then estimates bags of posteriors.

        Examples
        --------
        >>> from histnetq import EMNetQ
        >>> p = np.linspace(0.05, 0.95, 200)
        >>> y = (np.random.default_rng(0).random(200) < p).astype(int)
        >>> q = EMNetQ(training=Training(epochs=2), random_state=0).fit_posteriors(np.stack([1 - p, p], axis=1), y)
        >>> int(q.predict([[0.1, 0.9], [0.2, 0.8]]).argmax())
        1
        """
        return self.fit(scored_bags(posteriors, y, classes))

    def _check_params(self) -> None:
        super()._check_params()
        check_task(self)
        check_encoder(self.encoder)
        check_number("ridge", self.ridge, 0, 1e12, above=True, or_none=True)

    def _finish(self, given: Supervision) -> None:
        """Learn what a method needs besides its trained network; nothing by default."""

    def _start(self) -> Start | None:
        """Return the function that pretrains the network, or None to start from random weights."""
        return None

    def _alternative(self, shape: tuple[int, ...]) -> DeepQuantifier | None:
        """Return a copy with other parameters, whose network is trained instead if it starts better."""
        return None

    _row_output: ClassVar[str] = "features"  # of an ONNX graph

    def _draw_onnx(self, graph: OnnxGraph) -> None:
        from histnetq.quantifiers.networks.onnx_layers import draw_network

        draw_network(graph, self.network_.eval(), len(self.classes_), self._row_output)

    def _network(self, shape: tuple[int, ...], n_classes: int, prepare: Standardize | None) -> BagNetwork:
        """Build the network for rows of this shape, with random weights."""
        raise NotImplementedError

    def _rebuilt(self, arrays: Arrays) -> BagNetwork:
        """Build the network whose stored weights are these arrays."""
        statistics = None
        if self.training.standardize:
            statistics = arrays["prepare.mean"], arrays["prepare.scale"]
            wider = any(
                np.broadcast_shapes(array.shape, self.input_shape_) != self.input_shape_ for array in statistics
            )
            if wider or not (statistics[1] > 0).all():
                raise ValueError("path: the stored means and scales do not fit the features; save the model again.")
        return self._network(self.input_shape_, len(self.classes_), make_standardize(statistics, self.scores_))

    def _predict(self, bags: Bags) -> NDArray[np.float64]:
        return predict_bags(self.network_, bags)

    def _log_likelihoods(self, bags: Bags) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        if not self.scores_:
            return super()._log_likelihoods(bags)
        p, index = given_posteriors(bags, len(self.classes_))
        return log_likelihoods(p, self.train_prevalences_), index

    def _assigned(self, bags: Bags) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        assert self.confusions_ is not None
        p, index = given_posteriors(bags, len(self.classes_))
        return p.argmax(1)[index], self.confusions_

    def _has_confusions(self) -> bool:
        return getattr(self, "confusions_", None) is not None

    def _require_same_features(self, bags: Bags, streamed: bool = False) -> None:
        super()._require_same_features(bags, streamed)
        if self.scores_:
            given_posteriors(bags, len(self.classes_))

    def _range(self) -> tuple[NDArray, NDArray] | None:
        if self.scores_:
            return None
        prepare, statistics = self.network_.prepare, None
        if isinstance(prepare, Standardize):
            statistics = tuple(prepare.get_buffer(name).cpu().double().numpy() for name in ("mean", "scale"))
        return _reach(statistics, self.input_shape_)

    def _sketcher(self) -> Sketcher:
        pooling = self.network_.pooling
        if merge_of(pooling) is not None:
            return PooledStates(self.network_)
        name, way_out = type(pooling).__name__, "use HistNetQ, or DeepSets with pooling 'mean' or 'max'"
        why = "which needs a whole bag at once, parts of it do not add up"
        if isinstance(pooling, MergeablePooling):
            why = "whose states are not merged by a sum or a maximum"
        elif not type(pooling).__module__.startswith("histnetq."):
            way_out = f"make {name} a histnetq.nn.MergeablePooling, or {way_out}"
        return NoSketcher(f"{type(self).__name__} pools by {name}, {why}; {way_out}.")


@dataclass(eq=False, repr=False, kw_only=True)
class PooledQuantifier(DeepQuantifier):
    """Base of the networks that are an encoder, a pooling and a head."""

    head: Any = (512,)

    def _check_params(self) -> None:
        super()._check_params()
        self._check_head()

    def _check_head(self) -> None:
        check_sizes("head", self.head)

    def _pooling(self, n_features: int) -> Pooling:
        """Build the pooling layer."""
        raise NotImplementedError

    def _head(self, width: int, n_classes: int) -> nn.Module:
        """Build the layers that map a pooled bag to scores of the classes."""
        return MLP(width, (*self.head, n_classes), self.training.dropout)

    def _encoder(self, shape: tuple[int, ...], n_classes: int) -> nn.Module:
        """Build the layers that map rows to features."""
        return make_encoder(self.encoder, shape, self.training)

    def _network(self, shape: tuple[int, ...], n_classes: int, prepare: Standardize | None) -> BagNetwork:
        encoder = self._encoder(shape, n_classes)
        return self._assemble(encoder, self._pooling(n_outputs(encoder, shape)), n_classes, prepare)

    def _assemble(
        self, encoder: nn.Module, pooling: Pooling, n_classes: int, prepare: Standardize | None
    ) -> BagNetwork:
        """Build the network from its encoder and its pooling."""
        head, classify = self._head(pooling.width, n_classes), self.label_weight > 0 or self.training.warmup > 0
        network = BagNetwork(encoder, pooling, head, n_classes, prepare=prepare, classify=classify)
        return network.to(getattr(torch, self.training.dtype))


def make_standardize(statistics: tuple[NDArray, NDArray] | None, scored: bool) -> Standardize | None:
    """Build the layer that standardises rows, or log-odds of scores; None if rows have no statistics."""
    if not scored:
        return None if statistics is None else Standardize(*map(torch.as_tensor, statistics))
    return StandardizeScores(*map(torch.as_tensor, statistics or (np.zeros(1), np.ones(1))))


def _log_odds(scores: NDArray) -> NDArray:
    return log_odds_of(torch.as_tensor(scores)).numpy()


def _reach(statistics: tuple[NDArray, ...] | None, shape: tuple[int, ...]) -> tuple[NDArray, NDArray]:
    """Return the lowest and highest value of each number in a row, flat, that the network can compute with."""
    mean, scale = (np.zeros(1), np.ones(1)) if statistics is None else statistics
    largest = float(np.finfo(np.float32).max)
    ends = (np.clip(mean + side * _FARTHEST * scale, -largest, largest) for side in (-1, 1))
    low, high = (np.broadcast_to(end, shape).ravel() for end in ends)
    return low, high
