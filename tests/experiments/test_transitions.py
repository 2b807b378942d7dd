"""New Zealand's transition tables: the elections as read, the baselines, and the tables of results."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from experiments import transitions
from experiments.__main__ import main

GROUPS = np.array(["A", "B", "C", "D", "E", "F", "G", "H"])


@pytest.fixture
def file(tmp_path):
    """Two electorates of each of four elections, one of which has a table that differs from its units."""
    rng = np.random.default_rng(0)
    units = rng.multinomial(60, np.ones(64) / 64, size=(8, 12)).reshape(8, 12, 8, 8) + 5 * np.eye(8, dtype=int)
    tables = units.sum(1)
    tables[7] = np.roll(tables[7] * np.arange(1, 9), 1, axis=1)
    years = np.repeat([2008, 2011, 2014, 2017], 2)
    path = tmp_path / "natural_nz_elections_bags.npz"
    np.savez(
        path, instance_counts=units.sum(3).reshape(96, 8), label_counts=units.sum(2).reshape(96, 8),
        electorate=np.repeat(np.arange(8), 12), cross_votes=tables, group_names=GROUPS,
        electorate_names=np.array([f"{year}:{i}" for i, year in enumerate(years)]),
    )  # fmt: skip
    return path


def test_an_electorate_whose_table_differs_from_its_units_is_left_out(file):
    found = transitions.read_elections(file)
    assert [(one.year, len(one.tables)) for one in found] == [(2008, 2), (2011, 2), (2014, 2), (2017, 1)]
    for one in found:
        rows, columns = one.margins()
        np.testing.assert_allclose(rows, one.tables.sum(2))
        np.testing.assert_allclose(columns, one.tables.sum(1))


@pytest.mark.parametrize("name", list(transitions.METHODS))
def test_every_method_gives_tables_of_the_known_totals(file, name):
    election = transitions.read_elections(file)[0]
    found = transitions.METHODS[name](election)
    np.testing.assert_allclose(found.sum(2), election.margins()[0], rtol=1e-3)
    assert (found >= -1e-9).all()
    if name != "Goodman's regression":
        np.testing.assert_allclose(found.sum(1), election.margins()[1], rtol=1e-2)


def test_the_command_writes_errors_and_coverage(file, tmp_path, monkeypatch):
    monkeypatch.setattr(transitions, "_DRAWS", 2)
    monkeypatch.setattr(transitions, "METHODS", {"independence": transitions.independence})
    args = ["nz-transitions", "--data", str(file.parent), "--output", str(tmp_path / "out")]
    for years in ("2014", "2011"):
        result = CliRunner().invoke(main, [*args, "--elections", years], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    text = (tmp_path / "out/nz-transitions.md").read_text()
    assert text.index("| 2011 | independence | 2 |") < text.index("| 2014 | independence | 2 |")
    text = (tmp_path / "out/nz-transitions-intervals.md").read_text()
    assert "| 2011 | conformal | 2 | 2 |" in text
    assert "| 2014 | bootstrap | 2 | 0 |" in text
