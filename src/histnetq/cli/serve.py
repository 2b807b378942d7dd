"""The command that serves models as a web page and as an HTTP service: serve."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from pathlib import Path
from typing import Any

import click

from histnetq.cli.group import main
from histnetq.cli.options import PATH, option
from histnetq.cli.terminal import VisibleFormatter, echo

_SHORTEST_TOKEN = 16  # characters


@main.command()
@click.argument("models", type=PATH, required=False)
@option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on; an address that other machines can reach needs --token-file.",
)
@option("--port", type=click.IntRange(0, 65535), default=8765, help="Port to listen on; 0 takes a free port.")
@option("--token-file", type=PATH, help="File with the token that requests must send.  [default: no token]")
@option(
    "--allow-host",
    multiple=True,
    help="Name of this server that clients may use in addresses, such as the name of a proxy; repeat it for several "
    "names.  [default: localhost, the name in --host, and IP addresses]",
)
@option(
    "--proxy",
    multiple=True,
    help="IP address of a proxy in front of this server, such as 127.0.0.1; its header X-Forwarded-For then names the "
    "client. Repeat it for several proxies.  [default: none]",
)
@option(
    "--workers",
    "--threads",
    type=click.IntRange(1, 64),
    default=2,
    help="Number of processes that answer requests. In addition, half as many processes (at least one) run jobs, which "
    "estimate uploaded tables. --threads is an older name of this option.",
)
@option(
    "--waiting",
    type=click.IntRange(0, 10_000),
    default=64,
    help="Number of requests that may wait. Further requests get HTTP 429.",
)
@option("--timeout", type=click.FloatRange(1, 86_400), default=120, help="Time limit of one request in seconds.")
@option(
    "--memory",
    type=click.IntRange(256, 1 << 24),
    help="Memory limit of each process in MB.  [default: half of the machine's memory]",
)
@option("--max-upload", type=click.IntRange(1, 1 << 20), default=4096, help="Largest size of an uploaded table in MB.")
@option(
    "--learn-memory",
    type=click.IntRange(256, 1 << 24),
    help="Memory limit of training in MB.  [default: three quarters of the machine's memory]",
)
@option("--open", "opens", is_flag=True, help="Open the page in the browser.")
def serve(
    models: Path | None,
    host: str,
    port: int,
    token_file: Path | None,
    allow_host: tuple[str, ...],
    proxy: tuple[str, ...],
    timeout: float,
    memory: int | None,
    max_upload: int,
    learn_memory: int | None,
    opens: bool,
    **numbers: Any,
) -> None:
    """Serve models as a web page and as an HTTP service.

    MODELS is a directory of models, or one model. On the page, you drop a table and see its estimates. With a directory
    of models, the page can also train new models. The default directory is histnetq/models in the user's data
    directory. Requests are described at /docs. SIGTERM and Ctrl-C end the server; running requests get a few seconds to
    finish.

    \b
    Examples: histnetq serve model
              histnetq serve models --port 9000
              histnetq serve models --host 0.0.0.0 --token-file token --allow-host quant.example.org
    """
    try:
        from histnetq.web.app import Settings
        from histnetq.web.security import Door
        from histnetq.web.server import serve as run
    except ModuleNotFoundError as error:
        raise ImportError(f"serve: needs {error.name}; pip install 'histnetq[serve]'.") from None
    place = _default_place() if models is None else models
    if not place.is_dir():
        raise ValueError(f"models: {place} is not a directory; name a directory of models, or create an empty one.")
    token = None if token_file is None else read_token(token_file)
    local = _is_loopback(host)
    if not local and token is None:
        raise ValueError(
            f"host: {host} can be reached from other machines, expected --token-file with it; write a token to a "
            "file, for example with openssl rand -hex 32."
        )
    for name in proxy:
        if _address(name) is None:
            raise ValueError(f"proxy: expected an IP address, such as 127.0.0.1, got {name!r}; give one.")
    proxies = tuple(str(_address(name)) for name in proxy)
    listening = _listen(host, port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    names = tuple(name.lower() for name in (*allow_host, *([host] if _address(host) is None else [])))
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler])

    def ready() -> None:
        echo(f"Serving {place} at {address}; press Ctrl-C to stop.")
        if not local:
            echo(f"Other machines can reach it, and requests must send the token in {token_file}.")
        if opens:
            click.launch(address)

    door = Door(names, not local, token, proxies)
    given = {"memory": memory, "learn_memory": learn_memory, "upload_bytes": max_upload}
    sizes = {name: megabytes << 20 for name, megabytes in given.items() if megabytes is not None}
    run(Settings(place, door, seconds=timeout, **numbers, **sizes), [listening], ready)
    echo("Ended.")


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


def _default_place() -> Path:
    place = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "histnetq" / "models"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return a numeric address, None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(found[0][4][:2], family=found[0][0], backlog=256)
    except OSError as error:
        raise ValueError(f"port: cannot listen at {host}:{port} ({error.strerror or error}); choose another.") from None
