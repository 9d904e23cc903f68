"""How the tests reach OpenSearch, and what it refuses: cases for every version that there is a server of."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import orjson
import pytest
import urllib3

from driftless.sink import Applied, Rejected, Sink
from sinks.opensearch.id import document_id
from sinks.opensearch.server import OpenSearchServer
from tests.sinks.store_case import Opener, StoreCase, rows, stored, upsert, writes


def ask(url: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """A plain request, as another client of the server would make it."""
    answer = urllib3.request(
        method,
        url.rstrip("/") + path,
        body=None if body is None else orjson.dumps(body),
        headers={"content-type": "application/json"},
    )
    return answer.status, orjson.loads(answer.data)


class OpenSearchCase(StoreCase):
    kind = "opensearch"
    apply_mark = b"/_bulk"
    save_mark = b"PUT /.driftless"
    create_mark = b"-1 HTTP"
    promote_mark = b"POST /_aliases"
    drop_mark = b"-2 HTTP"
    refusal = "mapper_parsing_exception: failed to parse field [n] of type [long]; illegal_argument_exception"

    @pytest.fixture
    def store_url(self, opensearch_url: str) -> str:
        return opensearch_url

    def config(self, url: str, name: str) -> dict[str, Any]:
        return {"url": url, "index": name}

    def as_reader(self, url: str, name: str, key: str) -> str | None:
        answer = urllib3.request("GET", f"{url.rstrip('/')}/{name}/_source/{key}")
        return answer.data.decode() if answer.status == 200 else None

    def refusable(self, url: str, name: str, key: str) -> str:  # noqa: ARG002
        for setting in (f"/{name}-1/_close", f"/{name}-1/_open"):
            if setting.endswith("_open"):
                ask(url, "PUT", f"/{name}-1/_settings", {"index.mapping.ignore_malformed": False})
            ask(url, "POST", setting)
        ask(url, "PUT", f"/{name}-1/_mapping", {"properties": {"n": {"type": "long"}}})
        return '{"n":"SECRET"}'


class OpenSearchRefusals(OpenSearchCase):
    """Documents that are not stored, or not as one might think."""

    duplicate = "mapper_parsing_exception; json_parse_exception: Duplicate field"

    def test_without_a_mapping_no_document_is_refused_for_a_guessed_type(self, sink: Sink, generation: int) -> None:
        documents = [
            '{"v":1}',
            '{"v":1.5}',
            '{"v":"2024-01-01"}',
            '{"v":"NaN"}',
            f'{{"v":{"9" * 40}}}',
            '{"v":{"a":1}}',
        ]
        batch = writes(*(upsert(str(n), 1, document) for n, document in enumerate(documents)))
        assert sink.apply(generation, batch) == Applied(written=len(documents))
        assert [text for _, _, text in rows(sink.read(generation, [str(n) for n in range(6)]))] == documents

    def test_a_key_that_cannot_be_an_id_is_found_by_its_hash(
        self, sink: Sink, generation: int, store_url: str, name: str
    ) -> None:
        sink.promote(generation)
        keys = {
            key: document_id(key) for key in ("é" * 257, "", "sha256:", "sha256:" + "0" * 64, "é" * 256, "SHA256:1")
        }
        assert [key for key, found in keys.items() if key == found] == ["é" * 256, "SHA256:1"]
        assert keys["sha256:"] == "sha256:9fd714ce6f63c3b320c944b70e80a5d105fd2f3e2d30ae2fa81370e223f50d07"
        sink.apply(generation, writes(*(upsert(key, 3, {"key": key}) for key in keys)))
        for key, found in keys.items():
            assert len(found.encode()) <= 512
            status, answer = ask(store_url, "GET", f"/{name}/_doc/{quote(found, safe='')}")
            assert (status, answer["_source"]) == (200, {"key": key})

    def test_what_is_not_json_cannot_break_out_of_its_document(self, sink: Sink, generation: int) -> None:
        evil = '{"a":1}\n{"delete":{"_id":"victim","version":99,"version_type":"external"}}\n'
        sink.apply(generation, writes(upsert("victim", 1, {"safe": True})))
        extra = "illegal_argument_exception: Malformed content, found extra data after parsing"
        why = f"mapper_parsing_exception; {extra}"
        applied = sink.apply(generation, writes(upsert("evil", 1, evil), upsert("2", 1, {})))
        assert applied == Applied(written=1, rejected=(Rejected("evil", 1, why),))
        assert stored(sink, generation, "victim") == {"victim": (1, {"safe": True})}

    @pytest.mark.parametrize(
        ("document", "reason"),
        [
            ("", "mapper_parsing_exception: failed to parse, document is empty"),
            ("[1]", "mapper_parsing_exception; not_x_content_exception"),
            ('{"a":1,"a":2}', "DUPLICATE"),
            (
                '{"":"SECRET"}',
                "mapper_parsing_exception; illegal_argument_exception: field name cannot be an empty string",
            ),
            (
                '{"a":' * 30 + '"SECRET"' + "}" * 30,
                "mapper_parsing_exception; parse_exception: "
                "The depth of the field has exceeded the allowed limit of [20]",
            ),
            (
                '{"a":[true,"SECRET"]}',
                "illegal_argument_exception: mapper [a] cannot be changed from type [boolean] to [text]",
            ),
            (
                "{" + ",".join(f'"f{n}":"SECRET"' for n in range(1001)) + "}",
                "illegal_argument_exception: Limit of total fields [1000] has been exceeded",
            ),
        ],
        ids=["empty", "array", "duplicate", "no name", "deep", "mixed", "wide"],
    )
    def test_reasons_name_the_problem_and_no_value(
        self, sink: Sink, generation: int, document: str, reason: str
    ) -> None:
        reason = reason.replace("DUPLICATE", self.duplicate)
        applied = sink.apply(generation, writes(upsert("1", 1, document), upsert("2", 1, {})))
        assert applied == Applied(written=1, rejected=(Rejected("1", 1, reason),))

    def test_each_document_is_judged_alone_whatever_is_wrong_with_it(self, opened: Opener) -> None:
        properties = {
            "n": {"type": "long"},
            "word": {"type": "keyword"},
            "more": {"properties": {"a": {"type": "long"}}},
        }
        sink = opened(mapping={"dynamic": True, "properties": properties})
        sink.create(1)
        wide = "{" + ",".join(f'"f{n}":1' for n in range(1001)) + "}"
        parsing = "mapper_parsing_exception: failed to parse field [n] of type [long]; illegal_argument_exception"
        bad = {
            "conflict": ('{"n":"SECRET"}', parsing),
            "not an object": (
                '{"more":"SECRET"}',
                "mapper_parsing_exception: object mapping for [more] tried to parse field [more] as object, "
                "but found a concrete value",
            ),
            "long word": (
                f'{{"word":"SECRET{"x" * 32766}"}}',
                'illegal_argument_exception: Document contains at least one immense term in field="word"; '
                "max_bytes_length_exceeded_exception",
            ),
            "wide": (wide, "illegal_argument_exception: Limit of total fields [1000] has been exceeded"),
            "k" * 600: ('{"n":"SECRET"}', parsing),
        }
        good = [upsert(f"good {n}", 1, {"n": n}) for n in range(20)] + [upsert("x" * 600, 1, {"n": 1})]
        mixed = good[:10] + [upsert(key, 2, document) for key, (document, _) in bad.items()] + good[10:]
        applied = sink.apply(1, writes(*mixed))
        assert {refused.key: refused.reason for refused in applied.rejected} == {
            key: reason for key, (_, reason) in bad.items()
        }
        assert (applied.written, applied.stale) == (21, 0)
        assert "SECRET" not in str(applied)
        assert set(stored(sink, 1, *bad, *(key for key, _, _ in good))) == {key for key, _, _ in good}
        assert sink.apply(1, writes(*(upsert(key, 2, {"n": 1}) for key in bad))) == Applied(written=len(bad))

    @pytest.mark.parametrize(
        ("dynamic", "refused", "found"),
        [
            (
                "strict",
                "strict_dynamic_mapping_exception: mapping set to strict, dynamic introduction of [new] within [_doc] "
                "is not allowed",
                None,
            ),
            (False, "", 0),
            ("false", "", 0),
            (True, "", 1),
        ],
    )
    def test_a_field_that_the_mapping_does_not_name(
        self, opened: Opener, store_url: str, name: str, dynamic: object, refused: str, found: int | None
    ) -> None:
        sink = opened(mapping={"dynamic": dynamic, "properties": {"n": {"type": "long"}}})
        sink.create(1)
        sink.promote(1)
        applied = sink.apply(1, writes(upsert("1", 1, {"n": 1}), upsert("2", 1, '{"n":2,"new":"SECRET"}')))
        if refused:
            assert applied == Applied(written=1, rejected=(Rejected("2", 1, refused),))
            assert sink.count(1) == 1
            return
        assert applied == Applied(written=2)
        assert stored(sink, 1, "2") == {"2": (1, {"n": 2, "new": "SECRET"})}
        assert sink.count(1) == 2
        _, answer = ask(store_url, "POST", f"/{name}/_count", {"query": {"match": {"new": "secret"}}})
        assert answer["count"] == found

    def test_a_document_larger_than_the_server_takes_is_rejected_alone(self, sink: Sink, generation: int) -> None:
        large = '{"a":"' + "x" * (101 << 20) + '"}'  # 100 MiB is what a server takes unless it is told otherwise
        applied = sink.apply(generation, writes(upsert("1", 1, {}), upsert("large", 1, large), upsert("2", 1, {})))
        why = "the document is larger than the server takes"
        assert applied == Applied(written=2, rejected=(Rejected("large", 1, why),))

    def test_a_request_larger_than_a_gateway_takes_is_cut_in_two(
        self, sink: Sink, generation: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        once = OpenSearchServer.once

        def narrow(self: Any, method: str, path: str, body: bytes | None, **rest: Any) -> tuple[int, str]:
            if "_bulk" in path and len(body or b"") > 300:
                return 413, "Request Entity Too Large"
            return once(self, method, path, body, **rest)

        monkeypatch.setattr(OpenSearchServer, "once", narrow)
        batch = writes(*(upsert(str(n), 1, {"n": n}) for n in range(9)), upsert("large", 1, {"a": "x" * 300}))
        why = "the document is larger than the server takes"
        assert sink.apply(generation, batch) == Applied(written=9, rejected=(Rejected("large", 1, why),))

    def test_requests_are_cut_by_bytes(self, opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
        once, sizes = OpenSearchServer.once, list[int]()

        def noted(self: Any, method: str, path: str, body: bytes | None, **rest: Any) -> tuple[int, str]:
            if "_bulk" in path:
                sizes.append(len(body or b""))
            return once(self, method, path, body, **rest)

        monkeypatch.setattr(OpenSearchServer, "once", noted)
        sink = opened(request_bytes=20_000)
        sink.create(1)
        items = [upsert(str(n), 1, {"a": "x" * (n * 37 % 3000)}) for n in range(300)]
        assert sink.apply(1, writes(*items)) == Applied(written=300)
        heads = 80 * 300 // len(sizes) * 3  # what stands before each document is not counted
        assert 20 < len(sizes) < 40
        assert max(sizes) <= 20_000 + heads
