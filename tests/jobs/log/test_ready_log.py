"""Large slices of a view's topic without a job: what they give, how they end, and that they are what a job gives."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from driftless.config.models import KafkaConfig
from driftless.errors import SinkUnavailable
from driftless.facts.epochs import Epoch, TopicLog
from driftless.kafka.client import Kafka, Offsets
from driftless.sink import WRITES, Applied, SinkContext
from driftless.version import make_version, split_version
from jobs.decode.document_rows import DocumentRows
from jobs.decode.documents import documents_sql
from jobs.decode.spark_sql import refuse
from jobs.follow.apply import LogReader, OffsetRange, SinkSpec, SliceResult, apply_slice, count_documents
from jobs.log.contract import Unread
from jobs.log.local_bulk import LocalBulkReader
from jobs.log.salvage import salvage_of
from jobs.log.small_slices import SmallSliceReader
from jobs.spark.private import PUBLIC_ONLY
from jobs.spark.source import DRIVER_OFFSETS, LogSource, kafka_options, read_slice
from sinks import open_sink
from stack import Endpoints
from tests.jobs.both_ways import WAYS
from tests.jobs.plain import transactional
from tests.support.seeds import seeds

pytestmark = pytest.mark.server
POLLS = 30_000
"""Records of several polls."""
BYTES = WRITES.set(2, pa.field("document", pa.binary()))


class View:
    """A view's topic of two partitions, read in both ways."""

    def __init__(self, spark: SparkSession, endpoints: Endpoints) -> None:
        self.kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
        self.topic = f"documents-{uuid.uuid4().hex[:8]}"
        self.kafka.create(self.topic, 2, {})
        log = TopicLog(self.topic, "id", 2, (Epoch(1, {0: 0, 1: 0}, ""), Epoch(3, {0: 2_000, 1: 500}, "")))
        parse, shape = documents_sql(log)
        self.spark = spark
        options = kafka_options(self.kafka, "test")
        self.source = LogSource(self.topic, options, tuple(parse), tuple(shape), DocumentRows(log), self.kafka)
        self.bulk = LocalBulkReader(spark, self.source)
        self.spec = SinkSpec(
            "redis", {"url": endpoints.redis, "key": f"{self.topic}:{{id}}"}, SinkContext(self.topic, "t", ("id",))
        )

    def ends(self) -> Offsets:
        return self.kafka.decided_ends(self.topic, 2, 30)

    def write(self, keys: list[str], document: Callable[[str], bytes | None], *, abort: bool = False) -> None:
        """One transaction."""
        producer = transactional(self.kafka)
        producer.begin_transaction()
        for key in keys:
            headers: dict[str, str | bytes | None] = {"kind": b"document"}
            producer.produce(self.topic, document(key), key.encode(), partition=int(key) % 2, headers=headers)
            producer.poll(0)
        assert producer.flush(30) == 0
        producer.abort_transaction(30) if abort else producer.commit_transaction(30)

    def log(self, bulk: LocalBulkReader | None) -> LogReader:
        small = SmallSliceReader(self.spark)
        return LogReader(self.spark, self.source, small, bulk, salvage_of(self.spark, self.source))

    def by_job(self, end: Offsets) -> pa.Table:
        return read_slice(self.spark, self.source, {0: 0, 1: 0}, end).toArrow()

    def apply(self, begin: Offsets, *, stopped: Callable[[], bool] = lambda: False) -> SliceResult:
        part = OffsetRange(begin, self.ends())
        assert part.offsets > DRIVER_OFFSETS
        sink = self.spec.open()
        try:
            sink.create(1)
            return apply_slice(self.log(self.bulk), self.spec, sink, 1, part, stopped)
        finally:
            sink.close()

    def stored(self) -> dict[str, tuple[int, str]]:
        sink = self.spec.open()
        try:
            found = [row for batch in sink.scan(1) for row in batch.to_pylist()]
        finally:
            sink.close()
        return {row["key"]: (row["version"], row["document"]) for row in found}


@pytest.fixture(params=WAYS)
def view(
    spark: SparkSession, endpoints: Endpoints, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> View:
    monkeypatch.setenv(PUBLIC_ONLY, request.param)
    return View(spark, endpoints)


def document(key: str) -> bytes:
    return json.dumps({"id": int(key), "name": "ü"}).encode()


@pytest.mark.parametrize("seed", seeds(__name__, 1))
def test_writes_and_their_count_are_those_of_a_job(view: View, seed: int) -> None:
    print(f"DRIFTLESS_TEST_SEED={seed}")
    rng, fresh, known = random.Random(seed), count(), list[str]()
    while len(known) < POLLS:
        keys = [str(key) for key in islice(fresh, rng.choice([1, 100, 9_000]))]
        view.write(keys, document)
        known += keys
        view.write([str(next(fresh)) for _ in range(50)], document, abort=True)
        view.write(rng.sample(known, min(len(known), 700)), lambda key: rng.choice([None, document(key)]))
    ends = view.ends()
    found, reached = [], {0: 0, 1: 0}
    for end, writes in view.bulk.read(reached, ends):
        assert all(end[p] >= offset for p, offset in reached.items())
        found.append(writes)
        reached = end
    assert reached == ends
    assert len(found) > 2
    wanted = view.by_job(ends).cast(WRITES)
    order: list[tuple[str, Literal["ascending", "descending"]]] = [("version", "ascending"), ("key", "ascending")]
    assert pa.concat_tables(found).sort_by(order).equals(wanted.sort_by(order))
    assert {split_version(version or 0)[0] for version in wanted["version"].to_pylist()} == {1, 3}
    for to in (ends, {0: ends[0] // 2, 1: ends[1] // 3}):
        begin = {0: 0, 1: 0}
        counted = count_documents(view.log(None), begin, to)
        assert view.bulk.count(begin, to) == counted
        assert count_documents(view.log(view.bulk), begin, to) == counted > 0
    view.bulk.close()


def test_a_slice_that_is_stopped_tells_how_far_it_has_come(view: View) -> None:
    keys = [str(key) for key in range(POLLS)]
    view.write(keys, document)
    first = view.apply({0: 0, 1: 0}, stopped=lambda: True)
    assert 0 < first.applied.written < POLLS
    assert sum(first.end.values()) == first.applied.written
    assert len(view.stored()) == first.applied.written
    second = view.apply(first.end)
    assert (second.end, second.applied) == (view.ends(), Applied(written=POLLS - first.applied.written))
    assert {key: text for key, (_, text) in view.stored().items()} == {key: document(key).decode() for key in keys}
    view.bulk.close()


def test_of_a_slice_that_failed_nothing_is_left_out(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read ahead by then must be read again."""
    view.write([str(key) for key in range(POLLS)], document)
    calls = count()
    kind = type(open_sink(view.spec.kind, dict(view.spec.config), view.spec.context))
    apply = kind.apply

    def fail(sink: Any, generation: int, writes: pa.RecordBatch) -> Applied:
        if next(calls) == 1:
            raise SinkUnavailable("it is away")
        return apply(sink, generation, writes)

    with monkeypatch.context() as broken:
        broken.setattr(kind, "apply", fail)
        with pytest.raises(SinkUnavailable):
            view.apply({0: 0, 1: 0})
    again = view.apply({0: 0, 1: 0})
    assert again.applied.written + again.applied.stale == POLLS
    assert again.applied.stale > 0
    assert len(view.stored()) == POLLS
    view.bulk.close()


def test_what_is_no_text_is_what_spark_makes_of_it(view: View) -> None:
    """And so are the polls after it, which Arrow could decode."""
    view.write([str(key) for key in range(POLLS)], lambda key: b"\xff" if key == "4711" else document(key))
    ends = view.ends()
    found = [part.cast(BYTES) for _, part in view.bulk.read({0: 0, 1: 0}, ends)]
    rows = {row["key"]: row for row in pa.concat_tables(found).to_pylist()}
    assert rows == {row["key"]: row for row in view.by_job(ends).cast(BYTES).to_pylist()}
    assert rows["4711"]["document"] == b"\xff"
    assert count_documents(view.log(view.bulk), {0: 0, 1: 0}, ends) == POLLS
    view.bulk.close()


def test_a_document_of_an_epoch_has_its_version(view: View) -> None:
    view.write(["0", "1"], document)
    found = list(view.bulk.read({0: 0, 1: 0}, view.ends()))
    assert found[-1][0] == view.ends()
    assert pa.concat_tables(writes for _, writes in found)["version"].to_pylist() == [make_version(1, 0)] * 2
    view.bulk.close()


def test_what_cannot_be_read_is_left_out_and_named(view: View) -> None:
    """By expressions that refuse two records; what others are does not depend on them."""
    keys = [str(key) for key in range(3_000)]
    view.write(keys, document)
    view.write(["7"], document)
    refused = f"if(key IN ('7', '1234'), {refuse('name', 'odd')}, document) AS document"
    source = replace(view.source, shape=("key", "version", refused))
    found, bad, at = list[pa.Table](), list[Unread](), {0: 0, 1: 0}
    for some in salvage_of(view.spark, source)(at, view.ends()):
        assert some.end != at
        found.append(some.rows)
        bad += some.bad
        at = some.end
    assert at == view.ends()
    rows = pa.concat_tables(found)
    assert sorted(map(str, rows["key"].to_pylist()), key=int) == [key for key in keys if key not in ("7", "1234")]
    assert rows["document"].null_count == 0
    where = {("7", 1, 3): (1, 3), ("1234", 0, 617): (0, 617), ("7", 1, 1_501): (1, 1_501)}
    assert {(one.key, one.partition, split_version(one.version)[1]) for one in bad} == where.keys()
    assert {one.reason for one in bad} == {
        f"{view.topic}/{partition}/{offset}: column name: odd" for partition, offset in where.values()
    }
