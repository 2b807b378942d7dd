"""Which columns of a table become features, how their numbers are kept, and tables without bags."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import histnetq as hq
from histnetq.cli import main
from histnetq.sketches.tables import sketch_table
from histnetq.tables.long_tables import read_bags_and_unseen
from tests.conftest import QUANTIFIERS, exactly


def test_labelled_rows_in_no_bags_are_one_bag() -> None:
    rows = pd.DataFrame({"length": [1.0, 2.5, 3.0, 4.0], "diagnosis": ["x", "y", "y", "y"]})
    for bag in (None, []):
        bags = hq.read_bags(rows, bag=bag, label="diagnosis")
        assert len(bags) == 1
        assert bags.ids.tolist() == ["all"]
        assert bags.rows[bags.index].ravel().tolist() == [1, 2.5, 3, 4]
        assert bags.classes[bags.labels].tolist() == ["x", "y", "y", "y"]
        np.testing.assert_allclose(bags.prevalences, [[0.25, 0.75]])


def test_proportions_need_bags() -> None:
    rows = pd.DataFrame({"length": [1.0, 2.0]})
    known = pd.DataFrame({"x": [0.5], "y": [0.5]})
    with pytest.raises(ValueError, match="bag: expected the columns that name the bags of prevalences, got none"):
        hq.read_bags(rows, prevalences=known)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def fishes(n: int = 1200, n_bags: int = 60, seed: int = 0) -> pd.DataFrame:
    """Fishes of two species in tows: length tells them apart, everything else is of no use."""
    rng = np.random.default_rng(seed)
    tow = np.repeat(np.arange(n_bags), n // n_bags)
    species = rng.random(n) < rng.beta(1, 1, n_bags)[tow]
    return pd.DataFrame(
        {
            "fish_no": 10_000_000 + rng.permutation(n), "in_tow": np.tile(np.arange(n // n_bags), n_bags) + 3,
            "ship": 7.5, "note": "n", "rings": rng.integers(1, 9, n), "length": rng.normal(species, 0.7),
            "tow": [f"t{t}" for t in tow], "species": np.where(species, "eel", "cod"),
        }
    )  # fmt: skip


def stored(frame: pd.DataFrame, folder: Path, kind: str) -> str:
    path = folder / f"rows.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path, index=False, row_group_size=400)
    return str(path)


WHY = {
    "fish_no": "a key: 1,200 rows hardly repeat a number",
    "in_tow": "a counter: it rises or falls from row to row in every bag",
    "ship": "constant",
    "note": "texts",
}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("scratch", [False, True])
def test_keys_counters_and_constants_are_no_features(tmp_path: Path, kind: str, scratch: bool) -> None:
    frame = fishes()
    source, options = stored(frame, tmp_path, kind), {"scratch": tmp_path} if scratch else {}
    bags = hq.read_bags(source, bag="tow", label="species", **options)
    assert bags.feature_names == ["rings", "length"]
    assert bags.facts is not None
    assert bags.facts.left_out == WHY
    np.testing.assert_allclose(bags.rows, frame[["rings", "length"]], rtol=1e-6)
    np.testing.assert_allclose(bags.facts.means, frame[["rings", "length"]].mean())
    named = hq.read_bags(source, bag="tow", label="species", features=["fish_no", "in_tow", "ship", "length"])
    assert named.feature_names == ["fish_no", "in_tow", "ship", "length"]
    assert named.facts is not None
    assert named.facts.left_out == {}
    np.testing.assert_allclose(named.rows, frame[named.feature_names], rtol=1e-6)


def test_whole_numbers_that_repeat_or_do_not_rise_everywhere_are_features() -> None:
    frame = fishes()
    rng = np.random.default_rng(1)
    frame["grams"] = rng.integers(0, 600, len(frame))  # 1,200 rows repeat most of these
    frame["almost"] = frame["in_tow"].where(np.arange(len(frame)) != 705, 0)
    frame["micrometres"] = rng.permutation(len(frame)) + 0.5  # different everywhere, but not whole
    frame["stamp"] = frame["in_tow"] * 1e6 - 4e12  # falls and rises with the tow, beyond what float32 tells apart
    bags = hq.read_bags(frame, bag="tow", label="species")
    assert bags.feature_names == ["rings", "length", "grams", "almost", "micrometres"]


def test_few_rows_tell_nothing_about_keys(tmp_path: Path) -> None:
    frame = fishes().head(49)
    assert "fish_no" in hq.read_bags(frame, bag="tow", label="species").feature_names
    assert "fish_no" not in hq.read_bags(fishes().head(50), bag="tow", label="species").feature_names
    numbered = frame.assign(line=np.arange(49) + 7)
    for rows in (numbered, numbered.drop(index=[3, 4, 30])):
        facts = hq.read_bags(rows, bag="tow", label="species").facts
        assert facts is not None
        assert facts.left_out == {"ship": "constant", "note": "texts", "line": "a counter: it numbers the rows"}
    assert "line" in hq.read_bags(numbered.head(9), bag="tow").feature_names
    assert "line" in hq.read_bags(numbered.assign(line=np.arange(49) * 2), bag="tow").feature_names
    only = pd.DataFrame({"tow": ["a", "a"], "ship": [1, 1], "note": ["x", "y"]})
    message = "source: has no columns to learn from, only ship (constant), note (texts); name the features."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.read_bags(only, bag="tow")


def test_columns_with_one_value_per_bag_and_copies_of_the_label_are_no_features() -> None:
    frame = fishes()
    tow = frame["tow"].str[1:].astype(int)
    frame = frame[["length", "tow", "species"]].assign(
        lat=50 + tow * 0.25, yyyymmdd=20260101 + tow // 3, code=np.where(frame["species"] == "eel", 7.5, 3.0)
    )
    facts = hq.read_bags(frame, bag="tow", label="species").facts
    assert facts is not None
    within = "constant within each bag"
    assert facts.left_out == {"lat": within, "yyyymmdd": within, "code": "a copy of the label"}
    almost = frame.assign(lat=frame["lat"].where(np.arange(len(frame)) != 700, 0.0), code=frame["code"] + tow)
    assert hq.read_bags(almost, bag="tow", label="species").feature_names == ["length", "lat", "code"]
    message = (
        "source: columns 'lat' and 'yyyymmdd' look like places, times or identifiers, which tell samples apart instead "
        "of classes; name the column of samples as bag=, or leave them out by ignore=."
    )
    with pytest.warns(UserWarning, match=exactly(message)):
        assert "lat" in hq.read_bags(frame, label="species").feature_names, "rows without bags"
    assert "lat" in hq.read_bags(frame.groupby("tow").head(1), bag="tow").feature_names, "bags of one row"


def test_a_named_copy_of_the_label_is_told() -> None:
    frame = fishes().assign(code=lambda rows: (rows["species"] == "eel") + 1)
    message = (
        "source: column 'code' has one value for each class in 'species'; leave it out of the features if it is a copy "
        "of the label, which other tables lack."
    )
    with pytest.warns(UserWarning, match=exactly(message)):
        hq.read_bags(frame, bag="tow", label="species", features=["length", "code"])


def test_a_model_of_weighted_rows_asks_for_weights(tmp_path: Path) -> None:
    frame = fishes().assign(w=np.arange(1200) % 3 + 1.5)
    source = stored(frame, tmp_path, "csv")
    q, _ = hq.fit_best(source, bag="tow", label="species", weight="w", features=["length"], method="cc", calibration=0)
    message = (
        f"{source}: is read without weights, but the model was fitted with the weights in column 'w'; name the column "
        "of weights, or the estimates describe only the rows."
    )
    q.save(tmp_path / "model")
    with pytest.warns(UserWarning, match=exactly(message)):
        hq.estimate(tmp_path / "model", source, bag="tow")
    assert f"Warning: {message}" in run("predict", tmp_path / "model", source, "--bag", "tow").stderr
    told = run("predict", tmp_path / "model", source, "--bag", "tow", "--weight", "w").stderr
    assert "is read without weights" not in told


def test_large_keys_are_told_apart_in_many_rows() -> None:
    rng = np.random.default_rng(0)
    n = 400_000  # whole numbers up to 1e9 of which float32 confuses one per cent
    frame = pd.DataFrame(
        {"id": rng.choice(10**9, n, replace=False), "x": rng.normal(size=n), "tow": np.arange(n) % 999}
    )
    assert hq.read_bags(frame, bag="tow").feature_names == ["x"]


def test_commands_tell_which_columns_they_learn_from(tmp_path: Path) -> None:
    source = stored(fishes(), tmp_path, "csv")
    model, options = tmp_path / "model", ["--bag", "tow", "--label", "species"]
    listed = ", ".join(f"{column} ({why})" for column, why in WHY.items())
    line = f"Learns from rings, length. Leaves out {listed}; name them with --features to use them."
    fitted = run("fit", source, *options, "--method", "cc", "-o", model)
    assert f"kept in {model}.\nClasses: cod, eel.\n{line}" in fitted.output
    assert f"left out     {listed}" in run("info", model).output
    assert hq.load(model).provenance_["left_out"] == WHY
    told = json.loads(run("fit", source, *options, "--method", "cc", "-o", model, "--force", "--json").output)
    assert told["left_out"] == WHY
    assert told["features"] == ["rings", "length"]
    assert line in run("compare", source, *options, "--methods", "cc").output
    tuned = run("tune", source, *options, "--method", "hdx", "--trials", 1, "-o", tmp_path / "tuned")
    assert line in tuned.output
    named = run("fit", source, *options, "--features", "length", "--method", "cc", "-o", tmp_path / "other")
    assert "Learns from length.\n" in named.output


def seconds(n: int = 3000, n_bags: int = 100, seed: int = 0) -> pd.DataFrame:
    """A feature in seconds since 1970, whose classes are minutes apart."""
    frame = fishes(n, n_bags, seed)[["tow", "species"]]
    rng = np.random.default_rng(seed + 1)
    late = 60.0 * (frame["species"] == "eel") + rng.normal(0, 20, n)
    return frame.assign(time=1.7e9 + late.round(2), other=rng.normal(size=n))


@pytest.mark.parametrize("method", ["CC", "EMQ", "HistNetQ-hard"])
def test_large_numbers_keep_their_digits(tmp_path: Path, method: str) -> None:
    train, new = seconds(), seconds(seed=5)
    errors = {}
    for name, origin in (("raw", 0.0), ("centred", 1.7e9)):
        frames = [frame.assign(time=frame["time"] - origin) for frame in (train, new)]
        known = hq.read_bags(frames[0], bag="tow", label="species")
        assert known.rows.dtype == (np.float64 if name == "raw" else np.float32)
        classifier = (
            {} if method.startswith("Hist") else {"classifier": make_pipeline(StandardScaler(), LogisticRegression())}
        )
        model = QUANTIFIERS[method](**classifier).fit(known)
        assert model.double_ == (name == "raw")
        model.save(tmp_path / name)
        model = hq.load(tmp_path / name)
        source = stored(frames[1], tmp_path, "parquet")
        bags, _ = read_bags_and_unseen(source, bag="tow", features=model.reading(), label="species")
        assert bags.rows.dtype == known.rows.dtype
        predicted = model.predict(bags)
        errors[name] = hq.metrics.ae(bags.prevalences, predicted).mean()
        if model.sketch_kind == "exact":
            sketch = sketch_table(model, source, bag=["tow"])
            assert sketch.ids.tolist() == bags.ids.tolist()
            np.testing.assert_array_equal(model.predict(sketch), predicted)
            parts = [model.sketch(bags[:40]), model.sketch(bags[40:])]
            np.testing.assert_array_equal(model.predict(parts[0] + parts[1]), predicted)
    assert errors["raw"] == pytest.approx(errors["centred"], abs=2e-3)


def test_digits_that_are_needed_only_in_later_rows_are_kept() -> None:
    n = 300_000  # several pieces
    rng = np.random.default_rng(0)
    early = np.where(np.arange(n) < 200_000, 0.0, 1.0) + rng.random(n)
    for time in (1.7e9 + early, early):
        bags = hq.read_bags(pd.DataFrame({"tow": np.arange(n) % 7, "time": time}), bag="tow")
        np.testing.assert_allclose(bags.rows[:, 0] - time, 0, atol=1e-4)
    assert bags.rows.dtype == np.float32


def holes(n_empty: int = 7) -> pd.DataFrame:
    frame = fishes()
    frame.loc[10 : 10 + n_empty - 1, "length"] = np.nan
    return frame


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_missing_cells_are_counted(tmp_path: Path, kind: str) -> None:
    source = stored(holes(), tmp_path, kind)
    result = run("fit", source, "--bag", "tow", "--label", "species", "--method", "cc", "-o", tmp_path / "model")
    assert result.exit_code == 2
    assert result.output == (
        f"Error: {source}: row 11 and 6 other rows have nothing in column 'length', expected a value; fill it in, "
        "pass --missing drop to leave out such rows or --missing mean to put in the mean of training, or name other "
        "columns by --features.\n"
    )


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_without_a_value_are_left_out_or_get_the_mean(tmp_path: Path, kind: str) -> None:
    frame = holes()
    source, whole = stored(frame, tmp_path, kind), frame.dropna()
    dropped = hq.read_bags(source, bag="tow", label="species", missing="drop")
    expected = hq.read_bags(whole, bag="tow", label="species")
    np.testing.assert_array_equal(dropped.rows, expected.rows)
    np.testing.assert_array_equal(dropped.prevalences, expected.prevalences)
    assert dropped.facts is not None
    assert (dropped.facts.dropped, dropped.facts.filled) == (7, 0)
    for scratch in ({}, {"scratch": tmp_path}):
        filled = hq.read_bags(source, bag="tow", label="species", missing="mean", **scratch)
        mean = whole["length"].mean()
        np.testing.assert_allclose(filled.rows[:, 1], frame["length"].fillna(mean), rtol=1e-6)
        assert filled.facts is not None
        assert (filled.facts.dropped, filled.facts.filled) == (0, 7)


@pytest.mark.parametrize(("method", "missing"), [("pacc", "drop"), ("emq", "mean")])  # streamed, and in memory
def test_missing_cells_by_commands(tmp_path: Path, method: str, missing: str) -> None:
    train, new = stored(fishes(), tmp_path, "csv"), tmp_path / "new.parquet"
    rows = holes()
    rows.to_parquet(new)
    options = ["--bag", "tow", "--label", "species"]
    assert run("fit", train, *options, "--method", method, "-o", tmp_path / "model").exit_code == 0
    model = hq.load(tmp_path / "model")
    fixed = rows.dropna() if missing == "drop" else rows.fillna({"length": fishes()["length"].mean()})
    expected = model.predict(hq.read_bags(fixed, bag="tow", features=model.feature_names_))
    refused = run("predict", tmp_path / "model", new, "--bag", "tow").output
    assert "row 11 and 6 other rows" in refused
    assert refused.endswith("or --missing mean to put in the mean of training.\n")
    result = run("predict", tmp_path / "model", new, "--bag", "tow", "--missing", missing, "--json")
    assert ("dropped 7 rows with missing values" in result.stderr) == (missing == "drop")
    found = pd.DataFrame(json.loads(result.stdout)).pivot(index="tow", columns="class", values="estimate")
    ids = hq.read_bags(fixed, bag="tow", features=model.feature_names_).ids
    np.testing.assert_allclose(found.loc[ids], expected, atol=1e-6)
    for command in ("evaluate", "report"):
        more = ["-o", tmp_path / "page.html"] if command == "report" else []
        told = run(command, tmp_path / "model", new, *options, "--missing", missing, *more)
        assert told.exit_code == 0, told.output
    told = run("fit", new, *options, "--method", "cc", "--missing", missing, "-o", tmp_path / "again").output
    assert ("Rows with missing values that were dropped: 7." in told) == (missing == "drop")
    assert ("Missing values that were filled with the mean of their column: 7." in told) == (missing == "mean")


def test_one_other_row_is_told_in_the_singular() -> None:
    with pytest.raises(ValueError, match="row 11 and 1 other row have nothing in column 'length', expected a value"):
        hq.read_bags(holes(2), bag="tow", label="species")


@pytest.mark.parametrize(
    ("given", "way_out"), [("Tow", ", perhaps 'tow'."), ("fishno", ", perhaps 'fish_no'."), ("xyz", ".")]
)
def test_a_column_that_is_missing_is_told_with_the_one_that_is_most_like_it(given: str, way_out: str) -> None:
    listed = r"\['fish_no', 'in_tow', .*'species'\]"
    with pytest.raises(
        ValueError, match=f"has no column '{given}', its columns are {listed}; name one of them{way_out}"
    ):
        hq.read_bags(fishes(), bag=given)


def test_up_to_20_columns_are_listed_in_full() -> None:
    rows = pd.DataFrame({f"c{i}": [1.0, 2.0] for i in range(20)})
    with pytest.raises(ValueError, match=r"its columns are \['c0', 'c1', 'c2', .*'c18', 'c19'\]; name one of them"):
        hq.read_bags(rows, bag="tow")
    with pytest.raises(ValueError, match=r"its columns are \['c0', 'c1', … 'more'\] \(21\); name one of them"):
        hq.read_bags(rows.assign(more=1.0), bag="tow")


def test_a_column_that_a_model_has_learned_from_is_to_be_added() -> None:
    model = hq.CC().fit(hq.read_bags(fishes(), bag="tow", label="species"))
    with pytest.raises(ValueError, match="; add it, as the model has learned from it, perhaps 'Length'"):
        hq.read_bags(fishes().rename(columns={"length": "Length"}), bag="tow", features=model.reading())


def test_texts_without_a_value_are_filled_by_the_shares_of_the_texts() -> None:
    rows = pd.DataFrame({"tow": list("aabb"), "sex": ["f", "m", "m", None], "x": [1.0, 2.0, 3.0, 4.0]})
    bags = hq.read_bags(rows, bag="tow", features=["sex", "x"], missing="mean")
    np.testing.assert_allclose(bags.rows[3], [1 / 3, 2 / 3, 4.0])
    assert len(hq.read_bags(rows, bag="tow", features=["sex"], missing="drop").rows) == 3
    with pytest.raises(ValueError, match="row 4 has nothing in column 'sex'"):
        hq.read_bags(rows, bag="tow", features=["sex"])


def test_means_are_known_to_models_of_tables_alone(tmp_path: Path) -> None:
    frame = holes()
    hq.CC().fit(frame.dropna()[["length"]], frame.dropna()["species"]).save(tmp_path / "model")
    source = stored(frame, tmp_path, "csv")
    result = run("predict", tmp_path / "model", source, "--bag", "tow", "--missing", "mean")
    assert result.exit_code == 2
    assert "the model does not know the means of training" in result.output
    frame["length"] = np.nan
    for kind, message in (("csv", "column 'length' has no values"), ("parquet", "every row lacks some feature")):
        result = run("predict", tmp_path / "model", stored(frame, tmp_path, kind), "--bag", "tow", "--missing", "drop")
        assert result.exit_code == 2
        assert message in result.output


@pytest.mark.parametrize("name", ["HistNetQ-hard", "SetTransformer", "EMNetQ"])  # streamed, and in memory
def test_numbers_beyond_what_a_network_can_compute_with_are_told_by_their_place(tmp_path: Path, name: str) -> None:
    frame = fishes()
    model = QUANTIFIERS[name]().fit(hq.read_bags(frame, bag="tow", label="species"))
    model.save(tmp_path / "model")
    for value, told in ((1e30, "row 701 has 1e+30 in column 'length', expected -"), (1e300, "row 701 has 1e+300 (too")):
        frame.loc[700, "length"] = value
        for kind in ("csv", "parquet"):
            source = stored(frame, tmp_path, kind)
            result = run("predict", tmp_path / "model", source, "--bag", "tow")
            assert result.exit_code == 2
            assert f"Error: {source}: {told}" in result.output


def test_the_command_line_speaks_of_its_options(tmp_path: Path) -> None:
    source = stored(fishes(), tmp_path, "csv")
    counts = fishes().groupby(["tow", "species"]).size().unstack(fill_value=0).reset_index()
    counts.to_csv(tmp_path / "counts.csv", index=False)
    known = ["--bag", "tow", "--prevalences", tmp_path / "counts.csv"]
    result = run("fit", source, *known, "--method", "histnetq", "-o", tmp_path / "model")
    assert result.exit_code == 2
    assert "sums to 20, expected 1; pass --counts if these are counts or percentages." in result.output


@pytest.mark.hard
def test_a_read_only_installation_without_a_home_compiles_for_itself(tmp_path: Path) -> None:
    package = tmp_path / "site" / "histnetq"
    shutil.copytree(Path(hq.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").write_text("no directory, so that nothing can be kept here")
    nowhere = "/dev/null/nowhere"
    places = dict.fromkeys(("NUMBA_CACHE_DIR", "HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"), nowhere)
    told = (
        "import numpy as np, histnetq as hq, histnetq.kernels.compiled, histnetq.kernels.dense_compiled\n"
        "from histnetq.kernels import _compiled\n"
        "X, y = np.array([[0.0], [1.0]] * 20), [0, 1] * 20\n"
        "q = hq.CC().fit(X, y); q.calibrate(hq.APP(10).draw(hq.Bags.from_labels(X, y), 30, random_state=0))\n"
        "print(hq.__file__, q.predict(X).tolist(), _compiled('') is not None, q.trust(X)['trust'].tolist())"
    )
    environment = os.environ | places | {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run([sys.executable, "-c", told], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split("\n")[0].startswith(f"{package / '__init__.py'} [0.5, 0.5] True")


@pytest.mark.parametrize("method", ["pacc", "emq"])  # streamed, and in memory
def test_bags_that_are_lost_with_their_rows_are_told(tmp_path: Path, method: str) -> None:
    rows = fishes(400, 20)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    options = ["--bag", "tow", "--label", "species"]
    features = ["--features", "length", "--features", "rings"]
    place, new = tmp_path / "model", tmp_path / "new.csv"
    fitted = run("fit", tmp_path / "rows.csv", *options, *features, "--method", method, "-o", place)
    assert fitted.exit_code == 0, fitted.output
    rows.assign(length=rows["length"].where(~rows["tow"].isin(["t3", "t5"]))).to_csv(new, index=False)
    for command in (
        ["predict", place, new, "--bag", "tow"],
        ["evaluate", place, new, *options],
        ["fit", new, *options, "--method", method, "-o", tmp_path / "again"],
    ):
        told = run(*command, "--missing", "drop").stderr
        assert f"Warning: {new}: no row of bag 't3' and of 1 other bags has all features: left out." in told
        assert "RuntimeWarning" not in told


def test_a_file_that_is_given_twice_does_not_count_double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(fishes(), tmp_path, "csv")
    (path,) = tmp_path.glob("*.csv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match=exactly(f"source: {path} is given twice, which would count double; name it once.")
    ):
        hq.read_bags([path, path], bag="tow")
    Path("link.csv").symlink_to(path)
    Path("hard.csv").hardlink_to(path)
    for again in (path.name, f"./{path.name}", "link.csv", "hard.csv", "*rd.csv"):
        name = again.replace("*rd", "hard")
        with pytest.raises(
            ValueError,
            match=exactly(f"source: {path} and {name} are one file, which would count double; name it once."),
        ):
            hq.read_bags([path, again], bag="tow")


def test_files_of_the_same_rows_may_be_given_together(tmp_path: Path) -> None:
    stored(fishes(), tmp_path, "csv")
    (path,) = tmp_path.glob("*.csv")
    copy = tmp_path / "copy.csv"
    copy.write_bytes(path.read_bytes())
    both, one = hq.read_bags([path, copy], bag="tow"), hq.read_bags(path, bag="tow")
    assert both.sizes.sum() == 2 * one.sizes.sum()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_that_only_a_later_file_has_is_not_dropped_in_silence(tmp_path: Path, ending: str) -> None:
    rows = fishes()
    for name, table in (("a", rows), ("b", rows.assign(width=rows["length"] * 2))):
        place = tmp_path / f"{name}.{ending}"
        table.to_csv(place, index=False) if ending == "csv" else table.to_parquet(place)
    a, b = (str(tmp_path / f"{name}.{ending}") for name in "ab")
    message = f"{a}: has no column 'width', which {b} has; give files with the same columns."
    for paths in ([a, b], [b, a]):
        with pytest.raises(ValueError, match=exactly(message)):
            hq.read_bags(paths, bag="tow")


@pytest.mark.parametrize("method", ["pacc", "emq"])  # streamed, and in memory
def test_a_bag_without_weight_is_named(tmp_path: Path, method: str) -> None:
    rows = fishes(400, 20)
    q = hq.PACC(random_state=0) if method == "pacc" else hq.EMQ(random_state=0)
    q.fit(rows[["length"]], rows["species"]).save(tmp_path / "model")
    new = tmp_path / "new.csv"
    rows.assign(w=(rows["tow"] != "t3") * 1.0).to_csv(new, index=False)
    told = run("predict", tmp_path / "model", new, "--bag", "tow", "--weight", "w")
    assert told.exit_code == 2
    assert f"{new}: the rows of bag 't3' all have weight 0, expected at least one that has more" in told.output
