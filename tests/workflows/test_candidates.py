"""Classifiers by name, one set of defaults, methods that `fit` chooses among, and labelled rows in no bags."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import histnetq as hq
from histnetq.cli import main
from histnetq.quantifiers.classical import cross_fitting
from histnetq.quantifiers.classical.classifiers import made, prepared
from histnetq.registry import CLASSIFIERS, METHODS, REGISTRY
from histnetq.training.progress import listening
from histnetq.workflows import candidates
from histnetq.workflows.candidates import Candidate
from histnetq.workflows.fitting import Workbench
from histnetq.workflows.hold_out import hold_out_to_calibrate, hold_out_to_compare
from tests.conftest import labelled

CLASSICAL = [name for name, entry in METHODS.items() if "classifier" in entry.space]
FEW = ["cc", "pacc"]


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def rings(n_rows: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of an inner and an outer class around the same centre: no linear classifier tells them apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n_rows)
    angle, radius = rng.random(n_rows) * 2 * np.pi, 1 + y + 0.2 * rng.normal(size=n_rows)
    return np.c_[radius * np.cos(angle), 1000 * radius * np.sin(angle)], np.array(["inner", "outer"])[y]


def bags_of_rings(n_bags: int = 60, size: int = 20, seed: int = 0) -> hq.Bags:
    """Bags of varying mixes that share no rows."""
    X, y = rings(4 * n_bags * size, seed)
    rng = np.random.default_rng(seed)
    inner, outer = np.flatnonzero(y == "inner"), np.flatnonzero(y == "outer")
    counts = np.round(rng.random(n_bags) * size).astype(int)
    rows = [np.r_[inner[i * size : i * size + k], outer[i * size : i * size + size - k]] for i, k in enumerate(counts)]
    index = np.concatenate(rows)
    return hq.Bags.from_labels(X[index], y[index], groups=np.repeat(np.arange(n_bags), size))


@pytest.fixture
def small_forests(monkeypatch):
    """Forests of few trees, which tell rings apart as well."""
    monkeypatch.setitem(CLASSIFIERS["forest"].params, "n_estimators", 20)


@pytest.fixture
def table(tmp_path, monkeypatch, small_forests):
    """rings.csv: labelled rows, a bag column that may be left out, and columns of very different units."""
    monkeypatch.chdir(tmp_path)
    bags = bags_of_rings()
    X, bag = bags.gather(), np.repeat(np.arange(len(bags)), 20)
    frame = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "kind": bags.classes[bags.labels[bags.index]]})
    frame.to_csv("rings.csv", index=False)
    frame.assign(bag=[f"b{i}" for i in bag]).to_csv("bags.csv", index=False)
    return frame


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_name_is_a_classifier(name):
    X, y = rings()
    q = hq.PACC(name, random_state=0).fit(X, y)
    assert q.classifier == name
    again = hq.PACC(prepared(made(name), X, 0), random_state=0).fit(X, y)
    np.testing.assert_array_equal(q.training_posteriors_, again.training_posteriors_)
    np.testing.assert_array_equal(q.predict(X[:50]), again.predict(X[:50]))


@pytest.mark.parametrize("method", CLASSICAL)
def test_every_method_on_posteriors_takes_a_name(method):
    entry = METHODS[method]
    assert entry.load()().classifier == "logistic"
    fitting = {"training": hq.Training(epochs=1, bags_per_epoch=20, validation_bags=10)} if method == "quanet" else {}
    q = entry.load()("bayes", random_state=0, **fitting).fit(*labelled())
    assert type(q.classifier_).__name__ == "GaussianNB"


def test_a_forest_sees_what_a_line_does_not():
    X, y = rings()
    bags = hq.APP(50).draw(hq.Bags.from_labels(*rings(seed=1)), 30, random_state=0)
    errors = {
        name: hq.metrics.ae(bags.prevalences, hq.EMQ(name, random_state=0).fit(X, y).predict(bags)).mean()
        for name in ("logistic", "forest")
    }
    assert errors["forest"] < errors["logistic"] / 3


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"^classifier: .*logistic.*bayes.*'forrest'"):
        hq.EMQ("forrest").fit(*labelled())


def test_the_global_generator_is_left_alone(small_forests):
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    hq.CC("forest", cv=2).fit(*labelled())
    hq.CC(RandomForestClassifier(5), cv=2).fit(*labelled())
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_a_seed_repeats_a_forest_and_none_does_not(small_forests):
    X, y = rings()
    first, again = (hq.CC("forest", cv=2, random_state=3).fit(X, y).training_posteriors_ for _ in range(2))
    np.testing.assert_array_equal(first, again)
    one, other = (hq.CC("forest", cv=2).fit(X, y).classifier_.random_state for _ in range(2))
    assert one != other


def test_posteriors_are_shared_between_methods(monkeypatch, small_forests):
    X, y = rings()
    once = hq.EMQ("forest", random_state=0).cross_fit(X, y)
    with monkeypatch.context() as patch:
        patch.setattr(cross_fitting, "_fit", lambda *_: pytest.fail("fitted twice"))
        shared = {name: REGISTRY[name].load()("forest", random_state=0).fit_crossed(once) for name in ("PACC", "KDEy")}
    for name, q in shared.items():
        alone = REGISTRY[name].load()("forest", random_state=0).fit(X, y)
        np.testing.assert_array_equal(q.predict(X[:40]), alone.predict(X[:40]))


def test_short_names_reach_the_last_step():
    q = hq.EMQ("forest").set_params(classifier__min_samples_leaf=3, cv=2)
    assert (q.classifier.min_samples_leaf, q.cv) == (3, 2)
    own = make_pipeline(StandardScaler(), LogisticRegression())
    assert hq.EMQ(own).set_params(classifier__C=0.5).classifier[-1].C == 0.5
    assert hq.EMQ().set_params(classifier__logisticregression__C=0.5).classifier[-1].C == 0.5
    assert hq.EMQ("mlp").get_params()["classifier__alpha"] == 1e-4
    assert hq.EMQ().get_params(deep=False) == hq.EMQ(**hq.EMQ().get_params(deep=False)).get_params(deep=False)
    with pytest.raises(ValueError, match="Invalid parameter 'leaves'"):
        hq.EMQ("forest").set_params(classifier__leaves=3)


def test_tuning_over_classifiers(small_forests):
    X, y = rings()
    found = hq.tune(hq.PACC(cv=2), {"classifier": ["logistic", "forest"]}, X, y, random_state=0)
    assert found.best_params == {"classifier": "forest"}
    assert found.quantifier.classifier == "forest"


def test_python_and_the_command_line_have_the_same_defaults(table):
    assert run("fit", "bags.csv", "--bag", "bag", "--label", "kind", "--method", "emq", "-o", "m").exit_code == 0
    kept = hq.load("m").get_params(deep=False)
    assert kept == hq.EMQ(random_state=0).get_params(deep=False)
    for network in ("HistNetQ", "DeepSets", "SetTransformer", "GMNet", "EMNetQ", "QuaNet"):
        model = Workbench(bags_of_rings()).make(Candidate(network.lower()))
        assert model.get_params(deep=False) == REGISTRY[network].load()(random_state=0).get_params(deep=False)
        assert model.loss == "ae"


@pytest.mark.filterwarnings("error")
def test_the_default_classifier_scales_its_features():
    X, y = rings()
    q = hq.EMQ(rescaling="bcts", random_state=0).fit(X * [1.0, 1e6], y)
    assert isinstance(q.classifier_, Pipeline)
    assert [type(step).__name__ for step in q.classifier_] == ["StandardScaler", "LogisticRegression"]
    same = hq.EMQ(rescaling="bcts", random_state=0).fit(X, y)
    np.testing.assert_allclose(q.predict(X * [1.0, 1e6]), same.predict(X), atol=1e-6)


@pytest.mark.parametrize("change", [{}, {"classifier__C": 0.5}])
def test_sparse_rows_are_scaled_and_not_centred(change):
    X, y = labelled()
    q = hq.PCC(random_state=0).set_params(**change).fit(sparse.csr_matrix(X), y)
    assert not q.classifier_[0].with_mean
    assert q.classifier_[0].with_std
    assert hq.PCC(random_state=0).set_params(**change).fit(X, y).classifier_[0].with_mean


def test_a_fraction_of_any_kind():
    X, y = labelled()
    expected = hq.PACC(cv=0.25, random_state=0).fit(X, y).predict(X)
    np.testing.assert_array_equal(hq.PACC(cv=np.float32(0.25), random_state=0).fit(X, y).predict(X), expected)
    folds = hq.PACC(cv=np.int64(3), random_state=0).fit(X, y).predict(X)
    np.testing.assert_array_equal(folds, hq.PACC(cv=3, random_state=0).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="cv: expected a number of folds, a fraction between 0 and 1, or None, got"):
        hq.PACC(cv=np.float32(1.5)).fit(X, y)


@pytest.fixture
def without_networks(monkeypatch, small_forests):
    whole = candidates.from_labels
    monkeypatch.setattr(
        "histnetq.workflows.fitting.from_labels", lambda *names: [c for c in whole(*names) if "net" not in c.method]
    )


def test_fit_chooses_by_default_and_tells(table, without_networks):
    known = ["--bag", "bag", "--label", "kind"]
    told = run("fit", "bags.csv", *known, "--method", "search", "--calibration", "0.4", "-o", "model")
    assert told.exit_code == 0, told.output
    first, *lines = told.output.splitlines()
    names = [f"{method} ({name})" for name in ("logistic", "forest", "boosting") for method in ("EMQ", "KDEy", "PACC")]
    assert first == f"Comparing {', '.join(names)} on 9 held-out bags:"
    for name, line in zip(names, lines, strict=False):
        assert line.startswith(f"  {name}: AE 0.")
        assert line.endswith(" left.")
    q = hq.load("model")
    assert q.classifier in ("forest", "boosting")
    why, best = q.provenance_["why"], f"{type(q).__name__} ({q.classifier})"
    assert why.startswith(f"{best} has the lowest mean AE of the methods on 9 held-out bags: 0.")
    assert all(name in why for name in names)
    assert why in told.output
    assert "Calibrated by cross-validated estimates of 60 bags: predict" in told.output
    assert "training mean" in told.output


def test_all_bags_calibrate_where_few_would_be_kept_apart(table):
    known = ["fit", "bags.csv", "--bag", "bag", "--label", "kind", "--method", "pacc", "--classifier", "bayes"]
    told = run(*known, "-o", "model")
    assert told.exit_code == 0, told.output
    about = "Fitting it to all bags, and calibrating intervals by 10-fold cross-validation: about "
    assert told.stdout.startswith(f"PACC: learning from 60 bags.\n{about}")
    q = hq.load("model")
    assert (q.provenance_["bags"], q.provenance_["calibration_bags"], len(q.calibration_.joint_scores)) == (60, 60, 60)
    bags = hq.read_bags("bags.csv", bag="bag", label="kind")
    same = hq.PACC("bayes", random_state=0).cross_calibrate(bags)
    np.testing.assert_array_equal(q.predict(bags), same.predict(bags))
    np.testing.assert_allclose(q.calibration_.scores, same.calibration_.scores)
    facts = json.loads(run("info", "model", "--json").output)
    assert facts["calibration_bags"] == facts["provenance"]["calibration_bags"] == 60


def kept_apart(bags, monkeypatch, seconds=0.0, **given):
    """Fit PACC to these bags where a fit takes so many seconds; return the model and the notes after the first."""
    clock = iter([0.0, seconds])
    monkeypatch.setattr("histnetq.workflows.fitting.time.process_time", lambda: next(clock))
    told = []

    def listen(event):
        if event["kind"] == "note":
            told.append(event["text"])

    with listening(listen):
        model, _ = Workbench(bags, classifier="bayes", **given).fit("pacc")
    assert told[0].startswith("PACC: learning from ")
    return model, told[1:]


@pytest.mark.parametrize(("seconds", "folds"), [(12, 10), (13, 5), (24, 5)])
def test_a_slow_fit_is_crossed_by_fewer_folds(monkeypatch, seconds, folds):
    model, told = kept_apart(bags_of_rings(100), monkeypatch, seconds)
    assert f"by {folds}-fold cross-validation" in told[0]
    assert model.provenance_["calibration_bags"] == 100


def test_a_slower_fit_keeps_bags_apart(monkeypatch):
    model, told = kept_apart(bags_of_rings(100), monkeypatch, 25)
    assert told == []
    assert (model.provenance_["bags"], model.provenance_["calibration_bags"]) == (75, 25)
    assert model.provenance_["calibrated"] == (
        "by 25 held-out bags, because a fit takes 25 seconds and cross-validation needs several fits"
    )
    model, _ = kept_apart(bags_of_rings(60), monkeypatch, 25)
    assert (model.provenance_["bags"], model.provenance_["calibration_bags"]) == (60, 0)
    assert model.provenance_["uncalibrated"] == "too few bags to hold some out for intervals, which needs 80"


def test_many_bags_are_kept_apart_only_if_a_fit_is_slow(monkeypatch):
    bags = bags_of_rings(200, size=5)
    crossed = kept_apart(bags, monkeypatch, calibration=0.5)[0].provenance_
    assert (crossed["calibrated"], crossed["bags"]) == ("by cross-validated estimates of 200 bags", 200)
    assert kept_apart(bags, monkeypatch, 25)[0].provenance_["bags"] == 150
    none = kept_apart(bags, monkeypatch, calibration=0)[0].provenance_
    assert (none["calibration_bags"], none["uncalibrated"]) == (0, "nothing was held out for intervals")
    few = kept_apart(bags[:19], monkeypatch)[0].provenance_
    assert few["uncalibrated"] == "too few bags to calibrate intervals, which needs 20"


def test_bags_that_share_rows_and_processes_together_keep_bags_apart(monkeypatch):
    shared = hq.APP(20).draw(bags_of_rings(), 100, random_state=0)
    model, told = kept_apart(shared, monkeypatch)
    assert told[1].startswith(
        "Intervals cannot be calibrated by cross-validation: expected bags that share no rows, as each "
    )
    assert model.provenance_["calibrated"] == "by 25 held-out bags"
    monkeypatch.setattr("histnetq.workflows.fitting.are_processes_together", lambda: True)
    assert kept_apart(bags_of_rings(100), monkeypatch)[0].provenance_["calibrated"] == "by 25 held-out bags"


def test_the_choice_fits_each_classifier_once(monkeypatch, without_networks):
    fitted = []
    given = cross_fitting.cross_fit
    monkeypatch.setattr(
        "histnetq.quantifiers.classical.posteriors.cross_fit",
        lambda base, *rest: fitted.append(base) or given(base, *rest),
    )
    comparison = Workbench(bags_of_rings()).compare(None)
    assert len(fitted) == 3
    assert "logistic" not in comparison.table["ae", "mean"].idxmin()


@pytest.mark.parametrize("file", [["rings.csv"], ["bags.csv", "--bag", "bag"]])
def test_methods_are_chosen_on_a_part_of_many_rows(table, file, without_networks, monkeypatch):
    monkeypatch.setattr("histnetq.workflows.fitting._MOST_ROWS", 300)
    how = ["--label", "kind", "--classifier", "bayes", "--method", "search", "--calibration", "0"]
    told = run("fit", *file, *how, "-o", "model")
    assert told.exit_code == 0, told.output
    assert re.search(r"PACC \(bayes\) on 30\d of 9\d\d rows on ", told.output)
    assert hq.load("model").provenance_["rows"] == 1200


def test_a_classifier_is_chosen_on_the_command_line(table):
    known = ["bags.csv", "--bag", "bag", "--label", "kind"]
    fit = ("fit", *known, "--method", "pacc", "--classifier", "forest", "--calibration", 0, "-o", "model")
    assert run(*fit).exit_code == 0
    assert hq.load("model").classifier == "forest"
    told = run("compare", *known, "--methods", "pacc").output
    assert re.search(r"Comparing PACC on 15 held-out bags:\n  PACC: AE 0\.\d+ after \d+ seconds?\.\n", told)
    found = json.loads(run("compare", *known, "--methods", "cc,pacc", "--classifier", "bayes", "--json").output)
    assert set(found["methods"]) == {"CC (bayes)", "PACC (bayes)", "training mean"}
    refused = run("fit", *known, "--method", "histnetq", "--classifier", "forest", "-o", "other")
    assert refused.exit_code == 2
    assert "--classifier: HistNetQ has none; leave it out, or name a method such as emq." in refused.output
    refused = run("fit", *known, "--classifier", "forrest", "-o", "other")
    assert refused.exit_code == 2
    assert "'logistic', 'forest', 'boosting', 'mlp', 'bayes'" in refused.output


def test_networks_are_bounded_in_a_choice_and_free_by_name():
    bench = Workbench(bags_of_rings())
    assert bench.make(Candidate("histnetq"), 1.0).training.minutes == 1.0
    assert bench.make(Candidate("histnetq")).training.minutes is None
    assert [c.name for c in candidates.from_labels()][-2:] == ["EMNetQ", "HistNetQ"]
    assert [c.name for c in candidates.from_proportions()] == ["LinearQ", "HistNetQ", "EMNetQ", "DeepSets"]


def test_few_bags_of_known_proportions_are_not_compared(monkeypatch):
    monkeypatch.setattr(
        "histnetq.workflows.fitting.from_proportions", lambda: [Candidate("mlpe"), Candidate("histnetq")]
    )
    bags = bags_of_rings(8)
    bare = hq.Bags(bags.rows, bags.index, bags.offsets, prevalences=bags.prevalences, classes=bags.classes.tolist())
    model, comparison = Workbench(bare).fit("auto")
    assert comparison is None
    assert model.provenance_["why"] == "MLPE was fitted without a comparison: 8 bags are too few to hold some out."
    with pytest.raises(ValueError, match="bags: expected at least 12 bags to hold some out for a comparison, got 8"):
        Workbench(bare).compare(["mlpe"])


def test_tune_searches_classifiers_or_the_parameters_of_one(table):
    known = ["tune", "bags.csv", "--bag", "bag", "--label", "kind", "--method", "pacc", "--calibration", "0"]
    assert METHODS["pacc"].space == {"classifier": list(CLASSIFIERS)}
    told = run(*known, "--trials", "2", "-o", "any")
    assert told.exit_code == 0, told.output
    assert "{'classifier': '" in told.output
    told = run(*known, "--classifier", "bayes", "--trials", "2", "-o", "one")
    assert told.exit_code == 0, told.output
    assert "{'classifier__var_smoothing': " in told.output


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_space_of_a_classifier_has_its_parameters(name):
    assert set(CLASSIFIERS[name].space) <= set(hq.EMQ(name).get_params())


def test_labelled_rows_in_no_bags(table, without_networks):
    told = run("fit", "rings.csv", "--label", "kind", "--method", "search", "-o", "model")
    assert told.exit_code == 0, told.output
    assert " on 200 bags of 100 rows drawn from 300 held-out rows:" in told.output
    assert "learned 2 classes from 1,200 rows and 2 features; kept in model." in told.output
    sentence = (
        "alibrated{} by 560 bags of 20 to 10,000 rows drawn from random halves of 1,200 rows, uniformly over all "
        "mixes: intervals hold for such bags"
    )
    assert "C" + sentence.format("") + "." in told.output
    assert "c" + sentence.format("  ") in run("info", "model").output
    q = hq.load("model")
    assert q.classifier in ("forest", "boosting")
    found = q.predict_interval(hq.APP(100).draw(hq.Bags.from_labels(*rings(4000, 5)), 200, random_state=0))
    truth = hq.APP(100).draw(hq.Bags.from_labels(*rings(4000, 5)), 200, random_state=0).prevalences
    assert found.contains(truth).mean() > 0.8


def test_rows_kept_apart_are_not_learned_from(table):
    apart = hold_out_to_calibrate(hq.read_bags("rings.csv", label="kind"), 0.25, (20, 200), 0)
    assert apart.held is not None
    assert not np.isin(apart.held.index, apart.learned.index).any()
    judged = hold_out_to_compare(apart.learned, 0)
    assert judged.held is not None
    assert not np.isin(judged.held.index, judged.learned.index).any()
    assert not np.isin(judged.held.index, apart.held.index).any()


def test_few_labelled_bags_are_judged_by_drawn_bags():
    bags = bags_of_rings(8)
    apart = hold_out_to_compare(bags, 0)
    assert len(apart.held) == 200
    assert not np.isin(apart.held.index, apart.learned.index).any()
    assert set(Workbench(bags).compare(FEW).table.index) == {"CC", "PACC", "training mean"}


def test_too_few_rows_are_not_calibrated_by(tmp_path, monkeypatch, table):
    table[:30].to_csv("few.csv", index=False)
    told = run("fit", "few.csv", "--label", "kind", "--method", "pacc", "-o", "model")
    assert told.exit_code == 0, told.output
    assert (
        "Too few rows to calibrate intervals, which needs 40, and 2 of each class: predict gives Bayesian intervals."
        in told.output
    )
    assert hq.load("model").calibration_ is None


def test_networks_learn_from_rows_in_no_bags(table):
    bags = hq.read_bags("rings.csv", label="kind")
    q = Workbench(bags).make(Candidate("histnetq"))
    q.set_params(training=hq.Training(epochs=2, bags_per_epoch=20), encoder=()).fit(bags)
    assert "drawn from" in q.split_


def test_tune_and_compare_without_bags(table):
    told = run("tune", "rings.csv", "--label", "kind", "--method", "acc", "--classifier", "bayes", "--trials", "1",
               "-o", "model")  # fmt: skip
    assert told.exit_code == 0, told.output
    assert "Calibrated by 560 bags of 20 to 10,000 rows drawn from random halves of 1,200 rows" in told.output
    found = json.loads(run("compare", "rings.csv", "--label", "kind", "--methods", "cc,acc", "--json").output)
    assert found["bags"] == 200


def test_a_whole_table_is_one_bag(table):
    assert run("fit", "rings.csv", "--label", "kind", "--method", "cc", "-o", "model").exit_code == 0
    told = run("predict", "model", "rings.csv", "-o", "estimates.csv")
    assert told.exit_code == 0, told.output
    assert "The whole table is one bag, as no --bag was given; its estimate is written to estimates.csv." in told.output
    found = pd.read_csv("estimates.csv")
    assert (found["bag"].tolist(), found["n"].tolist()) == (["all"] * 2, [1200, 1200])
    assert "The whole table is one bag, as no --bag was given." in run("predict", "model", "rings.csv").stderr


def test_a_loss_is_for_networks(table):
    refused = run("fit", "rings.csv", "--label", "kind", "--method", "cc", "--loss", "rae", "-o", "model")
    assert refused.exit_code == 2
    assert "--loss: CC is not a network and has no loss; leave it out." in refused.output


def test_proportions_need_bags(table):
    refused = run("fit", "rings.csv", "--prevalences", "known.csv", "-o", "model")
    assert refused.exit_code == 2
    assert "--bag: expected the columns that name the bags of prevalences, got none; name them." in refused.output


def test_json_is_one_line(table, without_networks):
    told = run(
        "fit", "rings.csv", "--label", "kind", "--classifier", "bayes", "--method", "search", "-o", "m", "--json"
    )
    assert told.exit_code == 0, told.output
    assert json.loads(told.output)["why"].startswith(("EMQ (bayes)", "KDEy (bayes)", "PACC (bayes)"))
