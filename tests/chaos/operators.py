"""Two operators who know nothing of each other, and kills: whatever they ask for at once, readers lose nothing.

Each has a list of commands that the seed gives. Meanwhile rows come and go, the run is killed, and somebody reads all
the time those rows that never change. Every command must end with an answer, and at the end all equals the source.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import errors

from tests.chain.support.told import latest, standings
from tests.chain.support.witness import Witness
from tests.support.compare import View
from tests.support.machine import Job, Machine, until
from tests.support.pipeline import Pipeline

STABLE = 300
"""Rows that never change: a TRUNCATE puts them back in its own transaction."""
FOLLOWERS = ("item-search", "item-cache")
VERBS = {
    "rebuild": 4,
    "rebuild and leave": 2,
    "promote": 4,
    "replay": 2,
    "pause and resume": 2,
    "remove and apply": 1,
    "change the mapping": 2,
    "truncate": 2,
    "retry": 1,
}
"""What an operator does, and how often in proportion."""
ANSWERED_SECONDS = 240.0
Command = tuple[float, str, str, int]
"""After so many seconds; what; of which follower; a number to choose by."""
_FILL = f"insert into items select i, i::text from generate_series(1, {STABLE}) i"


@dataclass(frozen=True)
class Plan:
    """`operators`: what each does; `kills`: after how many seconds the run is killed again."""

    operators: tuple[list[Command], ...]
    kills: list[float]


def plan(seed: int, count: int, kills: int) -> Plan:
    """The same for the same seed."""
    rng = random.Random(seed)
    verbs, weights = list(VERBS), list(VERBS.values())

    def commands() -> list[Command]:
        chosen = rng.choices(verbs, weights, k=count)
        return [(round(rng.uniform(0, 2), 1), verb, rng.choice(FOLLOWERS), rng.randrange(100)) for verb in chosen]

    return Plan((commands(), commands()), [round(rng.uniform(5, 25), 1) for _ in range(kills)])


def prepare(make_pipeline: Any, source: psycopg.Connection) -> Pipeline:
    source.execute("create table items (id int primary key, size text)")
    source.execute(_FILL.encode())
    pipeline: Pipeline = make_pipeline(View("item", "public.items"), index={"mapping": {"dynamic": False}})
    for follower in pipeline.sync["followers"].values():
        follower["keep"] = "5s"
    pipeline.apply()
    return pipeline


@dataclass
class Fight:
    """The pipeline, its run, and what went wrong."""

    pipeline: Pipeline
    wrong: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ended = threading.Event()
        self.guard = threading.Lock()
        self.begun = time.monotonic()
        self.job: Job = self.pipeline.run()
        self.machines = (self.pipeline.here, self.pipeline.machine("other"))

    def say(self, what: str) -> None:
        self.said.append(f"{time.monotonic() - self.begun:6.1f} s  {what}")

    # -- an operator --------------------------------------------------------------------------------------------

    def operate(self, number: int, commands: Sequence[Command]) -> None:
        machine = self.machines[number]
        try:
            for pause, verb, follower, choice in commands:
                self.ended.wait(pause)
                for arguments in self._commands(verb, follower, choice):
                    if self.ended.is_set():
                        return  # the fight was given up: the pipeline may be gone
                    self._give(number, machine, arguments)
        except Exception as exc:  # noqa: BLE001 - it is the thread's end, and the test's
            self.wrong.append(f"operator {number}: {type(exc).__name__}: {exc}")

    def _commands(self, verb: str, follower: str, choice: int) -> list[tuple[str, ...]]:
        if verb == "rebuild":
            return [("rebuild", follower)]
        if verb == "rebuild and leave":
            return [("rebuild", follower, "--no-promote")]
        if verb == "promote":
            known = sorted(map(str, standings(self.pipeline, follower))) or ["1"]
            return [("promote", follower, "--generation", known[choice % len(known)])]
        if verb == "replay":
            return [("replay", follower, "--from", ("start", str(choice))[choice % 2])]
        if verb == "pause and resume":
            return [("pause", follower), ("status",), ("resume", follower)]
        if verb == "remove and apply":
            return [("remove", follower), ("apply",), ("restart",)]
        if verb == "change the mapping":
            return [("mapping", str(choice)), ("apply",)]
        if verb == "truncate":
            return [("truncate",)]
        return [("quarantine", "retry", follower)]

    def _give(self, number: int, machine: Machine, arguments: tuple[str, ...]) -> None:
        what = f"operator {number}: {' '.join(arguments)}"
        self.say(what)
        if arguments[0] == "mapping":
            return self._change_mapping(int(arguments[1]))
        if arguments[0] == "truncate":
            return self._truncate()
        if arguments[0] == "restart":
            with self.guard:
                self.job.stop(60)
            return None
        job = machine.start(*arguments)
        try:
            code = job.wait(ANSWERED_SECONDS)
        except AssertionError:
            self.wrong.append(f"{what}: no answer in {ANSWERED_SECONDS:g} s\n{job.output()[-800:]}")
            job.destroy()
            return None
        said = job.output()
        self.say(f"{what} -> {code}: {said.strip().splitlines()[-1] if said.strip() else ''}")
        if code not in (0, 1, 2) or "Traceback" in said or "defect" in said:
            self.wrong.append(f"{what} ended with {code}:\n{said[-1500:]}")
        return None

    def _change_mapping(self, choice: int) -> None:
        mapping = {"dynamic": False, "properties": {"size": {"type": ("keyword", "text")[choice % 2]}}}
        self.pipeline.sync["followers"]["item-search"]["opensearch"]["mapping"] = mapping
        for machine in self.machines:  # whole or not at all, for whoever reads it just now
            new = machine.folder / f"{choice}.new"
            new.write_text(json.dumps(self.pipeline.sync))
            new.replace(machine.folder / "sync.yaml")

    def _truncate(self) -> None:
        with psycopg.connect(self.pipeline.dsn) as connection:
            connection.execute("truncate items")
            connection.execute(_FILL.encode())

    # -- beside them --------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Rows that come, change and go, all of them beyond the stable ones."""
        n = 0
        with psycopg.connect(self.pipeline.dsn, autocommit=True) as connection:
            while not self.ended.wait(0.05):
                n += 1
                for statement in (
                    f"insert into items values ({10_000 + n}, 'new') on conflict do nothing",
                    f"update items set size = size || '.' where id = {10_000 + n // 2}",
                    f"delete from items where id = {10_000 + n - 50}",
                ):
                    try:
                        connection.execute(statement.encode())
                    except errors.Error as exc:
                        self.wrong.append(f"a writer: {exc}")

    def keep_running(self) -> None:
        """Start the run again whenever it has ended, whatever ended it."""
        while not self.ended.wait(0.5):
            with self.guard:
                if not self.job.running:
                    said = self.job.output()
                    self.say(f"the run has ended with {self.job.process.returncode}")
                    if "Traceback" in said or "defect" in said:
                        self.wrong.append(f"the run ended with\n{said[-2000:]}")
                    self.job.destroy()
                    self.job = self.pipeline.run()

    def kill(self, after: Sequence[float]) -> None:
        for seconds in after:
            if self.ended.wait(seconds):
                return
            with self.guard:
                if self.job.running:
                    self.say("the run is killed")
                    self.job.kill()

    # -- the end ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """All goes on, nothing waits, and every document is right."""
        pipeline = self.pipeline
        for follower in FOLLOWERS:
            pipeline.here("resume", follower)
        done = pipeline.here("apply", seconds=180)
        assert done.code == 0, done.err
        self.job.destroy()
        for job in pipeline.jobs():
            job.told = True
        self.job = pipeline.run()
        pipeline.assert_in_step()
        waiting = {key for key in latest(pipeline) if key.startswith(b"request/")}
        assert not waiting, f"never answered: {waiting}"
        until("readers of both to see a generation", lambda: all(map(self._live, FOLLOWERS)), 120)

    def _live(self, follower: str) -> bool:
        return any(fact["live"] for fact in standings(self.pipeline, follower).values())


def fight(pipeline: Pipeline, seed: int, planned: Plan) -> None:
    commands = sum(map(len, planned.operators))
    print(f"seed {seed}: two operators with {commands} commands, {len(planned.kills)} kills", flush=True)
    battle = Fight(pipeline)
    pipeline.assert_in_step()
    witness = Witness(pipeline.stores, {(i,): {"id": i, "size": str(i)} for i in range(1, STABLE + 1)})
    works = [threading.Thread(target=battle.write), threading.Thread(target=battle.keep_running)]
    works.append(threading.Thread(target=battle.kill, args=(planned.kills,)))
    operators = [threading.Thread(target=battle.operate, args=each) for each in enumerate(planned.operators)]
    try:
        for thread in (*works, *operators):
            thread.start()
        for thread in operators:
            thread.join()
        battle.ended.set()
        for thread in works:
            thread.join(60)
        battle.settle()
        witness.end()
        assert not battle.wrong, "\n".join(battle.wrong)
    except BaseException:
        print(f"seed {seed} failed; DRIFTLESS_TEST_SEED={seed} does the same again", flush=True)
        print("\n".join([*battle.said, *battle.wrong, *witness.wrong]), flush=True)
        raise
    finally:
        battle.ended.set()
