import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from histnetq.bags.bags import Bags, ranges
from histnetq.bags.checks import take_dense
from tests.conftest import exactly

law = settings(max_examples=60, deadline=None)
SPARSE = [sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_array]


class Frame:
    """As much of a data frame as the library relies on: column names and conversion to an array."""

    def __init__(self, columns, values):
        self.columns, self.values = columns, np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)


def contents(bags):
    """The naive model: per bag its id, its rows, its weights and its prevalences, as plain lists."""
    listed = []
    for i in range(len(bags)):
        span = slice(bags.offsets[i], bags.offsets[i + 1])
        rows = take_dense(bags.rows, bags.index[span]).tolist()
        weights = None if bags.weights is None else bags.weights[span].tolist()
        prevalences = None if bags.prevalences is None else bags.prevalences[i].tolist()
        listed.append((bags.ids[i].item(), rows, weights, prevalences))
    return listed


@st.composite
def bag_lists(draw, kind=None, min_bags=1):
    """Row numbers per bag on a pool of distinct rows, with weights of any kind, prevalences and ids."""
    n_rows = draw(st.integers(1, 8))
    bag = st.lists(st.integers(0, n_rows - 1), min_size=1, max_size=6)
    members = draw(st.lists(bag, min_size=min_bags, max_size=6))
    n_entries = sum(map(len, members))
    kind = kind or draw(st.sampled_from(["none", "count", "survey"]))
    one = st.floats(0.1, 10) if kind == "survey" else st.integers(1, 9)
    weights = None if kind == "none" else draw(st.lists(one, min_size=n_entries, max_size=n_entries))
    return Bags(
        np.arange(2.0 * n_rows).reshape(n_rows, 2) + draw(st.integers(0, 9)) * 100,
        [row for rows in members for row in rows],
        np.cumsum([0] + [len(rows) for rows in members]),
        weights=weights,
        weight_kind="survey" if kind == "survey" else "count",
        prevalences=[[i + 1, len(members)] for i in range(len(members))] if draw(st.booleans()) else None,
        classes=[0, 1],
        ids=[f"bag {i}" for i in range(len(members))],
        normalize=True,
    )


def keys(n_bags):
    number = st.integers(-n_bags, n_bags - 1)
    return st.one_of(
        number,
        number.map(np.int32),
        st.slices(n_bags),
        st.lists(number, max_size=8),
        st.lists(number, max_size=8).map(np.array),
        st.lists(st.booleans(), min_size=n_bags, max_size=n_bags),
        st.lists(st.booleans(), min_size=n_bags, max_size=n_bags).map(np.array),
    )


def picked(items, key):
    """What a key selects from a list, by Python's own rules."""
    if isinstance(key, slice):
        return items[key]
    numbers = np.atleast_1d(key).tolist()
    if numbers and isinstance(numbers[0], bool):
        return [item for item, chosen in zip(items, numbers, strict=True) if chosen]
    return [items[i] for i in numbers]


@settings(max_examples=150, deadline=None)
@given(bags=bag_lists(), data=st.data())
def test_selection_equals_selection_from_a_list_and_keeps_the_pool(bags, data):
    key = data.draw(keys(len(bags)))
    selected = bags[key]
    assert contents(selected) == picked(contents(bags), key)
    assert selected.rows is bags.rows
    assert selected.sizes.tolist() == picked(bags.sizes.tolist(), key)


@law
@given(bags=bag_lists())
def test_iteration_visits_each_bag_alone(bags):
    visited = list(bags)
    assert all(len(bag) == 1 and bag.rows is bags.rows for bag in visited)
    assert [contents(bag)[0] for bag in visited] == contents(bags)


@law
@given(bags=bag_lists())
def test_sizes_and_entry_accessors_equal_loops(bags):
    listed = contents(bags)
    for i, (_, rows, weights, _) in enumerate(listed):
        expected = len(rows)
        if weights is not None:
            expected = sum(weights)
            if bags.weight_kind == "survey":
                expected = expected**2 / sum(w * w for w in weights)
        np.testing.assert_allclose(bags.sizes[i], expected, rtol=1e-12)
    assert bags.bag_of_entry.tolist() == [i for i, bag in enumerate(listed) for _ in bag[1]]
    assert bags.gather().tolist() == [row for bag in listed for row in bag[1]]
    assert bags.entry_weights().tolist() == [w for bag in listed for w in (bag[2] or [1] * len(bag[1]))]


@pytest.mark.parametrize(
    ("weights", "kind", "sizes"),
    [(None, "count", [2, 1]), ([3, 4, 5], "count", [7, 5]), ([1.0, 3.0, 0.5], "survey", [1.6, 1.0])],
)
def test_sizes_by_hand(weights, kind, sizes):
    bags = Bags(np.zeros((3, 1)), offsets=[0, 2, 3], weights=weights, weight_kind=kind)
    np.testing.assert_allclose(bags.sizes, sizes)
    assert (bags.sizes.dtype.kind == "i") == (kind == "count")


@law
@given(bags=bag_lists(kind="count"), data=st.data())
def test_weightless_entries_are_as_if_absent(bags, data):
    length = len(bags.index)
    extra = data.draw(st.lists(st.integers(0, length), max_size=4).map(sorted))
    index = np.insert(bags.index, extra, 0)
    weights = np.insert(bags.weights, extra, 0)
    offsets = bags.offsets + np.searchsorted(extra, bags.offsets)
    offsets[-1] = len(index)
    padded = Bags(bags.rows, index, offsets, weights=weights, prevalences=bags.prevalences, ids=bags.ids)
    assert contents(padded) == contents(bags)


@law
@given(starts=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=6))
def test_ranges_equal_a_loop(starts):
    expected = [i for start, length in starts for i in range(start, start + length)]
    firsts, lengths = np.array(starts, dtype=np.int64).reshape(-1, 2).T
    assert ranges(firsts, lengths).tolist() == expected


@law
@given(data=st.data(), kind=st.sampled_from(["count", "survey"]))
def test_concatenation_equals_concatenation_of_lists(data, kind):
    parts = [data.draw(bag_lists(kind=k)) for k in data.draw(st.permutations(["none", kind, kind]))]
    joined = Bags.concat(parts)
    known = all(part.prevalences is not None for part in parts)
    assert contents(joined) == [
        (name, rows, weights or [1] * len(rows), prevalences if known else None)
        for part in parts
        for name, rows, weights, prevalences in contents(part)
    ]
    assert joined.weight_kind == kind
    assert joined.rows.shape[0] == sum(len(p.rows) for p in parts)


@law
@given(bags=bag_lists(min_bags=2), data=st.data())
def test_concatenation_on_one_pool_shares_it(bags, data):
    cut = data.draw(st.integers(1, len(bags) - 1))
    joined = Bags.concat([bags[:cut], bags[cut:]])
    assert joined.rows is bags.rows
    assert contents(joined) == contents(bags)


def test_concatenation_shares_the_pool_when_the_labels_agree():
    rows, y = np.arange(8.0).reshape(4, 2), [0, 1, 1, 0]
    whole, groups = Bags.from_labels(rows, y), Bags.from_labels(rows, y, groups=[0, 0, 1, 1])
    assert Bags.concat([whole, groups]).rows is rows
    assert Bags.concat([whole, groups.with_classes([1, 0])]).rows is rows
    other = Bags.concat([whole, Bags.from_labels(rows, y[::-1]), Bags(rows, classes=[0, 1])])
    assert other.rows.shape == (12, 2)
    assert other.labels.tolist() == [*y, *y[::-1], -1, -1, -1, -1]


def test_concatenation_aligns_classes_by_name():
    a = Bags.from_labels(np.zeros((4, 1)), ["x", "y", "y", "y"])
    b = Bags.from_labels(np.ones((2, 1)), ["z", "x"], classes=["z", "x"])
    joined = Bags.concat([a, b])
    assert joined.classes.tolist() == ["x", "y", "z"]
    assert joined.prevalences.tolist() == [[0.25, 0.75, 0], [0.5, 0, 0.5]]
    assert joined.classes[joined.labels].tolist() == ["x", "y", "y", "y", "z", "x"]
    np.testing.assert_array_equal(joined.label_prevalences(), joined.prevalences)


def test_concatenation_takes_the_names_of_columns_from_the_parts_that_have_them():
    named = Bags(ROWS, feature_names="ab")
    for parts in ([PLAIN, named], [named, PLAIN], [PLAIN, named, PLAIN]):
        assert Bags.concat(parts).feature_names == ["a", "b"]
    assert PLAIN.feature_names is None
    message = "parts: number 2 has other feature_names than number 1; give both the same columns."
    with pytest.raises(ValueError, match=exactly(message)):
        Bags.concat([PLAIN, named, Bags(ROWS, feature_names="ba")])


def test_concatenation_forgets_prevalences_that_some_parts_lack():
    known, unknown = Bags(np.zeros((2, 1)), prevalences=[[0.5, 0.5]]), Bags(np.zeros((2, 1)), classes=[0, 1])
    assert Bags.concat([known, unknown]).prevalences is None
    assert Bags.concat([known, known]).prevalences.tolist() == [[0.5, 0.5]] * 2


@law
@given(bags=bag_lists(min_bags=2), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 100))
def test_split_is_a_seeded_partition(bags, fraction, seed):
    first, second = bags.split(fraction, random_state=seed)
    assert sorted(contents(first) + contents(second)) == sorted(contents(bags))
    assert len(first) == min(max(round(fraction * len(bags)), 1), len(bags) - 1)
    assert first.rows is bags.rows
    assert contents(bags.split(fraction, random_state=seed)[0]) == contents(first)


def test_split_shuffles():
    bags = Bags(np.zeros((50, 1)), offsets=range(51))
    splits = {tuple(bags.split(0.5, random_state=seed)[0].ids) for seed in range(5)}
    assert len(splits) == 5
    assert tuple(range(25)) not in splits


@law
@given(
    table=st.lists(st.tuples(st.sampled_from("abc"), st.integers(5, 8), st.integers(1, 4)), min_size=1, max_size=12),
    classes=st.permutations("abcd"),
    weighted=st.booleans(),
)
def test_labelled_groups_equal_a_loop(table, classes, weighted):
    y, groups, weights = map(list, zip(*table, strict=True))
    rows = np.arange(len(y))[:, None]
    bags = Bags.from_labels(rows, y, groups, classes=classes, weights=weights if weighted else None)
    assert bags.ids.tolist() == sorted(set(groups))
    assert bags.classes.tolist() == classes
    assert bags.classes[bags.labels].tolist() == y
    assert bags.rows is rows
    for bag, group in zip(bags, bags.ids, strict=True):
        members = [i for i, g in enumerate(groups) if g == group]
        mass = [weights[i] if weighted else 1 for i in members]
        assert bag.index.tolist() == members
        assert bag.sizes.tolist() == [sum(mass)]
        for name, share in zip(classes, bag.prevalences[0], strict=True):
            counted = sum(m for i, m in zip(members, mass, strict=True) if y[i] == name)
            np.testing.assert_allclose(share, counted / sum(mass), rtol=1e-12)


@law
@given(table=st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=12))
def test_a_count_of_k_equals_k_copies(table):
    table = [(True, g, 1) for g in range(3)] + table  # every group keeps a row
    y, groups, weights = map(np.array, zip(*table, strict=True))
    rows = np.arange(len(y))[:, None]
    weighted = Bags.from_labels(rows, y, groups, weights=weights, classes=[False, True])
    copies = np.repeat(np.arange(len(y)), weights)
    copied = Bags.from_labels(rows[copies], y[copies], groups[copies], classes=[False, True])
    np.testing.assert_array_equal(weighted.sizes, copied.sizes)
    np.testing.assert_allclose(weighted.prevalences, copied.prevalences, rtol=1e-12)


def test_labels_without_groups_make_one_bag_of_sorted_classes():
    bags = Bags.from_labels(np.zeros((4, 1)), ["pos", "neg", "pos", "pos"])
    assert bags.classes.tolist() == ["neg", "pos"]
    assert bags.prevalences.tolist() == [[0.25, 0.75]]
    assert bags.labels.tolist() == [1, 0, 1, 1]
    assert bags.ids.tolist() == [0]


def test_survey_weights_weigh_the_prevalences_of_labels():
    bags = Bags.from_labels(np.zeros((3, 1)), [0, 1, 1], weights=[1.5, 0.25, 0.25], weight_kind="survey", ids=["all"])
    assert bags.prevalences.tolist() == [[0.75, 0.25]]
    assert bags.ids.tolist() == ["all"]


def test_arrays_become_bags_in_order():
    arrays = [np.arange(6.0).reshape(3, 2), np.arange(2.0).reshape(1, 2) + 50]
    bags = Bags.from_arrays(arrays, [[1, 3], [0, 2]], ["a", "b"], weights=[[1, 2, 3], [9]], ids=[7, 8], normalize=True)
    assert contents(bags) == [
        (7, arrays[0].tolist(), [1, 2, 3], [0.25, 0.75]),
        (8, arrays[1].tolist(), [9], [0, 1]),
    ]
    assert bags.classes.tolist() == ["a", "b"]


def test_a_single_array_is_not_copied():
    rows = np.zeros((3, 2))
    assert Bags.from_arrays([rows]).rows is rows
    assert Bags(rows).rows is rows


def test_defaults_are_one_bag_of_all_rows():
    bags = Bags([[1, 2], [3, 4]])
    assert contents(bags) == [(0, [[1, 2], [3, 4]], None, None)]
    assert bags.classes is bags.labels is bags.feature_names is None


def test_a_tensor_pool_shares_memory():
    tensor = torch.zeros(4, 2, requires_grad=True)
    bags = Bags(tensor, offsets=[0, 1, 4])
    with torch.no_grad():
        tensor[3, 1] = 5
    assert bags[1].gather()[-1].tolist() == [0, 5]


def test_a_memmap_stays_a_memmap(tmp_path):
    pool = np.memmap(tmp_path / "rows", dtype=np.float32, mode="w+", shape=(4, 3))
    pool[:] = np.arange(12).reshape(4, 3)
    bags = Bags(pool, offsets=[0, 2, 4])
    assert isinstance(bags[1].rows, np.memmap)
    assert bags[1].rows is pool
    assert Bags.concat([bags, bags]).rows is pool
    assert bags[1].gather().tolist() == [[6, 7, 8], [9, 10, 11]]


@pytest.mark.parametrize("form", SPARSE)
def test_sparse_rows_behave_as_dense_ones(form):
    dense = np.array([[0, 1.5], [0, 0], [2, 0], [0, 3]])
    options = {"offsets": [0, 1, 4], "prevalences": [[1, 0], [0.5, 0.5]]}
    thin, full = Bags(form(dense), **options), Bags(dense, **options)
    assert thin.rows.format == "csr"
    assert thin.n_features == 2
    assert contents(thin[[1, 0, 1]]) == contents(full[[1, 0, 1]])
    assert thin.gather().toarray().tolist() == full.gather().tolist()
    assert Bags.concat([thin[:1], thin[1:]]).rows is thin.rows
    for parts in ([thin, Bags(form(dense), **options)], [thin, full], [full, thin]):
        joined = Bags.concat(parts)
        assert joined.rows.format == "csr"
        assert contents(joined) == contents(full) * 2
    assert contents(Bags.from_arrays([form(dense), form(dense[:1])])) == contents(Bags.from_arrays([dense, dense[:1]]))


def test_images_keep_their_shape():
    images = np.arange(5 * 64).reshape(5, 8, 8)
    bags = Bags.from_arrays([images[:2], images[2:]])
    assert bags.n_features == 64
    assert bags[1].gather().shape == (3, 8, 8)
    np.testing.assert_array_equal(Bags.concat([bags[1], bags[0]]).gather(), images[[2, 3, 4, 0, 1]])


@pytest.mark.parametrize(
    "make",
    [
        lambda X: Bags(X),
        lambda X: Bags.from_arrays([X, X]),
        lambda X: Bags.from_arrays([X, X.values]),
        lambda X: Bags.from_labels(X, [0, 1, 1]),
        lambda X: Bags(X.values, feature_names=X.columns),
        lambda X: Bags.from_labels(X.values, [0, 1, 1], feature_names=np.array(X.columns)),
    ],
)
def test_column_names_are_kept(make):
    assert make(Frame(["length", 2], np.zeros((3, 2)))).feature_names == ["length", "2"]


def test_prevalences_can_be_added():
    bags = Bags(np.zeros((4, 1)), offsets=[0, 2, 4])
    known = bags.with_prevalences([[1, 3], [2, 2]], normalize=True)
    assert known.prevalences.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert known.classes.tolist() == [0, 1]
    assert known.rows is bags.rows
    assert bags.prevalences is None


def test_classes_are_arranged_by_name():
    bags = Bags(np.zeros((3, 1)), prevalences=[[0.2, 0.8]], classes=["a", "b"], labels=[0, 1, -1])
    arranged = bags.with_classes(["c", "b", "a"])
    assert arranged.prevalences.tolist() == [[0, 0.8, 0.2]]
    assert arranged.labels.tolist() == [2, 1, -1]
    assert bags.with_classes(["a", "b", "c"]).labels is bags.labels
    assert bags.labels.tolist() == [0, 1, -1]


def test_classes_are_numbered_by_default():
    assert Bags(np.zeros((2, 1)), labels=[0, 2]).classes.tolist() == [0, 1, 2]
    assert Bags(np.zeros((2, 1)), labels=[0, 1], prevalences=[[0.5, 0.25, 0.25]]).classes.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("bags", "text"),
    [
        (Bags(np.zeros((3, 2))), "Bags(n_bags=1, sizes=3, rows=(3, 2) float64)"),
        (Bags(np.zeros((3, 2)))[[]], "Bags(n_bags=0, rows=(3, 2) float64)"),
        (
            Bags(np.zeros((3, 2)), offsets=[0, 2, 3], weights=[1, 3, 0.5], weight_kind="survey"),
            "Bags(n_bags=2, sizes=1…1.6, rows=(3, 2) float64, survey weights)",
        ),
        (
            Bags.from_labels(np.zeros((7, 2), np.float32), list("abcdefg")),
            "Bags(n_bags=1, sizes=7, rows=(7, 2) float32, classes=['a', 'b', … 'g'] (7), prevalences, labels)",
        ),
    ],
)
def test_representation(bags, text):
    assert repr(bags) == text


ROWS = np.zeros((3, 2))
NAN = np.array([[0, 0], [0, 0], [0, np.nan]])
TWO = Bags(ROWS, offsets=[0, 1, 3], classes=["a", "b"], labels=[0, 1, -1])
PLAIN = Bags(ROWS, offsets=[0, 1, 3])
FINITE = "is NaN or infinite, expected finite numbers; drop or impute such rows first."
FLAT = "expected one row per example, shape (n_rows, n_features), got shape"
MEND = "weights: expected finite numbers of at least 0; drop or repair the others."
NO_CLASS = "y: expected a class for every row, got NaN or None; drop such rows or give them a class."


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Bags([1, 2]),
            f"rows: {FLAT} (2,); use reshape(-1, 1) for a single feature, reshape(1, -1) for a single row.",
        ),
        *(
            (
                lambda w=w: Bags(ROWS, weights=[1.0, w, 0.0], weight_kind="survey"),
                f"weights: expected 0, or numbers from 1e-100 to 1e+100 whose squares can be summed, got {w:g}; "
                "multiply all of them by one number.",
            )
            for w in (1e-308, 1e200)
        ),
        (
            lambda: Bags.from_labels([1, 2], [0, 1]),
            f"X: {FLAT} (2,); use reshape(-1, 1) for a single feature, reshape(1, -1) for a single row.",
        ),
        (
            lambda: Bags.from_arrays([ROWS, ROWS[0]]),
            f"arrays[1]: {FLAT} (2,); use reshape(-1, 1) for a single feature, reshape(1, -1) for a single row.",
        ),
        pytest.param(
            lambda: Bags(sparse.coo_array([1.0, 0])),
            f"rows: {FLAT} (2,); use reshape(-1, 1) for a single feature, reshape(1, -1) for a single row.",
            marks=pytest.mark.skipif(sparse.coo_array([1.0]).ndim == 2, reason="SciPy before 1.13 has none such."),
        ),
        (lambda: Bags(np.where(np.isnan(NAN), -np.inf, NAN)), f"rows: row 2, column 1 {FINITE}"),
        (lambda: Bags(NAN.tolist()), f"rows: row 2, column 1 {FINITE}"),
        (lambda: Bags(-np.inf * np.ones((2, 3, 3))), f"rows: row 0 {FINITE}"),
        (lambda: Bags(sparse.csc_matrix(NAN)), f"rows: row 2, column 1 {FINITE}"),
        (lambda: Bags.from_arrays([ROWS, NAN.tolist()]), f"arrays[1]: row 2, column 1 {FINITE}"),
        (lambda: Bags(np.zeros((0, 2))), "bags: bag 0 is empty, expected at least one row; leave empty bags out."),
        (
            lambda: Bags(ROWS, [0, 3]),
            "index: row 3 is out of range, expected 0 to 2 for a pool of 3 rows.",
        ),
        (lambda: Bags(ROWS, [0, -1]), "index: row -1 is out of range, expected 0 to 2 for a pool of 3 rows."),
        (
            lambda: Bags(ROWS, offsets=[0, 2]),
            "offsets: expected to rise from 0 to the number of entries (3), got 0 … 2.",
        ),
        (
            lambda: Bags(ROWS, offsets=[1, 3]),
            "offsets: expected to rise from 0 to the number of entries (3), got 1 … 3.",
        ),
        (
            lambda: Bags(ROWS, offsets=[0, 2, 1, 3]),
            "offsets: expected to rise from 0 to the number of entries (3), got 0 … 3, not rising.",
        ),
        (
            lambda: Bags(ROWS, [], [0]),
            "offsets: expected at least one bag, got none; give offsets (0, n_entries) for one bag.",
        ),
        (
            lambda: Bags(ROWS, offsets=[0, 2, 2, 3]),
            "bags: bag 1 is empty, expected at least one row; leave empty bags out.",
        ),
        (
            lambda: Bags(ROWS, offsets=[0, 2, 3], weights=[1, 1, 0]),
            "bags: bag 1 is empty, expected at least one row; leave empty bags out.",
        ),
        (
            lambda: Bags(ROWS, weights=[1, 1, 1], weight_kind="counts"),
            "weight_kind: expected one of 'count', 'survey', got 'counts'; perhaps you mean 'count'.",
        ),
        (lambda: Bags(ROWS, weights=[1, 1]), "weights: expected one number per entry, shape (3,), got (2,)."),
        (lambda: Bags(ROWS, weights=[1, 1, -1]), MEND),
        (lambda: Bags(ROWS, weights=[1, 1, np.nan], weight_kind="survey"), MEND),
        (lambda: Bags(ROWS, weights=["1", "1", "1"]), MEND),
        (
            lambda: Bags(ROWS, weights=[1, 2.5, 1]),
            "weights: expected whole numbers for weight_kind='count', got 2.5; pass weight_kind='survey'.",
        ),
        (lambda: Bags(ROWS, ids=[1, 2]), "ids: expected one name per bag, shape (1,), got (2,)."),
        (lambda: Bags(ROWS, classes=[["a"], ["b"]]), "classes: expected one name per class, shape (2,), got (2, 1)."),
        (lambda: Bags(ROWS, classes=["a", "a"]), "classes: expected different names, got ['a', 'a']."),
        (
            lambda: Bags(ROWS, classes=["a", "b", "c"], prevalences=[[0.5, 0.5]]),
            "prevalences: expected 3 columns, one per class, got 2; check classes= or the table's columns.",
        ),
        (
            lambda: Bags(ROWS, prevalences=[[3, 1]]),
            "prevalences: row 0 sums to 4, expected 1 ± 0.001; pass normalize=True to rescale counts or percentages.",
        ),
        (
            lambda: PLAIN.with_prevalences([[0.5, 0.5]]),
            "prevalences: expected one row for each of the 2 bags, got 1 rows.",
        ),
        (
            lambda: Bags(ROWS, labels=[0, 1]),
            "labels: expected one class code per pool row, shape (3,), got int64 of (2,); "
            "use Bags.from_labels for class names.",
        ),
        (
            lambda: Bags(ROWS, labels=["a", "b", "b"]),
            "labels: expected one class code per pool row, shape (3,), got <U1 of (3,); "
            "use Bags.from_labels for class names.",
        ),
        (
            lambda: Bags(ROWS, labels=[0, 1, 2], classes=["a", "b"]),
            "labels: expected codes from -1 (unknown) to 1, got 0 to 2; check classes=.",
        ),
        (
            lambda: Bags(ROWS, labels=[-2, 1, 0], classes=["a", "b"]),
            "labels: expected codes from -1 (unknown) to 1, got -2 to 1; check classes=.",
        ),
        (
            lambda: Bags(ROWS, feature_names=["a"]),
            "feature_names: expected one per column of rows (3, 2), got 1.",
        ),
        (
            lambda: Bags(np.zeros((2, 8, 8)), feature_names=list("abcdefgh")),
            "feature_names: expected one per column of rows (2, 8, 8), got 8.",
        ),
        (lambda: Bags.from_arrays([]), "arrays: expected at least one bag, got an empty list."),
        (
            lambda: Bags.from_arrays([ROWS, np.zeros((3, 4))]),
            "arrays: bag 1 has rows of shape (4,), expected (2,) as in bag 0; give every bag the same features.",
        ),
        (
            lambda: Bags.from_arrays([Frame(["a", "b"], ROWS), Frame(["b", "a"], ROWS)]),
            "arrays: bag 1 has columns ['b', 'a'], expected ['a', 'b'] as in bag 0; "
            "give every bag the same columns in the same order.",
        ),
        (
            lambda: Bags.from_arrays([ROWS, ROWS], weights=[1, 1, 1, 1, 1, 1]),
            "weights: expected a list with one array for each of the 2 bags, got 6.",
        ),
        (
            lambda: Bags.from_arrays([ROWS, ROWS], weights=[[1, 1, 1, 1], [1, 1]]),
            "weights: expected one number per row of bag 0, shape (3,), got (4,).",
        ),
        (
            lambda: Bags.from_labels(ROWS, [0, 1]),
            "y: expected one label per row, shape (3,), got (2,); pass X and y with the same rows.",
        ),
        (lambda: Bags.from_labels(ROWS, [0, 1, np.nan]), NO_CLASS),
        (lambda: Bags.from_labels(ROWS, ["a", "b", None]), NO_CLASS),
        (lambda: Bags.from_labels(ROWS, np.array(["a", "b", np.nan], object)), NO_CLASS),
        (
            lambda: Bags.from_labels(ROWS, ["a", "a", "a"]),
            "y: expected at least 2 classes, got only ['a']; "
            "Bags.from_labels takes classes= with the names of those that have no rows.",
        ),
        (
            lambda: Bags.from_labels(ROWS, ["a", "b", "x"], classes=["a", "b"]),
            "y: 'x' is not among classes ['a', 'b']; add it or correct the label.",
        ),
        (
            lambda: Bags.from_labels(ROWS, ["a", "b", "a"], classes=["a", "b", "a"]),
            "classes: expected different names, got ['a', 'b', 'a'].",
        ),
        (
            lambda: Bags.from_labels(ROWS, [0, 1, 1], groups=[1, 1]),
            "groups: expected one bag name per row, shape (3,), got (2,).",
        ),
        (lambda: Bags.from_labels(ROWS, [0, 1, 1], weights=[1, 1]), "weights: expected one per row (3), got 2."),
        (
            lambda: PLAIN.label_prevalences(),
            "labels: these bags carry no row labels; make them with Bags.from_labels.",
        ),
        (
            lambda: TWO.label_prevalences(),
            "labels: 1 entries have no label (−1), expected all known; pass prevalences= instead.",
        ),
        (lambda: TWO.split(1), "fraction: expected a number between 0 and 1, got 1."),
        (
            lambda: TWO[0].split(0.5),
            "bags: expected at least 2 bags to split into training and validation, got 1; add bags.",
        ),
        (
            lambda: PLAIN.with_classes(["a", "b"]),
            "classes: these bags have no classes to align; pass classes= when making them.",
        ),
        (
            lambda: TWO.with_classes(["b", "c"]),
            "classes: 'a' is not among the expected ['b', 'c']; rename it, drop its rows or column, or learn from bags "
            "that have it.",
        ),
        (lambda: Bags.concat([]), "parts: expected at least one Bags, got an empty list."),
        (
            lambda: Bags.concat([TWO, PLAIN]),
            "parts: some have classes and some have none; pass classes= when making each of them.",
        ),
        (
            lambda: Bags.concat([PLAIN, PLAIN, Bags(np.zeros((1, 3)))]),
            "parts: number 2 has rows of shape (3,), expected (2,) as in number 0.",
        ),
        (
            lambda: Bags.concat([Bags(ROWS, feature_names="ab"), Bags(ROWS, feature_names="ba")]),
            "parts: number 1 has other feature_names than number 0; give both the same columns.",
        ),
        (
            lambda: Bags.concat([Bags(ROWS, weights=[1, 1, 1], weight_kind=kind) for kind in ("count", "survey")]),
            "parts: some have count weights and some survey weights; give all the same kind.",
        ),
    ],
)
def test_bad_values_are_refused(make, message):
    with pytest.raises(ValueError, match=exactly(message)):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bags([["a", "b"]]), "rows: expected numbers, got dtype <U1; encode categories and dates first."),
        (
            lambda: Bags(sparse.csr_matrix(np.ones((2, 2), complex))),
            "rows: expected numbers, got dtype complex128; encode categories and dates first.",
        ),
        (
            lambda: Bags(ROWS, [0.0, 1.0]),
            "index: expected a flat list of row numbers, got dtype float64 of shape (2,).",
        ),
        (
            lambda: Bags(ROWS, [True, False]),
            "index: expected a flat list of row numbers, got dtype bool of shape (2,).",
        ),
        (lambda: Bags(ROWS, [[0, 1]]), "index: expected a flat list of row numbers, got dtype int64 of shape (1, 2)."),
        (
            lambda: Bags(ROWS, offsets=[0.0, 3.0]),
            "offsets: expected n_bags + 1 whole numbers, got dtype float64 of shape (2,).",
        ),
        (lambda: Bags(ROWS, offsets=3), "offsets: expected n_bags + 1 whole numbers, got dtype int64 of shape ()."),
    ],
)
def test_bad_types_are_refused(make, message):
    with pytest.raises(TypeError, match=exactly(message)):
        make()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (2, "bag 2 is out of range, there are 2 bags."),
        (-3, "bag -3 is out of range, there are 2 bags."),
        ([-2, 0, 2], "bag 2 is out of range, there are 2 bags."),
        ([True], "expected a mask of length 2, got shape (1,)."),
        (True, "expected a mask of length 2, got shape ()."),
        ("a", "expected a number, slice, mask or list of numbers, got 'a'."),
        (1.0, "expected a number, slice, mask or list of numbers, got 1.0."),
        ([[0, 1]], "expected a number, slice, mask or list of numbers, got [[0, 1]]."),
    ],
)
def test_bad_keys_are_refused(key, message):
    with pytest.raises(IndexError, match=exactly(f"bags: {message}")):
        PLAIN[key]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_rows_are_checked_in_chunks_and_the_place_is_right(form, monkeypatch):
    monkeypatch.setattr("histnetq.bags.memmap._CHUNK", 4)
    rows = np.ones((9, 2))
    rows[7, 1] = np.inf
    with pytest.raises(ValueError, match=exactly(f"rows: row 7, column 1 {FINITE}")):
        Bags(form(rows))
    assert len(Bags(form(rows[:7]))) == 1


class Table:
    """The little of a data frame that counts."""

    def __init__(self, columns, values) -> None:
        self.columns, self.values = columns, np.asarray(values)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self.values


def test_a_frame_of_prevalences_names_the_classes():
    table = Table(["neg", "pos"], [[0.3, 0.7]])
    assert Bags(np.zeros((2, 1)), prevalences=table).classes.tolist() == ["neg", "pos"]
    swapped = Bags(np.zeros((2, 1)), prevalences=table, classes=["pos", "neg"])
    assert swapped.prevalences.tolist() == [[0.7, 0.3]]
    with pytest.raises(ValueError, match=r"prevalences: expected the columns \['a', 'b'\], got \['neg', 'pos'\]"):
        Bags(np.zeros((2, 1)), prevalences=table, classes=["a", "b"])
    assert swapped.with_prevalences(table).prevalences.tolist() == [[0.7, 0.3]]


def test_a_dict_of_arrays_names_the_bags_and_a_generator_will_do():
    assert Bags.from_arrays({"x": np.zeros((2, 1)), "y": np.ones((1, 1))}).ids.tolist() == ["x", "y"]
    assert len(Bags.from_arrays(np.zeros((n, 1)) for n in (1, 2))) == 2


def test_a_frame_of_several_number_types_is_numbers():
    mixed = np.array([[1.5, True], [2, False]], dtype=object)
    assert Bags(Table(["a", "b"], mixed)).rows.tolist() == [[1.5, 1.0], [2.0, 0.0]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: Bags([np.zeros((2, 1))] * 2),
            TypeError,
            "rows: expected one array of rows, got a list of 2; use Bags.f",
        ),
        (
            lambda: Bags([Bags(np.zeros((2, 1)))]),
            TypeError,
            "rows: expected one Bags, got a list of them; join them with",
        ),
        (lambda: Bags([[1, 2], [3]]), ValueError, "rows: expected rows of one length, got a ragged list"),
        (lambda: Bags(None), TypeError, "rows: expected numbers, got NoneType"),
        (lambda: Bags("data.csv"), TypeError, "rows: expected numbers, got str"),
        (lambda: Bags(np.zeros((3, 0))), ValueError, r"rows: expected at least one feature, got shape \(3, 0\)"),
        (
            lambda: Bags(np.ma.masked_array(np.zeros((2, 1)), [[True], [False]])),
            ValueError,
            "rows: expected a value everywhere, got a masked array; fill or drop the masked values first",
        ),
        (lambda: Bags.from_arrays(np.zeros((3, 2))), TypeError, r"arrays: expected a list .*; pass \[X\] for one bag"),
        (
            lambda: Bags.from_labels(np.zeros((2, 1)), [float("nan"), "a"]),
            ValueError,
            "y: expected a class for every row",
        ),
        (
            lambda: Bags.from_labels(np.zeros((2, 1)), [1, "a"]),
            TypeError,
            "y: expected values of one type, got 1 and 'a'",
        ),
        (lambda: Bags.from_labels(np.zeros((2, 1)), [[0], [1]]), ValueError, r"got \(2, 1\); use y.ravel\(\)"),
        (
            lambda: Bags.from_labels(np.zeros((20, 1)), np.linspace(0, 1, 20)),
            ValueError,
            "y: expected classes, got a different number in each of 20 rows; bin a continuous y",
        ),
        (
            lambda: Bags.from_labels(np.zeros((2, 1)), [0, 1], groups=["a", None]),
            ValueError,
            "groups: expected a bag for every row, got NaN or None",
        ),
        (
            lambda: Bags.from_labels(np.zeros((2, 1)), [0, 1], prevalences=[[1, 0]]),
            TypeError,
            "prevalences: from_labels counts them from y; leave them out",
        ),
    ],
)
def test_likely_mistakes_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_the_fingerprint_covers_every_name_type_shape_and_number():
    def made(rows=((1.0, 2.0), (3.0, 4.0)), dtype=np.float64, classes="abcdefg", offsets=(0, 2), **options):
        p = np.full((len(offsets) - 1, 7), 1 / 7)
        return Bags(np.array(rows, dtype), offsets=offsets, classes=list(classes), prevalences=p, **options)

    others = [
        made(dtype=np.float32),
        made(rows=((1.0, 2.0), (3.0, 5.0))),
        made(rows=((1.0, 2.0), (3.0, 4.0), (5.0, 6.0)), index=[0, 1]),
        made(rows=(((1.0,), (2.0,)), ((3.0,), (4.0,)))),
        made(classes="abXdefg"),  # one that its representation leaves out
        made(offsets=(0, 1, 2)),
        made(index=[1, 0]),
        made(weights=[1, 1]),
        made(weights=[1, 1], weight_kind="survey"),
        made(labels=[0, 1]),
        made(labels=[0, 2]),
    ]
    found = {bags.fingerprint() for bags in [made(), *others]}
    assert len(found) == 1 + len(others)
    assert made(ids=["x"]).fingerprint() == made().fingerprint()


def test_trusted_parts_are_taken_as_they_are(monkeypatch):
    def scan(numbers):
        raise AssertionError("scanned")

    whole = Bags.from_labels(
        np.arange(6.0)[:, None], list("aabbba"), groups=[0, 0, 1, 1, 1, 1], weights=[1, 2, 3, 1, 1, 1]
    )
    monkeypatch.setattr(np, "isfinite", scan)
    names = ("weights", "weight_kind", "prevalences", "classes", "ids", "labels", "feature_names")
    parts = {name: getattr(whole, name) for name in names}
    same = Bags.trusted(whole.rows, whole.index, whole.offsets, **parts)
    assert same.rows is whole.rows
    assert vars(same).keys() == vars(whole).keys()
    assert same.fingerprint() == whole.fingerprint()
    assert Bags.trusted(whole.rows, whole.index, whole.offsets).ids.tolist() == [0, 1]


def test_numbers_of_rows_are_shown_as_numbers():
    assert "sizes=1245000," in repr(Bags(np.zeros((1_245_000, 1), np.float32)))
