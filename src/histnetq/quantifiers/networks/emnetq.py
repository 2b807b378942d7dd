"""EMNetQ: maximum likelihood on class scores that an encoder learns from bags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_number, used_rows
from histnetq.kernels.precision import widest
from histnetq.nn import BagNetwork, Likelihood, ShrunkLikelihood, Standardize
from histnetq.persistence.saving import Arrays, Stored, StoredArrays
from histnetq.quantifiers.networks.deep_quantifier import DeepQuantifier
from histnetq.quantifiers.networks.encoders import Encoder, make_scores
from histnetq.simplex import Floats, Ints
from histnetq.sketches.posteriors import CountedCells, LogOddsCells, NearestPoints
from histnetq.sketches.sketcher import NoSketcher, Sketcher
from histnetq.training.batches import encode_rows, quantify_bags
from histnetq.training.fitting import Start
from histnetq.training.pretraining.emnetq_start import start_scores
from histnetq.training.supervision import Supervision

_CELL_ROWS = 8192  # training rows whose scores the cells of sketches are made from
_RAREST = 1e-6  # prevalence of classes that are absent in training


@dataclass(eq=False, repr=False, kw_only=True)
class EMNetQ(DeepQuantifier):
    """Quantification by maximum likelihood, with the likelihoods learned from bags.

    An encoder maps each row to one score per class, its log-likelihood up to a constant. The estimate is the prevalence
    vector that makes the rows of a bag most likely, the fixed point of expectation maximisation. Training follows the
    gradient through this fixed point and so learns scores with accurate estimates. The only other parameter is a
    threshold below which prevalences are shrunk. A linear encoder has few parameters and can learn from few bags.

    Parameters
    ----------
    encoder : None, tuple of int, nn.Module or factory, default=None
        Maps rows to scores. None makes scores linear in the features (a CNN for images), and a tuple has the sizes of
        hidden layers. A module is copied, a factory is called with the shape of a row, and a linear layer of scores is
        added to both.
    loss : str or callable, default="ae"
        A name from `histnetq.metrics`, or any differentiable ``(p_true, p_pred)`` or ``(p_true, p_pred, sizes)``.
    sampler : "auto", None or protocol, default="auto"
        Protocol that draws the training bags. "auto" is `Mixer` for bags, `APP` for labelled rows, and `Combined` for
        both. None trains on the given bags only.
    label_weight : float, default=0.0
        Weight of the cross-entropy of the scores, plus a learned constant per class, on rows with known labels.
    training : Training, default=Training()
        Epochs, learning rate, device and other options.
    random_state : int, default=None
        Seed of weights, splits and draws; None draws a new seed each time.
    ridge : float or None, default=0.01
        With a number, the encoder is pretrained: it learns the labels of rows, and its scores are adjusted to the loss.
        Training keeps the pretrained weights, as epoch 0, unless an epoch improves them. Unknown labels are recovered
        from the proportions of all bags that contain the row by logistic regressions, and the number is their penalty.
        A linear encoder is also such a regression. With None, or if fewer than 100 rows are distinct, training starts
        from random scores.
    prior : float, default=0.5
        Pseudo-count of each class in a bag; see `histnetq.nn.Likelihood`. It stabilises the estimates of tiny bags. It
        also prevents estimates of exactly 0 at the start of training, which have no gradient.

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
        Description of the validation data.
    interrupted_ : str
        The moment of a keyboard interruption of training, such as "after epoch 2 of 200"; empty without one.
    learned_nothing_ : str
        Warning that the network is no better than one constant estimate for all bags; empty if it is better.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.

    Examples
    --------
    Training uses no row labels, but rows get class probabilities:

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

    stored: ClassVar[tuple[Stored, ...]] = (*DeepQuantifier.stored, StoredArrays(cell_rows_="posterior: rows classes?"))

    def standard_errors(self, X: Any) -> NDArray[np.float64]:
        """Compute the standard errors of the estimates, before small ones are shrunk, from the observed information.

        They include the number of rows of a bag and how well the rows separate the classes, but not errors of the
        scores. The intervals of `calibrate` and `predict_interval` are valid for any scores.

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

    def _finish(self, given: Supervision) -> None:
        part = given.rows if given.bags is None else given.bags
        assert part is not None
        rows = np.unique(part.index)
        chosen = np.sort(np.random.default_rng(0).permutation(rows)[:_CELL_ROWS])
        self.cell_rows_: NDArray[np.float32] | None = self._posteriors(encode_rows(self.network_, part, chosen))
        self._cells: LogOddsCells | NearestPoints | None = None

    def _sketcher(self) -> Sketcher:
        known = getattr(self, "cell_rows_", None)
        if known is None or not len(known):
            return NoSketcher("EMNetQ was fitted by an earlier version, which kept no rows for sketches; fit it again.")
        if getattr(self, "_cells", None) is None:
            self._cells = LogOddsCells() if len(self.classes_) == 2 else NearestPoints(known, None)

        def posteriors(bags: Bags) -> tuple[Floats, Ints]:
            scores, index = self._scores(bags)
            return self._posteriors(scores).astype(np.float64), index

        assert self._cells is not None
        return CountedCells(posteriors, self._of_cells, known, self._cells)

    def _posteriors(self, scores: Tensor) -> NDArray[np.float32]:
        """Return the class probabilities that rows would have among training rows, (n_rows, n_classes).

        Bags near the training prevalences then lose nothing by cells: at these prevalences, the mean posterior of the
        rows of a cell contains all that the likelihood needs.
        """
        p: NDArray[np.float32] = (scores.cpu().double() + self._log_training()).softmax(1).float().numpy()
        return p

    def _log_training(self) -> Tensor:
        return torch.from_numpy(np.log(np.maximum(self.train_prevalences_, _RAREST)))

    @torch.inference_mode()
    def _of_cells(self, points: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        """Estimate bags from the cells of their rows, given the mean posterior of each cell."""
        device = next(self.network_.parameters()).device
        scores = (torch.from_numpy(points).log() - self._log_training()).to(device, widest(device))
        w = None if weights is None else torch.as_tensor(weights, dtype=widest(device), device=device)
        entries = torch.from_numpy(offsets).to(device), w, torch.from_numpy(index).to(device)
        return quantify_bags(self.network_.eval(), self.network_.pooling(scores, *entries)).numpy()

    _row_output = "scores"

    def _log_likelihoods(self, bags: Bags) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        scores, index = self._scores(bags)
        return scores.double().numpy(), index

    def _scores(self, bags: Bags) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the scores of each row of the bags once, and the position of each entry among them."""
        used, index = used_rows(bags.index, bags.rows.shape[0])
        self.network_.eval()
        return encode_rows(self.network_, bags, used).cpu(), index

    def _network(self, shape: tuple[int, ...], n_classes: int, prepare: Standardize | None) -> BagNetwork:
        encoder = make_scores(self.encoder, shape, n_classes, self.training)
        pooling = Likelihood if self.ridge is None else ShrunkLikelihood
        shift = _Shift(n_classes) if self.label_weight > 0 or self.training.warmup > 0 else False
        network = BagNetwork(encoder, pooling(n_classes, self.prior), None, n_classes, prepare=prepare, classify=shift)
        return network.to(getattr(torch, self.training.dtype))

    def _start(self) -> Start | None:
        return None if self.ridge is None else partial(start_scores, self.ridge)

    def _check_params(self) -> None:
        super()._check_params()
        check_number("prior", self.prior, 0, 1e6, what="a pseudo-count")

    def _rebuilt(self, arrays: Arrays) -> BagNetwork:
        if "pooling.threshold" not in arrays:  # saved by an earlier version, or not pretrained
            self.ridge = None
        return super()._rebuilt(arrays)


class _Shift(nn.Module):
    """A learned bias of each class, which adapts scores to the prevalences of the labelled rows."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n_classes))

    def forward(self, scores: Tensor) -> Tensor:
        return scores + self.bias
