"""The same windows from any batches, any order of partitions and any idle one: as many as the batch has, each once.

Spark's own late rule fails this: it depends on where batches end, on one fast clock, and on the order of partitions.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftless.config.models import KafkaConfig
from driftless.kafka.client import Kafka
from jobs.spark.source import kafka_options
from jobs.streams.sql import query as queries
from jobs.streams.sql.documents import results
from jobs.streams.sql.timed import closed_batch
from stack import Endpoints
from tests.jobs.streams.random_events import (
    ALONE,
    BEGIN,
    CALMS,
    CHAIN,
    CHANGES,
    COPIES,
    COPIES_CHANGES,
    COPIES_OF_PATTERN,
    FILTER,
    HOPPING,
    JOIN,
    LATENESS,
    MATCHES,
    ONCE,
    OUTER,
    PARTITIONS,
    PATTERN,
    SEED,
    SESSION,
    SLICE_MS,
    SLICES,
    TUMBLING,
    Tried,
    build,
    slices,
    wanted,
    written,
)
from tests.support.machine import until

pytestmark = pytest.mark.server

QUICK = [(OUTER, True), (PATTERN, True)]
"""What `make test` tries; `make soak` tries the others."""


def way(window: str, name: str, *, skewed: bool) -> Any:
    order = "one partition before the next" if skewed else "as it was received"
    marks = () if (window, skewed) in QUICK else pytest.mark.soak
    return pytest.param(window, skewed, id=f"{name}, {order}", marks=marks)


@pytest.mark.parametrize(
    ("window", "skewed"),
    [
        way(HOPPING, "hopping", skewed=False),
        way(CHANGES, "every change", skewed=True),
        way(JOIN, "a join", skewed=True),
        way(TUMBLING, "tumbling", skewed=True),
        way(SESSION, "sessions", skewed=True),
        way(FILTER, "a filter", skewed=True),
        way(SESSION, "sessions", skewed=False),
        way(TUMBLING, "tumbling", skewed=False),
        way(HOPPING, "hopping", skewed=True),
        way(OUTER, "an outer join", skewed=True),
        way(ALONE, "windows over an outer join", skewed=True),
        way(ALONE, "windows over an outer join", skewed=False),
        way(PATTERN, "a pattern", skewed=True),
        way(PATTERN, "a pattern", skewed=False),
        way(CALMS, "windows over a pattern", skewed=True),
        way(OUTER, "an outer join", skewed=False),
        way(MATCHES, "windows over a join", skewed=True),
        way(CHAIN, "windows of windows", skewed=False),
        way(CHAIN, "windows of windows", skewed=True),
        way(COPIES, "copies of events", skewed=False),
        way(COPIES, "copies of events", skewed=True),
        way(COPIES_CHANGES, "copies of events, every change", skewed=True),
        way(COPIES_OF_PATTERN, "copies of events in a pattern", skewed=True),
    ],
)
def test_any_batches_give_the_windows_of_the_batch_each_once(
    spark: SparkSession,
    endpoints: Endpoints,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    window: str,
    skewed: bool,
) -> None:
    seed = random.Random(f"{SEED} {window} {skewed}").randrange(10**6)
    print(f"seed {SEED}")
    chance = random.Random(seed)
    all_ = slices(chance, copies=window in ONCE)
    kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
    topic = f"exact-{seed}-{time.time_ns()}"
    # A test says when it was received, long ago.
    kafka.create(topic, PARTITIONS, {"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
    build_ = build(kafka, topic, window)
    monkeypatch.setattr(queries, "MOST_OFFSETS", chance.choice([40, 150, 10_000]))
    monkeypatch.setattr(queries, "TRIGGER", "0 seconds")
    tried = Tried(spark, kafka, build_, tmp_path / "checkpoint")
    try:
        for moment in written(chance, kafka, topic, all_, skewed=skewed):
            if moment > BEGIN and chance.random() < 0.7:
                tried.query.processAllAvailable()  # a tick is told once all before it has been read
                tried.tick(moment)
        tried.query.processAllAvailable()
        end = BEGIN + SLICES * SLICE_MS + 100_000
        tried.tick(end)
        closed = end - LATENESS - 1
        want = wanted(window, all_, closed)
        until("all results", lambda: tried.shown() == want, 60)
        assert tried.dropped == 0
        assert tried.shown() == want
        assert queries.assert_barrier(tried.query)
        if window in ONCE:
            until("the events that were seen to be forgotten", lambda: tried.kept == 0, 60)
    finally:
        tried.query.stop()
    ends = {topic: kafka.committed_ends(topic, PARTITIONS)}
    session = queries.query_session(spark)
    begin = {topic: dict.fromkeys(range(PARTITIONS), 0)}
    queries.batch_views(session, build_, kafka_options(kafka, "test"), begin, ends)
    batch = results("s", closed_batch(session, build_, closed - build_.join_wait, 0).toArrow(), build_.table.key)
    assert sorted(dict(tried.rows).items()) == [(result.key, result.document) for result in batch]
    kafka.delete(topic, f"{topic}.ticks")
