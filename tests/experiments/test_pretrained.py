"""Pretrained against other methods on development tables, and how it is pretrained."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from experiments import development_scores, known_densities, pretrained
from experiments.development_tables import DevelopmentTable
from experiments.pretrained_stack import compare_stacks
from experiments.pretraining import described, draw_mixes, simulate_scores, train
from histnetq.quantifiers.classical.cell_tokens import N_NUMBERS
from histnetq.quantifiers.classical.pretrained_network import read_networks
from tests.conftest import labelled


def table() -> DevelopmentTable:
    X, y = labelled(240, 2)
    return DevelopmentTable("small", X.astype(np.float32), np.unique(y, return_inverse=True)[1])


def test_finished_tables_are_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(development_scores, "CLASSIFIERS", ("logistic",))
    monkeypatch.setattr(development_scores, "LABELS", (50,))
    monkeypatch.setattr(pretrained, "SIZES", (20,))
    for _ in range(2):
        development_scores.write_scores([table()], 1, tmp_path / "scores", str)
        found = pretrained.run_all(tmp_path / "scores", 1, tmp_path / "found", 4, True)
        monkeypatch.setattr(pretrained, "run", None)  # is not called again
        monkeypatch.setattr(development_scores, "_scored", None)
    assert set(found["mix"]) == set(pretrained.MIXES)
    assert {"Pretrained", "Pretrained, bags", *pretrained.RIVALS} == set(found["method"])
    own = found[found["method"] == "Pretrained"]
    assert own["inside"].notna().all()
    assert (own["score"] >= own["width"]).all()
    assert list(pretrained.summary(found)["tables"]) == [1] * 5 + [0]
    assert len(pretrained.means(found)) == len(pretrained.MIXES) * (len(pretrained.RIVALS) + 2)
    assert len(pretrained.facts(found)) == len(pretrained.MIXES)
    assert (pretrained.intervals_by(found, "size")["coverage"] > 0.3).all()
    assert list(pretrained.worst_tables(found)["table"]) == ["small"]


def test_the_best_method_is_chosen_on_the_first_half_of_the_bags():
    about = {"table": "a", "classes": 2, "seed": 0, "labels": 50, "classifier": "c", "size": 9, "mix": "uniform"}
    rows = [{**about, "method": name, "first": 0.2, "second": 0.1} for name in pretrained.CLASSICAL[1:]]
    rows.append({**about, "method": pretrained.CLASSICAL[0], "first": 0.1, "second": 0.4})
    rows.append({**about, "method": "Pretrained", "first": 9.0, "second": 0.2})
    assert pretrained.hindsight(pd.DataFrame(rows))[0] == pytest.approx(0.5, abs=2e-3)


def test_a_stack_is_compared_with_the_best_classifier(tmp_path, monkeypatch):
    monkeypatch.setattr(development_scores, "CLASSIFIERS", ("logistic", "bayes"))
    monkeypatch.setattr(development_scores, "LABELS", (0,))
    development_scores.write_scores([table()], 1, tmp_path, str)
    found = compare_stacks(tmp_path, 4)
    assert list(found["fits"]) == [1, 1]
    assert found["AE, all fits"].between(0.2, 5).all()


def test_many_rows_have_the_errors_of_known_densities(monkeypatch):
    monkeypatch.setattr(known_densities, "_LABELLED", 20_000)
    monkeypatch.setattr(known_densities, "_SIZES", (500, 20_000))
    assert known_densities.relative_errors(20, (2, 4))["ratio"].max() < 1.2


def test_ratios_are_geometric_means_over_tables():
    rows = [
        {"table": name, "classes": 2, "seed": 0, "labels": 50, "classifier": "c", "size": 9, "mix": "uniform",
         "method": method, "ae": ae}
        for name, ratio in (("a", 0.5), ("b", 2.0)) for method, ae in (("Pretrained", ratio), ("KDEy", 1.0))
    ]  # fmt: skip
    assert pretrained.ratios(pd.DataFrame(rows), "KDEy")[0] == pytest.approx(1, abs=2e-3)


def test_few_labels_have_rows_of_every_class():
    rows, test = development_scores.choose_labelled(table(), 10, 0)
    assert len(rows) == 10
    assert np.bincount(table().labels[rows]).min() >= 3
    assert not set(rows) & set(test)
    assert development_scores.choose_labelled(table(), 4, 0) is None


def test_described_tasks_are_what_the_network_reads():
    rng = np.random.default_rng(0)
    found = described(simulate_scores(0, 3), rng, 100.0)
    assert found["numbers"].shape[2] == N_NUMBERS
    assert all(np.isfinite(values).all() for values in found.values())
    np.testing.assert_allclose(found["target"].sum(1), 1, atol=1e-5)
    mixes, priors = draw_mixes(rng, 200, np.array([0.9, 0.1]))
    np.testing.assert_allclose(mixes.sum(1), 1)
    assert 0.5 < (priors == 1).all(1).mean() < 0.95


def test_the_network_of_the_package_is_the_network_that_is_trained(tmp_path):
    torch = pytest.importorskip("torch")
    from experiments.pretraining import DescribedBags, apply_network, make_network
    from histnetq.quantifiers.classical import pretrained_network
    from histnetq.quantifiers.classical.cell_tokens import Described

    bags = described(simulate_scores(0, 3), np.random.default_rng(0), 100.0)
    layers = make_network(64)
    network = read_networks()[0]
    layers.load_state_dict({name: torch.as_tensor(values, dtype=torch.float32) for name, values in network.items()})
    given = DescribedBags(**{name: torch.as_tensor(values) for name, values in bags.items()})
    expected = [values.detach().numpy() for values in apply_network(layers, given)]
    known = {name: bags[name].astype(np.float64) for name in ("numbers", "levels", "unit", "sizes")}
    own = pretrained_network._apply(network, Described(expected=known["levels"], covariances=np.empty(0), **known))
    assert expected[0].shape[1] > 2  # two classes are made opposite later
    wider = pretrained_network.WIDER
    for found, wanted in zip(own, (expected[0], wider * expected[1], wider * expected[2]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def test_training_writes_the_best_weights(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    (tmp_path / "bags").mkdir()
    for shard in range(13):
        one = described(simulate_scores(0, shard), rng, 60.0)
        np.savez(tmp_path / "bags" / f"bags-0-{shard:05d}.npz", **{f"0/{name}": v for name, v in one.items()})
    monkeypatch.setattr("experiments.pretraining._REPORT", 2)
    train([tmp_path / "bags"], tmp_path / "w.safetensors", 0.02, 8)
    assert load_file(tmp_path / "w.safetensors")["first.weight"].shape == (8, N_NUMBERS)
    assert (tmp_path / "w.json").exists()
