"""Fashion-MNIST: files of the right form and content, and only those, become labelled images."""

from __future__ import annotations

import gzip
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

import histnetq as hq
from experiments.fashion_mnist import read_fashion_mnist, read_idx
from histnetq.datasets import SOURCES
from tests.conftest import exactly


def idx(array):
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def write(folder, part, labels, packed=True):
    """Images that show nothing but their label in a corner and their number in the next pixels."""
    images = np.zeros((len(labels), 28, 28), np.uint8)
    images[:, 0, 0], images[:, 0, 1], images[:, 0, 2] = (
        labels,
        np.arange(len(labels)) // 256,
        np.arange(len(labels)) % 256,
    )
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        path = folder / f"{part}-{name}-ubyte{'.gz' * packed}"
        path.write_bytes(gzip.compress(idx(array), 1) if packed else idx(array))


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Four files of the real sizes."""
    folder, rng = tmp_path_factory.mktemp("fashion"), np.random.default_rng(0)
    write(folder, "train", rng.permutation(np.arange(60000) % 10))
    write(folder, "t10k", rng.permutation(np.arange(10000) % 10))
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "copy")


def test_parts_have_the_right_sizes_and_labels(original):
    data = read_fashion_mnist(original)
    assert [len(part.index) for part in (data.train, data.validation, data.test)] == [50000, 10000, 10000]
    assert data.classes[[0, 9]].tolist() == ["T-shirt/top", "Ankle boot"]
    for part in (data.train, data.validation, data.test):
        assert (part.rows.dtype, part.rows.shape[1:]) == (np.uint8, (28, 28))
        np.testing.assert_array_equal(part.gather()[:, 0, 0], part.labels[part.index])
        np.testing.assert_allclose(part.prevalences, np.full((1, 10), 0.1))
    assert not np.intersect1d(data.train.index, data.validation.index).size
    assert data.train.rows is data.validation.rows
    drawn = hq.APP(20).draw(data.test, 3, random_state=0)
    np.testing.assert_allclose(drawn.prevalences, drawn.label_prevalences())


def test_the_split_follows_its_seed(original):
    first, same, other = (read_fashion_mnist(original, random_state=seed).validation.index for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_unpacked_files_are_read_too(folder, original):
    for file in folder.glob("*.gz"):
        file.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
        file.unlink()
    assert read_fashion_mnist(folder).test.fingerprint() == read_fashion_mnist(original).test.fingerprint()


def test_files_are_found_where_they_are_fetched_to_and_where_the_package_puts_them(original, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_DIRS", f"{tmp_path / 'none'}:{tmp_path / 'share'}")
    with pytest.raises(
        FileNotFoundError, match=r"^data_dir: .*/histnetq/fashion-mnist lacks train-images-idx3-ubyte\.gz"
    ):
        read_fashion_mnist()
    package = shutil.copytree(original, tmp_path / "share/datasets/fashion-mnist")
    assert len(read_fashion_mnist().test.index) == 10000
    assert SOURCES["fashion-mnist"].state() == f"present in {package}"
    assert SOURCES["fashion-mnist"].state(tmp_path) == "missing"
    home = shutil.copytree(original, tmp_path / "histnetq/fashion-mnist")
    shutil.rmtree(package)
    assert len(read_fashion_mnist().train.index) == 50000
    assert SOURCES["fashion-mnist"].state() == f"present in {home}"


def test_packages_put_data_sets_into_shared_directories(monkeypatch):
    monkeypatch.delenv("XDG_DATA_DIRS")
    shared = [Path("/usr/local/share/datasets/fashion-mnist"), Path("/usr/share/datasets/fashion-mnist")]
    assert SOURCES["fashion-mnist"].places[1:] == shared


def test_missing_files_are_explained(folder):
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    message = (
        f"data_dir: {folder} lacks t10k-labels-idx1-ubyte.gz of fashion-mnist, expected train-images-idx3-ubyte.gz, "
        "train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz of Debian's package "
        "dataset-fashion-mnist or the GitHub repository zalandoresearch/fashion-mnist, packed or unpacked; put them "
        f"there, or run histnetq.datasets.fetch('fashion-mnist', to='{folder}')."
    )
    with pytest.raises(FileNotFoundError, match=exactly(message)):
        read_fashion_mnist(folder)


def test_other_shapes_and_counts_are_refused(folder):
    write(folder, "t10k", np.arange(9990) % 10)
    with pytest.raises(ValueError, match=r"t10k-images.* shape \(9990, 28, 28\), expected \(10000, 28, 28\); fetch it"):
        read_fashion_mnist(folder)
    write(folder, "t10k", np.arange(10000) % 8)
    with pytest.raises(ValueError, match=r"t10k-labels.* \(10000,\) with 0 to 1250 of a class, expected 1000 of each"):
        read_fashion_mnist(folder)
    write(folder, "t10k", np.arange(10000) % 11)
    with pytest.raises(
        ValueError, match=r"t10k-labels.* expected 1000 of each of the classes 0 to 9; fetch it again\."
    ):
        read_fashion_mnist(folder)


VALID = idx(np.arange(6).reshape(2, 3))


@pytest.mark.parametrize("packed", [False, True], ids=["unpacked", "packed"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with nothing, expected 00 00 08 and the number of dimensions of an IDX file of bytes"),
        (b"<html>", "begins with 3c 68 74 6d, expected 00 00 08 and the number of dimensions"),
        (bytes([0, 0, 13, 1]), "begins with 00 00 0d 01, expected 00 00 08 and the number of dimensions"),
        (bytes([0, 0, 8, 0]), "begins with 00 00 08 00, expected 00 00 08 and the number of dimensions"),
        (VALID[:9], "has a header for an array of shape (2,), which is damaged"),
        (bytes([0, 0, 8, 2]) + b"\xff" * 8, "has a header for an array of shape (4294967295, 4294967295), which is"),
        (VALID[:-1], "is truncated or damaged: it holds only 5 bytes, its header says 6"),
        (VALID + b"x", "is truncated or damaged: it holds more bytes, its header says 6"),
    ],
)  # fmt: skip
def test_wrong_idx_files_are_told_apart(tmp_path, content, message, packed):
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(ValueError) as raised:
        read_idx(path)
    assert str(raised.value).startswith(f"data_dir: {path} {message}")
    assert str(raised.value).endswith("; fetch it again.")


def test_truncated_and_damaged_packing(tmp_path):
    path, whole = tmp_path / "file.gz", gzip.compress(VALID)
    path.write_bytes(whole)
    np.testing.assert_array_equal(read_idx(path), np.arange(6).reshape(2, 3))
    for content in (whole[:-12], whole[:6], whole[:10] + b"\xff" * 4 + whole[14:], whole[:-5] + b"abcde"):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=r"^data_dir: .*file\.gz is truncated or damaged \(.*\); fetch it again\.$"
        ):
            read_idx(path)
