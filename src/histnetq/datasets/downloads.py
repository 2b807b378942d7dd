"""One file from the web: continued where it stopped, checked by size and checksum, in place only when complete."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Remote", "digest", "download", "open_url"]

_CHUNK = 1 << 20
_TIMEOUT = 60  # seconds without an answer


@dataclass(frozen=True)
class Remote:
    """A file on the web.

    Attributes
    ----------
    file : str
        The name to store it by.
    url : str
    size : int, optional
        Bytes.
    checksum : str, optional
        Such as ``md5:…`` or ``sha256:…``.
    """

    file: str
    url: str
    size: int | None = None
    checksum: str | None = None


def download(remote: Remote, directory: Path) -> Path:
    """Store the file in this directory; a file that is there and matches is kept as it is.

    What arrives is collected in ``{file}.partial``. An interrupted download continues there if the server still offers
    the same file; otherwise, and if the whole does not match its checksum, it starts again.
    """
    target = directory / remote.file
    if target.is_file() and _mismatch(target, remote) is None:
        return target
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f"{remote.file}.partial"
    resumed = _receive(remote, partial)
    problem = _mismatch(partial, remote)
    if problem and resumed:
        _discard(partial)
        _receive(remote, partial)
        problem = _mismatch(partial, remote)
    if problem:
        _discard(partial)
        raise ValueError(f"url: {remote.url} gave a file {problem}; it was removed, try again or elsewhere by --url.")
    os.replace(partial, target)
    _note(partial).unlink(missing_ok=True)
    return target


def digest(path: Path, algorithm: str) -> str:
    """The checksum of a file as hexadecimal digits."""
    with path.open("rb") as file:
        value = hashlib.new(algorithm, usedforsecurity=False)
        while chunk := file.read(_CHUNK):
            value.update(chunk)
    return value.hexdigest()


def open_url(url: str, headers: dict[str, str] | None = None) -> Any:
    """The response to a request; one message for whatever fails."""
    if not re.match("https?://", url):
        raise ValueError(f"url: expected an address that begins with http:// or https://, got {url!r}.")
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return error
        error.close()
        reason = f"{error.code} {error.reason}"
    except (OSError, http.client.HTTPException) as error:
        reason = str(getattr(error, "reason", error))
    raise ConnectionError(
        f"url: {url} answered {reason!r}, expected the file; check the connection or pass another address by --url."
    )


def _mismatch(path: Path, remote: Remote) -> str | None:
    """How the file differs from what is known of it; None if it does not."""
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        return f"of {size:,} bytes, expected {remote.size:,}"
    if remote.checksum is not None:
        algorithm, _, expected = remote.checksum.partition(":")
        found = digest(path, algorithm)
        if found != expected.lower():
            return f"with {algorithm} {found}, expected {expected}"
    return None


def _receive(remote: Remote, partial: Path) -> bool:
    """Fill the partial file; whether earlier content was continued."""
    start, same_file = _resume_point(remote, partial)
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", **({"If-Range": same_file} if same_file else {})}
    with open_url(remote.url, headers) as response:
        status, given = response.status, response.headers
        span = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", given.get("Content-Range", ""))
        if status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            if span and int(span[2]) == start:
                return True  # all of it had arrived
            return _restart(remote, partial, start)
        if status == http.client.PARTIAL_CONTENT:
            if not span or int(span[1] or -1) != start:
                return _restart(remote, partial, start)
            total: int | None = int(span[2])
        else:
            start, total = 0, int(given["Content-Length"]) if "Content-Length" in given else None
        if remote.size is not None and total not in (None, remote.size):
            _discard(partial)
            raise ValueError(
                f"url: {remote.url} offers {total:,} bytes, expected {remote.size:,}; pass another address by --url."
            )
        _write_note(partial, remote.url, given)
        _store(response, remote, partial, start, total)
    return start > 0


def _restart(remote: Remote, partial: Path, start: int) -> bool:
    if not start:
        raise ConnectionError(f"url: {remote.url} answered with a part of the file, expected all of it; try again.")
    _discard(partial)
    return _receive(remote, partial)


def _store(response: Any, remote: Remote, partial: Path, start: int, total: int | None) -> None:
    from tqdm import tqdm

    if total is not None and shutil.disk_usage(partial.parent).free < total - start:
        raise OSError(f"to: {partial.parent} has no room for {total - start:,} bytes; pass another directory by --to.")
    arrived, reason = start, None
    bar = tqdm(total=total, initial=start, desc=remote.file, unit="B", unit_scale=True, disable=None)
    with partial.open("ab" if start else "wb") as file, bar:
        while True:
            try:
                chunk = response.read(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                reason = str(error) or type(error).__name__
                break
            if not chunk:
                break
            file.write(chunk)
            arrived += len(chunk)
            bar.update(len(chunk))
    if reason is not None or (total is not None and arrived != total):
        raise ConnectionError(
            f"url: {remote.url} stopped after {arrived:,} of {'unknown' if total is None else f'{total:,}'} bytes "
            f"({reason or 'the connection ended'}); fetch again to continue."
        )


def _resume_point(remote: Remote, partial: Path) -> tuple[int, str | None]:
    """Bytes that can be kept, and the mark by which the server recognises the file they are of."""
    try:
        note = json.loads(_note(partial).read_text(encoding="utf-8"))
        size, url, mark = partial.stat().st_size, note["url"], note["mark"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0, None
    # Without a mark only a checksum of the whole can tell that both parts are of one file.
    if url != remote.url or (mark is None and remote.checksum is None):
        return 0, None
    return size, mark


def _write_note(partial: Path, url: str, headers: Any) -> None:
    tag = headers.get("ETag")
    mark = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")
    _note(partial).write_text(json.dumps({"url": url, "mark": mark}), encoding="utf-8")


def _note(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


def _discard(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    _note(partial).unlink(missing_ok=True)
