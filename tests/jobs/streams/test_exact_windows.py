"""The same windows from any batches, any order of partitions and any idle one: as many as the batch has, each once.

Spark's own late rule fails this: it depends on where batches end, on one fast clock, and on the order of partitions.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import defaultdict
from datetime import datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from driftless.config.models import KafkaConfig
from driftless.facts.streams import EventSource, StreamBuild, stream_table
from driftless.kafka.client import Kafka
from driftless.table import Column
from jobs.spark.source import kafka_options
from jobs.streams import query as queries
from jobs.streams.documents import documents
from stack import Endpoints
from tests.support.machine import until

pytestmark = pytest.mark.server

SEEDS = [int(text) for text in os.environ.get("DRIFTLESS_TEST_SEED", "").split()] or random.sample(range(10**6), 3)
PARTITIONS, SLICES, SLICE_MS, LATENESS, BEGIN = 4, 30, 30_000, 20_000, 1_760_000_010_000
COLUMNS = (Column("began", "timestamptz"), Column("page", "text"), Column("n", "int8"), Column("ids", "int8"))
TUMBLING = "window(at, '1 minute')"
HOPPING = "window(at, '2 minutes', '30 seconds')"


def build(kafka: Kafka, topic: str, window: str) -> StreamBuild:
    found = until("the topic", lambda: kafka.topic(topic))
    assert found is not None
    columns = {"id": "bigint", "page": "text", "at": "timestamptz"}
    source = EventSource(topic, found.id, dict.fromkeys(range(PARTITIONS), 0), columns, "at", None, LATENESS)
    shown = "window.start AS began, page, count(*) AS n, sum(id) AS ids"
    sql = f"SELECT {shown} FROM clicks WHERE page <> 'x' GROUP BY {window}, page"
    return StreamBuild("s", 1, sql, {"clicks": source}, stream_table("s", COLUMNS, ("began", "page")), "4", 2)


def slices(chance: random.Random) -> list[list[tuple[int, int, bytes]]]:
    """(partition, received, event), in slices of 30 s by when they were received. One partition is idle at first."""
    found: list[list[tuple[int, int, bytes]]] = [[] for _ in range(SLICES)]
    for number in range(1_500):
        received = BEGIN + chance.randrange(SLICES * SLICE_MS)
        slice_ = (received - BEGIN) // SLICE_MS
        delay = chance.randrange(25_000) if chance.random() < 0.95 else chance.randrange(300_000)
        ahead = 86_400_000 if chance.random() < 0.01 else 0
        event = {"id": number, "page": chance.choice("abx"), "at": received - delay + ahead}
        partition = chance.randrange(PARTITIONS - (slice_ < SLICES // 2))
        found[slice_].append((partition, received, json.dumps(event).encode()))
    return [sorted(some, key=lambda one: one[1]) for some in found]


def wanted(window: str, all_: list[list[tuple[int, int, bytes]]], to: int) -> dict[tuple[int, str], tuple[int, int]]:
    """Of windows that end by then, worked out without Spark."""
    size, step = (60_000, 60_000) if window == TUMBLING else (120_000, 30_000)
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    for _, received, text in (one for some in all_ for one in some):
        event = json.loads(text)
        if event["page"] == "x" or received - event["at"] > LATENESS:
            continue
        at = min(event["at"], received)
        first = at // step * step
        for begin in range(first, first - size, -step):
            if begin <= at < begin + size and begin + size <= to:
                groups[begin, event["page"]].append(event["id"])
    return {key: (len(ids), sum(ids)) for key, ids in groups.items()}


class Tried:
    """A query over a topic, told by ticks as a worker tells it."""

    def __init__(self, spark: SparkSession, kafka: Kafka, build: StreamBuild, folder: Path) -> None:
        self.rows: list[tuple[str, str]] = []
        self.build = build
        self._producer = Producer(kafka.settings())
        self._ticks = f"{next(iter(build.topics))}.ticks"
        kafka.create(self._ticks, 1, {})
        until("the topic of ticks", lambda: kafka.topic(self._ticks))
        session = queries.query_session(spark)
        options = kafka_options(kafka, "test")
        self.query: StreamingQuery = queries.start(session, build, options, (self._ticks, 0), folder, self._publish)

    def _publish(self, rows: DataFrame, _: int) -> None:
        self.rows += documents("s", rows.toArrow(), self.build.table.key)

    def tick(self, moment: int) -> None:
        self._producer.produce(self._ticks, str(moment).encode(), b"tick")
        self._producer.flush(15)

    @property
    def dropped(self) -> int:
        return sum(
            state.numRowsDroppedByWatermark for told in self.query.recentProgress for state in told.stateOperators
        )

    def shown(self) -> dict[tuple[int, str], tuple[int, int]]:
        found = [json.loads(text) for _, text in self.rows]
        return {(_ms(one["began"]), one["page"]): (one["n"], one["ids"]) for one in found}


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("window", "skewed"),
    [
        pytest.param(TUMBLING, True, id="tumbling, one partition before the next"),
        pytest.param(HOPPING, False, id="hopping, as it was received"),
        pytest.param(TUMBLING, False, id="tumbling, as it was received", marks=pytest.mark.soak),
        pytest.param(HOPPING, True, id="hopping, one partition before the next", marks=pytest.mark.soak),
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
    seed = SEEDS[(window == HOPPING) + skewed]
    print(f"seed {seed}")
    chance = random.Random(seed)
    all_ = slices(chance)
    kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
    topic = f"exact-{seed}-{time.time_ns()}"
    # A test says when it was received, long ago.
    kafka.create(topic, PARTITIONS, {"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
    build_ = build(kafka, topic, window)
    monkeypatch.setattr(queries, "MOST_OFFSETS", chance.choice([40, 150, 10_000]))
    monkeypatch.setattr(queries, "TRIGGER", "0 seconds")
    producer = Producer(kafka.settings())
    tried = Tried(spark, kafka, build_, tmp_path / "checkpoint")
    try:
        written = [0] * PARTITIONS
        order = [(p, n) for p in range(PARTITIONS) for n in range(SLICES)]
        if not skewed:
            order = [(p, n) for n in range(SLICES) for p in range(PARTITIONS)]
        begun = 0
        while begun < len(order):
            some = order[begun : begun + chance.choice([1, 7, 40])]
            begun += len(some)
            for p, n in some:
                for partition, received, text in all_[n]:
                    if partition == p:
                        producer.produce(topic, text, partition=p, timestamp=received)
                        written[p] += 1
            producer.flush(15)
            whole = min(sum(1 for q, _ in order[:begun] if q == p) for p in range(PARTITIONS))
            if whole and chance.random() < 0.7:
                tried.query.processAllAvailable()  # a tick is told once all before it has been read
                tried.tick(BEGIN + whole * SLICE_MS)
        tried.query.processAllAvailable()
        end = BEGIN + SLICES * SLICE_MS + 100_000
        tried.tick(end)
        closed = end - LATENESS - 1
        want = wanted(window, all_, closed)
        until("all windows", lambda: len(tried.rows) >= len(want), 60)
        assert tried.dropped == 0
        assert tried.shown() == want
        assert len(tried.rows) == len(want), "a window was published twice"
        assert queries.assert_barrier(tried.query)
    finally:
        tried.query.stop()
    ends = {topic: kafka.committed_ends(topic, PARTITIONS)}
    session = queries.query_session(spark)
    begin = {topic: dict.fromkeys(range(PARTITIONS), 0)}
    queries.batch_views(session, build_, kafka_options(kafka, "test"), begin, ends)
    batch = documents("s", queries.closed_batch(session, build_, closed, 0).toArrow(), ("began", "page"))
    assert sorted(tried.rows) == sorted(batch)
    kafka.delete(topic, f"{topic}.ticks")
