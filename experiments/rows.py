"""Which class is a row of? Answered by EMNetQ, which has seen proportions alone, beside a classifier with labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.bagged import BagExperiment
from experiments.budgets import Budget

__all__ = ["row_accuracies"]

_C = 0.05


def row_accuracies(
    experiment: BagExperiment, budget: Budget, labels: NDArray[np.int64], split: NDArray[np.int64]
) -> pd.DataFrame:
    """Accuracy on the rows for tests, as one bag whose proportions nobody tells.

    Parameters
    ----------
    labels, split : (n_pool,)
        As `experiments.presets.read_labels` and `read_split` give them.
    """
    data = experiment.data
    test = np.flatnonzero(split == 2)
    X, y = np.asarray(data.train.rows[test], dtype=np.float64), labels[test]
    found: list[dict[str, Any]] = []
    for method in ("EMNetQ", "EMNetQ-labels"):
        for seed in range(budget.seeds):
            quantifier, chosen = experiment.trials(method, seed, budget).best()
            right = quantifier.predict_rows(X).argmax(1) == y
            found.append({"method": method, "seed": seed, "accuracy": float(right.mean()), "chosen": chosen})
    rows = data.train.index
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=_C, max_iter=1000))
    classifier.fit(np.asarray(data.train.rows[rows], dtype=np.float64), labels[rows])
    accuracy = float(classifier.score(X, y))
    found.append({"method": "logistic regression", "seed": 0, "accuracy": accuracy, "chosen": f"C={_C}"})
    return pd.DataFrame(found).assign(n_rows=len(test))
