"""Images from files: bags by folders or tables, decoded once, and never more of a file than is safe."""

from __future__ import annotations

import json
import os
import struct
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from PIL import Image

import histnetq as hq
from histnetq.cli import main
from histnetq.tables import image_files
from tests.conftest import exactly


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def write_images(root, n_bags=3, size=4, side=12, seed=0, labelled=False):
    """Bright eels and dark cods, in ``root/bag`` or ``root/bag/class``; gives the share of eels in each bag."""
    rng, shares = np.random.default_rng(seed), []
    for i in range(n_bags):
        eels = rng.random(size) < rng.random()
        for j, eel in enumerate(eels.tolist()):
            pixels = rng.normal(180 if eel else 70, 25, (side, side)).clip(0, 255).astype(np.uint8)
            folder = Path(root, f"scan{i}", *(["eel" if eel else "cod"] if labelled else []))
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{j}.png")
        shares.append(eels.mean())
    return np.array(shares)


@pytest.fixture
def scans(tmp_path):
    write_images(tmp_path / "scans")
    return tmp_path / "scans"


def refuse_to_decode(monkeypatch):
    def refuse(file, shape):
        raise AssertionError(f"decoded {file}")

    monkeypatch.setattr(image_files, "_decode", refuse)


def test_a_folder_is_a_bag_and_images_have_one_size(scans):
    bags = hq.read_images(scans, size=8)
    assert (bags.ids.tolist(), bags.sizes.tolist()) == (["scan0", "scan1", "scan2"], [4, 4, 4])
    assert (bags.rows.shape, bags.rows.dtype) == ((12, 8, 8), np.uint8)
    assert bags.prevalences is None
    same = hq.read_images(f"{scans}/*/*.png", size=8)
    assert same.fingerprint() == bags.fingerprint()
    own = hq.read_images(scans, bag=lambda file: file.stem, size=8, color=True)
    assert (own.ids.tolist(), own.rows.shape) == ([0, 1, 2, 3], (12, 3, 8, 8))


def test_pixels_are_those_of_the_files(tmp_path):
    (tmp_path / "a").mkdir()
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    forms = {
        "0.png": Image.fromarray(grey),
        "1.bmp": Image.fromarray(grey).convert("RGB"),
        "2.png": Image.fromarray(grey.astype(np.uint16) * 257),
        "3.png": Image.merge("LA", [Image.fromarray(grey), Image.new("L", (8, 8), 255)]),
        "4.gif": Image.fromarray(grey),
    }
    for name, image in forms.items():
        image.save(tmp_path / "a" / name)
    Image.new("LA", (8, 8), (0, 0)).save(tmp_path / "a/5.png")
    Image.fromarray(np.repeat(grey, 2, axis=1)).save(tmp_path / "a/6.png")
    rows = hq.read_images(tmp_path, size=8).rows
    for i in range(5):
        np.testing.assert_allclose(rows[i].astype(int), grey, atol=1, err_msg=str(i))
    assert (rows[5] == 255).all(), "what is transparent is white"
    assert (rows[6][[0, -1]] == grey[0, 0]).all(), "a wide image keeps its proportions"


def test_labels_come_from_folders_and_proportions_from_a_table(tmp_path):
    shares = write_images(tmp_path / "labelled", labelled=True)
    bags = hq.read_images(tmp_path / "labelled", label="species", size=8)
    assert bags.classes.tolist() == ["cod", "eel"]
    np.testing.assert_allclose(bags.prevalences[:, 1], shares)
    bright = bags.rows[bags.index].reshape(12, -1).mean(1) > 125
    np.testing.assert_array_equal(bright, bags.labels[bags.index] == 1)
    write_images(tmp_path / "plain")
    table = pd.DataFrame({"scan": ["scan2", "scan0", "scan1"], "cod": [1, 2, 3], "eel": [3, 2, 1]})
    known = hq.read_images(tmp_path / "plain", bag="scan", prevalences=table, counts=True, size=8)
    np.testing.assert_allclose(known.prevalences, [[0.5, 0.5], [0.75, 0.25], [0.25, 0.75]])
    with pytest.raises(ValueError, match=exactly("prevalences: expected either label= or prevalences=, got both; "
                                                 "leave one out.")):  # fmt: skip
        hq.read_images(tmp_path / "plain", label="x", prevalences=table)


def test_images_are_decoded_once(scans, monkeypatch):
    first = hq.read_images(scans, size=8)
    assert hq.read_images(scans, size=9).rows.shape == (12, 9, 9)
    refuse_to_decode(monkeypatch)
    again = hq.read_images(scans, size=8)
    assert again.fingerprint() == first.fingerprint()
    np.testing.assert_array_equal(again.rows, first.rows)


def test_only_what_changed_is_decoded_again(scans, monkeypatch):
    before = hq.read_images(scans, size=8)
    decoded, decode = [], image_files._decode

    def noted(file, shape):
        decoded.append(file.relative_to(scans).as_posix())
        return decode(file, shape)

    monkeypatch.setattr(image_files, "_decode", noted)
    Image.new("L", (9, 9), 7).save(scans / "scan1/2.png")
    Image.new("L", (9, 9), 9).save(scans / "scan0/new.png")
    after = hq.read_images(scans, size=8)
    assert sorted(decoded) == ["scan0/new.png", "scan1/2.png"]
    assert after.sizes.tolist() == [5, 4, 4]
    changed = after.rows.reshape(13, -1).mean(1)
    assert (changed[4], changed[7]) == (9, 7)
    np.testing.assert_array_equal(after.rows[:4], before.rows[:4])
    (scans / "scan0/new.png").unlink()
    assert hq.read_images(scans, size=8).sizes.tolist() == [4, 4, 4]
    assert len(decoded) == 2


def test_a_damaged_or_unwritable_cache_is_no_error(scans, tmp_path):
    first = hq.read_images(scans, size=8, cache_dir=tmp_path / "cache")
    (kept,) = (tmp_path / "cache").iterdir()
    for content in (kept.read_bytes()[:-100], b"", b"no array"):
        kept.unlink()  # the memory map above keeps the old one
        kept.write_bytes(content)
        again = hq.read_images(scans, size=8, cache_dir=tmp_path / "cache")
        np.testing.assert_array_equal(again.rows, first.rows)
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match=r"^cache_dir: .* cannot be written .*; choose another place\. Images are"):
        again = hq.read_images(scans, size=8, cache_dir=tmp_path / "file")
    np.testing.assert_array_equal(again.rows, first.rows)


def test_a_truncated_image_is_named_and_left_out_only_on_request(scans):
    whole = hq.read_images(scans, size=8)
    cut = scans / "scan1/1.png"
    cut.write_bytes(cut.read_bytes()[:-60])
    with pytest.raises(ValueError) as raised:
        hq.read_images(scans, size=8)
    message = str(raised.value)
    assert message.startswith(f"source: 1 of 12 images cannot be read: {cut} (")
    assert message.endswith("), expected whole images; repair them, or pass skip_unreadable=True.")
    for _ in range(2):  # decoded, and from the cache
        with pytest.warns(UserWarning, match=rf"^1 of 12 images cannot be read: {cut} .*; they are left out\.$"):
            bags = hq.read_images(scans, size=8, skip_unreadable=True)
        assert bags.sizes.tolist() == [4, 3, 4]
        np.testing.assert_array_equal(bags[0].gather(), whole[0].gather())
        np.testing.assert_array_equal(bags[2].gather(), whole[2].gather())


def test_unreadable_images_have_no_label(tmp_path):
    write_images(tmp_path, size=8, labelled=True)
    file = sorted(tmp_path.glob("scan1/*/*.png"))[0]
    file.write_bytes(b"no image")
    with pytest.warns(UserWarning, match=r"\(is not an image\); they are left out"):
        bags = hq.read_images(tmp_path, label="species", size=8, skip_unreadable=True)
    assert (bags.labels == -1).sum() == 1
    assert bags.sizes.tolist() == [8, 7, 8]
    np.testing.assert_allclose(bags.prevalences, bags.label_prevalences())


def png_of(width, height):
    """A PNG file whose header promises so many pixels."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (png_of(10_000, 6_000), r"has 10,000 x 6,000 pixels, expected at most 50,000,000"),
        (png_of(100_000, 100_000), r"has too many pixels, expected at most 50,000,000"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not an image"),
        (b"", "is not an image"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "is .*"),
    ],
)
def test_bombs_and_what_is_no_image_are_named(scans, content, why):
    (scans / "scan0/0.png").write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=rf"1 of 12 images cannot be read: .*scan0/0\.png \({why}\), expected"):
            hq.read_images(scans, size=8)


def test_whatever_a_decoder_raises_is_told(scans, monkeypatch):
    def fail(image, shape):
        raise zlib.error("Error -3")

    monkeypatch.setattr(image_files, "_resized", fail)
    with pytest.raises(ValueError, match=r"^source: 12 of 12 images cannot be read: .* \(is damaged: Error -3\)"):
        hq.read_images(scans, size=8)


def test_odd_names_break_no_line(tmp_path):
    os.makedirs(tmp_path / "new\nline")
    for name in ("\x1b[31mred.png", "a b.png"):
        (tmp_path / "new\nline" / name).write_bytes(b"x")
    with pytest.raises(
        ValueError, match=r"^source: 2 of 2 images cannot be read: .*x1b.*red\.png.*new\\nline"
    ) as raised:
        hq.read_images(tmp_path)
    assert str(raised.value).isprintable()


@pytest.mark.skipif(os.name != "posix" or sys.platform == "darwin", reason="Names are texts there.")
def test_folders_whose_names_are_no_texts_are_refused(tmp_path):
    folder = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(folder)
    Image.new("L", (4, 4)).save(os.fsdecode(os.path.join(folder, b"1.png")))
    message = r"source: expected folders whose names are texts in UTF-8, got 'caf\udce9'; rename it."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.read_images(tmp_path, size=8)


def test_nothing_to_read_is_told(tmp_path, scans):
    with pytest.raises(FileNotFoundError, match=r"^source: no images in .*none, expected files such as \*\.png; name"):
        hq.read_images(tmp_path / "none")
    for file in scans.rglob("*.png"):
        file.write_bytes(b"x")
    with pytest.raises(ValueError, match=r"^source: 12 of 12 images cannot be read: .* and 9 others, expected images"):
        hq.read_images(scans, skip_unreadable=True)
    write_images(tmp_path / "more/scans")
    with pytest.raises(ValueError, match=r"^bag: .*scan0 and .*scan0 have one name, expected one folder for each bag"):
        hq.read_images([scans, tmp_path / "more"])
    with pytest.raises(ValueError, match=exactly("size: expected a whole number from 4 to 1024, got 0; give the pixels "
                                                 "of a side.")):  # fmt: skip
        hq.read_images(scans, size=0)


def test_an_image_counts_once_in_its_bag_and_bags_may_share_it(scans, monkeypatch):
    monkeypatch.chdir(scans)
    image = sorted(scans.glob("*/*.png"))[0]
    relative, n_images = image.relative_to(scans), len(list(scans.glob("*/*.png")))
    told = f"source: {image} and {relative} are one file, which would count double; name it once."
    with pytest.raises(ValueError, match=exactly(told)):
        hq.read_images([scans, relative], cache_dir=scans / "kept")
    shared = next(folder for folder in sorted(scans.iterdir()) if folder.is_dir() and folder != image.parent)
    (shared / "shared.png").symlink_to(image)
    assert len(hq.read_images(scans, cache_dir=scans / "kept").rows) == n_images + 1


def write_ecotaxa(folder, **changed):
    write_images(folder / "img", n_bags=2, size=5)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))
    table = pd.DataFrame({
        "object_id": [f"o{i}" for i in range(10)], "img_file_name": files, "img_rank": "0",
        "sample_id": ["north"] * 4 + ["south"] * 6, "object_area": "1.5",
        "object_annotation_category": ["Copepoda", "detritus"] * 5,
        "object_annotation_status": ["validated"] * 8 + ["predicted", "dubious"],
    }).assign(**changed)  # fmt: skip
    types = pd.DataFrame([["[f]" if column == "object_area" else "[t]" for column in table]], columns=table.columns)
    pd.concat([types, table]).to_csv(folder / "ecotaxa_export.tsv", sep="\t", index=False)
    return folder / "ecotaxa_export.tsv"


def test_a_table_of_ecotaxa(tmp_path):
    path = write_ecotaxa(tmp_path)
    bags = hq.read_images(path, label="object_annotation_category", size=8)
    assert (bags.ids.tolist(), bags.sizes.tolist()) == (["north", "south"], [4, 4])
    assert bags.classes.tolist() == ["Copepoda", "detritus"]
    np.testing.assert_allclose(bags.prevalences, 0.5)
    assert hq.read_images(path, size=8).sizes.tolist() == [4, 6], "without labels, also what nobody has validated"
    other = hq.read_images(path, bag="object_annotation_status", size=8)
    assert other.ids.tolist() == ["validated", "predicted", "dubious"]


def test_of_several_images_of_an_object_the_first_counts(tmp_path):
    objects, ranks = [f"o{i // 2}" for i in range(10)], ["1", "0"] * 5
    bags = hq.read_images(write_ecotaxa(tmp_path, object_id=objects, img_rank=ranks), size=8)
    assert bags.sizes.tolist() == [2, 3]
    file = sorted(tmp_path.rglob("*.png"))[1]
    expected = hq.read_images(file, size=8, cache_dir=tmp_path / "other").rows[0]
    np.testing.assert_array_equal(bags.gather()[0], expected)


@pytest.mark.parametrize("name", ["../out.png", "/etc/passwd", "a\\..\\..\\out.png", "C:\\out.png", ""])
def test_a_table_names_images_beside_it_only(tmp_path, name):
    path = write_ecotaxa(tmp_path, img_file_name=[name] + ["x.png"] * 9)
    with pytest.raises(ValueError, match=r"names the image '.*', expected a file beside it; move it there\.$"):
        hq.read_images(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="This system has no pipes.")
def test_a_table_that_names_a_pipe_or_a_device_does_not_hang(tmp_path):
    path = write_ecotaxa(tmp_path, img_file_name=["pipe.png", "zero.png"] + ["img/scan0/0.png"] * 8)
    os.mkfifo(tmp_path / "pipe.png")
    os.symlink("/dev/zero", tmp_path / "zero.png")
    why = r"\(is not a regular file\)"
    message = rf"2 of 10 images cannot be read: .*pipe\.png {why}, .*zero\.png {why}"
    with pytest.raises(ValueError, match=message):
        hq.read_images(path)


def test_tables_that_lack_something_are_refused(tmp_path):
    path = write_ecotaxa(tmp_path)
    with pytest.raises(ValueError, match=r"has no column 'station', expected one; name a column that it has\.$"):
        hq.read_images(path, bag="station")
    path = write_ecotaxa(tmp_path, object_annotation_status="predicted")
    with pytest.raises(ValueError, match=r"has no validated rows, expected some; export others\.$"):
        hq.read_images(path, label="object_annotation_category")
    path = write_ecotaxa(tmp_path, sample_id=["a"] * 9 + [""])
    with pytest.raises(ValueError, match=r"has nothing in column 'sample_id' for 'img/scan1/4\.png'; fill it in\.$"):
        hq.read_images(path)


def test_images_from_folders_to_answers_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_images("scans", n_bags=24, size=10, labelled=True)
    fitted = run("fit", "--images", "scans", "--label", "species", "--method", "pacc", "--image-size", 8, "-o", "model")
    assert fitted.exit_code == 0, fitted.output
    assert "PACC learned 2 classes from 24 bags and images of 8 x 8 pixels; kept in model." in fitted.output
    shares = write_images("new", n_bags=4, size=10, seed=1)
    predicted = run("predict", "model", "new", "--images", "--bag", "scan", "-o", "answer.csv", "--wide")
    assert predicted.exit_code == 0, predicted.output
    found = pd.read_csv("answer.csv")
    assert found["scan"].tolist() == [f"scan{i}" for i in range(4)]
    np.testing.assert_allclose(found["eel"], shares, atol=0.1)
    cut = Path("new/scan2/1.png")
    cut.write_bytes(cut.read_bytes()[:-60])
    refused = run("predict", "model", "new", "--images")
    assert refused.exit_code == 2
    assert refused.output.startswith("Error: NEW: 1 of 40 images cannot be read: new/scan2/1.png (")
    assert refused.output.endswith("repair them, or pass --skip-unreadable.\n")
    skipped = run("predict", "model", "new", "--images", "--skip-unreadable", "--wide")
    assert skipped.exit_code == 0, skipped.output
    assert "new/scan2/1.png" in skipped.output
    assert run("info", "model").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "scans", "--images", "-o", "m"], "--label, --prevalences: expected one of them"),
        (["fit", "scans", "--images", "--label", "x", "--features", "a", "-o", "m"], "expected no --features with"),
        (["fit", "scans", "--images", "--label", "x", "--bag", "a", "--bag", "b", "-o", "m"], "expected --bag only"),
        (["fit", "none", "--images", "--label", "x", "-o", "m"], "TRAIN: no images in none, expected files such as"),
        (["predict", "model", "scans", "--images", "--weight", "w"], "expected no --weight with --images: "),
        (["predict", "model", "scans", "--images", "--rows", "m"], "expected no --rows with --images: it is about"),
        (["predict", "model", "rows.csv", "--skip-unreadable"], "expected --skip-unreadable only with --images"),
        (["fit", "rows.csv", "--image-size", 32, "--label", "x", "-o", "m"], "expected --image-size only with"),
        (["tune", "scans", "--images", "--label", "x", "--text", "a", "-o", "m"], "expected no --text with --images"),
        (["compare", "scans", "--images", "--label", "x", "--scratch", "m"], "expected no --scratch with --images"),
        (["compare", "scans", "--images", "--label", "x", "--model", "model", "--color"], "expected no --color with"),
        (["compare", "scans", "--images", "--model", "model"], "--label, --prevalences: expected one of them"),
        (["evaluate", "model", "scans", "--images"], "--label, --prevalences: expected one of them"),
        (
            ["evaluate", "model", "scans", "--label", "x"],
            "--bag: expected a value, got none; add --bag with the column that names the bag of each row.",
        ),
        (["report", "model", "scans", "--images", "--missing", "drop", "-o", "m"], "expected no --missing with"),
        (["sketch", "model", "scans", "--images", "--dask", "local", "-o", "m"], "expected no --dask with --images"),
        (["evaluate", "model", "scans", "--images", "--label", "x"], "MODEL: expected a model of square images"),
        (["fit", "scans", "--label", "x", "-o", "m"], "TRAIN: scans is a directory; name its files, such as "),
        (["evaluate", "grey", "scans", "--label", "x", "--bag", "b"], "of shape (4, 4); add --images."),
        (["predict", "grey", "scans"], "or add --images if it holds images."),
        (["predict", "model", "scans", "--images"], "MODEL: expected a model of square images, grey or with three"),
    ],
)
def test_what_images_cannot_do_is_refused(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_images("scans")
    rng = np.random.default_rng(0)
    hq.CC(cv=2).fit(rng.normal(size=(40, 3)), np.arange(40) % 2).save("model")
    hq.CC(cv=2).fit(rng.normal(size=(40, 4, 4)), np.arange(40) % 2).save("grey")
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert message in refused.output
    assert "Traceback" not in refused.output
    assert not os.path.exists("m")


@pytest.fixture
def fitted(tmp_path, monkeypatch):
    """Labelled images of 24 bags in ``scans``, others of 4 bags in ``new``, and a ``model`` of the first."""
    monkeypatch.chdir(tmp_path)
    write_images("scans", n_bags=24, size=10, labelled=True)
    shares = write_images("new", n_bags=4, size=10, seed=1, labelled=True)
    learn = ("--label", "species", "--method", "pacc", "--image-size", 8, "-o", "model")
    assert run("fit", "--images", "scans", *learn).exit_code == 0
    return shares


def test_models_of_images_are_judged_on_images(fitted):
    told = run("evaluate", "model", "new", "--images", "--label", "species", "--json")
    assert told.exit_code == 0, told.output
    model, bags = hq.load("model"), hq.read_images("new", label="species", size=8)
    assert json.loads(told.output)["ae"] == pytest.approx(hq.evaluate(model, bags)["ae"].mean())
    pd.DataFrame({"scan": bags.ids, "cod": 1 - fitted, "eel": fitted}).to_csv("scans.csv", index=False)
    write_images("plain", n_bags=4, size=10, seed=1)
    of_table = run("evaluate", "model", "plain", "--images", "--bag", "scan", "--prevalences", "scans.csv", "--json")
    assert json.loads(of_table.output)["ae"] == pytest.approx(json.loads(told.output)["ae"])
    compared = run("compare", "new", "--images", "--label", "species", "--model", "model", "--json")
    assert compared.exit_code == 0, compared.output
    assert json.loads(compared.output)["methods"]["model"]["ae"] == pytest.approx(json.loads(told.output)["ae"])
    page = run("report", "model", "new", "--images", "--label", "species", "--against", "model")
    assert page.exit_code == 0, page.output
    assert "scan3" in Path("report.html").read_text()
    assert run("report", "model", "plain", "--images", "-o", "other.html").exit_code == 0


def test_models_of_images_are_tuned_and_methods_compared(fitted):
    tuned = run("tune", "--images", "scans", "--label", "species", "--method", "hdx", "--trials", 2, "--image-size", 8,
                "-o", "tuned")  # fmt: skip
    assert tuned.exit_code == 0, tuned.output
    assert hq.load("tuned").input_shape_ == (8, 8)
    compared = run("compare", "scans", "--images", "--label", "species", "--methods", "cc,pacc", "--image-size", 8)
    assert compared.exit_code == 0, compared.output
    assert "Learns from images of 8 x 8 pixels." in compared.output
    assert "PACC" in compared.output


def test_images_are_sketched(fitted):
    write_images("plain", n_bags=4, size=10, seed=1)
    sketched = run("sketch", "model", "plain", "--images", "--bag", "scan", "-o", "plain.parquet")
    assert sketched.exit_code == 0, sketched.output
    found = [
        run("predict", "model", "plain.parquet", "--wide").stdout,
        run("predict", "model", "plain", "--images", "--bag", "scan", "--wide").stdout,
    ]
    assert found[0] == found[1]
    assert found[0].startswith("scan,")


def test_every_command_leaves_out_unreadable_images_and_uses_the_cache(fitted, monkeypatch):
    cut = sorted(Path("new").rglob("*.png"))[5]
    cut.write_bytes(cut.read_bytes()[:-60])
    known = ("--images", "--label", "species", "--image-cache", "kept")
    commands = {
        "evaluate": ("model", "new", *known), "report": ("model", "new", *known),
        "compare": ("new", *known, "--model", "model"),
    }  # fmt: skip
    for command, arguments in commands.items():
        refused = run(command, *arguments)
        assert refused.exit_code == 2
        assert "TABLE: 1 of 40 images cannot be read" in refused.output, command
        assert refused.output.endswith("repair them, or pass --skip-unreadable.\n")
        skipped = run(command, *arguments, "--skip-unreadable")
        assert skipped.exit_code == 0, skipped.output
        assert f"1 of 40 images cannot be read: {cut}" in skipped.output, command
    assert len(list(Path("kept").iterdir())) == 1
    cut.unlink()
    assert run("evaluate", "model", "new", *known).exit_code == 0
    refuse_to_decode(monkeypatch)
    assert run("evaluate", "model", "new", *known).exit_code == 0


def test_a_table_of_ecotaxa_needs_no_label_to_be_judged_by(fitted):
    Path("export").mkdir()
    path = write_ecotaxa(Path("export"), object_annotation_category=["cod", "eel"] * 5)
    judged = run("evaluate", "model", path, "--images", "--json")
    assert judged.exit_code == 0, judged.output
    assert json.loads(judged.output)["bags"] == 2
