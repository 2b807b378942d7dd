"""Commands that fill a table with all methods on one data set."""

from __future__ import annotations

import csv
import itertools
from functools import partial
from pathlib import Path

import click
import numpy as np

from experiments.arguments import RESULTS, budget_of, choose, load, main, options, wrote

__all__: list[str] = []


@main.command()
@click.option("--bins", default="hard", type=click.Choice(["hard", "soft", "rbf", "sigmoid"]), show_default=True)
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1), help="Number of runs, seeded 0, 1, …")
@click.option(
    "--steps", default=3000, show_default=True, type=click.IntRange(1), help="Updates of the weights per run."
)
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
    wrote(output)


@main.command()
@click.option("--on", type=click.Choice(["digits", "imdb", "newsgroups", "goemotions"]), default="digits",
              show_default=True, help="Labelled digits, or texts in bags of known proportions.")  # fmt: skip
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(0),
              help="Processor time of each training, its start included.")  # fmt: skip
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1), help="Number of runs, seeded 0, 1, …")
@click.option("--data", envvar="HISTNETQ_DATA", type=click.Path(path_type=Path), help="Directory of the texts.")
@options("methods", "work", "output")
def starts(
    on: str, seconds: float, seeds: int, data: Path | None, methods: str | None, work: Path, output: Path
) -> None:
    """DeepSets, SetTransformer and GMNet from random weights and in stages.

    Example: python -m experiments starts --on digits --methods DeepSets
    """
    from experiments.starts import NETWORKS, run_starts, starts_table
    from experiments.tables import write_frame

    if on != "digits" and data is None:
        raise click.UsageError(f"{on} needs --data, the directory of the data sets.")
    found = run_starts(on, choose(methods, list(NETWORKS)), seconds, seeds, data, work, click.echo)
    given = "898 labelled digits" if on == "digits" else f"{on}, in bags of known proportions"
    about = (
        f"{given}: mean of up to {seeds} seeds, {seconds:g} seconds of processor time each, the start included; the "
        f"best epoch by validation bags. Made by `python -m experiments starts --on {on} --seconds {seconds:g} "
        f"--seeds {seeds}{f' --methods {methods}' if methods else ''}`."
    )
    write_frame(output / f"starts-{on}", found, f"{about}\n\n{starts_table(found)}")
    click.echo(starts_table(found))
    wrote(output / f"starts-{on}.csv", output / f"starts-{on}.md")


def _on_bags(name: str, what: str) -> None:
    """Add a command for a data set of labelled rows and bags."""

    @main.command(name=name, help=f"All methods on {what}.\n\nExample: python -m experiments {name} --data DIRECTORY")
    @options("methods", "budget", "seeds", "trials", "epochs", "data", "work", "output")
    def run(
        methods: str | None, budget_name: str, seeds: int | None, trials: int | None, epochs: int | None,
        data: Path, work: Path, output: Path,
    ) -> None:  # fmt: skip
        from experiments.bagged import METHODS, about
        from experiments.budgets import BUDGETS
        from experiments.presets import PRESETS
        from experiments.tables import write_table

        chosen, preset = choose(methods, METHODS), PRESETS[name]
        if trials is not None and trials > max(1, len(preset.settings)):
            most = len(preset.settings)
            raise click.BadParameter(f"{trials} is more than the {most} settings of networks.", param_hint="--trials")
        budget = budget_of(BUDGETS, budget_name, seeds=seeds, trials=trials, epochs=epochs).at(preset.pace)
        experiment = load(name, data, work)
        runs = experiment.runs(budget)
        runs.fill(chosen, partial(experiment.run, budget=budget), click.echo)
        click.echo()
        prevalences = experiment.data.train.label_prevalences()[0]
        text, same = about(name, experiment, budget), dict.fromkeys(("ae", "rae"), runs)
        for comparison in write_table(
            experiment.data.test, prevalences, same, METHODS, output / name, text, preset.paper
        ):
            click.echo(comparison)
        wrote(*(output / f"{name}.{ending}" for ending in ("csv", "md", "tex")))


for _name, _what in {
    "imdb": "IMDb film reviews, an analogue of LeQua's T1A",
    "newsgroups": "20 newsgroups, an analogue of LeQua's T1B",
    "goemotions": "GoEmotions, an analogue of LeQua's T1B",
    "lequa-t1a": "LeQua 2022, task T1A, with the paper's networks",
    "lequa-t1b": "LeQua 2022, task T1B, with the paper's networks",
    "words": "words of 28 languages, which are made of Debian's word lists and kept in the directory of the data",
    "words-2": "Portuguese and Spanish words, which are made and kept as those of the command words",
}.items():
    _on_bags(_name, _what)


@main.command(name="fashion-mnist")
@options("methods", "budget", "seeds", "trials", "epochs")
@click.option("--encoder", type=click.Choice(["frozen", "finetune", "scratch"]), default="frozen", show_default=True,
              help="Of the images: the classifier's, once; the classifier's, trained on; learned anew, as in the "
              "paper. The last two are for networks, with the paper's hyperparameters.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(min=0), default=90.0, show_default=True,
              help="Training of each network from images, at most.")  # fmt: skip
@click.option("--measures", default="ae,rae", show_default=True, help="What networks are trained for.")
@click.option("--data", type=click.Path(path_type=Path),
              help="Directory of the IDX files.  [default: all usual]")  # fmt: skip
@options("work", "output")
def fashion_mnist(
    methods: str | None, budget_name: str, seeds: int | None, trials: int | None, epochs: int | None, encoder: str,
    minutes: float, measures: str, data: Path | None, work: Path, output: Path,
) -> None:  # fmt: skip
    """All methods on Fashion-MNIST.

    \b
    Examples: python -m experiments fashion-mnist --methods EMQ-BCTS,HistNetQ-hard
              python -m experiments fashion-mnist --encoder scratch --methods HistNetQ-hard --measures ae
    """
    from experiments import fashion, fashion_mnist, pixels
    from experiments.networks import NETWORKS
    from experiments.tables import write_table

    every = fashion.METHODS if encoder == "frozen" else [*NETWORKS]
    chosen, wanted = choose(methods, every), choose(measures, ["ae", "rae"], "--measures")
    budget = budget_of(fashion.BUDGETS, budget_name, seeds=seeds, trials=trials, epochs=epochs)
    directory = work / "fashion-mnist"
    try:
        images = fashion_mnist.read_fashion_mnist(data)
    except FileNotFoundError as error:
        raise click.BadParameter(str(error), param_hint="--data") from None
    if encoder == "frozen":
        test, runs, about = fashion.fill(images, chosen, wanted, budget, directory, click.echo)
        name = "fashion-mnist"
    else:
        test, runs, about = pixels.fill(
            images, chosen, wanted, budget.seeds, encoder, minutes, epochs or 1000, directory, click.echo
        )  # fmt: skip
        name = f"fashion-mnist-{encoder}"
    uniform = np.full(len(images.classes), 1 / len(images.classes))
    for comparison in write_table(test, uniform, runs, every, output / name, about, "Fashion-MNIST"):
        click.echo()
        click.echo(comparison)
    wrote(*(output / f"{name}.{ending}" for ending in ("csv", "md", "tex")))


@main.command(name="nz-elections")
@options("methods", "budget", "seeds", "epochs", "data", "work", "output")
def nz_elections(
    methods: str | None, budget_name: str, seeds: int | None, epochs: int | None, data: Path, work: Path, output: Path
) -> None:
    """From party votes to candidate votes in New Zealand, where only totals are known.

    Example: python -m experiments nz-elections --data DIRECTORY
    """
    from experiments import elections
    from experiments.runs import Runs, digest
    from experiments.tables import write_table

    chosen = choose(methods, elections.METHODS)
    budget = budget_of(elections.BUDGETS, budget_name, seeds=seeds, epochs=epochs)
    try:
        units = elections.read_elections(data / elections.FILE)
    except FileNotFoundError:
        raise click.BadParameter(f"{data / elections.FILE} does not exist.", param_hint="--data") from None
    directory = work / "nz-elections"
    identity = digest(
        units.before.fingerprint(), units.test.fingerprint(), elections.SPACE, elections.TRAINING.identity()
    )
    place = directory / f"{identity}-{budget.name('ae')}"
    runs = Runs(place, budget.seeds)
    runs.fill(chosen, partial(elections.run, data=units, budget=budget, work=place), click.echo)
    about = (
        f"New Zealand's elections: {len(units.test):,} voting units of 2020 estimated from their party votes, learned "
        f"from {len(units.before):,} units before, by ridge from all, by networks from five sixths; the others choose "
        f"among {budget.trials} settings by AE, for which networks are trained, {budget.words()}. "
        "Made by `python -m experiments nz-elections`."
    )
    for comparison in write_table(
        units.test, units.mean(), {"ae": runs}, elections.METHODS, output / "nz-elections", about
    ):
        click.echo(comparison)
    wrote(*(output / f"nz-elections.{ending}" for ending in ("csv", "md", "tex")))


@main.command("nz-transitions")
@click.option("--elections", "years", default="2014,2017,2020", show_default=True, help="Comma-separated elections.")
@options("data", "output")
def nz_transitions(years: str, data: Path, output: Path) -> None:
    """New Zealand's elections: which candidates the voters of each party chose, beside the published tables.

    Elections that are not named keep their rows in the files of results.

    Example: python -m experiments nz-transitions --data DIRECTORY
    """
    from experiments import elections
    from experiments import transitions as experiment
    from experiments.tables import to_markdown, write_frame

    every = experiment.read_elections(data / elections.FILE)
    tested = [one for one in every if str(one.year) in choose(years, [str(one.year) for one in every], "--elections")]
    tables = {
        "nz-transitions": experiment.errors_table(tested),
        "nz-transitions-intervals": experiment.coverage_table(every, tested),
    }
    about = (
        "Tables of party votes by candidate votes of each electorate, estimated from the totals of its voting units. "
        "error: the part of the votes in a wrong cell, ½ Σ|n̂ - n| / N, mean over electorates. coverage: of intervals "
        f"of the shares for {experiment.COVERAGE:.0%}, calibrated on the published tables of all earlier elections, or "
        "by a bootstrap of the units. Made by `python -m experiments nz-transitions`."
    )
    for name, table in tables.items():
        table = experiment.with_kept(table.round(6), output / f"{name}.csv")
        write_frame(output / name, table, f"{about}\n\n{to_markdown(table)}")
        click.echo(to_markdown(table))
        wrote(output / f"{name}.csv", output / f"{name}.md")
