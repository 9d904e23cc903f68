"""A rebuild that is killed at every step: readers see one whole generation, and asking again finishes it."""

from __future__ import annotations

import json

import psycopg
import pytest

from tests.chain.commands.altered import Altered
from tests.chain.commands.doomed import STEPS
from tests.chain.conftest import MakePipeline
from tests.support.compare import View
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(300)]

ROWS = 3_000
WRITING = ["after a slice", "before a checkpoint"]
SWITCHING = [step for step in STEPS if "switch" in step]
DROPPING = [step for step in STEPS if "dropped" in step]
OTHERS = [step for step in STEPS if step not in (*WRITING, *SWITCHING, *DROPPING)]
FOLLOWERS = ["item-search", "item-cache"]


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table items (id int primary key, title text, stock int)")
    source.execute("insert into items select i, 'item ' || i, 0 from generate_series(1, %s) i", (ROWS,))
    pipeline = make_pipeline(View("item", "public.items"))
    for follower in pipeline.sync["followers"].values():
        follower["keep"] = "1s"  # else every test would follow the generations of all before it
    pipeline.apply()
    job = pipeline.run()
    pipeline.assert_in_step()
    assert job.stop() == 0
    return pipeline


def doomed(pipeline: Pipeline, step: str, generation: int, *command: str) -> None:
    """Have a command killed at a step of one generation, and return when it is."""
    Altered(pipeline, "doomed", step, str(generation), *command).die()


def numbers(pipeline: Pipeline, follower: str) -> list[int]:
    return [g["n"] for g in pipeline.follower(follower)["generations"]]


def newest(pipeline: Pipeline, follower: str) -> int:
    return max(numbers(pipeline, follower))


def change(pipeline: Pipeline) -> None:
    """Of every kind, while nobody follows; until the log has it."""
    pipeline.connection.execute("update items set stock = stock + 1 where id % 10 = 3")
    pipeline.connection.execute("delete from items where id = (select min(id) from items)")
    last = pipeline.connection.execute("insert into items select max(id) + 1, 'new', 0 from items returning id")
    ((new,),) = last.fetchall()
    until("the log", lambda: any(json.loads(key or b"")["id"] == new for key, _ in pipeline.records("public.items")))


def killed(pipeline: Pipeline, step: str, follower: str) -> None:
    """A rebuild, at a step; then asked for again."""
    catch_up(pipeline, follower)  # with what the tests of the other one have changed
    number = newest(pipeline, follower) + 1
    doomed(pipeline, step, number, "rebuild", follower)
    assert not pipeline.differences([follower]), "readers see something else than before"

    change(pipeline)
    done = pipeline.here("rebuild", follower, "--json", seconds=240)
    assert done.code == 0, done.err
    # The command resumes the generation that was begun, unless it is finished. A switch that was begun is finished by
    # whoever opens the store next: the runner may do so before it reads the request, or after.
    either = [number, number + 1]
    finished = {"when the switch is recorded": [number + 1], "in the switch": either, "after the switch": either}
    wanted = finished.get(step, [number])
    found = done.json()
    assert found["generation"] in wanted
    assert found == {"follower": follower, "generation": found["generation"], "promoted": True}
    live = {g["n"]: g["live"] for g in pipeline.follower(follower)["generations"]}
    assert [n for n, seen in live.items() if seen] == [found["generation"]]
    catch_up(pipeline, follower)


def catch_up(pipeline: Pipeline, follower: str) -> None:
    """Run it to the log's end, where it is not there: a rebuild that was switched before it died is over at once."""
    if pipeline.differences([follower]):
        assert pipeline.here("run", follower, "--until-caught-up", seconds=120).code == 0
        assert not pipeline.differences([follower]), "what was rebuilt is not what the source shows"


@pytest.mark.parametrize("step", WRITING)
@pytest.mark.parametrize("follower", FOLLOWERS)
def test_a_rebuild_that_is_killed_as_it_writes(pipeline: Pipeline, step: str, follower: str) -> None:
    killed(pipeline, step, follower)


@pytest.mark.parametrize("step", SWITCHING)
@pytest.mark.parametrize("follower", FOLLOWERS)
def test_a_rebuild_that_is_killed_in_its_switch(pipeline: Pipeline, step: str, follower: str) -> None:
    if (step, follower) == ("in the switch", "item-search"):
        pytest.skip("OpenSearch switches in one call")
    killed(pipeline, step, follower)


@pytest.mark.parametrize("step", OTHERS)
@pytest.mark.parametrize("follower", FOLLOWERS)
def test_a_rebuild_that_is_killed(pipeline: Pipeline, step: str, follower: str) -> None:
    killed(pipeline, step, follower)


def test_a_run_goes_on_after_rebuilds_that_were_killed(pipeline: Pipeline) -> None:
    """And follows what they have left: it is behind all of these tests."""
    change(pipeline)
    job = pipeline.run()
    pipeline.assert_in_step()
    assert job.stop() == 0


def test_both_generations_stay_fresh_in_a_long_switch(pipeline: Pipeline) -> None:
    """And every position that is claimed in it holds for the names of either."""
    job = Altered(pipeline, "slow_switch", "0.2", "run", "item-cache")
    try:
        pipeline.wait("item-cache")  # else the command that rebuilds may be the one to switch
        follow_through_a_switch(pipeline)
        assert job.stop() == 0
    finally:
        job.destroy()


def follow_through_a_switch(pipeline: Pipeline) -> None:
    assert pipeline.here("rebuild", "item-cache", "--no-promote", seconds=240).code == 0
    promotion = pipeline.here.start("promote", "item-cache", "--generation", str(newest(pipeline, "item-cache")))
    until("the switch", lambda: pipeline.follower("item-cache")["state"] == "promoting")
    rounds = 0
    while pipeline.follower("item-cache")["state"] == "promoting":
        rounds += 1
        pipeline.connection.execute("update items set stock = %s", (100 + rounds,))
        pipeline.wait("item-cache", seconds=20)
        assert not pipeline.differences(["item-cache"])
    assert rounds, "the switch was too short to see anything"
    assert promotion.wait(120) == 0
    pipeline.assert_in_step("item-cache")


@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("step", DROPPING)
def test_a_drop_that_is_killed(pipeline: Pipeline, step: str, follower: str) -> None:
    """Generations that are not kept any longer are dropped by whoever runs next."""
    old = newest(pipeline, follower)
    pipeline.sync["followers"][follower]["keep"] = "1d"
    pipeline.here.write()
    assert pipeline.here("rebuild", follower, seconds=240).code == 0
    pipeline.sync["followers"][follower]["keep"] = "1s"
    pipeline.here.write()
    doomed(pipeline, step, old, "run", follower)
    assert not pipeline.differences([follower]), "readers see something else than before"
    change(pipeline)
    job = pipeline.run(follower)
    until("the old ones to be gone", lambda: numbers(pipeline, follower) == [old + 1])
    pipeline.assert_in_step(follower)
    assert job.stop() == 0
