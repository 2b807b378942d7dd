"""From a file to an answer on the command line; what is wrong is told in one sentence, and nothing is left behind."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main


def write_tables(folder, n_bags=100, size=12, seed=0):
    """rows.csv with a label, bare.csv without, tows.csv with the proportions."""
    rng = np.random.default_rng(seed)
    share = rng.random(n_bags)
    tow = np.repeat([f"tow{i}" for i in range(n_bags)], size)
    species = np.where(rng.random(n_bags * size) < np.repeat(share, size), "eel", "cod")
    rows = pd.DataFrame({"tow": tow, "length": rng.normal(size=len(tow)) + 3 * (species == "eel"), "species": species})
    rows = rows.assign(depth=rng.integers(1, 9, len(tow))).sample(frac=1, random_state=0)
    rows.to_csv(folder / "rows.csv", index=False)
    rows.drop(columns="species").to_csv(folder / "bare.csv", index=False)
    known = rows.groupby("tow")["species"].value_counts(normalize=True).unstack(fill_value=0.0).reset_index()
    known.to_csv(folder / "tows.csv", index=False)
    return known


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_tables(tmp_path)


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def test_labelled_rows_from_file_to_answer(tables, tmp_path):
    fitted = run("fit", "rows.csv", "--bag", "tow", "--label", "species", "--method", "pacc", "-o", "model")
    assert fitted.exit_code == 0, fitted.output
    assert "PACC learned 2 classes from 75 bags and 2 features; kept in model." in fitted.output
    assert "Calibrated by 25 other bags" in fitted.output
    predicted = run("predict", "model", "bare.csv", "--bag", "tow", "-o", "estimates.csv", "--coverage", "0.8")
    assert predicted.output == "100 bags estimated, written to estimates.csv.\n"
    found = pd.read_csv("estimates.csv")
    assert list(found) == ["bag", "class", "estimate", "lower", "upper", "n"]
    assert (found["lower"] <= found["estimate"]).all()
    truth = tables.set_index("tow")["eel"]
    eels = found[found["class"] == "eel"].set_index("bag")
    assert (eels["estimate"] - truth).abs().mean() < 0.1
    measured = json.loads(run("evaluate", "model", "rows.csv", "--bag", "tow", "--label", "species", "--json").output)
    assert measured["bags"] == 100
    assert measured["ae"] < 0.1
    told = run("info", "model").output
    assert "method       PACC" in told
    assert "features     length, depth" in told
    assert "calibrated by 17 scores" in told


def test_proportions_alone(tables):
    arguments = ["fit", "bare.csv", "--bag", "tow", "--prevalences", "tows.csv", "--method", "mlpe", "-o", "model"]
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert "method: MLPE learns from labelled rows, but these have none; name the label column" in refused.output
    bags = hq.read_bags("bare.csv", bag="tow", prevalences="tows.csv")
    q = hq.HistNetQ(n_bins=8, encoder=(8,), head=(16,), training=hq.Training(epochs=3), random_state=0).fit(bags)
    q.save("model")
    lines = run("predict", "model", "bare.csv", "--bag", "tow").output.splitlines()
    assert lines[0] == "bag,class,estimate,n"
    assert len(lines) == 201
    measured = run("evaluate", "model", "bare.csv", "--bag", "tow", "--prevalences", "tows.csv", "-o", "errors.csv")
    assert "100 bags: mean AE" in measured.output
    assert len(pd.read_csv("errors.csv")) == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "none.csv", "--bag", "tow", "--label", "species"], "source: none.csv does not exist; check the path."),
        (["fit", "rows.csv", "--bag", "tow"], "expected either --prevalences or --label"),
        (["fit", "rows.csv", "--bag", "tow", "--label", "species", "--prevalences", "tows.csv"], "expected either"),
        (["fit", "rows.csv", "--bag", "haul", "--label", "species"], "rows.csv: has no column 'haul', its columns are"),
        (
            ["fit", "rows.csv", "--bag", "tow", "--label", "species", "--method", "magic"],
            "method: expected one of 'hist",
        ),
        (
            ["fit", "rows.csv", "--bag", "tow", "--label", "species", "--features", "len"],
            "rows.csv: has no column 'len'",
        ),
        (["fit", "bare.csv", "--bag", "tow", "--prevalences", "rows.csv"], "rows.csv: row "),
        (["fit", "rows.csv", "--bag", "tow", "--label", "species", "--calibration", "3"], "Invalid value for '--calib"),
    ],
)
def test_errors_leave_nothing(tables, tmp_path, arguments, message):
    before = {path.name for path in tmp_path.iterdir()}
    result = run(*arguments, "-o", "model")
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())
    assert result.output.count("Error") <= 1
    assert {path.name for path in tmp_path.iterdir()} == before


def test_nothing_is_replaced_unasked(tables, tmp_path):
    run("fit", "rows.csv", "--bag", "tow", "--label", "species", "--method", "cc", "-o", "model")
    again = ["fit", "rows.csv", "--bag", "tow", "--label", "species", "--method", "pcc", "-o", "model"]
    assert "output: model exists; choose another name or pass --force" in run(*again).output
    assert run(*again, "--force").exit_code == 0
    (tmp_path / "there.csv").write_text("mine")
    refused = run("predict", "model", "bare.csv", "--bag", "tow", "-o", "there.csv")
    assert refused.exit_code == 2
    assert (tmp_path / "there.csv").read_text() == "mine"
    assert run("predict", "model", "bare.csv", "--bag", "tow", "-o", "there.csv", "--force").exit_code == 0
    folder = run("predict", "model", "bare.csv", "--bag", "tow", "-o", "rows.csv/there.csv")
    assert folder.exit_code == 2
    assert "cannot be written" in folder.output


def test_wrong_tables_at_prediction(tables, tmp_path):
    run("fit", "rows.csv", "--bag", "tow", "--label", "species", "--method", "cc", "-o", "model")
    pd.read_csv("bare.csv").rename(columns={"length": "size"}).to_csv("renamed.csv", index=False)
    assert "renamed.csv: has no column 'length'" in run("predict", "model", "renamed.csv", "--bag", "tow").output
    text = pd.read_csv("bare.csv").astype({"length": str})
    text.loc[3, "length"] = "long"
    text.to_csv("text.csv", index=False)
    wrong = run("predict", "model", "text.csv", "--bag", "tow")
    assert wrong.exit_code == 2
    assert "text.csv: column 'length' holds numbers and the text 'long' (row 3); correct it" in wrong.output
    high = run("predict", "model", "bare.csv", "--bag", "tow", "--coverage", "0.99")
    assert "coverage: 0.99 needs at least" in high.output
    assert "model directory" in run("predict", "rows.csv", "bare.csv", "--bag", "tow").output
