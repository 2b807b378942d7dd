"""Tests see no data and no settings of the machine they run on, and neither do the processes that they start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Arrays in tests are small: more threads would mostly wait for each other, and take several times the processor time.
# OpenBLAS and OpenMP read the variable when they are loaded, so it is set before anything imports numpy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # MLflow would send statistics about its use

# Variables that name directories of data or settings, ours and those of other libraries.
_VARIABLES = ("HISTNETQ_DATA", "SCIKIT_LEARN_DATA", "MPLCONFIGDIR", "MATPLOTLIBRC", "DASK_CONFIG")


def hide_machine(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let every usual place of data and settings be an empty directory in the folder.

    Compiled kernels are kept beside their source or where NUMBA_CACHE_DIR says, so they are not compiled again.
    """
    for variable in _VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_DATA_DIRS"):
        place = folder / variable.lower()
        place.mkdir(parents=True)
        monkeypatch.setenv(variable, str(place))


# Of the whole session, as fixtures of a session or module are made before those of a test.
@pytest.fixture(scope="session", autouse=True)
def isolated_machine(tmp_path_factory):
    """Hide the machine from every test; the folder that stands for it."""
    folder = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as monkeypatch:
        hide_machine(monkeypatch, folder)
        yield folder
