"""How wrong the Bag Mixer's labels are: it knows the proportions of two bags, not those of the halves it draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import histnetq as hq
from experiments.bagged import BagExperiment

__all__ = ["label_errors"]


def label_errors(experiment: BagExperiment, labels: NDArray[np.int64], n_bags: int = 2000) -> dict[str, Any]:
    """Absolute errors per bag of the Mixer's labels and of EMQ-BCTS's estimates for the same bags.

    Parameters
    ----------
    labels : (n_pool,)
        Of all rows, known to this comparison alone.
    """
    data = experiment.data
    mixed = hq.Mixer(real_proportion=0.0).draw(data.bags, n_bags, random_state=0)
    counted = hq.Bags(mixed.rows, mixed.index, mixed.offsets, labels=labels, classes=data.classes).label_prevalences()
    crossed, pool = experiment.posteriors.get({"C": 0.01, "class_weight": None})
    emq = hq.EMQ(calibration="bcts").fit_posteriors(
        crossed, experiment.posteriors.labels, classes=range(len(data.classes))
    )
    estimates = emq.predict_posteriors(hq.Bags(pool, mixed.index, mixed.offsets))
    return {
        "Bag Mixer's labels": hq.metrics.ae(counted, mixed.prevalences),
        "EMQ-BCTS's estimates": hq.metrics.ae(counted, estimates),
    }
