"""Maximum likelihood as a pooling: the rows' class scores → the prevalences under which a bag is most likely.

The scores of row *i* are ``s_ic = log P(x_i | c)`` up to a constant of the row, such as the logits of a classifier
minus the logarithms of the prevalences it was trained at. With weights w, their total W, a pseudo-count a of each of C
classes and ``N = W + aC``, the prevalences of a bag are the fixed point of expectation maximisation

    p_c = (a + Σ_i w_i r_ic) / N,    r_i = softmax(s_i + log p),

which maximises ``Σ_i w_i log Σ_c p_c exp(s_ic) + a Σ_c log p_c`` over the simplex. Without pseudo-counts classes may be
absent, ``p_c = 0``; their responsibilities r are zero, and so are all gradients through them.

Nothing of the iterations is kept. At the fixed point, a gradient u of the prevalences pulls at the scores by

    ∂/∂s_i = w_i r_i ∘ (y − r_i · y),    R y = p ∘ (u − p · u),    R = Σ_i w_i r_i r_iᵀ + a I,

and at the weights by ``r_i · y``: one system of equations per bag, over the classes that are present. The inverse of
the observed information on the simplex is ``diag(p) R⁻¹ diag(p) − p pᵀ / N``.

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

_WELL_POSED = 1e-8  # squared pivots from which on a system is solved as it is
_FIRST_THRESHOLD = -0.45  # exp(−4.5) = (a tenth)²
_LARGEST = 10.0  # logarithm of a squared threshold that leaves hardly more than one class
_PACE = 10.0  # at which the logarithm of a squared threshold is learned
_SINGULAR = 1e-12  # eigenvalues, of systems with a diagonal of ones, that count as zero


class Likelihood(Pooling):
    """Prevalences of maximum likelihood, given the class scores of the rows; `maximise` as a layer.

    Rows that all but belong to one class pass little gradient on, and classes that the rows hardly tell apart a lot: a
    prior keeps both in bounds.

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
            What stands between the brackets of the layer's repr.
        """
        return f"n_classes={self.n_features}, prior={self.prior:g}"


class ShrunkLikelihood(Likelihood):
    """`Likelihood` that shrinks small prevalences: one of a few standard errors may well be nothing.

    A prevalence p of a bag of total weight n becomes ``p³ / (p² + t² / n)``, brought back to the simplex. The
    threshold t is learned: the more the loss minds errors at small prevalences, as RAE does, the larger it gets.

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
    """Shrink small prevalences p of bags of size n to ``p³ / (p² + t² / n)``, which do not sum to one.

    Parameters
    ----------
    prevalences : (n_bags, n_classes)
    threshold : scalar
        A tenth of the logarithm of t², so that it is learned at the pace of other parameters.
    sizes : scalar or (n_bags, 1)

    Returns
    -------
    (n_bags, n_classes)

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
    """Prevalences of maximum likelihood, differentiable by the scores and by weights.

    Where several are equally likely, classes that are alike in all rows of a bag get equal parts, and no gradient asks
    for a difference between them. A bag without rows of positive weight gets equal prevalences.

    Parameters
    ----------
    scores : (n_rows, n_classes)
        Log-likelihood of each row under each class, up to a constant of the row; −∞ for what cannot be.
    offsets : (n_bags + 1,) of int64
    weights : (n_entries,), optional
        A weight of k equals k copies.
    index : (n_entries,) of int64, optional
        The row of each entry.
    prior : float
        Pseudo-count of each class: the α − 1 of a Dirichlet distribution, of whose product with the likelihood the
        maximum is taken.

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
    """Covariance of the prevalences by the observed information; called like `maximise`.

    Classes that are absent have none. Classes that the rows do not tell apart have a huge one, yet finite.

    Returns
    -------
    (n_bags, n_classes, n_classes) of float64 where the device has it; rows and columns sum to zero.

    Examples
    --------
    Without doubt about any row's class, that of counts, p (1 − p) / n:

    >>> scores = torch.tensor([[0.0, -99.0]] * 30 + [[-99.0, 0.0]] * 10)
    >>> covariance(scores, torch.tensor([0, 40]))
    tensor([[[ 0.0047, -0.0047],
             [-0.0047,  0.0047]]], dtype=torch.float64)
    """
    entries = check_entries(scores, offsets, weights, index, may_be_empty=True)
    return _covariance(scores, entries, _check_prior(prior))


@torch.no_grad()
def _covariance(scores: Tensor, entries: Entries, prior: float) -> Tensor:
    """Compute the covariance for entries that are checked."""
    likelihoods, totals, entries = _prepare(scores, entries, prior)
    p, curvature = backend(likelihoods, "likelihood_").maximise(likelihoods, entries, totals, prior, True)
    system, scale = _system(curvature, p)
    values, vectors = torch.linalg.eigh(system.nan_to_num())
    half = vectors * values.clamp(min=_SINGULAR).rsqrt()[:, None, :] * torch.where(p == 0, 0.0, scale)[:, :, None]
    return (half @ half.mT - p[:, :, None] * p[:, None, :]) / totals[:, None, None]


def standard_errors(
    scores: Tensor, offsets: Tensor, weights: Tensor | None = None, index: Tensor | None = None, prior: float = 0.0
) -> Tensor:
    """Standard error of each prevalence, the root of the diagonal of `covariance`; called like `maximise`.

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
    """The curvature scaled to a diagonal of ones, ones for absent classes included, and the scale of each class."""
    diagonal = curvature.diagonal(dim1=1, dim2=2)
    scale = torch.where(diagonal > 0, diagonal, 1.0).rsqrt()
    system = curvature * scale[:, :, None] * scale[:, None, :]
    return system + torch.diag_embed((p == 0).to(system.dtype)), scale


def _solve(system: Tensor, sides: Tensor) -> Tensor:
    """(n_bags, n): solutions of symmetric systems; of singular ones, the shortest that comes nearest."""
    factor, info = torch.linalg.cholesky_ex(system)
    solution = torch.cholesky_solve(sides[:, :, None], factor)[:, :, 0]
    ill = (info > 0) | ~(factor.diagonal(dim1=1, dim2=2).square().amin(1) > _WELL_POSED)
    if bool(ill.any()):
        values, vectors = torch.linalg.eigh(system[ill].nan_to_num())
        parts = (vectors.mT @ sides[ill][:, :, None])[:, :, 0]
        parts = torch.where(values > _SINGULAR, parts / values, 0.0 * parts)  # what is not a number stays that
        solution[ill] = (vectors @ parts[:, :, None])[:, :, 0]
    return solution


def _prepare(scores: Tensor, entries: Entries, prior: float) -> tuple[Tensor, Tensor, Entries]:
    """Likelihoods up to a factor of the row, total weight and pseudo-counts of each bag, and entries of wide weights.

    All are of float64 where the device has it. A bag of neither weight nor pseudo-counts has the least positive total.
    """
    if scores.ndim != 2 or not scores.shape[1] or not scores.is_floating_point():
        shape = tuple(scores.shape)
        raise ValueError(f"scores: expected floats of shape (n_rows, n_classes), got {scores.dtype} of shape {shape}.")
    kind = widest(scores.device)
    wide = scores.detach().to(kind, copy=True)
    # The largest of each row takes as long as all exponentials; on the CPU, where asking is cheap, it may be spared.
    if scores.device.type != "cpu" or not _moderate(scores.detach()):
        wide -= wide.amax(1, keepdim=True)
    index, offsets, weights = entries
    totals = (bag_totals(offsets, weights) + prior * scores.shape[1]).clamp(min=torch.finfo(kind).tiny)
    return wide.exp_(), totals, Entries(index, offsets, None if weights is None else weights.detach().to(kind))


def _moderate(scores: Tensor) -> bool:
    """Whether no exponential of the scores comes near what overflows or vanishes."""
    low, high = scores.aminmax() if scores.numel() else (torch.zeros(()), torch.zeros(()))
    return bool(low > -100) and bool(high < 100)


def _check_prior(prior: float) -> float:
    if not isinstance(prior, Real) or not 0 <= prior < float("inf"):
        raise ValueError(f"prior: expected a pseudo-count of at least 0, got {prior!r}.")
    return prior
