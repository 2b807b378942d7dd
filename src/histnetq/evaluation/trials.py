"""The trials of `tune`: the search space for Optuna, and a study in a storage that several workers may share.

The suggestion of a trial depends only on the seed, its number and the finished trials, so an interrupted search
continues as if it had not been interrupted. Any worker may be killed: its trial then has no heartbeat, is marked as
failed, and is replaced by another trial.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState
from tqdm import tqdm

from histnetq.bags.checks import check_whole
from histnetq.errors import InputError, Option, Way
from histnetq.quantifiers.base import Quantifier
from histnetq.training.progress import ProgressLines

_STARTUP_TRIALS, _WARMUP_EPOCHS = 5, 10  # trials and epochs before a trial may be pruned
_BEAT, _GRACE = 20, 120  # seconds between heartbeats, and without one until a worker counts as killed
_POLL = 1.0  # seconds between checks of trials that run elsewhere
_LOCKED = 60.0  # seconds to wait for a lock of the SQLite file
_TRIES = 4  # attempts to open a database
_RECORDED = (ValueError, FloatingPointError)  # errors of a trial that do not end the search
_SEEN, _ERROR = "seen", "error"  # attributes of a trial: its worker's last heartbeat, and its error
_INTERRUPTED, _KILLED = "interrupted", "killed"
_STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's log and its warnings about experimental features."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)


@dataclass(frozen=True)
class Space:
    """Distributions for Optuna. A choice is drawn by its position, since Optuna stores plain values only."""

    distributions: dict[str, Any]
    choices: dict[str, list[Any]]

    @classmethod
    def of(cls, quantifier: Quantifier, space: Mapping[str, Any]) -> Space:
        listed = {n: list(v.choices) if isinstance(v, CategoricalDistribution) else v for n, v in space.items()}
        found = {name: _distribution(name, values) for name, values in listed.items()}
        choices = {name: values for name, values in listed.items() if isinstance(values, list)}
        _refuse_unknown(quantifier, choices, found)
        return cls(found, choices)

    @property
    def size(self) -> float:
        """Number of combinations."""
        only_lists = len(self.choices) == len(self.distributions)
        return math.prod(map(len, self.choices.values())) if only_lists else math.inf

    def n_trials(self, wanted: int | None) -> int:
        if wanted is None and self.size == math.inf:
            raise ValueError("trials: expected a number, as the space has ranges, got None; pass it, or lists alone.")
        return int(self.size if wanted is None else min(self.size, check_whole("trials", wanted)))

    def missing(self, trials: Iterable[FrozenTrial]) -> list[dict[str, int]]:
        """Return the combinations of choices that none of these trials has."""
        tried = {tuple(map(t.params.get, self.choices)) for t in trials}
        positions = itertools.product(*(range(len(values)) for values in self.choices.values()))
        return [dict(zip(self.choices, p, strict=True)) for p in positions if p not in tried]

    def suggest(self, trial: Trial) -> None:
        """Let Optuna choose a value of each parameter."""
        for name, kind in self.distributions.items():
            if isinstance(kind, CategoricalDistribution):
                trial.suggest_categorical(name, kind.choices)
            else:
                suggest: Any = trial.suggest_int if isinstance(kind, IntDistribution) else trial.suggest_float
                suggest(name, kind.low, kind.high, step=kind.step, log=kind.log)

    def values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the suggested values, with choices instead of their positions."""
        return {n: self.choices[n][params[n]] if n in self.choices else params[n] for n in self.distributions}


class Trials:
    """The trials of one search in Optuna's storage: missing and finished trials, and their table."""

    def __init__(
        self, space: Space, total: int, storage: Any, name: str, identity: Mapping[str, str], random_state: int | None
    ) -> None:
        self.space, self.total, self.sampler = space, total, _Sampler(random_state)
        pruner = optuna.pruners.MedianPruner(_STARTUP_TRIALS, _WARMUP_EPOCHS)
        try:
            opened = _opened(storage)
            self.study = optuna.create_study(storage=opened, pruner=pruner, study_name=name, load_if_exists=True)
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = f"storage: {storage} cannot be used as a journal of trials ({error}); name another."
            raise ValueError(problem) from None
        self.in_journal = isinstance(opened, JournalStorage)
        for part, text in identity.items():
            if self.study.user_attrs.setdefault(part, text) != text:
                remedy = ("pass another ", Way(Option("name"), " or "), Option("storage"))
                problem = f"{storage} holds a search {name!r} with another {part}"
                raise InputError("storage", problem=problem, remedy=remedy)
            self.study.set_user_attr(part, text)

    def run(self, objective: Callable[[Trial], float], progress: bool | None) -> None:
        """Run the missing trials, and wait for trials that run elsewhere and may be killed."""
        hidden = not (sys.stderr.isatty() if progress is None else progress)
        lines = ProgressLines("tune", "trial", self.total, len(self.ended()))
        with tqdm(total=self.total, unit="trial", disable=hidden, leave=False) as bar:
            while self._left(done := self.ended()):
                bar.update(len(done) - bar.n)
                self._fail_killed()
                free = self._left(done + self._running())
                if not free:
                    time.sleep(_POLL)
                    continue
                # Optuna's queue is not used: its trials would outlive a killed worker, and other workers would take
                # them.
                self.study.sampler = optuna.samplers.PartialFixedSampler(free[0], self.sampler)
                self._step(objective)
                best = self.best()
                found = f"{math.nan if best is None else best.value:.4g}"
                bar.set_postfix(best=found)
                lines.step(len(self.ended()), f"the best has {found}")
            bar.update(len(done) - bar.n)

    def ended(self) -> list[FrozenTrial]:
        """Return the trials that completed, were pruned or failed with an error of their own."""
        trials = [t for t in self.study.get_trials(deepcopy=False) if t.state.is_finished()]
        return [t for t in trials if t.state.name != "FAIL" or t.user_attrs.get(_ERROR, _INTERRUPTED) != _INTERRUPTED]

    def best(self) -> Any:
        """Return the complete trial with the lowest value, or None."""
        complete = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return min(complete, key=lambda t: (t.value, t.number), default=None)

    def table(self) -> pd.DataFrame:
        """Return one row per trial; a trial that was killed before it had parameters is left out."""
        trials = [t for t in self.study.get_trials() if len(t.params) == len(self.space.distributions)]
        values = [self.space.values(t.params) for t in trials]
        columns: dict[str, Any] = {
            "number": [t.number for t in trials],
            "state": [_STATES[t.state.name] for t in trials],
            "value": [t.value if t.state.name == "COMPLETE" else math.nan for t in trials],
        }
        for name in self.space.distributions:
            shown = [v[name] if isinstance(v[name], str | Real | tuple | None) else repr(v[name]) for v in values]
            columns[name] = pd.Series(shown, dtype=object) if name in self.space.choices else shown
        columns["seconds"] = [t.duration.total_seconds() if t.duration else math.nan for t in trials]
        columns["error"] = [t.user_attrs.get(_ERROR, _KILLED if t.state.name == "FAIL" else "") for t in trials]
        return pd.DataFrame(columns)

    def _running(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    def _left(self, trials: list[FrozenTrial]) -> list[dict[str, int]]:
        """Return the parameters of the trials that are left to run; an empty dict lets Optuna choose."""
        if self.total < self.space.size:
            return [{} for _ in range(self.total - len(trials))]
        return self.space.missing(trials)

    def _step(self, objective: Callable[[Trial], float]) -> None:
        number, interrupt = -1, None

        def attempt(trial: Trial) -> float:
            nonlocal number, interrupt
            number = trial.number
            try:
                with _beating(trial) if self.in_journal else contextlib.nullcontext():
                    self.space.suggest(trial)
                    return objective(trial)
            except optuna.TrialPruned:
                raise
            except BaseException as error:
                interrupt = None if isinstance(error, _RECORDED) else error
                with contextlib.suppress(RuntimeError):  # another worker ended the trial
                    trial.set_user_attr(_ERROR, _INTERRUPTED if interrupt else str(error))
                raise

        try:
            self.study.optimize(attempt, n_trials=1, catch=_RECORDED)
        except Exception:
            # Optuna refuses to end a trial twice, but another worker may have marked this one as killed.
            trial = None if number < 0 else self.study.get_trials(deepcopy=False)[number]
            if trial is None or trial.state != TrialState.FAIL or _ERROR in trial.user_attrs:
                raise
            if interrupt is not None:
                raise interrupt from None

    def _fail_killed(self) -> None:
        """Mark the trials of workers without a recent heartbeat as failed."""
        optuna.storages.fail_stale_trials(self.study)  # in a database, Optuna has its own heartbeat
        for trial in self._running():
            # Optuna overlooks a worker that was killed before its first heartbeat; its trial has no parameters.
            if trial.datetime_start is not None and (self.in_journal or not trial.params):
                seen = trial.user_attrs.get(_SEEN, trial.datetime_start.timestamp())
                if time.time() - seen > _GRACE:
                    with contextlib.suppress(RuntimeError, ValueError):  # another worker was quicker
                        self.study.tell(trial.number, state=TrialState.FAIL)


class _Sampler(optuna.samplers.TPESampler):
    """TPE with random numbers that depend only on the seed and the number of the trial."""

    def __init__(self, random_state: int | None) -> None:
        super().__init__()
        self.random_state = random_state

    def before_trial(self, study: Any, trial: FrozenTrial) -> None:
        given = None if self.random_state is None else [self.random_state, trial.number]
        super().__init__(seed=int(np.random.default_rng(given).integers(2**31)))


@contextlib.contextmanager
def _beating(trial: Trial) -> Iterator[None]:
    """Record a heartbeat of this trial every few seconds; Optuna has heartbeats in databases, but not in journals."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_BEAT):
            with contextlib.suppress(Exception):  # a file that is unavailable for a moment does not end the trial
                trial.set_user_attr(_SEEN, time.time())

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _opened(storage: Any) -> optuna.storages.BaseStorage | None:
    if storage is None:
        return None
    if "://" not in os.fspath(storage):
        # The path is absolute, because Optuna recognises a stale lock only if its link leads to the file.
        path = Path(storage).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(str(path)))
    from sqlalchemy.exc import SQLAlchemyError

    options: Any = {"engine_kwargs": {"connect_args": {"timeout": _LOCKED}}} if storage.startswith("sqlite") else {}
    for tries_left in reversed(range(_TRIES)):
        try:
            return RDBStorage(storage, heartbeat_interval=_BEAT, grace_period=_GRACE, **options)
        except SQLAlchemyError as error:  # another worker may be creating the tables
            if not tries_left:
                raise ValueError(str(error).splitlines()[0]) from None
            time.sleep(1.0)
    return None


def _refuse_unknown(quantifier: Quantifier, choices: Mapping[str, list[Any]], names: Iterable[str]) -> None:
    valid = set(quantifier.get_params())
    for name, values in choices.items():
        nested = [value.get_params() for value in values if hasattr(value, "get_params")]
        valid.update(f"{name}__{inner}" for params in nested for inner in params)
    for name in names:
        if name not in valid:
            kind = type(quantifier).__name__
            if not valid:
                raise ValueError(f"space: {kind} has no parameters to search.")
            near = difflib.get_close_matches(name, sorted(valid), 3, 0.5) or sorted(quantifier.get_params(deep=False))
            raise ValueError(f"space: {kind} has no parameter {name!r}; did you mean {' or '.join(near)}?")


def _distribution(name: str, values: Any) -> BaseDistribution:
    if isinstance(values, BaseDistribution):
        return values
    if isinstance(values, list) and values:
        return CategoricalDistribution(range(len(values)))
    low, high, *rest = values if isinstance(values, tuple) and len(values) in (2, 3) else (None, None)
    numbers = all(isinstance(v, Real) and not isinstance(v, bool) for v in (low, high))
    if not numbers or rest not in ([], ["log"]):
        raise ValueError(
            f"space: expected for {name} a list of choices, (low, high), (low, high, 'log') or an Optuna distribution, "
            f"got {values!r}."
        )
    if not (low < high and (low > 0 or not rest)):
        raise ValueError(f"space: expected for {name} low < high{', low > 0' if rest else ''}, got {values!r}.")
    whole = isinstance(low, Integral) and isinstance(high, Integral)
    return (IntDistribution if whole else FloatDistribution)(low, high, log=bool(rest))
