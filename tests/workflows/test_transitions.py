"""From a table of votes to transition tables, in Python and on the command line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from tests.quantifiers.classical.test_transitions import simulate

OPTIONS = {"categories": "party_*", "classes": "to_*"}


@pytest.fixture
def votes():
    x, y, groups, _ = simulate(16, 10)
    frame = pd.DataFrame(x, columns=["party_x", "party_y", "party_z"]).join(
        pd.DataFrame(y, columns=["to_a", "to_b", "to_c"])
    )
    return frame.assign(place=[f"g{number:02d}" for number in groups], year=2000 + groups // 4)


def known_tables(n):
    truth = simulate(16, 10)[3][:n]
    rows = [(f"g{g:02d}", "xyz"[r], "abc"[c], value) for (g, r, c), value in np.ndenumerate(truth)]
    return pd.DataFrame(rows, columns=["group", "from", "to", "count"])


def test_the_command_writes_what_python_returns(votes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    votes.to_csv("votes.csv", index=False)
    known_tables(12).to_csv("known.csv", index=False)
    named = ["transitions", "votes.csv", "--from", "party_*", "--to", "to_*", "--group", "place", "--occasion", "year"]
    result = CliRunner().invoke(main, [*named, "--known", "known.csv", "-o", "table.csv"])
    assert result.exit_code == 0, result.output
    assert result.stdout == "5 tables written to table.csv.\n"
    found = hq.transition_table("votes.csv", **OPTIONS, group="place", occasion="year", known="known.csv")
    pd.testing.assert_frame_equal(pd.read_csv("table.csv"), found)
    assert found["group"].unique().tolist() == ["all", "g12", "g13", "g14", "g15"]
    assert (found["lower"] <= found["share"]).all()
    assert (found["share"] <= found["upper"]).all()
    truth = simulate(16, 10)[3][12:]
    shares = truth / truth.sum(2, keepdims=True)
    own = found[found["group"] != "all"]
    assert own["lower"].le(shares.ravel() + 1e-9).mean() > 0.85
    printed = CliRunner().invoke(main, named)
    assert printed.stdout.splitlines()[0] == "group,from,to,count,share"
    assert len(printed.stdout.splitlines()) == 1 + 9


def test_a_known_group_may_be_anywhere(votes):
    whole = hq.transition_table(votes, **OPTIONS, group="place")
    np.testing.assert_allclose(
        whole.loc[whole["group"] == "all", "count"].sum(), votes.filter(like="party").to_numpy().sum()
    )
    assert "lower" not in whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"categories": "party_x"},
            "categories: expected a pattern with one *, such as 'party_*', got 'party_x'; write * for the name.",
        ),
        (
            {"classes": "none_*"},
            "classes: expected a pattern of 2 to 100 columns, got 'none_*', which matches 0; correct the pattern.",
        ),
        (
            {"classes": "party_*"},
            "classes: expected other columns than the categories, got 'party_x' twice; give two patterns.",
        ),
        (
            {"group": "year", "occasion": "place"},
            "table: group 2000 has units of several occasions; name the groups of each occasion differently.",
        ),
        (
            {"known": known_tables(2)},
            "known: expected with groups, got none; name the column of groups by group=.",
        ),
        (
            {"known": known_tables(16), "group": "place"},
            "known: has tables of 16 of 16 groups, expected some but not all; add or remove tables.",
        ),
        (
            {"known": known_tables(2).assign(to="d", count=7), "group": "place"},
            "known: has 21 from 'x' to 'd', expected counts of the table's columns; correct it.",
        ),
    ],
)
def test_errors_are_one_sentence(votes, change, message):
    with pytest.raises(ValueError, match=r".") as caught:
        hq.transition_table(votes, **{**OPTIONS, **change})
    assert str(caught.value) == message


def test_negative_and_empty_units(votes):
    votes.loc[0, "to_a"] = -1
    with pytest.raises(
        ValueError, match=r"^table: row 1 has -1 in column 'to_a', expected a count of at least 0; correct it.$"
    ):
        hq.transition_table(votes, **OPTIONS)
    with pytest.raises(ValueError, match=r"^table: has no unit with counts of both kinds; check the patterns.$"):
        hq.transition_table(votes.assign(to_a=0, to_b=0, to_c=0), **OPTIONS)


def test_shares_of_categories_are_refused(votes):
    votes["party_x"] = votes["party_x"] / votes.filter(like="party").sum(axis=1)
    with pytest.raises(
        ValueError, match=r"^table: row 1 has 0.* in column 'party_x', expected a whole number; give totals of the "
    ):
        hq.transition_table(votes, **OPTIONS)


def test_totals_that_differ_and_few_units_are_told(votes):
    many = votes.assign(to_c=votes["to_c"] + votes.filter(like="to_").sum(axis=1) // 2)
    with pytest.warns(UserWarning, match=r"^table: the totals of the categories and of the classes differ by 50 %, "):
        hq.transition_table(many, **OPTIONS)
    with pytest.warns(UserWarning, match=r"^table: has 2 units for 3 categories, too few to tell the categories apart"):
        hq.transition_table(votes[:2], **OPTIONS)


@pytest.mark.parametrize("whole", [1, 100])
@pytest.mark.filterwarnings("error")
def test_shares_of_classes_are_scaled_without_a_warning(votes, whole):
    classes = ["to_a", "to_b", "to_c"]
    shares = votes.assign(**votes[classes].mul(whole / votes[classes].sum(axis=1), axis=0))
    pd.testing.assert_frame_equal(hq.transition_table(shares, **OPTIONS), hq.transition_table(votes, **OPTIONS))
