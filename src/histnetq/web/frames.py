"""Messages between the server and its workers: two lengths, then JSON and bytes."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import IO, Any

_LENGTHS = struct.Struct("<QQ")
Message = dict[str, Any]


def pack(message: Message, content: bytes = b"") -> bytes:
    """Return a message and its bytes as one frame."""
    text = json.dumps(message, separators=(",", ":")).encode("ascii")
    return _LENGTHS.pack(len(text), len(content)) + text + content


def read(file: IO[bytes]) -> tuple[Message, bytes]:
    """Wait for a frame; raise EOFError if the sender has ended."""
    head = file.read(_LENGTHS.size)
    if len(head) < _LENGTHS.size:
        raise EOFError
    n_text, n_content = _LENGTHS.unpack(head)
    return json.loads(file.read(n_text)), file.read(n_content)


async def receive(stream: asyncio.StreamReader) -> tuple[Message, bytes]:
    """Wait for a frame without blocking the event loop; raise EOFError if the sender has ended."""
    n_text, n_content = _LENGTHS.unpack(await stream.readexactly(_LENGTHS.size))
    return json.loads(await stream.readexactly(n_text)), await stream.readexactly(n_content)
