"""Intervals of other packages, run by their own Python: ``python judge_peers.py COUNTS ENDS``.

COUNTS has the numbers of rows and of labelled rows by class and verdict, ENDS gets the ends of intervals of the first
class. It needs `truescore`, `judgy` and `ppi-python`, and nothing of this package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

_LEVEL, _BOOTSTRAPS = 0.9, 300


def _batches(path: str) -> Iterator[tuple[Any, Any, Any]]:
    """Labels of labelled rows (1 is the first class), their verdicts, and those of the other rows."""
    stored = np.load(path)
    classes, verdicts = np.array([1, 1, 0, 0]), np.array([1, 0, 1, 0])
    for full, labelled in zip(stored["full"], stored["labelled"], strict=True):
        yield np.repeat(classes, labelled), np.repeat(verdicts, labelled), np.repeat(verdicts, full - labelled)


def _ppi_python(y: Any, f: Any, others: Any) -> tuple[float, float]:
    found = import_module("ppi_py").ppi_mean_ci
    low, high = found(y.astype(float), f.astype(float), others.astype(float), alpha=1 - _LEVEL)
    return float(np.ravel(low)[0]), float(np.ravel(high)[0])


def _truescore(name: str) -> Callable[[Any, Any, Any], tuple[float, float]]:
    package = import_module("truescore")

    def found(y: Any, f: Any, others: Any) -> tuple[float, float]:
        estimate = getattr(package, name)(np.concatenate([f, others]), y, np.arange(len(y)), alpha=1 - _LEVEL)
        return estimate.low, estimate.high

    return found


def _judgy(y: Any, f: Any, others: Any) -> tuple[float, float]:
    found = import_module("judgy").estimate_success_rate
    _, low, high = found(y, f, np.concatenate([f, others]), _BOOTSTRAPS, _LEVEL)
    return low, high


def _main(given: str, wanted: str) -> None:
    np.random.seed(0)  # noqa: NPY002 - judgy draws from the global generator
    packages = {
        "ppi-python": _ppi_python, "truescore PPI": _truescore("ppi_estimate"),
        "truescore Rogan-Gladen": _truescore("rogan_gladen_estimate"), "judgy": _judgy,
    }  # fmt: skip
    ends: dict[str, list[tuple[float, float]]] = {name: [] for name in packages}
    for y, f, others in _batches(given):
        for name, package in packages.items():
            try:
                ends[name].append(package(y, f, others))
            except (
                ValueError,
                RuntimeError,
            ):  # a class without labels, or a judge that seems to be no better than chance
                ends[name].append((np.nan, np.nan))
    arrays: dict[str, Any] = {name: np.array(each) for name, each in ends.items()}
    np.savez(wanted, **arrays)


if __name__ == "__main__":
    _main(*sys.argv[1:])
