"""The common architecture: encoder → pooling → head."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from histnetq.nn.encoders import MLP
from histnetq.nn.pooling import Pooling

__all__ = ["BagNetwork"]


class BagNetwork(nn.Module):
    """Rows of bags → prevalences: encode each row, pool each bag, and map the result to the simplex by a softmax.

    A pooling that gives prevalences by itself, such as `Likelihood`, needs no head.

    Parameters
    ----------
    encoder : nn.Module
        On rows: ``(n_rows, ...) → (n_rows, n_features)``.
    pooling : Pooling
    head : nn.Module, sequence of int or None
        On pooled bags: ``(n_bags, pooling.width) → (n_bags, n_classes)``, before the softmax; or the sizes of its
        hidden layers; None if the pooled bags are the prevalences.
    n_classes : int
    prepare : nn.Module, optional
        Applied to the rows before the encoder, such as `Standardize`.
    dropout : float
        In a head given by sizes.
    classify : bool or nn.Module
        What gives class scores per row: a module on the features, or True for a linear layer.

    Examples
    --------
    >>> import torch
    >>> from histnetq.nn import MLP, HardHistogram
    >>> network = BagNetwork(MLP(4, (8, 3)), HardHistogram(3, n_bins=5), head=(16,), n_classes=2)
    >>> network(torch.zeros(7, 4), offsets=torch.tensor([0, 3, 7])).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        encoder: nn.Module,
        pooling: Pooling,
        head: nn.Module | Sequence[int] | None,
        n_classes: int,
        *,
        prepare: nn.Module | None = None,
        dropout: float = 0.0,
        classify: bool | nn.Module = False,
    ) -> None:
        super().__init__()
        self.prepare = prepare or nn.Identity()
        self.encoder = encoder
        self.pooling = pooling
        if head is not None and not isinstance(head, nn.Module):
            head = MLP(pooling.width, (*head, n_classes), dropout)
        self.head = head
        linear = nn.Linear(pooling.n_features, n_classes) if classify is True else None
        self.classifier = classify if isinstance(classify, nn.Module) else linear

    def forward(
        self, rows: Tensor, offsets: Tensor, weights: Tensor | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Prevalences ``(n_bags, n_classes)`` of bags of ``rows[index]``; see `histnetq.nn.pooling`."""
        return self.quantify(self.pooling(self.encode(rows), offsets, weights, index))

    def encode(self, rows: Tensor) -> Tensor:
        """(n_rows, ...) → (n_rows, n_features)."""
        features: Tensor = self.encoder(self.prepare(rows).to(next(self.parameters()).dtype))
        return features

    def quantify(self, pooled: Tensor) -> Tensor:
        """(n_bags, pooling.width) → (n_bags, n_classes) on the simplex."""
        if self.head is None:
            return pooled
        logits: Tensor = self.head(pooled.to(next(self.parameters()).dtype))
        return logits.softmax(-1)
