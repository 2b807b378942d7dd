"""Result files of tools that evaluate language models: promptfoo, Inspect, DeepEval and lm-evaluation-harness.

Each tool writes one object per answer. It becomes one row with the columns ``id`` (of the question, which models
may share), ``model``, ``prompt``, ``answer``, ``target``, ``verdict``, ``score`` and ``human``, as far as the file has
them, and columns such as ``verdict.relevance`` for each of several judges. If a person overruled the tool, ``verdict``
holds the original verdict of the tool, and ``human`` the verdict of the person.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import IO, Any

from histnetq.errors import InputError, StructuredError
from histnetq.tables.budget import TooLargeError
from histnetq.tables.json_values import LARGEST, as_text, flatten, parse_json, table_of
from histnetq.tables.places import open_binary
from histnetq.tables.table_files import Table

__all__ = ["open_files", "row_of"]

Row = dict[str, Any]
_MOST_UNPACKED = 8 << 30  # bytes of all samples of an archive
_ZSTD, _HEADER = 93, 30  # number of a compression method, and bytes of the fixed part of a file's header in an archive
_SAMPLES = re.compile(r"samples_(.+)_\d{4}-\d\d-\d\dT[\d.:-]+\.jsonl(\.gz)?")  # the file name has the task
_DECIDED: dict[Any, str] = {True: "pass", False: "fail"}
_RIGHT: dict[Any, str] = {1: "correct", 0: "incorrect"}


def open_files(paths: list[str]) -> Table:
    """Open JSON files and archives of evaluation tools as one table; a list of objects is read as plain rows."""
    return table_of(paths, (row for path in paths for row in _rows(path)))


def row_of(record: Row, path: str) -> Row | None:
    """Return the row of one line of JSON that a known tool wrote, or None.

    Examples
    --------
    >>> row_of({"doc_id": 3, "resps": [["7"]], "filter": "none", "metrics": ["acc"], "acc": 1.0}, "rows.jsonl")
    {'id': 3, 'verdict': 'correct', 'score': 1.0, 'score.acc': 1.0, 'answer': '7', 'filter': 'none'}
    """
    if {"doc_id", "resps", "filter"} <= record.keys():
        return _present(_harness_row(record, path))
    if {"gradingResult", "promptIdx", "testIdx"} <= record.keys():
        return _present(_promptfoo_row(record))
    return None


def _rows(path: str) -> Iterator[Row]:
    with _one_sentence(path):
        if path.lower().endswith(".eval"):
            yield from _archived(path)
            return
        with open_binary(path) as file:
            document = parse_json(file.read(LARGEST + 1), path)
        yield from map(_present, _document_rows(document, path))


def _document_rows(document: Any, path: str) -> Iterable[Row]:
    if isinstance(document, list) and document and all(isinstance(record, dict) for record in document):
        return (row_of(record, path) or flatten(record) for record in document)
    known = document if isinstance(document, dict) else {}
    run = known.get("testRunData", known)
    if isinstance(run, dict) and ("testCases" in run or "conversationalTestCases" in run):
        return _deepeval_rows(run)
    results = known.get("results")
    if isinstance(results, dict) and isinstance(results.get("results"), list):
        return map(_promptfoo_row, _objects(results["results"]))
    if "eval" in known and "samples" in known:
        return (_inspect_row(sample, known["eval"]) for sample in _objects(known["samples"]))
    expected = "a list of objects, or results of promptfoo, Inspect or DeepEval"
    got = f"an object with {', '.join(map(repr, list(known)[:4]))}" if known else f"a {type(document).__name__}"
    raise InputError(path, expected, got[:200], "write CSV, or one JSON object per line in a file that ends in .jsonl")


@contextlib.contextmanager
def _one_sentence(path: str) -> Iterator[None]:
    """Turn errors about a file of an unexpected structure into one sentence."""
    try:
        yield
    except (StructuredError, TooLargeError):
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError) as error:
        raise InputError(path, problem=f"is a damaged archive ({error})", remedy="write or fetch it again") from None
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise InputError(path, problem=problem, remedy="write or fetch the file again") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        reason = str(error).partition("\n")[0][:120]
        problem = f"has another structure than its tool writes ({type(error).__name__}: {reason})"
        raise InputError(path, problem=problem, remedy="convert it to CSV") from None


def _present(row: Row) -> Row:
    """Return a row without missing values, whose values are flat."""
    return {name: value for name, value in flatten(row).items() if value is not None}


def _objects(values: Any) -> list[Row]:
    return [value for value in values or () if isinstance(value, dict)]


def _inner(record: Any, *names: str) -> Any:
    """Return an inner value, or None if a part of the way is missing."""
    for name in names:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def _judged(parts: Iterable[tuple[str, Any, Any]]) -> Row:
    """Return the columns of several judges from their names, verdicts and scores; equal names are numbered."""
    row: Row = {}
    times: Counter[str] = Counter()
    for name, verdict, score in parts:
        times[name] += 1
        own = name if times[name] == 1 else f"{name}-{times[name]}"
        row[f"verdict.{own}"], row[f"score.{own}"] = verdict, score
    return row


def _harness_row(record: Row, path: str) -> Row:
    file = PurePath(path)
    name = _SAMPLES.fullmatch(file.name)
    scores = {metric: record.get(metric) for metric in record.get("metrics") or () if isinstance(metric, str)}
    first = next(iter(scores.values()), None)
    answer = record.get("filtered_resps") or record["resps"]
    while isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    return {
        "id": record["doc_id"],
        "model": file.parent.name or None if name else None,
        "task": name and name[1],
        "verdict": _RIGHT.get(first) if isinstance(first, bool | int | float) else None,
        "score": first,
        **{f"score.{metric}": value for metric, value in scores.items()},
        "prompt": as_text(_inner(record, "arguments", "gen_args_0", "arg_0")),
        "answer": as_text(answer),
        "target": record.get("target"),
        "filter": record["filter"],
    }


def _promptfoo_row(record: Row) -> Row:
    grading, provider = record.get("gradingResult"), record.get("provider")
    parts, person, tool = _objects(_inner(grading, "componentResults")), None, []
    for part in parts:
        if _inner(part, "assertion", "type") == "human":
            person = part.get("pass")
        elif not (_inner(part, "assertion", "metricOnly") or _inner(part, "metadata", "metricOnly")):
            tool.append(part)
    original = _inner(record, "metadata", "manualRating", "original", "success")
    decided, score = record.get("success"), record.get("score")
    if person is not None:  # the file has the person's verdict instead of the tool's
        decided, score = original if original is not None else _all_passed(tool), None
    if record.get("failureReason") == 2:  # an error, which is no verdict
        decided = score = None
    judges = [(_name_of_part(part), _DECIDED.get(part.get("pass")), part.get("score")) for part in tool]
    return {
        "id": record.get("testIdx"),
        "model": (provider.get("label") or provider.get("id")) if isinstance(provider, dict) else provider,
        "template": record.get("promptIdx"),
        "prompt": as_text(_inner(record, "prompt", "raw")),
        "answer": as_text(_inner(record, "response", "output")),
        "verdict": _DECIDED.get(decided),
        "score": score,
        "human": _DECIDED.get(person),
        **(_judged(judges) if len(judges) > 1 else {}),
        "vars": record.get("vars"),
        "error": record.get("error"),
    }


def _name_of_part(part: Row) -> str:
    return str(_inner(part, "assertion", "metric") or _inner(part, "assertion", "type") or "judge")


def _all_passed(parts: list[Row]) -> bool | None:
    return all(part.get("pass") is True for part in parts) if parts else None


def _deepeval_rows(run: Row) -> Iterator[Row]:
    model = _inner(run, "hyperparameters", "model") or run.get("identifier")
    cases = [*_objects(run.get("testCases")), *_objects(run.get("conversationalTestCases"))]
    for i, case in enumerate(cases):
        metrics = _objects(case.get("metricsData"))
        judges = [(str(m.get("name")), _DECIDED.get(m.get("success")), m.get("score")) for m in metrics]
        yield {
            "id": case.get("order", i),
            "name": case.get("name"),
            "model": as_text(model),
            "prompt": as_text(case.get("input", case.get("scenario"))),
            "answer": as_text(case.get("actualOutput", case.get("turns"))),
            "target": as_text(case.get("expectedOutput", case.get("expectedOutcome"))),
            "verdict": _DECIDED.get(case.get("success")),
            "score": judges[0][2] if len(judges) == 1 else None,
            **(_judged(judges) if len(judges) > 1 else {}),
            "metadata": case.get("metadata"),
        }


def _inspect_row(sample: Row, about: Any) -> Row:
    scores = sample.get("scores") if isinstance(sample.get("scores"), dict) else {}
    judges, person = [], None
    for name, score in (scores or {}).items():
        history = _objects(_inner(score, "history"))
        edited = any(edit.get("provenance") for edit in history)
        value = history[0].get("value") if edited else _inner(score, "value")
        if edited and person is None:
            person = _inner(score, "value")
        judges += _inspect_values(str(name), value)
    first = judges[0] if judges else ("", None, None)
    target = sample.get("target")
    return {
        "id": sample.get("id"),
        "epoch": sample.get("epoch"),
        "model": as_text(_inner(about, "model")),
        "task": as_text(_inner(about, "task")),
        "prompt": _said(sample.get("input")),
        "answer": _completion(sample.get("output")),
        "target": target[0] if isinstance(target, list) and len(target) == 1 else as_text(target),
        "verdict": first[1],
        "score": first[2],
        "human": None if isinstance(person, dict | list) else person,
        **(_judged(judges) if len(judges) > 1 else {}),
        "metadata": sample.get("metadata"),
        "error": as_text(_inner(sample, "error", "message")),
    }


def _inspect_values(name: str, value: Any, several: bool = True) -> list[tuple[str, Any, Any]]:
    """Return the verdicts and scores of a scorer, which gives a letter, a truth value, a number or several of them."""
    if isinstance(value, dict) and several:
        return [part for key, inner in value.items() for part in _inspect_values(f"{name}.{key}", inner, several=False)]
    if isinstance(value, bool):
        return [(name, _DECIDED[value], None)]
    return [(name, None, value)] if isinstance(value, int | float) else [(name, as_text(value), None)]


def _said(messages: Any) -> str | None:
    """Return the messages of the user in a conversation, or the text itself."""
    if not isinstance(messages, list):
        return as_text(messages)
    said = [message.get("content") for message in _objects(messages) if message.get("role") == "user"]
    return "\n".join(filter(None, map(as_text, said)))


def _completion(output: Any) -> str | None:
    choices = _objects(_inner(output, "choices"))
    return as_text(_inner(output, "completion") or (_inner(choices[0], "message", "content") if choices else None))


def _archived(path: str) -> Iterator[Row]:
    """Yield the rows of the samples in an archive of Inspect, reading one sample at a time."""
    with open_binary(path) as file, zipfile.ZipFile(file) as archive:
        parts, unpacked = {part.filename: part for part in archive.infolist()}, 0
        samples = [name for name in parts if re.fullmatch(r"samples/[^/]+\.json", name)]
        start = next((parts[name] for name in ("header.json", "_journal/start.json") if name in parts), None)
        if start is None or not samples:
            expected = "an archive of Inspect with header.json and samples"
            raise InputError(path, expected, f"{len(parts):,} other files", "finish the evaluation, or check the file")
        about = _inner(parse_json(_unpack(archive, file, start, path), f"{path}, {start.filename}"), "eval")
        for name in samples:
            text = _unpack(archive, file, parts[name], path)
            unpacked += len(text)
            if unpacked > _MOST_UNPACKED:
                raise TooLargeError(f"{path}: unpacks to more than {_MOST_UNPACKED >> 30} GB, expected less; split it.")
            sample = parse_json(text, f"{path}, {name}")
            if isinstance(sample, dict):
                yield _present(_inspect_row(sample, about))


def _unpack(archive: zipfile.ZipFile, file: IO[bytes], part: zipfile.ZipInfo, path: str) -> bytes:
    """Return the bytes of a part of an archive, which may be compressed by Zstandard, up to one above the limit."""
    if part.flag_bits & 1:
        raise InputError(path, problem="is encrypted", remedy="write it without a password")
    if part.compress_type != _ZSTD:
        with archive.open(part) as opened:
            return opened.read(LARGEST + 1)
    import pyarrow as pa  # as Python reads Zstandard only from 3.14 on

    file.seek(part.header_offset)
    lengths = struct.unpack("<HH", file.read(_HEADER)[-4:])
    file.seek(sum(lengths), os.SEEK_CUR)
    try:
        with pa.CompressedInputStream(pa.BufferReader(file.read(min(part.compress_size, LARGEST))), "zstd") as opened:
            found: bytes = opened.read(LARGEST + 1)
    except (pa.ArrowException, OSError) as error:
        raise InputError(path, problem=f"is a damaged archive ({error})", remedy="write or fetch it again") from None
    return found
