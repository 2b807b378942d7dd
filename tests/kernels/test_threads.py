import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from histnetq.kernels import compiled, cores, threads
from histnetq.nn import HardHistogram, RBFHistogram, SigmoidHistogram, SoftHistogram
from tests.conftest import hard_unless


@pytest.mark.parametrize("cls", [HardHistogram, RBFHistogram, SigmoidHistogram, SoftHistogram])
def test_threads_do_not_change_the_result(cls):
    generator = torch.Generator().manual_seed(0)
    rows, index = torch.randn((500, 20), generator=generator), torch.randint(500, (4000,), generator=generator)
    upstream = torch.randn((2, 160), generator=generator)

    def run(n_threads):
        torch.set_num_threads(n_threads)
        layer, leaf = cls(20, n_bins=8), rows.clone().requires_grad_()
        out = layer(leaf, torch.tensor([0, 10, 4000]), index=index)
        out.backward(upstream)
        return [out, leaf.grad, *(parameter.grad for parameter in layer.parameters())]

    before = torch.get_num_threads()
    try:
        assert all(torch.equal(a, b) for a, b in zip(run(1), run(2), strict=True))
    finally:
        torch.set_num_threads(before)


def test_one_thread_is_for_a_while_only():
    before = torch.get_num_threads()
    with threads.one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_work_is_cut_evenly_into_no_more_pieces_than_worthwhile(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 10)
    for n_tasks, n_numbers, n_pieces in [(100, 1000, 4), (100, 25, 2), (3, 1000, 3), (100, 0, 1), (0, 0, 1)]:
        pieces = []
        compiled.run_pieces(n_tasks, n_numbers, lambda start, stop, into: into.append((start, stop)), pieces)
        assert len(pieces) == n_pieces
        assert sorted(i for start, stop in pieces for i in range(start, stop)) == list(range(n_tasks))


@pytest.fixture(params=["openmp", "pool"])
def run_threads(request, monkeypatch):
    if request.param == "pool":
        monkeypatch.setattr(threads, "_openmp", lambda: None)
    elif threads._openmp() is None:
        pytest.skip("torch does not bring GNU OpenMP here")
    return threads.run_threads


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_work_runs_once_per_thread(run_threads, n_threads):
    calls = []
    run_threads(lambda: calls.append(threading.get_ident()), n_threads)
    assert len(calls) == n_threads
    assert threading.get_ident() in calls


def test_threads_run_at_the_same_time(run_threads):
    meeting = threading.Barrier(2)
    run_threads(lambda: meeting.wait(timeout=60), 2)
    assert not meeting.broken


@pytest.mark.parametrize("fails_here", [True, False])
def test_errors_in_threads_are_raised(run_threads, fails_here):
    here, calls = threading.get_ident(), []
    meeting = threading.Barrier(2)

    def work():
        meeting.wait(timeout=60)
        calls.append(None)
        if (threading.get_ident() == here) == fails_here:
            raise LookupError("lost")

    with pytest.raises(LookupError, match=r"^lost$"):
        run_threads(work, 2)
    calls.clear()
    run_threads(lambda: calls.append(None), 2)
    assert len(calls) == 2


@pytest.mark.parametrize("n_cores", [1, 2, 5])
@pytest.mark.parametrize("sizes", [[1], [20_000], [1] * 30, [9000, 1, 1, 9000, 1], [100] * 400])
def test_runs_of_bags_cover_each_bag_once(monkeypatch, n_cores, sizes):
    monkeypatch.setattr(cores, "count_cores", lambda: n_cores)
    runs = []
    cores.over_bags(lambda first, last: runs.append((first, last)), np.cumsum([0, *sizes]))
    assert sorted(bag for first, last in runs for bag in range(first, last)) == list(range(len(sizes)))
    assert len(runs) <= 4 * n_cores


def test_cores_are_counted_without_torch():
    code = "import sys, histnetq.kernels.cores as c; sys.exit('torch' in sys.modules or c.count_cores() < 1)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


FORK = """
import os, signal
import torch
from histnetq.nn import HardHistogram
from histnetq.kernels import threads

torch.set_num_threads(2)
rows, offsets = torch.rand(2000, 40), torch.tensor([0, 500, 2000])
layer = HardHistogram(40, n_bins=8, squash=None)
expected = layer(rows, offsets)
child = os.fork()
if child == 0:
    signal.alarm(60)  # a child that waits for threads it does not have ends here
    same = torch.equal(layer(rows, offsets), expected)
    os._exit(7 if same and threads._openmp() is None else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kernels_work_in_a_forked_child():
    environment = {name: value for name, value in os.environ.items() if name != "HISTNETQ_KERNELS"}
    done = subprocess.run([sys.executable, "-c", FORK], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 7, done.stderr


STARTS = ["import histnetq.__main__", "import histnetq.cli, torch", "import histnetq.nn"]
WISHES = [
    ({}, {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "5000"}),
    ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "30000000000"}),
    ({"OMP_WAIT_POLICY": "passive"}, {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}),
    ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
]


# Each takes a process that imports torch: quickly, each start is tried without wishes, and one wish at one start.
@pytest.mark.parametrize(
    ("start", "given", "expected"),
    hard_unless(
        lambda start, given, expected: not given or (start, given) == (STARTS[0], {"GOMP_SPINCOUNT": "7"}),
        [(start, *wish) for start in STARTS for wish in WISHES],
    ),
)
def test_threads_hardly_spin_unless_the_user_wants_it(start, given, expected):
    if threads._openmp() is None:
        pytest.skip("torch does not bring GNU OpenMP here")
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    code = f"import sys; sys.argv = ['histnetq', '--version']\ntry: {start}\nfinally: import torch"
    command, env = [sys.executable, "-c", code], {**kept, **given, "OMP_DISPLAY_ENV": "verbose"}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stderr
    for name, value in expected.items():
        assert f"{name} = '{value}'" in told  # what OpenMP has read
