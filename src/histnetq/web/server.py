"""`serve`: run the service until it is told to end, which finishes what runs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from histnetq.web.app import Settings, make_app

_HEADER_SECONDS = 15.0  # for the head of a request
_LINGER = 5.0  # seconds for which the rest of a refused body is thrown away
_MOST_CONNECTIONS = 500
_LARGEST_HEAD = 32 << 10  # bytes
_GRACE = 150  # seconds for requests that run when the server is to end


class Protocol(H11Protocol):
    """HTTP that does not wait forever: neither for the head of a request, nor for a body that was refused."""

    _clock: asyncio.TimerHandle | None = None

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

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        return self.conn.their_state is h11.IDLE

    def _wait_for_head(self) -> None:
        self._clock = self.loop.call_later(_HEADER_SECONDS, self._close_if_idle)

    def _stop_waiting(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _close_if_idle(self) -> None:
        self._clock = None
        if self._is_idle() and not self.transport.is_closing():
            self.transport.close()

    def _close_unless_read(self, cycle: Any) -> None:
        if self.cycle is cycle and self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self.transport.close()


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
    config = uvicorn.Config(
        make_app(settings), http=Protocol, ws="none", lifespan="on", log_level="warning", access_log=False,
        server_header=False, proxy_headers=False, timeout_keep_alive=15, timeout_graceful_shutdown=_GRACE,
        h11_max_incomplete_event_size=_LARGEST_HEAD,
    )  # fmt: skip
    with contextlib.suppress(KeyboardInterrupt):  # which uvicorn raises again after it has ended as it should
        _Server(config, ready).run(sockets)
