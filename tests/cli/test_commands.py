"""From a file to an answer on the command line; what is wrong is told in one sentence, and nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from histnetq.training.loop import Run
from histnetq.workflows import estimating
from histnetq.workflows.candidates import Candidate


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


def test_one_feature_and_one_bag_are_in_the_singular(tables):
    known = ("--bag", "tow", "--label", "species")
    fitted = run("fit", "rows.csv", *known, "--features", "length", "--method", "cc", "--calibration", 0, "-o", "model")
    assert "CC learned 2 classes from 100 bags and 1 feature; kept in model.\n" in fitted.output
    rows = pd.read_csv("rows.csv")
    rows[rows["tow"] == "tow1"].to_csv("one.csv", index=False)
    assert run("predict", "model", "one.csv", "--bag", "tow", "-o", "e.csv").stdout.startswith("1 bag estimated, ")
    assert run("evaluate", "model", "one.csv", *known).stdout.startswith("1 bag: mean AE ")


def test_labelled_rows_from_file_to_answer(tables, tmp_path):
    fitted = run("fit", "rows.csv", "--bag", "tow", "--label", "species", "--method", "pacc", "-o", "model")
    assert fitted.exit_code == 0, fitted.output
    assert "PACC learned 2 classes from 100 bags and 2 features; kept in model." in fitted.output
    crossed = "by cross-validated estimates of 100 bags"
    assert f"Calibrated {crossed}: predict gives intervals." in fitted.output
    predicted = run("predict", "model", "bare.csv", "--bag", "tow", "-o", "estimates.csv", "--coverage", "0.8")
    assert predicted.output.startswith("100 bags estimated, written to estimates.csv.\n")
    found = pd.read_csv("estimates.csv")
    assert list(found) == ["tow", "class", "estimate", "lower", "upper", "n", "trust"]
    assert (found["trust"] == "ok").mean() > 0.9
    assert (found["lower"] <= found["estimate"]).all()
    truth = tables.set_index("tow")["eel"]
    eels = found[found["class"] == "eel"].set_index("tow")
    assert (eels["estimate"] - truth).abs().mean() < 0.1
    measured = json.loads(run("evaluate", "model", "rows.csv", "--bag", "tow", "--label", "species", "--json").output)
    assert measured["bags"] == 100
    assert measured["ae"] < 0.1
    told = run("info", "model").output
    assert "method       PACC" in told
    assert "features     length, depth" in told
    assert "intervals    calibrated by 100 bags" in told
    assert f"calibrated   {crossed}" in told
    assert "command      histnetq fit rows.csv --bag tow --label species --method pacc -o model" in told


def test_a_rank_alone_is_no_sign_of_other_processes(tables, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    fitted = run("fit", "rows.csv", "--bag", "tow", "--label", "species", "--method", "cc", "-o", "model")
    assert "kept in model" in fitted.output
    assert run("predict", "model", "rows.csv", "--bag", "tow", "-o", "model").exit_code == 2


def test_proportions_alone(tables, monkeypatch):
    monkeypatch.setattr(Run, "_ends", lambda self: self.progress.epoch >= 3)
    refused = run("fit", "bare.csv", "--bag", "tow", "--prevalences", "tows.csv", "--method", "cc", "-o", "model")
    assert refused.exit_code == 2
    assert (
        "--method: CC learns from labelled rows, but these have none; name their column by --label, or"
        in refused.output
    )
    known = ["fit", "bare.csv", "--bag", "tow", "--prevalences", "tows.csv"]
    fitted = run(*known, "--method", "deepsets", "--loss", "rae", "--calibration", 0, "-o", "scores")
    assert fitted.exit_code == 0, fitted.output
    assert hq.load("scores").loss == "rae"
    bags = hq.read_bags("bare.csv", bag="tow", prevalences="tows.csv")
    q = hq.HistNetQ(n_bins=8, encoder=(8,), head=(16,), training=hq.Training(epochs=3), random_state=0).fit(bags)
    q.save("model")
    lines = run("predict", "model", "bare.csv", "--bag", "tow").stdout.splitlines()
    assert lines[0] == "tow,class,estimate,n,trust"
    assert lines[1].endswith(",12,unchecked")
    assert len(lines) == 201
    measured = run("evaluate", "model", "bare.csv", "--bag", "tow", "--prevalences", "tows.csv", "-o", "errors.csv")
    assert "100 bags: mean AE" in measured.output
    assert "; baseline (training mean): 0." in measured.output
    assert len(pd.read_csv("errors.csv")) == 100


def test_the_best_of_a_few_methods(tables, monkeypatch):
    monkeypatch.setattr("histnetq.workflows.fitting.from_labels", lambda *names: [Candidate("pacc"), Candidate("cc")])
    told = run("fit", "rows.csv", "--bag", "tow", "--label", "species", "--method", "search", "-o", "model")
    assert told.exit_code == 0, told.output
    assert "has the lowest mean AE of the methods on 19 held-out bags:" in told.output
    assert "training mean" in told.output
    assert "why          " in run("info", "model").output
    facts = json.loads(run("info", "model", "--json").output)
    assert facts["provenance"]["calibration_bags"] == 100
    assert facts["provenance"]["sources"] == ["rows.csv"]


def test_methods_and_models_compared(tables):
    arguments = ["compare", "rows.csv", "--bag", "tow", "--label", "species"]
    found = json.loads(run(*arguments, "--methods", "cc,pacc", "--json").output)
    assert found["bags"] == 25
    assert set(found["methods"]) == {"CC", "PACC", "training mean"}
    assert found["methods"]["PACC"]["ae"] < found["methods"]["training mean"]["ae"]
    for method in ("cc", "pacc"):
        run("fit", "rows.csv", "--bag", "tow", "--label", "species", "--method", method, "-o", method)
    told = run(*arguments, "--model", "cc", "--model", "pacc", "-o", "errors.csv")
    assert told.exit_code == 0, told.output
    assert "100 bags; mean ± sd over the bags." in told.output
    kept = pd.read_csv("errors.csv", keep_default_na=False)
    assert kept["method"].tolist() == ["cc", "cc", "pacc", "pacc"]
    assert kept["measure"].tolist() == ["ae", "rae"] * 2
    shown = [f"{row.mean:.4f} ± {row.sd:.4f}{' *' if row.best == 'True' else row.mark and f' {row.mark}'}"
             for row in kept[kept["measure"] == "ae"].itertuples()]  # fmt: skip
    assert all(cell in told.output for cell in shown), shown


def test_tuning_keeps_the_best_and_continues(tables):
    pytest.importorskip("optuna")
    arguments = ["tune", "rows.csv", "--bag", "tow", "--label", "species", "--method", "emq", "--storage", "log"]
    told = run(*arguments, "--trials", "2", "-o", "model")
    assert told.exit_code == 0, told.output
    assert "The best of 2 trials has mean AE " in told.output
    again = json.loads(run(*arguments, "--trials", "3", "-o", "again", "--json").output)
    assert "The best of 3 trials" in again["why"]
    assert run("predict", "again", "bare.csv", "--bag", "tow").exit_code == 0


def test_a_report_of_known_and_of_new_bags(tables, tmp_path):
    for method in ("cc", "pacc"):
        run("fit", "rows.csv", "--bag", "tow", "--label", "species", "--method", method, "-o", method)
    known = ["--bag", "tow", "--label", "species", "--against", "cc", "-o", "known.html"]
    told = run("report", "pacc", "rows.csv", *known)
    assert told.exit_code == 0, told.output
    page = (tmp_path / "known.html").read_text()
    assert "calibrated by cross-validated estimates of 100 bags" in page
    assert "histnetq report pacc rows.csv" in page
    assert "tow99" in page
    told = run("report", "pacc", "bare.csv", "--bag", "tow", "-o", "new.html")
    assert told.output == "Written to new.html; open it in a browser.\n"


def test_unseen_values_of_texts_are_told(tables):
    rows = pd.read_csv("rows.csv").assign(gear="net")
    rows.loc[rows.index % 2 == 0, "gear"] = "trap"
    rows.to_csv("geared.csv", index=False)
    told = run("fit", "geared.csv", "--bag", "tow", "--label", "species", "--method", "cc",
               "--features", "length,gear", "-o", "model")  # fmt: skip
    assert told.exit_code == 0, told.output
    rows.loc[rows["tow"] == "tow5", "gear"] = "harpoon"
    rows.to_csv("other.csv", index=False)
    run("predict", "model", "other.csv", "--bag", "tow", "-o", "estimates.csv")
    found = pd.read_csv("estimates.csv").set_index("tow")["trust"]
    assert found.loc["tow5"].str.contains("unseen values").all()
    assert not found.drop("tow5").str.contains("unseen").any()


def test_bootstrap_intervals_need_no_calibration(tables):
    told = run(
        "fit", "rows.csv", "--bag", "tow", "--label", "species", "--method", "cc", "--calibration", 0, "-o", "model"
    )
    assert "predict gives Bayesian intervals." in told.output
    lines = run("predict", "model", "bare.csv", "--bag", "tow", "--interval", "bootstrap").output.splitlines()
    assert lines[0] == "tow,class,estimate,lower,upper,n,trust"


def test_bayesian_intervals_need_no_calibration_but_rows_and_posteriors(tables):
    learn = ("fit", "rows.csv", "--bag", "tow", "--label", "species", "--calibration", 0)
    for method in ("pacc", "mlpe"):
        run(*learn, "--method", method, "-o", method)
    asked = ("--bag", "tow", "--interval", "bayes", "--coverage", 0.8)
    told = run("predict", "pacc", "bare.csv", *asked, "-o", "estimates.csv")
    assert told.exit_code == 0, told.output
    found = pd.read_csv("estimates.csv")
    assert ((found["lower"] <= found["estimate"]) & (found["estimate"] <= found["upper"])).all()
    refused = run("predict", "mlpe", "bare.csv", *asked, "-o", "others.csv")
    assert refused.exit_code == 2
    assert "MLPE has no posterior of counts; use a method on posteriors such as EMQ" in refused.output
    run("sketch", "pacc", "bare.csv", "--bag", "tow", "-o", "bare.parquet")
    refused = run("predict", "pacc", "bare.parquet", "--interval", "bayes", "-o", "others.csv")
    assert refused.exit_code == 2
    message = "interval: the posterior of a bag's counts comes from its rows, which sketches do not contain; leave it"
    assert message in refused.output
    refused = run("predict", "pacc", "bare.csv", "--bag", "tow", "--interval", "bayesian", "-o", "others.csv")
    assert refused.exit_code == 2
    assert not Path("others.csv").exists()


def test_an_unknown_method_of_fit_is_told_of_auto(tables):
    refused = run("fit", "rows.csv", "--bag", "tow", "--label", "species", "--method", "emqq", "-o", "model")
    assert refused.exit_code == 2
    assert "--method: expected one of 'auto', 'search', 'histnetq'" in refused.output


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


def test_features_whose_names_hold_commas(tables):
    pd.read_csv("rows.csv").rename(columns={"length": "length, cm"}).to_csv("named.csv", index=False)
    for given in (["--features", "length, cm", "--features", "depth"], ["--features", '"length, cm",depth']):
        known = ["--bag", "tow", "--label", "species", "--method", "pacc", "-o", "named", "--force", "--json"]
        assert json.loads(run("fit", "named.csv", *given, *known).output)["features"] == ["length, cm", "depth"]
    assert json.loads(run("fit", "named.csv", "--features", "depth", *known).output)["features"] == ["depth"]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """A folder with tables and a calibrated model."""
    place = tmp_path_factory.mktemp("answers")
    write_tables(place)
    rows = pd.read_csv(place / "rows.csv")
    rows = rows[(rows["tow"] != "tow9") | ~rows["tow"].duplicated()]
    site = rows["tow"].str[3:].astype(int) // 10
    rows.assign(site=site, day=np.where(rows["depth"] > 4, "d10", "d9"), weight=rows["depth"] / 7).to_csv(
        place / "named.csv", index=False
    )
    q = hq.PACC(cv=3).fit(rows[["length"]], rows["species"])
    q.calibrate(hq.read_bags(place / "rows.csv", bag="tow", features=["length"], label="species")).save(place / "model")
    return place


def predicted(place, *arguments):
    told = run("predict", place / "model", place / "named.csv", *arguments, "--json")
    assert told.exit_code == 0, told.output
    return pd.DataFrame(json.loads(told.output))


def test_answers_keep_the_names_of_the_bag_columns_and_are_sorted(answers):
    found = predicted(answers, "--bag", "tow")
    assert list(found) == ["tow", "class", "estimate", "lower", "upper", "n", "trust"]
    assert found["tow"].tolist() == [f"tow{i}" for i in range(100) for _ in "ab"]
    assert found["class"].tolist() == ["cod", "eel"] * 100
    found = predicted(answers, "--bag", "site", "--bag", "day")
    assert list(found)[:3] == ["site", "day", "class"]
    assert found["site"].tolist() == [i for i in range(10) for _ in range(4)]
    assert found["day"].tolist() == ["d9", "d9", "d10", "d10"] * 10
    assert predicted(answers, "--bag", "depth")["depth"].tolist() == [i for i in range(1, 9) for _ in "ab"]


def test_a_bag_column_named_as_one_of_the_answer_stays(answers):
    pd.read_csv(answers / "named.csv").rename(columns={"tow": "class"}).to_csv(answers / "awkward.csv", index=False)
    lines = run("predict", answers / "model", answers / "awkward.csv", "--bag", "class").output.splitlines()
    assert lines[0] == "bag_class,class,estimate,lower,upper,n,trust"
    assert lines[1].startswith("tow0,cod,")


def test_values_with_a_slash_keep_the_name_of_the_bag_together():
    found = estimating.name_columns(np.array(["a/b/1", "c/2"]), ["site", "day"])
    assert found.to_dict("list") == {"site/day": ["a/b/1", "c/2"]}


def test_a_wide_answer_has_a_row_for_each_bag(answers):
    long, wide = predicted(answers, "--bag", "tow"), predicted(answers, "--bag", "tow", "--wide")
    names = ["tow", "cod", "eel", "cod_lower", "cod_upper", "eel_lower", "eel_upper", "n", "trust"]
    assert list(wide) == names
    assert len(wide) == 100
    eels = long[long["class"] == "eel"].reset_index(drop=True)
    for name, end in (("eel", "estimate"), ("eel_lower", "lower"), ("eel_upper", "upper")):
        pd.testing.assert_series_equal(wide[name], eels[end], check_names=False)
    run("predict", answers / "model", answers / "named.csv", "--bag", "tow", "--wide", "-o", answers / "wide.csv")
    assert list(pd.read_csv(answers / "wide.csv")) == names
    pd.read_csv(answers / "named.csv").rename(columns={"tow": "eel"}).to_csv(answers / "awkward.csv", index=False)
    told = run("predict", answers / "model", answers / "awkward.csv", "--bag", "eel", "--wide")
    assert told.exit_code == 2
    assert told.output == "Error: --wide: two columns would be named 'eel'; rename the class, or leave out --wide.\n"


def test_numbers_of_rows_are_whole_numbers(answers):
    assert pd.api.types.is_integer_dtype(predicted(answers, "--bag", "tow")["n"])
    lines = run("predict", answers / "model", answers / "named.csv", "--bag", "tow").output.splitlines()
    assert lines[1].endswith(",12,ok")
    many = pd.DataFrame({"tow": "a", "length": np.zeros(1_245_000)})
    many.to_parquet(answers / "many.parquet")
    told = run("predict", answers / "model", answers / "many.parquet", "--bag", "tow").output
    assert ",1245000," in told
    weighted = predicted(answers, "--bag", "tow", "--weight", "weight")
    assert (weighted["n"] < 12).all(), "the effective number of rows"


@pytest.fixture
def votes(tmp_path, monkeypatch):
    """The same people as one row each, and as counts of equal rows."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"place": np.repeat(np.arange(40), 50), "age": rng.integers(18, 40, 2000)})
    people["vote"] = np.where(rng.random(2000) < (people["age"] - 10) / 40, "blue", "red")
    start = pd.Timestamp("2026-01-05")
    people["day"] = start + pd.to_timedelta(7 * (people["place"] // 4), unit="D")
    counted = people.groupby(list(people), as_index=False).size().rename(columns={"size": "n"})
    people.sort_values(list(people)).to_csv("people.csv", index=False)
    counted.to_csv("counted.csv", index=False)


def test_counts_are_the_same_as_repeated_rows(votes):
    share = pd.read_csv("people.csv")["vote"].value_counts(normalize=True).sort_index().tolist()
    known, found = ("--bag", "place", "--label", "vote", "--features", "age"), {}
    for name, typed in (("people", ()), ("counted", ("--count-column", "n"))):
        fitted = run("fit", f"{name}.csv", *known, *typed, "--method", "pacc", "-o", name)
        assert fitted.exit_code == 0, fitted.output
        assert hq.load(name).train_prevalences_.tolist() == pytest.approx(share, abs=1e-9)
        run("predict", "people", f"{name}.csv", "--bag", "place", *typed, "-o", f"{name}-p.csv")
        run("predict", "people", f"{name}.csv", "--bag", "place", *typed, "--interval", "bayes", "-o", f"{name}-b.csv")
        chunks = ("--time", "day", "--period", "W", "--accuracy")
        run("monitor", "people", f"{name}.csv", *chunks, *typed, "--csv", f"{name}-m.csv")
        run("sketch", "people", f"{name}.csv", "--bag", "place", *typed, "-o", f"{name}.parquet")
        run("predict", "people", f"{name}.parquet", "-o", f"{name}-s.csv")
        told = run("evaluate", "people", f"{name}.csv", *known[:4], *typed, "--json")
        found[name] = [pd.read_csv(f"{name}-{part}.csv") for part in "pbms"], json.loads(told.stdout)
    for mine, theirs in zip(found["people"][0], found["counted"][0], strict=True):
        pd.testing.assert_frame_equal(mine, theirs, rtol=1e-6)
    assert found["people"][0][0]["n"].tolist() == [50] * 80
    for name in ("ae", "rae", "coverage"):
        assert found["counted"][1][name] == pytest.approx(found["people"][1][name], rel=1e-6), name
    q = hq.load("people")
    mine = hq.estimate(q, "counted.csv", bag="place", weight="n", weight_kind="count").to_frame()
    pd.testing.assert_frame_equal(mine, found["counted"][0][0], check_dtype=False)


def test_weights_and_counts_are_told_apart(votes):
    known = ("--bag", "place", "--label", "vote", "--features", "age", "--method", "pacc", "-o", "model")
    told = run("fit", "counted.csv", *known, "--weight", "n")
    assert "Warning: counted.csv: the weights in column 'n' are whole numbers, and count as survey" in told.stderr
    told = run("fit", "counted.csv", *known, "--weight", "n", "--count-column", "n", "--force")
    assert (told.exit_code, told.output.splitlines()[-1]) == (
        2, "Error: expected --weight or --count-column, got both: leave one of them out.",
    )  # fmt: skip
    pd.read_csv("counted.csv").assign(n=1.5).to_csv("half.csv", index=False)
    told = run("predict", "model", "half.csv", "--bag", "place", "--count-column", "n")
    assert told.output.endswith(
        "Error: half.csv: row 1 has 1.5 in column 'n', expected a count, which is a whole number; name it as --weight "
        "if it is a survey weight.\n"
    )


def test_a_bag_of_one_row_is_called_that(answers):
    found = predicted(answers, "--bag", "tow").set_index("tow")
    assert found.loc["tow9", "n"].tolist() == [1, 1]
    assert found.loc["tow9", "trust"].str.startswith("one row").all()
    assert not found["trust"].str.contains("small").any()
    rows = pd.read_csv(answers / "named.csv")
    rows.assign(fish=[f"f{i}" for i in range(len(rows))]).to_csv(answers / "each.csv", index=False)
    told = run("predict", answers / "model", answers / "each.csv", "--bag", "fish")
    assert f"Each of the {len(rows):,} bags has only one row: is --bag the right column?" in told.stderr


def test_evaluate_tells_the_coverage(answers):
    arguments = ["evaluate", answers / "model", answers / "rows.csv", "--bag", "tow", "--label", "species"]
    found = json.loads(run(*arguments, "--coverage", "0.8", "--json").output)["coverage"]
    q = hq.load(answers / "model")
    bags = hq.read_bags(answers / "rows.csv", bag="tow", features=["length"], label="species")
    intervals = q.predict_interval(bags, 0.8)
    assert found == pytest.approx({
        "nominal": 0.8, "seen": intervals.contains(bags.prevalences).mean(),
        "mean width": (intervals.upper - intervals.lower).mean(),
    })  # fmt: skip
    assert "\nOf the 90% conformal intervals, " in run(*arguments).output
    found = json.loads(run(*arguments, "--interval", "bayes", "--json").stdout)
    intervals = q.predict_interval(bags, 0.9, method="bayes")
    assert found["interval"] == "bayes"
    assert found["coverage"] == pytest.approx({
        "nominal": 0.9, "seen": intervals.contains(bags.prevalences).mean(),
        "mean width": (intervals.upper - intervals.lower).mean(),
    })  # fmt: skip
    held = f"Of the 90% bayes intervals, {found['coverage']['seen']:.1%} contain the truth; their mean width is "
    assert f"\n{held}{found['coverage']['mean width']:.4f}.\n" in run(*arguments, "--interval", "bayes").stdout


def test_a_class_that_training_lacks_counts_as_estimated_0(answers):
    rows = pd.read_csv(answers / "rows.csv")
    rows.loc[rows["tow"] == "tow3", "species"] = "hake"
    rows.to_csv(answers / "hake.csv", index=False)
    known = [answers / "hake.csv", "--bag", "tow", "--label", "species"]
    told = run("evaluate", answers / "model", *known, "-o", answers / "errors.csv")
    assert told.exit_code == 0, told.output
    sentence = "has no class 'hake', which the truth has; its estimate counts as 0."
    assert told.stderr == f"Warning: quantifier: {sentence}\n"
    errors = pd.read_csv(answers / "errors.csv").set_index("bag")
    assert errors.loc["tow3", ["true_hake", "estimated_hake"]].tolist() == [1, 0]
    assert errors.loc["tow3", "ae"] == pytest.approx(2 / 3)
    told = run("report", answers / "model", *known, "-o", answers / "hake.html")
    assert told.exit_code == 0, told.output
    assert f"PACC {sentence}".replace("'", "&#39;") in (answers / "hake.html").read_text().replace("&#x27;", "&#39;")
    told = run("compare", *known, "--model", answers / "model")
    assert told.exit_code == 0, told.output
