"""Worker processes of the service: killed when they take too long, replaced when they die, fair to clients."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import threading
import time

import httpx
import pytest

import histnetq as hq
from histnetq.web import workers as workers_of_web
from histnetq.web.errors import RefusedError
from histnetq.web.limits import TableLimits
from histnetq.web.workers import Workers
from tests.conftest import exactly
from tests.serving import Served, fish, make_models, serving, until

CSV = "text/csv"
GB = 1 << 30


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models of which "endless" never stops to estimate, where its parameters are not refused."""
    place = make_models(tmp_path_factory.mktemp("working") / "models")
    bags = hq.read_bags(fish(), bag="tow", label="species", features=["length", "depth"])
    model = hq.EMQ(cv=3, random_state=0).fit(bags)
    model.tol, model.max_iter = -1.0, 10**15
    model.save(place / "endless")
    return place


@pytest.fixture
def unbounded(tmp_path, monkeypatch):
    """Let processes load the model "endless", as if a bound had been forgotten."""
    code = "from histnetq.quantifiers.classical import emq\nemq.check_iterations = lambda *given: None\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    others = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *([others] if others else [])]))


def look(path):
    """Arguments of the task that describes a table."""
    return {"path": str(path), "n_lines": 601, "limits": dataclasses.asdict(TableLimits(GB))}


@pytest.fixture
def table(tmp_path):
    fish().to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


@pytest.fixture
def silent(tmp_path):
    """A file that never ends to be opened."""
    os.mkfifo(tmp_path / "silent.csv")
    return tmp_path / "silent.csv"


def with_workers(models, use, memory=16 * GB, n_workers=1):
    """Use some workers, and end them."""

    async def run():
        workers = Workers(n_workers, models, memory)
        try:
            await use(workers)
        finally:
            pids = workers.pids()
            await workers.close()
        assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]

    asyncio.run(run())


def test_work_that_takes_too_long_is_killed_and_the_next_is_done(models, table, silent):
    async def use(workers):
        assert (await workers.run("look", look(table), seconds=60))[0]["about"]["rows"] == 600
        (before,) = workers.pids()
        with pytest.raises(
            RefusedError, match=exactly("server: it took more than 0 seconds; send fewer rows.")
        ) as late:
            await workers.run("look", look(silent), seconds=0.1)
        assert late.value.status == 503
        assert late.value.headers == {"Retry-After": "10"}
        assert (await workers.run("look", look(table), seconds=60))[0]["about"]["rows"] == 600
        assert workers.pids() != [before]
        assert workers.n_ended == {"late": 1}

    with_workers(models, use)


def test_work_that_waits_for_too_long_is_refused(models, silent, monkeypatch):
    async def use(workers):
        began = asyncio.Event()
        first = asyncio.create_task(workers.run("look", look(silent), seconds=None, on_event=lambda _: began.set()))
        await began.wait()
        monkeypatch.setattr(workers_of_web, "_WAITING", 0.01)
        words = "server: no worker was free for 0 seconds; try again later."
        with pytest.raises(RefusedError, match=exactly(words)):
            await workers.run("look", look(silent), seconds=60)
        assert workers.n_waiting == 0
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert workers.n_ended == {"cancelled": 1}

    with_workers(models, use)


def test_a_worker_that_dies_is_replaced(models, table, silent):
    async def use(workers):
        began = asyncio.Event()
        work = asyncio.create_task(workers.run("look", look(silent), seconds=60, on_event=lambda _: began.set()))
        await began.wait()
        os.kill(workers.pids()[0], signal.SIGSEGV)
        words = "server: the worker process ended (SIGSEGV), perhaps because memory was full; send fewer rows."
        with pytest.raises(RefusedError, match=exactly(words)) as died:
            await work
        assert died.value.status == 500
        assert (await workers.run("look", look(table), seconds=60))[0]["about"]["rows"] == 600
        assert workers.n_ended == {"died": 1}

    with_workers(models, use)


def test_clients_take_turns(models, table, silent):
    async def use(workers):
        order, began = [], asyncio.Event()

        async def ask(client, path):
            def hear(event):
                order.append(client)
                began.set()

            await workers.run("look", look(path), seconds=60, client=client, on_event=hear)

        first = asyncio.create_task(ask("crowd", silent))
        await began.wait()
        others = []
        for client in ("crowd", "crowd", "crowd", "single"):
            others.append(asyncio.create_task(ask(client, table)))
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(*others)
        assert order == ["crowd", "crowd", "single", "crowd", "crowd"]

    with_workers(models, use)


def test_workers_ignore_signals_that_a_system_sends_to_all_processes(models, table):
    async def use(workers):
        await workers.run("look", look(table), seconds=60)
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(workers.pids()[0], number)
        await workers.run("look", look(table), seconds=60)
        assert not workers.n_ended

    with_workers(models, use)


def test_memory_of_workers_is_bounded(models, table, tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # each thread needs some of it
        monkeypatch.setenv(name, "1")
    path = tmp_path / "body.json"
    path.write_bytes(b"[" + b'{"length": 1, "depth": 2},' * 8_000_000 + b"{}]")  # twice as many bytes when decoded
    asked = {"model": "pacc", "path": str(path), "limits": dataclasses.asdict(TableLimits(GB)), "wide": False}
    options = {"bag": [], "coverage": None, "interval": None, "weight": None, "missing": "refuse"}

    async def use(workers):
        words = "memory: the rows need more than a worker may use; send fewer rows, or start the server with more "
        with pytest.raises(RefusedError, match=exactly(words + "--memory.")) as full:
            await workers.run("predict", {**asked, "as_text": False, "options": options}, seconds=60)
        assert full.value.status == 422
        assert (await workers.run("look", look(table), seconds=60))[0]["about"]["rows"] == 600

    with_workers(models, use, memory=400 << 20)


def test_status_tells_whether_there_are_workers(models, silent, monkeypatch):
    async def use(workers):
        assert (workers.status, workers.n_alive) == ("ok", 0)  # they start
        began = asyncio.Event()
        work = asyncio.create_task(workers.run("look", look(silent), seconds=None, on_event=lambda _: began.set()))
        await began.wait()
        assert (workers.status, workers.n_alive) == ("ok", 1)
        monkeypatch.setattr(workers_of_web, "_LONG", 0.0)
        assert workers.status == "busy"
        work.cancel()
        await asyncio.wait([work])
        assert workers.n_alive == 0
        monkeypatch.setattr(workers_of_web, "_STARTING", -1.0)
        assert workers.status == "degraded"
        with pytest.raises(RefusedError, match=exactly("server: no worker process can be started; see its log.")):
            await workers.run("look", look(silent), seconds=60)

    with_workers(models, use)


def test_a_worker_that_cannot_start_is_told_in_the_log(models, monkeypatch, caplog):
    monkeypatch.setattr(workers_of_web.sys, "executable", "/bin/false")

    async def use(workers):
        while not caplog.records:
            await asyncio.sleep(0.01)

    with_workers(models, use)
    assert caplog.messages[0] == "A worker process could not be started (code 1)."


def predict(served, model):
    content = fish().drop(columns="species").to_csv(index=False).encode()
    address = f"{served.address}/v1/models/{model}/predict?bag=tow"
    return httpx.post(address, content=content, headers={"Content-Type": CSV}, timeout=120)


@pytest.mark.hard
def test_endless_work_ends_and_the_server_goes_on(models, unbounded):
    with serving(models, "--workers", "1", "--timeout", "5") as served:
        answer = predict(served, "endless")
        assert answer.status_code == 503
        assert answer.json() == {"error": "server: it took more than 5 seconds; send fewer rows."}
        assert until(lambda: predict(served, "pacc").status_code, lambda status: status == 200)
        told = served.client.get("/healthz").json()
        assert (told["status"], told["workers"], told["job_workers"], told["waiting"]) == ("ok", 1, 1, 0)
        text = served.client.get("/metrics").text
        assert 'histnetq_workers{of="predict"} 1' in text
        assert 'histnetq_workers_ended_total{of="predict",reason="late"}' in text
        memory = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("histnetq_memory_bytes"))
        names = ["server", "predict 0", "jobs 0"]
        assert list(memory) == [f'histnetq_memory_bytes{{process="{name}"}}' for name in names]
        assert min(map(float, memory.values())) > 1e7


@pytest.mark.hard
def test_an_endless_job_is_cancelled_and_the_next_is_done(models, unbounded):
    with serving(models, "--workers", "1") as served:
        table = served.upload(fish().to_csv(index=False).encode())
        job = served.start(kind="estimate", table=table, model="endless", bag=["tow"])
        served.wait(job, "running")
        assert served.client.delete(f"/v1/jobs/{job['id']}").json()["state"] == "cancelled"
        job = served.wait(served.start(kind="estimate", table=table, model="pacc", bag=["tow"]))
        assert job["state"] == "done", job


@pytest.mark.hard
def test_a_server_with_endless_work_ends_within_seconds(models, unbounded):
    served = Served(models, "--workers", "1")
    assert predict(served, "pacc").status_code == 200
    answers = []
    thread = threading.Thread(target=lambda: answers.append(predict(served, "endless")))
    thread.start()
    until(lambda: served.client.get("/metrics").text, lambda text: 'histnetq_busy{of="predict"} 1' in text)
    began = time.monotonic()
    said = served.end()
    assert time.monotonic() - began < 20
    thread.join()
    assert answers[0].status_code == 503
    assert answers[0].json() == {"error": "server: it is being ended; try again later."}
    assert said == "Ended.\n"
    assert not list(served.folder.glob("histnetq-serve-*"))


def test_workers_end_with_a_server_that_is_killed(models, unbounded):
    served = Served(models, "--workers", "1")
    predict(served, "pacc")
    with open(f"/proc/{served.process.pid}/task/{served.process.pid}/children") as file:
        workers = [int(pid) for pid in file.read().split()]
    assert len(workers) == 2
    with pytest.raises(httpx.TimeoutException):  # one of them is busy
        httpx.post(
            f"{served.address}/v1/models/endless/predict?bag=tow",
            content=fish().to_csv(index=False).encode(),
            headers={"Content-Type": CSV},
            timeout=1,
        )
    served.kill()
    until(lambda: [pid for pid in workers if os.path.exists(f"/proc/{pid}/exe")], lambda found: not found)
