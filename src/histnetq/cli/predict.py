"""The command that estimates the bags of tables: predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from histnetq.cli.group import main, print_table, say
from histnetq.cli.options import IMAGES, TABLE_FILE, WEIGHTS, WRITTEN_ENDINGS, how_to_read, option, options
from histnetq.cli.terminal import echo
from histnetq.report.sentences import count
from histnetq.tables.files import refuse_existing, refuse_same_file, write_files


@main.command()
@options("MODEL", "NEW", "bags", *WEIGHTS, "missing", "dask", *IMAGES)
@option("--coverage", type=float, help="Probability that an interval contains the truth.  [default: 0.9]")
@options("interval")
@option(
    "--audited",
    type=click.Path(),
    help="Table with labels of the rows that histnetq sample drew from NEW. The estimates and intervals are then valid "
    "even if NEW differs from the training data in any way.",
)
@option(
    "--random",
    is_flag=True,
    help="Treat the rows of --audited as a simple random sample of each bag, not as rows that histnetq sample drew. "
    "Their classes are in the column named label.",
)
@option(
    "--sql-result",
    is_flag=True,
    help="NEW is the result of a query of histnetq sql; several files are parts of one result.",
)
@option("--wide", is_flag=True, help="Write one row per bag, with a column for each class.")
@option(
    "--rows",
    type=TABLE_FILE,
    help=f"File ({WRITTEN_ENDINGS}) of the class probabilities of each row, given the estimated "
    "proportions of its bag.",
)
@options("table", "force", "json")
def predict(
    model: Path,
    new: list[str],
    audited: str | None,
    random: bool,
    wide: bool,
    rows: Path | None,
    output: Path | None,
    force: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Estimate the class proportions of each bag of a table.

    NEW are tables, or files that histnetq sketch wrote. A sketch is a small summary of a bag; sketches of the same bag
    are merged. Without --bag, all rows of tables are one bag.

    The result has one row for each bag and class, sorted by bag and class. Its columns are the bag columns, class,
    estimate, lower, upper, n and trust. With --wide, it has one row for each bag and columns such as cod, cod_lower and
    cod_upper for the class cod. A bag column with one of these names gets the prefix bag_.

    The column n is the number of rows, or with --weight the effective number, (sum of weights)^2 / sum of their
    squares. The column trust is "ok", or says that the bag is unusual or small compared with the calibration bags, that
    it has only one row, or that it contains text values that were not in the training data.

    A model without calibration has intervals of its posterior, or Bayesian ones, which assume that only the proportions
    of the classes have changed. A warning says so, or says why there are no intervals: networks have none, and sketches
    and large tables have none for most methods unless --interval names one.

    Most models read each row once and do not keep it, so that tables may be larger than memory. The rows must fit into
    memory for EMQ, KDEy, EMNetQ, QuaNet, and networks that pool by the median or by attention. They must also fit into
    memory with --audited, with --rows, and with any --interval except conformal.

    --rows writes a table with the number and the class probabilities of each row of NEW. It works with methods that use
    a classifier, with EMNetQ, and with all models that were fitted with --proba or --prediction.

    With --audited, there are two more columns: "labels" is the number of labelled rows of the bag, and "method" says
    how the estimate was made.

    \b
    Examples: histnetq predict model new.csv --bag tow -o estimates.csv --coverage 0.9
              histnetq predict model days/*.parquet --bag site --wide
              histnetq predict model new.csv --bag tow --audited to_label.csv
              histnetq predict model new-scans --images --bag scan
              histnetq predict model result.parquet --sql-result
    """
    from histnetq.workflows.auditing import estimate_audited
    from histnetq.workflows.estimating import estimate

    if audited is None and random:
        raise click.UsageError("expected --random only with --audited, whose rows it describes.")
    if audited is not None and rows is not None:
        raise click.UsageError(
            "expected --rows without --audited: probabilities of rows come from the model's estimates."
        )
    if audited is not None and (reading["interval"] is not None or reading["dask"] is not None):
        raise click.UsageError("expected --audited without --interval and --dask: its intervals come from the labels.")
    if audited is not None and reading["weight_kind"] == "count":
        raise click.UsageError("expected --audited without --count-column: every row is labelled once.")
    refuse_existing(rows, force, "rows")
    refuse_same_file(output=output, rows=rows)
    reading = how_to_read(reading)
    if audited is None:
        if not reading["images"]:
            reading["progress"] = not as_json
        found = estimate(model, new, rows=rows is not None, **reading)
    else:
        shared = {name: reading[name] for name in ("bag", "weight", "missing", "coverage")}
        found = estimate_audited(model, new, audited, random=random, **shared)
    table = found.to_frame(wide)
    write_files(("rows", rows, found.rows, force), ("output", output, table, force))
    whole = len(found) == 1 and not reading["bag"] and not reading["images"]
    one_bag = "The whole table is one bag, as no --bag was given" if whole else ""
    if len(found) > 1 and (found.about["n"] == 1).all():
        echo(f"Each of the {len(found):,} bags has only one row: is --bag the right column?", err=True)
    if output is None:
        if one_bag:
            echo(f"{one_bag}.", err=True)
        print_table(table, as_json)
        return
    facts = {"output": str(output), "bags": len(found), "rows": len(table), "doubted": found.n_doubted}
    lines = [f"{count(len(found), 'bag')} estimated, written to {output}."]
    if one_bag:
        lines = [f"{one_bag}; its estimate is written to {output}."]
    if rows is not None:
        facts["row_probabilities"] = str(rows)
        lines.append(f"The class probabilities of each row are written to {rows}.")
    if found.n_doubted:
        lines.append(f"{found.n_doubted} of them differ from the calibration bags; see the column trust.")
    say(as_json, facts, lines)
