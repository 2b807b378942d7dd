"""Commands about intervals and trust: how often they hold, and how wide they are."""

from __future__ import annotations

from pathlib import Path

import click

from experiments.arguments import choose, main, options, wrote

__all__: list[str] = []


@main.command()
@click.option("--on", default="digits,imdb,newsgroups", show_default=True, help="Data sets, with commas between.")
@click.option("--splits", default=20, show_default=True, type=click.IntRange(1), help="Of the held-out rows.")
@click.option("--bags", default=30, show_default=True, type=click.IntRange(1), help="On which to compare bootstraps.")
@click.option(
    "--data", envvar="HISTNETQ_DATA", type=click.Path(path_type=Path), help="Directory of the text data sets."
)
@options("work", "output")
def coverage(on: str, splits: int, bags: int, data: Path | None, work: Path, output: Path) -> None:
    """How often intervals hold the truth, and how wide they are, beside QuaPy's bootstrap.

    Example: python -m experiments coverage --on digits
    """
    import pandas as pd

    from experiments import coverage as experiment
    from experiments import figures
    from experiments.tables import to_markdown, write_frame

    chosen, parts = choose(on, list(experiment.DATA), "--on"), []
    texts = [name for name in chosen if name != "digits"]
    if texts and data is None:
        raise click.UsageError(f"{texts[0]} needs the directory of the texts; name it by --data.")
    for name in chosen:
        parts.append(experiment.kept_table(name, data, work / "coverage", splits, bags))
        click.echo(experiment.summary(parts[-1]).to_string(index=False, float_format="{:.4f}".format))
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
    wrote(output / "coverage.csv", output / "coverage.md", output / "coverage.png")


@main.command()
@click.option("--on", help="Data sets, with commas between.  [default: all]")
@click.option("--splits", default=10, show_default=True, type=click.IntRange(1), help="Of the rows.")
@click.option("--bags", default=60, show_default=True, type=click.IntRange(1), help="For tests, in each split.")
@click.option(
    "--data", envvar="HISTNETQ_DATA", type=click.Path(path_type=Path), help="Directory of the text data sets."
)
@options("output")
def bayes(on: str | None, splits: int, bags: int, data: Path | None, output: Path) -> None:
    """How often Bayesian intervals, which need no calibration bags, hold the truth, beside conformal ones.

    Example: python -m experiments bayes --on digits
    """
    import pandas as pd

    from experiments import bayes as experiment
    from experiments.tables import to_markdown, write_frame

    chosen = choose(on, list(experiment.DATA), "--on")
    about = (
        "Intervals without calibration bags, beside conformal ones of the same method and bags (500 calibration bags). "
        f"{splits} splits of the rows, {bags} test bags in each, by APP; digits: 898 labelled rows, others in each "
        "split, bags of 20 to 100; imdb: 5,000 labelled rows, or 500 of them, others in each split, bags of 50 to 250. "
        "coverage and width: means over classes, bags and splits; sd: over splits; joint: of the joint region; "
        "ms_per_bag: processor time. "
        f"Made by `python -m experiments bayes --splits {splits} --bags {bags}`."
    )
    parts: list[pd.DataFrame] = []
    for name in chosen:
        parts.append(experiment.run_bayes(name, data, splits, bags))
        click.echo(experiment.summary(parts[-1]).to_string(index=False, float_format="{:.4f}".format))
        table = pd.concat(parts)
        write_frame(output / "bayes", table.round(6), f"{about}\n\n{to_markdown(experiment.summary(table))}")
    wrote(output / "bayes.csv", output / "bayes.md")


@main.command(name="natural-bags")
@click.option("--draws", default=5, show_default=True, type=click.IntRange(1), help="Draws of the bags.")
@options("methods", "data", "output")
def natural_bags(draws: int, methods: str | None, data: Path, output: Path) -> None:
    """Learning from 10 to 400 bags with natural mixes: elections, and scans of zooplankton.

    Methods that are not named keep their rows in the file of results.

    \b
    Examples: python -m experiments natural-bags --data DIRECTORY
              python -m experiments natural-bags --methods EMNetQ --draws 1 --data DIRECTORY
    """
    import pandas as pd

    from experiments import natural_bags as experiment
    from experiments.tables import to_markdown, write_frame

    chosen = choose(methods, experiment.METHODS)
    table = experiment.natural_bags(list(experiment.DATA), chosen, draws, data)
    if (output / "natural-bags.csv").exists():
        kept = pd.read_csv(output / "natural-bags.csv")
        table = pd.concat([table, kept[~kept["method"].isin(chosen)]], ignore_index=True)
        table = table.sort_values(["data", "bags"], kind="stable", ignore_index=True)
    found = experiment.summary(table)
    about = (
        "Learning from few bags with natural mixes. Elections: voting units before 2020, AE on 1,000 units of 2020. "
        "Zooplankton: scans of 20 tows, six common classes and the others, AE on the scans of 7 other tows. coverage "
        "and width: 90 % conformal intervals, cross-calibrated on the same bags. Means of the draws. "
        "Made by `python -m experiments natural-bags`."
    )
    write_frame(output / "natural-bags", table.round(6), f"{about}\n\n{to_markdown(found)}")
    click.echo(to_markdown(found))
    wrote(output / "natural-bags.csv", output / "natural-bags.md")


@main.command(name="chosen-bags")
@click.option("--draws", default=20, show_default=True, type=click.IntRange(1), help="Draws of the bags.")
@options("data", "output")
def chosen_bags(draws: int, data: Path, output: Path) -> None:
    """LinearQ from bags that choose_bags chose, and from bags drawn at random.

    Example: python -m experiments chosen-bags --data DIRECTORY
    """
    from experiments import natural_bags as experiment
    from experiments.tables import to_markdown, write_frame

    table = experiment.chosen_bags(draws, data)
    found = table.groupby(["data", "bags", "way"], sort=False)["ae"].agg(["mean", "sem"]).unstack("way")
    found.columns = [f"{way}, {'AE' if what == 'mean' else 'standard error'}" for what, way in found.columns]
    text = to_markdown(found.reset_index())
    about = (
        "LinearQ from n bags that choose_bags chose, and from n random bags: elections (of 1,000 units) and "
        f"zooplankton (of the scans of 20 tows), as in natural-bags; means of {draws} draws. "
        "Made by `python -m experiments chosen-bags`."
    )
    write_frame(output / "chosen-bags", table.round(6), f"{about}\n\n{text}")
    click.echo(text)
    wrote(output / "chosen-bags.csv", output / "chosen-bags.md")


@main.command(name="few-bags")
@click.option("--draws", default=20, show_default=True, type=click.IntRange(1), help="Of the calibration bags.")
@options("output")
def few_bags(draws: int, output: Path) -> None:
    """How often intervals from 20 to 200 calibration bags hold the truth, and how wide they are.

    Example: python -m experiments few-bags
    """
    from experiments import few_bags as experiment
    from experiments.tables import to_markdown, write_frame

    table = experiment.few_bags(draws)
    found = experiment.summary(table)
    about = (
        "Intervals of 90 % from few calibration bags. Simulated rows: normal classes that overlap, in 8 dimensions; "
        "150 labelled rows of each class to learn from; bags of 50 to 150 rows, with prevalences from a Dirichlet "
        f"distribution of .3, so that most classes are rare; 400 test bags; {draws} draws of the calibration bags. "
        "lowest_class and highest_class: coverage of the class that is covered worst and best; at_zero: of intervals "
        "around estimates below .001; largest_width and empty (part of the intervals of no width): the largest of all "
        "draws. Made by `python -m experiments few-bags`."
    )
    write_frame(output / "few-bags", table.round(6), f"{about}\n\n{to_markdown(found)}")
    click.echo(found.to_string(index=False, float_format="{:.4f}".format))
    wrote(output / "few-bags.csv", output / "few-bags.md")


@main.command()
@click.option("--draws", default=10, show_default=True, type=click.IntRange(1), help="Of calibration bags.")
@click.option("--bags", default=100, show_default=True, type=click.IntRange(1), help="Judged in each of them.")
@options("output")
def trust(draws: int, bags: int, output: Path) -> None:
    """How often bags are doubted whose proportions alone have changed, and those whose classes have.

    Example: python -m experiments trust --draws 3
    """
    from experiments import trust as experiment
    from experiments.tables import to_markdown, write_frame

    made = f"{draws} draws of 100 calibration bags of 50 to 500 rows, {bags} bags judged in each. Made by "
    made += f"`python -m experiments trust --draws {draws} --bags {bags}`."
    shifts = experiment.run_shifts(draws, bags)
    about = "Bags of 1,000 rows with 0.3 of the second class, before and after a change within the classes; " + made
    write_frame(output / "trust-shifts", shifts, f"{about}\n\n{to_markdown(shifts)}")
    click.echo(shifts.to_string(index=False, float_format="{:.4f}".format))
    mixes = experiment.run_mixes(draws, bags)
    about = "Bags doubted (nominal 0.01) whose proportions alone differ from those of calibration; " + made
    write_frame(output / "trust-mixes", mixes, f"{about}\n\n{to_markdown(mixes)}")
    wrote(output / "trust-shifts.csv", output / "trust-mixes.csv")


@main.command()
@click.option("--on", default="digits,4 normal classes,3 classes far apart,2 normal classes", show_default=True,
              help="Data sets, with commas between.")  # fmt: skip
@click.option("--bags", default=2000, show_default=True, type=click.IntRange(1), help="Of each shift.")
@options("work", "output")
def audit(on: str, bags: int, work: Path, output: Path) -> None:
    """How often intervals from labels of the bag itself hold the truth, and how wide they are beside Wilson's.

    Finished shifts are kept and not repeated.

    Example: python -m experiments audit --on digits --bags 200
    """
    import pandas as pd

    from experiments import audit as experiment
    from experiments.tables import to_markdown, write_frame

    parts: list[pd.DataFrame] = []
    for name in choose(on, list(experiment.DATA), "--on"):
        for part in experiment.run_audit(name, bags, experiment.LABELS, work / "audit"):
            click.echo(part.to_string(index=False, header=not parts, float_format="{:.3f}".format))
            parts.append(part)
    table = pd.concat(parts)
    about = (
        "Intervals of 90 % from some labels of the bag itself, by `hq.sample_rows` and `hq.audit` with EMQ. Bags of "
        f"1,000 rows, {bags:,} of each shift; their mixes are uniform on the simplex but under covariate shift, "
        "where rows are chosen by a random direction of the features. common: classes that expect 10 labels and more "
        "(share times labels); rare: others that are there. coverage: part of the intervals that hold the class's "
        "share; width and error: mean width and mean absolute error, divided by those of Wilson's intervals and of the "
        "mean on as many labels of rows drawn at random; accuracy: of the model on rows; joint: part of the "
        "joint regions that hold the mix. Made by "
        f"`python -m experiments audit --bags {bags}`."
    )
    write_frame(output / "audit", table.round(6), f"{about}\n\n{to_markdown(table)}")
    wrote(output / "audit.csv", output / "audit.md")
