"""Templates of the cluster, and settings that somebody changes later: documents are stored as they are given."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from driftless.errors import SinkMisconfigured
from driftless.sink import Applied, Sink, SinkContext
from sinks import open_sink
from sinks.opensearch.faithful import _matches
from tests.sinks.opensearch.opensearch_case import OpenSearchCase, ask
from tests.sinks.store_case import Opener, stored, upsert, writes

pytestmark = pytest.mark.server

MAPPING = {"properties": {"id": {"type": "long"}, "title": {"type": "text"}}}
STAMP = f"stamp-{uuid.uuid4().hex[:8]}"
HARMFUL: list[tuple[dict[str, Any], str]] = [
    ({"mappings": {"_source": {"excludes": ["title"]}}}, "`_source.excludes` leaves fields out of documents"),
    ({"mappings": {"_source": {"includes": ["id"]}}}, "`_source.includes` leaves fields out of documents"),
    ({"mappings": {"_source": {"enabled": False}}}, "`_source.enabled: false` keeps no documents"),
    ({"mappings": {"dynamic": "strict"}}, "`dynamic: strict` refuses documents with a field that it does not name"),
]
HARMLESS: list[dict[str, Any]] = [
    {"settings": {"index.default_pipeline": STAMP}},
    {"settings": {"index.final_pipeline": STAMP, "index.translog.durability": "async"}},
    {"mappings": {"_routing": {"required": True}}},
    {"settings": {"index.refresh_interval": "5s"}, "mappings": {"properties": {"more": {"type": "keyword"}}}},
]


class TestTemplates(OpenSearchCase):
    @pytest.fixture
    def template(self, store_url: str, name: str) -> Iterator[Any]:
        """Puts a template that fits the follower's indices."""
        url = store_url
        ask(url, "PUT", f"/_ingest/pipeline/{STAMP}", {"processors": [{"set": {"field": "seen", "value": "x"}}]})
        path = f"/_index_template/{name}-template"

        def put(template: dict[str, Any]) -> None:
            body = {"index_patterns": [f"{name}-*"], "template": template, "priority": 5}
            assert ask(url, "PUT", path, body)[0] == 200

        yield put
        ask(url, "DELETE", path)
        ask(url, "DELETE", f"/_ingest/pipeline/{STAMP}")

    @pytest.mark.parametrize(("wrong", "said"), HARMFUL, ids=[said.split("`")[1] for _, said in HARMFUL])
    def test_what_changes_documents_is_refused_by_name(
        self, opened: Opener, template: Any, name: str, store_url: str, wrong: dict[str, Any], said: str
    ) -> None:
        sink = opened(mapping=MAPPING)
        sink.check()
        template(wrong)
        with pytest.raises(SinkMisconfigured) as exc:
            opened(mapping=MAPPING).check()
        assert str(exc.value) == (
            f"The index template `{name}-template` would not let `{name}-1` keep documents as they are given: {said}"
        )
        assert "Exempt the index from that template" in exc.value.hint
        with pytest.raises(SinkMisconfigured, match="does not keep documents as they are given"):
            sink.create(1)
        assert ask(store_url, "GET", f"/{name}-1")[0] == 404, "an index is left that nobody can use"

    @pytest.mark.parametrize("template_", HARMLESS, ids=["pipeline", "final", "routing", "more"])
    def test_what_can_be_overridden_or_does_no_harm_is_taken(
        self, opened: Opener, template: Any, template_: dict[str, Any]
    ) -> None:
        template(template_)
        sink = opened(mapping=MAPPING)
        sink.check()
        sink.create(1)
        sink.create(1)
        sink.check()
        document = {"id": 1, "title": "a"}
        assert sink.apply(1, writes(upsert("1", 1, document), upsert("2", 1, document))) == Applied(written=2)
        assert stored(sink, 1, "1", "2") == {"1": (1, document), "2": (1, document)}

    def test_who_asked_for_a_strict_mapping_has_it(self, opened: Opener, template: Any) -> None:
        template({"mappings": {"dynamic": "strict"}})
        sink = opened(mapping={**MAPPING, "dynamic": "strict"})
        sink.check()
        sink.create(1)
        sink.check()

    def test_a_pipeline_that_is_set_later_is_noticed(
        self, sink: Sink, generation: int, store_url: str, name: str, template: Any
    ) -> None:
        """By `check`, which a run asks again and again."""
        template({})
        sink.check()
        index = f"/{name}-{generation}/_settings"
        assert ask(store_url, "PUT", index, {"index.default_pipeline": STAMP})[0] == 200
        with pytest.raises(SinkMisconfigured) as exc:
            sink.check()
        assert str(exc.value) == (
            f"The index `{name}-1` does not keep documents as they are given: "
            f"`index.default_pipeline: {STAMP}` changes documents before they are stored"
        )
        assert ask(store_url, "PUT", index, {"index.default_pipeline": "_none"})[0] == 200
        sink.check()
        assert ask(store_url, "PUT", index, {"index.translog.durability": "async"})[0] == 200
        with pytest.raises(SinkMisconfigured, match="loses acknowledged writes in a crash"):
            sink.check()

    def test_an_index_of_another_follower_is_refused_before_anything_is_made(
        self, sink: Sink, generation: int, store_url: str, name: str
    ) -> None:
        assert generation == 1
        other = open_sink("opensearch", self.config(store_url, name), SinkContext("another", "search", ("id",)))
        with pytest.raises(SinkMisconfigured, match=f"`{name}-1` belongs to the follower `{name}` of the pipeline"):
            other.check()
        other.close()
        sink.check()

    def test_what_strangers_put_into_the_index_is_no_error(
        self, sink: Sink, generation: int, store_url: str, name: str
    ) -> None:
        """Straight into the index: without a version of ours, with a routing, with an id of another form."""
        sink.apply(generation, writes(upsert("1", 5, {"a": 1})))
        for path in ("_doc/2", "_doc/3?routing=x", "_doc", "_doc/%C3%A9%20%2F"):
            assert ask(store_url, "POST", f"/{name}-1/{path}", {"b": 1})[0] == 201
        ask(store_url, "POST", "/_aliases", {"actions": [{"add": {"index": f"{name}-1", "alias": f"{name}-theirs"}}]})
        found = self.scanned(sink, generation)
        assert len(found) == 5
        assert ("1", 5, '{"a":1}') in [(key, version, (text or "").replace(" ", "")) for key, version, text in found]
        sink.promote(generation)
        assert (sink.promoted(), sink.count(generation)) == (1, 5)
        ask(store_url, "PUT", f"/{name}-old", {"aliases": {name: {}, f"{name}-old-WRITES": {}}})
        ask(store_url, "POST", "/_aliases", {"actions": [{"remove": {"index": f"{name}-1", "alias": name}}]})
        try:
            with pytest.raises(SinkMisconfigured, match=f"leads to `{name}-old`, which is not ours"):
                sink.promoted()
        finally:
            ask(store_url, "DELETE", f"/{name}-old")


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("*", "a-1", True),
        ("a-*", "a-1", True),
        ("a-1", "a-1", True),
        ("a", "a-1", False),
        ("*-1", "a-1", True),
        ("a*-*1", "ab-c1", True),
        ("a*b*c", "abc", True),
        ("a*c*b", "abc", False),
        ("b*", "abc", False),
        ("*b", "abc", False),
    ],
)
def test_patterns_of_templates(pattern: str, name: str, fits: bool) -> None:
    assert _matches(pattern, name) is fits
