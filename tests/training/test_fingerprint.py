"""Fingerprints differ for whatever would give other results."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import histnetq as hq
from histnetq.training.fingerprint import describe

FACTOR = 2.0


def power(k):
    return lambda p, q: abs(p - q) ** k


def scaled(p, q, *, k=1):
    return k * (p - q)


def scaled_twice(p, q, *, k=2):
    return k * (p - q)


scaled_twice.__qualname__ = scaled.__qualname__
late = np.zeros(5000)
late[4000] = 1


class Loss:
    def __init__(self, weights):
        self.weights = weights

    def value(self, p, q):
        return self.weights


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.zeros(5000), late),
        (np.zeros(4), np.zeros((2, 2))),
        (np.zeros(4, np.float32), np.zeros(8, np.float16)),
        (torch.zeros(5000), torch.as_tensor(late, dtype=torch.float32)),
        (lambda p, q: p - q, lambda p, q: p + q),
        (lambda p, q, k=1: k, lambda p, q, k=2: k),
        (scaled, scaled_twice),
        (power(1), power(2)),
        (functools.partial(scaled, k=1), functools.partial(scaled, k=2)),
        (Loss(np.zeros(5000)), Loss(late)),
        (Loss(1).value, Loss(2).value),
        (LogisticRegression(C=1), LogisticRegression(C=2)),
        (torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)),
        (hq.APP(10), hq.NPP(10)),
        (hq.APP(10), hq.APP(20)),
        ("1", 1),
        ((1, 23), (12, 3)),
        ({"a": 1}, {"a": 2}),
    ],
)
def test_what_differs_is_told_apart(a, b):
    assert describe(a) != describe(b)
    assert describe(a) == describe(a)


def test_a_global_number_is_part_of_a_function(monkeypatch):
    def loss(p, q):
        return FACTOR * abs(p - q)

    before = describe(loss)
    monkeypatch.setitem(loss.__globals__, "FACTOR", 3.0)
    assert describe(loss) != before


def test_another_process_says_the_same():
    code = (
        "from tests.training.test_fingerprint import *\n"
        "print(describe([power(2), scaled, Loss(late), hq.Mixer(0.25), lambda p: [q for q in p]]))"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in "ab"
    )
    assert first == second


def closing_over_modules():
    import numpy
    import torch

    return lambda p, q: numpy.abs(p - q) + torch.abs(p - q)


def test_modules_classes_and_cycles_have_a_text():
    def recursive(n):
        return recursive(n - 1)

    looped = Loss(1)
    looped.me = looped
    for value in (closing_over_modules(), torch.nn.Linear, recursive, looped, abs, np.float64(1)):
        assert describe(value) == describe(value)
    assert describe(torch.nn.Linear) != describe(torch.nn.ReLU)
