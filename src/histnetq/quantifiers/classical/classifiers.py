"""Classifiers by name: what ``classifier="forest"`` means in Python, on the command line and in a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from histnetq.bags.checks import check_choice
from histnetq.bags.limits import brief

DEFAULT = "logistic"


@dataclass(frozen=True)
class NamedClassifier:
    """A classifier that has a name.

    Attributes
    ----------
    words : str
        What it is, for people.
    make : callable
        Makes it, not fitted.
    space : dict
        What `histnetq tune` searches if it is told to use this classifier.
    """

    words: str
    make: Callable[[], Any]
    space: dict[str, Any]


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def _forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=100)


def _boosting() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier()


def _mlp() -> Any:
    from sklearn.neural_network import MLPClassifier

    return make_pipeline(StandardScaler(), MLPClassifier(early_stopping=True))


def _bayes() -> Any:
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB()


CLASSIFIERS: dict[str, NamedClassifier] = {
    DEFAULT: NamedClassifier("a logistic regression", _logistic, {"classifier__C": (1e-3, 10.0, "log")}),
    "forest": NamedClassifier("a random forest", _forest, {"classifier__min_samples_leaf": [1, 2, 4, 8]}),
    "boosting": NamedClassifier(
        "boosted trees", _boosting,
        {"classifier__learning_rate": (0.03, 0.3, "log"), "classifier__max_leaf_nodes": [7, 15, 31]},
    ),
    "mlp": NamedClassifier(
        "a small network", _mlp,
        {"classifier__alpha": (1e-5, 1.0, "log"), "classifier__hidden_layer_sizes": [(50,), (100,), (200,)]},
    ),
    "bayes": NamedClassifier("naive Bayes", _bayes, {"classifier__var_smoothing": (1e-9, 0.1, "log")}),
}  # fmt: skip


def made(classifier: Any) -> Any:
    """Give the classifier of this name, None for the default one; anything but a name is given back.

    Examples
    --------
    >>> made("forest")
    RandomForestClassifier()
    """
    if classifier is not None and not isinstance(classifier, str):
        return classifier
    return CLASSIFIERS[check_choice("classifier", classifier or DEFAULT, tuple(CLASSIFIERS))].make()


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
    """Give the classifier at the end of a pipeline, and what its parameters are prefixed by in the pipeline.

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
    """Give a copy for such rows that is not fitted: seeded where it has no seed, and centring no sparse rows.

    Examples
    --------
    >>> prepared(made("forest"), np.zeros((2, 1)), 7)
    RandomForestClassifier(random_state=7)
    """
    changed: dict[str, Any] = {}
    for name, value in classifier.get_params().items():
        if name.rpartition("__")[2] == "random_state" and value is None:
            # A seed of its own where none is given: scikit-learn would take one from the global generator.
            changed[name] = int(np.random.default_rng().integers(2**31)) if random_state is None else int(random_state)
    if sparse.issparse(rows) and isinstance(classifier, Pipeline) and isinstance(classifier[0], StandardScaler):
        changed[f"{classifier.steps[0][0]}__with_mean"] = False
    return clone(classifier).set_params(**changed)


def shares_cores(classifier: Any) -> bool:
    """Tell whether copies of a classifier are fitted side by side, in threads of one process.

    Logistic regressions are, also behind a scaler: their time goes into products that release the interpreter, and they
    draw nothing at random. Others may not be made for threads, or use all cores already, or a graphics card.

    Examples
    --------
    >>> shares_cores(made("logistic")), shares_cores(made("forest"))
    (True, False)
    """
    from sklearn.linear_model import LogisticRegression

    steps = [step for _, step in classifier.steps] if type(classifier) is Pipeline else [classifier]
    drawing_nothing = ("lbfgs", "newton-cg", "newton-cholesky")
    # Subclasses are left out: what they do is unknown.
    return (
        all(type(step) is StandardScaler for step in steps[:-1])
        and type(steps[-1]) is LogisticRegression
        and steps[-1].solver in drawing_nothing
    )
