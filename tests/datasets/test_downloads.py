"""Downloads from a server on this machine: verified, and in their place only when they are complete."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections import namedtuple
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from click.testing import CliRunner

from histnetq.cli import main
from histnetq.datasets import fetch
from histnetq.datasets.downloads import Remote, download
from tests.conftest import exactly

CONTENT = np.random.default_rng(0).bytes(3_000_000)
OTHER = np.random.default_rng(1).bytes(3_000_000)


class Handler(BaseHTTPRequestHandler):
    """Serves `server.files`; other attributes of the server say how badly."""

    def do_GET(self):
        server, path = self.server, self.path.lstrip("/")
        server.requests.append(path)
        if path not in server.files:
            self.send_error(404)
            return
        content = server.files[path]
        self.send_response(server.status)
        if server.lengths:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the client may have closed the connection
            self.wfile.write(content[: server.stop_at])
        self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.files, running.requests = {"a.zip": CONTENT}, []
        running.status, running.lengths, running.stop_at = 200, True, None
        running.url = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def remote(server, **known):
    return Remote("a.zip", f"{server.url}/a.zip", **known)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_download_leaves_the_file_and_nothing_else(server, tmp_path):
    path = download(remote(server, size=len(CONTENT), checksum=sha256(CONTENT)), tmp_path / "sub/folder")
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == ["a.zip"]


def test_a_downloaded_file_has_the_usual_permissions(server, tmp_path):
    (tmp_path / "usual").touch()
    path = download(remote(server), tmp_path)
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_an_interrupted_download_leaves_nothing_and_starts_again(server, tmp_path):
    server.stop_at = 1_500_000
    message = (
        f"url: {server.url}/a.zip stopped after 1,500,000 of 3,000,000 bytes (the connection ended); fetch it again."
    )
    with pytest.raises(ConnectionError, match=exactly(message)):
        download(remote(server), tmp_path)
    assert names(tmp_path) == []
    server.stop_at = None
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["a.zip"]


def test_a_keyboard_interrupt_leaves_nothing(server, tmp_path, monkeypatch):
    def stop(self, n):
        raise KeyboardInterrupt

    monkeypatch.setattr("tqdm.tqdm.update", stop)
    with pytest.raises(KeyboardInterrupt):
        download(remote(server), tmp_path)
    assert names(tmp_path) == []


def test_the_error_of_a_broken_connection_gives_its_reason(server, tmp_path, monkeypatch):
    read, chunks = HTTPResponse.read, iter([1_000_000])

    def break_off(self, amount):
        for size in chunks:
            return read(self, size)
        raise ConnectionResetError("reset by peer")

    monkeypatch.setattr(HTTPResponse, "read", break_off)
    message = r"stopped after 1,000,000 of 3,000,000 bytes \(reset by peer\); fetch it again\.$"
    with pytest.raises(ConnectionError, match=message):
        download(remote(server), tmp_path)
    assert names(tmp_path) == []


def test_a_part_of_a_file_is_refused(server, tmp_path):
    server.status = 206
    with pytest.raises(ConnectionError, match="answered '206 Partial Content', expected the file; check the"):
        download(remote(server), tmp_path)
    assert names(tmp_path) == []


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    message = (
        f"url: {server.url}/a.zip gave a file with sha256 {sha256(CONTENT)[7:]}, expected {sha256(OTHER)[7:]}; "
        "it was removed, try again or elsewhere by url=."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        download(remote(server, checksum=sha256(OTHER)), tmp_path)
    assert names(tmp_path) == []


def test_a_wrong_size_is_refused_before_it_is_fetched(server, tmp_path):
    with pytest.raises(ValueError, match="offers 3,000,000 bytes, expected 17; pass another address by url="):
        download(remote(server, size=17), tmp_path)
    assert names(tmp_path) == []


def test_no_more_is_taken_than_the_record_states_where_the_server_tells_no_length(server, tmp_path):
    server.lengths = False
    message = f"url: {server.url}/a.zip sends more than 17 bytes; pass another address by url=."
    with pytest.raises(ValueError, match=exactly(message)):
        download(remote(server, size=17), tmp_path)
    assert names(tmp_path) == []
    with pytest.raises(ConnectionError, match=r"stopped after 3,000,000 of 3,000,001 bytes \(the connection ended\)"):
        download(remote(server, size=len(CONTENT) + 1), tmp_path)
    assert names(tmp_path) == []
    assert download(remote(server, size=len(CONTENT)), tmp_path).read_bytes() == CONTENT


def test_pooch_is_quiet_here_and_as_before_elsewhere(server, tmp_path, capfd):
    import pooch

    level = pooch.get_logger().level
    download(remote(server), tmp_path)
    assert pooch.get_logger().level == level
    assert "Downloading" not in capfd.readouterr().err


def test_a_file_that_is_there_is_kept_if_it_matches(server, tmp_path):
    (tmp_path / "a.zip").write_bytes(OTHER)
    download(remote(server, size=len(OTHER), checksum=sha256(OTHER)), tmp_path)
    assert server.requests == []
    with pytest.raises(ValueError, match="gave a file with sha256"):
        download(remote(server, checksum=f"sha256:{'0' * 64}"), tmp_path)
    assert (tmp_path / "a.zip").read_bytes() == OTHER
    assert download(remote(server, checksum=sha256(CONTENT)), tmp_path).read_bytes() == CONTENT


def test_errors_of_the_connection_are_one_sentence(server, tmp_path):
    message = (
        f"url: {server.url}/no.zip answered '404 Not Found', expected the file; check the connection or pass another "
        "address by url=."
    )
    with pytest.raises(ConnectionError, match=exactly(message)):
        download(Remote("no.zip", f"{server.url}/no.zip"), tmp_path)
    with pytest.raises(ConnectionError, match=r"answered .*refused.*, expected the file"):
        download(Remote("a.zip", "http://127.0.0.1:1/a.zip"), tmp_path)
    with pytest.raises(
        ValueError,
        match=exactly("url: expected an address that begins with http:// or https://, got 'file:///etc/passwd'."),
    ):
        download(Remote("a.zip", "file:///etc/passwd"), tmp_path)
    assert names(tmp_path) == []


def test_a_full_disk_is_noticed_first(server, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: namedtuple("usage", "free")(1000))
    with pytest.raises(OSError, match="has no room for 3,000,000 bytes; pass another directory by to="):
        download(remote(server), tmp_path)
    assert not (tmp_path / "a.zip").exists()


def serve_record(server, monkeypatch, **changed):
    """LeQua's three files, and the record that describes them."""
    monkeypatch.setattr("histnetq.datasets.downloads._ZENODO", f"{server.url}/records/")
    entries = []
    for part in ("train_dev", "test", "test_prevalences"):
        name = f"T1A.{part}.zip"
        content = server.files[f"content/{name}"] = part.encode() * 50
        checksum = f"md5:{hashlib.md5(content).hexdigest()}"
        links = {"self": f"{server.url}/content/{name}"}
        entries.append({"key": name, "size": len(content), "checksum": checksum, "links": links, **changed})
    server.files["records/6546188"] = json.dumps({"files": entries}).encode()


def test_files_of_a_record_are_verified_by_what_it_states(server, tmp_path, monkeypatch):
    serve_record(server, monkeypatch)
    lines = []
    paths = fetch("lequa2022-T1A", tmp_path, say=lines.append)
    assert [path.name for path in paths] == ["T1A.train_dev.zip", "T1A.test.zip", "T1A.test_prevalences.zip"]
    assert lines[0] == f"{paths[0]}: 450 bytes, md5 as expected"
    server.files["content/T1A.test.zip"] = b"tost" * 50
    paths[1].unlink()
    with pytest.raises(ValueError, match=r"T1A\.test\.zip gave a file with md5 .*, expected "):
        fetch("lequa2022-T1A", tmp_path)
    assert names(tmp_path) == ["T1A.test_prevalences.zip", "T1A.train_dev.zip"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"key": "other.zip"}, "KeyError: 'T1A.train_dev.zip'"),
        ({"checksum": "md5:xyz"}, "ValueError: checksum 'md5:xyz'"),
        ({"checksum": "crc32:00000000"}, "ValueError: checksum 'crc32:00000000'"),
        ({"size": None}, "TypeError: "),
    ],
)
def test_a_record_of_another_form_is_refused(server, tmp_path, monkeypatch, changed, reason):
    serve_record(server, monkeypatch, **changed)
    with pytest.raises(ValueError) as raised:
        fetch("lequa2022-T1A", tmp_path)
    listed = "T1A.train_dev.zip, T1A.test.zip, T1A.test_prevalences.zip"
    expected = f"url: {server.url}/records/6546188 does not list {listed} as expected ({reason}"
    assert str(raised.value).startswith(expected)
    assert names(tmp_path) == []


def test_another_address_of_a_folder_or_of_one_file(server, tmp_path):
    for part in ("train_dev", "test", "test_prevalences"):
        server.files[f"mirror/T1B.{part}.zip"] = part.encode()
    lines = []
    paths = fetch("lequa2022-T1B", tmp_path, url=f"{server.url}/mirror/", say=lines.append)
    assert [path.read_bytes() for path in paths] == [b"train_dev", b"test", b"test_prevalences"]
    digits = hashlib.sha256(b"test").hexdigest()
    assert lines[1] == f"{paths[1]}: 4 bytes, not verified, as no checksum is known; sha256 {digits}"
    (one,) = fetch("lequa2022-T1B", tmp_path, url=f"{server.url}/a.zip", sha256=sha256(CONTENT)[7:])
    assert one.read_bytes() == CONTENT
    with pytest.raises(ValueError, match=r"expected a plain file name at the end, got '\.\./up\.zip'"):
        fetch("lequa2022-T1B", tmp_path, url=f"{server.url}/..%2Fup.zip")


def test_checksums_of_the_caller(server, tmp_path):
    server.files.update({f"T1B.{part}.zip": part.encode() for part in ("train_dev", "test", "test_prevalences")})
    right = f"T1B.test.zip={hashlib.sha256(b'test').hexdigest()}"
    assert len(fetch("lequa2022-T1B", tmp_path / "right", url=server.url, sha256=[right])) == 3
    with pytest.raises(ValueError, match=r"T1B\.test\.zip gave a file with sha256"):
        fetch("lequa2022-T1B", tmp_path / "wrong", url=server.url, sha256=[f"T1B.test.zip={'0' * 64}"])
    for text in ("0" * 64, f"T1A.test.zip={'0' * 64}", "T1B.test.zip=abc"):
        message = (
            "sha256: expected FILE=DIGITS with 64 digits for one of T1B.train_dev.zip, T1B.test.zip, "
            f"T1B.test_prevalences.zip, got {text!r}."
        )
        with pytest.raises(ValueError, match=exactly(message)):
            fetch("lequa2022-T1B", tmp_path / "none", url=server.url, sha256=text)
    assert not (tmp_path / "none").exists()


def test_names_that_cannot_be_fetched(tmp_path):
    with pytest.raises(ValueError, match=r"^name: expected one of lequa2022-T1A, .*, digits, got 'mnist'\.$"):
        fetch("mnist", tmp_path)
    message = "name: 'digits' comes from scikit-learn, which brings them along; there is nothing to fetch."
    with pytest.raises(ValueError, match=exactly(message)):
        fetch("digits", tmp_path)


def test_commands(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    serve_record(server, monkeypatch)
    run = CliRunner().invoke
    fetched = run(main, ["data", "fetch", "lequa2022-T1A"])
    assert fetched.exit_code == 0, fetched.output
    home = tmp_path / "histnetq/lequa2022"
    assert f"{home / 'T1A.test.zip'}: 200 bytes, md5 as expected" in fetched.output
    assert f"from Zenodo record 6546188: present in {home}\n" in run(main, ["data", "list"]).output
    (home / "T1A.test.zip").unlink()
    listed = run(main, ["data", "list"]).output
    assert f"from Zenodo record 6546188: present in {home}, without test files\n" in listed
    assert "from scikit-learn, which brings them along: present\n" in listed
    assert "present in" not in run(main, ["data", "list", "--in", str(tmp_path)]).output
    failed = run(main, ["data", "fetch", "lequa2022-T1B", "--url", f"{server.url}/none", "--to", str(tmp_path)])
    assert failed.exit_code == 2
    assert failed.output.startswith(f"Error: --url: {server.url}/none/T1B.train_dev.zip answered '404 Not Found'")
