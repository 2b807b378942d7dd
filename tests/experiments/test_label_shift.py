"""The experiment on label shift: draws by its protocol, methods that get the same rows, and errors of the weights."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.special import softmax

import histnetq as hq
from experiments import label_shift
from experiments.__main__ import main
from histnetq.datasets import Examples

N_CLASSES = 4
SIZES = (150, 300)


@pytest.fixture
def scored(monkeypatch):
    """Normal classes, and a classifier that is too sure of itself and too fond of the first class."""
    monkeypatch.setattr(label_shift, "SIZES", SIZES)
    rng, labels = np.random.default_rng(0), np.arange(2000) % N_CLASSES
    points = rng.normal(size=(2000, N_CLASSES)) + 1.5 * np.eye(N_CLASSES)[labels]
    p = softmax(3 * points + [2, 0, 0, 0], axis=1)
    parts = (hq.Bags(p[part], labels=labels[part], classes=range(N_CLASSES)) for part in (slice(800), slice(800, None)))
    return label_shift.Scored(*parts)


def test_draws_follow_the_protocol(scored):
    draws, again = label_shift.draw_all(scored, 3, seed=1), label_shift.draw_all(scored, 3, seed=1)
    assert [len(draw.labels) for draw in draws] == [150] * 3 + [300] * 3
    assert not np.array_equal(draws[0].posteriors, draws[1].posteriors)
    for draw, same in zip(draws, again, strict=True):
        assert len(np.unique(draw.posteriors, axis=0)) == len(draw.labels), "no row twice"
        np.testing.assert_array_equal(draw.posteriors, same.posteriors)
        np.testing.assert_array_equal(draw.test.index, same.test.index)
        assert draw.test.sizes.tolist() == [len(draw.labels)] * len(label_shift.SHIFTS)
        labels = scored.test.labels[draw.test.index].reshape(len(draw.test), -1)
        shares = np.array([np.bincount(own, minlength=N_CLASSES) for own in labels]) / len(draw.labels)
        np.testing.assert_allclose(shares, draw.test.prevalences)
        np.testing.assert_allclose(shares[-2:, 3], [0.01, 0.9], atol=1 / 150)
        assert np.ptp(shares[-2:, :3], axis=1).max() <= 1.01 / len(draw.labels), "the others share the rest"
    mixes = np.array([draw.test.prevalences for draw in label_shift.draw_all(scored, 40, seed=0)])
    spread = mixes.std(axis=(0, 2))
    assert spread[0] > spread[1] > spread[2] > spread[3] > 0.05, "the larger α, the smaller the shift"


def test_methods_learn_from_the_same_rows_as_they_do_alone(scored):
    draw = label_shift.draw_all(scored, 1, seed=0)[1]
    found = {name: method(draw) for name, method in label_shift.METHODS.items()}
    for name, p in found.items():
        assert p.shape == (len(label_shift.SHIFTS), N_CLASSES)
        np.testing.assert_allclose(p.sum(1), 1, err_msg=name)
    for kind in ("ts", "bcts", "vs"):
        alone = label_shift._learned(hq.EMQ(rescaling=kind))(draw)
        np.testing.assert_allclose(found[f"EMQ-{kind.upper()}"], alone, atol=1e-6)
    # Biases bring mean posteriors to the part of each class, so that the two priors are one.
    np.testing.assert_allclose(found["EMQ-BCTS"], label_shift._by_mean_posteriors("bcts")(draw), atol=1e-3)
    assert np.abs(found["EMQ"] - found["EMQ-mean-prior"]).max() > 0.01
    rows = hq.Bags(draw.posteriors, labels=draw.labels, classes=range(N_CLASSES))
    rows.scores = rows.classes
    members = [found[name] for name in label_shift.COMBINED["Ensemble"]]
    np.testing.assert_allclose(hq.Ensemble().fit(rows).predict(draw.test), np.mean(members, axis=0), atol=1e-6)


def test_errors_of_weights_and_what_calibration_is_worth(scored, tmp_path):
    images = Examples("images", *(hq.Bags(np.zeros((2, 28, 28))) for _ in range(2)))
    scores = [scored, scored]
    draws = [label_shift.draw_all(own, 8, seed) for seed, own in enumerate(scores)]
    told: list[str] = []
    runs = label_shift.learn(images, "cnn", draws, ["EMQ", "EMQ-BCTS"], tmp_path, told.append)
    errors = label_shift.errors_of(draws, runs)
    assert errors.columns.get_level_values("method").unique().tolist() == ["EMQ", "EMQ-BCTS"]
    assert len(errors) == 2 * len(SIZES) * 8 * len(label_shift.SHIFTS)
    second = draws[1][9]  # of classifier 1, the second draw of the larger size
    weights = label_shift.METHODS["EMQ"](second) / second.prior - second.test.prevalences / second.prior
    part = errors.loc[1, 300, 1]
    np.testing.assert_allclose(part["EMQ", "mse"], (weights**2).mean(1))
    np.testing.assert_allclose(part["EMQ", "ae"], np.abs(weights * second.prior).mean(1))
    found = label_shift.against(errors, "EMQ-BCTS").set_index("method").loc["EMQ"]
    assert found["ratio"] > 2
    assert found[["better", "worse", "neither"]].sum() == len(SIZES) * len(label_shift.SHIFTS)
    assert found["better"] == 0
    assert found["worse"] > found["neither"]
    calibrated = label_shift.calibration_errors(scores, draws).set_index(["size", "calibration"])
    assert calibrated.loc[(300, "BCTS"), "ece"] < 0.5 * calibrated.loc[(300, "none"), "ece"]
    nll = calibrated.loc[300, "nll"]
    assert nll["BCTS"] < nll["TS"] < nll["none"]


def test_label_shift_is_a_command_that_repeats_nothing(scored, tmp_path, monkeypatch):
    pool = np.zeros((900, 28, 28), np.uint8)
    labels = np.concatenate([np.zeros(100, int), scored.held.labels])
    classes = list("abcd")
    train, held = (hq.Bags(pool, rows, labels=labels, classes=classes) for rows in np.split(np.arange(900), [100]))
    test = hq.Bags(np.zeros((1200, 28, 28), np.uint8), labels=scored.test.labels, classes=classes)
    posteriors = np.concatenate([np.full((100, N_CLASSES), 0.25), scored.held.rows])
    encoded = {"train_posteriors": posteriors, "test_posteriors": scored.test.rows}
    monkeypatch.setattr(
        "experiments.fashion_mnist.read_fashion_mnist", lambda folder: Examples("images", train, test, held)
    )
    paths = []
    monkeypatch.setattr(label_shift, "encoded_images", lambda data, path, say, seed: paths.append(path.name) or encoded)
    options = [
        "--classifier",
        "cnn",
        "--draws",
        "3",
        "--seeds",
        "2",
        "--work",
        str(tmp_path / "runs"),
        "--output",
        str(tmp_path),
    ]
    first = CliRunner().invoke(main, ["label-shift", *options, "--methods", "EMQ-BCTS,KDEy"])
    assert first.exit_code == 0, (first.output, first.exception)
    assert paths == ["images.npz", "images-1.npz"]
    second = CliRunner().invoke(main, ["label-shift", *options, "--methods", "KDEy,PACC,BBSE-hard"])
    assert second.exit_code == 0, (second.output, second.exception)
    assert second.output.count("done before") == 2 + 4 * 2, "KDEy, and four calibrations"
    table = pd.read_csv(tmp_path / "label-shift-cnn.csv")
    methods = ["EMQ-BCTS", "BBSE-hard", "PACC", "KDEy", "Ensemble"]
    assert table["method"].drop_duplicates().tolist() == methods
    assert len(table) == len(methods) * 2 * len(list(itertools.product(SIZES, label_shift.SHIFTS)))
    assert (table["draws"] == 6).all()
    means = table[["mean, classifier 0", "mean, classifier 1"]].mean(axis=1)
    np.testing.assert_allclose(table["mean"], means, atol=1e-7)
    text = (tmp_path / "label-shift-cnn.md").read_text()
    assert "`python -m experiments label-shift --classifier cnn --seeds 2 --draws 3`" in text
    assert f"test accuracy {scored.accuracy:.4f}, {scored.accuracy:.4f}." in text
    assert "AE of the prevalences, n = 300:" in text
    refused = CliRunner().invoke(main, ["label-shift", "--methods", "magic"])
    assert refused.exit_code == 2
    assert "Invalid value for --methods: 'magic' is none of EMQ, EMQ-TS" in " ".join(refused.output.split())


def test_a_dense_classifier_is_trained_once(tmp_path, monkeypatch):
    labels = np.arange(600) % N_CLASSES
    pool = np.random.default_rng(0).integers(100, size=(600, N_CLASSES, 7, 28))
    pool[np.arange(600), labels] += 100  # a quarter of each image is bright
    pool = pool.reshape(600, 28, 28)
    parts = np.split(np.arange(600), 3)
    bags = [hq.Bags(pool.astype(np.uint8), rows, labels=labels, classes=list("abcd")) for rows in parts[:2]]
    test = hq.Bags(pool[parts[2]].astype(np.uint8), labels=labels[parts[2]], classes=list("abcd"))
    images = Examples("images", bags[0], test, bags[1])
    told: list[str] = []
    first = label_shift.scored_images(images, "dense", 1, tmp_path, told.append)
    assert told == [f"classifier 1: test accuracy {first.accuracy:.4f}"]
    assert first.accuracy > 0.9
    np.testing.assert_array_equal(first.held.labels, labels[parts[1]])
    monkeypatch.setattr(label_shift, "MLPClassifier", None)
    again = label_shift.scored_images(images, "dense", 1, tmp_path, told.append)
    np.testing.assert_array_equal(first.test.rows, again.test.rows)
