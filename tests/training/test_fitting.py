"""Training anew on everything, once the best epoch is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import histnetq as hq
from tests.conftest import QUICK, known_bags, labelled

PLAIN = dataclasses.replace(QUICK, epochs=6, lr=0.01, min_lr=0.01)
AGAIN = dataclasses.replace(PLAIN, refit=True)


def fitted(training: hq.Training, **given) -> hq.HistNetQ:
    q = hq.HistNetQ(n_bins=4, encoder=(6,), head=(8,), training=training, random_state=0)
    return q.fit(**(given or {"X": known_bags(30)}))


def weights(q) -> np.ndarray:
    return np.concatenate([w.numpy().ravel() for w in q.network_.state_dict().values()])


@pytest.mark.parametrize("given", ["bags", "bags and validation", "rows", "rows and bags"])
def test_more_is_learned_from_in_as_many_epochs(given):
    X, y = labelled()
    what = {
        "bags": {"X": known_bags(30)},
        "bags and validation": {"X": known_bags(20), "validation": known_bags(10, seed=1)},
        "rows": {"X": X, "y": y},
        "rows and bags": {"X": X, "y": y, "bags": known_bags(20), "validation": known_bags(10, seed=1)},
    }[given]
    once, twice = fitted(PLAIN, **what), fitted(AGAIN, **what)
    assert once.best_epoch_ == twice.best_epoch_
    for name in ("train_loss", "validation_loss", "lr"):
        np.testing.assert_array_equal(once.history_[name], twice.history_[name])
    assert np.abs(weights(once) - weights(twice)).max() > 1e-4
    np.testing.assert_allclose(twice.predict(known_bags()).sum(1), 1)


def test_it_is_the_training_that_takes_all_bags():
    # With a single epoch, which is the best one, and a rate that never changes.
    training = dataclasses.replace(AGAIN, epochs=1, bags_per_epoch=40)
    parts = known_bags(30), known_bags(10)
    found = fitted(training, X=parts[0], validation=parts[1])
    direct = fitted(dataclasses.replace(training, refit=False), X=hq.Bags.concat(parts), validation=parts[1])
    np.testing.assert_allclose(weights(found), weights(direct), atol=1e-6)


def test_a_start_that_is_the_best_is_made_anew():
    X, y = labelled(400)
    bags = hq.APP(30).draw(hq.Bags.from_labels(X, y), 60, random_state=0)
    training = hq.Training(epochs=2, lr=5.0, min_lr=5.0, refit=True)
    q = hq.EMNetQ(training=training, random_state=0).fit(bags)
    assert q.best_epoch_ == 0
    once = hq.EMNetQ(training=dataclasses.replace(training, refit=False), random_state=0).fit(bags)
    assert 0 < np.abs(q.predict(bags) - once.predict(bags)).max() < 0.1


def count_layers(network) -> int:
    return sum(name.startswith("encoder.0.") and w.ndim == 2 for name, w in network.state_dict().items())


def test_the_better_start_decides_about_hidden_layers(monkeypatch, tmp_path):
    monkeypatch.setattr("histnetq.training.loop.Run.starting_loss", lambda run: count_layers(run.network))
    bags = known_bags(30)
    q = hq.HistNetQ(n_bins=4, training=QUICK, random_state=0).fit(bags)
    assert count_layers(q.network_) == 1, "without hidden layers"
    q.save(tmp_path / "model")
    np.testing.assert_array_equal(hq.load(tmp_path / "model").predict(bags), q.predict(bags))


def test_a_run_that_was_cut_off_ends_alike(tmp_path):
    expected = fitted(AGAIN)
    stop = dataclasses.replace(AGAIN, checkpoint=str(tmp_path), callbacks=(lambda record: record["epoch"] == 3,))
    fitted(dataclasses.replace(stop, refit=False))
    resumed = fitted(dataclasses.replace(AGAIN, checkpoint=str(tmp_path)))
    np.testing.assert_array_equal(weights(resumed), weights(expected))
    again = fitted(dataclasses.replace(AGAIN, checkpoint=str(tmp_path)))
    np.testing.assert_array_equal(weights(again), weights(expected))


def test_a_repetition_of_another_length_is_not_gone_on_with(tmp_path):
    fitted(dataclasses.replace(AGAIN, checkpoint=str(tmp_path)))
    (tmp_path / "checkpoint.safetensors").unlink()  # as messages advise of a checkpoint that is in the way
    short = dataclasses.replace(AGAIN, epochs=2)
    again = fitted(dataclasses.replace(short, checkpoint=str(tmp_path)))
    np.testing.assert_array_equal(weights(again), weights(fitted(short)))


def test_an_interrupted_repetition_leaves_the_first_training():
    calls = []

    def loss(p_true, p_pred):
        calls.append(1)
        if len(calls) == interrupted:
            raise KeyboardInterrupt
        return (p_true - p_pred).abs().mean(-1)

    def make(training):
        q = hq.HistNetQ(n_bins=4, encoder=(6,), head=(8,), loss=loss, training=training, random_state=0)
        return q.fit(known_bags(30))

    interrupted = -1
    once = make(PLAIN)
    interrupted = 2 * len(calls) + 2  # the first training of the next one, and a little more
    message = "training interrupted during the refit on all data; the network from before the refit is kept"
    with pytest.warns(UserWarning, match=message):
        found = make(AGAIN)
    np.testing.assert_array_equal(weights(found), weights(once))


def test_validation_bags_of_another_kind_are_joined_only_to_be_learned_from():
    frame_like = known_bags(20)
    named = hq.Bags(
        frame_like.rows, frame_like.index, frame_like.offsets, prevalences=frame_like.prevalences,
        classes=frame_like.classes.tolist(), feature_names=list("wxyz"),
    )  # fmt: skip
    fitted(PLAIN, X=named, validation=known_bags(10, seed=1))
