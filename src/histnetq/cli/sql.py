"""The command that writes a query which sketches bags in a database: sql."""

from __future__ import annotations

from pathlib import Path

import click

from histnetq.cli.group import main
from histnetq.cli.options import PLACE, option, options
from histnetq.registry import SQL_DIALECTS
from histnetq.tables.files import refuse_existing, whole_file


@main.command()
@options("MODEL")
@option(
    "--table",
    required=True,
    help="Name of the table in the database, after the names of its catalog and schema if necessary, such as "
    "schema.table.",
)
@options("bags")
@option("--dialect", type=click.Choice(SQL_DIALECTS), default="duckdb", help="The SQL of the database.")
@option("-o", "--output", type=PLACE, help="File of the query.  [default: the terminal]")
@options("force")
def sql(model: Path, table: str, bag: list[str], dialect: str, output: Path | None, force: bool) -> None:
    """Write a query that sketches the bags of a table in a database.

    The result of the query has one row for each bag and cell, so that no row of the table leaves the database. Save it
    as a Parquet or CSV file; histnetq predict reads it with --sql-result. All names are quoted in the query.

    The model must read columns of scores (fit --proba or --prediction), or be a logistic regression on columns of
    numbers. CC, ACC, PCC, PACC, HDy, DyS, Pretrained, and EMQ and KDEy of two classes can be computed in SQL.

    \b
    Example: histnetq sql model --table events --bag site --dialect duckdb -o sketch.sql
             duckdb my.db "COPY ($(cat sketch.sql)) TO 'sketch.parquet'"
             histnetq predict model sketch.parquet --sql-result
    """
    from histnetq.workflows.estimating import as_model

    refuse_existing(output, force, "output")
    text = as_model(model).to_sql(table, bag=bag, dialect=dialect)
    if output is None:
        click.echo(text, nl=False)
        return
    with whole_file(output) as partial:
        partial.write_text(text, encoding="utf-8")
