"""Python, the command line and the service run the same workflows: the same input gives the same results."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from histnetq.uncertainty import methods
from histnetq.workflows import estimating, fitting
from tests.serving import serving


@pytest.fixture(scope="module")
def rows():
    """Labelled rows of 30 bags with a date each, whose classes overlap."""
    rng = np.random.default_rng(0)
    eel = rng.random(600) < np.repeat(rng.random(30), 20)
    return pd.DataFrame({
        "tow": np.repeat([f"tow {i}" for i in range(30)], 20),
        "length": rng.normal(size=600) + 2 * eel,
        "day": np.repeat(pd.date_range("2026-01-05", periods=60, freq="7D").strftime("%Y-%m-%d"), 10),
        "species": np.where(eel, "eel", "cod"),
    })  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory, rows):
    """A folder with the tables, and a model that the command line fits."""
    found = tmp_path_factory.mktemp("same")
    rows.to_csv(found / "rows.csv", index=False)
    rows.drop(columns="species").to_csv(found / "new.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(found)
        typed = ("--bag", "tow", "--label", "species", "--features", "length", "--method", "pacc")
        run("fit", "rows.csv", *typed, "-o", "models/pacc")
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch, place):
    """A folder of a test, with the same tables."""
    monkeypatch.chdir(tmp_path)
    for name in ("rows.csv", "new.csv"):
        (tmp_path / name).write_bytes((place / name).read_bytes())
    return tmp_path


@pytest.fixture
def stored(folder, place):
    """The place of the fitted model."""
    return place / "models" / "pacc"


@pytest.fixture(scope="module")
def server(place):
    """A server of the fitted model."""
    with serving(place / "models", "--workers", "1") as found:
        yield found


def ask(server, table, model, **asked):
    """Let the service estimate a table, and return its files as bytes."""
    keys = {
        name: server.upload(Path(path).read_bytes(), path)
        for name, path in (("table", table), *asked.items())
        if name in ("table", "audited")
    }
    job = server.wait(server.start(kind="estimate", model=model, **{**asked, **keys}))
    assert job["state"] == "done", job
    downloads = (name for name in job["result"]["downloads"] if name.endswith(".csv"))
    return {name: server.client.get(f"/v1/jobs/{job['id']}/{name}").content for name in downloads}


def read(path, **options):
    """Read a CSV file to the last bit, which pandas 2 does not by default."""
    exact = {"float_precision": "round_trip"} if pd.__version__.startswith("2.") else {}
    return pd.read_csv(path, **exact, **options)


def run(*arguments):
    found = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert found.exit_code == 0, found.output
    return found


def test_search(folder, monkeypatch):
    monkeypatch.setattr(fitting, "installed", lambda candidates: (candidates[:3], ""))  # the networks take minutes
    notes = []
    how = {"bag": "tow", "label": "species", "features": ["length"], "method": "search"}
    mine, comparison = hq.fit_best("rows.csv", **how, on_event=notes.append)
    typed = ["--bag", "tow", "--label", "species", "--features", "length", "--method", "search"]
    printed = run("fit", "rows.csv", *typed, "-o", "model")
    theirs = hq.load("model")
    assert type(mine) is type(theirs)
    assert mine.provenance_["errors"] == theirs.provenance_["errors"]
    assert mine.provenance_["why"] == theirs.provenance_["why"]
    assert mine.provenance_["calibrated"] == theirs.provenance_["calibrated"]
    assert str(comparison) in printed.output
    first = next(event["text"] for event in notes if event["kind"] == "note")
    assert first in printed.output
    new = hq.read_bags("new.csv", bag="tow", features=["length"])
    np.testing.assert_array_equal(mine.predict(new), theirs.predict(new))
    ends = [(found.lower, found.upper) for found in (mine.predict_interval(new), theirs.predict_interval(new))]
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize("sizes", [[], [50, 200]], ids=str)
def test_default_fit_of_all_surfaces(folder, server, sizes):
    how = {"label": "species", "ignore": ["tow", "day"]}
    mine, comparison = hq.fit_best("rows.csv", **how, bag_size=sizes or None)
    assert comparison is None
    typed = [word for size in sizes for word in ("--bag-size", size)]
    run("fit", "rows.csv", "--label", "species", "--ignore", "tow,day", *typed, "-o", "typed")
    table, name = server.upload(Path("rows.csv").read_bytes(), "rows.csv"), f"learned{len(sizes)}"
    job = server.wait(server.start(kind="learn", name=name, table=table, bag_size=sizes, **how))
    assert job["state"] == "done", job
    assert ("--bag-size 50 --bag-size 200" in job["result"]["command"]) == bool(sizes)
    new = hq.read_bags("new.csv", bag="tow", features=mine.feature_names_)
    for place in ("typed", server.models / name):
        theirs = hq.load(place)
        assert theirs.provenance_["log_losses"] == mine.provenance_["log_losses"]
        assert theirs.provenance_["why"] == mine.provenance_["why"]
        np.testing.assert_array_equal(theirs.predict(new), mine.predict(new))
        np.testing.assert_array_equal(theirs.predict_interval(new).upper, mine.predict_interval(new).upper)


def test_rescaling(folder):
    how = {"bag": "tow", "label": "species", "features": ["length"], "method": "emq"}
    mine, _ = hq.fit_best("rows.csv", **how, rescaling="ts")
    typed = ["--bag", "tow", "--label", "species", "--features", "length"]
    run("fit", "rows.csv", *typed, "--method", "emq", "--rescaling", "ts", "-o", "model")
    theirs = hq.load("model")
    assert theirs.rescaling == mine.rescaling == "ts"
    np.testing.assert_array_equal(mine.scale_, theirs.scale_)


WRONG_RESCALINGS = {
    "pacc": ("PACC does not rescale posteriors; leave it out, or name a method such as emq.",) * 2,
    "auto": (
        "expected a named method that rescales posteriors, such as emq, got auto; name one by method=.",
        "expected a named method that rescales posteriors, such as emq, got auto; name one by --method.",
    ),
}


@pytest.mark.parametrize("method", WRONG_RESCALINGS)
def test_rescaling_of_other_methods_is_refused(folder, method):
    in_python, typed = WRONG_RESCALINGS[method]
    with pytest.raises(ValueError) as error:
        hq.fit_best("rows.csv", bag="tow", label="species", features=["length"], method=method, rescaling="bcts")
    assert str(error.value) == f"rescaling: {in_python}"
    options = ["--bag", "tow", "--label", "species", "--method", method, "--rescaling", "bcts", "-o", "model"]
    refused = CliRunner().invoke(main, ["fit", "rows.csv", *options])
    assert refused.exit_code == 2
    assert refused.stderr == f"Error: --rescaling: {typed}\n"


@pytest.mark.parametrize("options", [{}, {"coverage": 0.8}, {"interval": "bayes"}], ids=str)
def test_predict(stored, options, server):
    mine = hq.estimate(stored, "new.csv", bag="tow", **options).to_frame()
    typed = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    run("predict", stored, "new.csv", "--bag", "tow", *typed, "-o", "estimates.csv")
    pd.testing.assert_frame_equal(read("estimates.csv"), mine, check_dtype=False)
    if "interval" not in options:
        found = ask(server, "new.csv", "pacc", bag=["tow"], **options)
        assert found["estimates.csv"] == Path("estimates.csv").read_bytes()
    if not options:
        wide = hq.estimate(hq.load(stored), read("new.csv"), bag="tow").to_frame(wide=True)
        run("predict", stored, "new.csv", "--bag", "tow", "--wide", "-o", "wide.csv")
        pd.testing.assert_frame_equal(read("wide.csv"), wide, check_dtype=False)


BAYES = (
    "The model is not calibrated, so its intervals are Bayesian, which assume that only the proportions of the classes "
    "have changed since training; calibrate the model with bags of known proportions to get conformal intervals."
)
OWN = BAYES.replace("Bayesian", "of its own posterior")
NONE = (
    "There are no intervals, because the model is not calibrated and {}; calibrate the model with bags of known "
    "proportions to get conformal intervals{}."
)


@pytest.mark.parametrize(
    ("method", "kind", "note"),
    [(hq.PACC, "bayes", BAYES), (hq.EMQ, "bayes", BAYES), (hq.HDy, "bayes", BAYES), (hq.Pretrained, "posterior", OWN)],
)
def test_intervals_without_calibration(folder, place, rows, server, method, kind, note):
    q = method(random_state=0).fit(rows[["length"]], rows["species"])
    q.save(place / "models" / "bare", overwrite=True)
    with pytest.warns(UserWarning, match=re.escape(note)) as told:
        mine = hq.estimate(q, "new.csv", bag="tow").to_frame()
    assert [str(one.message) for one in told] == [note]
    assert Path(told[0].filename).name == Path(__file__).name, "the warning names the line of the caller"
    named = hq.estimate(q, "new.csv", bag="tow", interval=kind).to_frame()
    pd.testing.assert_frame_equal(mine, named)
    printed = run("predict", place / "models" / "bare", "new.csv", "--bag", "tow", "-o", "estimates.csv")
    assert printed.stderr == f"Warning: {note}\n"
    pd.testing.assert_frame_equal(read("estimates.csv"), mine, check_dtype=False)
    found = ask(server, "new.csv", "bare", bag=["tow"])
    assert found["estimates.csv"] == Path("estimates.csv").read_bytes()
    newest = server.client.get("/v1/jobs").json()["jobs"][0]
    assert server.job(newest["id"])["messages"] == [note]
    scored = run("evaluate", place / "models" / "bare", "rows.csv", "--bag", "tow", "--label", "species")
    assert f"\nOf the 90% {kind} intervals, " in scored.stdout
    assert scored.stderr == f"Warning: {note}\n"


def test_models_without_intervals_say_why(folder, rows):
    q = hq.MLPE().fit(rows[["length"]], rows["species"])
    reason = "MLPE has no posteriors of labelled rows for Bayesian intervals"
    with pytest.warns(UserWarning, match="^" + re.escape(NONE.format(reason, "")) + "$"):
        assert "lower" not in hq.estimate(q, "new.csv", bag="tow").to_frame()
    with pytest.raises(ValueError, match=r"^MLPE is not calibrated; "):
        hq.estimate(q, "new.csv", bag="tow", coverage=0.8)
    with pytest.raises(ValueError, match=r"^interval: MLPE has no posterior of counts; "):
        hq.estimate(q, "new.csv", bag="tow", interval="bayes")


def test_large_tables_and_sketches_have_no_bayesian_intervals_unless_named(folder, rows, monkeypatch):
    q = hq.PACC(random_state=0).fit(rows[["length"]], rows["species"])
    estimating.sketch(q, "new.csv", bag=["tow"]).save("new.parquet")
    reason = "Bayesian intervals need the rows of the bags in memory, not sketches"
    expected = "^" + re.escape(NONE.format(reason, "")) + "$"
    with pytest.warns(UserWarning, match=expected):
        assert "lower" not in hq.estimate(q, "new.parquet", bag="tow").to_frame()
    monkeypatch.setattr(estimating, "_SMALL_TABLE", 100)
    with pytest.warns(UserWarning, match=expected):
        assert "lower" not in hq.estimate(q, "new.csv", bag="tow").to_frame()
    assert "lower" in hq.estimate(q, "new.csv", bag="tow", interval="bayes").to_frame()
    monkeypatch.setattr(methods, "_MOST_UNASKED", 1000)
    reason = "Bayesian intervals of more than 500 rows take long and must be asked for by name"
    with pytest.warns(UserWarning, match="^" + re.escape(NONE.format(reason, "")) + "$"):
        assert "lower" not in hq.estimate(q, rows, bag="tow").to_frame()
    assert "lower" in hq.estimate(q, rows, bag="tow", interval="bayes").to_frame()


def test_audit(stored, rows, server):
    mine = hq.sample_table(stored, "new.csv", n=10, bag="tow")
    run("sample", stored, "new.csv", "--bag", "tow", "--n", "10", "-o", "drawn.csv")
    theirs = read("drawn.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(theirs.astype(str), mine.astype(str))
    found = ask(server, "new.csv", "pacc", bag=["tow"], sample=10)
    assert found["sample.csv"] == Path("drawn.csv").read_bytes()
    theirs["label"] = rows["species"].to_numpy()[theirs["audit_row"] - 1]
    theirs.to_csv("drawn.csv", index=False)
    audited = hq.estimate_audited(stored, "new.csv", theirs, bag="tow").to_frame()
    run("predict", stored, "new.csv", "--bag", "tow", "--audited", "drawn.csv", "-o", "audited.csv")
    pd.testing.assert_frame_equal(read("audited.csv"), audited, check_dtype=False)
    found = ask(server, "new.csv", "pacc", bag=["tow"], audited="drawn.csv")
    assert found["estimates.csv"] == Path("audited.csv").read_bytes()
    newest = server.client.get("/v1/jobs").json()["jobs"][0]
    assert server.job(newest["id"])["result"]["downloads"] == ["estimates.csv"], "a report knows no labels"


@pytest.mark.parametrize(("reference", "accuracy"), [(None, False), ("2026-01..2026-05", False), (None, True)])
def test_monitor(stored, reference, accuracy, server):
    mine = hq.monitor(hq.load(stored), "new.csv", time="day", period="W", reference=reference, accuracy=accuracy)
    typed = ["--accuracy"] * accuracy + ([] if reference is None else ["--reference", reference])
    done = run("monitor", stored, "new.csv", "--time", "day", "--period", "W", *typed, "--csv", "monitor.csv")
    theirs = read("monitor.csv", parse_dates=["start", "end"])
    pd.testing.assert_frame_equal(theirs, pd.DataFrame(mine), check_dtype=False)
    asked = {"accuracy": accuracy} | ({} if reference is None else {"reference": reference})
    found = ask(server, "new.csv", "pacc", bag=["tow"], time="day", period="W", **asked)
    assert found["monitor.csv"] == Path("monitor.csv").read_bytes()
    line = "Reference: 2026-01-05..2026-07-27, the first half of the chunks.\n"
    assert (line in done.stderr) == (reference is None)
    assert mine.attrs["reference"] == (reference or "2026-01-05..2026-07-27")
