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
from jobs.streams.documents import results
from stack import Endpoints
from tests.support.machine import until

pytestmark = pytest.mark.server

SEED = int(os.environ.get("DRIFTLESS_TEST_SEED") or random.randrange(10**6))
PARTITIONS, SLICES, SLICE_MS, LATENESS, BEGIN = 4, 30, 30_000, 20_000, 1_760_000_010_000
COLUMNS = (Column("began", "timestamptz"), Column("page", "text"), Column("n", "int8"), Column("ids", "int8"))
TUMBLING = "window(at, '1 minute')"
HOPPING = "window(at, '2 minutes', '30 seconds')"
SESSION = "session_window(at, '3 seconds')"
FILTER, JOIN, CHANGES = "", "join", "changes"
JOIN_MS = 4_000


def build(kafka: Kafka, topic: str, window: str) -> StreamBuild:
    found = until("the topic", lambda: kafka.topic(topic))
    assert found is not None
    columns = {"id": "bigint", "page": "text", "at": "timestamptz"}
    source = EventSource(topic, found.id, dict.fromkeys(range(PARTITIONS), 0), columns, "at", None, LATENESS)
    emit = "changes" if window == CHANGES else "final"
    window = TUMBLING if window == CHANGES else window
    grouped = f"SELECT {window.partition('(')[0]}.start AS began, page, count(*) AS n, sum(id) AS ids"
    key: tuple[str, ...]
    sql, key, closes = f"{grouped} FROM clicks WHERE page <> 'x' GROUP BY {window}, page", ("began", "page"), "window"
    if window == SESSION:
        closes = "session_window"
    elif window == FILTER:
        sql, closes, key = "SELECT at AS began, page, id AS n, id + 1 AS ids FROM clicks WHERE page <> 'x'", "", ("n",)
    elif window == JOIN:
        near = f"b.at BETWEEN a.at AND a.at + INTERVAL {JOIN_MS // 1000} SECONDS AND a.id <> b.id"
        pairs = "SELECT a.at AS began, a.page, a.id AS n, b.id AS ids FROM clicks a JOIN clicks b"
        sql = f"{pairs} ON a.page = b.page AND {near}"
        closes, key = "", ("n", "ids")
    table = stream_table("s", COLUMNS, key)
    return StreamBuild("s", 1, sql, {"clicks": source}, table, "4", 2, closes=closes, emit=emit)


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


def wanted(window: str, all_: list[list[tuple[int, int, bytes]]], to: int) -> set[tuple[int, str, int, int]]:
    """Begin, page and two numbers of each result that is final by then, worked out without Spark."""
    events = []
    for _, received, text in (one for some in all_ for one in some):
        event = json.loads(text)
        if received - event["at"] <= LATENESS:
            events.append((min(event["at"], received), event["page"], event["id"]))
    if window == JOIN:
        return {
            (at, page, id_, other)
            for at, page, id_ in events
            for then, where, other in events
            if where == page and id_ != other and at <= then <= at + JOIN_MS
        }
    events = [event for event in sorted(events) if event[1] != "x"]
    if window == FILTER:
        return {(at, page, id_, id_ + 1) for at, page, id_ in events}
    groups: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    open_: dict[str, tuple[int, int, list[int]]] = {}
    for at, page, id_ in events:
        if window == SESSION:
            begin, last, ids = open_.get(page, (at, at, []))
            if at - last >= 3_000:
                groups[begin, last + 3_000, page] = ids
                begin, ids = at, []
            open_[page] = (begin, at, [*ids, id_])
            continue
        size, step = (120_000, 30_000) if window == HOPPING else (60_000, 60_000)
        first = at // step * step
        for begin in range(first, first - size, -step):
            if begin <= at < begin + size:
                groups[begin, begin + size, page].append(id_)
    groups |= {(begin, last + 3_000, page): ids for page, (begin, last, ids) in open_.items()}
    return {
        (begin, page, len(ids), sum(ids))
        for (begin, end, page), ids in groups.items()
        if end <= to or window == CHANGES
    }


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
        self.rows += [(result.key, result.document) for result in results("s", rows.toArrow(), self.build.table.key)]

    def tick(self, moment: int) -> None:
        self._producer.produce(self._ticks, str(moment).encode(), b"tick")
        self._producer.flush(15)

    @property
    def dropped(self) -> int:
        return sum(
            state.numRowsDroppedByWatermark for told in self.query.recentProgress for state in told.stateOperators
        )

    def shown(self) -> set[tuple[int, str, int, int]]:
        found = [json.loads(text) for _, text in self.rows]
        newest = {key: json.loads(text) for key, text in self.rows}
        assert len(newest) == len(found) or self.build.emit == "changes", "a result was published twice"
        return {(_ms(one["began"]), one["page"], one["n"], one["ids"]) for one in newest.values()}


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("window", "skewed"),
    [
        pytest.param(TUMBLING, True, id="tumbling, one partition before the next"),
        pytest.param(HOPPING, False, id="hopping, as it was received"),
        pytest.param(SESSION, True, id="sessions, one partition before the next"),
        pytest.param(CHANGES, True, id="every change, one partition before the next"),
        pytest.param(JOIN, True, id="a join, one partition before the next"),
        pytest.param(FILTER, True, id="a filter, one partition before the next", marks=pytest.mark.soak),
        pytest.param(SESSION, False, id="sessions, as it was received", marks=pytest.mark.soak),
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
    seed = random.Random(f"{SEED} {window} {skewed}").randrange(10**6)
    print(f"seed {SEED}")
    chance = random.Random(seed)
    all_ = slices(chance)
    kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
    topic = f"exact-{seed}-{time.time_ns()}"
    # A test says when it was received, long ago.
    kafka.create(topic, PARTITIONS, {"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
    build_ = build(kafka, topic, window)
    monkeypatch.setattr(queries, "MOST_OFFSETS", chance.choice([40, 150, 10_000]))
    monkeypatch.setattr(queries, "TRIGGERS", dict.fromkeys(queries.MODES, "0 seconds"))
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
        until("all results", lambda: tried.shown() == want, 60)
        assert tried.dropped == 0
        assert tried.shown() == want
        assert queries.assert_barrier(tried.query)
    finally:
        tried.query.stop()
    ends = {topic: kafka.committed_ends(topic, PARTITIONS)}
    session = queries.query_session(spark)
    begin = {topic: dict.fromkeys(range(PARTITIONS), 0)}
    queries.batch_views(session, build_, kafka_options(kafka, "test"), begin, ends)
    batch = results("s", queries.closed_batch(session, build_, closed, 0).toArrow(), build_.table.key)
    assert sorted(dict(tried.rows).items()) == [(result.key, result.document) for result in batch]
    kafka.delete(topic, f"{topic}.ticks")
