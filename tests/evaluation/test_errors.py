import subprocess
import sys
import types

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wilcoxon

import histnetq as hq
from histnetq import metrics
from histnetq.evaluation.errors import compare, evaluate
from histnetq.simplex import draw_uniform
from tests.conftest import exactly, known_bags, labelled

law = settings(max_examples=10, deadline=None)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def fitted_methods():
    X, y = labelled()
    return {kind.__name__: kind(cv=3).fit(X[10:], y[10:]) for kind in (hq.CC, hq.PACC, hq.EMQ)}


@pytest.fixture(scope="module")
def bags():
    return known_bags(40)


def plain_bags(p_true, sizes=None, **kwargs):
    """Bags of which only the prevalences and sizes matter."""
    sizes = np.full(len(p_true), 10) if sizes is None else sizes
    return hq.Bags(np.zeros((sum(sizes), 1)), offsets=np.cumsum([0, *sizes]), prevalences=p_true, **kwargs)


def random_problem(seed, n_bags=30, n_classes=3, n_methods=3):
    rng = np.random.default_rng(seed)
    bags = plain_bags(draw_uniform(n_bags, n_classes, rng), rng.integers(1, 50, n_bags))
    return bags, {f"m{i}": draw_uniform(n_bags, n_classes, rng) for i in range(n_methods)}


def off_by(*gaps):
    """Estimates of bags of halves whose absolute errors are these."""
    gaps = np.array(gaps, dtype=float)
    return np.c_[0.5 + gaps, 0.5 - gaps]


def halves(n_bags, **kwargs):
    return plain_bags(np.full((n_bags, 2), 0.5), **kwargs)


def test_one_row_per_bag_with_truth_estimates_and_errors(fitted_methods, bags):
    q = fitted_methods["PACC"]
    table = evaluate(q, bags)
    names = list("abc")
    measures = ["ae", "rae", "nae", "nrae", "se", "kld", "nkld", "nmd"]
    columns = ["size", "shift", *(f"true_{c}" for c in names), *(f"estimated_{c}" for c in names), *measures]
    assert table.columns.tolist() == columns
    assert table.index.name == "bag"
    np.testing.assert_array_equal(table.index, bags.ids)
    np.testing.assert_array_equal(table["size"], bags.sizes)
    np.testing.assert_array_equal(table[[f"true_{c}" for c in names]], bags.prevalences)
    np.testing.assert_array_equal(table[[f"estimated_{c}" for c in names]], q.predict(bags))
    for name in measures:
        expected = metrics.MEASURES[name](bags.prevalences, q.predict(bags), bags.sizes)
        np.testing.assert_array_equal(table[name], expected)


def test_shift_is_the_distance_from_the_training_prevalences(fitted_methods, bags):
    q = fitted_methods["CC"]
    expected = np.abs(bags.prevalences - q.train_prevalences_).sum(1)
    np.testing.assert_allclose(evaluate(q, bags)["shift"], expected)
    np.testing.assert_allclose(
        evaluate(q.predict(bags), bags, train_prevalences=q.train_prevalences_)["shift"], expected
    )
    by_name = dict(zip("cba", q.train_prevalences_[::-1], strict=True))
    np.testing.assert_allclose(evaluate(q, bags, train_prevalences=by_name)["shift"], expected)
    np.testing.assert_allclose(evaluate(q, bags, train_prevalences=pd.Series(by_name))["shift"], expected)
    np.testing.assert_allclose(
        evaluate(q, bags, train_prevalences=[1, 0, 0])["shift"], np.abs(bags.prevalences - [1, 0, 0]).sum(1)
    )


def test_shift_by_hand():
    bags = plain_bags([[0.5, 0.5], [0.1, 0.9]])
    table = evaluate(bags.prevalences, bags, train_prevalences=[0.25, 0.75])
    np.testing.assert_allclose(table["shift"], [0.5, 0.3])
    assert "shift" not in evaluate(bags.prevalences, bags)


@pytest.mark.parametrize("form", ["array", "list", "frame", "shuffled frame", "table", "indexed frame"])
def test_estimates_equal_the_quantifier_that_made_them(fitted_methods, bags, form):
    q = fitted_methods["EMQ"]
    p = q.predict(bags)
    table = evaluate(q, bags)
    forms = {
        "array": p,
        "list": p.tolist(),
        "frame": pd.DataFrame(p),
        "shuffled frame": pd.DataFrame(p, columns=list("abc"))[list("cab")],
        "table": table,
        "indexed frame": pd.DataFrame(p, columns=list("abc"), index=bags.ids.astype(str)),
    }
    prior = None if form == "table" else q.train_prevalences_
    if form == "shuffled frame":
        prior = dict(zip("abc", prior, strict=True))
    again = evaluate(forms[form], bags, train_prevalences=prior)
    assert len(again.columns) == len(table.columns)
    same = table.columns.drop("nmd" if form == "shuffled frame" else [])  # nmd depends on the order of classes
    pd.testing.assert_frame_equal(again[same], table[same], rtol=1e-12)


@law
@given(seed=seeds)
def test_many_bags_equal_one_by_one(seed):
    bags, estimates = random_problem(seed, n_bags=5)
    one_by_one = [evaluate(estimates["m0"][[i]], bags[i]) for i in range(5)]
    pd.testing.assert_frame_equal(pd.concat(one_by_one), evaluate(estimates["m0"], bags))


def test_row_labels_are_counted():
    X, y = labelled()
    bags = hq.Bags.from_labels(X, y, groups=np.arange(len(y)) // 10)
    without = hq.Bags(bags.rows, bags.index, bags.offsets, labels=bags.labels, classes=bags.classes, ids=bags.ids)
    assert without.prevalences is None
    p = np.full((len(bags), 3), 1 / 3)
    pd.testing.assert_frame_equal(evaluate(p, without), evaluate(p, bags))


def test_classes_are_matched_by_name(fitted_methods, bags):
    q = fitted_methods["PACC"]
    shuffled = bags.with_classes(["c", "a", "b"])
    pd.testing.assert_frame_equal(evaluate(q, shuffled), evaluate(q, bags))
    two = hq.Bags(bags.rows, bags.index, bags.offsets, prevalences=[[0.4, 0.6]] * len(bags), classes=["b", "a"])
    table = evaluate(q, two)
    np.testing.assert_array_equal(table["true_c"], 0)
    np.testing.assert_array_equal(table["true_a"], 0.6)


def test_default_class_names_fit_any(fitted_methods, bags):
    unnamed = hq.Bags(bags.rows, bags.index, bags.offsets, prevalences=bags.prevalences)
    q = fitted_methods["PACC"]
    pd.testing.assert_frame_equal(evaluate(q, unnamed), evaluate(q, bags))
    nameless = types.SimpleNamespace(predict=q.predict, classes_=np.arange(3))
    pd.testing.assert_frame_equal(evaluate(nameless, bags), evaluate(q, bags).drop(columns="shift"))


def test_smoothing_uses_each_bag_s_own_size():
    bags = plain_bags([[1, 0], [1, 0]], [5, 50])
    expected = [30 / 11, (0.5 / 1.01 + 0.5 / 0.01) / 2]
    np.testing.assert_allclose(evaluate([[0.5, 0.5]] * 2, bags, measures="rae")["rae"], expected)


def first_class_gap(p_true, p_pred):
    return abs(p_true - p_pred)[:, 0]


@pytest.mark.parametrize(
    ("measures", "names"),
    [
        ("mse", ["mse"]),
        (first_class_gap, ["first_class_gap"]),
        (["ae", hq.CostSensitiveAE((1, 3))], ["ae", "CostSensitiveAE"]),
        ({"cheap": hq.CostSensitiveAE((1, 3)), "dear": hq.CostSensitiveAE((3, 1)), "x": "ae"}, ["cheap", "dear", "x"]),
    ],
)
def test_measures_by_name_or_callable(measures, names):
    table = evaluate(off_by(0.1, 0.2), halves(2), measures=measures)
    assert table.columns[5:].tolist() == names
    np.testing.assert_allclose(table[names[0]], [0.01, 0.04] if names == ["mse"] else [0.1, 0.2])


def test_quantifiers_of_quapy_are_wrapped(monkeypatch, fitted_methods, bags):
    foreign = type("Foreign", (), {"__module__": "quapy.method.base"})()
    stand_in = types.ModuleType("histnetq.interop")
    stand_in.from_quapy = lambda q: {foreign: fitted_methods["CC"]}[q]
    monkeypatch.setitem(sys.modules, "histnetq.interop", stand_in)
    pd.testing.assert_frame_equal(evaluate(foreign, bags), evaluate(fitted_methods["CC"], bags))
    assert compare({"CC": foreign}, bags).errors.equals(compare({"CC": fitted_methods["CC"]}, bags).errors)


@law
@given(seed=seeds)
def test_the_order_of_methods_changes_nothing_but_the_order(seed):
    bags, estimates = random_problem(seed)
    table = compare(estimates, bags).table
    names = list(estimates)[::-1]
    pd.testing.assert_frame_equal(compare({n: estimates[n] for n in names}, bags).table, table.loc[names])


@law
@given(seed=seeds, k=st.integers(2, 7))
def test_one_seed_repeated_equals_one_seed(seed, k):
    bags, estimates = random_problem(seed)
    once = compare(estimates, bags)
    for repeat in (lambda p: [p] * k, lambda p: np.array([p] * k)):
        repeated = compare({**estimates, "m0": repeat(estimates["m0"])}, bags)
        assert repeated.table["n_seeds"].tolist() == [k, 1, 1]
        columns = once.measures
        pd.testing.assert_frame_equal(repeated.table[columns], once.table[columns], check_exact=False, rtol=1e-9)


@law
@given(seed=seeds, k=st.integers(2, 7))
def test_a_method_against_itself_is_no_difference_however_many_seeds(seed, k):
    bags, estimates = random_problem(seed)
    table = compare({"once": estimates["m0"], "often": [estimates["m0"]] * k}, bags).table["ae"]
    assert table["best"].tolist() == [True, False]
    assert table["p_value"]["often"] == 1
    assert table["mark"].tolist() == ["", "‡"]
    assert table["wins"]["often"] == 0
    assert table["direction"].tolist() == ["", ""]


@law
@given(seed=seeds)
def test_seeds_are_averaged_per_bag(seed):
    bags, estimates = random_problem(seed)
    together = compare({"m": list(estimates.values())}, bags)
    apart = compare(estimates, bags).errors
    for measure in ("ae", "rae"):
        per_bag = apart.xs(measure, axis=1, level="measure").mean(axis=1)
        np.testing.assert_allclose(together.errors["m", measure], per_bag)
        np.testing.assert_allclose(together.table[measure]["sd"], per_bag.std(ddof=1))


@law
@given(seed=seeds)
def test_p_values_are_scipy_s(seed):
    bags, estimates = random_problem(seed)
    comparison = compare(estimates, bags, measures=["kld"])
    table = comparison.table["kld"]
    best = comparison.errors.mean().idxmin()[0]
    assert table.index[table["best"]].tolist() == [best]
    assert np.isnan(table["p_value"][best])
    for name in set(estimates) - {best}:
        a, b = comparison.errors[name, "kld"], comparison.errors[best, "kld"]
        np.testing.assert_allclose(table["p_value"][name], wilcoxon(a, b).pvalue)
        assert table["wins"][name] == (a < b).mean()


def test_quantifiers_estimates_and_tables_compare_alike(fitted_methods, bags):
    expected = compare(fitted_methods, bags).table
    arrays = {name: q.predict(bags) for name, q in fitted_methods.items()}
    tables = {name: [evaluate(q, bags)] for name, q in fitted_methods.items()}
    for given_as in (arrays, tables):
        pd.testing.assert_frame_equal(compare(given_as, bags).table, expected)
    np.testing.assert_allclose(compare(tables, bags).shift, compare(fitted_methods, bags).shift)


def test_measures_that_depend_on_the_order_of_classes_see_one_order():
    bags = plain_bags([[0.2, 0.3, 0.5]] * 4, classes=["low", "mid", "high"])
    p = pd.DataFrame([[0.5, 0.3, 0.2]] * 4, columns=["low", "mid", "high"])
    table = compare({"A": p, "B": p[["mid", "high", "low"]]}, bags, measures=["nmd"]).table
    np.testing.assert_allclose(table["nmd"]["mean"], 0.3)


@pytest.mark.parametrize("n_bags", [1, 2, 5])
def test_few_bags_give_a_valid_p_value(n_bags):
    table = compare({"A": off_by(*[0.1] * n_bags), "B": off_by(*np.linspace(0.2, 0.3, n_bags))}, halves(n_bags)).table
    np.testing.assert_allclose(table["ae"]["p_value"]["B"], 2 / 2**n_bags)
    assert table["ae"]["mark"]["B"] == "‡"
    if n_bags == 1:
        assert table["ae"]["sd"].tolist() == [0, 0]


@pytest.mark.parametrize(("n_bags", "alpha", "mark"), [(5, 0.05, "‡"), (6, 0.05, "†"), (6, 0.01, "‡"), (11, 0.05, "")])
def test_marks_follow_the_p_value(n_bags, alpha, mark):
    # One side always better: p = 2 / 2**n_bags, and 10 bags are the most with p ≥ 0.001.
    worse = off_by(*np.linspace(0.2, 0.3, n_bags))
    table = compare({"A": worse, "B": off_by(*[0.1] * n_bags)}, halves(n_bags), alpha=alpha).table["ae"]
    assert table["mark"].tolist() == [mark, ""]
    assert table["direction"].tolist() == ["higher", ""]


def test_of_equal_means_the_first_is_best():
    comparison = compare({"B": off_by(0.1, 0.2), "A": off_by(0.2, 0.1)}, halves(2))
    assert comparison.table["ae"]["best"].tolist() == [True, False]


def test_by_hand():
    # B is worse on average because of the last bag only, and better on the other five.
    table = compare({"A": off_by(*[0.1] * 6), "B": off_by(0.09, 0.08, 0.07, 0.06, 0.05, 0.49)}, halves(6)).table["ae"]
    assert table.index.tolist() == ["A", "B"]
    np.testing.assert_allclose(table["mean"], [0.1, 0.14])
    np.testing.assert_allclose(table["sd"], [0, np.std([0.09, 0.08, 0.07, 0.06, 0.05, 0.49], ddof=1)], atol=1e-15)
    # Ranks 1 to 5 against 6: of the 64 sign patterns 14 have a sum of at most 6, so p = 28/64.
    np.testing.assert_allclose(table["p_value"]["B"], 28 / 64)
    np.testing.assert_allclose(table["wins"]["B"], 5 / 6)
    assert table["direction"].tolist() == ["", "lower"]


@law
@given(seed=seeds, n_bins=st.integers(1, 12))
def test_bins_weighted_by_their_bags_give_the_overall_mean(seed, n_bins):
    bags, estimates = random_problem(seed)
    comparison = compare(estimates, bags, train_prevalences=[0.2, 0.3, 0.5])
    bins = comparison.by_shift(n_bins)
    assert len(bins) == n_bins
    assert bins["n_bags"].sum() == len(bags)
    means = bins.drop(columns="n_bags", level=0).mul(bins["n_bags"], axis=0).sum() / len(bags)
    np.testing.assert_allclose(means, comparison.errors.mean())


def test_bins_by_hand():
    bags = plain_bags([[0.5, 0.5], [0.6, 0.4], [0.75, 0.25], [1, 0]])
    p = bags.prevalences[:, ::-1]
    bins = compare({"A": p}, bags, measures="ae", train_prevalences=[0.5, 0.5]).by_shift([0, 0.2, 0.5])
    assert bins.index.tolist() == [pd.Interval(0, 0.2, closed="left"), pd.Interval(0.2, 0.5, closed="left")]
    assert bins.index.name == "shift"
    assert bins["n_bags"].tolist() == [1, 2]  # shifts 0, 0.2, 0.5 and 1
    np.testing.assert_allclose(bins["A", "ae"], [0, (0.2 + 0.5) / 2])
    equal = compare({"A": p}, bags, train_prevalences=[0.5, 0.5]).by_shift(4)
    assert equal["n_bags"].tolist() == [2, 0, 1, 1]
    assert np.isnan(equal["A", "ae"].iloc[1])


@pytest.fixture(scope="module")
def example():
    bags = plain_bags([[0.5, 0.5]] * 5 + [[1, 0]], ids=list("uvwxyz"))
    flat = np.r_[off_by(*[0.1] * 5), [[0.9, 0.1]]]
    risky = np.r_[off_by(0.09, 0.08, 0.07, 0.06, 0.05), [[0.5, 0.5]]]
    bad = np.r_[off_by(0.3, 0.31, 0.32, 0.33, 0.34), [[0.4, 0.6]]]
    return compare({"flat": [flat, flat], "a_b & c|d%": risky, "<bad>": bad, "none": None}, bags)


WILCOXON = "Wilcoxon signed-rank test against the best: † 0.001 ≤ p ≤ 0.05, ‡ p > 0.05, no mark p < 0.001."
ARROW = "↓ lower error than the best on more than half of the bags."


def test_text(example):
    assert repr(example) == str(example)
    assert str(example).splitlines() == [
        "method       seeds           AE                  RAE",
        "flat           2     0.1000 ± 0.0000 *    0.3261 ± 0.3535 *",
        "a_b & c|d%     1     0.1417 ± 0.1761 ‡↓   0.9791 ± 2.0866 ‡↓",
        "<bad>          1     0.3667 ± 0.1152 †    1.5325 ± 2.3287 †",
        "none           –             –                    –",
        "",
        "6 bags; mean ± sd over the bags, of errors averaged over seeds. * best (lowest mean).",
        WILCOXON,
        ARROW,
    ]


def test_markdown(example):
    assert example.to_markdown().splitlines() == [
        "| method | seeds | AE | RAE |",
        "| :-- | --: | --: | --: |",
        "| flat | 2 | **0.1000 ± 0.0000** | **0.3261 ± 0.3535** |",
        r"| a_b & c\|d% | 1 | 0.1417 ± 0.1761 ‡↓ | 0.9791 ± 2.0866 ‡↓ |",
        "| <bad> | 1 | 0.3667 ± 0.1152 † | 1.5325 ± 2.3287 † |",
        "| none | – | – | – |",
        "",
        "6 bags; mean ± sd over the bags, of errors averaged over seeds. Bold: best (lowest mean).",
        WILCOXON,
        ARROW,
    ]


def test_latex(example):
    assert example.to_latex().splitlines() == [
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"method & seeds & AE & RAE \\",
        r"\midrule",
        r"flat & 2 & \textbf{0.1000 $\pm$ 0.0000} & \textbf{0.3261 $\pm$ 0.3535} \\",
        r"a\_b \& c|d\% & 1 & 0.1417 $\pm$ 0.1761 $\ddag$$\downarrow$ & 0.9791 $\pm$ 2.0866 $\ddag$$\downarrow$ \\",
        r"<bad> & 1 & 0.3667 $\pm$ 0.1152 $\dag$ & 1.5325 $\pm$ 2.3287 $\dag$ \\",
        r"none & -- & -- & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_latex_escapes_every_special_character():
    text = compare({r"\a{b}~^#$_&%": off_by(0.1)}, halves(1), measures="ae").to_latex().splitlines()
    name = r"\textbackslash{}a\{b\}\textasciitilde{}\textasciicircum{}\#\$\_\&\%"
    assert text[4] == name + r" & \textbf{0.1000 $\pm$ 0.0000} \\"


def test_html(example):
    lines = example._repr_html_().splitlines()
    assert lines[:4] == [
        "<table>",
        "<tr><th>method</th><th>seeds</th><th>AE</th><th>RAE</th></tr>",
        "<tr><td>flat</td><td>2</td><td><b>0.1000 ± 0.0000</b></td><td><b>0.3261 ± 0.3535</b></td></tr>",
        "<tr><td>a_b &amp; c|d%</td><td>1</td><td>0.1417 ± 0.1761 ‡↓</td><td>0.9791 ± 2.0866 ‡↓</td></tr>",
    ]
    assert lines[4].startswith("<tr><td>&lt;bad&gt;</td>")
    assert lines[6] == "</table>"
    assert "p &gt; 0.05" in lines[7]


def test_csv(tmp_path):
    comparison = compare(
        {"A": off_by(0.25, 0.25), "B, b": [off_by(0.125, 0.5)] * 2, "C": None}, halves(2), measures=["ae", "se"]
    )
    text = comparison.to_csv()
    assert text.splitlines() == [
        "method,measure,mean,sd,best,p_value,mark,wins,direction,n_bags,n_seeds",
        "A,ae,0.25,0.0,True,,,,,2,1",
        "A,se,0.0625,0.0,True,,,,,2,1",
        '"B, b",ae,0.3125,0.2651650429449553,False,1.0,‡,0.5,,2,2',
        '"B, b",se,0.1328125,0.16572815184059708,False,1.0,‡,0.5,,2,2',
        "C,ae,,,False,,,,,2,0",
        "C,se,,,False,,,,,2,0",
    ]
    assert comparison.to_csv(tmp_path / "table.csv") is None
    assert (tmp_path / "table.csv").read_bytes().decode() == text


def test_short_legend_without_a_rival():
    assert str(compare({"A": off_by(0.1), "B": None}, halves(1), measures="ae")).splitlines() == [
        "method           AE",
        "A        0.1000 ± 0.0000 *",
        "B                –",
        "",
        "1 bag; mean ± sd over the bags. * best (lowest mean).",
    ]


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (1, ["0.1500 ± 0.0707 *", "0.2500 ± 0.0707 ‡"]),
        (0, ["0.0000 ± 0.0000 *", "0.0000 ± 0.0000 ‡"]),
        (1e-3, ["0.000150 ± 0.000071 *", "0.000250 ± 0.000071 ‡"]),
        (1e-12, ["0.00000000 ± 0.00000000 *", "0.00000000 ± 0.00000000 ‡"]),
        (10, ["1.500 ± 0.707 *", "2.500 ± 0.707 ‡"]),
        (50, ["7.500 ± 3.536 *", "12.500 ± 3.536 ‡"]),
        (1e4, ["1500 ± 707 *", "2500 ± 707 ‡"]),
    ],
)
def test_decimals_follow_the_lowest_mean_and_numbers_align(scale, expected):
    def scaled(p_true, p_pred):
        return scale * metrics.ae(p_true, p_pred)

    lines = str(compare({"A": off_by(0.1, 0.2), "B": off_by(0.2, 0.3)}, halves(2), measures=scaled)).splitlines()
    assert [line[9:].strip() for line in lines[1:3]] == expected
    assert lines[1].index("±") == lines[2].index("±")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"bags": np.zeros((2, 2))},
            TypeError,
            "bags: expected Bags with at least one bag, got ndarray; make them with Bags.from_arrays.",
        ),
        (
            {"bags": halves(2)[:0]},
            TypeError,
            "bags: expected Bags with at least one bag, got an empty one; make them with Bags.from_arrays.",
        ),
        (
            {"bags": hq.Bags(np.zeros((2, 1)))},
            ValueError,
            "bags: expected known prevalences or row labels to measure errors against, got neither; "
            "pass prevalences= when making them.",
        ),
        (
            {"quantifier": off_by(0.1, 0.2, 0.3)},
            ValueError,
            "quantifier: expected proportions of shape (n_bags, n_classes) = (2, 2), got (3, 2).",
        ),
        (
            {"quantifier": [[0.5, 0.5], [30, 70]]},
            ValueError,
            "quantifier: row 1 is [30. 70.], expected proportions that sum to 1; divide by the sum.",
        ),
        (
            {"quantifier": [[0.5, 0.5], [np.nan, 1]]},
            ValueError,
            "quantifier: row 1 is [nan  1.], expected proportions that sum to 1; divide by the sum.",
        ),
        (
            {"quantifier": "EMQ"},
            TypeError,
            "quantifier: expected a fitted quantifier or estimates (n_bags, n_classes), got str.",
        ),
        (
            {"quantifier": pd.DataFrame(off_by(0.1, 0.2), columns=["x", "y"]), "bags": halves(2, classes=["v", "z"])},
            ValueError,
            "classes: 'v' is not among the expected ['x', 'y']; rename it, drop its rows or column, or learn from bags "
            "that have it.",
        ),
        (
            {"quantifier": pd.DataFrame(off_by(0.1, 0.2), index=["b", "a"]), "bags": halves(2, ids=["a", "b"])},
            ValueError,
            "quantifier: expected a table of the bags ['a', 'b'], got ['b', 'a']; evaluate on these bags.",
        ),
        (
            {"quantifier": evaluate(off_by(0.1), halves(1))},
            ValueError,
            "quantifier: expected a table of the bags ['0', '1'], got ['0']; evaluate on these bags.",
        ),
        (
            {"quantifier": evaluate(off_by(0.1, 0.1), plain_bags([[0.5, 0.5], [0.6, 0.4]]))},
            ValueError,
            "quantifier: the table has other true prevalences than bags; evaluate on these bags.",
        ),
        (
            {"measures": ["ae", "mae"]},
            ValueError,
            "measures: expected some of ae, rae, nae, nrae, se, mse, kld, nkld, nmd, macro_nmd or callables "
            "(p_true, p_pred), got ['ae', 'mae'].",
        ),
        (
            {"measures": []},
            ValueError,
            "measures: expected some of ae, rae, nae, nrae, se, mse, kld, nkld, nmd, macro_nmd or callables "
            "(p_true, p_pred), got [].",
        ),
        (
            {"measures": [metrics.ae, "ae"]},
            ValueError,
            "measures: expected different names, got ['ae', 'ae']; pass a dict of names and callables.",
        ),
        (
            {"measures": {"mean": lambda p_true, p_pred: abs(p_true - p_pred).mean()}},
            ValueError,
            "measures: expected a finite number for each of 2 bags, got shape () by 'mean'.",
        ),
        (
            {"measures": {"log": lambda p_true, p_pred: np.full(2, np.inf)}},
            ValueError,
            "measures: expected a finite number for each of 2 bags, got NaN or infinity by 'log'.",
        ),
        (
            {"train_prevalences": [0.2, 0.3, 0.5]},
            ValueError,
            "train_prevalences: expected one number for each of ['0', '1'], got (3,).",
        ),
        (
            {"train_prevalences": {0: 0.2, 2: 0.8}},
            ValueError,
            "train_prevalences: row 0 is [0.2 0. ], expected proportions that sum to 1; divide by the sum.",
        ),
    ],
)
def test_what_evaluate_refuses(change, error, message):
    arguments = {"quantifier": off_by(0.1, 0.2), "bags": halves(2), **change}
    with pytest.raises(error, match=exactly(message)):
        evaluate(arguments.pop("quantifier"), arguments.pop("bags"), **arguments)


@pytest.mark.parametrize(
    ("quantifiers", "options", "error", "message"),
    [
        (
            [off_by(0.1, 0.2)],
            {},
            TypeError,
            "quantifiers: expected a dict of names and fitted quantifiers, got list; write {'name': quantifier}, or "
            "{'name': [seed 1, seed 2, …]} for several seeds of one method.",
        ),
        (
            {1: None, "1": None},
            {},
            ValueError,
            "quantifiers: expected names that differ when written as text, got [1, '1']; rename one.",
        ),
        (
            {"A": None},
            {},
            ValueError,
            "quantifiers: expected at least one with a result, got none; add a fitted quantifier.",
        ),
        (
            {"A": []},
            {},
            ValueError,
            "quantifiers['A']: expected at least one seed, got none; pass None for a row of dashes.",
        ),
        ({"A": off_by(0.1, 0.2)}, {"alpha": 5}, ValueError, "alpha: expected a number between 0.001 and 1, got 5."),
        (
            {"A": off_by(0.1, 0.2), "B": [off_by(0.1, 0.2), off_by(0.1)]},
            {},
            ValueError,
            "quantifiers['B']: expected proportions of shape (n_bags, n_classes) = (2, 2), got (1, 2).",
        ),
        (
            {"A": off_by(0.1, 0.2), "B": pd.DataFrame(np.eye(3)[:2], columns=["0", "1", "x"])},
            {},
            ValueError,
            "quantifiers['B']: expected the classes ['0', '1'] of the first method, got ['0', '1', 'x']; "
            "fit all methods on the same classes.",
        ),
    ],
)
def test_what_compare_refuses(quantifiers, options, error, message):
    with pytest.raises(error, match=exactly(message)):
        compare(quantifiers, halves(2), **options)


def test_a_class_that_training_lacks_counts_as_estimated_0(fitted_methods, bags):
    p = np.pad(bags.prevalences, ((0, 0), (0, 1))) * 0.8 + [0, 0, 0, 0.2]
    other = hq.Bags(bags.rows, bags.index, bags.offsets, prevalences=p, classes=["a", "b", "c", "d"])
    q = fitted_methods["CC"]
    with pytest.warns(
        UserWarning, match=exactly("quantifier: has no class 'd', which the truth has; its estimate counts as 0.")
    ):
        found = evaluate(q, other)
    expected = np.pad(q.predict(bags), ((0, 0), (0, 1)))
    np.testing.assert_array_equal(found[[f"estimated_{c}" for c in "abcd"]], expected)
    np.testing.assert_allclose(found["ae"], metrics.ae(p, expected))
    np.testing.assert_allclose(found["shift"], np.abs(p - [*q.train_prevalences_, 0]).sum(1))
    assert q.score(other) == pytest.approx(-found["ae"].mean())
    with pytest.warns(UserWarning, match="has no class 'd'"):
        compared = compare({"CC": q, "PACC": fitted_methods["PACC"]}, other)
    np.testing.assert_allclose(compared.errors["CC", "ae"], found["ae"])
    with pytest.warns(UserWarning, match=r"has no classes 'b', 'd', which the truth has; their estimates count as 0\."):
        evaluate(pd.DataFrame({"a": np.full(40, 0.4), "c": 0.6}), other, train_prevalences={"a": 0.5, "d": 0.5})


def test_classes_that_have_none_in_common_are_refused(fitted_methods, bags):
    other = hq.Bags(bags.rows, bags.index, bags.offsets, prevalences=bags.prevalences, classes=["d", "e", "f"])
    message = (
        "classes: 'd' is not among the expected ['a', 'b', 'c']; rename it, drop its rows or column, or learn from "
        "bags that have it."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        evaluate(fitted_methods["CC"], other)


def test_by_shift_needs_the_training_prevalences():
    message = (
        "train_prevalences: expected the training prevalences, got none and no quantifier knows them; "
        "pass train_prevalences= to compare."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        compare({"A": off_by(0.1)}, halves(1)).by_shift()


@pytest.mark.parametrize("bins", [0, 2.5, [0.5], [0.5, 0.1], [[0, 1]]])
def test_bad_bins_are_refused(bins):
    message = f"bins: expected a number of at least 1 or at least 2 rising edges, got {bins!r}."
    with pytest.raises(ValueError, match=exactly(message)):
        compare({"A": off_by(0.1)}, halves(1), train_prevalences=[0.5, 0.5]).by_shift(bins)


def test_starts_without_torch_and_pandas():
    code = (
        "import sys, histnetq.evaluation.errors; sys.exit(', '.join({'torch', 'pandas', 'quapy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == "\n"
