"""Wrong inputs of judge: each is one sentence with the argument, in Python and on the command line."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main

HOW = {"judge": "verdict", "human": "label", "labels": "random"}
TYPED = {"level": "coverage", "frame": "NEW", "source": "NEW"}  # arguments with another name on the command line


def make_rows():
    rng = np.random.default_rng(0)
    n = 200
    truth = np.where(rng.random(n) < 0.3, "bad", "good")
    return pd.DataFrame({
        "id": np.arange(n) // 2, "model": ["A", "B"] * (n // 2), "talk": np.arange(n) // 4,
        "verdict": np.where(rng.random(n) < 0.8, truth, "good"), "other": truth,
        "label": pd.Series(truth).where(rng.random(n) < 0.4), "chance": 0.4, "score": rng.random(n).round(3),
        "p_bad": np.full(n, 0.25), "p_good": np.full(n, 0.75), "key": [f"row {i}" for i in range(n)],
    })  # fmt: skip


def put(column, value, rows=slice(None)):
    """Write a value into cells of a column."""

    def act(table):
        cells = table[column].astype(object)
        cells.iloc[rows] = value
        return table.assign(**{column: cells})

    return act


def rename(names):
    return lambda table: table.assign(label=table["label"].map(lambda name: names.get(name, name), na_action="ignore"))


def drop(column):
    return lambda table: table.drop(columns=column)


def same(table):
    return table


LISTED = "['id', 'model', 'talk', 'verdict', 'other', 'label', 'chance', 'score', 'p_bad', 'p_good', 'key']"
BAD_INPUTS = {
    "no such verdicts": (
        same,
        {"judge": "verdit"},
        ("judge: expected a column of the table, COLUMNS, got 'verdit'; name one of them, perhaps 'verdict'."),
    ),
    "no such labels": (
        same,
        {"human": "labl"},
        ("human: expected a column of the table, COLUMNS, got 'labl'; name one of them, perhaps 'label'."),
    ),
    "no such systems": (
        same,
        {"by": "modle"},
        ("by: expected a column of the table, COLUMNS, got 'modle'; name one of them, perhaps 'model'."),
    ),
    "no such pairs": (
        same,
        {"by": "model", "pair": "prompt"},
        ("pair: expected a column of the table, COLUMNS, got 'prompt'; name one of them."),
    ),
    "no such clusters": (
        same,
        {"cluster": "conversation"},
        ("cluster: expected a column of the table, COLUMNS, got 'conversation'; name one of them."),
    ),
    "no such probabilities": (
        same,
        {"labels": None, "probability": "p"},
        ("probability: expected a column of the table, COLUMNS, got 'p'; name one of them."),
    ),
    "no such strata": (
        same,
        {"labels": None, "stratum": "s"},
        ("stratum: expected a column of the table, COLUMNS, got 's'; name one of them."),
    ),
    "choice of labels not said": (
        same,
        {"labels": None},
        ("labels: expected 'random', 'by-verdict' or 'other', got nothing; say how the labelled rows were chosen."),
    ),
    "labels not random": (
        lambda d: d.assign(label=d["other"].where(d["verdict"] == "bad")),
        {},
        (
            "labels: expected rows that were drawn at random, got labelled rows with another mix of verdicts than"
            " the other rows (p = 2e-45); use labels='by-verdict' if only the verdict decided who was labelled, "
            "or labels='other'."
        ),
    ),
    "no labels": (
        put("label", None),
        {},
        ("human: expected human labels of some rows, got only empty cells; label some rows."),
    ),
    "one label": (
        lambda d: d.assign(label=d["label"].where(d.index == d["label"].first_valid_index())),
        {},
        ("human: expected at least 2 labels, got 1; label more rows."),
    ),
    "one class": (
        lambda d: d.assign(verdict="good", label="good"),
        {},
        ("judge: expected at least 2 classes, got only 'good'; check the column."),
    ),
    "labels of other classes": (
        rename({"bad": "yes", "good": "no"}),
        {},
        ("human: expected classes as in the verdicts, ['bad', 'good'], got ['no', 'yes']; name the classes alike."),
    ),
    "labels with capital letters": (
        rename({"bad": "Bad"}),
        {},
        ("human: expected 'bad', as in the verdicts, got 'Bad'; use the same letters."),
    ),
    "numbers as labels": (
        rename({"bad": 1, "good": 0}),
        {},
        ("human: expected classes as in the verdicts, ['bad', 'good'], got ['0', '1']; name the classes alike."),
    ),
    "verdicts as labels": (
        same,
        {"human": "verdict"},
        ("human: expected another column than the judge, got 'verdict'; name the column of human labels."),
    ),
    "identifiers as verdicts": (
        same,
        {"judge": "key"},
        (
            "human: expected classes as in the verdicts, ['row 0', 'row 1', … 'row 99'] (200), got ['bad', "
            "'good']; name the classes alike."
        ),
    ),
    "the same judge twice": (
        same,
        {"judge": ["verdict", "verdict"]},
        "judge: expected different columns, got 'verdict' twice; name each column once.",
    ),
    "the same person twice": (
        same,
        {"human": ["label", "label"]},
        "human: expected different columns, got 'label' twice; name each column once.",
    ),
    "three people": (
        same,
        {"human": ["label", "other", "model"]},
        ("human: expected one column, or two columns, got 3 columns; name two of them."),
    ),
    "a score above 1": (
        lambda d: d.assign(score=d["score"].where(d.index != 3, 1.5)),
        {"judge": "score"},
        ("judge: expected scores from 0 to 1, got 1.5 in row 4 of column 'score'; rescale the scores."),
    ),
    "a negative score": (
        lambda d: d.assign(score=d["score"].where(d.index != 3, -0.5)),
        {"judge": "score"},
        ("judge: expected scores from 0 to 1, got -0.5 in row 4 of column 'score'; rescale the scores."),
    ),
    "an infinite score": (
        lambda d: d.assign(score=d["score"].where(d.index != 3, np.inf)),
        {"judge": "score"},
        ("judge: expected scores from 0 to 1, got inf in row 4 of column 'score'; rescale the scores."),
    ),
    "a probability above 1": (
        lambda d: d.assign(chance=1.5),
        {"labels": None, "probability": "chance"},
        (
            "probability: expected numbers above 0, up to 1, got 1.5 in row 1; give the probability with which "
            "each labelled row was drawn."
        ),
    ),
    "a probability of 0": (
        lambda d: d.assign(chance=0.0),
        {"labels": None, "probability": "chance"},
        (
            "probability: expected numbers above 0, up to 1, got 0 in row 1; give the probability with which each"
            " labelled row was drawn."
        ),
    ),
    "no probability": (
        put("chance", None),
        {"labels": None, "probability": "chance"},
        (
            "probability: expected numbers above 0, up to 1, got nan in row 1; give the probability with which "
            "each labelled row was drawn."
        ),
    ),
    "two designs": (
        same,
        {"labels": "by-verdict", "probability": "chance"},
        (
            "probability: expected one way in which rows were chosen, got probability and labels='by-verdict'; "
            "leave one of them out."
        ),
    ),
    "a row without stratum": (
        put("talk", None, 0),
        {"labels": None, "stratum": "talk"},
        ("stratum: expected the stratum of each row, got nothing in row 1; fill it in or drop the row."),
    ),
    "a row without system": (
        put("model", None, 0),
        {"by": "model"},
        ("by: expected the system of each row, got nothing in row 1; fill it in or drop the row."),
    ),
    "a row without cluster": (
        put("talk", None, 0),
        {"cluster": "talk"},
        ("cluster: expected the cluster of each row, got nothing in row 1; fill it in or drop the row."),
    ),
    "a system without labels": (
        put("label", None, slice(0, None, 2)),
        {"by": "model"},
        ("human: expected at least 2 labels of 'A', got 0; label more rows."),
    ),
    "pairs without systems": (
        same,
        {"pair": "id"},
        ("pair: expected a column of systems in by, got nothing; name it by by=."),
    ),
    "coverage in percent": (
        same,
        {"level": 90.0},
        ("level: expected a number between 0 and 1, such as 0.9, got 90.0."),
    ),
    "plan of no width": (
        same,
        {"plan": 0.0},
        ("plan: expected a number between 0 and 1, such as 0.9, got 0.0."),
    ),
    "plan above 1": (
        same,
        {"plan": 2.0},
        ("plan: expected a number between 0 and 1, such as 0.9, got 2.0."),
    ),
    "stable judge without an earlier batch": (
        same,
        {"stable_judge": True},
        (
            "stable_judge: expected random labels of this batch and labels of an earlier batch, got only one of "
            "them; leave it out."
        ),
    ),
    "looks at labels that are not random": (
        same,
        {"labels": "by-verdict", "sequential": True},
        ("sequential: expected labels='random', got labels='by-verdict'; draw rows to label at random."),
    ),
    "a class is missing in the order": (
        same,
        {"ordered": ["bad", "fair"]},
        (
            "ordered: expected each class once, from the lowest to the highest, got ['bad', 'fair'] without "
            "['good']; name all classes."
        ),
    ),
    "a class twice in the order": (
        same,
        {"ordered": ["bad", "good", "good"]},
        ("ordered: expected each class once, from the lowest to the highest, got a class twice; name all classes."),
    ),
    "earlier batch without labels": (
        drop("label"),
        {"labels": None, "learned_on": put("label", None)},
        (
            "learned_on: expected labelled rows of each class, got none of ['bad', 'good']; add earlier labels of"
            " these classes."
        ),
    ),
    "earlier batch with one class": (
        drop("label"),
        {"labels": None, "learned_on": lambda d: d.assign(label="bad")},
        (
            "learned_on: expected labelled rows of each class, got none of ['good']; add earlier labels of these "
            "classes."
        ),
    ),
    "earlier batch of other classes": (
        drop("label"),
        {"labels": None, "learned_on": rename({"bad": "yes", "good": "no"})},
        ("human: expected classes as in the verdicts, ['bad', 'good'], got ['no', 'yes']; name the classes alike."),
    ),
    "earlier batch without verdicts": (
        drop("label"),
        {"labels": None, "learned_on": drop("verdict")},
        (
            "judge: expected a column of the table, ['id', 'model', 'talk', 'other', 'label', 'chance', 'score', "
            "'p_bad', 'p_good', 'key'], got 'verdict'; name one of them."
        ),
    ),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_wrong_inputs_are_one_sentence(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, how, told = BAD_INPUTS[case]
    rows, how = change(make_rows()), HOW | how
    if "learned_on" in how:
        how["learned_on"] = how["learned_on"](make_rows())
        how["learned_on"].to_csv("earlier.csv", index=False)
    with pytest.raises((ValueError, TypeError)) as error:
        hq.judge(rows, **how)
    assert str(error.value) == told.replace("COLUMNS", LISTED)
    rows.to_csv("rows.csv", index=False)
    files = sorted(tmp_path.iterdir())
    typed = [word for name, value in how.items() for word in as_typed(name, value)]
    result = CliRunner().invoke(main, ["judge", "rows.csv", *typed, "-o", "out.csv"])
    assert result.exit_code == 2, result.output
    sentence = result.stderr.rpartition("Error: ")[2]
    assert sentence.count("\n") == 1
    assert as_words(sentence) == as_words(str(error.value))
    assert sorted(tmp_path.iterdir()) == files


def as_typed(name, value):
    option = f"--{TYPED.get(name, name).replace('_', '-')}"
    if value is None or value is True:
        return [option] * (value is True)
    if isinstance(value, pd.DataFrame):
        return [option, "earlier.csv"]
    if isinstance(value, dict):
        return [option, ",".join(f"{key}={column}" for key, column in value.items())]
    if name == "ordered":
        return [option, ",".join(value)]
    return [word for each in (value if isinstance(value, list) else [value]) for word in (option, str(each))]


def as_words(sentence):
    """Return the words of a sentence, with the names of options as in Python and numbers as numbers."""
    words = re.findall(r"[a-z0-9.]+", sentence.lower().replace("coverage", "level").replace("-", "_").replace("_", " "))
    return [re.sub(r"\.0$", "", word.rstrip(".")) for word in words if word != "."]
