"""Tables in one pass, by commands and by Dask: the same answers as from bags in memory, wherever the rows stand."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from histnetq.sketches.on_dask import predict_dask, sketch_dask
from histnetq.sketches.sketch import is_sketch
from histnetq.sketches.tables import sketch_table
from tests.conftest import QUANTIFIERS, SMALL, exactly, known_bags, labelled


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, and rows of 12 scattered bags in four Parquet files of three groups of rows each and in a CSV file."""
    folder = tmp_path_factory.mktemp("rows")
    X, y = labelled(2400)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(X.astype(np.float32), columns=["a", "b", "c", "d"])
    rows = rows.assign(site=rng.choice(["n", "s"], 2400), day=rng.integers(1, 7, 2400), w=rng.integers(1, 4, 2400))
    rows.to_csv(folder / "rows.csv", index=False)
    for i in range(4):
        rows[i::4].to_parquet(folder / f"part{i}.parquet", row_group_size=200)
    known = hq.Bags.from_labels(rows[["a", "b", "c", "d"]], y, groups=np.arange(2400) // 60)
    model = QUANTIFIERS["HistNetQ-hard"]().fit(known)
    model.calibrate(known).save(folder / "model")
    hq.EMQ().fit(rows[["a", "b", "c", "d"]], y).save(folder / "emq")
    return folder


@pytest.fixture(scope="module")
def model(place):
    return hq.load(place / "model")


@pytest.fixture(scope="module")
def expected(place, model):
    bags = hq.read_bags(str(place / "*.parquet"), bag=["site", "day"], features=model.feature_names_)
    return bags.ids, model.predict(bags)


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as connected:
        yield connected


def assert_equal(found, expected):
    assert found[0].tolist() == expected[0].tolist()
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize("source", ["*.parquet", "rows.csv"])
@pytest.mark.parametrize("weight", [None, "w"])
def test_a_table_is_sketched_in_one_pass(place, model, source, weight):
    sketch = sketch_table(model, str(place / source), bag=["site", "day"], weight=weight)
    bags = hq.read_bags(str(place / source), bag=["site", "day"], weight=weight, features=model.feature_names_)
    assert_equal((sketch.ids, model.predict(sketch)), (bags.ids, model.predict(bags)))
    np.testing.assert_allclose(sketch.sizes, bags.sizes)
    assert model.trust(sketch)["trust"].tolist() == model.trust(bags)["trust"].tolist()


def test_predict_streams_and_sketches_roll_up(place, model, expected):
    streamed = run("predict", place / "model", place / "part?.parquet", "--bag", "site", "--bag", "day", "--json")
    assert streamed.exit_code == 0, streamed.output
    frame = pd.DataFrame(json.loads(streamed.output))
    assert list(frame) == ["site", "day", "class", "estimate", "lower", "upper", "n", "trust"]
    bags = frame["site"] + "/" + frame["day"].astype(str)
    assert bags[::3].tolist() == sorted(expected[0])
    np.testing.assert_allclose(frame["estimate"], expected[1][np.argsort(expected[0])].ravel(), atol=1e-9)
    for half in ("[01]", "[23]"):
        arguments = ["sketch", place / "model", place / f"part{half}.parquet", "--bag", "site", "--bag", "day"]
        made = run(*arguments, "-o", place / f"half{half[1]}.sketch.parquet", "--force")
        assert made.exit_code == 0, made.output
        assert made.output.startswith("12 bags of 1,200 rows sketched, written to ")
    sketches, parts = place / "half?.sketch.parquet", place / "part?.parquet"
    same = pd.testing.assert_frame_equal
    same(_table(run("predict", place / "model", sketches, "--json")), _table(streamed))
    by_site = run("predict", place / "model", sketches, "--bag", "site", "--json")
    same(_table(by_site), _table(run("predict", place / "model", parts, "--bag", "site", "--json")))
    assert is_sketch(place / "half0.sketch.parquet")
    for path in place.glob("half*"):
        path.unlink()


def _table(answer):
    return pd.DataFrame(json.loads(answer.output))


@pytest.mark.filterwarnings("ignore:.*is a copy of the label")
def test_texts_not_met_in_training_are_counted(tmp_path):
    rows = pd.DataFrame({"tow": ["a", "b"] * 30, "gear": ["net", "line", "line"] * 20, "y": ["p", "q", "q"] * 20})
    bags = hq.read_bags(rows, bag="tow", features=["gear"], label="y")
    model = hq.CC(cv=2).fit(bags)
    sketch = sketch_table(model, pd.DataFrame({"tow": ["a", "a", "b"], "gear": ["net", "pot", "line"]}), bag=["tow"])
    assert sketch.unseen.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.csv", "--bag", "site"], "NEW: nothing.csv does not exist; check the path."),
        (
            ["rows.csv", "a.sketch.parquet", "--bag", "site"],
            "NEW: some files hold sketches and some hold rows; sketch the rows first, by histnetq sketch.",
        ),
        (
            ["a.sketch.parquet", "--interval", "bootstrap"],
            "--interval: the bootstrap draws from the rows, which sketches do not contain; leave it out.",
        ),
        (
            ["a.sketch.parquet", "--bag", "hour"],
            "--bag: 'hour' does not name these bags, which are named by 'site'; name some of these.",
        ),
        (
            ["rows.csv", "--bag", "site", "--dask", "tcp://127.0.0.1:9"],
            "--dask: no scheduler answers at tcp://127.0.0.1:9; start one with dask scheduler, or use 'local'.",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(place, model, monkeypatch, arguments, message):
    monkeypatch.chdir(place)
    monkeypatch.setattr("histnetq.sketches.on_dask._PATIENCE", 1)
    sketch_table(model, "rows.csv", bag=["site"]).save("a.sketch.parquet", overwrite=True)
    refused = run("predict", "model", *arguments)
    (place / "a.sketch.parquet").unlink()
    assert refused.exit_code == 2
    assert refused.output == f"Error: {message}\n"


def test_a_bag_without_weight_is_refused_by_name(place, model):
    rows = pd.read_csv(place / "rows.csv")
    rows.loc[rows["site"] == "n", "w"] = 0
    message = "the rows of bag 'n' all have weight 0, expected at least one that has more; leave out the bag."
    with pytest.raises(ValueError, match=f"{message}$"):
        sketch_table(model, rows, bag=["site"], weight="w")


def test_parts_without_rows_are_left_out(place, model, tmp_path, client):
    rows = pd.read_parquet(place / "part0.parquet")
    for i, some in enumerate([rows[:0], rows, rows[:0]]):
        some.to_csv(tmp_path / f"{i}.csv", index=False)
    found = sketch_dask(model, str(tmp_path / "*.csv"), bag="site", client=client)
    assert found.n_rows.sum() == len(rows)
    (tmp_path / "1.csv").unlink()
    with pytest.raises(ValueError, match=exactly("source: has no rows; check the files.")):
        sketch_dask(model, str(tmp_path / "*.csv"), bag="site", client=client)


def test_parts_differ_in_weights_and_keys(place, model, tmp_path, client):
    """A part without weights is no fault; the names of bags are made when the keys of all parts are known."""
    rows = pd.read_parquet(place / "part0.parquet")[["a", "b", "c", "d", "w"]]
    rows[:99].assign(site="7", day="1", w=0).to_csv(tmp_path / "part0.csv", index=False)
    rows[99:].assign(site="7", day="1").to_csv(tmp_path / "part1.csv", index=False)
    source = str(tmp_path / "*.csv")
    for keys in ["site"], ["site", "day"]:
        found = sketch_dask(model, source, bag=keys, weight="w", client=client)
        expected = sketch_table(model, source, bag=keys, weight="w")
        assert found.ids.tolist() == expected.ids.tolist() == [[7], ["7/1"]][len(keys) - 1]
        np.testing.assert_array_equal(model.predict(found), model.predict(expected))
    rows[99:].assign(site="7", day="x", w=0).to_csv(tmp_path / "part1.csv", index=False)
    with pytest.raises(ValueError, match=r"part0\.csv: the rows of bag '7/1' all have weight 0"):
        sketch_dask(model, source, bag=["site", "day"], weight="w", client=client)
    rows[:99].assign(site="a/b", day="c").to_csv(tmp_path / "part0.csv", index=False)
    rows[99:].assign(site="a", day="b/c").to_csv(tmp_path / "part1.csv", index=False)
    with pytest.raises(ValueError, match=r"\('a/b', 'c'\) and \('a', 'b/c'\) would both be named 'a/b/c'"):
        sketch_dask(model, source, bag=["site", "day"], client=client)


def test_no_place_for_workers(place, model, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("Cluster failed to start: No usable temporary directory found")

    monkeypatch.setattr("distributed.LocalCluster", fail)
    told = run("predict", place / "model", place / "rows.csv", "--bag", "site", "--dask", "local")
    assert told.exit_code == 2
    assert told.output.startswith(
        "Error: --dask: no workers can be started on this machine (Cluster failed to start: No"
    )
    assert told.output.endswith("; leave out --dask, or let TMPDIR name a directory that can be written.\n")
    with pytest.raises(ConnectionError, match="; in a script, put the call under if __name__ == '__main__', which"):
        sketch_dask(model, str(place / "rows.csv"), bag=["site"])


def test_sketches_take_no_weights(place, model, tmp_path):
    sketch_table(model, str(place / "*.parquet"), bag=["site"]).save(tmp_path / "s.parquet")
    told = run("predict", place / "model", tmp_path / "s.parquet", "--weight", "w")
    assert told.exit_code == 2
    assert (
        "--weight, --dask: expected a table of rows, got sketches, which are sums already; leave it out." in told.output
    )


def test_methods_without_exact_sketches_read_all_rows(place):
    bags = hq.read_bags(str(place / "rows.csv"), bag="site", features=["a", "b", "c", "d"])
    found = pd.DataFrame(
        json.loads(run("predict", place / "emq", place / "rows.csv", "--bag", "site", "--json").stdout)
    )
    expected = hq.load(place / "emq").predict(bags)[np.argsort(bags.ids)]
    np.testing.assert_allclose(found["estimate"], expected.ravel(), atol=1e-9)


def test_dask_gives_the_same_answer(place, model, expected, client, monkeypatch):
    monkeypatch.setattr("histnetq.sketches.on_dask._ROWS_PER_PART", 200)
    monkeypatch.setattr("histnetq.sketches.on_dask._PARTITION_BYTES", 2000)
    found = predict_dask(model, str(place / "part?.parquet"), bag=["site", "day"], client=client, progress=True)
    assert_equal(found, expected)
    address = client.scheduler.address
    assert_equal(predict_dask(model, str(place / "part?.parquet"), bag=["site", "day"], client=address), expected)
    weighted = sketch_dask(model, [str(place / "rows.csv")], bag="site", weight="w", client=client)
    np.testing.assert_array_equal(
        weighted.values, sketch_table(model, str(place / "rows.csv"), bag=["site"], weight="w").values
    )


def test_rows_are_shuffled_if_sketches_are_larger(place, model, client, monkeypatch, tmp_path):
    """Most bags have one or two rows in a part, whose sketches are larger."""
    monkeypatch.setattr("histnetq.sketches.on_dask._ROWS_PER_PART", 200)
    monkeypatch.setattr("histnetq.sketches.on_dask._PARTITION_BYTES", 8000)
    rows = pd.read_csv(place / "rows.csv")
    rows["site"] = np.random.default_rng(1).integers(0, 900, len(rows)).astype(np.int16)
    rows.to_parquet(tmp_path / "rows.parquet", row_group_size=200)
    found = predict_dask(model, str(tmp_path / "rows.parquet"), bag="site", client=client)
    bags = hq.read_bags(rows, bag="site", features=model.feature_names_)
    assert_equal(found, (bags.ids, model.predict(bags)))


@pytest.mark.filterwarnings("ignore:.*count as survey weights")
@pytest.mark.parametrize(("weight", "kind"), [(None, "survey"), ("w", "count"), ("w", "survey")])
def test_the_pretrained_quantifier_has_the_same_bits_everywhere(place, client, monkeypatch, weight, kind):
    monkeypatch.setattr("histnetq.sketches.on_dask._ROWS_PER_PART", 200)
    q = hq.Pretrained(cv=2, random_state=0).fit(*labelled(400))
    q.feature_names_, source = ["a", "b", "c", "d"], str(place / "part?.parquet")
    kind = {"weight": weight, "weight_kind": kind}
    bags = hq.read_bags(source, bag="site", features=q.feature_names_, **kind)
    sketch = sketch_table(q, source, bag=["site"], **kind)
    found = sketch.ids, q.predict(sketch)
    there = sketch_dask(q, source, bag="site", client=client, **kind)
    np.testing.assert_array_equal(there.values, sketch.values)
    assert_equal((there.ids, q.predict(there)), found)
    ids, p = predict_dask(q, source, bag="site", client=client, **kind)
    assert ids.tolist() == found[0].tolist()
    np.testing.assert_allclose(p, found[1], rtol=1e-12)  # matrices of fewer bags are rounded otherwise
    if kind["weight_kind"] == "survey" and weight:  # the weights of rows in memory are scaled before they are added
        np.testing.assert_allclose(q.predict(bags), found[1], rtol=1e-12)
    else:
        assert_equal((bags.ids, q.predict(bags)), found)


def _die_once(mark: str) -> None:
    """Kill the worker that this runs on, the first time."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(hq.HistNetQ):
    """A model whose first sketch kills its worker."""

    mark: str

    def _sketch(self, *args, **kwargs):
        _die_once(self.mark)
        return super()._sketch(*args, **kwargs)


def test_a_killed_worker_changes_nothing(place, model, expected, client, tmp_path, monkeypatch):
    monkeypatch.setattr("histnetq.sketches.on_dask._ROWS_PER_PART", 200)
    deadly = hq.load(place / "model")
    deadly.__class__, deadly.mark = Deadly, str(tmp_path / "killed")
    found = predict_dask(deadly, str(place / "part?.parquet"), bag=["site", "day"], client=client)
    assert (tmp_path / "killed").exists()
    assert_equal(found, expected)


def test_a_scheduler_without_workers_is_told(place, model, monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setattr("histnetq.sketches.on_dask._PATIENCE", 0.5)
    with LocalCluster(n_workers=0, processes=False, dashboard_address=None) as empty:
        address = empty.scheduler_address
        message = f"dask: the scheduler at {address} has no workers; start some with dask worker {address}."
        with pytest.raises(ConnectionError, match=exactly(message)):
            predict_dask(model, str(place / "rows.csv"), bag="site", client=address)


def test_frames_are_not_for_other_machines(model):
    message = "source: expected paths of files, got DataFrame; write a file first."
    with pytest.raises(TypeError, match=exactly(message)):
        predict_dask(model, pd.DataFrame({"site": ["a"]}), bag="site", client="local")


def test_streams_leave_torch_its_threads():
    import threading

    import torch

    q = hq.HistNetQ(n_bins=4, **SMALL).fit(known_bags())
    X, _ = labelled(2000)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        q.sketch_stream([hq.Bags(X, ids=["a"])] * 24, n_threads=4)
        seen = [torch.get_num_threads()]
        thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert seen == [2, 2]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("weight", [None, "w"])
def test_every_number_of_a_streamed_table_is_scanned_once(place, monkeypatch, weight):
    counts, isfinite = [], np.isfinite
    model = hq.load(place / "model")

    def count(numbers, *args, **kwargs):
        counts.append(np.size(numbers))
        return isfinite(numbers, *args, **kwargs)

    monkeypatch.setattr(np, "isfinite", count)
    sketch_table(model, str(place / "*.parquet"), bag=["site", "day"], weight=weight)
    assert sum(counts) == 2400 * (4 if weight is None else 5)
    counts.clear()
    rows = [(np.zeros(50, int), np.ones((50, 4), np.float32)), (np.ones(50, int), np.ones((50, 4), np.float32))]
    model.sketch_stream(rows)
    assert sum(counts) == 2 * 50 * 4


def test_bags_between_rows_keep_their_place():
    q = hq.CC(random_state=0).fit(*labelled())
    X, _ = labelled()
    assert q.predict_stream([(["x"], X[:1]), hq.Bags(X[:2], ids=["y"]), (["z"], X[:1])])[0].tolist() == ["x", "y", "z"]
