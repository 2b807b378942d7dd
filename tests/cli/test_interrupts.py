"""Commands that are interrupted, that speak to other terminals, or that write logs lose nothing."""

from __future__ import annotations

import codecs
import json
import logging
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from histnetq.cli.wording import in_options
from histnetq.training.loop import Run
from histnetq.training.options import LearnedNothing, TrainingInterrupted
from histnetq.training.progress import ProgressLines, in_words
from histnetq.workflows.candidates import Candidate
from tests.cli.test_commands import write_tables
from tests.conftest import known_bags

KNOWN = ("--bag", "tow", "--label", "species")
# The command line with a line in the log after every epoch or trial, and a short start of networks.
APART = """
import histnetq.training.progress as progress
from histnetq.cli import main
from histnetq.training.pretraining import head_pretraining
from histnetq.training.pretraining import label_pretraining
progress._EVERY = 0
head_pretraining._STEPS = dict.fromkeys((False, True), 10)
label_pretraining._FEWEST_UPDATES, label_pretraining._MOST_EPOCHS = 10, 3
main(prog_name="histnetq")
"""


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_tables(tmp_path)


@pytest.fixture
def few_bags(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_tables(tmp_path, n_bags=30)


def run(*arguments, charset="utf-8"):
    return CliRunner(charset=charset).invoke(main, [str(a) for a in arguments])


def run_until(line: str, number: int, *arguments: str) -> tuple[int, str]:
    """Run a command in a process of its own, send it a signal at such a line of its log, and give its end."""
    command = [sys.executable, "-c", APART, *arguments]
    # A shell that starts tests in the background lets its children ignore Ctrl-C, which these must not.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for told in process.stderr:
            if line in told:
                process.send_signal(number)
                break
        rest = process.stderr.read()
        assert process.stdout is not None
        said = process.stdout.read()
    assert "Traceback" not in rest, rest
    return process.returncode, said + rest


def interrupt_epoch(monkeypatch, number: int, network: int = 1) -> None:
    """Press Ctrl-C in this epoch of this network of a command."""
    trained, epoch = [], Run._epoch

    def interrupted(self):
        if self not in trained:
            trained.append(self)
        if len(trained) == network and self.progress.epoch + 1 == number:
            raise KeyboardInterrupt
        return epoch(self)

    monkeypatch.setattr(Run, "__eq__", object.__eq__)
    monkeypatch.setattr(Run, "_epoch", interrupted)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_signal_ends_fit_and_leaves_the_good_model_alone(few_bags, tmp_path):
    assert run("fit", "rows.csv", *KNOWN, "--method", "cc", "-o", "model").exit_code == 0
    before, files = contents(tmp_path / "model"), sorted(p.name for p in tmp_path.iterdir())
    fit = ("fit", "rows.csv", *KNOWN, "--method", "histnetq", "-o", "model", "--force")
    ended, told = run_until("HistNetQ: epoch 1 of 200, loss 0.", signal.SIGINT, *fit)
    assert ended == 130
    assert told.endswith("Interrupted: nothing was kept; --keep-interrupted keeps the model learned so far.\n")
    assert "learned 2 classes" not in told
    assert contents(tmp_path / "model") == before
    assert sorted(p.name for p in tmp_path.iterdir()) == files


def test_a_signal_ends_fit_and_what_was_learned_is_kept_under_another_name(few_bags, tmp_path):
    fit = ("fit", "rows.csv", *KNOWN, "--method", "deepsets", "-o", "model", "--keep-interrupted")
    ended, told = run_until("DeepSets: epoch 1 of 200, loss 0.", signal.SIGTERM, *fit)
    assert ended == 143
    assert ": the model learned so far is kept in model-interrupted.\n" in told
    assert not (tmp_path / "model").exists()
    assert hq.load("model-interrupted").interrupted_.endswith(" of 200")


def test_an_interrupted_model_tells_so(tables, monkeypatch, tmp_path):
    interrupt_epoch(monkeypatch, 3)
    fit = ("fit", "rows.csv", *KNOWN, "--method", "deepsets", "-o", "model", "--keep-interrupted")
    ended = run(*fit)
    assert ended.exit_code == 130
    assert "Interrupted after epoch 2 of 200: the model learned so far is kept in model-interrupted.\n" in ended.output
    assert "interrupted  after epoch 2 of 200\n" in run("info", "model-interrupted").output
    assert json.loads(run("info", "model-interrupted", "--json").stdout)["interrupted"] == "after epoch 2 of 200"
    assert run("predict", "model-interrupted", "bare.csv", "--bag", "tow").exit_code == 0
    again = run(*fit)
    assert again.exit_code == 2
    assert "output: model-interrupted exists; choose another name or pass --force" in again.output


def test_the_first_epoch_leaves_nothing_to_keep(tables, monkeypatch, tmp_path):
    interrupt_epoch(monkeypatch, 1)
    ended = run("fit", "rows.csv", *KNOWN, "--method", "deepsets", "-o", "model", "--keep-interrupted")
    assert ended.exit_code == 130
    assert ended.output.endswith("Interrupted: nothing was kept.\n")
    assert not list(tmp_path.glob("*model*"))


@pytest.mark.parametrize("keep", [(), ("--keep-interrupted",)])
def test_the_choice_of_a_method_stops(tables, monkeypatch, tmp_path, keep):
    few = [Candidate("deepsets"), Candidate("cc")]
    monkeypatch.setattr("histnetq.workflows.fitting.from_labels", lambda *names: few)
    monkeypatch.setattr(hq.CC, "cross_fit", lambda *given: pytest.fail("the next method is not tried"))
    interrupt_epoch(monkeypatch, 3)
    ended = run("fit", "rows.csv", *KNOWN, "--method", "search", "-o", "model", *keep)
    assert ended.exit_code == 130
    assert "Interrupted: nothing was kept" in ended.output
    assert not list(tmp_path.glob("*model*"))


def test_methods_compared_stop(tables, monkeypatch, tmp_path):
    interrupt_epoch(monkeypatch, 3)
    ended = run("compare", "rows.csv", *KNOWN, "--methods", "deepsets,cc", "-o", "errors.csv")
    assert ended.exit_code == 130
    assert ended.output.endswith("Interrupted: nothing was kept.\n")
    assert not (tmp_path / "errors.csv").exists()


def test_the_demonstration_stops(monkeypatch, tmp_path):
    monkeypatch.setattr("histnetq.training.pretraining.label_pretraining._FEWEST_UPDATES", 10)
    monkeypatch.setattr("histnetq.training.pretraining.label_pretraining._MOST_EPOCHS", 3)
    monkeypatch.setattr("histnetq.training.pretraining.head_pretraining._STEPS", {False: 10, True: 10})
    interrupt_epoch(monkeypatch, 2)
    ended = run("demo", "-o", tmp_path / "demo")
    assert ended.exit_code == 130
    assert ended.output.endswith("Interrupted: nothing was kept.\n")
    assert not (tmp_path / "demo").exists()


def interrupt_fit(monkeypatch, number: int) -> None:
    """Press Ctrl-C in this fit of EMQ."""
    fit, done = hq.EMQ.fit, []

    def interrupted(self, *given, **options):
        done.append(1)
        if len(done) == number:
            raise KeyboardInterrupt
        return fit(self, *given, **options)

    monkeypatch.setattr(hq.EMQ, "fit", interrupted)


def test_a_search_stops_and_its_storage_continues(tables, monkeypatch, tmp_path):
    pytest.importorskip("optuna")
    tune = ("tune", "rows.csv", *KNOWN, "--method", "emq", "--trials", "3", "--storage", "log", "-o", "model")
    interrupt_fit(monkeypatch, 3)
    ended = run(*tune)
    assert ended.exit_code == 130
    assert ended.output.endswith(
        "Interrupted: no model was kept; the storage has the finished trials, and the same command continues.\n"
    )
    assert not list(tmp_path.glob("*model*"))
    interrupt_fit(monkeypatch, -1)
    monkeypatch.setattr("histnetq.training.progress._EVERY", 0)
    continued = run(*tune)
    assert continued.exit_code == 0, continued.output
    assert "tune: trial 3 of 3, the best has 0." in continued.output
    assert "trial 2 of 3" not in continued.output, "two trials were done before"


def test_a_search_keeps_the_best_so_far_if_it_is_asked_to(tables, monkeypatch, tmp_path):
    pytest.importorskip("optuna")
    interrupt_fit(monkeypatch, 3)
    tune = ("tune", "rows.csv", *KNOWN, "--method", "emq", "--trials", "9", "-o", "model", "--keep-interrupted")
    ended = run(*tune)
    assert ended.exit_code == 130
    assert "Interrupted after 2 of 9 trials: the model learned so far is kept in model-interrupted.\n" in ended.output
    assert "interrupted  after 2 of 9 trials\n" in run("info", "model-interrupted").output
    assert not (tmp_path / "model").exists()


def test_python_keeps_the_best_epoch_and_knows(monkeypatch, tmp_path):
    interrupt_epoch(monkeypatch, 4)
    q = hq.DeepSets(encoder=(4,), head=(4,), training=hq.Training(epochs=9, refit=True), random_state=0)
    with pytest.warns(TrainingInterrupted, match=r"training interrupted after epoch 3 of 9; the weights of the best"):
        q.fit(known_bags(30))
    assert q.interrupted_ == "after epoch 3 of 9"
    assert len(q.history_["epoch"]) == 3
    q.save(tmp_path / "model")
    assert hq.load(tmp_path / "model").interrupted_ == "after epoch 3 of 9"
    monkeypatch.undo()
    assert q.fit(known_bags(30)).interrupted_ == ""


@pytest.mark.parametrize(("charset", "shown"), [("cp1252", "±"), ("ascii", "+-"), ("utf-8", "±")])
def test_any_terminal_shows_the_choice_and_the_model_is_kept(tables, monkeypatch, charset, shown):
    monkeypatch.setattr("histnetq.workflows.fitting.from_labels", lambda *names: [Candidate("pacc"), Candidate("cc")])
    monkeypatch.setattr("histnetq.evaluation.comparison.Comparison.__str__", lambda self: "a ≤ b ± c █ д")
    told = run("fit", "rows.csv", *KNOWN, "--method", "search", "-o", "model", charset=charset)
    assert told.exit_code == 0, told.output
    lines = told.stdout_bytes.decode(charset)
    assert f"{'≤' if charset == 'utf-8' else '<='} b {shown} c" in lines
    assert ("д" if charset == "utf-8" else "\\u0434") in lines
    assert hq.load("model").provenance_["bags"] == 100


@pytest.mark.parametrize("charset", [pytest.param("cp1252", marks=pytest.mark.hard), "ascii"])
def test_a_process_on_such_a_terminal(tables, charset):
    rows = pd.read_csv("rows.csv").replace({"species": {"eel": "угорь ≤"}})
    rows.to_csv("rows.csv", index=False)
    environment = {**os.environ, "PYTHONIOENCODING": charset}
    arguments = ["compare", "rows.csv", *KNOWN, "--methods", "cc"]
    command = [sys.executable, "-m", "histnetq", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert b"CC" in ended.stdout
    assert ended.stdout.decode(charset)
    refused = subprocess.run([*command, "--label", "≤"], env=environment, capture_output=True, check=False)
    assert refused.returncode == 2
    assert "<=" in refused.stderr.decode(charset)


def test_characters_have_look_alikes_or_numbers():
    run("--version")
    run("data", "list")
    assert "1 ≤ 2 … д é".encode("cp1252", "histnetq") == b"1 <= 2 \x85 \\u0434 \xe9"
    assert "≥±é".encode("ascii", "histnetq") == b">=+-\\xe9"
    with pytest.raises(UnicodeDecodeError):
        codecs.decode(b"\xff", "utf-8", "histnetq")


def test_a_reader_that_leaves_early_is_no_error(tables):
    assert run("fit", "rows.csv", *KNOWN, "--method", "cc", "-o", "model").exit_code == 0
    command = [sys.executable, "-m", "histnetq", "predict", "model", "bare.csv", "--bag", "tow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


def noise_bags(shift: float, n_bags: int = 60) -> hq.Bags:
    """Bags of known proportions whose rows tell as much about their classes as they are shifted."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 2], n_bags)
    labels = np.stack([rng.choice(3, 30, p=shares) for shares in p])
    rows = rng.normal(size=(n_bags, 30, 2)) + shift * labels[:, :, None] * [1, -1]
    return hq.Bags.from_arrays(list(rows), p)


@pytest.mark.parametrize("kind", [hq.DeepSets, hq.EMNetQ])
@pytest.mark.parametrize("loss", ["ae", "rae"])
def test_a_network_that_learned_nothing_says_so(kind, loss, tmp_path):
    training = hq.Training(epochs=12, bags_per_epoch=60, device="cpu")
    q = kind(loss=loss, training=training, random_state=0)
    told = (
        rf"^{kind.__name__} learned nothing: its loss on the validation bags is [\d.]+, and one estimate "
        r"for all of them has [\d.]+; check whether the features separate the classes, or train longer\.$"
    )
    with pytest.warns(LearnedNothing, match=told):
        q.fit(noise_bags(0.0))
    q.save(tmp_path / "model")
    assert hq.load(tmp_path / "model").learned_nothing_ == q.learned_nothing_ != ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert q.fit(noise_bags(2.0)).learned_nothing_ == ""


def test_models_from_before_tell_nothing(tmp_path):
    q = hq.DeepSets(encoder=(3,), training=hq.Training(epochs=1), random_state=0).fit(known_bags())
    learned = q.stored[0].learned(q)
    del learned["interrupted"], learned["learned_nothing"]
    q.stored[0].restore(q, q.stored[0].arrays(q), learned)
    assert q.interrupted_ == q.learned_nothing_ == ""


def test_every_answer_of_a_network_that_learned_nothing_says_so(tables, tmp_path, monkeypatch):
    rows = pd.read_csv("rows.csv")
    rows.assign(length=np.random.default_rng(0).normal(size=len(rows))).to_csv("rows.csv", index=False)
    monkeypatch.setattr(Run, "_ends", lambda self: self.progress.epoch >= 3)
    told = run("fit", "rows.csv", *KNOWN, "--method", "deepsets", "-o", "model")
    assert told.exit_code == 0, told.output
    assert "\nWarning: DeepSets learned nothing: its loss on the validation bags is " in told.stderr
    assert "LearnedNothing" not in told.output, "a plain line, without a category and a place"
    nothing = "it is kept in model, but its estimates are no better than one constant"
    assert f"\nDeepSets learned nothing from 100 bags and 2 features: {nothing}.\n" in told.stdout
    sentence = hq.load("model").learned_nothing_
    assert f"\nwarning      {sentence}\n" in run("info", "model").output
    assert sentence in run("evaluate", "model", "rows.csv", *KNOWN).output.splitlines()
    assert json.loads(run("evaluate", "model", "rows.csv", *KNOWN, "--json").stdout)["learned_nothing"] == sentence
    assert run("report", "model", "rows.csv", *KNOWN, "-o", "page.html").exit_code == 0
    assert sentence in (tmp_path / "page.html").read_text()


def test_lines_in_logs(tables, monkeypatch):
    told = run("compare", "rows.csv", *KNOWN, "--methods", "cc,pacc")
    first, second, third, *_ = told.stdout.splitlines()
    assert first == "Comparing CC, PACC on 25 held-out bags:"
    assert second.startswith("  CC: AE 0.")
    assert third.startswith("  PACC: AE 0.")
    silent = run("compare", "rows.csv", *KNOWN, "--methods", "cc,pacc", "--json")
    assert json.loads(silent.stdout)["bags"] == 25
    assert silent.stderr == ""
    fit = ("fit", "rows.csv", "--label", "species", "--features", "length", "--method", "cc", "--force", "-o", "model")
    for how, source in ((("--bag", "tow"), "75 bags"), ((), "1,200 rows")):
        told = run(*fit, *how)
        assert told.stdout.startswith(f"CC: learning from {source}.\n")
        assert told.stderr == "", "notes are output, and bars and lines about epochs are not"
    assert run(*fit, "--json").stderr == ""
    assert not logging.getLogger("histnetq.progress").handlers, "Python users are told if they ask"


def test_a_line_every_half_minute(monkeypatch, caplog):
    clock = iter([100.0, 110.0, 130.0, 159.0, 161.0])
    monkeypatch.setattr("histnetq.training.progress.time.monotonic", lambda: next(clock))
    with caplog.at_level("INFO", "histnetq.progress"):
        lines = ProgressLines("HistNetQ", "epoch", 40, 10)
        for epoch in range(11, 15):
            lines.step(epoch, f"loss 0.{epoch}")
    assert caplog.messages == [
        "HistNetQ: epoch 12 of 40, loss 0.12, about 7 minutes left.",
        "HistNetQ: epoch 14 of 40, loss 0.14, about 7 minutes left.",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0 seconds"), (1.4, "1 second"), (89, "89 seconds"), (91, "2 minutes"), (5399, "90 minutes"),
     (5400, "2 hours")],
)  # fmt: skip
def test_times_in_words(seconds, words):
    assert in_words(seconds) == words


def commands(group: click.Group = main):
    for name, command in sorted(group.commands.items()):
        yield from commands(command) if isinstance(command, click.Group) else [(name, command)]


OPTIONS = [
    pytest.param(option.help, id=f"{name} {option.opts[0]}")
    for name, command in commands()
    for option in command.params
    if isinstance(option, click.Option)
]


@pytest.mark.parametrize("help_text", OPTIONS)
def test_the_help_of_an_option_is_a_sentence(help_text):
    sentence = help_text.partition("  [default: ")[0]
    assert sentence.endswith(".")
    assert sentence[0].isupper()


@pytest.mark.parametrize(
    ("python", "typed"),
    [
        ("source: rows.csv does not exist; check the path.", "TRAIN: rows.csv does not exist; check the path."),
        ("weight, bag: expected something.", "--weight, --bag: expected something."),
        ("output: model exists.", "--output: model exists."),
        ("random_state: expected a number.", "--seed: expected a number."),
        ("coverage: expected a number.", "coverage: expected a number."),
    ],
)  # fmt: skip
def test_messages_name_what_was_typed(python, typed):
    assert in_options(ValueError(python), main.commands["fit"].params) == typed


def test_refusals_speak_the_language_of_the_command_line(tables):
    known = pd.read_csv("tows.csv")
    known.assign(eel=3, cod=4).to_csv("counts.csv", index=False)
    bare = ("fit", "bare.csv", "--bag", "tow", "--prevalences")
    assert (
        "sums to 7, expected 1; pass --counts if these are counts or percentages.\n"
        in run(*bare, "counts.csv", "-o", "m").output
    )
    assert "--method: expected one of " in run("fit", "rows.csv", *KNOWN, "--method", "nn", "-o", "m").output
    assert "--methods: expected one of " in run("compare", "rows.csv", *KNOWN, "--methods", "nn").output
    assert "Error: TRAIN: none.csv does not exist" in run("fit", "none.csv", *KNOWN, "-o", "m").output
    one = pd.read_csv("rows.csv").assign(species="eel")
    one.to_csv("one.csv", index=False)
    refused = run("fit", "one.csv", *KNOWN, "--method", "cc", "-o", "m").output
    assert "Bags.from_labels" not in refused
    single = pd.read_csv("rows.csv")
    single.assign(species=np.where(single.index == single.index[0], "eel", "cod")).to_csv("single.csv", index=False)
    refused = run("fit", "single.csv", *KNOWN, "--method", "cc", "--calibration", 0, "-o", "m").output
    assert "--label: expected at least 2 rows of each class for cross-fitting, got 1 of 'eel'; add rows, or " in refused
    run("fit", "rows.csv", *KNOWN, "--method", "cc", "--calibration", 0, "-o", "model")
    told = run("predict", "model", "bare.csv", "--bag", "tow", "--interval", "conformal").output
    assert "CC is not calibrated; fit it to more bags, so that some calibrate it, or leave --coverage and" in told
    assert "Error: nowhere is not a model directory, it has no " in run("info", "nowhere").output


def test_experiments_refuse_no_seeds():
    from experiments.table_commands import toy

    told = CliRunner().invoke(toy, ["--seeds", "0"])
    assert told.exit_code == 2
    assert "0 is not in the range x>=1" in told.output
