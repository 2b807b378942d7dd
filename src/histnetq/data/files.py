"""Files that are written as a whole or not at all, by one process, and never over others unasked."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

_ADDRESS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells every process


def are_processes_together() -> bool:
    """Whether torchrun started this process and others."""
    return all(name in os.environ for name in _ADDRESS) and os.environ["WORLD_SIZE"] != "1"


def is_first_process() -> bool:
    """Whether this process is the one that writes, of those that torchrun started together."""
    return not are_processes_together() or os.environ["RANK"] == "0"


def refuse_existing(path: Path | None, force: bool) -> None:
    """Refuse to replace a file; called before work that takes long, too."""
    if path is not None and path.exists() and not force and is_first_process():
        raise FileExistsError(f"output: {path} exists; choose another name or pass --force to replace it.")


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A place beside the path to write to; what is there in the end takes the path, unless something failed."""
    partial = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        if is_first_process():
            os.replace(partial, path)
    except OSError as error:
        raise OSError(f"output: {path} cannot be written ({error.strerror or error}); choose another place.") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
