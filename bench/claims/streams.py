"""What a stream costs: from events in Kafka to documents in its log, beside the same SQL as one batch over them, and as
a query of Spark's own that throws its results away.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.figures import Figure, Report, Scale
from bench.pipeline import until
from driftless.config.models import KafkaConfig
from driftless.facts.event_source import EventSource
from driftless.facts.streams import SESSION, WINDOW, StreamBuild, stream_table
from driftless.kafka.client import Kafka
from driftless.table import Column
from jobs.spark.session import session, stop
from jobs.spark.source import kafka_options
from jobs.streams.log.batch import QueryCheckpoint
from jobs.streams.publisher import StreamPublisher
from jobs.streams.sql import query as queries
from jobs.streams.sql.documents import results
from jobs.streams.sql.timed import closed_batch
from stack import Stack, fetch

AIM = "15,000 events/CPU s"
USERS = 20_000
PARTITIONS, SPREAD_MS, LATENESS_MS = 4, 15 * 60_000, 3_600_000
COLUMNS = {"id": "bigint", "user_id": "bigint", "page": "text", "at": "timestamptz"}
TUMBLING = (
    "SELECT window.start AS began, user_id, count(*) AS n, max(id) AS last FROM clicks "
    "GROUP BY window(at, '1 minute'), user_id"
)
SESSIONS = (
    "SELECT session_window.start AS began, user_id, count(*) AS n, max(id) AS last FROM clicks "
    "GROUP BY session_window(at, '30 seconds'), user_id"
)
JOIN = (
    "SELECT s.at AS began, s.user_id, s.id AS n, c.id AS last FROM searches s JOIN clicks c "
    "ON c.user_id = s.user_id AND c.at BETWEEN s.at AND s.at + INTERVAL 1 MINUTE"
)
FORMS = {
    "tumbling, 20,000 keys": (TUMBLING, WINDOW, ("began", "user_id"), ("clicks",)),
    "sessions": (SESSIONS, SESSION, ("began", "user_id"), ("clicks",)),
    "a join of two": (JOIN, "", ("n", "last"), ("clicks", "searches")),
}


@dataclass(frozen=True)
class _Cost:
    """`events` that were read, `documents` that came of them, in CPU seconds of this process and of Spark's JVM."""

    events: int
    documents: int
    driver: float
    jvm: float

    @property
    def rate(self) -> float:
        return self.events / (self.driver + self.jvm)

    def __str__(self) -> str:
        return f"{self.driver:.1f} + {self.jvm:.1f} CPU s (driver + JVM)"


@dataclass
class RunningQuery:
    """A stream's query, what has been published of it, and the folder of its checkpoint."""

    build: StreamBuild
    publisher: StreamPublisher
    folder: Path
    documents: int = 0
    query: StreamingQuery = field(init=False)

    @property
    def closed_ms(self) -> int:
        """Up to when windows are closed."""
        newest = self.publisher.newest
        return 0 if newest is None else newest.closed_ms


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """Of three fifths of `scale.rows` events, the join with a third as many searches: 15 and 5 of a user in a full run,
    as where the aim was measured by hand. Each form first as a stream, then as a batch.
    """
    endpoints = stack.endpoints()
    assert endpoints is not None
    kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
    name, now = f"bench-{time.time_ns()}", int(time.time() * 1000)
    spark = session(fetch(["spark"], report)["spark"])
    figures = []
    try:
        rows = scale.rows * 3 // 5
        counts = {"clicks": rows, "searches": rows // 3}
        with written_events(kafka, name, counts, now, USERS) as topics:
            # What the JVM has not run before it compiles first, for half a minute: that is no cost of a form.
            for number, (sql, closes, key, events) in enumerate(FORMS.values()):
                warm = stream_build(kafka, f"warm{number}", sql, closes, key, {each: topics[each] for each in events})
                _streamed(spark, kafka, name, warm, now)
                _in_batch(spark, kafka, warm, now)
                _by_spark_alone(spark, kafka, f"{name}.warm{number}", warm, now)
            for number, (form, (sql, closes, key, events)) in enumerate(FORMS.items()):
                build = stream_build(kafka, f"form{number}", sql, closes, key, {each: topics[each] for each in events})
                streamed = _streamed(spark, kafka, name, build, now)
                batch = _in_batch(spark, kafka, build, now)
                alone = _by_spark_alone(spark, kafka, f"{name}.close{number}", build, now)
                assert streamed.documents == batch.documents, (form, streamed, batch)
                report(
                    f"{form}: {streamed.documents:,} documents of {streamed.events:,} events; {streamed}; batch {batch}"
                )
                what = f"{form}: events a CPU second"
                figures.append(Figure(what, streamed.rate, "/s", batch.rate, streamed.rate / batch.rate, AIM))
                what = f"{form}: the same, by Spark alone"
                figures.append(Figure(what, streamed.rate, "/s", alone.rate, streamed.rate / alone.rate, ""))
    finally:
        stop(spark)
    return figures


def _streamed(spark: SparkSession, kafka: Kafka, name: str, build: StreamBuild, now: int) -> _Cost:
    """The whole of it: read, counted, closed by a tick, and published."""
    begun = cpu_seconds()
    with running_query(spark, kafka, name, build) as running:
        ends = {topic: kafka.committed_ends(topic, PARTITIONS) for topic in build.topics}
        until("all events to be read", lambda: is_read(running.publisher, ends), seconds=900)
        closed = now + 120_000
        running.publisher.tick(closed + LATENESS_MS + 1)
        until("all windows to be closed", lambda: running.closed_ms >= closed)
    return _cost(ends, running.documents, begun)


@contextmanager
def running_query(spark: SparkSession, kafka: Kafka, name: str, build: StreamBuild) -> Iterator[RunningQuery]:
    """A stream over its topics, published as a worker does it, until the block ends."""
    build = build.with_topics(kafka, name)
    publisher = StreamPublisher(kafka, name, build)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = QueryCheckpoint(Path(folder) / "checkpoint")

        def publish(rows: DataFrame, batch: int) -> None:
            found = list(results(build.stream, rows.toArrow(), build.table.key))
            publisher.publish(checkpoint.id, batch, checkpoint.planned(batch), found)
            running.documents += len(found)

        own, options = queries.query_session(spark), kafka_options(kafka, "bench")
        running = RunningQuery(build, publisher, checkpoint.folder)
        running.query = queries.start(own, build, options, publisher.ticks, checkpoint.folder, publish)
        try:
            yield running
        finally:
            running.query.stop()


def _in_batch(spark: SparkSession, kafka: Kafka, build: StreamBuild, now: int) -> _Cost:
    begin = {topic: dict.fromkeys(range(PARTITIONS), 0) for topic in build.topics}
    ends = {topic: kafka.committed_ends(topic, PARTITIONS) for topic in build.topics}
    begun, own = cpu_seconds(), queries.query_session(spark)
    queries.batch_views(own, build, kafka_options(kafka, "bench"), begin, ends)
    rows = closed_batch(own, build, now + 120_000, 0).toArrow()
    documents = len(list(results(build.stream, rows, build.table.key)))
    return _cost(ends, documents, begun)


def _by_spark_alone(spark: SparkSession, kafka: Kafka, closing: str, build: StreamBuild, now: int) -> _Cost:
    """As Spark's manual has it: the watermark follows the events. One in a topic `closing`, hours later, closes all
    windows. Spark reports, corrects and publishes no event.
    """
    kafka.create(closing, 1, {})
    until(f"the topic {closing}", partial(kafka.topic, closing))
    ends = {topic: kafka.committed_ends(topic, PARTITIONS) for topic in build.topics}
    begun, own, found = cpu_seconds(), queries.query_session(spark), [0]
    for name, source in build.events.items():
        reader = own.readStream.format("kafka").options(**kafka_options(kafka, "bench"))
        reader = reader.option("subscribe", f"{source.topic},{closing}").option("startingOffsets", "earliest")
        records = reader.option("maxOffsetsPerTrigger", queries.MOST_OFFSETS).load()
        event = "from_json(CAST(value AS STRING), 'id BIGINT, user_id BIGINT, page STRING, at BIGINT') AS event"
        columns = ("event.id", "event.user_id", "event.page", "timestamp_millis(event.at) AS at")
        rows = records.selectExpr(event).selectExpr(*columns)
        rows.withWatermark("at", f"{LATENESS_MS} milliseconds").createOrReplaceTempView(name)

    def count(rows: DataFrame, batch: int) -> None:
        del batch
        found[0] += rows.toArrow().num_rows

    with tempfile.TemporaryDirectory() as folder:
        writer = own.sql(build.sql).writeStream.outputMode("append").foreachBatch(count)
        query = writer.option("checkpointLocation", folder).trigger(processingTime=queries.TRIGGER).start()
        query.processAllAvailable()
        last = {"id": -1, "user_id": -1, "page": "", "at": now + 2 * LATENESS_MS}
        producer = kafka.producer()
        producer.produce(closing, json.dumps(last).encode())
        producer.flush(60)
        query.processAllAvailable()

        def left() -> int:
            newest = query.lastProgress
            assert newest is not None
            return newest.stateOperators[0].numRowsTotal

        until("all windows to be closed", lambda: left() <= len(build.events))
        query.stop()
    kafka.delete(closing)
    return _cost(ends, found[0], begun)


def _cost(ends: Mapping[str, Mapping[int, int]], documents: int, begun: tuple[float, float]) -> _Cost:
    driver, jvm = (now - then for now, then in zip(cpu_seconds(), begun, strict=True))
    return _Cost(sum(sum(offsets.values()) for offsets in ends.values()), documents, driver, jvm)


@contextmanager
def written_events(
    kafka: Kafka, name: str, counts: Mapping[str, int], now: int, users: int
) -> Iterator[dict[str, str]]:
    """Topics of events of so many users, that happened in the last quarter of an hour, in no order."""
    topics = {events: f"{name}.{events}" for events in counts}
    chance, producer = random.Random(7), kafka.producer()
    for events, topic in topics.items():
        kafka.create(topic, PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        until(f"the topic {topic}", partial(kafka.topic, topic))
        for n in range(counts[events]):
            event = {
                "id": n,
                "user_id": chance.randrange(users),
                "page": f"page {n % 997}",
                "at": now - chance.randrange(SPREAD_MS),
            }
            producer.produce(topic, json.dumps(event).encode())
            if n % 10_000 == 0:
                producer.flush(60)
        producer.flush(60)
    try:
        yield topics
    finally:
        kafka.delete(*topics.values(), *(topic for topic in kafka.topics() if topic.startswith(f"{name}.stream.")))


def stream_build(
    kafka: Kafka, stream: str, sql: str, closes: str, key: tuple[str, ...], topics: Mapping[str, str]
) -> StreamBuild:
    """A stream over these topics from their first events: `closes`, `key` as of a build."""
    events = {}
    for each, topic in topics.items():
        found = kafka.topic(topic)
        assert found is not None
        floors = dict.fromkeys(range(PARTITIONS), 0)
        events[each] = EventSource(topic, found.id, floors, COLUMNS, "at", None, LATENESS_MS)
    columns = (Column("began", "timestamptz"), *(Column(c, "int8") for c in ("user_id", "n", "last")))
    return StreamBuild(stream, 1, sql, events, stream_table(stream, columns, key), "", PARTITIONS, closes=closes)


def is_read(publisher: StreamPublisher, ends: Mapping[str, Mapping[int, int]]) -> bool:
    """Whether everything before these places has been read, and what came of it is published."""
    read = publisher.newest.read if publisher.newest is not None else {}
    return all(read.get(topic, {}).get(p, 0) >= end for topic, offsets in ends.items() for p, end in offsets.items())


def cpu_seconds() -> tuple[float, float]:
    """Seconds of this process, and of Spark's JVM."""
    here, others = psutil.Process(), 0.0
    for child in here.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            others += times.user + times.system
    mine = here.cpu_times()
    return mine.user + mine.system, others
