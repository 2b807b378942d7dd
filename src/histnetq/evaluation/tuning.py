"""`tune`: a search with Optuna for the parameters of a quantifier that have the lowest error on validation bags."""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from histnetq.bags.bags import Bags
from histnetq.bags.class_names import align
from histnetq.bags.protocols import APP
from histnetq.errors import InputError, Option
from histnetq.metrics import MEASURES, Measure, as_loss
from histnetq.quantifiers.base import Quantifier
from histnetq.training.fingerprint import describe
from histnetq.training.options import Training, TrainingInterrupted
from histnetq.training.supervision import Supervision

if TYPE_CHECKING:
    from histnetq.evaluation.trials import Space, Trials

_HELD_OUT = 0.3  # held-out fraction of the rows or bags, if no validation bags are given
_VALIDATION_BAGS = 200  # bags drawn from held-out rows
# If these vary, validation losses of different trials are not comparable.
_INCOMPARABLE = {"loss", "sampler", "training__validation", "training__validation_bags"}


@dataclass(frozen=True, repr=False)
class Tuned:
    """The result of `tune`. Each parameter is an attribute of the same name.

    Parameters
    ----------
    best_params : dict
        The best value of each parameter in the space.
    best_value : float
        The mean error over the validation bags with these values.
    quantifier : Quantifier or None
        A fitted quantifier with these values; None with ``refit=False`` if another process fitted it.
    trials : pandas.DataFrame
        One row per trial: number, state ("complete", "pruned", "failed" or "running"), value, a column per parameter,
        seconds, and error.
    interrupted : bool
        Whether the search was interrupted from the keyboard. The result is then the best so far, not fitted to all
        data.

    Examples
    --------
    >>> from histnetq import CC
    >>> y = np.arange(60) % 2
    >>> found = tune(CC(), {"cv": [2, 3]}, y[:, None] + 0.0, y)
    >>> found
    Tuned(best_value=0, best_params={'cv': 2}, trials=2)
    >>> found.trials[["number", "state", "value", "cv"]]
       number     state  value cv
    0       0  complete    0.0  2
    1       1  complete    0.0  3
    """

    best_params: dict[str, Any]
    best_value: float
    quantifier: Quantifier | None
    trials: pd.DataFrame
    interrupted: bool = False

    def __repr__(self) -> str:
        return f"Tuned(best_value={self.best_value:.4g}, best_params={self.best_params}, trials={len(self.trials)})"


def tune(
    quantifier: Quantifier,
    space: Mapping[str, Any],
    X: Any,
    y: Any = None,
    *,
    trials: int | None = None,
    validation: Bags | None = None,
    measure: str | Measure = "ae",
    storage: str | os.PathLike[str] | None = None,
    name: str | None = None,
    random_state: int | None = None,
    progress: bool | None = None,
    refit: bool = True,
) -> Tuned:
    """Find the parameters of a quantifier that have the lowest error on validation bags.

    Parameters
    ----------
    quantifier : Quantifier
        The quantifier to tune. It is cloned and never fitted in place. Parameters outside the space keep their values.
    space : dict of parameter names and values
        For each parameter, a list of choices of any kind; ``(low, high)`` or ``(low, high, "log")``, which is a range
        of whole numbers if both are; or a distribution of Optuna. Names are as in scikit-learn, such as
        ``classifier__C`` and ``training__lr``.
    X : Bags, array-like or data frame
        Training data: rows, or `Bags`.
    y : array-like, optional
        Labels of the rows, or prevalences of the bags if these do not hold them.
    trials : int, optional
        Total number of trials, including those already stored. Default, if the space has lists only: all combinations.
    validation : Bags, optional
        Bags with known proportions, the same for all trials. Default: 30 % of the bags; or 200 bags drawn by `APP`
        from 30 % of the rows.
    measure : str or callable, default="ae"
        A name from `histnetq.metrics` or any function ``(p_true, p_pred)`` or ``(p_true, p_pred, sizes)``.
    storage : path or URL, optional
        A journal file, or the URL of a database. Running the same search again runs the missing trials. Several
        workers, which are processes that run the same search, may share it and may start and stop at any time; finished
        trials are never lost. If a worker is killed, its trial is marked as failed after two minutes and replaced.
    name : str, optional
        The name of the search, for several searches in one storage. Default: "tune".
    random_state : int, optional
        Seed of the suggestions, of the held-out bags, and of a quantifier without a random_state. Default: different
        suggestions in each run.
    progress : bool, optional
        Whether a progress bar is shown. Default: on a terminal.
    refit : bool, default=True
        Whether the best parameters are fitted to all data, if some was held out.

    Returns
    -------
    Tuned
        The best parameters, the quantifier with them, and a table of the trials.

    References
    ----------
    Akiba et al. (2019), *Optuna: a next-generation hyperparameter optimization framework*; Bergstra et al. (2011),
    *Algorithms for hyper-parameter optimization*.

    Examples
    --------
    >>> from histnetq import PACC
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=300)
    >>> X = rng.normal(y[:, None], 1.0, size=(300, 2))
    >>> found = tune(PACC(), {"classifier__C": [1e-6, 1.0], "solver": ["inverse"]}, X, y)
    >>> found.best_params
    {'classifier__C': 1.0, 'solver': 'inverse'}
    >>> found.quantifier.predict(X).shape
    (2,)
    """
    if find_spec("optuna") is None:
        raise ImportError("tune: needs Optuna; pip install 'histnetq[tune]'.")
    from histnetq.evaluation.trials import Space, Trials, quiet

    base = _checked(quantifier, space, random_state)
    ranges = Space.of(base, space)
    total = ranges.n_trials(trials)
    if not callable(measure) and measure not in MEASURES:
        known = ", ".join(MEASURES)
        raise ValueError(f"measure: expected one of {known} or a callable (p_true, p_pred), got {measure!r}.")
    whole: tuple[Any, Any] = (X.with_prevalences(y), None) if isinstance(X, Bags) and y is not None else (X, y)
    learned, bags = (whole, validation) if validation is not None else _hold_out(whole, random_state)
    if not isinstance(bags, Bags):
        raise TypeError(f"validation: expected Bags, got {type(bags).__name__}; draw some by APP().")
    search = _Search(base, ranges, whole, learned, bags.with_known_prevalences(), as_loss(measure), random_state)
    identity, interrupted = {} if storage is None else search.identity(measure), False
    with quiet():
        done = Trials(ranges, total, storage, name or "tune", identity, random_state)
        try:
            done.run(search.score, progress)
        except KeyboardInterrupt:
            if done.best() is None:
                raise
            refit, interrupted = False, True
            warnings.warn("tune: interrupted; the best parameters so far are kept.", TrainingInterrupted, stacklevel=2)
        return search.result(done, refit, interrupted)


@dataclass
class _Search:
    """The objective of the trials, and the best quantifier that this process has fitted."""

    quantifier: Quantifier
    space: Space
    whole: tuple[Any, Any]  # arguments of `fit` for all data
    learned: tuple[Any, Any]  # the same object if nothing is held out
    validation: Bags
    loss: Measure
    random_state: int | None
    best: tuple[float, int, Quantifier | None] = (math.inf, -1, None)  # error, number of the trial, fitted quantifier

    def score(self, trial: Any) -> float:
        """Return the mean error of a quantifier with the trial's parameters."""
        quantifier = self.make(trial.params)
        training = quantifier.get_params(deep=False).get("training")
        # Losses are reported for pruning if they can be compared between trials.
        if training is not None and not self.space.distributions.keys() & _INCOMPARABLE:
            callbacks = (*training.callbacks, lambda record: _report(trial, record))
            quantifier.training = dataclasses.replace(training, callbacks=callbacks)
        with warnings.catch_warnings():
            # An interrupted training keeps its weights and warns; here it interrupts the search.
            warnings.simplefilter("error", TrainingInterrupted)
            try:
                quantifier.fit(*self.learned)
            except TrainingInterrupted:
                raise KeyboardInterrupt from None
        if training is not None:
            quantifier.training = training
        bags = align(self.validation, [str(c) for c in quantifier.classes_])
        value = float(np.mean(self.loss(bags.prevalences, quantifier.predict(bags), bags.sizes)))
        if not math.isfinite(value):
            raise FloatingPointError(f"measure: expected a finite mean over the validation bags, got {value}.")
        if value < self.best[0]:
            self.best = value, trial.number, quantifier
        return value

    def make(self, params: Mapping[str, Any]) -> Quantifier:
        """Return an unfitted quantifier with these parameters."""
        values = self.space.values(params)
        for name, value in values.items():
            if any(other.startswith(f"{name}__") for other in values):  # nested parameters are set on a copy
                values[name] = clone(value, safe=False)
        made = _twin(self.quantifier)
        if made.get_params(deep=False).get("random_state", 0) is None:
            made.set_params(random_state=self.random_state)
        return made.set_params(**values)

    def identity(self, measure: str | Measure) -> dict[str, str]:
        """Return texts that are equal for two runs of one search, in any process."""
        params = self.quantifier.get_params(deep=False)
        if "training" in params:
            params["training"] = dataclasses.replace(params["training"], callbacks=(), progress=None)
        X, y = self.whole
        given = {
            "quantifier": (type(self.quantifier).__name__, params),
            "space": {name: self.space.choices.get(name, kind) for name, kind in self.space.distributions.items()},
            "measure": measure,
            "data": (X if isinstance(X, Bags) else Bags.from_labels(X, y)).fingerprint(),
            "validation": self.validation.fingerprint(),
        }
        return {part: describe(value) for part, value in given.items()}

    def result(self, trials: Trials, refit: bool, interrupted: bool) -> Tuned:
        best = trials.best()
        if best is None:
            errors = [t.user_attrs["error"] for t in trials.ended() if "error" in t.user_attrs]
            raise ValueError(f"tune: every trial failed, the first of {len(errors)} with: {errors[0]}")
        quantifier = self.best[2] if self.best[1] == best.number else None
        if refit and (self.learned is not self.whole or quantifier is None):
            quantifier = self.make(best.params).fit(*self.whole)
        return Tuned(self.space.values(best.params), best.value, quantifier, trials.table(), interrupted)


def _hold_out(data: tuple[Any, Any], random_state: int | None) -> tuple[tuple[Any, Any], Bags]:
    """Return the arguments of `fit` for a part of the data, and validation bags from the held-out part."""
    # The bags are the same even without a random_state, because a resumed search compares values on them.
    seed = 0 if random_state is None else int(np.random.default_rng(random_state).integers(2**31))
    kept, held = Supervision.of(*data, None).split(_HELD_OUT, seed)
    bags = held.validation_bags(APP(), _VALIDATION_BAGS, seed)
    learned: Any = kept.rows if kept.bags is None else kept.bags
    if isinstance(data[0], Bags):
        return (learned, None), bags
    return (learned.gather(), learned.classes[learned.labels[learned.index]]), bags


def _checked(quantifier: Quantifier, space: Mapping[str, Any], random_state: int | None) -> Quantifier:
    """Return a copy of the quantifier that has the parameters of the space."""
    if "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        got = f"one of {os.environ['WORLD_SIZE']} that torchrun started"
        remedy = ("start as many workers without it, with the same ", Option("storage"))
        raise InputError("tune", "a process of its own", got, remedy)
    if not isinstance(quantifier, Quantifier):
        raise TypeError(f"quantifier: expected a quantifier such as EMQ(), got {quantifier!r}.")
    if not isinstance(space, Mapping) or not space:
        raise ValueError(f"space: expected a dict of parameter names and values, got {space!r}.")
    if not (random_state is None or (isinstance(random_state, Integral) and random_state >= 0)):
        raise ValueError(f"random_state: expected None or a whole number of at least 0, got {random_state!r}.")
    training = quantifier.get_params(deep=False).get("training")
    if isinstance(training, Training) and training.checkpoint is not None:
        raise ValueError(
            "quantifier: training.checkpoint is for one run, expected None in a search; pass storage= to resume one."
        )
    return _twin(quantifier)


def _twin(quantifier: Quantifier) -> Quantifier:
    made = clone(quantifier)
    params = quantifier.get_params(deep=False)
    if params.get("cv", 0) is None:  # a classifier that is fitted and stays so
        made.set_params(classifier=params["classifier"])
    return made


def _report(trial: Any, record: dict[str, float]) -> None:
    """Report the validation loss of an epoch to Optuna, and end the trial if Optuna prunes it."""
    from optuna import TrialPruned

    try:
        trial.report(record["validation_loss"], int(record["epoch"]))
    except RuntimeError:  # other workers assumed that this worker was killed, and repeat the trial
        raise TrialPruned from None
    if trial.should_prune():
        raise TrialPruned
