"""``python -m experiments RUN``: run one experiment, print its table and write its results as CSV."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import click

RESULTS = Path(__file__).parent / "results"


@click.group()
def main() -> None:
    """The paper's experiments, one command each."""


@main.command()
@click.option("--bins", default="hard", type=click.Choice(["hard", "soft", "rbf", "sigmoid"]), show_default=True)
@click.option("--seeds", default=3, show_default=True, help="Number of runs, seeded 0, 1, …")
@click.option("--steps", default=3000, show_default=True, help="Updates of the weights per run.")
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS / "toy.csv", show_default="results/toy.csv")
def toy(bins: str, seeds: int, steps: int, output: Path) -> None:
    """A histogram layer learns the mean, median and maximum (section 4 of the paper), at three paces of its bins.

    Example: python -m experiments toy --seeds 3
    """
    from experiments.toy import PAPER, run_toy

    rows = []
    click.echo(f"{'statistic':<10}{'bin_lr':>7}{'seed':>5}{'absolute error':>16}{'paper':>9}{'seconds':>9}")
    for statistic, bin_lr, seed in itertools.product(PAPER, (1.0, 0.1, 0.0), range(seeds)):
        row = run_toy(statistic, bins, bin_lr, steps, seed)
        rows.append({**row, "paper": PAPER[statistic]})
        click.echo(
            f"{statistic:<10}{bin_lr:>7}{seed:>5}{row['absolute_error']:>16.5f}{PAPER[statistic]:>9.4f}"
            f"{row['seconds']:>9.1f}"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    click.echo(f"written to {output}")


if __name__ == "__main__":
    main()
