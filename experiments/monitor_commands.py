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
