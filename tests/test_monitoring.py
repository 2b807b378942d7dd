"""Chunks of time, from rows to a table, a page and a state; what is wrong is told in one sentence."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from histnetq.monitoring.chunks import Clock, Periods, parse_range

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
    with pytest.warns(UserWarning, match="has 2 chunks"):
        assert one_class(watch(model, rows, **told))["n"].tolist() == [50, 100]
    with pytest.warns(UserWarning, match="has 2 chunks"):
        found = one_class(
            watch(model, rows, timezone="Europe/Madrid", **{**told, "reference": "2026-03-29..2026-03-30"})
        )
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
    assert done.output == (
        "4 of 8 chunks beside the reference have an alert.\nWritten to monitor.html, monitor.csv, mix.prom.\n"
    )
    found = pd.read_csv("monitor.csv", parse_dates=["start", "end"])
    pd.testing.assert_frame_equal(found, pd.DataFrame(watch(model, rows)), check_dtype=False)
    page = Path("monitor.html").read_text(encoding="utf-8")
    assert "<b>4 of 8 chunks beside the reference have an alert</b>, the last of them 2026-04-20." in page
    assert page.count("data:image/png") == 3
    assert page.count('<tr class="reference">') == 8
    assert page.count('<td class="alert">') == 8
    exposed = Path("mix.prom").read_text(encoding="utf-8")
    assert re.search(r'^histnetq_share\{class="b"\} 0\.[67]\d*$', exposed, re.M)
    assert 'histnetq_alert{class="a"} 1\n' in exposed
    assert f'histnetq_chunk_start_seconds{{class="a"}} {pd.Timestamp("2026-04-20").timestamp():.0f}\n' in exposed


def test_alerts_end_with_3_if_asked(files):
    assert run(*files, *TYPED, "--csv", "a.csv", "--fail-on-alert").exit_code == 3
    assert run(*files[:12], *TYPED, "--csv", "b.csv", "--fail-on-alert").exit_code == 0


def test_json_for_machines(files):
    facts = json.loads(run(*files, *TYPED, "--csv", "a.csv", "--json").output)
    assert facts == {"chunks": 16, "analysis": 8, "alerts": 4, "different": 0, "written": ["a.csv"]}
    table = json.loads(run(*files, *TYPED, "--json").output)
    assert len(table) == 32
    assert table[0]["chunk"] == "2026-01-05"


def test_a_state_has_only_new_files_read(files, model, rows, monkeypatch):
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
        "--state: state.parquet was made with by none, got region; use the same, or begin another state."
        in other.output
    )
    rows.head(5).drop(columns="y").to_parquet(files[0])
    changed = run(*files, *TYPED, "--state", "state.parquet")
    assert re.search(r"NEW: \S+01-05.parquet has other rows than when it was read; write new rows to", changed.output)
    model.sketch(rows[["x", "z"]]).save("sketch.parquet")
    assert "--state: sketch.parquet is no state that" in run(*files, *TYPED, "--state", "sketch.parquet").output
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
    "numbers for times": (("--time", "x"), "column 'x' holds double, expected times; convert it"),
    "texts for times": (("--time", "region"), "in column 'region', expected a time such as 2026-03-31"),
    "no range": (("--reference", "2026"),
        "--reference: expected a range of times such as 2026-01..2026-06, got '2026'"),
    "half a range": (("--reference", "2026-01.."), "--reference: expected a range of times such as"),
    "no dates": (("--reference", "spring..summer"), "--reference: expected a range of times such as"),
    "a range backwards": (("--reference", "2026-06..2026-01"),
        "--reference: expected a range that ends after it begins"),
    "an empty range": (("--reference", "2019..2020"),
        "--reference: no chunk begins in 2019..2020, those of the rows begin"),
    "a range of one chunk": (("--reference", "2026-01-05..2026-01-05"),
        "--reference: expected at least 2 chunks with rows"),
    "an unknown zone": (("--timezone", "Madrid"),
        "--timezone: expected the name of a zone, such as Europe/Madrid or UTC"),
    "an unknown segment": (("--by", "land"), "has no column 'land', its columns are"),
    "times as segment": (("--by", "ts"), "--by: expected columns beside that of the times, got 'ts'"),
    "a rate above 1": (("--false-alarms", 5), "--false-alarms: expected a number between 0 and 1"),
    "a coverage of 1": (("--coverage", 1), "--coverage: expected a number between 0 and 1"),
    "a negative size": (("--chunk-size", -1), "-1 is not in the range x>=1"),
    "an unknown weight": (("--weight", "kg"), "has no column 'kg', its columns are"),
    "a state of runs": (("--period", None, "--chunk-size", 50, "--state", "s.parquet"),
        "--state: expected chunks by period"),
    "one file for two": (("--csv", "page.html"), "--csv: page.html is named by output, too; name another file."),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told_in_one_sentence(name, files, tmp_path):
    changes, message = BAD[name]
    typed = dict(zip(TYPED[::2], TYPED[1::2], strict=True)) | dict(zip(changes[::2], changes[1::2], strict=True))
    before = sorted(tmp_path.rglob("*"))
    options = [part for pair in typed.items() if pair[1] is not None for part in pair]
    done = run(*files, *options, "-o", "page.html")
    assert done.exit_code == 2, done.output
    assert message in done.output.replace("\n", " ")
    assert "Traceback" not in done.output
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("a gap", None, "row 3 has nothing in column 'ts'; fill it in or drop the row."),
        ("a slip", "2026-13-05", "row 3 has '2026-13-05' in column 'ts', expected a time such as 2026-03-31"),
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


def test_outputs_are_written_together_or_not_at_all(files, tmp_path):
    (tmp_path / "place").mkdir()
    done = run(*files, *TYPED, "--csv", "a.csv", "--state", "s.parquet", "--prometheus", "place")
    assert done.exit_code == 2
    assert "it is a directory" in done.output
    assert not (tmp_path / "a.csv").exists()
    assert not (tmp_path / "s.parquet").exists()
    (tmp_path / "a.csv").write_text("kept")
    assert "--force" in run(*files, *TYPED, "--csv", "a.csv").output
    assert (tmp_path / "a.csv").read_text() == "kept"


def test_a_model_of_a_network_has_to_be_calibrated(files):
    hq.MLPE().fit(pd.DataFrame({"x": [0.0, 1.0], "z": [0.0, 1.0]}), ["a", "b"]).save("model", overwrite=True)
    done = run(*files, *TYPED)
    assert done.exit_code == 2
    assert "MODEL: MLPE is not calibrated, so that nothing tells how far its estimates go by chance" in done.output
