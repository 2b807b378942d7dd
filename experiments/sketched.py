"""Methods whose sketches count rows in cells: errors of estimates from rows and from sketches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import histnetq as hq
from experiments.bagged import BagExperiment
from experiments.choices import mean_error

__all__ = ["run_sketches"]

_TRAINING = hq.Training(epochs=20, patience=5, progress=False)


def run_sketches(experiment: BagExperiment, say: Callable[[str], Any]) -> pd.DataFrame:
    """Compute AE and RAE on the calibration bags; networks learn from bags, EMQ from labelled rows."""
    data, found = experiment.data, []
    held = data.calibration
    assert held is not None
    fits: dict[str, Callable[[], hq.Quantifier]] = {
        "EMNetQ, linear": partial(hq.EMNetQ(training=_TRAINING, random_state=0).fit, data.bags),
        "EMNetQ, 64 units": partial(hq.EMNetQ((64,), training=_TRAINING, random_state=0).fit, data.bags),
        "EMQ": partial(hq.EMQ(random_state=0).fit, data.train),
    }
    for name, fit in fits.items():
        q = fit()
        estimates = {"rows": q.predict(held), "sketches": q.predict(q.sketch(held))}
        row: dict[str, Any] = {"data": data.name, "classes": str(len(data.classes)), "method": name}
        for measure in ("ae", "rae"):
            scores = {source: mean_error(measure, held, p) for source, p in estimates.items()}
            row |= {f"{measure.upper()}, {source}": score for source, score in scores.items()}
            row[f"{measure.upper()}, ratio"] = scores["sketches"] / scores["rows"]
        row["apart"] = float(np.abs(estimates["rows"] - estimates["sketches"]).mean())
        found.append(row)
        say(f"{row}")
    return pd.DataFrame(found)
