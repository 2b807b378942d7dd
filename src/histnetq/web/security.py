"""Security checks before every request: host, origin, token and size; responses get protective headers."""

from __future__ import annotations

import hmac
import ipaddress
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import anyio
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from histnetq.web.metrics import Metrics

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
_SAFE = ("GET", "HEAD", "OPTIONS")
_METHODS = (*_SAFE, "POST", "DELETE", "PUT", "PATCH")
_PROTECTED = ("/v1", "/metrics")
_TABLES = re.compile(r"/v1/(tables|models/[^/]+/predict)")  # routes whose bodies are written to files
_LARGEST_BODY, _BODY_SECONDS = 1 << 20, 30.0  # of all other routes
LARGEST_HEAD = 32 << 10  # bytes of the first line and the headers
FULL = "full"  # entry in the state of a connection that may only ask for the health of the server
_HEALTH = "/healthz"
_REFUSAL_HEADERS = {
    400: {"Connection": "close"}, 401: {"WWW-Authenticate": "Bearer"}, 431: {"Connection": "close"},
    503: {"Connection": "close", "Retry-After": "1"},
}  # fmt: skip
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]


@dataclass(frozen=True)
class Door:
    """Rules that decide whether a request is accepted.

    Attributes
    ----------
    hosts : tuple of str
        Names that are accepted in the header Host, in addition to localhost.
    any_address : bool
        Whether the header Host may be any numeric address; by default only loopback addresses. This is safe against
        DNS rebinding: a foreign site can let its name point here, but then the header contains the name.
    token : bytes or None
        The token that requests must send.
    proxies : tuple of str
        Addresses of proxies whose header X-Forwarded-For is trusted.
    """

    hosts: tuple[str, ...] = ()
    any_address: bool = False
    token: bytes | None = None
    proxies: tuple[str, ...] = ()

    def refusal(self, method: str, path: str, headers: list[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        """Return the status and message that refuse a request, or None to accept it."""
        host = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(host) != 1 or not self._knows(host[0]):
            return 421, "Host: expected a name that this server knows; start it with --allow-host for another."
        first = {name: value.decode("latin-1") for name, value in reversed(headers)}
        if method not in _SAFE:
            origin, site = first.get(b"origin"), first.get(b"sec-fetch-site", "none")
            own = (f"http://{host[0]}".lower(), f"https://{host[0]}".lower())
            foreign = origin is not None and origin.lower() not in own
            if foreign or site not in ("same-origin", "none"):
                return 403, "Origin: this came from a page of another site; use the server's own page."
        if self.token is not None and path.startswith(_PROTECTED):
            given = [value for name, value in headers if name == b"authorization"]
            kind, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
            if kind.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self.token):
                return 401, "Authorization: expected the token of this server, as Bearer; send it."
        return None

    def client(self, scope: Scope) -> str:
        """Return the client of a request: the address of the connection, or the address that a known proxy reports.

        If the proxy reports several addresses, only the last was added by the proxy; the client can forge the rest.
        """
        peer = scope["client"][0] if scope.get("client") else ""
        if peer in self.proxies:
            reported = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
            peer = reported[-1].decode("latin-1").rpartition(",")[2].strip() if reported else peer
        return network_of(peer)

    def _knows(self, host: str) -> bool:
        name = _host_name(host)
        if name == "localhost" or name in self.hosts:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.any_address or address.is_loopback


def network_of(address: str) -> str:
    """Return the key of a client: an IPv4 address, or the /64 network of an IPv6 address.

    Examples
    --------
    >>> network_of("10.0.0.7"), network_of("::ffff:10.0.0.7"), network_of("2001:db8:1:2:3::4")
    ('10.0.0.7', '10.0.0.7', '2001:db8:1:2::')
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_address(int(found) >> 64 << 64))


def _host_name(host: str) -> str:
    """Return the name in a header Host without its port, or "" if the header is invalid.

    Examples
    --------
    >>> _host_name("LocalHost:8765"), _host_name("[::1]:80"), _host_name("a:b:c")
    ('localhost', '::1', '')
    """
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        port = port.removeprefix(":")
    else:
        name, _, port = host.partition(":")
    return name.lower() if not port or (port.isascii() and port.isdigit()) else ""


class Guard:
    """ASGI middleware that checks requests with `door` and counts them in `metrics`; `end` refuses running requests."""

    def __init__(self, app: App, door: Door, metrics: Metrics, end: Callable[[], None]) -> None:
        self.app, self.door, self.metrics, self.end = app, door, metrics, end

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def protect(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], *_HEADERS]
                if not scope["path"].startswith("/assets/"):
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        try:
            refused = _overload(scope) or self.door.refusal(scope["method"], scope["path"], scope["headers"])
            if refused is None:
                bounded = receive if _TABLES.fullmatch(scope["path"]) else _bounded(receive)
                await self.app(scope, bounded, protect)
            else:
                answer = JSONResponse({"error": refused[1]}, refused[0], _REFUSAL_HEADERS.get(refused[0]))
                await answer(scope, receive, protect)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self.metrics.note_request(method, path, status, time.perf_counter() - began)


def _overload(scope: Scope) -> tuple[int, str] | None:
    """Return the status and message for an invalid head or for too many connections, or None."""
    n_bytes = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    n_bytes += len(scope["raw_path"]) + len(scope["query_string"])
    if n_bytes > LARGEST_HEAD:
        return 431, f"head: expected at most {LARGEST_HEAD:,} bytes, got {n_bytes:,}; send fewer or shorter headers."
    # Request smuggling: a proxy may use Content-Length where h11 uses Transfer-Encoding, and see a second request.
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
        return 400, "head: expected either Content-Length or Transfer-Encoding, got both; send one of them."
    if FULL in scope.get("state", ()) and scope["path"] != _HEALTH:
        return 503, "server: all connections are in use; try again in 1 s."
    return None


def _bounded(receive: Any) -> Any:
    """Limit the size of a body and the time to receive it."""
    n_bytes, until = 0, anyio.current_time() + _BODY_SECONDS

    async def receive_part() -> Any:
        nonlocal n_bytes, until
        try:
            with anyio.fail_after(until - anyio.current_time()):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"expected all of the body within {_BODY_SECONDS:.0f} seconds") from None
        n_bytes += len(message.get("body", b""))
        if n_bytes > _LARGEST_BODY:
            raise HTTPException(413, f"expected a body of at most {_LARGEST_BODY:,} bytes")
        if not message.get("more_body", False):
            until = float("inf")  # only the end of the connection follows
        return message

    return receive_part
