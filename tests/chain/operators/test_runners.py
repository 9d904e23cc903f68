"""Who runs a follower: one process at a time, on any machine, each follower for itself."""

from __future__ import annotations

import os
import random
import signal
import time

import psutil
import psycopg
import pytest

from tests.chain.conftest import MakePipeline
from tests.support.compare import OpenSearch, View
from tests.support.machine import Job, Machine, until
from tests.support.pipeline import Pipeline
from tests.support.writer import Writer, targets

pytestmark = pytest.mark.server

THINGS, PAIRS, TOKENS = targets()
ROWS = 500


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """Applied; each test sees to it who runs."""
    for target in (THINGS, PAIRS, TOKENS):
        target.create(source)
    source.execute("create table items (id int primary key, name text)")
    source.execute("insert into items select n, 'item ' || n from generate_series(1, %s) n", (ROWS,))
    pipeline = make_pipeline(View("item", "public.items"), View("thing", THINGS.table))
    pipeline.apply()
    return pipeline


@pytest.fixture
def runner(pipeline: Pipeline) -> Job:
    """The one run of all followers, started where there is none, and everything applied."""
    running = [job for job in pipeline.jobs() if job.running]
    whole = [job for job in running if job.arguments == ("run",)]
    if len(running) != 1 or not whole:
        pipeline.end_jobs()
        whole = [pipeline.run()]
    pipeline.wait()
    return whole[0]


@pytest.fixture(scope="module")
def elsewhere(pipeline: Pipeline) -> Machine:
    """Another working directory and an empty home: nothing but sync.yaml."""
    return pipeline.machine("elsewhere")


def attempts(pipeline: Pipeline, follower: str) -> int:
    """How many writes the index was asked for since it was made, those that were stale included."""
    store = pipeline.stores[follower]
    assert isinstance(store, OpenSearch)
    stats = store.call("GET", f"/{store.index}/_stats/indexing")["_all"]["primaries"]["indexing"]
    return int(stats["index_total"] + stats["index_failed"] + stats["delete_total"])


def test_a_second_runner_is_fenced_while_the_first_is_alive(
    pipeline: Pipeline, runner: Job, elsewhere: Machine, source: psycopg.Connection
) -> None:
    second = elsewhere.run("item-search")
    assert second.wait(90) == 1
    assert f"`item-search` is already run by process {runner.process.pid}" in second.output()
    assert "stop that process first" in second.output()
    source.execute("update items set name = 'still followed' where id = 1")
    pipeline.assert_in_step()
    assert runner.running


def test_another_machine_without_local_state_goes_on_where_a_killed_one_was(
    pipeline: Pipeline, runner: Job, elsewhere: Machine, source: psycopg.Connection
) -> None:
    begun = time.monotonic()
    until("the checkpoint, which is written every second", lambda: time.monotonic() > begun + 3)
    before = attempts(pipeline, "item-search")
    assert before >= ROWS
    runner.kill()
    source.execute("update items set name = 'changed meanwhile' where id between 11 and 20")
    source.execute("delete from items where id = 30")
    assert sorted(path.name for path in (elsewhere.folder / "home").iterdir()) == []
    elsewhere.run()
    pipeline.assert_in_step()
    assert attempts(pipeline, "item-search") - before == 11, "it wrote more than what was new"


@pytest.mark.soak
def test_a_runner_that_slept_through_its_lease_stops_and_does_no_harm(
    pipeline: Pipeline, runner: Job, source: psycopg.Connection
) -> None:
    """It is stopped under load, so it wakes up with old writes in its hands."""
    source.execute("delete from things")
    with Writer(pipeline.dsn, random.randrange(10**6)):
        pipeline.wait()
        os.killpg(runner.process.pid, signal.SIGSTOP)
        successor = pipeline.run()
        pipeline.wait()
        source.execute("update items set name = name || '!' where id <= 100")
        runner.told = True
        os.killpg(runner.process.pid, signal.SIGCONT)
        assert runner.wait(90) == 1
        assert "another runner took over" in runner.output()
        pipeline.wait()
    pipeline.assert_in_step()
    assert successor.running


@pytest.mark.soak
def test_a_runner_that_is_told_to_stop_gives_its_lease_back(pipeline: Pipeline, runner: Job) -> None:
    assert runner.stop() == 0, runner.output()
    successor = pipeline.run()
    pipeline.assert_in_step()
    assert "waiting up to" not in successor.output()
    assert successor.running


@pytest.mark.soak
def test_killing_one_follower_leaves_its_sibling_fresh(pipeline: Pipeline, source: psycopg.Connection) -> None:
    pipeline.end_jobs()
    search, cache = pipeline.run("item-search"), pipeline.run("item-cache")
    for follower in ("item-search", "item-cache"):
        pipeline.wait(follower)
    search.kill()
    source.execute("insert into items values (100001, 'one'), (100002, 'two')")
    pipeline.wait("item-cache")
    stores = pipeline.of("item")
    assert stores["item-cache"].get(stores["item-cache"].name(("100001",))) == {"id": 100001, "name": "one"}
    assert stores["item-search"].get("100001") is None
    late = pipeline.here("wait", "--lsn", pipeline.lsn(), "--timeout", "1", "item-search")
    assert (late.code, "item-search" in late.err) == (1, True)
    pipeline.run("item-search")
    pipeline.assert_in_step("item-search", "item-cache")
    assert cache.running


def test_a_killed_run_takes_its_jvm_with_it(runner: Job) -> None:
    family = runner.family()
    assert any("java" in process.name() for process in family)
    runner.kill()
    assert not [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
