"""Late events that correct what was final: readers see them within a minute, and no crash counts one twice."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections import Counter
from functools import partial
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from stack import stack_home
from tests.chain.conftest import MakePipeline
from tests.chain.streams.test_streams import LATENESS, SEED, Clicks, computed, shown, stores, stream
from tests.support.machine import until
from tests.support.pipeline import Pipeline
from tests.support.topic import records

pytestmark = pytest.mark.server

CORRECT = 20.0


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    pipeline = computed(make_pipeline, source)
    pipeline.sync["events"]["clicks"]["late"] = {"correct": f"{CORRECT:.0f}s"}
    pipeline.sync["streams"] = {"page_views": pipeline.sync["streams"]["page_views"]}
    del pipeline.sync["followers"]["live-cache"]
    pipeline.apply()
    pipeline.run()
    return pipeline


def assert_corrected(pipeline: Pipeline, clicks: Clicks) -> None:
    """Wait until every event counts that is not too late, and no other one."""
    for name in ("trends", "trends-cache"):
        pipeline.wait(name)
        store = stores(pipeline)[name]
        until(
            f"{name} to have every event that came within {LATENESS + CORRECT:.0f} s",
            lambda store=store: shown(store) == clicks.wanted(math.inf, LATENESS + CORRECT),  # type: ignore[misc]
            90,
        )
    done = pipeline.here("verify", "trends", "page_views", seconds=180)
    assert done.code == 0, done.out + done.err


@pytest.mark.soak
def test_late_events_correct_what_readers_have_seen(pipeline: Pipeline) -> None:
    clicks = Clicks(pipeline, SEED)
    for _ in range(8):
        clicks.write(60)
        time.sleep(0.5)
    assert_corrected(pipeline, clicks)
    assert clicks.wanted(math.inf, LATENESS + CORRECT) != clicks.wanted(math.inf)
    reasons = {
        place: "too late" if reason == "late" and place in clicks.left_out(LATENESS + CORRECT) else reason
        for place, reason in clicks.left_out().items()
    }
    log = records(pipeline.endpoints.kafka, f"{pipeline.name}.stream.page_views.1.late", committed=True)
    assert {(key or b"").decode(): json.loads(value or b"")["reason"] for key, value in log} == reasons
    counts = Counter(reasons.values())
    assert min(counts["late"], counts["too late"]) > 0
    corrections = [headers for headers in _headers(pipeline) if headers["kind"] == "correction"]
    told = stream(pipeline)
    assert [told[why] for why in ("late", "too_late", "corrected", "dropped")] == [
        counts["late"],
        counts["too late"],
        len(corrections),
        0,
    ]
    assert {headers["rev"] for headers in corrections} >= {"1"}
    assert {int(headers["end"]) - int(headers["begin"]) for headers in corrections} == {5_000}


@pytest.mark.soak
@pytest.mark.parametrize("lost", [False, True])
def test_a_run_that_is_killed_or_loses_its_checkpoint_counts_late_events_once(pipeline: Pipeline, lost: bool) -> None:
    clicks = Clicks(pipeline, SEED + 1 + lost)
    before = stream(pipeline)["late"]
    clicks.write(150)
    time.sleep(3)
    clicks.write(100)
    until("late events to be told of", partial(_has_late, pipeline, before), 60)
    [job for job in pipeline.jobs() if job.running][-1].kill()
    clicks.write(100)
    if lost:
        shutil.rmtree(stack_home() / "rows" / pipeline.name / "page_views-1.checkpoint")
    pipeline.run()
    assert_corrected(pipeline, clicks)


def _has_late(pipeline: Pipeline, before: int) -> bool:
    return bool(stream(pipeline)["late"] > before)


def _headers(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Of every record of the stream's log."""
    topic = f"{pipeline.name}.stream.page_views.1"
    settings = {"bootstrap.servers": pipeline.endpoints.kafka, "group.id": "test", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    partitions = consumer.list_topics(topic, 15).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found, ended = [], 0
    while ended < len(partitions):
        message = consumer.poll(15)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        headers: Any = message.headers() or []
        found.append({name: value.decode() for name, value in headers})
    consumer.close()
    return found
