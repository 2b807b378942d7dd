from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import histnetq as hq
from histnetq.metrics import ae, kld, rae
from histnetq.nn import MLP, BagNetwork, HardHistogram, Mean
from histnetq.training import loop
from histnetq.training.loop import Run
from histnetq.training.options import TrainingInterrupted
from tests.conftest import QUICK, known_bags, labelled


def network(pooling: type = Mean, dtype: torch.dtype = torch.float64, classify: bool = False) -> BagNetwork:
    torch.manual_seed(0)
    return BagNetwork(MLP(4, (6, 5)), pooling(5), (7,), 3, classify=classify).to(dtype)


def steps(net: BagNetwork, **options) -> dict[str, torch.Tensor]:
    bags = known_bags(16)
    if options.pop("labels", False):
        bags.labels = np.arange(len(bags.rows)) % 4 - 1
    label_weight = options.pop("label_weight", 0.0)
    training = hq.Training(dropout=0, dtype="float64", device="cpu", patience=99, **options)
    Run(net, lambda rng: bags, bags, ae, training, seed=0, label_weight=label_weight).train()
    return net.state_dict()


@pytest.mark.parametrize("pooling", [Mean, HardHistogram])
@pytest.mark.parametrize("labels", [False, True])
def test_accumulated_gradients_equal_the_big_batch(pooling, labels):
    options = {"epochs": 10, "batch_bags": 8, "labels": labels, "label_weight": 0.3 * labels}  # 20 updates
    whole = steps(network(pooling, classify=labels), **options)
    for micro in (1, 3, 8):
        parts = steps(network(pooling, classify=labels), micro_bags=micro, **options)
        for name, tensor in whole.items():
            torch.testing.assert_close(parts[name], tensor, rtol=0, atol=1e-10)


def test_warm_up_trains_the_encoder_through_a_classifier():
    options = {"epochs": 4, "batch_bags": 8, "warmup": 4}
    before, plain = network(classify=True).state_dict(), steps(network(), **options)
    whole = steps(network(classify=True), **options)
    assert not torch.equal(whole["classifier.weight"], before["classifier.weight"])
    assert not torch.equal(whole["encoder.1.weight"], plain["encoder.1.weight"])
    parts = steps(network(classify=True), micro_bags=3, **options)
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=0, atol=1e-10)


def test_ragged_last_batch_counts_every_bag_once():
    whole = steps(network(), epochs=3, batch_bags=16)
    parts = steps(network(), epochs=3, batch_bags=16, micro_bags=5)
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=0, atol=1e-10)


def test_clipping_limits_the_step():
    before = network().state_dict()
    free = steps(network(), epochs=1, batch_bags=16, lr=1.0)
    # AdamW divides by the gradient's size, so a clipped gradient shows only once it falls below its epsilon.
    clipped = steps(network(), epochs=1, batch_bags=16, lr=1.0, clip=1e-12)
    moved = {k: (free[k] - before[k]).abs().max() for k in before}
    held = {k: (clipped[k] - before[k]).abs().max() for k in before}
    assert all(held[k] < 0.01 * moved[k] for k in before)


def test_weight_decay_spares_bins_and_biases():
    net = network(HardHistogram)
    from histnetq.training.loop import _optimizer

    decayed, spared, bins = _optimizer(net, hq.Training(weight_decay=0.1, bin_lr=0.5)).param_groups
    names = {id(p): n for n, p in net.named_parameters()}
    assert sorted(names[id(p)] for p in decayed["params"]) == [
        "encoder.1.weight", "encoder.3.weight", "head.1.weight", "head.3.weight",
    ]  # fmt: skip
    assert sorted(names[id(p)] for p in spared["params"]) == [
        "encoder.1.bias", "encoder.3.bias", "head.1.bias", "head.3.bias",
    ]  # fmt: skip
    assert sorted(names[id(p)] for p in bins["params"]) == ["pooling.centers", "pooling.half_widths"]
    assert [g["weight_decay"] for g in (decayed, spared, bins)] == [0.1, 0.0, 0.0]
    assert [g["pace"] for g in (decayed, spared, bins)] == [1.0, 1.0, 0.5]


def test_bins_stay_or_move_at_their_own_pace():
    def centers(**options):
        return steps(network(HardHistogram), epochs=2, batch_bags=8, **options)["pooling.centers"]

    start = network(HardHistogram).state_dict()["pooling.centers"]
    assert torch.equal(centers(bin_lr=0.0), start)
    slow, fast = ((centers(bin_lr=pace) - start).abs().max() for pace in (0.1, 1.0))
    assert 0 < slow < 0.5 * fast


def scripted(losses: list, started: bool = False, spent: float = 0.0, **options) -> tuple[dict, list[torch.Tensor]]:
    """Train with these validation losses, whatever the network does; the weights after each epoch beside."""
    seen, began = [], []
    net = network()
    values = iter(losses)

    def loss(p_true, p_pred, sizes):
        if p_pred.requires_grad:
            return ae(p_true, p_pred)
        seen.append(net.head[1].weight.detach().clone())
        return torch.as_tensor(np.broadcast_to(next(values), len(p_true)).astype(float))

    def draw(rng):
        began.append(net.head[1].weight.detach().clone())
        return bags

    training = hq.Training(device="cpu", dtype="float64", **options)
    bags = known_bags(8)
    result = Run(net, draw, bags, loss, training, seed=0, started=started, spent=spent).train()
    result.update(final=net.head[1].weight, began=began)
    return result, seen


def test_plateaus_halve_the_rate_and_the_last_one_stops():
    losses = [1.0, 0.5] + [0.6] * 20
    result, seen = scripted(losses, epochs=50, patience=2, lr=0.004, min_lr=0.001)
    assert result["history"]["lr"].tolist() == [0.004] * 4 + [0.002] * 2 + [0.001] * 2
    assert result["best_epoch"] == 2
    assert result["best_loss"] == 0.5
    assert torch.equal(result["final"], seen[1])


def test_improvement_restarts_patience():
    result, _ = scripted([5, 4, 4, 3, 3, 2, 2, 2], epochs=8, patience=2, lr=0.004, min_lr=0.001)
    assert result["history"]["lr"].tolist() == [0.004] * 8
    assert result["best_epoch"] == 6


def test_callbacks_see_records_and_stop():
    seen = []

    def watch(record):
        seen.append(record)
        return record["epoch"] == 3

    result, _ = scripted([3, 2, 1, 0.5, 0.2], epochs=5, callbacks=(watch,))
    assert [r["epoch"] for r in seen] == [1, 2, 3]
    assert set(seen[0]) == {"epoch", "train_loss", "validation_loss", "lr", "seconds"}
    assert len(result["history"]["epoch"]) == 3


def test_interrupt_keeps_the_best_weights_and_says_so():
    def interrupt(record):
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.warns(
        UserWarning, match=r"training interrupted after epoch 3 of 4; the weights of the best epoch \(2\) are kept"
    ):
        result, seen = scripted([3, 1, 2, 0], epochs=4, callbacks=(interrupt,))
    assert torch.equal(result["final"], seen[1])
    assert result["interrupted"] == "after epoch 3 of 4"
    assert scripted([3, 1], epochs=2)[0]["interrupted"] == ""


def test_interrupt_in_the_first_epoch_is_passed_on():
    def loss(p_true, p_pred, sizes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Run(network(), lambda rng: known_bags(8), known_bags(8), loss, QUICK, seed=0).train()


def test_divergence_is_an_error():
    with pytest.raises(FloatingPointError, match=r"training: the loss is not finite in epoch 1 .*lower training__lr"):
        scripted([float("nan")], epochs=2)


def test_validation_bags_stay_the_same():
    X, y = labelled()
    drawn = []

    class Counting(hq.APP):
        def draw(self, source, n_bags, random_state=None):
            bags = super().draw(source, n_bags, random_state)
            drawn.append(set(bags.index.tolist()))
            return bags

    training = dataclasses.replace(QUICK, epochs=3)
    hq.HistNetQ(n_bins=4, encoder=(4,), head=(4,), sampler=Counting(20), training=training, random_state=0).fit(X, y)
    validation, *epochs = drawn
    assert len(epochs) == 3, "one draw per epoch, and one in all for validation"
    assert all(not validation & rows for rows in epochs), "rows for validation are never trained on"


def test_kept_weights_are_a_running_mean():
    def weights(**changes):
        training = dataclasses.replace(QUICK, epochs=1, bags_per_epoch=4, batch_bags=4, **changes)
        return hq.DeepSets(encoder=(3,), training=training, random_state=0).fit(known_bags()).network_.state_dict()

    first, last, mean = weights(lr=1e-30), weights(), weights(average=100)
    moved = {name for name in first if not torch.equal(first[name], last[name])}
    assert {"encoder.1.weight", "head.1.weight"} <= moved
    for name in moved:  # after one update, the first weights still count for one part in eleven
        torch.testing.assert_close(mean[name], first[name] / 11 + last[name] * 10 / 11)


STEPS = SimpleNamespace(done=0, last=-1)  # no part of what a checkpoint remembers of a run


def loss_of_few_steps(p_true, p_pred, sizes):
    """AE, which kills the process in the last of its steps."""
    if p_pred.requires_grad:
        STEPS.done += 1
        if STEPS.done == STEPS.last:
            os.kill(os.getpid(), signal.SIGKILL)
    return abs(p_true - p_pred).mean(-1)


def run_once(checkpoint: Path) -> dict[str, np.ndarray]:
    """Train with a checkpoint; the weights and the history."""
    training = hq.Training(
        epochs=6, bags_per_epoch=12, batch_bags=4, dropout=0.3, patience=2, average=5, device="cpu",
        checkpoint=str(checkpoint),
    )  # fmt: skip
    q = hq.HistNetQ(n_bins=4, encoder=(8, 4), head=(6,), loss=loss_of_few_steps, training=training, random_state=0)
    q.fit(known_bags())
    return {k: v.numpy() for k, v in q.network_.state_dict().items()} | {"h": q.history_["train_loss"]}


CUT = {"first": 2, "fourth": 11}  # in the first epoch of three steps, before any checkpoint, and in the fourth


def be_killed(directory: Path) -> None:
    """Train in children of a process that has begun nothing else, and have them killed in the steps of `CUT`."""
    for name, step in CUT.items():
        child = os.fork()
        if child == 0:
            STEPS.last = step
            run_once(directory / name)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.hard
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_run_resumes_to_identical_weights(tmp_path):
    whole = run_once(tmp_path / "whole")
    subprocess.run(
        [sys.executable, "-m", "tests.training.test_loop", str(tmp_path)], cwd=Path(__file__).parents[2], check=True
    )
    assert (tmp_path / "fourth").is_dir()
    for name in CUT:
        place = tmp_path / name
        cut = run_once(place)
        assert set(whole) == set(cut)
        for key in whole:
            np.testing.assert_array_equal(cut[key], whole[key])
        assert [p.name for p in place.iterdir()] == ["checkpoint.safetensors"]


def checkpointed(path, **changes) -> hq.HistNetQ:
    training = dataclasses.replace(QUICK, checkpoint=str(path))
    return hq.HistNetQ(n_bins=4, encoder=(4,), head=(4,), training=training, random_state=0).set_params(**changes)


def test_warm_up_epochs_are_trained_for_the_divergence():
    bags = known_bags(16)

    def losses(loss, **options):
        training = hq.Training(epochs=2, batch_bags=8, dropout=0, device="cpu", **options)
        run = Run(network(dtype=torch.float32), lambda rng: bags, bags, loss, training, seed=0)
        history = run.train()["history"]
        return history["train_loss"], history["validation_loss"]

    warm, validation = losses(rae, warmup=2)
    other, _ = losses(kld)
    np.testing.assert_array_equal(warm, other)
    half, same = losses(rae, warmup=1)
    assert half[0] == other[0]
    assert half[1] != other[1]
    assert same[0] == validation[0], "epochs are chosen by the loss itself"
    assert losses(rae)[0][0] != other[0]


def test_minutes_end_a_run_which_more_minutes_continue(tmp_path):
    bags = known_bags()
    none = checkpointed(tmp_path / "a", training__epochs=3, training__minutes=0).fit(bags)
    assert len(none.history_["epoch"]) == 1, "the first epoch always is trained"
    more = checkpointed(tmp_path / "a", training__epochs=3, training__minutes=9).fit(bags)
    assert more.history_["epoch"].tolist() == [1, 2, 3]
    assert more.history_["train_loss"][0] == none.history_["train_loss"][0]


def test_more_epochs_continue_a_finished_run(tmp_path):
    bags = known_bags()
    checkpointed(tmp_path / "a").fit(bags)
    longer = checkpointed(tmp_path / "a", training__epochs=4).fit(bags)
    whole = checkpointed(tmp_path / "b", training__epochs=4).fit(bags)
    assert longer.history_["epoch"].tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(longer.predict(bags), whole.predict(bags))


@pytest.mark.parametrize("change", [{"training__lr": 0.5}, {"n_bins": 5}, {"random_state": 1}, {"loss": "rae"}])
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change):
    checkpointed(tmp_path).fit(known_bags())
    with pytest.raises(ValueError, match=r"checkpoint: .* holds a run with other data, parameters or random_state"):
        checkpointed(tmp_path, **change).fit(known_bags())


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    checkpointed(tmp_path).fit(known_bags())
    with pytest.raises(ValueError, match="holds a run with other data"):
        checkpointed(tmp_path).fit(known_bags(seed=1))


def test_a_checkpoint_knows_the_weights_of_a_custom_encoder(tmp_path):
    torch.manual_seed(0)
    encoders = [torch.nn.Linear(4, 3) for _ in range(2)]
    checkpointed(tmp_path, encoder=encoders[0]).fit(known_bags())
    checkpointed(tmp_path, encoder=encoders[0]).fit(known_bags())
    with pytest.raises(ValueError, match="holds a run with other data"):
        checkpointed(tmp_path, encoder=encoders[1]).fit(known_bags())


def test_a_damaged_checkpoint_is_refused(tmp_path):
    checkpointed(tmp_path).fit(known_bags())
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"checkpoint: .* cannot be read .*; remove it to start anew"):
        checkpointed(tmp_path).fit(known_bags())


def alter(path, change, progress=None):
    """Write a checkpoint again, with other tensors."""
    with safe_open(path, framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(tensors)
    save_file(tensors, path, metadata | ({} if progress is None else {"progress": progress}))


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.update({"network/head.1.bias": torch.zeros(3)}),
        lambda tensors: tensors.update({"best/head.1.bias": torch.zeros(1, 3)}),
        lambda tensors: tensors.update({"mean/head.1.bias": torch.zeros(3)}),
        lambda tensors: tensors.update({"optimizer/x": torch.zeros(3)}),
        lambda tensors: tensors.update({"optimizer/0/exp_avg": torch.zeros(3)}),
        lambda tensors: tensors.update({"optimizer/999/step": torch.ones(1)}),
        lambda tensors: tensors.pop("best/head.1.bias"),
        lambda tensors: tensors.clear(),
    ],
)
def test_a_checkpoint_of_other_shapes_is_refused(tmp_path, change):
    checkpointed(tmp_path).fit(known_bags())
    path = tmp_path / "checkpoint.safetensors"
    alter(path, change)
    with pytest.raises(ValueError) as error:
        checkpointed(tmp_path).fit(known_bags())
    # safetensors 0.4 does not read a file without tensors.
    unread = "cannot be read (Error while deserializing header: InvalidHeaderDeserialization)"
    reasons = ("does not hold the tensors of this run", unread)
    assert str(error.value) in [f"checkpoint: {path} {reason}; remove it to start anew." for reason in reasons]


@pytest.mark.parametrize(
    "progress", ["{", "[]", '{"no_such": 1}', '{"epoch": "one"}', '{"history": []}', "[" * 100_000]
)
def test_a_checkpoint_of_other_progress_is_refused(tmp_path, progress):
    checkpointed(tmp_path).fit(known_bags())
    alter(tmp_path / "checkpoint.safetensors", lambda tensors: None, progress)
    with pytest.raises(ValueError, match=r"checkpoint: .* does not hold the tensors of this run; remove it to start"):
        checkpointed(tmp_path).fit(known_bags())


def test_checkpoints_need_a_seed(tmp_path):
    message = r"random_state: expected a number together with training\.checkpoint, got None"
    with pytest.raises(ValueError, match=message):
        checkpointed(tmp_path, random_state=None).fit(known_bags())


def test_training_is_immutable_and_prints_what_changed():
    training = hq.Training(lr=0.01)
    with pytest.raises(dataclasses.FrozenInstanceError):
        training.lr = 1.0
    assert repr(training) == "Training(lr=0.01)"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "training: expected epochs to be a whole number of at least 1, got 0"),
        ({"batch_bags": -3}, "training: expected batch_bags to be a whole number of at least 1, got -3"),
        ({"patience": 2.5}, "training: expected patience to be a whole number of at least 1, got 2.5"),
        ({"warmup": -1}, "training: expected warmup to be a whole number of at least 0, got -1"),
        ({"minutes": -1}, "training: expected minutes to be at least 0, got -1"),
        ({"clip": -1}, "training: expected clip to be at least 0, got -1"),
        ({"lr": 0}, "training: expected lr > 0"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"validation": 0.0}, "validation=0.0"),
        ({"dtype": "int8"}, "training: expected dtype 'float32' or 'float64', got 'int8'"),
    ],
)
def test_wrong_options(wrong, message):
    with pytest.raises(ValueError, match=message):
        hq.Training(**wrong)


def test_float64_and_progress(capsys):
    training = dataclasses.replace(QUICK, dtype="float64", progress=True)
    q = hq.HistNetQ(n_bins=4, encoder=(4,), head=(4,), training=training, random_state=0).fit(known_bags())
    assert next(q.network_.parameters()).dtype == torch.float64
    assert "epoch" in capsys.readouterr().err


def test_unknown_device():
    training = dataclasses.replace(QUICK, device="abacus")
    with pytest.raises(ValueError, match=r"device: 'abacus' cannot be used here .*; use 'auto' or 'cpu'"):
        hq.DeepSets(training=training).fit(known_bags())


def test_a_checkpoint_knows_the_code_of_a_custom_loss(tmp_path):
    checkpointed(tmp_path, loss=lambda p_true, p_pred: abs(p_true - p_pred).mean(-1)).fit(known_bags())
    with pytest.raises(ValueError, match="holds a run with other data"):
        checkpointed(tmp_path, loss=lambda p_true, p_pred: 3 * abs(p_true - p_pred).mean(-1)).fit(known_bags())


def test_a_checkpoint_needs_a_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ValueError, match=r"checkpoint: .*file cannot be made a directory \(File exists\); name another"
    ):
        checkpointed(tmp_path / "file").fit(known_bags())


def test_the_last_weights_come_back_when_validation_of_their_mean_fails(monkeypatch):
    seen = []

    def loss(p_true, p_pred, sizes):
        if p_pred.requires_grad:
            return ae(p_true, p_pred)
        raise KeyboardInterrupt

    net, bags = network(), known_bags(8)
    training = hq.Training(epochs=1, average=5, lr=0.05, device="cpu", dtype="float64")
    optimiser_step = torch.optim.AdamW.step

    def step(self, *args, **kwargs):
        result = optimiser_step(self, *args, **kwargs)
        seen.append(net.head[1].weight.detach().clone())
        return result

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    with pytest.raises(KeyboardInterrupt):
        Run(net, lambda rng: bags, bags, loss, training, seed=0).train()
    assert torch.equal(net.head[1].weight, seen[-1])


EXPLODING = [1.0, 0.5, 5.0, 0.6, 0.4, 0.45]  # in the third epoch


def test_a_run_that_gets_much_worse_goes_back_at_a_lower_rate():
    result, seen = scripted(EXPLODING, epochs=6, lr=0.004, min_lr=0.001)
    assert result["history"]["lr"].tolist() == [0.004] * 3 + [0.002] * 3
    began = result["began"]
    assert torch.equal(began[2], seen[1])
    assert torch.equal(began[3], seen[1]), "the weights of the best epoch, not those of the third"
    assert torch.equal(began[4], seen[3])
    assert result["best_epoch"] == 5
    assert torch.equal(result["final"], seen[4])
    assert result["rates"].tolist() == [0.004, 0.004, 0.002, 0.002], "of the epochs that led there"


def test_a_run_that_goes_back_for_ever_ends():
    result, _ = scripted([1.0] + [9.0] * 50, epochs=50, lr=0.004, min_lr=0.001, patience=3)
    assert len(result["history"]["lr"]) < 12
    assert result["history"]["lr"][-1] == 0.001
    assert result["rates"].tolist() == [0.004]


def test_losses_below_zero_are_not_much_worse():
    result, _ = scripted([-1.0, -2.0, -1.9, -2.5, -1.0], epochs=6, lr=0.004, min_lr=0.001, callbacks=(
        lambda record: record["epoch"] == 5,))  # fmt: skip
    assert result["history"]["lr"].tolist() == [0.004] * 5
    assert result["best_epoch"] == 4


@pytest.mark.parametrize("stop", [2, 3, 4])
def test_a_run_that_went_back_resumes_to_identical_weights(stop, tmp_path):
    options = {"epochs": 6, "lr": 0.004, "min_lr": 0.001, "average": 5, "checkpoint": tmp_path / "a"}
    whole, _ = scripted(EXPLODING, **{**options, "checkpoint": None})
    scripted(EXPLODING, callbacks=(lambda record: record["epoch"] == stop,), **options)
    again, _ = scripted(EXPLODING[stop:], **options)
    assert torch.equal(again["final"], whole["final"])
    for name in ("train_loss", "validation_loss", "lr"):
        np.testing.assert_array_equal(again["history"][name], whole["history"][name])
    np.testing.assert_array_equal(again["rates"], whole["rates"])


def test_weights_of_the_start_are_kept_unless_others_are_clearly_better():
    noise = 1.0 + 0.5 * np.array([1, -1, 1, -1, 1, -1, 1, -1])
    result, seen = scripted([1.0, noise - 0.05, 0.97, 0.96], started=True, epochs=3, patience=99)
    assert result["best_epoch"] == 3
    result, seen = scripted([1.0, noise - 0.05, 0.5 + noise / 2 - 0.01], started=True, epochs=2)
    assert result["best_epoch"] == 0
    assert result["best_loss"] == 1.0
    assert torch.equal(result["final"], seen[0])


@pytest.mark.parametrize("worst", [np.inf, np.nan])
def test_a_start_without_a_finite_loss_is_worse_than_any_epoch(worst):
    result, seen = scripted([worst, 0.5, 0.6], started=True, epochs=2)
    assert result["best_epoch"] == 1
    assert torch.equal(result["final"], seen[1])


def test_an_interrupt_in_the_first_epoch_keeps_a_start():
    net, bags = network(), known_bags(8)
    before = {name: value.clone() for name, value in net.state_dict().items()}

    def loss(p_true, p_pred, sizes):
        if p_pred.requires_grad:
            raise KeyboardInterrupt
        return ae(p_true, p_pred)

    run = Run(net, lambda rng: bags, bags, loss, QUICK, seed=0, started=True)
    told = r"training interrupted after epoch 0 of 2; the weights of the best epoch \(0\) are kept"
    with pytest.warns(TrainingInterrupted, match=told):
        result = run.train()
    assert result["interrupted"] == "after epoch 0 of 2"
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])


def test_minutes_count_the_start():
    result, seen = scripted([1.0], started=True, spent=61.0, epochs=3, minutes=1)
    assert result["best_epoch"] == 0
    assert torch.equal(result["final"], seen[0])
    assert {name: len(values) for name, values in result["history"].items()} == dict.fromkeys(
        ("epoch", "train_loss", "validation_loss", "lr", "seconds"), 0
    )
    later, _ = scripted([1.0, 0.9], started=True, spent=59.0, epochs=1, minutes=1)
    assert later["history"]["epoch"].tolist() == [1]


def test_an_epoch_that_the_time_ends_within_is_given_up(tmp_path, monkeypatch):
    """A clock that takes ten seconds to be read: an epoch of four batches takes a minute, and each batch shows it."""
    ticks = itertools.count(0.0, 10.0)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: next(ticks), monotonic=lambda: 0.0))
    options = {"epochs": 3, "batch_bags": 2, "checkpoint": tmp_path / "a", "patience": 99}
    cut, seen = scripted([0.9, 0.8], **options, minutes=1.5)
    assert cut["history"]["epoch"].tolist() == [1]
    assert cut["best_epoch"] == 1
    assert torch.equal(cut["final"], seen[0])
    on, _ = scripted([0.8, 0.7], **options)
    whole, _ = scripted([0.9, 0.8, 0.7], **{**options, "checkpoint": None})
    assert on["history"]["epoch"].tolist() == [1, 2, 3]
    assert torch.equal(on["final"], whole["final"])


@pytest.mark.parametrize("refit", [False, True])
def test_a_start_without_any_epoch(refit, tmp_path):
    import matplotlib as mpl

    mpl.use("Agg")
    X, y = labelled(300)
    training = dataclasses.replace(QUICK, minutes=0, refit=refit)
    q = hq.HistNetQ(n_bins=8, encoder=(), training=training, random_state=0).fit(X, y)
    assert q.best_epoch_ == 0
    assert {len(values) for values in q.history_.values()} == {0}
    bags = hq.APP(50).draw(hq.Bags.from_labels(*labelled(300, seed=1)), 20, random_state=0)
    assert hq.evaluate(q, bags)["ae"].mean() < 0.1
    q.save(tmp_path / "model")
    loaded = hq.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(bags), q.predict(bags))
    assert {len(values) for values in loaded.history_.values()} == {0}
    from histnetq.evaluation import plots

    assert len(plots.training(loaded.history_).get_lines()) == 2


@pytest.mark.parametrize(
    ("make", "stop"),
    [
        (partial(hq.HistNetQ, n_bins=8, encoder=()), 1),
        (partial(hq.SetTransformer, 8, 8, 3, 2, encoder=(8,), head=(12,)), 2),
    ],
)
def test_a_started_run_resumes_to_identical_weights(make, stop, tmp_path):
    X, y = labelled(300)

    def fit(path, **changes):
        training = dataclasses.replace(QUICK, epochs=3, average=3, refit=False, checkpoint=path, **changes)
        return make(ridge=0.01, training=training, random_state=0).fit(X, y)

    whole = fit(None)
    fit(tmp_path / "a", callbacks=(lambda record: record["epoch"] == stop,))
    again = fit(tmp_path / "a")
    assert again.best_epoch_ == whole.best_epoch_
    assert again.validation_loss_ == whole.validation_loss_
    np.testing.assert_array_equal(again.history_["train_loss"], whole.history_["train_loss"])
    for name, value in whole.network_.state_dict().items():
        assert torch.equal(again.network_.state_dict()[name], value), name


if __name__ == "__main__":
    be_killed(Path(sys.argv[1]))
