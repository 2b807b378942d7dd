"""``python -m experiments RUN``: run one experiment, print its table and write its results as CSV."""

from __future__ import annotations

import csv
import itertools
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

if TYPE_CHECKING:
    from experiments.runs import Run

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


def _chosen(methods: str | None, every: list[str]) -> list[str]:
    """The methods that were asked for."""
    wanted = every if methods is None else methods.split(",")
    unknown = [name for name in wanted if name not in every]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(every)}.", param_hint="--methods")
    return wanted


def _analogue(command: str, file: str, what: str) -> None:
    """Add a command for a data set of labelled rows and bags."""

    @main.command(name=command, help=f"All methods on {what}.")
    @click.option("--methods", help="Some of them, with commas between.  [default: all]")
    @click.option("--seeds", default=1, show_default=True, help="Runs of each method, seeded 0, 1, …")
    @click.option("--trials", default=8, show_default=True, help="Settings tried for each method on validation bags.")
    @click.option("--epochs", default=60, show_default=True, help="Epochs of the networks, at most.")
    @click.option("--data", envvar="HISTNETQ_DATA", type=click.Path(path_type=Path), required=True,
                  help="Directory of the data sets; also by the variable HISTNETQ_DATA.")  # fmt: skip
    @click.option("--work", type=click.Path(path_type=Path), default=Path("runs"), show_default=True,
                  help="Directory of finished runs, which are not repeated.")  # fmt: skip
    @click.option("--output", type=click.Path(path_type=Path), default=RESULTS, show_default="experiments/results")
    def run(methods: str | None, seeds: int, trials: int, epochs: int, data: Path, work: Path, output: Path) -> None:
        from experiments.classical import CLASSICAL, CLASSIFIER, Posteriors, run_classical
        from experiments.networks import NETWORKS, run_on_bags
        from experiments.runs import Runs
        from experiments.tables import write_table
        from histnetq.datasets import read_npz

        every = [*CLASSICAL, *NETWORKS]
        chosen = _chosen(methods, every)
        try:
            loaded = read_npz(data / file)
        except FileNotFoundError as error:
            raise click.BadParameter(str(error), param_hint="--data") from None
        directory = work / f"{command}-{loaded.train.fingerprint()[:8]}"
        runs, posteriors = Runs(directory / f"trials-{trials}", seeds), Posteriors(loaded, directory)

        def act(name: str, seed: int) -> Run:
            if name in NETWORKS:
                return run_on_bags(name, seed, loaded, trials, epochs, directory)
            return run_classical(name, seed, loaded, posteriors, trials)

        runs.fill(chosen, act, click.echo)
        about = (
            f"{what}, {len(loaded.test):,} test bags of {loaded.test.sizes[0]}. Classical methods: logistic regression "
            f"({', '.join(CLASSIFIER)} chosen), trained on {len(loaded.train.index):,} labelled rows. Networks: "
            f"encoders of their own, learned from {len(loaded.bags)} bags of known proportions. Every method is "
            f"chosen among {trials} settings by RAE on {len(loaded.validation)} validation bags; seeds: {seeds}. "
            f"Made by `python -m experiments {command}{'' if methods is None else f' --methods {methods}'}`."
        )
        click.echo()
        prevalences = loaded.train.label_prevalences()[0]
        same = dict.fromkeys(("ae", "rae"), runs)
        for comparison in write_table(loaded.test, prevalences, same, every, output / command, about):
            click.echo(comparison)
        click.echo(f"written to {output / command}.csv and .md")


_analogue("imdb", "binary_imdb_w2v300.npz", "IMDb film reviews, 2 classes (an analogue of LeQua's T1A)")
_analogue("newsgroups", "multi20_newsgroups_w2v300.npz", "20 newsgroups (an analogue of LeQua's T1B)")
_analogue("goemotions", "multi28_goemotions_w2v300.npz", "GoEmotions, 28 very unequal classes (an analogue of T1B)")


@main.command(name="fashion-mnist")
@click.option("--methods", help="Some of them, with commas between.  [default: all]")
@click.option("--seeds", default=1, show_default=True, help="Runs of each method, seeded 0, 1, …")
@click.option("--trials", default=2, show_default=True, help="Settings tried for each method, at most.")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Directory of the IDX files.  [default: Debian's package]"
)
@click.option("--work", type=click.Path(path_type=Path), default=Path("runs"), show_default=True,
              help="Directory of finished runs, which are not repeated.")  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS, show_default="experiments/results")
def fashion_mnist(methods: str | None, seeds: int, trials: int, data: Path | None, work: Path, output: Path) -> None:
    """All methods on Fashion-MNIST, with a frozen encoder.

    Example: python -m experiments fashion-mnist --methods EMQ-BCTS,HistNetQ-hard
    """
    from experiments import fashion
    from experiments.images import encoded_images
    from experiments.runs import Runs
    from experiments.tables import write_table
    from histnetq import datasets

    chosen = _chosen(methods, fashion.METHODS)
    try:
        images = datasets.fashion_mnist(data)
    except FileNotFoundError as error:
        raise click.BadParameter(str(error), param_hint="--data") from None
    directory = work / "fashion-mnist"
    encoded = encoded_images(images, directory / "images.npz", click.echo)
    accuracy = float((encoded["test_posteriors"].argmax(1) == images.test.labels).mean())
    click.echo(f"classifier: test accuracy {accuracy:.4f}")
    frozen = fashion.Frozen(images, encoded)
    runs = {}
    for measure in ("ae", "rae"):
        runs[measure] = Runs(directory / f"{measure}-trials-{trials}", seeds)
        act = partial(fashion.run, loss=measure, data=frozen, trials=trials, work=directory)
        runs[measure].fill(chosen, act, click.echo)
    about = (
        f"Fashion-MNIST, {len(frozen.test):,} test bags of {fashion.BAG_SIZE} by APP. Frozen encoder: the classifier "
        f"(test accuracy {accuracy:.4f}) says of each image how likely each class is; methods learn from 10,000 images "
        f"that it has not seen. At most {trials} settings for each method and measure; seeds: {seeds}. Networks are "
        "trained for the measure of their column. Made by `python -m experiments fashion-mnist`."
    )
    uniform = np.full(len(frozen.classes), 1 / len(frozen.classes))
    for comparison in write_table(frozen.test, uniform, runs, fashion.METHODS, output / "fashion-mnist", about):
        click.echo()
        click.echo(comparison)
    click.echo(f"written to {output / 'fashion-mnist'}.csv and .md")


if __name__ == "__main__":
    main()
