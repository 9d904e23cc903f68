"""What can be said of sinks without a server: kinds, configuration, names, wire formats and the waits between tries."""

from __future__ import annotations

import importlib
import json
import pickle
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import sinks._retry
from driftless.sink import Applied, Rejected, SinkContext
from sinks import HORIZON_SECONDS, SinkConfig, config_model, kinds, open_sink
from sinks._arrow import slices
from sinks.opensearch.bulk import bulk_body, judge, reason
from sinks.opensearch.read import hits
from sinks.redis.names import Names, Template
from tests.sinks.sink_suite import SinkSuite
from tests.sinks.store_case import delete, upsert, writes
from tests.support.clock import Clock


def test_kinds_are_the_packages_and_files_of_the_folder() -> None:
    assert kinds() == ["opensearch", "redis"]
    with pytest.raises(KeyError):
        config_model("memcached")


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_meets_the_suite(kind: str) -> None:
    module = importlib.import_module(f"tests.sinks.{kind}.test_{kind}_sink")
    suites = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, SinkSuite)]
    assert kind in {suite.kind for suite in suites if suite is not SinkSuite}, f"test_{kind}_sink.py has no suite"


def test_a_follower_is_not_rebuilt_where_its_store_is_only_reached_in_another_way() -> None:
    """Of these fields fingerprints are made: one more or less here would have every follower rebuilt."""
    common = {"url", "ca_certs", "client_cert", "client_key", "retry_seconds", "request_seconds"}
    assert config_model("redis").access() == common
    assert config_model("opensearch").access() == common | {
        "authorization",
        "request_bytes",
        "request_documents",
        "connections",
    }


@pytest.mark.parametrize("kind", kinds())
def test_every_field_says_what_it_means_and_unknown_fields_are_refused(kind: str) -> None:
    model = config_model(kind)
    assert issubclass(model, SinkConfig)
    assert [name for name, field in model.model_fields.items() if not field.description] == []
    with pytest.raises(ValidationError, match="indx"):
        model.model_validate({"indx": "orders"})


def test_a_mistake_in_the_configuration_does_not_show_the_password() -> None:
    with pytest.raises(ValidationError) as raised:
        config_model("opensearch").model_validate({"url": "ftp://user:SECRET@host", "index": "orders"})
    assert "SECRET" not in str(raised.value)
    assert "SECRET" not in repr(config_model("redis").model_validate({"url": "redis://:SECRET@h", "key": "a:{id}"}))


@pytest.mark.parametrize(
    "wanted", [{"gc_deletes": "1s"}, {"index": {"gc_deletes": "1s"}}, {"index.translog": {"durability": "async"}}]
)
def test_settings_that_would_break_a_promise_are_refused(wanted: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="cannot be set"):
        config_model("opensearch").model_validate({"url": "http://h", "index": "i", "settings": wanted})


def test_the_longest_late_write_is_far_below_the_horizon() -> None:
    fields = SinkConfig.model_fields
    limits = [
        limit.le
        for name in ("retry_seconds", "request_seconds")
        for limit in fields[name].metadata
        if hasattr(limit, "le")
    ]
    assert sum(limits) * 2 < HORIZON_SECONDS


@pytest.mark.parametrize("kind", kinds())
def test_opening_sends_nothing(kind: str) -> None:
    config = {
        "opensearch": {"url": "http://127.0.0.1:1", "index": "orders"},
        "redis": {"url": "redis://127.0.0.1:1/0", "key": "product:{id}"},
    }[kind]
    parcel = pickle.dumps((kind, config, SinkContext("shop", "f", ("id",))))
    open_sink(*pickle.loads(parcel)).close()  # noqa: S301


# -- names in Redis ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("product", "must name every key column"),
        ("product:{id}:{name}", "must name every key column"),
        ("product:{id}:{id}", "must name every key column"),
        ("{id}", "must start with some text"),
        ("driftless:{id}", "kept for our own records"),
        ("drift{id}", "kept for our own records"),
        ("d{id}", "kept for our own records"),
        ("product:{id!r}", "only plain"),
        ("product:{id:>9}", "only plain"),
        ("{{product}}:{id}", "only plain"),
        ("product:{id", "expected '}'"),
    ],
)
def test_a_template_that_cannot_name_every_key_is_refused(template: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        open_sink("redis", {"url": "redis://h", "key": template}, SinkContext("shop", "f", ("id",)))


@pytest.mark.parametrize("template", ["p:{a}{b}", "p:{a}x{b}", "p:{a}%{b}", "p:{a}7{b}", "p:{a}é{b}"])
def test_columns_that_nothing_parts_are_refused(template: str) -> None:
    with pytest.raises(ValueError, match="separator"):
        Template.parse(template, ("a", "b"))


@pytest.mark.parametrize(
    ("template", "columns", "key", "name"),
    [
        ("product:{id}", ("id",), "42", "product:42"),
        ("product:{id}", ("id",), "a b@c.d/é", "product:a b@c.d/é"),
        ("product:{id}", ("id",), "a:b{c}%41\n", "product:a%3Ab%7Bc%7D%2541%0A"),
        ("product:{id}", ("id",), "", "product:"),
        ("product:{id}.json", ("id",), "a.json", "product:a.json.json"),
        ("line:{order}-{line}", ("order", "line"), '["a-b",7]', "line:a%2Db-7"),
        ("line:{line}-{order}", ("order", "line"), '["a-b",7]', "line:7-a%2Db"),
        (
            "line:{order}:no {line}",
            ("order", "line"),
            '["a b",12345678901234567890123.10]',
            "line:a%20b:no 12345678901234567890123.10",
        ),
        ("line:{order}:{line}", ("order", "line"), '[true,"é"]', "line:true:é"),
    ],
)
def test_names_are_made_so(template: str, columns: tuple[str, ...], key: str, name: str) -> None:
    parsed = Template.parse(template, columns)
    assert parsed.name(key) == name
    expected = (
        key
        if len(columns) == 1
        else json.dumps(
            [str(v) if not isinstance(v, bool) else "true" for v in json.loads(key, parse_float=str)],
            ensure_ascii=False,
            separators=(",", ":"),
        )
    )
    assert parsed.key(name) == expected


@pytest.mark.parametrize(
    "name", ["other:1", "product:1:views", "product:{1}", "product:%41", "product:%3a", "product:%", ""]
)
def test_a_name_that_no_key_has_is_nobodys(name: str) -> None:
    assert Template.parse("product:{id}", ("id",)).key(name) is None


_awkward = st.text(st.sampled_from("ab-:%{}x2D3A\n"), max_size=6) | st.text(max_size=6)


@settings(deadline=None, derandomize=True)
@given(left=st.tuples(_awkward, _awkward), right=st.tuples(_awkward, _awkward))
@pytest.mark.parametrize("template", ["p:{a}:{b}", "p:{a}-{b}", "p:{a}x-2{b}", "p{b}:a:{a}:", "p:{a}--{b}%"])
def test_no_two_keys_have_the_same_name(template: str, left: tuple[str, str], right: tuple[str, str]) -> None:
    parsed = Template.parse(template, ("a", "b"))
    one, other = (json.dumps(pair, ensure_ascii=False, separators=(",", ":")) for pair in (left, right))
    assert (parsed.name(one) == parsed.name(other)) == (left == right)
    assert json.loads(parsed.key(parsed.name(one)) or "") == list(left)


@settings(deadline=None, derandomize=True)
@given(left=_awkward, right=_awkward)
def test_no_two_single_keys_have_the_same_name(left: str, right: str) -> None:
    parsed = Template.parse("p:{a}", ("a",))
    assert (parsed.name(left) == parsed.name(right)) == (left == right)
    assert parsed.key(parsed.name(left)) == left


def test_followers_with_awkward_names_do_not_share_records() -> None:
    assert Names("a:b", "c").follower != Names("a", "b:c").follower
    assert "{" not in Names("{x}", "{y}").follower


# -- the wire ---------------------------------------------------------------------------------------------------


def test_a_batch_is_cut_by_rows_and_by_bytes() -> None:
    batch = writes(*(upsert(f"{n:02}", n, "x" * 98) for n in range(10)), upsert("big", 1, "x" * 1000), delete("99", 1))
    pieces = list(slices(batch, rows=4, size=350))
    assert [piece.num_rows for piece in pieces] == [3, 3, 3, 1, 1, 1]
    assert pa.Table.from_batches(pieces).to_pylist() == batch.to_pylist()
    assert [piece.num_rows for piece in slices(batch, rows=4, size=10**6)] == [4, 4, 4]
    assert list(slices(batch[:0], rows=4, size=350)) == []


def test_a_bulk_body_is_exact_to_the_byte() -> None:
    batch = writes(upsert("1", 7, '{"a": 1.10}'), delete('q"\n\\', 8), upsert("é", 9, '{\n"b":2}'))
    lines = [
        '{"index":{"_id":"1","version":7,"version_type":"external"}}',
        '{"a": 1.10}',
        '{"delete":{"_id":"q\\"\\n\\\\","version":8,"version_type":"external"}}',
        '{"index":{"_id":"é","version":9,"version_type":"external"}}',
        '{ "b":2}',
    ]
    assert bulk_body(batch) == ("\n".join(lines) + "\n").encode()
    assert bulk_body(batch[1:2]) == (lines[2] + "\n").encode()
    assert bulk_body(batch[2:]) == ("\n".join(lines[3:]) + "\n").encode()


def test_each_item_of_a_bulk_answer_is_judged_by_itself() -> None:
    def failed(status: int, kind: str) -> dict[str, object]:
        return {"index": {"status": status, "error": {"type": kind, "reason": "SECRET"}}}

    items = [
        {"index": {"status": 201}},
        failed(409, "version_conflict_engine_exception"),
        {"delete": {"status": 404}},
        failed(429, "opensearch_rejected_execution_exception"),
        failed(400, "mapper_parsing_exception"),
        failed(503, "unavailable_shards_exception"),
    ]
    batch = writes(*(upsert(str(n), n, {}) for n in range(6)))
    verdict = judge({"errors": True, "items": items}, batch)
    assert (verdict.written, verdict.stale, verdict.again) == (2, 1, [3, 5])
    assert verdict.rejected == [Rejected("4", 4, "mapper_parsing_exception")]
    with pytest.raises(ValueError, match="6 writes were sent, 1 were answered"):
        judge({"errors": False, "items": items[:1]}, batch)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            {
                "type": "mapper_parsing_exception",
                "reason": "failed to parse field [n] of type [long] in document with id '1'. "
                "Preview of field's value: 'SECRET'",
                "caused_by": {"type": "illegal_argument_exception", "reason": 'For input string: "SECRET"'},
            },
            "mapper_parsing_exception: failed to parse field [n] of type [long]; illegal_argument_exception",
        ),
        ({"type": "x_exception", "reason": "Value [SECRET] is out of range: field [SECRET]"}, "x_exception"),
        ({"type": "x_exception", "reason": None}, "x_exception"),
    ],
)
def test_reasons_hold_no_values(error: dict[str, object], expected: str) -> None:
    assert reason(error) == expected


@pytest.mark.parametrize("more", ["", r"\ud800", "\x01"], ids=["usual", "half a surrogate", "a control character"])
def test_documents_are_cut_out_of_answers_as_they_are(more: str) -> None:
    document = f'{{"n": 1.10,"sort":[2],"_source":"{more}"}}'
    mget = (
        '{"docs":[{"_id":"a\\"_source\\":","found":false},{"_index":"x","_id":"c","error":{"type":"t","reason":"r"}},'
        f'{{"_id":"b","_version":9223372036854775807,"found":true,"_source":{document}}}]}}'
    )
    assert [(hit.id, hit.version, hit.document, hit.error) for hit in hits(mget, "docs")] == [
        ('a"_source":', 0, None, None),
        ("c", 0, None, {"type": "t", "reason": "r"}),
        ("b", 9223372036854775807, document, None),
    ]
    found = f'{{"_id":"1","_version":3,"_source":{document},"sort":[7]}}'
    search = '{"pit_id":"x","hits":{"max_score":null,"hits":[' + found + "]}}"
    assert [(hit.sort, hit.version, hit.document) for hit in hits(search, "hits")] == [([7], 3, document)]
    assert hits('{"hits":{"hits":[]}}', "hits") == []


# -- trying again -----------------------------------------------------------------------------------------------


def test_tries_end_at_the_bound_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(sinks._retry, "time", clock)
    times = [clock.now for _ in sinks._retry.attempts(120)]
    assert times[0] == 0
    assert times[-1] == 120
    assert len(times) > 12
    assert list(sinks._retry.attempts(0)) == [0]


def test_waits_are_jittered_in_full_and_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        asked.append((low, high))
        return high

    monkeypatch.setattr(random, "uniform", uniform)
    assert [sinks._retry.pause(tries) for tries in (0, 1, 2, 6, 7, 1000)] == [0.1, 0.2, 0.4, 6.4, 10.0, 10.0]
    assert {low for low, _ in asked} == {0}


def test_what_became_of_batches_adds_up() -> None:
    refused = Rejected("1", 1, "no")
    assert Applied(1, 2, (refused,)) + Applied(3, 4) == Applied(4, 6, (refused,))
