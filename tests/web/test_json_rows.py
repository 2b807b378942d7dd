"""JSON rows are decoded in parts; the parts never show."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from histnetq.web import json_rows
from histnetq.web.errors import RefusedError
from histnetq.web.json_rows import rows_as_table
from histnetq.web.limits import TableLimits

LIMITS = TableLimits(1 << 20)
CELLS = st.fixed_dictionaries({
    "a": st.none() | st.floats(-1e6, 1e6), "b": st.sampled_from(["é", "😀😀", "x\n", '"q"', "]", "{", "", "\\"])
})  # fmt: skip
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32")


@given(st.lists(CELLS, min_size=1, max_size=6), st.sampled_from(ENCODINGS), st.booleans(), st.sampled_from([None, 2]))
def test_rows_in_short_parts_are_those_of_json(rows, encoding, escaped, indent):
    body = json.dumps(rows, ensure_ascii=escaped, indent=indent).encode(encoding)
    for window in (16, 64, 1 << 18):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_rows, "_WINDOW", window)
            assert rows_as_table(body, LIMITS).to_pylist() == rows


@pytest.mark.parametrize("window", [16, 1 << 18])
@pytest.mark.parametrize(
    "body",
    [b'[{"a":1},]', b'[{"a":1}{"a":2}]', b'[{"a":1}]x', b"[", b'[{"a":1}', b"nul", b"  ", b'[{"a":1}] ,', b"[]]",
     '[{"é":1},\n {"a":tru}]'.encode(), b"\xff\xfe"],
)  # fmt: skip
def test_errors_have_the_place_that_json_says(body, window, monkeypatch):
    monkeypatch.setattr(json_rows, "_WINDOW", window)
    with pytest.raises(json.JSONDecodeError) as expected:
        json.loads(body)
    with pytest.raises(RefusedError) as refused:
        rows_as_table(body, LIMITS)
    assert str(refused.value) == f"body: cannot be read as JSON ({expected.value}); send a list of objects."


def test_a_lack_of_memory_is_not_taken_for_mixed_values(monkeypatch):
    def lack(cells):
        raise pa.ArrowMemoryError("malloc of size 524288 failed")

    monkeypatch.setattr(json_rows, "_as_array", lack)
    with pytest.raises(MemoryError):
        rows_as_table(b'[{"a": 1}]', LIMITS)


@pytest.mark.parametrize("body", [b"[]", b"[1]", b'{"a": 1}', b"1"])
def test_other_json_is_refused(body):
    with pytest.raises(RefusedError, match="body: expected a list of objects, one for each row, such as"):
        rows_as_table(body, LIMITS)
