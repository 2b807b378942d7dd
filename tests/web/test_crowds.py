"""Many requests or connections of one client leave room for others, and names and files that deceive are refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import pytest
from click.testing import CliRunner

from histnetq.cli import main
from histnetq.web import server as protocol
from histnetq.web import uploads as spool_of_web
from histnetq.web.errors import RefusedError
from histnetq.web.limits import TableLimits
from histnetq.web.metrics import Metrics
from histnetq.web.model_store import Shelf
from histnetq.web.places import Places
from histnetq.web.security import FULL, Door, Guard
from histnetq.web.uploads import Body
from tests.conftest import exactly
from tests.serving import until
from tests.web.test_attacks import Answering, talk

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_one_client_gets_half_of_the_places():
    places = Places(2, 4)
    release = [places.claim("crowd") for _ in range(3)]
    words = "server: 3 requests from your address are being worked on, which is the most for one; try again in 1 s."
    with pytest.raises(RefusedError, match=exactly(words)) as refused:
        places.claim("crowd")
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
    release += [places.claim("single") for _ in range(3)]
    words = "server: 6 requests are being worked on, which is the most; try again in 1 s."
    with pytest.raises(RefusedError, match=exactly(words)):
        places.claim("third")
    for give_back in release:
        give_back()
    assert places.n_taken == 0


def test_one_client_may_use_all_workers():
    places = Places(4, 0)
    for _ in range(4):
        places.claim("only")
    assert places.n_taken == 4


def test_requests_that_have_a_place_are_refused_at_the_end():
    places = Places(1, 1)

    async def work():
        with places.take("client"):
            asyncio.get_running_loop().call_soon(places.end)
            await asyncio.sleep(60)

    with pytest.raises(RefusedError, match=exactly("server: it is being ended; try again later.")) as ended:
        asyncio.run(work())
    assert ended.value.status == 503
    assert places.n_taken == 0


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", b"10.9.9.9", "10.0.0.1"),  # no proxy that is known
        ("127.0.0.1", b"10.9.9.9", "10.9.9.9"),
        ("127.0.0.1", b"1.1.1.1, 10.9.9.9", "10.9.9.9"),  # the first is what the client claims
        ("127.0.0.1", None, "127.0.0.1"),
        ("2001:db8::1:0:0:0:7", None, "2001:db8:0:1::"),
    ],
)
def test_clients_are_told_apart_by_their_addresses(peer, forwarded, client):
    headers = [(b"host", b"localhost")] + ([] if forwarded is None else [(b"x-forwarded-for", forwarded)])
    door = Door(proxies=("127.0.0.1",))
    assert door.client({"client": (peer, 1), "headers": headers}) == client


def test_a_proxy_is_named_by_its_address(tmp_path):
    refused = CliRunner().invoke(main, ["serve", str(tmp_path), "--proxy", "nginx", "--port", "0"])
    assert refused.exit_code == 2
    assert "--proxy: expected an IP address, such as 127.0.0.1, got 'nginx'; give one." in refused.output


def test_bodies_that_become_slow_are_refused(tmp_path, monkeypatch):
    async def parts():
        yield b"x" * (4 << 20)
        for _ in range(500):
            await asyncio.sleep(0.01)
            yield b"x" * 100

    monkeypatch.setattr(spool_of_web, "_IDLE", 0.2)
    body = Body(tmp_path / "body", counts=False)
    with contextlib.closing(body), pytest.raises(RefusedError, match="less than 65,536 bytes per second") as refused:
        asyncio.run(body.receive(parts(), TableLimits(1 << 30)))
    assert refused.value.status == 408


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def n_open(server):
    return len(server.server.server_state.connections)


def test_idle_connections_give_way_to_requests(monkeypatch):
    monkeypatch.setattr(protocol, "_MOST_CONNECTIONS", 5)
    server = Answering()
    try:
        with contextlib.ExitStack() as lines:
            idle = [lines.enter_context(connect(server)) for _ in range(5)]
            until(lambda: n_open(server), lambda n: n == 5)
            line = lines.enter_context(connect(server))
            line.sendall(HEAD)
            assert line.recv(65536).startswith(b"HTTP/1.1 413")
            assert idle[0].recv(65536) == b""  # the one that had waited for longest
    finally:
        server.end()


@pytest.mark.parametrize("is_proxy", [False, True])
def test_connections_in_use_leave_room_for_checks_of_health(monkeypatch, is_proxy):
    """The oldest of one client alone is closed; those of a proxy are of many clients."""
    monkeypatch.setattr(protocol, "_MOST_CONNECTIONS", 5)
    monkeypatch.setattr(protocol, "_FOR_HEALTH", 1)
    monkeypatch.setattr(protocol.HttpProtocol, "proxies", ("127.0.0.1",) if is_proxy else ())
    states = []

    async def app(scope, receive, send):
        states.append(FULL in scope["state"])
        if len(states) <= 5:
            await receive()
            await receive()  # the end of the connection
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    server = Answering(app)
    try:
        with contextlib.ExitStack() as lines:
            used = [lines.enter_context(connect(server)) for _ in range(5)]
            for line in used:
                line.sendall(HEAD)
            until(lambda: len(states), lambda n: n == 5)
            line = lines.enter_context(connect(server))
            line.sendall(HEAD)
            assert line.recv(65536).startswith(b"HTTP/1.1 200")
            assert states == [False] * 5 + [is_proxy]
            for one in used:
                one.setblocking(False)
            closed = []
            for one in used:
                try:
                    closed.append(one.recv(1) == b"")
                except BlockingIOError:
                    closed.append(False)
                except ConnectionError:
                    closed.append(True)
            assert closed == [not is_proxy, False, False, False, False]
    finally:
        server.end()


def answered(path, headers=(), state=()):
    """What the guard answers itself, or None."""
    sent = []

    async def ask():
        async def app(scope, receive, send):
            pass

        async def send(message):
            sent.append(message)

        guard = Guard(app, Door(), Metrics(), lambda: None)
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"host", b"localhost"), *headers],
            "state": dict.fromkeys(state, True),
        }
        await guard(scope, None, send)

    asyncio.run(ask())
    return (sent[0]["status"], sent[1]["body"]) if sent else None


def test_further_connections_are_for_checks_of_health_alone():
    expected = b'{"error":"server: all connections are in use; try again in 1 s."}'
    assert answered("/v1/models", state=[FULL]) == (503, expected)
    assert answered("/healthz", state=[FULL]) is None
    assert answered("/v1/models") is None


def test_long_heads_are_refused_however_they_come():
    expected = b'{"error":"head: expected at most 32,768 bytes, got 40,030; send fewer or shorter headers."}'
    assert answered("/healthz", [(b"x", b"a" * 40_000)]) == (431, expected)
    assert answered("/healthz", [(b"x", b"a" * 30_000)]) is None
    server = Answering()
    try:
        answer = talk(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 400_000, seconds=5)
        assert not answer or answer.split()[1] in (b"400", b"431")
    finally:
        server.end()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_token_that_others_can_read_is_refused(tmp_path, mode):
    file = tmp_path / "token"
    file.write_text("0123456789abcdef0123\n")
    file.chmod(mode)
    refused = CliRunner().invoke(main, ["serve", str(tmp_path), "--token-file", str(file), "--port", "0"])
    assert refused.exit_code == 2
    words = f"--token-file: expected a file that only its owner can read, got mode {mode:o} of {file}; run chmod 600 "
    assert f"{words}{file}." in " ".join(refused.output.split())


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("\ufb01sh", 422, "name: expected at most 64 letters, digits"),  # a ligature
        ("\uff46ish", 422, "name: expected at most 64 letters, digits"),  # a wide letter
        ("Fish", 409, "name: Fish looks like fish, which exists already; choose another."),
        ("fish", 409, "name: fish exists already; choose another."),
        ("STRASSE", 409, "name: STRASSE looks like stra\u00dfe, which exists already; choose another."),
    ],
)
def test_names_of_new_models_that_look_like_others_are_refused(tmp_path, name, status, words):
    for other in ("fish", "stra\u00dfe"):
        os.mkdir(tmp_path / other)
    with pytest.raises(RefusedError) as refused:
        Shelf(tmp_path).refuse_name(name)
    assert refused.value.status == status
    assert refused.value.sentence.startswith(words)
    Shelf(tmp_path).refuse_name("eel")
