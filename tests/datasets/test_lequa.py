"""LeQua's files: every way they may lie gives the same bags; what was kept is used only if it is whole and current."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import histnetq as hq
from histnetq.datasets import lequa2022, lequa2024
from histnetq.datasets.lequa import read_prevalences, read_tables
from tests.conftest import SMALL, exactly

PARTS = {"train_dev": ("training", "dev", "label"), "test": ("test_samples",), "test_prevalences": ("test_prev",)}


def write_table(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *(",".join(f"{v:g}" for v in row) for row in rows), ""]))


def write_bags(folder, name, n_bags, n_classes, rng, labelled=False):
    """Bags whose rows tell the bag's number: feature 0 is the number, feature 1 counts the rows."""
    prevalences = rng.dirichlet(np.ones(n_classes), n_bags).round(4)
    for i in range(n_bags):
        size = 4 + i % 3
        features = np.stack([np.full(size, i), np.arange(size), rng.normal(size=size).round(3)], axis=1)
        if labelled:
            features = np.column_stack([np.arange(size) % n_classes, features])
        write_table(folder / f"{name}_samples/{i}.txt", "label,0,1,2" if labelled else "0,1,2", features)
    ids = rng.permutation(n_bags)
    rows = np.column_stack([ids, prevalences[ids]])
    write_table(folder / f"{name}_prevalences.txt", ",".join(["id", *map(str, range(n_classes))]), rows)
    return prevalences


def write_lequa(root, task="T1A", n_classes=2, n_dev=20, n_test=3, seed=0):
    """A folder in LeQua's layout; returns the prevalences of the development bags."""
    folder, rng = Path(root) / task / "public", np.random.default_rng(seed)
    if task == "T3":
        write_bags(folder, "training", 4, n_classes, rng, labelled=True)
    else:
        labels = np.arange(30) % n_classes
        features = np.round(rng.normal(size=(30, 3)) + labels[:, None], 3)
        write_table(folder / "training_data.txt", "label,0,1,2", np.column_stack([labels, features]))
    codes = range(n_classes)
    (folder / "label_map.txt").write_text("\n".join(f"class {c}\t{c}" for c in reversed(codes)) + "\n")
    if n_test:
        write_bags(folder, "test", n_test, n_classes, rng)
    return write_bags(folder, "dev", n_dev, n_classes, rng)


def zip_files(root, path, begins=("",)):
    public = root / "T1A/public"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for member in sorted(public.rglob("*.txt")):
            if member.relative_to(public).as_posix().startswith(tuple(begins)):
                file.write(member, member.relative_to(root))
    return path


def fingerprints(data):
    return [part.fingerprint() for part in (data.train, data.bags, data.validation, data.test)]


@pytest.fixture
def root(tmp_path):
    write_lequa(tmp_path / "unpacked")
    return tmp_path / "unpacked"


def test_every_form_of_the_files_gives_the_same_bags(root, tmp_path):
    expected = fingerprints(lequa2022("T1A", root))
    places = [
        root / "T1A",
        root / "T1A/public",
        zip_files(root, tmp_path / "all.zip"),
        tmp_path / "holds",
        tmp_path / "parts",
    ]
    for folder in places[3:]:
        folder.mkdir()
    zip_files(root, tmp_path / "holds/any name.zip")
    (tmp_path / "holds/other.zip").write_bytes(b"no archive")
    for part, begins in PARTS.items():
        zip_files(root, tmp_path / f"parts/T1A.{part}.zip", begins)
    (tmp_path / "parts/T1B.test.zip").write_bytes(b"of another task")
    # Some unpacked, some not.
    shutil.copytree(tmp_path / "parts", tmp_path / "mixed")
    (tmp_path / "mixed/T1A.train_dev.zip").unlink()
    shutil.copytree(root, tmp_path / "mixed/T1A.train_dev", ignore=shutil.ignore_patterns("test*", ".*"))
    for place in [*places, tmp_path / "mixed"]:
        assert fingerprints(lequa2022("T1A", place, cache_dir=tmp_path / "kept")) == expected, place


def test_parts_hold_what_the_files_say(tmp_path):
    p = write_lequa(tmp_path)
    data = lequa2022("T1A", tmp_path)
    assert (data.name, data.classes.tolist()) == ("lequa2022-T1A", ["class 0", "class 1"])
    assert [len(part) for part in (data.train, data.bags, data.validation, data.test)] == [1, 14, 6, 3]
    assert data.calibration is None
    np.testing.assert_array_equal(data.train.labels[data.train.index], np.arange(30) % 2)
    np.testing.assert_allclose(data.train.prevalences, [[0.5, 0.5]])
    # In the order of the numbers, not of the names, and with the prevalences of the same number.
    assert sorted([*data.bags.ids, *data.validation.ids]) == list(range(20))
    for part in (data.bags, data.validation):
        for i, bag in zip(part.ids, part, strict=True):
            expected = np.stack([np.full(4 + i % 3, i), np.arange(4 + i % 3)], axis=1)
            np.testing.assert_array_equal(bag.gather()[:, :2], expected)
            np.testing.assert_allclose(bag.prevalences[0], p[i] / p[i].sum())
    assert data.test.ids.tolist() == [0, 1, 2]


def test_rows_of_bags_are_not_labelled_and_share_one_mapped_pool(root):
    data = lequa2022("T1A", root)
    assert (data.train.labels[30:] == -1).all()
    assert all(part.labels is None for part in (data.bags, data.validation, data.test))
    assert all(part.rows is data.train.rows for part in (data.bags, data.validation, data.test))
    assert isinstance(data.train.rows, np.memmap)
    assert data.train.rows.dtype == np.float32


def test_quantifiers_learn_from_mapped_rows(root):
    data = lequa2022("T1A", root)
    q = hq.HistNetQ("hard", 5, **SMALL).fit(data.bags)
    assert q.predict(data.validation).shape == (6, 2)
    train = data.train
    emq = hq.EMQ(cv=3).fit(train.gather(), train.classes[train.labels[train.index]])
    assert emq.predict(data.test).shape == (3, 2)


def test_labelled_bags_in_the_place_of_labelled_rows(tmp_path):
    write_lequa(tmp_path, "T3", n_classes=3)
    data = lequa2024("T3", tmp_path)
    assert (len(data.train), data.train.sizes.tolist(), data.name) == (4, [4, 5, 6, 4], "lequa2024-T3")
    for i, bag in enumerate(data.train):
        np.testing.assert_array_equal(bag.labels[bag.index], np.arange(len(bag.index)) % 3)
        assert (bag.gather()[:, 0] == i).all()
    np.testing.assert_allclose(data.train.prevalences.sum(1), 1)
    assert hq.APP(10).draw(data.train, 5, random_state=0).sizes.tolist() == [10] * 5


def test_test_files_may_be_missing(root):
    public = root / "T1A/public"
    (public / "test_prevalences.txt").unlink()
    assert lequa2022("T1A", root).test.prevalences is None
    shutil.rmtree(public / "test_samples")
    data = lequa2022("T1A", root)
    assert data.test_bags is None
    assert len(data.bags) == 14


def test_classes_without_names_are_codes(root):
    (root / "T1A/public/label_map.txt").unlink()
    assert lequa2022("T1A", root).classes.tolist() == [0, 1]


def refuse_to_parse(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("parsed again")

    monkeypatch.setattr("histnetq.datasets.lequa.read_tables", refuse)


def test_later_loads_do_not_parse(root, monkeypatch):
    first = fingerprints(lequa2022("T1A", root))
    refuse_to_parse(monkeypatch)
    assert fingerprints(lequa2022("T1A", root)) == first


def test_moved_data_are_not_parsed_again(root, tmp_path, monkeypatch):
    first = fingerprints(lequa2022("T1A", root))
    refuse_to_parse(monkeypatch)
    root.rename(tmp_path / "moved")
    assert fingerprints(lequa2022("T1A", tmp_path / "moved")) == first
    monkeypatch.chdir(tmp_path)
    assert fingerprints(lequa2022("T1A", "moved")) == first


def test_changed_sources_are_read_again(root, monkeypatch):
    before = lequa2022("T1A", root)
    changed = root / "T1A/public/dev_samples/7.txt"
    changed.write_text(changed.read_text() + "7,99,1\n")
    after = lequa2022("T1A", root)
    assert len(after.train.rows) == len(before.train.rows) + 1
    assert len(list((root / ".histnetq").iterdir())) == 1
    status = changed.stat()
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    refuse_to_parse(monkeypatch)
    with pytest.raises(AssertionError, match="parsed again"):
        lequa2022("T1A", root)


def cut(path):
    path.write_bytes(path.read_bytes()[:-8])


@pytest.mark.parametrize("damage", [cut, Path.unlink, lambda path: path.write_bytes(b"")], ids=["cut", "lost", "empty"])
@pytest.mark.parametrize("name", ["rows.f32", "arrays.npz", "about.json"])
def test_what_is_not_whole_is_read_again(root, name, damage):
    first = fingerprints(lequa2022("T1A", root))
    kept = root / ".histnetq/lequa2022-T1A"
    damage(kept / name)
    assert fingerprints(lequa2022("T1A", root)) == first
    assert [path.name for path in kept.parent.iterdir()] == ["lequa2022-T1A"]


def test_a_failed_load_leaves_nothing_behind(root):
    (root / "T1A/public/dev_samples/12.txt").write_text("0,1,2\n1,2,x\n")
    with pytest.raises(ValueError, match=r"dev_samples/12\.txt is damaged"):
        lequa2022("T1A", root)
    assert list((root / ".histnetq").iterdir()) == []


def test_unfinished_directories_are_removed_when_no_one_writes_them(root):
    for name, age in (("a" * 32, 7200), ("b" * 32, 0)):
        rows = root / f".histnetq/.lequa2022-T1A-{name}/rows.f32"
        rows.parent.mkdir(parents=True)
        rows.write_bytes(b"")
        os.utime(rows, (rows.stat().st_mtime - age,) * 2)
    lequa2022("T1A", root)
    assert sorted(path.name[:16] for path in (root / ".histnetq").iterdir()) == [".lequa2022-T1A-b", "lequa2022-T1A"]


def test_what_was_read_is_kept_beside_the_data_or_in_the_users_cache(root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    root.chmod(0o555)
    lequa2022("T1A", root)
    root.chmod(0o755)
    assert not (root / ".histnetq").exists()
    assert [path.name[:14] for path in (tmp_path / "home/histnetq").iterdir()] == ["lequa2022-T1A-"]
    lequa2022("T1A", root)
    assert (root / ".histnetq/lequa2022-T1A/rows.f32").is_file()
    packed = zip_files(root, tmp_path / "all.zip")
    lequa2022("T1A", packed)
    assert (tmp_path / ".histnetq/all.zip-lequa2022-T1A/rows.f32").is_file()
    (tmp_path / "file").touch()
    with pytest.raises(
        OSError, match=r"cache_dir: cannot write to .*file \(.*\), expected a writable directory for the parsed rows; "
    ):
        lequa2022("T1A", root, cache_dir=tmp_path / "file")


def test_data_are_looked_for_where_they_are_fetched_to(root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    shutil.copytree(root, tmp_path / "home/histnetq/lequa2022")
    assert len(lequa2022("T1A").bags) == 14
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "empty"))
    with pytest.raises(FileNotFoundError, match=f"^data_dir: {tmp_path}/empty/histnetq/lequa2022 lacks"):
        lequa2022("T1A")
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))
    shutil.copytree(root, tmp_path / "share/datasets/lequa2022")
    assert len(lequa2022("T1A").bags) == 14


def test_missing_data_are_explained(root, tmp_path):
    message = (
        f"data_dir: {tmp_path / 'none'} lacks training_data.txt, dev_samples/0.txt, dev_prevalences.txt of "
        "lequa2022-T1B, expected T1B.train_dev.zip (for the final score also T1B.test.zip and "
        "T1B.test_prevalences.zip) of Zenodo record 6546188, packed or unpacked; put them there, or run "
        f"histnetq.datasets.fetch('lequa2022-T1B', to='{tmp_path / 'none'}')."
    )
    with pytest.raises(FileNotFoundError, match=exactly(message)):
        lequa2022("T1B", tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"lacks training_data\.txt, .* of Zenodo record 11661820, .*T2"):
        lequa2024("T2", zip_files(root, tmp_path / "all.zip"))
    for other in (root, root / "T1A", root / "T1A/public"):
        with pytest.raises(FileNotFoundError, match="of lequa2022-T1B"):
            lequa2022("T1B", other)
    (root / "T1A/public/dev_prevalences.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks dev_prevalences\.txt of lequa2022-T1A, expected"):
        lequa2022("T1A", root)
    with pytest.raises(
        ValueError, match=exactly("task: expected one of 'T1A', 'T1B', got 'T1'; perhaps you mean 'T1B'.")
    ):
        lequa2022("T1", root)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("dev_samples/0.txt", "a,b\n1,2\n", "dev_samples/0.txt begins with a,b, expected the header 0,1,2,…; unpack"),
        ("dev_samples/3.txt", "0,1\n1,2\n", "dev_samples/3.txt is damaged (the header is 0,1), expected rows"),
        ("dev_samples/3.txt", "0,1,2\n", "dev_samples/3.txt is damaged (no rows), expected rows of finite numbers"),
        ("dev_samples/3.txt", "0,1,2\n1,2\n", "dev_samples/3.txt is damaged (2 columns in 1 rows of 1 lines)"),
        ("dev_samples/3.txt", "0,1,2\n1,2,3\n4,5\n", "dev_samples/3.txt is damaged (row 1 has a missing"),
        ("dev_samples/3.txt", "0,1,2\n1,2,3\n4,5,6,7\n", "dev_samples/3.txt is damaged (Error tokenizing data."),
        ("dev_samples/3.txt", "0,1,2\n1,2,inf\n", "dev_samples/3.txt is damaged (row 0 has a missing"),
        ("dev_samples/3.txt", "0,1,2\n1,2,3\n\n4,5,6\n", "dev_samples/3.txt is damaged (row 1 has a missing"),
        ("dev_samples/22.txt", "0,1,2\n1,2,3\n", "dev_samples/20.txt is missing, expected 0.txt, 1.txt and so on"),
        ("label_map.txt", "a 0\nb 2\n", "label_map.txt is damaged, expected a name and a code from 0 to 1"),
        ("label_map.txt", "a 0\nb\n", "label_map.txt is damaged, expected a name and a code from 0 to 1 on"),
        ("training_data.txt", "label,0,1,2\n2,1,1,1\n", "the label of training row 0 is 2, expected a code from 0"),
        ("training_data.txt", "label,0,1,2\n.5,1,1,1\n", "the label of training row 0 is 0.5, expected a code"),
        ("training_data.txt", "0,1,2\n1,1,1\n", "training_data.txt is damaged (the header is 0,1,2), expected rows"),
        ("test_prevalences.txt", "id,0,1\n0,1,0\n2,1,0\n", "test_prevalences.txt has 2 ids from 0 to 2, expected 0"),
        ("test_prevalences.txt", "id,0,1,2\n0,1,0,0\n", "test_prevalences.txt is damaged (3 classes), expected the"),
    ],
)  # fmt: skip
def test_damaged_files_are_named(root, name, content, message):
    (root / "T1A/public" / name).write_text(content)
    with pytest.raises(ValueError) as raised:
        lequa2022("T1A", root)
    assert str(raised.value).startswith("data_dir: ")
    assert message in str(raised.value)
    assert str(raised.value).endswith("again.")


def test_prevalences_sum_to_one():
    def read(text):
        return read_prevalences(("p.txt", lambda: text.encode()), 2, 2)

    np.testing.assert_allclose(read("id,0,1\r\n1,0.2,0.7995\r\n0,1,0"), [[1, 0], [0.2 / 0.9995, 0.7995 / 0.9995]])
    message = (
        "data_dir: p.txt: the row of id 1 sums to 0.95 or has a negative number, expected proportions that sum to "
        "1 ± 0.001; unpack or fetch it again."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        read("id,0,1\n0,1,0\n1,0.15,0.8\n")
    with pytest.raises(ValueError, match="the row of id 0 sums to 1 or has a negative number"):
        read("id,0,1\n0,1.5,-0.5\n1,0.5,0.5\n")
    with pytest.raises(ValueError, match="the row of id 1 sums to nan"):
        read("id,0,1\n0,1,0\n1,nan,0.8\n")


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.integers(1, 4),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_files_read_together_equal_files_read_alone(sizes, n_columns, line_end, ended, seed):
    rng = np.random.default_rng(seed)
    tables = [rng.normal(size=(n, n_columns)) * 10.0 ** rng.integers(-20, 20) for n in sizes]
    header = ",".join(map(str, range(n_columns)))
    texts = [line_end.join([header, *(",".join(map(repr, row)) for row in t.tolist())]) for t in tables]
    files = [(str(i), lambda text=text: (text + line_end * ended).encode()) for i, text in enumerate(texts)]
    together, counts = read_tables(files, header)
    assert counts == sizes
    np.testing.assert_array_equal(together, np.concatenate([read_tables([file], header)[0] for file in files]))
    np.testing.assert_allclose(together, np.concatenate(tables), rtol=1e-6)


def test_unsafe_archives_are_refused_before_anything_is_read(root, tmp_path):
    packed = zip_files(root, tmp_path / "T1A.train_dev.zip")
    with zipfile.ZipFile(packed, "a") as file:
        file.writestr("../../outside.txt", "no")
    with pytest.raises(ValueError, match=r"outside\.txt' in .* has a name that leads out of the archive"):
        lequa2022("T1A", tmp_path)
    assert not (tmp_path / ".histnetq").exists()
