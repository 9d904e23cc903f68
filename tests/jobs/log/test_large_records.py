"""Large records are read some megabytes at a time, by every reader, however well they are compressed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from driftless.errors import OutOfMemory, SourceUnavailable
from driftless.kafka.client import Offsets
from jobs.log.bulk import JobReader
from jobs.log.fitting import SLICE_BYTES, fitting
from jobs.log.local_bulk import LocalBulkReader
from jobs.log.reader import READ_BYTES
from jobs.log.small_slices import SmallSliceReader
from jobs.spark.arrow import LARGE as LARGE_RESULT
from jobs.spark.consumer import POLL_BYTES, JvmConsumer
from jobs.spark.errors import spark_error
from jobs.spark.memory import no_memory
from jobs.spark.private import PUBLIC_ONLY
from jobs.spark.projection import RecordProjection
from jobs.spark.source import read_slice
from stack import Endpoints
from tests.jobs.both_ways import WAYS
from tests.jobs.log.test_ready_log import View

pytestmark = pytest.mark.server

SMALL, LARGE, MB = 500, 150, 1_000_000
"""Records of each partition: small ones, then large ones, then small ones again."""


@pytest.fixture(scope="module")
def view(spark: SparkSession, endpoints: Endpoints) -> View:
    """Of a kind that a broker keeps at a hundredth of their size."""
    view = View(spark, endpoints)
    view.kafka.alter_topic(view.topic, {"compression.type": "lz4"})
    view.write([str(n) for n in range(2 * SMALL)], lambda key: json.dumps({"id": key}).encode())
    for first in range(0, 2 * LARGE, 50):
        view.write(
            [str(n) for n in range(first, first + 50)], lambda key: json.dumps({"id": key, "t": "x" * MB}).encode()
        )
    view.write([str(n) for n in range(2 * SMALL)], lambda key: json.dumps({"again": key}).encode())
    return view


@pytest.fixture(params=WAYS)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PUBLIC_ONLY, request.param)


def read_all(view: View, read: SmallSliceReader) -> tuple[list[pa.Table], Offsets]:
    ends, at, found = view.ends(), {0: 0, 1: 0}, []
    while any(at[p] < ends[p] for p in ends):
        before = dict(at)
        at, rows = read.read(view.source, at, ends)
        assert at != before
        found.append(rows)
    return found, at


def lengths_in(rows: pa.Table) -> dict[int, int]:
    columns: list[Any] = [rows[name].to_pylist() for name in ("version", "document")]
    return {version: len(document) for version, document in zip(*columns, strict=True)}


@cache
def lengths(view: View) -> dict[int, int]:
    """Version -> the length of its document, by a job that gives nothing else."""
    rows = read_slice(view.spark, view.source, {0: 0, 1: 0}, view.ends())
    return {row[0]: row[1] for row in rows.selectExpr("version", "length(document)").collect()}


@pytest.mark.usefixtures("_way")
def test_a_small_slice_has_some_megabytes_and_no_more_are_remembered(view: View) -> None:
    small = SmallSliceReader(view.spark)
    found, at = read_all(view, small)
    assert at == view.ends()
    assert lengths_in(pa.concat_tables(found)) == lengths(view)
    assert max(t.nbytes for t in found) < READ_BYTES + 5 * POLL_BYTES
    assert len(found) > 2 * LARGE * MB // (READ_BYTES + 5 * POLL_BYTES)
    (log,) = small._logs.values()
    assert log._size() < 4 * READ_BYTES


def test_polls_adapt_to_what_records_have(view: View) -> None:
    consumer = JvmConsumer(view.spark, view.source)
    sizes = []
    for poll in consumer.polls({0: 0, 1: 0}, view.ends()):
        sizes.append(poll.size)
        consumer.let_go(poll)  # as readers do: else the JVM holds all of them until Python collects its garbage
    assert sum(sizes) > 2 * LARGE * MB
    assert consumer._most == consumer._poll  # small again
    assert sorted(sizes)[-5] < 2 * POLL_BYTES  # but for the first large ones, whose size nobody knew
    consumer.close()


@pytest.mark.usefixtures("_way")
def test_documents_come_some_megabytes_at_a_time(view: View) -> None:
    bulk = LocalBulkReader(view.spark, view.source)
    found = list(bulk.read({0: 0, 1: 0}, view.ends()))
    assert sum(rows.num_rows for _, rows in found) == 4 * SMALL + 2 * LARGE
    assert sorted(rows.nbytes for _, rows in found)[-5] < 2 * POLL_BYTES
    assert bulk.count({0: 0, 1: 0}, view.ends()) == 2 * SMALL
    bulk.close()


@pytest.mark.usefixtures("_way")
def test_jobs_leave_large_records_to_the_consumer(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.log.bulk.HELD_BYTES", 32 << 20)
    monkeypatch.setattr("jobs.log.bulk.LEAST_OFFSETS", 100)
    small, ends = SmallSliceReader(view.spark, remembers=False), view.ends()
    log = JobReader(view.spark, view.source, small)
    at, found, sizes = {0: 0, 1: 0}, dict[int, int](), list[int]()
    while any(at[p] < ends[p] for p in ends):
        at, rows = log.read(at, ends, 400)
        assert rows.schema.names == ["key", "version", "document"]
        found |= lengths_in(rows)
        sizes.append(rows.nbytes)
    assert found == lengths(view)
    assert max(sizes) < READ_BYTES + 5 * POLL_BYTES


def test_the_first_large_slice_is_as_large_as_its_records_allow(view: View) -> None:
    ends = view.ends()
    small = fitting(view.kafka, view.topic, {0: 0, 1: 0}, ends)
    assert SLICE_BYTES // 40 < small < SLICE_BYTES // 10
    begin = dict.fromkeys(ends, SMALL + 10)
    assert fitting(view.kafka, view.topic, begin, ends) == pytest.approx(SLICE_BYTES / MB, abs=3)


def test_memory_that_runs_out_while_records_leave_the_jvm_is_told(view: View) -> None:
    """The JVM's own thread that sends them dies of it without a word."""
    consumer = JvmConsumer(view.spark, view.source)
    poll = next(poll for poll in consumer.polls({0: 0, 1: 0}, view.ends()) if poll.records is not None)
    endless = f"repeat(string(`offset` % 10), {2**31 - 1}) as document"
    source = replace(view.source, parse=("`offset`",), shape=(endless,))
    decoder = RecordProjection(view.spark, source)
    with pytest.raises(Py4JJavaError) as raised:
        decoder.table(poll.records, 2 * LARGE_RESULT)
    assert isinstance(spark_error(raised.value), OutOfMemory)
    consumer.close()


def test_running_out_of_memory_is_no_outage(spark: SparkSession) -> None:
    found = spark_error(RuntimeError("Job aborted: java.lang.OutOfMemoryError: Java heap space"))
    assert isinstance(found, OutOfMemory)
    assert not isinstance(found, SourceUnavailable)
    told = no_memory(spark, "reading shop.public.t")
    assert (str(told), told.hint) == ("out of memory while reading shop.public.t", "run it with `--memory 2g`")
