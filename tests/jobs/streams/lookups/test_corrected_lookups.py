"""Late events that have rows of a table: they count after all, each with the row as it was when it happened."""

from __future__ import annotations

import json
import random
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from driftless.config.models import KafkaConfig
from driftless.kafka.client import Kafka
from driftless.kafka.topic_settings import history_settings
from driftless.names import stream_topics
from jobs.streams.sql import query as queries
from stack import Endpoints
from tests.jobs.streams.lookups.test_exact_lookups import EACH, GROUPED, changes, looking, wanted, write
from tests.jobs.streams.random_events import (
    BEGIN,
    LATENESS,
    PARTITIONS,
    SEED,
    SLICE_MS,
    SLICES,
    documents,
    slices,
    written,
)
from tests.jobs.streams.test_corrections import CORRECT, CorrectedQuery, closed_ms, is_known
from tests.support.machine import until

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    "sql", [pytest.param(EACH, id="each event"), pytest.param(GROUPED, id="windows", marks=pytest.mark.soak)]
)
def test_late_events_have_the_row_as_it_was(
    spark: SparkSession, endpoints: Endpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    chance = random.Random(f"{SEED} late {sql}")
    print(f"seed {SEED}")
    all_ = slices(chance)
    rows = changes(chance, [json.loads(one[2])["at"] for some in all_ for one in some][::7])
    kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
    name = f"looked-{time.time_ns()}"
    topic, table = f"{name}.events", f"{name}.pages"
    # A test says when an event was received, long ago.
    kafka.create(topic, PARTITIONS, {"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
    kafka.create(table, 2, history_settings(None))
    build_ = looking(kafka, topic, table, sql, CORRECT).with_topics(kafka, name)
    for made in stream_topics(name, "s", 1):
        until(f"the topic {made} to be known", partial(is_known, kafka, made))
    monkeypatch.setattr(queries, "TRIGGER", "0 seconds")
    monkeypatch.setattr("jobs.streams.late.corrections.MOST_ENDS", chance.choice([3, 1_000]))
    producer = Producer(kafka.settings())
    tried = CorrectedQuery(spark, kafka, build_, tmp_path / "checkpoint")
    try:
        corrected, begun = 0, 0
        for moment in written(chance, kafka, topic, all_, skewed=False):
            write(producer, table, [row for row in rows if begun <= row[0] < moment])
            begun = max(begun, moment)
            if moment > BEGIN and chance.random() < 0.7:
                tried.query.processAllAvailable()
                tried.tick(moment)
            if chance.random() < 0.15:
                tried.query.processAllAvailable()
                corrected += tried.correct()
                tried.assert_proven()
        write(producer, table, [row for row in rows if begun <= row[0]])
        tried.query.processAllAvailable()
        end = BEGIN + SLICES * SLICE_MS + 100_000
        tried.tick(end)
        closed = end - LATENESS - 1
        until("all windows to be closed", lambda: closed_ms(tried) >= closed, 60)
        tried.query.processAllAvailable()
        corrected += tried.correct()
        shown = documents(tried.assert_proven().values())
        assert shown == wanted(sql, all_, rows, closed, LATENESS + CORRECT)
        assert shown != wanted(sql, all_, rows, closed)
        assert corrected > 0
        assert tried.correct() == 0
    finally:
        tried.query.stop()
    kafka.delete(topic, table, f"{topic}.ticks", *stream_topics(name, "s", 1))
