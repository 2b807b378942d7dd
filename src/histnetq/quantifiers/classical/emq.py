"""Maximum likelihood and Bayes estimates under prior shift: EMQ."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import check_choice, check_integer, check_number, nearest_name
from histnetq.bags.limits import brief
from histnetq.errors import InputError
from histnetq.kernels.cores import over_bags
from histnetq.kernels.jit import njit
from histnetq.metrics import MEASURES, Measure
from histnetq.persistence.saving import Arrays, StoredArrays
from histnetq.quantifiers.classical.mix_posterior import draw_mixes, fit_prior
from histnetq.quantifiers.classical.ordinal import check_smoothness, smoother
from histnetq.quantifiers.classical.posteriors import Floats, Ints, PosteriorQuantifier
from histnetq.quantifiers.classical.rescaling import fit_scales, rescale
from histnetq.registry import PRIORS, RESCALINGS
from histnetq.uncertainty.decisions import decide

_FEWEST = 12  # iterations before convergence is believed
_MOST_ITERATIONS = 100_000
_TILE = 1024  # rows worked on together
_IF_CONTRADICTED = "bcts"  # rescaling of posteriors that contradict the labels
# Least contradiction: standard errors, and the smaller one of a fraction of the share of labels and a difference.
_CHANCE, _RELATIVE, _ABSOLUTE = 4.0, 0.2, 0.03
_ROUNDING = 1e-6
_ESTIMATES = {"median": "ae", "mean": "se"}  # other names of losses
TRAINING_ROWS = 50.0  # sum of the concentrations of the prior "training"
_FEWEST_PRIOR = 0.01  # smallest concentration of a class in it
_LARGEST_PRIOR = 1e6  # concentration
_ROUNDS = 8  # of fitting the prior to bags


class _StoredScales(StoredArrays):
    """Scales and biases, and the rescaling that they belong to."""

    def learned(self, model: Any) -> dict[str, Any]:
        return {"rescaled_by": model.rescaled_by_}

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        super().restore(model, arrays, learned)
        known = learned.get("rescaled_by", model.rescaling)
        if known is not None and known not in RESCALINGS:
            raise ValueError("path: the rescaling of the posteriors is unknown; save the model again.")
        model.rescaled_by_ = known


@dataclass(eq=False, repr=False, kw_only=True)
class EMQ(PosteriorQuantifier):
    """Expectation maximisation (SLD): the prevalences that make the rows of a bag most likely, given their posteriors.

    Parameters
    ----------
    classifier : str or scikit-learn classifier with `predict_proba`, default="logistic"
        A name ("logistic" on scaled features, "forest", "boosting", "mlp" or "bayes"), or a classifier. A classifier is
        cloned, never fitted in place; with ``cv=None`` it is used as it is.
    cv : int, float or None, default=5
        Number of cross-fitting folds, or the held-out fraction of the rows. None means that the classifier is already
        fitted; then pass to `fit` only rows that the classifier was not trained on.
    random_state : int, default=None
        Seed of the cross-validation split; None draws a new seed each time.
    rescaling : {"auto", None, "ts", "bcts", "shrunk", "ridge", "vs", "nbvs"}, default="auto"
        Rescaling of the posteriors before the iterations: "auto" rescales by "bcts" and warns if the mean posteriors
        contradict the labels, as with ``class_weight="balanced"``, and else not; None, never; "ts", a temperature;
        "bcts", a temperature and a bias of each class; "shrunk", the same with biases shrunk in proportion to their
        sampling noise (our own, by empirical Bayes); "ridge", the same with normal priors of the logarithm of the scale
        and of the biases, which suits few labelled rows (our own); "vs", a scale and a bias of each class; "nbvs", a
        scale of each class.
    tol : float, default=1e-6
        Iterations end when the mean change of a prevalence is below this.
    max_iter : int, default=1000
        Largest number of iterations, at most 100,000.
    smoothness : float, default=0.0
        Fraction of the way, from 0 to 1, that each iteration moves the prevalences towards a parabola over the classes,
        for ordered classes. The order is the order of `classes_`: sorted names, or the order in
        ``Bags.from_labels(..., classes=[...])``.
    estimate : str or callable, default="ml"
        What to report: "ml", the prevalences with the largest likelihood; or the estimate with the least expected loss
        under the posterior of the mix of the bag: "mean", for squared errors; "median", for absolute errors; the name
        of another loss, such as "rae" or "nmd"; or a function ``(p_true, p_pred)`` that returns one loss for each row.
        Small bags profit most, as the likelihood often has its largest value where some classes are absent.
    prior : str, float or (n_classes,), default="uniform"
        Dirichlet prior of the prevalences, for estimates other than "ml": "uniform", where all prevalences are equally
        likely; its concentration, or the concentration of each class; "training", which is worth 50 rows with the
        proportions of the training rows, for bags that resemble the training rows; or "bags", which is fitted to the
        bags that are estimated together (empirical Bayes). With "bags", the estimate of a bag depends on all of these
        bags, and the prior of one bag alone is uniform.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    classifier_ : classifier
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None after `fit_posteriors`.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    scale_ : (n_classes,)
        Factors of the logarithms of posteriors.
    bias_ : (n_classes,)
        Biases that are added to the scaled logarithms.
    rescaled_by_ : str or None
        The rescaling that was used.

    References
    ----------
    Saerens, Latinne & Decaestecker (2002), *Adjusting the outputs of a classifier to new a priori probabilities*;
    Alexandari, Kundaje & Shrikumar (2020), *Maximum likelihood with bias-corrected calibration is hard-to-beat at label
    shift adaptation*; Bunse, Moreo, Sebastiani & Senz (2024), *Regularization-based methods for ordinal
    quantification*; Storkey (2009), *When training and test sets are different: characterizing learning transfer*, for
    the prior of the prevalences.

    Examples
    --------
    >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
    >>> EMQ().fit_posteriors(P, [0, 1] * 10).predict_posteriors([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]]).round(2)
    array([0.85, 0.15])
    >>> q = EMQ(estimate="mean").fit_posteriors(P, [0, 1] * 10)
    >>> q.predict_posteriors([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]]).round(2)
    array([0.74, 0.26])
    """

    rescaling: str | None = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    smoothness: float = 0.0
    estimate: str | Measure = "ml"
    prior: Any = "uniform"
    stored = (*PosteriorQuantifier.stored, _StoredScales(scale_="classes", bias_="classes"))
    renamed_params = {"calibration": "rescaling"}  # noqa: RUF012 - as the base declares it

    def _check_params(self) -> None:
        super()._check_params()
        check_iterations(self.tol, self.max_iter)
        if self.rescaling is not None:
            check_choice("rescaling", self.rescaling, ("auto", *RESCALINGS))
        check_smoothness(self.smoothness, most=1)
        _check_estimate(self.estimate)
        _check_prior(self.prior)
        if self.estimate == "ml" and not (isinstance(self.prior, str) and self.prior == "uniform"):
            got, way_out = brief(self.prior), "set estimate='mean' or 'median' to use a prior"
            raise InputError("prior", "'uniform' with estimate='ml', which has no prior", got, way_out)
        if self.estimate != "ml" and self.smoothness:
            raise InputError("smoothness", "0 with other estimates than 'ml'", f"{self.smoothness:g}", "leave it out")

    def _learn_all(self, posteriors: Floats, labels: Ints, weights: NDArray | None, classes: NDArray) -> None:
        self.rescaled_by_ = self.rescaling
        if self.rescaling == "auto":
            found = find_contradiction(posteriors, labels, weights)
            self.rescaled_by_ = None if found is None else _IF_CONTRADICTED
            if found is not None:
                code, mean, share = found
                warnings.warn(
                    f"{type(self).__name__}: posteriors contradict the labels (class {str(classes[code])!r} has the "
                    f"mean posterior {mean:.2f} and {share:.2f} of the labels), so they are rescaled by "
                    f"{_IF_CONTRADICTED!r}; name a rescaling to choose it yourself.",
                    UserWarning,
                    stacklevel=4,
                )
        super()._learn_all(posteriors, labels, weights, classes)

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        n_classes = posteriors.shape[1]
        _concentrations(self.prior, self.train_prevalences_)  # refuses a wrong number of them
        self.scale_, self.bias_ = np.ones(n_classes), np.zeros(n_classes)
        if self.rescaled_by_ is not None:
            self.scale_, self.bias_ = fit_scales(posteriors, labels, self.rescaled_by_, weights)

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        if self.rescaled_by_ is not None:
            posteriors = rescale(posteriors, self.scale_, self.bias_)
        if self.estimate != "ml":
            return self._decide(posteriors, index, offsets, weights)
        smooth = smoother(posteriors.shape[1], self.smoothness) if self.smoothness else None
        return maximise_likelihood(
            posteriors, self.train_prevalences_, index, offsets, weights, self.tol, self.max_iter, smooth
        )

    def _decide(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        """Return the estimates with the least expected loss under the posterior of the mix of each bag."""
        entries, training = (index, offsets, weights), self.train_prevalences_
        prior, likelihoods = _concentrations(self.prior, training), posteriors / raise_zeros(training, self.tol)
        n_bags, n_classes = len(offsets) - 1, len(training)

        def modes() -> Floats:
            limits = self.tol, self.max_iter
            return maximise_likelihood(posteriors, training, *entries, *limits, added=prior)

        if isinstance(self.prior, str) and self.prior == "bags" and n_bags > 1:
            for _ in range(_ROUNDS):
                logs = np.zeros(n_classes)
                for found in draw_mixes(likelihoods, modes(), prior, *entries):
                    logs += np.einsum("bm,bmj->j", found.weights, np.log(found.prevalences))
                prior = fit_prior(logs / n_bags, n_bags)
        loss = _ESTIMATES.get(self.estimate, self.estimate) if isinstance(self.estimate, str) else self.estimate
        sizes = np.diff(offsets) if weights is None else np.add.reduceat(weights.astype(np.float64), offsets[:-1])
        out = np.empty((n_bags, n_classes))
        for found in draw_mixes(likelihoods, modes(), prior, *entries):
            out[found.bags] = decide(found.mixes, loss, sizes[found.bags], found.weights)
        return out


def _check_estimate(estimate: Any) -> None:
    """Refuse anything but "ml", "median", "mean", the name of a loss, or a callable."""
    if callable(estimate):
        return
    names = tuple(dict.fromkeys(("ml", *_ESTIMATES, *MEASURES)))
    if not isinstance(estimate, str) or estimate not in names:
        expected = f"one of {', '.join(map(repr, names))}, or a callable (p_true, p_pred)"
        near = nearest_name(estimate, names) if isinstance(estimate, str) else None
        raise InputError("estimate", expected, brief(estimate), "" if near is None else f"perhaps you mean {near!r}")


def _check_prior(prior: Any) -> None:
    """Refuse anything but a name of a prior, or concentrations above 0."""
    if isinstance(prior, str) and prior in PRIORS:
        return
    try:
        numbers = np.asarray(np.nan if isinstance(prior, str | bool) else prior, np.float64)
    except (TypeError, ValueError):
        numbers = np.asarray(np.nan)
    if numbers.ndim > 1 or not numbers.size or not ((numbers > 0) & (numbers <= _LARGEST_PRIOR)).all():
        expected = f"one of {', '.join(map(repr, PRIORS))}, or concentrations above 0 and at most {_LARGEST_PRIOR:,.0f}"
        raise InputError("prior", expected, brief(prior), "give one number, or one for each class")


def _concentrations(prior: Any, training: Floats) -> Floats:
    """Return the Dirichlet concentration of each class, (n_classes,); the prior "bags" begins as the uniform one."""
    if isinstance(prior, str):
        near = np.maximum(TRAINING_ROWS * training, _FEWEST_PRIOR)
        return near if prior == "training" else np.ones(len(training))
    numbers = np.asarray(prior, np.float64)
    if numbers.ndim and len(numbers) != len(training):
        expected = f"one number, or one for each of the {len(training)} classes"
        raise InputError("prior", expected, f"{len(numbers)} numbers", "give them in the order of classes_")
    return np.broadcast_to(numbers, training.shape).copy()


def find_contradiction(
    posteriors: Floats, labels: Ints, weights: NDArray | None = None
) -> tuple[int, float, float] | None:
    """Return the class whose mean posterior contradicts its share of the labels most, or None if chance explains all.

    A classifier that expects the proportions of the labelled rows has mean posteriors equal to their shares, up to
    chance. The difference must exceed four standard errors, and a fifth of the share or 0.03.

    Returns
    -------
    tuple
        Code of the class, its mean posterior, and its share of the labels.

    Examples
    --------
    >>> find_contradiction(np.array([[0.5, 0.5]] * 100), np.arange(100) % 10 // 9)
    (1, 0.5, 0.1)
    """
    w = np.ones(len(labels), np.int64) if weights is None else weights
    squares = w if w.dtype.kind in "iu" else w**2  # a count of k is k rows
    residuals = posteriors - np.eye(posteriors.shape[1])[labels]
    means, share = w @ posteriors / w.sum(), np.bincount(labels, w, minlength=posteriors.shape[1]) / w.sum()
    error = np.sqrt(squares @ np.square(residuals - (means - share))) / w.sum()
    off = np.abs(means - share)
    is_found = (off > _CHANCE * error + _ROUNDING) & (off > np.minimum(_RELATIVE * share, _ABSOLUTE))
    if not is_found.any() or (share == 0).any():  # rescaling could not keep a class without labels
        return None
    excess = np.where(is_found, off / np.maximum(share, _ROUNDING), 0)
    code = int(excess.argmax())
    return code, float(means[code]), float(share[code])


def check_iterations(tol: Any, max_iter: Any, most: int = _MOST_ITERATIONS) -> None:
    """Refuse a tolerance or a number of iterations that would let a method run for hours."""
    check_number("tol", tol, 0, 1)
    check_integer("max_iter", max_iter, 1, most)


def maximise_likelihood(
    posteriors: Floats,
    prior: Floats,
    index: Ints,
    offsets: Ints,
    weights: NDArray | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    smooth: Floats | None = None,
    added: Floats | None = None,
) -> Floats:
    """Run EM from the prior until each bag converges: (n_rows, n_classes) → (n_bags, n_classes).

    A class with a prior of 0 could never be found, so it first gets a prior of `tol`, at least 1e-12. If there is a
    matrix `smooth`, the prevalences of each iteration are multiplied by it. If there are rows `added` to each class,
    (n_classes,), each iteration counts them, too.

    Examples
    --------
    >>> p = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> maximise_likelihood(p, np.array([0.5, 0.5]), np.array([0, 0, 1]), np.array([0, 3])).round(2)
    array([[0.85, 0.15]])
    """
    prior = raise_zeros(prior, tol)
    w = np.ones(1) if weights is None else weights.astype(np.float64)
    out = np.empty((len(offsets) - 1, len(prior)))
    matrix = np.empty((0, 0)) if smooth is None else smooth
    extra = np.zeros(len(prior)) if added is None else added
    arguments = posteriors, prior, index, offsets, w, weights is not None, tol, max_iter, matrix, extra
    over_bags(lambda first, last: _em(*arguments, first, last, out), offsets)
    return out


def raise_zeros(prior: Floats, tol: float) -> Floats:
    """Give classes with a prior of 0 a prior of `tol`, at least 1e-12.

    Examples
    --------
    >>> raise_zeros(np.array([1.0, 0.0]), 0.25)
    array([0.83333333, 0.16666667])
    """
    prior = np.asarray(prior, dtype=np.float64)
    if (prior > 0).all():
        return prior
    prior = prior + max(tol, 1e-12)
    return prior / prior.sum()


def maximise_mixture(
    densities: Floats,
    index: Ints,
    offsets: Ints,
    weights: NDArray | None = None,
    tol: float = 1e-7,
    max_iter: int = 5000,
) -> Floats:
    """Return the mixture of the classes that makes each bag most likely: (n_rows, n_classes) → (n_bags, n_classes).

    The densities of a row may have any common factor.

    Examples
    --------
    >>> maximise_mixture(np.array([[2.0, 0.0], [0.0, 5.0]]), np.array([0, 0, 1, 0]), np.array([0, 4])).round(2)
    array([[0.75, 0.25]])
    """
    uniform = np.full(densities.shape[1], 1 / densities.shape[1])
    return maximise_likelihood(densities, uniform, index, offsets, weights, tol, max_iter)


@njit(cache=True, nogil=True, error_model="numpy")
def _smooth(matrix, p, after):  # type: ignore[no-untyped-def]
    """Multiply prevalences by a matrix in place, then raise negative ones to 0 and scale the sum to 1."""
    total = 0.0
    for j in range(len(p)):
        after[j] = 0.0
        for c in range(len(p)):
            after[j] += matrix[j, c] * p[c]
        after[j] = max(after[j], 0.0)
        total += after[j]
    for j in range(len(p)):
        p[j] = after[j] / total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _em(  # type: ignore[no-untyped-def]
    scores, prior, index, offsets, weights, weighted, tol, max_iter, smooth, added, first, last, out
):
    n_classes, n_added = len(prior), added.sum()
    # The rows of a tile are contiguous, so that the loops over them are vectorised; small bags are gathered once.
    tile = np.empty((n_classes, _TILE))
    share, new, after = np.empty(_TILE), np.empty(n_classes), np.empty(n_classes)
    for bag in range(first, last):
        p = out[bag]
        p[:] = prior
        begin, end = offsets[bag], offsets[bag + 1]
        for iteration in range(max_iter):
            new[:] = 0.0
            total = 0.0
            for begin_tile in range(begin, end, _TILE):
                n = min(_TILE, end - begin_tile)
                if iteration == 0 or end - begin > _TILE:
                    for i in range(n):
                        for j in range(n_classes):
                            tile[j, i] = scores[index[begin_tile + i], j] / prior[j]
                share[:n] = 0.0
                for j in range(n_classes):
                    for i in range(n):
                        share[i] += tile[j, i] * p[j]
                for i in range(n):
                    w = weights[begin_tile + i] if weighted else 1.0
                    w = w if share[i] > 0.0 else 0.0
                    total += w
                    share[i] = w / share[i] if w > 0.0 else 0.0
                for j in range(n_classes):
                    part = 0.0
                    for i in range(n):
                        part += tile[j, i] * share[i]
                    new[j] += part
            change = 0.0
            for j in range(n_classes):
                new[j] = (new[j] * p[j] + added[j]) / (total + n_added) if total > 0.0 else p[j]
            if len(smooth):
                _smooth(smooth, new, after)
            for j in range(n_classes):
                change += abs(new[j] - p[j])
                p[j] = new[j]
            if iteration >= _FEWEST - 1 and change / n_classes < tol:
                break
