"""The trials of a search, in a storage that several workers share and that any of them may leave without a word.

A worker writes down every few seconds that it is still at its trial. A trial whose worker has been silent for long is
marked as failed, without an error of its own, and another is done for it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "INTERRUPTED", "best_trial", "counted", "end_trial", "kept_alive", "load_optuna", "mark_killed", "open_study",
    "quiet", "running",
]  # fmt: skip

INTERRUPTED = "interrupted"
_STARTUP_TRIALS, _WARMUP_EPOCHS = 5, 10  # before the first trial may be pruned, and in each
_SEEN = "seen"
_BEAT, _GRACE = 20.0, 120.0  # seconds between a worker's signs of life, and without one until it counts as killed
_LOCKED = 60.0  # seconds to wait for others who write to the same SQLite file
_TRIES = 4  # to open a database


def load_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise ImportError("tune: needs Optuna; pip install 'histnetq[tune]'.") from None
    return optuna


@contextlib.contextmanager
def quiet(optuna: Any) -> Iterator[None]:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


@functools.cache
def _sampler() -> Any:
    samplers = load_optuna().samplers

    class Sampler(samplers.BaseSampler):  # type: ignore[name-defined]
        """TPE with a seed of its own for every trial, or the values in `fixed`."""

        def __init__(self, random_state: int | None) -> None:
            self.random_state, self.fixed = random_state, None

        def before_trial(self, study: Any, trial: Any) -> None:
            given = None if self.random_state is None else [self.random_state, trial.number]
            self.tpe = samplers.TPESampler(seed=int(np.random.default_rng(given).integers(2**31)))

        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return {} if self.fixed else self.tpe.infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: dict[str, Any]) -> dict[str, Any]:
            return self.tpe.sample_relative(study, trial, search_space)

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            if self.fixed:
                return self.fixed[param_name]
            return self.tpe.sample_independent(study, trial, param_name, param_distribution)

    return Sampler


def open_study(storage: Any, name: str, identity: dict[str, str] | None, random_state: int | None) -> Any:
    """The search of this name in the storage, a new one if there is none; one with another identity is refused."""
    optuna = load_optuna()
    pruner = optuna.pruners.MedianPruner(_STARTUP_TRIALS, _WARMUP_EPOCHS)
    try:
        study = optuna.create_study(
            storage=_opened(optuna, storage), sampler=_sampler()(random_state), pruner=pruner, study_name=name,
            load_if_exists=True,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"storage: {storage} cannot be used as a journal of trials ({error}); name another.") from None
    for part, text in (identity or {}).items():
        if study.user_attrs.setdefault(part, text) != text:
            raise ValueError(
                f"storage: {storage} holds a search {name!r} with another {part}; pass another name= or storage=."
            )
        study.set_user_attr(part, text)
    return study


def _opened(optuna: Any, storage: Any) -> Any:
    if storage is None:
        return None
    if "://" not in os.fspath(storage):
        # Absolute: the lock of a killed worker is a link that is only known to be old if it leads to the file.
        path = Path(storage).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    from sqlalchemy.exc import SQLAlchemyError

    waiting = {"connect_args": {"timeout": _LOCKED}} if storage.startswith("sqlite") else None
    for tries_left in reversed(range(_TRIES)):
        try:
            return optuna.storages.RDBStorage(storage, engine_kwargs=waiting)
        except SQLAlchemyError as error:  # another worker may be making the tables
            if not tries_left:
                raise ValueError(str(error).splitlines()[0]) from None
            time.sleep(1.0)
    return None


@contextlib.contextmanager
def kept_alive(trial: Any) -> Iterator[None]:
    """Write down, again and again, that the process of this trial is there."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_BEAT):
            with contextlib.suppress(Exception):  # a storage that is away for a moment does not end the trial
                trial.set_user_attr(_SEEN, time.time())

    trial.set_user_attr(_SEEN, time.time())
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def mark_killed(study: Any) -> None:
    """Mark the trials whose workers have not been seen for long."""
    failed = load_optuna().trial.TrialState.FAIL
    for trial in running(study):
        seen = trial.user_attrs.get(_SEEN, trial.datetime_start.timestamp())
        if time.time() - seen > _GRACE:
            with contextlib.suppress(RuntimeError, ValueError):  # another worker was quicker
                study.tell(trial.number, state=failed)


def end_trial(study: Any, trial: Any, value: float | None = None, state: Any = None, error: str = "") -> None:
    """Write down how a trial ended, unless others took it for killed meanwhile."""
    with contextlib.suppress(RuntimeError):
        if error:
            trial.set_user_attr("error", error)
        study.tell(trial, value, state=state, skip_if_finished=True)


def running(study: Any) -> list[Any]:
    return [t for t in study.get_trials(deepcopy=False) if not t.state.is_finished()]


def counted(study: Any) -> list[Any]:
    """The trials that ended by themselves, well or not."""
    trials = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished()]
    return [t for t in trials if t.state.name != "FAIL" or t.user_attrs.get("error", INTERRUPTED) != INTERRUPTED]


def best_trial(study: Any) -> Any:
    completed = [t for t in counted(study) if t.state.name == "COMPLETE"]
    return min(completed, key=lambda t: (t.value, t.number), default=None)
