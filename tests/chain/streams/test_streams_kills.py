"""A stream, killed at every step of its publication: each window is there once, and equals its events."""

from __future__ import annotations

import time
from collections import Counter

import psycopg
import pytest

from tests.chain.commands.altered import Altered
from tests.chain.commands.doomed_stream import STEPS
from tests.chain.conftest import MakePipeline
from tests.chain.streams.test_streams import SEED, Clicks, assert_shown, computed, stream
from tests.support.pipeline import Pipeline
from tests.support.topic import records

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    pipeline = computed(make_pipeline, source)
    pipeline.apply()
    return pipeline


@pytest.mark.parametrize("step", STEPS)
def test_a_stream_that_is_killed(pipeline: Pipeline, step: str) -> None:
    clicks = Clicks(pipeline, SEED + len(step))
    clicks.write(150)
    time.sleep(2)
    clicks.write(150)
    Altered(pipeline, "doomed_stream", step, "run", "page_views").die()
    clicks.write(50)
    job = pipeline.run()
    assert_shown(pipeline, clicks)
    assert stream(pipeline)["dropped"] == 0
    assert pipeline.here("verify", "page_views", seconds=180).code == 0
    assert job.stop() == 0
    log = records(pipeline.endpoints.kafka, f"{pipeline.name}.stream.page_views.1", committed=True)
    assert max(Counter(key for key, _ in log).values()) == 1, "a window was published twice"
