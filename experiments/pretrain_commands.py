"""Commands that pretrain `hq.Pretrained`: simulate tasks, describe bags of them, and train the network."""

from __future__ import annotations

from pathlib import Path

import click

from experiments.arguments import main

__all__: list[str] = []


@main.group()
def pretrain() -> None:
    """Pretrain the network of `hq.Pretrained`, in three resumable stages."""


@pretrain.command()
@click.option("--tasks", type=click.Path(path_type=Path), required=True, help="Folder of the simulated tasks.")
@click.option("--first", type=int, default=0, show_default=True, help="Number of the first shard.")
@click.option("--shards", type=int, default=150, show_default=True, help="Number of shards, of 25 tasks each.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the tasks.")
def simulate(tasks: Path, first: int, shards: int, seed: int) -> None:
    """Fit classifiers to simulated rows; several processes may write different shards.

    Example: python -m experiments pretrain simulate --tasks tasks
    """
    from experiments.simulated_tasks import write_tasks

    write_tasks(tasks, seed, first, first + shards)


@pretrain.command()
@click.option("--tasks", type=click.Path(path_type=Path, exists=True), required=True, help="Folder of the tasks.")
@click.option("--bags", type=click.Path(path_type=Path), required=True, help="Folder of the described bags.")
def describe(tasks: Path, bags: Path) -> None:
    """Draw bags from the tasks, and compute what the network reads.

    Example: python -m experiments pretrain describe --tasks tasks --bags bags
    """
    from experiments.pretraining import describe_shards

    click.echo(f"{describe_shards(tasks, bags, say=click.echo)} shards described in {bags}.")


@pretrain.command()
@click.option(
    "--bags",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    multiple=True,
    help="Folder of described bags; may be given several times.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="File of the weights.")
@click.option("--minutes", type=float, default=15.0, show_default=True, help="Time to train.")
@click.option("--width", type=int, default=64, show_default=True, help="Width of the layers.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the weights and of the batches.")
def train(bags: tuple[Path, ...], output: Path, minutes: float, width: int, seed: int) -> None:
    """Train the network, and write its weights and a record of the run.

    Example: python -m experiments pretrain train --bags bags -o pretrained.safetensors
    """
    from experiments.pretraining import train as run

    run(bags, output, minutes, width, seed, click.echo)


@pretrain.command()
@click.argument("networks", type=click.Path(path_type=Path, exists=True), nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="File of all networks.")
def join(networks: tuple[Path, ...], output: Path) -> None:
    """Join trained networks in one file; `hq.Pretrained` averages their results.

    Example: python -m experiments pretrain join a.safetensors b.safetensors -o pretrained.safetensors
    """
    from safetensors.numpy import load_file, save_file

    parts = [{f"{i}/{name}": values for name, values in load_file(path).items()} for i, path in enumerate(networks)]
    save_file({name: values for part in parts for name, values in part.items()}, output)
