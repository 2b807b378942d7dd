"""Files that are written as a whole or not at all, by one process, and never over others unasked."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

__all__ = ["is_first_process", "refuse_existing", "whole_file"]


def is_first_process() -> bool:
    """Whether this process is the one that writes, of those that torchrun started together."""
    return os.environ.get("RANK", "0") == "0"


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
        os.replace(partial, path)
    except OSError as error:
        raise OSError(f"output: {path} cannot be written ({error.strerror or error}); choose another place.") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
