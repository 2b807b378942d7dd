"""Mistakes of first use: each gives one sentence with the user's own column, file or option, and the remedy.

Every mistake is tried on the command line, and in Python if it can be made there.
"""

from __future__ import annotations

import os
import re
import shlex
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main

FIT = "--method cc --calibration 0 -o m --force"
KNOWN = f"--bag tow --label species {FIT}"
SHARES = f"fit bare.csv --bag tow --prevalences totals.csv --method mlpe {FIT[12:]}"


@dataclass(frozen=True)
class Mistake:
    """A command, what the sentence about it says, and the same mistake in Python."""

    command: str
    own: str  # the user's own column, file or option
    remedy: str
    python: Callable[[], object] | None = None
    in_python: str | None = None  # the remedy in Python, if it is another
    own_in_python: str | None = None
    table: Callable[[pd.DataFrame], Any] | None = None  # content of bad.csv, from that of rows.csv
    totals: Callable[[pd.DataFrame], Any] | None = None  # content of totals.csv, from that of tows.csv


def labelled(**how: Any) -> hq.Bags:
    return hq.read_bags(how.pop("source", "bad.csv"), **{"bag": "tow", "label": "species", **how})


def with_totals(**how: Any) -> hq.Bags:
    return hq.read_bags("bare.csv", bag="tow", prevalences="totals.csv", **how)


def rows_and_species() -> tuple[pd.DataFrame, pd.Series]:
    rows = pd.read_csv("rows.csv")
    return rows[["length", "depth"]], rows["species"]


def cell(column: str, value: Any) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda rows: rows.assign(**{column: rows[column].astype(object).where(rows.index != 7, value)})


MISTAKES = {
    "a bag column that is spelt otherwise": Mistake(
        f"fit rows.csv --bag Tows --label species {FIT}", "'Tows'", "perhaps 'tow'",
        lambda: labelled(source="rows.csv", bag="Tows"),
    ),
    "a label column that is spelt otherwise": Mistake(
        f"fit rows.csv --bag tow --label Species {FIT}", "'Species'", "perhaps 'species'",
        lambda: labelled(source="rows.csv", label="Species"),
    ),
    "a feature that is spelt otherwise": Mistake(
        f"fit rows.csv --features lenght {KNOWN}", "'lenght'", "perhaps 'length'",
        lambda: labelled(source="rows.csv", features=["lenght"]),
    ),
    "an ignored column that is spelt otherwise": Mistake(
        f"fit rows.csv --ignore dept {KNOWN}", "'dept'", "perhaps 'depth'",
        lambda: labelled(source="rows.csv", ignore=["dept"]),
    ),
    "features that are only texts": Mistake(
        f"fit bad.csv {KNOWN}", "'gear'", "name columns of categories as --features",
        labelled, "name columns of categories as features=", table=lambda rows: rows[["tow", "gear", "species"]],
    ),
    "the label among the features": Mistake(
        f"fit rows.csv --features length,species {KNOWN}", "'species'", "leave it out",
        lambda: labelled(source="rows.csv", features=["length", "species"]),
    ),
    "neither labels nor totals": Mistake(
        f"fit rows.csv --bag tow {FIT}", "label", "name the label column",
        lambda: hq.fit_best("rows.csv", bag="tow", method="cc"),
    ),
    "labels and totals": Mistake(
        f"fit rows.csv --prevalences tows.csv {KNOWN}", "prevalences", "leave one out",
        lambda: labelled(source="rows.csv", prevalences="tows.csv"),
    ),
    "totals without a bag column": Mistake(
        f"fit rows.csv --prevalences tows.csv {FIT}", "bag", "name them",
        lambda: hq.fit_best("rows.csv", prevalences="tows.csv"),
    ),
    "an evaluation without a bag column": Mistake(
        "evaluate model rows.csv --label species", "--bag", "add --bag with the column that names the bag",
    ),
    "label and bag exchanged": Mistake(
        f"fit rows.csv --bag species --label tow {FIT}", "'tow'", "exchange label and bag",
        lambda: labelled(source="rows.csv", bag="species", label="tow"),
    ),
    "one column as label and bag": Mistake(
        f"fit rows.csv --bag tow --label tow {FIT}", "'tow'", "name another column for one of them",
        lambda: labelled(source="rows.csv", label="tow"),
    ),
    "a bag for each row": Mistake(
        f"fit bad.csv --bag fish --label species {FIT}", "'fish'", "name the column that groups rows",
        lambda: labelled(bag="fish"), table=lambda rows: rows.assign(fish=[f"f{i}" for i in rows.index]),
    ),
    "one class": Mistake(
        f"fit bad.csv {KNOWN}", "'species'", "name a column of classes as --label",
        labelled, "name a column of classes as label=", table=lambda rows: rows.assign(species="cod"),
    ),
    "a label of measurements": Mistake(
        f"fit rows.csv --bag tow --label length {FIT}", "'length'", "name a column of classes as --label",
        lambda: labelled(source="rows.csv", label="length"), "name a column of classes as label=",
    ),
    "a label of keys": Mistake(
        f"fit bad.csv --bag tow --label fish {FIT}", "'fish'", "name a column of classes as --label",
        lambda: labelled(label="fish"), "name a column of classes as label=",
        table=lambda rows: rows.assign(fish=[f"f{i}" for i in rows.index]),
    ),
    "a class in two spellings": Mistake(
        f"fit bad.csv {KNOWN}", "'EEL ' and 'eel'", "write both the same way",
        labelled, table=lambda rows: rows.assign(species=rows["species"].where(rows.index % 9 > 0, "EEL ")),
    ),
    "a class in two cases": Mistake(
        f"fit bad.csv {KNOWN}", "'Eel' and 'eel'", "write both the same way",
        labelled, table=lambda rows: rows.assign(species=rows["species"].where(rows.index % 9 > 0, "Eel")),
    ),
    "a typo in a class": Mistake(
        f"fit bad.csv {KNOWN}", "'eeel'", "correct it to 'eel' if it is a typo",
        labelled, table=lambda rows: rows.assign(species=rows["species"].where(~rows.index.isin([3, 9]), "eeel")),
    ),
    "a class of one row": Mistake(
        f"fit bad.csv {KNOWN}", "'herring'", "add rows, or correct the label",
        lambda: hq.CC().fit(labelled()), table=cell("species", "herring"),
    ),
    "a class that the model does not know": Mistake(
        "evaluate model bad.csv --bag tow --label species", "'eels'", "perhaps 'eel'",
        lambda: hq.evaluate(hq.load("model"), labelled(features=hq.load("model").reading())),
        table=lambda rows: rows.replace({"species": {"eel": "eels"}}),
    ),
    "a row without a class": Mistake(
        f"fit bad.csv {KNOWN}", "'species'", "fill it in or drop the row", labelled, table=cell("species", None),
    ),
    "a row without a bag": Mistake(
        f"fit bad.csv {KNOWN}", "'tow'", "fill it in or drop the row", labelled, table=cell("tow", None),
    ),
    "a missing value": Mistake(
        f"fit bad.csv {KNOWN}", "'length'", "pass --missing drop to leave out such rows",
        labelled, "pass missing='drop' to leave out such rows", table=cell("length", None),
    ),
    "a missing value in a new table": Mistake(
        "predict model bad.csv --bag tow", "'length'", "pass --missing drop to leave out such rows",
        lambda: hq.load("model").predict(pd.read_csv("bad.csv")[["length", "depth"]]), "drop or impute such rows",
        table=cell("length", None),
    ),
    "a text among numbers": Mistake(
        f"fit bad.csv {KNOWN}", "'length' holds numbers and the text 'n.d.' (row 8)",
        "name other columns by --features", labelled, "name the features without this column",
        table=cell("length", "n.d."),
    ),
    "decimal commas": Mistake(
        f"fit bad.csv {KNOWN}", "'length'", "write numbers with decimal points", labelled,
        table=lambda rows: rows.assign(length=rows["length"].astype(str).str.replace(".", ",")).to_csv(sep=";"),
    ),
    "a negative weight": Mistake(
        f"fit bad.csv --weight w {KNOWN}", "row 1 has -1 in column 'w'", "correct it or drop the row",
        lambda: labelled(weight="w"), table=lambda rows: rows.assign(w=rows.index - 1.0),
    ),
    "weights that are texts": Mistake(
        f"fit rows.csv --weight gear {KNOWN}", "'gear'", "correct its cells",
        lambda: labelled(source="rows.csv", weight="gear"),
    ),
    "weights that are forgotten": Mistake(
        "predict weighted rows.csv --bag tow", "'depth'", "name the column of weights",
        lambda: hq.estimate("weighted", "rows.csv", bag="tow"),
    ),
    "a table in the place of the model": Mistake(
        "predict rows.csv model --bag tow", "rows.csv", "give one that histnetq fit wrote",
        lambda: hq.load("rows.csv"), "give one that save() wrote",
    ),
    "a folder that is not a model": Mistake(
        "info folder", "folder", "give one that histnetq fit wrote",
        lambda: hq.load("folder"), "give one that save() wrote",
    ),
    "other columns in a new table": Mistake(
        "predict model bad.csv --bag tow", "'length'", "perhaps 'Length_mm'",
        lambda: hq.estimate("model", "bad.csv", bag="tow"),
        table=lambda rows: rows.rename(columns={"length": "Length_mm"}),
    ),
    "a file that does not exist": Mistake(
        f"fit row.csv {KNOWN}", "row.csv", "check the path", lambda: labelled(source="row.csv"),
    ),
    "a folder in the place of a table": Mistake(
        f"fit folder {KNOWN}", "folder", "name its files", lambda: labelled(source="folder"),
    ),
    "an empty file": Mistake(
        f"fit bad.csv {KNOWN}", "bad.csv", "save the table again", labelled, table=lambda rows: "",
    ),
    "a header without rows": Mistake(
        f"fit bad.csv {KNOWN}", "bad.csv", "check the file", labelled, table=lambda rows: rows.head(0),
    ),
    "a text file of Windows": Mistake(
        f"fit bad.csv {KNOWN}", "bad.csv", "iconv -f utf16 -t utf8", labelled,
        table=lambda rows: rows.to_csv(index=False).encode("utf-16"),
    ),
    "percent signs": Mistake(
        f"fit bad.csv {KNOWN}", "'length' has '11.03 %'", "delete the signs", labelled,
        table=lambda rows: rows.assign(length="11.03 %"),
    ),
    "percent signs in a new table": Mistake(
        "predict model bad.csv --bag tow", "'length' has '11.03 %'", "delete the signs",
        lambda: hq.estimate("model", pd.read_csv("bad.csv"), bag="tow"),
        "convert them to numbers without percent signs and decimal commas",
        table=lambda rows: rows.assign(length="11.03 %"), own_in_python="'length' holds texts such as '11.03 %'",
    ),
    "texts in a new table": Mistake(
        "predict model bad.csv --bag tow", "'length' holds texts such as 'short'", "convert them to the numbers",
        lambda: hq.estimate("model", "bad.csv", bag="tow"), table=lambda rows: rows.assign(length="short"),
    ),
    "a title and an empty line": Mistake(
        f"fit bad.csv {KNOWN}", "'Catch of 2026'", "delete the 2 lines above the column names", labelled,
        table=lambda rows: f"Catch of 2026\n\n{rows.to_csv(index=False)}",
    ),
    "a title above two columns": Mistake(
        f"fit bad.csv --label species {FIT}", "'Catch of 2026'", "delete this line", lambda: labelled(bag=None),
        table=lambda rows: f"Catch of 2026\n{rows[['length', 'species']].to_csv(index=False)}",
    ),
    "a code for missing values": Mistake(
        f"fit bad.csv {KNOWN}", "'length' has -999 in 1 row", "leave these cells empty and pass --missing drop",
        labelled, "leave these cells empty and pass missing='drop'", table=cell("length", -999),
    ),
    "a place without a bag column": Mistake(
        f"fit bad.csv --label species {FIT}", "'lat'", "name the column of samples as --bag",
        lambda: labelled(bag=None), "name the column of samples as bag=",
        table=lambda rows: rows.assign(lat=rows.index * 7 % 20 / 8),
    ),
    "a column with an error that copies the label": Mistake(
        f"fit bad.csv {KNOWN}", "'code'", "leave it out by --ignore", labelled, "leave it out by ignore=",
        table=lambda rows: rows.assign(code=(rows["species"] == "eel") ^ (rows.index == 7)),
    ),
    "counts that are read as a feature": Mistake(
        f"fit bad.csv {KNOWN}", "'n' looks like counts", "name it by --count-column", labelled,
        "pass weight='n' and weight_kind='count'", table=lambda rows: rows.assign(n=rows.index * 7 % 5 + 1),
    ),
    "counts that are read as weights": Mistake(
        "predict counted bad.csv --bag tow --weight rings", "'rings'", "name the column by --count-column",
        lambda: hq.estimate("counted", "bad.csv", bag="tow", weight="rings"), "pass weight_kind='count'",
        table=lambda rows: rows.assign(rings=rows.index % 7 + 1),
    ),
    "weights that are read as counts": Mistake(
        "predict weighted bad.csv --bag tow --count-column rings", "'rings'", "name the column by --weight",
        lambda: hq.estimate("weighted", "bad.csv", bag="tow", weight="rings", weight_kind="count"),
        "pass weight_kind='survey'", table=lambda rows: rows.assign(rings=rows.index % 7 + 1),
    ),
    "dates with the day first": Mistake(
        "monitor model bad.csv --time when --period W", "'31/01/2026' in column 'when'", "YYYY-MM-DD",
        lambda: hq.monitor("model", "bad.csv", time="when", period="W"),
        table=lambda rows: rows.assign(when="31/01/2026"),
    ),
    "a feature with one value in each new bag": Mistake(
        "predict model bad.csv --bag tow", "'length'", "fit the model again without it",
        lambda: hq.estimate("model", "bad.csv", bag="tow"),
        table=lambda rows: rows.assign(length=rows.index // 15 % 7 / 4),
    ),
    "a feature with one value on each day": Mistake(
        "monitor model bad.csv --time when --period D", "'length'", "fit the model again without it",
        lambda: hq.monitor("model", "bad.csv", time="when", period="D"),
        table=lambda rows: rows.assign(
            length=rows.index // 5 % 7 / 4, when=pd.date_range("2026-01-01", periods=60).strftime("%F").repeat(5)
        ),
    ),
    "a reference of few days": Mistake(
        "monitor model bad.csv --time when --period D", "class 'cod'", "name a reference of 20 chunks or more",
        lambda: hq.monitor("model", "bad.csv", time="when", period="D"),
        table=lambda rows: rows.assign(when=pd.date_range("2026-01-01", periods=20).strftime("%F").repeat(15)),
    ),
    "a column twice": Mistake(
        f"fit bad.csv {KNOWN}", "'length'", "rename one",
        lambda: labelled(source=pd.read_csv("rows.csv").rename(columns={"depth": "length"})),
        table=lambda rows: rows.rename(columns={"depth": "length"}),
    ),
    "a column of totals": Mistake(
        f"{SHARES} --counts", "'Total'", "remove it from the table",
        lambda: with_totals(counts=True), totals=lambda tows: tows.assign(Total=1.0),
    ),
    "percentages": Mistake(
        SHARES, "bag tow0", "pass --counts", with_totals, "pass counts=True",
        totals=lambda tows: tows.assign(cod=tows["cod"] * 100, eel=tows["eel"] * 100),
    ),
    "bags that totals spell otherwise": Mistake(
        SHARES, "'tow3' (perhaps 'tow_3')", "add it, or drop the rows of this bag",
        with_totals, totals=lambda tows: tows.replace({"tow": {"tow3": "tow_3"}}),
    ),
    "totals of bags without rows": Mistake(
        SHARES, "'tow99'", "correct their names if they have rows", with_totals,
        totals=lambda tows: pd.concat([tows, tows.tail(1).assign(tow="tow99")]),
    ),
    "a text column in totals": Mistake(
        SHARES, "'note'", "leave the column out", with_totals, totals=lambda tows: tows.assign(note="windy"),
    ),
    "totals of one class": Mistake(
        SHARES, "'cod'", "add a column with the share of the others",
        with_totals, totals=lambda tows: tows[["tow", "cod"]],
    ),
    "a bag twice in totals": Mistake(
        SHARES, "bag tow0", "give one row per bag", with_totals,
        totals=lambda tows: pd.concat([tows, tows.head(1)]),
    ),
    "a method that is spelt otherwise": Mistake(
        "fit rows.csv --bag tow --label species --method emqq -o m --force", "'emqq'", "perhaps you mean 'emq'",
        lambda: hq.fit_best("rows.csv", bag="tow", label="species", method="emqq"),
    ),
    "a method that needs labels": Mistake(
        "fit rows.csv --bag tow --prevalences tows.csv --method emq -o m --force", "EMQ", "--label",
        lambda: hq.fit_best("rows.csv", bag="tow", prevalences="tows.csv", method="emq"), "name the label column",
    ),
    "an option that is spelt otherwise": Mistake(
        f"fit rows.csv --lable species {FIT}", "--lable", "perhaps you mean --label",
    ),
    "no place for the model": Mistake(
        "fit rows.csv --bag tow --label species", "--output", "add --output with the directory of the model",
    ),
    "a model that exists": Mistake(
        "fit rows.csv --bag tow --label species --method cc -o model", "model exists", "pass --force to replace it",
        lambda: hq.load("model").save("model"), "pass overwrite=True to replace it",
    ),
    "a coverage in per cent": Mistake(
        "predict model rows.csv --bag tow --coverage 90", "coverage", "such as 0.9",
        lambda: hq.estimate("model", "rows.csv", bag="tow", coverage=90),
    ),
    "scores that do not exist": Mistake(
        f"fit rows.csv --proba p_* {KNOWN}", "'p_*'", "correct it", lambda: labelled(source="rows.csv", proba="p_*"),
    ),
    "scores that are no probabilities": Mistake(
        f"fit bad.csv --proba p_* {KNOWN}", "the scores of row 1", "turn logits into probabilities",
        lambda: labelled(proba="p_*"), table=lambda rows: rows.assign(p_cod=0.5, p_eel=0.7),
    ),
}  # fmt: skip

# Mistakes that can be made only in Python: what the sentence names, and the remedy.
IN_PYTHON: dict[str, tuple[Callable[[], object], str, str]] = {
    "features as one text": (
        lambda: labelled(source="rows.csv", features="length"), "'length'", "pass ['length']",
    ),
    "texts among the features": (
        lambda: hq.CC().fit(pd.read_csv("rows.csv")[["length", "gear"]], rows_and_species()[1]), "'gear'",
        "encode categories",
    ),
    "a missing value in a data frame": (
        lambda: hq.CC().fit(rows_and_species()[0].mask(rows_and_species()[0] > 8), rows_and_species()[1]),
        "column 'depth'", "drop or impute",
    ),
    "a label of measurements": (
        lambda: hq.CC().fit(rows_and_species()[0], np.arange(300) % 150 / 4), "y", "bin a continuous y",
    ),
    "labels of other rows": (
        lambda: hq.CC().fit(rows_and_species()[0], rows_and_species()[1][1:]), "y", "pass X and y with the same rows",
    ),
    "columns in another order": (
        lambda: hq.load("model").predict(rows_and_species()[0][["depth", "length"]]), "'depth'",
        "give the same columns in the same order",
    ),
    "a fraction in per cent": (
        lambda: hq.fit_best("rows.csv", bag="tow", label="species", method="cc", calibration=25), "calibration",
        "lower it",
    ),
    "a model that is not fitted": (lambda: hq.EMQ().predict(rows_and_species()[0]), "EMQ", "call fit first"),
}  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Go to a directory with rows.csv, bare.csv without the label, tows.csv with the shares, and two models."""
    rng = np.random.default_rng(0)
    tow = np.repeat([f"tow{i}" for i in range(20)], 15)
    species = np.where(rng.random(300) < np.repeat(rng.random(20), 15), "eel", "cod")
    rows = pd.DataFrame({"tow": tow, "length": rng.normal(size=300).round(3) + 3 * (species == "eel")})
    rows = rows.assign(depth=rng.integers(1, 9, 300) + 0.5, gear=rng.choice(["net", "line"], 300), species=species)
    tows = rows.groupby("tow")["species"].value_counts(normalize=True).unstack(fill_value=0.0).reset_index()
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("first"))
    Path("folder").mkdir()
    rows.to_csv("rows.csv", index=False)
    rows.drop(columns="species").to_csv("bare.csv", index=False)
    tows.to_csv("tows.csv", index=False)
    how: dict[str, Any] = {"bag": "tow", "label": "species", "method": "cc"}
    hq.fit_best("rows.csv", **how)[0].save("model")
    hq.fit_best("rows.csv", **how, weight="depth")[0].save("weighted")
    counted = rows.assign(rings=rows.index % 7 + 1)
    hq.fit_best(counted, **how, weight="rings", weight_kind="count")[0].save("counted")
    yield rows, tows
    os.chdir(before)


def write(name: str, content: Any) -> None:
    if isinstance(content, pd.DataFrame):
        content = content.to_csv(index=False)
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


def check(sentences: list[str], own: str, remedy: str) -> None:
    assert len(sentences) == 1, sentences
    assert own in sentences[0]
    assert remedy in sentences[0].partition(own)[2]
    assert re.fullmatch(r"(?!.*[.!?] [A-Z]).*\.", sentences[0]), "one sentence"


def sentences_of(call: Callable[[], object]) -> list[str]:
    """Return the warnings and the error of a call."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UserWarning)
        try:
            call()
        except (ValueError, TypeError, OSError) as error:
            return [*(str(warning.message) for warning in found), str(error)]
    return [str(warning.message) for warning in found]


def test_forty_mistakes_are_listed():
    assert len(MISTAKES) >= 40, "on the command line"
    assert sum(mistake.python is not None for mistake in MISTAKES.values()) + len(IN_PYTHON) >= 40, "in Python"


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_of_first_use(tables, name):
    mistake = MISTAKES[name]
    for file, make, source in zip(("bad.csv", "totals.csv"), (mistake.table, mistake.totals), tables, strict=True):
        if make is not None:
            write(file, make(source))
    answer = CliRunner().invoke(main, shlex.split(mistake.command))
    lines = [line.partition(": ") for line in answer.stderr.splitlines()]
    assert answer.exit_code == (2 if any(kind == "Error" for kind, _, _ in lines) else 0), answer.output
    check([text for kind, _, text in lines if kind in ("Error", "Warning")], mistake.own, mistake.remedy)
    if mistake.python is not None:
        own, remedy = mistake.own_in_python or mistake.own, mistake.in_python or mistake.remedy
        check(sentences_of(mistake.python), own, remedy)


@pytest.mark.parametrize("name", IN_PYTHON)
def test_mistakes_of_first_use_in_python(tables, name):
    call, own, remedy = IN_PYTHON[name]
    check(sentences_of(call), own, remedy)
