"""EMNetQ: an encoder that learns from proportions the scores by which maximum likelihood finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_number, used_rows
from histnetq.nn import BagNetwork, Likelihood, ShrunkLikelihood, Standardize
from histnetq.persistence.saving import Arrays
from histnetq.quantifiers.networks.deep_quantifier import DeepQuantifier, check_ridge
from histnetq.quantifiers.networks.encoders import Encoder, make_scores
from histnetq.training.batches import encode_rows
from histnetq.training.fitting import Start
from histnetq.training.pretraining.emnetq_start import start_scores


@dataclass(eq=False, repr=False, kw_only=True)
class EMNetQ(DeepQuantifier):
    """Quantification by maximum likelihood, with the likelihoods learned from bags.

    An encoder gives each row one score per class, its log-likelihood up to a constant; the prevalences of a bag are
    those under which its rows are most likely, the fixed point of expectation maximisation. Training follows the
    gradient through that fixed point, so that the scores become those that make the estimates right. Little else is
    learned (a threshold below which prevalences are shrunk): a linear encoder has few parameters, and few bags teach
    them.

    Parameters
    ----------
    encoder : None, tuple of int, nn.Module or factory, default=None
        What turns rows into scores. None gives scores linear in the features (a CNN for images), a tuple the hidden
        layers of an MLP; a linear layer of scores follows a module, which is copied, or what a factory makes for the
        shape of a row.
    loss : str or callable, default="ae"
        A name from `histnetq.metrics`, or any differentiable ``(p_true, p_pred)`` or ``(p_true, p_pred, sizes)``.
    sampler : "auto", None or protocol, default="auto"
        Where training bags come from. "auto" is `Mixer` for bags, `APP` for labelled rows, both for both. None trains
        on the given bags alone.
    label_weight : float, default=0.0
        Weight of the cross-entropy of the scores, shifted by a learned constant per class, on rows of known labels.
    training : Training, default=Training()
        Epochs, learning rate, device and so on.
    random_state : int, default=None
        Seed of weights, splits and draws; None takes another one each time.
    ridge : float or None, default=0.01
        Training starts from scores that the encoder learns from the labels of rows, and from those that follow from the
        proportions of all the bags that a row is in, and that are adjusted to the loss; the best epoch may be 0, the
        start. `ridge` is the penalty of the logistic regressions that this takes, which linear scores come from. None
        starts from random scores, as do fewer than 100 different rows.
    prior : float, default=0.5
        Pseudo-count of each class in a bag; see `histnetq.nn.Likelihood`. It steadies the estimates of tiny bags, and
        keeps classes from being estimated as absent in all bags, as scores at the start of training may have it:
        without a prior, nothing is learned about a class where it is absent.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    network_ : BagNetwork
        The trained network, with the weights of the best epoch.
    history_ : dict of arrays
        Per epoch: `epoch`, `train_loss`, `validation_loss`, `lr`, `seconds`.
    best_epoch_ : int
        The epoch of the lowest validation loss.
    validation_loss_ : float
        The loss of that epoch.
    split_ : str
        What the network was validated on, in words.
    interrupted_ : str
        Where training was interrupted from the keyboard, such as "after epoch 2 of 200"; empty if it was not.
    learned_nothing_ : str
        A sentence that tells so if the network is no better than one estimate for all bags; empty if it is better.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.

    Examples
    --------
    Row labels are never seen, and yet the rows get probabilities:

    >>> from histnetq import Training
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=60)
    >>> labels = [(rng.uniform(size=50) < share).astype(int) for share in p]
    >>> bags = Bags.from_arrays([rng.normal(y[:, None], 1.0, size=(50, 3)) for y in labels], np.stack([1 - p, p], 1))
    >>> q = EMNetQ(training=Training(epochs=20, lr=0.03), random_state=0).fit(bags)
    >>> float((q.predict_rows(bags).argmax(1) == np.concatenate(labels)).mean()) > 0.8
    True
    """

    encoder: Encoder = field(default=None, kw_only=False)
    ridge: float | None = 0.01
    prior: float = 0.5

    def standard_errors(self, X: Any) -> NDArray[np.float64]:
        """Estimate the standard errors of the estimates, before small ones are shrunk, by the observed information.

        They know how many rows a bag has and how well these tell the classes apart, and nothing of errors in the
        scores themselves: compare `calibrate` and `predict_interval`, which are right whatever the scores.

        Parameters
        ----------
        X : Bags, or array of rows
            Several bags, or one bag as an array of its rows.

        Returns
        -------
        (n_bags, n_classes), or (n_classes,) for an array
            One standard error for each estimate.

        Examples
        --------
        >>> from histnetq import Training
        >>> X, y = np.array([[0.0], [1.0]] * 60) + np.arange(120)[:, None] / 1000, ["a", "b"] * 60
        >>> EMNetQ(training=Training(epochs=2), random_state=0).fit(X, y).standard_errors(X).shape
        (2,)
        """
        bags = self._bags_to_estimate(X)
        scores, index = self._scores(bags)
        sized = bags.sized_weights()
        weights = None if sized is None else torch.as_tensor(sized, dtype=torch.float64)
        pooling = self.network_.pooling
        assert isinstance(pooling, Likelihood)
        errors = pooling.standard_errors(
            scores.double(), torch.from_numpy(bags.offsets), weights, torch.from_numpy(index)
        ).numpy()
        return errors if self._are_several(X) else errors[0]

    def _standard_errors(self) -> Callable[[Bags], NDArray[np.float64]]:
        return self.standard_errors

    def _log_likelihoods(self, bags: Bags) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        scores, index = self._scores(bags)
        return scores.double().numpy(), index

    def _scores(self, bags: Bags) -> tuple[Tensor, NDArray[np.int64]]:
        """Scores of the rows in use, and the one of each entry."""
        used, index = used_rows(bags.index, bags.rows.shape[0])
        self.network_.eval()
        return encode_rows(self.network_, bags, used).cpu(), index

    def _network(self, shape: tuple[int, ...], n_classes: int, prepare: Standardize | None) -> BagNetwork:
        encoder = make_scores(self.encoder, shape, n_classes, self.training)
        pooling = Likelihood if self.ridge is None else ShrunkLikelihood
        shift = _Shift(n_classes) if self.label_weight > 0 or self.training.warmup > 0 else False
        network = BagNetwork(
            encoder, pooling(n_classes, self.prior), None, n_classes,
            prepare=prepare, classify=shift,
        )  # fmt: skip
        return network.to(getattr(torch, self.training.dtype))

    def _start(self) -> Start | None:
        return None if self.ridge is None else partial(start_scores, self.ridge, self.training.weight_decay)

    def _check_params(self) -> None:
        super()._check_params()
        check_ridge(self.ridge)
        check_number("prior", self.prior, 0, 1e6, what="a pseudo-count")

    def _rebuilt(self, arrays: Arrays) -> BagNetwork:
        if "pooling.threshold" not in arrays:  # saved before there was one, or not started from labels
            self.ridge = None
        return super()._rebuilt(arrays)


class _Shift(nn.Module):
    """Scores at equal prevalences → scores at those of the labelled rows, which are learned."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n_classes))

    def forward(self, scores: Tensor) -> Tensor:
        return scores + self.bias
