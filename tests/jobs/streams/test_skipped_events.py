"""Events that are left unread: the same ones for a query and for a batch, as many as were counted, and no others."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftless.config.models import KafkaConfig
from driftless.facts.event_source import SkippedRange
from driftless.kafka.client import Kafka
from jobs.spark.source import kafka_options
from jobs.streams.log.skipped import SkippedEvents, without_skipped
from jobs.streams.sql import query as queries
from jobs.streams.sql.documents import results
from jobs.streams.sql.timed import closed_batch
from stack import Endpoints
from tests.jobs.streams.random_events import (
    BEGIN,
    FILTER,
    PARTITIONS,
    SEED,
    SLICE_MS,
    SLICES,
    Tried,
    build,
    slices,
    wanted,
    written,
)


def test_what_is_told_is_what_is_read() -> None:
    first = SkippedEvents().with_more({"a": (SkippedRange(0, 3, 9, 100),)}, 6)
    both = first.with_more({"a": (SkippedRange(1, 0, 4, 0),), "b": (SkippedRange(0, 0, 1, 0),)}, 5)
    of_a, of_b = (SkippedRange(0, 3, 9, 100), SkippedRange(1, 0, 4, 0)), (SkippedRange(0, 0, 1, 0),)
    assert both == SkippedEvents({"a": of_a, "b": of_b}, 11)
    assert SkippedEvents.from_text(both.to_text()) == both


@pytest.mark.server
@pytest.mark.parametrize("sample", [0, 2_500])
def test_a_query_and_a_batch_leave_out_the_same(
    spark: SparkSession, endpoints: Endpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: int
) -> None:
    seed = random.Random(f"{SEED} {sample}").randrange(10**6)
    print(f"seed {SEED}")
    chance = random.Random(seed)
    all_ = slices(chance)
    kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
    topic = f"skipped-{seed}-{time.time_ns()}"
    kafka.create(topic, PARTITIONS, {"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
    monkeypatch.setattr(queries, "TRIGGER", "0 seconds")
    read_all = build(kafka, topic, FILTER)
    for _ in written(chance, kafka, topic, all_, skewed=False):
        pass
    ends, options = kafka.committed_ends(topic, PARTITIONS), kafka_options(kafka, "test")
    # Of the first partition all, of the second nothing, of the others a part.
    begins = {0: 0, 2: ends[2] // 3, 3: ends[3] // 2}
    ranges = tuple(SkippedRange(p, begin, ends[p], sample) for p, begin in begins.items())
    count, within = queries.skipped_count(spark, topic, options, ranges), sum(ends[p] - o for p, o in begins.items())
    assert (0.65 * within < count < 0.85 * within) if sample else count == within
    skipping = without_skipped(read_all, SkippedEvents({topic: ranges}, count))

    tried = Tried(spark, kafka, skipping, tmp_path / "checkpoint")
    try:
        tried.query.processAllAvailable()
        tried.tick(BEGIN + SLICES * SLICE_MS + 100_000)
        tried.query.processAllAvailable()
        shown = tried.shown()
    finally:
        tried.query.stop()
    session = queries.query_session(spark)
    queries.batch_views(session, skipping, options, {topic: dict.fromkeys(range(PARTITIONS), 0)}, {topic: ends})
    batch = results("s", closed_batch(session, skipping, 0, 0).toArrow(), skipping.table.key)
    assert sorted(dict(tried.rows).items()) == [(result.key, result.document) for result in batch]

    everything, places = wanted(FILTER, all_, 0), _places(all_)
    read = {one for one in everything if places[one[2]][1] < begins.get(places[one[2]][0], ends[1])}
    assert read <= shown <= everything, "nothing beside the ranges is left out"
    assert (read < shown < everything) if sample else shown == read
    assert skipping.events["clicks"].definition == read_all.events["clicks"].definition
    more = replace(skipping.events["clicks"], behind=5_000, sample=sample)
    assert more.definition != replace(more, sample=7).definition != read_all.events["clicks"].definition
    kafka.delete(topic, f"{topic}.ticks")


def _places(all_: list[list[tuple[int, int, bytes]]]) -> dict[int, tuple[int, int]]:
    """By the id of an event, its partition and offset, as `written` writes them."""
    offsets, found = dict.fromkeys(range(PARTITIONS), 0), {}
    for partition, _, text in (one for some in all_ for one in some):
        found[json.loads(text)["id"]] = (partition, offsets[partition])
        offsets[partition] += 1
    return found
