"""A search finds what a loop finds, continues where it was cut off, and says what went wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import warnings

import numpy as np
import optuna
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import histnetq as hq
from histnetq.evaluation import trials
from histnetq.training.options import TrainingInterrupted
from tests.conftest import QUICK, SMALL, exactly, known_bags, labelled

RANGE = {"classifier__C": (1e-3, 10.0, "log"), "rescaling": [None, "bcts"]}


def search(trials=4, **kwargs):
    return hq.tune(hq.EMQ(cv=3), RANGE, *labelled(), trials=trials, **{"random_state": 0, **kwargs})


def suggestions(found) -> list[tuple]:
    return list(zip(found.trials["classifier__C"], found.trials["rescaling"], found.trials["value"], strict=True))


@pytest.fixture
def any_can_be_pruned(monkeypatch):
    monkeypatch.setattr(trials, "_STARTUP_TRIALS", 1)
    monkeypatch.setattr(trials, "_WARMUP_EPOCHS", 1)


def test_the_whole_grid_equals_a_loop():
    X, y = labelled()
    bags = known_bags(seed=3)
    space = {"solver": ["least-squares", "inverse"], "classifier__C": [1e-3, 1e-2, 1.0], "cv": [3]}
    given = hq.PACC(LogisticRegression(max_iter=1000), random_state=0)
    found = hq.tune(given, space, X, y, validation=bags, measure="ae")
    errors = {}
    for solver, C, cv in itertools.product(*space.values()):
        q = hq.PACC(LogisticRegression(C=C, max_iter=1000), solver=solver, cv=cv, random_state=0).fit(X, y)
        errors[solver, C, cv] = hq.metrics.ae(bags.prevalences, q.predict(bags)).mean()
    assert list(found.trials.columns) == ["number", "state", "value", *space, "seconds", "error"]
    assert isinstance(found.trials, pd.DataFrame)
    tried = zip(found.trials["solver"], found.trials["classifier__C"], found.trials["cv"], strict=True)
    assert list(tried) == list(errors)
    np.testing.assert_allclose(found.trials["value"], list(errors.values()), atol=1e-12)
    best = min(errors, key=errors.get)
    assert found.best_params == dict(zip(space, best, strict=True))
    assert found.best_value == pytest.approx(errors[best], abs=1e-12)
    q = hq.PACC(LogisticRegression(C=best[1], max_iter=1000), solver=best[0], cv=3, random_state=0).fit(X, y)
    np.testing.assert_allclose(found.quantifier.predict(bags), q.predict(bags), atol=1e-12)


def test_measures_see_the_sizes_of_bags():
    bags = known_bags(seed=3)
    found = hq.tune(hq.CC(), {"cv": [3]}, *labelled(), validation=bags, measure="rae")
    p = hq.CC(cv=3).fit(*labelled()).predict(bags)
    assert found.best_value == pytest.approx(hq.metrics.rae(bags.prevalences, p, bags.sizes).mean())
    custom = hq.tune(hq.CC(), {"cv": [3]}, *labelled(), validation=bags, measure=lambda p_true, p_pred: 7.0)
    assert custom.best_value == 7.0


def test_validation_bags_are_matched_by_class_name():
    bags = known_bags(seed=3)
    values = [
        hq.tune(hq.CC(), {"cv": [3]}, *labelled(), validation=bags.with_classes(names)).best_value
        for names in (["a", "b", "c"], ["c", "a", "b"])
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-12)


def test_rows_held_out_are_not_learned_from(monkeypatch):
    X, y = labelled()
    fitted = []
    fit = hq.CC.fit
    monkeypatch.setattr(hq.CC, "fit", lambda self, X, y=None: fitted.append(X) or fit(self, X, y))
    found = hq.tune(hq.CC(), {"cv": [2, 3]}, X, y, random_state=5)
    assert [len(rows) for rows in fitted] == [84, 84, 120]
    np.testing.assert_array_equal(fitted[0], fitted[1])
    assert fitted[2] is X
    q = hq.CC(cv=found.best_params["cv"], random_state=5).fit(X, y)
    np.testing.assert_array_equal(found.quantifier.predict(X), q.predict(X))
    fitted.clear()
    kept = hq.tune(hq.CC(), {"cv": [2, 3]}, X, y, random_state=5, refit=False)
    assert len(fitted) == 2
    assert kept.quantifier.predict(X).shape == (3,)


def test_the_same_seed_gives_the_same_trials():
    first, second, other = search(), search(), search(random_state=1)
    assert suggestions(first) == suggestions(second) != suggestions(other)
    assert len({C for C, *_ in suggestions(first)}) == 4
    assert ((first.trials["classifier__C"] >= 1e-3) & (first.trials["classifier__C"] <= 10)).all()
    assert search(random_state=None).trials["state"].tolist() == ["complete"] * 4


@pytest.mark.parametrize("kind", ["journal", pytest.param("url", marks=pytest.mark.hard)])
def test_a_search_continues_as_if_it_had_not_stopped(tmp_path, kind):
    storage = tmp_path / "sub" / "tuning.log" if kind == "journal" else f"sqlite:///{tmp_path}/tuning.db"
    whole = search(trials=12)
    search(trials=3, storage=storage)
    continued = search(trials=12, storage=storage)
    assert suggestions(continued) == suggestions(whole)
    assert continued.best_params == whole.best_params
    again = search(trials=12, storage=storage)
    pd.testing.assert_frame_equal(again.trials, continued.trials)
    X = labelled()[0]
    np.testing.assert_array_equal(again.quantifier.predict(X), whole.quantifier.predict(X))


def stored_study(storage) -> optuna.Study:
    if "://" not in str(storage):
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(storage)))
    return optuna.load_study(study_name="tune", storage=storage)


def killed(storage, **params) -> None:
    """Leave a trial behind as a process does that is killed."""
    study = stored_study(storage)
    study.sampler = optuna.samplers.GridSampler({name: [value] for name, value in params.items()})
    trial = study.ask({name: optuna.distributions.CategoricalDistribution((0, 1)) for name in params})
    trial.set_user_attr("seen", 0)


def test_a_killed_trial_does_not_count(tmp_path):
    storage = tmp_path / "tuning.log"
    search(trials=2, storage=storage)
    killed(storage)
    found = search(trials=4, storage=storage)
    assert found.trials["number"].tolist() == [0, 1, 3, 4]
    assert found.trials["state"].tolist() == ["complete"] * 4


def test_a_killed_trial_of_a_grid_is_done_again(tmp_path):
    storage = tmp_path / "tuning.log"
    space = {"solver": ["least-squares", "inverse"], "cv": [2, 3]}
    hq.tune(hq.PACC(), space, *labelled(), storage=storage)
    done = storage.read_text()
    storage.write_text(done[: done.index('"op_code":4')].rpartition("\n")[0] + "\n")  # the study alone
    killed(storage, solver=0, cv=0)
    found = hq.tune(hq.PACC(), space, *labelled(), storage=storage)
    assert found.trials["state"].tolist() == ["failed", *["complete"] * 4]
    assert found.trials["error"].tolist() == ["killed", *[""] * 4]
    tried = list(zip(found.trials["solver"], found.trials["cv"], strict=True))
    assert tried == [("least-squares", 2), *itertools.product(*space.values())]


def test_a_worker_that_was_killed_before_its_first_heartbeat(tmp_path):
    """Optuna's heartbeat of a database overlooks its trial, which must not be waited for."""
    storage = f"sqlite:///{tmp_path}/tuning.db"
    search(trials=2, storage=storage)
    killed(storage)  # its sign of life is of 1970, and in a database counts for trials without parameters alone
    found = search(trials=3, storage=storage)
    assert found.trials["number"].tolist() == [0, 1, 3]
    assert [trial.state.name for trial in stored_study(storage).trials] == ["COMPLETE", "COMPLETE", "FAIL", "COMPLETE"]


def test_a_database_has_the_heartbeat_of_optuna_and_a_journal_ours(tmp_path, monkeypatch):
    beats = []
    monkeypatch.setattr(trials.RDBStorage, "record_heartbeat", lambda self, trial_id: beats.append(self.grace_period))
    monkeypatch.setattr(trials, "_beating", lambda trial: beats.append("ours") or contextlib.nullcontext())
    search(trials=2, storage=f"sqlite:///{tmp_path}/tuning.db")
    search(trials=2, storage=tmp_path / "tuning.log")
    search(trials=2)
    assert beats == [120, 120, "ours", "ours"]


@pytest.mark.parametrize("kind", ["journal", "url"])
def test_a_trial_that_others_took_for_killed(tmp_path, kind):
    """Its worker was suspended, not killed: it goes on with other trials, and nothing counts twice."""
    storage = tmp_path / "tuning.log" if kind == "journal" else f"sqlite:///{tmp_path}/tuning.db"
    calls = itertools.count()

    def suspend(record):
        if next(calls) == 2:  # the first epoch of the second trial
            stored_study(storage).tell(1, state=optuna.trial.TrialState.FAIL)

    q = hq.HistNetQ(**{**SMALL, "training": dataclasses.replace(QUICK, callbacks=(suspend,))})
    found = hq.tune(q, {"n_bins": (2, 8)}, known_bags(), trials=3, storage=storage, random_state=0)
    assert found.trials["state"].tolist() == ["complete", "failed", "complete", "complete"]
    assert found.trials["error"].tolist() == ["", "killed", "", ""]


@pytest.mark.parametrize("ends", ["with a value", "with an error", "by an interrupt"])
def test_a_trial_that_ends_after_others_took_it_for_killed(tmp_path, monkeypatch, ends):
    storage, calls, fit = tmp_path / "tuning.log", itertools.count(), hq.CC.fit

    def suspended(self, *args):
        if next(calls) == 1:
            stored_study(storage).tell(1, state=optuna.trial.TrialState.FAIL)
            if ends != "with a value":
                raise ValueError("too late") if ends == "with an error" else KeyboardInterrupt
        return fit(self, *args)

    monkeypatch.setattr(hq.CC, "fit", suspended)
    expected = contextlib.nullcontext()
    if ends == "by an interrupt":
        expected = pytest.warns(UserWarning, match=exactly("tune: interrupted; the best parameters so far are kept."))
    with expected:
        found = hq.tune(hq.CC(), {"cv": [2, 3]}, *labelled(), storage=storage)
    left = [] if ends == "by an interrupt" else ["complete"]
    assert found.trials["state"].tolist() == ["complete", "failed", *left]
    assert found.trials["error"].tolist() == ["", "killed", *[""] * len(left)]
    assert found.trials["cv"].tolist() == [2, 3, *[3] * len(left)]


def test_torchrun_is_refused(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    message = (
        "tune: expected a process of its own, got one of 2 that torchrun started; start as many workers without it, "
        "with the same storage=."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        search()


def test_the_best_of_an_earlier_process(tmp_path):
    bags, storage = known_bags(seed=3), tmp_path / "tuning.log"
    first = search(storage=storage, validation=bags)
    without = search(storage=storage, validation=bags, refit=False)
    assert without.quantifier is None
    assert without.best_params == first.best_params
    again = search(storage=storage, validation=bags)
    np.testing.assert_array_equal(again.quantifier.predict(bags), first.quantifier.predict(bags))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"quantifier": hq.EMQ(tol=1e-3)}, "quantifier"),
        ({"quantifier": hq.PACC(), "space": {"cv": (2, 3)}}, "quantifier"),
        ({"space": {"cv": (2, 4)}}, "space"),
        ({"measure": "rae"}, "measure"),
        ({"X": labelled(seed=1)[0]}, "data"),
        ({"validation": known_bags(seed=4)}, "validation"),
    ],
)
def test_another_search_in_the_same_storage(tmp_path, change, part):
    storage = tmp_path / "tuning.log"
    X, y = labelled()
    same = {"quantifier": hq.EMQ(), "space": {"cv": (2, 3)}, "X": X, "y": y, "trials": 1, "validation": known_bags()}
    hq.tune(**same, storage=storage)
    hq.tune(**{**same, "random_state": 3, "trials": 2}, storage=storage)
    message = f"storage: {storage} holds a search 'tune' with another {part}; pass another name= or storage=."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.tune(**{**same, **change}, storage=storage)
    assert len(hq.tune(**{**same, **change}, storage=storage, name="other").trials) == 1


def test_a_network_on_bags():
    bags = known_bags()
    space = {"n_bins": [2, 4], "encoder": [(4,), (6, 5)], "training__lr": (1e-4, 1e-2, "log")}
    found = hq.tune(hq.HistNetQ(**SMALL), space, bags, trials=3, random_state=0)
    assert set(found.trials["encoder"]) <= {(4,), (6, 5)}
    assert found.quantifier.n_bins == found.best_params["n_bins"]
    assert found.quantifier.training == dataclasses.replace(QUICK, lr=found.best_params["training__lr"])
    assert found.quantifier.training.callbacks == ()
    assert found.quantifier.predict(bags).shape == (12, 3)


def test_pruning_stops_a_network_early(any_can_be_pruned):
    epochs = []
    training = dataclasses.replace(QUICK, epochs=4, callbacks=(lambda record: epochs.append(record["epoch"]),))
    worse = dataclasses.replace(training, lr=1e-12, min_lr=1e-12)  # stays as it was initialised
    better = dataclasses.replace(training, lr=0.01)
    q = hq.HistNetQ(**{**SMALL, "training": training})
    found = hq.tune(q, {"training": [better, worse]}, known_bags(), validation=known_bags(seed=1))
    assert found.trials["state"].tolist() == ["complete", "pruned"]
    assert np.isnan(found.trials["value"][1])
    assert epochs == [1, 2, 3, 4, 1]
    assert found.trials["training"][0].startswith("Training(epochs=4")
    assert found.quantifier.training.callbacks == training.callbacks
    assert found.best_params == {"training": better}


def test_losses_that_cannot_be_compared_do_not_prune(any_can_be_pruned, monkeypatch):
    monkeypatch.setattr(optuna.Trial, "should_prune", lambda trial: True)
    found = hq.tune(hq.HistNetQ(**SMALL), {"loss": ["ae", "rae"]}, known_bags())
    assert found.trials["state"].tolist() == ["complete", "complete"]


def test_every_kind_of_choice_and_range():
    X, y = labelled()
    classifiers = [LogisticRegression(), GaussianNB()]
    space = {"classifier": classifiers, "cv": (2, 4), "tol": (1e-6, 1e-3), "max_iter": (10, 1000, "log")}
    found = hq.tune(hq.EMQ(), space, X, y, trials=5, random_state=0)
    assert any(found.best_params["classifier"] is c for c in classifiers)
    assert set(found.trials["classifier"]) == {"LogisticRegression()", "GaussianNB()"}
    assert found.trials["cv"].dtype.kind == found.trials["max_iter"].dtype.kind == "i"
    assert found.trials["tol"].between(1e-6, 1e-3).all()
    distributions = {
        "cv": optuna.distributions.IntDistribution(2, 6, step=2),
        "rescaling": optuna.distributions.CategoricalDistribution([None, "ts"]),
    }
    found = hq.tune(hq.EMQ(), distributions, X, y, trials=4, random_state=0)
    assert set(found.trials["cv"]) <= {2, 4, 6}
    assert set(found.trials["rescaling"]) <= {None, "ts"}


def test_parameters_of_chosen_estimators_are_set_on_copies():
    given = LogisticRegression()
    found = hq.tune(hq.EMQ(), {"classifier": [given], "classifier__C": [0.5]}, *labelled())
    assert found.quantifier.classifier.C == 0.5
    assert given.C == 1.0


def test_a_fitted_classifier_stays_fitted():
    X, y = labelled()
    fitted = LogisticRegression().fit(X, np.unique(y, return_inverse=True)[1])
    found = hq.tune(hq.EMQ(fitted, cv=None), {"rescaling": [None, "bcts"]}, X, y)
    assert found.quantifier.classifier_ is fitted


@pytest.mark.parametrize("how", ["sparse", "one labelled bag", "labelled bags", "frame", "bags, prevalences"])
def test_every_kind_of_data(how):
    X, y = labelled()
    q, space, args = hq.CC(), {"cv": [2, 3]}, (X, y)
    if how == "sparse":
        args = (sparse.csr_matrix(X), y)
    elif how == "one labelled bag":
        args = (hq.Bags.from_labels(X, y),)
    elif how == "labelled bags":
        args = (hq.Bags.from_labels(X, y, groups=np.arange(120) // 12),)
    elif how == "frame":
        args = (pd.DataFrame(X, columns=list("wxyz")), y)
    else:
        bags = known_bags()
        q, space = hq.DeepSets(**SMALL), {"pooling": ["mean", "max"]}
        args = (hq.Bags(bags.rows, bags.index, bags.offsets), bags.prevalences)
    found = hq.tune(q, space, *args)
    assert found.trials["state"].tolist() == ["complete"] * 2
    assert found.quantifier.predict(X).shape == (3,)
    assert found.quantifier.feature_names_ == (list("wxyz") if how == "frame" else None)


def test_failed_trials_are_recorded():
    found = hq.tune(hq.EMQ(), {"rescaling": ["nonsense", None]}, *labelled())
    assert found.trials["state"].tolist() == ["failed", "complete"]
    assert found.trials["error"][0].startswith("rescaling: ")
    assert found.trials["error"][1] == ""
    assert found.best_params == {"rescaling": None}
    message = "tune: every trial failed, the first of 2 with: cv: expected at least 2 folds, a fraction between 0 and 1"
    with pytest.raises(ValueError, match=f"^{message}"):
        hq.tune(hq.CC(), {"cv": [1, 0]}, *labelled())
    message = "measure: expected a finite mean over the validation bags, got nan."
    with pytest.raises(ValueError, match=exactly(f"tune: every trial failed, the first of 1 with: {message}")):
        hq.tune(hq.CC(), {"cv": [2]}, *labelled(), measure=lambda p_true, p_pred: np.nan)


@pytest.mark.parametrize("network", [False, True])
def test_an_interrupted_search_keeps_what_it_found(tmp_path, monkeypatch, network):
    calls = itertools.count()

    def interrupt(*args):
        if next(calls) == 3:
            raise KeyboardInterrupt

    if network:  # in the second epoch of its second training, which keeps the weights of the first and goes on
        q = hq.HistNetQ(**{**SMALL, "training": dataclasses.replace(QUICK, callbacks=(interrupt,))})
        space, args = {"n_bins": [2, 3, 4]}, (known_bags(),)
        done = 1
    else:
        fit = hq.CC.fit
        monkeypatch.setattr(hq.CC, "fit", lambda self, X, y=None: interrupt() or fit(self, X, y))
        q, space, args, done = hq.CC(), {"cv": [2, 3, 4, 5]}, labelled(), 3
    with pytest.warns(UserWarning, match=exactly("tune: interrupted; the best parameters so far are kept.")):
        found = hq.tune(q, space, *args, storage=tmp_path / "tuning.log")
    assert found.trials["state"].tolist() == ["complete"] * done + ["failed"]
    assert found.trials["error"].tolist() == [""] * done + ["interrupted"]
    assert found.quantifier.predict(labelled()[0]).shape == (3,)
    again = hq.tune(q, space, *args, storage=tmp_path / "tuning.log")
    assert again.trials["state"].tolist().count("complete") == len(next(iter(space.values())))


def test_an_interrupt_is_told_by_the_category_of_the_warning_and_not_by_its_text(monkeypatch):
    fit = hq.CC.fit

    def warning(self, *args):
        warnings.warn("training interrupted, says someone else", UserWarning, stacklevel=2)
        return fit(self, *args)

    monkeypatch.setattr(hq.CC, "fit", warning)
    with pytest.warns(UserWarning, match="someone else"):
        found = hq.tune(hq.CC(), {"cv": [2]}, *labelled(), refit=False)
    assert found.trials["state"].tolist() == ["complete"]
    assert issubclass(TrainingInterrupted, UserWarning)

    def interrupted(self, *args):
        warnings.warn("in other words", TrainingInterrupted, stacklevel=2)

    monkeypatch.setattr(hq.CC, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hq.tune(hq.CC(), {"cv": [2]}, *labelled())


def test_an_interrupt_before_anything_was_found_is_not_caught(monkeypatch):
    monkeypatch.setattr(hq.CC, "fit", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        hq.tune(hq.CC(), {"cv": [2]}, *labelled())


def test_other_errors_are_not_caught():
    with pytest.raises(TypeError, match="cv: expected a number of folds"):
        hq.tune(hq.CC(), {"cv": ["three"]}, *labelled())


def test_it_is_quiet_and_leaves_optunas_verbosity_alone(capfd):
    before = optuna.logging.get_verbosity()
    found = search(trials=2)
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr() == ("", "")
    search(trials=2, progress=True)
    assert "/2 [" in capfd.readouterr().err  # the bar may be gone before it shows the last trial
    assert repr(found) == f"Tuned(best_value={found.best_value:.4g}, best_params={found.best_params}, trials=2)"


BAD_SPACE = "space: expected for cv a list of choices, (low, high), (low, high, 'log') or an Optuna distribution, got "


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"space": {"clasifier__C": [1]}},
            ValueError,
            "space: EMQ has no parameter 'clasifier__C'; did you mean classifier__C or classifier or classifier__tol?",
        ),
        (
            {"space": {"classifier__c": [1]}},
            ValueError,
            "space: EMQ has no parameter 'classifier__c'; did you mean classifier__C or classifier or classifier__tol?",
        ),
        (
            {"space": {"bins": [1]}},
            ValueError,
            "space: EMQ has no parameter 'bins'; did you mean classifier or cv or estimate or max_iter or prior or "
            "random_state or rescaling or smoothness or tol?",
        ),
        ({"space": {}}, ValueError, "space: expected a dict of parameter names and values, got {}."),
        ({"space": {"cv": []}}, ValueError, BAD_SPACE + "[]."),
        ({"space": {"cv": 3}}, ValueError, BAD_SPACE + "3."),
        ({"space": {"cv": (1, 2, 3)}}, ValueError, BAD_SPACE + "(1, 2, 3)."),
        ({"space": {"cv": (False, True)}}, ValueError, BAD_SPACE + "(False, True)."),
        ({"space": {"cv": (5, 3)}}, ValueError, "space: expected for cv low < high, got (5, 3)."),
        (
            {"space": {"tol": (0.0, 1.0, "log")}},
            ValueError,
            "space: expected for tol low < high, low > 0, got (0.0, 1.0, 'log').",
        ),
        (
            {"space": {"cv": (2, 5)}},
            ValueError,
            "trials: expected a number, as the space has ranges, got None; pass it, or lists alone.",
        ),
        ({"trials": 0}, ValueError, "trials: expected a whole number of at least 1, got 0."),
        ({"trials": True}, ValueError, "trials: expected a whole number of at least 1, got True."),
        (
            {"measure": "mae"},
            ValueError,
            "measure: expected one of ae, rae, nae, nrae, se, mse, kld, nkld, nmd, macro_nmd or a callable "
            "(p_true, p_pred), got 'mae'.",
        ),
        ({"quantifier": hq.EMQ}, TypeError, f"quantifier: expected a quantifier such as EMQ(), got {hq.EMQ!r}."),
        (
            {"random_state": -1},
            ValueError,
            "random_state: expected None or a whole number of at least 0, got -1.",
        ),
        ({"validation": 3}, TypeError, "validation: expected Bags, got int; draw some by APP()."),
        (
            {"quantifier": hq.DeepSets(training=hq.Training(checkpoint="x")), "space": {"pooling": ["mean"]}},
            ValueError,
            "quantifier: training.checkpoint is for one run, expected None in a search; pass storage= to resume one.",
        ),
        (
            {"y": None},
            TypeError,
            "y: expected a label for each row of X, got None; pass Bags with prevalences to learn without labels.",
        ),
    ],
)
def test_errors(change, error, message):
    X, y = labelled()
    with pytest.raises(error, match=exactly(message)):
        hq.tune(**{"quantifier": hq.EMQ(), "space": {"cv": [2]}, "X": X, "y": y, **change})


def test_a_storage_that_is_none(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(ValueError, match=rf"^storage: {path} cannot be used as a journal of trials \(.*\); name anoth"):
        search(storage=path)
    with pytest.raises(ValueError, match=rf"^storage: {tmp_path} cannot be used as a journal of trials"):
        search(storage=tmp_path)
    monkeypatch.setattr(trials, "_TRIES", 1)
    url = f"sqlite:///{tmp_path}/missing/tuning.db"
    with pytest.raises(ValueError, match=rf"^storage: {url} cannot be used .* \(.*unable to open.*\); name another\.$"):
        search(storage=url)


def test_without_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=exactly("tune: needs Optuna; pip install 'histnetq[tune]'.")):
        search()


def test_another_fitted_classifier_or_function_is_another_search(tmp_path):
    X, y = labelled()
    first, second = (LogisticRegression(C=1.0).fit(X[i:], y[i:]) for i in (0, 40))
    space, storage = {"random_state": [1, 2]}, tmp_path / "log"
    hq.tune(hq.PCC(first, cv=None), space, X, y, storage=storage)
    with pytest.raises(ValueError, match="holds a search 'tune' with another quantifier"):
        hq.tune(hq.PCC(second, cv=None), space, X, y, storage=storage)
    hq.tune(hq.CC(), {"cv": [2]}, X, y, storage=storage, name="f", measure=lambda t, p: abs(t - p).mean(-1))
    with pytest.raises(ValueError, match="holds a search 'f' with another measure"):
        hq.tune(hq.CC(), {"cv": [2]}, X, y, storage=storage, name="f", measure=lambda t, p: ((t - p) ** 2).mean(-1))


def test_validation_bags_with_default_class_names():
    X, y = labelled()
    bags = known_bags()
    unnamed = hq.Bags(bags.rows, bags.index, bags.offsets, prevalences=bags.prevalences)
    values = [hq.tune(hq.CC(), {"cv": [2, 3]}, X, y, validation=b).best_value for b in (bags, unnamed)]
    assert values[0] == pytest.approx(values[1], abs=1e-12)


def test_weighted_rows_are_held_out_too():
    X, y = labelled()
    weighted = hq.Bags.from_labels(X, y, weights=np.arange(120) % 3 + 1)
    found = hq.tune(hq.PACC(cv=3), {"solver": ["least-squares", "inverse"]}, weighted, random_state=0)
    assert found.trials["state"].tolist() == ["complete"] * 2
