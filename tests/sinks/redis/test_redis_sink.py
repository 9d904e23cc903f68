"""Redis against the suite, and what is its own: names, servers that forget, that are full, or that would evict."""

from __future__ import annotations

from typing import Any

import pytest
from redis.crc import key_slot

from driftless.errors import SinkMisconfigured
from driftless.sink import Applied, Rejected, Sink, SinkContext
from sinks import HORIZON_SECONDS, open_sink
from tests.sinks.redis.redis_case import RedisFull
from tests.sinks.sink_suite import SinkSuite
from tests.sinks.store_case import Opener, delete, rows, upsert, writes

pytestmark = pytest.mark.server


class TestRedisSink(RedisFull, SinkSuite):
    # -- names --------------------------------------------------------------------------------------------------

    def test_a_documents_version_is_in_its_slot_in_every_generation(self, sink: Sink, plain: Any, name: str) -> None:
        sink.create(1)
        sink.create(2)
        keys = ["1", "a:b", "{x}", "}{", "%", "", "é"]
        for n in (1, 2):
            sink.apply(n, writes(*(upsert(key, 1, {}) for key in keys)))
        names = [found for found in plain.scan_iter(f"*{name}:*", count=1000) if f"{name}:" in found]
        written = [name for name in names if plain.type(name) == "string"]
        assert len(written) == 4 * len(keys)
        slots = {key_slot(found.encode()) for found in written}
        readers = {key_slot(found.encode()) for found in written if not found.startswith("driftless:")}
        assert slots == readers
        assert len(readers) == len(keys)

    def test_a_deleted_keys_version_lasts_for_the_horizon(
        self, sink: Sink, generation: int, plain: Any, name: str
    ) -> None:
        sink.apply(generation, writes(upsert("1", 1, {}), delete("1", 2), upsert("2", 1, {}), delete("2", 2)))
        sink.apply(generation, writes(upsert("2", 3, {})))
        version = f"driftless:suite:{name}:v:{{{name}:%s}}"
        assert HORIZON_SECONDS - 60 < plain.ttl(version % 1) <= HORIZON_SECONDS
        assert plain.ttl(version % 2) == -1
        assert plain.ttl(f"{name}:2") == -1

    def test_an_applications_own_names_beside_ours_are_not_taken_for_documents(
        self, sink: Sink, generation: int, plain: Any, name: str
    ) -> None:
        sink.apply(generation, writes(upsert("42", 1, {})))
        plain.set(f"{name}:42:views", "7")
        plain.lpush(f"{name}:queue", "job")
        assert [row for batch in sink.scan(generation) for row in rows(batch)] == [("42", 1, "{}")]
        sink.drop(generation, also_live=True)
        assert plain.get(f"{name}:42:views") == "7"
        plain.delete(f"{name}:42:views", f"{name}:queue")

    def test_scan_shows_a_document_that_somebody_else_put_there(
        self, sink: Sink, generation: int, plain: Any, name: str
    ) -> None:
        plain.set(f"{name}:a%3Ab", '{"not":"ours"}')
        assert [row for batch in sink.scan(generation) for row in rows(batch)] == [("a:b", 0, '{"not":"ours"}')]
        assert sink.apply(generation, writes(delete("a:b", 1))) == Applied(written=1)
        assert plain.get(f"{name}:a%3Ab") is None

    def test_two_followers_cannot_have_the_same_names(self, sink: Sink, store_url: str, name: str) -> None:
        sink.create(1)
        for key in (f"{name}:{{id}}", f"{name}{{id}}", f"{name}:more:{{id}}"):
            other = open_sink("redis", {"url": store_url, "key": key}, SinkContext("suite", f"other-{name}", ("id",)))
            with pytest.raises(SinkMisconfigured, match=f"those of another follower, `driftless:suite:{name}`"):
                other.create(1)
            other.close()

    # -- servers that forget ------------------------------------------------------------------------------------

    def test_a_server_that_lost_its_data_takes_writes_and_denies_the_checkpoint(
        self, sink: Sink, generation: int, plain: Any
    ) -> None:
        sink.apply(generation, writes(upsert("1", 5, {"a": 1})))
        sink.save(generation, "a", expected=None)
        sink.promote(generation)
        plain.flushdb()
        assert sink.apply(generation, writes(upsert("2", 6, {"a": 2}))) == Applied(written=1)
        assert sink.save(generation, "b", expected="a") is False
        assert sink.load(generation) is None
        assert sink.promoted() is None
        assert sink.apply(generation, writes(upsert("1", 5, {"a": 1}), upsert("2", 6, {"a": 2}))) == Applied(1, 1)
        assert sink.count(generation) == 2

    def test_another_instance_may_have_lost_what_came_after_the_checkpoint(
        self, opened: Opener, sink: Sink, generation: int, plain: Any
    ) -> None:
        sink.apply(generation, writes(upsert("1", 5, {"a": 1})))
        sink.save(generation, "a", expected=None)
        assert sink.load(generation) == "a"
        assert sink.save(generation, "a", expected="a") is True
        plain.replicaof("127.0.0.1", 1)  # where nobody answers
        plain.replicaof("NO", "ONE")
        assert sink.save(generation, "a", expected="a") is False
        assert sink.save(generation, "b", expected="a") is False
        assert opened().load(generation) == "a", "nothing was changed"
        assert sink.load(generation) == "a"
        assert sink.save(generation, "b", expected="a") is True
        assert sink.load(generation) == "b"

    def test_a_server_that_lost_its_scripts_is_given_them_again(self, sink: Sink, generation: int, plain: Any) -> None:
        sink.apply(generation, writes(upsert("0", 1, {})))
        plain.script_flush()
        batch = writes(*(upsert(str(n), 2, {}) for n in range(1000)))
        assert sink.apply(generation, batch) == Applied(written=1000)
        plain.script_flush()
        assert sink.save(generation, "a", expected=None) is True

    def test_a_dropped_generation_takes_no_late_writes(self, opened: Opener, sink: Sink, generation: int) -> None:
        zombie = opened()
        zombie.apply(generation, writes(upsert("1", 1, {})))
        sink.drop(generation, also_live=True)
        with pytest.raises(SinkMisconfigured, match=r"Generation 1 of .* was dropped"):
            zombie.apply(generation, writes(upsert("1", 2, {})))
        assert rows(sink.read(generation, ["1"])) == []

    # -- servers that refuse ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
    def test_a_server_that_evicts_is_refused(self, sink: Sink, plain: Any, policy: str) -> None:
        plain.config_set("maxmemory-policy", policy)
        try:
            with pytest.raises(SinkMisconfigured, match=f"maxmemory-policy {policy}") as raised:
                sink.check()
        finally:
            plain.config_set("maxmemory-policy", "noeviction")
        assert "noeviction" in raised.value.hint
        sink.check()

    def test_a_user_without_permission_stops_the_follower(
        self, opened: Opener, generation: int, store_url: str, plain: Any
    ) -> None:
        plain.execute_command("ACL", "SETUSER", "suite", "on", ">right", "~*", "+@all", "-evalsha")
        try:
            at = store_url.replace("redis://", "redis://suite:{}@")
            with pytest.raises(SinkMisconfigured, match="Redis denies access: NOPERM"):
                opened(at.format("right")).apply(generation, writes(upsert("1", 1, {})))
            with pytest.raises(SinkMisconfigured, match="Redis denies access") as raised:
                opened(at.format("wrong")).apply(generation, writes(upsert("1", 1, {})))
            assert "wrong" not in f"{raised.value}{raised.value.hint}"
        finally:
            plain.execute_command("ACL", "DELUSER", "suite")

    def test_one_refused_name_in_a_long_batch_is_found(
        self, sink: Sink, generation: int, store_url: str, name: str
    ) -> None:
        document = self.refusable(store_url, name, "777")
        batch = writes(*(upsert(str(n), n, document) for n in range(1, 2001)))
        assert sink.apply(generation, batch) == Applied(written=1999, rejected=(Rejected("777", 777, self.refusal),))
        assert sink.count(generation) == 1999
