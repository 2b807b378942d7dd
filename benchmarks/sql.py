"""``python -m benchmarks sql``: the query of `q.to_sql` in DuckDB beside `histnetq predict`, on the same Parquet file.

Both read two score columns and a bag column. Seconds of processor time are given beside seconds of the clock, because
other programs may share the cores. The results are written to ``benchmarks/sql.csv``.
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import parquet

import histnetq as hq
from histnetq.sketches.tables import sketch_table

RESULTS = Path(__file__).with_suffix(".csv")
METHODS = ("PACC", "HDy", "EMQ", "Pretrained")
_ROWS_AT_ONCE = 1_000_000


def scored(n_rows: int, n_bags: int, rng: np.random.Generator) -> pa.Table:
    """Return rows with two scores, a bag and a class."""
    eel = rng.random(n_rows) < 0.3
    p = (1 / (1 + np.exp(1.5 - 3 * eel - rng.normal(size=n_rows)))).astype(np.float32)
    columns = {"p_cod": 1 - p, "p_eel": p, "tow": rng.integers(n_bags, size=n_rows)}
    return pa.table({**columns, "species": np.array(["cod", "eel"])[eel * 1]})


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the result of a function, its seconds by the clock, and its seconds of processor time."""
    clock, processor = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - clock, time.process_time() - processor


@click.command()
@click.option("--rows", default=10_000_000, show_default=True)
@click.option("--bags", default=1000, show_default=True)
def sql(rows: int, bags: int) -> None:
    """Count rows in DuckDB and by histnetq, compare the counts, and write the times as CSV."""
    rng, lines = np.random.default_rng(0), list[dict[str, Any]]()
    learned = hq.read_bags(scored(5000, 20, rng), bag="tow", label="species", proba="p_*")
    with tempfile.TemporaryDirectory() as folder:
        file, result = f"{folder}/rows.parquet", f"{folder}/sketch.parquet"
        with parquet.ParquetWriter(file, scored(1, 1, rng).schema) as writer:
            for start in range(0, rows, _ROWS_AT_ONCE):
                writer.write_table(scored(min(_ROWS_AT_ONCE, rows - start), bags, rng))
        for method in METHODS:
            q = getattr(hq, method)(random_state=0).fit(learned)
            query = f"COPY ({q.to_sql('events', bag='tow')}) TO '{result}'"
            with duckdb.connect() as database:
                database.execute(f"CREATE VIEW events AS SELECT * FROM '{file}'")
                times = {"query": timed(partial(database.execute, query))}
            times["reading of its result"] = timed(partial(hq.BagSketch.from_sql, result))
            times["histnetq predict"] = timed(partial(sketch_table, q, file, bag=["tow"]))
            got, want = times["reading of its result"][0], times["histnetq predict"][0]
            differences = got.values[np.argsort(got.ids)].astype(float) - want.values[np.argsort(want.ids)]
            most = f"{np.abs(differences).max():.2g}"
            for what, (_, clock, processor) in times.items():
                facts = {"method": method, "rows": rows, "bags": bags, "what": what, "seconds": round(clock, 1)}
                lines.append({**facts, "processor": round(processor, 1), "largest difference": most})
                click.echo("  ".join(map(str, lines[-1].values())))
    with RESULTS.open("w", newline="") as file_of_results:
        writer_of_results = csv.DictWriter(file_of_results, lines[0])
        writer_of_results.writeheader()
        writer_of_results.writerows(lines)
