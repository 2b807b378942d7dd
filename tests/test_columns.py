"""Which columns of a table become features, how their numbers are kept, and tables without bags."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import histnetq as hq


def test_labelled_rows_in_no_bags_are_one_bag() -> None:
    rows = pd.DataFrame({"length": [1.0, 2.5, 3.0, 4.0], "diagnosis": ["x", "y", "y", "y"]})
    for bag in (None, []):
        bags = hq.read_bags(rows, bag=bag, label="diagnosis")
        assert len(bags) == 1
        assert bags.ids.tolist() == ["all"]
        assert bags.rows[bags.index].ravel().tolist() == [1, 2.5, 3, 4]
        assert bags.classes[bags.labels].tolist() == ["x", "y", "y", "y"]
        np.testing.assert_allclose(bags.prevalences, [[0.25, 0.75]])


def test_proportions_need_bags() -> None:
    rows = pd.DataFrame({"length": [1.0, 2.0]})
    known = pd.DataFrame({"x": [0.5], "y": [0.5]})
    with pytest.raises(ValueError, match="bag: expected the columns that name the bags of prevalences, got none"):
        hq.read_bags(rows, prevalences=known)
