"""Several workers on one search: one is killed, and nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import optuna
import pytest

import histnetq as hq
from histnetq.evaluation import trials

TRIALS = 6
DEADLINE = 300.0  # seconds


def wait_until(condition) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.05)


def work(directory: Path, storage: str, hangs_in: int) -> None:
    """A worker that stays in its trial of this number, counted from 1, for ever."""
    fit, calls = hq.CC.fit, []

    def hanging(self, *args):
        calls.append(args)
        if len(calls) == hangs_in:
            (directory / "hanging").touch()
            threading.Event().wait()
        return fit(self, *args)

    def open_storage(*args, **kwargs):
        opened.append(open_database(*args, **kwargs))
        return opened[0]

    def poll(seconds: float) -> None:
        """The other is taken for killed when it has been, not when it is slow."""
        if (directory / "killed").exists():
            trials._GRACE = 1
            for database in opened:
                database.grace_period = 1
        time.sleep(0.05)

    hq.CC.fit, trials._BEAT, trials._GRACE = hanging, 1, 10**6
    opened, open_database, trials.RDBStorage = [], trials.RDBStorage, open_storage
    trials.time = SimpleNamespace(sleep=poll, time=time.time)
    y = np.arange(90) % 3
    X = np.random.default_rng(0).normal(y[:, None], 1.0, (90, 2))
    space = {"classifier__C": (1e-3, 10.0, "log")}
    found = hq.tune(hq.CC(cv=2), space, X, y, trials=TRIALS, storage=storage, refit=False)
    found.trials.to_csv(directory / "trials.csv", index=False)


def look(storage: str) -> list[optuna.trial.FrozenTrial]:
    kept = storage
    if "://" not in storage:
        kept = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
    return optuna.load_study(study_name="tune", storage=kept).trials


def states(storage: str) -> list[str]:
    return [trial.state.name for trial in look(storage)]


@pytest.mark.parametrize("kind", ["journal", pytest.param("sqlite", marks=pytest.mark.hard)])
def test_a_killed_worker_loses_no_finished_trial(tmp_path, kind):
    storage = str(tmp_path / "tuning.log") if kind == "journal" else f"sqlite:///{tmp_path}/tuning.db"

    def start(hangs_in: int) -> subprocess.Popen:
        command = [sys.executable, "-m", "tests.evaluation.test_trials", str(tmp_path), storage, str(hangs_in)]
        return subprocess.Popen(command, cwd=Path(__file__).parents[2])

    first = start(hangs_in=3)
    second = None
    try:
        wait_until((tmp_path / "hanging").exists)
        before = look(storage)
        assert [trial.state.name for trial in before] == ["COMPLETE", "COMPLETE", "RUNNING"]
        second = start(hangs_in=0)
        # The second does what is free, and no more while the first is seen.
        wait_until(lambda: states(storage).count("COMPLETE") == TRIALS - 1)
        assert second.poll() is None
        first.send_signal(signal.SIGKILL)
        first.wait()
        (tmp_path / "killed").touch()
        assert second.wait(DEADLINE) == 0
    finally:
        for process in filter(None, (first, second)):
            process.kill()
            process.wait()
    after = look(storage)
    assert [trial.state.name for trial in after] == ["COMPLETE"] * 2 + ["FAIL"] + ["COMPLETE"] * (TRIALS - 2)
    for old, new in zip(before[:2], after[:2], strict=True):
        assert (old.value, old.params, old.datetime_complete) == (new.value, new.params, new.datetime_complete)
    assert ",failed,," in (tmp_path / "trials.csv").read_text()


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
