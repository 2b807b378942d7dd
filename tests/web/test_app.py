"""The service: the same numbers as the command line, limits, jobs, and an orderly end."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import threading

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from histnetq.persistence.model_files import read_manifest
from histnetq.training.progress import listening
from histnetq.web import jobs as jobs_of_web
from histnetq.web.children import environment
from histnetq.web.errors import RefusedError
from histnetq.web.jobs import Job
from histnetq.web.json_rows import rows_as_table
from histnetq.web.limits import TableLimits
from histnetq.web.model_store import Shelf
from histnetq.web.tables import Tables, clean_name, guess, guess_period, look_at
from histnetq.web.uploads import Spool
from histnetq.workflows.fitting import Workbench
from tests.conftest import exactly
from tests.serving import Served, fish, make_models, serving, until

CSV, PARQUET, JSON = "text/csv", "application/vnd.apache.parquet", "application/json"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("served") / "models")


@pytest.fixture(scope="module")
def server(models):
    with serving(models, "--max-upload", "2", "--workers", "2") as served:
        yield served


def run(*arguments):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def as_body(rows, kind):
    """The body of a request, and the file that it is."""
    if kind == PARQUET:
        return rows.to_parquet(index=False), "rows.parquet"
    return rows.to_csv(index=False).encode(), "rows.csv"


@pytest.mark.parametrize("kind", [CSV, PARQUET])
@pytest.mark.parametrize("name", ["pacc", "emq", "histnetq"])
def test_page_service_and_command_line_give_the_same_bytes(server, models, tmp_path, name, kind):
    content, file = as_body(fish(seed=1).drop(columns="species"), kind)
    (tmp_path / file).write_bytes(content)
    run("predict", models / name, tmp_path / file, "--bag", "tow", "-o", tmp_path / "estimates.csv")
    expected = (tmp_path / "estimates.csv").read_bytes()
    address, headers = f"/v1/models/{name}/predict?bag=tow", {"Content-Type": kind}
    by_service = server.client.post(address, content=content, headers={**headers, "Accept": CSV})
    assert by_service.content == expected
    job = server.wait(
        server.start(kind="estimate", table=server.upload(content, file), model=name, bag=["tow"])
    )  # fmt: skip
    assert server.client.get(f"/v1/jobs/{job['id']}/estimates.csv").content == expected
    records = server.client.post(address, content=content, headers=headers).json()["estimates"]
    pd.testing.assert_frame_equal(pd.DataFrame(records), pd.read_csv(io.BytesIO(expected)), check_exact=True)
    shown = pd.DataFrame(job["result"]["bags"])
    np.testing.assert_array_equal(np.concatenate(shown["estimate"]), pd.read_csv(io.BytesIO(expected))["estimate"])


def test_formulas_are_written_as_they_are_and_told_once(server, models, tmp_path):
    rows = fish(seed=1).drop(columns="species").replace({"tow": {"tow 0": "=cmd|' /C calc'!A0"}})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    run("predict", models / "pacc", tmp_path / "rows.csv", "--bag", "tow", "-o", tmp_path / "estimates.csv")
    expected = (tmp_path / "estimates.csv").read_bytes()
    assert b"\n=cmd|' /C calc'!A0," in expected
    table = server.upload((tmp_path / "rows.csv").read_bytes())
    job = server.wait(server.start(kind="estimate", table=table, model="pacc", bag=["tow"]))
    assert server.client.get(f"/v1/jobs/{job['id']}/estimates.csv").content == expected
    told = "CSV: column 'tow' has \"=cmd|' /C calc'!A0\", which a spreadsheet runs as a formula; "
    assert [message for message in job["messages"] if message.startswith(told)] == job["messages"][-1:]


@pytest.mark.parametrize("name", ["pacc", "histnetq"])
def test_rows_as_json_give_the_same_bytes(server, models, tmp_path, name):
    rows = fish(seed=2).drop(columns=["species", "when"])
    rows.to_parquet(tmp_path / "rows.parquet", index=False)
    run("predict", models / name, tmp_path / "rows.parquet", "--bag", "tow", "-o", tmp_path / "estimates.csv")
    content = json.dumps(rows.to_dict("records"))
    headers = {"Content-Type": JSON, "Accept": CSV}
    answer = server.client.post(f"/v1/models/{name}/predict?bag=tow", content=content, headers=headers)
    assert answer.content == (tmp_path / "estimates.csv").read_bytes()


def test_options_of_the_command_line(server, models, tmp_path):
    rows = fish(seed=3).assign(w=2.0, length=lambda r: r["length"].where(r["depth"] > 1))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    options = {"bag": "tow", "coverage": "0.8", "weight": "w", "missing": "drop"}
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    run("predict", models / "pacc", tmp_path / "rows.csv", *flags, "--wide", "-o", tmp_path / "estimates.csv")
    headers, content = {"Content-Type": CSV, "Accept": CSV}, (tmp_path / "rows.csv").read_bytes()
    answer = server.client.post(
        "/v1/models/pacc/predict", params={**options, "wide": "true"}, content=content, headers=headers
    )
    assert answer.content == (tmp_path / "estimates.csv").read_bytes()
    counts = {**options, "weight_kind": "count", "wide": "true"}
    flags = ["--count-column" if word == "--weight" else word for word in flags]
    run("predict", models / "pacc", tmp_path / "rows.csv", *flags, "--wide", "-o", tmp_path / "counts.csv")
    answer = server.client.post("/v1/models/pacc/predict", params=counts, content=content, headers=headers)
    assert answer.content == (tmp_path / "counts.csv").read_bytes()
    told = server.client.post("/v1/models/pacc/predict", params=options, content=content, headers={"Content-Type": CSV})
    n_dropped = int(rows["length"].isna().sum())
    assert told.json()["messages"] == [f"body.csv: dropped {n_dropped} rows with missing values."]


def test_requests_at_the_same_time_do_not_disturb_each_other(server):
    contents = [as_body(fish(seed=seed).drop(columns="species"), PARQUET)[0] for seed in range(12)]
    addresses = [f"/v1/models/{name}/predict?bag=tow" for name in ("histnetq", "emq", "pacc")] * 4
    headers = {"Content-Type": PARQUET, "Accept": CSV}

    def ask(i):
        return httpx.post(server.address + addresses[i], content=contents[i], headers=headers, timeout=60).content

    alone = [ask(i) for i in range(12)]
    together: dict[int, bytes] = {}
    threads = [threading.Thread(target=lambda i=i: together.update({i: ask(i)})) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[i] for i in range(12)] == alone


def test_times_are_watched_as_by_monitor(server, models, tmp_path):
    fish(seed=4).to_csv(tmp_path / "rows.csv", index=False)
    table = server.upload((tmp_path / "rows.csv").read_bytes())
    asked = {"kind": "estimate", "table": table, "model": "pacc", "bag": ["tow"], "time": "when", "period": "W"}
    job = server.wait(server.start(**asked))
    found = job["result"]["monitoring"]
    assert found["command"].endswith(f"--time when --period W --reference {found['reference']} --csv monitor.csv")
    flags = ["--time", "when", "--period", "W", "--reference", found["reference"]]
    run("monitor", models / "pacc", tmp_path / "rows.csv", *flags, "--csv", tmp_path / "monitor.csv")
    expected = pd.read_csv(tmp_path / "monitor.csv")
    assert server.client.get(f"/v1/jobs/{job['id']}/monitor.csv").content == (tmp_path / "monitor.csv").read_bytes()
    np.testing.assert_array_equal(np.concatenate([c["estimate"] for c in found["chunks"]]), expected["estimate"])
    periods = [chunk["period"] for chunk in found["chunks"]]
    assert periods == ["reference"] * ((len(periods) + 1) // 2) + ["analysis"] * (len(periods) // 2)
    for name in ("report.html", "monitor.html"):
        page = server.client.get(f"/v1/jobs/{job['id']}/{name}")
        assert page.status_code == 200
        assert "attachment" in page.headers["content-disposition"]
        assert str(server.folder) not in page.text
    assert "histnetq report" in server.client.get(f"/v1/jobs/{job['id']}/report.html").text
    misread = server.wait(server.start(**{**asked, "reference": "1990..1991"}))
    assert misread["state"] == "done"
    assert misread["result"]["monitoring"]["error"].startswith("reference: expected chunks in 1990..1991, got none")
    no_time = server.wait(server.start(**{**asked, "time": "length"}))
    assert no_time["result"]["monitoring"]["error"].startswith("time: expected a column that is not a feature")


def test_a_card_tells_what_a_model_is(server):
    cards = server.client.get("/v1/models").json()
    assert [card["name"] for card in cards["models"]] == ["emq", "histnetq", "pacc"]
    assert cards["can_learn"]
    card = server.client.get("/v1/models/pacc").json()
    assert card in cards["models"]
    assert card["method"] == "PACC"
    assert card["classes"] == ["cod", "eel"]
    assert card["columns"] == [{"name": "length", "kind": "number"}, {"name": "depth", "kind": "number"}]
    assert card["intervals"]["calibrated"]
    assert not server.client.get("/v1/models/emq").json()["intervals"]["calibrated"]


def test_an_uploaded_table_is_described(server):
    key = server.upload(fish().to_csv(index=False).encode(), "../My fish (1).csv")
    about = server.client.get(f"/v1/tables/{key}").json()
    assert about["name"] == "My_fish_1_.csv"
    assert about["rows"] == 600
    assert [c["kind"] for c in about["columns"]] == ["text", "number", "number", "time", "text"]
    assert about["guess"] == {"bag": ["tow"], "time": "when", "period": "W", "label": "species"}
    assert len(about["preview"]) == 10
    assert about["preview"][0][0] == "tow 0"
    assert server.client.delete(f"/v1/tables/{key}").status_code == 204
    assert server.client.get(f"/v1/tables/{key}").status_code == 404


def test_columns_are_guessed_by_names_and_values():
    rows = pa.record_batch({"date": ["2026-01-01"] * 4, "haul_no": [1, 1, 2, 2], "y": ["a", "b", "a", "a"]})
    found = guess(rows, {"date": "time", "haul_no": "number", "y": "text"}, 4)
    assert found == {"bag": ["haul_no"], "time": "date", "period": "D", "label": "y"}
    nothing = guess(pa.record_batch({"x": [0.5, 1.5]}), {"x": "number"}, 2)
    assert nothing == {"bag": [], "time": None, "period": None, "label": None}


@pytest.mark.parametrize(
    ("times", "n_rows", "period"),
    [
        (["2026-01", "2026-02", "2026-04"], 3, "M"),
        (["2000-01-01", "2026-06-30"], 2, "Y"),
        (["2026-01-01T10:00", "2026-01-01T10:25"], 2, "min"),
        (["2026-01-01T10:00", "2026-01-02T10:00"], 2, "h"),
        (["2026-01-02", "2026-01-01", "2026-01-03"], 3000, "D"),  # in no order: these are from all times
        (["2026-01-01", "2026-01-02", "2026-01-03"], 3000, "Q"),  # in order: others come later
        ([None, "then"], 2, "W"),
    ],
)
def test_a_period_is_guessed_that_fits_the_times(times, n_rows, period):
    assert guess_period(pa.array(times), n_rows) == period


@pytest.mark.parametrize(("given", "clean"), [("a/../b c.PQ", "b_c.pq"), ("-o.csv", "o.csv"), ("é.txt", "_.txt")])
def test_names_of_files_are_cleaned(given, clean):
    assert clean_name(given) == clean
    with pytest.raises(RefusedError, match=r"^name: expected a file that ends in \.csv"):
        clean_name(given + ".exe")


def test_a_table_that_cannot_be_read_is_refused_and_deleted(server):
    before = sorted(os.listdir(next(server.folder.glob("histnetq-serve-*"))))
    answer = server.client.post("/v1/tables?name=rows.csv", content=b"a,b\n1,2\n1,2,3\n")
    assert answer.status_code == 422
    assert answer.json() == {
        "error": "rows.csv: row 2 has 3 cells, expected 2 as in the line of column names; correct the row."
    }
    assert sorted(os.listdir(next(server.folder.glob("histnetq-serve-*")))) == before


@pytest.mark.parametrize(
    ("status", "address", "content", "headers", "words"),
    [
        (404, "nothing/predict", b"", {"Content-Type": CSV}, "model: there is none of this name"),
        (415, "pacc/predict", b"x", {"Content-Type": "text/plain"}, "Content-Type: expected text/csv"),
        (406, "pacc/predict", b"x", {"Content-Type": CSV, "Accept": "image/png"}, "Accept: expected application/json"),
        (422, "pacc/predict?bag=tow", b"tow\na\n", {"Content-Type": CSV}, "body.csv: has no column 'length'"),
        (422, "pacc/predict", b'[{"tow": "a"}]', {"Content-Type": JSON}, "body.json: has no column 'length'"),
        (422, "pacc/predict?coverage=2", b"tow\na\n", {"Content-Type": CSV}, "coverage: Input should be less than 1"),
        (
            422,
            "emq/predict?interval=conformal",
            b"length,depth\n1,2\n",
            {"Content-Type": CSV},
            "EMQ is not calibrated; leave coverage and interval out",
        ),
        (422, "pacc/predict?bag=a&bag=a", b"", {"Content-Type": CSV}, "bag: Value error, expected every column once"),
        (422, "pacc/predict", b"", {"Content-Type": CSV}, "body.csv: is empty"),
        (422, "pacc/predict", b"PAR1", {"Content-Type": PARQUET}, "body.parquet: is not a complete Parquet file"),
        (400, "pacc/predict", b"{", {"Content-Type": JSON}, "body: cannot be read as JSON"),
        (400, "pacc/predict", b"[[" * 99999, {"Content-Type": JSON}, "body: cannot be read as JSON"),
        (400, "pacc/predict", b'[{"x": NaN}]', {"Content-Type": JSON}, "NaN is not a number of JSON"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(server, status, address, content, headers, words):
    answer = server.client.post(f"/v1/models/{address}", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    assert words in answer.json()["error"]
    assert "/tmp" not in answer.text.replace(str(server.models), "")


def test_rows_of_json_have_one_kind_of_value_in_each_column():
    table = rows_as_table(b'[{"a": 1, "b": "x"}, {"a": 2.5, "c": true}]', TableLimits(1000))
    assert table.to_pylist() == [{"a": 1.0, "b": "x", "c": None}, {"a": 2.5, "b": None, "c": True}]
    for body, words in {
        b'[{"a": [1]}]': "body: 'a' holds a list or an object, expected one value; leave it out.",
        b"[]": 'body: expected a list of objects, one for each row, such as [{"x": 1.5}]; send one.',
    }.items():
        with pytest.raises(RefusedError, match=exactly(words)):
            rows_as_table(body, TableLimits(1000))
    with pytest.raises(RefusedError, match=r"^body: a column has values of different kinds"):
        rows_as_table(b'[{"a": 1}, {"a": "x"}]', TableLimits(1000))
    different = json.dumps([{f"c{i}": 0} for i in range(100)]).encode()
    with pytest.raises(RefusedError, match=r"^table: expected at most 500 cells, got 10,000; send them in parts"):
        rows_as_table(different, TableLimits(1000))


def test_a_large_body_is_refused_while_it_comes(server):
    def parts():
        for _ in range(300):
            yield b"0" * 10_000

    for content in (b"0" * 3_000_000, parts()):
        answer = server.client.post("/v1/tables?name=rows.csv", content=content)
        assert answer.status_code == 413
        expected = "body: expected at most 2,097,152 bytes, got more; send a smaller file."
        assert answer.json() == {"error": expected}
    assert server.client.get("/healthz").json()["status"] == "ok"


def test_what_is_counted(server):
    server.client.post("/v1/models/pacc/predict?bag=tow", content=fish().to_csv(index=False).encode(),
                       headers={"Content-Type": CSV})  # fmt: skip
    server.client.get("/v1/models/../../etc")
    text = server.client.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    asked = 'method="POST",path="/v1/models/{name}/predict"'
    assert float(lines[f'histnetq_requests_total{{{asked},status="200"}}']) >= 1
    assert float(lines[f"histnetq_request_seconds_sum{{{asked}}}"]) > 0
    assert float(lines[f'histnetq_request_seconds_bucket{{le="+Inf",{asked}}}']) >= 1
    assert float(lines['histnetq_rows_total{model="pacc"}']) >= 600
    shares = [float(lines[f'histnetq_estimate{{class="{name}",model="pacc"}}']) for name in ("cod", "eel")]
    assert sum(shares) == pytest.approx(1)
    assert 0 <= float(lines['histnetq_trusted{class="cod",model="pacc"}']) <= 1
    assert float(lines['histnetq_busy{of="predict"}']) == 0
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    counted = ["requests_total", "request_seconds", "rows_total", "bags_total", "estimate", "trusted"]
    measured = ["busy", "jobs", "workers", "workers_ended_total", "memory_bytes"]
    assert names == {f"histnetq_{name}" for name in (*counted, *measured)}


def test_descriptions_need_no_network(server):
    schema = server.client.get("/openapi.json").json()
    assert "/v1/models/{name}/predict" in schema["paths"]
    page = server.client.get("/docs").text
    assert "<code>POST /v1/models/{name}/predict</code>" in page
    assert "http" not in page.replace(server.address, "")


def test_one_request_too_many_is_told_to_come_again_and_the_one_that_runs_is_answered_before_the_end(models):
    served = Served(models, "--workers", "1", "--waiting", "0")
    content = fish().to_csv(index=False).encode()
    asked = {"content": b"length,depth\n1,2\n", "headers": {"Content-Type": CSV}}
    assert served.client.post("/v1/models/pacc/predict", **asked).status_code == 200  # the worker has started
    head = (
        "POST /v1/models/pacc/predict?bag=tow HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: {CSV}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as slow:
        slow.sendall(head.encode() + content[:1000])
        until(lambda: list(served.folder.glob("*/r_*")), bool)
        other = served.client.post("/v1/models/pacc/predict", **asked)
        assert other.status_code == 429
        after = int(other.headers["Retry-After"])
        sentence = f"server: 1 requests are being worked on, which is the most; try again in {after} s."
        assert other.json() == {"error": sentence}
        assert 1 <= after <= 60
        served.process.terminate()
        until(lambda: is_open(served.port), lambda found: not found)
        slow.sendall(content[1000:])
        answer = b"".join(iter(lambda: slow.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["bags"] == 30
    assert served.end() == "Ended.\n"
    assert served.process.returncode == 0
    assert not list(served.folder.glob("histnetq-serve-*"))


def test_of_one_model_alone_nothing_is_learned(models):
    shelf = Shelf(models / "pacc")
    assert [card["name"] for card in shelf.cards()] == ["pacc"]
    with pytest.raises(RefusedError, match=r"^name: one model is served alone; start histnetq serve with a directory"):
        shelf.refuse_name("new")


def test_progress_goes_on_between_two_steps_and_never_falls(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(jobs_of_web.time, "monotonic", lambda: now[0])
    job = Job("learn", tmp_path, "j_1", {})
    job.start("Calibrating")
    job.progress = 0.5
    job.expect(10.0)
    shares = []
    for seconds in (0, 5, 5, 100):
        now[0] += seconds
        shares.append(job.describe()["progress"])
    assert shares == [0.5, 0.75, 0.975, 0.975]
    job.expect(1000.0)
    assert job.describe()["progress"] == 0.975


def is_open(port):
    with socket.socket() as other:
        return other.connect_ex(("127.0.0.1", port)) == 0


def test_the_page_learns_what_the_command_line_learns(server, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = fish(40, seed=5).assign(fish_no=range(800))
    rows.to_csv("rows.csv", index=False)
    table = server.upload(rows.to_csv(index=False).encode())
    asked = {"kind": "learn", "name": "learned", "table": table, "bag": ["tow"], "label": "species", "method": "pacc"}
    asked["ignore"] = ["depth"]
    job = server.wait(server.start(**asked))
    assert job["state"] == "done", job
    line = "histnetq fit rows.csv --bag tow --label species --ignore depth --method pacc -o learned"
    assert job["result"]["command"] == line
    assert job["result"]["model"] == server.client.get("/v1/models/learned").json()
    assert job["result"]["model"]["learned_from"]["command"] == line
    assert [column["name"] for column in job["result"]["model"]["columns"]] == ["length"]
    assert job["result"]["model"]["left_out"]["fish_no"].startswith("a key: ")
    run(*line.split()[1:])
    by_command, by_page = (read_manifest(place / "learned") for place in (tmp_path, models))
    assert by_command["weights_sha256"] == by_page["weights_sha256"]
    assert server.client.post("/v1/jobs", json=asked).json() == {
        "error": "name: learned exists already; choose another."
    }
    assert not list(models.glob(".learning-*"))


def test_room_is_kept_for_tables_that_are_being_received(tmp_path):
    tables = Tables(Spool(tmp_path, "test-"), TableLimits(1000))
    arriving = [tables.begin("a.csv", 1000) for _ in range(4)]
    with pytest.raises(RefusedError, match="tables: those in use take all room; try again later") as full:
        tables.begin("b.csv", 1)
    assert full.value.status == 429
    tables.drop(arriving[0])
    tables.begin("b.csv", 1000)


@pytest.mark.parametrize("last", ["tow 1,1.5,3,2026", 'tow 1,1.5,3,2026-01-01,"' + "y\n" * 1000 + '"\n'])
def test_large_csv_files_are_described_by_their_first_lines(tmp_path, last):
    line = "tow 1,1.5,3,2026-01-01,cod\n"
    rows = line * ((8 << 20) // len(line) - 5)
    path = tmp_path / "rows.csv"
    path.write_text("tow,length,depth,when,species\n" + rows + last + "\n" * 2000)
    about = look_at(path, 300_001, TableLimits(1 << 30))
    assert [column["kind"] for column in about["columns"]] == ["text", "number", "number", "time", "text"]
    assert about["rows"] == 300_000
    assert os.listdir(tmp_path) == ["rows.csv"]


def test_segments_are_watched_as_by_monitor(server, models, tmp_path):
    rows = fish(seed=4).assign(site=lambda found: np.where(np.arange(len(found)) % 3 == 0, "north", "south"))
    late = rows["when"] > "2026-04"
    rows.loc[late & (np.arange(len(rows)) % 2 == 0), "site"] = "new"  # it has no reference
    rows.to_csv(tmp_path / "rows.csv", index=False)
    table = server.upload((tmp_path / "rows.csv").read_bytes())
    asked = {"kind": "estimate", "table": table, "model": "pacc", "bag": ["tow"], "time": "when", "period": "W"}
    job = server.wait(server.start(**asked, reference="2026-01..2026-03", by=["site"]))
    found = job["result"]["monitoring"]
    assert " --by site " in found["command"]
    assert {tuple(chunk["segment"]) for chunk in found["chunks"]} == {("north",), ("south",), ("new",)}
    for chunk in found["chunks"]:
        assert (chunk["reference"] is None) == (chunk["segment"] == ["new"])
    flags = ["--time", "when", "--period", "W", "--reference", "2026-01..2026-03", "--by", "site"]
    run("monitor", models / "pacc", tmp_path / "rows.csv", *flags, "--csv", tmp_path / "monitor.csv")
    assert server.client.get(f"/v1/jobs/{job['id']}/monitor.csv").content == (tmp_path / "monitor.csv").read_bytes()


def test_learning_is_cancelled_without_a_trace(server, models):
    table = server.upload(fish(60).to_csv(index=False).encode())
    asked = {"kind": "learn", "table": table, "bag": ["tow"], "label": "species", "method": "deepsets"}
    job, waiting = (server.start(**asked, name=name) for name in ("first", "second"))
    server.wait(job, "running")
    assert server.job(waiting["id"])["state"] == "queued"
    until(lambda: list(models.glob(".learning-*/work/rows.csv")), bool)
    for one in (waiting, job):
        assert server.client.delete(f"/v1/jobs/{one['id']}").json()["state"] == "cancelled"
    until(lambda: list(models.glob(".learning-*")), lambda found: not found)
    assert [server.job(one["id"])["state"] for one in (job, waiting)] == ["cancelled"] * 2
    assert not {"first", "second"} & set(os.listdir(models))
    assert server.client.delete(f"/v1/jobs/{job['id']}").status_code == 200
    assert server.client.get(f"/v1/jobs/{job['id']}").status_code == 404


def test_learning_that_fails_says_why(server, models):
    table = server.upload(fish().to_csv(index=False).encode())
    job = server.start(kind="learn", name="odd", table=table, bag=["tow"], label="species", method="nonsense")
    found = server.wait(job)
    assert found["state"] == "failed"
    assert found["error"].startswith("method: expected one of 'auto', 'search', 'histnetq'")
    assert not (models / "odd").exists()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"bag": ["haul"]}, "bag: rows.csv has no column 'haul'; name one that it has."),
        ({"label": None}, "label: expected either a label column or a table of proportions; give one of them."),
        ({"name": "../x"}, "name: expected at most 64 letters, digits"),
        ({"name": "a\0b"}, "name: Value error, expected text without NUL and unpaired surrogates"),
        ({"ignore": ["weight"]}, "ignore: rows.csv has no column 'weight'; name one that it has."),
        ({"ignore": ["length", "depth"]}, "ignore: no column of numbers is left to learn from; ignore fewer."),
        ({"method": "a b"}, "method: String should match pattern"),
        ({"extra": 1}, "extra: Extra inputs are not permitted"),
        (
            {"proportions_table": "same", "label": None},
            "proportions_table: expected another table than the table of rows; send it, too.",
        ),
    ],
)
def test_what_cannot_be_learned_is_refused_at_once(server, asked, words):
    table = server.upload(fish().to_csv(index=False).encode())
    job = {"kind": "learn", "name": "new", "table": table, "bag": ["tow"], "label": "species", **asked}
    if job.get("proportions_table"):
        job["proportions_table"] = table
    answer = server.client.post("/v1/jobs", json=job)
    assert answer.status_code == 422
    assert words in answer.json()["error"]


def test_a_kill_leaves_no_half_model_and_the_next_start_is_clean(tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    served = Served(models)
    table = served.upload(fish(60).to_csv(index=False).encode())
    asked = {"kind": "learn", "name": "half", "table": table, "bag": ["tow"], "label": "species"}
    job = served.start(**asked, method="deepsets")
    served.wait(job, "running")
    learner = until(lambda: children(served.process.pid), bool)
    served.kill()
    assert len(list(models.glob(".learning-*"))) == 1
    assert os.listdir(models) == [path.name for path in models.glob(".learning-*")]
    assert list(served.folder.glob("histnetq-serve-*"))
    until(lambda: [pid for pid in learner if os.path.exists(f"/proc/{pid}/exe")], lambda found: not found)
    with serving(models, folder=served.folder) as again:
        assert os.listdir(models) == []
        assert len(list(again.folder.glob("histnetq-serve-*"))) == 1
        assert again.client.get("/v1/models").json()["models"] == []


def children(pid):
    """The processes that this one started and that live."""
    found = []
    for path in os.listdir("/proc"):
        if path.isdigit():
            try:
                with open(f"/proc/{path}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == pid:
                        found.append(int(path))
            except OSError:
                continue
    return found


def test_a_comparison_reports_events(tmp_path):
    bags, events = hq.read_bags(fish(40), bag="tow", label="species"), []
    with listening(events.append):
        Workbench(bags).compare(["cc", "pacc"])
    kinds = [event["kind"] for event in events if event["kind"] != "note"]
    assert kinds == ["methods", "method", "judged", "method", "judged"]
    assert events[0]["names"] == ["CC", "PACC"]
    assert 0 < next(event["error"] for event in events if event["kind"] == "judged") < 1


def test_learning_ends_where_nobody_hears_of_it(tmp_path):
    fish(40).to_csv(tmp_path / "rows.csv", index=False)
    task = {"source": "rows.csv", "method": "cc", "output": "model", "about": {}, "parent": os.getpid()}
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "histnetq.web.learn_process",
         json.dumps({**task, "reading": {"bag": ["tow"], "label": "species"}})],
        cwd=tmp_path, env=environment(), stdout=writing, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(writing)
    assert done.returncode != 0
    assert b"KeyboardInterrupt" in done.stderr
    assert not (tmp_path / "model").exists()


def test_a_chosen_model_keeps_the_errors_that_it_was_chosen_by(tmp_path, monkeypatch):
    from histnetq.workflows import fitting

    monkeypatch.setattr(fitting, "from_labels", lambda *_: [fitting.Candidate("cc"), fitting.Candidate("pacc")])
    fish(40).to_csv(tmp_path / "rows.csv", index=False)
    known = ["--bag", "tow", "--label", "species", "--method", "search"]
    run("fit", tmp_path / "rows.csv", *known, "-o", tmp_path / "model")
    errors = hq.load(tmp_path / "model").provenance_["errors"]
    assert errors["bags"] == 10
    assert set(errors["ae"]) == {"CC", "PACC", "training mean"}
