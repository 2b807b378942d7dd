"""The command that sketches bags: sketch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from histnetq.cli.group import main, say
from histnetq.cli.options import IMAGES, SKETCH_FILE, WEIGHTS, how_to_read, option, options
from histnetq.report.sentences import count
from histnetq.tables.places import count_bytes


@main.command()
@options("MODEL", "TABLE", "bag", *WEIGHTS, "missing", "dask", *IMAGES)
@option("-o", "--output", type=SKETCH_FILE, required=True, help="Parquet file of the sketches.")
@options("force", "json")
def sketch(model: Path, table: list[str], output: Path, force: bool, as_json: bool, **reading: Any) -> None:
    """Reduce each bag of a table to a sketch, a small summary.

    MODEL can later predict from the sketches, without the rows of TABLE. If the rows of a bag arrive in several files,
    sketch each file once: predict merges the sketches of a bag. If predict has fewer --bag columns, it merges bags into
    larger bags, such as all hours of a site.

    \b
    Example: histnetq sketch model monday.parquet --bag site --bag hour -o days/monday.parquet
             histnetq sketch model tuesday.parquet --bag site --bag hour -o days/tuesday.parquet
             histnetq predict model days/*.parquet --bag site
             histnetq sketch model scans --images -o scans.parquet
    """
    from histnetq.workflows.estimating import sketch as make

    made = make(model, table, progress=not as_json, **how_to_read(reading))
    made.save(output, overwrite=force)
    size, n_rows = count_bytes(output), int(made.n_rows.sum())
    facts = {"output": str(output), "bags": len(made), "rows": n_rows, "bytes": size}
    sketched, per_bag = f"{count(len(made), 'bag')} of {count(n_rows, 'row')}", f"{size / len(made):,.0f} bytes per bag"
    say(as_json, facts, [f"{sketched} sketched, written to {output}: {per_bag}."])
