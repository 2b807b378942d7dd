import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

import histnetq as hq
from histnetq.bags import protocols
from histnetq.bags.bags import Bags
from histnetq.bags.protocols import APP, NPP, Combined, CovariateShift, Dirichlet, Mixer, SamplingProtocol
from tests.conftest import QUICK, exactly

law = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**32 - 1)
ROW_PROTOCOLS = [
    APP(),
    APP(7),
    APP((3, 9)),
    Dirichlet(0.05, 7),
    Dirichlet(3.0, (1, 4)),
    NPP(7),
    NPP((2, 5)),
    CovariateShift(7),
    CovariateShift((1, 9), strength=3.0),
]
every_row_protocol = pytest.mark.parametrize("protocol", ROW_PROTOCOLS, ids=repr)
COMBINED = Combined(APP(6), Mixer(0.5), row_proportion=0.5)


def labelled(n_rows=40, n_bags=4, seed=0):
    """Labelled rows in several bags; the last quarter of the pool is in no bag, some rows have no label."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, n_rows, p=[0.1, 0.2, 0.3, 0.4]) - 1
    labels[:3] = [0, 1, 2]
    used = rng.permutation(n_rows)[: 3 * n_rows // 4]
    index = np.concatenate([[0, 1, 2], used])
    offsets = np.linspace(0, len(index), n_bags + 1).astype(int)
    return Bags(rng.normal(size=(n_rows, 3)), index, offsets, labels=labels, classes=["a", "b", "c"])


def bags_of(sizes, weights=None, weight_kind="count", seed=0):
    """Bags of these sizes without a common row, on a shuffled pool, with random proportions."""
    rng = np.random.default_rng(seed)
    n_rows = sum(sizes)
    p = rng.dirichlet(np.ones(3), size=len(sizes))
    index, offsets = rng.permutation(n_rows), np.cumsum([0, *sizes])
    options = {"weights": weights, "weight_kind": weight_kind, "prevalences": p, "classes": ["a", "b", "c"]}
    return Bags(rng.normal(size=(n_rows, 2)), index, offsets, **options)


def entries(bags, i):
    """Row numbers and weights of bag i."""
    span = slice(bags.offsets[i], bags.offsets[i + 1])
    return bags.index[span], bags.entry_weights()[span]


def same(a, b):
    parts = ("index", "offsets", "weights", "prevalences", "ids")
    return all(np.array_equal(getattr(a, part), getattr(b, part)) for part in parts)


def source_for(protocol):
    rows = labelled()
    known = rows.with_prevalences(np.random.default_rng(0).dirichlet(np.ones(3), size=4))
    return {"rows": rows, "bags": bags_of([5, 4, 1, 8]), "both": (rows, known)}[protocol.draws_from]


@pytest.mark.parametrize("protocol", [*ROW_PROTOCOLS, Mixer(), Mixer(0), COMBINED], ids=repr)
def test_a_seed_determines_the_bags(protocol):
    source = source_for(protocol)
    drawn = protocol.draw(source, 20, random_state=3)
    assert len(drawn) == 20
    assert drawn.ids.tolist() == list(range(20))
    assert same(drawn, protocol.draw(source, 20, random_state=3))
    assert same(drawn, protocol.draw(source, 20, random_state=np.random.default_rng(3)))
    assert not same(drawn, protocol.draw(source, 20, random_state=4))
    assert not same(drawn, protocol.draw(source, 20))


@pytest.mark.parametrize("protocol", [*ROW_PROTOCOLS, Mixer(), Mixer(1), COMBINED], ids=repr)
def test_the_pool_is_not_copied_and_the_global_generator_is_not_used(protocol):
    source = source_for(protocol)
    first = source[0] if isinstance(source, tuple) else source
    np.random.seed(0)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    drawn = protocol.draw(source, 5, random_state=0)
    assert drawn.rows is first.rows
    assert drawn.labels is first.labels
    assert drawn.classes.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@every_row_protocol
@law
@given(seed=seeds, n_bags=st.integers(1, 6))
def test_drawn_labels_equal_the_declared_prevalences(protocol, seed, n_bags):
    source = labelled(seed=seed % 50)
    drawn = protocol.draw(source, n_bags, random_state=seed)
    assert drawn.weights is None
    assert drawn.prevalences.shape == (n_bags, 3)
    for i in range(n_bags):
        labels = source.labels[entries(drawn, i)[0]].tolist()
        expected = [labels.count(code) / len(labels) for code in range(3)]
        np.testing.assert_allclose(drawn.prevalences[i], expected, rtol=1e-12)


@every_row_protocol
@law
@given(seed=seeds, chosen=st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_only_labelled_rows_of_the_chosen_bags_are_drawn(protocol, seed, chosen):
    source = labelled(seed=seed % 50)
    part = source[chosen]
    allowed = {row for row in part.index if source.labels[row] >= 0}
    drawn = protocol.draw(part, 5, random_state=seed)
    assert set(drawn.index) <= allowed
    absent = [code for code in range(3) if code not in source.labels[sorted(allowed)]]
    assert (drawn.prevalences[:, absent] == 0).all()
    np.testing.assert_allclose(drawn.prevalences.sum(1), 1, rtol=1e-12)


@pytest.mark.parametrize("protocol", [APP, Dirichlet, NPP, CovariateShift])
def test_bag_sizes(protocol):
    source = labelled(n_bags=4)
    assert set(protocol(bag_size=7).draw(source, 20, 0).sizes) == {7}
    assert set(protocol(bag_size=(3, 6)).draw(source, 200, 0).sizes) == {3, 4, 5, 6}
    assert set(protocol().draw(source, 200, 0).sizes) == set(source.sizes)
    assert set(protocol().draw(source[0], 3, 0).sizes) == {250}


def test_sizes_of_survey_weighted_bags_are_rounded_up_to_one():
    source = Bags(np.zeros((4, 1)), offsets=[0, 2, 4], labels=[0, 1, 0, 1], weights=[1, 3, 1, 1], weight_kind="survey")
    assert set(APP().draw(source, 50, 0).sizes) == {2}
    assert source.sizes.tolist() == [1.6, 2]


def test_artificial_prevalences_are_uniform_on_the_simplex():
    source = Bags.from_labels(np.zeros((10, 1)), [0] * 8 + [1] * 1 + [2] * 1)
    p = APP(3000).draw(source, 1500, random_state=0).prevalences
    for j in range(3):
        assert stats.kstest(p[:, j], stats.beta(1, 2).cdf).pvalue > 1e-3
    np.testing.assert_allclose(np.cov(p.T), (np.eye(3) - 1 / 3) / 12, atol=0.005)


def test_prevalences_of_two_classes_reach_both_ends():
    p = APP(10).draw(Bags.from_labels(np.zeros((2, 1)), [0, 1]), 2000, random_state=0).prevalences[:, 0]
    assert set(np.round(p * 10)) == set(range(11))


def test_a_class_of_one_row_is_drawn_as_often_as_needed():
    source = Bags.from_labels(np.zeros((100, 1)), [0] * 99 + [1])
    drawn = APP(50).draw(source, 30, random_state=0)
    assert drawn.prevalences[:, 1].max() > 0.9
    assert (drawn.index == 99).sum() == round(drawn.prevalences[:, 1].sum() * 50)


@pytest.mark.parametrize("protocol", [APP(500), NPP(500), CovariateShift(500, strength=0)])
def test_rows_of_a_class_are_equally_likely(protocol):
    source = Bags.from_labels(np.arange(10.0)[:, None], [0] * 4 + [1] * 6)
    counts = np.bincount(protocol.draw(source, 100, random_state=0).index, minlength=10)
    assert stats.chisquare(counts[:4]).pvalue > 1e-3
    assert stats.chisquare(counts[4:]).pvalue > 1e-3


def test_rows_in_several_bags_are_as_likely_as_others():
    source = Bags(np.zeros((4, 1)), [0, 0, 0, 1, 0, 2, 3], [0, 4, 7], labels=[0, 0, 1, 1])
    counts = np.bincount(NPP(1000).draw(source, 20, random_state=0).index)
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(
    ("protocol", "alpha"),
    [
        (Dirichlet(bag_size=2000), 1.0),
        (Dirichlet(4.0, 2000), 4.0),
        (Dirichlet([0.5], 2000), 0.5),
        (Dirichlet((1.0, 2.0, 5.0), 2000), (1.0, 2.0, 5.0)),
    ],
)
def test_dirichlet_prevalences_have_its_mean_and_variance(protocol, alpha):
    source = Bags.from_labels(np.zeros((3, 1)), [0, 1, 2])
    p = protocol.draw(source, 3000, random_state=0).prevalences
    a = np.broadcast_to(alpha, 3)
    np.testing.assert_allclose(p.mean(0), a / a.sum(), atol=0.015)
    np.testing.assert_allclose(p.var(0), stats.dirichlet(a).var(), atol=0.006)


def test_alpha_belongs_to_the_classes_that_occur():
    source = Bags.from_labels(np.zeros((4, 1)), [0, 0, 2, 2], classes=[0, 1, 2])
    p = Dirichlet((1.0, 3.0), 1000).draw(source, 1000, random_state=0).prevalences
    np.testing.assert_allclose(p.mean(0), [0.25, 0, 0.75], atol=0.02)


@pytest.mark.parametrize("protocol", [NPP(400), CovariateShift(400, strength=0)])
def test_natural_prevalences_vary_by_chance_only(protocol):
    source = Bags.from_labels(np.random.default_rng(0).normal(size=(1000, 2)), [0] * 700 + [1] * 300)
    p = protocol.draw(source, 500, random_state=0).prevalences[:, 1]
    np.testing.assert_allclose(p.mean(), 0.3, atol=0.004)
    np.testing.assert_allclose(p.std(), np.sqrt(0.3 * 0.7 / 400), rtol=0.12)


@pytest.mark.parametrize("chunk", [1 << 24, 5000, 1])
@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_covariate_shift_moves_the_mean_by_its_strength_in_standard_deviations(strength, chunk, monkeypatch):
    monkeypatch.setattr(protocols, "_TILT_CHUNK", chunk)
    x = np.random.default_rng(0).normal(5, 3, size=(2000, 1))
    source = Bags.from_labels(x, (x[:, 0] > 5).astype(int))
    drawn = CovariateShift((400, 800), strength=strength).draw(source, 40, random_state=0)
    z = np.array([(bag.gather().mean() - x.mean()) / x.std() for bag in drawn])
    np.testing.assert_allclose(np.abs(z), strength, atol=0.3)
    assert {-1, 1} == set(np.sign(z))
    np.testing.assert_array_equal(np.sign(drawn.prevalences[:, 1] - 0.5), np.sign(z))


def test_covariate_shift_follows_no_feature_more_than_another():
    x = np.random.default_rng(0).normal(size=(2000, 4)) * [1, 10, 100, 0]
    source = Bags.from_labels(x, (x[:, 0] > 0).astype(int))
    drawn = CovariateShift(500).draw(source, 200, random_state=0)
    means = np.array([bag.gather().mean(0) for bag in drawn]) / [1, 10, 100, 1]
    np.testing.assert_allclose((means**2).mean(0), [1 / 3, 1 / 3, 1 / 3, 0], atol=0.08)
    np.testing.assert_allclose(np.linalg.norm(means, axis=1).mean(), 1, atol=0.1)


def test_a_very_strong_shift_draws_the_extreme_rows():
    source = Bags.from_labels(np.arange(10.0)[:, None], np.arange(10) % 2)
    drawn = CovariateShift(5, strength=2000).draw(source, 30, random_state=0)
    assert {frozenset(bag.index) for bag in drawn} == {frozenset({0}), frozenset({9})}


def test_covariate_shift_is_the_same_on_dense_and_sparse_rows_and_images():
    x = np.random.default_rng(0).normal(size=(50, 4))
    y = np.arange(50) % 2
    dense, thin, images = (
        CovariateShift(20).draw(Bags.from_labels(rows, y), 10, random_state=0)
        for rows in (x, sparse.csr_array(x), x.reshape(50, 2, 2))
    )
    assert same(dense, thin)
    assert same(dense, images)


def halves(source, drawn, i):
    """The source bags of drawn bag i in order of appearance, with the rows and weights taken from each."""
    owner = np.empty(source.rows.shape[0], int)
    owner[source.index] = source.bag_of_entry
    rows, weights = entries(drawn, i)
    found = list(dict.fromkeys(owner[rows].tolist()))
    return [(bag, rows[owner[rows] == bag], weights[owner[rows] == bag]) for bag in found]


ragged = st.lists(st.integers(1, 9), min_size=2, max_size=5)


@law
@given(sizes=ragged, seed=seeds)
def test_a_mixture_is_two_exact_halves_labelled_by_their_sizes(sizes, seed):
    source = bags_of(sizes, seed=seed % 50)
    mixed = Mixer(real_proportion=0).draw(source, 8, random_state=seed)
    assert mixed.weights is None
    for i in range(8):
        parts = halves(source, mixed, i)
        lengths = [len(rows) for _, rows, _ in parts]
        expected = [(sizes[parts[0][0]] + 1) // 2] + [sizes[bag] // 2 for bag, _, _ in parts[1:]]
        assert lengths == expected
        assert len(parts) == 2 or 1 in sizes  # half a bag of one, rounded down, is nothing
        assert all(len(set(rows)) == len(rows) for _, rows, _ in parts)
        label = sum(n * source.prevalences[bag] for n, (bag, _, _) in zip(lengths, parts, strict=True)) / sum(lengths)
        np.testing.assert_allclose(mixed.prevalences[i], label, rtol=1e-12)


@law
@given(sizes=ragged, seed=seeds, data=st.data())
def test_count_weights_are_halved_as_copies_would_be(sizes, seed, data):
    weights = data.draw(st.lists(st.integers(1, 6), min_size=sum(sizes), max_size=sum(sizes)))
    source = bags_of(sizes, weights, seed=seed % 50)
    count_of = dict(zip(source.index.tolist(), weights, strict=True))
    mixed = Mixer(real_proportion=0).draw(source, 8, random_state=seed)
    assert mixed.weight_kind == "count"
    assert (mixed.weights > 0).all()
    for i in range(8):
        parts = halves(source, mixed, i)
        taken = [counts.sum() for _, _, counts in parts]
        assert taken == [(source.sizes[bag] + (j == 0)) // 2 for j, (bag, _, _) in enumerate(parts)]
        assert len(parts) == 2 or 1 in source.sizes
        for _, rows, counts in parts:
            assert len(set(rows)) == len(rows)
            assert all(n <= count_of[row] for row, n in zip(rows.tolist(), counts, strict=True))
        label = sum(n * source.prevalences[bag] for n, (bag, _, _) in zip(taken, parts, strict=True)) / sum(taken)
        np.testing.assert_allclose(mixed.prevalences[i], label, rtol=1e-12)
    np.testing.assert_array_equal(mixed.sizes, [mixed.weights[mixed.bag_of_entry == i].sum() for i in range(8)])


@law
@given(sizes=ragged, seed=seeds, data=st.data())
def test_survey_weights_are_kept_and_halves_count_by_them(sizes, seed, data):
    weights = data.draw(st.lists(st.floats(0.1, 9), min_size=sum(sizes), max_size=sum(sizes)))
    source = bags_of(sizes, weights, "survey", seed=seed % 50)
    weight_of = dict(zip(source.index.tolist(), weights, strict=True))
    mixed = Mixer(real_proportion=0).draw(source, 8, random_state=seed)
    assert mixed.weight_kind == "survey"
    for i in range(8):
        parts = halves(source, mixed, i)
        assert [len(rows) for _, rows, _ in parts] == [(sizes[b] + (j == 0)) // 2 for j, (b, _, _) in enumerate(parts)]
        assert all(w == weight_of[row] for _, rows, mass in parts for row, w in zip(rows.tolist(), mass, strict=True))
        total = sum(mass.sum() for _, _, mass in parts)
        label = sum(mass.sum() * source.prevalences[bag] for bag, _, mass in parts) / total
        np.testing.assert_allclose(mixed.prevalences[i], label, rtol=1e-12)


def test_every_row_is_in_half_of_the_halves():
    source = bags_of([6, 4])
    mixed = Mixer(real_proportion=0).draw(source, 4000, random_state=0)
    np.testing.assert_allclose(np.bincount(mixed.index) / 4000, 0.5, atol=0.03)
    together = np.mean([np.isin(source.index[:2], entries(mixed, i)[0]).all() for i in range(4000)])
    np.testing.assert_allclose(together, 0.2, atol=0.03)  # 3/6 · 2/5


def test_halves_of_counts_follow_the_hypergeometric_distribution():
    counts = np.array([5, 1, 10, 4, 8])
    source = bags_of([5, 2], [*counts, 3, 3])
    mixed = Mixer(real_proportion=0).draw(source, 6000, random_state=0)
    taken = np.zeros((6000, 7))
    np.add.at(taken, (mixed.bag_of_entry, mixed.index), mixed.weights)
    exact = stats.multivariate_hypergeom(counts, counts.sum() // 2)
    np.testing.assert_allclose(taken[:, source.index[:5]].mean(0), exact.mean(), atol=0.06)
    np.testing.assert_allclose(np.cov(taken[:, source.index[:5]].T), exact.cov(), atol=0.1)


def test_mixtures_are_of_two_different_bags_all_pairs_alike():
    source = bags_of([2, 2, 2, 2])
    mixed = Mixer(real_proportion=0).draw(source, 3000, random_state=0)
    pairs = [tuple(bag for bag, _, _ in halves(source, mixed, i)) for i in range(3000)]
    ordered = {(a, b) for a in range(4) for b in range(4) if a != b}
    assert set(pairs) == ordered
    assert stats.chisquare([pairs.count(p) for p in sorted(ordered)]).pvalue > 1e-3


@pytest.mark.parametrize("weights", [None, [2] * 15])
@pytest.mark.parametrize(
    ("proportion", "n_bags", "n_real"), [(0, 7, 0), (0.1, 30, 3), (0.5, 9, 4), (0.9, 10, 9), (1, 7, 7)]
)
def test_the_real_bags_are_unchanged_and_as_many_as_asked(proportion, n_bags, n_real, weights):
    source = bags_of([5, 4, 6], weights)
    drawn = Mixer(proportion).draw(source, n_bags, random_state=0)
    assert len(drawn) == n_bags
    real = []
    for i in range(n_bags):
        rows, mass = entries(drawn, i)
        equal = [
            j
            for j in range(3)
            if np.array_equal(rows, entries(source, j)[0])
            and np.array_equal(mass, entries(source, j)[1])
            and np.array_equal(drawn.prevalences[i], source.prevalences[j])
        ]
        assert len(equal) == (i < n_real)
        real += equal
    counts = [real.count(j) for j in range(3)]
    assert max(counts) - min(counts) <= 1  # none a second time before all were once


def test_one_bag_is_enough_when_nothing_is_mixed():
    source = bags_of([4])
    drawn = Mixer(1).draw(source, 3, random_state=0)
    assert drawn.index.tolist() == source.index.tolist() * 3


@pytest.mark.parametrize(
    ("proportion", "n_bags", "n_rows"), [(0.5, 10, 5), (0.3, 10, 3), (0.25, 10, 2), (1, 4, 4), (0, 4, 0)]
)
@pytest.mark.parametrize("kind", ["none", "count", "survey"])
def test_combined_draws_the_right_number_of_each_on_one_pool(proportion, n_bags, n_rows, kind):
    rows = Bags.from_labels(np.arange(6.0)[:, None], list("aabbcc"))
    weights = None if kind == "none" else np.arange(1, 13)
    counted = Bags(
        np.arange(12.0)[:, None] + 100,
        offsets=[0, 4, 8, 12],
        weights=weights,
        weight_kind="survey" if kind == "survey" else "count",
        prevalences=np.eye(3)[:, ::-1],
        classes=["c", "b", "a"],
    )
    joined = Bags.concat([rows, counted])
    source = joined[:1], joined[1:]
    drawn = Combined(APP(5), Mixer(0), row_proportion=proportion).draw(source, n_bags, random_state=0)
    assert drawn.rows is joined.rows
    assert drawn.labels is joined.labels
    assert drawn.ids.tolist() == list(range(n_bags))
    from_rows = [(bag.index < 6).all() for bag in drawn]
    from_bags = [(bag.index >= 6).all() for bag in drawn]
    assert from_rows == [True] * n_rows + [False] * (n_bags - n_rows)
    assert from_bags == [False] * n_rows + [True] * (n_bags - n_rows)
    assert set(drawn[:n_rows].sizes) <= {5}
    recounted = [np.bincount(joined.labels[bag.index], minlength=3) / 5 for bag in drawn[:n_rows]]
    np.testing.assert_allclose(drawn.prevalences[:n_rows], np.reshape(recounted, (n_rows, 3)))
    for i in range(n_rows, n_bags):
        parts = halves(joined[1:], drawn, i)
        mass = [w.sum() for _, _, w in parts]
        expected = sum(m * joined.prevalences[bag + 1] for m, (bag, _, _) in zip(mass, parts, strict=True)) / sum(mass)
        np.testing.assert_allclose(drawn.prevalences[i], expected)


def test_protocols_are_values():
    assert APP(5) == APP(5) != APP(6)
    assert Dirichlet(bag_size=5) != APP(5)
    assert repr(Mixer(0.1)) == "Mixer(real_proportion=0.1)"
    assert [p.draws_from for p in (APP(), NPP(), Mixer(), Combined())] == ["rows", "rows", "bags", "both"]


@pytest.mark.parametrize("protocol", [APP(), Dirichlet(), NPP(), CovariateShift(), Mixer(), Combined()], ids=repr)
def test_protocols_cannot_be_changed(protocol):
    for name in vars(protocol):
        with pytest.raises(AttributeError):
            setattr(protocol, name, 0.5)


def test_a_protocol_must_say_how_to_draw():
    with pytest.raises(NotImplementedError):
        SamplingProtocol().draw(labelled(), 1)


@pytest.mark.parametrize("bag_size", [0, -3, (5, 2), (0, 4), 10.5, (2.0, 3.0), (1, 2, 3), (), "ten", True], ids=repr)
@pytest.mark.parametrize("protocol", [APP, Dirichlet, NPP, CovariateShift])
def test_bad_bag_sizes_are_refused(protocol, bag_size):
    message = f"bag_size: expected a positive whole number or a range (low, high), got {bag_size!r}."
    with pytest.raises(ValueError, match=exactly(message)):
        protocol(bag_size=bag_size).draw(labelled(), 2, random_state=0)


@pytest.mark.parametrize("n_bags", [0, -1])
@pytest.mark.parametrize("protocol", [*ROW_PROTOCOLS, Mixer(), COMBINED], ids=repr)
def test_no_bags_are_refused(protocol, n_bags):
    with pytest.raises(ValueError, match=exactly(f"n_bags: expected at least 1, got {n_bags}.")):
        protocol.draw(source_for(protocol), n_bags, random_state=0)


@pytest.mark.parametrize("alpha", [0, -1.0, float("nan"), float("inf"), (1.0, 2.0), (1, 1, 0), ((1, 1, 1),)], ids=repr)
def test_bad_concentrations_are_refused(alpha):
    number = " (3)" if alpha == (1.0, 2.0) else ""
    message = f"alpha: expected a positive number or one per class{number}, got {alpha!r}."
    with pytest.raises(ValueError, match=exactly(message)):
        Dirichlet(alpha, 5).draw(labelled(), 2, random_state=0)


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_bad_proportions_are_refused(value):
    with pytest.raises(ValueError, match=exactly(f"real_proportion: expected a number from 0 to 1, got {value!r}.")):
        Mixer(value)
    with pytest.raises(ValueError, match=exactly(f"row_proportion: expected a number from 0 to 1, got {value!r}.")):
        Combined(row_proportion=value)


@pytest.mark.parametrize("protocol", [APP(5), Dirichlet(bag_size=5), NPP(5), CovariateShift(5)], ids=repr)
def test_sources_without_labels_are_refused(protocol):
    message = "source: expected labelled rows, got bags without labels; make them by Bags.from_labels."
    with pytest.raises(ValueError, match=exactly(message)):
        protocol.draw(bags_of([3, 4]), 2)
    unknown = Bags(np.zeros((2, 1)), labels=[-1, -1], classes=["a", "b"])
    message = "source: none of its rows has a label, expected at least one of each class."
    with pytest.raises(ValueError, match=exactly(message)):
        protocol.draw(unknown, 2)


def test_mixing_needs_two_bags_with_prevalences():
    message = "Mixer: expected bags with prevalences, got none; pass prevalences= when making the bags."
    with pytest.raises(ValueError, match=exactly(message)):
        Mixer().draw(Bags(np.zeros((4, 1)), offsets=[0, 2, 4]), 2)
    message = "Mixer: expected at least 2 bags to mix, got 1; add bags or use sampler=None."
    with pytest.raises(ValueError, match=exactly(message)):
        Mixer(0.5).draw(bags_of([4]), 4)


@pytest.mark.parametrize("protocol", [APP(50), NPP(50), Dirichlet(2.0, 50), CovariateShift(50, strength=0.0)])
def test_a_weight_of_k_draws_like_k_copies(protocol):
    X = np.arange(6.0).reshape(-1, 1)
    weighted = Bags.from_labels(X, list("aaabbb"), weights=[1, 3, 0, 1, 2, 5])
    drawn = protocol.draw(weighted, 400, random_state=0)
    share = np.bincount(drawn.index, minlength=6).astype(float)
    assert share[2] == 0
    np.testing.assert_allclose(share[:3] / share[:3].sum(), [0.25, 0.75, 0], atol=0.02)
    np.testing.assert_allclose(share[3:] / share[3:].sum(), np.array([1, 2, 5]) / 8, atol=0.02)
    np.testing.assert_allclose(drawn.label_prevalences(), drawn.prevalences)
    assert drawn.weights is None


@pytest.mark.parametrize(
    ("protocol", "source", "message"),
    [
        (APP(5), np.zeros((3, 2)), "source: expected Bags, got ndarray; make them by Bags.from_labels"),
        (Mixer(), [1, 2], "source: expected Bags, got list"),
        (
            Combined(),
            Bags(np.zeros((3, 2))),
            r"source: expected the pair \(labelled rows, bags\) on one pool, got Bags",
        ),
    ],
)
def test_other_sources_are_refused(protocol, source, message):
    with pytest.raises(TypeError, match=message):
        protocol.draw(source, 3)


def test_strength_must_be_a_number():
    with pytest.raises(
        ValueError, match=exactly("strength: expected a finite number from -1,000,000 to 1,000,000, got nan.")
    ):
        CovariateShift(strength=float("nan"))


def test_weights_of_one_are_no_weights():
    index, offsets = [0, 0, 0, 1, 0, 2, 3], [0, 4, 7]
    labels = np.array([0, 0, 1, 1])
    plain = Bags(np.zeros((4, 1)), index, offsets, labels=labels)
    ones = Bags(np.zeros((4, 1)), index, offsets, labels=labels, weights=np.ones(7))
    shares = [np.bincount(NPP(100).draw(b, 200, random_state=0).index) / 20_000 for b in (plain, ones)]
    np.testing.assert_allclose(shares[0], shares[1], atol=0.02)


def test_mixing_bags_named_by_dates():
    ids = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]")
    source = Bags(np.zeros((8, 1)), offsets=[0, 4, 8], prevalences=[[1, 0], [0, 1]], ids=ids)
    assert Mixer().draw(source, 4, random_state=0).ids.tolist() == [0, 1, 2, 3]


def test_too_many_copies_to_mix():
    source = Bags(np.zeros((2, 1)), offsets=[0, 1, 2], prevalences=[[1, 0], [0, 1]], weights=[10**10, 1])
    with pytest.raises(
        ValueError, match="Mixer: expected counts that sum to less than 10⁹ in each bag, got 10000000000; divide"
    ):
        Mixer(0).draw(source, 4, random_state=0)


def test_the_first_parameter_of_dirichlet_is_alpha():
    protocol = Dirichlet(2)
    assert (protocol.alpha, protocol.bag_size) == (2, None)
    assert Dirichlet(2, 7) == Dirichlet(alpha=2, bag_size=7) != Dirichlet(7, 2)
    assert Dirichlet(1e6, 10).draw(labelled(), 2, random_state=0).prevalences.std() < 0.06


def test_a_stored_dirichlet_keeps_its_fields_by_name(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    made = hq.DeepSets("mean", encoder=(2,), head=(2,), training=QUICK, sampler=Dirichlet(2.0, 10), random_state=0)
    made.fit(X, y).save(tmp_path / "model")
    assert hq.load(tmp_path / "model").sampler == Dirichlet(alpha=2.0, bag_size=10)
    stored = tmp_path / "model" / "config.json"
    named = json.loads(stored.read_text())
    fields = next(v for v in _values(named) if isinstance(v, dict) and v.get("type") == "Dirichlet")["fields"]
    fields["alpha"] = fields.pop("alpha")  # behind bag_size, as in models that were stored when that stood first
    stored.write_text(json.dumps(named))
    assert hq.load(tmp_path / "model").sampler == Dirichlet(alpha=2.0, bag_size=10)


def _values(tree):
    """All values in nested dicts."""
    for value in tree.values():
        yield value
        if isinstance(value, dict):
            yield from _values(value)
