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


def _cells(found, name="bad"):
    return found.table.set_index("class").loc[name]


def test_labels_by_verdict_with_strata_and_with_probabilities_agree_with_the_truth(frame):
    rng = np.random.default_rng(1)
    chance = np.where(frame["verdict"] == "bad", 0.3, 0.05)
    label = np.where(rng.random(len(frame)) < chance, np.where(frame["truth"], "bad", "good"), None)
    chosen = frame.assign(label=label, chance=chance, group=frame["verdict"])
    given = {"judge": "verdict", "human": "label"}
    by_verdict = _cells(hq.judge(chosen, **given, labels="by-verdict"))
    stratum = _cells(hq.judge(chosen, **given, stratum="group"))
    weighted = _cells(hq.judge(chosen, **given, probability="chance"))
    assert by_verdict["lower"] <= frame["truth"].mean() <= by_verdict["upper"]
    assert stratum[["estimate", "lower"]].tolist() == pytest.approx(by_verdict[["estimate", "lower"]].tolist())
    assert weighted["estimate"] == pytest.approx(by_verdict["estimate"])
    assert weighted["lower"] == pytest.approx(by_verdict["lower"], abs=0.01)


def test_labels_chosen_otherwise_give_bounds_only(frame):
    found = hq.judge(frame, judge="verdict", human="label", labels="other", by="model")
    known = frame[frame["model"] == "A"]["label"].value_counts()
    first = found.table[(found.table["model"] == "A") & (found.table["class"] == "bad")].iloc[0]
    assert first["lower"] == pytest.approx(known["bad"] / 1500)
    assert first["upper"] == pytest.approx(1 - known["good"] / 1500)
    assert np.isnan(first["estimate"])
    assert found.comparisons is None
    assert any("only bounds" in note for note in found.warnings)


@pytest.fixture
def march():
    rng = np.random.default_rng(5)
    truth = rng.random(300) < 0.5
    verdict = np.where(rng.random(300) < 0.15, ~truth, truth)
    return pd.DataFrame({"verdict": np.where(verdict, "bad", "good"), "label": np.where(truth, "bad", "good")})


def test_an_earlier_batch_corrects_verdicts_without_labels(frame, march):
    found = hq.judge(frame.drop(columns="label"), judge="verdict", human="label", learned_on=march)
    row = _cells(found)
    assert row["method"] == "earlier batch"
    assert row["lower"] <= frame["truth"].mean() <= row["upper"] < row["raw"]
    assert found.confusion["n"].sum() == 300


def test_both_batches_give_separate_estimates_and_a_test(frame, march):
    given = {"judge": "verdict", "human": "label", "labels": "random", "learned_on": march}
    found = hq.judge(frame, **given)
    assert found.separate["source"].unique().tolist() == ["this batch", "earlier batch"]
    assert found.error_rates["p_value"].iloc[0] > 0.01
    assert _cells(found)["method"] == "this batch"
    stable = hq.judge(frame, **given, stable_judge=True)
    assert _cells(stable)["upper"] - _cells(stable)["lower"] < _cells(found)["upper"] - _cells(found)["lower"]
    drifted = march.assign(verdict=march["verdict"].map({"bad": "good", "good": "bad"}))
    found = hq.judge(frame, **{**given, "learned_on": drifted})
    assert found.error_rates["p_value"].iloc[0] < 0.001
    assert any("error rates differ" in note for note in found.warnings)


def test_scores_several_judges_and_abstaining_are_verdicts(frame):
    rng = np.random.default_rng(2)
    score = np.clip(np.where(frame["truth"], 0.8, 0.3) + 0.2 * rng.standard_normal(3000), 0, 1)
    truth, given = frame["truth"].mean(), {"human": "label", "labels": "random"}
    scored = hq.judge(frame.assign(score=score), judge={"bad": "score"}, **given)
    second = np.where(rng.random(3000) < 0.2, "good", np.where(frame["truth"], "bad", "good"))
    several = hq.judge(frame.assign(second=second), judge=["verdict", "second"], **given)
    one = hq.judge(frame, judge="verdict", **given)
    empty = hq.judge(frame.assign(verdict=frame["verdict"].where(rng.random(3000) < 0.8)), judge="verdict", **given)
    for found in (scored, several, one, empty):
        assert _cells(found)["estimate"] == pytest.approx(truth, abs=0.04)
        assert _cells(found)["lower"] < _cells(found)["estimate"] < _cells(found)["upper"]
    assert _cells(scored)["raw"] == pytest.approx(score.mean())
    assert _cells(several)["worth"] > _cells(one)["worth"] > _cells(empty)["worth"]
    assert empty.confusion["verdict"].isna().any()


def test_ordered_classes_have_cumulative_shares_and_a_mean():
    rng = np.random.default_rng(0)
    truth = rng.integers(1, 5, 2000)
    verdict = np.clip(truth + rng.integers(-1, 2, 2000), 1, 4)
    label = np.where(rng.random(2000) < 0.15, truth, np.nan)
    found = hq.judge(
        {"verdict": verdict, "label": label}, judge="verdict", human="label", labels="random", ordered=[1, 2, 3, 4]
    )
    table = found.ordered.set_index("measure")
    assert table.index.tolist() == ["≤ 1", "≤ 2", "≤ 3", "mean grade"]
    assert table["lower"]["mean grade"] <= truth.mean() <= table["upper"]["mean grade"]
    assert table["estimate"]["≤ 2"] == pytest.approx(found.table["estimate"][:2].sum(), abs=0.02)


def test_plan_agreement_and_sequential(frame):
    given = {"judge": "verdict", "labels": "random"}
    found = hq.judge(frame.assign(other="good"), **given, human=["label", "other"], plan=0.03)
    assert found.plan["design"].tolist() == ["random", "by-verdict", "by-verdict"]
    assert found.agreement["n_rows"].iloc[0] == frame["label"].notna().sum()
    found = hq.judge(frame, **given, human="label")
    longer = hq.judge(frame, **given, human="label", sequential=True)
    ratio = (longer.table["upper"] - longer.table["lower"]) / (found.table["upper"] - found.table["lower"])
    assert ratio.between(1.3, 1.6).all()


def test_repeats_and_few_clusters_are_named(frame):
    given = {"judge": "verdict", "human": "label", "labels": "random", "target": "process"}
    assert any("'chat' repeats" in note for note in hq.judge(frame, **given).warnings)
    assert not hq.judge(frame, **given, cluster="chat").warnings
    few = hq.judge(frame.assign(chat=frame["chat"] % 12), **given, cluster="chat")
    assert few.warnings == ["There are only 12 clusters, so intervals use Student's distribution."]


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (
            {},
            {"stable_judge": True},
            "stable_judge: expected random labels of this batch and labels of an earlier batch, got only one of them; "
            "leave it out.",
        ),
        (
            {"p": 2.0},
            {"labels": None, "probability": "p"},
            "probability: expected numbers above 0, up to 1, got 2 in row 3; give the probability with which each "
            "labelled row was drawn.",
        ),
        (
            {"verdict": 1.5},
            {},
            "judge: expected scores from 0 to 1, got 1.5 in row 1 of column 'verdict'; rescale the scores.",
        ),
        (
            {},
            {"ordered": ["bad"]},
            "ordered: expected each class once, from the lowest to the highest, got ['bad'] without ['good']; name all "
            "classes.",
        ),
        (
            {"model": None},
            {"by": "model"},
            "by: expected the system of each row, got nothing in row 1; fill it in or drop the row.",
        ),
        ({}, {"pair": "chat"}, "pair: expected a column of systems in by, got nothing; name it by by=."),
        (
            {},
            {"labels": "by-verdict", "sequential": True},
            "sequential: expected labels='random', got labels='by-verdict'; draw rows to label at random.",
        ),
    ],
)
def test_options_that_do_not_fit_get_one_sentence(frame, change, options, message):
    given = {"judge": "verdict", "human": "label", "labels": "random", **options}
    with pytest.raises(ValueError) as error:
        hq.judge(frame.assign(**change), **given)
    assert str(error.value) == message
