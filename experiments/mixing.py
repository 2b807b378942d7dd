"""How wrong the Bag Mixer's labels are: it knows the proportions of two bags, not those of the halves it draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import histnetq as hq
from experiments.bagged import BagExperiment

__all__ = ["label_errors"]


def label_errors(
    experiment: BagExperiment, labels: NDArray[np.int64], n_bags: int = 2000
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """AE and RAE per bag of the Mixer's labels and of EMQ-BCTS's estimates for the same bags.

    Parameters
    ----------
    labels : (n_pool,)
        Of all rows, known to this comparison alone.
    """
    data = experiment.data
    mixed = hq.Mixer(real_proportion=0.0).draw(data.bags, n_bags, random_state=0)
    counted = hq.Bags(mixed.rows, mixed.index, mixed.offsets, labels=labels, classes=data.classes).label_prevalences()
    said = {
        "Bag Mixer's labels": mixed.prevalences,
        "EMQ-BCTS's estimates": experiment.estimate(hq.EMQ(rescaling="bcts"), mixed),
    }
    measures = {name: hq.metrics.MEASURES[name] for name in ("ae", "rae")}
    return {
        name: {who: np.asarray(measure(counted, p, mixed.sizes)) for who, p in said.items()}
        for name, measure in measures.items()
    }
