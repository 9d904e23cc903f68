"""Values that cannot pass: each holds up its own document, and never a follower, a proof, or what others see."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.chain.conftest import MakePipeline, running
from tests.support.compare import Redis, View
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

DEEP = "[" * 1200 + "]" * 1200
DIGITS = '{"n":' + "9" * 1200 + "}"
ODD = {
    1: '{"a": 1}',
    2: '{"a":"SECRET\\u0000"}',
    3: '{"n":1e999999}',
    4: DEEP,
    5: DIGITS,
    6: '{"a": 1, "a": 2}',
    7: '{"a":"\\ud800"}',
}
"""What a column of type json may hold."""
BEYOND = {"2", "3", "7"}
"""Of these, what Postgres itself cannot show as jsonb."""
GRIDS = {1: "{a,b}", 2: "{{SECRET,b},{c,d}}", 3: "[0:1]={x,y}", 4: "{}", 5: "{NULL,z}"}
VALUE = "SECRET"
"""Of a row: in no message, log or status."""


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table odd (id int primary key, j json)")
    source.execute("create table grids (id int primary key, t text[], n int[], at timestamptz[])")
    source.execute("create table people (id int primary key, name text, born date)")
    source.execute("create table orders (id int primary key, note text)")
    source.execute("create table lines (id int primary key, of int, j json, tags text[])")
    for n, text in ODD.items():
        source.execute("insert into odd values (%s, %s::json)", (n, text))
        source.execute("insert into lines values (%s, %s, %s::json, '{a}')", (n, n % 2, text))
    for n, text in GRIDS.items():
        source.execute("insert into grids values (%s, %s::text[], '{1,null}', '{}')", (n, text))
    source.execute("insert into grids values (6, null, '{{1,2},{3,4}}', null), (7, null, null, '{{now},{now}}')")
    source.execute("insert into people select n, 'name ' || n, null from generate_series(1, 20) n")
    source.execute("insert into orders values (0, 'even'), (1, 'odd')")
    pipeline = make_pipeline(
        View("odd", "public.odd"),
        View("grid", "public.grids"),
        View("person", "public.people"),
        tables={f"public.{name}": {} for name in ("odd", "grids", "people", "orders", "lines")},
    )
    lines = {"table": "public.lines", "by": "of", "columns": ["id", "j"]}
    pipeline.follow("order-cache", View("order", "public.orders"), {"redis": {}})
    pipeline.sync["views"]["order"] = {"root": "public.orders", "many": {"lines": lines}}
    pipeline.follow("tagged-cache", View("tagged", "public.orders"), {"redis": {}})
    tagged = {"table": "public.lines", "by": "of", "columns": ["id", "tags"]}
    pipeline.sync["views"]["tagged"] = {"root": "public.orders", "columns": ["id"], "many": {"lines": tagged}}
    pipeline.apply()
    running(pipeline)
    return pipeline


def texts(pipeline: Pipeline, follower: str) -> dict[int, str]:
    """Key -> the document as a reader of the cache gets it."""
    store = pipeline.stores[follower]
    assert isinstance(store, Redis)
    return {int(name.rpartition(":")[2]): text for name, text in store.texts().items()}


def held(pipeline: Pipeline, follower: str) -> dict[str, str]:
    """Key -> why it is quarantined."""
    listed = pipeline.here("quarantine", "list", follower, "--json").json()
    return {entry["key"]: entry["reason"] for entry in listed["quarantined"]}


def verify(pipeline: Pipeline, *arguments: str, code: int) -> dict[str, dict[str, Any]]:
    done = pipeline.here("verify", *arguments, "--json", seconds=400)
    assert done.code == code, (done.out, done.err)
    assert VALUE not in done.out + done.err
    return {follower["name"]: follower for follower in done.json()["followers"]}


def test_json_is_carried_as_it_is_however_deep_and_long(pipeline: Pipeline) -> None:
    pipeline.wait("odd-cache")
    expected = {n: f'{{"j":{text},"id":{n}}}' for n, text in ODD.items()}
    expected[6] = '{"j":{"a":2},"id":6}'
    assert texts(pipeline, "odd-cache") == expected
    pipeline.connection.execute("update odd set j = '[1]' where id = 1")
    pipeline.wait("odd-cache")
    assert texts(pipeline, "odd-cache")[1] == '{"j":[1],"id":1}'
    pipeline.wait("order-cache")
    order = texts(pipeline, "order-cache")[0]
    assert DEEP in order
    assert "1e999999" in texts(pipeline, "order-cache")[1]


@pytest.mark.soak
def test_what_cannot_be_compared_is_named_and_all_others_are_proven(pipeline: Pipeline) -> None:
    pipeline.wait()
    said = verify(pipeline, "odd-cache", "order-cache", code=1)
    one = said["odd-cache"]
    counts = {name: one[name] for name in ("missing", "extra", "different", "uncomparable", "quarantined", "stage")}
    assert counts == {
        "missing": 0, "extra": 0, "different": 0, "uncomparable": 3, "quarantined": 0, "stage": None,
    }, one  # fmt: skip
    assert one["source_documents"] == one["follower_documents"] == len(ODD)
    assert {s["key"]: (s["problem"], s["detail"]) for s in one["samples"]} == {
        key: ("uncomparable", f"public.odd {key}: j holds what jsonb cannot") for key in BEYOND
    }
    order = said["order-cache"]
    assert (order["in_sync"], order["uncomparable"], order["missing"], order["different"]) == (False, 2, 0, 0), order
    assert any(s["detail"] == "public.lines 2: j holds what jsonb cannot" for s in order["samples"]), order
    # A document that differs is found beside them.
    store = pipeline.stores["odd-cache"]
    assert isinstance(store, Redis)
    client = _client(store)
    name = store.name((5,))
    before = client.get(name)
    client.set(name, '{"id":5,"j":1}')
    said = verify(pipeline, "odd-cache", code=1)
    assert {s["key"] for s in said["odd-cache"]["samples"] if s["problem"] == "different"} == {"5"}
    client.set(name, str(before))
    for key in BEYOND:
        pipeline.connection.execute("delete from odd where id = %s", (int(key),))
    pipeline.wait("odd-cache")
    said = verify(pipeline, "odd-cache", code=0)
    assert (said["odd-cache"]["in_sync"], said["odd-cache"]["uncomparable"]) == (True, 0)


def _client(store: Redis) -> Any:
    import redis

    return redis.Redis.from_url(store.url, decode_responses=True)


@pytest.mark.soak
def test_an_array_that_the_log_loses_is_quarantined_and_never_made_up(pipeline: Pipeline) -> None:
    pipeline.wait("grid-cache")
    pipeline.wait("grid-search")
    given = {1: '["a","b"]', 3: '["x","y"]', 4: "[]", 5: '[null,"z"]'}
    whole = {n: f'{{"id":{n},"t":{t},"n":[1,null],"at":[]}}' for n, t in given.items()}
    assert texts(pipeline, "grid-cache") == whole
    for follower in ("grid-cache", "grid-search"):
        reasons = held(pipeline, follower)
        columns = {"2": "t", "6": "n", "7": "at"}
        assert reasons.keys() == columns.keys()
        for key, column in columns.items():
            assert reasons[key].startswith(f"{pipeline.name}.public.grids/")
            assert f": column {column}: an array of several dimensions" in reasons[key]
    said = verify(pipeline, "grid-cache", "grid-search", code=1)
    for one in said.values():
        assert (one["in_sync"], one["quarantined"], one["stage"], one["missing"]) == (False, 3, None, 0), one


@pytest.mark.soak
def test_a_lost_array_keeps_its_document_as_it_was_until_its_next_value(pipeline: Pipeline) -> None:
    pipeline.wait("grid-cache")
    before = texts(pipeline, "grid-cache")[1]
    allowed = verify(pipeline, "grid-cache", "--allow-quarantined", code=0)
    assert (allowed["grid-cache"]["in_sync"], allowed["grid-cache"]["quarantined"]) == (True, 3)
    pipeline.connection.execute("update grids set t = '{{p,q}}' where id = 1")
    pipeline.wait("grid-cache")
    assert held(pipeline, "grid-cache").keys() == {"1", "2", "6", "7"}
    assert texts(pipeline, "grid-cache")[1] == before
    retried = pipeline.here("quarantine", "retry", "grid-cache", "1", "--json").json()
    assert (retried["written"], retried["left"]) == (0, 4)
    shown = pipeline.here("quarantine", "show", "grid-cache", "1", "--values")
    assert shown.code == 0, shown.err
    pipeline.connection.execute("update grids set t = '{r}', n = null, at = null where id in (1, 2, 6, 7)")
    pipeline.wait("grid-cache")
    assert held(pipeline, "grid-cache") == {}
    verify(pipeline, "grid-cache", code=0)


def test_a_follower_stops_before_it_forgets_the_values_of_a_renamed_column(pipeline: Pipeline) -> None:
    pipeline.connection.execute("alter table people add column nick text")
    pipeline.connection.execute("update people set name = 'new' where id = 1")
    pipeline.wait("person-cache")
    pipeline.connection.execute("alter table people rename column name to surname")
    pipeline.connection.execute("update people set surname = 'SECRET' where id in (1, 2)")

    def failed() -> Any:
        status = pipeline.here("status", "--json")
        found = {f["name"]: f for f in status.json()["followers"]}
        return (
            status.code == 1 and all(found[n]["state"] == "failed" for n in ("person-cache", "person-search")) and found
        )

    found = until("both followers to stop", failed, 60)
    store = pipeline.stores["person-cache"]
    assert isinstance(store, Redis)
    assert texts(pipeline, "person-cache")[2] == '{"id":2,"name":"name 2","born":null}'
    assert texts(pipeline, "person-cache")[1] == '{"id":1,"name":"new","born":null}'
    job = running(pipeline)
    assert "has no column name" in job.output()
    assert VALUE not in job.output()
    assert VALUE not in str(found)


def test_a_view_stops_at_a_value_that_the_log_does_not_carry_and_names_its_row(pipeline: Pipeline) -> None:
    """Other views of the same table go on."""
    before = texts(pipeline, "tagged-cache")
    pipeline.connection.execute("insert into lines values (50, 0, '50', '{{SECRET,b}}')")

    def failed() -> Any:
        status = pipeline.status()
        return next(view for view in status["views"] if view["name"] == "tagged")["state"] == "failed" and status

    status = until("the view to stop", failed, 60)
    said = running(pipeline).output()
    assert f"{pipeline.name}.public.lines/" in said
    assert "column tags: an array of several dimensions, in the row with the key 50" in said
    assert VALUE not in said
    assert VALUE not in str(status)
    assert texts(pipeline, "tagged-cache") == before
    pipeline.wait("order-cache")
    assert '{"id":50,"j":50}' in texts(pipeline, "order-cache")[0]
