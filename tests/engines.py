"""Database engines that tests start: a PostgreSQL server, and Spark in this process's own Java."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

_OWNER = "postgres"  # of the server, which refuses to run as root


class Postgres:
    """A server whose data are in a temporary directory; only a socket in this directory reaches it."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs

    def run(self, *words: object, of_server: bool = True) -> str:
        """Run a program of PostgreSQL, as an unprivileged user if this process runs as root."""
        program, *rest = map(str, words)
        as_owner = ["runuser", "-u", _OWNER, "--"] if of_server and os.geteuid() == 0 else []
        command = [*as_owner, str(self.programs / program), *rest]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def query(self, sql: str) -> str:
        """Run statements, and return the result of the last one as CSV with a header."""
        script = self.folder / "script.sql"
        script.write_text(sql, encoding="utf-8")
        reach = ("-h", self.folder, "-U", _OWNER, "-d", "postgres", "-v", "ON_ERROR_STOP=1")
        return self.run("psql", "-X", "-q", "--csv", *reach, "-f", script, of_server=False)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Start a PostgreSQL server in a temporary directory, and delete it afterwards; skip the test without a server.

    PostgreSQL does not start as root. Then its programs run as the user that the Debian package creates, who owns the
    directory: ``runuser -u postgres -- initdb -D DIRECTORY/data``.
    """
    found = [shutil.which("initdb"), *sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)]
    programs = next((Path(os.path.realpath(place)).parent for place in found if place), None)
    if programs is None:
        pytest.skip("needs the PostgreSQL server: apt-get install postgresql")
    # Not in the directory of pytest, which only its owner may enter; and the path of a socket has at most 107 letters.
    folder = Path(tempfile.mkdtemp(prefix="histnetq-pg-", dir="/tmp"))
    server, data = Postgres(folder, programs), folder / "data"
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, _OWNER)
        server.run("initdb", "-D", data, "-U", _OWNER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        settings = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_parallel_workers_per_gather=0"
        server.run("pg_ctl", "-D", data, "-l", folder / "log", "-w", "-o", settings, "start")
        try:
            yield server
        finally:
            server.run("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


@contextmanager
def running_spark(master: str = "local[2]", **settings: str) -> Iterator[object]:
    """Start Spark, and stop it afterwards; skip the test without Java or pyspark."""
    if shutil.which("java") is None:
        pytest.skip("needs Java: apt-get install openjdk-17-jre-headless")
    pyspark_sql = pytest.importorskip("pyspark.sql", reason="needs pyspark: make test-engines installs it")
    builder = pyspark_sql.SparkSession.builder.master(master).appName("histnetq")
    fixed = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.host": "127.0.0.1"}
    for name, value in {**fixed, **settings}.items():
        builder = builder.config(name, value)
    with mock.patch.dict(os.environ, PYSPARK_PYTHON=sys.executable):  # of executors
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()
