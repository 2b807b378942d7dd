"""The page about verdicts and labels: everything that a reader needs, as text that is safe in HTML."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import histnetq as hq
from histnetq.report.judge_page import page
from histnetq.report.sentences import describe_judgement, describe_plan, describe_worth
from histnetq.workflows.judging import Judgement

HOSTILE = '<script>alert("x")</script>'


def make_rows(bad="bad", n=400):
    rng = np.random.default_rng(0)
    truth = np.where(rng.random(n) < 0.3, bad, "good")
    verdict = np.where(rng.random(n) < 0.9, truth, np.where(truth == bad, "good", bad))
    label = pd.Series(truth).where(rng.random(n) < 0.4)
    return pd.DataFrame({"model": ["A", "B"] * (n // 2), "verdict": verdict, "label": label})


def judged(rows, **how):
    return hq.judge(rows, judge="verdict", human="label", labels="random", **how)


def test_the_page_shows_every_number():
    found = judged(make_rows(), by="model")
    text = page(found, "histnetq judge rows.csv")
    for row in found.to_frame().to_dict("records"):
        assert f"{100 * row['estimate']:.1f} %" in text
        assert f"{100 * row['lower']:.1f} % to {100 * row['upper']:.1f} %" in text
        assert f"judge: {100 * row['raw']:.1f} %" in text
    difference = found.comparisons.iloc[0]
    assert f"{100 * difference['lower']:+.1f} to {100 * difference['upper']:+.1f}" in text
    for row in found.confusion.to_dict("records"):
        assert f"<small>{row['n']:,}</small>" in text
    assert "drawn at random" in text
    assert "histnetq judge rows.csv" in text
    places = [float(place) for place in re.findall(r"left:([\d.]+)%", text)]
    assert min(places) >= 0
    assert max(places) <= 100


def test_names_are_escaped_and_nothing_is_loaded():
    rows = make_rows(HOSTILE).assign(
        model=lambda d: d["model"].map({"A": HOSTILE, "B": '"><img src=x onerror=alert(1)>'})
    )
    text = page(judged(rows, by="model"), f"histnetq judge '{HOSTILE}'")
    assert "<script" not in text
    assert "<img" not in text
    assert "&lt;script&gt;" in text
    assert not re.findall(r"(?:src|href)=\"(?!data:)", text)


def made(**parts):
    columns = ["class", "raw", "estimate", "lower", "upper", "n_rows", "n_labels", "method"]
    rows = [["bad", 0.2, np.nan, 0.1, 0.6, 5000, 300, "bounds"], ["good", 0.8, np.nan, 0.4, 0.9, 5000, 300, "bounds"]]
    table = parts.pop("table", pd.DataFrame(rows, columns=columns))
    return Judgement(table, ["bad", "good"], **parts)


def test_bounds_without_estimates():
    found = made(labels="other", warnings=["The rows were not drawn at random."])
    assert describe_judgement(found)[0] == "bad: between 10.0 % and 60.0 %; the judge says 20.0 %."
    text = page(found)
    assert "only bounds are known" in text
    assert "The rows were not drawn at random." in text
    assert "Differences" not in text


def test_worth_plan_and_two_batches():
    plan = pd.DataFrame(
        {"design": ["random", "by-verdict", "by-verdict"], "verdict": [None, "bad", "good"],
         "n_labels": [1000, 200, 400], "n_more": [700, 100, 250]}
    )  # fmt: skip
    separate = pd.DataFrame(
        {"source": ["this batch"], "class": ["bad"], "estimate": [0.2], "lower": [0.1], "upper": [0.3]}
    )
    found = made(
        worth=pd.DataFrame({"n_labels": [300], "worth": [1150.0]}), plan=plan, separate=separate,
        error_rates=pd.DataFrame({"p_value": [0.04]}),
        agreement=pd.DataFrame({"n_rows": [50], "agreement": [0.9], "kappa": [0.75]}),
    )  # fmt: skip
    assert describe_worth(found) == ["Your 300 labels are worth 1,150 without the judge."]
    assert describe_plan(found) == [
        "700 more labels drawn at random, 1,000 in all, are needed for the planned width.",
        "350 more labels drawn by verdict (100 bad, 250 good), 600 in all, are needed for the planned width.",
    ]
    text = page(found)
    for part in (
        *describe_worth(found),
        *describe_plan(found),
        "only the labels of this batch",
        "20.0 %",
        "0.04",
        "0.75",
        "90.0 %",
    ):
        assert part in text


@pytest.mark.parametrize("n_systems", [2, 40])
def test_many_systems_and_classes_are_bounded(n_systems):
    rng = np.random.default_rng(0)
    classes = [f"class {i}" for i in range(5)]
    n = 60 * n_systems
    rows = pd.DataFrame({"model": np.arange(n) % n_systems, "verdict": rng.choice(classes, n)})
    rows["label"] = rows["verdict"].where(rng.random(n) < 0.6)
    text = page(judged(rows, by="model"))
    assert len(text) < 4_000_000
    assert text.count('class="lead"') == 1
