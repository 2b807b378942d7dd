"""From LeQua's data to a submission: one command for each task, and a checker that refuses every defect."""

from __future__ import annotations

import json
import stat
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner

import histnetq as hq
from experiments.__main__ import main as experiments
from histnetq.cli import main
from histnetq.datasets import check_submission, lequa2024, lequa_errors, read_lequa, write_submission
from tests.conftest import exactly
from tests.lequa_folders import CLASSES, write_task

HALVES = "".join(f"{i},0.5,0.5\n" for i in range(5))


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def pack(path, text, name="T1.txt", mode=0):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(info, text, zipfile.ZIP_DEFLATED)
    return path


def test_what_is_written_is_read_again_in_the_order_of_the_ids(tmp_path):
    p = np.random.default_rng(0).dirichlet(np.ones(28), 5000)
    path = write_submission(tmp_path / "a.zip", p, "T2")
    np.testing.assert_allclose(check_submission(path, "T2"), p, atol=1e-8)
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["T2.txt"]
        lines = archive.read("T2.txt").decode().splitlines()
    assert (len(lines), lines[0]) == (5001, ",".join(["id", *map(str, range(28))]))
    assert [line.split(",")[0] for line in lines[1:]] == list(map(str, range(5000)))
    again = write_submission(tmp_path / "b.zip", p, "T2")
    assert again.read_bytes() == path.read_bytes()
    shuffled = pack(tmp_path / "c.zip", "\n".join([lines[0], *lines[:0:-1]]) + "\n", "any.csv")
    np.testing.assert_allclose(check_submission(shuffled, "T2"), p, atol=1e-8)
    with pytest.raises(FileExistsError, match=r"^path: .*a\.zip exists; choose another name or pass"):
        write_submission(path, p, "T2")


@pytest.mark.parametrize("p", [np.full(2, 0.5), np.full((3, 2), 0.4), np.array([[1.5, -0.5]]), np.full((3, 2), np.nan)])
def test_estimates_that_are_no_shares_are_not_written(tmp_path, p):
    with pytest.raises(ValueError, match=r"^p_pred: expected one row of proportions that sum to 1 for each bag, got"):
        write_submission(tmp_path / "a.zip", p, "T1")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,1,2\n" + HALVES, "the header is 'id,1,2', expected id,0,1; name the columns so."),
        ("id,0,1,2\n" + HALVES, "the header is 'id,0,1,2', expected id,0,1; name the columns so."),
        (HALVES, "the header is '0,0.5,0.5', expected id,0,1; name the columns so."),
        ("", "the header is '', expected id,0,1; name the columns so."),
        ("id,0,1\n", "0 rows follow the header, expected 5, as many as test bags; write one for each."),
        ("id,0,1\n" + HALVES[:-10], "4 rows follow the header, expected 5, as many as test bags; write one for each."),
        ("id,0,1\n" + HALVES + "5,1,0\n",
         "6 rows follow the header, expected 5, as many as test bags; write one for each."),
        (
            "id,0,1\n" + HALVES.replace("3,0.5", "2,0.5"),
            "the id 2 occurs twice, expected the ids from 0 to 4 once each; number the rows so.",
        ),
        (
            "id,0,1\n" + HALVES.replace("0,0.5,0.5\n", "5,0.5,0.5\n"),
            "the id 0 is missing, expected the ids from 0 to 4 once each; number the rows so.",
        ),
        (
            "id,0,1\n" + HALVES.replace("3,0.5", "2.5,0.5"),
            "the id 3 is missing, expected the ids from 0 to 4 once each; number the rows so.",
        ),
        (
            "id,0,1\n" + HALVES.replace("3,0.5,0.5", "3,1.5,-0.5"),
            "the row of id 3 has the share 1.5, expected 0 to 1; give proportions.",
        ),
        (
            "id,0,1\n" + HALVES.replace("3,0.5,0.5", "3,nan,0.5"),
            "the row of id 3 has the share nan, expected 0 to 1; give proportions.",
        ),
        (
            "id,0,1\n" + HALVES.replace("1,0.5,0.5", "1,0.5,0.502"),
            "the row of id 1 sums to 1.002, expected 1 ± 0.001; divide each row by its sum.",
        ),
        (
            "id,0,1\n" + HALVES.replace("1,0.5,0.5", "1,0.5,half"),
            "could not convert string 'half' to float64 at row 1, column 3, expected an id and 2 numbers in each row; "
            "write plain numbers.",
        ),
    ],
)  # fmt: skip
def test_each_defect_of_the_table_is_refused_in_one_sentence(tmp_path, text, problem):
    path = pack(tmp_path / "a.zip", text)
    with pytest.raises(ValueError, match=exactly(f"submission: {problem}")):
        check_submission(path, "T1", n_bags=5)


def test_rows_of_uneven_length_and_blank_lines_are_refused(tmp_path):
    for text in (HALVES.replace("3,0.5,0.5", "3,0.5"), HALVES.replace("3,0.5,0.5\n", "3,0.5,0.5,0\n")):
        with pytest.raises(ValueError, match=r"^submission: .*, expected an id and 2 numbers in each row; write plain"):
            check_submission(pack(tmp_path / "a.zip", "id,0,1\n" + text), "T1", n_bags=5)
    with pytest.raises(ValueError, match=r"^submission: .*, expected an id and 2 numbers in each row; write plain"):
        check_submission(pack(tmp_path / "a.zip", "id,0,1\n" + HALVES.replace("3,0.5,0.5", "")), "T1", n_bags=5)


def test_sums_within_the_tolerance_and_other_line_ends_are_accepted(tmp_path):
    text = "id, 0, 1\r\n" + HALVES.replace("1,0.5,0.5", "1,0.5,0.5009").replace("\n", "\r\n")
    assert check_submission(pack(tmp_path / "a.zip", text), "T1", n_bags=5)[1].tolist() == [0.5, 0.5009]


@pytest.mark.parametrize(
    ("name", "mode", "problem"),
    [
        ("../T1.txt", 0, "has a name that leads out of the archive"),
        ("/T1.txt", 0, "has an absolute name"),
        ("link.txt", stat.S_IFLNK | 0o777, "is a link or a special file"),
        ("folder/T1.txt", 0, "expected a .txt or .csv file in no folder"),
        ("T1.exe", 0, "expected a .txt or .csv file in no folder"),
    ],
)
def test_hostile_members_are_refused(tmp_path, name, mode, problem):
    with pytest.raises(ValueError) as raised:
        check_submission(pack(tmp_path / "a.zip", "id,0,1\n" + HALVES, name, mode), "T1", n_bags=5)
    message = str(raised.value)
    assert message.startswith("submission: ")
    assert problem in message
    assert message.count("; ") == 1
    assert message.endswith(".")
    assert "fetch" not in message


def test_bombs_several_files_and_what_is_no_archive_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"^submission: .* declares 4,194,304 bytes packed into .*; pack the file again"
    ):
        check_submission(pack(tmp_path / "bomb.zip", bytes(1 << 22)), "T1")
    with pytest.raises(ValueError, match=r"^submission: T1\.txt declares 1,000,000 bytes, expected at most 720; write"):
        check_submission(pack(tmp_path / "long.zip", bytes(1_000_000)), "T1", n_bags=5)
    with pytest.raises(ValueError, match=r"^submission: .* holds a file that is not text, expected comma-separated"):
        check_submission(pack(tmp_path / "raw.zip", b"\xff\xfe\x00"), "T1")
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.txt", "")
        archive.writestr("b.txt", "")
    with pytest.raises(ValueError, match=r"^submission: .*two\.zip holds 2 files, expected one; pack that one"):
        check_submission(tmp_path / "two.zip", "T1")
    with zipfile.ZipFile(tmp_path / "none.zip", "w"):
        pass
    with pytest.raises(ValueError, match=r"holds 0 files, expected one"):
        check_submission(tmp_path / "none.zip", "T1")
    (tmp_path / "text.zip").write_text("id,0,1\n")
    with pytest.raises(ValueError, match=r"^submission: .* cannot be read as a zip archive .*; pack the file again\.$"):
        check_submission(tmp_path / "text.zip", "T1")


def test_a_model_submits_its_estimates_by_one_command(tmp_path):
    truth = write_task(tmp_path, "T3")
    data = lequa2024("T3", tmp_path)
    train = data.train
    q = hq.PACC(cv=3, random_state=0).fit(train.gather(), train.classes[train.labels[train.index]])
    q.save(tmp_path / "model")
    path = tmp_path / "submission.zip"
    done = run("lequa", "submit", tmp_path / "model", "T3", tmp_path, "-o", path)
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"5 bags estimated, written to {path}.\nmacro-NMD ")
    estimates = check_submission(path, "T3", n_bags=5)
    np.testing.assert_allclose(estimates, q.predict(data.test), atol=1e-8)
    checked = json.loads(run("lequa", "check", path, "T3", tmp_path, "--json").output)
    assert (checked["bags"], checked["classes"]) == (5, 5)
    assert checked["NMD"] == pytest.approx(hq.metrics.nmd(truth, estimates).mean(), abs=1e-5)
    assert lequa_errors("T3", data.test, estimates)["macro-NMD"] == checked["macro-NMD"]
    again = run("lequa", "submit", tmp_path / "model", "T3", tmp_path, "-o", path)
    assert (again.exit_code, "exists; choose another name or pass --force" in again.output) == (2, True)
    refused = run("lequa", "check", path, "T3")
    assert refused.exit_code == 2
    assert refused.output == (
        "Error: SUBMISSION: 5 rows follow the header, expected 5,000, as many as test bags; write one for each.\n"
    )


def test_classes_of_another_task_and_missing_test_bags_are_refused(tmp_path):
    write_task(tmp_path, "T3", n_test=2)
    rng = np.random.default_rng(0)
    hq.CC(cv=2).fit(rng.normal(size=(40, 6)), np.arange(40) % 2).save(tmp_path / "model")
    refused = run("lequa", "submit", tmp_path / "model", "T3", tmp_path, "-o", tmp_path / "s.zip")
    assert refused.exit_code == 2
    assert refused.output == (
        "Error: MODEL: expected the classes of lequa2024-T3 (5), got other classes (2); fit a model to the data of "
        "this task.\n"
    )
    missing = run("lequa", "submit", tmp_path / "model", "T2", tmp_path, "-o", tmp_path / "s.zip")
    assert (missing.exit_code, "lacks training_data.txt" in missing.output) == (2, True)
    assert not (tmp_path / "s.zip").exists()


def test_classes_are_put_into_the_order_of_their_codes(tmp_path):
    write_task(tmp_path, "T1")
    public = tmp_path / "T1/public"
    (public / "label_map.txt").write_text("yes 0\nno 1\n")  # the model sorts its classes otherwise
    data = read_lequa("T1", tmp_path)
    train = data.train
    q = hq.PACC(cv=3, random_state=0).fit(train.gather(), train.classes[train.labels[train.index]])
    assert q.classes_.tolist() == ["no", "yes"]
    q.save(tmp_path / "model")
    assert run("lequa", "submit", tmp_path / "model", "T1", tmp_path, "-o", tmp_path / "s.zip").exit_code == 0
    estimates = check_submission(tmp_path / "s.zip", "T1", n_bags=5)
    np.testing.assert_allclose(estimates, q.predict(data.test)[:, ::-1], atol=1e-8)
    assert np.abs(estimates - data.test.prevalences).mean() < 0.2


@pytest.fixture
def at_random(monkeypatch):
    """Networks start from random weights, which takes no time."""
    for network in (hq.HistNetQ, hq.EMNetQ):
        monkeypatch.setattr(network, "_start", lambda self: None)


@pytest.mark.usefixtures("at_random")
@pytest.mark.parametrize("task", CLASSES)
def test_one_experiment_goes_from_data_to_an_accepted_submission(tmp_path, task):
    write_task(tmp_path / "data", task, n_test=3)
    name = f"lequa2024-{task.lower()}"
    options = ["--data", tmp_path / "data", "--work", tmp_path / "runs", "--output", tmp_path / "out"]
    methods = "HistNetQ,EMNetQ-labels" if task == "T3" else "EMNetQ"
    small = ["--methods", methods, "--seeds", 2, "--trials", 1, "--epochs", 1]
    arguments = [name, *map(str, [*options, *small])]
    first = CliRunner().invoke(experiments, arguments)
    assert first.exit_code == 0, first.output
    path = tmp_path / f"out/{name}-submission.zip"
    checked = run("lequa", "check", path, task, tmp_path / "data")
    assert checked.output.startswith(f"Accepted: 3 bags, {CLASSES[task]} classes.\n"), checked.output
    about = (tmp_path / f"out/{name}.md").read_text()
    assert ("As published, the best" in about) == (task in ("T1", "T2"))
    assert about.startswith(f"LeQua 2024, task {task}, 3 test bags of 30.")
    before = path.read_bytes()
    again = CliRunner().invoke(experiments, arguments)
    assert again.output.count("done before") == 2 * len(methods.split(","))
    assert path.read_bytes() == before


@pytest.mark.usefixtures("at_random")
def test_a_task_without_the_truth_is_submitted_too(tmp_path):
    write_task(tmp_path / "data", "T1", n_test=3)
    (tmp_path / "data/T1/public/test_prevalences.txt").unlink()
    options = ["--data", tmp_path / "data", "--work", tmp_path / "runs", "--output", tmp_path / "out"]
    small = ["--methods", "EMNetQ", "--seeds", 1, "--trials", 1, "--epochs", 1]
    done = CliRunner().invoke(experiments, ["lequa2024-t1", *map(str, [*options, *small])])
    assert done.exit_code == 0, done.output
    assert "MRAE" not in done.output
    assert run("lequa", "check", tmp_path / "out/lequa2024-t1-submission.zip", "T1", tmp_path / "data").exit_code == 0
