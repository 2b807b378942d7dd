"""Sketches: any pieces of the rows, in any order, add up to the sketch of all of them, and estimates from it agree."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

import histnetq as hq
from histnetq.bags.indexing import ranges
from histnetq.sketches.sketch import SketchSum
from tests.conftest import QUANTIFIERS, SMALL, exactly, known_bags, labelled, learn

NO_SKETCH = ("DeepSets-median", "SetTransformer", "QuaNet")
BINNED = ("EMNetQ", "EMNetQ-started", "EMQ", "EMQ-bcts", "EMQ-smooth", "KDEy", "MS", "MS-median2")
ROUNDED = (
    "HistNetQ-soft", "HistNetQ-rbf", "HistNetQ-sigmoid", "DeepSets-mean", "GMNet", "GMNet-started", "PCC", "PACC",
    "PACC-inverse", "BBSE-soft", "RLLS", "Friedman", "ED", "EDx", "ReadMe", "Corrected", "Ensemble", "Ensemble-median",
    "LinearQ",
)  # fmt: skip
EXACT = ("CC", "ACC", "DyS", "HDy", "MLPE", "HistNetQ", "BBSE", "MS-max", "MS-t50", "MS-x", "HDx")
MERGEABLE = [name for name in QUANTIFIERS if not name.startswith(NO_SKETCH)]


@pytest.fixture(scope="module", params=MERGEABLE)
def named(request):
    """The name of a quantifier that makes sketches, and a fitted and calibrated one."""
    return request.param, learn(QUANTIFIERS[request.param]()).calibrate(known_bags(30, seed=8))


def table(n: int = 400, n_bags: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Ids and rows of bags that are scattered."""
    rng = np.random.default_rng(seed)
    return np.array([f"b{i}" for i in rng.integers(n_bags, size=n)]), labelled(n, seed=seed)[0]


def whole(ids, rows, weights=None) -> hq.Bags:
    """The same as bags, in the order in which they first occur."""
    codes, names = pd.factorize(ids)
    order = np.argsort(codes, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(codes))])
    return hq.Bags(rows, order, offsets, ids=names, weights=None if weights is None else np.asarray(weights)[order])


def pieces(ids, rows, n_pieces: int, seed: int, weights=None):
    """The rows in pieces of different sizes, in another order."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(1, len(ids), size=n_pieces - 1))
    parts = np.split(rng.permutation(len(ids)), cuts)
    return [(ids[p], rows[p]) + (() if weights is None else (weights[p],)) for p in parts if len(p)]


def assert_same(a: hq.BagSketch, b: hq.BagSketch, exactly_same: bool) -> None:
    i, j = np.argsort(a.ids), np.argsort(b.ids)
    np.testing.assert_array_equal(a.ids[i], b.ids[j])
    np.testing.assert_array_equal(a.n_rows[i], b.n_rows[j])
    np.testing.assert_array_equal(a.totals[i], b.totals[j])
    if exactly_same:
        np.testing.assert_array_equal(a.values[i], b.values[j])
    else:
        np.testing.assert_allclose(a.values[i], b.values[j], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(a.moments[i], b.moments[j], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.hard) for seed in (1, 2))])
def test_any_pieces_in_any_order_give_the_same_sketch(named, seed):
    name, q = named
    ids, rows = table()
    all_at_once = q.sketch(whole(ids, rows))
    parts = [q.sketch(whole(*piece)) for piece in pieces(ids, rows, 6, seed)]
    assert_same(sum(parts), all_at_once, name not in ROUNDED)
    left = (parts[0] + parts[1]) + (parts[2] + sum(parts[3:]))
    assert_same(left, all_at_once, name not in ROUNDED)
    assert_same(q.sketch_stream(pieces(ids, rows, 9, seed)), all_at_once, name not in ROUNDED)


def test_a_stream_of_rows_is_estimated_as_bags_in_memory(named):
    name, q = named
    ids, rows = table(1000)
    bags = whole(ids, rows)
    found, p = q.predict_stream((ids[i : i + 90], rows[i : i + 90]) for i in range(0, len(ids), 90))
    assert found.tolist() == bags.ids.tolist()
    if q.sketch_kind == "binned":
        np.testing.assert_allclose(p, q.predict(bags), atol=0.1 if name == "KDEy" else 0.05)
    elif name in ROUNDED:
        np.testing.assert_allclose(p, q.predict(bags), atol=1e-6)
    else:
        np.testing.assert_array_equal(p, q.predict(bags))
    np.testing.assert_array_equal(q.predict(q.sketch_stream(iter([bags]))), q.predict(q.sketch(bags)))


def test_a_weight_of_k_equals_k_copies(named):
    name, q = named
    ids, rows = table()
    counts = np.random.default_rng(1).integers(0, 4, size=len(ids))
    copies = q.sketch(whole(np.repeat(ids, counts), np.repeat(rows, counts, axis=0)))
    weighted = q.sketch_stream(pieces(ids, rows, 5, 0, counts))
    i, j = np.argsort(copies.ids), np.argsort(weighted.ids)
    assert weighted.totals.dtype.kind == "i"
    np.testing.assert_array_equal(weighted.sizes[j], copies.sizes[i])
    same = np.testing.assert_allclose if name in ROUNDED else np.testing.assert_array_equal
    same(weighted.values[j], copies.values[i])
    survey = q.sketch_stream(pieces(ids, rows, 5, 0, counts.astype(float)))
    expected = whole(ids, rows, counts).sizes  # of counts: their sums
    np.testing.assert_array_equal(survey.totals[np.argsort(survey.ids)], expected[np.argsort(whole(ids, rows).ids)])
    bags = hq.Bags.concat([whole(ids, rows, counts)])
    bags.weight_kind, bags.weights = "survey", bags.weights.astype(float)
    np.testing.assert_allclose(q.sketch(bags).sizes, bags.sizes)
    is_sized = isinstance(q, hq.Pretrained | hq.EMNetQ) or getattr(q, "estimate", "ml") != "ml"
    if not is_sized:  # others depend on the size of a bag, which is Kish's for survey weights
        expected = q.predict(q.sketch(whole(ids, rows, counts)))
        np.testing.assert_allclose(q.predict(q.sketch(bags)), expected, atol=1e-12)


def test_saved_and_read_again(named, tmp_path):
    _, q = named
    sketch = q.sketch(whole(*table()))
    sketch.save(tmp_path / "a.parquet")
    back = hq.BagSketch.load(tmp_path / "a.parquet")
    assert_same(back, sketch, True)
    assert back.maker == sketch.maker
    assert back.values.shape == sketch.values.shape
    np.testing.assert_array_equal(q.predict(back), q.predict(sketch))
    file = io.BytesIO()
    back.save(file)
    assert_same(hq.BagSketch.load(io.BytesIO(file.getvalue())) + sketch, sketch + sketch, True)


def test_a_model_reads_its_sketches_after_saving(named, tmp_path):
    _, q = named
    sketch = q.sketch(whole(*table()))
    q.save(tmp_path / "model")
    np.testing.assert_array_equal(hq.load(tmp_path / "model").predict(sketch), q.predict(sketch))


def test_one_bag_as_an_array_has_no_id(named):
    _, q = named
    rows = table()[1]
    sketch = q.sketch(rows[:100]) + q.sketch(rows[100:])
    assert (sketch.ids, len(sketch)) == (None, 1)
    assert q.predict(sketch).shape == (3,)
    assert q.predict_interval(sketch).lower.shape == (3,)
    if q.sketch_kind != "binned":
        np.testing.assert_allclose(q.predict(sketch), q.predict(rows), atol=1e-6)
    file = io.BytesIO()
    sketch.save(file)
    assert hq.BagSketch.load(file).ids is None


def test_intervals_and_trust_from_sketches(named):
    _, q = named
    bags = known_bags(9, seed=9)
    sketch = sum(q.sketch(bags.select(slice(None), bags.index[p], o, None)) for p, o in halves(bags))
    trust, expected = q.trust(sketch), q.trust(bags)
    np.testing.assert_allclose(trust["p_value"], expected["p_value"])
    assert trust["trust"].tolist() == expected["trust"].tolist()
    if q.sketch_kind != "binned":
        np.testing.assert_allclose(q.predict_interval(sketch).upper, q.predict_interval(bags).upper, atol=1e-6)


def halves(bags: hq.Bags):
    """Entries and offsets of the first and second half of each bag."""
    middle = (bags.offsets[:-1] + bags.offsets[1:]) // 2
    for low, high in ((bags.offsets[:-1], middle), (middle, bags.offsets[1:])):
        yield ranges(low, high - low), np.concatenate([[0], np.cumsum(high - low)])


def test_roll_up(named):
    name, q = named
    ids, rows = table(n_bags=6)
    sites = {f"b{i}": "north" if i < 2 else "south" for i in range(6)}
    fine = q.sketch(whole(ids, rows))
    coarse = q.sketch(whole(np.array([sites[i] for i in ids]), rows))
    assert_same(fine.roll_up(sites), coarse, name not in ROUNDED)
    assert_same(fine.roll_up(sites.get), coarse, name not in ROUNDED)
    assert_same(fine.roll_up([sites[i] for i in fine.ids]), coarse, name not in ROUNDED)


def test_methods_that_see_more_of_a_row_than_a_cell_are_binned(named):
    name, q = named
    if name in BINNED:
        assert q.sketch_kind == "binned"
    elif name.startswith(EXACT) or (name in ROUNDED and name != "Ensemble-median"):  # of which a member is binned
        assert q.sketch_kind == "exact"


@pytest.mark.parametrize("name", [name for name in QUANTIFIERS if name.startswith(NO_SKETCH)])
def test_methods_that_need_whole_bags_say_so(name):
    q = learn(QUANTIFIERS[name]())
    assert q.sketch_kind is None
    with pytest.raises(TypeError, match=r"^sketch: .* parts of it do not add up; use [^.]*\.$"):
        q.sketch(known_bags())
    with pytest.raises(TypeError, match=r"^sketch: "):
        q.predict_stream(iter([]))


class Midrange(hq.nn.Pooling):
    """A pooling of a user, whose parts do not add up."""

    def __init__(self, n_features):
        super().__init__(n_features, n_features)

    def pool(self, rows, index, offsets, weights):
        ends = [torch.segment_reduce(rows[index], how, offsets=offsets) for how in ("min", "max")]
        return (ends[0] + ends[1]) / 2


class Least(hq.nn.Max):
    """A pooling of a user that merges, but neither by a sum nor by a maximum."""

    def merge(self, a, b):
        return type(a)(torch.minimum(a.values, b.values), a.totals + b.totals)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (Midrange, "Midrange, which needs a whole bag at once, parts of it do not add up; make Midrange a "
         "histnetq.nn.MergeablePooling, or use"),
        (Least, "Least, whose states are not merged by a sum or a maximum; use"),
    ],
)  # fmt: skip
def test_a_pooling_of_ones_own_tells_why_it_cannot_be_sketched(layer, why):
    class Own(hq.DeepSets):
        def _pooling(self, n_features):
            return layer(n_features)

    q = learn(Own(training=hq.Training(epochs=1), random_state=0))
    assert q.sketch_kind is None
    with pytest.raises(TypeError, match=exactly(f"sketch: Own pools by {why} HistNetQ, or DeepSets with pooling "
                                                "'mean' or 'max'.")):  # fmt: skip
        q.sketch(known_bags())


def test_the_median_tells_what_to_use():
    message = (
        "sketch: DeepSets pools by Median, which needs a whole bag at once, parts of it do not add up; "
        "use HistNetQ, or DeepSets with pooling 'mean' or 'max'."
    )
    with pytest.raises(TypeError, match=exactly(message)):
        learn(QUANTIFIERS["DeepSets-median"]()).sketch(known_bags())


@pytest.fixture(scope="module")
def cc():
    return learn(hq.CC(cv=3, random_state=0))


def test_sketches_of_other_models_are_refused(cc):
    other = learn(hq.CC(cv=3, random_state=0), seed=1)
    a, b = cc.sketch(known_bags()), other.sketch(known_bags())
    mine, theirs = a.maker.fingerprint[:8], b.maker.fingerprint[:8]
    message = (
        f"sketches: expected all of one model, got CC (fingerprint {mine}) and CC (fingerprint {theirs}); sketch the "
        "rows again with one of them."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        a + b
    message = (
        f"sketch: expected one made by this model, CC (fingerprint {mine}), got one made by CC (fingerprint {theirs}); "
        "sketch the rows again with this model."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        cc.predict(b)
    histnetq = learn(QUANTIFIERS["HistNetQ-hard"]())
    message = r"^sketch: expected one made by this model, HistNetQ \(fingerprint \w{8}\), got one made by CC \("
    with pytest.raises(ValueError, match=message):
        histnetq.predict(a)


def test_another_head_on_the_same_encoder_reads_the_sketches():
    q = learn(QUANTIFIERS["HistNetQ-hard"]())
    sketch = q.sketch(known_bags())
    with torch.no_grad():
        q.network_.head[-1].bias += 1.0
    assert q.predict(sketch).shape == (12, 3)


def test_cc_and_acc_of_the_same_rows_share_their_sketches(cc):
    acc = learn(hq.ACC(cv=3, random_state=0))
    np.testing.assert_array_equal(acc.predict(cc.sketch(known_bags())), acc.predict(known_bags()))


def test_ids_must_agree(cc):
    rows = table()[1]
    texts, numbers = cc.sketch(hq.Bags(rows, ids=["a"])), cc.sketch(hq.Bags(rows, ids=[3]))
    message = "sketches: expected ids of one type, got 'a' and 3; convert all to texts."
    with pytest.raises(TypeError, match=exactly(message)):
        texts + numbers
    message = "sketches: some have bag ids and some have none; give all of them ids."
    with pytest.raises(ValueError, match=exactly(message)):
        texts + cc.sketch(rows)
    with pytest.raises(TypeError, match="unsupported operand"):
        texts + 1


def test_wrong_larger_bags_are_refused(cc):
    sketch = cc.sketch(hq.Bags(table()[1], ids=["a"]))
    with pytest.raises(ValueError, match=exactly("to: has no larger bag for 'a'; add it.")):
        sketch.roll_up({})
    message = "to: expected a list of 1 larger bags, one for each bag, got 2; correct it."
    with pytest.raises(ValueError, match=exactly(message)):
        sketch.roll_up(["x", "y"])
    message = "bag: 'day' does not name these bags, which are named by no column; name some of these."
    with pytest.raises(ValueError, match=exactly(message)):
        sketch.roll_up_keys(["day"])


def test_files_without_sketches_are_refused(tmp_path, cc):
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "x.parquet")
    message = f"path: {tmp_path / 'x.parquet'} holds no sketches; make them with sketch_stream."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.BagSketch.load(tmp_path / "x.parquet")
    with pytest.raises(FileExistsError, match="exists; choose another name"):
        cc.sketch(known_bags()).save(tmp_path / "x.parquet")


def rewritten(sketch: hq.BagSketch, path, change) -> None:
    """Save the sketch with other columns: `change` maps names to what takes their place, None to nothing."""
    sketch.save(path)
    table = parquet.read_table(path)
    metadata = table.schema.metadata
    for name, column in change.items():
        place = table.column_names.index(name)
        table = table.remove_column(place)
        if column is not None:
            table = table.add_column(place, name, column)
    parquet.write_table(table.replace_schema_metadata(metadata), path)


@pytest.mark.parametrize("name", ["n_rows", "totals", "squares", "unseen", "values", "moments"])
def test_files_without_a_column_are_refused(tmp_path, name):
    q = learn(hq.CC(cv=3, random_state=0)).calibrate(known_bags(30, seed=8))
    path = tmp_path / "s.parquet"
    rewritten(q.sketch(known_bags()), path, {name: None})
    message = (
        f"path: {path} has no column '{name}', which every sketch needs; make the sketches again with sketch_stream."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        hq.BagSketch.load(path)


def lists(n: int, width: int, values=float) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array([values(1)] * (n * width)), width)


MISSING = pa.array([None] + [[1, 2, 3]] * 11, pa.list_(pa.int64(), 3))


def reads_missing() -> bool:
    """Whether this Arrow can read lists of one size, some of which are missing, from Parquet."""
    written = io.BytesIO()
    parquet.write_table(pa.table({"values": MISSING}), written)
    try:
        return parquet.read_table(written).num_rows == len(MISSING)
    except pa.ArrowInvalid:
        return False


@pytest.mark.parametrize(
    ("name", "column", "expected", "got"),
    [
        ("values", lists(12, 2, int), "numbers, 3", "fixed_size_list<element: int64>[2]"),
        ("values", lists(12, 3, str), "numbers, 3", "fixed_size_list<element: string>[3]"),
        ("values", pa.array([[1, 2, 3]] * 12), "numbers, 3", "list<element: int64>"),
        ("values", pa.array([1] * 12), "numbers, 3", "int64"),
        pytest.param(
            "values",
            MISSING,
            "numbers, 3",
            "fixed_size_list<element: int64>[3] with missing values",
            marks=pytest.mark.skipif(not reads_missing(), reason="This Arrow refuses the file itself."),
        ),
        ("n_rows", pa.array([1.0] * 12), "whole numbers, 1", "double"),
        ("unseen", pa.array([1] * 11 + [None]), "whole numbers, 1", "int64 with missing values"),
        ("totals", pa.array(["1"] * 12), "numbers, 1", "string"),
        ("squares", lists(12, 1), "numbers, 1", "fixed_size_list<element: double>[1]"),
    ],
)
def test_files_with_a_damaged_column_are_refused(tmp_path, cc, name, column, expected, got):
    path = tmp_path / "s.parquet"
    rewritten(cc.sketch(known_bags()), path, {name: column})
    message = (
        f"path: {path} has a damaged column '{name}', expected {expected} per bag, got {got}; make the sketches again "
        "with sketch_stream."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        hq.BagSketch.load(path)


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        ((["a"], np.zeros((2, 4))), "ids: expected one bag for each of the 2 rows, got shape (1,)."),
        (
            (["a"], np.zeros((1, 4)), [-1.0]),
            "weights: expected a finite number of at least 0 for each row; drop or repair the others.",
        ),
        (
            ([None], np.zeros((1, 4))),
            "ids: expected a bag for every row, got NaN or None; drop such rows or name their bag.",
        ),
        (
            (["a"], np.zeros((1, 5))),
            "rows: expected 4 features as in training, got 5 features; give the same columns in the same order.",
        ),
    ],
)
def test_wrong_chunks_are_refused(cc, chunk, message):
    with pytest.raises(ValueError, match=exactly(message)):
        cc.predict_stream(iter([chunk]))


@pytest.mark.parametrize(
    ("columns", "got"),
    [("wxy", "no ['z']"), ("wxyzq", "also ['q']"), ("wxq", "no ['y', 'z'] and also ['q']"), ("wxzy", None)],
)  # fmt: skip
def test_columns_of_frames_are_told_by_name_in_one_piece_and_in_a_stream(columns, got):
    X, y = labelled()
    q = hq.CC(random_state=0).fit(pd.DataFrame(X, columns=list("wxyz")), y)
    frame = pd.DataFrame(np.zeros((3, len(columns))), columns=list(columns))
    message = f"rows: expected the columns of training, got {got}; give the same columns in the same order."
    if got is None:
        message = "rows: column 2 is 'z', expected 'y' as in training; give the same columns in the same order."
    for estimate in (q.predict, lambda frame: q.predict_stream([([0, 0, 1], frame)])):
        with pytest.raises(ValueError, match=exactly(message)):
            estimate(frame)


def test_an_empty_stream_is_refused(cc):
    message = "sketches: expected at least one, got none; check where the rows come from."
    with pytest.raises(ValueError, match=exactly(message)):
        cc.predict_stream(iter([]))


def test_counts_are_kept_in_the_smallest_type_that_holds_them(cc):
    one = cc.sketch(hq.Bags(np.zeros((1, 4)), weights=[200], ids=["a"]))
    total = SketchSum().add(one)
    assert total.result().values.dtype == np.uint8
    assert total.add(one).result().values.dtype == np.uint16
    assert total.result().values.sum() == 400
    large = cc.sketch(hq.Bags(np.zeros((1, 4)), weights=[2**40 + 1], ids=["a"]))
    assert (large + large).values.max() == 2**41 + 2


def test_moments_around_different_points_are_dropped(cc):
    calibrated = learn(hq.CC(cv=3, random_state=0)).calibrate(known_bags(30, seed=8))
    both = calibrated.sketch(known_bags()) + cc.sketch(known_bags())
    assert both.maker.moments is None
    assert calibrated.trust(both)["p_value"].isna().all()
    assert calibrated.predict(both).shape == (12, 3)


def test_binned_emq_is_near_the_exact_one():
    rng = np.random.default_rng(0)
    for n_classes, tolerance in ((2, 1e-4), (3, 0.02)):
        y = rng.integers(n_classes, size=3000)
        X = rng.normal(size=(3000, 2)) + np.stack([y, y % 2], axis=1)
        q = hq.EMQ(rescaling="bcts").fit(X, y)
        bags = hq.APP(bag_size=500).draw(hq.Bags.from_labels(X, y), 20, random_state=1)
        assert np.abs(q.predict(q.sketch(bags)) - q.predict(bags)).mean() < tolerance


def test_ids_that_are_dates_become_texts(cc, tmp_path):
    import datetime

    X = labelled()[0]
    days = np.array([datetime.date(2026, 1, 1 + i % 2) for i in range(len(X))])
    monday = cc.sketch(
        hq.Bags.from_arrays([X[:10], X[10:20]], ids=[datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)])
    )
    found = monday + cc.sketch_stream([(days, X)])
    assert found.ids.tolist() == ["2026-01-01", "2026-01-02"]
    assert found.n_rows.sum() == len(X) + 20


def test_ids_that_are_numbers_stay_numbers_in_files(cc, tmp_path):
    part = cc.sketch_stream([(np.array([1.5, 2.5, 1.5]), labelled()[0][:3])])
    part.save(tmp_path / "s.parquet")
    assert (hq.BagSketch.load(tmp_path / "s.parquet") + part).ids.tolist() == [1.5, 2.5]


def test_counts_and_survey_weights_of_a_stream_are_not_put_together(cc):
    X = labelled()[0][:4]
    found = cc.sketch_stream([(["a"] * 4, X, [1, 3, 1, 3]), (["b"] * 4, X, [1.0, 3.0, 1.0, 3.0])])
    np.testing.assert_allclose(cc.predict(found)[0], cc.predict(found)[1])


@pytest.mark.parametrize("encoder", [(64, 32), (300, 300)], ids=["compiled layers", "layers of torch"])
def test_hard_bins_agree_bit_for_bit_in_memory_and_streamed(encoder):
    q = hq.HistNetQ(n_bins=16, **{**SMALL, "encoder": encoder}).fit(known_bags())
    ids, rows = table(3000, n_bags=50)
    bags = whole(ids, rows)
    for size, n_threads in ((7, 1), (1000, 1), (177, 3), (3000, 3)):
        chunks = [(ids[i : i + size], rows[i : i + size]) for i in range(0, len(ids), size)]
        found = q.sketch_stream(chunks, n_threads=n_threads)
        assert_same(found, q.sketch(bags), True)
        np.testing.assert_array_equal(q.predict(found), q.predict(bags))
    np.testing.assert_array_equal(q.predict(bags[3:4]), q.predict(bags)[3:4])


@pytest.mark.parametrize("n_threads", [0, -1, 1.5, True, "2"])
def test_numbers_of_threads_that_are_none_are_refused(cc, n_threads):
    message = f"n_threads: expected a whole number of at least 1, got {n_threads!r}."
    with pytest.raises(ValueError, match=exactly(message)):
        cc.sketch_stream([(["a"], labelled()[0][:1])], n_threads=n_threads)
