"""A bounded number of places for requests, of which no client gets all: further requests are refused at once."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator

import anyio

from histnetq.web.errors import RefusedError

_LATEST = 60  # seconds: nobody is asked to wait longer


class Places:
    """Places for requests that are received, wait for a worker or are worked on.

    Parameters
    ----------
    n_workers : int
        Number of workers.
    n_waiting : int
        How many more requests may wait.

    Attributes
    ----------
    most, most_of_one : int
        How many places there are, and how many of them one client may have.
    """

    def __init__(self, n_workers: int, n_waiting: int) -> None:
        self.most = n_workers + n_waiting
        self.most_of_one = max(n_workers, math.ceil(self.most / 2))
        self._taken, self._scopes = Counter[str](), set[anyio.CancelScope]()
        self._seconds = 0.1  # that a place is taken for, about

    @property
    def n_taken(self) -> int:
        """Number of places that are taken."""
        return self._taken.total()

    def claim(self, client: str) -> Callable[[], None]:
        """Take a place for a client, and return what gives it back; refuse if there is none."""
        if self.n_taken >= self.most:
            self._refuse(f"{self.n_taken} requests are being worked on, which is the most")
        if self._taken[client] >= self.most_of_one:
            self._refuse(
                f"{self._taken[client]} requests from your address are being worked on, which is the most for one"
            )
        self._taken[client] += 1
        began = time.monotonic()

        def release() -> None:
            self._taken[client] -= 1
            self._taken += Counter()  # without clients that have none
            self._seconds += 0.1 * (time.monotonic() - began - self._seconds)

        return release

    @contextlib.contextmanager
    def take(self, client: str) -> Iterator[None]:
        """Have a place for the time of a block, which `end` cuts short."""
        release = self.claim(client)
        try:
            with anyio.CancelScope() as scope:
                self._scopes.add(scope)
                yield
        finally:
            self._scopes.discard(scope)
            release()
        if scope.cancelled_caught:
            raise RefusedError(503, "server: it is being ended; try again later.", Retry_After="10")

    def end(self) -> None:
        """Refuse all requests that have a place."""
        for scope in list(self._scopes):
            scope.cancel()

    def _refuse(self, reason: str) -> None:
        after = min(max(1, math.ceil(self._seconds)), _LATEST)
        raise RefusedError(429, f"server: {reason}; try again in {after} s.", Retry_After=str(after))
