"""The commands judge and sample --judge: the same numbers as in Python, and files of the results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main

RANDOM = ("--judge", "verdict", "--human", "label", "--labels", "random")


def run(*arguments, code=0):
    result = CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def make_rows(n=600, n_labels=150, seed=0):
    rng = np.random.default_rng(seed)
    model = np.repeat(["A", "B"], n // 2)
    truth = np.where(rng.random(n) < np.where(model == "A", 0.3, 0.2), "bad", "good")
    verdict = np.where(rng.random(n) < 0.85, truth, np.where(truth == "bad", "good", "bad"))
    label = np.full(n, None, object)
    drawn = rng.choice(n, n_labels, replace=False)
    label[drawn] = truth[drawn]
    answers = [f"answer {i}" for i in range(n)]
    return pd.DataFrame(
        {"model": model, "talk": np.arange(n) // 2, "answer": answers, "verdict": verdict, "label": label}
    )


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.fixture(autouse=True)
def files(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows.to_csv("verdicts.csv", index=False)
    rows.to_json("verdicts.jsonl", orient="records", lines=True)
    make_rows(seed=1).to_csv("march.csv", index=False)
    rows.drop(columns="label").to_csv("new.csv", index=False)


def test_the_command_gives_the_numbers_of_python(rows):
    expected = hq.judge(rows, judge="verdict", human="label", labels="random").to_frame()
    for name in ("verdicts.csv", "verdicts.jsonl"):
        for output in ("out.csv", "out.parquet"):
            run("judge", name, *RANDOM, "-o", output, "--force")
            found = pd.read_csv(output) if output.endswith("csv") else pd.read_parquet(output)
            pd.testing.assert_frame_equal(found, expected, rtol=1e-12, check_dtype=False)
    facts = json.loads(run("judge", "verdicts.csv", *RANDOM, "--json").stdout)
    np.testing.assert_allclose([row["lower"] for row in facts["table"]], expected["lower"], atol=1e-9)
    printed = run("judge", "verdicts.csv", *RANDOM).stdout.splitlines()
    assert printed[0] == ",".join(expected.columns)
    assert float(printed[1].split(",")[2]) == round(expected["estimate"][0], 6)


def test_systems_are_compared(rows):
    how = {"by": "model", "cluster": "talk", "target": "process"}
    expected = hq.judge(rows, judge="verdict", human="label", labels="random", **how)
    typed = [word for name, value in how.items() for word in (f"--{name}", value)]
    facts = json.loads(run("judge", "verdicts.jsonl", *RANDOM, *typed, "--json").stdout)
    np.testing.assert_allclose(
        [row["difference"] for row in facts["comparisons"]], expected.comparisons["difference"], atol=1e-9
    )
    said = run("judge", "verdicts.jsonl", *RANDOM, *typed).stderr
    assert "The share of bad " in said
    assert "The share of good " not in said


def test_the_report_is_a_page():
    said = run("judge", "verdicts.csv", *RANDOM, "--by", "model", "-o", "report.html").stdout
    assert said.endswith("Written to report.html.\n")
    page = Path("report.html").read_text(encoding="utf-8")
    assert "<h2>When not to trust this</h2>" in page
    assert "histnetq judge verdicts.csv --judge verdict" in page
    told = run("judge", "verdicts.csv", *RANDOM, "-o", "report.pdf", code=2).stderr
    assert "--output: expected a file name that ends in .html" in told


def test_drawn_rows_hide_the_verdict_and_come_back_with_labels(rows):
    run("sample", "new.csv", "--judge", "verdict", "--by", "model", "--n", 40, "-o", "to_label.csv")
    drawn = pd.read_csv("to_label.csv")
    assert list(drawn) == ["label", "talk", "answer", "audit_row", "audit_check"]
    assert rows["model"][drawn["audit_row"] - 1].value_counts().to_dict() == {"A": 40, "B": 40}
    assert rows["answer"][drawn["audit_row"] - 1].tolist() == drawn["answer"].tolist()
    truth = make_truth(rows)
    drawn.assign(label=truth[drawn["audit_row"] - 1]).iloc[:70].to_csv("labelled.csv", index=False)
    run("judge", "new.csv", "--judge", "verdict", "--labelled", "labelled.csv", "--labels", "random", "-o", "out.csv")
    label = np.full(len(rows), None, object)
    label[drawn["audit_row"][:70] - 1] = truth[drawn["audit_row"][:70] - 1]
    expected = hq.judge(rows.assign(label=label), judge="verdict", human="label", labels="random").to_frame()
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), expected, check_dtype=False)


@pytest.mark.parametrize("flag", [(), ("--by-verdict",)])
def test_a_plan_is_drawn_exactly(flag, rows):
    run("sample", "verdicts.csv", *RANDOM, "--by", "model", "--plan", 0.04, *flag, "-o", "to_label.csv")
    plan = hq.judge(rows, judge="verdict", human="label", labels="random", by="model", plan=0.04).plan
    plan = plan[plan["design"] == ("by-verdict" if flag else "random")]
    drawn = rows.iloc[pd.read_csv("to_label.csv")["audit_row"] - 1]
    assert len(drawn) == plan["n_more"].sum() > 0
    assert drawn["label"].isna().all()
    for row in plan.to_dict("records"):
        chosen = drawn[drawn["model"] == row["model"]]
        chosen = chosen[chosen["verdict"] == row["verdict"]] if flag else chosen
        assert len(chosen) == row["n_more"]


def test_a_width_that_labels_of_all_rows_do_not_give_is_told(rows):
    said = run("judge", "verdicts.csv", *RANDOM, "--target", "process", "--plan", 0.01).stderr
    assert "Even labels of all rows do not give the planned width, which needs more rows." in said
    assert "0 more labels" not in said
    said = run("judge", "verdicts.csv", *RANDOM, "--by", "model", "--target", "process", "--plan", 0.01).stderr
    assert said.count("Even labels of all rows") == 2


def test_a_sample_of_more_rows_than_have_no_label_is_told(rows):
    free = int(rows["label"].isna().sum())
    said = run("sample", "verdicts.csv", *RANDOM, "--n", 5000, "-o", "to_label.csv").stderr
    assert f"--n: expected 5,000 rows without a label, got {free}; all of them are drawn." in said
    assert len(pd.read_csv("to_label.csv")) == free


def test_scores_are_columns_of_a_pattern(rows):
    p = np.random.default_rng(0).beta(2, 2, len(rows)).round(3)
    scored = rows.assign(p_bad=p, p_good=1 - p)
    scored.to_csv("scored.csv", index=False)
    expected = hq.judge(scored, judge={"bad": "p_bad", "good": "p_good"}, human="label", labels="random").to_frame()
    for judge in ("p_*", "bad=p_bad,good=p_good"):
        run("judge", "scored.csv", "--judge", judge, *RANDOM[2:], "-o", "out.csv", "--force")
        pd.testing.assert_frame_equal(pd.read_csv("out.csv"), expected, check_dtype=False)


def test_labels_of_an_earlier_batch(rows):
    march = make_rows(seed=1)
    expected = hq.judge(rows.drop(columns="label"), judge="verdict", human="label", learned_on=march).to_frame()
    run("judge", "new.csv", "--judge", "verdict", "--learned-on", "march.csv", "-o", "out.csv")
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), expected, check_dtype=False)


def make_truth(rows):
    return np.where(np.random.default_rng(3).random(len(rows)) < 0.8, rows["verdict"], "bad")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.drop(columns="audit_check"),
         "has no column 'audit_check', which histnetq sample writes; keep its columns."),
        (lambda d: d.assign(label=""), "no row has a label in column 'label'; fill it in."),
        (lambda d: d.assign(label=["", *["bad"] * 39]),
         "row 1 has nothing in column 'label', but a later row has; label the rows in their order, and stop where you "
         "like."),
        (lambda d: d.assign(audit_row=d["audit_row"] + 1),
         "row 1 is not one that histnetq sample drew from this table; give the same table and leave the columns "
         "audit_... as they were."),
        (lambda d: d.assign(audit_row="x"),
         "row 1 is not one that histnetq sample drew from this table; give the same table and leave the columns "
         "audit_... as they were."),
        (lambda d: pd.concat([d, d]), "row 41 occurs twice; remove one of them."),
    ],
)  # fmt: skip
def test_wrong_labelled_files_are_one_sentence(change, told):
    run("sample", "new.csv", "--judge", "verdict", "--n", 40, "-o", "to_label.csv")
    drawn = pd.read_csv("to_label.csv").assign(label="bad")
    change(drawn).to_csv("labelled.csv", index=False)
    arguments = ("new.csv", "--judge", "verdict", "--labelled", "labelled.csv", "--labels", "random")
    assert run("judge", *arguments, code=2).stderr == f"Error: --labelled: {told}\n"


def test_columns_that_show_verdicts_are_left_out_with_a_warning(rows):
    rows.assign(judge_reason="rude", score=0.5).to_csv("more.csv", index=False)
    said = run("sample", "more.csv", "--judge", "verdict", "--human", "label", "--n", 10, "-o", "to_label.csv").stderr
    left_out = "columns left out of the drawn rows, so that labels do not depend on verdicts: ['judge_reason', 'score']"
    assert said.endswith(f"{left_out}.\n")
    drawn = pd.read_csv("to_label.csv")
    assert list(drawn) == ["label", "model", "talk", "answer", "audit_row", "audit_check"]
    assert rows["label"][drawn["audit_row"] - 1].isna().all()


def test_sample_needs_a_model_or_a_judge():
    for arguments in (["new.csv"], ["model", "new.csv", "--plan", "0.1"]):
        said = run("sample", *arguments, "-o", "out.csv", code=2).stderr
        assert said.endswith("Error: expected MODEL and NEW, or --judge with its options and no MODEL.\n")


HOSTILE = ['=HYPERLINK("http://example.org")', "<img src=x onerror=alert(1)>", "red \x1b[31m\nError: line"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_no_harm(name, rows):
    renamed = rows.replace({"verdict": {"bad": name}, "label": {"bad": name}}).assign(model=name)
    renamed.to_json("rows.jsonl", orient="records", lines=True)
    said = run("judge", "rows.jsonl", *RANDOM, "--by", "model", "-o", "out.csv")
    assert ("which a spreadsheet runs as a formula" in said.stderr) == name.startswith("=")
    assert name in pd.read_csv("out.csv")["class"].tolist()
    shown = run("judge", "rows.jsonl", *RANDOM, "--by", "model", "-o", "out.html")
    assert "\x1b" not in shown.stdout + shown.stderr
    assert not re.search("^Error", shown.stdout + shown.stderr, re.M)
    page = Path("out.html").read_text(encoding="utf-8")
    assert "<img" not in page
    run("sample", "rows.jsonl", "--judge", "verdict", "--human", "label", "--n", 10, "-o", "out.parquet")
    assert list(pd.read_parquet("out.parquet")) == ["label", "model", "talk", "answer", "audit_row", "audit_check"]
