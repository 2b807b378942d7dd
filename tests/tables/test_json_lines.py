"""JSON lines: the same tables as from other files, and one sentence for files that are damaged or made up."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import histnetq as hq
from histnetq.tables import json_values
from histnetq.tables.budget import Budget, TooLargeError, limited_to
from histnetq.tables.table_files import open_table, read_frame


def written(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return str(path)


def read_all(path):
    table = open_table(path, "source")
    return pa.Table.from_batches([batch for _, batch in table.batches(table.columns)]).to_pydict()


def test_bags_are_the_same_as_from_csv(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"tow": np.repeat([7, 8, 9], 20), "length": rng.normal(size=60), "kind": ["cod", "eel"] * 30})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_json(tmp_path / "rows.jsonl", orient="records", lines=True, double_precision=15)
    csv, lines = (hq.read_bags(tmp_path / name, bag="tow", label="kind") for name in ("rows.csv", "rows.jsonl"))
    np.testing.assert_allclose(csv.rows, lines.rows)
    np.testing.assert_array_equal(csv.labels, lines.labels)
    np.testing.assert_array_equal(csv.ids, lines.ids)


def test_values_are_read_as_their_kinds(tmp_path):
    first = {"id": 1, "ok": True, "x": 1, "text": 'a, b\n"c"', "mixed": 1, "judge": {"verdict": "bad", "why": ["x"]}}
    second = {"id": 2, "x": 2.5, "text": "", "mixed": "a", "late": None, "huge": 2**70, "ok": None}
    found = read_all(written(tmp_path / "rows.jsonl", first, "", second))
    assert found["id"] == [1, 2]
    assert found["x"] == [1.0, 2.5]
    assert found["ok"] == [True, None]
    assert found["mixed"] == ["1", "a"]
    assert found["huge"] == [None, "1180591620717411303424"]
    assert found["judge.verdict"] == ["bad", None]
    assert found["judge.why"] == ['["x"]', None]
    assert found["text"] == ['a, b\n"c"', ""]


def test_compressed_lines_and_half_surrogates(tmp_path):
    with gzip.open(tmp_path / "rows.jsonl.gz", "wb") as file:
        file.write(b'{"text": "\\ud800 and \xc3\xa9", "x": NaN}\n{"text": "b", "x": 1e999}')
    found = read_all(str(tmp_path / "rows.jsonl.gz"))
    assert found["text"] == ["? and é", "b"]
    assert found["x"][1] == np.inf


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (['{"a": 1}', '{"a": '], ", line 2: is not JSON (Expecting value, line 1, column 7); write the file again."),
        (['{"a": 1}', DEEP], ", line 2: nests lists or objects too deeply; write the file again."),
        (["1" * 5000], ", line 1: has a whole number of more than 4,300 digits; write the file again."),
        (['{"a": {"b": 1}, "a.b": 2}'], ", line 1: has two values of 'a.b', expected one; rename one."),
        (
            ["[1, 2]"],
            ", line 1: expected an object with names and values, got list; write one object per line, or rename the "
            "file to end in .json if it is one list.",
        ),
        (
            ['{"\\ud800": 1}'],
            ": has a column name with an invalid character (a lone surrogate), '\\ud800'; rename the column.",
        ),
        ([""], ": has no rows; check the file."),
    ],
)  # fmt: skip
def test_damaged_lines_are_one_sentence(tmp_path, lines, told):
    path = written(tmp_path / "rows.jsonl", *lines)
    with pytest.raises(ValueError) as error:
        read_all(path)
    assert str(error.value) == f"{path}{told}"


@pytest.mark.parametrize(
    "line",
    [
        {"promptIdx": 0, "testIdx": 0, "gradingResult": {"pass": True}, "success": {}},
        {"promptIdx": 0, "testIdx": 0, "gradingResult": {"componentResults": 7}},
        {"doc_id": 1, "resps": [["a"]], "filter": "none", "metrics": 5},
    ],
)
def test_lines_that_only_look_like_those_of_a_tool_are_one_sentence(tmp_path, line):
    told = (
        r"^\S+rows\.jsonl, line 1: has another structure than its tool writes \(TypeError: .*\); convert it to CSV\.$"
    )
    with pytest.raises(ValueError, match=told):
        open_table(written(tmp_path / "rows.jsonl", line), "source")


def test_files_that_are_no_text_are_one_sentence(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ValueError) as error:
        open_table(str(path), "source")
    assert str(error.value) == f"{path}, line 1: is not encoded in UTF-8; write the file again."
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"a": 1}\n' * 100)[:-10])
    with pytest.raises(ValueError, match=r"rows.jsonl.gz: cannot be read \(.*\); write or fetch the file again\.$"):
        open_table(str(packed), "source")


def test_memory_is_limited(tmp_path, monkeypatch):
    path = written(tmp_path / "rows.jsonl", *[{"text": "x" * 1000}] * 100)
    with limited_to(Budget(50_000)), pytest.raises(TooLargeError, match="rows of JSON take more"):
        open_table(path, "source")
    path = written(tmp_path / "objects.jsonl", '{"text": [' + "{}," * 1000 + "{}]}")  # takes 100 times its size
    with limited_to(Budget(200_000)), pytest.raises(TooLargeError, match="rows of JSON take more"):
        open_table(path, "source")
    monkeypatch.setattr(json_values, "_MOST_COLUMNS", 3)
    path = written(tmp_path / "wide.jsonl", {f"x{i}": i for i in range(5)})
    with pytest.raises(TooLargeError) as error:
        open_table(path, "source")
    told = "has 5 columns in 1 rows, expected at most 3 columns and 100,000,000 cells; keep those that are needed."
    assert str(error.value) == f"{path}: {told}"
    monkeypatch.setattr("histnetq.tables.json_lines.LARGEST", 1 << 20)
    monkeypatch.setattr(json_values, "LARGEST", 1 << 20)
    path = written(tmp_path / "long.jsonl", {"text": "x" * (1 << 21)})
    with pytest.raises(TooLargeError) as error:
        open_table(path, "source")
    assert str(error.value) == f"{path}, line 1: has more than 1 MB of JSON, expected less; split it."


def test_a_data_frame_has_the_kinds_of_the_file(tmp_path):
    rows = pd.DataFrame(
        {"verdict": [1, 2, 2], "human": [1.0, None, 2.0], "score": [0.5, 1, 0], "text": ["a", None, "NA"]}
    )
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    for name in ("rows.csv", "rows.jsonl"):
        found = read_frame(str(tmp_path / name), "source")
        assert found["verdict"].dtype == np.int64
        pd.testing.assert_frame_equal(found.drop(columns="text"), rows.drop(columns="text"), check_dtype=False)
        assert found["text"].astype(object).where(found["text"].notna(), None).tolist() == ["a", None, "NA"]
    assert list(read_frame(str(tmp_path / "rows.csv"), "source", ["text", "human"])) == ["text", "human"]
    assert read_frame(rows, "source") is rows
