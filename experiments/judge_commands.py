"""The command about estimates from verdicts and human labels."""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from experiments.arguments import choose, main, options, wrote

__all__: list[str] = []


@main.command("judge")
@click.option("--batches", default=2000, show_default=True, type=click.IntRange(1), help="Batches of each cell.")
@click.option("--routes", help="Comma-separated ways in which rows were labelled.  [default: all]")
@click.option("--cells", type=click.IntRange(1), help="New cells of each route, at most.")
@click.option("--peers", help="Python with truescore, judgy and ppi-python, to compare with them.")
@options("work", "output")
def judge(batches: int, routes: str | None, cells: int | None, peers: str | None, work: Path, output: Path) -> None:
    """Coverage and width of intervals of `judge` in simulated batches, of differences, and after repeated looks.

    Cells that are in judge-cells.csv are not repeated.

    Example: python -m experiments judge --batches 100 --cells 1
    """
    from experiments import judging
    from experiments.tables import to_markdown, write_frame

    path = output / "judge-cells.csv"
    for route in choose(routes, list(judging.ROUTES), "--routes"):
        judging.run_cells(route, batches, path, cells)
    found = judging.verdicts(pd.read_csv(path))
    about = (
        f"Intervals of `judge` at 0.9 in simulated batches, {batches} of each cell. Below and above count cells with a "
        "class whose coverage is below 0.88 (0.85 with 60 labels of 4 classes of an earlier batch), or above 0.93 with "
        "10 expected labels, at a one-sided p below 0.001. Widths are divided by Wilson's from the labels alone. Made "
        f"by `python -m experiments judge --batches {batches}`."
    )
    write_frame(output / "judge", found, f"{about}\n\n{to_markdown(found)}")
    click.echo(found.to_string(index=False))
    settings = [(60, 0.7, 0.5), (100, 0.85, 0.2), (300, 0.85, 0.05), (300, 0.7, 0.2)]
    apart = pd.DataFrame([judging.run_differences(batches, *each) for each in settings])
    about = "Differences of two systems with the same share, judged with different errors. Made by the same command."
    write_frame(output / "judge-differences", apart, f"{about}\n\n{to_markdown(apart)}")
    looks = [(300, 500, 0.85, 0.2), (300, 5000, 0.85, 0.2), (1000, 5000, 0.85, 0.2), (1000, 5000, 0.95, 0.05)]
    ever = pd.DataFrame([judging.run_sequential(max(batches // 2, 1), *each) for each in looks])
    about = "Runs with a look after every 20 labels that ever miss. Made by the same command."
    write_frame(output / "judge-sequential", ever, f"{about}\n\n{to_markdown(ever)}")
    click.echo(apart.to_string(index=False))
    click.echo(ever.to_string(index=False))
    wrote(path, *(output / f"{name}.csv" for name in ("judge", "judge-differences", "judge-sequential")))
    if peers is not None:
        others = judging.run_peers(peers, max(batches // 10, 1), work / "judge-peers")
        about = (
            "Intervals of packages for the share of the process, from the same random labels of two classes. Made by "
        )
        about += f"`python -m experiments judge --batches {batches} --peers PYTHON`."
        write_frame(output / "judge-peers", others, f"{about}\n\n{to_markdown(others)}")
        click.echo(others.to_string(index=False))
        wrote(output / "judge-peers.csv")
