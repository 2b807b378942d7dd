"""Default settings of classical methods against others, on development tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments import defaults
from experiments.development_tables import DevelopmentTable
from tests.conftest import labelled


def table() -> DevelopmentTable:
    X, y = labelled(120, 2)
    return DevelopmentTable("small", X.astype(np.float32), np.unique(y, return_inverse=True)[1])


def test_finished_splits_are_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(defaults, "CLASSIFIERS", ("logistic",))
    said: list[str] = []
    for splits in (1, 2):
        defaults.run_all([table()], splits, tmp_path / "new" / "found.csv", said.append)
    assert said == ["small, split 0", "small, split 1"]
    found = pd.read_csv(tmp_path / "new" / "found.csv")
    assert tuple(found) == defaults.FIELDS
    assert sorted(found["method"]) == sorted([*defaults.METHODS, *defaults.ON_FEATURES] * 2)


def test_settings_are_compared_with_their_default():
    rows = [("DyS", 0.1, 0), ("DyS", 0.3, 1), ("DyS, 8 bins", 0.2, 0), ("DyS, 8 bins", 0.25, 1), ("HDx", 0.1, 0)]
    found = pd.DataFrame([
        {"table": "small", "classes": 2 + split, "split": split, "method": method, "ae": ae,
         "classifier": "none" if method == "HDx" else "logistic"}
        for method, ae, split in rows
    ])  # fmt: skip
    shown = defaults.defaults_table(found).set_index("method")
    assert shown.loc["DyS, 8 bins"].tolist() == pytest.approx([0.2, 0.25, 0.5])
    assert np.isnan(shown.loc["DyS", "better than the default"])


def test_the_first_rows_of_a_table():
    assert table().first(100).rows.shape == (100, 4)
