"""Processes that torchrun starts train one network as one process does, and end with the same one."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

import histnetq as hq
from histnetq.cli import main as command_line
from histnetq.training.processes import Processes
from tests.conftest import QUICK, exactly, known_bags, labelled

EXACT = hq.Training(dropout=0, dtype="float64", device="cpu", patience=99, lr=0.01)


def make(network: type = hq.HistNetQ, *, random_state: int | None = 0, **options) -> hq.Quantifier:
    label_weight, encoder = options.pop("label_weight", 0.0), options.pop("encoder", (6, 5))
    training = dataclasses.replace(EXACT, **options)
    return network(encoder=encoder, head=(7,), training=training, random_state=random_state, label_weight=label_weight)


def bags(n: int) -> dict:
    return {"X": known_bags(n), "validation": known_bags(5, seed=1)}


def rows() -> dict:
    X, y = labelled()
    return {"X": X, "y": y, "bags": known_bags(6)}


# Twenty steps each; with a checkpoint, which has the weights after the last.
SAME = {
    "equal shares": lambda path: make(checkpoint=path, epochs=10, batch_bags=4, bags_per_epoch=8).fit(**bags(8)),
    "three bags for two": lambda path: make(checkpoint=path, epochs=10, batch_bags=3, bags_per_epoch=6).fit(**bags(6)),
    "one bag for two": lambda path: make(checkpoint=path, epochs=10, batch_bags=3, bags_per_epoch=4, clip=0.5).fit(
        **bags(4)
    ),
    "labels": lambda path: make(
        checkpoint=path, epochs=10, batch_bags=5, bags_per_epoch=8, label_weight=0.3, micro_bags=2
    ).fit(**rows()),
    "warm-up": lambda path: make(hq.DeepSets, checkpoint=path, epochs=10, batch_bags=5, bags_per_epoch=8, warmup=5).fit(
        **bags(8)
    ),
    "QuaNet": lambda path: quanet(checkpoint=path, epochs=20, bags_per_epoch=5, validation_bags=3).fit(*labelled()),
    "an encoder of each": lambda path: make(
        checkpoint=path, epochs=20, bags_per_epoch=8, encoder=lambda _: drawn_layer()
    ).fit(**bags(8)),
}


def quanet(**options) -> hq.QuaNet:
    return hq.QuaNet(
        hidden=4, n_steps=9, cv=2, head=(5,), training=dataclasses.replace(EXACT, **options), random_state=0
    )


def drawn_layer() -> nn.Module:
    """With weights that differ between the processes but for the first, and a layer that is never used."""
    layer = nn.Linear(4, 5, dtype=torch.float64)
    layer.unused = nn.Linear(2, 2, dtype=torch.float64)
    torch.manual_seed(int(os.environ.get("RANK", 0)))
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -1, 1)
    return layer


def averaging() -> hq.Quantifier:
    """Dropout, a layer with running averages, and no seed."""
    encoder = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
    return make(random_state=None, epochs=2, bags_per_epoch=8, dropout=0.5, encoder=encoder).fit(known_bags(8))


def stopped() -> hq.Quantifier:
    """By a callback in the second process."""
    second = Processes.started().rank == 1
    return make(epochs=5, bags_per_epoch=4, callbacks=(lambda record: second and record["epoch"] == 2,)).fit(**bags(4))


def checkpointed(directory: Path, epochs: int, **options) -> hq.Quantifier:
    return make(epochs=epochs, bags_per_epoch=4, dropout=0.5, checkpoint=directory, **options).fit(**bags(4))


def killed(directory: Path) -> hq.Quantifier:
    """Once, in the second process; torchrun starts both again."""

    def die(record: dict[str, float]) -> None:
        if record["epoch"] == 2 and Processes.started().rank == 1 and not (directory / "died").exists():
            (directory / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return checkpointed(directory / "killed", 4, callbacks=(die,))


def result(q: hq.Quantifier) -> dict[str, np.ndarray]:
    arrays = {name: tensor.numpy() for name, tensor in q.network_.state_dict().items()}
    return arrays | {name: values for name, values in q.history_.items() if name != "seconds"}


def after_all_steps(fit, path: Path) -> dict[str, np.ndarray]:
    """The network that is kept, and the last weights and averages of gradients."""
    kept = result(fit(path))
    return kept | load_file(path / "checkpoint.safetensors")


def restarted(directory: Path) -> None:
    """What each process does that is started again once."""
    rank = Processes.started().rank
    np.savez(directory / f"killed-{rank}.npz", **result(killed(directory)))
    np.savez(directory / f"whole-{rank}.npz", **result(checkpointed(directory / "whole", 4)))


def main(directory: Path) -> None:
    """What each process does; its networks go to files by the case and its rank."""
    cases = {"averaging": averaging, "stopped": stopped}
    cases["whole"] = lambda: checkpointed(directory / "whole", 4)
    cases["cut"] = lambda: checkpointed(directory / "cut", 2)
    cases["resumed"] = lambda: checkpointed(directory / "cut", 4)
    rank = Processes.started().rank
    for name, fit in SAME.items():
        np.savez(directory / f"{name}-{rank}.npz", **after_all_steps(fit, directory / name))
    for name, fit in cases.items():
        np.savez(directory / f"{name}-{rank}.npz", **result(fit()))
    for what in ({"batch_bags": 3 + rank}, {"epochs": 3 + rank}, {"encoder": (6, 5 + rank)}):
        with pytest.raises(ValueError) as caught:
            make(**what).fit(**bags(4))
        (directory / f"{next(iter(what))}-{rank}.txt").write_text(str(caught.value))
    with pytest.raises(ValueError) as caught:
        make().fit(known_bags(4, seed=rank))
    (directory / f"data-{rank}.txt").write_text(str(caught.value))
    hq.DeepSets.__init__.__kwdefaults__["training"] = QUICK
    options = ["--bag", "tow", "--label", "species", "--method", "deepsets", "--calibration", "0"]
    options += ["--scratch", str(directory)]
    command_line(["fit", str(directory / "rows.csv"), *options, "-o", str(directory / "model")])


def run_two(what: str, directory: Path) -> str:
    """Run a function of this module in two processes, and return what they printed."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    torchrun += ["--max-restarts", "1"]
    command = [*torchrun, "-m", "tests.training.test_processes", what, str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("together")
    X, y = labelled(240)
    table = pd.DataFrame(X, columns=list("wxyz")).assign(tow=np.arange(240) // 12, species=y)
    table.to_csv(directory / "rows.csv", index=False)
    (directory / "stdout.txt").write_text(run_two("main", directory))
    return directory


def ranks(directory: Path, name: str) -> list[dict[str, np.ndarray]]:
    return [dict(np.load(directory / f"{name}-{rank}.npz")) for rank in range(2)]


@pytest.mark.parametrize("name", SAME)
def test_two_processes_equal_one(together, name, tmp_path):
    alone = after_all_steps(SAME[name], tmp_path)
    assert len(alone["epoch"]) >= 10
    for found in ranks(together, name):
        assert found.keys() == alone.keys()
        for key, array in alone.items():
            np.testing.assert_allclose(found[key], array, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", [*SAME, "averaging", "stopped", "resumed"])
def test_both_end_with_the_same_network(together, name):
    first, second = ranks(together, name)
    assert first.keys() == second.keys()
    for key, array in first.items():
        np.testing.assert_array_equal(second[key], array)


def test_a_callback_of_any_process_stops_all(together):
    assert [found["epoch"].tolist() for found in ranks(together, "stopped")] == [[1, 2]] * 2


def same_as_whole(directory: Path, name: str) -> None:
    for whole, resumed in zip(ranks(directory, "whole"), ranks(directory, name), strict=True):
        for key, array in whole.items():
            np.testing.assert_array_equal(resumed[key], array)


def test_a_run_that_goes_on_equals_a_whole_one(together):
    same_as_whole(together, "resumed")
    assert [p.name for p in (together / "cut").iterdir()] == ["checkpoint.safetensors"]


@pytest.mark.hard
def test_a_run_whose_process_is_killed_equals_a_whole_one(tmp_path):
    run_two("restarted", tmp_path)
    assert (tmp_path / "died").exists()
    same_as_whole(tmp_path, "killed")


@pytest.mark.parametrize("name", ["batch_bags", "epochs", "encoder", "data"])
def test_processes_that_differ_are_refused(together, name):
    message = (
        "torchrun: process 1 has different data, parameters or checkpoints than process 0, expected the same "
        "everywhere; set the seed of everything that is drawn at random."
    )
    assert [(together / f"{name}-{rank}.txt").read_text() for rank in range(2)] == [message] * 2


def test_the_command_line_speaks_and_writes_once(together):
    said = "DeepSets learned nothing from 20 bags and 4 features"
    assert (together / "stdout.txt").read_text().count(said) == 1
    assert hq.load(together / "model").predict(labelled()[0]).shape == (3,)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 3, 20])
def test_shares_are_all_and_each_once(n, count):
    shares = [list(range(n))[Processes(rank, count).share(n)] for rank in range(count)]
    assert [i for share in shares for i in share] == list(range(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_processes_that_cannot_be_connected(monkeypatch):
    for name, value in {"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "none"}.items():
        monkeypatch.setenv(name, value)
    message = (
        "torchrun: the processes cannot be connected (invalid literal for int() with base 10: 'none'); check RANK, "
        "WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or unset them to train on one process."
    )
    with pytest.raises(RuntimeError, match=exactly(message)):
        make().fit(**bags(4))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
