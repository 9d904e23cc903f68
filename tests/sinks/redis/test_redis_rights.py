"""A follower whose Redis user lacks a right reports it, and no document is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from driftless.errors import SinkError, SinkMisconfigured
from driftless.sink import Sink
from stack.servers.redis import COMMANDS
from tests.sinks.redis.redis_case import RedisCase
from tests.sinks.store_case import Opener, delete, stored, upsert, writes

pytestmark = pytest.mark.server

USER, PASSWORD = "suite-rights", "right"
DATA = tuple(c for c in COMMANDS if c not in ("ping", "info", "select", "eval", "evalsha", "script|load", "scan"))
"""Those that scripts give: a script that is refused one of them has begun."""
FORMATS = ("json", "hash")


@contextmanager
def rights(plain: Any, name: str, *commands: str) -> Iterator[None]:
    """With the keys of the follower of this name alone."""
    keys = [f"~{name}:*", "~driftless:suite:*", "~driftless:names"]
    given = [f"+{command}" for command in commands]
    plain.execute_command("ACL", "SETUSER", USER, "reset", "on", f">{PASSWORD}", *keys, "-@all", *given)
    try:
        yield
    finally:
        plain.execute_command("ACL", "DELUSER", USER)


def life(sink: Sink) -> Iterator[Callable[[], object]]:
    """What a follower does with its store, step by step."""
    yield lambda: sink.create(1)
    yield lambda: sink.apply(1, writes(upsert("1", 3, {"n": "stale"}), upsert("2", 1, {"n": "2"}), delete("3", 2)))
    yield lambda: sink.read(1, ["1", "2"])
    yield lambda: list(sink.scan(1))
    yield lambda: sink.save(1, "a checkpoint", expected=None)
    yield lambda: sink.load(1)
    yield lambda: sink.create(2)
    yield lambda: sink.apply(2, writes(upsert("1", 5, {"n": "5"}), upsert("4", 1, {"n": "4"})))
    yield lambda: sink.promote(2)
    yield lambda: sink.count(2)
    yield lambda: sink.drop(1)


class TestRedisRights(RedisCase):
    def at(self, store_url: str) -> str:
        return store_url.replace("redis://", f"redis://{USER}:{PASSWORD}@")

    @pytest.mark.parametrize("format_", FORMATS)
    def test_the_rights_that_are_listed_suffice(
        self, opened: Opener, store_url: str, plain: Any, name: str, format_: str
    ) -> None:
        with rights(plain, name, *COMMANDS):
            sink = opened(self.at(store_url), format=format_)
            sink.check()
            sink.rehearse()
            for step in life(sink):
                step()
            assert stored(sink, 2, "1", "4") == {"1": (5, {"n": "5"}), "4": (1, {"n": "4"})}

    @pytest.mark.parametrize("format_", FORMATS)
    @pytest.mark.parametrize("missing", DATA)
    def test_a_right_that_is_missing_is_told_and_costs_nothing(
        self, opened: Opener, store_url: str, plain: Any, name: str, missing: str, format_: str
    ) -> None:
        """A script that took the refusal for somebody else's value would write an older version, or delete."""
        whole = opened(format=format_)
        whole.create(1)
        whole.apply(1, writes(upsert("1", 5, {"n": "5"}), upsert("3", 1, {"n": "3"})))
        told: SinkError | None = None
        with rights(plain, name, *(command for command in COMMANDS if command != missing)):
            try:
                for step in life(opened(self.at(store_url), format=format_)):
                    step()
            except SinkError as exc:
                told = exc
        assert told is None or (isinstance(told, SinkMisconfigured) and "denies access" in str(told)), told
        assert self.shown(plain, f"{name}:1", format_) == "5"
        for step in life(opened(format=format_)):
            step()
        assert stored(whole, 2, "1", "4") == {"1": (5, {"n": "5"}), "4": (1, {"n": "4"})}

    def shown(self, plain: Any, key: str, format_: str) -> str:
        """`n` of a document, as a reader gets it."""
        return str(plain.hget(key, "n") if format_ == "hash" else json.loads(plain.get(key))["n"])

    @pytest.mark.parametrize("missing", DATA)
    def test_check_finds_the_right_that_is_missing(
        self, opened: Opener, store_url: str, plain: Any, name: str, missing: str
    ) -> None:
        with rights(plain, name, *(command for command in COMMANDS if command != missing)):
            sink = opened(self.at(store_url))
            with pytest.raises(SinkMisconfigured, match=rf"may not give {missing.replace('|', ' ')}$"):
                sink.rehearse()
