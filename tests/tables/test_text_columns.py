"""Texts of a column as features: the same for the same texts, and kept in the model as plain arrays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file
from sklearn.base import clone

import histnetq as hq
from histnetq.bags.text_features import N_HASHED, TextFeatures
from histnetq.cli import main
from histnetq.tables import text_columns
from tests.conftest import exactly

GOOD = ["a fine film", "great acting", "I loved it", "wonderful and moving", "the best film of the year"]
BAD = ["a dull film", "poor acting", "I hated it", "boring and long", "the worst film of the year"]


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def write_reviews(path, n_bags=24, size=12, seed=0):
    rng = np.random.default_rng(seed)
    shares = rng.random(n_bags)
    month = np.repeat(np.arange(n_bags), size)
    good = rng.random(len(month)) < shares[month]
    texts = [f"{rng.choice(GOOD if g else BAD)}, {rng.choice(GOOD if g else BAD)}" for g in good.tolist()]
    table = pd.DataFrame({"month": month, "review": texts, "stars": np.where(good, "many", "few")})
    table = table.assign(length=rng.normal(size=len(table)))
    table.to_csv(path, index=False)
    return table


def test_the_same_texts_give_the_same_features_whatever_stands_beside_them():
    first, again = (TextFeatures.fit("review", GOOD + BAD) for _ in range(2))
    np.testing.assert_array_equal(first.directions, again.directions)
    assert first.names == [f"review~{j + 1}" for j in range(9)]
    together = first.transform(GOOD)
    np.testing.assert_allclose(together, np.concatenate([first.transform([text]) for text in GOOD]), atol=1e-6)
    assert (together.dtype, first.weights.shape) == (np.float32, (N_HASHED,))
    np.testing.assert_array_equal(first.transform(["", "zzz qqq"])[0], 0)
    with pytest.raises(ValueError, match=exactly("text: column 'review' holds no texts that differ, expected at least "
                                                 "2; name another column.")):  # fmt: skip
        TextFeatures.fit("review", ["", "", ""])


def test_bags_of_texts_from_any_kind_of_table(tmp_path):
    table = write_reviews(tmp_path / "reviews.csv")
    table.to_parquet(tmp_path / "reviews.parquet")
    found = [
        hq.read_bags(source, bag="month", label="stars", text="review")
        for source in (table, tmp_path / "reviews.csv", tmp_path / "reviews.parquet")
    ]
    assert found[0].feature_names == found[0].text.names
    assert len({bags.fingerprint() for bags in found}) == 1
    beside = hq.read_bags(table, bag="month", label="stars", text="review", features=["length"])
    assert beside.feature_names == ["length", *found[0].text.names]
    np.testing.assert_allclose(beside.rows[:, 1:], found[0].rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "length"}, r"^text: column 'length' of source holds double, expected texts; name another column\.$"),
        ({"text": "none"}, r"has no column 'none', its columns are"),
        ({"text": "review", "prediction": "guess"}, r"^text: expected none beside scores or the features of a model"),
        (
            {"text": "stars"},
            r"^text: expected a column that says nothing else, got 'stars', the bag or label",
        ),
        (
            {"text": "review", "ignore": ["length"]},
            r"^ignore: expected none beside features, texts, scores or predictions",
        ),
    ],
)
def test_columns_that_are_no_texts_are_refused(tmp_path, options, message):
    table = write_reviews(tmp_path / "reviews.csv").assign(guess="many")
    with pytest.raises(ValueError, match=message):
        hq.read_bags(table, bag="month", label="stars", **options)


def test_what_is_no_text_is_told(tmp_path):
    table = write_reviews(tmp_path / "reviews.csv")
    known = {"bag": "month", "label": "stars", "text": "review"}
    with pytest.raises(TypeError, match=exactly("text: expected the name of a column, or bags.text, got int; name a "
                                                "column.")):  # fmt: skip
        hq.read_bags(table, **known | {"text": 3})
    message = (
        "source: has a text with an invalid character (a lone surrogate), expected Unicode; read the file again with "
        "the right encoding."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        hq.read_bags(table.assign(review=pd.Series(["\udcff"] * len(table), dtype=object)), **known)
    texts = pa.array([b"\xff\xfe fine"] * len(table), pa.binary())
    latin = pa.Array.from_buffers(pa.string(), len(table), texts.buffers())
    columns = pa.table({"month": table["month"], "stars": table["stars"], "review": latin})
    with pytest.raises(
        ValueError, match=r"^text: column 'review' of source holds bytes that are not UTF-8, expected texts; decode"
    ):
        hq.read_bags(columns, **known)
    with_nul = hq.read_bags(table.assign(review=table["review"].str.replace(" ", "\0")), **known)
    assert np.isfinite(with_nul.rows).all()


def test_long_texts_are_learned_from_a_part(tmp_path, monkeypatch):
    table = write_reviews(tmp_path / "reviews.csv")
    seen, fit = [], TextFeatures.fit
    monkeypatch.setattr(TextFeatures, "fit", lambda column, texts: seen.append(texts) or fit(column, texts))
    monkeypatch.setattr(text_columns, "_MOST_IN_MEMORY", 2000)
    bags = hq.read_bags(table, bag="month", label="stars", text="review")
    assert 1000 < sum(map(len, seen[0])) <= 2000
    assert seen[0] == table["review"].tolist()[:: len(table) // len(seen[0])]
    assert len(bags.rows) == len(table)


def test_a_model_reads_texts_as_it_learned_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_reviews("reviews.csv")
    learn = ("--bag", "month", "--label", "stars", "--text", "review", "--method", "pacc", "-o", "model")
    fitted = run("fit", "reviews.csv", *learn)
    assert fitted.exit_code == 0, fitted.output
    assert "Learns from the texts of review." in fitted.output
    new = write_reviews("new.csv", n_bags=5, seed=1)
    truth = new.groupby("month")["stars"].apply(lambda stars: (stars == "many").mean())
    predicted = run("predict", "model", "new.csv", "--bag", "month", "--wide", "-o", "answer.csv")
    assert predicted.exit_code == 0, predicted.output
    np.testing.assert_allclose(pd.read_csv("answer.csv")["many"], truth, atol=0.15)
    model = hq.load("model")
    bags = hq.read_bags("new.csv", bag="month", features=model.reading())
    np.testing.assert_allclose(model.predict(bags)[:, 1], pd.read_csv("answer.csv")["many"], atol=1e-6)
    measured = run("evaluate", "model", "new.csv", "--bag", "month", "--label", "stars", "--json")
    assert measured.exit_code == 0, measured.output
    lacking = run("predict", "model", "new.csv", "--bag", "stars", "--wide")
    assert lacking.exit_code == 0
    new.drop(columns="review").to_csv("bare.csv", index=False)
    refused = run("predict", "model", "bare.csv", "--bag", "month")
    assert (refused.exit_code, "has no column 'review'" in refused.output) == (2, True)


def test_a_model_whose_texts_were_altered_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bags = hq.read_bags(write_reviews("reviews.csv"), bag="month", label="stars", text="review")
    q = hq.PACC(cv=2).fit(bags)
    for change, message in (
        ({"directions": bags.text.directions[:, :-1]}, r"the array 'text/directions' is float32 of shape"),
        ({"column": "other"}, r"the model's features do not match its text features; save the model again\.$"),
    ):
        q.text_ = TextFeatures(**{"column": "review", **vars(bags.text), **change})
        q.save("model", overwrite=True)
        with pytest.raises(ValueError, match=message):
            hq.load("model")
    q.text_ = bags.text
    q.save("model", overwrite=True)
    np.testing.assert_array_equal(hq.load("model").text_.directions, bags.text.directions)
    assert json.loads((tmp_path / "model/config.json").read_text())["learned"]["text_column"] == "review"
    assert q.fit(np.eye(8), np.arange(8) % 2).text_ is None, "another fit forgets the texts"


def test_methods_and_models_are_compared_on_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_reviews("reviews.csv")
    known = ("reviews.csv", "--bag", "month", "--label", "stars")
    compared = run("compare", *known, "--text", "review", "--methods", "cc,pacc")
    assert compared.exit_code == 0, compared.output
    assert "Learns from the texts of review.\n" in compared.output
    assert run("fit", *known, "--text", "review", "--method", "pacc", "-o", "model").exit_code == 0
    stored = run("compare", *known, "--model", "model")
    assert stored.exit_code == 0, stored.output
    for option in (("--text", "review"), ("--ignore", "length"), ("--classifier", "bayes")):
        refused = run("compare", *known, "--model", "model", *option)
        assert refused.exit_code == 2
        assert f"Error: expected no {option[0]} with --model: stored models have their own.\n" in refused.output


METHODS = {
    "on posteriors": lambda: hq.EMQ(cv=2, random_state=0),
    "on features": hq.EDx,
    "a network": lambda: hq.HistNetQ(training=hq.Training(epochs=1, bags_per_epoch=10), random_state=0),
    "the mean of training": hq.MLPE,
    "an ensemble": lambda: hq.Ensemble([hq.PACC(cv=2, random_state=0), hq.CC(cv=2, random_state=0)]),
    "a correction": lambda: hq.Corrected(hq.CC(cv=2, random_state=0), random_state=0),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_model_that_was_fitted_in_python_reads_texts(method, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bags = hq.read_bags(write_reviews("reviews.csv"), bag="month", label="stars", text="review")
    q = METHODS[method]().fit(bags)
    q.save("model")
    new = write_reviews("new.csv", n_bags=5, seed=1)
    predicted = run("predict", "model", "new.csv", "--bag", "month", "--wide", "-o", "answer.csv")
    assert predicted.exit_code == 0, predicted.output
    expected = q.predict(hq.read_bags(new, bag="month", features=q.reading()))
    np.testing.assert_allclose(pd.read_csv("answer.csv")["many"], expected[:, 1], atol=1e-5)
    assert clone(q).text_ is None
    stored = load_file(next(Path("model").glob("*.safetensors")))
    assert sum(name.endswith("text/directions") for name in stored) == 1, "once, whatever a model is made of"
    assert q.fit(np.eye(8)[:, :4], np.arange(8) % 2).text_ is None, "another fit forgets the texts"


def test_bags_that_were_drawn_or_joined_keep_what_reads_their_texts(tmp_path):
    bags = hq.read_bags(write_reviews(tmp_path / "reviews.csv"), bag="month", label="stars", text="review")
    other = hq.read_bags(write_reviews(tmp_path / "other.csv", seed=1), bag="month", label="stars", text=bags.text)
    drawn = hq.APP(10).draw(bags, 5, random_state=0)
    joined = hq.Bags.concat([bags[:3], other])
    plain = hq.Bags(other.rows, labels=other.labels, classes=other.classes, feature_names=other.feature_names)
    mixed = hq.Bags.concat([plain.with_known_prevalences(), bags])
    for part in (bags[2:4], other, drawn, joined, mixed):
        assert part.text is bags.text
    np.testing.assert_array_equal(other.rows[:1], bags.text.transform([pd.read_csv(tmp_path / "other.csv").review[0]]))


def test_texts_of_another_svd_are_refused(tmp_path):
    bags = hq.read_bags(write_reviews(tmp_path / "reviews.csv"), bag="month", label="stars", text="review")
    other = hq.read_bags(write_reviews(tmp_path / "other.csv", seed=1), bag="month", label="stars", text="review")
    assert other.feature_names == bags.feature_names
    q = hq.CC(cv=2).fit(bags)
    network = hq.HistNetQ(training=hq.Training(epochs=1))
    message = (
        "rows: expected the text features of training, got features of another SVD; read them by "
        "features=q.reading(), or by text=bags.text of training."
    )
    for use in (q.predict, q.sketch, q.calibrate, lambda wrong: network.fit(bags, validation=wrong)):
        with pytest.raises(ValueError, match=exactly(message)):
            use(other)
    alike = (
        "parts: expected text features of the same SVD, got different ones; read all tables at once, or pass "
        "text=bags.text of the first part when reading the others."
    )
    with pytest.raises(ValueError, match=exactly(alike)):
        hq.Bags.concat([bags, other])
    q.save(tmp_path / "model")
    again = hq.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(bags), q.predict(bags), "the same, but from a file")
