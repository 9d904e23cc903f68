"""Stores that lose, or get back, what they held; and followers that were away for longer than deletes are kept."""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path

import psycopg
import pytest
import redis

from stack import Stack
from tests.chain.conftest import MakePipeline, in_step, running
from tests.chain.history.test_history import gap
from tests.chain.support.broken import copy_tree, ends
from tests.chain.support.orders_view import DECLARED, ORDER
from tests.chain.views.test_views import orders_and_customers
from tests.support.compare import OpenSearch, View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]

RETENTION = 60.0


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    pipeline = orders_and_customers(make_pipeline, source)
    for follower in pipeline.sync["followers"].values():
        follower["keep"] = "0s"  # what readers have left is dropped at once, and nothing else
    pipeline.apply()
    return pipeline


@pytest.fixture
def job(pipeline: Pipeline) -> Job:
    return in_step(pipeline)


def index(pipeline: Pipeline, follower: str) -> tuple[OpenSearch, str]:
    """The server, and the index that readers see."""
    store = pipeline.stores[follower]
    assert isinstance(store, OpenSearch)
    (name,) = store.call("GET", f"/{store.index}/_alias")
    return store, name


def test_an_index_that_was_deleted_while_nobody_ran(pipeline: Pipeline, job: Job) -> None:
    assert job.stop() == 0
    for follower in ("customer-search", "order-search"):
        server, name = index(pipeline, follower)
        server.call("DELETE", f"/{name}")
    gap(pipeline)
    running(pipeline)
    pipeline.assert_in_step()


def test_an_index_that_is_deleted_under_a_run(pipeline: Pipeline, job: Job) -> None:
    """It is filled again; or a write met its absence first, and says what to do."""
    server, name = index(pipeline, "customer-search")
    server.call("DELETE", f"/{name}")
    until("it to be noticed", lambda: "following again" in job.output() or "is gone or closed" in job.output(), 60)
    if "is gone or closed" in job.output():
        assert "driftless rebuild customer-search" in job.output()
        assert pipeline.here("rebuild", "customer-search").code == 0
    gap(pipeline)
    pipeline.assert_in_step()


def test_an_index_that_was_put_back_with_what_was_deleted_long_ago(pipeline: Pipeline, job: Job) -> None:
    """A copy of the index takes its place, as from a backup; it holds a document that no record of the log deletes."""
    assert job.stop() == 0
    server, name = index(pipeline, "customer-search")
    aliases = list(server.call("GET", f"/{name}")[name]["aliases"])
    server.call("PUT", f"/{name}/_doc/777?version=1&version_type=external", {"id": 777, "name": "gone for long"})
    for begin, end in ((name, "backup"), ("backup", name)):
        server.call("PUT", f"/{begin}/_settings", {"index.blocks.write": True})
        server.call("POST", f"/{begin}/_clone/{end}", {"settings": {"index.blocks.write": None}})
        until("the copy to be there", lambda end=end: server.call("GET", f"/_cluster/health/{end}")["status"] != "red")  # type: ignore[misc]
        server.call("DELETE", f"/{begin}")
    actions = [{"add": {"index": name, "alias": alias}} for alias in aliases]
    server.call("POST", "/_aliases", {"actions": actions})
    assert "777" in pipeline.stores["customer-search"].documents()
    refused = pipeline.run("customer-search")
    ends(refused, "generation 1 was built with", "`driftless rebuild customer-search` rebuilds it")
    rebuilt = pipeline.here("rebuild", "customer-search", seconds=240)
    assert rebuilt.code == 0, rebuilt.err
    running(pipeline)
    pipeline.assert_in_step()


def test_a_redis_that_starts_empty(pipeline: Pipeline, job: Job, stack: Stack) -> None:
    stack.kill("redis")
    data = stack.folder / "data" / "redis"
    for path in data.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    gap(pipeline)
    stack.start("redis")
    assert not pipeline.stores["customer-cache"].documents() or job.running
    pipeline.assert_in_step()
    assert "the store lost what it had acknowledged; following again" in job.output()
    assert job.running, "the same run has gone on"


def test_a_redis_that_lost_the_last_it_was_given(pipeline: Pipeline, job: Job, stack: Stack, tmp_path: Path) -> None:
    """As after a failover to a replica that was behind: its checkpoint is of then, too."""
    data = stack.folder / "data" / "redis"
    stack.stop("redis")
    copy_tree(data, tmp_path / "redis")
    stack.start("redis")
    gap(pipeline)
    pipeline.assert_in_step()
    stack.kill("redis")
    shutil.rmtree(data)
    copy_tree(tmp_path / "redis", data)
    stack.start("redis")
    assert pipeline.differences(["customer-cache"]) or "following again" in job.output(), "it lost nothing"
    pipeline.assert_in_step()
    assert job.running, "the same run has gone on"


def test_a_redis_that_lost_what_came_after_its_checkpoint(pipeline: Pipeline, job: Job, stack: Stack) -> None:
    """As when the power fails: the file ends with the last checkpoint, and what was acknowledged after it is gone."""

    def lost() -> bool:
        for _ in range(2):  # the first is followed by a checkpoint, and the second is not, for a second
            gap(pipeline)
            until("it to be applied", lambda: not pipeline.differences(["customer-cache"]), 60)
        stack.kill("redis")
        (log,) = (stack.folder / "data" / "redis" / "appendonlydir").glob("*.incr.aof")
        written = log.read_bytes()
        checkpoint = written.rindex(b"\r\ncheckpoint\r\n")
        tail = written.find(b"\r\n*", checkpoint) + 2  # the next command
        found = tail > 1 and b"customer-cache" in written[tail:]
        if found:
            log.write_bytes(written[:tail])
        stack.start("redis")
        return found

    until("it to be killed with documents behind its checkpoint", lost, 240)
    pipeline.assert_in_step()
    assert "was restarted or failed over; applying again what came after its checkpoint" in job.output()
    assert job.running, "the same run has gone on"


def test_a_redis_that_starts_empty_claims_nothing_in_between(pipeline: Pipeline, job: Job, stack: Stack) -> None:
    """Nobody wrote meanwhile, so nothing but the question tells the run that all is gone."""
    data = stack.folder / "data" / "redis"
    for _ in range(3):
        pipeline.assert_in_step()
        stack.kill("redis")
        shutil.rmtree(data)
        data.mkdir()
        stack.start("redis")
        pipeline.assert_in_step()
    assert job.running, "the same run has gone on"


def test_a_redis_that_is_told_to_evict(pipeline: Pipeline, job: Job) -> None:
    """It would throw away documents and versions, and an older write would win."""
    with redis.Redis.from_url(pipeline.endpoints.redis) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            message = "Redis has maxmemory-policy allkeys-lru: it would throw documents and versions away"
            until("the run to tell", lambda: message in job.output(), 150)
            until("it to have failed", lambda: pipeline.follower("customer-cache")["state"] == "failed", 60)
            assert job.running, "it has other followers"
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    gap(pipeline)
    assert job.stop() in (0, 1)
    running(pipeline)
    pipeline.assert_in_step()


def test_a_redis_that_is_full_holds_back_its_followers_alone(pipeline: Pipeline, job: Job) -> None:
    with redis.Redis.from_url(pipeline.endpoints.redis) as client:
        client.config_set("maxmemory", "1mb")
        try:
            gap(pipeline)
            pipeline.assert_in_step("customer-search")
            waits = partial(pipeline.follower, "customer-cache")
            until("it to be told of", lambda: waits()["trouble"], 150)
            assert job.running
        finally:
            client.config_set("maxmemory", "0")
    pipeline.assert_in_step()
    assert job.running, "the same run has gone on"


def test_who_was_away_for_longer_than_deletes_are_kept(pipeline: Pipeline, make_pipeline: MakePipeline) -> None:
    """A follower refuses to go on and is built anew; the rows of a view are filled again by themselves."""
    pipeline.end_jobs()
    away = make_pipeline(
        tables={table: {"retention": f"{RETENTION:.0f}s"} for table in pipeline.sync["source"]["tables"]}
    )
    away.sync["views"]["order"] = DECLARED
    away.follow("order-cache", ORDER, {"redis": {}})
    away.add(View("customer", "public.customers"))
    away.apply()
    job = running(away)
    away.assert_in_step()
    assert job.stop() == 0
    gap(away)
    begun = time.monotonic()
    until("deletes to be forgotten", lambda: time.monotonic() > begun + RETENTION + 5, 120)
    message = f"the log keeps deletes for {RETENTION:.0f} s, so it may still hold rows that are gone"
    ends(away.run("customer-cache"), message, "`driftless rebuild customer-cache` rebuilds it")
    job = away.run()
    until("the rows to be filled again", lambda: "it has not been kept up for longer" in job.output(), 150)

    def failed(follower: str) -> bool:
        return bool(away.follower(follower)["state"] == "failed")

    for follower in ("customer-cache", "customer-search"):
        until(f"{follower} to stop", partial(failed, follower))
    for follower in ("customer-cache", "customer-search", *filter(failed, ["order-cache"])):
        rebuilt = away.here("rebuild", follower, seconds=240)
        assert rebuilt.code == 0, rebuilt.err
    away.assert_in_step()
    gap(away)
    away.assert_in_step()
