"""Fit, choose and tune quantifiers on the bags of a table, and calibrate them by bags that they have not seen."""

from __future__ import annotations

import contextlib
import copy
import datetime
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

import numpy as np

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_choice
from histnetq.bags.protocols import APP
from histnetq.evaluation.comparison import Comparison
from histnetq.evaluation.errors import compare
from histnetq.metrics import ae
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.classical.classifiers import CLASSIFIERS
from histnetq.registry import METHODS
from histnetq.tables.files import are_processes_together
from histnetq.training.options import TrainingInterrupted
from histnetq.training.progress import LOG, in_words, tell_event
from histnetq.training.supervision import Supervision
from histnetq.workflows.candidates import (
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

_FLOOR = "mean of training"
_HELD_OUT = 0.25  # part of the bags or rows that methods are compared on
_FEWEST_TO_CALIBRATE = 20  # bags: fewer give intervals for no usual coverage
_ENOUGH_TO_CALIBRATE = 100  # bags: where fewer would be kept apart, all bags calibrate instead
_FEWEST_ROWS = 50  # kept apart from rows in no bags, to draw calibration bags from
_FEWEST_TO_JUDGE = 3  # bags
_ON_PREDICTIONS = ("acc", "cc", "mlpe")
_MOST_ROWS = 30_000  # that methods learn from where one is to be chosen
_DRAWN, _DRAWN_SIZE = 200, 100  # bags that are drawn from rows kept apart, and their rows


@dataclass(frozen=True)
class Apart:
    """What is learned from, and bags that are kept apart from it.

    Attributes
    ----------
    learned : Bags
        What is learned from.
    held : Bags or None
        Bags of other rows, if there are enough; or, where each was estimated by a model without it, the same bags.
    words : str
        What these are.
    """

    learned: Bags
    held: Bags | None = None
    words: str = ""


@dataclass(frozen=True)
class Workbench:
    """Bags of known proportions, or of labelled rows, and how quantifiers are fitted to them.

    Attributes
    ----------
    bags : Bags
        All that is known. Labelled rows that lie in no bags are a single one.
    loss : str
        What networks are trained for, a name from `histnetq.metrics`.
    classifier : str or None
        Name of the classifier of classical methods; None for the default, and for a choice among some.
    calibration : float
        Part of the bags, or of rows in no bags, that is kept apart to calibrate by; 0 for none. Where these are fewer
        than 100 bags, all bags calibrate instead, unless a fit takes long.
    random_state : int
        Seed of all that is drawn.
    keep_interrupted : bool
        Whether an interruption of the last training, or of a search, is no error but keeps what was found so far.
    hard : bool
        Whether rows are predicted classes in place of probabilities.
    about : dict
        Where the bags come from, for the model's `provenance_`.
    tell : callable
        Where sentences about the progress of a choice go.
    """

    bags: Bags
    loss: str = "ae"  # the measure that methods are chosen by
    classifier: str | None = None
    calibration: float = 0.25
    random_state: int = 0
    keep_interrupted: bool = False
    hard: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda sentence: None

    def fit(self, method: str) -> Quantifier:
        """Fit a quantifier, by its name in lower case, and calibrate it by bags that it has not seen."""
        model = self.make(Candidate(method, self.classifier))
        if self.loss != "ae" and "loss" not in model.get_params(deep=False):
            raise ValueError(f"loss: {type(model).__name__} has none, as it is no network; leave it out.")
        began, apart = time.perf_counter(), self._kept_apart()
        return self._finished(*self._learned(model, apart), began)

    def fit_best(self) -> tuple[Quantifier, Comparison | None]:
        """Compare a few methods on bags that are kept apart, and fit the one of the lowest mean AE to all.

        Where too few bags of known proportions are given for a comparison, there is none: the first method is fitted.
        """
        began, apart = time.perf_counter(), self._kept_apart()
        suited, left_out = self._candidates(None)
        candidates = {candidate.name: candidate for candidate in suited}
        comparison = None
        if self.bags.labels is None and _n_held(apart.learned) < _FEWEST_TO_JUDGE:
            best = next(iter(candidates))
            why = f"{best} is fitted: {len(apart.learned)} bags are too few to compare methods on a part of them."
        else:
            comparison = replace(self, bags=apart.learned).compare(None)
            best, why = _best(comparison)
        why = f"{why} {left_out}".rstrip()
        self.tell(f"Fitting {best} to all that was not kept apart for intervals.")
        tell_event("fitting", name=best)
        model = self.make(candidates[best], MINUTES_TO_FIT)
        model, apart = self._learned(model, apart)
        errors = None if comparison is None else _mean_errors(comparison)
        return self._finished(model, apart, began, why=why, errors=errors), comparison

    def compare(self, methods: Sequence[str] | None) -> Comparison:
        """Fit methods to most of the bags and compare them on the others; default: a few that suit what is known."""
        # Made first: what cannot learn from these bags is refused before anything is fitted.
        minutes = MINUTES_TO_COMPARE if methods is None else None
        candidates, left_out = self._candidates(methods)
        models = {candidate.name: self.make(candidate, minutes) for candidate in candidates}
        floor, apart = self.make(Candidate("mlpe")), self._to_judge()
        held = apart.held
        assert held is not None
        assert held.prevalences is not None
        bounded = minutes is not None and any(hasattr(model, "training") for model in models.values())
        limit = f" (networks for at most {minutes:g} min each)" if bounded else ""
        learned, n_rows = apart.learned, len(apart.learned.index)
        if methods is None and n_rows > _MOST_ROWS:
            learned = _part(learned, _MOST_ROWS / n_rows, self.random_state)
            limit += f" on {len(learned.index):,} of {n_rows:,} rows"
        tell_event("methods", names=list(models))
        if left_out:
            self.tell(left_out)
        self.tell(f"Trying {', '.join(models)}{limit}, judged by {apart.words}:")
        truth = held.prevalences
        found = Trial(models, self.tell, methods is None).run(learned, held, lambda p: float(ae(truth, p).mean()))
        found[_FLOOR] = floor.fit(learned).predict(held)
        return compare(found, held, train_prevalences=floor.train_prevalences_)

    def tune(self, method: str, trials: int, storage: str | None) -> Quantifier:
        """Search the method's parameters by AE on bags that are kept apart, and fit the best.

        Of methods on posteriors, the classifier is searched too, or the parameters of the one that is named.
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
        apart = self._kept_apart()
        options: dict[str, Any] = {"measure": "ae", "storage": storage, "random_state": self.random_state}
        with self._keeping():
            found = tune(model, space, apart.learned, trials=trials, **options)
        if found.quantifier is None:  # another process has the best so far
            raise KeyboardInterrupt
        why = f"The best of {len(found.trials)} trials by mean AE, {found.best_value:.4f}: {found.best_params}."
        n_done = int((found.trials["error"] != "interrupted").sum())
        stopped = {"interrupted": f"after {n_done} of {trials} trials"} if found.interrupted else {}
        model = found.quantifier
        if not stopped:
            model, apart = self._cross_calibrated(model, apart, float(found.trials["seconds"].median()))
        return self._finished(model, apart, began, why=why, **stopped)

    @property
    def table_facts(self) -> dict[str, Any]:
        """What the reader of the table told beside the bags."""
        facts = self.bags.facts
        if facts is None:
            return {}
        means = facts.means.tolist()
        return {
            "left_out": facts.left_out, "feature_means": means, "dropped_rows": facts.dropped,
            "filled_cells": facts.filled,
        }  # fmt: skip

    def make(self, candidate: Candidate, minutes: float | None = None) -> Quantifier:
        """Make an unfitted quantifier that can learn from the bags; a network trains for so many minutes at most."""
        entry = METHODS[check_choice("method", candidate.method, tuple(METHODS))]
        if self.bags.labels is None and entry.learns_from == "labels":
            raise ValueError(
                f"method: {entry.name} learns from labelled rows, but these have none; name the label column, "
                "or use histnetq, emnetq, deepsets or settransformer, which learn from proportions."
            )
        model: Quantifier = entry.load()()
        accepted = model.get_params(deep=False)
        if self.hard and candidate.method not in _ON_PREDICTIONS:
            raise ValueError(
                f"method: expected acc or cc for predicted classes, got {candidate.method}, which reads probabilities; "
                "name their columns by proba."
            )
        if candidate.classifier is not None and "classifier" not in accepted:
            raise ValueError(f"classifier: {entry.name} has none; leave it out, or name a method such as emq.")
        shared = {"random_state": self.random_state, "loss": self.loss}
        wanted = {name: value for name, value in shared.items() if name in accepted} | dict(candidate.params)
        if candidate.classifier is not None:
            wanted["classifier"] = check_choice("classifier", candidate.classifier, tuple(CLASSIFIERS))
        if minutes is not None and "training" in accepted:
            wanted["training__minutes"] = minutes
        return model.set_params(**wanted)

    def _candidates(self, methods: Sequence[str] | None) -> tuple[list[Candidate], str]:
        """Give methods by their names, or a few that suit what is known and a sentence about others that would."""
        if methods is not None:
            return [Candidate(method, self.classifier) for method in methods], ""
        if self.bags.labels is None:
            return installed(from_proportions())
        if self.bags.scores is not None:
            return installed([Candidate("acc"), Candidate("cc")] if self.hard else from_scores())
        return installed(from_labels() if self.classifier is None else from_labels([self.classifier]))

    def _learned(self, model: Quantifier, apart: Apart) -> tuple[Quantifier, Apart]:
        """Fit a model to what is not kept apart, or to all bags where few are; give what calibrates it, too."""
        learned = apart.learned
        source = f"{len(learned)} bags" if len(learned) > 1 else f"{len(learned.index):,} rows"
        LOG.info("%s: learning from %s.", type(model).__name__, source)
        began = time.process_time()  # which other work on the machine does not change
        with self._keeping():
            model = model.fit(learned)
        return self._cross_calibrated(model, apart, time.process_time() - began)

    def _cross_calibrated(self, model: Quantifier, apart: Apart, seconds: float) -> tuple[Quantifier, Apart]:
        """Fit a model to all bags, and let all calibrate it, where few are kept apart and a fit takes few seconds."""
        n_bags, folds = len(self.bags), affordable_folds(seconds)
        few = n_bags >= _FEWEST_TO_CALIBRATE and 0 < self.calibration * n_bags < _ENOUGH_TO_CALIBRATE
        interrupted = bool(getattr(model, "interrupted_", ""))
        # Processes that work together would have to decide alike, and each has a clock of its own.
        if not few or interrupted or are_processes_together():
            return model, apart
        if folds == 0:
            words = f"{apart.words}, as it takes {in_words(seconds)} to fit it and all bags need several fits"
            return model, replace(apart, words=words)
        tell_event("calibrating", left=seconds * (folds + 1))
        self.tell(
            f"Fitting it to all bags, and {folds} times without some of them, whose errors calibrate intervals: "
            f"about {in_words(seconds * (folds + 1))}."
        )
        try:
            model = copy.copy(model).cross_calibrate(self.bags, folds=folds, random_state=self.random_state)
        except ValueError as error:  # such as rows that bags share, or classes that are in a few bags alone
            self.tell(f"All bags at once cannot calibrate intervals: {str(error).removeprefix('bags: ')}")
            return model, apart
        return model, Apart(
            self.bags, self.bags, f"{n_bags} bags, each estimated by a model that was learned without it"
        )

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        """Take an interruption for the end of training where what was learned so far is wanted."""
        with warnings.catch_warnings():
            if self.keep_interrupted:
                warnings.simplefilter("ignore", TrainingInterrupted)
            yield

    def _kept_apart(self) -> Apart:
        """Keep bags apart to calibrate by: whole ones, or, of rows in no bags, some drawn from rows kept apart."""
        if self.calibration > 0 and self._is_rows_alone():
            apart, n_rows = self._rows_apart(self.calibration)
            if n_rows >= _FEWEST_ROWS:
                return apart
        elif self.calibration > 0 and round(self.calibration * len(self.bags)) >= _FEWEST_TO_CALIBRATE:
            learned, held = self.bags.split(1 - self.calibration, self.random_state)
            return Apart(learned, held, f"{len(held)} other bags")
        return Apart(self.bags)

    def _to_judge(self) -> Apart:
        """Keep bags apart to compare methods on: whole ones, or, where there are few, some drawn from labelled rows."""
        if _n_held(self.bags) >= _FEWEST_TO_JUDGE:
            learned, held = self.bags.split(1 - _HELD_OUT, self.random_state)
            return Apart(learned, held.with_known_prevalences(), f"{len(held)} bags kept apart")
        if self.bags.labels is None:
            raise ValueError(
                f"bags: expected at least {round(_FEWEST_TO_JUDGE / _HELD_OUT)} bags to compare methods on a part of "
                f"them, got {len(self.bags)}; name one method, or give more bags."
            )
        return self._rows_apart(_HELD_OUT)[0]

    def _is_rows_alone(self) -> bool:
        return len(self.bags) == 1 and self.bags.labels is not None

    def _rows_apart(self, fraction: float) -> tuple[Apart, int]:
        """Keep rows of each class apart and draw bags from them; also give their number."""
        kept, out = Supervision.of(self.bags, None, None).split(fraction, self.random_state)
        learned = kept.rows if kept.bags is None else kept.bags
        assert learned is not None
        held = out.validation_bags(APP(_DRAWN_SIZE), _DRAWN, self.random_state)
        n_rows = len(np.unique(held.index if out.rows is None else out.rows.index))
        words = f"{len(held)} bags of {_DRAWN_SIZE} rows drawn from {n_rows:,} rows kept apart"
        return Apart(learned, held, words), n_rows

    def _why_uncalibrated(self) -> str:
        if self.calibration == 0:
            return "nothing was to be kept apart for intervals"
        if self._is_rows_alone():
            return "too few rows to keep some apart for intervals"
        if len(self.bags) < _FEWEST_TO_CALIBRATE:
            return f"too few bags to calibrate intervals, which takes {_FEWEST_TO_CALIBRATE}"
        needed = round(_FEWEST_TO_CALIBRATE / self.calibration)
        return f"too few bags to keep some apart for intervals, which takes {needed}"

    def _finished(self, model: Quantifier, apart: Apart, began: float, **why: Any) -> Quantifier:
        """Calibrate a fitted model, and note where it comes from."""
        learned, held = apart.learned, apart.held
        why = {"interrupted": getattr(model, "interrupted_", ""), **why}
        if held is not None:
            if not hasattr(model, "calibration_"):
                model.calibrate(held)
            why["calibrated"] = f"by {apart.words}"
            if self._is_rows_alone():
                why["calibrated"] += ", with all mixes alike likely: intervals hold for such bags"
        else:
            why["uncalibrated"] = self._why_uncalibrated()
        packages = ("histnetq", "numpy", "scikit-learn", *(["torch"] if "torch" in sys.modules else []))
        versions = {name: metadata.version(name) for name in packages}
        model.provenance_ = {
            **self.about, **why, **self.table_facts, "bags": len(learned), "rows": len(learned.index),
            "calibration_bags": 0 if held is None else len(held), "seconds": round(time.perf_counter() - began, 1),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "versions": {"python": platform.python_version(), **versions},
        }  # fmt: skip
        return model


def _part(bags: Bags, fraction: float, seed: int) -> Bags:
    """Give a part of the bags, or of the rows of each class if they lie in no bags."""
    if len(bags) > 1:
        return bags.split(fraction, seed)[0]
    drawn = Supervision.of(bags, None, None).split(fraction, seed)[1].rows
    assert drawn is not None
    return drawn


def _n_held(bags: Bags) -> int:
    """Tell how many whole bags are kept apart to compare methods on."""
    return round(_HELD_OUT * len(bags))


def _mean_errors(comparison: Comparison) -> dict[str, Any]:
    """Give the mean AE of each method, and the number of bags that it is the mean of."""
    errors = comparison.table["ae", "mean"].astype(float)
    return {"bags": len(comparison.errors), "ae": {str(name): round(float(errors[name]), 6) for name in errors.index}}


def _best(comparison: Comparison) -> tuple[str, str]:
    """Give the name of the method of the lowest mean AE, and say so."""
    errors = comparison.table["ae", "mean"].astype(float).sort_values()
    best = next(name for name in errors.index if name != _FLOOR)
    others = ", ".join(f"{name} {errors[name]:.4f}" for name in errors.index if name != best)
    why = (
        f"{best} has the lowest mean AE of the methods on {len(comparison.errors)} bags kept apart: "
        f"{errors[best]:.4f} ({others})."
    )
    if errors.index[0] == _FLOOR:
        why += f" But {_FLOOR} errs less: these features tell little about the classes."
    return str(best), why
