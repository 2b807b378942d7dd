"""Training on several processes started by torchrun: each takes a share of every batch, and all make the same updates.

The loss of a batch and its gradient are sums over its bags, each weighted by its part of the whole batch. Their sums
over the processes therefore equal the loss and gradient of a single process, even if the shares are unequal.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch import distributed as dist
from torch.nn import Parameter

from histnetq.tables.files import are_processes_together


@dataclass(frozen=True)
class Processes:
    """The number of processes that train together, and the rank of this process.

    Examples
    --------
    >>> [Processes(rank, 2).share(5) for rank in range(2)]
    [slice(0, 2, None), slice(2, 5, None)]
    """

    rank: int = 0
    count: int = 1

    @classmethod
    def started(cls) -> Processes:
        """Connect to the processes that torchrun started with this one, if any, and return their number."""
        if not dist.is_available() or not (dist.is_initialized() or are_processes_together()):
            return cls()
        if not dist.is_initialized():
            _connect()
        return cls(dist.get_rank(), dist.get_world_size())

    def share(self, n: int) -> slice:
        """Return the slice of `n` items that belongs to this process; it may be empty."""
        return slice(self.rank * n // self.count, (self.rank + 1) * n // self.count)

    def add_gradients(self, parameters: Iterable[Parameter], loss: Tensor) -> Tensor:
        """Sum the gradients of all processes in place, and return the sum of their losses."""
        if self.count == 1:
            return loss
        learned = [p for p in parameters if p.requires_grad]
        # The optimiser skips a parameter without a gradient, so it must be skipped only if no process has one.
        reached = loss.new_tensor([p.grad is not None for p in learned])
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in learned]
        flat = torch.cat([loss[None], reached, *(g.ravel() for g in gradients)])
        dist.all_reduce(flat)
        total, reached, flat = flat.split([1, len(learned), flat.numel() - 1 - len(learned)])
        for p, n, sums in zip(learned, reached.tolist(), flat.split([p.numel() for p in learned]), strict=True):
            p.grad = sums.view_as(p) if n else None
        return total[0].clone()

    def gather(self, part: NDArray[np.float64], n: int) -> NDArray[np.float64]:
        """Concatenate the parts of all processes: (n_share, ...) → (n, ...)."""
        whole = np.zeros((n, *part.shape[1:]))
        whole[self.share(n)] = part
        if self.count > 1:
            dist.all_reduce(torch.from_numpy(whole))
        return whole

    def agree(self, *numbers: float) -> list[float]:
        """Return the numbers of the first process."""
        shared = torch.tensor(numbers, dtype=torch.float64)
        self.spread([shared])
        return shared.tolist()

    def any(self, answer: bool) -> bool:
        """Return whether the answer of any process is True."""
        return bool(self.gather(np.array([float(answer)]), self.count).any())

    def spread(self, tensors: Iterable[Tensor]) -> None:
        """Copy the tensors of the first process to all processes, in place."""
        if self.count > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def refuse_different(self, digest: bytes) -> None:
        """Raise a ValueError if the processes have different digests of their data and options."""
        found = self.gather(np.frombuffer(digest, np.uint32).astype(np.float64)[None], self.count)
        different = np.flatnonzero((found != found[0]).any(1))
        if len(different):
            raise ValueError(
                f"torchrun: process {different[0]} has different data, parameters or checkpoints than process 0, "
                "expected the same everywhere; set the seed of everything that is drawn at random."
            )


def _connect() -> None:
    if cuda := torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    try:
        store, rank, count = next(dist.rendezvous("env://"))
        # Processes that torchrun restarts must not find the addresses of their predecessors.
        store = dist.PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise RuntimeError(
            f"torchrun: the processes cannot be connected ({reason}); check RANK, WORLD_SIZE, MASTER_ADDR and "
            "MASTER_PORT, or unset them to train on one process."
        ) from None
    atexit.register(lambda: dist.destroy_process_group() if dist.is_initialized() else None)
