"""Choosing the bags whose proportions would teach a regression most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_whole, take_dense, used_rows
from histnetq.errors import InputError
from histnetq.quantifiers.base import Quantifier
from histnetq.simplex import Ints
from histnetq.sketches.posteriors import bag_means
from histnetq.workflows.estimating import Place, as_model
from histnetq.workflows.reading import columns_of, reader

__all__ = ["choose_bags", "sample_bags"]

_MOST_FEATURES = 2_000  # the design matrix has as many rows and columns
_RANK = 1e-8  # smallest singular value of the mean rows, relative to the largest
_FREE = 1e-3  # penalty of the intercept, relative to the penalty of the slopes


def choose_bags(bags: Bags, n: int) -> Ints:
    """Choose the bags whose proportions would teach a regression on mean rows most.

    Bags are chosen one at a time, each such that the mean variance of the estimates of all bags falls most (I-optimal
    design for ridge regression). The proportions of the bags are not needed.

    Parameters
    ----------
    bags : Bags
        Bags of rows of numbers.
    n : int
        Number of bags to choose.

    Returns
    -------
    (n,)
        Numbers of the bags; the first one teaches most.

    References
    ----------
    Atkinson, Donev & Tobias (2007), *Optimum experimental designs*.

    Examples
    --------
    >>> bags = Bags(np.array([[0.0], [0.9], [1.0], [5.0]]), index=[0, 1, 2, 3], offsets=[0, 1, 2, 3, 4])
    >>> choose_bags(bags, 2)
    array([2, 3])
    """
    if not 1 <= check_whole("n", n) <= len(bags):
        raise InputError("n", f"a whole number from 1 to {len(bags)}, the number of bags", n, "give another")
    if len(bags.rows.shape) != 2 or bags.rows.shape[1] > _MOST_FEATURES:
        expected = f"rows of at most {_MOST_FEATURES:,} numbers"
        raise InputError("bags", expected, f"rows of shape {bags.rows.shape[1:]}", "choose fewer features")
    used, index = used_rows(bags.index, bags.rows.shape[0])
    x = bag_means(take_dense(bags.rows, used).astype(np.float64), index, bags.offsets, bags.weights)
    x = x - x.mean(0)
    x /= np.where(x.std(0) > 0, x.std(0), 1)
    _, singular, directions = np.linalg.svd(x, full_matrices=False)
    kept = singular > _RANK * max(singular[0], 1e-300)
    x = np.column_stack([np.ones(len(x)), x @ directions[kept].T])
    inverse, wanted, chosen = np.diag(np.r_[1 / _FREE, np.ones(kept.sum())]), x.T @ x, list[int]()
    for _ in range(n):
        along = x @ inverse
        own = 1 + np.einsum("ij,ij->i", along, x)
        gains = np.einsum("ij,ij->i", along @ wanted, along) / own
        gains[chosen] = -1
        best = int(gains.argmax())
        chosen.append(best)
        inverse -= np.outer(along[best], along[best]) / own[best]
    return np.array(chosen, dtype=np.int64)


def sample_bags(
    model: Quantifier | Place,
    table: Any,
    *,
    n: int,
    bag: str | Sequence[str],
    weight: str | None = None,
    missing: str = "refuse",
) -> pd.DataFrame:
    """Choose the bags of a table whose proportions would teach most; see `choose_bags`.

    This is what ``histnetq sample --bags`` does.

    Parameters
    ----------
    model : Quantifier or path
        A fitted quantifier, or the directory of a stored one; it names the features.
    table : path, glob, list of paths, or data frame
        The rows of bags without known proportions.
    n : int
        Number of bags to choose.
    bag : str or sequence of str
        Columns that name the bag of each row.
    weight : str, default=None
        Column of survey weights.
    missing : {"refuse", "mean"}, default="refuse"
        Refuse rows with missing values, or fill them with the training mean.

    Returns
    -------
    DataFrame
        One row per chosen bag, with the columns `rank`, `bag` and `size`.

    Examples
    --------
    >>> import histnetq as hq
    >>> rows = pd.DataFrame({"x": [0.0, 1.0] * 20, "site": ["n", "n", "s", "w"] * 10})
    >>> q = hq.PACC(random_state=0).fit(rows[["x"]], ["a", "b"] * 20)
    >>> sample_bags(q, rows, n=2, bag="site")["bag"].tolist()
    ['n', 's']
    """
    if not columns_of(bag):
        raise InputError("bag", "the columns that name the bags", "none", "name them")
    bags, _ = reader(table, weight=weight, missing=missing, bag=columns_of(bag))(as_model(model))
    chosen = choose_bags(bags, n)
    names: NDArray = np.arange(len(bags)) if bags.ids is None else np.asarray(bags.ids)
    return pd.DataFrame({"rank": np.arange(1, n + 1), "bag": names[chosen], "size": bags.sizes[chosen]})
