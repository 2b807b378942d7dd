"""`MonitorState`: sketches of all chunks that were read so far, and the files that their rows came from."""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from histnetq.quantifiers.base import Quantifier
from histnetq.sketches.sketch import BagSketch, Maker, SketchSum
from histnetq.tables.parquet_files import count_parquet_rows, read_parquet_schema
from histnetq.tables.places import count_bytes, is_address, open_binary
from histnetq.tables.table_files import find_files
from histnetq.workflows.monitoring.chunk_reading import How, is_chunk_id, read_chunks
from histnetq.workflows.monitoring.chunks import Chunks, Clock, Periods

_KEY = b"histnetq.monitor"
_FIELDS = {"path": str, "size": int, "changed": int, "sha256": str}
_MOST_BAGS = 10_000_000  # largest number of chunks of all segments
_SETTLED = 2_000_000_000  # nanoseconds; a second change within the resolution of file times would not be noticed


@dataclass(frozen=True)
class ReadFile:
    """A file whose rows are in the state: path, size, time of the last change in nanoseconds, and checksum.

    The time is 0 if the file changed shortly before it was read, so that a later change could have the same time.
    """

    path: str
    size: int
    changed: int
    sha256: str


@dataclass
class MonitorState:
    """Files that were read, the sum of the sketches of their chunks, and the number of files read in this run."""

    how: How
    clock: Clock
    files: list[ReadFile]
    sketch: BagSketch | None = None
    n_new: int = 0

    @classmethod
    def load(cls, path: Path, how: How, model: Quantifier) -> MonitorState:
        """Read a state, or begin one if the file does not exist; refuse a state of another model or other chunks."""
        from pyarrow import ArrowException

        if how.period is None:
            got = "chunk_number" if how.chunk_size is None else "chunk_size"
            raise ValueError(
                f"state: expected chunks by period, got {got}, with which new rows can move old rows to another chunk; "
                "use period."
            )
        maker = model.sketch_maker()
        if not path.exists():
            return cls(how, Clock(how.timezone), [])
        try:
            about = json.loads((read_parquet_schema(path).metadata or {})[_KEY])
            kept = How(**{**about["how"], "by": tuple(about["how"]["by"])})
            files = [ReadFile(**file) for file in about["files"]]
            if not all(type(getattr(file, name)) is kind for file in files for name, kind in _FIELDS.items()):
                raise ValueError
            clock = Clock(about["zone"], about["aware"])
            if not 0 < sum(count_parquet_rows(path)) <= _MOST_BAGS or about["aware"] not in (True, False):
                raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OSError, ArrowException):
            raise ValueError(f"state: {path} was not written by histnetq monitor; name another file.") from None
        for name, value in asdict(kept).items():
            if value != asdict(how)[name]:
                raise ValueError(
                    f"state: {path} was made with {name} {_in_words(value)}, got {_in_words(asdict(how)[name])}; "
                    "use the same, or start again with a new state file."
                )
        state = cls(kept, clock, files, _read_sketch(path, kept, clock, maker))
        if about.get("checksum") != state._checksum():
            raise ValueError(
                f"state: {path} is damaged, its checksum does not match its contents; start again with a new "
                "state file."
            )
        return state

    def add(self, model: Quantifier, source: Any) -> tuple[BagSketch, Chunks]:
        """Read the new files, and return the sketches and chunks of all files."""
        assert self.how.period is not None
        new = self._new_files(find_files(source, "source"))
        if new:
            found, _ = read_chunks(model, list(new), self.how, self.clock, kept=True)
            assert isinstance(found, BagSketch)
            total = SketchSum()
            for part in (self.sketch, found):
                if part is not None:
                    total.add(part)
            self.sketch = total.result()
        self.files, self.n_new = [*self.files, *new.values()], len(new)
        assert self.sketch is not None
        return self.sketch, Periods(self.how.period, self.clock)

    def save(self, path: Path) -> None:
        """Write the state to a file."""
        from pyarrow import parquet

        assert self.sketch is not None
        table = self.sketch.to_arrow()
        about = {**self._about(), "checksum": self._checksum()}
        table = table.replace_schema_metadata({**table.schema.metadata, _KEY: json.dumps(about)})
        buffer = io.BytesIO()
        parquet.write_table(table, buffer, compression="zstd")
        path.write_bytes(buffer.getvalue())

    def _about(self) -> dict[str, Any]:
        """Return the metadata of the file."""
        files = [asdict(file) for file in self.files]
        how = {name: value for name, value in asdict(self.how).items() if (name, value) != ("weight_kind", "survey")}
        return {"how": how, "zone": self.clock.zone, "aware": self.clock.aware, "files": files}

    def _checksum(self) -> str:
        """Return a checksum of the whole state, which does not depend on the types of stored numbers."""
        assert self.sketch is not None
        found = hashlib.sha256(json.dumps([self._about(), asdict(self.sketch.maker)], sort_keys=True).encode())
        found.update(json.dumps(np.asarray(self.sketch.ids).tolist()).encode())
        for name in ("n_rows", "totals", "squares", "unseen", "values", "moments"):
            found.update(np.ascontiguousarray(getattr(self.sketch, name), "<f8").data)
        return found.hexdigest()

    def _new_files(self, paths: Sequence[str]) -> dict[str, ReadFile]:
        """Return the files, by path, whose rows are not in the state.

        A known file is not read again if its size and its time of change are the same. Programs can set the time of
        modification, but not the time of change, which the operating system keeps. Other files are compared by bytes.
        """
        contents = {file.sha256 for file in self.files}
        known = {file.path: i for i, file in enumerate(self.files)}
        new: dict[str, ReadFile] = {}
        for path in paths:
            place, size, changed = _place_of(path)
            old = self.files[known[place]] if place in known else None
            if old is not None and changed and (old.size, old.changed) == (size, changed):
                continue
            file = ReadFile(place, size, changed, _file_checksum(path))
            if old is not None and old.sha256 != file.sha256:
                raise ValueError(
                    f"source: {path} has changed since it was read; write new rows to a new file, or start again "
                    "with a new state file."
                )
            if old is not None:
                self.files[known[place]] = file
            elif file.sha256 not in contents:
                contents.add(file.sha256)
                new[path] = file
        return new


def _read_sketch(path: Path, how: How, clock: Clock, maker: Maker) -> BagSketch:
    """Return the sketches in a state; refuse sketches of another model, or of impossible chunks."""
    try:
        sketch = BagSketch.load(path)
    except ValueError as error:
        reason = str(error).removeprefix(f"path: {path} ").partition(";")[0]
        raise ValueError(f"state: {path} is damaged, it {reason}; start again with a new state file.") from None
    if sketch.maker.fingerprint != maker.fingerprint:
        raise ValueError(
            f"state: {path} was made by another model; use that model, or start again with a new state file."
        )
    assert how.period is not None
    periods, names = Periods(how.period, clock), () if sketch.ids is None else sketch.ids.tolist()
    right = len(names) > 0 and all(is_chunk_id(name, periods, len(how.by)) for name in names)
    if not right or not (sketch.totals > 0).all():
        raise ValueError(f"state: {path} is damaged, it has impossible chunks; start again with a new state file.")
    return sketch


def _place_of(path: str) -> tuple[str, int, int]:
    """Return the path without links, the size, and the time of change, which object storage does not have."""
    if is_address(path):
        return path, count_bytes(path), 0
    about = os.stat(path)
    return os.path.realpath(path), about.st_size, _time_of_change(about)


def _time_of_change(about: os.stat_result) -> int:
    """Return the time of the last change in nanoseconds, or 0 if it is too recent, or if the system keeps none."""
    settled = os.name != "nt" and time.time_ns() - about.st_ctime_ns > _SETTLED
    return about.st_ctime_ns if settled else 0


def _file_checksum(path: str) -> str:
    found = hashlib.sha256()
    with open_binary(path) as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def _in_words(value: Any) -> str:
    return "none" if value in (None, ()) else " and ".join(value) if isinstance(value, tuple) else str(value)
