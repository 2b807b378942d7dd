"""`serve`: run the service until a signal ends it; running requests are finished first."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from prometheus_client import disable_created_metrics
from uvicorn.protocols.http.h11_impl import H11Protocol

from histnetq.web.app import Settings, make_app
from histnetq.web.children import keep_memory
from histnetq.web.security import FULL, LARGEST_HEAD, Guard, network_of

_HEADER_SECONDS = 15.0  # time limit for the head of a request
_WRITE_SECONDS = 60.0  # time limit for a client to read a part of a response
_MOST_WAITING = 64 << 20  # bytes of responses that wait for clients; their buffers take up to twice as much
_LINGER = 5.0  # seconds during which the rest of a refused body is discarded
_MOST_CONNECTIONS = 500
_FOR_HEALTH = 16  # further connections, which may only ask for the health of the server
_GRACE = 8.0  # seconds that running requests have when the server ends
_LAST = 2  # further seconds to refuse the remaining requests


class HttpProtocol(H11Protocol):
    """HTTP with time limits for the head of a request, for a refused body, and for reading a response."""

    proxies: tuple[str, ...] = ()  # addresses of proxies, whose connections belong to many clients
    _clock: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Accept a connection, unless there are too many."""
        super().connection_made(transport)
        self._heard = self.loop.time()
        others = [line for line in self.connections if line is not self and not line.transport.is_closing()]
        if len(others) >= _MOST_CONNECTIONS and not self._make_room(others):
            if len(others) >= _MOST_CONNECTIONS + _FOR_HEALTH:
                transport.close()
                return
            self.app_state = {**self.app_state, FULL: True}
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""
        self._heard = self.loop.time()
        super().data_received(data)
        if self._is_idle():
            if self._clock is None:
                self._wait_for_head()
        else:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Go on to the next request, or discard the rest of a body that nobody read."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self.flow.resume_reading()
            self.loop.call_later(_LINGER, self._close_unless_read, self.cycle)

    def pause_writing(self) -> None:
        """Wait for the client to read the response, within a time limit."""
        super().pause_writing()
        self._taking = self.loop.call_later(_WRITE_SECONDS, self.transport.abort)
        self._bound_waiting()

    def resume_writing(self) -> None:
        """Continue with the response."""
        super().resume_writing()
        self._stop_taking()

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP or a head that is too long; if a response has begun, only close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            error = sys.exc_info()[1]
            status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
            head = h11.Response(status_code=status, headers=headers)
            for event in (head, h11.Data(data=msg.encode("ascii")), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        self._stop_waiting()
        self._stop_taking()
        super().connection_lost(exc)

    def _make_room(self, others: list[Any]) -> bool:
        """Close the idle connection that was silent for longest, of the client with the most connections.

        If none is idle, close a used connection, but only of a client that has half of all connections and is not a
        proxy. Return whether a connection was closed.
        """
        counts = Counter(map(_client, others))
        crowd = [line for line in others if line._is_idle()]
        if not crowd:
            many = [line for line in others if 2 * counts[_client(line)] >= _MOST_CONNECTIONS]
            crowd = [line for line in many if line.client is None or line.client[0] not in self.proxies]
        if not crowd:
            return False
        max(crowd, key=lambda line: (counts[_client(line)], -line._heard)).transport.abort()
        return True

    def _bound_waiting(self) -> None:
        """Close connections with waiting responses while these take too much memory together.

        The first one closed has waited longest, and belongs to the client with the most waiting bytes.
        """
        every: list[Any] = [line for line in self.connections if not line.transport.is_closing()]
        lines = [line for line in every if line._taking is not None]
        lines.sort(key=lambda line: line._taking.when())
        waiting = Counter[str]()
        for line in lines:
            waiting[_client(line)] += line.transport.get_write_buffer_size()
        while waiting.total() > _MOST_WAITING and len(lines) > 1:
            slowest = max(lines, key=lambda line: waiting[_client(line)])  # the first of equal ones
            waiting[_client(slowest)] -= slowest.transport.get_write_buffer_size()
            lines.remove(slowest)
            slowest.transport.abort()

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


def _client(line: Any) -> str:
    return network_of(line.client[0]) if line.client else ""


class _Server(uvicorn.Server):
    """A server that calls `ready` when it has started, and refuses long requests when it ends."""

    def __init__(self, config: uvicorn.Config, guard: Guard, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._guard, self._ready = guard, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the server; running requests have a few seconds to finish."""
        asyncio.get_running_loop().call_later(_GRACE, self._guard.end)
        await super().shutdown(sockets)


def serve(settings: Settings, sockets: list[socket.socket], ready: Callable[[], None] = lambda: None) -> None:
    """Serve requests on bound sockets until a signal arrives; `ready` is called once the server has started."""
    keep_memory()
    disable_created_metrics()  # they would double the number of metrics, and nothing reads them
    guard = make_app(settings)

    class OurProtocol(HttpProtocol):
        proxies = settings.door.proxies

    config = uvicorn.Config(
        guard, http=OurProtocol, ws="none", lifespan="on", log_level="warning", log_config=None, access_log=False,
        server_header=False, proxy_headers=False, timeout_keep_alive=15, timeout_graceful_shutdown=int(_GRACE) + _LAST,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )  # fmt: skip
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after a regular end
        _Server(config, guard, ready).run(sockets)
