"""Downloads of data sets from their public records.

Nothing is downloaded unless `fetch` is called. A file is checked by size and checksum before it is moved to its place.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from histnetq.datasets.sources import SOURCES, MaybePath, Source
from histnetq.errors import ConnectingError, FileInputError, InputError, Option

_ZENODO = "https://zenodo.org/api/records/"
_LARGEST_RECORD = 1 << 24  # bytes
_CHUNK = 1 << 20
_TIMEOUT = 60  # seconds to wait for data
_ELSEWHERE = ("pass another address by ", Option("url"))


def fetch(
    name: str,
    to: MaybePath = None,
    *,
    url: str | None = None,
    sha256: str | Sequence[str] = (),
    say: Callable[[str], object] | None = None,
) -> list[Path]:
    """Download the files of a data set, except files that are already there and match.

    Sizes and checksums are taken from the public record.

    Parameters
    ----------
    name : str
        Name of the data set, one of `SOURCES`.
    to : path or None, default None
        Directory for the files. By default, the directory where the loaders look first.
    url : str or None, default None
        Another address: a folder with the same files, or one file that ends in ``.zip`` or ``.gz``.
    sha256 : str or sequence of str, default ()
        Checksums to verify: the digits if there is one file, or ``FILE=DIGITS`` for one of several.
    say : callable or None, default None
        Function that is called with a line about each file.

    Returns
    -------
    list of Path
        The files.

    Examples
    --------
    >>> fetch("digits")
    Traceback (most recent call last):
        ...
    ValueError: name: 'digits' comes from scikit-learn, which brings them along; there is nothing to fetch.
    """
    import pooch

    if name not in SOURCES:
        raise ValueError(f"name: expected one of {', '.join(SOURCES)}, got {name!r}.")
    source = SOURCES[name]
    if not source.files:
        raise ValueError(f"name: {name!r} comes from {source.origin}; there is nothing to fetch.")
    directory = source.places[0] if to is None else Path(to)
    paths = []
    for remote in _with_checksums(_locate(source, url), [sha256] if isinstance(sha256, str) else sha256):
        path = download(remote, directory)
        paths.append(path)
        if say is not None:
            verdict = f"{(remote.checksum or '').partition(':')[0]} as expected"
            if remote.checksum is None:
                verdict = f"not verified, as no checksum is known; sha256 {pooch.file_hash(path)}"
            say(f"{path}: {path.stat().st_size:,} bytes, {verdict}")
    return paths


def _locate(source: Source, url: str | None) -> list[Remote]:
    """Return the files of a data set with their addresses and, if known, their sizes and checksums."""
    if url is None and source.zenodo is not None:
        return _read_record(source)
    address = (url or source.url or "").rstrip("/")
    last = unquote(urlsplit(address).path.rpartition("/")[2])
    if last.endswith((".zip", ".gz")):
        if not re.fullmatch(r"[\w.-]+", last):
            raise InputError("url", "a plain file name at the end", repr(last), "pass the address of the folder")
        return [Remote(last, address)]
    # The publisher's checksums apply to the publisher's files only; a mirror may have compressed them again.
    known = source.md5 if url is None else {}
    return [Remote(f, f"{address}/{f}", checksum=f"md5:{known[f]}" if f in known else None) for f in source.files]


def _read_record(source: Source) -> list[Remote]:
    """Read the address, size and checksum of each file from the Zenodo record.

    pooch can read such a record too, but without the sizes, and it asks another server to resolve the DOI.
    """
    address = f"{_ZENODO}{source.zenodo}"
    with _open_url(address, {"Accept": "application/json"}) as response:
        content = response.read(_LARGEST_RECORD)
    remotes = []
    try:
        entries = {entry["key"]: entry for entry in json.loads(content)["files"]}
        for file, entry in ((file, entries[file]) for file in source.files):
            algorithm, _, digits = entry["checksum"].rpartition(":")
            checksum = f"{algorithm or 'md5'}:{digits}"
            if not re.fullmatch(r"(md5:[0-9a-fA-F]{32}|sha256:[0-9a-fA-F]{64})", checksum):
                raise ValueError(f"checksum {checksum!r}")
            remotes.append(Remote(file, str(entry["links"]["self"]), int(entry["size"]), checksum))
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        problem = f"{address} does not list {', '.join(source.files)} as expected ({reason})"
        raise InputError("url", problem=problem, remedy=("fetch them with a browser, or ", *_ELSEWHERE)) from None
    return remotes


def _with_checksums(remotes: list[Remote], wanted: Sequence[str]) -> list[Remote]:
    """Replace the checksums of files by the given ones."""
    by_name = {remote.file: remote for remote in remotes}
    for text in wanted:
        file, _, digits = text.rpartition("=")
        if not file and len(remotes) == 1:
            file = remotes[0].file
        if file not in by_name or not re.fullmatch("[0-9a-fA-F]{64}", digits):
            names = ", ".join(by_name)
            raise ValueError(f"sha256: expected FILE=DIGITS with 64 digits for one of {names}, got {text!r}.")
        by_name[file] = replace(by_name[file], checksum=f"sha256:{digits}")
    return list(by_name.values())


@dataclass(frozen=True)
class Remote:
    """A file on the web: its name, address, number of bytes, and checksum such as ``md5:…`` or ``sha256:…``."""

    file: str
    url: str
    size: int | None = None
    checksum: str | None = None


def download(remote: Remote, directory: Path) -> Path:
    """Store the file in this directory; keep a file that is already there and matches."""
    import pooch

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # `fetch` prints a line about each file
    try:
        pooch.retrieve(remote.url, remote.checksum, remote.file, directory, downloader=partial(_receive, remote))
    finally:
        logger.setLevel(level)
    return directory / remote.file


def _receive(remote: Remote, url: str, output: str, pooch: Any) -> None:
    """Write the file to `output` and check it, as a downloader of pooch, which then moves it to its place."""
    with _open_url(url, {"Accept-Encoding": "identity"}) as response:
        length = response.headers.get("Content-Length")
        total = remote.size if length is None else int(length)
        if remote.size is not None and total != remote.size:
            problem = f"{url} offers {total:,} bytes, expected {remote.size:,}"
            raise InputError("url", problem=problem, remedy=_ELSEWHERE)
        _store(response, remote, Path(output), total)
    difference = _mismatch(remote, output)
    if difference:
        remedy = ("it was removed, try again or elsewhere by ", Option("url"))
        raise InputError("url", problem=f"{url} gave a file {difference}", remedy=remedy)


def _store(response: Any, remote: Remote, path: Path, total: int | None) -> None:
    """Write the content of a response to a file; raise an error if it does not have `total` bytes."""
    from tqdm import tqdm

    if total is not None and shutil.disk_usage(path.parent).free < total:
        problem = f"{path.parent} has no room for {total:,} bytes"
        raise FileInputError("to", problem=problem, remedy=("pass another directory by ", Option("to")))
    path.unlink()  # only the owner may read pooch's temporary file; a new file has the usual permissions
    arrived, reason = 0, None
    bar = tqdm(total=total, desc=remote.file, unit="B", unit_scale=True, disable=None)
    with path.open("xb") as file, bar:
        while total is None or arrived <= total:
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
    if total is not None and arrived > total:
        raise InputError("url", problem=f"{remote.url} sends more than {total:,} bytes", remedy=_ELSEWHERE)
    if reason is not None or total not in (None, arrived):
        raise ConnectionError(
            f"url: {remote.url} stopped after {arrived:,} of {'unknown' if total is None else f'{total:,}'} bytes "
            f"({reason or 'the connection ended'}); fetch it again."
        )


def _mismatch(remote: Remote, path: str) -> str | None:
    """Describe how the checksum of a file differs from the known checksum; return None if it does not."""
    import pooch

    algorithm, _, expected = (remote.checksum or "").partition(":")
    found = pooch.file_hash(path, algorithm) if expected else ""
    return None if found == expected.lower() else f"with {algorithm} {found}, expected {expected}"


def _open_url(url: str, headers: dict[str, str]) -> Any:
    """Return the response to a request; every failure raises a ConnectionError that names the address."""
    if not re.match("https?://", url):
        raise ValueError(f"url: expected an address that begins with http:// or https://, got {url!r}.")
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
        if response.status == http.client.OK:
            return response
        response.close()
        reason = f"{response.status} {response.reason}"
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"{error.code} {error.reason}"
    except (OSError, http.client.HTTPException) as error:
        reason = str(getattr(error, "reason", error))
    remedy = ("check the connection or ", *_ELSEWHERE)
    raise ConnectingError("url", problem=f"{url} answered {reason!r}, expected the file", remedy=remedy)
