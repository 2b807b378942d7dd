"""Audits of bags: rows drawn for labelling, and estimates from their labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_names, check_seed, check_whole, match_names
from histnetq.errors import InputError, InputTypeError
from histnetq.quantifiers.base import Quantifier
from histnetq.simplex import Floats
from histnetq.uncertainty.audit import extend_labels
from histnetq.uncertainty.intervals import Intervals
from histnetq.uncertainty.row_samples import FEWEST_LABELS, RowSample, draw_rows


def sample_rows(model: Quantifier, bags: Bags, n: int = 200, *, random_state: int | None = 0) -> RowSample:
    """Draw rows of each bag to be labelled, and more rows where the model is uncertain.

    Rows with the same predicted class form one stratum, or two strata of more and less certain rows if the class is
    common. Predicted classes that are rare in a bag share one stratum. Half of the labels are allocated to the strata
    by size. The other half is allocated by size times the standard deviation that the posteriors predict (Neyman
    allocation), so that a wrong model costs little precision.

    Parameters
    ----------
    model : Quantifier
        A fitted quantifier with posteriors of rows, such as `EMQ`, `PACC` or `EMNetQ`.
    bags : Bags
        Bags; neither labels nor proportions are needed.
    n : int, default=200
        Number of rows to draw from each bag, at least 10; all rows of a bag with fewer rows.
    random_state : int, default=0
        Seed of the draw; None draws different rows each time.

    Returns
    -------
    RowSample
        The drawn rows; pass their labels to `histnetq.audit`.

    Examples
    --------
    >>> import histnetq as hq
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=400)
    >>> X = rng.normal(size=(400, 1)) + 2 * y[:, None]
    >>> q = hq.PACC(random_state=0).fit(X[:200], y[:200])
    >>> drawn = hq.sample_rows(q, hq.Bags(X[200:]), 50)
    >>> len(drawn), round(float((1 / drawn.probabilities).sum()))
    (50, 200)
    """
    if check_whole("n", n) < FEWEST_LABELS:
        raise InputError("n", f"at least {FEWEST_LABELS} rows of each bag", n, "draw more")
    rng = np.random.default_rng(check_seed(random_state))
    return draw_rows(_row_posteriors(model, bags), bags, n, rng)


def audit(
    model: Quantifier,
    bags: Bags,
    sample: RowSample,
    labels: ArrayLike,
    *,
    coverage: float = 0.9,
    classes: Sequence[Any] | NDArray | None = None,
) -> Intervals:
    """Estimate the prevalences in bags from labels of some of their rows and from a model's posteriors.

    Because the rows were drawn at random, an interval contains the prevalence of its class in the bag with probability
    `coverage`. This needs no assumption about the bags or the model. A better model gives narrower intervals. The model
    must not be trained on these labels.

    Parameters
    ----------
    model : Quantifier
        A fitted quantifier with posteriors of rows, such as `EMQ`, `PACC` or `EMNetQ`.
    bags : Bags
        Bags; each bag must have drawn rows.
    sample : RowSample
        The result of `histnetq.sample_rows` for these bags, or of `RowSample.simple` for a simple random sample.
    labels : (n_drawn,)
        The class of each drawn row.
    coverage : float, default=0.9
        Intended probability, between 0 and 1, that an interval contains the true prevalence.
    classes : sequence, default=None
        Names of the classes: first all classes of the model, then classes that the model does not know. None uses the
        classes of the model.

    Returns
    -------
    Intervals
        Estimates and intervals, with columns in the order of `classes`.

    Examples
    --------
    >>> import histnetq as hq
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=2000)
    >>> X = rng.normal(size=(2000, 1)) + 2 * y[:, None]
    >>> q = hq.PACC(random_state=0).fit(X[:200], y[:200])
    >>> bags = hq.Bags(X[200:] + 1)  # all rows have shifted, and the model does not know it
    >>> q.predict(bags).round(2)
    array([[0.14, 0.86]])
    >>> drawn = hq.sample_rows(q, bags, 100, random_state=1)
    >>> found = hq.audit(q, bags, drawn, y[200:][drawn.rows])
    >>> found.estimates.round(2), found.contains([[1 - y[200:].mean(), y[200:].mean()]]).tolist()
    (array([[0.47, 0.53]]), [[True, True]])
    """
    posteriors = _row_posteriors(model, bags)
    names = model.classes_ if classes is None else check_names("classes", classes, np.size(classes), "class")
    if names[: len(model.classes_)].tolist() != model.classes_.tolist():
        raise InputError(
            "classes", f"the model's classes {model.classes_.tolist()} first", names.tolist(), "reorder them"
        )
    if not isinstance(sample, RowSample):
        raise InputTypeError("sample", "a RowSample", type(sample).__name__, "draw rows with sample_rows first")
    found, codes = np.unique(check_names("labels", np.asarray(labels), len(sample), "drawn row"), return_inverse=True)
    refusal = "labels: {} is not among the classes {}; correct it, or name it in classes=."
    codes = match_names(found, names, refusal)[codes]
    if len(sample) == 0 or len(np.unique(sample.bags)) != len(bags):
        got = f"rows of {len(np.unique(sample.bags)):,}"
        raise InputError("sample", f"rows of each of the {len(bags):,} bags", got, "select the bags with drawn rows")
    entries = np.clip(sample.entries, 0, len(bags.index) - 1)
    if (bags.index[entries] != sample.rows).any() or (bags.bag_of_entry[entries] != sample.bags).any():
        raise InputError("sample", "rows drawn from these bags", "different rows", "pass the bags that were sampled")
    return extend_labels(posteriors, bags, sample, codes, len(names), coverage)


def _row_posteriors(model: Any, bags: Any) -> Floats:
    """Return the posteriors of the rows of bags; raise an error for other types."""
    if not isinstance(bags, Bags):
        raise InputTypeError("bags", "Bags", type(bags).__name__, "make them with Bags.from_arrays or read_bags")
    if not hasattr(model, "predict_rows"):
        raise InputTypeError("model", "a fitted quantifier such as EMQ", type(model).__name__, "fit or load one")
    found: Floats = model.predict_rows(bags)
    return found
