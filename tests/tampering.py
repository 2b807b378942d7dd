"""Altered models, by the thousand: what is changed, and the process in which each one is loaded and estimates.

A case is a number. Case *i* takes the stored models in turn, alters a copy of one by a generator with the seed *i*,
writes it to a directory with the checksums that it should have, and does what a user does: `histnetq.load`, `predict`,
`predict_interval`, `trust` and `predict_rows`. Cases run in child processes, as some might crash or never end.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier

import histnetq as hq
from tests.conftest import FOLDS, QUANTIFIERS, known_bags, labelled, learn
from tests.persistence.test_tampered import forge, stored, told_by_info

SECONDS, BYTES = 10, 2 << 30  # of the processor, and of memory above what the process starts with
SENTENCE = re.compile(r"[\w .'/(){}=,-]{1,200}: [^\n]{5,800}\.", re.DOTALL)
OTHERS = {
    "PCC of a forest": lambda: hq.PCC(RandomForestClassifier(3, max_depth=3, random_state=0), **FOLDS),
    "DyS of boosting": lambda: hq.DyS(HistGradientBoostingClassifier(max_iter=2, random_state=0), **FOLDS),
    "EMQ of a neural network": lambda: hq.EMQ(MLPClassifier((4,), max_iter=5, random_state=0), **FOLDS),
    "KDEy of naive Bayes": lambda: hq.KDEy(GaussianNB(), **FOLDS),
}
SCORED = "of scores"
PROVENANCE = {
    "command": "histnetq fit t.csv",
    "why": "lowest error",
    "sources": ["t.csv"],
    "calibrated": "by 30 bags",
    "errors": {"bags": 9, "ae": {"emq": 0.1, "mean of training": 0.2}},
    "left_out": {"note": "texts"},
    "weight": "w",
    "bags": 30,
    "rows": 300,
    "calibration_bags": 30,
    "seconds": 1.5,
    "date": "2026-01-01 00:00 UTC",
    "versions": {"numpy": "2.0"},
}
GIVEN_SCORES = ("EMQ", "DyS-topsoe", "HistNetQ-unmix", "QuaNet", "MS", "ED")


def write_models(place, names=None):
    """Fit and save small models of these kinds, or of all, calibrated where they read rows; give the directory."""
    kinds = {name: partial(learn, make()) for name, make in QUANTIFIERS.items()}
    kinds |= {name: partial(make().fit, *labelled()) for name, make in OTHERS.items()}
    p = np.random.default_rng(0).dirichlet(np.ones(3), 120)
    y = np.array(list("abc"))[[np.random.default_rng(i).choice(3, p=row) for i, row in enumerate(p)]]
    kinds |= {f"{name} {SCORED}": partial(QUANTIFIERS[name]().fit_posteriors, p, y) for name in GIVEN_SCORES}
    names = sorted(kinds if names is None else names)
    for name in names:
        model = kinds[name]()
        model.provenance_ = PROVENANCE
        (model if name.endswith(SCORED) else model.calibrate(known_bags(30))).save(place / name)
    (place / "names.json").write_text(json.dumps(names))
    return place


NAN, INF = float("nan"), float("inf")
NUMBERS = [NAN, INF, -INF, -1e6, 1e308, -1e308, 1e38, 0.0, -0.0, 5e-324, 1e-30, -1.0, -1e-9, 1.0, 2.0, 0.5, 1e6, 1e9]
KINDS = ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint64", "bool"]


def tamper_arrays(rng, config, arrays):
    """Alter one array, or some."""
    names = sorted(arrays)
    if not names:
        return config, {"members/0/x": np.zeros(1)}
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        name = names[rng.integers(len(names))]
        if name in arrays:
            _ARRAY_CHANGES[rng.integers(len(_ARRAY_CHANGES))](rng, arrays, name, names)
    return config, arrays


def _set_numbers(rng, arrays, name, names):
    array = arrays[name] = arrays[name].copy()
    places = rng.integers(max(array.size, 1), size=int(rng.choice([1, 2, array.size])) if array.size else 0)
    value = NUMBERS[rng.integers(len(NUMBERS))]
    with contextlib.suppress(OverflowError, ValueError), np.errstate(all="ignore"):
        array.reshape(-1)[places] = np.array(value).astype(array.dtype)


def _set_whole_numbers(rng, arrays, name, names):
    array = arrays[name] = arrays[name].copy()
    if array.size:
        value = int(rng.choice([-1, 0, 1, 2, 3, 7, 100, 10**6, 2**31 - 1, -(2**31)]))
        with contextlib.suppress(OverflowError):
            array.reshape(-1)[rng.integers(array.size)] = np.array(value).astype(array.dtype)


def _set_kind(rng, arrays, name, names):
    with np.errstate(all="ignore"):
        arrays[name] = arrays[name].astype(KINDS[rng.integers(len(KINDS))])


def _scale(rng, arrays, name, names):
    if arrays[name].dtype.kind == "f":
        with np.errstate(all="ignore"):
            arrays[name] = (arrays[name] * rng.choice([-1.0, 0.0, 1e-30, 1e10, 1e30, 1e300])).astype(arrays[name].dtype)


def _shuffle(rng, arrays, name, names):
    arrays[name] = rng.permutation(arrays[name].reshape(-1)).reshape(arrays[name].shape)


def _reshape(rng, arrays, name, names):
    array = arrays[name]
    shapes = [array.reshape(-1), array[None], array[..., None], np.atleast_1d(array)[:0], array.T]
    arrays[name] = shapes[rng.integers(len(shapes))]


def _resize(rng, arrays, name, names):
    array = np.atleast_1d(arrays[name])
    axis = int(rng.integers(array.ndim))
    whole = [slice(None)] * array.ndim
    whole[axis] = slice(0, -1)
    longer = np.concatenate([array, array], axis=axis)
    arrays[name] = array[tuple(whole)] if rng.integers(2) else longer


def _remove(rng, arrays, name, names):
    del arrays[name]


def _swap(rng, arrays, name, names):
    other = names[rng.integers(len(names))]
    if other in arrays:
        arrays[name], arrays[other] = arrays[other], arrays[name]


_ARRAY_CHANGES = [
    _set_numbers,
    _set_numbers,
    _set_numbers,
    _set_whole_numbers,
    _set_kind,
    _scale,
    _shuffle,
    _reshape,
    _resize,
    _remove,
    _swap,
]


def _deep(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


WHOLE = [0, 1, 2, 3, -1, 7, 100, 1000, 10**6, 10**9, 10**15, 2**31, 2**63, 10**30, -(10**9)]
PARTS = [0.5, -0.5, 1.5, 1e-9, 1e-320, 1e308, -1e308, NAN, INF, -INF]
TEXTS = [
    *"ab",
    "",
    "auto",
    "mean",
    "median",
    "unmix",
    "bcts",
    "hellinger",
    "hard",
    "inverse",
    "max",
    "rbf",
    "forest",
    "meta",
    "cuda:7",
    "a" * 100_000,
]
LISTS = [[], [0], [1], [2, 3], [1] * 300, [8, 6], [10**9], ["a"], [None], _deep(60), _deep(300)]
MAPPINGS = [
    {},
    {"a": 1},
    {"type": "Training", "fields": {}},
    {"type": "APP", "fields": {"bag_size": 10**12}},
    {"type": "Dirichlet", "fields": {"alpha": -1}},
    {"type": "Combined", "fields": {"rows": 1}},
    {"type": "os.system", "fields": {}},
    {"type": "CostSensitiveAE", "fields": {"weights": [1, 2]}},
    {"quantifier": "EMQ", "params": {"max_iter": 10**15, "tol": 0}},
    {"quantifier": "HDx", "params": {}},
    {"quantifier": "Ensemble", "params": {"members": [{"quantifier": "CC", "params": {}}] * 5}},
    {"custom": "Thing"},
    {"quantifier": "QuaNet", "params": {"n_steps": 10**9}},
    {"skops": "AAAA"},
    {"skops": 7},
    {"sklearn": {"type": "GaussianNB", "params": {}, "prefix": ""}},
    {"sklearn": {"type": "Pipeline", "steps": []}},
]
VALUES = [None, True, False, *WHOLE, *PARTS, *TEXTS, *LISTS, *MAPPINGS]


def tamper_params(rng, config, arrays):
    """Alter parameters; or what was learned, or any other entry of the manifest."""
    for _ in range(int(rng.choice([1, 1, 1, 2]))):
        part = rng.choice(["params", "params", "params", "learned", "all"])
        places = list(_places(config.get(str(part), config)))
        if places:
            holder, key = places[rng.integers(len(places))]
            _CONFIG_CHANGES[rng.integers(len(_CONFIG_CHANGES))](rng, holder, key, places)
    return config, arrays


def _places(part):
    """Each place in a description: what holds it, and its key there."""
    waiting = [part] if isinstance(part, dict | list) else []
    while waiting:
        holder = waiting.pop()
        for key in list(holder) if isinstance(holder, dict) else range(min(len(holder), 5)):
            yield holder, key
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])


def _replace(rng, holder, key, places):
    holder[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])


def _exchange(rng, holder, key, places):
    other, name = places[rng.integers(len(places))]
    holder[key], other[name] = copy.deepcopy(other[name]), copy.deepcopy(holder[key])


def _drop(rng, holder, key, places):
    del holder[key]


def _wrap(rng, holder, key, places):
    holder[key] = [holder[key]] if rng.integers(2) else {"fields": holder[key]}


def _add(rng, holder, key, places):
    if isinstance(holder, dict):
        holder[str(rng.choice(["no_such", "memory", "n_jobs", "random_state", "callbacks"]))] = 1
    else:
        holder.append(copy.deepcopy(holder[key]))


_CONFIG_CHANGES = [_replace, _replace, _replace, _replace, _replace, _exchange, _drop, _wrap, _add]


def plant(rng, config, arrays):
    """Alter nothing, and let the case after this loop, crash or fill memory, by the number that the generator gives."""
    planted = [_loop, os.abort, lambda: bytearray(3 * BYTES)][int(rng.integers(3))]
    hq.load = lambda path: planted()
    return config, arrays


def _loop():
    while True:
        pass


TAMPERINGS = {"arrays": tamper_arrays, "parameters": tamper_params, "planted": plant}


def outcome_of(path, bags):
    """Load a model and let it estimate; say what came of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            step = "info"
            told_by_info(path)
            step = "load"
            q = hq.load(path)
            step = "predict"
            estimates = q.predict(bags)
            if not _is_on_simplex(estimates, (len(bags), len(q.classes_))):
                return "OFF THE SIMPLEX"
            for step in ("predict_interval", "trust", "predict_rows"):
                _also(q, step, bags)
    except (ValueError, TypeError, FileNotFoundError) as error:
        if not SENTENCE.fullmatch(str(error)):
            return f"NO SENTENCE in {step}: {type(error).__name__}: {str(error)[:300]}"
        return "refused by load" if step == "load" else f"refused by {step}"
    except BaseException as error:
        return f"UNCAUGHT in {step}: {type(error).__name__}: {str(error)[:300]}"
    return "estimated"


def _also(q, step, bags):
    if step == "predict_interval" and q.calibration_ is not None:
        found = q.predict_interval(bags, 0.8)
        if not np.isfinite(found.lower + found.upper).all():
            raise ArithmeticError("intervals are not finite")
    elif step == "trust" and q.trust_ is not None:
        q.trust(bags)
    elif step == "predict_rows" and (hasattr(q, "training_posteriors_") or isinstance(q, hq.EMNetQ)):
        found = q.predict_rows(bags)
        if not _is_on_simplex(found, (len(bags.index), len(q.classes_))):
            raise ArithmeticError("probabilities of rows are off the simplex")


def _is_on_simplex(p, shape):
    return p.shape == shape and bool((p >= -1e-6).all() and (np.abs(p.sum(1) - 1) <= 1e-6).all())


def run_cases(place, kind, numbers, seed, say, limit=lambda: None):
    """Run cases in this process; say each number before its case, and the outcome after it."""
    names = json.loads((place / "names.json").read_text())
    originals = {name: stored(place / name) for name in names}
    X, p = labelled(16)[0], np.random.default_rng(0).dirichlet(np.ones(3), 16)
    of_rows, of_scores = (hq.Bags.from_arrays([rows[:8], rows[8:]]) for rows in (X, p))
    bags = {name: of_scores if name.endswith(SCORED) else of_rows for name in names}
    for name in names:  # code is compiled, and torch imported, before time and memory are counted
        found = outcome_of(place / name, bags[name])
        if found != "estimated":
            raise RuntimeError(f"{name}: {found}")
    here = place / f"case-{os.getpid()}"
    for i in numbers:
        name = names[i % len(names)]
        config, arrays = copy.deepcopy(originals[name][0]), dict(originals[name][1])
        config, arrays = TAMPERINGS[kind](np.random.default_rng([seed, i]), config, arrays)
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(place / name, here)
        _write(here, config, arrays)
        limit()
        say(i)
        say(outcome_of(here, bags[name]))
    shutil.rmtree(here, ignore_errors=True)


class Limits:
    """Limits of a case in a child process: seconds of the processor, and memory above what it has before the first."""

    def __init__(self):
        self.memory = None

    def __call__(self):
        if self.memory is None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            self.memory = pages * resource.getpagesize() + BYTES
            resource.setrlimit(resource.RLIMIT_AS, (self.memory, -1))
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + SECONDS + 1, -1))


def main(place, kind, first, last, seed):
    """Run cases in a child process."""
    run_cases(Path(place), kind, range(int(first), int(last)), int(seed), _say, Limits())


def _write(path, config, arrays):
    """Write an altered model; what cannot be a manifest at all is written as it is."""
    original = stored(path)[0]
    names = {"weights": original["weights"], "weights_sha256": original["weights_sha256"]}
    forge(path, {**config, **{name: config.get(name, value) for name, value in names.items()}} | names, arrays)


def _say(what):
    sys.stdout.write(" ".join(str(what).split()) + "\n")
    sys.stdout.flush()


def is_defect(outcome):
    """Whether an outcome is one that no altered model may have; such outcomes begin with capitals."""
    return outcome[:3].isupper()


def tally(place, kind, n_cases, seed=0, n_processes=2):
    """Run cases in child processes; count the outcomes by model, and list those that are defects."""
    names = json.loads((place / "names.json").read_text())
    edges = np.linspace(0, n_cases, n_processes + 1).astype(int).tolist()
    parts = [range(a, b) for a, b in itertools.pairwise(edges)]
    with ThreadPoolExecutor(n_processes) as pool:
        found = dict(itertools.chain(*pool.map(lambda part: run_apart(place, kind, part, seed), parts)))
    counts = Counter((names[i % len(names)], outcome.partition(":")[0]) for i, outcome in found.items())
    defects = [f"case {i}, {names[i % len(names)]}: {o}" for i, o in sorted(found.items()) if is_defect(o)]
    return counts, defects


def run_apart(place, kind, numbers, seed):
    """Run cases in a child process, and in another one from the next case on where the first has ended in a case."""
    found = []
    while numbers:
        args = [place, kind, numbers.start, numbers.stop, seed]
        ended = subprocess.run(
            [sys.executable, "-m", "tests.tampering", *map(str, args)],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[1],
        )
        lines = ended.stdout.splitlines()
        found += [(int(i), outcome) for i, outcome in zip(lines[::2], lines[1::2], strict=False)]
        if ended.returncode == 0:
            break
        if len(lines) % 2 == 0:
            raise RuntimeError(f"the child ended between two cases: {ended.stderr[-2000:]}")
        why = "HUNG" if ended.returncode == -signal.SIGXCPU else f"CRASHED: {ended.returncode}"
        found.append((int(lines[-1]), f"{why} {' '.join(ended.stderr.split())[-300:]}"))
        numbers = range(int(lines[-1]) + 1, numbers.stop)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
