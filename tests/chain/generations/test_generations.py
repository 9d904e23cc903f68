"""Generations of a follower: built beside the live one, switched to, gone back to, and dropped."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.chain.conftest import MakePipeline, running
from tests.chain.support.corrupt import InTopic
from tests.support.compare import OpenSearch, View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(600), pytest.mark.usefixtures("job")]

ROWS = 3_000
BOTH = ("item-search", "item-cache")


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table items (id int primary key, title text, price numeric(12, 2), stock int)")
    source.execute("insert into items select i, 'item ' || i, i / 7.0, 0 from generate_series(1, %s) i", (ROWS,))
    pipeline = make_pipeline(View("item", "public.items"))
    pipeline.apply()
    return pipeline


@pytest.mark.soak
@pytest.mark.parametrize("follower", BOTH)
def test_a_switch_that_was_interrupted_and_is_overtaken(pipeline: Pipeline, job: Job, follower: str) -> None:
    """The generation that it was to is dropped, since the log has begun anew; the next one speaks all the same."""
    done = pipeline.here("rebuild", follower, "--no-promote", seconds=200)
    assert done.code == 0, done.err
    number = max(g["n"] for g in pipeline.follower(follower)["generations"])
    assert job.stop() == 0
    key = f"follower/{follower}/{number}".encode()
    InTopic(pipeline.endpoints.kafka, f"{pipeline.name}.control").change(key, state="promoting")
    pipeline.connection.execute("truncate items")
    pipeline.connection.execute("insert into items select i, 'item ' || i, 1, 0 from generate_series(1, %s) i", (ROWS,))
    running(pipeline)
    pipeline.assert_in_step(follower)
    found = pipeline.follower(follower)
    assert (found["generation"] > number, found["state"]) == (True, "live"), found


class Busy:
    """Changes of every kind, until the test ends them."""

    def __init__(self, dsn: str, first: int) -> None:
        self._ended = threading.Event()
        self._dsn = dsn
        self._first = first
        self._thread = threading.Thread(target=self._change)
        self._thread.start()

    def _change(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            n = self._first
            while not self._ended.wait(0.02):
                n += 1
                connection.execute("update items set stock = stock + 1 where id = %s", (n * 7 % ROWS + 1,))
                connection.execute("insert into items values (%s, 'new', 1, 1)", (n,))
                connection.execute("delete from items where id = %s", ((n + self._first) // 2,))

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture
def busy(pipeline: Pipeline) -> Iterator[Busy]:
    row = pipeline.connection.execute("select max(id) from items").fetchone()
    assert row is not None
    changes = Busy(pipeline.dsn, row[0])
    yield changes
    changes.end()


def numbers(pipeline: Pipeline, follower: str) -> dict[int, bool]:
    """Generation -> whether readers see it."""
    return {g["n"]: g["live"] for g in pipeline.follower(follower)["generations"]}


def index(pipeline: Pipeline) -> OpenSearch:
    store = pipeline.stores["item-search"]
    assert isinstance(store, OpenSearch)
    return store


def follower_state(pipeline: Pipeline, name: str) -> str:
    return str(pipeline.follower(name)["state"])


@pytest.mark.parametrize("follower", [BOTH[0], pytest.param(BOTH[1], marks=pytest.mark.soak)])
def test_a_rebuilt_follower_is_switched_and_can_be_gone_back_from(
    pipeline: Pipeline, job: Job, follower: str, busy: Busy
) -> None:
    before = max(numbers(pipeline, follower))
    done = pipeline.here("rebuild", follower, "--json", seconds=180)
    assert done.code == 0, done.err
    assert done.json() == {"follower": follower, "generation": before + 1, "promoted": True}
    until("status to show both", lambda: numbers(pipeline, follower) == {before: False, before + 1: True})
    back = pipeline.here("promote", follower, "--generation", str(before))
    assert (back.code, back.out.strip()) == (0, f"{follower}: readers see generation {before}")
    until("status to show the old one", lambda: numbers(pipeline, follower) == {before: True, before + 1: False})
    busy.end()
    pipeline.assert_in_step(follower)
    assert pipeline.here("promote", follower, "--generation", str(before + 1)).code == 0
    pipeline.assert_in_step(follower)
    assert job.running


@pytest.mark.soak
def test_a_generation_is_not_promoted_before_it_is_told_to(pipeline: Pipeline) -> None:
    live = next(n for n, live in numbers(pipeline, "item-cache").items() if live)
    newest = max(numbers(pipeline, "item-cache"))
    done = pipeline.here("rebuild", "item-cache", "--no-promote", seconds=180)
    assert (done.code, done.out.strip()) == (0, f"item-cache: generation {newest + 1} is built, and not promoted")
    assert numbers(pipeline, "item-cache")[live]
    assert pipeline.here("promote", "item-cache", "--generation", str(newest + 1)).code == 0
    pipeline.assert_in_step("item-cache")
    missing = pipeline.here("promote", "item-cache", "--generation", "99")
    assert missing.code == 2
    there = ", ".join(map(str, sorted(numbers(pipeline, "item-cache"))))
    assert f"has no generation 99\n  give --generation one of these numbers: {there}\n" in missing.err


@pytest.mark.soak
def test_a_changed_mapping_is_planned_and_becomes_a_generation(pipeline: Pipeline, busy: Busy) -> None:
    newest = max(numbers(pipeline, "item-search"))
    mapping = {"dynamic": False, "properties": {"title": {"type": "text"}, "stock": {"type": "integer"}}}
    pipeline.sync["followers"]["item-search"]["opensearch"]["mapping"] = mapping
    pipeline.here.write()
    planned = pipeline.here("plan")
    assert planned.code == 1
    assert f"rebuild follower item-search: generation {newest + 1}" in planned.out
    assert "its store changed" in planned.out
    pipeline.apply()
    assert pipeline.here("plan").out.splitlines()[0] == "nothing to change"
    until("the new one to be live", lambda: numbers(pipeline, "item-search").get(newest + 1), 120)
    busy.end()
    pipeline.assert_in_step("item-search")
    found = index(pipeline).call("GET", f"/{pipeline.name}-item-search/_mapping")
    assert found[f"{pipeline.name}-item-search-{newest + 1}"]["mappings"]["properties"] == mapping["properties"]


@pytest.mark.soak
def test_a_rebuild_that_nobody_runs_is_run_by_the_command(pipeline: Pipeline, job: Job) -> None:
    job.stop()
    newest = max(numbers(pipeline, "item-cache"))
    done = pipeline.here("rebuild", "item-cache", seconds=240)
    assert (done.code, done.out.strip()) == (0, f"item-cache: generation {newest + 1} is live"), done.err
    assert "nobody runs item-cache" in done.err
    pipeline.run()
    pipeline.assert_in_step()


@pytest.mark.soak
def test_a_killed_rebuild_goes_on_where_it_was(pipeline: Pipeline, job: Job, busy: Busy) -> None:
    """The runner is killed while it builds; the command waits for the next one."""
    newest = max(numbers(pipeline, "item-search"))
    command = pipeline.here.start("rebuild", "item-search")
    until("the generation to be begun", lambda: max(numbers(pipeline, "item-search")) == newest + 1)
    job.kill()
    pipeline.run()
    assert command.wait(240) == 0, command.output()
    until("the new one to be live", lambda: numbers(pipeline, "item-search").get(newest + 1))
    busy.end()
    pipeline.assert_in_step()


def test_a_replay_writes_what_is_missing_and_nothing_else(pipeline: Pipeline) -> None:
    pipeline.assert_in_step("item-cache")
    right = pipeline.here("replay", "item-cache", "--from", "start", "--json")
    assert right.code == 0, right.err
    assert (right.json()["written"], right.json()["left"]) == (0, 0)
    assert right.json()["stale"] >= ROWS
    wrong = pipeline.here("replay", "item-cache", "--from", "yesterday")
    assert wrong.code == 2
    assert "neither `start`, nor an offset, nor a time" in wrong.err


def test_a_paused_follower_stands_still_and_goes_on(pipeline: Pipeline) -> None:
    assert pipeline.here("pause", "item-cache").code == 0
    until("it to be paused", lambda: follower_state(pipeline, "item-cache") == "paused")
    pipeline.connection.execute("update items set title = 'while paused' where id = 1")
    pipeline.assert_in_step("item-search")
    assert pipeline.differences(["item-cache"])
    refused = pipeline.here("replay", "item-cache", "--from", "start")
    assert refused.code == 1
    assert "item-cache is paused; `driftless resume item-cache` first" in refused.err
    assert pipeline.here("resume", "item-cache").code == 0
    pipeline.assert_in_step("item-cache")


def test_a_removed_follower_ends_and_its_documents_go_when_told(pipeline: Pipeline, job: Job) -> None:
    done = pipeline.here("remove", "item-search", "--drop")
    assert done.code == 0, done.err
    assert index(pipeline).call("GET", f"/{pipeline.name}-item-search", missing=True) is None
    planned = pipeline.here("plan")
    assert "create follower item-search: generation" in planned.out
    pipeline.assert_in_step("item-cache")
    assert job.running
