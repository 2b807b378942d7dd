"""Preparation of a server: its token, directory of models, address and port."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from histnetq.errors import InputError, Option
from histnetq.web.security import Door

_SHORTEST_TOKEN = 16  # characters


def read_token(path: Path) -> bytes:
    """Read a token, and refuse a token that other users can read or guess."""
    try:
        mode = path.stat().st_mode
        token = path.read_bytes().strip()
    except OSError as error:
        raise ValueError(f"token_file: {path} cannot be read ({error.strerror}); write a token to it.") from None
    if mode & 0o077:
        raise ValueError(
            f"token_file: expected a file that only its owner can read, got mode {mode & 0o777:o} of {path}; run chmod "
            f"600 {path}."
        )
    if len(token) < _SHORTEST_TOKEN or len(token) > 1000 or not token.isascii() or b" " in token or b"\n" in token:
        raise ValueError(
            f"token_file: expected one word of {_SHORTEST_TOKEN} to 1000 letters, digits and signs in {path}; make "
            "one, for example with openssl rand -hex 32."
        )
    return token


def find_place(models: Path | None) -> Path:
    """Return the directory of models; None creates one in the user's data directory."""
    if models is not None:
        if not models.is_dir():
            raise ValueError(
                f"models: {models} is not a directory; name a directory of models, or create an empty one."
            )
        return models
    place = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "histnetq" / "models"
    place.mkdir(parents=True, exist_ok=True)
    return place


def make_door(host: str, allowed: Sequence[str], token: bytes | None, proxies: Sequence[str]) -> Door:
    """Return the rules of who may enter: the host and allowed names, the token, and addresses of proxies."""
    if not is_loopback(host) and token is None:
        problem = (f"{host} can be reached from other machines, expected ", Option("token_file"), " with it")
        remedy = "write a token to a file, for example with openssl rand -hex 32"
        raise InputError("host", problem=problem, remedy=remedy)
    for name in proxies:
        if address_of(name) is None:
            raise ValueError(f"proxy: expected an IP address, such as 127.0.0.1, got {name!r}; give one.")
    names = tuple(name.lower() for name in (*allowed, *([host] if address_of(host) is None else [])))
    return Door(names, not is_loopback(host), token, tuple(str(address_of(name)) for name in proxies))


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return a numeric address, None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    address = address_of(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def listen(host: str, port: int) -> socket.socket:
    """Listen at a port; 0 takes a free port."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(found[0][4][:2], family=found[0][0], backlog=256)
    except OSError as error:
        raise ValueError(f"port: cannot listen at {host}:{port} ({error.strerror or error}); choose another.") from None
