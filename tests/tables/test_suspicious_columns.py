"""Columns that spoil estimates: codes of missing values, near copies of the label, places and times."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import histnetq as hq
from histnetq.tables.suspicious_columns import find_codes, find_near_copies, find_places
from tests.conftest import exactly

RNG = np.random.default_rng(0)
LABELS = np.arange(600) % 3


def codes_in(values):
    rows = np.asarray(values, dtype=float)[:, None]
    found = find_codes(rows, (np.nanmin(rows, 0), np.nanmax(rows, 0)))
    return found[0].value if found else None


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (np.r_[RNG.random(99), -999], -999), (np.r_[RNG.random(99) * 4000, -99, -99], -99),
        (np.r_[np.arange(1, 40), -9, -9], -9), (np.r_[np.arange(1, 6), 99, 99], 99),
        (np.r_[RNG.normal(size=99), -9999, -9999], -9999), (np.r_[RNG.random(900) * 9000, [9999] * 30], 9999),
        (np.r_[RNG.random(99), np.nan, -99.99, -99.99], -99.99), (np.r_[RNG.integers(-400, 400, 99), -32768], -32768),
    ],
)  # fmt: skip
def test_codes_of_missing_values_are_found(values, code):
    assert codes_in(values) == pytest.approx(code)
    assert codes_in(np.asarray(values, np.float32)) == pytest.approx(code)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(100), np.arange(-9, 10), np.arange(-99, 100), np.r_[np.arange(90), 99], RNG.normal(size=200) * 99,
        np.r_[np.arange(6), 9, 9], np.full(9, 99.0), np.r_[np.full(5, 99.0), np.nan], np.arange(990, 1000),
        np.r_[RNG.integers(0, 9000, 500), 9999],
    ],
)  # fmt: skip
def test_ordinary_numbers_are_no_codes(values):
    assert codes_in(values) is None


def test_columns_that_nearly_tell_the_label():
    noisy = np.where(RNG.random(600) < 0.01, (LABELS + 1) % 3, LABELS)
    weak = np.where(RNG.random(600) < 0.1, (LABELS + 1) % 3, LABELS)
    continuous = LABELS + RNG.random(600) / 2
    rare = np.where(np.arange(600) == 5, 1, 0)
    both = noisy + 10 * (weak > 0)
    rows = np.stack([7 - noisy, LABELS == 1, weak, continuous, np.arange(600) % 5, rare, both], axis=1)
    assert find_near_copies(rows.astype(float), LABELS) == {
        0: "tells 99 % of the classes", 1: "has one value for each class", 6: "tells 99 % of the classes",
    }  # fmt: skip


def test_few_rows_determine_a_label_by_chance():
    rows = np.stack([LABELS[:40], np.arange(40) % 4], axis=1).astype(float)
    assert find_near_copies(rows, LABELS[:40]) == {}
    rare = np.r_[np.zeros(990, int), np.ones(10, int)]  # 99 % of the rows are of one class
    assert find_near_copies((np.arange(1000) % 2)[:, None].astype(float), rare) == {}


@pytest.mark.parametrize("name", ["lat", "Longitude", "stationID", "site_no", "patient", "sample_date", "zip", "UUID"])
def test_names_of_places(name):
    assert find_places(RNG.random((200, 1)), {0: name}) == [0]


@pytest.mark.parametrize("name", ["length", "plate", "years_at_school", "birth_year", "reaction_time", "valid"])
def test_names_of_measurements(name):
    assert find_places(RNG.random((200, 1)), {0: name}) == []


def test_values_of_places():
    n = 400
    rows = np.stack(
        [
            20_260_100 + RNG.integers(1, 29, n), 2015 + RNG.integers(0, 9, n), 1.7e9 + RNG.random(n) * 1e6,
            np.repeat(RNG.normal(size=20), 20), np.repeat(np.arange(n // 2), 2), RNG.integers(1, 9, n),
            np.sort(LABELS[:n]), np.arange(n) % 2, 20_260_000 + RNG.integers(1300, 9900, n), 950 + RNG.random(n) * 200,
        ],
        axis=1,
    )  # fmt: skip
    assert find_places(rows, dict.fromkeys(range(10), "x")) == [0, 1, 2, 3]


def test_facts_of_a_place_in_random_order():
    station = RNG.integers(0, 20, 400)
    rows = np.stack([station, RNG.normal(size=20)[station], RNG.normal(size=400)], axis=1)
    assert find_places(rows, {0: "station", 1: "depth", 2: "length"}) == [0, 1]
    assert find_places(rows, {1: "depth", 2: "length"}) == []


def table(**columns):
    frame = pd.DataFrame({"length": RNG.normal(size=600) + LABELS, **columns})
    return frame.assign(species=np.array(["cod", "eel", "ray"])[LABELS])


def test_the_warnings_of_tables_and_of_data_frames():
    near = "column 'group' has one value for each class in {}, and 'code' similarly; if new tables lack it or it was "
    near += "made from the label, leave it out by ignore=."
    place = "columns 'year' and 'lat' look like places, times or identifiers, which tell samples apart instead of "
    place += "classes; name the column of samples as bag=, or leave them out by ignore=."
    copies = table(group=1.0 * (LABELS == 2), code=np.where(np.arange(600) == 3, 1, LABELS))
    places = table(year=RNG.integers(2000, 2020, 600), lat=RNG.random(600))
    for frame, words in ((copies, near), (places, place)):
        with pytest.warns(UserWarning, match=exactly(f"source: {words.format(repr('species'))}")):
            hq.read_bags(frame, label="species")
        with pytest.warns(UserWarning, match=exactly(f"X: {words.format(repr('y'))}")):
            hq.fit_best(frame.drop(columns="species"), frame["species"], method="cc", calibration=0)


def test_chosen_features_and_rows_in_bags_have_no_places():
    frame = table(lat=RNG.random(600), tow=np.arange(600) // 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hq.read_bags(frame, label="species", bag="tow")
        hq.read_bags(frame, label="species", features=["length", "lat"])


def test_scores_are_not_suspicious():
    frame = table(p=np.where(LABELS == 1, 1.0, 0.0)).replace({"species": {"ray": "cod"}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hq.read_bags(frame, label="species", proba={"eel": "p"})


@pytest.mark.parametrize("name", ["n", "Number", "specimens"])
def test_names_of_counts(name):
    with pytest.warns(UserWarning, match=f"column '{name}' looks like counts, but the model learns from it"):
        hq.read_bags(table(tow=np.arange(600) // 20, **{name: RNG.poisson(3, 600) + 1}), label="species", bag="tow")


def test_a_table_of_proportions_as_rows():
    shares = pd.DataFrame({"tow": np.arange(60) // 2, "cod": np.repeat(RNG.random(30), 2), "size": RNG.random(60)})
    shares["cod"] += 0.01 * RNG.random(60)
    known = shares.groupby("tow")[["cod"]].mean().reset_index()
    known["eel"] = 1 - known["cod"]
    told = "source: column 'cod' has the name of a class, but the model learns from it as a feature; leave it out by "
    with pytest.warns(UserWarning, match=exactly(f"{told}ignore= if it was made from the proportions.")):
        hq.read_bags(shares, bag="tow", prevalences=known)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hq.read_bags(shares, bag="tow", prevalences=known, features=["size", "cod"])
        numbered = {"cod": "0", "eel": "1"}
        hq.read_bags(shares.rename(columns=numbered), bag="tow", prevalences=known.rename(columns=numbered))
