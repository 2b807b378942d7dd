"""Tables → bags: the same from every kind of file, matched by name, and every defect told in one sentence."""

from __future__ import annotations

import re
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import histnetq as hq
from histnetq.sketches.tables import sketch_table
from histnetq.tables.columns import plan_features
from histnetq.tables.csv_files import _CheckedBytes
from histnetq.tables.table_files import Table, open_table, refuse_other_columns
from tests.conftest import exactly


def long_table(n=60, seed=0):
    """Rows of three tows, unsorted, with numbers, a category, a weight and a class."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "tow": rng.choice(["north", "south", "west"], n),
            "length": rng.normal(size=n).round(3),
            "gear": rng.choice(["net", "pump"], n),
            "width": rng.integers(0, 9, n),
            "count": rng.integers(1, 4, n),
            "species": rng.choice(["cod", "eel"], n),
        }
    )


@pytest.fixture
def table():
    return long_table()


def written(table, path, kind):
    if kind == "parquet":
        table.to_parquet(path / "t.parquet")
        return path / "t.parquet"
    if kind == "csv":
        table.to_csv(path / "t.csv", index=False)
        return str(path / "t.csv")
    if kind == "semicolons":
        table.to_csv(path / "t.csv", index=False, sep=";")
        return path / "t.csv"
    if kind == "packed":
        table.to_csv(path / "t.csv.gz", index=False)
        return path / "t.csv.gz"
    if kind in ("glob", "list"):
        for i in range(3):
            table[20 * i : 20 * (i + 1)].to_parquet(path / f"part{i}.parquet")
        return str(path / "part*.parquet") if kind == "glob" else [path / f"part{i}.parquet" for i in range(3)]
    return table


@pytest.mark.parametrize("kind", ["frame", "parquet", "csv", "semicolons", "packed", "glob", "list"])
def test_every_kind_of_table_gives_the_same_bags(table, tmp_path, kind):
    bags = hq.read_bags(written(table, tmp_path, kind), bag="tow", features=["length", "width"], label="species")
    assert bags.ids.tolist() == list(dict.fromkeys(table["tow"])), "in the order of their first rows"
    assert bags.feature_names == ["length", "width"]
    assert bags.classes.tolist() == ["cod", "eel"]
    for i, tow in enumerate(bags.ids):
        own = table[table["tow"] == tow]
        np.testing.assert_allclose(bags[i].gather(), own[["length", "width"]].to_numpy(), atol=1e-6)
        assert bags.prevalences[i, 1] == pytest.approx((own["species"] == "eel").mean())


def test_all_numbers_are_features_by_default(table):
    bags = hq.read_bags(table, bag="tow", label="species", weight="count", weight_kind="count")
    assert bags.feature_names == ["length", "width"]


def test_weights(table):
    bags = hq.read_bags(table, bag="tow", weight="count", weight_kind="count", features=["width"])
    copies = table.loc[table.index.repeat(table["count"])]
    assert bags.sizes.tolist() == [int((copies["tow"] == tow).sum()) for tow in bags.ids]


def test_whole_numbers_as_survey_weights_are_explained(table):
    message = (
        "source: the weights in column 'count' are whole numbers, and count as survey weights, where a row remains one "
        "row; use --count-column, or weight_kind='count' in Python, if a row with the weight k stands for k rows."
    )
    with pytest.warns(UserWarning, match=exactly(message)):
        hq.read_bags(table, bag="tow", weight="count", features=["width"])
    table["count"] /= 2
    hq.read_bags(table, bag="tow", weight="count", features=["width"])
    message = (
        "source: row 1 has 0.5 in column 'count', expected a count, which is a whole number; name it as weight= if it "
        "is a survey weight."
    )
    table["count"] = 0.5
    with pytest.raises(ValueError, match=exactly(message)):
        hq.read_bags(table, bag="tow", weight="count", weight_kind="count", features=["width"])


def test_several_columns_name_a_bag(table):
    bags = hq.read_bags(table, bag=["tow", "gear"], features=["width"])
    assert bags.ids.tolist() == list(dict.fromkeys(table["tow"] + "/" + table["gear"]))
    assert bags.sizes.sum() == 60


def test_categories_become_features_that_another_table_is_read_by(table):
    bags = hq.read_bags(table, bag="tow", features=["gear", "length"])
    assert bags.feature_names == ["gear=net", "gear=pump", "length"]
    np.testing.assert_array_equal(bags.gather()[:, 0] + bags.gather()[:, 1], 1)
    other = long_table(seed=1)[["width", "length", "gear", "tow"]].replace({"gear": {"pump": "hook"}})
    again = hq.read_bags(other, bag="tow", features=bags.feature_names)
    assert again.feature_names == bags.feature_names
    assert (again.gather()[:, 1] == 0).all(), "no pump here, and the hook is unknown"


def test_a_model_reads_its_own_columns(table):
    q = hq.PACC().fit(hq.read_bags(table, bag="tow", label="species", features=["width", "length"]))
    shuffled = long_table(seed=2)[["species", "length", "tow", "width"]]
    bags = hq.read_bags(shuffled, bag="tow", features=q.feature_names_)
    assert q.predict(bags).shape == (3, 2)


@pytest.mark.filterwarnings("ignore:.*no rows belong to 1 of its bags, such as 'spare'")
@pytest.mark.parametrize("kind", ["wide", "long", "counts", "file"])
def test_proportions_in_a_second_table(table, tmp_path, kind):
    wide = pd.DataFrame({"tow": ["west", "north", "south", "spare"], "eel": [0.2, 1, 0.5, 0], "cod": [0.8, 0, 0.5, 1]})
    source, counts = wide, kind == "counts"
    if kind == "long":
        source = wide.melt("tow", var_name="class", value_name="value")
    if kind == "counts":
        source = wide.assign(eel=wide["eel"] * 30, cod=wide["cod"] * 30)
    if kind == "file":
        source = tmp_path / "tows.csv"
        wide.to_csv(source, index=False)
    bags = hq.read_bags(table, bag="tow", features=["width"], prevalences=source, counts=counts)
    assert bags.classes.tolist() == ["cod", "eel"]
    expected = wide.set_index("tow").loc[bags.ids, ["cod", "eel"]]
    np.testing.assert_allclose(bags.prevalences, expected)
    more = hq.read_bags(
        table, bag="tow", features=["width"], prevalences=source, counts=counts, classes=["hake", "eel", "cod"]
    )
    np.testing.assert_allclose(more.prevalences[:, 0], 0)
    np.testing.assert_allclose(more.prevalences[:, 1:], bags.prevalences[:, ::-1])


def test_bags_named_by_numbers_match_across_kinds_of_files(tmp_path):
    pd.DataFrame({"bag": [7, 7, 8], "x": [1.0, 2, 3]}).to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "known.csv").write_text("bag,a,b\n8,0.5,0.5\n7,1,0\n")
    bags = hq.read_bags(tmp_path / "rows.parquet", bag="bag", prevalences=tmp_path / "known.csv")
    assert bags.ids.tolist() == [7, 8]
    np.testing.assert_allclose(bags.prevalences, [[1, 0], [0.5, 0.5]])


def test_whole_numbers_that_turn_into_fractions_later(tmp_path):
    lines = [f"a,{i}" for i in range(200_000)] + ["b,0.5"]
    (tmp_path / "t.csv").write_text("\n".join(["bag,x", *lines]))
    assert hq.read_bags(tmp_path / "t.csv", bag="bag").gather()[-1, 0] == 0.5


FIX = "correct it, drop the row, or name the features without this column."
FILL = (
    "fill it in, pass missing='drop' to leave out such rows or missing='mean' to put in the mean of training, or name "
    "the features without this column."
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty, expected a line of column names and rows; save the table again."),
        ("tow,x\n", "has no rows; check the file."),
        ("tow,x,x\na,1,2\n", "has two columns 'x'; rename one."),
        ("haul,x\na,1\n", "has no column 'tow', its columns are ['haul', 'x']; name one of them."),
        ("tow,x\na,1\nb,\n", f"row 2 has nothing in column 'x', expected a value; {FILL}"),
        ("tow,x\na,1\na,inf\n", f"row 2 has inf in column 'x', expected a number; {FIX}"),
        ("tow,x\na,1\n,2\n", "row 2 has nothing in column 'tow'; fill it in or drop the row."),
        (
            "tow,x\na,1\na,2\na,o3\n",
            "column 'x' holds numbers and the text 'o3' (row 3); correct it, or name the features without this column.",
        ),
        (
            "tow,name\na,b\n",
            "has no columns of numbers beside 'tow', only texts in 'name'; name columns of categories as features=, "
            "or a column of sentences as text=.",
        ),
    ],
)
def test_defects_of_rows(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=exactly(f"t.csv: {message}")):
        hq.read_bags("t.csv", bag="tow")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": ["y"]}, "t.csv: has no column 'y', its columns are ['tow', 'x', 'k']; name one of them."),
        (
            {"features": ["tow"]},
            "features: expected columns other than the bag, label and weight columns, got 'tow'; leave it out, or name "
            "another column as bag, label or weight.",
        ),
        ({"features": "x"}, "features: expected a list of column names, got 'x'; pass ['x']."),
        ({"label": "kind"}, "t.csv: has no column 'kind', its columns are ['tow', 'x', 'k']; name one of them."),
        ({"label": "k", "classes": ["d"]}, "classes: 'c' occurs but is not among ['d']; add it."),
    ],
)
def test_wrong_names(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("tow,x,k\na,1,c\n")
    with pytest.raises(ValueError, match=exactly(message)):
        hq.read_bags("t.csv", bag="tow", **options)


@pytest.mark.parametrize(
    ("known", "counts", "message"),
    [
        (
            "tow,cod,eel\nEAST,1,0\n",
            False,
            "has no row for bags 'east' (perhaps 'EAST'), 'west'; add them, or drop the rows of these bags.",
        ),
        ("tow,cod,eel\nwest,1,0\n", False, "has no row for bag 'east'; add it, or drop the rows of this bag."),
        (
            "tow,cod\neast,1\nwest,1\n",
            False,
            "has only the class 'cod', expected at least 2; add a column with the share of the others.",
        ),
        (
            "tow,cod,eel\neast,7,0\nwest,1,0\n",
            False,
            "bag east sums to 7, expected 1; pass counts=True if these are counts or percentages.",
        ),
        ("tow,cod,eel\neast,2,-1\nwest,1,0\n", False, "bag east has the negative number -1; correct it."),
        ("tow,cod,eel\neast,0,0\nwest,1,0\n", True, "the counts of bag east are all 0; drop the bag."),
        ("tow,cod\neast,1\neast,1\n", False, "row 2 names the bag east again; give one row per bag."),
        (
            "tow,class,value\neast,cod,1\neast,cod,0\n",
            False,
            "bag east has class cod twice; give one value for each.",
        ),
        ("tow\neast\n", False, "has no columns of classes beside 'tow'; add them."),
        ("tow,cod\n", False, "has no rows; check the file."),
        (
            "tow,cod\neast,many\n",
            False,
            "column 'cod' holds string, expected numbers; correct its cells, or leave the column out.",
        ),
    ],
)
def test_defects_of_proportions(tmp_path, monkeypatch, known, counts, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("tow,x\neast,1\nwest,2\n")
    (tmp_path / "p.csv").write_text(known)
    with pytest.raises(ValueError, match=exactly(f"p.csv: {message}")):
        hq.read_bags("t.csv", bag="tow", prevalences="p.csv", counts=counts)


def test_files_that_are_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=exactly("source: none.csv does not exist; check the path.")):
        hq.read_bags("none.csv", bag="tow")
    (tmp_path / "t.ods").write_bytes(b"PK")
    with pytest.raises(
        ValueError,
        match=r"source: t\.ods ends neither in \.csv nor \.parquet nor \.xlsx nor \.jsonl nor \.json; convert it",
    ):
        hq.read_bags("t.ods", bag="tow")
    message = "source: . is a directory; name its files, such as ./*.parquet, or use read_images if it holds images."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.read_bags(".", bag="tow")
    with pytest.raises(TypeError, match="source: expected a path, a list of paths or a data frame, got int"):
        hq.read_bags(3, bag="tow")
    (tmp_path / "latin.csv").write_bytes("tow,größe\na,1\n".encode("latin1"))
    with pytest.raises(ValueError, match=r"latin\.csv: is not encoded in UTF-8; convert it"):
        hq.read_bags("latin.csv", bag="tow")
    long_table().to_parquet(tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut\.parquet: cannot be read as Parquet \(.*\); write it again"):
        hq.read_bags("cut.parquet", bag="tow")
    long_table().drop(columns="width").to_parquet(tmp_path / "less.parquet")
    with pytest.raises(ValueError, match=r"less\.parquet: has no column 'width', which t\.parquet has"):
        hq.read_bags(["t.parquet", "less.parquet"], bag="tow")
    (tmp_path / "t.csv").write_text("tow,x\na,1\n")
    with pytest.raises(ValueError, match="source: expected files of one kind, got csv and parquet"):
        hq.read_bags(["t.parquet", "t.csv"], bag="tow")
    (tmp_path / "ragged.csv").write_text("tow,x\na,1\nb,2,3\n")
    with pytest.raises(ValueError, match=r"ragged\.csv: row 2 has 3 cells, expected 2 as in the line of column"):
        hq.read_bags("ragged.csv", bag="tow")


@pytest.mark.filterwarnings("ignore:.*looks like counts")
def test_labels_or_proportions_not_both(table):
    with pytest.raises(ValueError, match="prevalences: expected either label= or prevalences=, got both"):
        hq.read_bags(table, bag="tow", label="species", prevalences=table)


def test_different_keys_are_different_bags(tmp_path):
    """Each pair of values is a bag, also where a value holds the sign that stands between values."""
    rows = pd.DataFrame({"site": ["a/b", "a", "a/b"], "day": ["c", "d/c", "c"], "x": [1.0, 2.0, 3.0]})
    bags = hq.read_bags(rows, bag=["site", "day"])
    assert bags.ids.tolist() == ["a/b/c", "a/d/c"]
    assert bags.sizes.tolist() == [2, 1]
    rows.loc[1, "day"] = "b/c"
    message = "source: ('a/b', 'c') and ('a', 'b/c') would both be named 'a/b/c'; change one of them."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.read_bags(rows, bag=["site", "day"])
    known = pd.DataFrame({"site": ["a"], "day": ["b/c"], "p": [0.5], "q": [0.5]})
    message = "prevalences: has no row for bag 'a/b/c'; add it, or drop the rows of this bag."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.read_bags(rows[rows["site"] == "a/b"], bag=["site", "day"], prevalences=known)


def test_keys_of_files_that_differ_in_type_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"bag": [1], "x": [1.0]}).to_parquet("a.parquet")
    pd.DataFrame({"bag": ["1"], "x": [1.0]}).to_parquet("b.parquet")
    message = "a.parquet and 1 more: (1,) and ('1',) would both be named '1'; change one of them."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.read_bags(["a.parquet", "b.parquet"], bag="bag", features=["x"])


def test_keys_of_several_columns_take_memory_for_their_rows_alone():
    values = [f"k{i}" for i in range(2000)]
    table = pa.table({"a": values, "b": values[::-1], "c": values, "x": np.arange(2000) / 2})
    hq.read_bags(table, bag="a")  # imports
    tracemalloc.start()
    bags = hq.read_bags(table, bag=["a", "b", "c"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(bags) == 2000
    assert bags.ids[1] == "k1/k1998/k1"
    assert peak < 20e6, "a name for each of 4 million pairs takes hundreds of MB"


class Name(str):
    """A column name that counts how often it is compared."""

    compared = 0

    def __eq__(self, other):
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_many_columns_are_compared_few_times():
    names = [Name(f"f{i}") for i in range(1000)]

    class Schema:
        types = [pa.float64()] * 999 + [pa.string()]

    Schema.names = names
    batch = pa.record_batch({str(name): ["a"] if name is names[-1] else [1.0] for name in names})
    Name.compared = 0
    table = Table("wide", Schema, lambda columns, texts: iter([batch]))
    assert plan_features(table, [names[0]], None).names == names[1:-1]
    refuse_other_columns(["wide", "other"], [names, names])
    assert Name.compared < 5 * len(names), "not the square of their number"


@pytest.fixture
def scanned(monkeypatch):
    """How many numbers were looked at to see whether they are finite, by numpy's only function for it."""
    counts, isfinite = [], np.isfinite

    def count(numbers, *args, **kwargs):
        counts.append(np.size(numbers))
        return isfinite(numbers, *args, **kwargs)

    monkeypatch.setattr(np, "isfinite", count)
    return counts


@pytest.mark.parametrize("kind", ["frame", "parquet", "csv", "list"])
def test_every_number_of_a_table_is_scanned_once(table, tmp_path, kind, scanned):
    source = written(table, tmp_path, kind)
    scanned.clear()
    hq.read_bags(source, bag="tow", features=["length", "width"], label="species", weight="count", weight_kind="count")
    assert sum(scanned) == 60 * 3


def test_numbers_that_features_cannot_hold(tmp_path):
    rows = pd.DataFrame({"tow": ["a", "a"], "x": [1.0, 1e300]})
    message = (
        "source: row 2 has 1e+300 (too large) in column 'x', expected a number; "
        "correct it, drop the row, or name the features without this column."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        hq.read_bags(rows, bag="tow")
    rows = rows.assign(x=[1.0, 1e60], y=1.0)  # weights are doubles
    assert hq.read_bags(rows, bag="tow", features=["y"], weight="x").weights[1] == 1e60


def test_classes_are_matched_with_labels_by_their_text(tmp_path):
    (tmp_path / "t.csv").write_text("tow,x,k\na,1,2\na,2,1\na,3,2\n")
    bags = hq.read_bags(tmp_path / "t.csv", bag="tow", label="k", classes=[2, 1, 0])
    assert bags.classes.tolist() == [2, 1, 0]
    np.testing.assert_allclose(bags.prevalences, [[2 / 3, 1 / 3, 0]])


def test_a_text_among_numbers_is_told_by_its_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("tow,x\na,\na,1\na,2\na,o3\n")
    with pytest.raises(ValueError, match=r"column 'x' holds numbers and the text 'o3' \(row 4\)"):
        hq.read_bags("t.csv", bag="tow")


def read_text(tmp_path, text, **options):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    return hq.read_bags(path, **{"bag": "tow", **options})


@pytest.mark.filterwarnings("ignore:.*looks like counts")
def test_decimal_commas_beside_whole_numbers(tmp_path):
    """The decimal mark is one of the file, whatever a column shows of it in the first rows."""
    text = "tow;a;n;b;late\n" + "x;1,5;7;-0,25;3\n" * 5 + "y;2;8;1,125;3,5\n"
    bags = read_text(tmp_path, text)
    assert bags.feature_names == ["a", "n", "b", "late"]
    np.testing.assert_array_equal(bags.rows[[0, -1]], [[1.5, 7, -0.25, 3], [2, 8, 1.125, 3.5]])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            ("1,5", "2.5"),
            "column 'a' has the number '1,5' and column 'b' has decimal points, expected one decimal mark;",
        ),
        (("1,234", "2"), "column 'a' has '1,234', whose comma may stand before decimals or between thousands;"),
        (("1.234,5", "2"), "column 'a' has the number '1.234,5', expected one like 1234.5;"),
        (("1 234", "2"), "column 'a' has the number '1 234', expected one like 1234.5;"),
    ],
)
def test_numbers_that_may_be_others_are_refused(tmp_path, cells, message):
    text = "tow;a;b\n" + f"x;{';'.join(cells)}\n" * 5
    way_out = (
        " write numbers with decimal points and nothing between thousands, or name the features without this column."
    )
    with pytest.raises(ValueError, match=exactly(f"{tmp_path / 't.csv'}: {message}{way_out}")):
        read_text(tmp_path, text)
    assert read_text(tmp_path, text, bag="a", features=["b"]).ids.tolist() == [cells[0]], "a name is no number"


def test_one_comma_tells_what_the_others_are(tmp_path):
    bags = read_text(tmp_path, "tow;a;b\n" + "x;1,234;0,5\ny;2,345;0,25\n" * 5)
    np.testing.assert_allclose(np.unique(bags.rows, axis=0), [[1.234, 0.5], [2.345, 0.25]])


def test_signs_that_may_separate_cells(tmp_path):
    assert read_text(tmp_path, 'tow;"a,b";"c;d"\nx;1;2\ny;3;4\n').feature_names == ["a,b", "c;d"]
    with pytest.raises(ValueError, match="its cells may be separated by ',' or ';'; write names and texts that hold"):
        read_text(tmp_path, "tow;a,b;c\nx;1,5;2\n")


@pytest.mark.parametrize(("late", "kind"), [("5.5", pa.float64()), ("true", pa.bool_()), ("net", pa.string())])
def test_a_column_that_starts_after_megabytes(tmp_path, late, kind):
    path = tmp_path / "t.csv"
    path.write_text("tow,x,late\n" + "a,1.25,\n" * 700_000 + f"a,1.25,{late}\n" * 3)
    table = open_table(path, "source")
    assert table.types["late"] == kind
    found = [batch.column("late") for _, batch in table.batches(["x", "late"])]
    assert sum(len(part) - part.null_count for part in found) == 3
    if kind != pa.string():
        path.write_text(path.read_text() + "a,1.25,oops\n")
        with pytest.raises(ValueError, match=r"column 'late' holds .* and the text 'oops' \(row 700004\)"):
            list(open_table(path, "source").batches(["late"]))


def test_truth_values_are_the_same_in_all_kinds_of_tables(tmp_path):
    table = pd.DataFrame({"tow": ["a", "a", "b"], "x": [1.0, 2, 3], "f": [True, False, True], "y": [False, True, True]})
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    (tmp_path / "u.csv").write_text((tmp_path / "t.csv").read_text().replace("True", "TRUE").replace("False", "false"))
    for source in (tmp_path / "t.csv", tmp_path / "u.csv", tmp_path / "t.parquet", table):
        bags = hq.read_bags(source, bag="tow", label="y")
        assert bags.feature_names == ["x", "f"]
        assert bags.rows[:, 1].tolist() == [1, 0, 1]
        assert bags.classes.tolist() == [False, True]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([3, 20, 3], [3, 20]),
        ([3.0, 20.0, 3.0], [3, 20]),
        ([1.5, 2.0, 1.5], ["1.5", "2"]),
        (["None", "NA", "None"], ["None", "NA"]),
        (["nan", "null", "nan"], ["nan", "null"]),
        (["007", "7", "007"], ["007", "7"]),
    ],
)
def test_names_are_the_same_in_all_kinds_of_tables(tmp_path, values, names):
    """Bags, labels and classes of proportions; in CSV they are numbers if all are whole numbers, also with points."""
    table = pd.DataFrame({"tow": values, "x": [1.0, 2, 3], "y": values})
    shares = pd.DataFrame({"tow": names, **{str(name): [0.5, 0.5] for name in names}})
    long = shares.melt("tow", var_name="class", value_name="value")
    if values[1] == 2.0:
        table = table.astype({"tow": str, "y": str}).replace("2.0", "2")
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    for known in shares, long:
        known.to_csv(tmp_path / f"{len(known)}.csv", index=False)
    for source in (tmp_path / "t.csv", tmp_path / "t.parquet", table):
        bags = hq.read_bags(source, bag="tow", label="y")
        assert bags.ids.tolist() == names
        assert bags.classes.tolist() == sorted(names)
        for known in (shares, tmp_path / "2.csv", tmp_path / "4.csv"):
            bags = hq.read_bags(source, bag="tow", prevalences=known, features=["x"])
            assert bags.classes.tolist() == sorted(names)


def test_an_empty_cell_is_no_name(tmp_path):
    with pytest.raises(ValueError, match="has nothing in column 'tow'"):
        read_text(tmp_path, "tow,x\nNA,1\n,2\n")
    with pytest.raises(ValueError, match="has nothing in column 'tow'"):
        read_text(tmp_path, "tow,x\n1,1\nNA,2\n")
    with pytest.raises(ValueError, match="has nothing in column 'tow'"):
        hq.read_bags(pd.DataFrame({"tow": [1.0, np.nan], "x": [1.0, 2.0]}), bag="tow")


def test_classes_of_a_model_match_labels_of_another_type():
    bags = hq.Bags.from_labels(np.arange(8.0)[:, None], [1, 2] * 4)
    assert bags.with_classes(["2", "1"]).classes.tolist() == ["2", "1"]
    assert (
        hq.Bags.from_labels(np.arange(8.0)[:, None], ["1", "2"] * 4).with_classes([1, 2, 3]).labels.tolist()
        == [0, 1] * 4
    )


@pytest.mark.parametrize("n", [1, 400_000])
def test_line_breaks_in_cells_of_files_of_any_size(tmp_path, n):
    bags = read_text(tmp_path, "tow,x\n" + '"a\nb",1\r\n"""c"",\n\n",2\r\n' * n, features=["x"])
    assert bags.ids.tolist() == ["a\nb", '"c",\n\n']
    assert bags.sizes.tolist() == [n, n]


@pytest.mark.parametrize("n", [1, 1_000_000])
@pytest.mark.parametrize("line", ['"a,1,c', 'a,1,"c', 'a"b,1,c', '"a"b,1,c', 'a,"1,c\nx,2,"c'])
def test_an_open_quotation_mark_is_told_by_its_row(tmp_path, line, n):
    """However many rows follow, and also where another mark closes it by chance."""
    message = (
        f"{tmp_path / 't.csv'}: row 3 has a misplaced quotation mark, expected marks around whole cells only; end the "
        "cell with a mark, or write marks inside a quoted cell twice."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_text(tmp_path, 'tow,x,k\n"a\nb",1,c\na,2,d\n' + line + "\n" + "a,1,c\n" * n, label="k")


def test_marks_at_the_edges_of_what_is_read_at_once(tmp_path):
    text = b'\xef\xbb\xbf"t","x"\n"a\n""",1\n"","2"\n'
    (tmp_path / "t.csv").write_bytes(text)
    for size in range(3, len(text) + 1):  # the first three bytes are one sign
        checked = _CheckedBytes("t.csv", ",", str(tmp_path / "t.csv"))
        assert b"".join(iter(lambda: checked.read(size), b"")) == text  # noqa: B023
    for size in range(3, len(text) + 1):
        (tmp_path / "t.csv").write_bytes(text + b'"b,1\n')
        checked = _CheckedBytes("t.csv", ",", str(tmp_path / "t.csv"))
        with pytest.raises(ValueError, match="row 3 has a misplaced quotation mark"):
            b"".join(iter(lambda: checked.read(size), b""))  # noqa: B023


def test_a_table_whose_rows_all_weigh_nothing():
    rows = pd.DataFrame({"tow": ["a", "b"] * 20, "x": np.arange(40.0), "w": 0})
    model = hq.CC(cv=2).fit(rows[["x"]], ["p", "q"] * 20)
    with pytest.raises(ValueError, match="source: the rows of bag 'a' all have weight 0, expected at least one"):
        sketch_table(model, rows, bag=["tow"], weight="w")


def labelled(*labels, bag=None):
    n = len(labels)
    return pd.DataFrame({"x": np.arange(n) % 7 + 0.5, "tow": np.arange(n) % 4 if bag is None else bag, "label": labels})


def test_classes_that_differ_only_in_spaces_or_case():
    message = (
        "{}: expected a different name for each class, got {}, which differ only in spaces or case; "
        "write both the same way."
    )
    with pytest.raises(ValueError, match=exactly(message.format("source, label", "'egg' and 'EGG '"))):
        hq.read_bags(labelled("egg", "EGG ", "cod"), label="label")
    with pytest.raises(ValueError, match=exactly(message.format("y", "'EGG ' and 'egg'"))):
        hq.Bags.from_labels(np.zeros((3, 1)), ["egg", "EGG ", "cod"])
    told = "source, label: the classes 'a' and 'A' differ only in case; write both the same way if they are one class."
    with pytest.warns(UserWarning, match=exactly(told)):
        assert hq.read_bags(labelled("a", "A"), label="label").classes.tolist() == ["A", "a"]


def test_a_total_is_not_a_class():
    rows = labelled(*"abab")[["x", "tow"]]
    known = pd.DataFrame({"tow": range(4), "cod": [1, 2, 3, 4], "eel": [4, 3, 1, 0], "egg": [0, 1, 0, 2]})
    known["All"] = known[["cod", "eel", "egg"]].sum(axis=1)
    told = (
        "prevalences: 'All' is the sum of the other classes in every bag, so it is left out; remove it from the table."
    )
    with pytest.warns(UserWarning, match=exactly(told)):
        bags = hq.read_bags(rows, bag="tow", prevalences=known, counts=True)
    assert bags.classes.tolist() == ["cod", "eel", "egg"]
    assert bags.prevalences[1].tolist() == [2 / 6, 3 / 6, 1 / 6]
    rounded = pd.DataFrame({"tow": range(4), "a": 0.33, "b": 0.33, "c": 0.33, "Total": 1.0})
    with pytest.warns(UserWarning, match="'Total' is the sum of the other classes"):
        hq.read_bags(rows, bag="tow", prevalences=rounded, counts=True)
    refused = (
        "prevalences: 'Total' would be a class, but is named as a total; remove it, or rename it if it is a class."
    )
    with pytest.raises(ValueError, match=exactly(refused)):
        hq.read_bags(rows, bag="tow", prevalences=known.rename(columns={"egg": "Total"}), counts=True)
    names = ["All", "cod", "eel", "egg"]
    assert len(hq.read_bags(rows, bag="tow", prevalences=known, counts=True, classes=names).classes) == 4


def test_totals_of_bags_without_rows_are_told():
    known = pd.DataFrame({"tow": [*range(4), "5b", 6], "cod": 0.5, "eel": 0.5})
    told = (
        "prevalences: no rows belong to 2 of its bags, such as '5b', which are ignored; correct their names if they "
        "have rows."
    )
    with pytest.warns(UserWarning, match=exactly(told)):
        assert (
            len(hq.read_bags(labelled(*"abab")[["x", "tow"]], bag="tow", prevalences=known.astype({"tow": str}))) == 4
        )


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (["cod"] * 9, "has only the class 'cod', expected at least 2; add rows of others, or "),
        ([f"{i / 4}" for i in range(30)] * 5, "has 30 different numbers with fractions, expected classes; "),
        (np.arange(30) / 4, "has 30 different numbers with fractions, expected classes; "),
        (range(1000, 1030), "has 30 different values in 30 rows, expected classes; "),
    ],
)
def test_labels_that_are_no_classes(labels, problem):
    message = f"source: column 'label' {problem}name a column of classes as label=."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.read_bags(labelled(*labels), label="label")
    grades = [f"{i / 2}" for i in range(2, 11)] * 3
    assert len(hq.read_bags(labelled(*grades), label="label").classes) == 9


def test_label_and_bag_are_mixed_up():
    rows = labelled(*(f"t{i % 12}" for i in range(60)), bag=np.array(["cod", "eel"])[np.arange(60) % 2])
    told = (
        "source: the label 'label' has 12 classes, but 'tow' only 2 bags; exchange label and bag if they are mixed up."
    )
    with pytest.warns(UserWarning, match=exactly(told)):
        hq.read_bags(rows, bag="tow", label="label")
    twice = "bag, label, weight: expected different columns, got 'tow' twice; name another column for one of them."
    with pytest.raises(ValueError, match=exactly(twice)):
        hq.read_bags(rows, bag="tow", label="tow")
