"""`serve`: run the service until it is told to end, which finishes what runs."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from histnetq.web.app import Settings, make_app

_HEADER_SECONDS = 15.0  # for the head of a request
_WRITE_SECONDS = 60.0  # for a client to take some of an answer
_LINGER = 5.0  # seconds for which the rest of a refused body is thrown away
_MOST_CONNECTIONS = 500
_LARGEST_HEAD = 32 << 10  # bytes
_MEMORY = {  # by the numbers that malloc.h has for the settings
    -8: 1,  # M_ARENA_MAX: all threads share what is free
    -3: 32 << 20,  # M_MMAP_THRESHOLD: larger arrays go back to the system at once
    -1: 64 << 20,  # M_TRIM_THRESHOLD: so much stays, where it is the last part that is free
}
_GRACE = 150  # seconds for requests that run when the server is to end


class Protocol(H11Protocol):
    """HTTP that does not wait forever for the head of a request, for a refused body, or for an answer to be taken."""

    _clock: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > _MOST_CONNECTIONS:
            transport.close()
            return
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        super().data_received(data)
        if self._is_idle():
            if self._clock is None:
                self._wait_for_head()
        else:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Go on to the next request, or throw away what still comes of a body that nobody read."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self.flow.resume_reading()
            self.loop.call_later(_LINGER, self._close_unless_read, self.cycle)

    def pause_writing(self) -> None:
        """Wait until what was answered is taken, but not forever."""
        super().pause_writing()
        self._taking = self.loop.call_later(_WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on to answer."""
        super().resume_writing()
        self._stop_taking()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; where an answer has begun, none can be given any more."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        self._stop_waiting()
        self._stop_taking()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        return self.conn.their_state is h11.IDLE

    def _wait_for_head(self) -> None:
        self._clock = self.loop.call_later(_HEADER_SECONDS, self._close_if_idle)

    def _stop_waiting(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _close_if_idle(self) -> None:
        self._clock = None
        if self._is_idle() and not self.transport.is_closing():
            self.transport.close()

    def _close_unless_read(self, cycle: Any) -> None:
        if self.cycle is cycle and self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self.transport.close()


def keep_memory() -> None:
    """Let this process use memory again that it has freed, in place of giving it back and having it cleared anew.

    The C library gives each thread memory of its own, and large arrays memory that goes back at once: one request
    costs thousands of page faults by that. This is for the whole process, before it has threads.
    """
    with contextlib.suppress(AttributeError, OSError):  # other C libraries have no such settings
        for setting, value in _MEMORY.items():
            ctypes.CDLL(None).mallopt(setting, value)


class _Server(uvicorn.Server):
    """A server that calls a function when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        if self.started:
            self._ready()


def serve(settings: Settings, sockets: list[socket.socket], ready: Callable[[], None] = lambda: None) -> None:
    """Answer requests until a signal comes.

    Parameters
    ----------
    settings : Settings
        How the service runs.
    sockets : list of sockets
        Where it listens; they are bound already.
    ready : callable, optional
        Called once requests are answered.
    """
    keep_memory()
    config = uvicorn.Config(
        make_app(settings), http=Protocol, ws="none", lifespan="on", log_level="warning", log_config=None,
        access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=15,
        timeout_graceful_shutdown=_GRACE, h11_max_incomplete_event_size=_LARGEST_HEAD,
    )  # fmt: skip
    with contextlib.suppress(KeyboardInterrupt):  # which uvicorn raises again after it has ended as it should
        _Server(config, ready).run(sockets)
