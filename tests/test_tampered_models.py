"""Thousands of altered models of every kind: each is refused in one sentence, or gives estimates on the simplex."""

from __future__ import annotations

import json
import sys
from collections import Counter

import pytest

from tests.tampering import TAMPERINGS, tally, write_models

N_CASES = 20_000  # of each kind of tampering


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    names = write_models(place)
    (place / "names.json").write_text(json.dumps(names))
    return place


def told(counts):
    """The outcomes by model, as lines."""
    names, outcomes = (sorted({pair[i] for pair in counts}) for i in (0, 1))
    lines = [f"{name:<28}" + ", ".join(f"{o} {counts[name, o]}" for o in outcomes if counts[name, o]) for name in names]
    total = Counter()
    for (_, outcome), n in counts.items():
        total[outcome] += n
    return "\n".join([*lines, f"{'all':<28}" + ", ".join(f"{o} {n}" for o, n in sorted(total.items()))])


@pytest.mark.hard
@pytest.mark.parametrize("kind", TAMPERINGS)
def test_no_altered_model_crashes_hangs_or_estimates_nonsense(models, kind, capsys):
    counts, defects = tally(models, kind, N_CASES)
    with capsys.disabled():
        sys.stdout.write(f"\n{kind}: {sum(counts.values()):,} altered models\n{told(counts)}\n")
    assert sum(counts.values()) == N_CASES
    assert not defects, "\n".join(defects[:50])
