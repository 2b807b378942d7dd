import csv
import importlib.util

import pytest
from click.testing import CliRunner

import histnetq as hq
from benchmarks import peers as peers_module
from benchmarks.compare import compare, is_worse
from benchmarks.peers import Layers, peers
from benchmarks.timing import in_turns, side_by_side
from tests.conftest import labelled


def test_contestants_take_turns_and_medians_count():
    calls, values = [], iter([1.0, 10.0, 5.0, 30.0, 2.0, 20.0])
    found = in_turns({name: lambda name=name: calls.append(name) or next(values) for name in "ab"}, rounds=3)
    assert calls == list("ababab")
    assert found == {"a": 2.0, "b": 20.0}


def test_first_calls_do_not_count():
    calls = []
    seconds = side_by_side({name: lambda name=name: calls.append(name) for name in "ab"}, rounds=2)
    assert calls == list("ababab")
    assert set(seconds) == {"a", "b"}


@pytest.mark.parametrize(
    ("before", "after", "comparison", "worse"),
    [(10, 8.9, "≥", True), (10, 9.1, "≥", False), (1, 1.11, "≤", True), (1, 1.09, "≤", False), (0, 1, "≤", True)],
)
def test_more_than_a_tenth_is_worse(before, after, comparison, worse):
    assert is_worse(before, after, comparison) is worse


def test_two_checkouts_are_compared_by_their_own_benchmarks(tmp_path):
    for name, value in (("old", 10), ("new", 5)):
        (tmp_path / name / "benchmarks").mkdir(parents=True)
        (tmp_path / name / "src").mkdir()
        (tmp_path / name / "src/answer.py").write_text(f"VALUE = {value}\n")
        (tmp_path / name / "benchmarks/one.py").write_text(
            "from answer import VALUE\n\n\ndef run():\n    print('noise')\n"
            "    yield f'speed ({VALUE} ms)', VALUE, '≥', 1\n    yield 'size', VALUE, '≤', 1\n"
        )
    done = CliRunner().invoke(compare, [str(tmp_path / "old"), str(tmp_path / "new"), "one", "--rounds", "2"])
    assert done.exit_code == 1, done.output
    lines = [line.split(maxsplit=4) for line in done.stdout.splitlines()]
    assert lines == [["WORSE", "10", "5", "0.500", "one: speed"], ["ok", "10", "5", "0.500", "one: size"]]


def test_networks_of_quapy_and_ours_learn_from_the_same_bags_and_are_not_repeated(tmp_path, monkeypatch):
    drawn = [hq.APP(20).draw(hq.Bags.from_labels(*labelled(seed=seed)), 8, random_state=0) for seed in range(3)]
    case = peers_module._case(*drawn, Layers((4, 3), 5, (2, 3, 2), (4,), 0.1))
    monkeypatch.setattr(peers_module, "CASES", {"digits": lambda folder: case})
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, find=importlib.util.find_spec: None if name == "geotorch" else find(name),
    )
    done = CliRunner().invoke(peers, ["--minutes", "0", "--output", str(tmp_path / "peers.csv")])
    assert done.exit_code == 0, done.output
    assert "GMNet, QuaPy: left out, as geotorch is not installed; pip install it first." in done.output
    with (tmp_path / "peers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == [m for m in peers_module.METHODS if m != "GMNet, QuaPy"]
    assert all(0 < float(row["ae"]) < 1 and float(row["rae"]) > 0 for row in rows)
    again = CliRunner().invoke(peers, ["--minutes", "0", "--output", str(tmp_path / "peers.csv")])
    assert again.exit_code == 0
    assert "digits" not in again.output


def test_data_that_are_needed_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("HISTNETQ_DATA", raising=False)
    done = CliRunner().invoke(peers, ["--on", "imdb", "--output", str(tmp_path / "peers.csv")])
    assert done.exit_code == 2
    assert "imdb needs --data, the directory of the data sets." in done.output
