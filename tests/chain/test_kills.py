"""A rebuild that is killed at every step: readers see one whole generation, and asking again finishes it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psycopg
import pytest

from tests.chain.conftest import MakePipeline
from tests.chain.doomed import STEPS
from tests.compare import View
from tests.pipeline import Job, Pipeline, until

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(300)]

ROOT = Path(__file__).parent.parent.parent
ROWS = 3_000
BUILDING = [step for step in STEPS if "dropped" not in step]
DROPPING = [step for step in STEPS if "dropped" in step]


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


class Altered(Job):
    """A command by way of one of our modules, which alters something in it first."""

    command = Path(sys.executable)

    def __init__(self, pipeline: Pipeline, module: str, *arguments: str) -> None:
        environment = {**pipeline.here.environ(), "PYTHONPATH": str(ROOT)}
        log = pipeline.here.folder / f"{'-'.join((module, *arguments)).replace(' ', '-')}.log"
        command = ["-m", f"tests.chain.{module}", *arguments]
        super().__init__(command, folder=pipeline.here.folder, environment=environment, log=log)
        pipeline.here.jobs.append(self)


class Doomed(Altered):
    """A command that is to be killed at a step of one generation."""

    def __init__(self, pipeline: Pipeline, step: str, generation: int, *command: str) -> None:
        super().__init__(pipeline, "doomed", step, str(generation), *command)

    def die(self) -> None:
        """Return when it has died at its step; what it started must end by itself."""
        code = self.wait(120)
        assert code == -signal.SIGKILL, f"it was never at its step, and ended with {code}: {self.output()}"


def numbers(pipeline: Pipeline, follower: str) -> list[int]:
    return [g["n"] for g in pipeline.follower(follower)["generations"]]


def newest(pipeline: Pipeline, follower: str) -> int:
    return max(numbers(pipeline, follower))


def change(pipeline: Pipeline) -> None:
    """Of every kind, while nobody follows."""
    pipeline.connection.execute("update items set stock = stock + 1 where id % 10 = 3")
    pipeline.connection.execute("delete from items where id = (select min(id) from items)")
    pipeline.connection.execute("insert into items select max(id) + 1, 'new', 0 from items")


@pytest.mark.parametrize("follower", ["item-search", "item-cache"])
@pytest.mark.parametrize("step", BUILDING)
def test_a_rebuild_that_is_killed(pipeline: Pipeline, step: str, follower: str) -> None:
    if (step, follower) == ("in the switch", "item-search"):
        pytest.skip("OpenSearch switches in one call")
    number = newest(pipeline, follower) + 1
    Doomed(pipeline, step, number, "rebuild", follower).die()
    assert not pipeline.differences([follower]), "readers see something else than before"

    change(pipeline)
    done = pipeline.here("rebuild", follower, "--json", seconds=240)
    assert done.code == 0, done.err
    # It goes on with the one that was begun, unless that one was finished.
    wanted = number + 1 if step == "when the switch is recorded" else number
    assert done.json() == {"follower": follower, "generation": wanted, "promoted": True}
    live = {g["n"]: g["live"] for g in pipeline.follower(follower)["generations"]}
    assert [n for n, seen in live.items() if seen] == [wanted]
    job = pipeline.run()
    pipeline.assert_in_step()
    assert job.stop() == 0


def test_both_generations_stay_fresh_in_a_long_switch(pipeline: Pipeline) -> None:
    """And every position that is claimed in it holds for the names of either."""
    job = Altered(pipeline, "slow_switch", "0.2", "run", "item-cache")
    assert pipeline.here("rebuild", "item-cache", "--no-promote", seconds=240).code == 0
    promotion = pipeline.here.start("promote", "item-cache", "--generation", str(newest(pipeline, "item-cache")))
    until("the switch", lambda: pipeline.follower("item-cache")["state"] == "promoting")
    for stock in range(100, 104):
        pipeline.connection.execute("update items set stock = %s", (stock,))
        pipeline.wait("item-cache", seconds=20)
        assert not pipeline.differences(["item-cache"])
    assert pipeline.follower("item-cache")["state"] == "promoting", "the switch was too short to see anything"
    assert promotion.wait(120) == 0
    pipeline.assert_in_step("item-cache")
    assert job.stop() == 0


@pytest.mark.parametrize("follower", ["item-search", "item-cache"])
@pytest.mark.parametrize("step", DROPPING)
def test_a_drop_that_is_killed(pipeline: Pipeline, step: str, follower: str) -> None:
    """Generations that are not kept any longer are dropped by whoever runs next."""
    old = newest(pipeline, follower)
    pipeline.sync["followers"][follower]["keep"] = "1d"
    pipeline.here.write()
    assert pipeline.here("rebuild", follower, seconds=240).code == 0
    pipeline.sync["followers"][follower]["keep"] = "1s"
    pipeline.here.write()
    Doomed(pipeline, step, old, "run", follower).die()
    assert not pipeline.differences([follower]), "readers see something else than before"
    change(pipeline)
    job = pipeline.run(follower)
    until("the old ones to be gone", lambda: numbers(pipeline, follower) == [old + 1])
    pipeline.assert_in_step(follower)
    assert job.stop() == 0
