"""Generated queries on the engines that tests start: PostgreSQL and Spark."""

from __future__ import annotations

import pytest

from tests.engines import running_postgres, running_spark

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def postgres():
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def spark():
    with running_spark() as session:
        yield session


def test_postgres_answers(postgres):
    assert postgres.query("SELECT 1 AS a, 0.1::float8 + 0.2::float8 AS b") == "a,b\n1,0.30000000000000004\n"


def test_spark_answers(spark):
    assert spark.sql("SELECT 1D / 3D AS a").collect()[0].a == 1 / 3
