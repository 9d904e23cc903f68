"""What hangs, dies or fails holds up nobody else: leases, positions, freshness and requests of all others go on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg
import pytest
import redis
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from driftless.facts.state import LEASE_SECONDS
from stack import Stack
from tests.chain.commands.altered import Altered
from tests.chain.commands.dying import VALUE
from tests.chain.conftest import MakePipeline, running
from tests.chain.support.broken import asleep
from tests.support.compare import OpenSearch, View
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

KEEP = 20
"""Seconds for which a generation is kept that readers have left."""
DROPPING = 24
"""For so long a store fails when a generation in it is due to be dropped: one attempt takes 20 s."""
PART = "jsonb_build_object('id', p.id, 'name', p.name)"
BOX = View(
    "box",
    "public.boxes",
    fields={name: name for name in ("id", "label", "parts")},
    instead={
        "parts": "(select coalesce(jsonb_agg(to_jsonb(p) - 'box' order by p.id), '[]') from parts p where p.box = t.id)"
    },
)


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table items (id int primary key, name text)")
    source.execute("insert into items select n, 'item ' || n from generate_series(1, 500) n")
    source.execute("create table boxes (id int primary key, label text)")
    source.execute("create table parts (id int primary key, box int, name text)")
    source.execute("insert into boxes select n, 'box ' || n from generate_series(1, 20) n")
    source.execute("insert into parts select n, n %% 20 + 1, 'part ' || n from generate_series(1, %s) n", (100,))
    pipeline = make_pipeline(
        View("item", "public.items"), tables={f"public.{t}": {} for t in ("items", "boxes", "parts")}
    )
    many = {"parts": {"table": "public.parts", "by": "box", "columns": ["id", "name"]}}
    pipeline.sync["views"]["box"] = {"root": "public.boxes", "many": many}
    pipeline.follow("box-cache", BOX, {"redis": {}})
    for follower in ("item-search", "item-cache"):
        pipeline.sync["followers"][follower]["keep"] = f"{KEEP}s"
    pipeline.apply()
    return pipeline


class Sibling:
    """A follower that is to notice nothing, and the renewals of its lease by the broker's clock."""

    def __init__(self, pipeline: Pipeline, follower: str) -> None:
        self._pipeline, self._follower = pipeline, follower
        settings = {"bootstrap.servers": pipeline.endpoints.kafka, "group.id": "test", "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})
        place = TopicPartition(f"{pipeline.name}.control", 0)
        _, end = self._consumer.get_watermark_offsets(place, timeout=15)
        self._consumer.assign([TopicPartition(place.topic, 0, end)])
        self._renewed: list[float] = []

    def look(self, *, moves: bool) -> None:
        """Its lease, state and requests; and, where the source and what reads it work, its position and freshness."""
        if moves:
            self._pipeline.connection.execute("insert into items select max(id) + 1, 'later' from items")
            self._pipeline.wait(self._follower, seconds=LEASE_SECONDS)
        found = self._pipeline.follower(self._follower)
        assert (found["state"], found["trouble"]) == ("live", None)
        assert not moves or found["lag_seconds"] < LEASE_SECONDS
        replayed = self._pipeline.here("replay", self._follower, "--from", "start", seconds=30)
        assert replayed.code == 0, f"a request was not answered: {replayed.err}"

    def was_kept(self) -> None:
        """Its lease was renewed in time, all the while."""
        key = f"lease/{self._follower}".encode()
        while (message := self._consumer.poll(1.0)) is not None and len(self._renewed) < 10_000:
            if message.error() is None and message.key() == key:
                self._renewed.append(message.timestamp()[1] / 1000)
                if time.time() - self._renewed[-1] < 0.5:
                    break
        self._consumer.close()
        gaps = [b - a for a, b in zip(self._renewed, self._renewed[1:], strict=False)]
        assert max(gaps, default=LEASE_SECONDS) < LEASE_SECONDS / 2, f"{len(self._renewed)} renewals"


def generations(pipeline: Pipeline, follower: str) -> list[int]:
    return [g["n"] for g in pipeline.follower(follower)["generations"]]


def watch(sibling: Sibling, seconds: float, *, moves: bool = True) -> None:
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        sibling.look(moves=moves)
    sibling.was_kept()


@pytest.mark.soak
def test_a_store_that_hangs_with_a_drop_due_holds_up_its_own_follower_alone(pipeline: Pipeline, stack: Stack) -> None:
    job = pipeline.run()
    pipeline.assert_in_step()
    assert pipeline.here("rebuild", "item-cache", seconds=240).code == 0
    with asleep(stack.running()["redis"]):
        watch(Sibling(pipeline, "item-search"), KEEP + DROPPING)
        kept = generations(pipeline, "item-cache")
        assert len(kept) == 2, "it was dropped before the store hung, which this test is not about"
        waits = pipeline.follower("item-cache")
        assert waits["trouble"], "its own follower says what it waits for"
        since = pipeline.told(f"follower/item-cache/{kept[-1]}")["trouble_since"]
        assert 0 < time.time() - since < KEEP + DROPPING + 60
        assert pipeline.differences(["item-search"]) == {}
    pipeline.assert_in_step()
    until("the generation to be dropped", lambda: generations(pipeline, "item-cache") == kept[1:])
    assert job.running


@contextmanager
def killed(stack: Stack, server: str) -> Iterator[None]:
    stack.kill(server)
    try:
        yield
    finally:
        stack.start(server)


@contextmanager
def full(pipeline: Pipeline, server: str) -> Iterator[None]:
    """A store that takes no document more: Redis without memory, an index as OpenSearch leaves it on a full disk."""
    if server == "redis":
        with redis.Redis.from_url(pipeline.endpoints.redis) as client:
            client.config_set("maxmemory", "1mb")
            try:
                yield
            finally:
                client.config_set("maxmemory", "0")
        return
    search = pipeline.stores["item-search"]
    assert isinstance(search, OpenSearch)
    for block in (True, None):
        search.call("PUT", f"/{search.index}-*/_settings", {"index.blocks.read_only_allow_delete": block})
        if block:
            yield


HOW: dict[str, Callable[[Pipeline, Stack, str], AbstractContextManager[object]]] = {
    "hangs": lambda _, stack, server: asleep(stack.running()[server]),
    "dies": lambda _, stack, server: killed(stack, server),
    "is full": lambda pipeline, _, server: full(pipeline, server),
}
FAILURES = [
    *((server, how) for server in ("redis", "opensearch") for how in HOW),
    *((server, how) for server in ("connect", "postgres") for how in ("hangs", "dies")),
]


@pytest.mark.soak
@pytest.mark.parametrize(("server", "how"), FAILURES)
def test_every_server_that_fails_with_work_due_holds_up_its_own_followers_alone(
    pipeline: Pipeline, stack: Stack, server: str, how: str
) -> None:
    """A drop is due, and a new generation is asked for, which is to be opened, filled and promoted."""
    own, sibling = ("item-search", "item-cache") if server == "opensearch" else ("item-cache", "item-search")
    moves = server not in ("connect", "postgres")
    job = running(pipeline)
    pipeline.assert_in_step()
    assert pipeline.here("rebuild", own, seconds=240).code == 0
    with HOW[how](pipeline, stack, server):
        rebuild = pipeline.here.start("rebuild", own)
        watch(Sibling(pipeline, sibling), KEEP + DROPPING, moves=moves)
    if server == "postgres":
        pipeline.connect()
    try:
        assert rebuild.wait(240) == 0, rebuild.output()
    finally:
        rebuild.destroy()
    pipeline.assert_in_step()
    until("what is old to be dropped", lambda: len(generations(pipeline, own)) == 1, KEEP + 60)
    assert job.running, "the same run has gone on"


OF_ONE = ["lease of item-search", "turns of item-search"]
"""Threads of one follower; it fails, and the others go on."""
OF_ALL = ["control topic", "frontiers", "ends of logs", "source"]
"""Threads that all need; the run ends."""


def told(pipeline: Pipeline, follower: str, thread: str) -> bool:
    """Whether the status says that a follower has failed, and why. It never says what is in a row."""
    found = pipeline.follower(follower)
    assert VALUE not in json.dumps(found)
    said = f"the thread `{thread}` ended: ValueError" in (found["trouble"] or "")
    return bool(found["state"] == "failed" and said and "restart `driftless run`" in found["trouble"])


@pytest.mark.soak
@pytest.mark.parametrize("thread", OF_ONE)
def test_a_thread_of_one_follower_that_dies_takes_it_along_and_no_other(pipeline: Pipeline, thread: str) -> None:
    pipeline.end_jobs()
    job = Altered(pipeline, "dying", thread, "run")
    until("the follower to have failed", lambda: told(pipeline, "item-search", thread), 120)
    pipeline.connection.execute("update items set name = name || '.' where id < 10")
    pipeline.wait("item-cache")
    assert pipeline.follower("item-cache")["state"] == "live"
    assert job.running
    assert job.stop() == 1
    assert f"the thread `{thread}` ended: ValueError" in job.output()
    pipeline.run()
    pipeline.assert_in_step()


@pytest.mark.soak
@pytest.mark.parametrize("thread", OF_ALL)
def test_a_thread_that_all_need_ends_the_run_when_it_dies(pipeline: Pipeline, thread: str) -> None:
    pipeline.end_jobs()
    job = Altered(pipeline, "dying", thread, "run")
    assert job.wait(120) == 1
    assert f"the thread `{thread}` ended: ValueError" in job.output()
    for follower in ("item-search", "item-cache"):
        assert told(pipeline, follower, thread)


@pytest.mark.soak
def test_a_run_until_caught_up_ends_where_a_view_has_failed(pipeline: Pipeline) -> None:
    """The log of a table is gone that the view alone reads. The last test of the module."""
    pipeline.end_jobs()
    topic = f"{pipeline.name}.public.parts"
    admin = AdminClient({"bootstrap.servers": pipeline.endpoints.kafka})
    for deleted in admin.delete_topics([topic]).values():
        deleted.result()
    ended = pipeline.here("run", "--until-caught-up", seconds=240)
    assert ended.code == 1
    assert f"the topic {topic} is gone" in ended.err
    fact = pipeline.told("build/box/1/0")
    assert fact["state"] == "failed"
    assert f"the topic {topic} is gone" in fact["error"]
    assert not pipeline.differences(["item-search", "item-cache"])
