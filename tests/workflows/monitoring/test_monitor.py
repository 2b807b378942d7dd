"""Chunks of time, from rows to a table, a page and a state; what is wrong is told in one sentence."""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from pyarrow import parquet

import histnetq as hq
from histnetq.cli import main
from histnetq.evaluation.monitor_plots import draw_all, draw_mix
from histnetq.report.monitor_page import page
from histnetq.report.prometheus import expose
from histnetq.workflows.monitoring import state as states
from histnetq.workflows.monitoring.chunks import Clock, Periods, parse_range
from histnetq.workflows.monitoring.monitor import describe_limits

WEEKS = 16
COLUMNS = [
    "chunk", "start", "end", "period", "class", "n", "estimate", "lower", "upper", "reference", "threshold_lower",
    "threshold_upper", "alert", "verdict",
]  # fmt: skip


def make_rows(shares, size=200, seed=0, first="2026-01-05"):
    """Rows of so many weeks, in any order, with these shares of the class b."""
    rng = np.random.default_rng(seed)
    week = np.repeat(np.arange(len(shares)), size)
    y = rng.random(len(week)) < np.asarray(shares)[week]
    times = pd.Timestamp(first) + pd.to_timedelta(week * 7 + rng.random(len(week)) * 6.99, unit="D")
    rows = pd.DataFrame({"x": rng.normal(size=len(week)) + 3 * y, "z": rng.normal(size=len(week)), "ts": times})
    return rows.assign(y=np.where(y, "b", "a"), region=np.where(week % 2 == rng.integers(2, size=len(week)), "n", "s"))


@pytest.fixture(scope="module")
def model():
    rows = make_rows([0.5] * 10, seed=1)
    q = hq.PACC(random_state=0).fit(rows[["x", "z"]], rows["y"])
    other = make_rows([0.5] * 10, seed=2)
    known = hq.Bags.from_labels(other[["x", "z"]], other["y"])
    return q.calibrate(hq.APP(100).draw(known, 60, random_state=0))


@pytest.fixture(scope="module")
def rows():
    return make_rows([0.4] * 12 + [0.7] * (WEEKS - 12))


def watch(model, rows, **options):
    return hq.monitor(model, rows, **{"time": "ts", "period": "W", "reference": "2026-01-01..2026-03-01", **options})


def one_class(table, name="b"):
    return table[table["class"] == name].reset_index(drop=True)


def test_the_weeks_that_moved_are_told(model, rows):
    found = watch(model, rows)
    assert list(found) == COLUMNS
    b = one_class(found)
    assert b["chunk"].tolist()[:2] == ["2026-01-05", "2026-01-12"]
    assert b["n"].tolist() == [200] * WEEKS
    assert b["period"].tolist() == ["reference"] * 8 + ["analysis"] * 8
    assert b["verdict"].tolist() == ["unchanged"] * 12 + ["moved"] * 4
    assert b["alert"].tolist() == [False] * 12 + [True] * 4
    assert (b["end"] - b["start"] == pd.Timedelta(days=7)).all()
    assert ((b["lower"] <= b["estimate"]) & (b["estimate"] <= b["upper"])).all()
    assert (b["threshold_lower"] < b["reference"]).all()
    assert (b["reference"] < b["threshold_upper"]).all()
    estimates = found.pivot(index="chunk", columns="class", values="estimate").sum(axis=1)
    np.testing.assert_allclose(estimates, 1)


def test_rows_come_in_any_order_and_a_week_without_rows_is_left_out(model, rows):
    kept = rows[~rows["ts"].between("2026-03-09", "2026-03-15 23:59:59")]
    found = watch(model, kept)
    pd.testing.assert_frame_equal(found, watch(model, kept.sample(frac=1, random_state=0)))
    assert len(one_class(found)) == WEEKS - 1
    assert "2026-03-09" not in set(found["chunk"])


def test_rows_that_no_mix_explains_are_told(model, rows):
    last = rows["ts"] >= "2026-04-20"
    found = one_class(watch(model, rows.assign(x=rows["x"].where(~last, rows["x"] * 3 - 8))))
    assert found["verdict"].iloc[-1] == "rows look different"
    assert found["verdict"].iloc[:12].tolist() == ["unchanged"] * 12


def test_segments_have_references_of_their_own(model):
    rng = np.random.default_rng(0)
    north, south = make_rows([0.2] * 16, seed=3), make_rows([0.7] * 12 + [0.3] * 4, seed=4)
    rows = pd.concat([north.assign(region="n"), south.assign(region="s")]).sample(frac=1, random_state=rng)
    found = watch(model, rows, by="region")
    assert list(found)[:2] == ["region", "chunk"]
    assert found.segments == ["region"]
    b = one_class(found)
    assert b.groupby("region")["reference"].first().round(1).tolist() == [0.2, 0.7]
    assert b.groupby("region")["alert"].sum().tolist() == [0, 4]
    alone = one_class(watch(model, south))
    pd.testing.assert_series_equal(b.loc[b["region"] == "s", "estimate"].reset_index(drop=True), alone["estimate"])
    assert len(found.plot(region="n").axes) == 3
    with pytest.raises(ValueError, match="segment: expected one, got several; name it by region"):
        found.plot()


def test_a_segment_without_reference_has_no_alerts(model, rows):
    late = rows[rows["ts"] >= "2026-03-10"].assign(region="new")
    with pytest.warns(UserWarning, match="The reference of segment 'new' has 0 chunks"):
        found = watch(model, pd.concat([rows.assign(region="old"), late]), by=["region"])
    new = found[found["region"] == "new"]
    assert set(new["verdict"]) == {"no reference"}
    assert not new["alert"].any()
    assert new["threshold_upper"].isna().all()


def test_chunks_of_so_many_rows_follow_the_times(model, rows):
    found = one_class(watch(model, rows.sample(frac=1, random_state=1), period=None, chunk_size=150))
    assert found["n"].tolist()[:-1] == [150] * (len(found) - 1)
    assert found["chunk"].tolist() == list(range(1, len(found) + 1))
    assert (found["start"].to_numpy()[1:] >= found["end"].to_numpy()[:-1]).all()
    number = one_class(watch(model, rows, period=None, chunk_number=20))
    assert number["n"].tolist() == [160] * 20


def test_days_are_those_of_the_zone(model):
    rows = make_rows([0.5] * 3, size=50)
    utc = pd.to_datetime(["2026-03-28T23:30Z", "2026-03-29T00:30Z", "2026-03-29T22:30Z"] * 50)
    rows["ts"] = utc
    told = {"reference": "2026-03-28..2026-03-29", "period": "D"}
    assert one_class(watch(model, rows, **told))["n"].tolist() == [50, 100]
    found = one_class(watch(model, rows, timezone="Europe/Madrid", **{**told, "reference": "2026-03-29..2026-03-30"}))
    assert found["n"].tolist() == [100, 50]
    assert str(found["start"].iloc[0]) == "2026-03-29 00:00:00+01:00"
    assert str(found["end"].iloc[0]) == "2026-03-30 00:00:00+02:00", "this day has 23 hours"


def test_no_hour_is_lost_or_doubled_when_clocks_change():
    clock = Clock("Europe/Madrid", aware=True)
    times = np.arange("2026-10-24T23:30", "2026-10-25T03:30", 60, dtype="datetime64[m]").astype("datetime64[us]")
    about = Periods("h", clock).describe(np.unique(Periods("h", clock).of(times, 0)))
    assert about["start"].astype(str).str[11:].tolist() == [
        "01:00:00+02:00", "02:00:00+02:00", "02:00:00+01:00", "03:00:00+01:00",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [
        ("min", "2024-02-29 13:14", "2024-02-29 13:15"),
        ("h", "2024-02-29 13:00", "2024-02-29 14:00"),
        ("D", "2024-02-29", "2024-03-01"),
        ("W", "2024-02-26", "2024-03-04"),
        ("M", "2024-02-01", "2024-03-01"),
        ("Q", "2024-01-01", "2024-04-01"),
        ("Y", "2024-01-01", "2025-01-01"),
    ],
)
def test_periods_of_a_leap_day(period, start, end):
    periods = Periods(period, Clock())
    about = periods.describe(periods.of(np.array(["2024-02-29T13:14:15"], "datetime64[us]"), 0))
    assert about.iloc[0, 1:].tolist() == [pd.Timestamp(start), pd.Timestamp(end)]


def test_times_before_1970_are_in_their_week():
    periods = Periods("W", Clock())
    about = periods.describe(periods.of(np.array(["1969-12-28T23:59", "1969-12-29"], "datetime64[us]"), 0))
    assert about["chunk"].tolist() == ["1969-12-22", "1969-12-29"]


def test_a_range_holds_both_of_its_ends():
    assert [str(end) for end in parse_range("2026-01..2026-06")] == [
        "2026-01-01T00:00:00.000000", "2026-07-01T00:00:00.000000",
    ]  # fmt: skip
    assert str(parse_range("2025..2026-01-31")[1]) == "2026-02-01T00:00:00.000000"


@pytest.mark.filterwarnings("ignore:reference. the reference has 8 chunks")
def test_a_model_without_sketches_reads_whole_chunks(rows):
    q = hq.EMNetQ(encoder=(4,), ridge=None, training=hq.Training(epochs=2, bags_per_epoch=8), random_state=0)
    other = make_rows([0.5] * 5, seed=2)
    known = hq.Bags.from_labels(other[["x", "z"]], other["y"])
    q.fit(hq.APP(50).draw(known, 60, random_state=1)).calibrate(hq.APP(50).draw(known, 40, random_state=0))
    found = one_class(watch(q, rows))
    assert found["n"].tolist() == [200] * WEEKS
    np.testing.assert_allclose(found["estimate"].iloc[0], q.predict(rows[rows["ts"] < "2026-01-12"][["x", "z"]])[1])


# The command


@pytest.fixture
def files(model, rows, tmp_path, monkeypatch):
    """A model, and a Parquet file for each week."""
    monkeypatch.chdir(tmp_path)
    model.save("model")
    (tmp_path / "rows").mkdir()
    for week, part in rows.groupby(rows["ts"].dt.to_period("W")):
        part.drop(columns="y").to_parquet(f"rows/{week.start_time:%m-%d}.parquet")
    return sorted(str(path) for path in (tmp_path / "rows").iterdir())


TYPED = ("--time", "ts", "--period", "W", "--reference", "2026-01-01..2026-03-01")


def run(*arguments):
    return CliRunner().invoke(main, ["monitor", "model", *(str(a) for a in arguments)])


def test_from_files_to_a_page_and_a_table(files, model, rows):
    done = run(*files, *TYPED, "-o", "monitor.html", "--csv", "monitor.csv", "--prometheus", "mix.prom")
    assert done.exit_code == 0, done.output
    found = pd.read_csv("monitor.csv", parse_dates=["start", "end"])
    assert done.output == (
        "4 of 8 chunks outside the reference have an alert.\n"
        f"{describe_limits(found)}\nWritten to monitor.html, monitor.csv, mix.prom.\n"
    )
    pd.testing.assert_frame_equal(found, pd.DataFrame(watch(model, rows)), check_dtype=False)
    written = Path("monitor.html").read_text(encoding="utf-8")
    told = "<b>4 of 8 chunks beside the reference have an alert</b>, the last of them "
    told += '<span class="whole">2026-04-20</span>'
    assert told in written
    assert written.count("data:image/png") == 4
    assert written.count('<tr class="reference">') == 8
    assert written.count('<td class="alert">') == 8
    exposed = Path("mix.prom").read_text(encoding="utf-8")
    assert re.search(r'^histnetq_share\{class="b"\} 0\.[67]\d*$', exposed, re.M)
    assert 'histnetq_alert{class="a"} 1.0\n' in exposed
    start = re.search(r'^histnetq_chunk_start_seconds\{class="a"\} (\S+)$', exposed, re.M)
    assert float(start[1]) == pd.Timestamp("2026-04-20").timestamp()


def test_the_expected_accuracy_of_each_chunk(files, model, rows):
    found = watch(model, rows, accuracy=True)
    assert list(found) == [*COLUMNS, "accuracy", "f1"]
    pd.testing.assert_frame_equal(found[COLUMNS], watch(model, rows), check_frame_type=False)
    week = rows["ts"].dt.to_period("W-SUN").dt.start_time.dt.strftime("%Y-%m-%d").to_numpy()
    arrays = [rows.loc[week == name, ["x", "z"]] for name in np.unique(week)]
    expected = model.estimate_performance(hq.Bags.from_arrays(arrays))
    for name in ("accuracy", "f1"):
        np.testing.assert_allclose(one_class(found)[name], expected[name], atol=1e-8)
        np.testing.assert_array_equal(one_class(found, "a")[name], one_class(found)[name])
    right = (rows["x"] > 1.5) == (rows["y"] == "b")
    np.testing.assert_allclose(one_class(found)["accuracy"], right.groupby(week).mean(), atol=0.06)
    done = run(*files, *TYPED, "--accuracy", "-o", "a.html", "--csv", "a.csv", "--prometheus", "a.prom")
    assert done.exit_code == 0, done.output
    written = pd.read_csv("a.csv", parse_dates=["start", "end"])
    pd.testing.assert_frame_equal(written, pd.DataFrame(found), check_dtype=False)
    text, worst = Path("a.html").read_text(encoding="utf-8"), one_class(found).set_index("chunk")["accuracy"]
    assert f"on <b>{worst.min():.1%}</b> of the rows in its worst chunk, {worst.idxmin()}" in text
    assert '<th scope="col">expected accuracy</th>' in text
    assert text.count("data:image/png") == 5
    assert f"histnetq_expected_accuracy {worst.iloc[-1]}\n" in Path("a.prom").read_text(encoding="utf-8")
    assert "expected accuracy" not in page_of(watch(model, rows))
    assert len(found.plot().axes) == 4


def test_segments_have_an_expected_accuracy_of_their_own(model):
    rows = make_rows([0.5] * 8)
    found = watch(model, rows, by="region", accuracy=True)
    north = watch(model, rows[rows["region"] == "n"], accuracy=True)
    np.testing.assert_array_equal(found.loc[found["region"] == "n", "accuracy"], north["accuracy"])
    assert expose(found).count("histnetq_expected_f1{region=") == 2


def test_the_expected_accuracy_needs_a_classifier_and_the_rows(files, model, rows):
    refused = run(*files, *TYPED, "--accuracy", "--state", "kept.parquet", "--csv", "a.csv")
    sentence = "--accuracy: expected the rows of all chunks, got a --state of sketches; leave one of them out."
    assert (refused.exit_code, refused.output.splitlines()[-1]) == (2, f"Error: {sentence}")
    with pytest.raises(
        ValueError, match=r"^accuracy: expected the rows of all chunks, got a state= of sketches; leave"
    ):
        watch(model, rows, accuracy=True, state="kept.parquet")
    known = hq.APP(100).draw(hq.Bags.from_labels(rows[["x", "z"]], rows["y"]), 40, random_state=0)
    network = hq.MLPE().fit(rows[["x", "z"]], rows["y"]).calibrate(known)
    expected = "a model with a confusion matrix, which methods such as EMQ learn from labelled rows, got MLPE"
    with pytest.raises(TypeError, match=f"^accuracy: expected {expected}; use one of them, or leave it out\\.$"):
        watch(network, rows, accuracy=True)


def test_names_of_segments_and_classes_are_quoted_for_prometheus():
    times = pd.to_datetime(["2026-01-05", "2026-01-12", "2026-01-05"])
    values = {"estimate": [0.1, 0.25, 0.5], "reference": 0.5, "threshold_lower": 0.2, "threshold_upper": 0.8}
    names = {"2nd site": ['a"b', 'a"b', "c\\d\ne"], "chunk": ["1", "2", "1"], "class": "cod", "start": times}
    exposed = expose(pd.DataFrame({**names, **values, "alert": False, "n": 10}))
    metrics = {metric.name: metric for metric in text_string_to_metric_families(exposed)}
    shares = {sample.labels["_2nd_site"]: sample.value for sample in metrics["histnetq_share"].samples}
    assert shares == {'a"b': 0.25, "c\\d\ne": 0.5}
    assert len(metrics) == 7


def test_alerts_end_with_3_if_asked(files):
    assert run(*files, *TYPED, "--csv", "a.csv", "--fail-on-alert").exit_code == 3
    assert run(*files[:12], *TYPED, "--csv", "b.csv", "--fail-on-alert").exit_code == 0


def test_json_for_machines(files):
    facts = json.loads(run(*files, *TYPED, "--csv", "a.csv", "--json").output)
    counts = {"chunks": 16, "analysis": 8, "alerts": 4, "different": 0}
    assert facts == {"reference": TYPED[TYPED.index("--reference") + 1], **counts, "written": ["a.csv"]}
    table = json.loads(run(*files, *TYPED, "--json").output)
    assert len(table) == 32
    assert table[0]["chunk"] == "2026-01-05"


def test_known_files_are_not_read_to_compare_their_bytes(files, monkeypatch):
    asked = (*TYPED, "--state", "state.parquet", "--csv", "a.csv", "--force")
    compared = []
    checksum = states._file_checksum
    monkeypatch.setattr(states, "_file_checksum", lambda path: compared.append(path) or checksum(path))
    monkeypatch.setattr(states, "_SETTLED", 10**18)  # as if all files had just changed
    run(*files[:-1], *asked)
    assert "Files read: 0, known before: 15." in run(*files[:-1], *asked).output
    assert compared == files[:-1] * 2
    monkeypatch.setattr(states, "_SETTLED", 0)
    run(*files[:-1], *asked)
    compared.clear()
    assert "Files read: 1, known before: 15." in run(*files, *asked).output
    assert compared == files[-1:]
    about = os.stat(files[3])
    Path(files[3]).write_bytes(b"\0" * about.st_size)
    os.utime(files[3], ns=(about.st_atime_ns, about.st_mtime_ns))
    assert f"{files[3]} has changed since it was read" in run(*files, *asked).output


def test_a_state_has_only_new_files_read(files, model, rows, monkeypatch):
    monkeypatch.setattr(states, "_SETTLED", 10**18)  # the state does not depend on the time of the test
    everything = run(*files, *TYPED, "--csv", "all.csv")
    assert everything.exit_code == 0
    first = run(*files[:-2], *TYPED, "--state", "state.parquet", "--csv", "a.csv")
    assert first.output.splitlines()[1] == "Files read: 14, known before: 0.", first.output
    read = []
    sketch_stream = hq.PACC.sketch_stream

    def count(self, chunks, **options):
        def counted():
            for chunk in chunks:
                read.append(len(chunk.ids))
                yield chunk

        return sketch_stream(self, counted(), **options)

    monkeypatch.setattr(hq.PACC, "sketch_stream", count)
    second = run(*files, *TYPED, "--state", "state.parquet", "--csv", "b.csv")
    assert second.output.splitlines()[1] == "Files read: 2, known before: 14."
    assert sum(read) == 400
    assert Path("b.csv").read_text() == Path("all.csv").read_text()
    kept = Path("state.parquet").read_bytes()
    again = run(*files, *TYPED, "--state", "state.parquet", "--csv", "c.csv")
    assert again.output.splitlines()[1] == "Files read: 0, known before: 16."
    assert sum(read) == 400
    assert Path("c.csv").read_text() == Path("b.csv").read_text()
    assert Path("state.parquet").read_bytes() == kept


def test_a_run_again_changes_nothing(files, monkeypatch):
    monkeypatch.setattr(states, "_SETTLED", 10**18)  # the state does not depend on the time of the test
    outputs = ("state.parquet", "page.html", "table.csv", "mix.prom")
    state, page, table, exposed = outputs
    asked = (*TYPED, "--state", state, "-o", page, "--csv", table, "--prometheus", exposed, "--force")
    assert run(*files, *TYPED, "--csv", "all.csv").exit_code == 0
    assert run(*files[:-1], *asked).exit_code == 0
    second = run(*files, *asked)
    assert "Files read: 1, known before: 15." in second.output
    assert Path(table).read_text() == Path("all.csv").read_text()
    known = {name: Path(name).read_bytes() for name in outputs}
    Path(files[-1]).write_bytes(Path(files[-1]).read_bytes())  # the same rows, at another time
    again = run(*files, *asked)
    assert "Files read: 0, known before: 16." in again.output
    assert {name: Path(name).read_bytes() for name in outputs} == known


@pytest.mark.parametrize("as_another", [False, True])
def test_changed_rows_are_noticed_whatever_the_size_and_time_of_the_file(files, as_another):
    asked = (*TYPED, "--state", "state.parquet", "--csv", "a.csv", "--force")
    assert run(*files, *asked).exit_code == 0
    kept, about = Path("state.parquet").read_bytes(), os.stat(files[0])
    other = Path(files[1]).read_bytes() if as_another else b"\0" * about.st_size
    Path(files[0]).write_bytes(other)
    os.utime(files[0], ns=(about.st_atime_ns, about.st_mtime_ns))
    told = (
        f"Error: NEW: {files[0]} has changed since it was read; write new rows to a new file, or start again with a "
        "new state file.\n"
    )
    found = run(*files, *asked)
    assert (found.exit_code, found.output) == (2, told)
    assert Path("state.parquet").read_bytes() == kept


def test_a_copy_counts_once_and_late_rows_are_added(files, rows):
    run(*files, *TYPED, "--state", "state.parquet", "--csv", "a.csv")
    shutil.copy(files[0], "rows/copy.parquet")
    late = rows.head(30).drop(columns="y").assign(ts=pd.Timestamp("2026-01-06"))
    late.to_parquet("rows/late.parquet")
    done = run(*files, "rows/copy.parquet", "rows/late.parquet", *TYPED, "--state", "state.parquet", "--csv", "b.csv")
    assert done.output.splitlines()[1] == "Files read: 1, known before: 16."
    sizes = pd.read_csv("b.csv").groupby("chunk")["n"].first()
    assert sizes["2026-01-05"] == 230
    assert (sizes.drop("2026-01-05") == 200).all()


def test_a_state_of_other_rows_is_refused(files, rows, model):
    run(*files, *TYPED, "--state", "state.parquet", "--csv", "a.csv")
    kept = Path("state.parquet").read_bytes()
    other = run(*files, *TYPED, "--by", "region", "--state", "state.parquet")
    assert (
        "--state: state.parquet was made with by none, got region; use the same, or start again with a new state file."
        in other.output
    )
    rows.head(5).drop(columns="y").to_parquet(files[0])
    changed = run(*files, *TYPED, "--state", "state.parquet")
    assert re.search(r"NEW: \S+01-05.parquet has changed since it was read; write new rows to", changed.output)
    model.sketch(rows[["x", "z"]]).save("sketch.parquet")
    refused = run(*files, *TYPED, "--state", "sketch.parquet").output
    assert "--state: sketch.parquet was not written by histnetq monitor; name another file.\n" in refused
    hq.CC(random_state=0).fit(rows[["x", "z"]], rows["y"]).save("model", overwrite=True)
    assert (
        "--state: state.parquet was made by another model; use"
        in run(*files, *TYPED, "--state", "state.parquet").output
    )
    assert Path("state.parquet").read_bytes() == kept


BAD = {
    "no chunks": (("--period", None),
        "--period: expected one of period, chunk_size and chunk_number, got none of them"),
    "two kinds of chunks": (("--chunk-size", 9),
        "--period: expected one of period, chunk_size and chunk_number, got period"),
    "an unknown period": (("--period", "fortnight"), "'fortnight' is not one of"),
    "an unknown column": (("--time", "when"), "has no column 'when', its columns are"),
    "a feature for times": (("--time", "x"), "--time: expected a column that is not a feature of the model, got 'x'"),
    "texts for times": (("--time", "region"), "in column 'region', expected a time such as 2026-03-31"),
    "no range": (("--reference", "2026"),
        "expected a range of times such as 2026-01..2026-06, without an offset from UTC, got '2026'; name its first"),
    "half a range": (("--reference", "2026-01.."), "--reference: expected a range of times such as"),
    "no dates": (("--reference", "spring..summer"), "--reference: expected a range of times such as"),
    "a range backwards": (("--reference", "2026-06..2026-01"),
        "--reference: expected a range that ends after it begins"),
    "an empty range": (("--reference", "2019..2020"),
        "--reference: expected chunks in 2019..2020, got none, because the first begins at 2026-01-05"),
    "a range with an offset": (("--reference", "2026-01-01T00:00Z..2026-03-01T00:00Z"),
        "--reference: expected a range of times such as 2026-01..2026-06, without an offset from UTC"),
    "a range of words": (("--reference", "today..now"), "--reference: expected a range of times such as"),
    "a range beyond all years": (("--reference", "1..999999"), "--reference: expected a range of times such as"),
    "chunks larger than the rows": (("--period", None, "--chunk-size", 10**18),
        "--reference: expected chunks in 2026-01-01..2026-03-01, got none"),
    "chunks larger than whole numbers": (("--period", None, "--chunk-size", 10**30),
        "--chunk-size: expected a whole number of at most 9,223,372,036,854,775,807, got 1000"),
    "more chunks than rows": (("--period", None, "--chunk-number", 10**18),
        "--chunk-number: expected at most the 3200 rows, got 1000000000000000000; give fewer."),
    "no chunk": (("--period", None, "--chunk-number", 0), "0 is not in the range x>=1"),
    "no rows of a chunk": (("--period", None, "--chunk-size", 0), "0 is not in the range x>=1"),
    "a feature for segments": (("--by", "x"), "--by: expected a column that is not a feature of the model, got 'x'"),
    "a feature for weights": (("--weight", "z"), "--weight: expected a column that is not a feature of the model"),
    "a zone up the tree": (("--timezone", "../../etc/passwd"), "--timezone: expected the name of a zone"),
    "a directory for a table": (("--csv", "model", "--force", True),
        "--csv: model cannot be written (it is a directory); choose another place."),
    "a state that is a directory": (("--state", "model"), "--state: model was not written by histnetq monitor"),
    "a state that cannot be": (("--state", "model/config.json/s.parquet"), "--state: model/config.json/s.parquet"),
    "rows for a page": (("--prometheus", "rows/01-05.parquet"),
        "--prometheus: rows/01-05.parquet is an input file, which would be replaced; name another output file."),
    "rows for a state": (("--state", "rows/01-05.parquet"),
        "--state: rows/01-05.parquet is an input file, which would be replaced"),
    "rows for a table": (("--csv", "rows/../rows/01-05.parquet", "--force", True),
        "is an input file, which would be replaced"),
    "a model's file for a table": (("--csv", "model/config.json", "--force", True),
        "--csv: model/config.json is in the directory of the model, which must not change; name another output file."),
    "an infinite rate": (("--false-alarms", "nan"), "--false-alarms: expected a number from 0.01 to below 1, got nan"),
    "a rate of nothing": (("--false-alarms", 0), "--false-alarms: expected a number from 0.01 to below 1, got 0.0"),
    "a rate that is too small": (("--false-alarms", 1e-9), "--false-alarms: expected a number from 0.01 to below 1"),
    "a range of one chunk": (("--reference", "2026-01-05..2026-01-05"),
        "--reference: expected at least 2 chunks with rows"),
    "an unknown zone": (("--timezone", "Madrid"),
        "--timezone: expected the name of a zone, such as Europe/Madrid or UTC"),
    "an unknown segment": (("--by", "land"), "has no column 'land', its columns are"),
    "times as segment": (("--by", "ts"), "--by: expected columns other than the time column, got 'ts'"),
    "a rate above 1": (("--false-alarms", 5), "--false-alarms: expected a number from 0.01 to below 1"),
    "a coverage of 1": (("--coverage", 1), "--coverage: expected a number between 0 and 1"),
    "a negative size": (("--chunk-size", -1), "-1 is not in the range x>=1"),
    "an unknown weight": (("--weight", "kg"), "has no column 'kg', its columns are"),
    "a state of runs": (("--period", None, "--chunk-size", 50, "--state", "s.parquet"),
        "--state: expected chunks by period, got chunk_size, with which new rows can move old rows to another chunk; "
        "use period."),
    "one file for two": (("--csv", "new.csv", "--prometheus", "new.csv"),
        "--prometheus: new.csv is also the file of csv; name another file."),
}  # fmt: skip


def contents(place):
    return {path: path.read_bytes() if path.is_file() else None for path in place.rglob("*")}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told_in_one_sentence(name, files, tmp_path):
    changes, message = BAD[name]
    typed = dict(zip(TYPED[::2], TYPED[1::2], strict=True)) | dict(zip(changes[::2], changes[1::2], strict=True))
    before = contents(tmp_path)
    options = [part for pair in typed.items() if pair[1] is not None for part in pair if part is not True]
    done = run(*files, *options, "-o", "page.html")
    assert done.exit_code == 2, done.output
    assert message in done.output.replace("\n", " ")
    assert "Traceback" not in done.output
    assert contents(tmp_path) == before


IN_NANOSECONDS = pytest.mark.skipif(
    int(pd.__version__.split(".")[0]) < 3, reason="pandas before 3 reads no text as a time before 1677 or after 2262."
)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("a gap", None, "row 3 has nothing in column 'ts'; fill it in or drop the row."),
        ("a slip", "2026-13-05", "row 3 has '2026-13-05' in column 'ts', expected a time such as 2026-03-31"),
        pytest.param(
            "a far year",
            "9999-12-31",
            "row 3 has a time of the year 9999 in column 'ts', expected one from 1000 to 8999",
            marks=IN_NANOSECONDS,
        ),
        pytest.param(
            "a year of nothing", "0000-01-01", "row 3 has a time of the year 0 in column 'ts'", marks=IN_NANOSECONDS
        ),
        ("seconds since 1970", "1767879676", "row 3 has '1767879676' in column 'ts', expected a time such as"),
        ("a German date", "31.12.2025", "row 3 has '31.12.2025' in column 'ts', expected a time such as"),
        ("an offset", "2026-01-05T10:00:00+02:00", "column 'ts' has times with an offset from UTC and times without"),
    ],
)
def test_a_bad_time_in_a_csv_file_is_told_by_row(name, value, message, files, rows, tmp_path):
    texts = rows["ts"].dt.strftime("%Y-%m-%d %H:%M:%S")
    rows.assign(ts=texts.where(np.arange(len(rows)) != 2, value)).drop(columns="y").to_csv("rows.csv", index=False)
    done = run("rows.csv", *TYPED, "-o", "page.html")
    assert done.exit_code == 2, done.output
    assert message in done.output
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("name", "times", "message"),
    [
        ("no times", pa.array([None] * 3, pa.timestamp("us")), "row 1 has nothing in column 'ts'; fill it in or drop"),
        ("nothing at all", pa.nulls(3), "row 1 has nothing in column 'ts'"),
        ("one not a time", pa.array([0, 1, None], pa.timestamp("ns")), "row 3 has nothing in column 'ts'"),
        ("before Christ", pa.array([0, 0, -(2**59)], pa.timestamp("us")), "row 3 has a time of the year -16298 in"),
        ("far ahead", pa.array([0, 0, 2**40], pa.timestamp("s")), "row 3 has a time of the year 36812 in column 'ts'"),
        ("far ahead in days", pa.array([0, 0, 10**7], pa.date32()), "row 3 has a time of the year 29349 in column"),
        ("an unknown zone", pa.array([0] * 3, pa.timestamp("us", "Mars/Olympus")),
         "column 'ts' has times of 'Mars/Olympus', expected a known time zone; name one by --timezone."),
        ("hours of a day", pa.array([0] * 3, pa.time64("us")), "column 'ts' holds time64[us], expected times; convert"),
        ("lists", pa.array([[0]] * 3), "column 'ts' holds list<"),
        ("numbers", pa.array([0.5] * 3), "column 'ts' holds double, expected times; convert it with pandas"),
    ],
)  # fmt: skip
def test_a_bad_time_in_a_parquet_file_is_told(name, times, message, files, tmp_path):
    parquet.write_table(pa.table({"x": [0.0] * 3, "z": [0.0] * 3, "ts": times}), "bad.parquet")
    done = run("bad.parquet", *TYPED, "-o", "page.html")
    assert done.exit_code == 2, done.output
    assert message in done.output.replace("\n", " ")
    assert not (tmp_path / "page.html").exists()


def test_the_earliest_and_latest_nanoseconds_are_times():
    ends = np.array(["1677-09-22", "2262-04-11"], "datetime64[ns]")
    found = Clock().read(pa.array(ends), "rows", "ts", 0)
    assert found.astype("datetime64[Y]").astype(str).tolist() == ["1677", "2262"]


def test_segments_are_not_as_many_as_rows(files, rows, tmp_path):
    rows.drop(columns="y").assign(person=np.arange(len(rows))).to_parquet("people.parquet")
    for chunks in (TYPED[2:4], ("--chunk-size", "10")):
        done = run("people.parquet", *TYPED[:2], *chunks, *TYPED[4:], "--by", "person", "--csv", "a.csv")
        assert done.exit_code == 2
        assert "--by: expected at most 1,000 segments, got more from 'person'; name columns with fewer" in done.output
    assert not (tmp_path / "a.csv").exists()


def test_a_column_may_have_the_name_of_ours(files, model, rows):
    found = watch(model, rows.assign(**{"chunk of ts": 1}))
    pd.testing.assert_frame_equal(found, watch(model, rows))


def test_a_zone_that_is_an_offset_is_kept_in_a_state(files, rows):
    rows.drop(columns="y").assign(ts=rows["ts"].dt.tz_localize("+05:30")).to_parquet("rows.parquet")
    for files_read in (1, 0):
        done = run("rows.parquet", *TYPED, "--state", "s.parquet", "--csv", "a.csv", "--force")
        assert f"Files read: {files_read}, known before: {1 - files_read}." in done.output
    assert "2026-01-05 00:00:00+05:30" in Path("a.csv").read_text()


# The state is a file that anybody may have written


@pytest.fixture
def state(files):
    """The bytes of a state of ten weeks; it is in state.parquet."""
    done = run(*files[:10], *TYPED, "--state", "state.parquet", "--csv", "a.csv")
    assert done.exit_code == 0, done.output
    return Path("state.parquet").read_bytes()


def with_about(table, **about):
    known = table.schema.metadata
    changed = {**json.loads(known[b"histnetq.monitor"]), **about}
    return table.replace_schema_metadata({**known, b"histnetq.monitor": json.dumps(changed)})


def with_column(table, name, values):
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))


def with_id(table, name):
    return with_column(table, "id", [name, *table.column("id").to_pylist()[1:]])


NO_STATE = "was not written by histnetq monitor; name another file."
NO_CHUNK = "is damaged, it has impossible chunks; start again with a new state file."
EDITED = {
    "a path for a zone": (lambda t: with_about(t, zone="../../etc/passwd"), NO_STATE),
    "a text for a truth": (lambda t: with_about(t, aware="yes"), NO_STATE),
    "no files": (lambda t: with_about(t, files=None), NO_STATE),
    "a file of no name": (lambda t: with_about(t, files=[{"path": 1}]), NO_STATE),
    "no way to divide": (lambda t: with_about(t, how={}), NO_STATE),
    "a way of its own": (lambda t: with_about(t, how={"time": "ts", "by": [], "run": "me"}), NO_STATE),
    "a list for a way": (lambda t: with_about(t, how=[]), NO_STATE),
    "deep metadata": (
        lambda t: t.replace_schema_metadata({**t.schema.metadata, b"histnetq.monitor": b"[" * 10**5}), NO_STATE),
    "no chunks": (lambda t: t.slice(0, 0), NO_STATE),
    "a chunk of no name": (lambda t: with_id(t, "x"), NO_CHUNK),
    "a chunk in brackets": (lambda t: with_id(t, "[" * 10**5), NO_CHUNK),
    "a week that begins on Friday": (lambda t: with_id(t, "[86400]"), NO_CHUNK),
    "a far week": (lambda t: with_id(t, "[99999999999999999999]"), NO_CHUNK),
    "a segment": (lambda t: with_id(t, '[345600, "north"]'), NO_CHUNK),
    "numbers for names": (lambda t: with_column(t, "id", list(range(10))), NO_CHUNK),
    "the same week twice": (lambda t: with_id(t, t.column("id")[1].as_py()), "is damaged, it has bags of the same id"),
    "rows of no weight": (lambda t: with_column(t, "totals", [0] * 10), NO_CHUNK),
    "fewer rows than none": (lambda t: with_column(t, "n_rows", [-1] * 10), "is damaged, it has a number in 'n_rows'"),
    "no values": (lambda t: t.drop_columns(["values"]), "is damaged, it has no column 'values'"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITED)
def test_a_state_that_was_edited_is_refused(name, state, files, tmp_path):
    edit, message = EDITED[name]
    parquet.write_table(edit(parquet.read_table("state.parquet")), "state.parquet")
    before = contents(tmp_path)
    done = run(*files, *TYPED, "--state", "state.parquet", "--csv", "b.csv")
    assert done.exit_code == 2, done.output
    assert f"--state: state.parquet {message}" in done.output.replace("\n", " ")
    assert contents(tmp_path) == before


def test_a_number_that_rows_may_have_given_is_told_from_the_checksum(state, files):
    table = parquet.read_table("state.parquet")
    parquet.write_table(with_column(table, "n_rows", [201] * 10), "state.parquet")
    done = run(*files, *TYPED, "--state", "state.parquet", "--csv", "b.csv")
    assert done.exit_code == 2
    assert "is damaged, its checksum does not match its contents; start again with a new state file." in done.output


def test_no_byte_of_a_state_leads_astray(state, files, tmp_path):
    rng = np.random.default_rng(0)
    known = Path("a.csv").read_text()
    for place in rng.integers(len(state), size=30).tolist():
        spoilt = bytearray(state)
        spoilt[place] ^= 1 << int(rng.integers(8))
        Path("state.parquet").write_bytes(bytes(spoilt))
        done = run(*files[:10], *TYPED, "--state", "state.parquet", "--csv", "b.csv", "--force")
        assert done.exit_code == 2 or Path("b.csv").read_text() == known, place
    for n in (0, 1, 4, len(state) // 2, len(state) - 1):
        Path("state.parquet").write_bytes(state[:n])
        done = run(*files, *TYPED, "--state", "state.parquet", "--csv", "b.csv", "--force")
        assert done.exit_code == 2
        assert NO_STATE in done.output.replace("\n", " ")


@pytest.mark.parametrize("place", range(3))
def test_an_end_in_the_middle_of_writing_keeps_all_as_it_was_or_goes_on(place, state, files, monkeypatch):
    """The state is replaced first: what was read is in it, and the next run writes the rest."""
    replaced, replace = [], os.replace

    def fails(partial, target):
        if len(replaced) == place:
            raise KeyboardInterrupt
        replaced.append(Path(target).name)
        replace(partial, target)

    arguments = (*files, *TYPED, "--state", "state.parquet", "--csv", "a.csv", "--prometheus", "p", "--force")
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fails)
        assert run(*arguments).exit_code == 130
    assert replaced == ["state.parquet", "p"][:place]
    assert not list(Path().glob(".*"))
    again = run(*arguments)
    assert f"Files read: {6 if place == 0 else 0}, known before: {10 if place == 0 else 16}." in again.output
    together = run(*files, *TYPED, "--csv", "together.csv")
    assert together.exit_code == 0
    assert Path("a.csv").read_text() == Path("together.csv").read_text()


def test_outputs_are_written_together_or_not_at_all(files, tmp_path):
    (tmp_path / "place").mkdir()
    done = run(*files, *TYPED, "--csv", "a.csv", "--state", "s.parquet", "--prometheus", "place")
    assert done.exit_code == 2
    assert "--prometheus: place cannot be written (it is a directory); choose another place." in done.output
    assert not (tmp_path / "a.csv").exists()
    assert not (tmp_path / "s.parquet").exists()
    (tmp_path / "a.csv").write_text("kept")
    assert "--force" in run(*files, *TYPED, "--csv", "a.csv").output
    assert (tmp_path / "a.csv").read_text() == "kept"


def test_a_model_of_a_network_has_to_be_calibrated(files):
    hq.MLPE().fit(pd.DataFrame({"x": [0.0, 1.0], "z": [0.0, 1.0]}), ["a", "b"]).save("model", overwrite=True)
    done = run(*files, *TYPED)
    assert done.exit_code == 2
    assert "MODEL: MLPE is not calibrated, so the random error of its estimates is unknown" in done.output


# The page


def a_table(names, n_chunks=8, segments=("",), chunks=None):
    """What `monitor` gives, made by hand: the last chunk has an alert for the last class."""
    starts = pd.date_range("2026-01-05", periods=n_chunks, freq="7D") if chunks is None else pd.to_datetime(chunks)
    parts = []
    for segment in segments:
        part = pd.DataFrame({"start": np.repeat(starts, len(names)), "class": np.tile(names, n_chunks)})
        part.insert(0, "chunk", part["start"].dt.strftime("%Y-%m-%d"))
        part = part.assign(end=part["start"] + pd.Timedelta(days=7), n=100, estimate=1 / len(names), lower=0.0)
        part = part.assign(upper=1.0, reference=1 / len(names), threshold_lower=0.0, threshold_upper=1.0)
        held = np.arange(len(part)) < 4 * len(names)
        part["alert"] = (np.arange(len(part)) == len(part) - 1) & (segment != "quiet")
        part = part.assign(period=np.where(held, "reference", "analysis"), verdict="unchanged")
        if segment:
            part.insert(0, "region", segment)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def page_of(table):
    told = {"reference": "2026-01..2026-02", "false_alarms": 0.05, "coverage": 0.9, "checked": True}
    return page(table, method="EMQ", **told)


@pytest.fixture
def without_images(monkeypatch):
    """Pages have no images, which take most of the time."""
    monkeypatch.setattr("histnetq.report.monitor_page.image", lambda draw, inches: "")


def test_a_page_with_many_classes_names_all_and_draws_those_with_an_alert_first(without_images):
    names = [f"a rather long name of class {i}" for i in range(40)]
    written = page_of(a_table(names))
    legend = re.search(r'<ul class="legend">(.*?)</ul>', written)[1]
    assert re.findall(r"</span>(.*?)</li>", legend) == names
    assert len(set(re.findall("#[0-9a-f]{6}", legend))) == 40
    panels = re.findall(r'alt="The estimated share of (.*?) over time, with', written)
    assert panels == [names[-1], *names[:29]]


def test_many_names_leave_room_for_the_mix():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax = draw_mix(a_table([f"a rather long name of class {i}" for i in range(40)]), figure.subplots())
        figure.canvas.draw()
    assert ax.get_position().width > 0.6
    assert ax.get_position().height > 0.3


def test_panels_fill_the_figure():
    figure = draw_all(a_table(["a", "b"]))
    figure.canvas.draw()
    heights = [ax.get_position().height for ax in figure.axes]
    assert sum(heights) > 0.5, heights


def test_a_page_with_segments_begins_with_all_of_them(without_images):
    segments = ["quiet", *(f"region {i:02d}" for i in range(31))]
    written = page_of(a_table(["a", "b"], segments=segments))
    told = re.search(r'aria-label="Table of segments">(.*?)</table>', written, re.S)[1]
    assert len(re.findall('<th scope="row"', told)) == 32
    assert len(re.findall("<a href", told)) == 30
    assert re.search(r'<th scope="row" class="name">region quiet</th><td>8</td><td>0</td>', told)
    places = set(re.findall(r'<h2 id="(.*?)"', written))
    assert set(re.findall(r'href="#(.*?)"', told)) == places
    assert "The plots below show the 30 segments with the most alerts; the table of --csv has all segments." in written


def test_a_week_between_weeks_without_rows_is_seen():
    from matplotlib.figure import Figure

    chunks = ["2026-01-05", "2026-01-12", "2026-01-19", "2026-02-16", "2026-03-16", "2026-03-23"]
    ax = draw_mix(a_table(["a", "b"], 6, chunks=chunks), Figure().subplots())
    first = ax.collections[0]
    ends = [path.vertices[:, 0] for path in first.get_paths()]
    assert [round(end.max() - end.min()) for end in ends] == [21, 7, 14], "days"


@pytest.mark.parametrize("name", [r"$\frac$", "_hidden", "<b>", "a" * 300, "", "\N{SNOWMAN}"])
def test_any_name_of_a_class_can_be_drawn(name):
    table = a_table([name, "other"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = page_of(table)
    assert "<b>" not in re.search(r"<h2>.*", written, re.S)[0].replace("<b>unchanged", "").partition("How to read")[0]


def test_a_page_about_a_reference_alone_says_so(files):
    done = run(*files[:8], *TYPED, "-o", "page.html")
    assert done.output.startswith("All chunks are in the reference, so there are no chunks to compare with it.\n")
    assert "All chunks are in the reference, so that there is none" in Path("page.html").read_text(encoding="utf-8")


def test_a_reference_that_hides_large_changes_is_told(model):
    shares = np.r_[0.3, 0.5, 0.35, 0.55, 0.2, 0.5, 0.4, [0.6] * 7]
    message = (
        "reference: the reference has 7 chunks, and their variation is so uncertain that estimates of class 'a' from "
        "{} raise no alert; name a reference of 20 chunks or more, or use shorter chunks."
    )
    with pytest.warns(UserWarning, match="the reference has 7 chunks") as found:
        table = watch(model, make_rows(shares), reference="2026-01-01..2026-02-20")
    late = table[(table["class"] == "a") & (table["period"] == "analysis")].iloc[0]
    ends = f"{late['threshold_lower']:.2f} to {late['threshold_upper']:.2f}"
    assert [str(warning.message) for warning in found] == [message.format(ends)]


def test_limits_of_alerts_are_told_from_the_widest_class():
    table = a_table(["a", "b"]).assign(threshold_lower=0.2, threshold_upper=0.4)
    late, is_b = table["period"] == "analysis", table["class"] == "b"
    table.loc[late & is_b, ["threshold_lower", "threshold_upper"]] = [0.1, 0.95]
    table.loc[table.index[late & ~is_b][0], "threshold_lower"] = 0.15
    table.loc[~late, "threshold_lower"] = 0.0
    assert describe_limits(table) == (
        "A chunk alone raises an alert if the share of a class is outside its limits: b 0.10 to 0.95, a 0.15 to 0.40. "
        "Smaller changes raise an alert only if they last."
    )
    many = a_table([f"class {i}" for i in range(7)]).assign(threshold_lower=0.2, threshold_upper=0.4)
    assert "class 4 0.20 to 0.40, narrower ones for 2 more classes. Smaller" in describe_limits(many)
    assert describe_limits(table.assign(threshold_upper=np.nan)) == ""


def test_a_reference_of_few_chunks_names_what_it_hides(model):
    with pytest.warns(UserWarning, match="the reference has 4 chunks, and .* estimates of class '[ab]' from 0.00 to "):
        watch(model, make_rows([0.3, 0.5, 0.4, 0.5, 0.4, 0.4]), reference="2026-01-01..2026-01-30")
