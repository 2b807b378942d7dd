"""``python -m benchmarks peers``: QuaPy's networks and ours on the same bags, with the same layers and time.

Both learn from the same bags of known proportions, for the same loss and as long: so many minutes of processor time,
the start included, so that a busy machine favours nobody. Both mix half as many bags again, validate on the same bags
and estimate the same test bags. Runs that are in the file of results are not repeated.
"""

from __future__ import annotations

import csv
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import histnetq as hq
from experiments.presets import PRESETS
from experiments.staged import compact

__all__ = ["peers"]

RESULTS = Path(__file__).parent / "peers.csv"
_BATCH, _RATE = 16, 1e-3  # bags of an update and learning rate, QuaPy's defaults
_MIXED = 0.5  # bags that QuaPy mixes, per bag that is given; as many among ours


@dataclass(frozen=True)
class Layers:
    """What the networks of both share.

    Parameters
    ----------
    encoder : tuple of int
        Sizes of its layers.
    n_bins : int
        Bins of each feature of HistNetQ.
    gaussians : (int, int, int)
        Blocks of GMNet, Gaussians of each, and their dimensions.
    head : tuple of int
        Sizes of its hidden layers.
    dropout : float
        Part of the numbers between layers that is dropped in training.
    """

    encoder: tuple[int, ...]
    n_bins: int
    gaussians: tuple[int, int, int]
    head: tuple[int, ...]
    dropout: float


@dataclass(frozen=True)
class Case:
    """Bags to learn from, to validate on and to estimate, with standardised rows, and the layers."""

    bags: hq.Bags
    validation: hq.Bags
    test: hq.Bags
    layers: Layers


@dataclass
class Finished:
    """Estimates of the test bags, and the processor time of the fit.

    Then the epochs that were clocked (all but the first, which may compile), their bags, validated ones included, and
    their processor time.
    """

    estimates: NDArray[np.float64]
    seconds: float
    n_epochs: int
    n_bags: int
    epoch_seconds: float


class _TimeIsUpError(Exception):
    """Ends the training of QuaPy's networks, which know no limit of time."""


def _digits(folder: Path | None) -> Case:
    data = hq.datasets.digits()
    X, y = np.asarray(data.train.rows), data.train.labels
    assert y is not None
    mine = np.random.default_rng(0).permutation(len(X)) % 10 < 7
    bags, validation = (
        hq.APP(100).draw(hq.Bags.from_labels(X[part], y[part]), n, random_state=0)
        for part, n in ((mine, 700), (~mine, 300))
    )
    return _case(bags, validation, data.test, Layers((64, 32), 16, (4, 20, 5), (64,), 0.0))


def _from_preset(name: str, layers: Layers, folder: Path | None) -> Case:
    if folder is None:
        raise click.UsageError(f"{name} needs --data, the directory of the data sets.")
    data = PRESETS[name].load(folder)
    return _case(data.bags, data.validation, data.test, layers)


def _case(bags: hq.Bags, validation: hq.Bags, test: hq.Bags, layers: Layers) -> Case:
    """Standardise all rows with the mean and scale of the training bags, and drop the labels."""
    bags = compact(bags)
    mean, scale = bags.rows.mean(0), np.maximum(bags.rows.std(0), 1e-6)

    def scaled(b: hq.Bags) -> hq.Bags:
        return hq.Bags((b.rows - mean) / scale, b.index, b.offsets, prevalences=b.prevalences, classes=b.classes)

    return Case(scaled(bags), scaled(compact(validation)), scaled(compact(test)), layers)


CASES: dict[str, Callable[[Path | None], Case]] = {
    "digits": _digits,
    "imdb": partial(_from_preset, "imdb", Layers((64, 16), 32, (4, 20, 5), (256,), 0.5)),
    "words": partial(_from_preset, "words", Layers((64, 32), 32, (9, 20, 5), (256,), 0.1)),
}


def _ours(case: Case, seconds: float, seed: int, make: Callable[..., Any]) -> Finished:
    """Fit until the time is up, and estimate the test bags."""
    began, ends = time.process_time(), list[float]()
    n_drawn = round((1 + _MIXED) * len(case.bags))

    def note(record: dict[str, float]) -> bool:
        ends.append(time.process_time())
        return ends[-1] - began > seconds

    training = hq.Training(
        epochs=10_000, batch_bags=_BATCH, lr=_RATE, dropout=case.layers.dropout, weight_decay=0.0, patience=20,
        bags_per_epoch=n_drawn, standardize=False, progress=False, callbacks=(note,),
    )  # fmt: skip
    sampler = hq.Mixer(1 / (1 + _MIXED))
    q = make(training=training, sampler=sampler, random_state=seed).fit(case.bags, validation=case.validation)
    took = time.process_time() - began
    n_clocked, n_bags = len(ends) - 1, n_drawn + len(case.validation)
    return Finished(q.predict(case.test), took, n_clocked, n_clocked * n_bags, ends[-1] - ends[0])


def _quapy(case: Case, seconds: float, seed: int, kind: str, options: dict[str, Any], fe: nn.Module) -> Finished:
    from quapy.method import meta

    began, clocked = time.process_time(), list[tuple[float, int]]()

    class Timed(getattr(meta, kind)):  # type: ignore[misc]
        def _run_epoch(self, bags: Any, n_bags: int, optim: Any, train: bool, epoch: int) -> float:
            start = time.process_time()
            if train and epoch and start - began > seconds:
                raise _TimeIsUpError
            loss: float = super()._run_epoch(bags, n_bags, optim, train, epoch)
            if epoch:
                clocked.append((time.process_time() - start, n_bags))
            return loss

    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        q = Timed(
            feature_extraction_module=fe, linear_sizes=case.layers.head, dropout=case.layers.dropout,
            train_epochs=10_000, start_lr=_RATE, batch_size=_BATCH, bag_size=int(case.bags.sizes[0]),
            random_state=seed, checkpointdir=folder, checkpointname="best", **options,
        )  # fmt: skip
        try:
            q.fit_from_samples(_protocol(case.bags), _protocol(case.validation), True, _MIXED)
        except _TimeIsUpError:
            q.model.load_state_dict(torch.load(Path(folder) / "best"))
    took = time.process_time() - began
    estimates = np.stack([q.predict(x) for x, _ in _bags_of(case.test)])
    spent, seen = (np.array(column).sum() for column in zip(*clocked, strict=True)) if clocked else (0.0, 0)
    return Finished(estimates, took, len(clocked) // 2, int(seen), float(spent))


def _bags_of(bags: hq.Bags) -> Iterator[tuple[NDArray, NDArray]]:
    assert bags.prevalences is not None
    for i, p in enumerate(bags.prevalences):
        yield bags.rows[bags.index[bags.offsets[i] : bags.offsets[i + 1]]], p


def _protocol(bags: hq.Bags) -> Any:
    from quapy.protocol import AbstractProtocol

    class Given(AbstractProtocol):
        def __call__(self) -> Iterator[tuple[NDArray, NDArray]]:
            return _bags_of(bags)

        def total(self) -> int:
            return len(bags)

    return Given()


def _encoder(n_inputs: int, sizes: Sequence[int], dropout: float, activated: bool) -> nn.Module:
    """Layers as in `histnetq.nn.MLP`, on bags side by side."""
    layers: list[nn.Module] = []
    for i, (before, after) in enumerate(zip([n_inputs, *sizes[:-1]], sizes, strict=True)):
        layers.append(nn.Linear(before, after))
        if i < len(sizes) - 1 or activated:
            layers += [nn.LeakyReLU(), nn.Dropout(dropout)]
    made = nn.Sequential(*layers)
    made.output_size = sizes[-1]  # type: ignore[assignment]
    return made


def _run(method: str, case: Case, seconds: float, seed: int) -> Finished:
    layers, n_inputs = case.layers, case.bags.n_features
    kind, who = method.split(", ")
    n_blocks, n_gaussians, n_dims = layers.gaussians
    same: dict[str, Any] = {"encoder": layers.encoder}
    if who == "QuaPy":
        options: dict[str, Any] = {"n_bins": layers.n_bins}
        if kind == "GMNet":
            options = {"n_gm_layers": n_blocks, "num_gaussians": n_gaussians, "gaussian_dimensions": n_dims}
        fe = _encoder(n_inputs, layers.encoder, layers.dropout, kind == "GMNet")
        return _quapy(case, seconds, seed, kind, options, fe)
    if kind == "GMNet":
        ridge = 0.01 if who == "in stages" else None
        return _ours(case, seconds, seed, partial(hq.GMNet, *layers.gaussians, head=layers.head, ridge=ridge, **same))
    if who == "same layers":
        same["head"] = layers.head
    return _ours(case, seconds, seed, partial(hq.HistNetQ, "hard", layers.n_bins, **same))


METHODS = tuple(f"{kind}, {who}" for kind in ("HistNetQ", "GMNet") for who in ("QuaPy", "same layers", "in stages"))


@click.command()
@click.option("--on", "names", multiple=True, type=click.Choice(list(CASES)), help="Data sets.  [default: all]")
@click.option("--methods", multiple=True, type=click.Choice(METHODS), help="Networks.  [default: all]")
@click.option("--minutes", default=2.0, show_default=True, type=click.FloatRange(0), help="Processor time of each fit.")
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(1), help="Number of runs, seeded 0, 1, …")
@click.option("--data", envvar="HISTNETQ_DATA", type=click.Path(path_type=Path), help="Directory of imdb.")
@click.option("--words-data", envvar="HISTNETQ_WORDS", type=click.Path(path_type=Path),
              help="Directory of words, if it is another.")  # fmt: skip
@click.option("--output", default=RESULTS, type=click.Path(path_type=Path), help="File of results.")
def peers(
    names: tuple[str, ...], methods: tuple[str, ...], minutes: float, seeds: int, data: Path | None,
    words_data: Path | None, output: Path,
) -> None:  # fmt: skip
    """Train QuaPy's HistNetQ and GMNet and ours, the same layers and in stages; write errors and bags per second."""
    wanted = [m for m in methods or METHODS if _can_run(m)]
    for name in names or CASES:
        case = None
        for method in wanted:
            for seed in range(seeds):
                done = {(row["data"], row["method"], row["minutes"], row["seed"]) for row in _read(output)}
                if (name, method, f"{minutes:g}", str(seed)) in done:
                    continue
                case = case or CASES[name](words_data or data if name == "words" else data)
                row = _row(case, _run(method, case, 60 * minutes, seed))
                row = {"data": name, "method": method, "minutes": f"{minutes:g}", "seed": seed, **row}
                click.echo(", ".join(f"{key} {value}" for key, value in row.items()))
                _append(output, row)


def _can_run(method: str) -> bool:
    """Return whether the required packages are installed; QuaPy's GMNet needs geotorch."""
    needed = ("quapy", *(["geotorch"] * method.startswith("GMNet"))) if method.endswith("QuaPy") else ()
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:
        click.echo(f"{method}: left out, as {' and '.join(missing)} is not installed; pip install it first.")
    return not missing


def _row(case: Case, found: Finished) -> dict[str, object]:
    test = case.test
    errors = {m: getattr(hq.metrics, m)(test.prevalences, found.estimates, test.sizes).mean() for m in ("ae", "rae")}
    per_epoch = found.epoch_seconds / max(1, found.n_epochs)
    return {
        **{name: f"{value:.5f}" for name, value in errors.items()},
        "seconds": f"{found.seconds:.1f}", "epochs": found.n_epochs, "epoch_seconds": f"{per_epoch:.3f}",
        "bags_per_second": f"{found.n_bags / max(found.epoch_seconds, 1e-9):.1f}", "test_bags": len(test),
    }  # fmt: skip


def _read(output: Path) -> list[dict[str, str]]:
    if not output.exists():
        return []
    with output.open(newline="") as file:
        return list(csv.DictReader(file))


def _append(output: Path, row: dict[str, object]) -> None:
    first = not output.exists()
    with output.open("a", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if first:
            writer.writeheader()
        writer.writerow(row)
