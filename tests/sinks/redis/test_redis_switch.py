"""Generations in Redis: switches and drops that are killed anywhere, that meet, and that go on under writers."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from driftless.errors import SinkError, SinkMisconfigured, SinkUnavailable
from driftless.sink import Applied, Sink, SinkContext
from sinks import open_sink
from sinks.redis.wire import RedisServer
from tests.sinks.redis.redis_case import Killed, RedisCase, killed_at
from tests.sinks.store_case import Opener, Write, delete, upsert, writes
from tests.support.files import ROOT

pytestmark = pytest.mark.server

KEYS = {1: range(0, 600), 2: range(300, 900)}
"""What two generations have; together six pages and a bit of a switch."""

_KILLED = """
import os, signal, sys
from driftless.sink import SinkContext
from sinks import open_sink
url, name, what, generation, slices = sys.argv[1:]
sink = open_sink("redis", {"url": url, "key": name + ":{id}"}, SinkContext("suite", name, ("id",)))
seen = []
def progress(done):
    seen.append(done)
    if len(seen) == int(slices):
        os.kill(os.getpid(), signal.SIGKILL)
sink.promote(int(generation), progress)
"""


class TestRedisGenerations(RedisCase):
    @pytest.fixture
    def two(self, sink: Sink) -> Sink:
        """Two generations, the first under the readers' names, each with deleted keys too."""
        for n in (1, 2):
            sink.create(n)
            gone = [delete(f"gone {key}", 5) for key in KEYS[n]]
            sink.apply(n, writes(*(upsert(str(key), 5, {"of": n}) for key in KEYS[n]), *gone))
            sink.save(n, f"at {n}", expected=None)
        sink.promote(1)
        return sink

    def whole(self, sink: Sink, plain: Any, name: str, promoted: int, *others: int, newer: str = "") -> None:
        """Readers see all of one generation and nothing else, and every generation is as it was made; `newer` was
        written again since.
        """
        assert sink.promoted() == promoted
        names = plain.keys(f"{name}:*")
        assert sorted(names) == sorted(f"{name}:{key}" for key in KEYS[promoted])
        assert set(plain.mget(names)) == {f'{{"of": {promoted}}}'}
        for n in (promoted, *others):
            versions = {str(key): 5 for key in KEYS[n]} | ({newer: 6} if newer else {})
            assert self.scanned(sink, n) == self.kept(upsert(key, at, {"of": n}) for key, at in versions.items())
            assert sink.count(n) == 600
            assert sink.load(n) == f"at {n}"
            first = f"gone {KEYS[n][0]}"
            assert sink.apply(n, writes(upsert(first, 4, {}), upsert("450", 4, {}))) == Applied(stale=2)

    # -- killed in the middle -----------------------------------------------------------------------------------

    @pytest.mark.parametrize("back", [False, True])
    @pytest.mark.parametrize("crash_at", [1, 2, 3, 5, 7, 9, 11, 13])
    def test_a_switch_that_was_killed_is_finished_or_turned_back_by_the_next(
        self,
        opened: Opener,
        two: Sink,
        plain: Any,
        name: str,
        monkeypatch: pytest.MonkeyPatch,
        crash_at: int,
        back: bool,
    ) -> None:
        writer = opened()
        writer.apply(1, writes(upsert("0", 4, {})))
        with killed_at(crash_at, monkeypatch), pytest.raises(Killed):
            opened().promote(2)
        assert two.promoted() == 1
        for n in (1, 2):
            assert writer.apply(n, writes(upsert("450", 6, {"of": n}))) == Applied(written=1)
            assert opened().apply(n, writes(upsert("450", 5, {}))) == Applied(stale=1)
        assert plain.get(f"{name}:450") == '{"of": 2}'  # what is written is switched at once
        wanted = 1 if back else 2
        opened().promote(wanted)
        self.whole(two, plain, name, wanted, 3 - wanted, newer="450")

    @pytest.mark.parametrize("slices", [1, 4, 8])
    def test_a_process_that_was_killed_in_a_switch_leaves_it_to_the_next(
        self, two: Sink, plain: Any, store_url: str, name: str, slices: int
    ) -> None:
        ended = subprocess.run(
            [sys.executable, "-c", _KILLED, store_url, name, "promote", "2", str(slices)],
            timeout=60,
            check=False,
            cwd=ROOT,
        )
        assert ended.returncode == -signal.SIGKILL
        shown = {plain.get(f"{name}:{key}") for key in range(300, 600)}
        assert shown <= {'{"of": 1}', '{"of": 2}'}  # of one or the other, and none is missing
        assert two.promoted() == 1
        two.promote(2)
        self.whole(two, plain, name, 2, 1)

    def test_after_a_killed_switch_a_third_generation_can_be_promoted(
        self, opened: Opener, two: Sink, plain: Any, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        two.create(3)
        two.apply(3, writes(upsert("3", 5, '{"of": 3}'), upsert("450", 5, '{"of": 3}')))
        with killed_at(4, monkeypatch), pytest.raises(Killed):
            opened().promote(2)
        two.promote(3)
        assert two.promoted() == 3
        assert {key: plain.get(key) for key in plain.keys(f"{name}:*")} == {
            f"{name}:3": '{"of": 3}',
            f"{name}:450": '{"of": 3}',
        }
        two.promote(2)
        self.whole(two, plain, name, 2, 1)
        assert two.count(3) == 2
        two.drop(3)

    @pytest.mark.parametrize("promoted", [1, 2])
    @pytest.mark.parametrize("crash_at", [1, 2, 4, 6, 7])
    def test_a_drop_that_was_killed_is_finished_by_whatever_comes_next(
        self,
        opened: Opener,
        two: Sink,
        plain: Any,
        name: str,
        monkeypatch: pytest.MonkeyPatch,
        crash_at: int,
        promoted: int,
    ) -> None:
        two.promote(promoted)
        with killed_at(crash_at, monkeypatch) as ran:
            try:
                opened().drop(3 - promoted)
            except Killed:
                pass
            else:
                assert len(ran) == crash_at  # nothing was left to kill
        other = opened()
        other.create(3 - promoted)  # the place must be empty before it is taken again
        assert (other.count(3 - promoted), other.load(3 - promoted)) == (0, None)
        assert self.scanned(other, 3 - promoted) == []
        assert other.apply(3 - promoted, writes(upsert("450", 1, {}))) == Applied(written=1)
        self.whole(two, plain, name, promoted)

    def test_dropping_the_promoted_generation_leaves_the_other_to_be_promoted(
        self, opened: Opener, two: Sink, plain: Any, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with killed_at(3, monkeypatch), pytest.raises(Killed):
            two.drop(1, also_live=True)
        writer = opened()
        writer.create(2)  # as its runner does when it starts: what it has stays where it is
        assert writer.promoted() is None
        assert plain.keys(f"{name}:*") == []
        assert writer.apply(2, writes(upsert("450", 5, {}))) == Applied(stale=1)
        writer.promote(2)
        self.whole(two, plain, name, 2)

    @pytest.mark.parametrize("leaving", [1, 3])
    def test_what_a_switch_moves_to_or_from_is_not_dropped(
        self, opened: Opener, two: Sink, plain: Any, name: str, monkeypatch: pytest.MonkeyPatch, leaving: int
    ) -> None:
        """Whoever dropped what comes would first finish the switch, and then take away what readers see."""
        two.create(3)
        two.promote(leaving)
        with killed_at(4, monkeypatch), pytest.raises(Killed):
            opened().promote(2)
        state = plain.hgetall(f"driftless:suite:{name}")
        assert (state["live"], state["switching"]) == (str(leaving), "2")
        for number in (leaving, 2):
            with pytest.raises(SinkError, match=f"generation {number} of `{name}` is not dropped"):
                opened().drop(number)
        assert plain.hgetall(f"driftless:suite:{name}") == state, "asking must not even go on with the switch"
        opened().drop(4 - leaving)  # the third one is in nobody's way
        two.promote(2)
        assert two.promoted() == 2
        assert (two.count(2), len(plain.keys(f"{name}:*"))) == (600, 600)

    def test_a_switch_that_begins_as_one_is_dropped(
        self, opened: Opener, two: Sink, plain: Any, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the look and the drop itself: the script refuses."""
        run = RedisServer.run

        def overtaken(self: RedisServer, script: Any, keys: Any, args: Any) -> Any:
            if args[:1] == ["drop"]:
                monkeypatch.setattr(RedisServer, "run", run)
                opened().promote(2)
            return run(self, script, keys, args)

        monkeypatch.setattr(RedisServer, "run", overtaken)
        with pytest.raises(SinkError, match=f"generation 2 of `{name}` is not dropped"):
            opened().drop(2)
        self.whole(two, plain, name, 2, 1)

    # -- two at once --------------------------------------------------------------------------------------------

    def test_a_drop_that_was_overtaken_leaves_alone_what_was_made_anew(
        self, opened: Opener, two: Sink, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slow, run, state = opened(), RedisServer.run, {"calls": 0}

        def overtaken(self: RedisServer, *args: Any) -> Any:
            state["calls"] += 1
            if state["calls"] == 3:  # after its first page
                monkeypatch.setattr(RedisServer, "run", run)
                two.drop(2)
                two.create(2)
                two.apply(2, writes(*(upsert(str(key), 5, {"of": 2}) for key in KEYS[2])))
                two.save(2, "at 2", expected=None)
            return run(self, *args)

        monkeypatch.setattr(RedisServer, "run", overtaken)
        slow.drop(2)
        assert state["calls"] == 3
        assert self.scanned(two, 2) == self.kept(upsert(str(key), 5, {"of": 2}) for key in KEYS[2])
        assert (two.count(2), two.load(2)) == (600, "at 2")

    def test_promoting_the_same_generation_twice_at_once_is_promoting_it(
        self, opened: Opener, two: Sink, plain: Any, name: str
    ) -> None:
        for wanted in (2, 1, 2, 1, 2):
            start = threading.Barrier(3)

            def promote(sink: Sink, wanted: int = wanted, start: threading.Barrier = start) -> None:
                start.wait(30)
                sink.promote(wanted)

            with ThreadPoolExecutor(3) as pool:
                list(pool.map(promote, [opened() for _ in range(3)]))
            assert two.promoted() == wanted
        self.whole(two, plain, name, 2, 1)

    def test_promoting_different_generations_at_once_ends_with_one_of_them_whole(
        self, opened: Opener, two: Sink, plain: Any, name: str
    ) -> None:
        start = threading.Barrier(2)

        def promote(sink: Sink, wanted: int) -> bool:
            start.wait(30)
            try:
                sink.promote(wanted)
            except SinkUnavailable:  # the other one was faster
                return False
            return True

        for _ in range(4):
            with ThreadPoolExecutor(2) as pool:
                assert any(pool.map(promote, [opened(), opened()], (1, 2)))
        promoted = two.promoted()
        assert promoted in (1, 2)
        self.whole(two, plain, name, promoted, 3 - promoted)

    @pytest.mark.parametrize("what", ["begin", "drop"])
    def test_a_switch_that_another_began_meanwhile_is_finished_first(
        self, opened: Opener, two: Sink, plain: Any, name: str, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        two.create(3)
        run, begun = RedisServer.run, list[str]()

        def overtaken(self: RedisServer, script: Any, keys: Any, args: Any) -> Any:
            if args[:1] == [what] and not begun:  # it has looked and found nothing to finish
                begun.append(what)
                with killed_at(3, monkeypatch), pytest.raises(Killed):
                    opened().promote(2)
            return run(self, script, keys, args)

        monkeypatch.setattr(RedisServer, "run", overtaken)
        sink = opened()
        if what == "begin":
            sink.promote(3)
            assert (sink.promoted(), plain.keys(f"{name}:*")) == (3, [])
        sink.drop(3, also_live=what == "begin")
        assert begun == [what]
        two.promote(2)
        self.whole(two, plain, name, 2, 1)

    def test_writers_go_on_while_the_names_are_switched_to_and_fro(
        self, opened: Opener, two: Sink, plain: Any, name: str
    ) -> None:
        version, stop = {1: 5, 2: 5}, threading.Event()

        def write(n: int) -> None:
            """Newer and newer documents, deletes, and old ones again, as after a replay."""
            sink = opened()
            while not stop.is_set() or version[n] % 2:  # ends with all keys present
                version[n] += 1
                at, there = version[n], version[n] % 2 == 0
                batch: list[Write] = [upsert(str(key), at, {"of": n, "at": at}) for key in KEYS[n]]
                batch[:50] = [item if there else delete(item[0], at) for item in batch[:50]]
                assert sink.apply(n, writes(*batch)).written == len(batch)
                assert sink.apply(n, writes(*(upsert(str(key), at - 1, {}) for key in KEYS[n]))) == Applied(stale=600)

        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(write, n) for n in (1, 2)]
            try:
                for wanted in (2, 1) * 5:
                    before = dict(version)
                    two.promote(wanted)
                    _until(lambda: all(version[n] > before[n] or running[n - 1].done() for n in (1, 2)))  # noqa: B023
            finally:
                stop.set()
            for done in running:
                done.result(60)
        assert two.promoted() == 1
        assert version[1] > 15
        names = plain.keys(f"{name}:*")
        assert sorted(names) == sorted(f"{name}:{key}" for key in KEYS[1])
        assert set(plain.mget(names)) == {f'{{"of": 1, "at": {version[1]}}}'}
        for n in (1, 2):
            at = version[n]
            assert self.scanned(two, n) == self.kept(upsert(str(key), at, {"of": n, "at": at}) for key in KEYS[n])
            assert two.count(n) == 600

    def test_a_scan_that_a_switch_overtook_says_so(self, opened: Opener, two: Sink) -> None:
        two.apply(1, writes(*(upsert(f"more {n}", 5, {}) for n in range(2000))))  # more than one page
        scan = two.scan(1)
        next(scan)
        opened().promote(2)
        with pytest.raises(SinkUnavailable, match="was switched while it was scanned"):
            list(scan)

    # -- what else a switch does --------------------------------------------------------------------------------

    def test_progress_counts_the_names_that_changed_hands(self, two: Sink) -> None:
        seen: list[int] = []
        two.promote(2, seen.append)
        assert seen == sorted(seen)
        # 600 come, 300 of which take the place of old ones, and as many only go; the same of the deleted ones.
        assert seen[-1] == 1800
        assert len(seen) > 8

    def test_what_the_promoted_generation_deleted_is_gone_whoever_put_it_there(
        self, sink: Sink, generation: int, store_url: str, name: str, plain: Any
    ) -> None:
        sink.promote(generation)
        sink.create(2)
        sink.apply(2, writes(delete("1", 5)))
        plain.set(f"{name}:1", '{"not":"ours"}')
        sink.promote(2)
        assert self.as_reader(store_url, name, "1") is None

    def test_a_followers_names_are_given_back_with_its_last_generation(
        self, sink: Sink, store_url: str, name: str
    ) -> None:
        config = {"url": store_url, "key": f"{name}:{{id}}"}
        other = open_sink("redis", config, SinkContext("suite", f"other-{name}", ("id",)))
        sink.create(1)
        sink.create(2)
        for n in (1, 2):
            with pytest.raises(SinkMisconfigured, match="those of another follower"):
                other.create(1)
            sink.drop(n, also_live=True)
        other.create(1)
        other.drop(1, also_live=True)
        other.close()

    # -- memory -------------------------------------------------------------------------------------------------

    def test_on_a_full_server_generations_are_promoted_and_dropped_all_the_same(
        self, opened: Opener, two: Sink, plain: Any, name: str
    ) -> None:
        plain.config_set("maxmemory", 1)
        try:
            opened(retry_seconds=0).promote(2)
            with pytest.raises(SinkUnavailable, match="full"):
                opened(retry_seconds=0).apply(2, writes(upsert("new", 5, {})))
            opened(retry_seconds=0).drop(1)
        finally:
            plain.config_set("maxmemory", 0)
        self.whole(two, plain, name, 2)
        assert [key for key in plain.keys(f"driftless:suite:{name}:1*") if not key.endswith(":dropped")] == []


def _until(happened: Any) -> None:
    deadline = threading.Event()
    for _ in range(600):
        if happened():
            return
        deadline.wait(0.05)
    pytest.fail("the writers did not go on within 30 s")
