"""Maximum likelihood as a pooling: from the class scores of its rows to the most likely prevalences of a bag.

The scores of row *i* are ``s_ic = log P(x_i | c)`` up to a constant per row, such as the logits of a classifier minus
the logarithms of its training prevalences. With weights w, their total W, a pseudo-count a of each of C classes and
``N = W + aC``, the prevalences of a bag are the fixed point of expectation maximisation

    p_c = (a + Σ_i w_i r_ic) / N,    r_i = softmax(s_i + log p),

which maximises ``Σ_i w_i log Σ_c p_c exp(s_ic) + a Σ_c log p_c`` over the simplex. Without pseudo-counts classes may be
absent, ``p_c = 0``; their responsibilities r are zero, and so are all gradients through them.

The backward pass does not need the iterations. At the fixed point, a gradient u of the prevalences has the gradient

    ∂/∂s_i = w_i r_i ∘ (y − r_i · y),    R y = p ∘ (u − p · u),    R = Σ_i w_i r_i r_iᵀ + a I,

of the scores and the gradient ``r_i · y`` of the weights, with one system of equations per bag over the classes that
are present. The inverse of the observed information on the simplex is ``diag(p) R⁻¹ diag(p) − p pᵀ / N``.

References
----------
Saerens, Latinne & Decaestecker (2002), *Adjusting the outputs of a classifier to new a priori probabilities*.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from histnetq.kernels import backend
from histnetq.kernels.plain import Entries
from histnetq.kernels.precision import widest
from histnetq.nn.pooling import Pooling, bag_totals, check_entries

_WELL_POSED = 1e-8  # with larger squared pivots, a system is solved by Cholesky factors
_FIRST_THRESHOLD = -0.45  # exp(−4.5) = (a tenth)²
_LARGEST = 10.0  # log squared threshold at which hardly more than one class remains
_PACE = 10.0  # factor of the parameter, which makes the threshold learn faster
_SINGULAR = 1e-12  # eigenvalues of systems with a unit diagonal that count as zero


class Likelihood(Pooling):
    """A layer that returns the maximum-likelihood prevalences of bags, given the class scores of the rows.

    Rows with a nearly certain class have small gradients, and classes that the rows hardly distinguish have large ones.
    A prior limits both.

    Parameters
    ----------
    n_classes : int
        Number of classes.
    prior : float, default 0
        Pseudo-count of each class.

    Examples
    --------
    >>> layer = Likelihood(2)
    >>> scores = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [1.0, 0.0]])
    >>> layer(scores, offsets=torch.tensor([0, 3, 4]))
    tensor([[0.6729, 0.3271],
            [1.0000, 0.0000]])
    >>> Likelihood(2, prior=1.0)(scores, offsets=torch.tensor([0, 3, 4]))
    tensor([[0.6005, 0.3995],
            [0.6013, 0.3987]])
    """

    def __init__(self, n_classes: int, prior: float = 0.0) -> None:
        super().__init__(n_classes, n_classes)
        self.prior = _check_prior(prior)

    def pool(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        return _Maximise.apply(rows, weights, Entries(index, offsets, weights), self.prior)

    def standard_errors(
        self, rows: Tensor, offsets: Tensor, weights: Tensor | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Compute the standard error of each prevalence from the observed information.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n_classes)
            Class scores of all rows.
        offsets : Tensor of shape (n_bags + 1,)
            Bag *i* holds the entries ``offsets[i]`` to ``offsets[i + 1]``.
        weights : Tensor of shape (n_entries,), optional
            Positive weights of the entries; a weight of k equals k copies. By default all are one.
        index : Tensor of shape (n_entries,), optional
            The row of each entry. By default entry *e* is row *e*.

        Returns
        -------
        Tensor of shape (n_bags, n_classes)
            Standard errors, in the precision of the rows.

        Examples
        --------
        >>> scores = torch.tensor([[0.0, -99.0]] * 30 + [[-99.0, 0.0]] * 10)
        >>> Likelihood(2).standard_errors(scores, torch.tensor([0, 40]))
        tensor([[0.0685, 0.0685]])
        """
        entries = self._check(rows, offsets, weights, index, may_be_empty=True)
        return _roots(_covariance(rows, entries, self.prior), rows)

    def extra_repr(self) -> str:
        """Describe the layer's parameters.

        Returns
        -------
        str
            Text between the parentheses when the layer is printed.
        """
        return f"n_classes={self.n_features}, prior={self.prior:g}"


class ShrunkLikelihood(Likelihood):
    """`Likelihood` that shrinks small prevalences, which may be due to chance.

    A prevalence p of a bag of total weight n becomes ``p³ / (p² + t² / n)``, divided by the sum over the classes. The
    threshold t is learned. Losses that penalise errors at small prevalences, such as RAE, lead to a large threshold.

    Parameters
    ----------
    n_classes : int
        Number of classes.
    prior : float, default 0
        Pseudo-count of each class.

    Examples
    --------
    >>> layer = ShrunkLikelihood(2)
    >>> layer(torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 3])).detach()
    tensor([[0.6542, 0.3458]])
    """

    def __init__(self, n_classes: int, prior: float = 0.0) -> None:
        super().__init__(n_classes, prior)
        self.threshold = nn.Parameter(torch.tensor(_FIRST_THRESHOLD))

    def pool(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        p = super().pool(rows, index, offsets, weights)
        shrunk = shrink(p, self.threshold, bag_totals(offsets, weights).clamp(min=1).to(p.dtype)[:, None])
        return shrunk / shrunk.sum(1, keepdim=True)


def shrink(prevalences: Tensor, threshold: Tensor, sizes: Tensor) -> Tensor:
    """Shrink prevalences ``(n_bags, n_classes)`` of bags of size n to ``p³ / (p² + t² / n)``, without normalising them.

    The threshold is a tenth of log t², which makes it learn as fast as other parameters. `sizes` is a scalar or
    ``(n_bags, 1)``.

    Examples
    --------
    >>> shrink(torch.tensor([[0.01, 0.99]]), torch.tensor(-0.45), torch.tensor(100.0))
    tensor([[0.0047, 0.9899]])
    """
    squares, squared = prevalences * prevalences, (_PACE * threshold).clamp(-4 * _LARGEST, _LARGEST).exp()
    return prevalences * squares / (squares + squared / sizes)


def maximise(
    scores: Tensor, offsets: Tensor, weights: Tensor | None = None, index: Tensor | None = None, prior: float = 0.0
) -> Tensor:
    """Return the maximum-likelihood prevalences, differentiable with respect to scores and weights.

    Classes with the same scores in all rows of a bag get equal prevalences, and their gradients do not separate them. A
    bag without rows of positive weight gets equal prevalences.

    Parameters
    ----------
    scores : (n_rows, n_classes)
        Log-likelihood of each row under each class, up to a constant per row; −∞ for an impossible class.
    offsets : (n_bags + 1,) of int64
    weights : (n_entries,), optional
        A weight of k equals k copies.
    index : (n_entries,) of int64, optional
        The row of each entry.
    prior : float
        Pseudo-count of each class: the α − 1 of a Dirichlet prior.

    Returns
    -------
    (n_bags, n_classes), on the simplex.

    Examples
    --------
    >>> scores = torch.tensor([[0.0, -1.0], [0.0, -1.0], [-1.0, 0.0]], requires_grad=True)
    >>> p = maximise(scores, torch.tensor([0, 3]))
    >>> p
    tensor([[0.8607, 0.1393]], grad_fn=<...>)
    >>> p[0, 0].backward()
    >>> scores.grad
    tensor([[ 0.1534, -0.1534],
            [ 0.1534, -0.1534],
            [ 0.6138, -0.6138]])
    """
    entries = check_entries(scores, offsets, weights, index, may_be_empty=True)
    return _Maximise.apply(scores, entries.weights, entries, _check_prior(prior))


def covariance(
    scores: Tensor, offsets: Tensor, weights: Tensor | None = None, index: Tensor | None = None, prior: float = 0.0
) -> Tensor:
    """Return the covariance of the prevalences from the observed information; the parameters are those of `maximise`.

    Absent classes have zero covariance. Classes that the rows do not distinguish have a huge but finite one.

    Returns
    -------
    (n_bags, n_classes, n_classes) of float64 if the device supports it; rows and columns sum to zero.

    Examples
    --------
    If the class of every row is certain, the variance is p (1 − p) / n:

    >>> scores = torch.tensor([[0.0, -99.0]] * 30 + [[-99.0, 0.0]] * 10)
    >>> covariance(scores, torch.tensor([0, 40]))
    tensor([[[ 0.0047, -0.0047],
             [-0.0047,  0.0047]]], dtype=torch.float64)
    """
    entries = check_entries(scores, offsets, weights, index, may_be_empty=True)
    return _covariance(scores, entries, _check_prior(prior))


@torch.no_grad()
def _covariance(scores: Tensor, entries: Entries, prior: float) -> Tensor:
    """Compute the covariance for checked entries."""
    likelihoods, totals, entries = _prepare(scores, entries, prior)
    p, curvature = backend(likelihoods, "likelihood_").maximise(likelihoods, entries, totals, prior, True)
    system, scale = _system(curvature, p)
    values, vectors = torch.linalg.eigh(system.nan_to_num())
    half = vectors * values.clamp(min=_SINGULAR).rsqrt()[:, None, :] * torch.where(p == 0, 0.0, scale)[:, :, None]
    return (half @ half.mT - p[:, :, None] * p[:, None, :]) / totals[:, None, None]


def standard_errors(
    scores: Tensor, offsets: Tensor, weights: Tensor | None = None, index: Tensor | None = None, prior: float = 0.0
) -> Tensor:
    """Return the standard error of each prevalence; the parameters are those of `maximise`.

    Returns
    -------
    (n_bags, n_classes)

    Examples
    --------
    >>> standard_errors(torch.tensor([[0.0, -99.0]] * 30 + [[-99.0, 0.0]] * 10), torch.tensor([0, 40]))
    tensor([[0.0685, 0.0685]])
    """
    return _roots(covariance(scores, offsets, weights, index, prior), scores)


def _roots(covariances: Tensor, like: Tensor) -> Tensor:
    return covariances.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt().to(like.dtype)


class _Maximise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, weights: Tensor | None, entries: Entries, prior: float) -> Tensor:
        likelihoods, totals, entries = _prepare(scores, entries, prior)
        curved = any(ctx.needs_input_grad)
        p, curvature = backend(likelihoods, "likelihood_").maximise(likelihoods, entries, totals, prior, curved)
        ctx.save_for_backward(likelihoods, p, curvature, totals, *entries)
        return p.to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        likelihoods, p, curvature, totals, *entries = ctx.saved_tensors
        grad = grads[0].to(p.dtype)
        system, scale = _system(curvature, p)
        solution = _solve(system, (grad - (p * grad).sum(1, keepdim=True)) * scale)
        pull = torch.where(p == 0, 0.0, solution * scale / (p * totals[:, None]))
        scatter = backend(likelihoods, "likelihood_").scatter
        grad_scores, means = scatter(likelihoods, p, pull, Entries(*entries), grads[0].dtype)
        return grad_scores, means if ctx.needs_input_grad[1] else None, None, None


def _system(curvature: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Return the curvature scaled to a unit diagonal, also for absent classes, and the scale of each class."""
    diagonal = curvature.diagonal(dim1=1, dim2=2)
    scale = torch.where(diagonal > 0, diagonal, 1.0).rsqrt()
    system = curvature * scale[:, :, None] * scale[:, None, :]
    return system + torch.diag_embed((p == 0).to(system.dtype)), scale


def _solve(system: Tensor, sides: Tensor) -> Tensor:
    """Solve symmetric systems, by least squares with the smallest norm if they are singular: (n_bags, n)."""
    factor, info = torch.linalg.cholesky_ex(system)
    solution = torch.cholesky_solve(sides[:, :, None], factor)[:, :, 0]
    ill = (info > 0) | ~(factor.diagonal(dim1=1, dim2=2).square().amin(1) > _WELL_POSED)
    if bool(ill.any()):
        values, vectors = torch.linalg.eigh(system[ill].nan_to_num())
        parts = (vectors.mT @ sides[ill][:, :, None])[:, :, 0]
        parts = torch.where(values > _SINGULAR, parts / values, 0.0 * parts)  # NaN stays NaN
        solution[ill] = (vectors @ parts[:, :, None])[:, :, 0]
    return solution


def _prepare(scores: Tensor, entries: Entries, prior: float) -> tuple[Tensor, Tensor, Entries]:
    """Return likelihoods up to a factor per row, the total of weights and pseudo-counts per bag, and widened entries.

    All are float64 if the device supports it. A bag without weights and pseudo-counts has the smallest positive total.
    """
    if scores.ndim != 2 or not scores.shape[1] or not scores.is_floating_point():
        shape = tuple(scores.shape)
        raise ValueError(f"scores: expected floats of shape (n_rows, n_classes), got {scores.dtype} of shape {shape}.")
    kind = widest(scores.device)
    wide = scores.detach().to(kind, copy=True)
    # The maximum of each row takes as long as all exponentials. On the CPU, a cheap check may make it unnecessary.
    if scores.device.type != "cpu" or not _moderate(scores.detach()):
        wide -= wide.amax(1, keepdim=True)
    index, offsets, weights = entries
    totals = (bag_totals(offsets, weights) + prior * scores.shape[1]).clamp(min=torch.finfo(kind).tiny)
    return wide.exp_(), totals, Entries(index, offsets, None if weights is None else weights.detach().to(kind))


def _moderate(scores: Tensor) -> bool:
    """Return whether the exponentials of the scores can neither overflow nor vanish."""
    low, high = scores.aminmax() if scores.numel() else (torch.zeros(()), torch.zeros(()))
    return bool(low > -100) and bool(high < 100)


def _check_prior(prior: float) -> float:
    if not isinstance(prior, Real) or not 0 <= prior < float("inf"):
        raise ValueError(f"prior: expected a pseudo-count of at least 0, got {prior!r}.")
    return prior
