"""Data sets in one ``.npz`` file, which the experiments read."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.npz import read_npz
from tests.conftest import exactly


def write_npz(path, n_classes=2, bag_size=20, seed=0, **changed):
    """A small data set with the arrays of the real ones."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=400).astype(np.uint8)
    split = np.repeat([0, 1, 2], [160, 120, 120])
    X = (rng.normal(size=(400, 3)) + 1.5 * y[:, None] * [1, -1, 0] + 5).astype(np.float16)

    def draw(n_bags, part):
        rows = rng.choice(np.flatnonzero(split == part), size=(n_bags, bag_size))
        return rows.astype(np.uint16), (y[rows][:, :, None] == np.arange(n_classes)).mean(1)

    arrays = {"X": X, "y": y, "split": split, "class_names": np.array([f"class {c}" for c in range(n_classes)])}
    arrays["dev_bags"], arrays["dev_prevalences"] = draw(13, 1)
    arrays["dev_group"] = np.repeat([0, 1, 2], [7, 3, 3])
    arrays["test_bags"], arrays["test_prevalences"] = draw(10, 2)
    np.savez(path, **{k: v for k, v in {**arrays, **changed}.items() if v is not None})
    return arrays


def test_parts_hold_what_the_file_says(tmp_path):
    arrays = write_npz(tmp_path / "small.npz")
    data = read_npz(tmp_path / "small.npz", standardize=False)
    assert (data.name, data.classes.tolist()) == ("small", ["class 0", "class 1"])
    assert [len(b) for b in (data.train, data.bags, data.validation, data.calibration, data.test)] == [1, 7, 3, 3, 10]
    np.testing.assert_array_equal(data.test.gather(), arrays["X"][arrays["test_bags"].ravel()].astype(np.float32))
    np.testing.assert_allclose(data.validation.prevalences, arrays["dev_prevalences"][7:10])
    np.testing.assert_array_equal(data.train.labels[:160], arrays["y"][:160])


def test_rows_outside_training_are_not_labelled(tmp_path):
    write_npz(tmp_path / "small.npz")
    data = read_npz(tmp_path / "small.npz")
    assert (data.train.labels[160:] == -1).all()
    assert all(part.labels is None for part in (data.bags, data.validation, data.calibration, data.test))
    assert all(part.rows is data.train.rows for part in (data.bags, data.test))


def test_features_are_standardised_by_the_training_rows(tmp_path):
    write_npz(tmp_path / "small.npz")
    rows = read_npz(tmp_path / "small.npz").train.gather()
    np.testing.assert_allclose(rows.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(rows.std(0), 1, atol=1e-5)


def test_missing_file_and_missing_array(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"path: .*no\.npz does not exist; give the \.npz file of a data set\."):
        read_npz(tmp_path / "no.npz")
    write_npz(tmp_path / "small.npz", dev_group=None)
    message = (
        f"path: {tmp_path / 'small.npz'} has no array 'dev_group', expected X, y, split, class_names, dev_bags, "
        "dev_group, dev_prevalences, test_bags, test_prevalences."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        read_npz(tmp_path / "small.npz")
