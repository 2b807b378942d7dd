"""Classifiers as plain arrays: after loading they give the same bits, and need no trust."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import histnetq as hq
from histnetq.persistence.classifier_files import from_plain, to_plain
from histnetq.quantifiers.classical import stored_posteriors as posterior_files
from tests.conftest import exactly, labelled

KINDS = {
    "logistic": LogisticRegression(C=2.0),
    "scaled": make_pipeline(StandardScaler(), LogisticRegression()),
    "scaled by deviations alone": make_pipeline(StandardScaler(with_mean=False), LogisticRegression()),
    "forest": RandomForestClassifier(7, random_state=0),
    "deep forest": make_pipeline(StandardScaler(), RandomForestClassifier(3, min_samples_leaf=1, random_state=0)),
    "extra trees": ExtraTreesClassifier(7, max_depth=3, random_state=0),
    "boosting": HistGradientBoostingClassifier(max_iter=5, random_state=0),
    "neural": make_pipeline(StandardScaler(), MLPClassifier((5, 3), tol=1e-2, max_iter=500, random_state=0)),
    "bayes": GaussianNB(),
}
LABELS = {
    "texts": lambda codes: np.array(["cod", "eel", "hake"])[codes],
    "texts as objects": lambda codes: np.array(["cod", "eel", "hake"], object)[codes],
    "whole numbers": lambda codes: np.array([7, -2, 40])[codes],
    "floats": lambda codes: np.array([1.0, 2.0, 5.0])[codes],
    "two texts": lambda codes: np.array(["cod", "eel", "eel"])[codes],
    "two numbers": lambda codes: np.array([0, 1, 1])[codes],
}


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_come_back(kind, labels):
    X, names = labelled()
    model = KINDS[kind].fit(X, LABELS[labels](np.unique(names, return_inverse=True)[1]))
    described, arrays = to_plain(model, "classifier/")
    back = from_plain(json.loads(json.dumps(described)), arrays)
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert repr(back) == repr(model)
    if hasattr(model, "decision_path"):
        np.testing.assert_array_equal(back.decision_path(X)[0].toarray(), model.decision_path(X)[0].toarray())
        np.testing.assert_array_equal(back.feature_importances_, model.feature_importances_)


@pytest.mark.parametrize("cv", [2, None])
@pytest.mark.parametrize("kind", KINDS)
def test_models_of_these_classifiers_need_no_trust(kind, cv, tmp_path):
    X, y = labelled()
    classifier = clone(KINDS[kind]) if cv else clone(KINDS[kind]).fit(X, y)
    q = hq.PACC(classifier, cv=cv, random_state=0).fit(X, y)
    q.save(tmp_path / "model")
    back = hq.load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict(X), q.predict(X))
    np.testing.assert_array_equal(back.fit(X, y).predict(X), q.predict(X))
    assert "skops" not in (tmp_path / "model" / "config.json").read_text()


def test_loading_and_info_import_no_more_than_they_need(tmp_path):
    hq.CC(random_state=0).fit(*labelled()).save(tmp_path / "model")
    code = (
        "import sys; from histnetq.cli import main; main(['info', sys.argv[1]], standalone_mode=False); "
        "sys.exit(', '.join({'torch', 'sklearn', 'numpy', 'pandas', 'scipy'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True, check=False
    )
    assert "method       CC" in found.stdout
    assert found.stderr.strip() == "", "info reads the manifest alone"
    code = "import sys, histnetq as hq; hq.load(sys.argv[1]); sys.exit('skops' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "model"], check=False).returncode == 0


def test_trees_of_missing_values_are_stored_with_their_types(tmp_path):
    X, y = labelled()
    X[::2, 0] = np.nan
    forest = RandomForestClassifier(3, random_state=0).fit(X, y)
    thresholds = np.concatenate([tree.tree_.threshold for tree in forest.estimators_])
    described = to_plain(forest)
    assert (described is None) == (not np.isfinite(thresholds).all())
    if described is not None:
        np.testing.assert_array_equal(from_plain(*described).predict_proba(X), forest.predict_proba(X))


def test_another_scikit_learn_is_told():
    described, arrays = to_plain(make_pipeline(StandardScaler(), LogisticRegression()).fit([[0.0], [1.0]], [0, 1]))
    step = described["steps"][1][1]
    assert step["scikit_learn"] == sklearn.__version__
    step["params"]["novelty"] = True
    with pytest.raises(
        ValueError, match=r"^path: the stored classifier is damaged \(LogisticRegression takes no param"
    ):
        from_plain(described, arrays)
    step["scikit_learn"] = "99.1"
    message = (
        f"path: the stored classifier was written by scikit-learn 99.1, expected one that the installed "
        f"{sklearn.__version__} can read (LogisticRegression takes no parameter 'novelty' of this value in this "
        "scikit-learn); install scikit-learn 99.1, or fit the model again."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        from_plain(described, arrays)


def test_a_classifier_is_described_once_when_it_is_stored(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(posterior_files, "to_plain", lambda *given: calls.append(1) or to_plain(*given))
    hq.CC(cv=2, random_state=0).fit(*labelled()).save(tmp_path / "model")
    assert len(calls) == 1
