"""The service under load: the server on one core and its clients on another.

32 clients ask 200 times each for the estimates of 100 bags of 100 rows as Parquet, one request after the other; those
that are told to come again wait as long as they are told. The throughput is compared with that of parsing and
predicting the same file in a loop on the server's core. A further request uploads a table of 2 GB.

``python -m benchmarks.service REQUESTS MEGABYTES`` tries it with fewer.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

import histnetq as hq

__all__ = ["run"]

_CLIENTS, _REQUESTS, _MEGABYTES = 32, 200, 2048
_BAGS, _SIZE, _FEATURES = 100, 100, 20
_WARM = 1000  # requests after which memory may not grow
_LOOPS = 200


def run(n_requests: int = _REQUESTS, megabytes: int = _MEGABYTES) -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio, comparison, target)."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise RuntimeError("the service is measured on two cores, and there is one")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        _fit(place / "models")
        _rows(1).to_parquet(place / "rows.parquet", index=False)
        alone = _in_a_loop(place, cores[0])
        with _serving(place, cores[0]) as (pid, address):
            os.sched_setaffinity(0, {cores[1]})
            try:
                load = _Load(address, (place / "rows.parquet").read_bytes(), n_requests, pid)
                load.run()
                memory = _memory_of_upload(pid, address, megabytes)
            finally:
                os.sched_setaffinity(0, cores)
    if load.others:
        raise AssertionError(f"expected 200 and 429 alone, got {dict(load.others)}")
    p50, p99 = np.percentile(load.seconds, [50, 99])
    rate, n = len(load.seconds) / load.took, _CLIENTS * n_requests
    what = f"service, {_CLIENTS} clients × {n_requests} requests of {_BAGS} bags × {_SIZE} rows × {_FEATURES}"
    yield f"{what}: part that is told to come again", load.refused / n, "≤", 0.05
    yield f"{what}: 99th percentile over median ({1000 * p50:.0f} ms)", p99 / p50, "≤", 4.0
    yield f"{what}: requests ({rate:.0f} per second) over a loop ({alone:.0f})", rate / alone, "≥", 0.7
    told = f"memory at the end over that after {_WARM} requests ({load.warm / 1e6:.0f} MB), less 1"
    yield f"{what}: {told}", abs(load.memory / load.warm - 1), "≤", 0.1
    yield f"service, upload of {megabytes} MB: MB of memory above those of the idle server", memory / 1e6, "≤", 250.0


def _fit(place: Path) -> None:
    bags = hq.read_bags(_rows(0), bag="bag", label="label")
    learned, held = bags.split(0.5, 0)
    hq.PACC(random_state=0).fit(learned).calibrate(held).save(place / "model")


def _rows(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    label = rng.random(_BAGS * _SIZE) < np.repeat(rng.random(_BAGS), _SIZE)
    rows = pd.DataFrame(rng.normal(size=(len(label), _FEATURES)) + 0.5 * label[:, None])
    rows.columns = [f"x{i}" for i in range(_FEATURES)]
    return rows.assign(bag=np.repeat(np.arange(_BAGS), _SIZE), label=np.where(label, "a", "b"))


_LOOP = """
import sys, time
import histnetq as hq
from histnetq.workflows.estimating import estimate
model, rows, n = hq.load(sys.argv[1]), [sys.argv[2]], int(sys.argv[3])
for i in range(n + 20):
    if i == 20:
        began = time.perf_counter()
    estimate(model, rows, bag=["bag"])
print(n / (time.perf_counter() - began))
"""


def _in_a_loop(place: Path, core: int) -> float:
    """Parse and predict the same bytes again and again: how often in a second."""
    arguments = [str(place / "models/model"), str(place / "rows.parquet"), str(_LOOPS)]
    command = ["taskset", "-c", str(core), sys.executable, "-c", _LOOP, *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@contextlib.contextmanager
def _serving(place: Path, core: int) -> Iterator[tuple[int, tuple[str, int]]]:
    command = [sys.executable, "-m", "histnetq", "serve", str(place / "models"), "--port", "0"]
    (place / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(place / "temporary")}
    with subprocess.Popen(
        ["taskset", "-c", str(core), *command], stdout=subprocess.PIPE, text=True, env=environment
    ) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+:\d+", server.stdout.readline())
            assert found is not None
            split = urlsplit(found[0])
            yield server.pid, (str(split.hostname), int(split.port or 0))
        finally:
            server.terminate()


class _Load:
    """Run clients that send their requests one by one."""

    def __init__(self, address: tuple[str, int], content: bytes, n_requests: int, pid: int) -> None:
        self.address, self.content, self.n_requests, self.pid = address, content, n_requests, pid
        self.seconds: list[float] = []
        self.others: Counter[int] = Counter()
        self.refused, self.warm, self.memory, self.took = 0, 0, 0, 0.0

    def run(self) -> None:
        """Send a request and record the server's time."""
        self._ask(http.client.HTTPConnection(*self.address))  # loads the model
        self.seconds.clear()
        threads = [threading.Thread(target=self._client) for _ in range(_CLIENTS)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.1)
            if not self.warm and len(self.seconds) >= min(_WARM, _CLIENTS * self.n_requests // 2):
                self.warm = _memory(self.pid)
        self.took = time.perf_counter() - began
        self.memory = _memory(self.pid)
        self.warm = self.warm or self.memory

    def _client(self) -> None:
        connection = http.client.HTTPConnection(*self.address, timeout=120)
        for _ in range(self.n_requests):
            self._ask(connection)

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        """Ask until the answer is there."""
        headers = {"Content-Type": "application/vnd.apache.parquet"}
        while True:
            began = time.perf_counter()
            connection.request("POST", "/v1/models/model/predict?bag=bag", self.content, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status == 200:
                self.seconds.append(time.perf_counter() - began)
                return
            if answer.status != 429:
                self.others[answer.status] += 1
                return
            self.refused += 1
            time.sleep(float(answer.headers["Retry-After"]))


def _memory_of_upload(pid: int, address: tuple[str, int], megabytes: int) -> int:
    """Return the increase of the largest resident set during the upload, in bytes."""
    before = _memory(pid)
    for one in _family(pid):
        Path(f"/proc/{one}/clear_refs").write_text("5")  # the largest resident set is counted from here
    row = ",".join(["0.123456789"] * _FEATURES) + ",bag\n"
    block = row.encode() * ((1 << 20) // len(row))

    def content() -> Iterator[bytes]:
        yield (",".join([*(f"x{i}" for i in range(_FEATURES)), "bag"]) + "\n").encode()
        for _ in range(megabytes * (1 << 20) // len(block)):
            yield block

    connection = http.client.HTTPConnection(*address, timeout=600)
    connection.request("POST", "/v1/tables?name=rows.csv", content(), encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})  # fmt: skip
    answer = connection.getresponse()
    if answer.status != 201:
        raise AssertionError(f"the upload was answered by {answer.status}: {answer.read()[:200]!r}")
    return _memory(pid, "VmHWM") - before


def _memory(pid: int, entry: str = "VmRSS") -> int:
    """Bytes of the server and its workers."""
    lines = [line for one in _family(pid) for line in Path(f"/proc/{one}/status").read_text().splitlines()]
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(entry))


def _family(pid: int) -> list[int]:
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


if __name__ == "__main__":
    for found in run(*map(int, sys.argv[1:3])):
        print(*found)
