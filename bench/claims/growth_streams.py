"""What an event costs as the keys of a stream grow, what is kept of each, and how fast a stream is proven meanwhile."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.claims.streams import LATENESS_MS, PARTITIONS, cpu_seconds, is_read, stream_build, written_events
from bench.figures import Figure, Report, Scale
from bench.pipeline import until
from driftless.config.models import KafkaConfig
from driftless.facts.streams import WINDOW, StreamBuild
from driftless.kafka.client import Kafka
from jobs.spark.session import session, stop
from jobs.spark.source import kafka_options
from jobs.streams.late.corrected import newest_corrected
from jobs.streams.log.batch import QueryCheckpoint
from jobs.streams.log.published import published
from jobs.streams.moment import StreamMoment
from jobs.streams.publisher import StreamPublisher
from jobs.streams.sql import query as queries
from jobs.streams.sql.documents import results
from stack import Stack, fetch

OPEN = (
    "SELECT window.start AS began, user_id, count(*) AS n, max(id) AS last FROM clicks "
    "GROUP BY window(at, '36500 days'), user_id"
)
"""One window of this century: as many groups as there are users."""
MINUTES = OPEN.replace("36500 days", "1 minute")
EVENTS_OF_A_KEY = 2
MEANWHILE = 1_000
"""Events a second while a stream is proven."""


@dataclass(frozen=True)
class _Size:
    """CPU seconds for each event, of this process and of Spark's JVM; bytes for each key, in memory and in files."""

    keys: int
    cpu: float
    memory: float
    files: float


@dataclass
class _Going:
    """A query that goes on, what it has published, and the folder of its checkpoint."""

    query: StreamingQuery
    build: StreamBuild
    publisher: StreamPublisher
    folder: Path


def run(stack: Stack, scale: Scale, report: Report) -> list[Figure]:
    """A fifth of `scale.rows` keys and twice as many: 100,000 and 1,000,000 in a full run. `scale.rows` events that are
    proven.
    """
    endpoints = stack.endpoints()
    assert endpoints is not None
    kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
    spark = session(fetch(["spark"], report)["spark"])
    try:
        _measured(spark, kafka, min(20_000, scale.rows), report)  # what the JVM has not run before it compiles first
        small, large = (_measured(spark, kafka, keys, report) for keys in (scale.rows // 5, 2 * scale.rows))
        ours, batch = _proven(spark, kafka, scale.rows, report)
    finally:
        stop(spark)
    what, aim = f"{large.keys:,} keys to {small.keys:,}", "0.8 to 1.2"
    return [
        Figure(f"CPU time of an event of a stream, {what}", large.cpu * 1e6, "us", small.cpu * 1e6,
               large.cpu / small.cpu, aim),
        Figure(f"memory of a stream's state, {what}", large.memory, "bytes/key", small.memory,
               large.memory / small.memory, "1.2"),
        Figure(f"files of a stream's state, {what}", large.files, "bytes/key", small.files,
               large.files / small.files, "1.2"),
        Figure("events proven a second by `verify`, as the stream goes on; the batch alone", ours, "/s", batch,
               ours / batch, "50,000/s"),
    ]  # fmt: skip


def _measured(spark: SparkSession, kafka: Kafka, keys: int, report: Report) -> _Size:
    """Of every group open: reading alone, before any document comes of it."""
    name, now = f"bench-{time.time_ns()}", int(time.time() * 1000)
    count = EVENTS_OF_A_KEY * keys
    with written_events(kafka, name, {"clicks": count}, now, keys) as topics:
        begun = cpu_seconds()
        with _going(spark, kafka, name, OPEN, topics["clicks"]) as going:
            ends = {topics["clicks"]: kafka.committed_ends(topics["clicks"], PARTITIONS)}
            until("all events to be read", lambda: is_read(going.publisher, ends), seconds=1_800)
            spent = sum(cpu_seconds()) - sum(begun)
            until("a batch to be told of", lambda: going.query.recentProgress)
            (state,) = going.query.recentProgress[-1].stateOperators
            groups, memory = state.numRowsTotal, state.memoryUsedBytes
            files = sum(path.stat().st_size for path in (going.folder / "state").rglob("*") if path.is_file())
    report(f"{groups:,} groups of {count:,} events: {spent:.1f} CPU s, {memory:,} bytes of memory, {files:,} in files")
    return _Size(groups, spent / count, memory / groups, files / groups)


def _proven(spark: SparkSession, kafka: Kafka, count: int, report: Report) -> tuple[float, float]:
    """Events a second: proven as the stream goes on, and by the batch alone as it rests."""
    name, now = f"bench-{time.time_ns()}", int(time.time() * 1000)
    with written_events(kafka, name, {"clicks": count}, now, 20_000) as topics:
        topic = topics["clicks"]
        with _going(spark, kafka, name, MINUTES, topic) as going:
            ends = {topic: kafka.committed_ends(topic, PARTITIONS)}
            until("all events to be read", lambda: is_read(going.publisher, ends), seconds=900)
            going.publisher.tick(now + LATENESS_MS + 1)
            until("windows to be closed", lambda: _closed_ms(going) >= now, seconds=300)
            alone = _proof(spark, kafka, going, report)
            ended = threading.Event()
            thread = threading.Thread(target=_meanwhile, args=(kafka, topic, ended), daemon=True)
            thread.start()
            meanwhile = _proof(spark, kafka, going, report)
            ended.set()
            thread.join()
    return count / meanwhile, count / alone


def _proof(spark: SparkSession, kafka: Kafka, going: _Going, report: Report) -> float:
    """Seconds until the log has been compared with the batch."""
    assert going.build.log is not None
    begun = time.perf_counter()
    batch, corrected = going.publisher.newest, newest_corrected(kafka, f"{going.build.log.topic}.batches", going.build)
    moment = StreamMoment(spark, kafka, going.build, batch, corrected, 0, report)
    found = {key: kept.document for key, kept in published(kafka, going.build.log).items()}
    assert dict(pair for page in moment.documents("") for pair in page) == found
    return time.perf_counter() - begun


def _closed_ms(going: _Going) -> int:
    newest = going.publisher.newest
    return 0 if newest is None else newest.closed_ms


def _meanwhile(kafka: Kafka, topic: str, ended: threading.Event) -> None:
    """Events of now, whose windows stay open."""
    producer, number = kafka.producer(), 0
    while not ended.wait(0.1):
        for _ in range(MEANWHILE // 10):
            number += 1
            event = {"id": number, "user_id": number % 1_000, "page": "later", "at": round(time.time() * 1000)}
            producer.produce(topic, json.dumps(event).encode())
        producer.flush(30)


@contextmanager
def _going(spark: SparkSession, kafka: Kafka, name: str, sql: str, topic: str) -> Iterator[_Going]:
    build = stream_build(kafka, "growth", sql, WINDOW, ("began", "user_id"), {"clicks": topic})
    build = build.with_topics(kafka, name)
    publisher = StreamPublisher(kafka, name, build)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = QueryCheckpoint(Path(folder) / "checkpoint")

        def publish(rows: DataFrame, batch: int) -> None:
            found = list(results(build.stream, rows.toArrow(), build.table.key))
            publisher.publish(checkpoint.id, batch, checkpoint.planned(batch), found)

        own, options = queries.query_session(spark), kafka_options(kafka, "bench")
        query = queries.start(own, build, options, publisher.ticks, checkpoint.folder, publish)
        try:
            yield _Going(query, build, publisher, checkpoint.folder)
        finally:
            query.stop()
