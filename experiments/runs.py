"""Finished runs on disk, one file per method and seed, so that a run that was cut off repeats none of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.tables.files import whole_file
from histnetq.training.fingerprint import describe

__all__ = ["Run", "Runs", "digest", "save_arrays"]


@dataclass(frozen=True)
class Run:
    """The result of one method with one seed: estimates of the test bags, the chosen setting, and the time.

    `curves` are the training and validation losses of a network's epochs and their seconds, ``(n_epochs, 3)``.
    """

    estimates: NDArray[np.float64]
    params: str
    trials: int
    validation: float
    fit_seconds: float
    predict_seconds: float
    curves: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 3)))

    def words(self) -> str:
        """Describe the chosen setting, if there is one, and the time."""
        chosen = "" if np.isnan(self.validation) else f"validation {self.validation:.4f}, "
        setting = f"with {self.params}, " if self.params else ""
        return f"{chosen}{setting}{self.fit_seconds:.1f} s to fit, {self.predict_seconds:.2f} s to predict"


class Runs:
    """The runs of one experiment in a directory, with a number of seeds."""

    def __init__(self, directory: Path, seeds: int) -> None:
        self.directory, self.seeds = directory, seeds

    def fill(self, methods: Iterable[str], act: Callable[[str, int], Run], say: Callable[[str], Any]) -> None:
        """Complete the missing runs."""
        for method in methods:
            for seed in range(self.seeds):
                if self._path(method, seed).exists():
                    say(f"{method}, seed {seed}: done before")
                    continue
                run = act(method, seed)
                self.keep(method, seed, run)
                say(f"{method}, seed {seed}: {run.words()}")

    def read(self, method: str) -> list[Run]:
        """The finished runs of a method, in the order of their seeds."""
        found = []
        for path in filter(Path.exists, (self._path(method, seed) for seed in range(self.seeds))):
            with np.load(path, allow_pickle=False) as file:
                found.append(Run(file["estimates"], curves=file["curves"], **json.loads(str(file["about"]))))
        return found

    def _path(self, method: str, seed: int) -> Path:
        return self.directory / f"{method}-seed{seed}.npz"

    def keep(self, method: str, seed: int, run: Run) -> None:
        """Write a finished run."""
        about = asdict(run)
        arrays = {name: about.pop(name) for name in ("estimates", "curves")}
        save_arrays(self._path(method, seed), **arrays, about=json.dumps(about))


def digest(*parts: Any) -> str:
    """A few letters that stand for what runs depend on: where it changes, runs have another directory."""
    return hashlib.sha256(json.dumps([describe(part) for part in parts]).encode()).hexdigest()[:8]


def save_arrays(path: Path, **arrays: Any) -> None:
    """Write an ``.npz`` file, all of it or nothing."""
    with whole_file(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)
