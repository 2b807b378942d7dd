"""``python -m benchmarks [NAME …]``: run the benchmarks, print each ratio beside its target, write them as CSV.

``python -m benchmarks compare OLD NEW NAME …`` compares two checkouts; see `benchmarks.compare`. ``python -m benchmarks
peers`` trains networks of QuaPy and ours; see `benchmarks.peers`. ``python -m benchmarks scaling``
measures Spark and Dask; see `benchmarks.scaling`. ``python -m benchmarks sql`` measures queries; see `benchmarks.sql`.
"""

from __future__ import annotations

import csv
import importlib
import platform
import sys
from pathlib import Path

import click
import torch

from benchmarks import NAMES
from benchmarks.compare import compare
from benchmarks.peers import peers
from benchmarks.scaling import scaling

RESULTS = Path(__file__).parent / "results.csv"


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
def main(names: tuple[str, ...]) -> None:
    """Measure speed and memory as ratios within one run; exit code 1 if a target is missed."""
    click.echo(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    rows: list[dict[str, object]] = []
    for name in names or NAMES:
        for what, ratio, comparison, target in importlib.import_module(f"benchmarks.{name}").run():
            met = ratio >= target if comparison == "≥" else ratio <= target
            click.echo(f"{'ok  ' if met else 'MISS'} {ratio:8.3g} {comparison} {target:<5g} {what}")
            rows.append({"benchmark": name, "what": what, "ratio": f"{ratio:.3g}", "target": target, "met": met})
    if rows:
        _write(rows)
    if not all(row["met"] for row in rows):
        raise SystemExit(1)


def _write(rows: list[dict[str, object]]) -> None:
    """Replace the stored rows of the same benchmarks."""
    ran = {row["benchmark"] for row in rows}
    kept: list[dict[str, object]] = []
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            kept = [dict(row) for row in csv.DictReader(file) if row["benchmark"] not in ran]
    ordered = sorted(kept + rows, key=lambda row: NAMES.index(str(row["benchmark"])))
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(ordered)


if __name__ == "__main__":
    if sys.argv[1:2] == ["compare"]:
        compare(sys.argv[2:], prog_name="python -m benchmarks compare")
    if sys.argv[1:2] == ["peers"]:
        peers(sys.argv[2:], prog_name="python -m benchmarks peers")
    if sys.argv[1:2] == ["scaling"]:
        scaling(sys.argv[2:], prog_name="python -m benchmarks scaling")
    if sys.argv[1:2] == ["sql"]:
        importlib.import_module("benchmarks.sql").sql(sys.argv[2:], prog_name="python -m benchmarks sql")
    main()
