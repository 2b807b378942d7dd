"""EMNetQ: an encoder that learns from proportions the scores by which maximum likelihood finds them."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from histnetq.data.bags import Bags
from histnetq.data.checks import used_rows
from histnetq.data.protocols import Protocol
from histnetq.metrics import Measure
from histnetq.nn import MLP, BagNetwork, Likelihood, ShrunkLikelihood
from histnetq.nn.encoders import n_outputs
from histnetq.quantifiers.emnetq_start import start_scores
from histnetq.quantifiers.networks import DeepQuantifier, Encoder, make_encoder, make_standardize
from histnetq.quantifiers.trained import are_sizes
from histnetq.simplex import check_prevalences
from histnetq.training.batches import encode_rows
from histnetq.training.options import Training
from histnetq.training.supervision import Supervision

__all__ = ["EMNetQ"]


class EMNetQ(DeepQuantifier):
    """Quantification by maximum likelihood, with the likelihoods learned from bags.

    An encoder gives each row one score per class, its log-likelihood up to a constant; the prevalences of a bag are
    those under which its rows are most likely, the fixed point of expectation maximisation. Training follows the
    gradient through that fixed point, so that the scores become those that make the estimates right. Little else is
    learned (a threshold below which prevalences are shrunk): a linear encoder has few parameters, and few bags teach
    them.

    Parameters
    ----------
    encoder : None, tuple of int, nn.Module or factory
        On rows: None gives scores linear in the features (a CNN for images), a tuple the hidden layers of an MLP; a
        linear layer of scores follows a module, which is copied, or what a factory makes for the shape of a row.
    ridge : float, optional
        Training starts from scores that the encoder learns from the labels of rows, and from those that follow from the
        proportions of all the bags that a row is in, and that are adjusted to the loss; the best epoch may be 0, the
        start. `ridge` is the penalty of the logistic regressions that this takes, which linear scores come from. None
        starts from random scores, as do modules of one's own and fewer than 100 different rows.
    prior : float
        Pseudo-count of each class in a bag; see `histnetq.nn.Likelihood`. Steadies the estimates of tiny bags, and
        keeps classes from being estimated as absent in all bags, as scores at the start of training may have it:
        without a prior, nothing is learned about a class where it is absent.
    loss, sampler, training, random_state
        As in `HistNetQ`.
    label_weight : float
        Weight of the cross-entropy of the scores, shifted by a learned constant per class, on rows of known labels.

    Attributes
    ----------
    classes_, network_, history_, best_epoch_, validation_loss_
        As in `HistNetQ`.

    Examples
    --------
    Row labels are never seen, and yet the rows get probabilities:

    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=60)
    >>> labels = [(rng.uniform(size=50) < share).astype(int) for share in p]
    >>> bags = Bags.from_arrays([rng.normal(y[:, None], 1.0, size=(50, 3)) for y in labels], np.stack([1 - p, p], 1))
    >>> q = EMNetQ(training=Training(epochs=20, lr=0.03), random_state=0).fit(bags)
    >>> float((q.predict_rows(bags).argmax(1) == np.concatenate(labels)).mean()) > 0.8
    True
    """

    def __init__(
        self,
        encoder: Encoder = None,
        *,
        ridge: float | None = 0.01,
        prior: float = 0.5,
        loss: str | Measure = "rae",
        sampler: str | Protocol | None = "auto",
        label_weight: float = 0.0,
        training: Training = Training(),  # noqa: B008 - immutable
        random_state: int | None = None,
    ) -> None:
        self.encoder = encoder
        self.ridge = ridge
        self.prior = prior
        self.loss = loss
        self.sampler = sampler
        self.label_weight = label_weight
        self.training = training
        self.random_state = random_state

    def predict_rows(self, X: Any, prevalences: ArrayLike | None = None) -> NDArray[np.float64]:
        """Class probabilities of the rows, given the prevalences of their bag.

        Parameters
        ----------
        X : Bags, or the rows of one bag
        prevalences : (n_bags, n_classes) for `Bags`, (n_classes,) for rows; optional
            Default: estimated.

        Returns
        -------
        (n_rows, n_classes); of `Bags`, one row per entry, in the order of ``bags.index``.
        """
        bags = self._bags_to_estimate(X)
        self._require_same_features(bags)
        if prevalences is None:
            p = self._predict(bags)
        else:
            given: Any = prevalences if isinstance(X, Bags) else [prevalences]
            p = check_prevalences(given, len(bags), len(self.classes_))
        scores, index = self._scores(bags)
        with np.errstate(divide="ignore"):
            logits = scores.double().numpy()[index] + np.log(p)[np.repeat(np.arange(len(bags)), np.diff(bags.offsets))]
        likely = np.exp(logits - logits.max(1, keepdims=True))
        return likely / likely.sum(1, keepdims=True)

    def standard_errors(self, X: Any) -> NDArray[np.float64]:
        """Standard errors of the estimates, before small ones are shrunk, by the observed information.

        They know how many rows a bag has and how well these tell the classes apart, and nothing of errors in the
        scores themselves: compare `calibrate` and `predict_interval`, which are right whatever the scores.

        Parameters
        ----------
        X : Bags, or the rows of one bag

        Returns
        -------
        (n_bags, n_classes), or (n_classes,) for one bag.
        """
        bags = self._bags_to_estimate(X)
        self._require_same_features(bags)
        scores, index = self._scores(bags)
        weights = None if bags.weights is None else torch.as_tensor(bags.weights, dtype=torch.float64)
        pooling = self.network_.pooling
        assert isinstance(pooling, Likelihood)
        errors = pooling.standard_errors(
            scores.double(), torch.from_numpy(bags.offsets), weights, torch.from_numpy(index)
        ).numpy()
        return errors if isinstance(X, Bags) else errors[0]

    def _scores(self, bags: Bags) -> tuple[Tensor, NDArray[np.int64]]:
        """Scores of the rows in use, and the one of each entry."""
        used, index = used_rows(bags.index, bags.rows.shape[0])
        self.network_.eval()
        return encode_rows(self.network_, bags, used).cpu(), index

    def _network(
        self, shape: tuple[int, ...], n_classes: int, statistics: tuple[NDArray, NDArray] | None
    ) -> BagNetwork:
        encoder = self._make_scores(shape, n_classes)
        pooling = ShrunkLikelihood if self._starts(encoder) else Likelihood
        shift = _Shift(n_classes) if self.label_weight > 0 or self.training.warmup > 0 else False
        network = BagNetwork(
            encoder, pooling(n_classes, self.prior), None, n_classes,
            prepare=make_standardize(statistics), classify=shift,
        )  # fmt: skip
        return network.to(getattr(torch, self.training.dtype))

    def _start(
        self, network: BagNetwork, learned: Supervision, sampler: Protocol | None, loss: Measure, seed: int
    ) -> bool:
        if self.ridge is None or not self._starts(network.encoder):
            return False
        return start_scores(network, learned, sampler, loss, self.ridge, self.training.weight_decay, seed)

    def _starts(self, encoder: nn.Module) -> bool:
        """Whether training starts from what the encoder learns from labels."""
        return self.ridge is not None and isinstance(encoder, MLP)

    def _check_params(self) -> None:
        super()._check_params()
        given = isinstance(self.ridge, Real) and not isinstance(self.ridge, bool)
        if self.ridge is not None and not (given and 0 < self.ridge < np.inf):
            raise ValueError(f"ridge: expected a number above 0, or None, got {self.ridge!r}.")

    def _restore(self, weights: dict[str, NDArray], learned: dict[str, Any]) -> None:
        if "pooling.threshold" not in weights:  # saved before there was one, or not started from labels
            self.ridge = None
        super()._restore(weights, learned)

    def _make_scores(self, shape: tuple[int, ...], n_classes: int) -> nn.Module:
        hidden: Any = () if self.encoder is None and len(shape) == 1 else self.encoder
        if are_sizes(hidden):
            sizes = (*hidden, n_classes)
            return MLP(int(np.prod(shape)), sizes, self.training.dropout, self.training.input_dropout)
        encoder = make_encoder(self.encoder, shape, self.training)
        return nn.Sequential(encoder, nn.Linear(n_outputs(encoder, shape), n_classes))


class _Shift(nn.Module):
    """Scores at equal prevalences → scores at those of the labelled rows, which are learned."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n_classes))

    def forward(self, scores: Tensor) -> Tensor:
        return scores + self.bias
