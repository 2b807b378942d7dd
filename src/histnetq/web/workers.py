"""`Workers`: worker processes that do one task at a time, and are killed and replaced if it takes too long."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from histnetq.web import frames
from histnetq.web.children import environment, send
from histnetq.web.errors import LOG, RefusedError

_STARTING = 60.0  # seconds that a worker may take to start
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds before the next attempt to start a worker
_WAITING = 120.0  # seconds that a request waits for a free worker
_LONG = 10.0  # seconds of work after which a worker counts as occupied
_END = 2.0  # seconds that an idle worker has to end
OnEvent = Callable[[frames.Message], None]


class DiedError(Exception):
    """A worker ended without an answer."""


class Workers:
    """Worker processes, which are replaced when they end.

    Parameters
    ----------
    n_workers : int
        Number of processes.
    models : Path
        The directory of the models.
    memory : int
        Bytes of memory that each process may use.

    Attributes
    ----------
    n_ended : Counter
        Number of replaced workers by reason.
    """

    def __init__(self, n_workers: int, models: Path, memory: int) -> None:
        self.n_workers, self.n_ended = n_workers, Counter[str]()
        self._about = json.dumps({"parent": os.getpid(), "models": str(models), "memory": memory})
        self._running, self._alive, self._free = set[_Worker](), set[_Worker](), deque[_Worker]()
        self._waiting: OrderedDict[str, deque[asyncio.Future[_Worker]]] = OrderedDict()
        self._useful = time.monotonic()  # when a worker was last alive
        self._tasks = [asyncio.create_task(self._keep()) for _ in range(n_workers)]

    async def run(
        self,
        task: str,
        arguments: dict[str, Any],
        *,
        seconds: float | None,
        client: str = "",
        on_event: OnEvent = lambda _: None,
    ) -> tuple[frames.Message, bytes]:
        """Run a task of `histnetq.web.tasks` in a worker, and return its answer.

        A worker that needs more than `seconds`, or whose caller is cancelled, is killed. If several requests wait for
        a free worker, their clients take turns.
        """
        worker = await self._take(client, None if seconds is None else _WAITING)
        try:
            with anyio.fail_after(seconds):
                answer, content = await worker.ask(task, arguments, on_event)
        except TimeoutError:
            self._end(worker, "late")
            raise RefusedError(
                503, f"server: it took more than {seconds:.0f} seconds; send fewer rows.", Retry_After="10"
            ) from None
        except DiedError:
            self._end(worker, "died")
            raise RefusedError(
                500,
                f"server: the worker process ended ({await worker.reason()}), perhaps because memory was full; "
                "send fewer rows.",
            ) from None
        except BaseException:
            self._end(worker, "cancelled")
            raise
        self._give(worker)
        if answer["kind"] == "refused":
            raise RefusedError(answer["status"], answer["sentence"], **answer["headers"])
        return answer, content

    @property
    def n_alive(self) -> int:
        """Number of running workers."""
        return len(self._alive)

    @property
    def n_waiting(self) -> int:
        """Number of tasks that wait for a worker."""
        return sum(not future.done() for futures in self._waiting.values() for future in futures)

    @property
    def status(self) -> str:
        """Health: "ok"; "busy" if every worker has long been on its current task; "degraded" if no worker can start."""
        now = time.monotonic()
        if not self._alive:
            return "degraded" if now - self._useful > _STARTING else "ok"
        long = [worker.since is not None and now - worker.since > _LONG for worker in self._alive]
        return "busy" if sum(long) == self.n_workers else "ok"

    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return sorted(worker.process.pid for worker in self._alive)

    async def close(self) -> None:
        """End all workers; those that have a task are killed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.close() for worker in self._running))

    async def _take(self, client: str, seconds: float | None) -> _Worker:
        """Wait for a free worker."""
        if self.status == "degraded":
            raise RefusedError(503, "server: no worker process can be started; see its log.", Retry_After="30")
        while self._free:
            worker = self._free.popleft()
            if worker in self._alive:
                return worker
        future: asyncio.Future[_Worker] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(future)
        try:
            with anyio.fail_after(seconds):
                return await future
        except BaseException as error:
            if not future.cancelled() and future.done():  # a worker became free at the same moment
                self._give(future.result())
            future.cancel()
            if not isinstance(error, TimeoutError):
                raise
            raise RefusedError(
                503, f"server: no worker was free for {seconds:.0f} seconds; try again later.", Retry_After="10"
            ) from None

    def _give(self, worker: _Worker) -> None:
        """Give a free worker to a waiting request; clients take turns."""
        worker.since = None
        if worker not in self._alive:
            return
        while self._waiting:
            client, futures = self._waiting.popitem(last=False)
            future = futures.popleft()
            if futures:
                self._waiting[client] = futures
            if not future.done():
                future.set_result(worker)
                return
        self._free.append(worker)

    def _end(self, worker: _Worker, reason: str) -> None:
        """Kill a worker; `_keep` starts another."""
        if worker in self._alive:
            self._alive.discard(worker)
            self.n_ended[reason] += 1
            self._useful = time.monotonic()
        send(worker.process, signal.SIGKILL)

    async def _keep(self) -> None:
        """Start a worker, and a new one each time it ends."""
        while True:
            worker = await self._start()
            self._running.add(worker)
            self._alive.add(worker)
            self._give(worker)
            await worker.process.wait()
            self._end(worker, "died")
            self._running.discard(worker)

    async def _start(self) -> _Worker:
        """Start a worker; repeat until it succeeds."""
        pause = _PAUSE
        while True:
            try:
                return await _Worker.start(self._about)
            except (OSError, DiedError, TimeoutError) as error:
                LOG.error("A worker process could not be started (%s).", str(error) or type(error).__name__)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


class _Worker:
    """One process, seen from the server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.since: float | None = None  # start of the current task

    @classmethod
    async def start(cls, about: str) -> _Worker:
        """Start a process, and wait until it is ready."""
        pipe, words = asyncio.subprocess.PIPE, (sys.executable, "-m", "histnetq.web.worker", about)
        process = await asyncio.create_subprocess_exec(
            *words, env=environment(), stdin=pipe, stdout=pipe, start_new_session=True
        )
        worker = cls(process)
        try:
            with anyio.fail_after(_STARTING):
                await worker._receive()
        except DiedError:
            raise DiedError(await worker.reason()) from None
        except BaseException:
            send(worker.process, signal.SIGKILL)
            await worker.process.wait()
            raise
        return worker

    async def ask(self, task: str, arguments: dict[str, Any], on_event: OnEvent) -> tuple[frames.Message, bytes]:
        """Send a task and wait for its answer; `on_event` gets the events before the answer."""
        assert self.process.stdin is not None
        self.since = time.monotonic()
        on_event({"kind": "began"})
        try:
            self.process.stdin.write(frames.pack({"task": task, "arguments": arguments}))
            await self.process.stdin.drain()
        except ConnectionError:
            raise DiedError from None
        while True:
            message, content = await self._receive()
            if message["kind"] in ("done", "refused"):
                return message, content
            on_event(message)

    async def reason(self) -> str:
        """Return how the process ended."""
        code = await self.process.wait()
        return signal.Signals(-code).name if code < 0 else f"code {code}"

    async def close(self) -> None:
        """Let an idle process end by itself; kill any other."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.since is None:
            with anyio.move_on_after(_END):
                await self.process.wait()
        send(self.process, signal.SIGKILL)
        await self.process.wait()

    async def _receive(self) -> tuple[frames.Message, bytes]:
        assert self.process.stdout is not None
        try:
            return await frames.receive(self.process.stdout)
        except (EOFError, ConnectionError):
            raise DiedError from None
