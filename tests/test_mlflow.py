"""Models of this library in MLflow."""

from __future__ import annotations

import sys

import mlflow
import numpy as np
import pandas as pd
import pytest

import histnetq as hq
from histnetq import mlflow as flavour


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    return pd.DataFrame({"x": rng.normal(2.0 * y), "site": rng.integers(3, size=200), "y": np.array(["cod", "eel"])[y]})


@pytest.fixture(scope="module")
def model(rows):
    return hq.PACC(random_state=0).fit(rows[["x"]], rows["y"])


def test_a_round_trip_gives_the_estimates_of_bags(tmp_path, rows, model):
    flavour.save_model(model, tmp_path / "flavour", bag="site", interval="bayes", coverage=0.8)
    found = mlflow.pyfunc.load_model(str(tmp_path / "flavour")).predict(rows)
    expected = hq.estimate(model, rows, bag="site", interval="bayes", coverage=0.8).to_frame()
    pd.testing.assert_frame_equal(found, expected)
    assert list(found.columns) == ["site", "class", "estimate", "lower", "upper", "n", "trust"]
    again = flavour.load_model(str(tmp_path / "flavour"))
    assert np.array_equal(again.predict(rows[["x"]]), model.predict(rows[["x"]]))


def test_options_may_be_replaced_when_it_is_loaded(tmp_path, rows, model):
    flavour.save_model(model, tmp_path / "flavour", interval="bayes")
    config = {"bag": ["site"], "interval": "bayes", "wide": True}
    found = mlflow.pyfunc.load_model(str(tmp_path / "flavour"), model_config=config).predict(rows)
    assert found.shape[0] == 3
    assert {"site", "cod", "eel"} <= set(found.columns)
    with pytest.raises(ValueError, match=r"^model_config: expected options among bag, .*, got 'dask'; leave it out.$"):
        flavour._load_pyfunc(str(tmp_path / "flavour" / "data" / "model"), {"dask": "tcp://host:1"})


def test_nothing_is_left_after_an_error(tmp_path, model):
    with pytest.raises(TypeError, match="unexpected keyword"):
        flavour.save_model(model, tmp_path / "flavour", misspelt=1)
    assert not list(tmp_path.iterdir())


def test_there_is_no_pickle_and_no_code(tmp_path, model):
    flavour.save_model(model, tmp_path / "flavour")
    names = {path.name for path in (tmp_path / "flavour").rglob("*") if path.is_file()}
    kinds = {name.rpartition(".")[2] for name in names}
    assert kinds <= {"json", "safetensors", "yaml", "txt", "MLmodel"}, names
    assert "histnetq==" in (tmp_path / "flavour" / "requirements.txt").read_text()
    (tmp_path / "flavour" / "MLmodel").write_text("flavors: {python_function: {loader_module: os, code: code}}")
    assert flavour.load_model(str(tmp_path / "flavour")).classes_.tolist() == ["cod", "eel"]


def test_a_model_is_logged(tmp_path, rows, model, monkeypatch):
    # A database needs more of MLflow than the extra installs.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        with mlflow.start_run():
            info = flavour.log_model(model, "fish", bag="site", interval="bayes")
        found = mlflow.pyfunc.load_model(info.model_uri).predict(rows)
        assert np.array_equal(flavour.load_model(info.model_uri).predict(rows[["x"]]), model.predict(rows[["x"]]))
    finally:
        mlflow.set_tracking_uri(before)
    pd.testing.assert_frame_equal(found, hq.estimate(model, rows, bag="site", interval="bayes").to_frame())


def test_wrong_places_are_one_sentence(tmp_path, model, monkeypatch):
    with pytest.raises(ValueError, match=r"^path: .* exists; choose another name.$"):
        flavour.save_model(model, tmp_path)
    with pytest.raises(
        ValueError, match=r"^path: expected a path on this machine, got the address s3://bucket/a; copy"
    ):
        flavour.save_model(model, "s3://bucket/a")
    with pytest.raises(FileNotFoundError, match=r"^uri: .* has no data/model; name what save_model wrote.$"):
        flavour.load_model(str(tmp_path))
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.pyfunc", None)
    with pytest.raises(ImportError, match=r"^mlflow: needs MLflow; pip install 'histnetq\[mlflow\]'.$"):
        flavour.save_model(model, tmp_path / "new")
