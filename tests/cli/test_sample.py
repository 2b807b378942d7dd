"""Rows are drawn, labelled and estimated from on the command line; what is wrong is told in one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from tests.cli.test_commands import write_tables

SAMPLE = ["sample", "model", "bare.csv", "--bag", "tow", "--n", "40", "-o", "to_label.csv"]
PREDICT = ["predict", "model", "bare.csv", "--bag", "tow", "--audited", "labelled.csv", "-o", "new.csv"]


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A table of 3 bags, a model of other rows, and one without posteriors."""
    folder = tmp_path_factory.mktemp("good")
    write_tables(folder, n_bags=60, size=20, seed=1)
    bags = hq.read_bags(folder / "rows.csv", bag="tow", label="species")
    hq.EMQ(random_state=0).fit(bags).save(folder / "model")
    hq.MLPE().fit(bags).save(folder / "mean")
    write_tables(folder, n_bags=3, size=150)
    return folder


@pytest.fixture
def folder(prepared, tmp_path, monkeypatch):
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fill_in(name="to_label.csv", to="labelled.csv"):
    """Label the drawn rows, as rows.csv has the classes."""
    drawn = pd.read_csv(name)
    drawn["label"] = pd.read_csv("rows.csv")["species"].to_numpy()[drawn["audit_row"] - 1]
    drawn.to_csv(to, index=False)
    return drawn


@pytest.fixture
def labelled(folder):
    assert run(*SAMPLE).exit_code == 0
    return fill_in()


def test_from_a_table_to_audited_estimates(folder):
    told = run(*SAMPLE)
    assert told.output == (
        "120 rows of 3 bags drawn, written to to_label.csv; fill in the column label, and then pass the file to "
        "histnetq predict --audited.\n"
    )
    drawn = fill_in()
    rows = pd.read_csv("bare.csv")
    pd.testing.assert_frame_equal(drawn[list(rows)], rows.iloc[drawn["audit_row"] - 1].reset_index(drop=True))
    assert next(iter(drawn)) == "label"
    assert (drawn.groupby("tow")["audit_probability"].apply(lambda p: (1 / p).sum()).round(3) == 150).all()
    found = run(*PREDICT)
    assert found.exit_code == 0, found.output
    table = pd.read_csv("new.csv")
    assert list(table) == ["tow", "class", "estimate", "lower", "upper", "n", "trust", "labels", "method"]
    assert set(table["method"]) == {"audited: prediction-powered, stratified sample"}
    assert (table["labels"] == 40).all()
    found = table.set_index(["tow", "class"])
    truth = pd.read_csv("tows.csv").melt("tow", var_name="class").set_index(["tow", "class"])["value"][found.index]
    assert (found["estimate"] - truth).abs().max() < 0.1
    assert ((found["lower"] <= truth) & (truth <= found["upper"])).mean() > 0.5


def test_labellers_do_not_see_what_a_model_thinks(folder):
    rows = pd.read_csv("bare.csv")
    name = str(hq.load("model").classes_[0])
    told = {"y_pred": "x", "Score": 0.5, "prob_of_x": 0.5, name: 0.5}
    rows.assign(**told, scorecard="kept", problem="kept").to_csv("bare.csv", index=False)
    found = run(*SAMPLE)
    assert "left out of the drawn rows, so that labels do not depend on predictions" in found.output
    drawn = fill_in()
    own = [column for column in drawn if column != "label" and not column.startswith("audit_")]
    assert own == [*rows, "scorecard", "problem"]
    assert run(*PREDICT).exit_code == 0
    scores = pd.DataFrame({"u": [0.1, 0.8] * 30, "v": [0.9, 0.2] * 30, "note": "kept"})
    q = hq.PACC().fit_posteriors(scores[["u", "v"]], ["v", "u"] * 30)
    q.feature_names_ = ["u", "v"]
    with pytest.warns(UserWarning, match="predictions"):
        drawn = hq.sample_table(q, scores, n=10)
    assert [column for column in drawn if not column.startswith("audit_")] == ["label", "note"]


def test_rows_may_be_sorted_and_columns_left_out(labelled):
    run(*PREDICT)
    expected = Path("new.csv").read_text()
    own = ["label", *(name for name in labelled if name.startswith("audit_"))]
    labelled[own].sample(frac=1, random_state=0).to_csv("labelled.csv", index=False, sep=";", decimal=",")
    again = run(*PREDICT, "--force")
    assert again.exit_code == 0, again.output
    assert Path("new.csv").read_text() == expected
    labelled.to_parquet("labelled.parquet")
    assert run(*[name.replace("labelled.csv", "labelled.parquet") for name in PREDICT], "--force").exit_code == 0
    assert Path("new.csv").read_text() == expected


def test_the_same_seed_draws_the_same_file(folder):
    run(*SAMPLE)
    first = Path("to_label.csv").read_bytes()
    run(*SAMPLE, "--force")
    assert Path("to_label.csv").read_bytes() == first
    run(*SAMPLE, "--force", "--seed", "1")
    assert Path("to_label.csv").read_bytes() != first


def test_another_model_of_the_same_features_takes_the_labels(labelled):
    bags = hq.read_bags("rows.csv", bag="tow", label="species")
    hq.PACC(random_state=0).fit(bags).save("other")
    assert run(*[name.replace("model", "other") for name in PREDICT]).exit_code == 0


def test_a_parquet_table_in_two_files_with_weights_and_whole_numbers_as_classes(folder):
    rows = pd.read_csv("rows.csv").assign(area=np.linspace(1, 3, 450), species=lambda d: (d["species"] == "eel") + 1)
    rows[:200].to_parquet("a.parquet")
    rows[200:].to_parquet("b.parquet")
    bags = hq.read_bags(rows, bag="tow", label="species", features=["length", "depth"])
    hq.EMQ(random_state=0).fit(bags).save("model2")
    table = ["a.parquet", "b.parquet", "--bag", "tow", "--weight", "area"]
    assert run("sample", "model2", *table, "--n", 60, "-o", "to_label.csv").exit_code == 0
    drawn = pd.read_csv("to_label.csv")
    assert (drawn["species"].to_numpy() == rows["species"].to_numpy()[drawn["audit_row"] - 1]).all()
    drawn.assign(label=drawn["species"]).to_csv("labelled.csv", index=False)
    found = run("predict", "model2", *table, "--audited", "labelled.csv", "--wide", "--json")
    assert found.exit_code == 0, found.output
    wide = pd.DataFrame(json.loads(found.output)).set_index("tow")
    truth = rows.groupby("tow").apply(lambda d: np.average(d["species"] == 2, weights=d["area"]), include_groups=False)
    assert (wide["2"] - truth).abs().max() < 0.1


def test_bags_without_labels_are_left_out(labelled):
    labelled.loc[labelled["tow"] == "tow1", "label"] = None
    labelled.to_csv("labelled.csv", index=False)
    told = run(*PREDICT)
    assert "Warning: labelled.csv: bags without labels are left out: ['tow1']." in told.output
    assert set(pd.read_csv("new.csv")["tow"]) == {"tow0", "tow2"}


def test_a_typo_in_a_label_is_told_with_the_class_that_it_resembles(labelled):
    labelled.loc[::7, "label"] = labelled.loc[::7, "label"] + "s"
    typos = sorted(set(labelled.loc[::7, "label"]))
    labelled.to_csv("labelled.csv", index=False)
    near = ", ".join(f"{typo!r} to {typo[:-1]!r}" for typo in typos)
    assert f"they are estimated only from the labels; correct {near} if this is a typo.\n" in run(*PREDICT).output


def test_a_class_that_the_model_has_not_learned(labelled):
    labelled.loc[::7, "label"] = "hake "
    labelled.to_csv("labelled.csv", index=False)
    told = run(*PREDICT)
    assert (
        "Warning: labels name classes that the model has not learned: ['hake']; "
        "they are estimated only from the labels.\n"
    ) in told.output
    found = pd.read_csv("new.csv")
    assert found.loc[found["class"] == "hake", "estimate"].between(0.02, 0.4).all()


def test_a_simple_random_sample(folder):
    rows = pd.read_csv("rows.csv").rename(columns={"species": "label"})
    rows.sample(120, random_state=0).to_csv("labelled.csv", index=False)
    refused = run(*PREDICT)
    assert refused.exit_code == 2
    assert (
        "Error: labelled.csv: has no column 'audit_row', which histnetq sample adds to the rows that it draws; keep "
        "its columns, or pass --random if the rows are a simple random sample of each bag."
    ) in refused.output
    found = run(*PREDICT, "--random")
    assert found.exit_code == 0, found.output
    table = pd.read_csv("new.csv")
    assert set(table["method"]) == {"audited: prediction-powered, simple random sample"}
    assert table.groupby("tow")["labels"].first().sum() == 120
    truth = pd.read_csv("tows.csv").melt("tow", var_name="class").set_index(["tow", "class"])["value"]
    assert (table.set_index(["tow", "class"])["estimate"] - truth).abs().max() < 0.15


def change(act, name="labelled.csv"):
    """Write the table again, changed."""

    def made():
        act(pd.read_csv(name, dtype=object)).to_csv(name, index=False)

    return made


def cell(column, value, row=4):
    def act(table):
        table.loc[row, column] = value
        return table

    return change(act)


def own(table):
    """The table without what histnetq sample added."""
    return table[["label", "tow", "length", "depth"]]


def text(content, name):
    return lambda: Path(name).write_text(content)


NOT_DRAWN = "is not one that histnetq sample drew from this table"
WRONG_SAMPLES = {
    "no such model": (None, ["sample", "nope", *SAMPLE[2:]], "nope"),
    "no such table": (None, ["sample", "model", "nope.csv", *SAMPLE[3:]],
        "NEW: nope.csv does not exist; check the path."),
    "no output": (None, SAMPLE[:-2], "--output: expected a value, got none; add --output with the "),
    "output is there": (text("x", "to_label.csv"), SAMPLE, "--output: to_label.csv exists; choose another name"),
    "output is a directory": (None, [*SAMPLE[:-1], "model", "--force"], "--output: model cannot be written"),
    "too few rows": (None, [*SAMPLE, "--n", "9"], "Invalid value for '--n': 9 is not in the range x>=10."),
    "no number of rows": (None, [*SAMPLE, "--n", "many"],
        "Invalid value for '--n': 'many' is not a valid integer range."),
    "negative seed": (None, [*SAMPLE, "--seed", "-1"], "Invalid value for '--seed': -1 is not in the range x>=0."),
    "no such bag column": (None, [*SAMPLE, "--bag", "site"], "bare.csv: has no column 'site'"),
    "no such weight": (None, [*SAMPLE, "--weight", "area"], "bare.csv: has no column 'area'"),
    "negative weights": (
        change(lambda d: d.assign(area=-1), "bare.csv"), [*SAMPLE, "--weight", "area"],
        "expected a weight of at least 0",
    ),
    "no posteriors": (None, ["sample", "mean", *SAMPLE[2:]],
        "MLPE gives no probabilities of rows; use EMNetQ"),
    "dropped rows": (None, [*SAMPLE, "--missing", "drop"],
        "--missing: expected refuse or mean for labelled rows, which are found again"),
    "a column named label": (
        change(lambda d: d.assign(label=1), "bare.csv"), SAMPLE,
        "bare.csv: has a column 'label', which the drawn rows get; rename or drop it.",
    ),
    "a sample of a sample": (
        lambda: (run(*SAMPLE), Path("to_label.csv").rename("bare.csv")), SAMPLE,
        "bare.csv: has a column 'label', which",
    ),
    "a feature lacks": (
        change(lambda d: d.drop(columns="length"), "bare.csv"), SAMPLE, "bare.csv: has no column 'length'",
    ),
    "a cell lacks": (
        change(lambda d: d.assign(length=d["length"].where(d.index != 3)), "bare.csv"), SAMPLE,
        "bare.csv: row 4 has nothing in column 'length', expected a value",
    ),
    "a table without rows": (change(lambda d: d[:0], "bare.csv"), SAMPLE, "bare.csv: has no rows; check the file."),
    "an empty file": (text("", "bare.csv"), SAMPLE, "bare.csv: "),
}  # fmt: skip
WRONG_AUDITS = {
    "no such file": (None, [*PREDICT, "--audited", "nope.csv"], "--audited: nope.csv does not exist; check the path."),
    "another ending": (lambda: Path("labels.ods").write_text("x"), [*PREDICT, "--audited", "labels.ods"],
        "--audited: labels.ods ends neither in"),
    "nothing labelled": (
        change(lambda d: d.assign(label=None)), PREDICT,
        "labelled.csv: no row has a label in column 'label'; fill it in."
    ),
    "one label lacks": (
        cell("label", None), PREDICT,
        "labelled.csv: row 5 has nothing in column 'label', but other rows of its bag have a label;"
    ),
    "no label column": (
        change(lambda d: d.drop(columns="label")), PREDICT,
        "labelled.csv: has no column 'label'; add one with the class"
    ),
    "no column of the draw": (
        change(lambda d: d.drop(columns="audit_share")), PREDICT, "labelled.csv: has no column 'audit_share', which"
    ),
    "a row left out": (
        change(lambda d: d.drop(index=3)), PREDICT,
        "labelled.csv: lacks rows that were drawn from bag 'tow0', expected all of them; add the missing rows",
    ),
    "a stratum left out": (
        change(lambda d: d[(d["audit_stratum"] != "1") | (d["tow"] != "tow2")]), PREDICT,
        "labelled.csv: lacks rows that were drawn from bag 'tow2', expected all of them",
    ),
    "a row twice": (
        change(lambda d: pd.concat([d, d[:1]])), PREDICT, "labelled.csv: row 121 occurs twice; remove one of them."
    ),
    "a row of no table": (cell("audit_row", 100_000), PREDICT, f"labelled.csv: row 5 {NOT_DRAWN}"),
    "no number of a row": (cell("audit_row", "x"), PREDICT,
        "labelled.csv: column 'audit_row' holds numbers and the text 'x' (row 5); correct it"),
    "an infinite share": (cell("audit_share", "inf"), PREDICT, f"labelled.csv: row 5 {NOT_DRAWN}"),
    "another probability": (cell("audit_probability", 0.5), PREDICT, f"labelled.csv: row 5 {NOT_DRAWN}"),
    "another stratum": (cell("audit_stratum", 9), PREDICT, f"labelled.csv: row 5 {NOT_DRAWN}"),
    "another checksum": (cell("audit_check", "c0"), PREDICT, f"labelled.csv: row 5 {NOT_DRAWN}"),
    "a table in another order": (
        change(lambda d: d.sort_values("length"), "bare.csv"), PREDICT, f"labelled.csv: row 1 {NOT_DRAWN}"
    ),
    "other bags": (None, [*PREDICT[:3], *PREDICT[5:]], f"labelled.csv: row 1 {NOT_DRAWN}"),
    "no posteriors": (None, ["predict", "mean", *PREDICT[2:]], "MLPE gives no probabilities of rows"),
    "random alone": (None, [*PREDICT[:5], "--random"],
        "expected --random only with --audited, whose rows it describes."),
    "another interval": (None, [*PREDICT, "--interval", "bootstrap"],
        "expected --audited without --interval and --dask"),
    "workers": (None, [*PREDICT, "--dask", "local"], "expected --audited without --interval and --dask"),
    "coverage": (None, [*PREDICT, "--coverage", "90"], "--coverage: expected a number between 0 and 1, such as 0.9"),
    "dropped rows": (None, [*PREDICT, "--missing", "drop"], "--missing: expected refuse or mean for labelled rows"),
    "a stratified sample as a random one": (
        None, [*PREDICT, "--random"],
        "labelled.csv: has the column 'audit_probability', so histnetq sample drew its rows with different "
        "probabilities; leave out --random.",
    ),
    "labels in other letters": (
        change(lambda d: d.assign(label=d["label"].str.upper())), PREDICT,
        "a class of the model, got ",
    ),
    "labels of other names": (
        change(lambda d: d.assign(label=(d["label"] == "eel").astype(int))), PREDICT,
        "--audited: expected labels such as ['cod', 'eel'], got ['0', '1']; name classes as the model does.",
    ),
    "the rows' file too": (None, [*PREDICT, "--rows", "r.csv"], "expected --rows without --audited"),
    "a feature as the weight": (
        None, [*PREDICT, "--weight", "depth"],
        "features: expected columns other than the bag, label and weight columns, got 'depth'",
    ),
    "an empty file": (text("", "labelled.csv"), PREDICT, "labelled.csv: is empty"),
    "random rows of another table": (
        change(lambda d: own(d).assign(length=d["length"].where(d.index != 4, "1234.5"))), [*PREDICT, "--random"],
        "labelled.csv: row 5 is not a row of its bag, or occurs more often"
    ),
    "random rows twice": (
        change(lambda d: own(pd.concat([d, d]))), [*PREDICT, "--random"],
        "labelled.csv: row 121 is not a row of its bag, or occurs"
    ),
    "random rows without a label": (
        change(lambda d: own(d).assign(label=d["label"].where(d.index != 4))), [*PREDICT, "--random"],
        "labelled.csv: row 5 has nothing in column 'label'; fill it in."
    ),
    "one random row": (
        change(lambda d: own(d)[:1]), [*PREDICT, "--random"],
        "--audited: expected at least 2 labels of each bag, got only one; label more rows."
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_SAMPLES)
def test_wrong_samples(folder, case):
    refused(*WRONG_SAMPLES[case])


@pytest.mark.parametrize("case", WRONG_AUDITS)
def test_wrong_audits(labelled, case):
    refused(*WRONG_AUDITS[case])


def refused(act, arguments, message):
    if act is not None:
        act()
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    found = run(*arguments)
    assert found.exit_code == 2, found.output
    assert message in found.output
    sentence = found.output.partition("Error: ")[2].strip()
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before
