"""Java's records as Arrow tables: the same by calls and through a socket, errors included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import jobs.spark.arrow
from jobs.decode.rows import rows_sql
from jobs.spark.arrow import CALL, Batches, records_as_they_are
from tests.jobs.both_ways import Record, both_ways, in_java
from tests.jobs.decode.test_rows import KEY, LOG, TABLE, VALUE, headers

ALWAYS, NEVER = -1, 1 << 40
SQL = rows_sql(TABLE, LOG)
WIDTH = 500
"""Bytes of a value."""


def row(number: int, value: bytes | None = VALUE) -> Record:
    return KEY, value, headers("c", '["7","9"]'), 1, number


@pytest.fixture(params=[ALWAYS, NEVER], ids=["socket", "call"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs.spark.arrow, "CALL", request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("count", [0, 1, 300])
def test_rows_are_those_of_a_job_in_their_order(spark: SparkSession, count: int) -> None:
    rows = both_ways(spark, SQL.parse, SQL.shape, [row(n, None if n % 3 == 1 else VALUE) for n in range(count)])
    assert rows["offset"].to_pylist() == list(range(count))
    assert rows["gone"].to_pylist() == [n % 3 == 1 for n in range(count)]


@pytest.mark.usefixtures("way")
def test_an_error_is_told_as_by_a_job(spark: SparkSession) -> None:
    records = [row(n, b"{" if n == 250 else VALUE) for n in range(300)]
    with pytest.raises(PySparkException, match=r"shop\.public\.t/1/250: the row cannot be decoded"):
        both_ways(spark, SQL.parse, SQL.shape, records)


def test_more_than_fits_into_a_call_comes_through_the_socket(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def told(name: str) -> Callable[..., Any]:
        method = getattr(Batches, name)

        def call(self: Batches, *given: Any) -> Any:
            taken.append(name)
            return method(self, *given)

        return call

    for name in ("_by_calls", "_by_socket"):
        monkeypatch.setattr(Batches, name, told(name))
    batches = records_as_they_are(spark, headers=False)

    def read(count: int) -> pa.Table:
        return batches.table(in_java(spark, [(b"k", b"x" * WIDTH, None, 0, n) for n in range(count)]))

    for count in (1, 1 + CALL // WIDTH, 1, 2):
        found = read(count)
        assert found["value"].to_pylist() == [b"x" * WIDTH] * count
        assert found["offset"].to_pylist() == list(range(count))
    assert taken == ["_by_calls", "_by_socket", "_by_calls", "_by_calls"]
