"""Commands for the paper's way of learning, on words, and for learning in stages."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from experiments.arguments import choose, load, main, options, wrote

__all__: list[str] = []


@main.command(name="words-paper")
@click.option("--networks", help="Comma-separated networks.  [default: all]")
@click.option("--minutes", type=click.FloatRange(min=0), default=90.0, show_default=True,
              help="Training of each network, at most; more later go on from there.")  # fmt: skip
@click.option("--epochs", type=click.IntRange(1), default=10_000, help="Epochs of each network, at most.")
@options("data", "work", "output")
def words_paper(networks: str | None, minutes: float, epochs: int, data: Path, work: Path, output: Path) -> None:
    """HistNetQ learns words as in the paper: with 8 and 64 bins, with and without the Bag Mixer.

    \b
    Examples: python -m experiments words-paper --data DIRECTORY
              python -m experiments words-paper --networks 8-bins-alone --minutes 10 --data DIRECTORY
    """
    from experiments import figures, paper_way
    from experiments.tables import to_markdown, write_frame

    chosen = choose(networks, paper_way.NAMES, "--networks")
    experiment = load("words", data, work)
    runs = paper_way.run_paper_way(experiment, chosen, minutes, epochs, click.echo)
    curves, errors = paper_way.curves_table(runs), paper_way.errors_table(experiment.data.test, runs)
    about = (
        f"{experiment.preset.what}: HistNetQ with hard bins, learned from {len(experiment.data.bags)} bags as in the "
        f"paper (its hyperparameters of LeQua-T1B, random weights, end to end, for RAE), at most {minutes:g} minutes "
        f"each, one seed; the best epoch by {len(experiment.data.validation)} validation bags, errors on "
        f"{len(experiment.data.test):,} test bags. Beside: the paper's, on LeQua-T1B. "
        f"Made by `python -m experiments words-paper --minutes {minutes:g}`."
    )
    write_frame(output / "words-paper", curves, f"{about}\n\n{to_markdown(errors)}")
    panels = [
        partial(
            figures.draw_over_time, title="HistNetQ on words, the paper's way", label=f"{kind} RAE",
            curves={str(name): (own["seconds"].to_numpy() / 60, own[column].to_numpy())
                    for name, own in curves.groupby("setting", sort=False)},
        )
        for kind, column in {"training": "train", "validation": "validation"}.items()
    ]  # fmt: skip
    figures.save(output / "words-paper.png", panels)
    click.echo(to_markdown(errors))
    wrote(*(output / f"words-paper.{ending}" for ending in ("csv", "md", "png")))


@main.command()
@click.option("--on", default="words", show_default=True, help="Data sets, with commas between.")
@click.option("--measures", default="ae,rae", show_default=True, help="What networks are trained for and chosen by.")
@click.option("--minutes", default=5.0, show_default=True, help="Of training, its start included, for each network.")
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1), help="Seeded 0, 1, …")
@options("methods", "data", "work", "output")
def staged(
    on: str, measures: str, minutes: float, seeds: int, methods: str | None, data: Path, work: Path, output: Path
) -> None:
    """HistNetQ in stages: from proportions alone, and with labelled rows beside them; EMQ-BCTS beside it.

    Example: python -m experiments staged --on imdb,newsgroups,goemotions --methods HistNetQ
    """
    import pandas as pd

    from experiments import staged as experiment
    from experiments.presets import PRESETS
    from experiments.tables import to_markdown, write_frame

    chosen = choose(measures, list(experiment.MEASURES), "--measures")
    wanted, tables = choose(methods, experiment.METHODS), []
    names = choose(on, list(experiment.SETTINGS), "--on")
    for name in names:
        one = experiment.Staged(name, PRESETS[name].load(data), work, minutes, seeds)
        one.fill(wanted, chosen, partial(_tell, name))
        tables.append(experiment.staged_table(one, experiment.names_of(experiment.METHODS, experiment.MEASURES)))
    table = pd.concat(tables)
    means = table.groupby(["data", "method"], sort=False)[["ae", "rae", "minutes"]].mean().reset_index()
    about = (
        "Networks that learn in stages, from 700 bags of known proportions (-labels: and from the labelled rows that "
        f"EMQ-BCTS learns from), at most {minutes:g} minutes each, two cores. One network per measure, chosen among "
        f"the settings of `experiments/staged.py` on 300 validation bags; mean of up to {seeds} seeds; 1,000 test "
        f"bags, scored once. Made by `python -m experiments staged --on {on} --minutes {minutes:g}`."
    )
    file = output / f"staged-{'-'.join(names)}"
    write_frame(file, table.round(6), f"{about}\n\n{to_markdown(means)}")
    click.echo(means.to_string(index=False, float_format="{:.4f}".format))
    wrote(file.with_suffix(".csv"), file.with_suffix(".md"))


@main.command("default-call")
@click.option("--on", default="newsgroups", show_default=True, type=click.Choice(["imdb", "newsgroups", "goemotions"]))
@click.option("--loss", default="rae", show_default=True, type=click.Choice(["ae", "rae"]))
@options("data", "output")
def default_call(on: str, loss: str, data: Path, output: Path) -> None:
    """HistNetQ with all its defaults, from proportions alone: fit(bags, validation=...), on one core.

    Example: python -m experiments default-call --on newsgroups --loss rae
    """
    import time

    import pandas as pd
    import torch

    import histnetq as hq
    from experiments.presets import PRESETS
    from experiments.staged import compact
    from experiments.tables import to_markdown, write_frame

    torch.set_num_threads(1)
    found, began = PRESETS[on].load(data), time.process_time()
    q = hq.HistNetQ(loss=loss, random_state=0).fit(compact(found.bags), validation=compact(found.validation))
    row = {"data": on, "loss": loss, "validation": q.validation_loss_, "cpu_seconds": time.process_time() - began}
    errors = hq.evaluate(q, compact(found.test))
    table = pd.DataFrame([{**row, "ae": errors["ae"].mean(), "rae": errors["rae"].mean(), "n_bags": len(errors)}])
    about = f"Made by `python -m experiments default-call --on {on} --loss {loss}`; one seed, one core."
    write_frame(output / f"default-call-{on}-{loss}", table.round(6), f"{about}\n\n{to_markdown(table)}")
    click.echo(table.to_string(index=False))


@main.command()
@click.option("--table", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="A CSV file of numbers and labels.  [default: Fashion-MNIST]")  # fmt: skip
@click.option("--label", help="Column of the labels.")
@click.option("--images", type=click.IntRange(100), help="Images of Fashion-MNIST.  [default: all]")
@click.option("--minutes", default=5.0, show_default=True, help="Of training, its start included, for each network.")
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1), help="Seeded 0, 1, …")
@options("methods", "work", "output")
def labelled(
    table: Path | None, label: str | None, images: int | None, minutes: float, seeds: int, methods: str | None,
    work: Path, output: Path,
) -> None:  # fmt: skip
    """HistNetQ and EMNetQ from labelled rows alone, beside EMQ-BCTS on the encoder of each.

    \b
    Examples: python -m experiments labelled --images 10000
              python -m experiments labelled --table letters.csv --label letter
    """
    if (table is None) != (label is None) or (table is not None and images is not None):
        raise click.UsageError("Name a table and the column of its labels, or a number of images.")
    from experiments import fashion_mnist
    from experiments import labelled as experiment
    from experiments.tables import to_markdown, write_frame

    chosen = choose(methods, experiment.METHODS)
    if table is not None and label is not None:
        rows = experiment.table_of(table, label)
    else:
        rows = experiment.images_of(fashion_mnist.read_fashion_mnist(), images)
    test, runs = experiment.learn(rows, chosen, minutes, seeds, work, click.echo)
    found = experiment.errors_of(rows, test, runs)
    means = found.groupby(["data", "method"], sort=False)[["ae", "rae", "minutes"]].mean().reset_index()
    about = (
        f"{rows.name}: {len(rows.train.index):,} labelled rows to learn from and {len(rows.held.index):,} that "
        "networks choose by and EMQ-BCTS on their encoders is calibrated on (EMQ-BCTS, of a logistic regression, "
        f"learns from both); networks with their defaults, for AE, at most {minutes:g} minutes; mean of up "
        f"to {seeds} seeds; {len(test):,} test bags of {test.sizes[0]:g} by APP. "
        "Made by `python -m experiments labelled`."
    )
    file = output / f"labelled-{rows.name}"
    write_frame(file, found.round(6), f"{about}\n\n{to_markdown(means)}")
    click.echo(means.to_string(index=False, float_format="{:.4f}".format))
    wrote(file.with_suffix(".csv"), file.with_suffix(".md"))


@main.command()
@click.option(
    "--plans", default="effects,networks,bags", show_default=True, help="Comma-separated plans, in this order."
)
@click.option("--minutes", default=20.0, show_default=True, help="CPU time of each network, at most.")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(1), help="Seeded 0, 1, …")
@options("data", "output")
def converged(plans: str, minutes: float, seeds: int, data: Path, output: Path) -> None:
    """The paper's effects at convergence: bins, Bag Mixer, loss, networks and numbers of bags, on ten languages.

    Every run is a row of converged.csv; a run that is there is not repeated.

    \b
    Examples: python -m experiments converged --data DIRECTORY
              python -m experiments converged --plans effects --seeds 1 --data DIRECTORY
    """
    from experiments import converged as experiment
    from experiments.tables import to_markdown, write_frame

    for plan in choose(plans, list(experiment.PLANS), "--plans"):
        experiment.run_settings(experiment.PLANS[plan](seeds), minutes, data, output, click.echo)
    table = experiment.read_table(output)
    means, verdicts = experiment.means_table(table), experiment.verdicts_table(table)
    about = (
        "Words of ten languages, 64 features, encoder 64→64→32, 500 training and 200 validation bags of 250, random "
        f"weights, end to end, until patience ends the run or {minutes:g} CPU minutes are over; AE and RAE on 1,000 "
        "test bags, means over seeds. Made by `python -m experiments converged`."
    )
    write_frame(output / "converged-findings", verdicts, f"{about}\n\n{to_markdown(means)}\n\n{to_markdown(verdicts)}")
    click.echo(f"{to_markdown(means)}\n\n{to_markdown(verdicts)}")
    wrote(*(output / f"converged{ending}" for ending in (".csv", "-curves.csv", "-findings.csv", "-findings.md")))


def _tell(name: str, told: str) -> None:
    click.echo(f"{name}: {told}")
