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
@click.option("--most-rows", default=3000, show_default=True, type=click.IntRange(100), help="Rows of a table.")
@click.option(
    "--most-numbers", default=10**9, type=click.IntRange(1), help="Leave out tables of more numbers × classes."
)
@options("work")
def score(r_library: Path, data: Path | None, redraws: int, most_rows: int, most_numbers: int, work: Path) -> None:
    """Fit classifiers to development tables, and keep their posteriors for `compare` and `stack`.

    Example: python -m experiments pretrain score --r-library DIRECTORY
    """
    from experiments.development_scores import write_scores
    from experiments.development_tables import read_tables

    tables = [table.first(most_rows) for table in read_tables(r_library, data)]
    sizes = [table.rows.size * table.n_classes for table in tables]
    chosen = [
        table
        for size, table in sorted(zip(sizes, tables, strict=True), key=lambda pair: pair[0])
        if size <= most_numbers
    ]
    write_scores(chosen, redraws, work / "scores", click.echo)


@pretrain.command()
@click.option("--redraws", default=5, show_default=True, type=click.IntRange(1), help="Redraws of the labelled rows.")
@click.option("--bags", default=100, show_default=True, type=click.IntRange(2), help="Bags of each size and mix.")
@click.option("--bayes/--no-bayes", default=True, show_default=True, help="Whether to draw Bayesian posteriors, too.")
@options("work", "output")
def compare(redraws: int, bags: int, bayes: bool, work: Path, output: Path) -> None:
    """Pretrained against other methods on the posteriors that `score` wrote.

    Finished tables are kept in the folder of finished runs, and are not repeated.

    Example: python -m experiments pretrain compare
    """
    from experiments import pretrained
    from experiments.tables import to_markdown, write_frame

    found = pretrained.run_all(work / "scores", redraws, work / "pretrained", bags, bayes)
    found["tables"] = pretrained.by_separability(found)
    found["labelled rows"] = found["labels"].replace(0, "all").astype(str)
    about = (
        f"Geometric mean over tables of the ratio of the AE of `Pretrained` to a rival's, with a 95 % interval over "
        f"tables. {found['table'].nunique()} development tables; 50, 200, 1,000 and all labelled rows, "
        f"{found['seed'].nunique()} redraw(s); logistic regression, forest and boosting; {bags} bags of 50, 250 and "
        f"1,000 rows for each mix. Made by `python -m experiments pretrain compare --bags {bags}`."
    )
    parts = [pretrained.summary(found), pretrained.facts(found)]
    parts += [pretrained.intervals_by(found, column) for column in ("size", "labelled rows", "tables")]
    text = "\n\n".join(to_markdown(part) for part in [*parts, pretrained.worst_tables(found)])
    write_frame(output / "pretrained", pretrained.means(found), f"{about}\n\n{text}")
    click.echo(text)
    wrote(output / "pretrained.csv", output / "pretrained.md")


@pretrain.command()
@options("work", "output")
def stack(work: Path, output: Path) -> None:
    """Whether the mean of the posteriors of three classifiers is better than those of the best classifier.

    Example: python -m experiments pretrain stack
    """
    from experiments.pretrained_stack import compare_stacks
    from experiments.tables import to_markdown, write_frame

    found = compare_stacks(work / "scores")
    about = (
        "Mean of the posteriors of logistic regression, forest and boosting, and the best of the three by log-loss: "
        "share of the fits where the mean has the lower log-loss, and the geometric mean over tables of the ratio of "
        "AEs (stack / best), over all fits and over those with the lower log-loss. Made by "
        "`python -m experiments pretrain stack`."
    )
    write_frame(output / "pretrained_stack", found, f"{about}\n\n{to_markdown(found)}")
    click.echo(to_markdown(found))
    wrote(output / "pretrained_stack.csv", output / "pretrained_stack.md")


@pretrain.command()
@click.option("--bags", default=20, show_default=True, type=click.IntRange(2), help="Bags of each size.")
@options("output")
def consistency(bags: int, output: Path) -> None:
    """Known densities, 100,000 labelled rows: errors relative to maximum likelihood with the densities.

    Example: python -m experiments pretrain consistency
    """
    from experiments.known_densities import relative_errors
    from experiments.tables import to_markdown, write_frame

    found = relative_errors(bags)
    about = (
        f"Root mean squared error of `Pretrained` with 100,000 labelled rows of normal densities and their exact "
        f"posteriors, and of maximum likelihood with the known densities; {bags} bags of each size. Made by "
        "`python -m experiments pretrain consistency`."
    )
    write_frame(output / "pretrained-consistency", found.round(6), f"{about}\n\n{to_markdown(found)}")
    click.echo(to_markdown(found))
    wrote(output / "pretrained-consistency.csv", output / "pretrained-consistency.md")
