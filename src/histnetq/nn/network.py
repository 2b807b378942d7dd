"""`BagNetwork`, the common architecture: encoder → pooling → head."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from histnetq.nn.encoders import MLP
from histnetq.nn.pooling import Pooling


class BagNetwork(nn.Module):
    """A network that encodes each row, pools each bag, and maps the result to prevalences by a head and a softmax.

    A pooling that returns prevalences, such as `Likelihood`, needs no head.

    Parameters
    ----------
    encoder : nn.Module
        Maps rows to features: ``(n_rows, ...) → (n_rows, n_features)``.
    pooling : Pooling
        Maps the features of each bag to one vector.
    head : nn.Module, sequence of int or None
        Maps pooled bags to logits, ``(n_bags, pooling.width) → (n_bags, n_classes)``; or the sizes of its hidden
        layers; or None if the pooling returns prevalences.
    n_classes : int
        Number of classes.
    prepare : nn.Module, optional
        Applied to the rows before the encoder, such as `Standardize`. By default, rows are not changed.
    dropout : float, default 0
        Fraction of the values that is dropped in training, in a head given by sizes.
    classify : bool or nn.Module, default False
        Classifier of rows: a module on the features, or True for a linear layer.

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
        """Estimate the prevalences of bags.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, ...)
            Rows of all bags; each is encoded once.
        offsets : Tensor of shape (n_bags + 1,)
            Bag *i* holds the entries ``offsets[i]`` to ``offsets[i + 1]``, at least one.
        weights : Tensor of shape (n_entries,), optional
            Positive weights of the entries; a weight of k equals k copies. By default all are one.
        index : Tensor of shape (n_entries,), optional
            The row of each entry. By default entry *e* is row *e*.

        Returns
        -------
        Tensor of shape (n_bags, n_classes)
            Prevalences, on the simplex.
        """
        return self.quantify(self.pooling(self.encode(rows), offsets, weights, index))

    def encode(self, rows: Tensor) -> Tensor:
        """Prepare and encode rows.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, ...)
            Rows of the bags.

        Returns
        -------
        Tensor of shape (n_rows, n_features)
            Features of each row.

        Examples
        --------
        >>> import torch
        >>> from histnetq.nn import MLP, Mean
        >>> BagNetwork(MLP(4, (3,)), Mean(3), head=(), n_classes=2).encode(torch.zeros(7, 4)).shape
        torch.Size([7, 3])
        """
        return self.encoder(self.prepare(rows).to(next(self.parameters()).dtype))

    def quantify(self, pooled: Tensor) -> Tensor:
        """Map pooled bags to prevalences.

        Parameters
        ----------
        pooled : Tensor of shape (n_bags, pooling.width)
            Output of the pooling for each bag.

        Returns
        -------
        Tensor of shape (n_bags, n_classes)
            Prevalences, on the simplex.

        Examples
        --------
        >>> import torch
        >>> from histnetq.nn import MLP, Mean
        >>> BagNetwork(MLP(4, (3,)), Mean(3), head=(), n_classes=2).quantify(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
        """
        if self.head is None:
            return pooled
        return self.head(pooled.to(next(self.parameters()).dtype)).softmax(-1)
