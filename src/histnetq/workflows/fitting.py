"""`fit_best`: compare methods, fit the best one and calibrate its intervals."""

from __future__ import annotations

import contextlib
import copy
import datetime
import platform
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_choice, check_number
from histnetq.errors import InputError, Option, Way
from histnetq.evaluation.comparison import BASELINE, Comparison
from histnetq.evaluation.errors import compare
from histnetq.metrics import ae
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.classical.posteriors import PosteriorQuantifier
from histnetq.registry import CLASSIFIERS, METHODS
from histnetq.tables.files import are_processes_together
from histnetq.training.options import TrainingInterrupted
from histnetq.training.progress import Listener, in_words, listening, report_event
from histnetq.uncertainty.half_splits import can_halve, check_sizes
from histnetq.workflows.calibrating import calibrate_on_rows, trust_from_rows
from histnetq.workflows.candidates import (
    DEFAULT,
    MINUTES_TO_COMPARE,
    MINUTES_TO_FIT,
    Candidate,
    Trial,
    affordable_folds,
    from_labels,
    from_proportions,
    from_scores,
    installed,
)
from histnetq.workflows.classifier_choice import COMPARED, affordable, choose_classifier
from histnetq.workflows.hold_out import (
    FEWEST_TO_CALIBRATE,
    Split,
    are_rows_alone,
    can_compare,
    hold_out_to_calibrate,
    hold_out_to_compare,
    take_part,
    why_uncalibrated,
    words_of_drawn,
)
from histnetq.workflows.reading import read_training

_ON_PREDICTIONS = ("acc", "cc", "mlpe")  # methods for predicted classes
CHOICES = ("auto", "search")  # ways to choose a method
_MOST_ROWS = 30_000  # largest number of rows that methods learn from in a comparison


def fit_best(
    train: Any,
    y: Any = None,
    *,
    method: str = "auto",
    classifier: str | None = None,
    rescaling: str = "auto",
    loss: str = "ae",
    calibration: float = 0.25,
    bag_size: int | Sequence[int] | None = None,
    random_state: int = 0,
    on_event: Listener | None = None,
    **reading: Any,
) -> tuple[Quantifier, Comparison | None]:
    """Fit a good method to everything, and calibrate its intervals.

    This is what ``histnetq fit`` does. By default, labelled rows are learned by `Pretrained` on the classifier with the
    lowest log-loss on held-out rows: a logistic regression, a random forest or boosting. For bags of known proportions
    without labels, methods are compared by mean absolute error on held-out bags. Labelled rows need no bags.

    Parameters
    ----------
    train : Bags, table or array of rows
        Bags with labels or prevalences; a table (path, glob, list of paths or data frame) that `read_bags` reads; or
        an array of rows, with their labels as `y`.
    y : array, default=None
        The label of each row of an array.
    method : str, default="auto"
        Fit this method, such as "emq" or "histnetq". The method "search" takes minutes: it compares several methods by
        mean absolute error on held-out bags, and fits the best one.
    classifier : str, default=None
        Name of the classifier of classical methods. None means a logistic regression; with the methods "auto" and
        "search", a logistic regression, a random forest and boosting are compared.
    rescaling : str, default="auto"
        How the named method rescales posteriors, see `EMQ`; "none" for no rescaling. Only for methods that rescale.
    loss : str, default="ae"
        Loss that networks minimise, a name from `histnetq.metrics`.
    calibration : float, default=0.25
        Fraction of the bags, or of rows without bags, that is held out to calibrate intervals if a fit takes more than
        24 seconds; 0 means no intervals. Faster methods are fitted to everything and calibrated by cross-validation:
        over bags, or over random halves of rows without bags.
    bag_size : int or sequence of int, default=None
        Expected sizes of new bags, for labelled rows without bags; intervals are calibrated for these sizes. None means
        sizes from 20 to 10,000.
    random_state : int, default=0
        Seed of everything that is drawn.
    on_event : callable, default=None
        Called with a dict for each step: its "kind", and facts such as the "text" of a note.
    **reading : dict
        Options of `read_bags` for a table, such as ``bag="tow", label="species"``.

    Returns
    -------
    quantifier : Quantifier
        The fitted quantifier. Its attribute `provenance_` says how it came about.
    comparison : Comparison or None
        Errors of the compared methods on held-out bags; None if only classifiers, or none, were compared.

    Examples
    --------
    >>> import numpy as np, histnetq as hq
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=400)
    >>> q, comparison = hq.fit_best(rng.normal(size=(400, 1)) + 4 * y[:, None], y, method="pacc")
    >>> q.provenance_["rows"]
    400
    """
    chosen = {"loss": loss, "classifier": classifier, "calibration": calibration, "bag_size": bag_size}
    chosen["random_state"] = random_state
    with listening(on_event):
        check_method(method)
        check_number("calibration", calibration, 0, 0.9, what="a fraction of the bags", remedy="pass 0.25 for 25 %")
        return read_workbench(train, y, rescaling=rescaling, **chosen, **reading).fit(method)


def read_workbench(train: Any, y: Any = None, **options: Any) -> Workbench:
    """Read training data into a `Workbench`; options are attributes of the workbench, or options of `read_training`."""
    own = {name: options.pop(name) for name in Workbench.__dataclass_fields__ if name in options}
    scored = [name for name in ("proba", "prediction") if options.get(name) is not None]
    if scored and own.get("classifier") is not None:
        got = (f"{own['classifier']!r} and ", Option(scored[0]))
        raise InputError("classifier", "none for scores of your own classifier", got, "leave one of them out")
    return Workbench(read_training(train, y, **options), hard="prediction" in scored, **own)


def check_method(method: Any) -> str:
    """Return the name of a method in lower case, "auto" or "search"; refuse anything else."""
    return check_choice("method", method, (*CHOICES, *METHODS))


@dataclass(frozen=True)
class Workbench:
    """Training bags with options for fitting quantifiers to them, most of them as in `fit_best`.

    Attributes
    ----------
    bags : Bags
        All bags with known proportions or labels. Labelled rows without a bag column are a single bag.
    keep_interrupted : bool
        Return the best result so far if training or a search is interrupted, instead of raising an error.
    hard : bool
        Rows are predicted classes instead of probabilities.
    about : dict
        Origin of the bags, for the model's `provenance_`.
    """

    bags: Bags
    loss: str = "ae"
    classifier: str | None = None
    rescaling: str = "auto"
    calibration: float = 0.25
    bag_size: int | Sequence[int] | None = None
    random_state: int = 0
    keep_interrupted: bool = False
    hard: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)

    def fit(self, method: str) -> tuple[Quantifier, Comparison | None]:
        """Fit a method by its name in lower case, the default ("auto") or the best of a few, and calibrate it."""
        if method in CHOICES and self.rescaling != "auto":
            remedy = ("name one by ", Option("method"))
            raise InputError("rescaling", "a named method that rescales posteriors, such as emq", method, remedy)
        self._check_bag_size()
        if method == "search" or (method == "auto" and self.bags.labels is None):
            return self._fit_best()
        if method == "auto" and not self.hard:
            return self._fit_default(), None
        chosen = None if self.rescaling == "none" else self.rescaling
        params = {} if chosen == "auto" else {"rescaling": chosen}
        model = self._without_loss(self.make(Candidate("acc" if method == "auto" else method, self.classifier, params)))
        began = time.perf_counter()
        return self._finished(*self._learned(model, self._hold_out(model)), began), None

    def _fit_default(self) -> Quantifier:
        """Fit the default method for labelled rows, on the given classifier or on the best of a few."""
        began, model = time.perf_counter(), self.make(replace(DEFAULT, classifier=self.classifier))
        self._without_loss(model)
        split = self._hold_out(model)
        if self.classifier is not None or self.bags.scores is not None:
            return self._finished(*self._learned(model, split), began)

        def make(name: str) -> PosteriorQuantifier:
            found = self.make(replace(DEFAULT, classifier=name))
            assert isinstance(found, PosteriorQuantifier)
            return found

        report_event("note", text="Choosing a classifier:")
        choice = choose_classifier(make, split.learned, self.random_state)
        model = make(choice.name)
        seconds = time.process_time()
        model.fit_crossed(choice.crossed)
        model, split = self._calibrated(model, split, choice.seconds + time.process_time() - seconds)
        return self._finished(model, split, began, why=choice.words, log_losses=choice.rounded)

    def _without_loss(self, model: Quantifier) -> Quantifier:
        """Return a model; refuse a loss that the model does not minimise."""
        if self.loss != "ae" and "loss" not in model.get_params(deep=False):
            kind = type(model).__name__
            raise ValueError(f"loss: {kind} is not a network and has no loss; leave it out.")
        return model

    def _check_bag_size(self) -> tuple[int, ...]:
        """Return the sizes of calibration bags that are drawn from labelled rows."""
        if self.bag_size is not None and not are_rows_alone(self.bags):
            expected, got = "none for bags, whose own sizes count", self.bag_size
            raise InputError("bag_size", expected, got, "leave it out, or leave out the bag column")
        return check_sizes(self.bag_size)

    def _fit_best(self) -> tuple[Quantifier, Comparison | None]:
        """Compare a few methods on held-out bags, and fit the one with the lowest mean AE to everything.

        With too few bags of known proportions for a comparison, the first method is fitted.
        """
        began, split = time.perf_counter(), self._hold_out(None)
        suited, skipped = self._candidates(None)
        candidates = {candidate.name: candidate for candidate in suited}
        comparison = None
        if self.bags.labels is None and not can_compare(split.learned):
            best = next(iter(candidates))
            why = f"{best} was fitted without a comparison: {len(split.learned)} bags are too few to hold some out."
        else:
            comparison = replace(self, bags=split.learned).compare(None)
            best, why = _best(comparison)
        model = self.make(candidates[best], MINUTES_TO_FIT)
        report_event("fitting", name=best)
        model, split = self._learned(model, self._hold_out(model) if are_rows_alone(self.bags) else split)
        errors = None if comparison is None else _mean_errors(comparison)
        return self._finished(model, split, began, why=f"{why} {skipped}".rstrip(), errors=errors), comparison

    def compare(self, methods: Sequence[str] | None) -> Comparison:
        """Fit methods to most of the bags and compare them on held-out bags; None compares a few that suit the data."""
        # Quantifiers are constructed first, so that unsuitable methods are refused before anything is fitted.
        minutes = MINUTES_TO_COMPARE if methods is None else None
        candidates, skipped = self._candidates(methods)
        models = {candidate.name: self.make(candidate, minutes) for candidate in candidates}
        baseline, split = self.make(Candidate("mlpe")), hold_out_to_compare(self.bags, self.random_state)
        held = split.held
        assert held is not None
        truth = held.prevalences
        assert truth is not None
        bounded = minutes is not None and any(hasattr(model, "training") for model in models.values())
        limit = f" (networks for at most {minutes:g} min each)" if bounded else ""
        learned, n_rows = split.learned, len(split.learned.index)
        if methods is None and n_rows > _MOST_ROWS:
            learned = take_part(learned, _MOST_ROWS / n_rows, self.random_state)
            limit += f" on {len(learned.index):,} of {n_rows:,} rows"
        report_event("methods", names=list(models))
        if skipped:
            report_event("note", text=skipped)
        report_event("note", text=f"Comparing {', '.join(models)}{limit} on {split.words}:")
        found = Trial(models, methods is None).run(learned, held, lambda p: float(ae(truth, p).mean()))
        found[BASELINE] = baseline.fit(learned).predict(held)
        return compare(found, held, train_prevalences=baseline.train_prevalences_)

    def tune(self, method: str, trials: int, storage: str | None) -> Quantifier:
        """Search for the parameters with the lowest mean absolute error (AE) on held-out bags, and fit the method.

        For classifier-based methods, the search includes the choice of the classifier. If `classifier` is given, the
        search includes the parameters of this classifier instead.
        """
        from histnetq.evaluation.tuning import tune

        began, model = time.perf_counter(), self.make(Candidate(method, self.classifier))
        space = METHODS[method].space
        if self.classifier is not None or self.bags.scores is not None:
            space = {name: values for name, values in space.items() if name != "classifier"}
        if self.classifier is not None:
            space |= CLASSIFIERS[self.classifier].space
        if not space:
            on_scores = " on scores" if self.bags.scores is not None else ""
            raise ValueError(f"method: {type(model).__name__} has nothing to tune{on_scores}; fit it.")
        split = self._hold_out(model)
        options: dict[str, Any] = {"measure": "ae", "storage": storage, "random_state": self.random_state}
        with self._keeping():
            found = tune(model, space, split.learned, trials=trials, **options)
        if found.quantifier is None:  # another process has the best result so far
            raise KeyboardInterrupt
        why = f"The best of {len(found.trials)} trials has mean AE {found.best_value:.4f}: {found.best_params}."
        n_done = int((found.trials["error"] != "interrupted").sum())
        stopped = {"interrupted": f"after {n_done} of {trials} trials"} if found.interrupted else {}
        model = found.quantifier
        if not stopped:
            model, split = self._calibrated(model, split, float(found.trials["seconds"].median()))
        return self._finished(model, split, began, why=why, **stopped)

    @property
    def table_facts(self) -> dict[str, Any]:
        """Facts about the table that the bags were read from."""
        if (facts := self.bags.facts) is None:
            return {}
        counts = {"dropped_rows": facts.dropped, "filled_cells": facts.filled}
        weight = {} if facts.weight is None else {"weight": facts.weight, "weight_kind": facts.weight_kind}
        return {"left_out": facts.left_out, "feature_means": facts.means.tolist(), **counts, **weight}

    def make(self, candidate: Candidate, minutes: float | None = None) -> Quantifier:
        """Construct a quantifier that can learn from the bags; a network trains for at most this many minutes."""
        entry = METHODS[check_choice("method", candidate.method, tuple(METHODS))]
        if self.bags.labels is None and entry.learns_from == "labels":
            others = "histnetq, emnetq, deepsets or linearq, which learn from proportions"
            named = Way("name the label column", on=("python", "service"))
            remedy = (named, Way("name their column by ", Option("label"), on=("command",)), f", or use {others}")
            problem = f"{entry.name} learns from labelled rows, but these have none"
            raise InputError("method", problem=problem, remedy=remedy)
        model: Quantifier = entry.load()()
        accepted = model.get_params(deep=False)
        if self.hard and candidate.method not in _ON_PREDICTIONS:
            expected, got = "acc or cc for predicted classes", f"{candidate.method}, which reads probabilities"
            raise InputError("method", expected, got, ("name their columns by ", Option("proba")))
        if candidate.classifier is not None and "classifier" not in accepted:
            raise ValueError(f"classifier: {entry.name} has none; leave it out, or name a method such as emq.")
        if "rescaling" in candidate.params and "rescaling" not in accepted:
            problem = f"{entry.name} does not rescale posteriors"
            raise InputError("rescaling", problem=problem, remedy="leave it out, or name a method such as emq")
        shared = {"random_state": self.random_state, "loss": self.loss}
        wanted = {name: value for name, value in shared.items() if name in accepted} | dict(candidate.params)
        if candidate.classifier is not None:
            wanted["classifier"] = check_choice("classifier", candidate.classifier, tuple(CLASSIFIERS))
        if minutes is not None and "training" in accepted:
            wanted["training__minutes"] = minutes
        return model.set_params(**wanted)

    def _candidates(self, methods: Sequence[str] | None) -> tuple[list[Candidate], str]:
        """Return methods by their names, or a few that suit the data and a sentence about methods that need torch."""
        if methods is not None:
            return [Candidate(method, self.classifier) for method in methods], ""
        if self.bags.labels is None:
            return installed(from_proportions())
        if self.bags.scores is not None:
            return installed([Candidate("acc"), Candidate("cc")] if self.hard else from_scores())
        if self.classifier is not None:
            return installed(from_labels([self.classifier]))
        names, slow = affordable(COMPARED, self.bags)
        found, skipped = installed(from_labels(names))
        return found, f"{skipped} {slow}".strip()

    def _hold_out(self, model: Quantifier | None) -> Split:
        """Hold out bags to calibrate a model (None: any model); classifier-based models need no held-out rows."""
        needs_none = model is None or (isinstance(model, PosteriorQuantifier) and model.resamples)
        if are_rows_alone(self.bags) and needs_none:
            return Split(self.bags)
        return hold_out_to_calibrate(self.bags, self.calibration, self._check_bag_size(), self.random_state)

    def _learned(self, model: Quantifier, split: Split) -> tuple[Quantifier, Split]:
        """Fit a model to the bags that are not held out, or to all bags if few are; return it with its final split."""
        learned = split.learned
        source = f"{len(learned)} bags" if len(learned) > 1 else f"{len(learned.index):,} rows"
        report_event("note", text=f"{type(model).__name__}: learning from {source}.")
        began = time.process_time()  # unlike wall time, it does not depend on other work of the machine
        with self._keeping():
            model = model.fit(learned)
        return self._calibrated(model, split, time.process_time() - began)

    def _calibrated(self, model: Quantifier, split: Split, seconds: float) -> tuple[Quantifier, Split]:
        """If a fit of this many seconds is fast, fit a model to everything and calibrate it by cross-validation."""
        if self.calibration == 0 or model.interrupted_:
            return model, split
        if are_rows_alone(self.bags):
            return self._calibrated_on_rows(model, split, seconds)
        n_bags, folds = len(self.bags), affordable_folds(seconds)
        # Processes that train together would have to make the same decision, and each has its own clock.
        if n_bags < FEWEST_TO_CALIBRATE or are_processes_together():
            return model, split
        if folds == 0:
            words = f"{split.words}, because a fit takes {in_words(seconds)} and cross-validation needs several fits"
            return model, replace(split, words=words)
        left = seconds * (folds + 1)
        report_event("calibrating", left=left)
        work = f"Fitting it to all bags, and calibrating intervals by {folds}-fold cross-validation"
        report_event("note", text=f"{work}: about {in_words(left)}.")
        try:
            model = copy.copy(model).cross_calibrate(self.bags, folds=folds, random_state=self.random_state)
        except ValueError as error:  # such as bags that share rows, or a class that only few bags have
            reason = str(error).removeprefix("bags: ")
            report_event("note", text=f"Intervals cannot be calibrated by cross-validation: {reason}")
            return model, split
        return model, Split(self.bags, self.bags, f"cross-validated estimates of {n_bags} bags")

    def _calibrated_on_rows(self, model: Quantifier, split: Split, seconds: float) -> tuple[Quantifier, Split]:
        """Calibrate on random halves of labelled rows without bags, unless the fits take too long."""
        is_whole = split.learned is self.bags
        folds = 0 if are_processes_together() else affordable_folds(seconds)
        if not can_halve(self.bags) or not (folds or model.capabilities().posteriors is not None):
            return model, split
        report_event("note", text="Calibrating intervals on bags drawn from random halves of the rows.")
        if not is_whole:
            model = copy.copy(model).fit(self.bags)
        sizes = self._check_bag_size()
        model = calibrate_on_rows(model, self.bags, sizes, folds, self.random_state)
        assert model.calibration_ is not None
        n_bags, n_rows = len(model.calibration_.joint_scores), len(self.bags.index)
        return model, Split(self.bags, self.bags, words_of_drawn(n_bags, sizes, f"random halves of {n_rows:,} rows"))

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        """Suppress the error of interrupted training if the result so far is wanted."""
        with warnings.catch_warnings():
            if self.keep_interrupted:
                warnings.simplefilter("ignore", TrainingInterrupted)
            yield

    def _finished(self, model: Quantifier, split: Split, began: float, **why: Any) -> Quantifier:
        """Calibrate a fitted model, and record its provenance."""
        learned, held = split.learned, split.held
        why = {"interrupted": model.interrupted_, **why}
        if held is not None:
            if model.calibration_ is None:
                model.calibrate(held)
            why["calibrated"] = f"by {split.words}"
            if are_rows_alone(self.bags):
                why["calibrated"] += ", uniformly over all mixes: intervals hold for such bags"
        else:
            why["uncalibrated"] = why_uncalibrated(self.bags, self.calibration)
            if self.bags.labels is not None and self.calibration > 0 and can_halve(self.bags):
                model.trust_ = trust_from_rows(self.bags, check_sizes(None), self.random_state)
        packages = ("histnetq", "numpy", "scikit-learn", *(["torch"] if "torch" in sys.modules else []))
        versions = {name: metadata.version(name) for name in packages}
        model.provenance_ = {
            **self.about,
            **why,
            **self.table_facts,
            "bags": len(learned),
            "rows": len(learned.index),
            "calibration_bags": 0 if model.calibration_ is None else len(model.calibration_.joint_scores),
            "seconds": round(time.perf_counter() - began, 1),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "versions": {"python": platform.python_version(), **versions},
        }
        return model


def _mean_errors(comparison: Comparison) -> dict[str, Any]:
    """Return the mean AE of each method and the number of bags."""
    errors = comparison.table["ae", "mean"].astype(float)
    return {"bags": len(comparison.errors), "ae": {str(name): round(float(errors[name]), 6) for name in errors.index}}


def _best(comparison: Comparison) -> tuple[str, str]:
    """Return the name of the method with the lowest mean AE, and a sentence that says so."""
    errors = comparison.table["ae", "mean"].astype(float).sort_values()
    best = next(name for name in errors.index if name != BASELINE)
    others = ", ".join(f"{name} {errors[name]:.4f}" for name in errors.index if name != best)
    why = (
        f"{best} has the lowest mean AE of the methods on {len(comparison.errors)} held-out bags: "
        f"{errors[best]:.4f} ({others})."
    )
    if errors.index[0] == BASELINE:
        why += f" But the baseline ({BASELINE}) is better: these features say little about the classes."
    return str(best), why
