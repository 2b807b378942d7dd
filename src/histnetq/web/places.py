"""`Places`: a limited number of concurrent requests, shared fairly among clients; further requests get HTTP 429."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator

import anyio

from histnetq.web.errors import RefusedError

_LATEST = 60  # largest number of seconds in Retry-After


class Places:
    """Places for requests that are being received, wait for a worker, or are being worked on.

    Parameters
    ----------
    n_workers : int
        Number of workers.
    n_waiting : int
        Number of further requests that may wait.

    Attributes
    ----------
    most, most_of_one : int
        Number of places, and the largest number that one client may take.
    """

    def __init__(self, n_workers: int, n_waiting: int) -> None:
        self.most = n_workers + n_waiting
        self.most_of_one = max(n_workers, math.ceil(self.most / 2))
        self._taken, self._scopes = Counter[str](), set[anyio.CancelScope]()
        self._seconds = 0.1  # running mean of the time that a place is taken

    @property
    def n_taken(self) -> int:
        """Number of taken places."""
        return self._taken.total()

    def claim(self, client: str) -> Callable[[], None]:
        """Take a place for a client, and return a function that releases it; refuse if no place is free."""
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
            self._taken += Counter()  # removes clients without a place
            self._seconds += 0.1 * (time.monotonic() - began - self._seconds)

        return release

    @contextlib.contextmanager
    def take(self, client: str) -> Iterator[None]:
        """Hold a place for the time of a block; `end` cancels the block."""
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
