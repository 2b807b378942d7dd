"""QuaNet: a recurrent network on a classifier's sorted posteriors and the estimates of simpler methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_integer
from histnetq.bags.protocols import SamplingProtocol
from histnetq.metrics import Measure
from histnetq.nn import BagNetwork
from histnetq.nn.sequence import SortedLSTM
from histnetq.persistence.saving import Arrays, Stored, checked_numbers
from histnetq.quantifiers.classical.counting import assigned_shares, solve_mixture
from histnetq.quantifiers.classical.emq import maximise_likelihood
from histnetq.quantifiers.classical.posteriors import Floats, Ints, PosteriorQuantifier
from histnetq.quantifiers.classical.stored_posteriors import StoredClassifier
from histnetq.quantifiers.networks.encoders import MOST_UNITS, check_sizes
from histnetq.quantifiers.networks.stored_network import StoredNetwork, keep_trained
from histnetq.quantifiers.row_posteriors import confusions_of, misclassification
from histnetq.sketches.posteriors import bag_means
from histnetq.sketches.sketcher import NoSketcher, Sketcher
from histnetq.training.batches import predict_bags
from histnetq.training.fitting import Task, check_task
from histnetq.training.options import Training
from histnetq.training.supervision import Supervision

_N_METHODS = 5
_MOST_STEPS = 10_000
_LEAST = 1e-4  # added to the estimates before the logarithm


class _StoredRates(Stored):
    """The misclassification rates of the estimates that the network reads."""

    def arrays(self, model: Any) -> Arrays:
        known: Any = model.network_.pooling.statistics
        return {"rates.hard": known.hard, "rates.soft": known.soft}

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        """Check the rates, which `StoredNetwork` uses to rebuild the network."""
        for name in ("rates.hard", "rates.soft"):
            arrays[name] = checked_numbers(
                name, arrays[name], "share: classes classes", {"classes": len(model.classes_)}
            )


@dataclass(eq=False, repr=False, kw_only=True)
class QuaNet(PosteriorQuantifier):
    """A recurrent network that reads the sorted posteriors of a bag and the estimates of CC, PCC, ACC, PACC and EMQ.

    It learns from labelled rows. Their posteriors are cross-fitted, and bags drawn from most of the rows train the
    network. The remaining rows are held out: they give the misclassification rates of ACC and PACC, and the validation
    bags.

    Parameters
    ----------
    classifier : str or scikit-learn classifier with `predict_proba`, default="logistic"
        A name ("logistic" on scaled features, "forest", "boosting", "mlp" or "bayes"), or a classifier. A classifier is
        cloned, never fitted in place; with ``cv=None`` it is used as it is.
    cv : int, float or None, default=5
        Number of cross-fitting folds, or the held-out fraction of the rows. None means that the classifier is already
        fitted; then pass to `fit` only rows that the classifier was not trained on.
    random_state : int, default=None
        Seed of weights, splits and draws; None draws a new seed each time.
    hidden : int, default=64
        Size of the LSTM; see `histnetq.nn.SortedLSTM`.
    n_steps : int, default=100
        Number of sorted rows of a bag that the LSTM reads, at most 10,000.
    head : tuple of int, default=(512,)
        Hidden layers between the pooled bag and the prevalences.
    loss : str or callable, default="ae"
        A name from `histnetq.metrics`, or any differentiable ``(p_true, p_pred)`` or ``(p_true, p_pred, sizes)``.
    sampler : "auto" or protocol, default="auto"
        Protocol that draws training bags from the labelled rows; "auto" is `APP`.
    training : Training, default=Training()
        Epochs, learning rate, device and other options.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    classifier_ : classifier
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None after `fit_posteriors`.
    network_ : BagNetwork
        The trained network, with the weights of the best epoch.
    history_ : dict of arrays
        Per epoch: `epoch`, `train_loss`, `validation_loss`, `lr`, `seconds`.
    best_epoch_ : int
        The epoch of the lowest validation loss.
    validation_loss_ : float
        The loss of that epoch.
    split_ : str
        Description of the validation data.
    interrupted_ : str
        The moment of a keyboard interruption of training, such as "after epoch 2 of 200"; empty without one.
    learned_nothing_ : str
        Warning that the network is no better than one constant estimate for all bags; empty if it is better.

    References
    ----------
    Esuli, Moreo & Sebastiani (2018), *A recurrent neural network for sentiment quantification*.

    Examples
    --------
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 20), [0, 0, 1, 1] * 20
    >>> few = Training(epochs=1, bags_per_epoch=20, validation_bags=10)
    >>> QuaNet(hidden=4, n_steps=8, training=few, random_state=0).fit(X, y).predict(X).shape
    (2,)
    """

    hidden: int = 64
    n_steps: int = 100
    head: Sequence[int] = (512,)
    loss: str | Measure = "ae"
    sampler: str | SamplingProtocol | None = "auto"
    training: Training = Training()  # noqa: RUF009 - immutable

    resamples: ClassVar[bool] = False
    stored = (StoredClassifier(), _StoredRates(), StoredNetwork("network."))

    def _check_params(self) -> None:
        super()._check_params()
        check_task(self)
        check_integer("hidden", self.hidden, 1, MOST_UNITS)
        check_integer("n_steps", self.n_steps, 1, _MOST_STEPS)
        check_sizes("head", self.head)

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        n_classes = posteriors.shape[1]
        kind = _weight_kind(weights)
        given = Bags(posteriors, labels=labels, classes=range(n_classes), weights=weights, weight_kind=kind)

        def make(learned: Supervision, held: Supervision) -> BagNetwork:
            assert held.rows is not None
            rows = posteriors[held.rows.index], labels[held.rows.index], held.rows.weights
            return self._network(_Estimates(confusions_of(*rows), misclassification(*rows), self.train_prevalences_))

        keep_trained(self, Task(self).train(Supervision(given, None), make))

    def _network(self, estimates: _Estimates) -> BagNetwork:
        n_classes = len(estimates.prior)
        pooling = SortedLSTM(n_classes, self.hidden, self.n_steps, estimates, _N_METHODS * n_classes)
        network = BagNetwork(nn.Identity(), pooling, tuple(self.head), n_classes, dropout=self.training.dropout)
        return network.to(getattr(torch, self.training.dtype))

    def _rebuilt(self, arrays: Arrays) -> BagNetwork:
        return self._network(_Estimates(arrays["rates.hard"], arrays["rates.soft"], self.train_prevalences_))

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        bags = Bags(posteriors, index, offsets, weights=weights, weight_kind=_weight_kind(weights))
        return predict_bags(self.network_, bags)

    def _sketcher(self) -> Sketcher:
        return NoSketcher("QuaNet reads the sorted rows of a whole bag, parts of it do not add up; use EMQ or PACC.")


def _weight_kind(weights: NDArray | None) -> str:
    return "count" if weights is None or weights.dtype.kind in "iu" else "survey"


class _Estimates:
    """Logarithms of the estimates of CC, PCC, ACC, PACC and EMQ: (n_bags, 5 · n_classes)."""

    def __init__(self, hard: Floats, soft: Floats, prior: Floats) -> None:
        self.hard, self.soft, self.prior = hard, soft, prior

    def __call__(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        posteriors, entries, starts = (t.cpu().numpy() for t in (rows.double(), index, offsets))
        w = None if weights is None else weights.cpu().numpy()
        counted = assigned_shares(posteriors, entries, starts, w)
        mean = bag_means(posteriors, entries, starts, w)
        estimates = [
            counted,
            mean,
            solve_mixture(self.hard, counted),
            solve_mixture(self.soft, mean),
            maximise_likelihood(posteriors, self.prior, entries, starts, w),
        ]
        return torch.from_numpy(np.log(np.concatenate(estimates, axis=1) + _LEAST))
