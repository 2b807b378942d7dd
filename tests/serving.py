"""A server in a process of its own, small models for it, and clients."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import pandas as pd

import histnetq as hq
from tests.conftest import SMALL

SECONDS = 300  # to wait for anything; learning has a low priority, so that it is slow on a busy machine


def fish(n_bags: int = 30, size: int = 20, seed: int = 0) -> pd.DataFrame:
    """Rows of bags of two species, with a time."""
    rng = np.random.default_rng(seed)
    share = rng.random(n_bags)
    eel = rng.random(n_bags * size) < np.repeat(share, size)
    return pd.DataFrame({
        "tow": np.repeat([f"tow {i}" for i in range(n_bags)], size),
        "length": rng.normal(size=len(eel)) + 3 * eel,
        "depth": rng.integers(1, 9, len(eel)).astype(float),
        "when": pd.date_range("2026-01-05", periods=len(eel), freq="5h").strftime("%Y-%m-%d"),
        "species": np.where(eel, "eel", "cod"),
    })  # fmt: skip


def make_models(place: Path) -> Path:
    """Three models: of exact sketches, without, and a network, the first of them calibrated."""
    rows = fish()
    bags = hq.read_bags(rows, bag="tow", label="species", features=["length", "depth"])
    learned, held = bags.split(0.5, 0)
    hq.PACC(cv=3, random_state=0).fit(learned).calibrate(held).save(place / "pacc")
    hq.EMQ(cv=3, random_state=0).fit(bags).save(place / "emq")
    hq.HistNetQ("hard", 5, **SMALL).fit(bags).save(place / "histnetq")
    return place


class Served:
    """A running server, with one worker unless the options name more: each one imports everything.

    Attributes
    ----------
    address : str
        Where it listens.
    client : httpx.Client
        Sends requests to it.
    process : subprocess.Popen
        What runs.
    """

    def __init__(self, models: Path, *options: str, folder: Path | None = None) -> None:
        self.models, self.folder = models, folder or Path(tempfile.mkdtemp(dir=models.parent))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "histnetq", "serve", str(models), "--port", "0", "--workers", "1", *options],
            env={**os.environ, "TMPDIR": str(self.folder)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.search(r"http://\S+:\d+", self.said)
        assert found, self.said + self.process.stdout.read()
        self.address = re.sub(r"//(0\.0\.0\.0|localhost)", "//127.0.0.1", found[0])
        self.port = int(self.address.rpartition(":")[2])
        self.client = httpx.Client(base_url=self.address, timeout=SECONDS)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS)

    def end(self) -> str:
        """Tell it to end, and give what it said."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=SECONDS)[0]

    def upload(self, content: bytes, name: str = "rows.csv") -> str:
        answer = self.client.post("/v1/tables", params={"name": name}, content=content)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def start(self, **asked) -> dict:
        answer = self.client.post("/v1/jobs", json=asked)
        assert answer.status_code == 202, answer.text
        return answer.json()

    def wait(self, job: dict, *states: str) -> dict:
        """Wait until a job has ended, or is in one of these states."""
        return until(lambda: self.job(job["id"]), lambda found: found["state"] in (states or OVER))

    def job(self, key: str) -> dict:
        return self.client.get(f"/v1/jobs/{key}").json()


OVER = ("done", "failed", "cancelled")


def until(look, fits):
    """Look until what is seen fits."""
    for _ in range(SECONDS * 20):
        found = look()
        if fits(found):
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited in vain, last saw {found}")


@contextlib.contextmanager
def serving(models: Path, *options: str, folder: Path | None = None):
    """A server that ends with the block."""
    served = Served(models, *options, folder=folder)
    try:
        yield served
    finally:
        said = served.end()
    assert "Traceback" not in said, said
