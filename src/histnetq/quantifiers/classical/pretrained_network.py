"""The pretrained network: from described bags to a distribution of the part of each class, by numpy alone."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
from safetensors.numpy import load
from scipy.special import expit, ndtri

from histnetq.metrics import Measure
from histnetq.quantifiers.classical.cell_tokens import Described, from_logits, half
from histnetq.quantifiers.classical.simplex_cells import MIDDLE, N_LEVELS
from histnetq.simplex import Floats, Ints
from histnetq.uncertainty.decisions import decide

# Weights that ship with the package, by version, and the checksum of each file. Models name their version, and older
# versions are kept, so that the estimates of a stored model never change.
VERSIONS = {"1": "d65090570cb872026ebaf9e1ac2e5d34366cb0aa94847084624a8c0f5e8a6137"}
LATEST = "1"
_DRAWS, _NUMBERS_AT_ONCE = 256, 1 << 21  # draws for a decision, and numbers drawn at a time
_FAR, _HALVINGS = 9.0, 44  # of the search for a rank: standard deviations at its start, and steps
_TRIED, _LOPSIDED = 41, 0.02  # intervals that are compared; how much shorter one must be to exclude only one side
WIDER = 1.2  # factor of the widths: real tables vary more than simulated ones, as the development tables show
_WIDEST, _FARTHEST = 4.0, 2.0  # largest logarithm of a correction of a width; largest shift, in standard deviations


@dataclass(frozen=True)
class PartsDistribution:
    """Distribution of the parts of the classes in bags.

    The logit of each part is normal, with different widths below and above its median. A normal copula joins the
    classes. Attributes have the classes in the order of the cells, so that draws do not depend on the names of the
    classes. Results have them in the order of the model.

    Attributes
    ----------
    middle, low, high : (n_bags, n_classes)
        Median of the logit, and its standard deviations below and above.
    halves : (n_bags, 1)
        Half a row of a bag; a part of less than that is none.
    sizes : (n_bags,)
    covariances : (n_bags, n_classes, n_classes), or no bags
        Covariances of the parts, whose correlations are used.
    order : (n_classes,)
        Place of each class of the model.
    """

    middle: Floats
    low: Floats
    high: Floats
    halves: Floats
    sizes: Floats
    covariances: Floats
    order: Ints

    def _at(self, z: Floats) -> Floats:
        """Return the parts at numbers of standard deviations, which broadcast to ``(…, n_bags, n_classes)``."""
        return from_logits(self.middle + np.where(z < 0, self.low, self.high) * z, self.halves)

    def quantiles(self, ranks: Floats) -> Floats:
        """Return quantiles of the parts: (n_ranks,) → (n_ranks, n_bags, n_classes)."""
        return self._at(ndtri(np.asarray(ranks))[:, None, None])[..., self.order]

    def shortest(self, coverage: float) -> Floats:
        """Return the shortest intervals with this probability, from below and above: (2, n_bags, n_classes).

        An interval that excludes the same probability on both sides is preferred if it is hardly longer.
        """
        below = (1 - coverage) * np.linspace(0, 1, _TRIED)
        low, high = self.quantiles(below), self.quantiles(np.minimum(below + coverage, 1))
        lengths = (high - low) * (1 + _LOPSIDED * np.abs(np.linspace(-1, 1, _TRIED)))[:, None, None]
        best = lengths.argmin(0)[None]
        return np.concatenate([np.take_along_axis(low, best, 0), np.take_along_axis(high, best, 0)])

    def draw(self, n_draws: int) -> Floats:
        """Draw the parts of all classes together, with a fixed seed: (n_bags, n_draws, n_classes)."""
        n_classes = self.middle.shape[1]
        spread = np.sqrt(np.maximum(np.diagonal(self.covariances, axis1=1, axis2=2), 1e-300))
        correlations = self.covariances / (spread[:, :, None] * spread[:, None, :])
        correlations = 0.999 * np.clip(correlations, -1, 1) + 0.001 * np.eye(n_classes)
        values, axes = np.linalg.eigh(correlations)
        roots = axes * np.sqrt(np.maximum(values, 0))[:, None, :]
        roots /= np.sqrt((roots**2).sum(2, keepdims=True))
        noise = np.random.default_rng(0).normal(size=((n_draws + 1) // 2, n_classes))
        noise = np.concatenate([noise, -noise])[:n_draws]
        z = np.einsum("dk,bck->dbc", noise, roots @ np.swapaxes(axes, 1, 2))
        parts = self._at(z)[..., self.order]
        totals = parts.sum(2, keepdims=True)
        parts = np.where(totals > 0, parts / np.where(totals > 0, totals, 1), self.decision("ae"))
        return np.moveaxis(parts, 0, 1)

    def decision(self, loss: str | Measure, n_draws: int = _DRAWS) -> Floats:
        """Return the estimates with the least expected loss: (n_bags, n_classes)."""
        if loss == "ae":
            return self._equal_ranks()
        step = max(1, _NUMBERS_AT_ONCE // (n_draws * self.middle.shape[1]))
        parts = [self._part(slice(a, a + step)) for a in range(0, len(self.middle), step)]
        return np.concatenate([decide(part.draw(n_draws), loss, part.sizes) for part in parts])

    def _part(self, some: slice) -> PartsDistribution:
        return PartsDistribution(**{k: v if k == "order" else v[some] for k, v in vars(self).items()})

    def _equal_ranks(self) -> Floats:
        """Return the quantiles of one rank for all classes that sum to 1; they minimise the absolute error."""
        low, high = np.full((len(self.middle), 1), -_FAR), np.full((len(self.middle), 1), _FAR)
        for _ in range(_HALVINGS):
            z = (low + high) / 2
            is_small = self._at(z).sum(1, keepdims=True) < 1
            low, high = np.where(is_small, z, low), np.where(is_small, high, z)
        found = self._at((low + high) / 2)[:, self.order]
        return found / found.sum(1, keepdims=True)


Network = dict[str, Floats]  # weights and biases by the name of the layer


@functools.cache
def read_networks(version: str = LATEST) -> tuple[Network, ...]:
    """Read the networks of a version, whose results are averaged."""
    file = resources.files("histnetq.quantifiers.classical").joinpath(f"pretrained-{version}.safetensors")
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != VERSIONS[version]:
        raise RuntimeError(f"{file.name}: the checksum is wrong; install histnetq again.")
    found: dict[str, Network] = {}
    for name, values in load(content).items():
        number, _, layer = name.partition("/")
        found.setdefault(number, {})[layer] = np.asarray(values, np.float64)
    return tuple(found[number] for number in sorted(found))


def distribution(bags: Described, order: Ints, networks: Sequence[Network]) -> PartsDistribution:
    """Apply networks and average their results; `order` has the place of each class of the model."""
    results = [_apply(network, bags) for network in networks]
    middle, low, high = (sum(parts) / len(results) for parts in zip(*results, strict=True))
    if middle.shape[1] == 2:  # the logits of two parts are opposite numbers
        middle = (middle - middle[:, ::-1]) / 2
        low, high = (low + high[:, ::-1]) / 2, (high + low[:, ::-1]) / 2
    return PartsDistribution(middle, low, high, half(bags.sizes), bags.sizes, bags.covariances, order)


def _apply(w: Network, bags: Described) -> tuple[Floats, Floats, Floats]:
    """Return the medians of the logits, and their standard deviations below and above: (n_bags, n_classes) each."""

    def linear(name: str, x: Floats) -> Floats:
        found = (x.reshape(-1, x.shape[-1]) @ w[f"{name}.weight"].T).reshape(*x.shape[:-1], -1)
        found += w[f"{name}.bias"]
        return found

    def with_bag(name: str, h: Floats) -> Floats:
        """Apply a layer to classes beside their mean, maximum and weighted mean, which one bag needs once."""
        width, weight = h.shape[2], w[f"{name}.weight"].T
        found = (h.reshape(-1, width) @ weight[:width]).reshape(*h.shape[:2], -1)
        pooled = np.concatenate([h.mean(1), h.max(1), (share * h).sum(1)], axis=1)
        found += (pooled @ weight[width:] + w[f"{name}.bias"])[:, None]
        return found

    share = expit(bags.levels[:, MIDDLE])[..., None]
    h = _silu(linear("second", _silu(linear("first", bags.numbers))))
    h += linear("third", _silu(with_bag("mixed", h)))
    h += linear("fourth", _silu(with_bag("again", h)))
    out = linear("out", h)
    mixing = np.exp(out[..., :N_LEVELS] - out[..., :N_LEVELS].max(-1, keepdims=True))
    mixing /= mixing.sum(-1, keepdims=True)
    middle = (mixing * np.moveaxis(bags.levels, 1, 2)).sum(-1)
    middle += _FARTHEST * np.tanh(out[..., N_LEVELS] / 2) * bags.unit
    low, high = (WIDER * bags.unit * np.exp(np.clip(out[..., N_LEVELS + i], -_WIDEST, _WIDEST)) for i in (1, 2))
    return middle, low, high


def _silu(x: Floats) -> Floats:
    with np.errstate(over="ignore"):  # of numbers below -700, whose result is 0
        found: Floats = np.exp(-x)
    found += 1
    return np.divide(x, found, out=found)
