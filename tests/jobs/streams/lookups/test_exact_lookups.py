"""Events with rows of a table as they were: the same from any batches, in a batch, and as worked out without Spark."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from driftless.config.models import KafkaConfig
from driftless.facts.event_source import CapturedEvents, EventSource
from driftless.facts.lookups import Lookup
from driftless.facts.streams import LOOKUP, StreamBuild
from driftless.kafka.client import Kafka
from driftless.kafka.topic_settings import history_settings
from driftless.table import Column
from jobs.spark.source import kafka_options
from jobs.streams.sql import query as queries
from jobs.streams.sql.documents import results
from jobs.streams.sql.timed import closed_batch
from stack import Endpoints
from tests.jobs.streams.random_events import (
    BEGIN,
    FILTER,
    LATENESS,
    PARTITIONS,
    SEED,
    SLICE_MS,
    SLICES,
    TUMBLING,
    Tried,
    build,
    slices,
    written,
)
from tests.support.machine import until

pytestmark = pytest.mark.server

TABLE = "public.pages"
COLUMNS = (Column("page", "text"), Column("title", "text"), Column("price", "numeric"))
TYPES = {"page": "text", "title": "text", "price": "numeric"}
ROW, OTHER = (Lookup("clicks", name, TABLE, ("page",), ("page",), ("title", "price")) for name in ("row", "other"))
EACH = (
    "SELECT at AS began, concat(page, coalesce(row.title, '-')) AS page, id AS n, "
    "CAST(coalesce(row.price, -1) AS BIGINT) AS ids FROM clicks"
)
BOTH = EACH.replace("coalesce(row.price, -1)", "coalesce(other.price, -1)")
GROUPED = (
    "SELECT window.start AS began, coalesce(row.title, '-') AS page, count(*) AS n, sum(id) AS ids FROM clicks "
    "GROUP BY window(at, '1 minute'), coalesce(row.title, '-')"
)

Change = tuple[int, str, str | None, int]
"""When it was committed, the page, its title (None: deleted), and its price."""


def changes(chance: random.Random, moments: list[int]) -> list[Change]:
    """Of three rows; the first one of a page, if any, is of the snapshot. Some at the very moment of an event."""
    found: list[Change] = []
    for number in range(120):
        at = chance.choice(moments) if chance.random() < 0.3 else BEGIN + chance.randrange(SLICES * SLICE_MS)
        title = None if chance.random() < 0.2 else chance.choice(["t", "ü\"'", "\\u0000"])
        found.append((at, chance.choice("ab"), title, number))
    return [(0, "a", "first", 1_000), *sorted(found, key=lambda change: change[0])]


def row_at(all_: list[Change], page: str, at: int) -> tuple[str, int]:
    """Title and price as of a moment."""
    known = [(title, price) for since, of, title, price in all_ if of == page and since <= at]
    title, price = known[-1] if known else (None, -1)
    return ("-", -1) if title is None else (title, price)


def write(producer: Producer, topic: str, some: list[Change]) -> None:
    for since, page, title, price in some:
        key = json.dumps({"page": page}).encode()
        value = None if title is None else json.dumps({"page": page, "title": title, "price": f"{price}.00"}).encode()
        op = b"r" if not since else b"u" if title is not None else b"d"
        ts = (since or BEGIN + 77) * 1000 + 999
        heads: list[tuple[str, str | bytes | None]] = [("op", op), ("ts", str(ts).encode())]
        partition = "ab".index(page)
        producer.produce(topic, value, key, partition, headers=heads)
        if value is None:
            producer.produce(topic, None, key, partition)
    producer.flush(15)


def wanted(
    sql: str, events: list[list[tuple[int, int, bytes]]], rows: list[Change], to: int, lateness: int = LATENESS
) -> set[tuple[Any, ...]]:
    """Begin, page with title, and two numbers of each result that is final by then, worked out without Spark."""
    found, groups = set(), defaultdict[tuple[int, str], list[int]](list)
    for _, received, text in (one for some in events for one in some):
        event = json.loads(text)
        if received - event["at"] > lateness:
            continue
        at = min(event["at"], received)
        title, price = row_at(rows, event["page"], at)
        groups[at // 60_000 * 60_000, title].append(event["id"])
        if at <= to:
            found.add((at, event["page"] + title, event["id"], price))
    if sql != GROUPED:
        return found
    return {(began, title, len(ids), sum(ids)) for (began, title), ids in groups.items() if began + 60_000 <= to}


def looking(kafka: Kafka, topic: str, table: str, sql: str, correct: int = 0) -> StreamBuild:
    found = until("the topic", lambda: kafka.topic(table))
    assert found is not None
    rows = CapturedEvents(TABLE, COLUMNS, "", 1, {0: 1, 1: 1})
    versions = replace(EventSource.of_versions(table, TYPES, rows), topic_id=found.id, floors={0: 0, 1: 0})
    made = build(kafka, topic, TUMBLING if sql == GROUPED else FILTER, correct)
    lookups = (ROW, OTHER) if "other" in sql else (ROW,)
    closes = made.closes or LOOKUP
    return replace(made, sql=sql, closes=closes, lookups=lookups, tables={TABLE: versions})


@pytest.mark.parametrize(
    ("sql", "skewed"),
    [
        pytest.param(EACH, True, id="each event"),
        pytest.param(GROUPED, True, id="windows", marks=pytest.mark.soak),
        pytest.param(BOTH, False, id="two rows", marks=pytest.mark.soak),
    ],
)
def test_any_batches_give_each_event_the_row_as_it_was(
    spark: SparkSession, endpoints: Endpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, skewed: bool
) -> None:
    chance = random.Random(f"{SEED} {sql}")
    print(f"seed {SEED}")
    all_ = slices(chance)
    rows = changes(chance, [json.loads(one[2])["at"] for some in all_ for one in some][::7])
    kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
    topic = f"lookups-{time.time_ns()}"
    table = f"{topic}.pages"
    # A test says when an event was received, long ago.
    kafka.create(topic, PARTITIONS, {"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
    kafka.create(table, 2, history_settings(None))
    build_ = looking(kafka, topic, table, sql)
    monkeypatch.setattr(queries, "MOST_OFFSETS", chance.choice([40, 150, 10_000]))
    monkeypatch.setattr(queries, "TRIGGER", "0 seconds")
    producer = Producer(kafka.settings())
    told = iter(rows)
    tried = Tried(spark, kafka, build_, tmp_path / "checkpoint")
    try:
        left = next(told, None)
        for moment in written(chance, kafka, topic, all_, skewed=skewed):
            # Rows may be known before the events that they are of, or just before the moment is told.
            due, beyond = list[Change](), moment + chance.choice([0, 0, 200_000])
            while left is not None and left[0] < beyond:
                due.append(left)
                left = next(told, None)
            write(producer, table, due)
            if moment > BEGIN and chance.random() < 0.7:
                tried.query.processAllAvailable()
                tried.tick(moment)
        write(producer, table, [] if left is None else [left, *told])
        tried.query.processAllAvailable()
        end = BEGIN + SLICES * SLICE_MS + 100_000
        tried.tick(end)
        closed = end - LATENESS - 1
        want = wanted(sql, all_, rows, closed)
        until("all results", lambda: tried.shown() == want, 60)
        assert tried.shown() == want
        assert tried.dropped == 0
        assert queries.assert_barrier(tried.query)
    finally:
        tried.query.stop()
    ends = {topic: kafka.committed_ends(topic, PARTITIONS), table: kafka.committed_ends(table, 2)}
    session = queries.query_session(spark)
    begin = {name: dict.fromkeys(some, 0) for name, some in ends.items()}
    queries.batch_views(session, build_, kafka_options(kafka, "test"), begin, ends)
    batch = results("s", closed_batch(session, build_, closed, 0).toArrow(), build_.table.key)
    assert sorted(dict(tried.rows).items()) == [(result.key, result.document) for result in batch]
    kafka.delete(topic, table, f"{topic}.ticks")
