"""`histnetq sql` and `predict --sql-result`: a table in DuckDB is estimated without its rows."""

from __future__ import annotations

import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from tests.sketches.sql.test_query import fitted, scored

duckdb = pytest.importorskip("duckdb")


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted("HDy").save("model")
    scored(3000, seed=1).drop(columns="species").to_csv("new.csv", index=False)
    with duckdb.connect("my.db") as connection:
        connection.execute("CREATE TABLE events AS SELECT * FROM 'new.csv'")
    return tmp_path


def test_a_query_and_the_estimates_of_its_result(folder):
    told = run("sql", "model", "--table", "events", "--bag", "site", "-o", "sketch.sql")
    assert told.exit_code == 0, told.output
    query = (folder / "sketch.sql").read_text()
    assert run("sql", "model", "--table", "events", "--bag", "site", "--dialect", "duckdb").output == query
    assert query == hq.load("model").to_sql("events", bag="site")
    with duckdb.connect("my.db") as connection:
        connection.execute(f"COPY ({query}) TO 'sketch.parquet'")
    assert run("predict", "model", "sketch.parquet", "--sql-result", "-o", "out.csv").exit_code == 0
    assert run("predict", "model", "new.csv", "--bag", "site", "-o", "want.csv").exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), pd.read_csv("want.csv"))
    assert {"lower", "upper", "trust"} <= set(pd.read_csv("out.csv").columns)
    told = run("predict", "model", "sketch.parquet", "--sql-result", "--bag", "tow")
    assert told.output.splitlines()[-1].startswith(
        "Error: --bag: 'tow' does not name these bags, which are named by 'site'"
    )


def test_options_that_need_rows(folder):
    for options in (["--rows", "rows.csv"], ["--weight", "w"], ["--interval", "bayes"]):
        told = run("predict", "model", "new.csv", "--sql-result", *options)
        assert told.exit_code != 0
        assert len(told.output.strip().splitlines()) == 1
    told = run("predict", "model", "new.csv", "--sql-result")
    message = (
        "Error: new.csv: has no column 'histnetq_model', which the result of every query has; run the query of "
        "histnetq sql again."
    )
    assert told.output.strip() == message


def test_a_query_does_not_replace_a_file(folder):
    (folder / "sketch.sql").write_text("mine")
    told = run("sql", "model", "--table", "events", "-o", "sketch.sql")
    assert told.exit_code != 0
    assert (folder / "sketch.sql").read_text() == "mine"
    assert run("sql", "model", "--table", "events", "-o", "sketch.sql", "--force").exit_code == 0
    told = run("sql", "model", "--table", "a.b.c.d")
    assert told.output.startswith(
        "Error: --table: expected a name, after the names of its schema and catalog if necessary"
    )
