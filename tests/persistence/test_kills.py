"""A save that is killed at any point leaves at its path the old model or the new one, complete."""

from __future__ import annotations

import builtins
import os
import signal
import subprocess
import sys

import pytest

import histnetq as hq
from histnetq.persistence import model_files

N_KILLS = 1000


class Killed(BaseException):
    """What a process that is no more cannot catch."""


class Machine:
    """Counts the operations of `model_files` on files, and stops the process at one of them.

    A killed process does nothing after that operation, not even what stands in a ``finally``; an interrupted one
    tidies up. Of a write at which the process is stopped, half has happened.
    """

    def __init__(self, monkeypatch, stop_at, killed):
        self.n, self.stop_at, self.killed, self.stopped = 0, stop_at, killed, False
        monkeypatch.setattr(model_files, "os", self)
        monkeypatch.setattr(model_files, "open", self.open_file, raising=False)

    def __getattr__(self, name):
        value = getattr(os, name)
        changes = ("makedirs", "replace", "unlink", "rmdir", "fsync", "open", "close", "fstat")
        return self.counted(value) if name in changes else value

    def counted(self, operation):
        def call(*args, **kwargs):
            self.tick()
            return operation(*args, **kwargs)

        return call

    def tick(self):
        if self.stopped and self.killed:
            raise Killed
        self.n += 1
        if self.n == self.stop_at:
            self.stopped = True
            raise Killed if self.killed else KeyboardInterrupt

    def open_file(self, path, mode, **kwargs):
        self.tick()
        return File(self, builtins.open(path, mode, **kwargs))


class File:
    """A file whose writes may stop half-way."""

    def __init__(self, machine, file):
        self.machine, self.file = machine, file

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, content):
        self.file.write(content[: len(content) // 2])
        self.machine.tick()
        self.file.write(content[len(content) // 2 :])
        self.machine.tick()


def model(n):
    q = hq.MLPE().fit([[0.0], [1.0]], ["a", "b"])
    q.provenance_ = {"n": n}
    return q


def held(path):
    """The number of the model at a path; None if there is none yet."""
    try:
        return hq.load(path).provenance_.get("n", 0)
    except FileNotFoundError:
        return None


def n_operations(path, overwrite):
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(patch, 0, True)
        model(0).save(path, overwrite=overwrite)
        return machine.n


def test_no_kill_loses_a_model(tmp_path, capsys):
    places = {"new": n_operations(tmp_path / "count", False), "old": n_operations(tmp_path / "count", True)}
    kept = {"old": 0, "new": 0, "none yet": 0}
    n = 0
    while n < N_KILLS:
        for kind in ("nothing there", "a model there"):
            path = tmp_path / f"{n}-{kind[:7]}"
            if kind.startswith("a model"):
                model(0).save(path)
            for stop_at in range(1, places["new" if kind.startswith("nothing") else "old"] + 1):
                n += 1
                before = held(path)
                with pytest.MonkeyPatch.context() as patch:
                    machine = Machine(patch, stop_at, killed=bool(n % 4))
                    try:
                        model(n).save(path, overwrite=before is not None)
                    except (Killed, KeyboardInterrupt):
                        assert machine.stopped
                after = held(path)
                assert after in (before, n), f"lost at operation {stop_at} with {kind}"
                kept["new" if after == n else "none yet" if after is None else "old"] += 1
            model(n).save(path, overwrite=held(path) is not None)
            assert held(path) == n, "what was left is no obstacle"
    assert min(kept.values()) > 20, "kills come before and after the rename"
    with capsys.disabled():
        sys.stdout.write(f" [{n} injected kills, 0 models lost: {kept}] ")


SAVES = """
import sys
from histnetq.persistence.model_files import write_model
import numpy as np
config = {"estimator": "MLPE", "version": "0", "classes": ["a", "b"], "params": {}, "input_shape": [1],
          "feature_names": None, "train_prevalences": [0.5, 0.5], "learned": {}}
print("ready", flush=True)
for n in range(10 ** 6):
    write_model(sys.argv[1], config | {"provenance": {"n": n + 1}}, {"x": np.full(20000, float(n + 1))}, True)
    print(n + 1, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
def test_a_killed_process_leaves_a_whole_model(tmp_path):
    path = tmp_path / "model"
    for n_saves in range(1, 6):
        process = subprocess.Popen([sys.executable, "-c", SAVES, path], stdout=subprocess.PIPE, text=True)
        for _ in range(n_saves + 1):
            process.stdout.readline()
        process.kill()
        process.communicate()
        config, arrays = model_files.read_model(path)
        assert (arrays["x"] == config["provenance"]["n"]).all()
        assert config["provenance"]["n"] >= n_saves
