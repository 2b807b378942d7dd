"""The command about class weights under label shift."""

from __future__ import annotations

from pathlib import Path

import click

from experiments.arguments import choose, main, options, wrote

__all__: list[str] = []


@main.command(name="label-shift")
@click.option("--classifier", type=click.Choice(["dense", "cnn"]), default="dense", show_default=True,
              help="Dense networks on pixels, or the convolutional one of fashion-mnist.")  # fmt: skip
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1), help="Classifiers, seeded 0, 1, …")
@click.option("--draws", default=10, show_default=True, type=click.IntRange(1),
              help="Draws of each size, of each classifier.")  # fmt: skip
@click.option("--data", type=click.Path(path_type=Path),
              help="Directory of the IDX files.  [default: all usual]")  # fmt: skip
@options("methods", "work", "output")
def label_shift(
    classifier: str, seeds: int, draws: int, data: Path | None, methods: str | None, work: Path, output: Path
) -> None:
    """Class weights under label shift on Fashion-MNIST: EM with calibration, BBSE, RLLS and others, on one classifier.

    Example: python -m experiments label-shift --seeds 1 --methods EMQ,EMQ-BCTS
    """
    from experiments import fashion_mnist
    from experiments import label_shift as experiment
    from experiments.tables import to_markdown, write_frame

    chosen = choose(methods, list(experiment.METHODS))
    try:
        images = fashion_mnist.read_fashion_mnist(data)
    except FileNotFoundError as error:
        raise click.BadParameter(str(error), param_hint="--data") from None
    scored = [experiment.scored_images(images, classifier, seed, work, click.echo) for seed in range(seeds)]
    drawn = [experiment.draw_all(own, draws, seed) for seed, own in enumerate(scored)]
    errors = experiment.errors_of(drawn, experiment.learn(images, classifier, drawn, chosen, work, click.echo))
    found = experiment.comparisons(errors)
    accuracies = ", ".join(f"{own.accuracy:.4f}" for own in scored)
    about = (
        "Fashion-MNIST, by the protocol of Alexandari, Kundaje & Shrikumar (2020). Classifiers: "
        f"{experiment.CLASSIFIERS[classifier]}, from 50,000 training images; seeds: {seeds}, test accuracy "
        f"{accuracies}. Each draw takes n of the 10,000 other training images to calibrate by and to learn from, and "
        "n test images for each shift: prevalences from a Dirichlet distribution of α, or ρ for the fourth class and "
        f"the same for all others. {seeds * draws} draws of each n. Methods have their defaults. In thousandths; bold: "
        "lowest mean; Wilcoxon signed-rank test against it over the draws: † 0.001 ≤ p ≤ 0.05, ‡ p > 0.05, no mark "
        f"p < 0.001. Made by `python -m experiments label-shift --classifier {classifier} --seeds {seeds} "
        f"--draws {draws}`."
    )
    names, parts = {"mse": "Mean squared error of the weights", "ae": "AE of the prevalences"}, [about]
    for measure, name in names.items():
        for size in experiment.SIZES:
            parts.append(f"{name}, n = {size:,}:\n\n{experiment.weights_table(found, size, measure)}")
    if ("EMQ-BCTS", "mse") in errors:
        beside = to_markdown(experiment.against(errors, "EMQ-BCTS"))
        text = "Against EMQ-BCTS, mean squared error of the weights, all n and shifts (one-sided Wilcoxon, p < .01):"
        parts.append(f"{text}\n\n{beside}")
    calibrated = to_markdown(experiment.calibration_errors(scored, drawn))
    parts.append(f"Calibration on all test images, mean over the draws:\n\n{calibrated}")
    file = output / f"label-shift-{classifier}"
    write_frame(file, found.round(8), "\n\n".join(parts))
    click.echo("\n\n".join(parts[1:]))
    wrote(file.with_suffix(".csv"), file.with_suffix(".md"))
