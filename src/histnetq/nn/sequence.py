"""The pooling of QuaNet: a recurrent network that reads the sorted posteriors of each bag."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from histnetq.kernels.plain import bag_of_entry
from histnetq.kernels.precision import widest
from histnetq.nn.pooling import Pooling

Statistics = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
_BAGS_AT_ONCE = 1024


class SortedLSTM(Pooling):
    """A bidirectional LSTM over the sorted rows of each bag, joined with statistics of the bag.

    Rows are posteriors. With two classes, they are sorted by the posterior of the second class; with more, by the most
    likely class and then by its posterior. The LSTM reads `n_steps` rows of each bag, at equal steps of the cumulative
    weight. Bags of any size thus become sequences of one length, and all rows of a bag with `n_steps` rows are read.

    Parameters
    ----------
    n_classes : int
        Number of classes, hence of posteriors in a row.
    hidden : int, default 64
        Size of the LSTM's state, in each direction.
    n_steps : int, default 100
        Number of rows that the LSTM reads from each bag.
    statistics : callable, optional
        ``(rows, index, offsets, weights) → (n_bags, n_statistics)``, appended to the LSTM's last states. By default
        nothing is appended.
    n_statistics : int, default 0
        Number of statistics of a bag.

    References
    ----------
    Esuli, Moreo & Sebastiani (2018), *A recurrent neural network for sentiment quantification*.

    Examples
    --------
    >>> rows = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> SortedLSTM(2, hidden=4, n_steps=10)(rows, torch.tensor([0, 2, 3])).shape
    torch.Size([2, 8])
    """

    def __init__(
        self,
        n_classes: int,
        hidden: int = 64,
        n_steps: int = 100,
        statistics: Statistics | None = None,
        n_statistics: int = 0,
    ) -> None:
        super().__init__(n_classes, 2 * hidden + n_statistics)
        self.n_steps = n_steps
        self.statistics = statistics
        self.lstm = nn.LSTM(n_classes, hidden, bidirectional=True, batch_first=True)

    def pool(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        chosen = self._in_order(rows, index, offsets, weights)
        last = [self.lstm(rows[part])[1][0] for part in chosen.split(_BAGS_AT_ONCE)]  # (2, n_bags, hidden) each
        read = torch.cat(last, dim=1).transpose(0, 1).flatten(1)
        if self.statistics is None:
            return read
        with torch.no_grad():
            known = self.statistics(rows, index, offsets, weights)
        return torch.cat([read, known.to(read)], dim=1)

    @torch.no_grad()
    def _in_order(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the row that each step reads: (n_bags, n_steps)."""
        kind = widest(rows.device)
        by_rank = torch.argsort(_rank(rows)[index])
        order = by_rank[torch.argsort(bag_of_entry(offsets)[by_rank], stable=True)]
        w = torch.ones_like(index, dtype=kind) if weights is None else weights.to(kind)
        passed = w[order].cumsum(0)
        ends = passed[offsets[1:] - 1]
        starts = torch.cat([ends.new_zeros(1), ends[:-1]])
        # Slightly early, so that a step between two rows takes the first one, even if weights are rounded.
        steps = (torch.arange(self.n_steps, dtype=kind, device=rows.device) + 0.5) / self.n_steps - 1e-9
        at = torch.searchsorted(passed, starts[:, None] + (ends - starts)[:, None] * steps)
        at = at.clamp(min=offsets[:-1, None], max=offsets[1:, None] - 1)
        return index[order][at]


def _rank(rows: Tensor) -> Tensor:
    """Return the position of each row in the reading order; all columns break ties."""
    keys = list(rows.unbind(1))
    if rows.shape[1] > 2:
        most, which = rows.max(1)
        keys += [most, which]
    order = torch.arange(len(rows), device=rows.device)
    for key in keys:  # the last key has the highest priority
        order = order[torch.argsort(key[order], stable=True)]
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(rows), device=rows.device))
