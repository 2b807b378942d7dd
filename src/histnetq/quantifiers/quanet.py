"""QuaNet: a recurrent network on a classifier's sorted posteriors and the estimates of simpler methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from histnetq.data.bags import Bags
from histnetq.data.checks import check_whole
from histnetq.data.protocols import Protocol
from histnetq.metrics import Measure
from histnetq.nn import BagNetwork
from histnetq.nn.sequence import SortedLSTM
from histnetq.quantifiers.counting import assigned_shares, misclassification, solve_mixture
from histnetq.quantifiers.likelihood import maximise_likelihood
from histnetq.quantifiers.posteriors import ClassifierQuantifier, Floats, Ints, bag_means
from histnetq.quantifiers.trained import TrainedNetwork, check_sizes
from histnetq.training.batches import predict_bags
from histnetq.training.options import Training
from histnetq.training.supervision import Supervision

__all__ = ["QuaNet"]

_N_METHODS = 5
_LEAST = 1e-4  # under the estimates, whose logarithms the network reads


class QuaNet(TrainedNetwork, ClassifierQuantifier):
    """A recurrent network over the sorted posteriors of a bag, joined with the estimates of CC, PCC, ACC, PACC and EMQ.

    Learns from labelled rows: posteriors are cross-fitted, bags are drawn from most of the rows to train the network,
    and the misclassification rates of ACC and PACC come from the others, on which training also validates.

    Parameters
    ----------
    classifier, cv
        See `ClassifierQuantifier`.
    hidden, n_steps : int
        Size of the LSTM, and how many of a bag's sorted rows it reads; see `histnetq.nn.SortedLSTM`.
    head, loss, sampler, training, random_state
        As in `HistNetQ`.

    References
    ----------
    Esuli, Moreo & Sebastiani (2018), *A recurrent neural network for sentiment quantification*.
    """

    resamples = False

    def __init__(
        self,
        classifier: Any = None,
        *,
        hidden: int = 64,
        n_steps: int = 100,
        head: Sequence[int] = (512,),
        loss: str | Measure = "rae",
        sampler: str | Protocol | None = "auto",
        cv: int | float | None = 5,
        training: Training = Training(),  # noqa: B008 - immutable
        random_state: int | None = None,
    ) -> None:
        self.classifier = classifier
        self.hidden = hidden
        self.n_steps = n_steps
        self.head = head
        self.loss = loss
        self.sampler = sampler
        self.cv = cv
        self.training = training
        self.random_state = random_state

    def _check(self) -> None:
        self._check_params()
        for name in ("hidden", "n_steps"):
            check_whole(name, getattr(self, name))
        check_sizes("head", self.head)

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        n_classes = posteriors.shape[1]
        kind = _weight_kind(weights)
        rows = Bags(posteriors, labels=labels, classes=range(n_classes), weights=weights, weight_kind=kind)

        def make(learned: Supervision, held: Supervision) -> BagNetwork:
            assert held.rows is not None
            apart, w = held.rows.index, held.rows.weights
            assigned = np.eye(n_classes)[posteriors.argmax(1)]
            hard, soft = (misclassification(v[apart], labels[apart], w) for v in (assigned, posteriors))
            return self._network(_Estimates(hard, soft, self.train_prevalences_))

        self._train(Supervision(rows, None), make)

    def _network(self, estimates: _Estimates) -> BagNetwork:
        n_classes = len(estimates.prior)
        pooling = SortedLSTM(n_classes, self.hidden, self.n_steps, estimates, _N_METHODS * n_classes)
        network = BagNetwork(nn.Identity(), pooling, tuple(self.head), n_classes, dropout=self.training.dropout)
        return network.to(getattr(torch, self.training.dtype))

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        bags = Bags(posteriors, index, offsets, weights=weights, weight_kind=_weight_kind(weights))
        return predict_bags(self.network_, bags)

    @property
    def sketch_kind(self) -> None:
        return None

    def _why_no_sketch(self) -> str:
        return "QuaNet reads the sorted rows of a whole bag, parts of it do not add up; use EMQ or PACC."

    def _arrays(self) -> dict[str, NDArray]:
        known: Any = self.network_.pooling.statistics
        rates = {"rates.hard": known.hard, "rates.soft": known.soft}
        return rates | {f"network.{name}": array for name, array in self._network_arrays().items()}

    def _restore(self, weights: dict[str, NDArray], learned: dict[str, Any]) -> None:
        self._restore_classifier(weights)
        estimates = _Estimates(weights.pop("rates.hard"), weights.pop("rates.soft"), self.train_prevalences_)
        with torch.random.fork_rng([]):
            network = self._network(estimates)
        arrays = {name.removeprefix("network."): array for name, array in weights.items()}
        self._restore_network(network, arrays, learned)


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
