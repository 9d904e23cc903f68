"""Random events of a seed, what streams of them must show, and a query over them that a test tells what time it is."""

from __future__ import annotations

import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from driftless.facts.event_source import EventSource
from driftless.facts.streams import JoinTimes, StreamBuild, WindowEnds, stream_table
from driftless.kafka.client import Kafka
from driftless.streams.composed import composed_sql
from driftless.streams.patterns import Pattern, PatternStep
from driftless.table import Column
from jobs.spark.source import kafka_options
from jobs.streams.sql import query as queries
from jobs.streams.sql.documents import results
from tests.support.machine import until

SEED = int(os.environ.get("DRIFTLESS_TEST_SEED") or random.randrange(10**6))
PARTITIONS, SLICES, SLICE_MS, LATENESS, BEGIN = 4, 30, 30_000, 20_000, 1_760_000_010_000
COLUMNS = (Column("began", "timestamptz"), Column("page", "text"), Column("n", "int8"), Column("ids", "int8"))
TUMBLING = "window(at, '1 minute')"
HOPPING = "window(at, '2 minutes', '30 seconds')"
SESSION = "session_window(at, '3 seconds')"
FILTER, JOIN, CHANGES = "", "join", "changes"
COPIES, COPIES_OF_PATTERN, COPIES_CHANGES = "copies by minute", "copies in a pattern", "copies, every change"
ONCE = (COPIES, COPIES_OF_PATTERN, COPIES_CHANGES)
"""Streams of which an event that was sent again counts once."""
PATTERN, CALMS = "a pattern", "matches of a pattern by minute"
OUTER, ALONE, MATCHES, CHAIN = "outer join", "alone by minute", "matches by minute", "minutes of minutes"
JOIN_MS = 4_000
WAIT = JoinTimes(JOIN_MS + 1, 1, "a.at", "b.at")
"""What Spark says of it; see test_analysis."""
STEPS = (
    PatternStep("one", "id % 3 = 0"),
    PatternStep("two", "id % 3 = 1", within=9_000, unless="id % 11 = 0"),
    PatternStep("", "", within=2_000, unless="id % 5 = 0"),
)


def build(kafka: Kafka, topic: str, window: str, correct: int = 0) -> StreamBuild:
    found = until("the topic", lambda: kafka.topic(topic))
    assert found is not None
    columns = {"id": "bigint", "page": "text", "at": "timestamptz"}
    source = EventSource(topic, found.id, dict.fromkeys(range(PARTITIONS), 0), columns, "at", None, LATENESS, correct)
    once = window in ONCE
    source = replace(source, once=once)
    emit = "changes" if window in (CHANGES, COPIES_CHANGES) else "final"
    alike = {COPIES_OF_PATTERN: PATTERN, **dict.fromkeys((CHANGES, COPIES, COPIES_CHANGES), TUMBLING)}
    window = alike.get(window, window)
    grouped = f"SELECT {window.partition('(')[0]}.start AS began, page, count(*) AS n, sum(id) AS ids"
    key: tuple[str, ...]
    sql, key, closes = f"{grouped} FROM clicks WHERE page <> 'x' GROUP BY {window}, page", ("began", "page"), "window"
    join = None
    near = f"a.page = b.page AND b.at BETWEEN a.at AND a.at + INTERVAL {JOIN_MS // 1000} SECONDS AND a.id <> b.id"
    joined = f"FROM clicks a JOIN clicks b ON {near}"
    if window == SESSION:
        closes = "session_window"
    elif window == FILTER:
        sql, closes, key = "SELECT at AS began, page, id AS n, id + 1 AS ids FROM clicks WHERE page <> 'x'", "", ("n",)
    elif window == JOIN:
        sql = f"SELECT a.at AS began, a.page, a.id AS n, b.id AS ids {joined}"
        closes, key = "", ("n", "ids")
    elif window == OUTER:
        shown = "coalesce(a.at, b.at) AS began, coalesce(a.page, b.page) AS page"
        sql = (
            f"SELECT {shown}, coalesce(a.id, -1) AS n, coalesce(b.id, -1) AS ids {joined.replace('JOIN', 'FULL JOIN')}"
        )
        closes, key, join = "join", ("n", "ids"), WAIT
    elif window == PATTERN:
        sql, closes, key = "SELECT began, page, one.id AS n, two.id AS ids FROM calm", "match", ("n",)
        key = ("n", "began") if once else key  # one whose clock was wrong counts with each copy
    elif window == CALMS:
        sql = "SELECT window.start AS began, page, count(*) AS n, sum(one.id) AS ids FROM calm"
        sql += " GROUP BY window(at, '1 minute'), page"
    elif window in (ALONE, MATCHES):
        joined = joined.replace("JOIN", "LEFT JOIN") + " WHERE b.id IS NULL" if window == ALONE else joined
        grouped = f"SELECT window.start AS began, a.page, count(*) AS n, sum(a.id) AS ids {joined}"
        sql, join = f"{grouped} GROUP BY window(a.at, '1 minute'), a.page", WAIT
    elif window == CHAIN:
        inner = "SELECT page, sum(id) AS ids FROM clicks GROUP BY window(at, '1 minute'), page"
        sql = "SELECT window.start AS began, page, count(*) AS n, sum(ids) AS ids FROM minutes"
        sql += " GROUP BY window(window_time, '3 minutes'), page"
        sql = composed_sql("s", {"minutes": inner, "s": sql})
    table = stream_table("s", COLUMNS, key)
    minutes = WindowEnds(60_000, 0, 60_000)
    ends = {HOPPING: WindowEnds(30_000, 0, 120_000)} | dict.fromkeys((TUMBLING, ALONE, MATCHES, CALMS), minutes)
    reach = {OUTER: WAIT.wait_ms, ALONE: WAIT.wait_ms, MATCHES: WAIT.wait_ms, CHAIN: 240_000}
    reach |= dict.fromkeys((PATTERN, CALMS), 11_000)
    found_build = StreamBuild(
        "s", 1, sql, {"clicks": source}, table, "4", 2, closes=closes, emit=emit, ends=ends.get(window)
    )
    patterns = {"calm": Pattern("clicks", ("page",), STEPS)} if window in (PATTERN, CALMS) else {}
    return replace(found_build, join=join, patterns=patterns, reach=reach.get(window, 0))


def slices(chance: random.Random, *, copies: bool = False) -> list[list[tuple[int, int, bytes]]]:
    """(partition, received, event), in slices of 30 s by when they were received. One partition is idle at first.
    `copies`: some are sent again, at once or later.
    """
    found: list[list[tuple[int, int, bytes]]] = [[] for _ in range(SLICES)]
    taken = set[int]()
    for number in range(1_500):
        received = BEGIN + chance.randrange(SLICES * SLICE_MS)
        slice_ = (received - BEGIN) // SLICE_MS
        delay = chance.randrange(25_000) if chance.random() < 0.95 else chance.randrange(300_000)
        ahead = 86_400_000 if chance.random() < 0.01 else 0
        while copies and received - delay in taken:  # which of two comes first is told by their places
            delay += 1
        taken.add(received - delay)
        event = {"id": number, "page": chance.choice("abx"), "at": received - delay + ahead}
        partition = chance.randrange(PARTITIONS - (slice_ < SLICES // 2))
        found[slice_].append((partition, received, json.dumps(event).encode()))
        for _ in range(chance.choice([0, 0, 1, 2]) if copies else 0):
            again = min(received + chance.choice([0, 7, 9_000, 200_000]), BEGIN + SLICES * SLICE_MS - 1)
            partition = chance.randrange(PARTITIONS - 1)
            found[(again - BEGIN) // SLICE_MS].append((partition, again, json.dumps(event).encode()))
    return [sorted(some, key=lambda one: one[1]) for some in found]


def wanted(
    window: str, all_: list[list[tuple[int, int, bytes]]], to: int, lateness: int = LATENESS
) -> set[tuple[int, str, int, int]]:
    """Begin, page and two numbers of each result that is final by then, worked out without Spark."""
    events = []
    for _, received, text in (one for some in all_ for one in some):
        event = json.loads(text)
        if received - event["at"] <= lateness:
            events.append((min(event["at"], received), event["page"], event["id"]))
    events = [*dict.fromkeys(events)] if window in ONCE else events
    pairs = {
        (at, page, id_, other)
        for at, page, id_ in events
        for then, where, other in events
        if where == page and id_ != other and at <= then <= at + JOIN_MS
    }
    if window == JOIN:
        return pairs
    if window in (PATTERN, CALMS, COPIES_OF_PATTERN):
        return _of_pattern(window, all_, to, lateness)
    if window in (OUTER, ALONE, MATCHES, CHAIN):
        return _of_several(window, events, pairs, to)
    events = [event for event in sorted(events) if event[1] != "x"]
    if window == FILTER:
        return {(at, page, id_, id_ + 1) for at, page, id_ in events}
    groups: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    open_: dict[str, tuple[int, int, list[int]]] = {}
    for at, page, id_ in events:
        if window == SESSION:
            begin, last, ids = open_.get(page, (at, at, []))
            if at - last > 3_000:  # one that comes as the gap ends belongs to it, says Spark
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
        if end <= to or window in (CHANGES, COPIES_CHANGES)
    }


def _of_pattern(
    window: str, all_: list[list[tuple[int, int, bytes]]], to: int, lateness: int
) -> set[tuple[int, str, int, int]]:
    """Of STEPS, in the words of docs/streams.md: one, then the first two in time, and then nothing for a while."""
    events = []
    for place, (partition, received, text) in enumerate(one for some in all_ for one in some):
        event = json.loads(text)
        if received - event["at"] <= lateness:
            events.append((min(event["at"], received), partition, place, event["id"], event["page"]))
    if window in ONCE:
        events = [(at, 0, number, number, page) for at, number, page in {(e[0], e[3], e[4]) for e in events}]
    found = []
    for one in events:
        if one[3] % 3 == 0:
            after = sorted(event for event in events if event[4] == one[4] and event > one)
            two = next((event for event in after if event[3] % 3 == 1), None)
            if two is None or two[0] - one[0] > 9_000 or any(e[3] % 11 == 0 for e in after if e <= two):
                continue
            if not any(e[3] % 5 == 0 for e in after if e > two and e[0] <= two[0] + 2_000):
                found.append((one[0], two[0] + 2_000, one[4], one[3], two[3]))
    if window in (PATTERN, COPIES_OF_PATTERN):
        return {(began, page, one, two) for began, at, page, one, two in found if at <= to}
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    for _, at, page, one, _ in found:
        groups[at // 60_000 * 60_000, page].append(one)
    return {(begin, page, len(ids), sum(ids)) for (begin, page), ids in groups.items() if begin + 60_000 <= to}


def _of_several(
    window: str, events: list[tuple[int, str, int]], pairs: set[tuple[int, str, int, int]], to: int
) -> set[tuple[int, str, int, int]]:
    """What comes of several events by several steps."""
    befores, afters = {pair[2] for pair in pairs}, {pair[3] for pair in pairs}
    alone = {(at, page, id_, -1) for at, page, id_ in events if id_ not in befores}
    found = {(at, page, -1, id_) for at, page, id_ in events if id_ not in afters}
    if window == OUTER:
        early = {one for one in alone if one[0] <= to - JOIN_MS - 1} | {one for one in found if one[0] <= to - 1}
        return pairs | early
    size = 180_000 if window == CHAIN else 60_000
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    minutes = set()
    for at, page, id_ in events if window == CHAIN else [one[:3] for one in (alone if window == ALONE else pairs)]:
        minutes.add((at // 60_000, page))
        groups[at // size * size, page].append(id_)
    of_chain = Counter((minute * 60_000 // size * size, page) for minute, page in minutes)
    wait = 0 if window == CHAIN else WAIT.wait_ms
    return {
        (begin, page, of_chain[begin, page] if window == CHAIN else len(ids), sum(ids))
        for (begin, page), ids in groups.items()
        if begin + size <= to - wait
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
    def kept(self) -> int:
        """Rows of Spark's state."""
        told = self.query.recentProgress
        return sum(state.numRowsTotal for state in told[-1].stateOperators) if told else -1

    @property
    def dropped(self) -> int:
        return sum(
            state.numRowsDroppedByWatermark for told in self.query.recentProgress for state in told.stateOperators
        )

    def shown(self) -> set[tuple[int, str, int, int]]:
        newest = dict(self.rows)
        assert len(newest) == len(self.rows) or self.build.emit == "changes", "a result was published twice"
        return documents(newest.values())


def documents(texts: Iterable[str]) -> set[tuple[int, str, int, int]]:
    """As `wanted` has them."""
    return {(_ms(one["began"]), one["page"], one["n"], one["ids"]) for one in map(json.loads, texts)}


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def written(
    chance: random.Random, kafka: Kafka, topic: str, all_: list[list[tuple[int, int, bytes]]], *, skewed: bool
) -> Iterator[int]:
    """Write them, some at a time. Gives the moment up to which all are there. `skewed`: a partition before the next."""
    producer = Producer(kafka.settings())
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
        producer.flush(15)
        whole = min(sum(1 for q, _ in order[:begun] if q == p) for p in range(PARTITIONS))
        yield BEGIN + whole * SLICE_MS
