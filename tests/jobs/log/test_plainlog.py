"""Large slices of a real topic without a job, with what transactions and tombstones leave in it."""

from __future__ import annotations

import json
import random
import uuid
from itertools import count, cycle, islice
from typing import Literal

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from driftless.config.models import KafkaConfig
from driftless.kafka.client import Kafka
from driftless.table import Column, Table
from jobs.decode.arrow_rows import LARGE, plain_rows
from jobs.decode.rows import rows_sql
from jobs.log.contract import UnusualRecordsError
from jobs.log.reader import MANY_RECORDS, LocalReader
from jobs.spark.arrow import ArrowDecoder
from jobs.spark.private import PUBLIC_ONLY
from jobs.spark.source import LogSource, kafka_options, read_slice
from stack import Endpoints
from tests.jobs.both_ways import WAYS
from tests.jobs.plain import LOG, UNAVAILABLE, transactional
from tests.support.seeds import seeds

pytestmark = pytest.mark.server

TABLE = Table("public", "t", (Column("id", "int8"), Column("name", "text", toastable=True)), ("id",))
COUNT = 26_000


class Topic:
    """A topic of two partitions, and a log that reads it as rows."""

    def __init__(self, spark: SparkSession, kafka: Kafka) -> None:
        self.name = f"plain-{uuid.uuid4().hex[:8]}"
        self.spark = spark
        self.kafka = kafka
        kafka.create(self.name, 2, {})
        decoded = plain_rows(TABLE, LOG, UNAVAILABLE)
        assert decoded is not None
        self.options = {**kafka_options(kafka, "test"), "includeHeaders": "true"}
        self.decoder = ArrowDecoder(spark, decoded)
        self.log = LocalReader(
            spark, LogSource(self.name, self.options, (), (), kafka=kafka), self.decoder, poll=MANY_RECORDS
        )

    def ends(self) -> dict[int, int]:
        return self.kafka.decided_ends(self.name, 2, 30)

    def write(self, producer: Producer, number: int, *, name: str | None = "x", partition: int = 0) -> None:
        value = None if name is None else json.dumps({"id": number, "name": name}).encode()
        headers: list[tuple[str, str | bytes | None]] = [("op", b"c"), ("seq", b'["%d","%d"]' % (number, number + 1))]
        key = json.dumps({"id": number}).encode()
        producer.produce(self.name, value, key, partition=partition, headers=headers)
        producer.poll(0)

    def by_job(self) -> pa.Table:
        """All rows, by Spark's expressions in a job."""
        sql = rows_sql(TABLE, LOG, unavailable=UNAVAILABLE)
        source = LogSource(self.name, self.options, sql.parse, sql.shape)
        return read_slice(self.spark, source, {0: 0, 1: 0}, self.ends()).toArrow()


@pytest.fixture(params=WAYS)
def topic(
    spark: SparkSession, endpoints: Endpoints, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Topic:
    monkeypatch.setenv(PUBLIC_ONLY, request.param)
    return Topic(spark, Kafka(KafkaConfig(bootstrap=endpoints.kafka)))


@pytest.mark.parametrize("seed", seeds(__name__, 1))
def test_what_is_committed_is_read_once_and_as_spark_reads_it(topic: Topic, seed: int) -> None:
    print(f"DRIFTLESS_TEST_SEED={seed}")
    rng, producer, numbers, committed = random.Random(seed), transactional(topic.kafka), count(), 0
    for turn in cycle(range(4)):
        producer.begin_transaction()
        size = rng.choice([1, 100, 5_000])
        for number in islice(numbers, size):
            topic.write(producer, number, name=rng.choice(["x", "ü", None]), partition=rng.choice([0, 0, 0, 1]))
        if turn == 1:
            # So that there is something to abort: what is on its way would be thrown away, and a broker that has not
            # heard of the transaction yet calls its end invalid.
            assert producer.flush(30) == 0
            producer.abort_transaction(30)
            continue
        producer.commit_transaction(30)
        committed += size
        if committed > COUNT:
            break
    ends, at, found = topic.ends(), {0: 0, 1: 0}, list[pa.Table]()
    while any(at[p] < ends[p] for p in ends):
        left = {p: at[p] for p in at if at[p] < ends[p]}
        reached, rows = topic.log.read(left, {p: ends[p] for p in left}, most=3_000)
        assert sum(reached.values()) > sum(left.values())
        at |= reached
        found.append(rows)
    topic.log.close()
    assert at == ends
    assert len(found) > 1
    order: list[tuple[str, Literal["ascending", "descending"]]] = [("partition", "ascending"), ("offset", "ascending")]
    wanted = topic.by_job().sort_by(order)
    assert wanted.num_rows == committed
    assert pa.concat_tables(found).cast(wanted.schema).sort_by(order).equals(wanted)


def test_what_is_unusual_gives_nothing_and_what_comes_before_it_is_read_all_the_same(topic: Topic) -> None:
    producer = transactional(topic.kafka)
    producer.begin_transaction()
    for number in range(3_000):
        topic.write(producer, number, name="x" * (LARGE if number == 2_500 else 1))
    producer.commit_transaction(30)
    with pytest.raises(UnusualRecordsError, match=topic.name):
        topic.log.read({0: 0}, {0: 3_000})
    _, rows = topic.log.read({0: 2_600}, {0: 3_000})
    assert rows["offset"].to_pylist() == list(range(2_600, 3_000))
    topic.log.close()


def test_after_any_error_nothing_is_left_out(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer has gone on by then: a read that begins where the last one did must not go on from there."""
    producer = transactional(topic.kafka)
    producer.begin_transaction()
    for number in range(3_000):
        topic.write(producer, number)
    producer.commit_transaction(30)
    with monkeypatch.context() as broken:
        broken.setattr(topic.decoder, "table", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            topic.log.read({0: 0}, {0: 3_000})
    _, rows = topic.log.read({0: 0}, {0: 3_000})
    assert rows["offset"].to_pylist() == list(range(3_000))
    topic.log.close()


def test_nothing_to_read_is_an_empty_table(topic: Topic) -> None:
    reached, rows = topic.log.read({0: 0, 1: 0}, {0: 0, 1: 0})
    assert (reached, rows.num_rows) == ({0: 0, 1: 0}, 0)
    topic.log.close()
