"""Classifiers by name: how each of `histnetq.registry.CLASSIFIERS` is constructed, seeded and fitted."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from histnetq.bags.checks import check_choice
from histnetq.bags.limits import brief
from histnetq.registry import CLASSIFIERS

DEFAULT = next(iter(CLASSIFIERS))


def made(classifier: Any) -> Any:
    """Return the classifier of this name, or the default one for None; return anything except a name as it is.

    Examples
    --------
    >>> made("forest")
    RandomForestClassifier()
    """
    if classifier is not None and not isinstance(classifier, str):
        return classifier
    known = CLASSIFIERS[check_choice("classifier", classifier or DEFAULT, tuple(CLASSIFIERS))]
    module, _, name = known.place.rpartition(".")
    found = getattr(import_module(f"sklearn.{module}"), name)(**known.params)
    return make_pipeline(StandardScaler(), found) if known.scaled else found


def check_classifier(classifier: Any) -> None:
    """Refuse anything but the name of a classifier, None for the default one, or a classifier."""
    if classifier is None or isinstance(classifier, str):
        check_choice("classifier", classifier or DEFAULT, tuple(CLASSIFIERS))
    elif not (hasattr(classifier, "fit") or hasattr(classifier, "predict_proba")):
        raise TypeError(
            f"classifier: expected a scikit-learn classifier or one of {', '.join(map(repr, CLASSIFIERS))}, got "
            f"{brief(classifier)}."
        )


def last_step(classifier: Any) -> tuple[str, Any]:
    """Return the last step of a pipeline, after the prefix of its parameters; a classifier has the prefix "".

    Examples
    --------
    >>> last_step(made("logistic"))
    ('logisticregression__', LogisticRegression(max_iter=1000))
    """
    if not isinstance(classifier, Pipeline):
        return "", classifier
    name, step = classifier.steps[-1]
    return f"{name}__", step


def prepared(classifier: Any, rows: Any, random_state: int | None) -> Any:
    """Return an unfitted copy for these rows, with a seed if it has none; a scaler does not centre sparse rows.

    Examples
    --------
    >>> prepared(made("forest"), np.zeros((2, 1)), 7)
    RandomForestClassifier(random_state=7)
    """
    changed: dict[str, Any] = {}
    for name, value in classifier.get_params().items():
        if name.rpartition("__")[2] == "random_state" and value is None:
            # Without a seed, scikit-learn would draw from the global generator.
            changed[name] = int(np.random.default_rng().integers(2**31)) if random_state is None else int(random_state)
    if sparse.issparse(rows) and isinstance(classifier, Pipeline) and isinstance(classifier[0], StandardScaler):
        changed[f"{classifier.steps[0][0]}__with_mean"] = False
    return clone(classifier).set_params(**changed)


def shares_cores(classifier: Any) -> bool:
    """Return whether copies of a classifier may be fitted at the same time, in threads of one process.

    This holds for logistic regressions, also after a scaler: they spend their time in products that release the
    interpreter lock, and they draw no random numbers. Other classifiers may not be thread-safe, or may already use all
    cores or a graphics card.

    Examples
    --------
    >>> shares_cores(made("logistic")), shares_cores(made("forest"))
    (True, False)
    """
    deterministic = ("lbfgs", "newton-cg", "newton-cholesky")
    return is_logistic(classifier) and last_step(classifier)[1].solver in deterministic


def is_logistic(classifier: Any) -> bool:
    """Return whether a classifier is a logistic regression, possibly on scaled features.

    Examples
    --------
    >>> is_logistic(made("logistic")), is_logistic(made("mlp"))
    (True, False)
    """
    from sklearn.linear_model import LogisticRegression

    *scalers, last = [step for _, step in classifier.steps] if type(classifier) is Pipeline else [classifier]
    # Types are compared exactly, because a subclass may do anything.
    return all(type(step) is StandardScaler for step in scalers) and type(last) is LogisticRegression
