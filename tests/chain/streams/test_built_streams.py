"""Outer joins, windows over a join and patterns in the whole chain, while runs are killed and checkpoints are lost."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from datetime import UTC, datetime

import psycopg
import pytest

from stack import stack_home
from tests.chain.conftest import MakePipeline
from tests.chain.streams.test_streams import SEED, Clicks, computed
from tests.support.pipeline import Pipeline
from tests.support.topic import records

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(900)]

NEAR = "b.page = a.page AND b.id <> a.id AND b.at BETWEEN a.at AND a.at + INTERVAL 300 MILLISECONDS"
STREAMS = {
    "alone": (f"SELECT a.id, a.at FROM clicks a LEFT JOIN clicks b ON {NEAR} WHERE b.id IS NULL", ["id"]),
    "near": (
        f"SELECT window.start AS began, a.page, count(*) AS n FROM clicks a JOIN clicks b ON {NEAR} "
        "GROUP BY window(a.at, '5 seconds'), a.page",
        ["began", "page"],
    ),
    "quiet": ("SELECT page, cart.id, began, at FROM calm", ["id"]),
}
CALM = {
    "events": "clicks",
    "by": ["page"],
    "steps": [{"name": "cart", "where": "id % 2 = 0"}, {"unless": "price > 1", "within": "1s"}],
}


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    pipeline = computed(make_pipeline, source)
    pipeline.sync["streams"] = {name: {"sql": sql, "key": key} for name, (sql, key) in STREAMS.items()}
    pipeline.sync["patterns"] = {"calm": CALM}
    for follower in ("trends", "trends-cache", "live-cache"):
        del pipeline.sync["followers"][follower]
    quiet = {"redis": {"url": "${CACHE_URL}", "key": f"{pipeline.name}-quiet:{{id}}"}}
    pipeline.sync["followers"]["quiet-cache"] = {"view": "quiet", **quiet}
    pipeline.apply()
    pipeline.run()
    return pipeline


def assert_proven(pipeline: Pipeline) -> None:
    """All that is over is published, each result once, and equals the batch."""
    moment = datetime.fromtimestamp(time.time(), UTC).isoformat()
    done = pipeline.here("wait", "--closed", moment, "--timeout", "180", seconds=200)
    assert done.code == 0, f"{done.err}\n{pipeline.explain()}"
    pipeline.wait("quiet-cache")
    done = pipeline.here("verify", *STREAMS, "quiet-cache", "--json", seconds=180)
    reports = {report["name"]: report for report in done.json()["followers"]}
    assert done.code == 0, reports
    assert min(reports[name]["source_documents"] for name in (*STREAMS, "quiet-cache")) > 3
    for name in STREAMS:
        log = records(pipeline.endpoints.kafka, f"{pipeline.name}.stream.{name}.1", committed=True)
        assert not [key for key, count in Counter(key for key, _ in log).items() if count > 1], name
    assert {each["dropped"] for each in pipeline.status()["streams"]} == {0}


def test_what_is_built_upon_events_is_published_once_and_proven(pipeline: Pipeline) -> None:
    clicks = Clicks(pipeline, SEED)
    for _ in range(6):
        clicks.write(40)
        time.sleep(0.5)
    assert_proven(pipeline)
    for turn in range(2):
        clicks.write(60)
        time.sleep(1 + turn)
        job = [job for job in pipeline.jobs() if job.running][-1]
        job.kill()
        clicks.write(60)
        pipeline.run()
    assert_proven(pipeline)


def test_a_lost_checkpoint_changes_nothing(pipeline: Pipeline) -> None:
    job = [job for job in pipeline.jobs() if job.running][-1]
    assert job.stop() == 0
    for name in STREAMS:
        shutil.rmtree(stack_home() / "rows" / pipeline.name / f"{name}-1.checkpoint")
    Clicks(pipeline, SEED + 1).write(60)
    pipeline.run()
    assert_proven(pipeline)
