"""Ctrl-C and SIGTERM end every long command within 10 seconds, and leave nothing that the next one trips over."""

from __future__ import annotations

import signal
import subprocess
import time

import psycopg
import pytest

from tests.chain.conftest import MakePipeline
from tests.support.compare import View
from tests.support.machine import COMMAND, Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]
BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """One that was applied, and that nobody runs."""
    source.execute("create table items (id int primary key, name text)")
    source.execute("insert into items select n, 'item ' || n from generate_series(1, 2000) n")
    pipeline = make_pipeline(View("item", "public.items"))
    pipeline.apply()
    return pipeline


def end(job: Job, number: signal.Signals) -> int:
    """Its exit code, within 10 seconds and without a traceback."""
    code = job.stop(10, number)
    assert "Traceback" not in job.output(), job.output()
    assert "Exception" not in job.output(), job.output()
    return code


def states(pipeline: Pipeline) -> set[str]:
    return {follower["state"] for follower in pipeline.status()["followers"]}


@BOTH
def test_run_while_it_follows(pipeline: Pipeline, number: signal.Signals) -> None:
    job = pipeline.run()
    until("both followers to be live", lambda: states(pipeline) == {"live"}, 120)
    assert end(job, number) == 0
    assert states(pipeline) == {"stopped"}


@BOTH
def test_run_while_it_starts(pipeline: Pipeline, number: signal.Signals) -> None:
    """Its leases are given back: the next run does not wait for them."""
    job = pipeline.run()
    until("Spark to start", job.family, 60)
    assert end(job, number) == 0
    again = pipeline.run()
    until("both followers to be live", lambda: states(pipeline) == {"live"}, 120)
    assert "waiting up to" not in again.output()
    assert again.stop() == 0


@BOTH
def test_rebuild_that_runs_the_follower_itself(pipeline: Pipeline, number: signal.Signals) -> None:
    """Asking again goes on with the same generation."""
    before = max(g["n"] for g in pipeline.follower("item-cache")["generations"])
    job = pipeline.here.start("rebuild", "item-cache")
    until("Spark to start", job.family, 60)
    assert end(job, number) == 128 + number
    assert "the request is saved and will run when the follower starts" in job.output()
    assert job.output().endswith("interrupted\n")
    done = pipeline.here("rebuild", "item-cache", "--json")
    assert done.json() == {"follower": "item-cache", "generation": before + 1, "promoted": True}


@BOTH
def test_wait_and_status_watch(pipeline: Pipeline, number: signal.Signals) -> None:
    pipeline.connection.execute("insert into items values ((select max(id) + 1 from items), 'late')")
    waiting = pipeline.here.start("wait", "--lsn", pipeline.lsn(), "--timeout", "60", "item-search")
    watching = pipeline.here.start("status", "--watch")
    time.sleep(4)  # beyond their start, into the wait and the second look
    assert waiting.running
    assert watching.running
    assert end(waiting, number) == 128 + number
    assert end(watching, number) == 0


def test_generations_complete(pipeline: Pipeline) -> None:
    typed = "driftless promote item-search --generation "
    asked = {"_DRIFTLESS_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": "4"}
    environment = {**pipeline.here.environ(), **asked}
    offered = subprocess.check_output([COMMAND], cwd=pipeline.here.folder, env=environment, text=True, timeout=60)
    assert offered.split() == ["1"]
