"""``python -m experiments RUN``: run one experiment, print its table and write its results."""

from __future__ import annotations

import csv
import dataclasses
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    import histnetq as hq
    from experiments.bagged import BagExperiment
    from experiments.budgets import Budget
    from experiments.runs import Runs

RESULTS = Path(__file__).parent / "results"


class _Commands(click.Group):
    """Commands whose errors are one sentence."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (ValueError, OSError) as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=_Commands)
def main() -> None:
    """The paper's experiments, one command each.

    Finished runs are kept, one per method and seed, and not repeated; a network that was cut off continues from its
    last checkpoint.
    """


_OPTIONS = {
    "methods": click.option("--methods", help="Some of them, with commas between.  [default: all]"),
    "budget": click.option(
        "--budget", "budget_name", type=click.Choice(["quick", "full"]), default="quick", show_default=True,
        help="Minutes to an hour, or as much as the paper's.",
    ),
    "seeds": click.option("--seeds", type=click.IntRange(1), help="Runs of each method, seeded 0, 1, …"),
    "trials": click.option("--trials", type=click.IntRange(1), help="Settings tried for each method, at most."),
    "epochs": click.option("--epochs", type=click.IntRange(1), help="Epochs of the networks, at most."),
    "data": click.option(
        "--data", envvar="HISTNETQ_DATA", type=click.Path(path_type=Path), required=True,
        help="Directory of the data sets; also by the variable HISTNETQ_DATA.",
    ),
    "work": click.option(
        "--work", type=click.Path(path_type=Path), default=Path("runs"), show_default=True,
        help="Directory of finished runs, which are not repeated.",
    ),
    "output": click.option(
        "--output", type=click.Path(path_type=Path), default=RESULTS, show_default="experiments/results",
        help="Directory of tables and figures.",
    ),
}  # fmt: skip


def _options(*names: str) -> Callable[[Any], Any]:
    def add(command: Any) -> Any:
        for name in reversed(names):
            command = _OPTIONS[name](command)
        return command

    return add


def _chosen(named: str | None, every: list[str], option: str = "--methods") -> list[str]:
    """What was asked for by an option, of what there is."""
    wanted = every if named is None else named.split(",")
    unknown = [name for name in wanted if name not in every]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(every)}.", param_hint=option)
    return wanted


def _budget(budgets: Mapping[str, Budget], name: str, **changed: int | None) -> Budget:
    """The named budget, with what was asked for otherwise."""
    changed = {key: value for key, value in changed.items() if value is not None}
    budget: Budget = dataclasses.replace(budgets[name], **changed)  # type: ignore[arg-type]
    return budget


def _load(name: str, data: Path, work: Path) -> BagExperiment:
    from experiments.bagged import BagExperiment
    from experiments.presets import PRESETS

    preset = PRESETS[name]
    try:
        return BagExperiment(name, preset, preset.load(data), work)
    except FileNotFoundError as error:
        raise click.BadParameter(str(error), param_hint="--data") from None


def _wrote(*paths: Path) -> None:
    click.echo(f"written to {', '.join(map(str, paths))}")


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
    _wrote(output)


def _on_bags(name: str, what: str) -> None:
    """Add a command for a data set of labelled rows and bags."""

    @main.command(name=name, help=f"All methods on {what}.\n\nExample: python -m experiments {name} --data DIRECTORY")
    @_options("methods", "budget", "seeds", "trials", "epochs", "data", "work", "output")
    def run(
        methods: str | None, budget_name: str, seeds: int | None, trials: int | None, epochs: int | None,
        data: Path, work: Path, output: Path,
    ) -> None:  # fmt: skip
        from experiments.bagged import METHODS, about
        from experiments.budgets import BUDGETS
        from experiments.tables import write_table

        chosen = _chosen(methods, METHODS)
        budget = _budget(BUDGETS, budget_name, seeds=seeds, trials=trials, epochs=epochs)
        experiment = _load(name, data, work)
        budget = budget.at(experiment.preset.pace)
        if trials is not None and trials > max(1, len(experiment.preset.settings)):
            most = len(experiment.preset.settings)
            raise click.BadParameter(f"{trials} is more than the {most} settings of networks.", param_hint="--trials")
        runs = experiment.runs(budget)
        runs.fill(chosen, partial(experiment.run, budget=budget), click.echo)
        click.echo()
        prevalences = experiment.data.train.label_prevalences()[0]
        text, same = about(name, experiment, budget), dict.fromkeys(("ae", "rae"), runs)
        paper = experiment.preset.paper
        for comparison in write_table(experiment.data.test, prevalences, same, METHODS, output / name, text, paper):
            click.echo(comparison)
        _wrote(*(output / f"{name}.{ending}" for ending in ("csv", "md", "tex")))


for _name, _what in {
    "imdb": "IMDb film reviews, an analogue of LeQua's T1A",
    "newsgroups": "20 newsgroups, an analogue of LeQua's T1B",
    "goemotions": "GoEmotions, an analogue of LeQua's T1B",
    "lequa-t1a": "LeQua 2022, task T1A, with the paper's networks",
    "lequa-t1b": "LeQua 2022, task T1B, with the paper's networks",
}.items():
    _on_bags(_name, _what)


@main.command(name="fashion-mnist")
@_options("methods", "budget", "seeds", "trials", "epochs")
@click.option("--encoder", type=click.Choice(["frozen", "finetune", "scratch"]), default="frozen", show_default=True,
              help="Of the images: the classifier's, once; the classifier's, trained on; learned anew, as in the "
              "paper. The last two are for networks, with the paper's hyperparameters.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(min=0), default=90.0, show_default=True,
              help="Training of each network from images, at most.")  # fmt: skip
@click.option("--measures", default="ae,rae", show_default=True, help="What networks are trained for.")
@click.option("--data", type=click.Path(path_type=Path),
              help="Directory of the IDX files.  [default: Debian's package]")  # fmt: skip
@_options("work", "output")
def fashion_mnist(
    methods: str | None, budget_name: str, seeds: int | None, trials: int | None, epochs: int | None, encoder: str,
    minutes: float, measures: str, data: Path | None, work: Path, output: Path,
) -> None:  # fmt: skip
    """All methods on Fashion-MNIST.

    \b
    Examples: python -m experiments fashion-mnist --methods EMQ-BCTS,HistNetQ-hard
              python -m experiments fashion-mnist --encoder scratch --methods HistNetQ-hard --measures ae
    """
    from experiments import fashion, pixels
    from experiments.networks import NETWORKS
    from experiments.tables import write_table
    from histnetq import datasets

    every = fashion.METHODS if encoder == "frozen" else [*NETWORKS]
    chosen = _chosen(methods, every)
    try:
        images = datasets.fashion_mnist(data)
    except FileNotFoundError as error:
        raise click.BadParameter(str(error), param_hint="--data") from None
    budget = _budget(fashion.BUDGETS, budget_name, seeds=seeds, trials=trials, epochs=epochs)
    wanted, directory = _chosen(measures, ["ae", "rae"], "--measures"), work / "fashion-mnist"
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
    _wrote(*(output / f"{name}.{ending}" for ending in ("csv", "md", "tex")))


@main.command(name="nz-elections")
@_options("methods", "budget", "seeds", "epochs", "data", "work", "output")
def nz_elections(
    methods: str | None, budget_name: str, seeds: int | None, epochs: int | None, data: Path, work: Path, output: Path
) -> None:
    """From party votes to candidate votes in New Zealand, where only totals are known.

    Example: python -m experiments nz-elections --data DIRECTORY
    """
    from experiments import elections
    from experiments.runs import Runs, digest
    from experiments.tables import write_table

    chosen = _chosen(methods, elections.METHODS)
    budget = _budget(elections.BUDGETS, budget_name, seeds=seeds, epochs=epochs)
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
    _wrote(*(output / f"nz-elections.{ending}" for ending in ("csv", "md", "tex")))


@main.command()
@click.option("--on", default="newsgroups,imdb", show_default=True, help="Data sets, with commas between.")
@_options("budget", "seeds", "epochs", "data", "work", "output")
def bins(
    on: str, budget_name: str, seeds: int | None, epochs: int | None, data: Path, work: Path, output: Path
) -> None:
    """HistNetQ with 8, 16, 32 and 64 bins (the paper's table by number of bins).

    Example: python -m experiments bins --data DIRECTORY
    """
    from experiments import paper, variants
    from experiments.budgets import VARIANTS
    from experiments.tables import write_frame

    budget = _budget(VARIANTS, budget_name, seeds=seeds, epochs=epochs)
    found = _vary(on, "bins", lambda preset: variants.bin_variants(), budget, data, work)
    text = (
        "HistNetQ by number of bins; the data set's first setting, "
        f"{budget.words()}. Beside: the paper's, on LeQua-T1B. "
        "Made by `python -m experiments bins`.\n"
    )
    head = ["| bins | " + " | ".join(f"AE, {name} | RAE, {name}" for name in found) + " | AE, paper | RAE, paper |"]
    lines = [*head, "| --: |" + " --: |" * (2 * len(found) + 2)]
    for n in map(str, variants.BINS):
        rows = [part.table.set_index("variant").loc[n] for part in found.values()]
        cells = [f"{row[measure]:.4f}" for row in rows for measure in ("ae", "rae")]
        lines.append(f"| {n} | {' | '.join(cells + [f'{value:.4f}' for value in paper.BINS[n]])} |")
    write_frame(output / "bins", variants.joined(found), text + "\n" + "\n".join(lines))
    click.echo("\n".join(lines))
    _wrote(output / "bins.csv", output / "bins.md")


@main.command(name="mixer-ablation")
@click.option("--on", default="imdb,newsgroups", show_default=True, help="Data sets, with commas between.")
@_options("budget", "seeds", "epochs", "data", "work", "output")
def mixer_ablation(
    on: str, budget_name: str, seeds: int | None, epochs: int | None, data: Path, work: Path, output: Path
) -> None:
    """All five networks with and without the Bag Mixer, and HistNetQ with few and many real bags.

    Example: python -m experiments mixer-ablation --data DIRECTORY
    """
    from experiments import figures, variants
    from experiments.budgets import VARIANTS
    from experiments.tables import write_frame

    budget = _budget(VARIANTS, budget_name, seeds=seeds, epochs=epochs)
    found = _vary(
        on, "mixer-ablation", lambda preset: variants.mixer_variants(preset.real), budget, data, work
    )  # fmt: skip
    parts, panels = [], []
    for name, part in found.items():
        preset = part.experiment.preset
        table = variants.mixer_table(part.table, preset.real, preset.paper)
        parts.append(f"{preset.what}; beside: the paper's, on {preset.paper}.\n\n{table}")
        for column, kind in enumerate(("training", "validation")):
            warmup = preset.training.warmup
            curves = {
                variant.removeprefix("HistNetQ-hard "): runs[0].curves[warmup:, column]
                for variant, runs in part.runs.items()
                if variant.startswith("HistNetQ-hard")
            }
            panels.append(partial(
                figures.draw_curves, title=f"HistNetQ on {name}", curves=curves, label=f"{kind} RAE", before=warmup
            ))  # fmt: skip
    about = (
        "Networks on the given bags alone, and with bags that the Bag Mixer makes of them; in parentheses how much "
        "higher the error is without. The settings are the data set's first, "
        f"{budget.words()}; the best epoch by the validation bags. "
        "Made by `python -m experiments mixer-ablation`."
    )
    write_frame(output / "mixer-ablation", variants.joined(found), "\n\n".join([about, *parts]))
    figures.save(output / "mixer-ablation.png", panels)
    click.echo("\n\n".join(parts))
    _wrote(*(output / f"mixer-ablation.{ending}" for ending in ("csv", "md", "png")))


def _vary(
    on: str, place: str, make: Callable[[Any], Any], budget: Budget, data: Path, work: Path
) -> dict[str, Any]:  # fmt: skip
    """The variants of an experiment on each of its data sets."""
    from experiments import variants
    from experiments.presets import PRESETS

    found = {}
    for name in _chosen(on, [*PRESETS], "--on"):
        experiment = _load(name, data, work)
        click.echo(f"{name}:")
        runs = variants.run_variants(experiment, place, make(experiment.preset), budget, click.echo)
        table = variants.variant_table(name, experiment.data.test, runs)
        found[name] = variants.Found(experiment, runs, table)
    return found


@main.command(name="mixer-error")
@click.option("--on", default="imdb,newsgroups", show_default=True, help="Data sets, with commas between.")
@_options("data", "work", "output")
def mixer_error(on: str, data: Path, work: Path, output: Path) -> None:
    """How wrong the labels of mixed bags are, beside the estimates of EMQ-BCTS for the same bags.

    Example: python -m experiments mixer-error --data DIRECTORY
    """
    import pandas as pd

    from experiments import figures
    from experiments.mixing import label_errors
    from experiments.presets import FILES, read_labels

    panels, rows = [], []
    for name in _chosen(on, [*FILES], "--on"):
        experiment = _load(name, data, work)
        found = label_errors(experiment, read_labels(name, data))
        for measure, errors in found.items():
            label = f"{measure.upper()} of a mixed bag"
            panels.append(partial(figures.draw_errors, title=name, errors=errors, label=label))
            for who, values in errors.items():
                means = {"mean": values.mean(), "sd": values.std(), "n_bags": len(values)}
                rows.append({"data": name, "what": who, "measure": measure, **means})
                click.echo(f"{name}, {who}: mean {measure.upper()} {means['mean']:.4f}, sd {means['sd']:.4f}")
    output.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(output / "mixer-error.csv", index=False, lineterminator="\n")
    figures.save(output / "mixer-error.png", panels)
    _wrote(output / "mixer-error.csv", output / "mixer-error.png")


@main.command()
@click.option("--on", default="imdb,newsgroups,goemotions,fashion-mnist", show_default=True,
              help="Data sets, with commas between.")  # fmt: skip
@click.option("--measure", type=click.Choice(["ae", "rae"]), default="rae", show_default=True)
@_options("methods", "budget", "seeds", "data", "work", "output")
def shift(
    on: str, measure: str, methods: str | None, budget_name: str, seeds: int | None, data: Path, work: Path,
    output: Path,
) -> None:  # fmt: skip
    """Error by the amount of prior shift, of the methods that the data sets' own commands have finished.

    Example: python -m experiments shift --on imdb --data DIRECTORY
    """
    import pandas as pd

    import histnetq as hq
    from experiments import figures
    from experiments.bagged import METHODS
    from experiments.presets import PRESETS

    shown = ["CC", "PACC", "EMQ-BCTS", "DeepSets-avg", "SetTransformer", "HistNetQ-hard"]
    chosen = shown if methods is None else _chosen(methods, METHODS)
    if len(chosen) > 7:
        raise click.BadParameter(f"{len(chosen)} lines are too many, expected at most 7.", param_hint="--methods")
    panels, tables = [], []
    for name in _chosen(on, [*PRESETS, "fashion-mnist"], "--on"):
        test, train, runs = _finished(name, measure, budget_name, seeds, data, work)
        finished = {method: [run.estimates for run in runs.read(method)] for method in chosen}
        lacking = [method for method, found in finished.items() if not found]
        if lacking:
            command = f"python -m experiments {name} --budget {budget_name}"
            raise click.UsageError(f"{lacking[0]} is not finished; run {command} first.")
        comparison = hq.compare(finished, test, measures=[measure], train_prevalences=train)
        panels.append(partial(
            figures.draw_by_shift, title=name, comparison=comparison, methods=chosen, measure=measure
        ))  # fmt: skip
        table = comparison.by_shift(8)
        table.columns = ["n_bags", *(method for method, _ in table.columns[1:])]
        tables.append(table.reset_index().assign(data=name, measure=measure))
    output.mkdir(parents=True, exist_ok=True)
    pd.concat(tables).to_csv(output / "shift.csv", index=False, lineterminator="\n")
    figures.save(output / "shift.png", panels)
    _wrote(output / "shift.csv", output / "shift.png")


def _finished(
    name: str, measure: str, budget_name: str, seeds: int | None, data: Path, work: Path
) -> tuple[hq.Bags, NDArray[np.float64], Runs]:
    """The test bags of a data set, the prevalences in training, and the runs that are finished."""
    from experiments import fashion
    from experiments.budgets import BUDGETS

    if name == "fashion-mnist":
        budget = _budget(fashion.BUDGETS, budget_name, seeds=seeds)
        return fashion.finished(measure, budget, work / "fashion-mnist")
    experiment = _load(name, data, work)
    prevalences = experiment.data.train.label_prevalences()[0]
    return experiment.data.test, prevalences, experiment.runs(_budget(BUDGETS, budget_name, seeds=seeds))


@main.command(name="shift-types")
@click.option("--on", default="imdb", show_default=True, type=click.Choice(["imdb", "newsgroups", "goemotions"]))
@_options("budget", "seeds", "epochs", "data", "work", "output")
def shift_types(
    on: str, budget_name: str, seeds: int | None, epochs: int | None, data: Path, work: Path, output: Path
) -> None:
    """Methods that learn from bags and from labelled rows, under prior shift and under covariate shift.

    Example: python -m experiments shift-types --data DIRECTORY
    """
    from experiments.budgets import VARIANTS
    from experiments.presets import read_labels
    from experiments.shift_types import run_shift_types
    from experiments.tables import to_markdown, write_frame

    experiment = _load(on, data, work)
    budget = _budget(VARIANTS, budget_name, seeds=seeds, epochs=epochs)
    table = run_shift_types(experiment, read_labels(on, data), budget, click.echo)
    about = (
        f"{experiment.preset.what}: test bags of {experiment.data.test.sizes[0]} under prior shift (APP) and under "
        "covariate shift (P(X) tilted by 1.5 standard deviations along a random direction of each bag). Networks learn "
        "from 700 bags under one of the two, the others from the labelled rows, by one logistic regression (C=0.01). "
        f"Networks: {budget.words()}. Made by `python -m experiments shift-types --on {on}`."
    )
    write_frame(output / f"shift-types-{on}", table, f"{about}\n\n{to_markdown(table)}")
    click.echo(table.to_string(index=False, float_format="{:.4f}".format))
    _wrote(output / f"shift-types-{on}.csv", output / f"shift-types-{on}.md")


@main.command()
@click.option("--on", default="digits,imdb,newsgroups", show_default=True, help="Data sets, with commas between.")
@click.option("--splits", default=20, show_default=True, type=click.IntRange(1), help="Of the held-out rows.")
@click.option("--bags", default=100, show_default=True, type=click.IntRange(1), help="On which to compare bootstraps.")
@click.option(
    "--data", envvar="HISTNETQ_DATA", type=click.Path(path_type=Path), help="Directory of the text data sets."
)
@_options("work", "output")
def coverage(on: str, splits: int, bags: int, data: Path | None, work: Path, output: Path) -> None:
    """How often intervals hold the truth, and how wide they are, beside QuaPy's bootstrap.

    Example: python -m experiments coverage --on digits
    """
    import pandas as pd

    from experiments import coverage as experiment
    from experiments import figures
    from experiments.tables import to_markdown, write_frame

    parts = []
    for name in _chosen(on, list(experiment.DATA), "--on"):
        trained = experiment.load_trained(name, data, work / "coverage")
        parts.append(experiment.run_conformal(name, trained, splits, n_calibration=1000, n_test=2000))
        parts.append(experiment.run_bootstrap(name, trained, bags, n_resamples=200))
        click.echo(experiment.summary(pd.concat(parts[-2:])).to_string(index=False, float_format="{:.4f}".format))
    table = pd.concat(parts)
    about = (
        "Intervals of quantifiers trained once (text: HistNetQ from 700 bags of known proportions, the others from the "
        "labelled rows). Conformal: held-out rows are halved again and again, calibration bags drawn from one half "
        "(1,000) and test bags from the other (2,000), by APP, their sizes from a fifth of the usual to the usual. "
        "coverage: of the classes' intervals, mean over classes and bags; joint: of the joint region (QuaPy's: all "
        "intervals at once); width: mean of the intervals; sd: over splits. Bootstraps: 200 resamples, on fewer bags. "
        "Made by `python -m experiments coverage`."
    )
    found = experiment.summary(table)
    write_frame(output / "coverage", table, f"{about}\n\n{to_markdown(found)}")
    figures.save(output / "coverage.png", figures.coverage_panels(found), columns=3)
    _wrote(output / "coverage.csv", output / "coverage.md", output / "coverage.png")


@main.command()
@_options("data", "work", "output")
def hdy(data: Path, work: Path, output: Path) -> None:
    """HDy's mixture of two histograms beside the histogram of a bag.

    Example: python -m experiments hdy --data DIRECTORY
    """
    from experiments import figures
    from experiments.mixture import mixture_panels

    experiment = _load("imdb", data, work)
    figures.save(output / "hdy.png", mixture_panels(experiment), columns=3)
    _wrote(output / "hdy.png")


if __name__ == "__main__":
    main()
