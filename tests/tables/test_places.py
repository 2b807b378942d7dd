"""Tables and models in object storage: a local S3 server, and fsspec's memory."""

from __future__ import annotations

import gzip
import io
import re
import socket
import sys

import fsspec
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from moto.server import ThreadedMotoServer

import histnetq as hq
from histnetq.cli import main
from histnetq.persistence import model_files
from histnetq.registry import STORES
from histnetq.tables.budget import Budget, limited_to
from histnetq.tables.files import whole_file
from histnetq.tables.places import as_place, is_address
from histnetq.tables.table_files import find_files, open_table
from histnetq.workflows.model_cards import describe_model
from histnetq.workflows.monitoring.chunk_reading import How
from histnetq.workflows.monitoring.chunks import Clock
from histnetq.workflows.monitoring.state import MonitorState


@pytest.fixture(scope="module")
def s3():
    """A local S3 server with an empty bucket named "bucket"; the settings of this process lead there."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    with pytest.MonkeyPatch.context() as settings:
        known = {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "DEFAULT_REGION": "us-east-1"}
        for name, value in {**known, "ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
            settings.setenv(f"AWS_{name}", value)
        settings.setenv("AWS_EC2_METADATA_DISABLED", "true")
        store = forget()
        store.mkdir("bucket")
        yield store
    forget()
    server.stop()


def forget():
    """A store with the settings of this moment; fsspec otherwise keeps the connections of earlier ones."""
    kind = fsspec.get_filesystem_class("s3")
    kind.clear_instance_cache()
    return kind(use_listings_cache=False)


@pytest.fixture
def memory():
    """The memory of fsspec, empty before and after."""
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    eel = rng.random((30, 20)) < rng.random((30, 1))
    table = {"tow": np.repeat(np.arange(30), 20), "length": rng.normal(30 + 8 * eel, 3).ravel()}
    return pd.DataFrame({**table, "species": np.where(eel, "eel", "cod").ravel()})


@pytest.fixture(scope="module")
def model(rows):
    return hq.PACC(random_state=0).fit(rows[["length"]], rows["species"])


def run(*line):
    return CliRunner().invoke(main, [str(part) for part in line])


def as_bytes(rows, ending):
    file = io.BytesIO()
    if ending == "parquet":
        rows.to_parquet(file, index=False, row_group_size=150)
    elif ending == "xlsx":
        rows.to_excel(file, index=False)
    else:
        text = rows.to_csv(index=False).encode()
        file.write(gzip.compress(text) if ending == "csv.gz" else text)
    return file.getvalue()


@pytest.mark.parametrize("scheme", ["s3", "memory"])
def test_a_table_and_a_model_go_in_and_estimates_come_out(s3, memory, rows, model, scheme):
    at = f"{scheme}://bucket/round"
    (s3 if scheme == "s3" else memory).pipe_file("bucket/round/rows.parquet", as_bytes(rows, "parquet"))
    model.save(f"{at}/model")
    told = run("predict", f"{at}/model", f"{at}/rows.parquet", "--bag", "tow", "-o", f"{at}/estimates.parquet")
    assert told.output.endswith(f"30 bags estimated, written to {at}/estimates.parquet.\n"), told.output
    expected = hq.estimate(model, rows, bag="tow", interval="bayes").to_frame()
    with (s3 if scheme == "s3" else memory).open("bucket/round/estimates.parquet") as file:
        found = pd.read_parquet(io.BytesIO(file.read()))
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert "method       PACC" in run("info", f"{at}/model").output
    assert describe_model(f"{at}/model")["classes"] == ["cod", "eel"]
    assert np.array_equal(hq.load(f"{at}/model").predict(rows[["length"]]), model.predict(rows[["length"]]))


def test_every_step_of_the_command_line_on_s3(s3, rows):
    s3.pipe_file("bucket/line/a.csv", as_bytes(rows[:300], "csv"))
    s3.pipe_file("bucket/line/b.csv", as_bytes(rows[300:], "csv"))
    at = "s3://bucket/line"
    told = run("fit", f"{at}/*.csv", "--label", "species", "--features", "length", "--method", "cc", "-o", f"{at}/m")
    assert f"kept in {at}/m." in told.output
    known = hq.load(f"{at}/m").provenance_
    assert (known["rows"], known["sources"]) == (600, [f"{at}/*.csv"])
    told = run("sketch", f"{at}/m", f"{at}/a.csv", "--bag", "tow", "-o", f"{at}/sketch.parquet")
    assert f"15 bags of 300 rows sketched, written to {at}/sketch.parquet: " in told.output
    told = run("predict", f"{at}/m", f"{at}/sketch.parquet", "--bag", "tow", "-o", f"{at}/e.csv.gz")
    assert told.exit_code == 0, told.output
    assert len(pd.read_csv(io.BytesIO(s3.cat_file("bucket/line/e.csv.gz")), compression="gzip")) == 30
    told = run("evaluate", f"{at}/m", f"{at}/b.csv", "--bag", "tow", "--label", "species", "-o", f"{at}/errors.json")
    assert told.output.endswith(f"Written to {at}/errors.json.\n"), told.output


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "xlsx"])
def test_every_format_is_read_like_a_file(memory, rows, model, ending, tmp_path):
    (tmp_path / f"rows.{ending}").write_bytes(as_bytes(rows, ending))
    memory.pipe_file(f"b/rows.{ending}", as_bytes(rows, ending))
    local = hq.estimate(model, tmp_path / f"rows.{ending}", bag="tow", interval="bayes").to_frame()
    found = hq.estimate(model, f"memory://b/rows.{ending}", bag="tow", interval="bayes")
    pd.testing.assert_frame_equal(found.to_frame(), local)


def test_parquet_is_fetched_by_columns_and_row_groups(memory, rows, monkeypatch):
    wide = pd.DataFrame(np.random.default_rng(0).random((4000, 50)), columns=[f"x{i}" for i in range(50)])
    file = io.BytesIO()
    wide.to_parquet(file, row_group_size=500)
    memory.pipe_file("b/wide.parquet", file.getvalue())
    sizes, read = [], io.BytesIO.read
    monkeypatch.setattr(
        "histnetq.tables.places._Translated.read", lambda self, n=-1: sizes.append(n) or read(self._file, n)
    )
    for _ in open_table("memory://b/wide.parquet", "source").batches(["x7"]):
        pass
    fetched = sum(min(size, len(file.getvalue())) for size in sizes)
    assert max(sizes) <= 1 << 16
    assert fetched < len(file.getvalue()) / 4


def test_globs_name_files_in_order_and_no_folders(s3):
    for name in ("b", "a", "deep/c"):
        s3.pipe_file(f"bucket/glob/{name}.csv", b"x\n1\n")
    found = find_files("s3://bucket/glob/*.csv", "source")
    assert found == ["s3://bucket/glob/a.csv", "s3://bucket/glob/b.csv"]
    with pytest.raises(
        ValueError, match=r"^source: s3://bucket/glob is a directory; name its files, such as s3://bucket/"
    ):
        find_files("s3://bucket/glob", "source")
    with pytest.raises(ValueError, match=r"^source: s3://bucket/glob/a.csv is given twice, which would count double;"):
        find_files(["s3://bucket/glob/*.csv", "s3://bucket/glob/a.csv"], "source")


@pytest.mark.parametrize("scheme", ["s3", "memory"])
def test_output_is_never_replaced_by_accident(s3, memory, model, rows, tmp_path, scheme):
    rows.to_csv(tmp_path / "rows.csv", index=False)
    store, at = (s3 if scheme == "s3" else memory), f"{scheme}://bucket/kept"
    store.pipe_file("bucket/kept/e.csv", b"mine")
    model.save(f"{at}/model")
    line = ["predict", f"{at}/model", tmp_path / "rows.csv", "--bag", "tow", "-o", f"{at}/e.csv"]
    refused = run(*line)
    assert refused.exit_code == 2
    assert refused.output == f"Error: --output: {at}/e.csv exists; choose another name or pass --force to replace it.\n"
    assert store.cat_file("bucket/kept/e.csv") == b"mine"
    assert run(*line, "--force").exit_code == 0
    assert store.cat_file("bucket/kept/e.csv").startswith(b"tow,class,estimate")
    with pytest.raises(FileExistsError, match=f"^path: {at}/model exists; choose another name or pass overwrite=True "):
        model.save(f"{at}/model")
    with pytest.raises(FileExistsError, match=f"^path: {at} exists and is not a model directory; it is left alone"):
        model.save(at, overwrite=True)
    hq.MLPE().fit([[0.0], [1.0]], ["a", "b"]).save(f"{at}/model", overwrite=True)
    assert hq.load(f"{at}/model").classes_.tolist() == ["a", "b"]
    assert len(as_place(f"{at}/model").names()) == 2


def test_an_upload_that_fails_leaves_nothing(memory, model, monkeypatch):
    class Interrupted(BaseException):
        pass

    def interrupt():
        with whole_file(as_place("memory://b/out.csv")) as partial:
            partial.write_text("half of")
            raise Interrupted

    with pytest.raises(Interrupted):
        interrupt()
    assert memory.store == {}
    model.save("memory://b/model")
    before = dict(memory.store)
    write = model_files.Address.write

    def fail(self, content):
        if self.name == "config.json":
            raise OSError("the connection was lost")
        write(self, content)

    monkeypatch.setattr(model_files.Address, "write", fail)
    with pytest.raises(OSError, match="the connection was lost"):
        model.save("memory://b/model", overwrite=True)
    assert list(memory.store) == list(before)


WRONG = {
    "https://example.org/rows.csv": "{} is a web address, which is not opened; download the file first.",
    "HTTP://example.org/rows.csv": "{} is a web address, which is not opened; download the file first.",
    "file:///etc/passwd": "{} is a file URL, which is not opened; name it by its path.",
    "simplecache::s3://bucket/rows.csv": "{} is a chain of addresses, which is not opened; name the object itself.",
    "zip://rows.csv::s3://bucket/a.zip": "{} is a chain of addresses, which is not opened; name the object itself.",
    "s3://bucket/a.zip::s3://b/c.csv": "{} is a chain of addresses, which is not opened; name the object itself.",
    **{
        f"{scheme}://a/b.csv": f"expected an address that begins with one of {', '.join(f'{s}://' for s in STORES)}, "
        "got {}; copy the files first."
        for scheme in ("zip", "tar", "reference", "data", "git", "github", "ftp", "dask", "python", "hdfs", "dir")
    },
    **{
        f"s3://{key}": "expected an address such as s3://bucket/name, without empty parts, '.' and '..', got '{}'; "
        "correct it."
        for key in ("bucket", "", "bucket/../other/rows.csv", "bucket//rows.csv", "bucket/./rows.csv", "/rows.csv")
    },
    "s3:/bucket/rows.csv": "{} is an address that lost a slash; pass the address as a text, not as a pathlib.Path.",
}


@pytest.mark.parametrize("text", WRONG)
def test_other_addresses_are_refused_everywhere(text, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("histnetq.tables.places._connect", lambda scheme: pytest.fail("something was opened"))
    sentence = WRONG[text].format(text)
    doors = {
        "source": lambda: hq.read_bags(text, bag="tow"),
        "prevalences": lambda: hq.read_bags(pd.DataFrame({"tow": [1], "x": [1.0]}), bag="tow", prevalences=text),
        "path": lambda: hq.load(text),
    }
    for argument, door in doors.items():
        with pytest.raises(ValueError, match=re.escape(f"{argument}: {sentence}")):
            door()
    for door in (lambda: model.save(text), lambda: hq.BagSketch.load(text), lambda: describe_model(text)):
        with pytest.raises(ValueError, match=re.escape(f"path: {sentence}")):
            door()
    for line, typed in {
        ("info", text): "MODEL",
        ("predict", "model", "rows.csv", "-o", text): "--output",
        ("fit", "rows.csv", "--label", "y", "-o", text): "--output",
    }.items():
        told = run(*line)
        assert told.output == f"Error: {typed}: {sentence}\n"
        assert told.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_places_that_must_be_on_this_machine(model, rows, tmp_path):
    refused = "expected a path on this machine, got the address s3://bucket/a; copy the files first."
    for argument, door in {
        "scratch": lambda: hq.read_bags(rows, bag="tow", features=["length"], scratch="s3://bucket/a"),
        "source": lambda: hq.read_images("s3://bucket/a"),
        "checkpoint": lambda: hq.Training(checkpoint="s3://bucket/a"),
        "state": lambda: hq.monitor(model, rows, time="tow", period="W", state="s3://bucket/a"),
    }.items():
        with pytest.raises(ValueError, match=re.escape(f"{argument}: {refused}")):
            door()
    for line, typed in {
        ("serve", "s3://bucket/a"): "MODELS",
        ("data", "fetch", "digits", "--to", "s3://bucket/a"): "--to",
    }.items():
        assert run(*line).output == f"Error: {typed}: {refused}\n"


def test_work_on_a_request_opens_no_address(memory, model):
    memory.pipe_file("b/rows.csv", b"length\n1\n")
    with limited_to(Budget(1 << 20)):
        for address in ("memory://b/rows.csv", "s3://bucket/rows.parquet"):
            with pytest.raises(ValueError, match=f"^source: {address} is an address, which requests cannot name; send"):
                open_table(address, "source")
        with pytest.raises(
            ValueError, match=r"^path: memory://b/model is an address, which requests cannot name; send"
        ):
            hq.load("memory://b/model")


def test_a_missing_bucket_object_or_permission_is_one_sentence(s3, model, rows, tmp_path, monkeypatch):
    rows.to_csv(tmp_path / "rows.csv", index=False)
    missing = "s3://no-such-bucket/rows.csv"
    assert run("fit", missing, "--label", "y", "-o", tmp_path / "m").output == (
        f"Error: TRAIN: {missing} does not exist; check the bucket and the name.\n"
    )
    assert run("info", "s3://no-such-bucket/m").output == (
        "Error: s3://no-such-bucket/m is not a model directory, it has no config.json; give one that histnetq fit "
        "wrote.\n"
    )
    with pytest.raises(FileNotFoundError) as caught:
        model.save("s3://no-such-bucket/m")
    assert str(caught.value).endswith("does not exist (The specified bucket does not exist); check the address.")
    model.save("s3://bucket/m", overwrite=True)
    told = run("predict", "s3://bucket/m", tmp_path / "rows.csv", "-o", "s3://no-such-bucket/e.csv")
    assert told.output.endswith(
        "s3://no-such-bucket/e.csv: does not exist (The specified bucket does not exist); check the address.\n"
    )
    assert told.exit_code == 2

    async def refuse(*given, **more):
        raise PermissionError("Forbidden")

    monkeypatch.setattr(type(s3), "_info", refuse)
    forget()
    with pytest.raises(ConnectionError) as denied:
        hq.load("s3://bucket/m")
    assert str(denied.value) == (
        "s3://bucket/m/config.json: cannot be used (Forbidden); check the address, your credentials and the connection."
    )


def test_no_credentials_and_no_answer_are_one_sentence(s3, monkeypatch):
    ending = "; check the address, your credentials and the connection.\n"
    with monkeypatch.context() as settings:
        settings.delenv("AWS_ACCESS_KEY_ID")
        settings.delenv("AWS_SECRET_ACCESS_KEY")
        forget()
        told = run("info", "s3://bucket/m")
        assert told.output == f"Error: s3://bucket/m/config.json: cannot be used (Unable to locate credentials){ending}"
        assert told.exit_code == 2
    with monkeypatch.context() as settings, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nothing listens there
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        settings.setenv("AWS_ENDPOINT_URL", address)
        forget()
        told = run("info", "s3://bucket/m")
        assert told.output == (
            "Error: s3://bucket/m/config.json: cannot be used (Could not connect to the endpoint URL: "
            f'"{address}/bucket/m/config.json"){ending}'
        )
    forget()


def test_a_silent_server_is_given_up_after_few_tries(s3, monkeypatch):
    asked = []

    async def hang(self, request):
        asked.append(request.url)
        from botocore.exceptions import ConnectTimeoutError

        raise ConnectTimeoutError(endpoint_url=request.url)

    monkeypatch.setattr("aiobotocore.httpsession.AIOHTTPSession.send", hang)
    forget()
    told = run("info", "s3://bucket/m")
    forget()
    assert "cannot be used (Connect timeout on endpoint URL" in told.output
    assert len(asked) <= 4


def test_packages_that_are_missing_are_named(monkeypatch):
    for scheme, package, install in (("gs", "gcsfs", "gcsfs"), ("abfs", "adlfs", "adlfs")):
        with pytest.raises(ImportError, match=f"^{scheme}:// needs the package {package}; pip install {install}.$"):
            hq.load(f"{scheme}://bucket/model")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r"^s3:// needs the package fsspec; pip install 'histnetq\[remote\]'.$"):
        hq.load("s3://bucket/model")


def test_a_listing_cannot_name_another_place(memory, monkeypatch):
    listed = {"bucket/../other/rows.csv": {"type": "file"}}
    monkeypatch.setattr(type(memory), "glob", lambda self, *given, **more: listed)
    with pytest.raises(ValueError, match=r"^source: expected an address such as memory://bucket/name, without empty"):
        find_files("memory://bucket/*.csv", "source")


def test_hostile_models_in_a_store_are_refused(memory, model):
    model.save("memory://b/model")
    config = memory.cat_file("b/model/config.json")
    memory.pipe_file("b/model/config.json", config.replace(b"weights-", b"../../weights-"))
    with pytest.raises(ValueError, match=r"^path: memory://b/model does not match its checksum, it is truncated or"):
        hq.load("memory://b/model")
    memory.pipe_file("b/model/config.json", b" " * ((64 << 20) + 1))
    with pytest.raises(ValueError, match=r"config.json has 67,108,865 bytes, expected at most 67,108,864; save the"):
        hq.load("memory://b/model")
    memory.pipe_file("b/model/config.json", config)
    name = next(name for name in as_place("memory://b/model").names() if name.startswith("weights"))
    memory.pipe_file(f"b/model/{name}", b"\x80\x04cos\nsystem\n")
    with pytest.raises(ValueError, match=r"^path: memory://b/model does not match its checksum, it is truncated or"):
        hq.load("memory://b/model")
    memory.rm_file(f"b/model/{name}")
    with pytest.raises(
        FileNotFoundError, match=r"^path: memory://b/model is not a model directory, it has no weights-"
    ):
        hq.load("memory://b/model")


def test_monitoring_reads_each_object_once(memory, model):
    days = pd.date_range("2026-01-05", periods=112, freq="D").astype(str)
    table = pd.DataFrame({"length": np.random.default_rng(0).normal(34, 5, 112), "t": days})
    memory.pipe_file("b/one.csv", table[:84].to_csv(index=False).encode())
    memory.pipe_file("b/two.csv", table[84:].to_csv(index=False).encode())
    how = How("t", "W", None, None, None, (), None, "refuse", "survey")
    state = MonitorState(how, Clock(None), [])
    state.add(model, "memory://b/one.csv")
    state.add(model, "memory://b/*.csv")
    assert [file.path for file in state.files] == ["memory://b/one.csv", "memory://b/two.csv"]
    assert int(state.sketch.n_rows.sum()) == 112


def test_what_is_an_address():
    assert all(map(is_address, WRONG.keys() - {"s3:/bucket/rows.csv"}))
    assert not any(
        map(is_address, ["rows.csv", "/a/b://c", "C:\\rows.csv", "a b://c", "", "://x", "days/2026-01-01T10:00"])
    )
