"""Requests that mean no good are refused with a sentence, and the server goes on."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import os
import re
import shutil
import socket
import threading
import zlib
from collections import Counter
from urllib.parse import quote

import httpx
import numpy as np
import pyarrow as pa
import pytest
import schemathesis
import uvicorn
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from pyarrow import csv, parquet
from sklearn.neural_network import MLPClassifier

import histnetq as hq
from histnetq.cli import main
from histnetq.tables.budget import TooLargeError, current_budget, limited_to
from histnetq.tables.parquet_pages import read_pages
from histnetq.tables.table_files import open_table
from histnetq.web import server as protocol
from histnetq.web import uploads as spool_of_web
from histnetq.web.errors import RefusedError
from histnetq.web.limits import TableLimits
from histnetq.web.model_store import Shelf
from histnetq.web.security import Door
from histnetq.web.serializers import UploadedFile
from histnetq.web.uploads import Body
from tests.serving import fish, make_models, serving, until

CSV, PARQUET, JSON = "text/csv", "application/vnd.apache.parquet", "application/json"
TOKEN = "0123456789abcdef0123"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("attacked") / "models")


@pytest.fixture(scope="module")
def server(models):
    with serving(models, "--max-upload", "8") as served:
        yield served


def talk(server, *parts, seconds=20.0, silent=True):
    """Send bytes as they are, and give what comes back until the connection ends, or is silent if it may be."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as line:
        found = b""
        with contextlib.suppress(ConnectionError):  # it may be closed before all is sent
            for part in parts:
                line.sendall(part)
        try:
            while part := line.recv(65536):
                found += part
        except TimeoutError:
            assert silent
        except ConnectionError:
            pass
        return found


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Host": "evil.example"}, 421),
        ("GET", {"Host": "evil.example:80"}, 421),
        ("GET", {"Host": "localhost.evil.example"}, 421),
        ("GET", {"Host": "192.168.1.7"}, 421),
        ("GET", {"Host": "localhost:port"}, 421),
        ("GET", {"Host": "localhost."}, 421),
        ("GET", {"Host": "evil@localhost"}, 421),
        ("GET", {"Host": "127.0.0.1.evil.example"}, 421),
        ("GET", {"Host": "2130706433"}, 421),
        ("GET", {"Host": "[::1]:8765"}, 200),
        ("GET", {"Host": "LOCALHOST"}, 200),
        ("POST", {"Origin": "http://evil.example"}, 403),
        ("POST", {"Origin": "null"}, 403),
        ("POST", {"Origin": "http://127.0.0.1:1"}, 403),
        ("POST", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", {"Sec-Fetch-Site": "same-site"}, 403),
        ("DELETE", {"Origin": "http://evil.example"}, 403),
        ("POST", {"Sec-Fetch-Site": "same-origin"}, 422),
    ],
)
def test_other_hosts_and_origins_are_refused(server, method, headers, status):
    path = {"GET": "/v1/models", "POST": "/v1/jobs", "DELETE": "/v1/jobs/j_1"}[method]
    answer = server.client.request(method, path, headers=headers)
    assert answer.status_code == status
    assert status in (200, 422) or list(answer.json()) == ["error"]


def test_two_hosts_or_none_are_refused(server):
    for hosts in (b"Host: localhost\r\nHost: evil.example\r\n", b""):
        answer = talk(server, b"GET /healthz HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
        assert answer.split()[1] in (b"400", b"421")


def test_every_answer_has_headers_that_protect(server):
    for address in ("/", "/v1/models", "/assets/nothing", "/nothing", "/openapi.json"):
        headers = server.client.get(address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/..", "/v1/models/../../secret", "/v1/models/%2e%2e%2fsecret", "/v1/models/..%2f..%2fetc%2fpasswd",
        "/v1/models/.", "/v1/models/%00", "/v1/models/%ff%fe", "/v1/models/pacc%2Fconfig.json", "/assets/../app.py",
        "/assets/%2e%2e/app.py", "/assets/..%2fapp.py", "/assets//etc/passwd", "/v1/jobs/..%2f..%2f/estimates.csv",
        "/v1/tables/%2e%2e",
    ],
)  # fmt: skip
def test_names_lead_to_no_other_files(server, path):
    answer = talk(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.split()[1] in (b"404", b"405")
    assert b"import" not in answer
    assert b"root:" not in answer


@pytest.mark.parametrize("name", ["..", "../x", "a/b", ".hidden", "", "a" * 65, "e\u0301", "con\0", "x."])
def test_names_of_new_models_lead_to_no_other_place(server, models, name):
    before = sorted(os.listdir(models))
    table = server.upload(fish().to_csv(index=False).encode())
    job = {"kind": "learn", "name": name, "table": table, "label": "species", "method": "cc"}
    assert server.client.post("/v1/jobs", json=job).status_code == 422
    assert sorted(os.listdir(models)) == before


def test_models_that_point_outside_are_refused(server, models, tmp_path):
    elsewhere = make_models(tmp_path / "elsewhere") / "pacc"
    (models / "linked").symlink_to(elsewhere)
    (models / "alias").symlink_to(models / "pacc")
    (models / "mixed").mkdir()
    for file in os.listdir(elsewhere):
        (models / "mixed" / file).symlink_to(elsewhere / file)
    try:
        body, headers = b"length,depth\n1,2\n", {"Content-Type": CSV}
        for name in ("linked", "alias", "mixed"):
            expected = {"error": f"model: {name} points outside of its directory; copy the model there."}
            for answer in (
                server.client.get(f"/v1/models/{name}"),
                server.client.post(f"/v1/models/{name}/predict", content=body, headers=headers),
            ):
                assert (answer.status_code, answer.json()) == (403, expected)
        told = {card["name"]: card["problem"] for card in server.client.get("/v1/models").json()["models"]}
        assert told["pacc"] is None
        assert told["linked"] == "model: linked points outside of its directory; copy the model there."
    finally:
        for name in ("linked", "alias"):
            (models / name).unlink()
        for file in os.listdir(models / "mixed"):
            (models / "mixed" / file).unlink()
        (models / "mixed").rmdir()


@pytest.mark.parametrize(
    "address",
    ["s3://bucket/m", "memory://m", "file:///etc/passwd", "simplecache::s3://bucket/m", "zip://m::s3://b/a.zip",
     "https://example.org/m", "gs://bucket/*", "reference://m", "data:text/csv,x", "//host/m"],
)  # fmt: skip
def test_requests_name_no_addresses(server, address):
    quoted, headers = quote(address, safe=""), {"Content-Type": CSV}
    for path in (f"/v1/models/{quoted}/predict", f"/v1/models/{address}/predict"):
        assert server.client.post(path, content=b"length\n1\n", headers=headers).status_code in (404, 405)
    assert server.client.get(f"/v1/models/{quoted}").status_code == 404
    table = server.upload(b"length\n1\n")
    asked = {"kind": "estimate", "table": table, "model": "pacc"}
    for change in ({"model": address}, {"table": address}, {"audited": address}):
        assert server.client.post("/v1/jobs", json={**asked, **change}).status_code == 404
    learned = {"kind": "learn", "name": "new", "table": table, "bag": ["length"], "label": "length"}
    known = {"label": None, "proportions_table": address}
    for change, status in (({"name": address}, 422), ({"table": address}, 404), (known, 404)):
        assert server.client.post("/v1/jobs", json={**learned, **change}).status_code == status
    stored = server.client.post(f"/v1/tables?name={quoted}.csv", content=b"length\n1\n").json()
    assert re.fullmatch(r"[\w.-]+", stored["name"])


def test_a_damaged_model_is_told_and_the_others_work(server, models):
    (models / "damaged").mkdir()
    (models / "damaged/config.json").write_text('{"format": 2}')
    answer = server.client.get("/v1/models/damaged")
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("damaged does not match its checksum")
    assert server.client.get("/v1/models/pacc").status_code == 200
    (models / "damaged/config.json").unlink()
    (models / "damaged").rmdir()


def test_a_token_is_required_where_others_can_reach_the_server(models, tmp_path):
    refused = CliRunner().invoke(main, ["serve", str(models), "--host", "0.0.0.0", "--port", "0"])
    assert refused.exit_code == 2
    assert "--host: 0.0.0.0 can be reached from other machines, expected --token-file with it" in refused.output
    short = tmp_path / "short"
    short.write_text("abc")
    short.chmod(0o600)
    refused = CliRunner().invoke(main, ["serve", str(models), "--token-file", str(short)])
    assert refused.exit_code == 2
    assert "--token-file: expected one word of 16 to 1000 letters" in refused.output
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    options = ("--host", "0.0.0.0", "--token-file", str(file), "--allow-host", "quant.example.org")
    with serving(models, *options) as served:
        assert served.client.get("/healthz").json()["token"] is True
        assert served.client.get("/").status_code == 200
        for path in ("/v1/models", "/metrics", "/v1/jobs", "/v1/nothing", "/v1/models/pacc"):
            answer = served.client.get(path)
            assert answer.status_code == 401
            assert answer.json() == {"error": "Authorization: expected the token of this server, as Bearer; send it."}
        for given_token in ("", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer", f"Bearer {TOKEN[:-1]}"):
            assert served.client.get("/v1/models", headers={"Authorization": given_token}).status_code == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert served.client.get("/v1/models", headers=right).status_code == 200
        named = {"Host": "quant.example.org", **right}
        assert served.client.get("/v1/models", headers=named).status_code == 200
        assert served.client.get("/v1/models", headers={**named, "Host": "other.example.org"}).status_code == 421


def test_two_tokens_are_none():
    door = Door(token=TOKEN.encode())
    right = (b"authorization", f"Bearer {TOKEN}".encode())
    host = (b"host", b"localhost")
    assert door.refusal("GET", "/v1/models", [host, right]) is None
    assert door.refusal("GET", "/v1/models", [host, right, right])[0] == 401
    assert door.refusal("GET", "/v1/models", [host, (b"authorization", "Bearer é".encode())])[0] == 401


def bomb(path, **columns):
    parquet.write_table(pa.table(columns), path, compression="zstd", use_dictionary=False)
    return path


def test_small_files_that_unpack_to_huge_tables_are_refused(tmp_path, server):
    rows = bomb(tmp_path / "rows.parquet", length=np.zeros(8_000_000), depth=np.zeros(8_000_000))
    assert rows.stat().st_size < 100_000
    answer = server.client.post("/v1/tables?name=rows.parquet", content=rows.read_bytes())
    assert answer.status_code == 413
    expected = "table: expected at most 33,554,432 bytes when unpacked, got "
    assert answer.json()["error"].startswith(expected)
    # A list of one long text, which stands for many rows.
    longest = pa.DictionaryArray.from_arrays(np.zeros(300_000, np.int32), ["x" * 60_000])
    parquet.write_table(pa.table({"tow": longest, "length": np.zeros(300_000)}), tmp_path / "text.parquet")
    with limited_to(TableLimits(1 << 30).budget()):
        for _, batch in open_table(str(tmp_path / "text.parquet"), "source").batches([], ["tow"]):
            assert batch.nbytes < 1_000_000


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_tables_have_few_columns_and_short_cells(server, tmp_path, name):
    wide = pa.table({f"c{i}": [0] for i in range(10_001)})
    long = pa.Table.from_pandas(fish(2).assign(tow="x" * 70_000))
    parts = {"columns, got 10,001": wide, "column 'tow' has a cell of 70,000 bytes": long}
    for words, table in parts.items():
        sink, write = pa.BufferOutputStream(), csv.write_csv if name.endswith("csv") else parquet.write_table
        write(table, sink)
        content, kind = sink.getvalue().to_pybytes(), CSV if name.endswith("csv") else PARQUET
        answer = server.client.post(
            "/v1/models/pacc/predict?bag=tow", content=content, headers={"Content-Type": kind}
        )  # fmt: skip
        assert answer.status_code == 413, answer.text
        assert words in answer.json()["error"]


def test_a_line_of_a_million_cells_is_refused_before_it_is_read(server):
    for line in (b"," * 3_000_000 + b"\n1\n", b'"\n",' + b"a;" * 1_000_000 + b"\n"):
        answer = server.client.post("/v1/tables?name=rows.csv", content=line)
        assert answer.status_code == 413
        assert "expected at most 10,000 columns, got " in answer.json()["error"]


def test_values_that_nothing_is_said_about_are_refused_in_words(server):
    long_name = b'length,depth,"' + b"y\n" * 2_000_000 + b'"\n1,2,3\n'
    answer = server.client.post("/v1/models/pacc/predict", content=long_name, headers={"Content-Type": CSV})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("body.csv: ")
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"length": [b"\xff"], "depth": [1.0]}), sink)
    answer = server.client.post(
        "/v1/models/pacc/predict", content=sink.getvalue().to_pybytes(), headers={"Content-Type": PARQUET}
    )  # fmt: skip
    assert answer.status_code == 422
    expected = "body.parquet: column 'length' holds binary, expected texts or numbers; convert it."
    assert answer.json() == {"error": expected}


def test_nested_columns_are_shown_and_not_used(server):
    table = pa.table({"length": [1.0, 2.0], "depth": [1.0, 2.0], "lists": [[1], [2, 3]], "things": [{"a": 1}] * 2})
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    content = sink.getvalue().to_pybytes()
    answer = server.client.post("/v1/tables?name=rows.parquet", content=content).json()
    assert [column["kind"] for column in answer["columns"]] == ["number", "number", "other", "other"]
    headers = {"Content-Type": PARQUET}
    assert server.client.post("/v1/models/pacc/predict", content=content, headers=headers).status_code == 200
    answer = server.client.post("/v1/models/pacc/predict?bag=lists", content=content, headers=headers)
    assert answer.status_code == 422
    assert "column 'lists' holds list" in answer.json()["error"]


def test_altered_parquet_files_never_break_the_server(server):
    content = bytearray(fish(3).drop(columns="species").to_parquet(index=False))
    rng, statuses = np.random.default_rng(0), set()
    for _ in range(60):
        altered = bytearray(content)
        for place in rng.integers(4, len(content) - 8, rng.integers(1, 9)):
            altered[place] = rng.integers(256)
        answer = server.client.post(
            "/v1/models/pacc/predict?bag=tow", content=bytes(altered), headers={"Content-Type": PARQUET}
        )  # fmt: skip
        statuses.add(answer.status_code)
    assert statuses <= {200, 413, 422}
    assert 422 in statuses


def patched(content, before, after, times=-1):
    """A Parquet file in which a number of its description is another; both are written by the same number of bytes."""

    def written(value, n):
        digits = [(2 * value >> 7 * i) & 127 for i in range(n)]
        return bytes([*(digit | 128 for digit in digits[:-1]), digits[-1]])

    n = max(1, -(-(2 * before).bit_length() // 7))
    assert content.count(written(before, n)) >= 1
    return content.replace(written(before, n), written(after, n), times)


def packed(table, **options):
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def test_parquet_files_that_lie_about_their_sizes_are_refused(server):
    zeros = np.zeros(1_000_003)
    honest = packed(pa.table({"length": zeros, "depth": zeros}), compression="zstd", use_dictionary=False)
    about = parquet.read_metadata(pa.BufferReader(honest)).row_group(0).column(0)
    lying = patched(honest, about.total_uncompressed_size, 100)
    assert parquet.read_metadata(pa.BufferReader(lying)).row_group(0).column(0).total_uncompressed_size == 100
    fewer = patched(honest, 1_000_003, 5)
    torn = patched(honest, 1_000_003, 5, 1)
    headers = {"Content-Type": PARQUET}
    assert server.client.post("/v1/models/pacc/predict", content=honest, headers=headers).status_code == 200
    told = server.client.post("/v1/models/pacc/predict", content=fewer, headers=headers).json()
    assert told["estimates"][0]["n"] == 5  # no more are read than it says
    words_of = {lying: "a column unpacks to more bytes than it says", torn: "its groups have other rows than it says"}
    for content, words in words_of.items():
        for answer in (
            server.client.post("/v1/models/pacc/predict", content=content, headers=headers),
            server.client.post("/v1/tables?name=rows.parquet", content=content),
        ):
            assert answer.status_code == 422, answer.text
            assert words in answer.json()["error"]


def test_rows_are_counted_as_they_are_read_whatever_a_file_says(tmp_path):
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"x": np.zeros(1000)}), path)
    limits = TableLimits(1 << 20, rows=999)
    with (
        pytest.raises(RefusedError, match="expected at most 999 rows, got 1,000"),
        UploadedFile(path, limits).reading(),
    ):
        pass
    limits = TableLimits(1 << 20)
    with UploadedFile(path, limits).reading():
        current_budget().rows = 500  # as if the file had said fewer
        with pytest.raises(TooLargeError, match="expected at most 500 rows, got 1,000"):
            list(open_table(str(path), "source").batches(["x"]))


def test_delta_encoded_texts_are_refused(server):
    texts = pa.table({"tow": ["a" * 1000] * 100, "length": [1.0] * 100, "depth": [1.0] * 100})
    options = {"use_dictionary": False, "column_encoding": {"tow": "DELTA_BYTE_ARRAY"}}
    answer = server.client.post("/v1/tables?name=rows.parquet", content=packed(texts, **options))
    assert answer.status_code == 422
    expected = (
        "table: column 'tow' has the encoding DELTA_BYTE_ARRAY, which is refused because a small file can unpack to "
        "very long texts; write the file with another encoding."
    )
    assert answer.json() == {"error": expected}


def test_heads_of_pages_that_are_nonsense_end():
    rng = np.random.default_rng(0)
    for _ in range(300):
        with contextlib.suppress(ValueError):
            for i, _page in enumerate(read_pages(io.BytesIO(rng.bytes(1000)), 0, 1000)):
                assert i < 1000


def test_packed_bodies_are_refused(server):
    content = zlib.compress(b"length,depth\n1,2\n")
    for address in ("/v1/models/pacc/predict", "/v1/tables?name=rows.csv"):
        headers = {"Content-Type": CSV, "Content-Encoding": "deflate"}
        answer = server.client.post(address, content=content, headers=headers)
        assert answer.status_code == 415
        assert answer.json()["error"].startswith("Content-Encoding: expected the bytes of the file as they are")


def test_models_and_files_that_vanish_meanwhile_are_told(models, tmp_path, monkeypatch):
    place = tmp_path / "models"
    shutil.copytree(models, place)
    shelf = Shelf(place)
    found, has = shelf.find("pacc"), shelf._has
    monkeypatch.setattr(shelf, "find", lambda name: found)
    shutil.rmtree(place / "pacc")
    for ask in (shelf.model, shelf.card):
        with pytest.raises(RefusedError, match="model: it is not there any more") as gone:
            ask("pacc")
        assert gone.value.status == 404
    monkeypatch.undo()
    monkeypatch.setattr(shelf, "_has", lambda name: has(name) or name == "pacc")
    with pytest.raises(RefusedError, match="model: it is not there any more"):
        shelf.find("pacc")
    shutil.rmtree(place)
    with pytest.raises(RefusedError, match="models: their directory cannot be read any more"):
        shelf.cards()


def test_files_of_a_job_that_is_forgotten_meanwhile(server):
    table = server.upload(fish().to_csv(index=False).encode())
    job = server.wait(server.start(kind="estimate", table=table, model="pacc", bag=["tow"]))
    folder = next(server.folder.glob(f"histnetq-serve-*/{job['id']}"))
    assert server.client.get(f"/v1/jobs/{job['id']}/estimates.csv").status_code == 200
    (folder / "estimates.csv").unlink()
    answer = server.client.get(f"/v1/jobs/{job['id']}/estimates.csv")
    assert (answer.status_code, answer.json()) == (404, {"error": "job: it was forgotten meanwhile; start it again."})


def test_nothing_stays_of_bodies_that_end_early(server):
    spool = next(server.folder.glob("histnetq-serve-*"))
    before = sorted(os.listdir(spool))
    for address in ("/v1/models/pacc/predict", "/v1/tables?name=rows.csv"):
        head = (
            f"POST {address} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\nContent-Length: 6000000\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            line.sendall(head.encode() + b"length,depth\n" + b"1,2\n" * 1_200_000)
            until(lambda: sorted(os.listdir(spool)), lambda found: found != before)
    until(lambda: sorted(os.listdir(spool)), lambda found: found == before)


def test_slow_bodies_and_full_disks_are_refused(tmp_path, monkeypatch):
    async def parts(n):
        for _ in range(n):
            await asyncio.sleep(0.01)
            yield b"x"

    async def slow():
        await Body(tmp_path / "slow", counts=False).receive(parts(100_000), TableLimits(1 << 20))

    monkeypatch.setattr(spool_of_web, "_IDLE", 0.2)
    with pytest.raises(
        RefusedError, match="body: nothing came for 0 seconds, or less than 65,536 bytes per"
    ) as refused:
        asyncio.run(slow())
    assert refused.value.status == 408
    full = Body(tmp_path / "nowhere" / "full", counts=False)
    with pytest.raises(
        RefusedError, match="server: the body cannot be kept \\(No such file or directory\\)"
    ) as refused:
        full.finish()
    assert refused.value.status == 507


def test_many_small_parts_take_no_more_memory_than_their_bytes(tmp_path):
    async def parts():
        for _ in range(5000):
            yield b"ab"

    body = Body(tmp_path / "body", counts=False)
    asyncio.run(body.receive(parts(), TableLimits(1 << 20)))
    assert len(body._waiting) <= 1001
    body.finish()
    assert (tmp_path / "body").read_bytes() == b"ab" * 5000


def test_nothing_that_is_uploaded_is_unpickled(server, models, tmp_path):
    mark = tmp_path / "mark"
    evil = b"cos\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR."
    for name, content in {"a.csv": evil, "a.parquet": evil, "b.csv": zlib.compress(evil)}.items():
        assert server.client.post("/v1/tables", params={"name": name}, content=content).status_code in (201, 422)
    assert server.client.post("/v1/tables?name=a.pkl", content=evil).status_code == 415
    assert not mark.exists()


class Answering:
    """A server in this process, whose patience the test chooses, that answers everything without reading it."""

    def __init__(self, app=None):
        async def refuse(scope, receive, send):
            await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

        app = app or refuse
        config = uvicorn.Config(app, port=0, http=protocol.HttpProtocol, lifespan="off", log_level="error")
        self.server, listening = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, args=([listening],))
        self.thread.start()

    def end(self):
        self.server.should_exit = True
        self.thread.join()


def test_neither_heads_nor_refused_bodies_are_waited_for(monkeypatch):
    monkeypatch.setattr(protocol, "_HEADER_SECONDS", 0.2)
    monkeypatch.setattr(protocol, "_LINGER", 0.2)
    server = Answering()
    try:
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
        for silent in (b"", b"GET / HT", head, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + head):
            answer = talk(server, silent, seconds=30, silent=False)  # ends, and not as it is silent for long
            assert answer.count(b"HTTP/1.1 413") == silent.count(b"\r\n\r\n")
        refused = talk(server, head + b"Content-Length: 100000\r\n\r\n" + b"x" * 1000, seconds=30, silent=False)
        assert refused.count(b"HTTP/1.1 413") == 1
    finally:
        server.end()


def test_answers_that_nobody_takes_are_not_kept(monkeypatch):
    monkeypatch.setattr(protocol, "_WRITE_SECONDS", 0.2)

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * (64 << 20)})

    server = Answering(app)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
            line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: len(server.server.server_state.connections), lambda n: n == 1)
            until(lambda: len(server.server.server_state.connections), lambda n: n == 0)
    finally:
        server.end()


def test_answers_that_wait_take_bounded_memory(monkeypatch):
    monkeypatch.setattr(protocol, "_MOST_WAITING", 72 << 20)  # two answers, whatever part of them the system takes

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * (32 << 20)})

    server = Answering(app)
    try:
        with contextlib.ExitStack() as stack:
            for i in range(5):
                line = stack.enter_context(socket.socket())
                line.settimeout(30)
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                line.connect(("127.0.0.1", server.port))
                line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert line.recv(12) == b"HTTP/1.1 200"
                until(lambda: len(server.server.server_state.connections), lambda n, i=i: n == min(i + 1, 2))
            n_bytes = 0
            while n_bytes < 32 << 20:  # the last answer is there
                part = line.recv(1 << 20)
                assert part
                n_bytes += len(part)
    finally:
        server.end()


def test_nonsense_after_an_answer_ends_the_connection_in_silence(caplog):
    server = Answering()
    try:
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
            line.sendall(head)
            assert line.recv(65536).startswith(b"HTTP/1.1 413")
            line.sendall(b"zz\r\n")
            with contextlib.suppress(ConnectionError):
                assert line.recv(65536) == b""
    finally:
        server.end()
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"HEAD /v1/models", b"405"), (b"OPTIONS /v1/models", b"405"), (b"TRACE /v1/models", b"405"),
        (b"GET http://localhost/v1/models", b"404"), (b"GET //v1/models", b"404"), (b"GET /v1/models/", b"404"),
        (b"CONNECT localhost:80", b"404"), (b"GET *", b"404"),
    ],
)  # fmt: skip
def test_other_methods_and_forms_of_addresses_open_nothing(server, request_line, status):
    answer = talk(server, request_line + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert answer.split()[1] in (status, b"400")
    assert b"pacc" not in answer


def test_two_requests_in_one_are_not_taken_apart(server):
    hidden = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    for lengths in (
        b"Content-Length: 5\r\nContent-Length: 500\r\n", b"Content-Length: 5, 500\r\n", b"Content-Length: +5\r\n",
        b"Content-Length : 5\r\n", b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", b"X: a\r\n b\r\n\tc: d\r\n",
    ):  # fmt: skip
        answer = talk(server, head + lengths + b"\r\n" + hidden, seconds=5)
        assert b'"status":"ok"' not in answer
        assert answer.count(b"HTTP/1.1 ") <= 1


def test_a_body_with_two_ends_is_refused_and_ends_the_connection(server):
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    hidden = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = talk(server, head + b"0\r\n\r\n" + hidden, seconds=5)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"head: expected either Content-Length or Transfer-Encoding, got both; send one of them." in answer


@pytest.mark.hard
def test_thousands_of_open_connections_do_not_end_the_server(server):
    lines = []
    try:
        for _ in range(900):
            with contextlib.suppress(OSError):
                lines.append(socket.create_connection(("127.0.0.1", server.port), timeout=5))
    finally:
        for line in lines:
            line.close()
    assert len(lines) > 500
    assert until(lambda: server.client.get("/healthz").status_code, lambda status: status == 200)


def test_broken_heads_are_refused(server):
    for nonsense in (b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"G" * 100_000):
        answer = talk(server, nonsense, seconds=2)
        assert not answer or answer.split()[1] in (b"400", b"421", b"431")
    many = b"".join(b"X-%d: 1\r\n" % i for i in range(200_000))
    answer = talk(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n", seconds=5)
    assert not answer or answer.split()[1] == b"431"
    assert server.client.get("/healthz").status_code == 200


def test_bodies_that_do_not_fit_their_heads(server):
    head = (
        b"POST /v1/models/pacc/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\nConnection: close\r\n"
    )
    chunked = head + b"Transfer-Encoding: chunked\r\n"
    assert talk(server, chunked + b"\r\nzz\r\nlength\r\n").split()[1:2] in ([b"400"], [])
    both = chunked + b"Content-Length: 3\r\n\r\n11\r\nlength,depth\n1,2\n\r\n0\r\n\r\n"
    assert talk(server, both).split()[1] in (b"400", b"200")
    assert talk(server, head + b"Content-Length: -1\r\n\r\n").split()[1] == b"400"
    assert talk(server, head + b"Content-Length: 99999999999\r\n\r\nlength").split()[1] == b"413"
    large = b'{"kind": "' + b"a" * 2_000_000 + b'"}'
    answer = server.client.post("/v1/jobs", content=large, headers={"Content-Type": JSON})
    assert answer.status_code == 413
    nested = b"[" * 100_000
    answer = server.client.post("/v1/jobs", content=nested, headers={"Content-Type": JSON})
    assert answer.status_code == 400
    half = server.client.post("/v1/jobs", content=b'{"kind": "learn", "name": "\\ud800"}')
    assert half.status_code == 422


def test_a_job_is_cancelled_by_many_at_once(server):
    table = server.upload(fish(200).to_csv(index=False).encode())
    for _ in range(3):
        job = server.start(kind="estimate", table=table, model="pacc", bag=["tow"])
        states = {httpx.delete(f"{server.address}/v1/jobs/{job['id']}").status_code for _ in range(4)}
        assert states <= {200, 404}
    assert until(lambda: server.client.get("/metrics").text, lambda text: 'histnetq_busy{of="jobs"} 0' in text)


def fuzz(server, n_refused):
    """Send requests that the schema describes, and some that it does not, until so many were refused; none may fail.

    Give how often each status was answered.
    """
    schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    statuses = Counter()
    for number, operation, mode in itertools.product(range(100), operations, modes):

        @seed(number)
        @settings(
            max_examples=min(20, n_refused // 10), database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case):
            if mode is modes[0] and "name" in (case.path_parameters or ()):  # noqa: B023
                case.path_parameters["name"] = "pacc"  # else hardly any request gets as far as its body
            answer = case.call(timeout=30)
            assert answer.status_code < 500, (case.as_curl_command(), answer.text)
            assert answer.status_code < 400 or list(answer.json()) == ["error"]
            statuses[answer.status_code] += 1

        with contextlib.suppress(Unsatisfiable):  # nothing can be wrong about some requests
            ask()
        if sum(n for status, n in statuses.items() if status >= 400) >= n_refused and operation is operations[-1]:
            break
    assert server.client.get("/healthz").status_code == 200
    return statuses


def test_no_request_breaks_the_server(server):
    assert set(fuzz(server, 50)) > {200}


@pytest.mark.hard
def test_no_request_of_many_breaks_the_server(server, record_property):
    statuses = fuzz(server, 1000)
    record_property("statuses", dict(statuses))
    assert sum(n for status, n in statuses.items() if 400 <= status < 500) >= 1000, statuses


def test_numbers_that_overflow_in_a_classifier_do_not_end_the_server(tmp_path):
    # Each number is finite in float32, also in units of training. Times weights above 1 of the network it is not, and
    # infinity minus infinity is NaN. A logistic regression is computed in float64, and does not overflow.
    rows, noise = fish(), np.random.default_rng(1)
    rows["depth"] = 3.0 * (rows["species"] == "eel") + noise.normal(size=len(rows))
    rows[["length", "depth"]] /= rows[["length", "depth"]].std() / 1.001
    bags = hq.read_bags(rows, bag="tow", label="species", features=["length", "depth"])
    network = MLPClassifier((8,), activation="identity", alpha=0, learning_rate_init=0.1, max_iter=300, random_state=0)
    for name, method in (("hdy", hq.HDy), ("dys", hq.DyS), ("cc", hq.CC)):
        method(network, cv=3, random_state=0).fit(bags).save(tmp_path / "models" / name)
    hq.CC(cv=3, random_state=0).fit(bags).save(tmp_path / "models" / "logistic")
    wild = "length,depth\n" + "".join(f"{a}e38,{b}e38\n" for a in (3.4, -3.4) for b in (3.4, -3.4)) * 50
    classifier = hq.load(tmp_path / "models" / "cc").classifier_
    corners = np.array([(a, b) for a in (3.4e38, -3.4e38) for b in (3.4e38, -3.4e38)], np.float32)
    with np.errstate(all="ignore"):
        assert np.isnan(classifier.predict_proba(corners)).any()
    headers = {"Content-Type": CSV}
    with serving(tmp_path / "models") as server:
        answer = server.client.post("/v1/models/logistic/predict", content=wild, headers=headers)
        assert [row["estimate"] >= 0 for row in answer.json()["estimates"]] == [True, True], answer.text
        for name in ("hdy", "dys", "cc"):
            for interval in ("bootstrap", "bayes"):
                address = f"/v1/models/{name}/predict?interval={interval}"
                answer = server.client.post(address, content=wild, headers=headers)
                assert 400 <= answer.status_code < 500, answer.text
                assert answer.json()["error"].startswith("classifier: returned NaN for "), answer.text
                assert "\n" not in answer.json()["error"]
                assert server.client.get("/healthz").status_code == 200
            usual = fish(1).to_csv(index=False)
            found = server.client.post(f"/v1/models/{name}/predict?interval=bootstrap", content=usual, headers=headers)
            assert found.status_code == 200, found.text
