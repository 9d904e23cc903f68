"""A stream that cannot keep up, of events that say that it may leave some unread."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from stack import stack_home
from tests.chain.conftest import MakePipeline
from tests.chain.streams.test_streams import PARTITIONS, computed
from tests.support.machine import until
from tests.support.pipeline import Pipeline
from tests.support.topic import records

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(900)]

SQL = "SELECT window.start AS began, count(*) AS views FROM clicks GROUP BY window(at, '5 seconds')"


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    pipeline = computed(make_pipeline, source)
    pipeline.sync["streams"] = {"page_views": {"sql": SQL, "key": ["began"], "emit": "changes"}}
    pipeline.sync["events"]["clicks"] |= {"lateness": "1h", "overload": {"behind": "3s", "sample": "20%"}}
    for follower in ("trends", "trends-cache", "live-cache"):
        del pipeline.sync["followers"][follower]
    pipeline.apply()
    pipeline.run()
    return pipeline


def stream(pipeline: Pipeline) -> Mapping[str, Any]:
    return next(each for each in pipeline.status()["streams"] if each["name"] == "page_views")


def write(pipeline: Pipeline, count: int) -> None:
    producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka, "queue.buffering.max.messages": 1_000_000})
    at = round(time.time() * 1000)
    for number in range(count):
        event = json.dumps({"id": number, "at": at - number % 20_000}).encode()
        producer.produce(f"{pipeline.name}.clicks", event, partition=number % PARTITIONS)
    producer.flush(60)


def counted(pipeline: Pipeline) -> int:
    """Events that windows count."""
    log = records(pipeline.endpoints.kafka, f"{pipeline.name}.stream.page_views.1", committed=True)
    newest = {key: value for key, value in log if key and value}
    return sum(json.loads(value)["views"] for value in newest.values())


def test_what_is_left_unread_is_counted_and_the_rest_proven(pipeline: Pipeline) -> None:
    few, flood = 300, 600_000
    write(pipeline, few)
    until("the stream to be live", lambda: stream(pipeline)["state"] == "live", 60)
    assert stream(pipeline)["skipped"] == 0
    write(pipeline, flood)
    until("the stream to leave events unread", lambda: stream(pipeline)["skipped"] > 0, 120)
    until(
        "each to be counted or left unread", lambda: counted(pipeline) + stream(pipeline)["skipped"] == few + flood, 180
    )
    skipped = stream(pipeline)["skipped"]
    assert skipped < 0.85 * flood, "a fifth of what lies between is read all the same"
    job = [job for job in pipeline.jobs() if job.running][-1]
    assert "it cannot keep up" in job.output()
    assert pipeline.here("verify", "page_views", seconds=180).code == 0

    job.kill()
    shutil.rmtree(stack_home() / "rows" / pipeline.name / "page_views-1.checkpoint")
    write(pipeline, few)
    pipeline.run()
    until("each to be counted", lambda: counted(pipeline) + stream(pipeline)["skipped"] == 2 * few + flood, 180)
    assert stream(pipeline)["skipped"] >= skipped
    until("it to be proven", lambda: pipeline.here("verify", "page_views", seconds=180).code == 0, 120)
