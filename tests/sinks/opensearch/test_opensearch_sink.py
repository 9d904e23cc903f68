"""OpenSearch against the suite, and what is its own: the alias that guards writes, shards, reasons without values."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import sinks._retry
from driftless.errors import SinkMisconfigured, SinkUnavailable
from driftless.sink import Applied, Sink, SinkContext
from sinks import open_sink
from sinks.opensearch.bulk import bulk_body
from sinks.opensearch.routing import Routing
from sinks.opensearch.server import OpenSearchServer
from sinks.opensearch.sink import OpenSearchSink
from tests.sinks.opensearch.opensearch_case import OpenSearchRefusals, ask
from tests.sinks.sink_suite import SinkSuite
from tests.sinks.store_case import Opener, delete, rows, stored, upsert, writes

pytestmark = pytest.mark.server


class TestOpenSearchSink(OpenSearchRefusals, SinkSuite):
    # -- the place ----------------------------------------------------------------------------------------------

    def test_a_column_of_the_key_chooses_the_shard(self, store_url: str, name: str) -> None:
        config = {**self.config(store_url, name), "routing": "tenant", "settings": {"number_of_shards": 5}}
        sink = open_sink("opensearch", config, SinkContext(name, name, ("id", "tenant")))
        sink.create(1)
        keys = [f'[{number},"t {number % 3}"]' for number in range(12)]
        sink.apply(1, writes(*(upsert(key, 1, {"n": number}) for number, key in enumerate(keys))))
        sink.apply(1, writes(delete(keys[0], 2), upsert(keys[1], 2, {"n": 100}), upsert(keys[2], 1, {"n": 0})))
        assert {row[0]: row[1] for row in rows(sink.read(1, keys))} == {
            key: 2 if number == 1 else 1 for number, key in enumerate(keys) if number
        }
        assert sink.count(1) == 11
        assert sorted(row[0] for batch in sink.scan(1) for row in rows(batch)) == sorted(keys[1:])
        _, answer = ask(store_url, "GET", f"/{name}-1/_search?size=20&routing=t%201")
        mine = [hit for hit in answer["hits"]["hits"] if hit["_routing"] == "t 1"]
        assert sorted(hit["_source"]["n"] for hit in mine) == [4, 7, 10, 100]
        assert answer["_shards"]["total"] == 1
        sink.drop(1)
        sink.close()

    def test_an_index_deleted_under_a_running_follower_is_loud_and_not_made_anew(
        self, sink: Sink, generation: int, store_url: str, name: str
    ) -> None:
        sink.apply(generation, writes(upsert("1", 1, {})))
        sink.save(generation, "a", expected=None)
        ask(store_url, "DELETE", f"/{name}-1")
        attempts: list[Callable[[], object]] = [
            partial(sink.apply, generation, writes(upsert("1", 2, {}))),
            partial(sink.apply, generation, writes(delete("1", 2))),
            partial(sink.count, generation),
        ]
        for attempt in attempts:
            with pytest.raises(SinkMisconfigured, match=f"`{name}-1` is gone") as raised:
                attempt()
            assert "driftless rebuild" in raised.value.hint
        assert ask(store_url, "GET", f"/_cat/indices/{name}*?format=json")[1] == []
        assert sink.load(generation) is None
        assert sink.save(generation, "b", expected="a") is False

    def test_an_index_made_anew_has_no_checkpoint(
        self, opened: Opener, sink: Sink, generation: int, store_url: str, name: str
    ) -> None:
        sink.save(generation, "a", expected=None)
        ask(store_url, "DELETE", f"/{name}-1")
        opened().create(generation)
        assert sink.save(generation, "b", expected="a") is False
        assert sink.load(generation) is None
        assert sink.save(generation, "b", expected=None) is True

    def test_a_checkpoint_index_that_was_deleted_is_a_lost_checkpoint(self, store_url: str, name: str) -> None:
        hidden = f"/.driftless-of-{name}"
        sink = open_sink("opensearch", self.config(store_url, name), SinkContext(f"of-{name}", name, ("id",)))
        sink.create(1)
        assert sink.save(1, "a", expected=None) is True
        ask(store_url, "DELETE", hidden)
        assert sink.save(1, "b", expected="a") is False
        assert sink.save(1, "b", expected=None) is True
        assert sink.load(1) == "b"
        _, answer = ask(store_url, "GET", f"{hidden}/_settings?flat_settings=true")
        assert answer[hidden[1:]]["settings"]["index.hidden"] == "true"
        sink.drop(1)
        ask(store_url, "DELETE", hidden)
        sink.close()

    @pytest.mark.parametrize("before", [None, "a"])
    def test_a_save_by_another_runner_between_look_and_write_wins(
        self, opened: Opener, generation: int, monkeypatch: pytest.MonkeyPatch, before: str | None
    ) -> None:
        first, second = opened(), opened()
        assert before is None or first.save(generation, before, expected=None)
        call = OpenSearchServer.call

        def overtaken(self: OpenSearchServer, method: str, path: str, *rest: Any, **more: Any) -> tuple[int, str]:
            if method == "PUT":
                monkeypatch.setattr(OpenSearchServer, "call", call)
                assert second.save(generation, "second", expected=before) is True
            return call(self, method, path, *rest, **more)

        monkeypatch.setattr(OpenSearchServer, "call", overtaken)
        assert first.save(generation, "first", expected=before) is False
        assert first.load(generation) == "second"

    def test_an_index_that_is_not_ours_is_left_alone(self, sink: Sink, store_url: str, name: str) -> None:
        ask(store_url, "PUT", f"/{name}-1")
        with pytest.raises(SinkMisconfigured, match=f"index `{name}-1` that is not ours"):
            sink.create(1)
        with pytest.raises(SinkMisconfigured, match="not ours to drop"):
            sink.drop(1)
        ask(store_url, "DELETE", f"/{name}-1")

    def test_a_readers_name_that_is_an_index_is_refused_with_a_hint(
        self, sink: Sink, generation: int, store_url: str, name: str
    ) -> None:
        ask(store_url, "PUT", f"/{name}")
        for attempt in (sink.check, lambda: sink.promote(generation), lambda: sink.create(2)):
            with pytest.raises(SinkMisconfigured, match=f"`{name}` is an index") as raised:
                attempt()
            assert "_reindex" in raised.value.hint
        ask(store_url, "DELETE", f"/{name}")

    def test_a_readers_name_that_leads_elsewhere_is_refused(
        self, sink: Sink, generation: int, store_url: str, name: str
    ) -> None:
        ask(store_url, "PUT", f"/other-{name}", {"aliases": {name: {}}})
        with pytest.raises(SinkMisconfigured, match=f"leads to `other-{name}`"):
            sink.promote(generation)
        ask(store_url, "DELETE", f"/other-{name}")

    def test_who_writes_by_the_readers_name_is_refused(
        self, sink: Sink, generation: int, store_url: str, name: str
    ) -> None:
        """What readers see comes from the log alone."""
        sink.promote(generation)
        assert sink.apply(generation, writes(upsert("1", 5, '{"n":1}'))) == Applied(written=1)
        for method, path, body in (
            ("PUT", "_doc/1", {"n": 2}),
            ("POST", "_update/1", {"doc": {"n": 3}}),
            ("DELETE", "_doc/1", None),
            ("POST", "_doc", {"n": 4}),
        ):
            status, said = ask(store_url, method, f"/{name}/{path}", body)
            assert (status, "no write index is defined" in said["error"]["reason"]) == (400, True), said
        assert self.as_reader(store_url, name, "1") == '{"n":1}'
        assert sink.count(generation) == 1

    def test_of_two_that_promote_at_once_the_later_one_is_right(
        self, opened: Opener, sink: Sink, store_url: str, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for n in (1, 2, 3):
            sink.create(n)
        sink.promote(1)
        call, other = OpenSearchServer.call, opened()

        def overtaken(self: OpenSearchServer, method: str, path: str, *rest: Any, **more: Any) -> tuple[int, str]:
            if path == "/_aliases":
                monkeypatch.setattr(OpenSearchServer, "call", call)
                other.promote(2)
            return call(self, method, path, *rest, **more)

        monkeypatch.setattr(OpenSearchServer, "call", overtaken)
        sink.promote(3)
        assert sink.promoted() == 3
        assert list(ask(store_url, "GET", f"/_alias/{name}")[1]) == [f"{name}-3"]

    @pytest.mark.parametrize("narrowed", [{"filter": {"term": {"n": 1}}}, {"routing": "a"}])
    def test_an_alias_that_shows_a_part_is_not_what_readers_should_see(
        self, sink: Sink, generation: int, store_url: str, name: str, narrowed: dict[str, object]
    ) -> None:
        sink.promote(generation)
        again = {"index": f"{name}-{generation}", "alias": name, **narrowed}
        assert ask(store_url, "POST", "/_aliases", {"actions": [{"add": again}]})[0] == 200
        with pytest.raises(
            SinkMisconfigured,
            match=f"Readers of `{name}` see a part of `{name}-{generation}`: somebody gave the alias a",
        ):
            sink.promoted()
        sink.promote(generation)
        assert sink.promoted() == generation

    def test_settings_and_mapping_are_the_operators(self, opened: Opener, store_url: str, name: str) -> None:
        mapping = {"dynamic": "strict", "properties": {"n": {"type": "long"}}}
        opened(settings={"index": {"number_of_shards": 3}, "refresh_interval": "7s"}, mapping=mapping).create(1)
        _, answer = ask(store_url, "GET", f"/{name}-1?flat_settings=true")
        made = answer[f"{name}-1"]
        assert made["settings"]["index.number_of_shards"] == "3"
        assert made["settings"]["index.refresh_interval"] == "7s"
        assert made["settings"]["index.gc_deletes"] == "3600s"
        assert made["mappings"].pop("_meta") == {"driftless": {"pipeline": "suite", "follower": name, "generation": 1}}
        assert made["mappings"] == mapping

    def test_a_mapping_the_server_refuses_stops_with_its_reason(self, opened: Opener) -> None:
        with pytest.raises(SinkMisconfigured, match=r"No handler for type \[lnog\]"):
            opened(mapping={"properties": {"n": {"type": "lnog"}}}).create(1)

    # -- documents -----------------------------------------------------------------------------------------------------

    def test_scan_covers_every_shard_once(self, opened: Opener) -> None:
        sink = opened(settings={"number_of_shards": 3})
        sink.create(1)
        items = [upsert(str(n), n, {"n": n}) for n in range(1, 3501)]
        sink.apply(1, writes(*items))
        assert sorted(row for batch in sink.scan(1) for row in rows(batch)) == sorted(items)

    # -- faults -------------------------------------------------------------------------------------------------

    def test_only_what_was_refused_for_now_is_sent_again(
        self, opened: Opener, store_url: str, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # On one node, only one of the two shards can start.
        one_shard = {"number_of_shards": 2, "routing.allocation.total_shards_per_node": 1}
        sink = opened(settings=one_shard, request_seconds=2)
        sink.create(1)
        sent: list[list[str | None]] = []
        prepare = bulk_body

        def noted(batch: pa.RecordBatch, routing: Routing) -> bytes:
            sent.append(batch.column("key").to_pylist())
            if len(sent) == 3:
                ask(store_url, "PUT", f"/{name}-1/_settings", {"index.routing.allocation.total_shards_per_node": -1})
            return prepare(batch, routing)

        monkeypatch.setattr("sinks.opensearch.sink.bulk_body", noted)
        keys = [str(n) for n in range(20)]
        assert sink.apply(1, writes(*(upsert(key, 1, {}) for key in keys))) == Applied(written=20)
        assert sent[0] == keys
        assert 0 < len(sent[1]) < 20
        assert sent[2] == sent[1]
        assert sink.count(1) == 20

    def test_nothing_is_on_its_way_any_more_when_a_write_has_failed(
        self, opened: Opener, generation: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = opened(request_documents=1, retry_seconds=0)
        bulk, failed, ended = OpenSearchSink._bulk, threading.Event(), threading.Event()

        def slow_second(self: OpenSearchSink, generation: int, batch: pa.RecordBatch) -> Any:
            if batch.column("key")[0].as_py() == "1":
                raise SinkUnavailable("first")
            failed.wait(0.3)  # until `apply` has failed, if it does not wait for this one
            answer = bulk(self, generation, batch)
            ended.set()
            return answer

        monkeypatch.setattr(OpenSearchSink, "_bulk", slow_second)
        with pytest.raises(SinkUnavailable, match="first"):
            sink.apply(generation, writes(upsert("1", 1, {}), upsert("2", 1, {})))
        assert ended.is_set()
        failed.set()

    def test_a_server_that_is_short_of_memory_is_asked_again(
        self, opened: Opener, sink: Sink, generation: int, store_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def allow(size: str | None) -> None:
            ask(
                store_url, "PUT", "/_cluster/settings", {"transient": {"network.breaker.inflight_requests.limit": size}}
            )

        failed_twice, real = threading.Event(), sinks._retry.pause

        def pause(tries: int) -> float:
            if tries:
                failed_twice.set()
            return real(tries)

        monkeypatch.setattr(sinks._retry, "pause", pause)
        batch = writes(*(upsert(str(n), 1, {"text": "x" * 100}) for n in range(100)))
        allow("2kb")
        try:
            with pytest.raises(SinkUnavailable, match=r"429 circuit_breaking_exception; tried for 0 s"):
                opened(retry_seconds=0).apply(generation, batch)
            failed_twice.clear()
            with ThreadPoolExecutor(1) as background:
                applied = background.submit(sink.apply, generation, batch)
                assert failed_twice.wait(30), "the write was not tried again within 30 s"
                allow(None)
                assert applied.result(60) == Applied(written=100)
        finally:
            allow(None)
        assert sink.count(generation) == 100

    def test_a_block_on_the_index_stops_the_follower(
        self, sink: Sink, generation: int, store_url: str, name: str
    ) -> None:
        ask(store_url, "PUT", f"/{name}-1/_settings", {"index.blocks.write": True})
        with pytest.raises(
            SinkMisconfigured, match=f"forbids writing to `{name}-1`: cluster_block_exception"
        ) as raised:
            sink.apply(generation, writes(upsert("1", 1, {})))
        assert "block" in raised.value.hint
        ask(store_url, "PUT", f"/{name}-1/_settings", {"index.blocks.write": False})

    def test_a_write_held_up_on_its_way_comes_too_late(
        self, opened: Opener, sink: Sink, generation: int, proxy: Any
    ) -> None:
        zombie = opened(proxy.url)
        zombie.apply(generation, writes(upsert("0", 1, {})))
        proxy.hold()
        late = threading.Thread(target=zombie.apply, args=(generation, writes(upsert("1", 8, {}))))
        late.start()
        sink.apply(generation, writes(upsert("1", 7, {}), delete("1", 9)))
        proxy.let_go()
        late.join(60)
        assert not late.is_alive(), "the late write did not end within 60 s"
        assert stored(sink, generation, "1") == {}
