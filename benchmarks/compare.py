"""``python -m benchmarks compare OLD NEW [NAME …]``: benchmarks of two checkouts in turns, and what became worse."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks import NAMES

__all__ = ["compare", "is_worse"]

_WORSE = 0.1  # part of the old value that a new one may be worse by
_CHECKOUT = click.Path(exists=True, file_okay=False, path_type=Path)
# Run inside a checkout, whose own benchmarks it imports.
_SCRIPT = """
import importlib, json, sys
for name in sys.argv[1:]:
    for what, value, comparison, _ in importlib.import_module(f"benchmarks.{name}").run():
        print("@" + json.dumps([f"{name}: {what}", float(value), comparison]), flush=True)
"""


@click.command()
@click.argument("old", type=_CHECKOUT)
@click.argument("new", type=_CHECKOUT)
@click.argument("names", nargs=-1)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Runs of each checkout.")
def compare(old: Path, new: Path, names: tuple[str, ...], rounds: int) -> None:
    """Run the benchmarks NAMES (or all) of the checkouts OLD and NEW in turns and compare the medians of each metric.

    Each line has the medians of OLD and NEW and the ratio of NEW to OLD. The exit code is 1 if a metric is more than
    10 % worse.
    """
    found: dict[str, tuple[list[float], list[float]]] = {}
    directions: dict[str, str] = {}
    for i in range(rounds):
        for side, checkout in enumerate((old, new)):
            click.echo(f"round {i + 1} of {rounds}: {checkout}", err=True)
            for what, value, comparison in _measure(checkout, names or NAMES):
                directions[what] = comparison
                found.setdefault(what, ([], []))[side].append(value)
    n_worse = 0
    for what, values in found.items():
        before, after = (statistics.median(v) if v else math.nan for v in values)
        worse = is_worse(before, after, directions[what])
        n_worse += worse
        ratio = after / before if before else math.nan
        click.echo(f"{'WORSE' if worse else 'ok':<6}{before:11.4g} {after:11.4g} {ratio:7.3f}  {what}")
    raise SystemExit(n_worse > 0)


def is_worse(before: float, after: float, comparison: str) -> bool:
    """Return whether a value is more than 10 % worse, for a target of the kind "≥" or "≤"."""
    margin = _WORSE * abs(before)
    return after < before - margin if comparison == "≥" else after > before + margin


def _measure(checkout: Path, names: tuple[str, ...]) -> Iterator[tuple[str, float, str]]:
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *names], cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True,
        check=True,
    )  # fmt: skip
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            what, value, comparison = json.loads(line[1:])
            yield re.sub(r" \([^()]*\)", "", what), value, comparison  # the details differ from run to run
