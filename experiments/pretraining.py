"""Pretraining of `hq.Pretrained`: simulated tasks become described bags, and the network learns from these.

Three stages, each resumable: ``simulate`` writes tasks (see `experiments.simulated_tasks`), ``describe`` draws bags
from them and computes what the network reads, and ``train`` fits the network and writes its weights.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.simulated_tasks import Task, read_tasks
from histnetq.quantifiers.classical.cell_tokens import N_NUMBERS, describe, from_logits
from histnetq.quantifiers.classical.simplex_cells import MIDDLE, N_LEVELS, LearnedCells

Floats = NDArray[np.float64]
BAGS = 48  # of a task
_SCORED = 3  # simulated tasks without rows, added for each shard of tasks
_KEPT_OUT = 12  # every 12th shard validates
_PINBALL = (0.05, 0.15, 0.25, 0.375, 0.5, 0.625, 0.75, 0.85, 0.95)
_RATE, _DECAY, _BATCH, _MOST_LOSS = 2e-3, 0.02, 384, 20.0  # of the optimiser; the largest loss of a bag
_REPORT = 1000  # steps between validations
_SMALLEST = 0.002  # error below which differences between methods count less


def simulate_scores(seed: int, number: int) -> Task:
    """Simulate a task without rows: scores from normal densities, with up to 100,000 labelled rows."""
    rng = np.random.default_rng((seed, 10**9 + number))
    n_classes = 2 if rng.random() < 0.4 else int(np.exp(rng.uniform(np.log(3), np.log(16))))
    n = int(np.exp(rng.uniform(np.log(100), np.log(100_000))))
    shares = rng.dirichlet(np.full(n_classes, rng.choice([1.0, 5.0, 1000.0])))
    counts = np.maximum(rng.multinomial(n, shares), 5)
    d = n_classes - 1 if n_classes < 4 else int(rng.integers(3, n_classes))
    apart = np.exp(rng.uniform(np.log(0.3), np.log(4.0)))
    means = apart * rng.normal(size=(n_classes, d))
    prior = counts / counts.sum()
    sharp, bias = np.exp(0.2 * rng.normal()), 0.2 * rng.normal(size=n_classes) * (rng.random() < 0.3)
    drift = 0.15 * rng.uniform() * apart * rng.normal(size=d) * (rng.random() < 0.05)

    def scores(codes: NDArray, shift: Any = 0.0) -> NDArray[np.float32]:
        X = means[codes] + rng.normal(size=(len(codes), d)) + shift
        logs = X @ means.T - (means**2).sum(1) / 2 + np.log(prior)
        logs = sharp * logs + bias
        p = np.exp(logs - logs.max(1, keepdims=True))
        found: NDArray[np.float32] = (p / p.sum(1, keepdims=True)).astype(np.float32)
        return found

    labels = np.repeat(np.arange(n_classes), counts)
    pool_labels = np.repeat(np.arange(n_classes), max(2000, 40_000 // n_classes))
    return Task(scores(labels), labels, scores(pool_labels, drift), pool_labels)


def draw_mixes(rng: np.random.Generator, n_bags: int, training: Floats) -> tuple[Floats, Floats]:
    """Draw prevalences of bags, and the Dirichlet concentrations that a user would pass as their prior.

    Most bags have the default prior, a flat one, whatever their mix is. So the network learns to answer if the prior
    is only roughly right.
    """
    k = len(training)
    mixes, priors = np.empty((n_bags, k)), np.ones((n_bags, k))
    for i in range(n_bags):
        kind = rng.choice(["uniform", "sparse", "near", "rare", "given"], p=[0.45, 0.09, 0.09, 0.12, 0.25])
        if kind == "uniform":
            mixes[i] = rng.dirichlet(np.ones(k))
        elif kind == "sparse":
            mixes[i] = rng.dirichlet(np.full(k, 0.3))
        elif kind == "near":
            mixes[i] = rng.dirichlet(np.maximum(50 * training, 1e-2))
        elif kind == "rare":
            mixes[i] = rare_mix(rng, k)
        else:
            middle = training if rng.random() < 0.5 else rng.dirichlet(np.full(k, rng.choice([1.0, 10.0])))
            priors[i] = np.clip(np.exp(rng.uniform(np.log(0.2), np.log(100.0))) * k * middle, 0.02, None)
            mixes[i] = rng.dirichlet(priors[i])
    return mixes / mixes.sum(1, keepdims=True), priors


def rare_mix(rng: np.random.Generator, n_classes: int) -> Floats:
    """Draw a mix in which one class, or up to half of the classes, has only a few per cent."""
    p = rng.dirichlet(np.ones(n_classes))
    rare = rng.permutation(n_classes)[: int(rng.integers(1, max(2, n_classes // 2 + 1)))]
    p[rare] *= rng.uniform(0, 0.1) / max(p[rare].sum(), 1e-9)
    found: Floats = p / p.sum()
    return found


def described(task: Task, rng: np.random.Generator, largest: float = 3000.0) -> dict[str, NDArray]:
    """Draw bags from a task and describe them: inputs, levels, units, targets and sizes."""
    k = task.pool.shape[1]
    learned = LearnedCells.of(_proper(task.posteriors), task.labels, None)
    cells = learned.edges.of_rows(_proper(task.pool))
    starts = np.searchsorted(task.pool_labels, np.arange(k + 1))
    training = np.bincount(task.labels, minlength=k) / len(task.labels)
    mixes, priors = draw_mixes(rng, BAGS, training)
    sizes = np.exp(rng.uniform(np.log(5), np.log(largest), BAGS)).astype(np.int64)
    counts = np.stack([rng.multinomial(m, p) for m, p in zip(sizes, mixes, strict=True)])
    codes = np.repeat(np.tile(np.arange(k), BAGS), counts.ravel())
    places = starts[codes] + (rng.random(len(codes)) * (starts[codes + 1] - starts[codes])).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    order = learned.edges.order
    found = describe(
        learned, *merged(cells[places], offsets, learned.edges.n_cells), sizes.astype(float), priors[:, order]
    )
    target = (counts / sizes[:, None])[:, order]
    return {
        "numbers": found.numbers.astype(np.float32), "levels": found.levels.astype(np.float32),
        "unit": found.unit.astype(np.float32), "target": target.astype(np.float32),
        "sizes": sizes.astype(np.float32), "flat": (priors == 1).all(1),
    }  # fmt: skip


def merged(cells: NDArray, offsets: NDArray, n_cells: int) -> tuple[NDArray, NDArray, NDArray]:
    """Return each cell of a bag once, with its number of rows: cells, offsets and weights."""
    bag = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    found, weights = np.unique(bag * n_cells + cells, return_counts=True)
    return found % n_cells, np.searchsorted(found // n_cells, np.arange(len(offsets))), weights.astype(np.float64)


def describe_shards(tasks: Path, place: Path, seed: int = 0, say: Callable[[str], Any] = print) -> int:
    """Describe all shards of tasks that have no file yet; return the number of new files."""
    place.mkdir(parents=True, exist_ok=True)
    new = 0
    for path in sorted(tasks.glob("tasks-*.npz")):
        out = place / f"bags-{path.stem[6:]}.npz"
        if out.exists():
            continue
        shard = int(path.stem.rpartition("-")[2])
        rng = np.random.default_rng((seed, shard))
        arrays: dict[str, NDArray] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [described(task, rng) for task in read_tasks(path)]
            for i in range(_SCORED):
                found.append(described(simulate_scores(seed, shard * _SCORED + i), rng, 20_000.0))
        for i, one in enumerate(found):
            arrays |= {f"{i}/{name}": values for name, values in one.items()}
        unfinished = out.with_suffix(f".{os.getpid()}.part")
        with open(unfinished, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        os.replace(unfinished, out)
        new += 1
        if new % 20 == 0:
            say(f"{new} shards described")
    return new


def _proper(posteriors: NDArray) -> Floats:
    p = posteriors.astype(np.float64)
    found: Floats = p / p.sum(1, keepdims=True)
    return found


@dataclass
class DescribedBags:
    """Described bags of tasks with the same number of classes, as tensors; the first axis is the bag."""

    numbers: Any
    levels: Any
    unit: Any
    target: Any
    sizes: Any
    flat: Any

    def part(self, some: Any) -> DescribedBags:
        """Return some of the bags."""
        return DescribedBags(*(values[some] for values in vars(self).values()))


def read_described(paths: list[Path]) -> dict[int, DescribedBags]:
    """Read described bags by their number of classes."""
    import torch

    parts: dict[int, list[dict[str, NDArray]]] = {}
    for path in paths:
        with np.load(path, allow_pickle=False) as arrays:
            for i in sorted({name.partition("/")[0] for name in arrays.files}):
                one = {name: arrays[f"{i}/{name}"] for name in DescribedBags.__dataclass_fields__}
                parts.setdefault(one["target"].shape[1], []).append(one)
    return {
        k: DescribedBags(*(torch.as_tensor(np.concatenate([one[name] for one in found])) for name in found[0]))
        for k, found in parts.items()
    }


def make_network(width: int) -> Any:
    """Return the network, in torch, whose weights `histnetq.quantifiers.classical.pretrained_network` reads."""
    import torch

    sizes = {
        "first": (N_NUMBERS, width), "second": (width, width),
        "mixed": (4 * width, width), "third": (width, width), "again": (4 * width, width), "fourth": (width, width),
        "out": (width, N_LEVELS + 3),
    }  # fmt: skip
    layers = torch.nn.ModuleDict({name: torch.nn.Linear(*size) for name, size in sizes.items()})
    for values in layers["out"].parameters():
        torch.nn.init.zeros_(values)
    return layers


def apply_network(layers: Any, bags: DescribedBags) -> tuple[Any, Any, Any]:
    """Return the median of the logit of each part, and its standard deviations below and above: (n_bags, n_classes)."""
    import torch
    from torch.nn.functional import silu

    share = torch.sigmoid(bags.levels[:, MIDDLE])[..., None]

    def with_bag(h: Any) -> Any:
        pooled = torch.stack([h.mean(1), h.amax(1), (share * h).sum(1)], dim=1).flatten(1)
        return torch.cat([h, pooled[:, None].expand(-1, h.shape[1], -1)], dim=2)

    h = silu(layers["second"](silu(layers["first"](bags.numbers))))
    h = h + layers["third"](silu(layers["mixed"](with_bag(h))))
    h = h + layers["fourth"](silu(layers["again"](with_bag(h))))
    out = layers["out"](h)
    weights = out[..., :N_LEVELS].softmax(-1)
    middle = (weights * bags.levels.transpose(1, 2)).sum(-1) + 2 * torch.tanh(out[..., N_LEVELS] / 2) * bags.unit
    low, high = (bags.unit * torch.exp(out[..., N_LEVELS + i].clamp(-4, 4)) for i in (1, 2))
    if middle.shape[1] == 2:  # the logits of two parts are opposite numbers
        middle = (middle - middle.flip(1)) / 2
        low, high = (low + high.flip(1)) / 2, (high + low.flip(1)) / 2
    return middle, low, high


def loss_of(layers: Any, bags: DescribedBags) -> tuple[Any, Any]:
    """Return the loss of each bag in units of its expected error, and the absolute error of the medians."""
    import torch

    middle, low, high = apply_network(layers, bags)
    halves = 0.5 / bags.sizes[:, None]
    z = torch.special.ndtri(torch.tensor(_PINBALL))
    logit = middle[..., None] + torch.where(z < 0, low[..., None], high[..., None]) * z

    def parts(values: Any, halves: Any) -> Any:
        return ((1 + 2 * halves) * torch.sigmoid(values) - halves).clamp(0, 1)

    off = bags.target[..., None] - parts(logit, halves[..., None])
    levels = torch.tensor(_PINBALL)
    pinball = torch.maximum(levels * off, (levels - 1) * off).mean(-1).mean(1)
    medians = parts(middle, halves)
    spread = (low + high) * (medians * (1 - medians) + halves)
    # Quantiles of one rank that sum to 1, to first order.
    estimates = medians + (1 - medians.sum(1, keepdim=True)) * spread / spread.sum(1, keepdim=True)
    error = (estimates - bags.target).abs().mean(1)
    at = torch.sigmoid(bags.levels[:, MIDDLE])
    scale = (bags.unit * at * (1 - at)).clamp(max=0.5).mean(1) + _SMALLEST
    return (2 * pinball + 0.5 * error) / scale, error


def train(
    places: Sequence[Path],
    out: Path,
    minutes: float,
    width: int = 64,
    seed: int = 0,
    say: Callable[[str], Any] = print,
) -> None:
    """Train the network on described bags; write the weights with the lowest held-out loss, and a record of the run."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    paths = [path for place in places for path in sorted(place.glob("bags-*.npz"))]
    data, held = (
        read_described([path for i, path in enumerate(paths) if i % _KEPT_OUT]),
        read_described(paths[::_KEPT_OUT]),
    )
    classes = np.array(sorted(data))
    n_bags = np.array([len(data[k].sizes) for k in classes])
    say(f"{n_bags.sum():,} bags of {len(paths)} shards, every {_KEPT_OUT}th of which validates")
    layers, curve, seen, began = make_network(width), list[dict[str, Any]](), list[float](), time.time()
    optimiser = torch.optim.AdamW(layers.parameters(), _RATE, weight_decay=_DECAY)
    while (done := (time.time() - began) / (60 * minutes)) < 1:
        for group in optimiser.param_groups:
            group["lr"] = _RATE * min(1, (len(seen) + 1) / 200) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))
        k = int(rng.choice(classes, p=n_bags / n_bags.sum()))
        some = torch.as_tensor(rng.integers(len(data[k].sizes), size=_BATCH))
        loss = loss_of(layers, data[k].part(some))[0].clamp(max=_MOST_LOSS).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        optimiser.step()
        seen.append(float(loss.detach()))
        if len(seen) % _REPORT == 0:
            facts = {
                "step": len(seen),
                "minutes": round(done * minutes, 1),
                "loss": round(float(np.mean(seen[-_REPORT:])), 4),
            }
            curve.append(facts | validate(layers, held))
            say(json.dumps(curve[-1]))
            if curve[-1]["held"] <= min(row["held"] for row in curve):
                write_weights(layers, out)
    if not curve:
        write_weights(layers, out)
    run = {"width": width, "seed": seed, "minutes": minutes, "bags": int(n_bags.sum()), "shards": len(paths)}
    out.with_suffix(".json").write_text(json.dumps(run | {"curve": curve}, indent=1))


def validate(layers: Any, held: dict[int, DescribedBags]) -> dict[str, float]:
    """Return the loss on held-out tasks, the error relative to each level, and the coverage of 90 % intervals."""
    import torch

    totals: dict[str, list[Any]] = {"loss": [], "ratio": [], "inside": [], "flat": []}
    with torch.no_grad():
        for bags in held.values():
            loss, error = loss_of(layers, bags)
            halves = 0.5 / bags.sizes[:, None]
            middle, low, high = apply_network(layers, bags)
            inside = [
                from_logits((middle + s * width).double().numpy(), halves.double().numpy())
                for s, width in ((-1.645, low), (1.645, high))
            ]
            target = bags.target.double().numpy()
            totals["inside"].append(((inside[0] <= target + 1e-6) & (target <= inside[1] + 1e-6)).mean(1))
            totals["loss"].append(loss)
            levels = ((1 + 2 * halves[:, None]) * torch.sigmoid(bags.levels) - halves[:, None]).clamp(0, 1)
            base = (levels - bags.target[:, None]).abs().mean(2)
            tasks = len(error) // BAGS
            by_task = [values.reshape(tasks, BAGS, -1).mean(1) for values in (error[:, None], base)]
            totals["ratio"].append(torch.log((by_task[0] + 0.001) / (by_task[1] + 0.001)))
    ratio = torch.cat(totals["ratio"]).mean(0).exp()
    return {
        "held": round(float(torch.cat(totals["loss"]).clamp(max=_MOST_LOSS).mean()), 4),
        **{f"ratio {j}": round(float(value), 4) for j, value in enumerate(ratio)},
        "coverage": round(float(np.concatenate(totals["inside"]).mean()), 4),
    }


def write_weights(layers: Any, out: Path) -> None:
    """Write the weights as safetensors."""
    from safetensors.numpy import save_file

    out.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: values.detach().numpy() for name, values in layers.state_dict().items()}, out)
