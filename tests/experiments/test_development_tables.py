"""Development tables of R packages, in files of their own or in the database of a package."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pandas as pd
import pytest

from experiments.development_tables import _plain, _read_r

rdata = pytest.importorskip("rdata")
FRAME = pd.DataFrame({"a": [1.0, 2.0, np.nan], "b": pd.Categorical(["x", "y", "x"])})


def test_a_table_in_its_own_file(tmp_path):
    rdata.write_rda(tmp_path / "small.rda", {"small": FRAME})
    assert _read_r(tmp_path, "small")["a"].tolist()[:2] == [1, 2]


def test_a_table_in_the_database_of_a_package(tmp_path):
    rdata.write_rds(tmp_path / "table.rds", FRAME, compression="gzip")
    plain = gzip.decompress((tmp_path / "table.rds").read_bytes())
    packed = len(plain).to_bytes(4, "big") + zlib.compress(plain)
    (tmp_path / "Rdata.rdb").write_bytes(b"another table" + packed)
    index = {"variables": {"small": np.array([13, len(packed)], np.int32)}, "compressed": True}
    rdata.write_rds(tmp_path / "Rdata.rdx", index)
    found = _read_r(tmp_path, "small")
    assert found.columns.tolist() == ["a", "b"]
    assert found["b"].tolist() == ["x", "y", "x"]


def test_categories_become_columns_and_gaps_the_mean():
    frame = pd.DataFrame({"n": pd.array([1, None, 3] * 20, "Int32"), "c": ["u", "v", "u"] * 20, "Id": range(60)})
    table = _plain("small", frame, ["yes", "no", "yes"] * 20)
    assert table.rows.shape == (60, 3)
    np.testing.assert_array_equal(table.rows[table.labels == 0], [[2, 0, 1]] * 20)
