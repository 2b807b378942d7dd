"""Attention on bags: the set transformer as a pooling layer.

The blocks work on padded bags ``(n_bags, n, n_features)`` with a bias ``(n_bags, n)`` that is added to the logits of
each row as a key: the logarithm of its weight, and −∞ for padding. `SetAttention` groups bags of similar size, so that
padding at most doubles the work.

References
----------
Lee et al. (2019), *Set Transformer: a framework for attention-based permutation-invariant neural networks*.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histnetq.kernels.plain import bag_of_entry
from histnetq.nn.pooling import Pooling


class MAB(nn.Module):
    """Multihead attention block: queries attend to keys, with residual connections and a row-wise layer.

    Parameters
    ----------
    query_size, key_size, size : int
        Numbers of features of the queries, of the keys and of the result.
    n_heads : int
        Number of heads, a divisor of `size`.

    Examples
    --------
    >>> MAB(2, 3, 4, n_heads=2)(torch.zeros(1, 5, 2), torch.zeros(1, 7, 3)).shape
    torch.Size([1, 5, 4])
    """

    def __init__(self, query_size: int, key_size: int, size: int, n_heads: int) -> None:
        super().__init__()
        if size % n_heads:
            raise ValueError(f"n_heads: expected a divisor of the size {size}, got {n_heads}.")
        self.n_heads = n_heads
        self.query = nn.Linear(query_size, size)
        self.key = nn.Linear(key_size, size)
        self.value = nn.Linear(key_size, size)
        self.out = nn.Linear(size, size)

    def forward(self, queries: Tensor, keys: Tensor, bias: Tensor | None = None) -> Tensor:
        """Let the queries of each bag attend to its keys.

        Parameters
        ----------
        queries : Tensor of shape (n_bags, n, query_size)
            Rows that attend.
        keys : Tensor of shape (n_bags, m, key_size)
            Rows that are attended to.
        bias : Tensor of shape (n_bags, m), optional
            Number added to the logits of each key: the logarithm of the key's weight, or −∞ for padding.

        Returns
        -------
        Tensor of shape (n_bags, n, size)
            One row per query.
        """
        q = self.query(queries)
        mask = None if bias is None else bias[:, None, None, :]
        attended = F.scaled_dot_product_attention(
            self._split(q), self._split(self.key(keys)), self._split(self.value(keys)), attn_mask=mask
        )
        hidden = q + attended.transpose(1, 2).flatten(2)
        return hidden + F.relu(self.out(hidden))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


class SAB(nn.Module):
    """Set attention block: every row attends to every row, quadratic in the size of the bag.

    Parameters
    ----------
    in_size, size : int
        Numbers of features of the rows and of the result.
    n_heads : int
        Number of heads, a divisor of `size`.

    Examples
    --------
    >>> SAB(3, 4, n_heads=2)(torch.zeros(1, 5, 3)).shape
    torch.Size([1, 5, 4])
    """

    def __init__(self, in_size: int, size: int, n_heads: int) -> None:
        super().__init__()
        self.block = MAB(in_size, in_size, size, n_heads)

    def forward(self, rows: Tensor, bias: Tensor | None = None) -> Tensor:
        """Let the rows of each bag attend to each other.

        Parameters
        ----------
        rows : Tensor of shape (n_bags, n, in_size)
            Padded bags.
        bias : Tensor of shape (n_bags, n), optional
            Number added to the logits where a row is the key: the logarithm of the row's weight, or −∞ for padding.

        Returns
        -------
        Tensor of shape (n_bags, n, size)
            One output row per row.
        """
        return self.block(rows, rows, bias)


class ISAB(nn.Module):
    """Induced set attention block: rows attend to each other through learned points.

    Parameters
    ----------
    in_size, size : int
        Numbers of features of the rows and of the result.
    n_heads : int
        Number of heads, a divisor of `size`.
    n_inducing : int
        Number of learned points.

    Examples
    --------
    >>> ISAB(3, 4, n_heads=2, n_inducing=6)(torch.zeros(1, 5, 3)).shape
    torch.Size([1, 5, 4])
    """

    def __init__(self, in_size: int, size: int, n_heads: int, n_inducing: int) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.empty(1, n_inducing, size))
        nn.init.xavier_uniform_(self.points)
        self.gather = MAB(size, in_size, size, n_heads)
        self.spread = MAB(in_size, size, size, n_heads)

    def forward(self, rows: Tensor, bias: Tensor | None = None) -> Tensor:
        """Let the learned points attend to the rows of each bag; then let the rows attend to the resulting points.

        Parameters
        ----------
        rows : Tensor of shape (n_bags, n, in_size)
            Padded bags.
        bias : Tensor of shape (n_bags, n), optional
            Number added to the logits where a row is the key: the logarithm of the row's weight, or −∞ for padding.

        Returns
        -------
        Tensor of shape (n_bags, n, size)
            One output row per row.
        """
        summary = self.gather(self.points.expand(len(rows), -1, -1), rows, bias)
        return self.spread(rows, summary)


class PMA(nn.Module):
    """Pooling by multihead attention: learned queries summarise a bag.

    Parameters
    ----------
    size : int
        Number of features of the rows and of the result.
    n_heads : int
        Number of heads, a divisor of `size`.
    n_seeds : int, default 1
        Number of learned queries.

    Examples
    --------
    >>> PMA(4, n_heads=2)(torch.zeros(1, 5, 4)).shape
    torch.Size([1, 1, 4])
    """

    def __init__(self, size: int, n_heads: int, n_seeds: int = 1) -> None:
        super().__init__()
        self.seeds = nn.Parameter(torch.empty(1, n_seeds, size))
        nn.init.xavier_uniform_(self.seeds)
        self.block = MAB(size, size, size, n_heads)

    def forward(self, rows: Tensor, bias: Tensor | None = None) -> Tensor:
        """Let the learned queries attend to the rows of each bag.

        Parameters
        ----------
        rows : Tensor of shape (n_bags, n, size)
            Padded bags.
        bias : Tensor of shape (n_bags, n), optional
            Number added to the logits where a row is the key: the logarithm of the row's weight, or −∞ for padding.

        Returns
        -------
        Tensor of shape (n_bags, n_seeds, size)
            One row per query.
        """
        return self.block(self.seeds.expand(len(rows), -1, -1), rows, bias)


class SetAttention(Pooling):
    """Two induced attention blocks, pooling by attention and a linear layer.

    Parameters
    ----------
    n_features : int
        Number of features of a row.
    width : int, default 512
        Number of values that describe a bag.
    hidden : int, default 256
        Number of features inside the blocks.
    n_inducing : int, default 32
        Number of learned points of each induced block.
    n_heads : int, default 4
        Number of heads, a divisor of `hidden`.

    Examples
    --------
    >>> SetAttention(3, width=8, hidden=4, n_heads=2)(torch.zeros(5, 3), torch.tensor([0, 2, 5])).shape
    torch.Size([2, 8])
    """

    def __init__(
        self, n_features: int, width: int = 512, hidden: int = 256, n_inducing: int = 32, n_heads: int = 4
    ) -> None:
        super().__init__(n_features, width)
        self.first = ISAB(n_features, hidden, n_heads, n_inducing)
        self.second = ISAB(hidden, hidden, n_heads, n_inducing)
        self.summary = PMA(hidden, n_heads)
        self.out = nn.Linear(hidden, width)

    def pool(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        entries = rows[index]
        logits = None if weights is None else weights.to(rows.dtype).log()
        sizes = offsets.diff()
        size_class = (sizes - 1).clamp(min=0).float().add(0.5).log2().floor().long()
        pooled = rows.new_empty((len(sizes), self.width))
        for one_class in size_class.unique().tolist():
            bags = (size_class == one_class).nonzero().squeeze(1)
            pooled = pooled.index_copy(0, bags, self._attend(entries, logits, offsets, bags))
        return pooled

    def _attend(self, entries: Tensor, logits: Tensor | None, offsets: Tensor, bags: Tensor) -> Tensor:
        starts, sizes = offsets[:-1][bags], offsets.diff()[bags]
        longest = int(sizes.max())
        # There is a bias even without weights, because attention rounds differently with and without a mask.
        own = entries.new_zeros(len(entries)) if logits is None else logits
        if bool((sizes == longest).all()) and bool((starts.diff() == longest).all()):
            part = slice(int(starts[0]), int(starts[0]) + longest * len(bags))
            return self._blocks(entries[part].unflatten(0, (-1, longest)), own[part].unflatten(0, (-1, longest)))
        bag = bag_of_entry(F.pad(sizes.cumsum(0), (1, 0)))
        place = torch.arange(len(bag), device=bag.device) - (sizes.cumsum(0) - sizes)[bag]
        source = starts[bag] + place
        padded = entries.new_zeros((len(bags), longest, self.n_features)).index_put((bag, place), entries[source])
        bias = entries.new_full((len(bags), longest), -math.inf)
        bias[bag, place] = own[source]
        return self._blocks(padded, bias)

    def _blocks(self, padded: Tensor, bias: Tensor) -> Tensor:
        rows = self.second(self.first(padded, bias), bias)
        return self.out(self.summary(rows, bias).squeeze(1))
