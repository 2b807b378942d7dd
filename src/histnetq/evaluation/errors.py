"""`evaluate` and `compare`: errors of one or several quantifiers on bags of known proportions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import column_names, nearest_name, shown
from histnetq.bags.class_names import add_columns, with_all_classes
from histnetq.errors import InputError, Option
from histnetq.evaluation.comparison import CLEAR, Comparison
from histnetq.metrics import MEASURES, Measure, as_loss
from histnetq.simplex import Floats, first_off_simplex

if TYPE_CHECKING:
    import pandas as pd

_ALIKE = 0.75  # smallest similarity of a class to the class that it may be a typo of
_OF_SEVERAL_BAGS = ("mse", "macro_nmd")  # for a single bag, they equal se and nmd


def evaluate(
    quantifier: Any, bags: Bags, *, measures: Any = None, train_prevalences: ArrayLike | Mapping | None = None
) -> pd.DataFrame:
    """Estimate every bag and compute the errors.

    Parameters
    ----------
    quantifier : Quantifier, array-like of shape (n_bags, n_classes) or pandas.DataFrame
        A fitted quantifier (also one of QuaPy), or its estimates: an array in the order of ``bags.classes``, a data
        frame with the classes as columns, or a table that this function returned.
    bags : Bags
        Bags with known prevalences, or with row labels. Classes are matched by name with ``quantifier.classes_``, or by
        position if the bags or the quantifier have the default names 0, 1, …. A class that the bags lack has prevalence
        0. The estimate of a class that the quantifier lacks is 0, with a warning.
    measures : str, callable, list of these, or dict of names and callables, optional
        Names of measures or functions ``(p_true, p_pred)``. Default: all `histnetq.metrics.MEASURES` that have a value
        for each bag. They include `nmd`, which is meaningful only for ordered classes.
    train_prevalences : array-like of shape (n_classes,) or dict, optional
        Training prevalences, in the order of ``quantifier.classes_``. Default: its ``train_prevalences_``.

    Returns
    -------
    pandas.DataFrame
        One row per bag: `size`; `shift`, the L1 distance of its prevalences from the training prevalences (left out if
        these are unknown); ``true_<class>``, ``estimated_<class>``; and one column per measure.

    Examples
    --------
    >>> bags = Bags.from_arrays({"north": np.zeros((2, 1)), "south": np.ones((5, 1))}, [[0.5, 0.5], [0.2, 0.8]])
    >>> evaluate([[0.6, 0.4], [0.2, 0.8]], bags, measures=["ae", "se"], train_prevalences=[0.5, 0.5]).round(2)
           size  shift  true_0  true_1  estimated_0  estimated_1   ae    se
    bag
    north     2    0.0     0.5     0.5          0.6          0.4  0.1  0.01
    south     5    0.6     0.2     0.8          0.2          0.8  0.0  0.00
    """
    import pandas as pd

    named = _named_measures(measures)
    bags, p_pred, shift = _estimate("quantifier", quantifier, _with_truth(bags), train_prevalences)
    columns = {"size": bags.sizes} if shift is None else {"size": bags.sizes, "shift": shift}
    for kind, p in (("true", bags.prevalences), ("estimated", p_pred)):
        columns |= {f"{kind}_{name}": p[:, j] for j, name in enumerate(bags.classes)}  # type: ignore
    return pd.DataFrame(columns | _score(bags, p_pred, named), index=_ids(bags))


def compare(
    quantifiers: Mapping[str, Any],
    bags: Bags,
    *,
    measures: Any = ("ae", "rae"),
    train_prevalences: ArrayLike | Mapping | None = None,
    alpha: float = 0.05,
) -> Comparison:
    """Compare quantifiers on the same bags: mean errors, and Wilcoxon signed-rank tests against the best.

    Parameters
    ----------
    quantifiers : dict
        A value for each name: any quantifier or estimates that `evaluate` takes; or a list of these, one per seed,
        whose errors are averaged for each bag; or None for a method without a result, which gets a row of dashes.
    bags : Bags
        Bags with known prevalences, or with row labels, as in `evaluate`.
    measures : str, callable, list of these, or dict of names and callables, default=("ae", "rae")
        Names of measures or functions ``(p_true, p_pred)``, as in `evaluate`.
    train_prevalences : array-like of shape (n_classes,) or dict, optional
        Training prevalences for `Comparison.by_shift`, in the order of the first method's classes. Default: the
        ``train_prevalences_`` of the first quantifier that has them.
    alpha : float, default=0.05
        A difference with a p-value above `alpha` is marked ‡.

    Returns
    -------
    Comparison
        The errors and their statistics, which print as a table.

    Examples
    --------
    >>> bags = Bags.from_arrays([np.zeros((2, 1))] * 6, [[0.5, 0.5]] * 6)
    >>> p = np.linspace(0.4, 0.45, 6)
    >>> compare({"A": np.c_[p, 1 - p], "B": np.c_[p - 0.1, 1.1 - p], "C": None}, bags)
    method          AE                  RAE
    A        0.0750 ± 0.0187 *   0.1000 ± 0.0249 *
    B        0.1750 ± 0.0187 †   0.2333 ± 0.0249 †
    C                –                   –
    <BLANKLINE>
    6 bags; mean ± sd over the bags. * best (lowest mean).
    Wilcoxon signed-rank test against the best: † 0.001 ≤ p ≤ 0.05, ‡ p > 0.05, no mark p < 0.001.
    """
    import pandas as pd

    if not isinstance(quantifiers, Mapping):
        raise TypeError(
            f"quantifiers: expected a dict of names and fitted quantifiers, got {type(quantifiers).__name__}; "
            "write {'name': quantifier}, or {'name': [seed 1, seed 2, …]} for several seeds of one method."
        )
    if not CLEAR < alpha < 1:
        raise ValueError(f"alpha: expected a number between {CLEAR} and 1, got {alpha!r}.")
    named, truth = _named_measures(measures), _with_truth(bags)
    runs = {str(name): _seeds(name, value) for name, value in quantifiers.items()}
    if len(runs) < len(quantifiers):
        raise ValueError(
            f"quantifiers: expected names that differ when written as text, got {list(quantifiers)}; rename one."
        )
    if not any(runs.values()):
        raise ValueError("quantifiers: expected at least one with a result, got none; add a fitted quantifier.")
    common, shift, errors = None, None, {}
    for name, seeds in runs.items():
        scores = []
        for seed in seeds:
            prior = train_prevalences if common is None else None
            own, p_pred, distance = _estimate(f"quantifiers[{name!r}]", seed, truth, prior)
            common, shift = own if common is None else common, distance if shift is None else shift
            scores.append(_score(common, _reorder(name, p_pred, own.classes, common.classes), named))
        errors.update({(name, m): np.mean([s[m] for s in scores], axis=0) for m in named if scores})
    frame = pd.DataFrame(errors, index=_ids(truth)).rename_axis(columns=["method", "measure"])
    return Comparison(frame, {name: len(seeds) for name, seeds in runs.items()}, shift, alpha)


def _named_measures(measures: Any) -> dict[str, Measure]:
    if measures is None:
        return {name: MEASURES[name] for name in MEASURES if name not in _OF_SEVERAL_BAGS}
    if isinstance(measures, Mapping):
        names, listed = list(measures), list(measures.values())
    else:
        listed = [measures] if isinstance(measures, str) or not isinstance(measures, Iterable) else list(measures)
        names = [m if isinstance(m, str) else getattr(m, "__name__", type(m).__name__) for m in listed]
    if not listed or not all(callable(m) or (isinstance(m, str) and m in MEASURES) for m in listed):
        known = ", ".join(MEASURES)
        raise ValueError(f"measures: expected some of {known} or callables (p_true, p_pred), got {measures!r}.")
    if len(set(names)) < len(names):
        raise ValueError(f"measures: expected different names, got {names}; pass a dict of names and callables.")
    return {name: as_loss(measure) for name, measure in zip(names, listed, strict=True)}


def _score(bags: Bags, p_pred: Floats, measures: dict[str, Measure]) -> dict[str, Floats]:
    scores = {m: np.asarray(f(bags.prevalences, p_pred, bags.sizes), dtype=float) for m, f in measures.items()}
    for name, values in scores.items():
        if values.shape != (len(bags),) or not np.isfinite(values).all():
            got = f"shape {values.shape}" if values.shape != (len(bags),) else "NaN or infinity"
            raise ValueError(f"measures: expected a finite number for each of {len(bags)} bags, got {got} by {name!r}.")
    return scores


def _seeds(name: str, value: Any) -> list[Any]:
    """Return the runs of one method: none, one, or one per seed."""
    several = isinstance(value, list | tuple) and (not value or hasattr(value[0], "predict") or np.ndim(value[0]) == 2)
    several = several or getattr(value, "ndim", 0) == 3
    if several and len(value) == 0:
        raise ValueError(f"quantifiers[{name!r}]: expected at least one seed, got none; pass None for a row of dashes.")
    return [run for run in (value if several else [value]) if run is not None]


def _with_truth(bags: Bags) -> Bags:
    if not isinstance(bags, Bags) or len(bags) == 0:
        got = "an empty one" if isinstance(bags, Bags) else type(bags).__name__
        raise TypeError(f"bags: expected Bags with at least one bag, got {got}; make them with Bags.from_arrays.")
    if bags.prevalences is None and bags.labels is None:
        expected = "known prevalences or row labels to measure errors against"
        raise InputError("bags", expected, "neither", ("pass ", Option("prevalences"), " when making them"))
    return bags.with_known_prevalences()


def _estimate(name: str, quantifier: Any, bags: Bags, prior: Any) -> tuple[Any, Floats, Floats | None]:
    """Return the bags with the classes of the estimates, the estimates (n_bags, n_classes), and the shift if known."""
    if any(kind.__module__.startswith("quapy.") for kind in type(quantifier).__mro__):
        from histnetq.interop import from_quapy
        from histnetq.quantifiers.base import Quantifier

        quantifier = quantifier if isinstance(quantifier, Quantifier) else from_quapy(quantifier)
    values, classes, columns = quantifier, np.asarray(bags.classes), column_names(quantifier) or []
    if columns:
        values, classes = _read_table(name, quantifier, columns, bags)
    elif hasattr(quantifier, "predict"):
        values, classes = quantifier.predict(bags), np.asarray(getattr(quantifier, "classes_", classes))
    try:
        p_pred = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        kind = type(quantifier).__name__
        raise TypeError(f"{name}: expected a fitted quantifier or estimates (n_bags, n_classes), got {kind}.") from None
    _check_simplex(name, p_pred, (len(bags), len(classes)))
    bags = with_all_classes(bags, classes)
    names: Any = bags.classes
    if len(names) > len(classes):
        warnings.warn(f"{name}: {describe_missed(names[len(classes) :], classes)}", stacklevel=3)
        p_pred = add_columns(p_pred, len(names))
    truth = [f"true_{c}" for c in names]
    if set(truth) <= set(columns) and not np.allclose(quantifier[truth], bags.prevalences, atol=1e-6):  # type: ignore
        raise ValueError(f"{name}: the table has other true prevalences than bags; evaluate on these bags.")
    prior = getattr(quantifier, "train_prevalences_", None) if prior is None else prior
    known = np.asarray(quantifier["shift"]) if "shift" in columns else None
    return bags, p_pred, known if prior is None else _shift(bags, prior, len(classes))


def describe_missed(classes: Sequence[Any] | NDArray, known: Sequence[Any] | NDArray) -> str:
    """Return a warning about classes that only the truth has, with the `known` classes that they resemble."""
    pairs = [(str(name), nearest_name(str(name), known, _ALIKE)) for name in classes]
    listed = ", ".join(f"{name!r}{'' if near is None else f' (perhaps {near!r})'}" for name, near in pairs)
    if len(classes) == 1:
        return f"has no class {listed}, which the truth has; its estimate counts as 0."
    return f"has no classes {listed}, which the truth has; their estimates count as 0."


def _read_table(name: str, frame: Any, columns: list[str], bags: Bags) -> tuple[Any, NDArray]:
    """Return the estimates and class names of a table of `evaluate`, or of a data frame of estimates."""
    index, estimated = getattr(frame, "index", None), [c for c in columns if c.startswith("estimated_")]
    if index is not None and (estimated or index.tolist() != list(range(len(frame)))):
        found, expected = index.astype(str).to_numpy(), _ids(bags).astype(str).to_numpy()
        if not np.array_equal(found, expected):
            raise ValueError(
                f"{name}: expected a table of the bags {shown(expected)}, got {shown(found)}; evaluate on these bags."
            )
    classes = np.array([c.removeprefix("estimated_") for c in estimated or columns])
    return frame[estimated] if estimated else frame, classes


def _reorder(name: str, p_pred: Floats, classes: NDArray, wanted: NDArray) -> Floats:
    """Sort the columns of the estimates into the wanted order of classes, which matters for some measures."""
    if set(classes) != set(wanted):
        raise ValueError(
            f"quantifiers[{name!r}]: expected the classes {shown(wanted)} of the first method, got {shown(classes)}; "
            "fit all methods on the same classes."
        )
    return p_pred[:, [classes.tolist().index(c) for c in wanted]]


def _check_simplex(name: str, p: Floats, shape: tuple[int, int]) -> None:
    if p.shape != shape:
        raise ValueError(f"{name}: expected proportions of shape (n_bags, n_classes) = {shape}, got {p.shape}.")
    wrong = first_off_simplex(p, slack=1e-9)
    if wrong is not None:
        row = np.array2string(p[wrong.row], precision=3, threshold=6)
        raise ValueError(f"{name}: row {wrong.row} is {row}, expected proportions that sum to 1; divide by the sum.")


def _shift(bags: Any, prior: Any, n_classes: int) -> Floats:
    """Return the L1 distance of each bag's prevalences from the training prevalences of the first classes."""
    if hasattr(prior, "items"):
        named = {str(c): p for c, p in prior.items()}
        prior, n_classes = [named.get(c, 0.0) for c in bags.classes], len(bags.classes)
    p = np.asarray(prior, dtype=np.float64)
    if p.shape != (n_classes,):
        known = shown(bags.classes[:n_classes])
        raise ValueError(f"train_prevalences: expected one number for each of {known}, got {p.shape}.")
    _check_simplex("train_prevalences", p[None], (1, n_classes))
    return np.abs(bags.prevalences - add_columns(p[None], len(bags.classes))).sum(1)


def _ids(bags: Bags) -> pd.Index:
    import pandas as pd

    return pd.Index(bags.ids, name="bag", tupleize_cols=False)
