"""Data sets from their public records, on request only.

A download continues where it stopped, is checked by size and checksum, and is in place only when it is complete.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from histnetq.bags.checks import wrong
from histnetq.datasets.sources import SOURCES, MaybePath, Source

_ZENODO = "https://zenodo.org/api/records/"
_LARGEST_RECORD = 1 << 24  # bytes
_CHUNK = 1 << 20
_TIMEOUT = 60  # seconds without an answer
_ELSEWHERE = "pass another address by --url."


def fetch(
    name: str, to: MaybePath = None, *, url: str | None = None, sha256: str | Sequence[str] = (),
    say: Callable[[str], object] | None = None,
) -> list[Path]:  # fmt: skip
    """Download the files of a data set; those that are there and match are kept.

    An interrupted download continues when it is asked for again. Sizes and checksums are those of the public record.

    Parameters
    ----------
    name : str
        Name of the data set, one of `SOURCES`.
    to : path or None, default None
        Directory for the files. By default it is the one where the loaders look first.
    url : str or None, default None
        Another address, of a folder with the same files or of one file that ends in ``.zip`` or ``.gz``.
    sha256 : str or sequence of str, default ()
        Checksums to verify: the digits if there is one file, else ``FILE=DIGITS``.
    say : callable or None, default None
        Function that gets a line about each file.

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
    if url is None and source.zenodo is not None:
        return _read_record(source)
    address = (url or source.url or "").rstrip("/")
    last = unquote(urlsplit(address).path.rpartition("/")[2])
    if last.endswith((".zip", ".gz")):
        if not re.fullmatch(r"[\w.-]+", last):
            raise wrong("url", "a plain file name at the end", repr(last), "pass the address of the folder")
        return [Remote(last, address)]
    # The publisher's checksums hold for the publisher's files; the same content may be packed otherwise elsewhere.
    known = source.md5 if url is None else {}
    return [Remote(f, f"{address}/{f}", checksum=f"md5:{known[f]}" if f in known else None) for f in source.files]


def _read_record(source: Source) -> list[Remote]:
    """Return address, size and checksum of each file as the record states them.

    pooch reads such a record too, but without the sizes, and it finds the record by asking another server for its DOI.
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
        raise ValueError(
            f"url: {address} does not list {', '.join(source.files)} as expected ({type(error).__name__}: {error}); "
            f"fetch them with a browser, or {_ELSEWHERE}"
        ) from None
    return remotes


def _with_checksums(remotes: list[Remote], wanted: Sequence[str]) -> list[Remote]:
    """Return the files with the checksums that were asked for in the place of others."""
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
    """A file on the web.

    Parameters
    ----------
    file : str
        The name to store it by.
    url : str
        Its address.
    size : int or None, default None
        Number of bytes, if it is known.
    checksum : str or None, default None
        Checksum such as ``md5:…`` or ``sha256:…``, if one is known.
    """

    file: str
    url: str
    size: int | None = None
    checksum: str | None = None


def download(remote: Remote, directory: Path) -> Path:
    """Store the file in this directory; a file that is there and matches is kept as it is."""
    import pooch

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # what was fetched is said by `fetch`
    try:
        receiver = _Receiver(remote, directory / f"{remote.file}.partial")
        pooch.retrieve(remote.url, remote.checksum, remote.file, directory, downloader=receiver)
    finally:
        logger.setLevel(level)
    return directory / remote.file


class _Receiver:
    """A downloader of pooch that continues what was interrupted and takes no more bytes than were announced.

    What arrives is collected in the partial file. An interrupted download continues there if the server still offers
    the same file; otherwise, and if the whole does not match its checksum, it starts again.
    """

    def __init__(self, remote: Remote, partial: Path) -> None:
        self.remote, self.partial = remote, partial
        self.note = partial.with_name(f"{partial.name}.json")

    def __call__(self, url: str, output: str, pooch: Any) -> None:
        while self._receive() and self._mismatch():
            self._discard()  # what was continued was of another file
        problem = self._mismatch()
        if problem:
            self._discard()
            raise ValueError(f"url: {url} gave a file {problem}; it was removed, try again or elsewhere by --url.")
        os.replace(self.partial, output)
        self._discard()

    def _mismatch(self) -> str | None:
        """Say how the checksum differs from the known one; None if it does not."""
        import pooch

        algorithm, _, expected = (self.remote.checksum or "").partition(":")
        found = pooch.file_hash(self.partial, algorithm) if expected else ""
        return None if found == expected.lower() else f"with {algorithm} {found}, expected {expected}"

    def _receive(self) -> bool:
        """Fill the partial file; return whether earlier content was continued."""
        url, known, (start, mark) = self.remote.url, self.remote.size, self._resume_point()
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers |= {"Range": f"bytes={start}-", **({"If-Range": mark} if mark else {})}
        with _open_url(url, headers) as response:
            begin, total = _extent(response)
            if None not in (known, total) and known != total:
                self._discard()
                raise ValueError(f"url: {url} offers {total:,} bytes, expected {known:,}; {_ELSEWHERE}")
            nothing_left = response.status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE
            if nothing_left and begin == start:
                return True
            if start == 0 != begin:
                raise ConnectionError(f"url: {url} answered with a part of the file, expected all of it; try again.")
            if nothing_left or begin not in (0, start):
                self._discard()
                return self._receive()
            self._store(response, begin, known if total is None else total)
        return begin > 0

    def _store(self, response: Any, begin: int, total: int | None) -> None:
        from tqdm import tqdm

        remote, folder = self.remote, self.partial.parent
        if total is not None and shutil.disk_usage(folder).free < total - begin:
            raise OSError(f"to: {folder} has no room for {total - begin:,} bytes; pass another directory by --to.")
        tag = response.headers.get("ETag")
        mark = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")
        self.note.write_text(json.dumps({"url": remote.url, "mark": mark}), encoding="utf-8")
        arrived, reason = begin, None
        bar = tqdm(total=total, initial=begin, desc=remote.file, unit="B", unit_scale=True, disable=None)
        with self.partial.open("ab" if begin else "wb") as file, bar:
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
            self._discard()
            raise ValueError(f"url: {remote.url} sends more than {total:,} bytes; {_ELSEWHERE}")
        if reason is not None or total not in (None, arrived):
            raise ConnectionError(
                f"url: {remote.url} stopped after {arrived:,} of {'unknown' if total is None else f'{total:,}'} bytes "
                f"({reason or 'the connection ended'}); fetch again to continue."
            )

    def _resume_point(self) -> tuple[int, str | None]:
        """Return the bytes that can be kept, and the mark by which the server recognises the file they are of."""
        try:
            note = json.loads(self.note.read_text(encoding="utf-8"))
            size, url, mark = self.partial.stat().st_size, note["url"], note["mark"]
        except (OSError, ValueError, KeyError, TypeError):
            return 0, None
        # Without a mark only a checksum of the whole can tell that both parts are of one file.
        same = url == self.remote.url and (mark or self.remote.checksum)
        return (size, mark) if same else (0, None)

    def _discard(self) -> None:
        self.partial.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def _extent(response: Any) -> tuple[int, int | None]:
    """Return the number of the first byte that is sent and the size of the file, None if it is not told.

    A server with nothing left to send gives the size alone, which is then the first byte too.
    """
    if response.status == http.client.OK:
        length = response.headers.get("Content-Length")
        return 0, None if length is None else int(length)
    span = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", response.headers.get("Content-Range", ""))
    return (int(span[1] or span[2]), int(span[2])) if span else (-1, None)


def _open_url(url: str, headers: dict[str, str]) -> Any:
    """Return the response to a request; whatever fails has one message."""
    if not re.match("https?://", url):
        raise ValueError(f"url: expected an address that begins with http:// or https://, got {url!r}.")
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return error
        error.close()
        reason = f"{error.code} {error.reason}"
    except (OSError, http.client.HTTPException) as error:
        reason = str(getattr(error, "reason", error))
    raise ConnectionError(f"url: {url} answered {reason!r}, expected the file; check the connection or {_ELSEWHERE}")
