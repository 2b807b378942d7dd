"""`State`: sketches of the chunks that were read so far, and the files that their rows came from."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from histnetq.data.table_files import find_files
from histnetq.monitoring.chunks import Chunks, Clock, Periods
from histnetq.monitoring.reading import How, read_chunks
from histnetq.quantifiers.base import Quantifier
from histnetq.sketches.sketch import BagSketch, SketchSum

_KEY = b"histnetq.monitor"
_FIELDS = {"path": str, "size": int, "changed": int, "sha256": str}


@dataclass(frozen=True)
class ReadFile:
    """A file whose rows are in the state: where it was, its size, when it changed (nanoseconds), its checksum."""

    path: str
    size: int
    changed: int
    sha256: str


@dataclass
class State:
    """What is kept between runs.

    Attributes
    ----------
    how : How
        How rows are divided.
    clock : Clock
        What is known of the times.
    files : list of ReadFile
        The files that were read.
    sketch : BagSketch or None
        The sum of the sketches of all their chunks.
    n_new : int
        Number of files that were read in this run.
    """

    how: How
    clock: Clock
    files: list[ReadFile]
    sketch: BagSketch | None = None
    n_new: int = 0

    @classmethod
    def load(cls, path: Path, how: How, model: Quantifier) -> State:
        """Read a state, or begin one where there is no file; refuse one of another model or way to divide rows."""
        from pyarrow import parquet

        if how.period is None:
            raise ValueError(
                "state: expected chunks by period, whose rows stay in their chunk, got chunk_size or chunk_number; "
                "use period."
            )
        maker = model.sketch_maker()
        if not path.exists():
            return cls(how, how.clock(), [])
        sketch = BagSketch.load(path)
        if sketch.maker.fingerprint != maker.fingerprint:
            raise ValueError(f"state: {path} was made by another model; use that one, or begin another state.")
        try:
            about = json.loads((parquet.read_schema(path).metadata or {})[_KEY])
            kept = How(**{**about["how"], "by": tuple(about["how"]["by"])})
            files = [ReadFile(**file) for file in about["files"]]
            if not all(type(getattr(file, name)) is kind for file in files for name, kind in _FIELDS.items()):
                raise ValueError
            clock = Clock(about["zone"], about["aware"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ValueError(f"state: {path} is no state that histnetq monitor wrote; name another file.") from None
        for name, value in asdict(kept).items():
            if value != asdict(how)[name]:
                raise ValueError(
                    f"state: {path} was made with {name} {_said(value)}, got {_said(asdict(how)[name])}; use the same, "
                    "or begin another state."
                )
        return cls(kept, clock, files, sketch)

    def add(self, model: Quantifier, source: Any) -> tuple[BagSketch, Chunks]:
        """Read the files that are new, and give the sketches and chunks of all."""
        assert self.how.period is not None
        new = self._new_files(find_files(source, "source"))
        if new:
            found, _ = read_chunks(model, [file.path for file in new], self.how, self.clock)
            assert isinstance(found, BagSketch)
            total = SketchSum()
            for part in (self.sketch, found):
                if part is not None:
                    total.add(part)
            self.sketch = total.result()
        self.files, self.n_new = [*self.files, *new], len(new)
        assert self.sketch is not None
        return self.sketch, Periods(self.how.period, self.clock)

    def save(self, path: Path) -> None:
        """Write the state to a file."""
        from pyarrow import parquet

        assert self.sketch is not None
        buffer = io.BytesIO()
        self.sketch.save(buffer)
        table = parquet.read_table(buffer)
        about: dict[str, Any] = {"how": asdict(self.how), "zone": self.clock.zone, "aware": self.clock.aware}
        about["files"] = [asdict(file) for file in self.files]
        table = table.replace_schema_metadata({**table.schema.metadata, _KEY: json.dumps(about)})
        parquet.write_table(table, path, compression="zstd")

    def _new_files(self, paths: Sequence[str]) -> list[ReadFile]:
        """The files whose rows are not in the state: neither the same file, nor another one of the same bytes."""
        known = {(file.path, file.size, file.changed) for file in self.files}
        contents = {file.sha256 for file in self.files}
        places = {file.path for file in self.files}
        new: list[ReadFile] = []
        for path in paths:
            place, about = os.path.realpath(path), os.stat(path)
            if (place, about.st_size, about.st_mtime_ns) in known:
                continue
            file = ReadFile(place, about.st_size, about.st_mtime_ns, _checksum(path))
            if file.sha256 in contents:
                continue
            if place in places:
                raise ValueError(
                    f"source: {path} has other rows than when it was read; write new rows to a new file, or begin "
                    "another state."
                )
            contents.add(file.sha256)
            new.append(file)
        return new


def _checksum(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def _said(value: Any) -> str:
    return "none" if value in (None, ()) else " and ".join(value) if isinstance(value, tuple) else str(value)
