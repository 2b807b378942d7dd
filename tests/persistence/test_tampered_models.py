"""Thousands of altered models of every kind: each is refused in one sentence, or gives estimates on the simplex."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.tampering import is_defect, run_apart, run_cases, tally, write_models

N_CASES, FEW = 20_000, 150  # of each kind of tampering
QUICK = (
    "ACC",
    "DyS-topsoe",
    "EDx",
    "EMNetQ",
    "EMQ",
    "Ensemble",
    "HDx",
    "HistNetQ-soft",
    "KDEy",
    "MS",
    "PCC of a forest",
    "QuaNet",
    "ReadMe",
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A directory with a model of every kind."""
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def some_models(tmp_path_factory):
    """A directory with models of some kinds."""
    return write_models(tmp_path_factory.mktemp("some"), QUICK)


@pytest.mark.parametrize("kind", ["arrays", "parameters"])
def test_few_altered_models_are_refused_or_estimate(some_models, kind):
    said = []
    run_cases(some_models, kind, range(FEW), 1, said.append)
    assert said[::2] == list(range(FEW))
    assert [outcome for outcome in said[1::2] if is_defect(outcome)] == []
    assert {"estimated", "refused by load"} <= set(said[1::2]), "some are altered where it does not matter"


@pytest.mark.hard
def test_endless_loops_crashes_and_lack_of_memory_are_noticed(some_models):
    found = [outcome.partition(" ")[0] for _, outcome in run_apart(some_models, "planted", range(3), seed=2)]
    assert found == ["UNCAUGHT", "HUNG", "CRASHED:"]


def told(counts):
    """The outcomes by model, as lines."""
    names, outcomes = (sorted({pair[i] for pair in counts}) for i in (0, 1))
    lines = [f"{name:<28}" + ", ".join(f"{o} {counts[name, o]}" for o in outcomes if counts[name, o]) for name in names]
    total = Counter()
    for (_, outcome), n in counts.items():
        total[outcome] += n
    return "\n".join([*lines, f"{'all':<28}" + ", ".join(f"{o} {n}" for o, n in sorted(total.items()))])


@pytest.mark.hard
@pytest.mark.parametrize("kind", ["arrays", "parameters"])
def test_no_altered_model_crashes_hangs_or_estimates_nonsense(models, kind, capsys):
    counts, defects = tally(models, kind, N_CASES)
    with capsys.disabled():
        sys.stdout.write(f"\n{kind}: {sum(counts.values()):,} altered models\n{told(counts)}\n")
    assert sum(counts.values()) == N_CASES
    assert not defects, "\n".join(defects[:50])
