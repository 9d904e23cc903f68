"""`driftless serve` beside a pipeline: its figures are those of the chain, and the pipeline does not notice it."""

from __future__ import annotations

import re
import signal
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import psycopg
import pytest
import redis
import urllib3

from stack import Stack
from tests.chain.conftest import MakePipeline
from tests.chain.support.serving import Serving, read_figures
from tests.support.compare import View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = pytest.mark.server

ITEM = View("item", "public.items")
ORDER = View("order", "public.orders")


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """A pipeline with a view of one table and one of two, that was applied and runs."""
    source.execute("create table items (id int primary key, name text)")
    source.execute("create table orders (id int primary key, item_id int references items)")
    source.execute("insert into items select n, 'item ' || n from generate_series(1, 50) n")
    source.execute("insert into orders select n, n from generate_series(1, 20) n")
    pipeline = make_pipeline(ITEM, tables={"public.items": {}, "public.orders": {}})
    one = {"item": {"table": "public.items", "by": "item_id", "columns": ["name"]}}
    pipeline.sync["views"]["order"] = {"root": "public.orders", "one": one}
    pipeline.follow("order-cache", ORDER, {"redis": {}})
    pipeline.apply()
    pipeline.run("--metrics", "0")
    pipeline.wait()
    return pipeline


@pytest.fixture(scope="module")
def serving(pipeline: Pipeline) -> Serving:
    return Serving(pipeline)


def run_of(pipeline: Pipeline) -> Job:
    return next(job for job in pipeline.jobs() if job.running and job.arguments[0] == "run")


def test_the_figures_are_those_of_the_chain(pipeline: Pipeline, serving: Serving, source: psycopg.Connection) -> None:
    before = serving.figures()
    for n in range(1, 11):
        source.execute("update items set name = name || '!' where id = %s", (n,))
    pipeline.wait()

    def written(figures: dict[str, Any], follower: str) -> float:
        return float(
            figures["driftless_follower_written_documents_total"][
                frozenset({("follower", follower), ("generation", "1")})
            ]
        )

    def grown(follower: str) -> float:
        return written(serving.figures(), follower) - written(before, follower)

    for follower in ("item-search", "item-cache", "order-cache"):
        until(f"{follower} to have written ten more", lambda follower=follower: grown(follower) == 10, 30)  # type: ignore[misc]
    found = serving.figures()
    for follower in ("item-search", "item-cache", "order-cache"):
        one, run = frozenset({("follower", follower)}), frozenset({("follower", follower), ("generation", "1")})
        assert found["driftless_follower_state"][one | {("state", "live")}] == 1
        assert found["driftless_follower_lag_records"][one] == 0
        assert found["driftless_follower_lag_seconds"][one] < 30
        assert found["driftless_follower_quarantined_documents"][one] == 0
        readable = found["driftless_follower_readable_seconds_count"][run]
        assert readable - before["driftless_follower_readable_seconds_count"][run] == 10
        mean = found["driftless_follower_readable_seconds_sum"][run] / readable
        assert 0.001 < mean < 60, "from the commit, not from 1970 nor from the end"
        assert found["driftless_lease_held"][frozenset({("kind", "follower"), ("name", follower)})] == 1
    assert found["driftless_follower_documents"][frozenset({("follower", "item-cache")})] == 50
    assert found["driftless_view_store_bytes"][frozenset({("view", "order"), ("shard", "0")})] > 10_000
    assert found["driftless_connector_up"][frozenset()] == 1
    assert found["driftless_source_up"][frozenset()] == 1
    assert found["driftless_slot_retained_bytes"][frozenset()] > 0
    assert "driftless_problem" not in found, found["driftless_problem"]


def test_a_table_s_log_grows_by_what_is_written(serving: Serving, source: psycopg.Connection) -> None:
    """The brokers are asked every ten seconds while somebody looks."""

    def records() -> float:
        return serving.figure("table_log_records", table="public.items") or 0

    before = records()
    assert before >= 50
    for n in range(1, 6):
        source.execute("update items set name = name || '?' where id = %s", (n,))
    until("the log to be five longer", lambda: records() >= before + 5, 40)
    age = serving.figure("table_log_age_seconds", table="public.items")
    assert age is not None
    assert age < 60


def test_status_is_that_of_the_command(pipeline: Pipeline, serving: Serving) -> None:
    served, said = serving.status(), pipeline.status()
    assert served.keys() == said.keys()
    for part in ("views", "followers"):
        for one, other in zip(served[part], said[part], strict=True):
            assert one.keys() == other.keys()
            assert (one["name"], one["state"], one["generation"]) == (
                other["name"],
                other["state"],
                other["generation"],
            )


def test_a_run_serves_its_own_figures(pipeline: Pipeline) -> None:
    address = re.search(r"metrics of this process on (\S+)", run_of(pipeline).output())
    assert address is not None
    found = read_figures(urllib3.request("GET", address[1], timeout=20).data)
    cache = frozenset({("follower", "item-cache"), ("generation", "1")})
    assert found["driftless_follower_written_documents_total"][cache] >= 50
    assert found["process_resident_memory_bytes"][frozenset()] > 1e7


def test_a_proof_is_shown_also_where_it_found_drift(pipeline: Pipeline, serving: Serving) -> None:
    assert serving.figure("follower_proven", follower="item-cache") is None
    assert pipeline.here("verify", "item-cache", seconds=240).code == 0
    until("the proof to show", lambda: serving.figure("follower_proven", follower="item-cache") == 1, 30)
    age = serving.figure("follower_proof_age_seconds", follower="item-cache")
    assert age is not None
    assert age < 60
    cache = pipeline.stores["item-cache"]
    with redis.Redis.from_url(pipeline.endpoints.redis) as client:
        client.set(cache.name((1,)), '{"id": 1, "name": "of nobody"}')
    assert pipeline.here("verify", "item-cache", seconds=240).code == 1
    until("the drift to show", lambda: serving.figure("follower_proven", follower="item-cache") == 0, 30)
    assert pipeline.here("verify", "item-cache", "--repair", seconds=240).code == 0


@contextmanager
def flood(serving: Serving) -> Iterator[None]:
    """Clients that ask without end, thousands that say nothing, and some that never read what they asked for."""
    ended = threading.Event()
    host, port = serving.url.removeprefix("http://").split(":")

    def ask() -> None:
        while not ended.is_set():
            with suppress(urllib3.exceptions.HTTPError):
                urllib3.request("GET", f"{serving.url}/metrics", timeout=5, retries=False)

    def say_nothing() -> None:
        while not ended.is_set():
            with ExitStack() as ending, suppress(OSError):
                for _ in range(2_000):
                    ending.enter_context(socket.create_connection((host, int(port)), timeout=5))
                ended.wait(1)

    def never_read(path: bytes) -> None:
        while not ended.is_set():
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                for _ in range(200):
                    peer.sendall(b"GET %s HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" % path)
                    ended.wait(0.01)

    def huge() -> None:
        while not ended.is_set():
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as peer:
                peer.sendall(b"GET /status HTTP/1.1\r\n" + b"x: " + b"y" * 1_000_000)
            ended.wait(0.05)

    never_read_live, never_read_figures = partial(never_read, b"/live"), partial(never_read, b"/metrics")
    clients = (ask, ask, ask, say_nothing, never_read_live, never_read_figures, huge)
    threads = [threading.Thread(target=one, daemon=True) for one in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(30)


def freshness(pipeline: Pipeline, source: psycopg.Connection, changes: int) -> list[float]:
    """How long each of these changes takes until the cache shows it."""
    found = []
    for n in range(changes):
        name = f"fresh {time.time_ns()}"
        begun = time.monotonic()
        source.execute("update items set name = %s where id = %s", (name, n % 50 + 1))

        def shown(n: int = n, name: str = name) -> bool:
            document = pipeline.stores["item-cache"].get(pipeline.stores["item-cache"].name((n % 50 + 1,)))
            return bool(document and document["name"] == name)

        until("the change to be readable", shown, 60)
        found.append(time.monotonic() - begun)
    return found


def test_the_pipeline_does_not_notice_a_service_that_is_flooded_hangs_or_dies(
    pipeline: Pipeline, source: psycopg.Connection
) -> None:
    calm = freshness(pipeline, source, 10)
    serving = Serving(pipeline)
    with flood(serving):
        flooded = freshness(pipeline, source, 20)
    until("serve to answer again", lambda: serving.get("/healthz")[0] == 200, 60)
    assert serving.status()["problems"] == []
    serving.job.signal(signal.SIGSTOP)
    hanging = freshness(pipeline, source, 10)
    serving.job.kill()
    dead = freshness(pipeline, source, 10)
    medians = {
        name: round(statistics.median(seconds), 3)
        for name, seconds in (("calm", calm), ("flooded", flooded), ("hanging", hanging), ("dead", dead))
    }
    print(f"a change was readable after (median of each): {medians} s")
    assert pipeline.status()["problems"] == []
    pipeline.assert_in_step("item-cache")


def test_it_outlives_the_source_and_kafka_and_says_so(serving: Serving, stack: Stack) -> None:
    stack.kill("postgres")
    try:
        until("the source to be missed", lambda: serving.figure("source_up") == 0, 60)
        assert serving.figure("problem", kind="source_unreachable", who="source") == 1
        assert serving.figure("source_position_bytes") is None
    finally:
        stack.up()
    until("the source to be back", lambda: serving.figure("source_up") == 1, 90)
    stack.kill("kafka")
    try:
        until("Kafka to be missed", lambda: serving.figure("kafka_up") == 0, 90)
        assert serving.get("/readyz")[0] == 503
        assert serving.figure("problem", kind="kafka_unreachable", who="Kafka") == 1
    finally:
        stack.up()
    until("Kafka to be back", lambda: serving.figure("kafka_up") == 1, 120)
    assert serving.job.running, serving.job.output()


def test_a_file_that_has_changed_since_is_told(pipeline: Pipeline) -> None:
    serving = Serving(pipeline)
    assert serving.status()["warnings"] == []
    pipeline.here.write()
    said = "sync.yaml has changed since `driftless serve` was started: start it again to see what it says now"
    until("it to be told", lambda: serving.status()["warnings"] == [said], 20)
    assert serving.job.stop(20, signal.SIGTERM) == 0


def test_it_ends_when_told_and_gives_its_port_back(pipeline: Pipeline) -> None:
    serving = Serving(pipeline)
    port = serving.url.rpartition(":")[2]
    assert serving.job.stop(20, signal.SIGTERM) == 0
    again = pipeline.here.start("serve", "--port", port)
    until("another to take the port", lambda: f":{port}" in again.output(), 60)
    taken = pipeline.here("serve", "--port", port)
    assert taken.code == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in taken.err
    assert again.stop(20, signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "there is no token"),  # noqa: S104
        (["--host", "0.0.0.0", "--token-file", "{token}"], "without TLS the token could be read"),  # noqa: S104
        (["--token-file", "{short}"], "a token has 20 ASCII characters or more"),
        (["--token-file", "nothing"], "it cannot be read: No such file"),
        (["--certificate", "{token}"], "--certificate"),
        (["--key", "{token}"], "there is no --certificate"),
        (["--host", "203.0.113.7", "--token-file", "{token}", "--insecure"], "cannot listen on 203.0.113.7:8480"),
    ],
)
def test_a_mistake_is_told_before_anything_listens(
    pipeline: Pipeline, tmp_path: Any, options: list[str], said: str
) -> None:
    for name, token in (("token", "x" * 20), ("short", "x" * 19)):
        (tmp_path / name).write_text(token)
    given = [option.format(token=tmp_path / "token", short=tmp_path / "short") for option in options]
    done = pipeline.here("serve", *given)
    assert done.code == 2, done.err
    assert said in done.err
    assert "Traceback" not in done.err
