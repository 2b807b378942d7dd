import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize, stats

from histnetq.simplex import apportion, check_prevalences, count_labels, draw_uniform, first_off_simplex, project
from tests.conftest import exactly

law = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 2**32 - 1)
points = hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(2, 6)), elements=st.floats(-5, 5))
count_tables = hnp.arrays(
    np.int64, st.tuples(st.integers(1, 4), st.integers(2, 6)), elements=st.integers(0, 30)
).filter(lambda counts: counts.sum(1).all())


@law
@given(seed=seeds, n_bags=st.integers(0, 5), n_classes=st.integers(1, 8))
def test_uniform_draws_lie_on_the_simplex(seed, n_bags, n_classes):
    p = draw_uniform(n_bags, n_classes, np.random.default_rng(seed))
    assert p.shape == (n_bags, n_classes)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_uniform_draws_have_the_marginals_and_covariance_of_dirichlet_one(n_classes):
    p = draw_uniform(20_000, n_classes, np.random.default_rng(1))
    for j in range(n_classes):
        assert stats.kstest(p[:, j], stats.beta(1, n_classes - 1).cdf).pvalue > 1e-3
    expected = (np.eye(n_classes) - 1 / n_classes) / (n_classes * (n_classes + 1))
    np.testing.assert_allclose(p.mean(0), 1 / n_classes, atol=0.01)
    np.testing.assert_allclose(np.cov(p.T), expected, atol=0.003)


@law
@given(seed=seeds, n_classes=st.integers(1, 8), sizes=st.lists(st.integers(1, 10_000), min_size=1, max_size=5))
def test_apportioned_counts_sum_to_the_size_and_are_within_one_of_exact(seed, n_classes, sizes):
    sizes = np.array(sizes)
    p = draw_uniform(len(sizes), n_classes, np.random.default_rng(seed))
    counts = apportion(p, sizes)
    assert counts.dtype == np.int64
    assert (counts >= 0).all()
    np.testing.assert_array_equal(counts.sum(1), sizes)
    assert (np.abs(counts - p * sizes[:, None]) < 1 + 1e-9).all()


@law
@given(counts=count_tables)
def test_apportion_returns_whole_counts_unchanged(counts):
    sizes = counts.sum(1)
    np.testing.assert_array_equal(apportion(counts / sizes[:, None], sizes), counts)


@pytest.mark.parametrize(
    ("prevalences", "size", "counts"),
    [
        ([0.5, 0.3, 0.2], 4, [2, 1, 1]),
        ([0.4, 0.35, 0.25], 10, [4, 4, 2]),
        ([0.6, 0.28, 0.12], 3, [2, 1, 0]),
        ([0.25, 0.25, 0.25, 0.25], 2, [1, 1, 0, 0]),
        ([0.29, 0.71], 100, [29, 71]),
    ],
)
def test_apportion_gives_the_rest_to_the_largest_remainders(prevalences, size, counts):
    assert apportion(np.array([prevalences]), np.array([size])).tolist() == [counts]


@law
@given(x=points)
def test_projection_lies_on_the_simplex_and_is_idempotent(x):
    p = project(x)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(project(p), p, atol=1e-12)


@law
@given(counts=count_tables)
def test_projection_fixes_points_of_the_simplex(counts):
    p = counts / counts.sum(1, keepdims=True)
    np.testing.assert_allclose(project(p), p, atol=1e-12)


@law
@given(x=points)
def test_projection_is_the_nearest_point(x):
    # p is nearest to x in a convex set iff no direction from p into the set makes an acute angle with x − p;
    # for a simplex the directions to its corners are enough.
    p = project(x)
    towards_corners = (x - p) - ((x - p) * p).sum(1, keepdims=True)
    assert towards_corners.max() <= 1e-9


@pytest.mark.parametrize("x", [[0.2, 1.3, -0.4], [-1.0, -2.0, -3.0], [0.9, 0.8, 0.7], [5.0, 0.0, 5.0]])
def test_projection_agrees_with_a_general_solver(x):
    found = optimize.minimize(
        lambda p: ((p - x) ** 2).sum(),
        np.full(3, 1 / 3),
        method="SLSQP",
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(project(x)[0], found.x, atol=1e-6)


def test_projection_by_hand():
    np.testing.assert_allclose(
        project([[1.2, -0.1, 0.0], [0.4, 0.4, 0.4], [0.8, 0.6, -1.0], [1e17, 0.0, 0.0]]),
        [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0.6, 0.4, 0], [1, 0, 0]],
        atol=1e-15,
    )


@law
@given(data=st.data(), weighted=st.booleans())
def test_label_counts_equal_a_loop(data, weighted):
    n_bags, n_classes = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    entry = st.tuples(st.integers(0, n_bags - 1), st.integers(0, n_classes - 1), st.integers(1, 9))
    entries = data.draw(st.lists(entry, max_size=20))
    expected = np.zeros((n_bags, n_classes))
    for bag, label, weight in entries:
        expected[bag, label] += weight if weighted else 1
    bag, label, weight = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    np.testing.assert_array_equal(count_labels(label, bag, n_bags, n_classes, weight if weighted else None), expected)


@law
@given(counts=count_tables)
def test_checked_counts_are_rescaled_and_proportions_are_kept(counts):
    p = check_prevalences(counts, len(counts), normalize=True)
    expected = [[c / sum(row) for c in row] for row in counts.tolist()]
    np.testing.assert_allclose(p, expected, rtol=1e-12)
    np.testing.assert_allclose(check_prevalences(p, len(p), p.shape[1]), p, rtol=1e-15)


def test_checked_prevalences_are_a_new_float_array_that_sums_to_one():
    given_ = np.array([[0.5004, 0.5], [1, 0]])
    p = check_prevalences(given_, 2)
    assert p.dtype == np.float64
    assert not np.shares_memory(p, given_)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-15)
    assert given_[0, 0] == 0.5004


OFF_THE_SIMPLEX = "expected numbers in [0, 1] that sum to 1"


@pytest.mark.parametrize(
    ("prevalences", "options", "message"),
    [
        (
            [0.5, 0.5],
            {},
            "expected shape (n_bags, n_classes), got (2,); give one row per bag and one column per class.",
        ),
        ([[0.5, 0.5]], {}, "expected one row for each of the 2 bags, got 1 rows."),
        (
            [[0.5, 0.5], [1, 0]],
            {"n_classes": 3},
            "expected 3 columns, one per class, got 2; check classes= or the table's columns.",
        ),
        ([[1.0], [1.0]], {}, "expected at least 2 classes, got 1; add the columns of the others."),
        ([[], []], {}, "expected at least 2 classes, got 0; add the columns of the others."),
        (
            [[0.5, 0.5], [np.nan, 1]],
            {},
            f"row 1 contains NaN or infinity: [nan  1.], {OFF_THE_SIMPLEX}; drop or complete that bag.",
        ),
        (
            [[np.inf, 0.5], [0, 1]],
            {"normalize": True},
            f"row 0 contains NaN or infinity: [inf 0.5], {OFF_THE_SIMPLEX}; drop or complete that bag.",
        ),
        (
            [[0.5, 0.5], [-0.25, 1.25]],
            {},
            f"row 1 has a negative entry: [-0.25  1.25], {OFF_THE_SIMPLEX}; proportions and counts start at 0.",
        ),
        (
            [[3, 1], [0, 0]],
            {"normalize": True},
            f"row 1 sums to 0: [0. 0.], {OFF_THE_SIMPLEX}; drop the bag or give it counts.",
        ),
        (
            [[0.5, 0.5], [0.5, 0.33]],
            {},
            "row 1 sums to 0.83, expected 1 ± 0.001; pass normalize=True to rescale counts or percentages.",
        ),
        (
            [[0.5, 0.502], [1, 0]],
            {},
            "row 0 sums to 1.002, expected 1 ± 0.001; pass normalize=True to rescale counts or percentages.",
        ),
        (
            [[0.5, 0.5], [0.5, 0.51]],
            {"tolerance": 1e-6},
            "row 1 sums to 1.01, expected 1 ± 1e-06; pass normalize=True to rescale counts or percentages.",
        ),
    ],
)
def test_bad_prevalences_are_refused(prevalences, options, message):
    with pytest.raises(ValueError, match=exactly(f"prevalences: {message}")):
        check_prevalences(prevalences, 2, **options)


@pytest.mark.parametrize(
    ("prevalences", "kind"), [("half", "str"), ([[0.5, 0.5], [1.0]], "list"), ([["a", "b"]] * 2, "list")]
)
def test_prevalences_that_are_no_table_of_numbers_are_refused(prevalences, kind):
    message = (
        "prevalences: expected a table of numbers, one row per bag and one column per class; "
        f"got {kind} that does not convert to one."
    )
    with pytest.raises(TypeError, match=exactly(message)):
        check_prevalences(prevalences, 2)


@pytest.mark.parametrize(
    ("points", "options", "expected"),
    [
        ([[0.5, 0.5], [1, 0]], {}, None),
        ([[0.5, 0.5], [0.5, 0.4]], {}, (1, "sum", 0.9)),
        ([[0.5, 0.5], [0.5, 0.4]], {"tolerance": 0.2}, None),
        ([[2, -1]], {}, (0, "negative", 1)),
        ([[1, -1e-9]], {"slack": 1e-8}, None),
        ([[1, -1e-9]], {"slack": 1e-10}, (0, "negative", 1 - 1e-9)),
        ([[1, 3], [0, 0]], {"normalize": True}, (1, "sum", 0)),
        ([[1, 3], [4, -1]], {"normalize": True}, (1, "negative", 3)),
        ([[1, 0], [np.nan, -1], [3, 3]], {}, (1, "not finite", np.nan)),
        ([[np.inf, -np.inf]], {"normalize": True}, (0, "not finite", np.nan)),
        ([[1e308, 1e308]], {"normalize": True}, (0, "not finite", np.inf)),
        (np.zeros((0, 3)), {}, None),
    ],
)
def test_the_first_row_off_the_simplex(points, options, expected):
    found = first_off_simplex(np.array(points, dtype=float), **options)
    if expected is None:
        assert found is None
    else:
        assert found[:2] == expected[:2]
        np.testing.assert_allclose(found.total, expected[2])


@law
@given(x=points)
def test_projections_are_never_off_the_simplex(x):
    assert first_off_simplex(project(x), tolerance=1e-12) is None
    assert first_off_simplex(project(x) + 0.01) == (0, "sum", pytest.approx(1 + 0.01 * x.shape[1]))
