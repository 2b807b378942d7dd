"""Small requests that stand for much: the server refuses them, or answers within a bound, and takes little memory."""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import histnetq as hq
from tests.serving import fish, make_models, serving

CSV, PARQUET, JSON = "text/csv", "application/vnd.apache.parquet", "application/json"
MOST = 300 << 20  # bytes by which a request may raise the memory of the server and the processes that it starts
UPLOAD = 64  # MB


def packed(columns, **options):
    sink = io.BytesIO()
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    parquet.write_table(table, sink, **{"compression": "zstd", **options})
    return sink.getvalue()


def repeated(text, n, n_different=1):
    """A column of few texts, which a Parquet file holds once each."""
    texts = [f"{i}{text}"[: len(text)] for i in range(n_different)]
    return pa.DictionaryArray.from_arrays(pa.array(np.arange(n) % n_different, pa.int32()), texts)


def numbered(n):
    """A Parquet file with the numbers of its rows as bags, in a few bytes each thousand."""
    columns = {"tow": np.arange(n), "length": np.zeros(n), "depth": np.zeros(n)}
    return packed(columns, use_dictionary=["length", "depth"], column_encoding={"tow": "DELTA_BINARY_PACKED"})


def sketches(model, change):
    """A file of sketches of the model, with its columns changed."""
    sink = io.BytesIO()
    rows = fish(3)[["length", "depth"]].to_numpy()
    model.sketch(hq.Bags(rows, offsets=[0, 20, 60], ids=["a", "b"])).save(sink)
    table = parquet.read_table(sink)
    changed = change({name: table.column(name).combine_chunks() for name in table.column_names})
    names, arrays = zip(*changed.items(), strict=True)
    return packed(pa.Table.from_arrays(list(arrays), list(names)).replace_schema_metadata(table.schema.metadata))


def many_bags(columns, ids):
    places = pa.array(np.zeros(len(ids), np.int64))
    return {**{name: column.take(places) for name, column in columns.items()}, "id": ids}


class Memory:
    """How much more memory a process and those that it starts take, watched all the time.

    A process that lives on is known by its high-water mark, and one that ends by samples of its own part of what it
    shares with others: just after a fork, that is nearly nothing.
    """

    def __init__(self, process):
        self.process, self.ended, self.rise = process, False, 0
        self.thread = threading.Thread(target=self._watch)
        self.idle = {"VmHWM": self.now("VmRSS", "status"), "Pss": self.now("Pss", "smaps_rollup")}

    def __enter__(self):
        self.rise = 0
        for process in self.tree():
            with contextlib.suppress(OSError), open(f"/proc/{process}/clear_refs", "w") as file:
                file.write("5")  # the high-water mark begins anew
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.ended = True
        self.thread.join()
        self.rise = max(self.rise, self.now("VmHWM", "status") - self.idle["VmHWM"])

    def _watch(self):
        while not self.ended:
            self.rise = max(self.rise, self.now("Pss", "smaps_rollup") - self.idle["Pss"])
            time.sleep(0.005)

    def now(self, field, file):
        return sum(self.read(process, field, file) for process in self.tree())

    def tree(self):
        found = [self.process]
        for process in found:
            with contextlib.suppress(OSError):
                for thread in os.listdir(f"/proc/{process}/task"):
                    with open(f"/proc/{process}/task/{thread}/children") as file:
                        found += map(int, file.read().split())
        return found

    @staticmethod
    def read(process, field, name):
        with contextlib.suppress(OSError), open(f"/proc/{process}/{name}") as file:
            for line in file:
                if line.startswith(f"{field}:"):
                    return int(line.split()[1]) << 10
        return 0


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    place = make_models(tmp_path_factory.mktemp("bombed") / "models")
    rng = np.random.default_rng(0)
    names = np.array([f"{i:02}".ljust(1000, "x") for i in range(20)])
    y = np.arange(400) % 20
    rows = pd.DataFrame(rng.normal(size=(400, 2)) + y[:, None], columns=["f0", "f1"])
    hq.CC(random_state=0).fit(rows, names[y]).save(place / "long")
    return place


@pytest.fixture(scope="module", autouse=True)
def threads_of_users():
    """Servers have as many threads as those of users, as each thread takes memory."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        yield


@pytest.fixture(scope="module")
def server(models):
    with serving(models, "--workers", "2", "--max-upload", str(UPLOAD), "--learn-memory", "2000") as served:
        served.client.timeout = 300
        body = fish().to_csv(index=False).encode()
        asked = {"kind": "estimate", "table": served.upload(body), "model": "pacc", "bag": ["tow"], "time": "when"}
        with ThreadPoolExecutor(4) as pool:  # several requests at once: each worker loads its libraries and models
            for name in ("pacc", "emq", "histnetq") * 2:
                post = partial(served.client.post, content=body, headers={"Content-Type": CSV})
                list(pool.map(post, [f"/v1/models/{name}/predict?bag=tow"] * 4))
            jobs = [served.wait(served.start(**asked))["id"] for _ in "1234"]
            reports = list(pool.map(lambda job: served.client.get(f"/v1/jobs/{job}/report.html"), jobs))
        assert [report.status_code for report in reports] == [200] * 4
        served.idle = Memory(served.process.pid).idle
        with Memory(served.process.pid) as memory:
            assert learned(served, labelled(repeated("y" * 3, 1000, 2), 1000), label="label") == (200, "")
        served.learner = memory.rise  # what the process that learns takes for a small table
        yield served


def estimated(server, content, **asked):
    name = "rows.parquet" if content[:4] == b"PAR1" else "rows.csv"
    answer = server.client.post("/v1/tables", params={"name": name}, content=content)
    if answer.status_code != 201:
        return answer.status_code, answer.json()["error"]
    job = {"kind": "estimate", "model": "pacc", "table": answer.json()["id"], **asked}
    answer = server.client.post("/v1/jobs", json=job)
    if answer.status_code != 202:
        return answer.status_code, answer.json()["error"]
    job = server.wait(answer.json())
    if job["state"] != "done":
        return 422, job["error"]
    for file in job["result"]["downloads"]:
        with server.client.stream("GET", f"/v1/jobs/{job['id']}/{file}") as answer:
            if answer.status_code != 200:
                return answer.status_code, json.loads(answer.read())["error"]
            assert sum(map(len, answer.iter_bytes())) <= UPLOAD << 20
    return 200, str(job["result"]["monitoring"])[:200]


def learned(server, content, **asked):
    table = server.client.post("/v1/tables?name=rows.parquet", content=content)
    if table.status_code != 201:
        return table.status_code, table.json()["error"]
    asked = {"kind": "learn", "name": f"m{time.monotonic_ns()}", "table": table.json()["id"], "method": "cc", **asked}
    job = server.wait(server.start(**asked))
    return (200, "") if job["state"] == "done" else (422, job["error"])


def posted(server, address, content, kind=PARQUET):
    answer = server.client.post(address, content=content, headers={"Content-Type": kind})
    return answer.status_code, "" if answer.status_code < 300 else answer.json()["error"]


def sent(kind, content, address="/v1/models/pacc/predict"):
    return lambda server: posted(server, address, content() if callable(content) else content, kind)


def uploaded(content, name="rows.parquet"):
    return lambda server: posted(server, f"/v1/tables?name={name}", content())


def sketched(change):
    def send(server):
        model = hq.load(server.models / "pacc")
        return posted(server, "/v1/models/pacc/predict", sketches(model, change))

    return send


def lists(n):
    """A table with rows that have very many numbers, all the same."""
    values = pa.ListArray.from_arrays(pa.array([0, n, 2 * n, 3 * n], pa.int32()), pa.array(np.zeros(3 * n)))
    return packed({"length": values, "depth": [1.0, 2.0, 3.0]})


def wide(n_columns, n_rows):
    return packed({f"c{i}": np.zeros(n_rows) for i in range(n_columns)}, row_group_size=n_rows)


def many_groups(n):
    sink = io.BytesIO()
    table = pa.table({f"c{i}": [0.0] for i in range(20)})
    with parquet.ParquetWriter(sink, table.schema, write_statistics=False, use_dictionary=False) as writer:
        for _ in range(n):
            writer.write_table(table)
    return sink.getvalue()


def by_minute(n):
    times = pd.date_range("2000-01-01", periods=n, freq="min")
    return packed({"when": times, "length": np.zeros(n), "depth": np.zeros(n)})


def labelled(label, n):
    rng = np.random.default_rng(0)
    return packed({"x": rng.random(n), "z": rng.random(n), "label": label})


HUGE = {
    "a preview of one long text": uploaded(lambda: packed({"x": repeated("y" * 350_000, 20_000)})),
    "a preview of texts that are just short enough": uploaded(lambda: packed({"x": repeated("y" * 60_000, 1_000_000)})),
    "a preview of very many texts": uploaded(lambda: packed({f"c{i}": repeated("y" * 9000, 9999) for i in range(99)})),
    "a preview of lists": uploaded(lambda: lists(5_000_000)),
    "a preview of bytes of one length": uploaded(
        lambda: packed({"x": pa.array([b"y" * 50_000] * 400, pa.binary(50_000)).take(pa.array(np.arange(9000) % 400))})
    ),
    "a preview of rows without a value": uploaded(lambda: packed({"x": pa.nulls(30_000_000)})),
    "a preview of one page": uploaded(
        lambda: packed({"x": np.zeros(30_000_000)}, use_dictionary=False, data_page_size=1 << 30)
    ),
    "a preview of texts in one page": uploaded(
        lambda: packed({"x": ["y" * 60_000] * 4000}, use_dictionary=False, data_page_size=1 << 30)
    ),
    "a preview of very many groups of rows": uploaded(lambda: many_groups(5000)),
    "a preview of 10,000 columns": uploaded(lambda: wide(10_000, 3000)),
    "a preview of short lines": uploaded(lambda: b"x\n" + b"1\n" * 30_000_000, "rows.csv"),
    "a preview of line breaks in cells": uploaded(lambda: (b'"' + b"\n" * 60_000 + b'",1\n') * 900, "rows.csv"),
    "sketches with one long name": sketched(lambda columns: many_bags(columns, repeated("y" * 60_000, 100_000))),
    "sketches with many long names": sketched(
        lambda columns: many_bags(columns, pa.array([f"{i}".ljust(20_000) for i in range(10_000)]))
    ),
    "sketches of a million bags": sketched(lambda columns: many_bags(columns, pa.array(np.arange(1_000_000)))),
    "sketches with a further column": sketched(
        lambda columns: {**many_bags(columns, pa.array(np.arange(20_000))), "x": repeated("y" * 60_000, 20_000)}
    ),
    "sketches of very many numbers": sketched(
        lambda columns: {**columns, "values": pa.FixedSizeListArray.from_arrays(np.zeros(30_000_000), 15_000_000)}
    ),
    "an answer that repeats long names of classes": sent(
        CSV, "tow,f0,f1\n" + "".join(f"{i},1,2\n" for i in range(9000)), "/v1/models/long/predict?bag=tow"
    ),
    "an answer with a column for each class": sent(
        CSV, "tow,f0,f1\n" + "".join(f"{i},1,2\n" for i in range(9000)), "/v1/models/long/predict?bag=tow&wide=true"
    ),
    "an answer for each row": sent(PARQUET, lambda: numbered(200_000), "/v1/models/pacc/predict?bag=tow"),
    "bags of one row": sent(PARQUET, lambda: numbered(10_000_000), "/v1/models/pacc/predict?bag=tow"),
    "bags of one row for a method that holds rows": sent(
        PARQUET, lambda: numbered(1_000_000), "/v1/models/emq/predict?bag=tow"
    ),
    "bags with a name of 1,000 letters": sent(
        CSV, "tow,length,depth\n" + "y" * 1000 + ",1,2\n" + "".join(f"{i},1,2\n" for i in range(300_000)),
        "/v1/models/pacc/predict?bag=tow",
    ),
    "bags with a name of 60,000 letters": sent(
        PARQUET, lambda: packed({"tow": repeated("y" * 60_000, 99_999), "length": np.zeros(99_999),
                                 "depth": np.zeros(99_999)}), "/v1/models/pacc/predict?bag=tow",
    ),
    "rows that are held in memory": sent(
        PARQUET, lambda: packed({"length": np.zeros(15_000_000), "depth": np.zeros(15_000_000)}),
        "/v1/models/emq/predict",
    ),
    "rows that are not held": sent(
        PARQUET, lambda: packed({"length": np.zeros(15_000_000), "depth": np.zeros(15_000_000)})
    ),
    "lists of numbers": sent(PARQUET, lambda: lists(5_000_000)),
    "JSON of empty rows": sent(JSON, lambda: b"[" + b"{}," * 2_000_000 + b"{}]"),
    "JSON of short rows": sent(
        JSON, lambda: b'[{"length":1,"depth":2}' + b',{"length":1,"depth":2}' * 1_400_000 + b"]"
    ),
    "JSON of a list of texts": sent(JSON, lambda: b'[["a"' + b',"b"' * 8_000_000 + b"]]"),
    "JSON of other columns in each row": sent(
        JSON, lambda: b"[" + b",".join(b'{"c%d":1}' % i for i in range(1_000_000)) + b"]"
    ),
    "JSON of one long row": sent(
        JSON, lambda: b"[{" + b",".join(b'"c%d":1' % i for i in range(2_000_000)) + b"}]"
    ),
    "JSON of lists in lists": sent(JSON, lambda: b'[{"length":' + b"[" * 30_000_000),
    "JSON of characters that take four bytes": sent(
        JSON, lambda: '[{"tow":"😀","length":1,"depth":2}'.encode() + b',{"length":1,"depth":2}' * 1_300_000 + b"]"
    ),
    "JSON of a number that is too large": sent(JSON, b'[{"length":1e400,"depth":1}]'),
    "a bag column with a long name": sent(CSV, b"length,depth\n1,2\n", f"/v1/models/pacc/predict?bag={'y' * 999}"),
    "an estimate of each row": lambda server: estimated(server, numbered(100_000), bag=["tow"]),
    "chunks of one row": lambda server: estimated(server, by_minute(1_000_000), time="when", period="min"),
    "chunks of one row, fewer": lambda server: estimated(server, by_minute(3000), time="when", period="min"),
    "segments of one row": lambda server: estimated(
        server, fish(500).assign(by=range(10_000)).to_csv(index=False).encode(), time="when", period="M", by=["by"]
    ),
    "labels of 60,000 letters": lambda server: learned(
        server, labelled(repeated("y" * 60_000, 20_000, 2), 20_000), label="label"
    ),
    "labels that all differ": lambda server: learned(
        server, labelled(pa.array([f"{i}" for i in range(300_000)]), 300_000), label="label"
    ),
}  # fmt: skip


@pytest.mark.hard
@pytest.mark.parametrize("name", HUGE)
def test_small_requests_take_little_memory(server, name, record_property):
    memory = Memory(server.process.pid)
    memory.idle = server.idle  # what the requests before have left counts, too
    with memory:
        status, sentence = HUGE[name](server)
    rise = memory.rise - server.learner * name.startswith("labels")
    print(f"{name}: {status}, {rise >> 20} MB; {sentence[:200]}")  # noqa: T201
    record_property("MB", rise >> 20)
    assert status in (200, 201, 400, 413, 422)
    assert status < 400 or (len(sentence) < 2100 and sentence.endswith("."))
    assert rise <= MOST
    assert httpx.get(f"{server.address}/healthz").status_code == 200


@pytest.mark.hard
def test_learning_that_needs_more_memory_than_it_may_take_is_told(models):
    with serving(models, "--workers", "2", "--learn-memory", "256") as served:
        found = learned(served, labelled(repeated("y" * 3, 300_000, 2), 300_000), label="label", method="auto")
    assert found == (422, "memory: learning needs more than the 256 MB that it may take; use fewer rows.")
