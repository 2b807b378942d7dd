from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import histnetq as hq


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 3000
    truth = rng.random(n) < 0.2
    verdict = np.where(rng.random(n) < 0.15, ~truth, truth)
    label = np.where(rng.random(n) < 0.1, np.where(truth, "bad", "good"), None)
    return pd.DataFrame({
        "verdict": np.where(verdict, "bad", "good"), "label": label, "model": np.where(np.arange(n) % 2, "A", "B"),
        "truth": truth, "chat": np.arange(n) // 10,
    })  # fmt: skip


def test_estimates_correct_the_raw_share(frame):
    found = hq.judge(frame, judge="verdict", human="label", labels="random")
    table = found.to_frame().set_index("class")
    assert list(table.index) == found.classes == ["bad", "good"]
    assert table.loc["bad", "raw"] == pytest.approx((frame["verdict"] == "bad").mean())
    assert table.loc["bad", "lower"] <= frame["truth"].mean() <= table.loc["bad", "upper"] < table.loc["bad", "raw"]
    assert (table["n_labels"] == frame["label"].notna().sum()).all()


def test_a_dict_of_columns_and_empty_texts_give_the_same(frame):
    columns = {"verdict": frame["verdict"].tolist(), "label": frame["label"].fillna(" ").tolist()}
    one = hq.judge(frame, judge="verdict", human="label", labels="random").table
    pd.testing.assert_frame_equal(hq.judge(columns, judge="verdict", human="label", labels="random").table, one)


def test_systems_are_estimated_separately_and_compared(frame):
    found = hq.judge(frame, judge="verdict", human="label", labels="random", by="model", target="process")
    alone = hq.judge(frame[frame["model"] == "A"], judge="verdict", human="label", labels="random", target="process")
    table = found.table[found.table["model"] == "A"].drop(columns="model").reset_index(drop=True)
    pd.testing.assert_frame_equal(table, alone.table)
    row = found.comparisons.iloc[0]
    estimates = found.table[found.table["class"] == "bad"].set_index("model")["estimate"]
    assert row["difference"] == pytest.approx(estimates[row["other"]] - estimates[row["system"]])
    assert row["lower"] < 0 < row["upper"]
    assert not row["differ"]


def test_confusion_counts_labels_by_verdict(frame):
    found = hq.judge(frame, judge="verdict", human="label", labels="random").confusion
    expected = pd.crosstab(frame["verdict"], frame["label"])
    assert found.set_index(["verdict", "label"])["n"].to_dict() == expected.stack().to_dict()


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (
            {},
            {"judge": "verdcit"},
            "judge: expected a column of the table, ['verdict', 'label', 'model', 'truth', 'chat'], got 'verdcit'; "
            "name one of them, perhaps 'verdict'.",
        ),
        (
            {},
            {"labels": None},
            "labels: expected 'random', 'by-verdict' or 'other', got nothing; say how the labelled rows were chosen.",
        ),
        ({}, {"labels": "rand"}, "labels: expected 'random', 'by-verdict' or 'other', got 'rand'; choose one of them."),
        ({"label": None}, {}, "human: expected human labels of some rows, got only empty cells; label some rows."),
        (
            {"label": "yes"},
            {},
            "human: expected classes as in the verdicts, ['bad', 'good'], got ['yes']; name the classes alike.",
        ),
        ({"label": "Bad"}, {}, "human: expected 'bad', as in the verdicts, got 'Bad'; use the same letters."),
    ],
)
def test_wrong_input_gets_one_sentence(frame, change, options, message):
    given = {"judge": "verdict", "human": "label", "labels": "random", **options}
    with pytest.raises(ValueError) as error:
        hq.judge(frame.assign(**change), **given)
    assert str(error.value) == message


def test_labels_that_depend_on_the_verdict_are_not_random(frame):
    label = frame["label"].where(frame["verdict"] == "bad")
    with pytest.raises(ValueError, match=r"^labels: expected rows that were drawn at random, got .* \(p = "):
        hq.judge(frame.assign(label=label), judge="verdict", human="label", labels="random")
