"""Redis with `format: hash` and with `ttl`, against the same suite, and what is their own."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from driftless.sink import Applied, Rejected, Sink
from sinks import HORIZON_SECONDS, config_model
from sinks.redis.format import put_together, take_apart
from tests.sinks.redis.redis_case import RedisFull
from tests.sinks.sink_suite import SinkSuite, quick
from tests.sinks.store_case import Opener, delete, rows, stored, upsert, writes


class Number(str):
    """The digits of a number, which are not the text of the same digits."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Number({super().__repr__()})"


def tokens(document: str) -> str:
    """All that a JSON text says: digits and the order of members too, but not spaces and escapes."""
    return repr(json.loads(document, parse_int=Number, parse_float=Number, object_pairs_hook=tuple))


@pytest.mark.server
class TestRedisHashes(RedisFull, SinkSuite):
    def config(self, url: str, name: str) -> dict[str, Any]:
        return super().config(url, name) | {"format": "hash"}

    def canonical(self, document: str) -> str:
        return tokens(document)

    def as_reader(self, url: str, name: str, key: str) -> str | None:
        found: Any = redis.Redis.from_url(url, decode_responses=True).hgetall(f"{name}:{key}")
        return tokens("{" + ",".join(f'"{field}":{value}' for field, value in found.items()) + "}") if found else None

    def test_a_field_for_each_column_is_what_users_of_hashes_expect(
        self, sink: Sink, generation: int, plain: Any, name: str
    ) -> None:
        document = (
            '{"id": 7, "title": "Socks, \\"warm\\"\\n\\u00e9", "price": 12.50, "huge": 12345678901234567890.10, '
            '"live": true, "note": null, "empty": "", "tags": ["a", 1.0], "more": {"b": null}, "digits": "42", '
            '"word": "null"}'
        )
        assert sink.apply(generation, writes(upsert("7", 1, document))) == Applied(written=1)
        assert plain.hgetall(f"{name}:7") == {
            "id": "7",
            "title": 'Socks, "warm"\né',
            "price": "12.50",
            "huge": "12345678901234567890.10",
            "live": "true",
            "empty": "",
            "tags": '["a", 1.0]',
            "more": '{"b": null}',
            "digits": "42",
            "word": "null",
        }
        ((key, version, text),) = rows(sink.read(generation, ["7"]))
        assert (key, version, tokens(text or "")) == ("7", 1, tokens(document))
        assert self.scanned(sink, generation) == self.kept([("7", 1, document)])

    def test_a_column_that_became_null_or_left_has_no_field_any_more(
        self, sink: Sink, generation: int, plain: Any, name: str
    ) -> None:
        sink.apply(generation, writes(upsert("1", 1, '{"a":1,"b":"x","c":2}')))
        sink.apply(generation, writes(upsert("1", 2, '{"a":1,"b":null}')))
        assert plain.hgetall(f"{name}:1") == {"a": "1"}
        assert self.scanned(sink, generation) == self.kept([("1", 2, '{"a":1,"b":null}')])

    def test_a_document_of_nothing_but_nulls_is_there(self, sink: Sink, generation: int, plain: Any, name: str) -> None:
        items = [upsert("1", 1, '{"a":null,"b":null}'), upsert("2", 1, "{}")]
        sink.apply(generation, writes(*items))
        assert plain.hgetall(f"{name}:1") == plain.hgetall(f"{name}:2") == {"": ""}
        assert self.scanned(sink, generation) == self.kept(items)
        assert sink.count(generation) == 2

    def test_what_somebody_else_changed_shows(self, sink: Sink, generation: int, plain: Any, name: str) -> None:
        sink.apply(generation, writes(*(upsert(key, 1, '{"a":1,"b":"x","n":null}') for key in "123456")))
        plain.hset(f"{name}:1", "a", "not json")
        plain.hdel(f"{name}:2", "b")
        plain.hset(f"{name}:3", "more", "7")
        plain.hset(f"{name}:4", "n", "null")
        plain.delete(f"{name}:5")
        plain.delete(f"{name}:6")
        plain.set(f"{name}:6", '{"a":1,"b":"x","n":null}')
        plain.hset(f"{name}:7", mapping={"a": "1"})
        assert self.scanned(sink, generation) == self.kept(
            [
                ("1", 1, '{"a":"not json","b":"x","n":null}'),
                ("2", 1, '{"a":1,"n":null}'),
                ("3", 1, '{"a":1,"b":"x","n":null,"more":"7"}'),
                ("4", 1, '{"a":1,"b":"x","n":"null"}'),
                ("7", 0, '{"a":"1"}'),
            ]
        )
        repaired = writes(*(upsert(key, 2, '{"a":1}') for key in "1234567"))
        assert sink.apply(generation, repaired) == Applied(written=7)
        assert self.scanned(sink, generation) == self.kept([(key, 2, '{"a":1}') for key in "1234567"])

    @pytest.mark.parametrize(
        ("document", "why"),
        [
            ("[1]", "the document is not a JSON object, so it cannot be a hash"),
            ('{"a":1', "the document is not a JSON object, so it cannot be a hash"),
            ('{"a":NaN}', "the document is not a JSON object, so it cannot be a hash"),
            ("", "the document is not a JSON object, so it cannot be a hash"),
            ('{"a":1,"a":2}', "a field stands twice in the document, so it cannot be a hash"),
        ],
    )
    def test_a_document_that_cannot_be_a_hash_is_rejected_alone(
        self, sink: Sink, generation: int, document: str, why: str
    ) -> None:
        applied = sink.apply(generation, writes(upsert("1", 1, {}), upsert("2", 3, document), delete("3", 1)))
        assert applied == Applied(written=2, rejected=(Rejected("2", 3, why),))

    def test_a_document_of_thousands_of_columns_fits(self, sink: Sink, generation: int) -> None:
        document = json.dumps({f"column {n}": n for n in range(9000)})
        assert sink.apply(generation, writes(upsert("1", 1, document))) == Applied(written=1)
        assert self.scanned(sink, generation) == self.kept([("1", 1, document)])


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@quick
@given(document=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), _values, max_size=6))
@pytest.mark.parametrize("ensure_ascii", [False, True])
def test_a_document_taken_apart_is_put_together_as_it_was(document: dict[str, Any], ensure_ascii: bool) -> None:
    text = json.dumps(document, ensure_ascii=ensure_ascii, indent=1)
    flat, shape = take_apart(text)
    fields = {name.encode(): value.encode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
    assert tokens(put_together(fields, shape)) == tokens(text)


def test_half_a_surrogate_pair_stays_an_escape() -> None:
    assert take_apart('{"a":"\\ud83d","b":"\\ud83d\\ude00"}') == (["a", '"\\ud83d"', "b", "\U0001f600"], ["ja", "tb"])


@pytest.mark.server
class TestRedisExpiry(RedisFull, SinkSuite):
    def config(self, url: str, name: str) -> dict[str, Any]:
        return super().config(url, name) | {"ttl": "1h"}

    def test_a_document_expires_so_long_after_its_last_change(
        self, sink: Sink, generation: int, plain: Any, name: str
    ) -> None:
        sink.apply(generation, writes(upsert("1", 1, {"a": 1})))
        version = f"driftless:suite:{name}:v:{{{name}:1}}"
        assert 3600 <= plain.ttl(f"{name}:1") <= 3606
        assert plain.ttl(version) - plain.ttl(f"{name}:1") == HORIZON_SECONDS
        plain.expire(f"{name}:1", 5)
        sink.apply(generation, writes(upsert("1", 1, {"a": 1})))
        assert plain.ttl(f"{name}:1") <= 5  # a replay is no change
        sink.apply(generation, writes(upsert("1", 2, {"a": 1})))
        assert 3600 <= plain.ttl(f"{name}:1") <= 3606

    def test_an_expired_document_is_absent_and_does_not_come_back(self, opened: Opener, plain: Any, name: str) -> None:
        sink = opened(ttl="1s")
        sink.create(1)
        sink.apply(1, writes(upsert("1", 5, {"a": 1}), upsert("2", 5, {"a": 1}), upsert("3", 5, {"a": 1})))
        assert sink.count(1) == 3
        _expire(plain, f"{name}:1", f"{name}:2", f"{name}:3")
        assert (sink.count(1), stored(sink, 1, "1", "2", "3"), self.scanned(sink, 1)) == (0, {}, [])
        again = writes(upsert("1", 4, {"a": 0}), upsert("1", 5, {"a": 1}), upsert("2", 4, {"a": 0}))
        assert sink.apply(1, again) == Applied(stale=3)
        plain.lpush(f"{name}:3", "somebody's list")  # the name is free, and taken
        assert sink.apply(1, writes(upsert("3", 6, {}))).rejected == (Rejected("3", 6, self.refusal),)
        plain.delete(f"{name}:3")
        lasting = opened(ttl="1h")
        assert lasting.apply(1, writes(upsert("1", 6, {"a": 2}), delete("2", 6))) == Applied(written=2)
        assert stored(sink, 1, "1", "2", "3") == {"1": (6, {"a": 2})}
        assert sink.count(1) == 1

    def test_expiry_goes_along_when_generations_are_switched(self, opened: Opener, plain: Any, name: str) -> None:
        sink = opened(ttl="1s")
        for n in (1, 2):
            sink.create(n)
        opened(ttl="1h").apply(1, writes(upsert("1", 5, {"of": 1}), upsert("2", 5, {"of": 1})))
        sink.apply(2, writes(upsert("1", 5, {"of": 2}), upsert("2", 5, {"of": 2})))
        sink.promote(2)
        assert 0 < plain.pttl(f"{name}:1") <= 3000
        _expire(plain, f"{name}:1", f"{name}:2")
        assert (sink.count(1), sink.count(2)) == (2, 0)
        sink.promote(1)
        assert 3500 < plain.ttl(f"{name}:1") <= 3606
        assert (sink.count(1), sink.count(2), self.scanned(sink, 2)) == (2, 0, [])
        assert sink.apply(2, writes(upsert("1", 4, {}))) == Applied(stale=1)

    def test_few_counters_are_kept_however_long_documents_last(self, opened: Opener, plain: Any, name: str) -> None:
        sink = opened(ttl="30d")
        sink.create(1)
        sink.apply(1, writes(*(upsert(str(n), 1, {}) for n in range(3000))))
        counters = [field for field in plain.hkeys(f"driftless:suite:{name}:1") if field.startswith("until:")]
        assert len(counters) <= 2
        assert sink.count(1) == 3000
        short = opened(ttl="1s")
        short.apply(1, writes(*(upsert(str(n), 2, {}) for n in range(3000))))
        _expire(plain, *(f"{name}:{n}" for n in range(3000)))
        assert sink.count(1) == 0
        left = plain.hgetall(f"driftless:suite:{name}:1")
        assert {field: value for field, value in left.items() if value != "0"} == {}


def _expire(plain: Any, *names: str) -> None:
    """Wait until the server has let these go: their own time, and not longer."""
    assert all(plain.pttl(name) in (-2, *range(1, 3001)) for name in names), "-2: gone already, where this is slow"
    for name in names:
        while (left := plain.pttl(name)) != -2:
            assert left != -1, "does not expire"
            plain.blpop([f"nothing:{name}"], timeout=max(0.01, left / 1000))


@pytest.mark.parametrize("ttl", ["500ms", "1500ms", "0s"])
def test_a_time_to_live_is_whole_seconds(ttl: str) -> None:
    with pytest.raises(ValueError, match="whole seconds"):
        config_model("redis").model_validate({"url": "redis://h", "key": "a:{id}", "ttl": ttl})


def test_a_reader_is_told_which_stores_may_forget() -> None:
    redis = {"url": "redis://h", "key": "a:{id}"}
    assert not config_model("redis").model_validate(redis).expires
    assert config_model("redis").model_validate(redis | {"ttl": "30m"}).expires
    assert not config_model("opensearch").model_validate({"url": "http://h", "index": "i"}).expires
