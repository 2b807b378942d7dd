"""Data sets and where they are looked for; zip archives that are refused."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import sys
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from histnetq import Bags
from histnetq.datasets import SOURCES, Dataset, digits
from histnetq.datasets.archives import Archive
from tests.conftest import exactly
from tests.isolation import hide_machine


def test_a_data_set_without_test_bags_says_so():
    rows = Bags.from_labels(np.zeros((2, 1)), ["no", "yes"])
    data = Dataset("small", rows, rows, rows)
    assert (data.calibration, data.test_bags, data.classes.tolist()) == (None, None, ["no", "yes"])
    message = (
        "test: small was read without test bags, expected its test files beside the others; "
        "add them and read it again, or use validation."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        _ = data.test


def test_digits_are_split_by_class_and_drawn_by_seed():
    data = digits(n_bags=30, bag_size=40)
    assert data.classes.tolist() == list(range(10))
    assert len(data.train.rows) + len(data.test.rows) == 1797
    assert abs(np.bincount(data.train.labels) - np.bincount(data.test.labels)).max() <= 1
    assert (data.test.sizes == 40).all()
    np.testing.assert_allclose(data.test.prevalences, data.test.label_prevalences())
    assert data.test.fingerprint() == digits(30, 40).test.fingerprint() != digits(30, 40, 1).test.fingerprint()
    assert data.validation is None


def states():
    return {source.name: source.state() for source in SOURCES.values() if source.files}


def test_tests_see_nothing_of_the_machine(isolated_machine):
    assert set(states().values()) == {"missing"}
    assert Path.home().parent == isolated_machine
    code = "import os; from pathlib import Path; print(Path.home(), os.environ.get('HISTNETQ_DATA'))"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert seen.split() == [str(Path.home()), "None"]


@pytest.mark.parametrize(
    ("variable", "folder"),
    [("HOME", ".local/share/histnetq"), ("XDG_DATA_HOME", "histnetq"), ("XDG_DATA_DIRS", "datasets")],
)
def test_data_of_a_machine_are_found_until_it_is_hidden(tmp_path, monkeypatch, variable, folder):
    for source in SOURCES.values():
        for file in source.files:
            path = tmp_path / folder / source.folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    for name in ("XDG_DATA_HOME", "XDG_DATA_DIRS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("HISTNETQ_DATA", str(tmp_path))
    assert all(state.startswith(f"present in {tmp_path}") for state in states().values())
    hide_machine(monkeypatch, tmp_path / "empty")
    assert set(states().values()) == {"missing"}
    assert "HISTNETQ_DATA" not in os.environ


def member(name, mode=stat.S_IFREG | 0o644):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def pack(path, contents, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of repeated names
        for name, content in contents:
            file.writestr(name, content)
    return path


def test_members_are_read_as_they_were_packed(tmp_path):
    archive = Archive(pack(tmp_path / "a.zip", [("a/b.txt", b"one"), ("a/", b""), ("c", b""), ("d", bytes(9000))]))
    assert archive.names == ["a/b.txt", "c", "d"]
    assert [archive.read(name) for name in archive.names] == [b"one", b"", bytes(9000)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(archive.read, ["d", "a/b.txt"] * 100)) == [bytes(9000), b"one"] * 100
    archive.close()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("../out.txt", "has a name that leads out of the archive"),
        ("a/../../out.txt", "has a name that leads out of the archive"),
        ("a\\..\\out.txt", "has a name that leads out of the archive"),
        ("/etc/out.txt", "has an absolute name"),
        ("C:/out.txt", "has an absolute name"),
    ],
)
def test_names_that_lead_elsewhere_are_refused(tmp_path, name, problem):
    path = pack(tmp_path / "bad.zip", [("fine.txt", b"1"), (name, b"2")])
    message = (
        f"archive: {name!r} in {path} {problem}, expected plain files inside the archive; "
        "the archive is refused, fetch it from its public record."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        Archive(path)


def test_links_repeated_and_encrypted_members_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'link' in .* is a link or a special file, expected"):
        Archive(pack(tmp_path / "link.zip", [(member("link", stat.S_IFLNK | 0o777), b"/etc/passwd")]))
    with pytest.raises(ValueError, match=r"'a' in .* occurs twice, expected"):
        Archive(pack(tmp_path / "twice.zip", [("a", b"1"), ("a", b"2")]))
    path = pack(tmp_path / "locked.zip", [("a", b"1")])
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"'a' in .* is encrypted, expected"):
        Archive(path)


def declare(path, size, crc=None):
    """Let the only member of an archive declare another size."""
    content = bytearray(path.read_bytes())
    for start, place in ((content.index(b"PK\3\4"), 22), (content.index(b"PK\1\2"), 24)):
        struct.pack_into("<I", content, start + place, size)
        if crc is not None:
            struct.pack_into("<I", content, start + place - 8, crc)
    path.write_bytes(content)
    return path


def test_absurd_sizes_are_refused(tmp_path):
    bomb = pack(tmp_path / "bomb.zip", [("zeros.txt", bytes(1 << 22))])
    with pytest.raises(ValueError, match=r"'zeros.txt' in .* declares 4,194,304 bytes packed into [\d,]+, expected"):
        Archive(bomb)
    huge = declare(pack(tmp_path / "huge.zip", [("a", b"1")]), (1 << 31) + 1)
    with pytest.raises(ValueError, match=r"'a' in .* declares 2,147,483,649 bytes, expected"):
        Archive(huge)
    many = pack(tmp_path / "many.zip", [(f"{i}.txt", bytes(1 << 19)) for i in range(8)])
    with pytest.raises(
        ValueError, match=r"many.zip of [\d,]+ bytes declares 4,194,304 bytes unpacked, expected at most"
    ):
        Archive(many)


def test_a_member_of_another_size_than_declared_is_refused(tmp_path):
    # Shorter than it is, with the checksum of the part: zipfile alone would cut it off and be content.
    hidden = declare(pack(tmp_path / "hidden.zip", [("a", b"12" + bytes(9000))]), 2, zipfile.crc32(b"12"))
    with pytest.raises(
        ValueError, match=r"a in .*hidden.zip declares 2 bytes and unpacks to more; the archive is refused"
    ):
        Archive(hidden).read("a")
    short = declare(pack(tmp_path / "short.zip", [("a", b"123")]), 100)
    with pytest.raises(ValueError, match=r"a in .*short.zip declares 100 bytes and unpacks to 3 bytes; the archive"):
        Archive(short).read("a")


def test_damaged_archives_are_told_from_safe_ones(tmp_path):
    path = pack(tmp_path / "a.zip", [("a", b"some text")], zipfile.ZIP_STORED)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"some text", b"same text"))
    with pytest.raises(ValueError, match=r"a in .*a.zip is damaged \(Bad CRC-32.*expected 9 bytes; fetch it again\."):
        Archive(path).read("a")
    path.write_bytes(content[:-30])
    with pytest.raises(ValueError, match=r"a.zip cannot be read as a zip archive \(.*cut off; fetch it again\."):
        Archive(path)
