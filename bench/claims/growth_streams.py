"""What an event costs as the keys of a stream grow, what is kept of each, and how fast a stream is proven meanwhile."""

from __future__ import annotations

import json
import threading
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import SparkSession

from bench.claims.streams import (
    LATENESS_MS,
    PARTITIONS,
    RunningQuery,
    cpu_seconds,
    is_read,
    running_query,
    stream_build,
    written_events,
)
from bench.figures import Figure, Report, Scale
from bench.pipeline import until
from driftless.config.models import KafkaConfig
from driftless.facts.streams import WINDOW, StreamBuild
from driftless.kafka.client import Kafka
from jobs.spark.session import session, stop
from jobs.streams.late.corrected import newest_corrected
from jobs.streams.log.published import published
from jobs.streams.moment import StreamMoment
from jobs.streams.sql import query as queries
from stack import Stack, fetch

OPEN = (
    "SELECT window.start AS began, user_id, count(*) AS n, max(id) AS last FROM clicks "
    "GROUP BY window(at, '36500 days'), user_id"
)
"""One window of this century: as many groups as there are users."""
MINUTES = OPEN.replace("36500 days", "1 minute")
EVENTS_OF_A_KEY = 2
BATCHES = 10
MEANWHILE = 1_000
"""Events a second while a stream is proven."""


@dataclass(frozen=True)
class _Size:
    """CPU seconds for each event, of this process and of Spark's JVM; bytes for each key, in memory and in files.

    `merged`: in files where RocksDB has merged them, so that each key is in one alone.
    """

    keys: int
    cpu: float
    memory: float
    files: float
    merged: float = 0.0


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
        small, large = (_both(spark, kafka, keys, report) for keys in (scale.rows // 5, 2 * scale.rows))
        ours, batch = _proven(spark, kafka, scale.rows, report)
    finally:
        stop(spark)
    what, aim = f"{large.keys:,} keys to {small.keys:,}", "0.8 to 1.2"
    return [
        Figure(f"CPU time of an event of a stream, {what}", large.cpu * 1e6, "us", small.cpu * 1e6,
               large.cpu / small.cpu, aim),
        Figure(f"memory of a stream's state, {what}", large.memory, "bytes/key", small.memory,
               large.memory / small.memory, "1.2"),
        Figure(f"files of a stream's state, merged, {what}", large.merged, "bytes/key", small.merged,
               large.merged / small.merged, "1.2"),
        Figure(f"files of a stream's state, between merges, {what}", large.files, "bytes/key", small.files,
               large.files / small.files, ""),
        Figure("events that `verify` proves a second while the stream runs; while it rests", ours, "/s", batch,
               ours / batch, "50,000/s"),
    ]  # fmt: skip


def _both(spark: SparkSession, kafka: Kafka, keys: int, report: Report) -> _Size:
    """As it is; and the files once more where every batch ends with a merge, which RocksDB else does now and then: what
    exceeds its 64 MB in memory is in a second file by then, with keys of the first.
    """
    measured = _measured(spark, kafka, keys, report)
    with patch.dict(queries.SETTINGS, {"spark.sql.streaming.stateStore.rocksdb.compactOnCommit": "true"}):
        return replace(measured, merged=_measured(spark, kafka, keys, report).files)


def _measured(spark: SparkSession, kafka: Kafka, keys: int, report: Report) -> _Size:
    """Of every group open: reading alone, before any document comes of it."""
    name, now = f"bench-{time.time_ns()}", int(time.time() * 1000)
    count = EVENTS_OF_A_KEY * keys
    # In as many batches whatever the size: what is written of a key again stays beside what was there for a while.
    in_batches = patch.object(queries, "MOST_OFFSETS", max(1, count // BATCHES))
    with in_batches, written_events(kafka, name, {"clicks": count}, now, keys) as topics:
        begun = cpu_seconds()
        with running_query(spark, kafka, name, _stream(kafka, OPEN, topics["clicks"])) as running:
            ends = {topics["clicks"]: kafka.committed_ends(topics["clicks"], PARTITIONS)}
            until("all events to be read", lambda: is_read(running.publisher, ends), seconds=1_800)
            spent = sum(cpu_seconds()) - sum(begun)
            until("Spark to report a batch", lambda: running.query.recentProgress)
            (state,) = running.query.recentProgress[-1].stateOperators
            groups, memory = state.numRowsTotal, state.memoryUsedBytes
            stores = list((running.folder / "state").glob("*/[0-9]*"))
            until(
                "snapshots of the state", partial(_snapshotted, kafka, topics["clicks"], stores), seconds=300, every=1.0
            )
            files = sum(map(_needed, stores))
    report(f"{groups:,} groups of {count:,} events: {spent:.1f} CPU s, {memory:,} bytes of memory, {files:,} in files")
    return _Size(groups, spent / count, memory / groups, files / groups)


def _snapshotted(kafka: Kafka, topic: str, stores: Sequence[Path]) -> bool:
    """Whether there is a snapshot of every store. Spark writes one in the minute after ten batches: here is one more.
    Before that, a state is in files of changes alone, which are smaller.
    """
    event = {"id": 1, "user_id": 1, "page": "page", "at": round(time.time() * 1000)}
    producer = kafka.producer()
    producer.produce(topic, json.dumps(event).encode())
    producer.flush(30)
    return all(any(store.glob("*.zip")) for store in stores)


def _needed(store: Path) -> int:
    """Bytes of the files from which Spark restores the newest version of a store: the newest snapshot, and the changes
    after it. Spark also keeps files of ten older versions, which are not counted.
    """
    snapshots = {int(path.stem): path for path in store.glob("*.zip")}
    newest = max(snapshots)
    size = sum(path.stat().st_size for path in store.glob("*.changelog") if int(path.stem) > newest)
    with zipfile.ZipFile(snapshots[newest]) as snapshot:
        held = json.loads(snapshot.read("metadata").partition(b"\n")[2])
    return size + snapshots[newest].stat().st_size + sum(int(file["sizeBytes"]) for file in held["sstFiles"])


def _proven(spark: SparkSession, kafka: Kafka, count: int, report: Report) -> tuple[float, float]:
    """Events that `verify` proves a second: while the stream runs, and while it rests."""
    name, now = f"bench-{time.time_ns()}", int(time.time() * 1000)
    with written_events(kafka, name, {"clicks": count}, now, 20_000) as topics:
        topic = topics["clicks"]
        with running_query(spark, kafka, name, _stream(kafka, MINUTES, topic)) as running:
            ends = {topic: kafka.committed_ends(topic, PARTITIONS)}
            until("all events to be read", lambda: is_read(running.publisher, ends), seconds=900)
            running.publisher.tick(now + LATENESS_MS + 1)
            until("windows to be closed", lambda: running.closed_ms >= now, seconds=300)
            alone = _proof(spark, kafka, running, report)
            ended = threading.Event()
            thread = threading.Thread(target=_meanwhile, args=(kafka, topic, ended), daemon=True)
            thread.start()
            meanwhile = _proof(spark, kafka, running, report)
            ended.set()
            thread.join()
    return count / meanwhile, count / alone


def _proof(spark: SparkSession, kafka: Kafka, running: RunningQuery, report: Report) -> float:
    """Seconds until the log has been compared with the batch."""
    build = running.build
    assert build.log is not None
    begun = time.perf_counter()
    corrected = newest_corrected(kafka, f"{build.log.topic}.batches", build)
    moment = StreamMoment(spark, kafka, build, running.publisher.newest, corrected, 0, report)
    found = {key: kept.document for key, kept in published(kafka, build.log).items()}
    assert dict(pair for page in moment.documents("") for pair in page) == found
    return time.perf_counter() - begun


def _meanwhile(kafka: Kafka, topic: str, ended: threading.Event) -> None:
    """Events of now, whose windows stay open."""
    producer, number = kafka.producer(), 0
    while not ended.wait(0.1):
        for _ in range(MEANWHILE // 10):
            number += 1
            event = {"id": number, "user_id": number % 1_000, "page": "later", "at": round(time.time() * 1000)}
            producer.produce(topic, json.dumps(event).encode())
        producer.flush(30)


def _stream(kafka: Kafka, sql: str, topic: str) -> StreamBuild:
    return stream_build(kafka, "growth", sql, WINDOW, ("began", "user_id"), {"clicks": topic})
