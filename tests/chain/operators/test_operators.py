"""Operators who ask for several things at once, and for what cannot be: readers lose nothing, and each is answered."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
import redis
from confluent_kafka import Producer

from tests.chain.commands.altered import Altered
from tests.chain.conftest import MakePipeline, running
from tests.chain.support.told import answers, latest, standings
from tests.chain.support.witness import Witness
from tests.support.compare import View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

ROWS = 500
SEARCH, CACHE = "item-search", "item-cache"
MAPPING = {"dynamic": "strict", "properties": {"id": {"type": "integer"}, "size": {"type": "integer"}}}


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table items (id int primary key, size text)")
    fill(source)
    pipeline = make_pipeline(View("item", "public.items"), index={"mapping": MAPPING})
    pipeline.apply()
    return pipeline


def fill(source: psycopg.Connection) -> None:
    source.execute("insert into items select i, i::text from generate_series(1, %s) i", (ROWS,))


@pytest.fixture
def witness(pipeline: Pipeline) -> Iterator[Witness]:
    running(pipeline)
    pipeline.wait()
    rows = {(i,): {"id": i, "size": str(i)} for i in range(1, ROWS + 1)}
    witness = Witness(pipeline.stores, rows)
    yield witness
    witness.end()


def live(pipeline: Pipeline, follower: str) -> int:
    """The generation that readers see, as its runner says."""
    seen = [n for n, fact in standings(pipeline, follower).items() if fact["live"]]
    return seen[0] if len(seen) == 1 else 0


def newest(pipeline: Pipeline, follower: str) -> int:
    return max(standings(pipeline, follower))


def slow(pipeline: Pipeline) -> Altered:
    """A run whose switches in Redis take their time: with the pauses, some twelve seconds."""
    for job in pipeline.jobs():
        if job.running:
            assert job.stop() == 0
    return Altered(pipeline, "slow_switch", "0.5", "run")


def switching(pipeline: Pipeline, number: int) -> bool:
    """Asked of the store itself: a command takes so long that a switch may be over by then."""
    with redis.Redis.from_url(pipeline.endpoints.redis, decode_responses=True) as client:
        return bool(client.hget(f"driftless:{pipeline.name}:{CACHE}", "switching") == str(number))


@pytest.mark.soak
@pytest.mark.usefixtures("witness")
def test_what_is_begun_in_the_middle_of_a_switch_takes_nothing_from_readers(pipeline: Pipeline) -> None:
    """A rebuild without a switch, then a changed view, then a TRUNCATE: each while another one is being promoted."""
    job = slow(pipeline)
    pipeline.wait()
    first = pipeline.here.start("rebuild", CACHE)
    until("the switch", lambda: switching(pipeline, 2), 120)
    beside = pipeline.here.start("rebuild", CACHE, "--no-promote")
    assert beside.wait(120) == 0, beside.output()
    assert first.wait(60) == 0, first.output()
    assert f"{CACHE}: generation 2 is live" in first.output()
    assert f"{CACHE}: generation 3 is built, and not promoted" in beside.output()

    third = pipeline.here.start("promote", CACHE, "--generation", "3")
    until("the next switch", lambda: switching(pipeline, 3), 120)
    # Others know it from the log alone: a switch is under way, and all of it begins anew.
    pipeline.connection.execute(
        "begin; truncate items; insert into items select i, i::text from generate_series(1, 500) i; commit"
    )
    assert third.wait(120) == 0, third.output()
    until("the generation after the TRUNCATE", lambda: live(pipeline, CACHE) >= 4, 120)
    pipeline.assert_in_step()
    assert job.stop() == 0


@pytest.mark.usefixtures("witness")
def test_requests_wait_in_a_queue_and_each_is_answered(pipeline: Pipeline) -> None:
    """Two replays with other beginnings, two promotions to and fro, and what another program has written among them."""
    job = running(pipeline)
    newer = newest(pipeline, CACHE) + 1
    assert pipeline.here("rebuild", CACHE, "--no-promote", seconds=120).code == 0
    older = live(pipeline, CACHE)
    garbage = {
        f"request/{CACHE}/replay": b'{"id": "abc"}',  # as the version before would write it, without what is needed
        f"request/{CACHE}/replay/x1": b'{"begin": {"0": "one"}}',
        f"request/{CACHE}/promote/x2": b'{"generation": true, "force": 7}',
        f"request/{CACHE}/retry/x3": b'{"keys": ["\\ud800", 7]}',
        f"request/{CACHE}/rebuild/x4": b'{"generation": {"view": "item"}}',
        f"request/{CACHE}/dance/x5": b"{}",
        f"request/{CACHE}/discard/x6": b"not JSON at all",
        f"request/{CACHE}/discard/x7": b"[1]",
        "request/nobody/replay/x8": b"{}",
    }
    producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka})
    for key, value in garbage.items():
        producer.produce(f"{pipeline.name}.control", key=key.encode(), value=value)
    producer.produce(f"{pipeline.name}.control", key=f"request/{CACHE}/".encode() + b"\xff", value=b"{}")
    old = {"id": "old", "generation": older, "force": False}  # a whole one, as the version before wrote it
    producer.produce(f"{pipeline.name}.control", key=f"request/{CACHE}/promote".encode(), value=json.dumps(old))
    producer.flush()
    commands = [
        pipeline.here.start(*command)
        for command in (
            ("replay", CACHE, "--from", "start", "--json"),
            ("replay", CACHE, "--from", "1", "--json"),
            ("promote", CACHE, "--generation", str(newer)),
            ("promote", CACHE, "--generation", str(older)),
            ("quarantine", "retry", CACHE),
        )
    ]
    for command in commands:
        assert command.wait(200) == 0, command.output()
    assert ['"written": 0' in command.output() for command in commands[:2]] == [True, True]

    # Two who ask at the same moment: neither has seen what the other asks.
    begun = json.loads(latest(pipeline)[f"generation/{CACHE}/{older}".encode()])
    for name in ("one", "two"):
        producer.produce(
            f"{pipeline.name}.control",
            key=f"request/{CACHE}/rebuild/{name}".encode(),
            value=json.dumps({"id": name, "generation": begun}),
        )
    producer.flush()
    until("both to be answered", lambda: {"rebuild/one", "rebuild/two"} <= answers(pipeline, CACHE).keys())
    answered = answers(pipeline, CACHE)
    for name in ("one", "two"):
        assert answered[f"rebuild/{name}"] == {"id": name, "error": "", "generation": newer + 1}
    until("it to be live", lambda: live(pipeline, CACHE) == newer + 1)
    assert newest(pipeline, CACHE) == newer + 1
    for name, why in (
        ("replay", "the request has no `begin`"),
        ("replay/x1", "`begin` of the request is no whole number"),
        ("promote/x2", "`generation` of the request is no whole number"),
        ("retry/x3", "`keys` of the request is no list of texts"),
        ("rebuild/x4", "the generation of the request is not one"),
        ("dance/x5", "this version of the runner cannot `dance`"),
    ):
        assert why in answered[name]["error"]
    assert answered["promote"] == {"id": "old", "error": ""}
    assert job.running
    assert "a request was not understood, the 6. of this run" in job.output()
    pipeline.assert_in_step()


@pytest.mark.soak
def test_what_is_held_back_stays_so_and_whoever_waits_is_told(pipeline: Pipeline) -> None:
    """One document that the index refuses, and a TRUNCATE: the generation after it is not promoted, and the one that
    readers see can come no further.
    """
    job = running(pipeline)
    pipeline.wait()
    before = live(pipeline, SEARCH)
    pipeline.connection.execute(
        "begin; truncate items; insert into items select i, i::text from generate_series(1, 500) i; "
        "update items set size = 'large' where id = 7; commit"
    )
    until(
        "the next one to be held back",
        lambda: "is quarantined" in held(pipeline) or "1 documents" in held(pipeline),
        120,
    )
    number = newest(pipeline, SEARCH)
    assert number > before
    waiting = pipeline.here("wait", "--lsn", pipeline.lsn(), SEARCH, "--timeout", "100", seconds=60)
    why = f"`driftless promote {SEARCH} --generation {number} --force`"
    assert (waiting.code, why in waiting.err) == (1, True), waiting.err
    assert job.stop() == 0
    for _ in range(2):
        done = pipeline.here("run", SEARCH, "--until-caught-up", seconds=200)
        assert (done.code, why in " ".join(done.err.split())) == (1, True), done.err
        assert live(pipeline, SEARCH) == before
    job = pipeline.run()
    until("it to be told again", lambda: why in held(pipeline), 60)
    assert live(pipeline, SEARCH) == before
    pipeline.connection.execute("update items set size = '7' where id = 7")
    pipeline.assert_in_step()
    assert live(pipeline, SEARCH) == number
    assert job.running


def held(pipeline: Pipeline) -> str:
    """Why readers of the index are where they are."""
    return "".join(str(fact["stuck"]) for fact in standings(pipeline, SEARCH).values())


@pytest.mark.soak
def test_who_waits_for_a_follower_that_is_removed_is_answered(pipeline: Pipeline, job: Job) -> None:
    assert pipeline.here("pause", CACHE).code == 0
    key = f"request/{CACHE}/promote/y1".encode()
    producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka})
    producer.produce(f"{pipeline.name}.control", key=key, value=b'{"generation": 1, "force": false}')
    producer.flush()
    rebuilding = pipeline.here("rebuild", CACHE)
    assert (rebuilding.code, f"{CACHE} is paused" in rebuilding.err) == (1, True), rebuilding.err
    assert pipeline.here("resume", CACHE).code == 0
    # Asked for at once, so that one of them is in the queue while the other is done.
    removing = pipeline.here.start("remove", CACHE)
    replaying = [pipeline.here.start("replay", CACHE, "--from", str(n)) for n in range(3)]
    assert removing.wait(60) == 0, removing.output()
    for each in replaying:
        code = each.wait(60)
        said = each.output()
        assert code == 0 or f"{CACHE} was removed" in said or "has not been applied yet" in said, said
    assert key not in latest(pipeline)
    # Its documents stay, and the next one of that name does nothing of what was asked of this one.
    assert len(pipeline.stores[CACHE].documents()) == ROWS
    stale = f"request/{CACHE}/remove/y2".encode()
    producer.produce(f"{pipeline.name}.control", key=stale, value=b'{"drop": true}')
    producer.flush()
    pipeline.apply()
    answered = answers(pipeline, CACHE)["remove/y2"]
    assert answered == {"id": "y2", "error": f"{CACHE} was removed"}
    assert job.stop() == 0
    running(pipeline)
    pipeline.assert_in_step()
