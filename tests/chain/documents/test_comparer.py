"""The comparer must be able to fail: every kind of corruption, planted by hand in both kinds of store, is found."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import redis

from stack import Endpoints
from tests.support.compare import Difference, OpenSearch, Redis, Store, View, compare, parse, same

pytestmark = pytest.mark.server

VIEW = View("thing", "public.things", fields={"id": "id", "name": "name", "amount": "amount"})


class Writable:
    """Documents put into a store by hand, as a follower would have."""

    def __init__(self, endpoints: Endpoints, kind: str) -> None:
        self.unique = f"c{uuid.uuid4().hex[:8]}"
        self.search = OpenSearch(endpoints.opensearch, self.unique)
        self.client: Any = redis.Redis.from_url(endpoints.redis)
        self.cache = Redis(endpoints.redis, f"{self.unique}:{{id}}", ("id",))
        self.store: Store = self.search if kind == "opensearch" else self.cache
        if kind == "opensearch":
            self.search.call("PUT", f"/{self.unique}", {"mappings": {"dynamic": False}})

    def put(self, key: int, document: str) -> None:
        if self.store is self.cache:
            self.client.set(f"{self.unique}:{key}", document)
        else:
            self.search.send("PUT", f"/{self.unique}/_doc/{key}", document.encode())

    def drop(self, key: int) -> None:
        if self.store is self.cache:
            self.client.delete(f"{self.unique}:{key}")
        else:
            self.search.call("DELETE", f"/{self.unique}/_doc/{key}")

    def remove(self) -> None:
        if self.store is self.cache:
            for name in self.client.scan_iter(match=f"{self.unique}:*"):
                self.client.delete(name)
        else:
            self.search.call("DELETE", f"/{self.unique}")
        self.client.close()


@pytest.fixture(params=["opensearch", "redis"])
def store(endpoints: Endpoints, request: pytest.FixtureRequest) -> Iterator[Writable]:
    made = Writable(endpoints, request.param)
    yield made
    made.remove()


@pytest.fixture
def filled(store: Writable, connection: psycopg.Connection) -> Writable:
    """A table of 2,500 rows, and all of their documents."""
    connection.execute("create table things (id int primary key, name text, amount numeric, hidden text)")
    connection.execute(
        "insert into things select n, 'thing ' || n, n * 12345678901234567890.10, 'x' from generate_series(1, 2500) n"
    )
    documents = connection.execute(
        "select id, jsonb_build_object('id', id, 'name', name, 'amount', amount)::text from things"
    ).fetchall()
    if store.store is store.cache:
        store.client.mset({f"{store.unique}:{key}": document for key, document in documents})
    else:
        actions = [f'{{"index":{{"_id":"{key}"}}}}\n{document}\n' for key, document in documents]
        store.search.send("POST", f"/{store.unique}/_bulk", "".join(actions).encode())
    return store


def test_a_store_that_holds_every_document_is_found_equal(filled: Writable, connection: psycopg.Connection) -> None:
    assert compare(connection, VIEW, filled.store) == Difference(2500)


def test_each_planted_corruption_is_found_and_nothing_else(filled: Writable, connection: psycopg.Connection) -> None:
    row = "jsonb_build_object('id', id, 'name', name, 'amount', amount)::text"
    old = connection.execute(f"select {row} from things where id = 40").fetchone()
    connection.execute("update things set name = 'newer' where id = 40")
    assert old is not None
    amounts = connection.execute("select (amount + 0.01)::text, amount::text from things where id = 10").fetchone()
    assert amounts is not None
    filled.put(10, f'{{"id": 10, "name": "thing 10", "amount": {amounts[0]}}}')  # flip: beyond what a float can tell
    filled.drop(20)
    filled.put(99999, '{"id": 99999, "name": "ghost", "amount": 1}')  # add
    filled.put(40, old[0])  # stale
    name = (lambda key: f"{filled.unique}:{key}") if filled.store is filled.cache else str
    found = compare(connection, VIEW, filled.store)
    assert found == Difference(2500, frozenset({name(20)}), frozenset({name(99999)}), frozenset({name(10), name(40)}))
    assert "name should be 'newer', is 'thing 40'" in str(found)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("1.10", "1.1", True),
        ("9007199254740993", "9007199254740992", False),
        ("0.1", "0.1000000000000000055511151231257827", False),
        ("true", "1", False),
        ('"1"', "1", False),
        ("null", "false", False),
        ('{"a": null}', "{}", False),
        ("[1, 2]", "[2, 1]", False),
        ('{"a": 1, "b": [true]}', '{"b": [true], "a": 1.0}', True),
    ],
)
def test_json_is_compared_by_type_and_decimal_value(left: str, right: str, equal: bool) -> None:
    assert same(parse(left), parse(right)) is equal


@pytest.mark.parametrize(
    ("key", "text"),
    [(("a-b", "c"), '["a-b","c"]'), (('ü"\n', parse("7")), '["ü\\"\\n",7]'), ((parse("7"),), "7"), (("a",), "a")],
)
def test_a_key_is_its_text_or_a_compact_array(key: tuple[Any, ...], text: str) -> None:
    assert OpenSearch("", "").name(key) == text


def test_a_redis_name_holds_every_key_column_with_its_separators_escaped() -> None:
    store = Redis("", "pair:{region}:{n}", ("region", "n"))
    assert store.name(("a:b%{c}", parse("7"))) == "pair:a%3Ab%25%7Bc%7D:7"
