"""The command that serves models as a web page and as an HTTP service: serve."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from histnetq.cli.group import main
from histnetq.cli.options import PATH, option
from histnetq.cli.terminal import VisibleFormatter, echo


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
    type=click.IntRange(1, 64),
    default=2,
    help="Number of processes that answer requests. In addition, half as many processes (at least one) run jobs, which "
    "estimate uploaded tables.",
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
        from histnetq.web.server import serve as run
        from histnetq.web.startup import find_place, is_loopback, listen, make_door, read_token
    except ModuleNotFoundError as error:
        raise ImportError(f"serve: needs {error.name}; pip install 'histnetq[serve]'.") from None
    place = find_place(models)
    token = None if token_file is None else read_token(token_file)
    door = make_door(host, allow_host, token, proxy)
    listening = listen(host, port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler])

    def ready() -> None:
        echo(f"Serving {place} at {address}; press Ctrl-C to stop.")
        if not is_loopback(host):
            echo(f"Other machines can reach it, and requests must send the token in {token_file}.")
        if opens:
            click.launch(address)

    given = {"memory": memory, "learn_memory": learn_memory, "upload_bytes": max_upload}
    sizes = {name: megabytes << 20 for name, megabytes in given.items() if megabytes is not None}
    run(Settings(place, door, seconds=timeout, **numbers, **sizes), [listening], ready)
    echo("Ended.")
