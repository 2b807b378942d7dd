"""Ordered classes: smooth bags of five tones, and a table by the distances of ordered classes."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from click.testing import CliRunner

import histnetq as hq
from experiments import ordinal
from experiments.__main__ import main
from experiments.presets import FILES

EMOTIONS = sorted(emotion for emotions in ordinal.TONES.values() for emotion in emotions)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Rows that tell their tone, in the place of GoEmotions, and fewer bags."""
    rng = np.random.default_rng(0)
    tones = {emotion: tone for tone, emotions in enumerate(ordinal.TONES.values()) for emotion in emotions}
    y = np.arange(28 * 30) % 28
    X = rng.normal([[tones[EMOTIONS[code]], 0.0] for code in y], 0.2)
    np.savez(tmp_path / FILES["goemotions"], X=X, y=y, split=np.repeat([0, 1, 2], 280), class_names=EMOTIONS)
    for name, value in {"_SIZE": 40, "_BAGS": 14, "_VALIDATION": 6, "_TEST": 30}.items():
        monkeypatch.setattr(ordinal, name, value)
    for network in (hq.HistNetQ, hq.EMNetQ):
        monkeypatch.setattr(network, "_start", lambda self: None)
    return tmp_path


def test_every_emotion_has_one_tone_and_parts_share_no_rows(small):
    assert len(set(EMOTIONS)) == len(EMOTIONS) == 28
    data = ordinal.load(small)
    assert data.classes.tolist() == list(ordinal.TONES)
    assert [len(part) for part in (data.bags, data.validation, data.test)] == [14, 6, 30]
    rows = [set(part.index.tolist()) for part in (data.train, data.bags, data.validation, data.test)]
    assert sum(map(len, rows)) == len(set.union(*rows))
    assert all(part.labels is None for part in (data.bags, data.validation, data.test))
    np.testing.assert_allclose(data.train.gather().mean(0), 0, atol=1e-5)


def test_bags_are_the_smoothest_of_uniform_ones(small):
    data = ordinal.load(small)
    uniform = hq.APP(40).draw(hq.Bags.from_labels(np.zeros((5, 1)), range(5)), 1000, random_state=0).prevalences

    def roughness(p):
        return np.square(np.diff(p, 2, axis=1)).sum(1)

    assert roughness(data.test.prevalences).max() < np.quantile(roughness(uniform), 0.35)


def test_a_table_of_methods_by_distances_of_ordered_classes(small):
    options = ["--data", small, "--work", small / "runs", "--output", small / "out"]
    few = ["--methods", "MLPE,PACC,EMNetQ", "--trials", 1, "--epochs", 1]
    done = CliRunner().invoke(main, ["ordinal", *map(str, [*options, *few])])
    assert done.exit_code == 0, done.output
    with (small / "out/ordinal.csv").open() as file:
        found = {(row["method"], row["measure"]): float(row["mean"]) for row in csv.DictReader(file)}
    assert found.keys() == {(m, e) for m in ("MLPE", "PACC", "EMNetQ") for e in ("nmd", "macro_nmd")}
    assert found["PACC", "nmd"] < found["MLPE", "nmd"]
    assert "an analogue of LeQua 2024's T3, not LeQua" in (small / "out/ordinal.md").read_text()
    missing = CliRunner().invoke(main, ["ordinal", "--data", str(small / "none")])
    assert (missing.exit_code, "Invalid value for --data:" in missing.output) == (2, True)
