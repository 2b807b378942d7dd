"""The command about alerts over time."""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from experiments.arguments import main, options, wrote

__all__: list[str] = []


@main.command()
@click.option("--streams", default=1000, show_default=True, type=click.IntRange(1), help="Streams of each kind.")
@options("data", "output")
def monitor(streams: int, data: Path, output: Path) -> None:
    """How often streams of 52 chunks without a shift have an alert, how soon a shift has one, and what verdicts say.

    Example: python -m experiments monitor --data DIRECTORY --streams 100
    """
    from experiments import monitoring
    from experiments.tables import to_markdown, write_frame

    reviews = monitoring.Reviews(data)
    made = (
        "Chunks of film reviews after a reference of 26 chunks; EMQ with bias-corrected temperature scaling. Made by "
    )
    made += f"`python -m experiments monitor --streams {streams}`."
    false = monitoring.run_false_alarms(reviews, streams, 250)
    about = f"Part of the streams of 52 chunks without a shift that have any alert; 0.05 is promised. {made}"
    write_frame(output / "monitor-false-alarms", false, f"{about}\n\n{to_markdown(false)}")
    click.echo(false.to_string(index=False))
    power = pd.concat([monitoring.run_power(reviews, max(streams // 4, 1), size) for size in (250, 1000)])
    about = f"Part of the streams that have an alert within some chunks after a shift. {made}"
    write_frame(output / "monitor-power", power, f"{about}\n\n{to_markdown(power)}")
    click.echo(power.to_string(index=False))
    verdicts = monitoring.run_verdicts(max(streams // 100, 1))
    about = "Verdicts about chunks of 1,000 rows whose mix is that of the reference, 0.3, after a change within the "
    about += f"classes; {max(streams // 100, 1)} draws of 52 chunks. Made by `python -m experiments monitor`."
    write_frame(output / "monitor-verdicts", verdicts, f"{about}\n\n{to_markdown(verdicts)}")
    click.echo(verdicts.to_string(index=False))
    wrote(*(output / f"monitor-{name}.csv" for name in ("power", "false-alarms", "verdicts")))


@main.command("monitor-network")
@click.option("--streams", default=300, show_default=True, type=click.IntRange(1), help="Streams of each kind.")
@click.option("--epochs", default=15, show_default=True, type=click.IntRange(1), help="Epochs of the network.")
@options("data", "output")
def monitor_network(streams: int, epochs: int, data: Path, output: Path) -> None:
    """How often streams of 52 chunks without a shift have an alert if the model is a network.

    Example: python -m experiments monitor-network --data DIRECTORY --streams 100
    """
    from experiments import monitoring
    from experiments.tables import to_markdown, write_frame

    found = monitoring.run_false_alarms(monitoring.NetworkReviews(data, epochs), streams, 250)
    about = "Part of the streams of 52 chunks without a shift that have any alert; 0.05 is promised. Chunks of film "
    about += "reviews, 30 main directions, after a reference of 26 chunks; a small HistNetQ. Made by "
    about += f"`python -m experiments monitor-network --streams {streams}`."
    write_frame(output / "monitor-network", found, f"{about}\n\n{to_markdown(found)}")
    click.echo(found.to_string(index=False))
    wrote(output / "monitor-network.csv")


@main.command("monitor-verdicts")
@click.option(
    "--streams", type=click.IntRange(0), help="Streams of each change and of mixes.  [default: as in the table]"
)
@options("data", "output")
def monitor_verdicts(streams: int | None, data: Path, output: Path) -> None:
    """What `monitor` says of reviews and digits when the mix alone changes, and when rows change within the classes.

    Streams that are in monitor-streams.csv are not repeated.

    Example: python -m experiments monitor-verdicts --data DIRECTORY --streams 1
    """
    from experiments import verdicts
    from experiments.tables import to_markdown, write_frame

    path = output / "monitor-streams.csv"
    for name in verdicts.DATA:
        verdicts.run_streams(verdicts.Watched(name, data), path, streams)
    tables = verdicts.summary(path)
    about = ("after the mix alone has changed from 0.3", "at a mix of 0.3, after a change within the classes")
    for name, table, told in zip(("mixes", "changes"), tables, about, strict=True):
        made = f"Verdicts of monitor about chunks {told}. Made by `python -m experiments monitor-verdicts`."
        write_frame(output / f"monitor-{name}", table, f"{made}\n\n{to_markdown(table)}")
        click.echo(table.to_string(index=False))
    wrote(path, *(output / f"monitor-{name}.csv" for name in ("mixes", "changes")))
