"""What others put into the same Redis: under readers' names, and under ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from driftless.errors import SinkMisconfigured
from driftless.sink import Applied, Sink
from tests.sinks.redis.redis_case import RedisCase
from tests.sinks.store_case import Opener, delete, stored, upsert, writes

pytestmark = pytest.mark.server


class TestStrangersInRedis(RedisCase):
    @pytest.fixture
    def raw(self, store_url: str) -> Any:
        """Names and values as bytes."""
        return redis.Redis.from_url(store_url)

    def numbers(self, sink: Sink, generation: int) -> set[int]:
        """What the 300 documents of a generation hold."""
        found = self.scanned(sink, generation)
        assert len(found) == 300
        return {json.loads(text or "")["n"] for _, _, text in found}

    @pytest.mark.parametrize("form", ["json", "hash"])
    def test_names_that_are_no_text_and_things_that_are_no_documents_are_left_alone(
        self, opened: Opener, raw: Any, name: str, form: str
    ) -> None:
        """Through scan, count, promote and drop: they are somebody else's, and stay."""
        sink = opened(format=form)
        ours = f"driftless:suite:{name}"
        theirs = {
            f"{name}:".encode() + b"\xff": "x",
            f"{name}:".encode() + b"\xc3(:1": "x",
            f"{ours}:v:{{{name}:".encode() + b"\xff}": "x",
            f"{ours}:v:{{session:1}}".encode(): "x",
            f"{ours}:v:{{session:2".encode(): "x",
            f"{ours}:1:v:{{session:3}}".encode(): "x",
            f"{ours}:2:d:{{{name}:".encode() + b"\xfe}": "x",
            b"session:1": "theirs",
            b"session:": "theirs",
            b"session:3": "theirs",
        }
        for key, value in theirs.items():
            raw.set(key, value)
        kinds = {f"{name}:list": "list", f"{name}:stream": "stream", f"{name}:set": "set"}
        raw.lpush(f"{name}:list", "job")
        raw.xadd(f"{name}:stream", {"a": "b"})
        raw.sadd(f"{name}:set", "a")
        try:
            for number in (1, 2):
                sink.create(number)
                sink.apply(number, writes(*(upsert(str(n), 1, {"n": number}) for n in range(300))))
            assert self.numbers(sink, 1) == {1}
            assert (sink.count(1), sink.count(2)) == (300, 300)
            sink.promote(1)
            sink.promote(2)
            assert (self.numbers(sink, 1), self.numbers(sink, 2)) == ({1}, {2})
            sink.drop(1)
            assert self.numbers(sink, 2) == {2}
            sink.drop(2, also_live=True)
            left = {key: raw.get(key) for key in theirs}
            assert left == {key: value.encode() for key, value in theirs.items()}
            assert {key: raw.type(key).decode() for key in kinds} == kinds
        finally:
            raw.delete(*theirs, *kinds)

    @pytest.mark.parametrize(
        "nonsense",
        [b"", b"abc", b"\xff\xfe", b"9" * 30, b"0000000000000000001", b"0000000000000000001+1 {", b"+" * 20 + b"1 ["],
    )
    def test_a_version_that_somebody_wrote_over_is_written_again(
        self, opened: Opener, raw: Any, name: str, nonsense: bytes
    ) -> None:
        """It says nothing of ours: reading does not end at it, and the next write to the key replaces it."""
        for form in ("json", "hash"):
            sink = opened(format=form)
            sink.create(1)
            sink.apply(1, writes(upsert("1", 5, {"a": 1}), upsert("2", 5, {"a": 2})))
            raw.set(f"driftless:suite:{name}:v:{{{name}:1}}", nonsense)
            assert {key for key, _, _ in self.scanned(sink, 1)} == {"1", "2"}
            assert set(stored(sink, 1, "1", "2")) == {"1", "2"}
            if not nonsense[18:19].isdigit():
                assert sink.apply(1, writes(upsert("1", 6, {"a": 3}))) == Applied(written=1)
                assert stored(sink, 1, "1") == {"1": (6, {"a": 3})}
            sink.drop(1, also_live=True)

    def test_a_version_of_another_type_is_written_again(self, sink: Sink, generation: int, raw: Any, name: str) -> None:
        sink.apply(generation, writes(upsert("1", 5, {"a": 1}), upsert("2", 5, {})))
        version = f"driftless:suite:{name}:v:{{{name}:1}}"
        raw.delete(version)
        raw.lpush(version, "job")
        assert [(key, text) for key, _, text in self.scanned(sink, generation)] == [("1", '{"a": 1}'), ("2", "{}")]
        sink.create(2)
        sink.apply(2, writes(upsert("1", 7, {"a": 7}), upsert("2", 7, {})))
        sink.promote(2)
        assert stored(sink, 2, "1", "2") == {"1": (7, {"a": 7}), "2": (7, {})}
        raw.delete(version)
        raw.lpush(version, "job")
        assert sink.apply(2, writes(delete("1", 9))) == Applied(written=1)
        assert stored(sink, 2, "1", "2") == {"2": (7, {})}

    @pytest.mark.parametrize("field", ["live", "switching", "promoted"])
    def test_a_followers_own_record_that_somebody_wrote_over_stops_it_with_what_to_do(
        self, opened: Opener, raw: Any, name: str, field: str
    ) -> None:
        sink = opened()
        sink.create(1)
        before = raw.hget(f"driftless:suite:{name}", field)
        raw.hset(f"driftless:suite:{name}", field, "nonsense")
        try:
            with pytest.raises(SinkMisconfigured, match="is not as it was left: somebody else has") as exc:
                sink.promoted() if field == "promoted" else sink.read(1, ["1"])
            assert f"driftless rebuild {name}" in exc.value.hint
        finally:
            raw.hdel(f"driftless:suite:{name}", field)
            if before is not None:
                raw.hset(f"driftless:suite:{name}", field, before)

    def test_a_checkpoint_that_is_no_text_is_none_of_ours(
        self, sink: Sink, generation: int, raw: Any, name: str
    ) -> None:
        raw.hset(f"driftless:suite:{name}:1", "checkpoint", b"\xff")
        assert sink.load(generation) == "\ufffd"
