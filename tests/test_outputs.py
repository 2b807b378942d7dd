"""Where ``-o`` writes: files are replaced as a whole, links and devices stay what they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from histnetq.data.files import refuse_existing, whole_file


def write(path, text="new"):
    with whole_file(path) as partial:
        partial.write_text(text)


def test_a_link_is_written_through(tmp_path):
    target, link = tmp_path / "there" / "target.csv", tmp_path / "link.csv"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["link.csv", "target.csv", "there"]


def test_a_link_to_nothing_makes_its_target(tmp_path):
    link = tmp_path / "link.csv"
    link.symlink_to("target.csv")
    refuse_existing(link, force=False)
    write(link)
    assert link.is_symlink()
    assert (tmp_path / "target.csv").read_text() == "new"


def test_a_loop_of_links_stays(tmp_path):
    link = tmp_path / "link.csv"
    link.symlink_to("link.csv")
    with pytest.raises(OSError, match=r"output: .*link.csv cannot be written \(Too many levels of symbolic links\)"):
        write(link)
    assert link.is_symlink()


def test_a_failure_leaves_what_a_link_points_to(tmp_path):
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("old")
    link.symlink_to(target)
    with pytest.raises(TypeError):
        write(link, 7)
    assert target.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.csv", "target.csv"]


def test_a_named_pipe_is_refused_at_once_and_stays(tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    told = f"output: {pipe} is a named pipe, which is not written to; choose another place."
    for attempt in (
        lambda: write(pipe), lambda: refuse_existing(pipe, force=False), lambda: refuse_existing(pipe, force=True)
    ):  # fmt: skip
        with pytest.raises(OSError) as refused:
            attempt()
        assert str(refused.value) == told
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_pipe_that_this_process_has_open_is_written_to():
    reading, writing = os.pipe()
    refuse_existing(Path(f"/dev/fd/{writing}"), force=False)
    write(Path(f"/dev/fd/{writing}"))
    os.close(writing)
    with open(reading) as file:
        assert file.read() == "new"


def test_a_pipe_that_nobody_reads_any_more_is_not_waited_for():
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(OSError, match=r"output: /dev/fd/\d+ cannot be written \((No such|Broken)"):
        write(Path(f"/dev/fd/{writing}"))
    os.close(writing)


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(OSError, match=r"output: .* cannot be written \(it is a directory\); choose another place\."):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_socket_is_refused_and_stays(tmp_path, monkeypatch):
    import socket

    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("place")
        with pytest.raises(
            OSError, match=r"output: .*place is a socket, which is not written to; choose another place"
        ):
            write(tmp_path / "place")
    assert (tmp_path / "place").is_socket()


def test_devices_are_written_to(tmp_path):
    null = os.stat("/dev/null")
    code = (
        "from pathlib import Path; from histnetq.data.files import whole_file, refuse_existing\n"
        "for name in ('/dev/null', '/dev/stdout'):\n"
        "    refuse_existing(Path(name), False)\n"
        "    with whole_file(Path(name)) as partial: partial.write_text(name)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "/dev/stdout"
    assert os.stat("/dev/null").st_rdev == null.st_rdev


def test_files_are_refused_unless_they_may_be_replaced(tmp_path):
    path = tmp_path / "there.csv"
    path.write_text("old")
    with pytest.raises(FileExistsError, match="exists; choose another name or pass --force"):
        refuse_existing(path, force=False)
    write(path)
    assert path.read_text() == "new"
