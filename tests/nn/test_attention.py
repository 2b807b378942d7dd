import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from histnetq.nn import ISAB, MAB, PMA, SAB, SetAttention
from tests.conftest import exactly

law = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)
BLOCKS = {"SAB": lambda: SAB(3, 8, 2), "ISAB": lambda: ISAB(3, 8, 2, 5)}
every_block = pytest.mark.parametrize("name", BLOCKS)


pytestmark = pytest.mark.usefixtures("same_layers")


def close(a, b):
    return torch.allclose(a, b, rtol=0, atol=1e-12)


def draw(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_block
@law
@given(seed=seeds, n=st.integers(1, 9))
def test_blocks_move_with_their_rows(name, seed, n):
    block, rows = BLOCKS[name]().double(), draw((2, n, 3), seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    bias = draw((2, n), seed)
    assert close(block(rows[:, order]), block(rows)[:, order])
    assert close(block(rows[:, order], bias[:, order]), block(rows, bias)[:, order])


@law
@given(seed=seeds, n=st.integers(1, 9))
def test_pooling_by_attention_ignores_the_order(seed, n):
    block, rows = PMA(4, 2, n_seeds=3).double(), draw((2, n, 4), seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    assert close(block(rows[:, order]), block(rows))


@pytest.mark.parametrize("block", [BLOCKS["SAB"], BLOCKS["ISAB"], lambda: PMA(3, 1)])
@law
@given(seed=seeds, n=st.integers(1, 6), n_padding=st.integers(1, 4))
def test_padding_is_not_seen(block, seed, n, n_padding):
    block, rows = block().double(), draw((2, n + n_padding, 3), seed)
    bias = torch.zeros((2, n + n_padding), dtype=torch.float64)
    bias[:, n:] = -math.inf
    alone = block(rows[:, :n])
    assert close(block(rows, bias)[:, : alone.shape[1]][:, :n], alone)


@pytest.mark.parametrize("block", [BLOCKS["SAB"], BLOCKS["ISAB"], lambda: PMA(3, 1)])
def test_a_logarithm_of_a_count_equals_copies(block):
    block, rows = block().double(), draw((1, 2, 3), 0)
    bias = torch.tensor([[3.0, 1.0]], dtype=torch.float64).log()
    copied = block(rows[:, [0, 0, 0, 1]])
    copied = copied[:, [0, 3]] if copied.shape[1] == 4 else copied
    assert close(block(rows, bias), copied)


def test_attention_is_the_formula():
    block, queries, keys = MAB(3, 5, 4, 2).double(), draw((2, 6, 3), 0), draw((2, 7, 5), 1)
    bias = draw((2, 7), 2)
    q, k, v = block.query(queries), block.key(keys), block.value(keys)
    heads = []
    for part in (slice(0, 2), slice(2, 4)):
        scores = (q[..., part] @ k[..., part].transpose(1, 2)) / math.sqrt(2) + bias[:, None]
        heads.append(q[..., part] + scores.softmax(-1) @ v[..., part])
    hidden = torch.cat(heads, dim=-1)
    assert close(block(queries, keys, bias), hidden + torch.relu(block.out(hidden)))


def test_shapes():
    rows = torch.zeros(2, 7, 3)
    assert MAB(3, 5, 8, 4)(rows, torch.zeros(2, 9, 5)).shape == (2, 7, 8)
    assert SAB(3, 8, 4)(rows).shape == (2, 7, 8)
    assert ISAB(3, 8, 4, n_inducing=5)(rows).shape == (2, 7, 8)
    assert PMA(3, 3, n_seeds=4)(rows).shape == (2, 4, 3)
    assert SetAttention(3, width=6, hidden=8)(rows[0], torch.tensor([0, 2, 7])).shape == (2, 6)


@law
@given(seed=seeds, sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_set_attention_is_its_blocks_on_each_bag(seed, sizes):
    layer, rows = SetAttention(3, width=6, hidden=8, n_inducing=4, n_heads=2).double(), draw((sum(sizes), 3), seed)
    bags = rows.split(sizes)
    alone = [layer.out(layer.summary(layer.second(layer.first(bag[None]))))[:, 0] for bag in bags]
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    assert close(layer(rows, offsets), torch.cat(alone))


def test_bags_are_padded_to_less_than_twice_their_size(monkeypatch):
    layer, padded = SetAttention(1, width=2, hidden=2, n_inducing=2, n_heads=1), []
    blocks = layer._blocks
    monkeypatch.setattr(layer, "_blocks", lambda rows, bias: padded.append(rows.shape[:2]) or blocks(rows, bias))
    sizes = torch.arange(1, 41)
    layer(torch.zeros(int(sizes.sum()), 1), torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)]))
    assert sum(n_bags for n_bags, _ in padded) == 40
    assert sum(n_bags * longest for n_bags, longest in padded) < 2 * int(sizes.sum())
    assert sorted(longest for _, longest in padded) == [1, 2, 4, 8, 16, 32, 40]


@pytest.mark.parametrize("make", [
    lambda: MAB(3, 3, 8, 3), lambda: SAB(3, 8, 3), lambda: ISAB(3, 8, 3, 5), lambda: PMA(8, 3),
    lambda: SetAttention(3, hidden=8, n_heads=3),
])  # fmt: skip
def test_heads_must_divide_the_size(make):
    with pytest.raises(ValueError, match=exactly("n_heads: expected a divisor of the size 8, got 3.")):
        make()
