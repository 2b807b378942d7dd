"""Data sets from their public records, on request only."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from histnetq.datasets.downloads import Remote, digest, download, open_url
from histnetq.datasets.sources import SOURCES, Source

__all__ = ["fetch"]

_ZENODO = "https://zenodo.org/api/records/"
_LARGEST_RECORD = 1 << 24  # bytes


def fetch(
    name: str,
    to: str | os.PathLike[str] | None = None,
    *,
    url: str | None = None,
    sha256: str | Sequence[str] = (),
    say: Callable[[str], object] | None = None,
) -> list[Path]:
    """Download the files of a data set; those that are there and match are kept.

    An interrupted download continues when it is asked for again. Sizes and checksums are those of the public record.

    Parameters
    ----------
    name : one of `SOURCES`
    to : folder, optional
        Default: where the loaders look for the data.
    url : str, optional
        Another address: of a folder with the same files, or of one file that ends in ``.zip`` or ``.gz``.
    sha256 : str or sequence of str
        Checksums to verify: the digits if there is one file, else ``FILE=DIGITS``.
    say : callable, optional
        Gets a line about each file.

    Returns
    -------
    list of Path : the files

    Examples
    --------
    >>> fetch("digits")
    Traceback (most recent call last):
        ...
    ValueError: name: 'digits' comes from scikit-learn, which brings them along; there is nothing to fetch.
    """
    source = _known(name)
    wanted = [sha256] if isinstance(sha256, str) else list(sha256)
    directory = source.places[0] if to is None else Path(to)
    paths = []
    for remote in _with_checksums(_locate(source, url), wanted):
        path = download(remote, directory)
        paths.append(path)
        if say is not None:
            say(f"{path}: {path.stat().st_size:,} bytes, {_verdict(path, remote)}")
    return paths


def _known(name: str) -> Source:
    if name not in SOURCES:
        raise ValueError(f"name: expected one of {', '.join(SOURCES)}, got {name!r}.")
    source = SOURCES[name]
    if not source.files:
        raise ValueError(f"name: {name!r} comes from {source.origin}; there is nothing to fetch.")
    return source


def _verdict(path: Path, remote: Remote) -> str:
    if remote.checksum is not None:
        return f"{remote.checksum.partition(':')[0]} as expected"
    return f"not verified, as no checksum is known; sha256 {digest(path, 'sha256')}"


def _locate(source: Source, url: str | None) -> list[Remote]:
    if url is None and source.zenodo is not None:
        return _read_record(source)
    address = (url or source.url or "").rstrip("/")
    last = unquote(urlsplit(address).path.rpartition("/")[2])
    if last.endswith((".zip", ".gz")):
        if not re.fullmatch(r"[\w.-]+", last):
            raise ValueError(
                f"url: expected a plain file name at the end, got {last!r}; pass the address of the folder."
            )
        return [Remote(last, address)]
    # The publisher's checksums hold for the publisher's files; the same content may be packed otherwise elsewhere.
    known = source.md5 if url is None else {}
    return [Remote(f, f"{address}/{f}", checksum=f"md5:{known[f]}" if f in known else None) for f in source.files]


def _read_record(source: Source) -> list[Remote]:
    """Address, size and checksum of each file as the record states them."""
    address = f"{_ZENODO}{source.zenodo}"
    with open_url(address, {"Accept": "application/json"}) as response:
        content = response.read(_LARGEST_RECORD)
    try:
        entries = {entry["key"]: entry for entry in json.loads(content)["files"]}
        return [_remote(file, entries[file]) for file in source.files]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"url: {address} does not list {', '.join(source.files)} as expected ({type(error).__name__}: {error}); "
            "fetch them with a browser, or pass another address by --url."
        ) from None


def _remote(file: str, entry: dict[str, Any]) -> Remote:
    algorithm, _, digits = entry["checksum"].rpartition(":")
    checksum = f"{algorithm or 'md5'}:{digits}"
    if not re.fullmatch(r"(md5:[0-9a-fA-F]{32}|sha256:[0-9a-fA-F]{64})", checksum):
        raise ValueError(f"checksum {checksum!r}")
    return Remote(file, str(entry["links"]["self"]), int(entry["size"]), checksum)


def _with_checksums(remotes: list[Remote], wanted: Sequence[str]) -> list[Remote]:
    """The files with the checksums that were asked for in the place of others."""
    given = {}
    for text in wanted:
        file, _, digits = text.rpartition("=")
        if not file and len(remotes) == 1:
            file = remotes[0].file
        if file not in {remote.file for remote in remotes} or not re.fullmatch("[0-9a-fA-F]{64}", digits):
            names = ", ".join(remote.file for remote in remotes)
            raise ValueError(f"sha256: expected FILE=DIGITS with 64 digits for one of {names}, got {text!r}.")
        given[file] = f"sha256:{digits}"
    return [replace(remote, checksum=given.get(remote.file, remote.checksum)) for remote in remotes]
