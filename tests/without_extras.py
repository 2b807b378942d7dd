"""What runs where extras are not installed; ``test_without_extras.py`` runs it in processes of their own."""

from __future__ import annotations

import importlib.machinery
import os
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

HIDDEN: list[str] = []
_find = importlib.machinery.PathFinder.find_spec


def _without_hidden(name: str, path: Any = None, target: Any = None) -> Any:
    return None if name in HIDDEN else _find(name, path, target)


if __name__ == "__main__":  # before anything is imported that looks for them
    HIDDEN += sys.argv[3:]
    importlib.machinery.PathFinder.find_spec = _without_hidden

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pytest  # noqa: E402
from click.testing import CliRunner  # noqa: E402

import histnetq as hq  # noqa: E402
from histnetq.cli import main  # noqa: E402
from histnetq.registry import REGISTRY  # noqa: E402

MODELS = Path(__file__).with_name("stored_models.zip")


def _frame(n_bags: int = 40, n_rows: int = 20, seed: int = 0) -> pd.DataFrame:
    """Rows of two kinds of fish in tows that differ in their shares."""
    rng = np.random.default_rng(seed)
    eel = rng.random((n_bags, n_rows)) < rng.random((n_bags, 1))
    return pd.DataFrame(
        {
            "tow": np.repeat(np.arange(n_bags), n_rows), "species": np.where(eel, "eel", "cod").ravel(),
            "length": rng.normal(30 + 8 * eel.ravel(), 3), "depth": rng.normal(size=eel.size),
            "day": np.repeat(pd.date_range("2026-01-01", periods=n_bags).astype(str), n_rows),
        }
    )  # fmt: skip


def _run(*line: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, [str(part) for part in line])
    assert result.exit_code == code, result.output
    return result.output


def every_classical_method() -> None:
    """Fit, predict, give intervals and trust, sketch, save and load by every method that is no network."""
    frame = _frame()
    X, y = frame[["length", "depth"]].to_numpy(), frame["species"].to_numpy()
    bags = hq.APP(bag_size=30).draw(hq.Bags.from_labels(X, y), 60, random_state=0)
    names = [name for name, entry in REGISTRY.items() if not entry.network]
    assert {"EMQ", "KDEy", "PACC", "MLPE"} <= set(names)
    for name in names:
        q = getattr(hq, name)().fit(X, y)
        p = q.calibrate(bags[:30]).predict(bags)
        np.testing.assert_allclose(p.sum(1), 1)
        found = q.predict_interval(bags[30:], coverage=0.8)
        assert (found.lower <= found.estimates).all()
        assert len(q.trust(bags)) == 60
        q.save(f"{name}-model")
        np.testing.assert_allclose(hq.load(f"{name}-model").predict(bags), p, atol=1e-9)
    assert hq.EMQ().fit(X, y).bayes_interval(bags[:2]).lower.shape == (2, 2)
    assert {"ae", "rae"} <= set(hq.evaluate(q, bags).columns)


def a_star_import_takes_what_works() -> None:
    """Take all public names but those of networks."""
    names: dict[str, Any] = {}
    exec("from histnetq import *", names)
    assert {"EMQ", "Bags", "read_bags", "plots", "predict_dask", "tune", "Training"} <= names.keys()
    networks = {name for name, entry in REGISTRY.items() if entry.network}
    assert not names.keys() & {"nn", *networks}
    assert set(hq.__all__) <= names.keys()
    assert set(dir(hq)) == {*hq.__all__, "__version__"}


def networks_say_what_they_need() -> None:
    """Say in one sentence what is missing where a network is made, loaded or named."""
    for name in [name for name, entry in REGISTRY.items() if entry.network]:
        with pytest.raises(ImportError, match=rf"^{name} needs torch; pip install 'histnetq\[deep\]'\.$"):
            getattr(hq, name)
    with pytest.raises(ImportError, match=r"^histnetq.nn needs torch; pip install 'histnetq\[deep\]'\.$"):
        _ = hq.nn
    zipfile.ZipFile(MODELS).extractall("models")
    loaded = []
    for config in sorted(Path("models").rglob("config.json")):
        about = re.search(r'"estimator": *"(\w+)"', config.read_text())
        assert about is not None
        if REGISTRY[about[1]].network:
            loaded.append(about[1])
            with pytest.raises(ImportError, match=rf"^{about[1]} needs torch; "):
                hq.load(config.parent)
            assert about[1] in _run("info", config.parent)
    assert "HistNetQ" in loaded
    assert "Error: demo: needs torch; pip install 'histnetq[deep,report]'." in _run("demo", code=2)


def commands() -> None:
    """Fit by comparing, predict, evaluate, compare, sketch, monitor and report on a table."""
    _frame().to_csv("rows.csv", index=False)
    _frame(seed=1).to_csv("new.csv", index=False)
    known = ("--bag", "tow", "--label", "species", "--features", "length,depth")
    left_out = "EMNetQ and HistNetQ are skipped because torch is not installed; pip install 'histnetq[deep]'."
    output = _run("fit", "rows.csv", *known, "-o", "model", "--method", "search", "--classifier", "logistic")
    assert output.count(left_out) == 2
    assert "Comparing EMQ (logistic), KDEy (logistic), PACC (logistic) on " in output
    assert hq.load("model").provenance_["why"].endswith(left_out)
    _run("predict", "model", "new.csv", "--bag", "tow", "-o", "estimates.csv")
    found = pd.read_csv("estimates.csv")
    assert {"lower", "upper", "trust"} <= set(found.columns)
    assert len(found) == 80
    _run("evaluate", "model", "new.csv", "--bag", "tow", "--label", "species")
    _run("report", "model", "new.csv", "--bag", "tow", "--label", "species", "-o", "report.html")
    _run("sketch", "model", "new.csv", "--bag", "tow", "-o", "new.parquet")
    _run("predict", "model", "new.parquet", "--bag", "tow")
    within = ("--time", "day", "--period", "D", "--reference", "2026-01-01..2026-01-30")
    _run("monitor", "model", "new.csv", *within, "-o", "page.html")
    assert left_out in _run("compare", "rows.csv", *known)
    failed = _run("compare", "rows.csv", *known, "--methods", "emq,histnetq", code=2)
    assert "Error: HistNetQ needs torch; pip install 'histnetq[deep]'." in failed
    shares = pd.crosstab(_frame()["tow"], _frame()["species"], normalize="index")
    shares.to_csv("tows.csv")
    line = ("fit", "rows.csv", "--bag", "tow", "--prevalences", "tows.csv", "--features", "length", "-o", "other")
    output = _run(*line)
    assert "HistNetQ, EMNetQ and DeepSets are skipped because torch is not installed; pip install" in output
    assert type(hq.load("other")) is hq.LinearQ


def bare_commands() -> None:
    """Do without extras what needs none, and say which one the rest needs."""
    _frame().to_csv("rows.csv", index=False)
    known = ("--bag", "tow", "--label", "species")
    learned = ("rows.csv", *known, "--features", "length,depth", "-o")
    _run("fit", *learned, "model", "--method", "pacc")
    _run("predict", "model", "rows.csv", "--bag", "tow")
    _run("evaluate", "model", "rows.csv", *known)
    _run("sketch", "model", "rows.csv", "--bag", "tow", "-o", "rows.parquet")
    _run("sample", "model", "rows.csv", "--bag", "tow", "-o", "to_label.csv")
    within = ("rows.csv", "--time", "day", "--period", "D", "--reference", "2026-01-01..2026-01-30")
    _run("monitor", "model", *within, "--csv", "found.csv")
    _run("info", "model")
    needs = {
        (
            "report",
            "model",
            "rows.csv",
            "--bag",
            "tow",
            "-o",
            "page.html",
        ): "matplotlib; install it by pip install 'histnetq[report]",
        ("monitor", "model", *within, "-o", "page.html"): "matplotlib; install it by pip install 'histnetq[report]",
        ("serve", "model"): "fastapi; pip install 'histnetq[serve]'.",
        ("tune", *learned, "tuned", "--method", "emq"): "Optuna; pip install 'histnetq[tune]'.",
        (
            "predict",
            "model",
            "rows.csv",
            "--bag",
            "tow",
            "--dask",
            "local",
        ): "distributed; pip install 'histnetq[dask]'.",
        ("demo",): "torch; pip install 'histnetq[deep,report]'.",
    }
    for line, extra in needs.items():
        assert f"{extra}" in _run(*line, code=2), line
    assert not Path("page.html").exists()
    HIDDEN.remove("matplotlib")  # which others bring along
    assert "pages need jinja2; install it by pip install 'histnetq[report]'." in _run(*next(iter(needs)), code=2)


def service() -> None:
    """Serve a model, and estimate a table that is sent."""
    from fastapi.testclient import TestClient

    from histnetq.web.app import Settings, make_app
    from histnetq.web.security import Door

    frame = _frame()
    frame.to_csv("rows.csv", index=False)
    _run(
        "fit",
        "rows.csv",
        "--bag",
        "tow",
        "--label",
        "species",
        "--features",
        "length",
        "--method",
        "emq",
        "-o",
        "model",
    )
    with TestClient(make_app(Settings(Path("model"), Door(), workers=1)), base_url="http://127.0.0.1") as client:
        answer = client.post(
            "/v1/models/model/predict?bag=tow", content=frame.to_csv(index=False), headers={"Content-Type": "text/csv"}
        )
    assert answer.status_code == 200, answer.text
    assert answer.json()["estimates"]


if __name__ == "__main__":
    for part in sys.argv[1].split(","):
        folder = Path(sys.argv[2]).resolve() / part
        folder.mkdir()
        os.chdir(folder)
        globals()[part]()
        assert not set(HIDDEN) & set(sys.modules)
