"""Commands that vary one thing, or draw a figure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from experiments.arguments import budget_of, choose, load, main, options, wrote

if TYPE_CHECKING:
    from numpy.typing import NDArray

    import histnetq as hq
    from experiments.budgets import Budget
    from experiments.runs import Runs

__all__: list[str] = []


@main.command()
@click.option("--on", default="newsgroups,imdb", show_default=True, help="Data sets, with commas between.")
@options("budget", "seeds", "epochs", "data", "work", "output")
def bins(
    on: str, budget_name: str, seeds: int | None, epochs: int | None, data: Path, work: Path, output: Path
) -> None:
    """HistNetQ with 8, 16, 32 and 64 bins (the paper's table by number of bins).

    Example: python -m experiments bins --data DIRECTORY
    """
    from experiments import paper, variants
    from experiments.budgets import VARIANTS
    from experiments.tables import write_frame

    budget = budget_of(VARIANTS, budget_name, seeds=seeds, epochs=epochs)
    found = _vary(on, "bins", lambda preset: variants.bin_variants(), budget, data, work)
    text = (
        "HistNetQ by number of bins; the data set's first setting, "
        f"{budget.words()}{_longer(found)}. Beside: the paper's, on LeQua-T1B. "
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
    wrote(output / "bins.csv", output / "bins.md")


@main.command(name="mixer-ablation")
@click.option("--on", default="imdb,newsgroups", show_default=True, help="Data sets, with commas between.")
@options("budget", "seeds", "epochs", "data", "work", "output")
def mixer_ablation(
    on: str, budget_name: str, seeds: int | None, epochs: int | None, data: Path, work: Path, output: Path
) -> None:
    """All five networks with and without the Bag Mixer, and HistNetQ with few and many real bags.

    Example: python -m experiments mixer-ablation --data DIRECTORY
    """
    from experiments import figures, variants
    from experiments.budgets import VARIANTS
    from experiments.tables import write_frame

    budget = budget_of(VARIANTS, budget_name, seeds=seeds, epochs=epochs)
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
        f"{budget.words()}{_longer(found)}; the best epoch by the validation bags. "
        "Made by `python -m experiments mixer-ablation`."
    )
    write_frame(output / "mixer-ablation", variants.joined(found), "\n\n".join([about, *parts]))
    figures.save(output / "mixer-ablation.png", panels)
    click.echo("\n\n".join(parts))
    wrote(*(output / f"mixer-ablation.{ending}" for ending in ("csv", "md", "png")))


def _vary(
    on: str, place: str, make: Callable[[Any], Any], budget: Budget, data: Path, work: Path
) -> dict[str, Any]:  # fmt: skip
    """The variants of an experiment on each of its data sets."""
    from experiments import variants
    from experiments.presets import PRESETS

    found = {}
    for name in choose(on, [*PRESETS], "--on"):
        experiment = load(name, data, work)
        click.echo(f"{name}:")
        runs = variants.run_variants(experiment, place, make(experiment.preset), budget, click.echo)
        table = variants.variant_table(name, experiment.data.test, runs)
        found[name] = variants.Found(experiment, runs, table)
    return found


def _longer(found: dict[str, Any]) -> str:
    """Describe the data sets that had more epochs and minutes."""
    times = {name: part.experiment.preset.study for name, part in found.items()}
    return "".join(f"; {name} {study:g} times as long" for name, study in times.items() if study != 1)


@main.command(name="mixer-error")
@click.option("--on", default="imdb,newsgroups", show_default=True, help="Data sets, with commas between.")
@options("data", "work", "output")
def mixer_error(on: str, data: Path, work: Path, output: Path) -> None:
    """How wrong the labels of mixed bags are, beside the estimates of EMQ-BCTS for the same bags.

    Example: python -m experiments mixer-error --data DIRECTORY
    """
    import pandas as pd

    from experiments import figures
    from experiments.mixing import label_errors
    from experiments.presets import FILES, read_labels

    panels, rows = [], []
    for name in choose(on, [*FILES], "--on"):
        experiment = load(name, data, work)
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
    wrote(output / "mixer-error.csv", output / "mixer-error.png")


@main.command()
@click.option("--on", default="imdb,newsgroups,goemotions,fashion-mnist", show_default=True,
              help="Data sets, with commas between.")  # fmt: skip
@click.option("--measure", type=click.Choice(["ae", "rae"]), default="rae", show_default=True)
@options("methods", "budget", "seeds", "data", "work", "output")
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
    chosen = shown if methods is None else choose(methods, METHODS)
    if len(chosen) > 7:
        raise click.BadParameter(f"{len(chosen)} lines are too many, expected at most 7.", param_hint="--methods")
    panels, tables = [], []
    for name in choose(on, [*PRESETS, "fashion-mnist"], "--on"):
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
    wrote(output / "shift.csv", output / "shift.png")


def _finished(
    name: str, measure: str, budget_name: str, seeds: int | None, data: Path, work: Path
) -> tuple[hq.Bags, NDArray[np.float64], Runs]:
    """The test bags of a data set, the prevalences in training, and the runs that are finished."""
    from experiments import fashion
    from experiments.budgets import BUDGETS

    if name == "fashion-mnist":
        budget = budget_of(fashion.BUDGETS, budget_name, seeds=seeds)
        return fashion.finished(measure, budget, work / "fashion-mnist")
    experiment = load(name, data, work)
    prevalences = experiment.data.train.label_prevalences()[0]
    return experiment.data.test, prevalences, experiment.runs(budget_of(BUDGETS, budget_name, seeds=seeds))


@main.command(name="shift-types")
@click.option("--on", default="imdb", show_default=True, type=click.Choice(["imdb", "newsgroups", "goemotions"]))
@options("budget", "seeds", "epochs", "data", "work", "output")
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

    budget = budget_of(VARIANTS, budget_name, seeds=seeds, epochs=epochs)
    experiment = load(on, data, work)
    table = run_shift_types(experiment, read_labels(on, data), budget, click.echo)
    about = (
        f"{experiment.preset.what}: test bags of {experiment.data.test.sizes[0]} under prior shift (APP) and under "
        "covariate shift (P(X) tilted by 1.5 standard deviations along a random direction of each bag). Networks learn "
        "from 700 bags under one of the two, the others from the labelled rows, by one logistic regression (C=0.01). "
        f"Networks: {budget.words()}. Made by `python -m experiments shift-types --on {on}`."
    )
    write_frame(output / f"shift-types-{on}", table, f"{about}\n\n{to_markdown(table)}")
    click.echo(table.to_string(index=False, float_format="{:.4f}".format))
    wrote(output / f"shift-types-{on}.csv", output / f"shift-types-{on}.md")


@main.command()
@click.option("--on", default="imdb", show_default=True, type=click.Choice(["imdb", "newsgroups", "goemotions"]))
@options("budget", "seeds", "trials", "epochs", "data", "work", "output")
def rows(
    on: str, budget_name: str, seeds: int | None, trials: int | None, epochs: int | None, data: Path, work: Path,
    output: Path,
) -> None:  # fmt: skip
    """Accuracy on single rows of EMNetQ, which learns from proportions, beside a classifier that learns from labels.

    Example: python -m experiments rows --on imdb --seeds 3
    """
    from experiments.budgets import BUDGETS
    from experiments.presets import read_labels, read_split
    from experiments.rows import row_accuracies
    from experiments.tables import to_markdown, write_frame

    experiment = load(on, data, work)
    budget = budget_of(BUDGETS, budget_name, seeds=seeds, trials=trials, epochs=epochs).at(experiment.preset.pace)
    table = row_accuracies(experiment, budget, read_labels(on, data), read_split(on, data))
    about = (
        f"{experiment.preset.what}: accuracy on {table['n_rows'][0]:,} single rows for tests, taken as one bag. "
        f"EMNetQ learns from {len(experiment.data.bags)} bags of known proportions, and, once chosen, from the "
        f"{len(experiment.data.validation)} that chose (-labels: and from labelled rows), "
        f"the classifier from {len(experiment.data.train.index):,} labelled rows. {budget.words().capitalize()}. "
        f"Made by `python -m experiments rows --on {on} --seeds {budget.seeds}`."
    )
    write_frame(output / f"rows-{on}", table, f"{about}\n\n{to_markdown(table.drop(columns=['chosen', 'n_rows']))}")
    click.echo(to_markdown(table.drop(columns=["chosen", "n_rows"])))
    wrote(output / f"rows-{on}.csv", output / f"rows-{on}.md")


@main.command()
@options("data", "work", "output")
def sharing(data: Path, work: Path, output: Path) -> None:
    """EMNetQ where each review is in one bag, in a few or in many.

    Example: python -m experiments sharing --data DIRECTORY
    """
    from experiments.presets import read_labels
    from experiments.sharing import run_sharing
    from experiments.tables import to_markdown, write_frame

    experiment = load("imdb", data, work)
    table = run_sharing(experiment, read_labels("imdb", data), click.echo)
    about = (
        "IMDb film reviews: the rows of the training bags, dealt out anew to bags of 250 of uniform proportions; "
        "linear scores, trained for the geometric mean of AE, AE and RAE, one seed, 60 epochs at most, the best one "
        "chosen on the 300 validation bags; errors on the 300 "
        "calibration bags. Made by `python -m experiments sharing`."
    )
    write_frame(output / "sharing", table, f"{about}\n\n{to_markdown(table)}")
    wrote(output / "sharing.csv", output / "sharing.md")


@main.command()
@click.option("--on", default="imdb,newsgroups,goemotions", show_default=True, help="Data sets, with commas between.")
@options("data", "work", "output")
def sketches(on: str, data: Path, work: Path, output: Path) -> None:
    """Estimates from sketches that count rows in cells, beside estimates from the rows.

    Example: python -m experiments sketches --data DIRECTORY
    """
    import pandas as pd

    from experiments.presets import PRESETS
    from experiments.sketched import run_sketches
    from experiments.tables import to_markdown, write_frame

    table = pd.concat([run_sketches(load(name, data, work), click.echo) for name in choose(on, [*PRESETS], "--on")])
    about = (
        "Mean error of estimates from rows and from sketches on 300 calibration bags, one seed; *apart* is the mean "
        "distance between the two estimates. Made by `python -m experiments sketches`."
    )
    write_frame(output / "sketches", table, f"{about}\n\n{to_markdown(table)}")
    wrote(output / "sketches.csv", output / "sketches.md")


@main.command()
@options("data", "work", "output")
def hdy(data: Path, work: Path, output: Path) -> None:
    """HDy's mixture of two histograms beside the histogram of a bag.

    Example: python -m experiments hdy --data DIRECTORY
    """
    from experiments import figures
    from experiments.mixture import mixture_panels

    experiment = load("imdb", data, work)
    figures.save(output / "hdy.png", mixture_panels(experiment), columns=3)
    wrote(output / "hdy.png")


@main.command(name="defaults")
@click.option("--r-library", type=click.Path(path_type=Path, exists=True), required=True,
              help="Directory with the folders mlbench, kernlab and MASS of R packages.")  # fmt: skip
@click.option(
    "--splits", default=1, show_default=True, type=click.IntRange(1), help="Splits of each table, seeded 0, 1, …"
)
@click.option(
    "--most-rows", default=4000, show_default=True, type=click.IntRange(100), help="Rows of a table, at most."
)
@options("output")
def defaults_(r_library: Path, splits: int, most_rows: int, output: Path) -> None:
    """Default settings of classical methods against others, on development tables.

    Finished tables are in the CSV file and are not repeated.

    Example: python -m experiments defaults --r-library DIRECTORY
    """
    import pandas as pd

    from experiments.defaults import defaults_table, run_all
    from experiments.development_tables import read_tables
    from experiments.tables import to_markdown, write_frame

    tables = [table.first(most_rows) for table in read_tables(r_library)]
    run_all(tables, splits, output / "defaults.csv", click.echo)
    found = pd.read_csv(output / "defaults.csv")
    about = (
        f"{found['table'].nunique()} development tables of at most {most_rows:,} rows, {splits} split(s) into a "
        "labelled and a test half; logistic regression, random forest and boosting; 100 bags of 100 rows with "
        "uniformly drawn mixes. The last column is the share of tables, splits and classifiers on which a setting "
        "beats the default. "
        f"Made by `python -m experiments defaults --splits {splits} --most-rows {most_rows}`."
    )
    text = to_markdown(defaults_table(found)).replace(" nan ", " ")
    write_frame(output / "defaults", found, f"{about}\n\n{text}")
    click.echo(text)
    wrote(output / "defaults.csv", output / "defaults.md")


@main.command(name="default-fit")
@click.option("--r-library", type=click.Path(path_type=Path, exists=True), required=True,
              help="Directory with the folders mlbench, kernlab and MASS of R packages.")  # fmt: skip
@click.option(
    "--splits", default=5, show_default=True, type=click.IntRange(1), help="Splits of each table, seeded 0, 1, …"
)
@click.option(
    "--most-rows", default=20_000, show_default=True, type=click.IntRange(100), help="Rows of a table, at most."
)
@click.option("--on", help="Tables, with commas between.  [default: all; for intervals, five]")
@click.option("--part", type=click.Choice(["errors", "intervals", "both"]), default="both", show_default=True)
@click.option("--bags", default=400, show_default=True, type=click.IntRange(0),
              help="Bags of each size with conformal intervals.")  # fmt: skip
@click.option("--bayes-bags", default=400, show_default=True, type=click.IntRange(0),
              help="Bags of each size with Bayes intervals, which are slow for large bags.")  # fmt: skip
@options("output")
def default_fit(
    r_library: Path, splits: int, most_rows: int, on: str | None, part: str, bags: int, bayes_bags: int, output: Path
) -> None:
    """The default fit to labelled rows: errors and seconds, and intervals by the size of bags.

    Finished tables are in the CSV files and are not repeated.

    Example: python -m experiments default-fit --r-library DIRECTORY
    """
    import pandas as pd

    from experiments import default_fit as measured
    from experiments.development_tables import read_tables
    from experiments.tables import to_markdown, write_frame

    known = {table.name: table.first(most_rows) for table in read_tables(r_library)}
    parts: dict[str, Any] = {
        "errors": (measured.errors_of, list(known), measured.errors_table),
        "intervals": (
            partial(measured.intervals_of, n_conformal=bags, n_bayes=bayes_bags), measured.TABLES_OF_INTERVALS,
            measured.intervals_table,
        ),
    }  # fmt: skip
    about = (
        f"Development tables of at most {most_rows:,} rows, {splits} split(s) into a labelled and a test half; bags of "
        "the test half with uniformly drawn mixes. Made by `python -m experiments default-fit`."
    )
    for name in parts if part == "both" else [part]:
        run, usual, summary = parts[name]
        chosen, path = usual if on is None else choose(on, list(known), "--on"), output / f"default-fit-{name}"
        measured.run_all(run, [known[table] for table in chosen], splits, path.with_suffix(".csv"), click.echo)
        found = pd.read_csv(path.with_suffix(".csv"))
        text = to_markdown(summary(found))
        write_frame(path, found, f"{about}\n\n{text}")
        click.echo(text)
        wrote(path.with_suffix(".csv"), path.with_suffix(".md"))
