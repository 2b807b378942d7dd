"""How often streams of chunks without a shift have an alert, how soon a shift has one, and what verdicts say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import histnetq as hq
from experiments import trust
from histnetq.workflows.monitoring.alerts import HORIZON, Alerts, find_alerts
from histnetq.workflows.monitoring.null_simulation import drawing_of

__all__ = ["MIXES", "SHIFTS", "NetworkReviews", "Reviews", "run_false_alarms", "run_power", "run_verdicts"]

MIXES = (0.5, 0.2, 0.05)  # share of the second class in the reference
SHIFTS = (0.02, 0.05, 0.1, 0.2)
_REFERENCE, _WITHIN = 26, (1, 2, 4, 8)  # chunks
_SPREAD = 0.6  # of over-dispersed chunks, as part of √(p (1 − p) / n) with n = 100
Floats = NDArray[np.float64]


class Reviews:
    """Film reviews of two classes: EMQ on some of them, and the posteriors of others, from which chunks are drawn.

    Parameters
    ----------
    data : Path
        Directory of the data sets.
    """

    def __init__(self, data: Path) -> None:
        with np.load(data / "binary_imdb_w2v300.npz") as file:
            rows, labels, split = (file[name] for name in ("X", "y", "split"))
        known, test = split == 0, split == 2
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.05, max_iter=1000))
        self.model: Any = hq.EMQ(classifier, rescaling="bcts", random_state=0)
        self.model.fit(rows[known].astype(np.float32), labels[known])
        self.posteriors = self.model.classifier_.predict_proba(rows[test].astype(np.float32))
        self.by_class = [np.flatnonzero(labels[test] == c) for c in (0, 1)]
        self._simulated, self._pools = drawing_of(self.model), {}  # type: ignore[var-annotated]

    def draw(self, mix: Floats, size: int, n_draws: int, rng: np.random.Generator) -> Floats:
        """Draw as the model does, once for all references whose mixes are the same to the nearest half per cent."""
        second = round(mix[1] * 200) / 200
        if (second, size) not in self._pools:
            self._pools[second, size] = self._simulated(np.array([1 - second, second]), size, n_draws, rng)
        return self._pools[second, size] + mix - [1 - second, second]

    def estimates(self, mixes: Floats, size: int, rng: np.random.Generator) -> Floats:
        """(n_chunks, 2): estimates of chunks with these shares of the second class."""
        second = rng.random((len(mixes), size)) < mixes[:, None]
        rows = np.where(second, *(rng.choice(self.by_class[c], second.shape) for c in (1, 0)))
        offsets = np.arange(len(mixes) + 1) * size
        return self._predict(rows.ravel(), offsets)

    def _predict(self, index: NDArray, offsets: NDArray) -> Floats:
        return self.model.predict_posteriors(hq.Bags.trusted(self.posteriors, index, offsets))

    def watch(
        self, mix: float, spread: float, size: int, shifts: tuple[float, ...], rng: np.random.Generator
    ) -> Alerts:
        """Watch one stream: a reference, and 52 chunks for each shift, at which sums of changes start anew."""
        means = mix + np.repeat([0.0, *shifts], [_REFERENCE + HORIZON, *[HORIZON] * len(shifts)])
        mixes = means if spread == 0 else _beta(means, spread, rng)
        estimates = self.estimates(mixes, size, rng)
        sizes, held = np.full(len(means), size), np.arange(len(means)) < _REFERENCE
        return find_alerts(estimates, sizes, held, self.draw)


class NetworkReviews(Reviews):
    """The same reviews, divided at random and reduced to 30 main directions, and a small HistNetQ.

    Parameters
    ----------
    data : Path
        Directory of the data sets.
    epochs : int, default=15
        Epochs of the network.
    """

    def __init__(self, data: Path, epochs: int = 15) -> None:
        with np.load(data / "binary_imdb_w2v300.npz") as file:
            rows, labels, part = (file[name] for name in ("X", "y", "split"))
        part[part > 0] = np.random.default_rng(0).permutation(part[part > 0])
        known = rows[part == 0].astype(np.float32)
        reduce = make_pipeline(StandardScaler(), PCA(min(30, rows.shape[1]), random_state=0)).fit(known)
        reduced = reduce.transform(rows.astype(np.float32)).astype(np.float32)
        train, calibration, test = (hq.Bags.from_labels(reduced[part == k], labels[part == k]) for k in range(3))
        training = hq.Training(epochs=epochs, bags_per_epoch=100)
        self.model = hq.HistNetQ(encoder=(16,), training=training, random_state=0)
        self.model.fit(hq.APP(250).draw(train, 300, random_state=0))
        self.model.calibrate(hq.APP(250).draw(calibration, 200, random_state=1))
        self.rows, self.by_class = test.rows, [np.flatnonzero(labels[part == 2] == c) for c in (0, 1)]
        self._simulated = drawing_of(self.model)

    def draw(self, mix: Floats, size: int, n_draws: int, rng: np.random.Generator) -> Floats:
        """Draw as the model does."""
        return self._simulated(mix, size, n_draws, rng)

    def _predict(self, index: NDArray, offsets: NDArray) -> Floats:
        return self.model.predict(hq.Bags.trusted(self.rows, index, offsets))


def _beta(means: Floats, spread: float, rng: np.random.Generator) -> Floats:
    strength = means * (1 - means) / spread**2 - 1
    return rng.beta(means * strength, (1 - means) * strength)


def run_false_alarms(reviews: Reviews, n_streams: int, size: int) -> pd.DataFrame:
    """One row per mix and spread of the chunks: the part of the streams without a shift that have any alert."""
    rows: list[dict[str, Any]] = []
    for mix in MIXES:
        for part in (0.0, _SPREAD):
            spread, rng = part * (mix * (1 - mix) / 100) ** 0.5, np.random.default_rng([round(1000 * mix), size])
            found = [reviews.watch(mix, spread, size, (), rng) for _ in range(n_streams)]
            changed, drifted = (
                np.array([getattr(alerts, name).any() for alerts in found]) for name in ("changed", "drifted")
            )
            rows.append(
                {"size": size, "mix": mix, "sd of the chunks' mixes": spread, "any alert": (changed | drifted).mean(),
                 "by a chunk": changed.mean(), "by a sum": drifted.mean(), "streams": n_streams}
            )  # fmt: skip
            print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def run_power(reviews: Reviews, n_streams: int, size: int, mix: float = 0.5) -> pd.DataFrame:
    """One row per shift: the part of the streams that have an alert within some chunks."""
    rng = np.random.default_rng([round(1000 * mix), size, 1])
    watched = [reviews.watch(mix, 0.0, size, SHIFTS, rng) for _ in range(n_streams)]
    found = np.array([(alerts.changed | alerts.drifted)[_REFERENCE:, 1] for alerts in watched])
    blocks = found.reshape(n_streams, 1 + len(SHIFTS), HORIZON)[:, 1:]
    rows = []
    for j, shift in enumerate(SHIFTS):
        within = {f"within {n}": blocks[:, j, :n].any(1).mean() for n in _WITHIN}
        rows.append({"size": size, "mix": mix, "shift": shift, **within, "streams": n_streams})
    return pd.DataFrame(rows)


def run_verdicts(n_draws: int, n_chunks: int = HORIZON, size: int = 1000, share: float = 0.3) -> pd.DataFrame:
    """One row per change within the classes at a fixed mix: mean AE before and after, and how common verdicts are."""
    found = []
    for world_name in ("10 features", "50 features"):
        for seed in range(n_draws):
            world, rng = trust.World(world_name, seed), np.random.default_rng(seed)
            y = rng.integers(world.n_classes, size=1000)
            q = hq.EMQ(rescaling="bcts", random_state=0).fit(hq.Bags.from_labels(world.rows(y, rng), y))
            q.calibrate(world.calibrated(100, True, 500 + seed))
            mixes = np.tile([1 - share, share], (_REFERENCE, 1))
            known = world.bags(mixes, np.full(_REFERENCE, size), rng)
            before = hq.evaluate(q, known)["ae"].mean()
            for name in (name for name, (own, _) in trust.SHIFTS.items() if own == world_name):
                mixes = np.tile([1 - share, share], (n_chunks, 1))
                bags = world.bags(mixes, np.full(n_chunks, size), rng, trust.SHIFTS[name][1])
                estimates = np.concatenate([q.predict(known), q.predict(bags)])
                held = np.arange(len(estimates)) < _REFERENCE
                alerts = find_alerts(estimates, np.full(len(estimates), size), held, drawing_of(q))
                moved = (alerts.changed | alerts.drifted)[~held].any(1)
                different = q.trust(bags)["trust"].str.startswith("unusual").to_numpy()
                found.append(
                    {"change": name, "AE before": before, "AE after": hq.evaluate(q, bags)["ae"].mean(),
                     "rows look different": different.mean(), "moved": (moved & ~different).mean(),
                     "unchanged": (~moved & ~different).mean()}
                )  # fmt: skip
    return pd.DataFrame(found).groupby("change", sort=False).mean().reset_index()
