"""Whatever is killed while the source is written to: afterwards every follower holds exactly what the source says."""

from __future__ import annotations

import operator
import os
import random
import threading
from collections.abc import Iterator
from functools import partial

import psycopg
import pytest
import redis

from stack import Stack
from tests.chain.conftest import MakePipeline, running
from tests.chain.support.monitor import COUNTERS, Monitor
from tests.support.compare import View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline
from tests.support.writer import Writer, targets

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]

SEED = int(os.environ.get("DRIFTLESS_TEST_SEED") or random.randrange(10**6))
THINGS, PAIRS, TOKENS = targets()
KILLS = 2
VIEWS = (
    View("thing", THINGS.table),
    View("pair", PAIRS.table, tuple(PAIRS.key), {name: name for name in ("region", "n", "tally", "note", "large")}),
    View("counter", "public.counters"),
)


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    for target in (THINGS, PAIRS, TOKENS):
        target.create(source)
    Monitor.create(source)
    pipeline = make_pipeline(*VIEWS)
    pipeline.apply()
    pipeline.run()
    pipeline.wait()
    return pipeline


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Moments and orders of this test, the same again for the same $DRIFTLESS_TEST_SEED."""
    print(f"DRIFTLESS_TEST_SEED={SEED}")
    return random.Random(f"{SEED} {request.node.name}")


@pytest.fixture
def job(pipeline: Pipeline) -> Job:
    """The run of all followers."""
    return running(pipeline)


@pytest.fixture
def load(pipeline: Pipeline, rng: random.Random) -> Iterator[Writer]:
    """Writers, until the test stops them."""
    with Writer(pipeline.dsn, rng.randrange(10**6), pause=0.1) as writer:
        yield writer


@pytest.fixture
def monitor(pipeline: Pipeline) -> Iterator[Monitor]:
    """A witness that no reader sees a counter fall."""
    with Monitor(pipeline.dsn, pipeline.of("counter")) as monitor:
        yield monitor
    for name in pipeline.of("counter"):
        assert monitor.reads[name] > COUNTERS, f"the monitor has hardly read {name}"
    assert not monitor.fell, "\n".join(monitor.fell[:10])


def pause(rng: random.Random, seconds: float) -> None:
    """Let a random time pass, in which the load goes on: the moment of a fault is the point of these tests."""
    threading.Event().wait(rng.uniform(0, seconds))


def settle(pipeline: Pipeline, load: Writer, monitor: Monitor) -> None:
    """End the load, and compare everything."""
    until("the writers to have inserted rows", lambda: load.done["insert"])
    load.stop()
    monitor.quiet()
    pipeline.assert_in_step()


def crash(stack: Stack, server: str, rng: random.Random) -> None:
    """Kill a server, leave it dead for a moment, and start it again."""
    before = stack.running()[server]
    stack.kill(server)
    assert server not in stack.running()
    pause(rng, 3)
    stack.start(server)
    assert stack.running()[server] != before


def test_killed_jobs_go_on_where_they_were(
    pipeline: Pipeline, job: Job, load: Writer, monitor: Monitor, rng: random.Random
) -> None:
    for _ in range(KILLS):
        until("counters to rise in the stores", partial(operator.ne, monitor.seen, dict(monitor.seen)), 180)
        pause(rng, 3)
        job.kill()
        job = pipeline.run()
    settle(pipeline, load, monitor)


def test_a_killed_job_that_never_got_far_does_no_harm(
    pipeline: Pipeline, job: Job, load: Writer, monitor: Monitor, rng: random.Random
) -> None:
    """Killed while it starts, takes its leases, or writes its first slice."""
    job.kill()
    for _ in range(2):
        job = pipeline.run()
        pause(rng, 8)
        job.kill()
    pipeline.run()
    settle(pipeline, load, monitor)


@pytest.mark.parametrize("server", ["connect", "kafka", "opensearch", "redis", "postgres"])
def test_a_killed_server_comes_back_and_nothing_is_lost(
    pipeline: Pipeline, job: Job, load: Writer, monitor: Monitor, rng: random.Random, stack: Stack, server: str
) -> None:
    pause(rng, 2)
    crash(stack, server, rng)
    # A store that is killed may lose what it had not yet promised to keep, though a reader has seen it.
    for follower, kind in (("counter-search", "opensearch"), ("counter-cache", "redis")):
        if kind == server:
            monitor.forgive(follower)
    if server == "postgres":
        pipeline.connect()
    pause(rng, 2)
    settle(pipeline, load, monitor)
    assert job.running, "the same run has gone on"


def test_a_flushed_redis_fills_again_by_itself(
    pipeline: Pipeline, job: Job, load: Writer, monitor: Monitor, rng: random.Random
) -> None:
    pause(rng, 2)
    with redis.Redis.from_url(pipeline.endpoints.redis) as client:
        client.flushall()
    monitor.forgive("counter-cache")
    pause(rng, 2)
    settle(pipeline, load, monitor)
    assert job.running, "the same run has gone on"
