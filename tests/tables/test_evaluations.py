"""Result files of promptfoo, Inspect, DeepEval and lm-evaluation-harness, in small files of their structures."""

from __future__ import annotations

import json
import struct
import zipfile

import pyarrow as pa
import pytest

from histnetq.tables import evaluations
from histnetq.tables.budget import TooLargeError
from histnetq.tables.table_files import open_table


def read_all(*paths):
    table = open_table(list(map(str, paths)), "source")
    return pa.Table.from_batches([batch for _, batch in table.batches(table.columns)]).to_pylist()


def written(path, document):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


RUBRIC = {"pass": True, "score": 0.8, "reason": "fine", "assertion": {"type": "llm-rubric", "metric": "tone"}}
LATENCY = {"pass": False, "score": 0.0, "reason": "slow", "assertion": {"type": "latency"}}
PERSON = {"pass": False, "score": 0, "reason": "Manual result", "assertion": {"type": "human"}}


def promptfoo_result(test, provider, parts, success, score, **more):
    return {
        "testIdx": test, "promptIdx": 0, "provider": {"id": provider, "label": ""}, "success": success, "score": score,
        "prompt": {"raw": f"Question {test}", "label": "Q"}, "vars": {"topic": "fish", "n": test},
        "response": {"output": f"Answer {test}", "tokenUsage": {"total": 3}}, "failureReason": 0, "latencyMs": 12,
        "gradingResult": {"pass": success, "score": score, "reason": "", "componentResults": parts}, **more,
    }  # fmt: skip


def test_promptfoo(tmp_path):
    results = [
        promptfoo_result(0, "openai:a", [RUBRIC], True, 0.8),
        promptfoo_result(0, "openai:b", [RUBRIC, PERSON], False, 0),
        promptfoo_result(1, "openai:a", [RUBRIC, LATENCY], False, 0.4),
        promptfoo_result(1, "openai:b", None, False, 0, failureReason=2, error="timeout", response=None),
    ]
    results[3]["gradingResult"] = None
    document = {"evalId": "eval-1", "results": {"version": 3, "results": results, "stats": {}}, "config": {}}
    rows = read_all(written(tmp_path / "results.json", document))
    assert [row["model"] for row in rows] == ["openai:a", "openai:b"] * 2
    assert [row["id"] for row in rows] == [0, 0, 1, 1]
    # The person overruled the verdict, which is then found from the other parts.
    assert [row["verdict"] for row in rows] == ["pass", "pass", "fail", None]
    assert [row["human"] for row in rows] == [None, "fail", None, None]
    assert [row["score"] for row in rows] == [0.8, None, 0.4, None]
    assert rows[2]["verdict.tone"] == "pass"
    assert rows[2]["verdict.latency"] == "fail"
    assert rows[0]["answer"] == "Answer 0"
    assert rows[0]["vars.topic"] == "fish"
    assert rows[3]["error"] == "timeout"
    lines = tmp_path / "results.jsonl"
    lines.write_text("\n".join(map(json.dumps, results)))
    assert read_all(lines) == rows


def inspect_sample(number, score, **more):
    return {
        "id": f"q{number}", "epoch": 1,
        "input": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Why?"}],
        "target": ["Because"], "output": {"choices": [{"message": {"role": "assistant", "content": "So."}}]},
        "scores": {"grader": score}, "metadata": {"topic": "fish"}, "events": [{"event": "x"}], **more,
    }  # fmt: skip


ABOUT = {"version": 2, "status": "success", "eval": {"model": "openai/a", "task": "fish", "created": "2026-01-01"}}
SAMPLES = [
    inspect_sample(0, {"value": "C", "answer": "So.", "history": []}),
    inspect_sample(1, {"value": "I", "history": [{"value": "C"}, {"value": "I", "provenance": {"author": "Ann"}}]}),
    inspect_sample(2, {"value": {"tone": True, "facts": 0.25}}),
    inspect_sample(3, None, scores=None, error={"message": "refused", "traceback": ""}),
]  # fmt: skip


def check_inspect(rows):
    assert [row["id"] for row in rows] == ["q0", "q1", "q2", "q3"]
    assert [row["verdict"] for row in rows] == ["C", "C", "pass", None]
    assert [row["human"] for row in rows] == [None, "I", None, None]
    assert [row["model"] for row in rows] == ["openai/a"] * 4
    assert rows[2]["verdict.grader.tone"] == "pass"
    assert rows[2]["score.grader.facts"] == 0.25
    assert rows[0]["prompt"] == "Why?"
    assert rows[0]["answer"] == "So."
    assert rows[0]["target"] == "Because"
    assert rows[0]["metadata.topic"] == "fish"
    assert rows[3]["error"] == "refused"


def archived(path, samples=SAMPLES, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("header.json", json.dumps(ABOUT))
        archive.writestr("summaries.json", "[]")
        for sample in samples:
            archive.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample))
    return path


def with_zstd(path):
    """Change an archive of stored files so that all its files are compressed by Zstandard, as Inspect writes them."""
    parts = {}
    with zipfile.ZipFile(archived(path, method=zipfile.ZIP_STORED)) as archive:
        for part in archive.infolist():
            text = archive.read(part)
            parts[part.filename] = pa.compress(text, "zstd", asbytes=True) + pa.compress(b"  ", "zstd", asbytes=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, packed in parts.items():
            archive.writestr(name, packed)
    data = path.read_bytes()
    for mark, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):  # of each file's header, and of the list of files
        place = data.find(mark)
        while place >= 0:
            data = data[: place + at] + struct.pack("<H", 93) + data[place + at + 2 :]
            place = data.find(mark, place + 4)
    path.write_bytes(data)
    return path


def test_inspect(tmp_path):
    check_inspect(read_all(written(tmp_path / "log.json", {**ABOUT, "samples": SAMPLES})))
    check_inspect(read_all(archived(tmp_path / "log.eval")))
    check_inspect(read_all(with_zstd(tmp_path / "zstd.eval")))


def test_deepeval(tmp_path):
    metric = {"name": "Relevancy", "success": True, "score": 0.9, "threshold": 0.5, "evaluationModel": "gpt"}
    case = {
        "name": "test_0",
        "input": "Why?",
        "actualOutput": "So.",
        "success": True,
        "metricsData": [metric],
        "order": 4,
    }
    other = {**metric, "success": False, "score": 0.1}
    talk = {"name": "talk", "scenario": "A guest", "turns": [{"role": "user", "content": "Hi"}], "success": False,
            "metricsData": [metric, other], "metadata": {"topic": "fish"}}  # fmt: skip
    run = {"testCases": [case], "conversationalTestCases": [talk], "hyperparameters": {"model": "a"}}
    for document in (run, {"testRunData": run}):
        first, second = read_all(written(tmp_path / "test_run.json", document))
        known = {
            "id": 4,
            "name": "test_0",
            "model": "a",
            "prompt": "Why?",
            "answer": "So.",
            "verdict": "pass",
            "score": 0.9,
        }
        assert known.items() <= first.items()
        assert second["verdict"] == "fail"
        assert second["answer"] == '[{"role": "user", "content": "Hi"}]'
        assert (second["verdict.Relevancy"], second["verdict.Relevancy-2"]) == ("pass", "fail")
        assert second["metadata.topic"] == "fish"


def test_harness(tmp_path):
    samples = [
        {"doc_id": i, "doc": {"question": "6*7"}, "target": "42",
         "arguments": {"gen_args_0": {"arg_0": "6*7=", "arg_1": {}}}, "resps": [["42!"]],
         "filtered_resps": ["42"], "filter": "strict", "metrics": ["exact_match", "f1"],
         "exact_match": value, "f1": 0.5, "doc_hash": "x"}
        for i, value in enumerate([1.0, 0.0])
    ]  # fmt: skip
    paths = []
    for model in ("a__b", "c__d"):
        paths.append(tmp_path / model / "samples_sums_2026-01-02T03-04-05.678901.jsonl")
        paths[-1].parent.mkdir()
        paths[-1].write_text("\n".join(map(json.dumps, samples)))
    rows = read_all(*paths)
    assert [(row["model"], row["id"], row["verdict"]) for row in rows] == [
        ("a__b", 0, "correct"), ("a__b", 1, "incorrect"), ("c__d", 0, "correct"), ("c__d", 1, "incorrect"),
    ]  # fmt: skip
    assert rows[1] == {
        "id": 1, "model": "a__b", "task": "sums", "verdict": "incorrect", "score": 0.0, "score.exact_match": 0.0,
        "score.f1": 0.5, "prompt": "6*7=", "answer": "42", "target": "42", "filter": "strict",
    }  # fmt: skip


def test_a_list_of_objects_is_read_as_rows(tmp_path):
    assert read_all(written(tmp_path / "rows.json", [{"a": 1}, {"a": 2, "b": {"c": "x"}}])) == [
        {"a": 1, "b.c": None}, {"a": 2, "b.c": "x"},
    ]  # fmt: skip


KINDS = "expected a list of objects, or results of promptfoo, Inspect or DeepEval"
REMEDY = "write CSV, or one JSON object per line in a file that ends in .jsonl"


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"a": 1}, f"{KINDS}, got an object with 'a'; {REMEDY}."),
        ([1, 2], f"{KINDS}, got a list; {REMEDY}."),
        ([], f"{KINDS}, got a list; {REMEDY}."),
        ("text", f"{KINDS}, got a str; {REMEDY}."),
        ({"testCases": [3]}, "has no rows; check the file."),
        (
            {"results": {"results": [{"provider": "a", "gradingResult": {"componentResults": 7}}]}},
            "has another structure than its tool writes (TypeError: 'int' object is not iterable); convert it to CSV.",
        ),
    ],
)  # fmt: skip
def test_other_structures_are_one_sentence(tmp_path, document, told):
    path = written(tmp_path / "file.json", document)
    with pytest.raises(ValueError) as error:
        read_all(path)
    assert str(error.value) == f"{path}: {told}"


def test_hostile_archives(tmp_path, monkeypatch):
    path = tmp_path / "log.eval"
    path.write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(ValueError, match=r"log.eval: is a damaged archive \(.*\); write or fetch it again\.$"):
        read_all(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../etc/passwd", "x")
    with pytest.raises(ValueError) as error:
        read_all(path)
    expected = "expected an archive of Inspect with header.json and samples, got 1 other files"
    assert str(error.value) == f"{path}: {expected}; finish the evaluation, or check the file."
    damaged = bytearray(archived(path).read_bytes())
    damaged[4] = 200  # the version of the archive's format
    damaged[damaged.index(b"PK\x01\x02") + 6] = 200
    path.write_bytes(damaged)
    with pytest.raises(
        ValueError, match=r"log.eval: is a damaged archive \(zip file version 20.0\); write or fetch it"
    ):
        read_all(path)
    monkeypatch.setattr(evaluations, "LARGEST", 1 << 20)
    monkeypatch.setattr("histnetq.tables.json_values.LARGEST", 1 << 20)
    bomb = inspect_sample(0, {"value": "C"}, padding="0" * (1 << 24))
    with pytest.raises(TooLargeError) as error:
        read_all(archived(path, [bomb]))
    assert path.stat().st_size < 1 << 16
    assert str(error.value) == (
        f"{path}, samples/q0_epoch_1.json: has more than 1 MB of JSON, expected less; split it."
    )
    monkeypatch.setattr(evaluations, "_MOST_UNPACKED", 1000)
    with pytest.raises(TooLargeError, match=r"log.eval: unpacks to more than 0 GB, expected less; split it\.$"):
        read_all(archived(path))


def test_hostile_results_are_bounded(tmp_path):
    deep = {}
    for _ in range(600):
        deep = {"a": deep}
    row = read_all(written(tmp_path / "deep.json", {**ABOUT, "samples": [inspect_sample(0, {"value": deep})]}))[0]
    assert row["verdict"].startswith('{"a": {"a"')
    document = {"results": {"results": [promptfoo_result(0, "a", [RUBRIC] * 30_000, True, 1)]}}
    with pytest.raises(TooLargeError, match=r"has 60,009 columns in 1 rows, expected at most 2,000 columns"):
        read_all(written(tmp_path / "wide.json", document))
