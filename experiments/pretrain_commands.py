"""Commands that pretrain `hq.Pretrained`: simulate tasks, describe bags of them, and train the network."""

from __future__ import annotations

from pathlib import Path

import click

from experiments.arguments import main, options, wrote

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


@pretrain.command()
@click.option("--r-library", type=click.Path(path_type=Path, exists=True), required=True,
              help="Directory with the folders mlbench, kernlab and MASS of R packages.")  # fmt: skip
@click.option("--data", type=click.Path(path_type=Path, exists=True), help="Directory of the shared tables.")
@click.option("--redraws", default=5, show_default=True, type=click.IntRange(1), help="Redraws of the labelled rows.")
@click.option("--bags", default=100, show_default=True, type=click.IntRange(2), help="Bags of each size and mix.")
@click.option("--most-rows", default=3000, show_default=True, type=click.IntRange(100), help="Rows of a table.")
@click.option("--bayes/--no-bayes", default=True, show_default=True, help="Whether to draw Bayesian posteriors, too.")
@options("work", "output")
def compare(
    r_library: Path, data: Path | None, redraws: int, bags: int, most_rows: int, bayes: bool, work: Path, output: Path
) -> None:
    """Pretrained against other methods on development tables.

    Finished tables are kept in the folder of finished runs, and are not repeated.

    Example: python -m experiments pretrain compare --r-library DIRECTORY
    """
    from experiments.development_tables import read_tables
    from experiments.pretrained import facts, means, run_all, summary
    from experiments.tables import to_markdown, write_frame

    tables = [table.first(most_rows) for table in read_tables(r_library, data)]
    found = run_all(tables, redraws, work / "pretrained", bags, bayes, click.echo)
    own = found[found["method"] == "Pretrained"]
    about = (
        f"Geometric mean over tables of the ratio of the AE of `Pretrained` to a rival's, with a 95 % interval over "
        f"tables. {found['table'].nunique()} development tables of at most {most_rows:,} rows; 50, 200, 1,000 and all "
        f"labelled rows, {redraws} redraw(s); logistic regression, forest and boosting; {bags} bags of 50, 250 and "
        f"1,000 rows for each mix. The 90 % intervals contain {own['inside'].mean():.3f} of the shares (uniform mixes: "
        f"{own.loc[own['mix'] == 'uniform', 'inside'].mean():.3f}). Made by `python -m experiments pretrain compare`."
    )
    text = f"{to_markdown(summary(found))}\n\n{to_markdown(facts(found))}"
    write_frame(output / "pretrained", means(found), f"{about}\n\n{text}")
    click.echo(text)
    wrote(output / "pretrained.csv", output / "pretrained.md")
