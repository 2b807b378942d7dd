"""A bounded number of threads with a bounded queue: what does not fit in is refused at once."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.util
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from histnetq.web.refusals import RefusedError, StoppedError

T = TypeVar("T")
GRACE = 5.0  # seconds for work that is told to stop
_LOOKS = 50  # milliseconds for an error that was sent to arrive


class Workers:
    """Threads that predict.

    Parameters
    ----------
    n_threads : int
        Their number.
    n_waiting : int
        How many pieces of work may wait for them.
    name : str
        What the threads are called.
    """

    def __init__(self, n_threads: int, n_waiting: int, name: str) -> None:
        self.n_threads, self.most, self.n_busy = n_threads, n_threads + n_waiting, 0
        self._pool = ThreadPoolExecutor(n_threads, name, *_at_start())
        self._seconds = 0.1  # that a piece of work takes, about

    def require_room(self) -> None:
        """Refuse more work than may wait."""
        if self.n_busy >= self.most:
            after = max(1, math.ceil(self._seconds * self.n_busy / self.n_threads))
            raise RefusedError(
                429, f"server: {self.n_busy} requests are being worked on, which is the most; try again in {after} s.",
                Retry_After=str(after),
            )  # fmt: skip

    def submit(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Let a thread work as soon as one is free; called in the thread of the event loop."""
        self.require_room()
        self.n_busy += 1
        loop = asyncio.get_running_loop()
        future = self._pool.submit(self._timed, work, arguments)
        future.add_done_callback(lambda _: self._note_end(loop))
        return future

    async def run(self, work: Callable[[Stop], T], seconds: float) -> T:
        """Wait for a piece of work, for so many seconds at most; it is told to stop after these, then interrupted."""
        stop = Stop()

        def stoppable() -> T:
            with stop.working():
                return work(stop)

        future = asyncio.wrap_future(self.submit(stoppable))
        done, _ = await asyncio.wait([future], timeout=seconds)
        if not done:
            stop.set()
            asyncio.get_running_loop().call_later(GRACE, stop.interrupt)
            future.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody waits for it any more
            raise RefusedError(
                503, f"server: it took more than {seconds:.0f} seconds; send fewer rows.", Retry_After="10"
            )
        return future.result()

    def close(self) -> None:
        """Finish what runs, and leave the rest."""
        self._pool.shutdown(cancel_futures=True)

    def _timed(self, work: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        began = time.monotonic()
        try:
            return work(*arguments)
        finally:
            self._seconds += 0.1 * (time.monotonic() - began - self._seconds)

    def _note_end(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._free)

    def _free(self) -> None:
        self.n_busy -= 1


def _at_start() -> tuple[Any, ...]:
    """What each thread does first: it keeps its own number of torch's threads, not what another has just set."""
    if importlib.util.find_spec("torch") is None:
        return ()
    torch = importlib.import_module("torch")
    return torch.set_num_threads, (torch.get_num_threads(),)


class Stop:
    """A sign for work to end early, looked at between batches of rows."""

    def __init__(self) -> None:
        self._event, self._lock = threading.Event(), threading.Lock()
        self._thread: int | None = None
        self._sent = False

    def set(self) -> None:
        """Tell the work to end."""
        self._event.set()

    def check(self) -> None:
        """End the work if it is told to."""
        if self._event.is_set():
            raise StoppedError

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Let what this thread does be interrupted."""
        with self._lock:
            self._thread = threading.get_ident()
        arrived = False
        try:
            yield
        except InterruptedWorkError:
            arrived = True
            raise
        finally:
            with self._lock:
                self._thread = None
            if self._sent and not arrived:
                _await_error()

    def interrupt(self) -> None:
        """End work that does not look at the sign, at its next step in Python; a compiled step is not cut short."""
        with self._lock:
            if self._thread is not None:
                self._sent = True
                error = ctypes.py_object(InterruptedWorkError)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), error)


class InterruptedWorkError(StoppedError):
    """Work that did not look at the sign, and was interrupted."""


def _await_error() -> None:
    """Let an error arrive that was sent at the last moment, so that it does not end other work of this thread.

    To take it back would leave the interpreter looking for it, in all threads and for good, and threads with a tracer
    then stand still. Where the work itself has caught it, none arrives.
    """
    with contextlib.suppress(InterruptedWorkError):
        for _ in range(_LOOKS):
            time.sleep(0.001)
