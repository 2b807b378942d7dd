"""What is held out is drawn for training by nobody, whoever fits: structure first, then the proof on noise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from histnetq.training import fitting
from histnetq.training.supervision import Supervision
from histnetq.workflows.fitting import Workbench
from tests.conftest import NETWORKS, QUANTIFIERS, QUICK, hard_unless, labelled


def in_bags(n_bags: int, size: int = 10, seed: int = 0, **kwargs) -> hq.Bags:
    X, y = labelled(n_bags * size, seed=seed)
    return hq.Bags.from_labels(X, y, groups=np.random.default_rng(seed).permutation(len(y)) % n_bags, **kwargs)


def unlabelled_rows(bags: hq.Bags, every: int) -> hq.Bags:
    part = hq.Bags(bags.rows, bags.index, bags.offsets, prevalences=bags.prevalences, classes=bags.classes)
    part.labels = np.where(np.arange(len(bags.rows)) % every, bags.labels, -1)
    return part


GIVEN = {
    "many bags": in_bags(40),
    "few bags": in_bags(8, 30),
    "weighted bags": in_bags(40, weights=np.random.default_rng(1).integers(1, 4, 400)),
    "few weighted bags": in_bags(8, 30, weights=np.random.default_rng(1).random(240) + 0.1, weight_kind="survey"),
    "bags that share rows": hq.APP(30).draw(hq.Bags.from_labels(*labelled()), 40, random_state=0),
    "one bag": in_bags(1, 90),
}


def trained_on(monkeypatch, quantifier, given) -> tuple[set[int], set[int]]:
    """The pool rows that epochs draw from, and those that validate."""
    seen = {}
    original = fitting.Run

    def spy(network, draw, validation, *args, **kwargs):
        drawn = [draw(np.random.default_rng(epoch)) for epoch in range(20)]
        seen["learned"] = set(np.concatenate([bags.index for bags in drawn]).tolist())
        seen["held"] = set(validation.index.tolist())
        assert all(bags.rows is drawn[0].rows for bags in drawn)
        assert validation.rows is drawn[0].rows, "rows are told apart by their number in one pool"
        return original(network, draw, validation, *args, **kwargs)

    monkeypatch.setattr(fitting, "Run", spy)
    quantifier.fit(given)
    return seen["learned"], seen["held"]


@pytest.mark.parametrize("name", [name for name in NETWORKS if name in ("HistNetQ-hard", "EMNetQ-started")])
@pytest.mark.parametrize("what", GIVEN)
def test_rows_that_validate_are_never_drawn(monkeypatch, name, what):
    learned, held = trained_on(monkeypatch, QUANTIFIERS[name](), GIVEN[what])
    assert held
    assert not learned & held


def test_labelled_rows_of_held_out_bags_stay_out(monkeypatch):
    given = unlabelled_rows(in_bags(40), 3)
    learned, held = trained_on(monkeypatch, QUANTIFIERS["HistNetQ-hard"](), given)
    assert not learned & held


def test_how_it_is_split():
    kept, held = Supervision.of(GIVEN["many bags"], None, None).split(0.3, 0)
    assert (len(kept.bags), len(held.bags), held.rows) == (28, 12, None)
    assert held.how == "12 of 40 bags, whole"
    assert set(kept.rows.index) == set(kept.bags.index)
    kept, held = Supervision.of(GIVEN["few bags"], None, None).split(0.25, 0)
    assert held.bags is None
    assert held.how == "bags drawn from 60 of 240 labelled rows"
    assert set(kept.rows.index) == set(kept.bags.index)
    np.testing.assert_allclose(kept.bags.prevalences, kept.bags.label_prevalences())
    kept, held = Supervision.of(GIVEN["bags that share rows"], None, None).split(0.25, 0)
    assert held.bags is None
    kept, held = Supervision.of(unlabelled_rows(in_bags(40), 3), None, None).split(0.3, 0)
    assert len(held.bags) == 12
    assert (kept.rows.labels[kept.rows.index] >= 0).all()


def test_a_model_tells_how_it_was_split(tmp_path):
    q = QUANTIFIERS["HistNetQ-hard"]().fit(GIVEN["many bags"])
    assert q.split_ == "Validated on 12 of 40 bags, whole."
    q.save(tmp_path / "model")
    assert hq.load(tmp_path / "model").split_ == q.split_
    given = QUANTIFIERS["HistNetQ-hard"]().fit(GIVEN["many bags"], validation=GIVEN["few bags"])
    assert given.split_ == "Validated on 8 bags given for it."


def test_prevalences_that_are_given_are_kept_beside_labels():
    X, y = labelled()
    few = hq.Bags(X, offsets=np.arange(0, 121, 10), labels=np.where(np.arange(120) < 10, 0, -1), classes=list("abc"))
    few = few.with_prevalences(np.tile([0.1, 0.3, 0.6], (12, 1)))
    np.testing.assert_allclose(hq.MLPE().fit(few).predict(X), [0.1, 0.3, 0.6])
    codes = np.searchsorted(list("abc"), y)
    other = hq.Bags(X, offsets=np.arange(0, 121, 10), labels=codes, prevalences=np.tile([1.0, 0, 0], (12, 1)))
    kept, held = Supervision.of(other, None, None).split(0.3, 0)
    assert (kept.bags.prevalences == [1, 0, 0]).all()
    assert (held.bags.prevalences == [1, 0, 0]).all()
    np.testing.assert_allclose(hq.MLPE().fit(other).predict(X), [1, 0, 0])


def test_labels_of_rows_that_validate_are_forgotten():
    # A search hands on the bags that it keeps, whose rows may also be in those that it holds out.
    drawn = unlabelled_rows(hq.APP(30).draw(hq.Bags.from_labels(*labelled()), 40, random_state=0), 10)
    kept, held = Supervision.of(drawn, None, None).split(0.3, 0)
    again = Supervision.of(kept.bags, None, None)
    assert again.rows is None or not set(again.rows.index) & set(held.bags.index)
    assert drawn.labels.max() == 2, "the bags that were given stay as they are"


def test_validation_bags_have_the_columns_of_training():
    X, y = labelled()
    frame, groups = pd.DataFrame(X, columns=list("wxyz")), np.arange(120) // 10
    bags = hq.Bags.from_labels(frame, y, groups=groups)
    with pytest.raises(ValueError, match="rows: column 0 is 'z', expected 'w' as in training"):
        QUANTIFIERS["HistNetQ-hard"]().fit(bags, validation=hq.Bags.from_labels(frame[list("zyxw")], y, groups=groups))


def test_weights_of_labelled_rows_count_at_the_start():
    X, y = labelled(300)
    counts = np.where(X[:, 1] > 0, 9, 1)
    training = hq.Training(epochs=1, bags_per_epoch=4, lr=1e-12, validation_bags=5, standardize=False)

    def weights(bags):
        return hq.EMNetQ(training=training, random_state=0).fit(bags).network_.encoder[-1].weight.detach().numpy()

    plain, weighted = weights(hq.Bags.from_labels(X, y)), weights(hq.Bags.from_labels(X, y, weights=counts))
    assert np.abs(plain - weighted).max() > 1e-3


def noise(n_bags: int, size: int, seed: int) -> hq.Bags:
    """Bags of rows that tell nothing about their labels."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(2), n_bags)
    y = (rng.random((n_bags, size)) < p[:, :1]).ravel().astype(int)
    return hq.Bags.from_labels(rng.normal(size=(n_bags * size, 4)), y, groups=np.repeat(np.arange(n_bags), size))


def noise_ratio(model: hq.Quantifier) -> float:
    """Validation error over that on fresh bags, of a model of noise; QuaNet draws its validation bags by APP."""
    fresh = noise(1000, 8, seed=1)
    if isinstance(model, hq.QuaNet):
        fresh = hq.APP().draw(hq.Bags(fresh.rows, labels=fresh.labels, classes=fresh.classes), 1000, random_state=0)
    return model.validation_loss_ / hq.evaluate(model, fresh)["ae"].mean()


NOISE = {"encoder": (32,), "head": (32,)}
KINDS = {
    "histnetq": lambda **kw: hq.HistNetQ("hard", 8, **NOISE, **kw),
    "deepsets": lambda **kw: hq.DeepSets("mean", **NOISE, **kw),
    "settransformer": lambda **kw: hq.SetTransformer(8, 8, 4, 2, **NOISE, **kw),
    "emnetq": lambda **kw: hq.EMNetQ((32,), **kw),
    "quanet": lambda **kw: hq.QuaNet(hidden=8, n_steps=20, head=(32,), **kw),
}


@pytest.mark.parametrize(
    "method", hard_unless(lambda method: method in ("histnetq", "emnetq", "quanet"), [(name,) for name in KINDS])
)
def test_validation_on_noise_is_as_bad_as_fresh_bags(method):
    training = hq.Training(
        epochs=6, lr=0.01, dropout=0.0, bags_per_epoch=150, validation_bags=300, patience=99, device="cpu"
    )
    model = KINDS[method](loss="ae", training=training, random_state=0).fit(noise(1000, 8, seed=0))
    assert noise_ratio(model) >= 0.9


@pytest.mark.hard
@pytest.mark.parametrize("method", KINDS)
def test_the_command_line_validates_on_what_it_has_not_seen(method, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    bags = noise(1000, 8, seed=0)
    frame = pd.DataFrame(bags.rows[bags.index], columns=list("abcd"))
    frame.assign(bag=bags.ids[bags.bag_of_entry], y=bags.labels[bags.index]).to_csv("rows.csv", index=False)
    line = ["fit", "rows.csv", "--bag", "bag", "--label", "y", "--method", method, "--calibration", "0", "-o", "model"]
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 0, result.output
    model = hq.load("model")
    ratio = noise_ratio(model)
    with capsys.disabled():
        print(f"\n{method}: {model.split_} AE {model.validation_loss_:.4f}, {ratio:.3f} of that on fresh bags")  # noqa: T201
    assert ratio >= 0.9


def test_the_command_line_fits_as_python_does(monkeypatch):
    seen = []
    monkeypatch.setattr(hq.HistNetQ, "fit", lambda self, X, y=None, **kwargs: seen.append((X, y, kwargs)) or self)
    Workbench(GIVEN["many bags"], calibration=0).fit("histnetq")
    assert seen == [(GIVEN["many bags"], None, {})]


def test_tuning_uses_labels_and_the_same_split(monkeypatch):
    seen = []
    original = Supervision.split

    def spy(self, fraction, seed):
        seen.append(self)
        return original(self, fraction, seed)

    monkeypatch.setattr(Supervision, "split", spy)
    q = hq.HistNetQ(n_bins=4, encoder=(4,), head=(4,), training=QUICK, random_state=0)
    hq.tune(q, {"n_bins": [2, 3]}, GIVEN["many bags"], random_state=0)
    assert len(seen) == 4, "once for the search, once in each trial, once in the last fit"
    assert all(given.rows is not None and given.bags is not None for given in seen), "labels reach every fit"
    assert len(seen[1].bags) == 28, "a trial learns from what the search left it"
