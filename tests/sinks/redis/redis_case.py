"""How the tests reach Redis, and what a reader there sees."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import redis

import sinks._retry
from driftless.errors import SinkUnavailable
from driftless.sink import Applied, Sink
from sinks.redis.wire import RedisServer
from tests.sinks.store_case import Opener, StoreCase, delete, stored, upsert, writes

DATABASE = 9
"""One of our own, so that it can be flushed."""


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


@contextmanager
def killed_at(call: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The process ends just before its `call`-th script, counted from 0. Gives the scripts that were run."""
    run, ran = RedisServer.run, list[str]()

    def crash(self: RedisServer, script: Any, *args: Any) -> Any:
        if len(ran) == call:
            raise Killed
        ran.append(script.sha)
        return run(self, script, *args)

    with monkeypatch.context() as patch:
        patch.setattr(RedisServer, "run", crash)
        yield ran


class RedisCase(StoreCase):
    kind = "redis"
    apply_mark = save_mark = create_mark = promote_mark = drop_mark = b"EVALSHA"
    refusal = "WRONGTYPE: the name is held by something that is not a document"

    @pytest.fixture
    def store_url(self, redis_url: str) -> str:
        return f"{redis_url.rstrip('/').removesuffix('/0')}/{DATABASE}"

    @pytest.fixture
    def plain(self, store_url: str) -> Any:
        return redis.Redis.from_url(store_url, decode_responses=True)

    def config(self, url: str, name: str) -> dict[str, Any]:
        return {"url": url, "key": f"{name}:{{id}}"}

    def composite(self, name: str) -> dict[str, Any]:
        return {"key": f"{name}:{{a}}-{{b}}"}

    def as_reader(self, url: str, name: str, key: str) -> str | None:
        found: Any = redis.Redis.from_url(url).get(f"{name}:{key}")
        return None if found is None else found.decode()

    def refusable(self, url: str, name: str, key: str) -> str:
        redis.Redis.from_url(url).lpush(f"{name}:{key}", "somebody's list")
        return '{"n":"SECRET"}'


class RedisFull(RedisCase):
    """A server that is full holds every form of follower back."""

    def test_a_full_server_holds_the_writer_back(self, opened: Opener, sink: Sink, generation: int, plain: Any) -> None:
        sink.apply(generation, writes(upsert("1", 1, {})))
        plain.config_set("maxmemory", 1)
        try:
            hasty = opened(retry_seconds=0.3)
            with pytest.raises(SinkUnavailable, match=r"Redis is full \(maxmemory\); tried for 0.3 s"):
                hasty.apply(generation, writes(upsert("1", 2, {}), upsert("2", 2, {})))
            assert stored(sink, generation, "1", "2") == {"1": (1, {})}
            assert hasty.apply(generation, writes(delete("1", 3))) == Applied(written=1)
        finally:
            plain.config_set("maxmemory", 0)
        assert sink.apply(generation, writes(upsert("1", 2, {}), upsert("2", 2, {}))) == Applied(1, 1)
        assert sink.count(generation) == 1

    def test_deletes_do_not_open_the_door_of_a_full_server(
        self, opened: Opener, sink: Sink, generation: int, plain: Any
    ) -> None:
        old = [upsert(str(n), 1, {"n": n}) for n in range(100)]
        sink.apply(generation, writes(*old))
        plain.config_set("maxmemory", 1)
        try:
            hasty = opened(retry_seconds=0)
            batch = writes(delete("0", 2), *(upsert(str(n), 2, {"n": "x" * 9000}) for n in range(1, 100)))
            with pytest.raises(SinkUnavailable, match="full"):
                hasty.apply(generation, batch)
            assert self.scanned(sink, generation) == self.kept(old)
        finally:
            plain.config_set("maxmemory", 0)
        assert sink.apply(generation, batch) == Applied(written=100)

    def test_a_writer_goes_on_by_itself_when_there_is_memory_again(
        self, opened: Opener, sink: Sink, generation: int, plain: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failed_twice, real = threading.Event(), sinks._retry.pause

        def pause(tries: int) -> float:
            if tries:
                failed_twice.set()
            return real(tries)

        monkeypatch.setattr(sinks._retry, "pause", pause)
        items = [upsert(str(n), 1, {"text": "x" * 2000}) for n in range(4000)]
        plain.config_set("maxmemory", plain.info("memory")["used_memory"] + 3_000_000)
        try:
            with ThreadPoolExecutor(1) as background:
                applied = background.submit(opened().apply, generation, writes(*items))
                assert failed_twice.wait(30), "the write was not tried again within 30 s"
                assert not applied.done()
                assert 0 < sink.count(generation) < 4000
                plain.config_set("maxmemory", 0)
                assert applied.result(60) == Applied(written=4000)
        finally:
            plain.config_set("maxmemory", 0)
        assert self.scanned(sink, generation) == self.kept(items)
        assert sink.count(generation) == 4000
