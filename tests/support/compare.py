"""The independent comparer: what Postgres says each document must be, against what a store gives its readers.

It shares no code with the product, so that a mistake of the product's cannot hide in it too. Numbers are compared by
decimal value, never as floats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any, Protocol
from urllib.parse import quote

import psycopg
import redis
import urllib3
from psycopg import sql

_PAGE = 1000
_SAMPLES = 5


def parse(text: str | bytes) -> Any:
    """JSON with every number as a Decimal."""
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def same(left: Any, right: Any) -> bool:
    """Equality of parsed JSON. Python alone takes true for 1."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@dataclass(frozen=True)
class View:
    """A view of one table: its key columns in key order, and name in the document -> column (None: all as they are).

    `relation`: schema and table, where `table` cannot be split at its dot.
    `where`: SQL that says which rows have a document, as Postgres takes it.
    `instead`: column -> SQL of what is shown in place of its value.
    """

    name: str
    table: str
    key: tuple[str, ...] = ("id",)
    fields: Mapping[str, str] | None = None
    relation: tuple[str, str] | None = None
    where: str = "true"
    instead: Mapping[str, str] = field(default_factory=dict)

    def document(self, row: dict[str, Any]) -> dict[str, Any]:
        return row if self.fields is None else {name: row[column] for name, column in self.fields.items()}


class Store(Protocol):
    """Where a follower keeps its documents."""

    def name(self, key: tuple[Any, ...]) -> str:
        """What the document of a key is called there."""

    def documents(self) -> dict[str, Any]:
        """Everything that readers can see, parsed, by name."""

    def get(self, name: str) -> Any:
        """One document as a reader gets it at this moment, or None."""


@dataclass(frozen=True)
class OpenSearch:
    """The documents behind an alias, read over plain HTTP."""

    url: str
    index: str

    def name(self, key: tuple[Any, ...]) -> str:
        return _text(key[0]) if len(key) == 1 else "[" + ",".join(map(_json, key)) + "]"

    def documents(self) -> dict[str, Any]:
        return {hit["_id"]: hit["_source"] for hit in self._hits()}

    def versions(self) -> dict[str, tuple[int, int]]:
        """Id -> (_version, _seq_no): a document that was not written again has the same two."""
        return {hit["_id"]: (int(hit["_version"]), int(hit["_seq_no"])) for hit in self._hits()}

    def get(self, name: str) -> Any:
        """By id, which OpenSearch answers without waiting for a refresh."""
        found = self.call("GET", f"/{self.index}/_doc/{quote(name, safe='')}", missing=True)
        return found["_source"] if found and found["found"] else None

    def _hits(self) -> Iterator[dict[str, Any]]:
        self.call("POST", f"/{self.index}/_refresh")
        query = {"size": _PAGE, "sort": ["_doc"], "version": True, "seq_no_primary_term": True}
        # A scroll sees the index as of one moment.
        page = self.call("POST", f"/{self.index}/_search?scroll=2m", query)
        while hits := page["hits"]["hits"]:
            yield from hits
            page = self.call("POST", "/_search/scroll", {"scroll": "2m", "scroll_id": page["_scroll_id"]})
        self.call("DELETE", "/_search/scroll", {"scroll_id": page["_scroll_id"]})

    def call(self, method: str, path: str, body: object = None, *, missing: bool = False) -> Any:
        """One request with JSON; the answer's numbers are Decimals."""
        return self.send(method, path, None if body is None else json.dumps(body).encode(), missing=missing)

    def send(self, method: str, path: str, data: bytes | None, *, missing: bool = False) -> Any:
        """One request with these very bytes. `missing`: None for a 404 instead of a failure."""
        try:
            answer = _http().request(method, self.url + path, body=data, headers={"Content-Type": "application/json"})
        except urllib3.exceptions.HTTPError as exc:
            raise ConnectionError(f"{method} {path}: {exc}") from exc
        if missing and answer.status == 404:
            return None
        assert answer.status < 300, f"{method} {path}: {answer.status}: {answer.data[:500]!r}"
        return parse(answer.data) if answer.data else None


@cache
def _http() -> urllib3.PoolManager:
    return urllib3.PoolManager(timeout=30, retries=False)


@cache
def _redis(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)


@dataclass(frozen=True)
class Redis:
    """The documents under names of one form, `product:{id}`, read with the plain client."""

    url: str
    template: str
    key: tuple[str, ...]

    def name(self, key: tuple[Any, ...]) -> str:
        values = dict(zip(self.key, map(_text, key), strict=True))
        # What parts two columns may not stand in a value, nor may anything that has a meaning in names.
        parting = set("".join(re.split(r"\{[^{}]+\}", self.template)[1:-1])) - set("%")
        escaped = set("%{}:\x7f").union(map(chr, range(32)), {c for c in parting if not c.isalnum()})
        safe = {n: "".join(f"%{ord(c):02X}" if c in escaped else c for c in v) for n, v in values.items()}
        return re.sub(r"\{([^{}]+)\}", lambda match: safe[match[1]], self.template)

    def documents(self) -> dict[str, Any]:
        return {name: parse(text) for name, text in self.texts().items()}

    def texts(self) -> dict[str, str]:
        """The documents as they are stored."""
        client = _redis(self.url)
        prefix = re.sub(r"([\\*?\[\]])", r"\\\1", self.template.split("{")[0])
        names = sorted(set(client.scan_iter(match=f"{prefix}*", count=_PAGE)))
        found: dict[str, str] = {}
        for start in range(0, len(names), _PAGE):
            page = names[start : start + _PAGE]
            values: list[Any] = client.mget(page)
            found |= {name: value for name, value in zip(page, values, strict=True) if value is not None}
        return found

    def get(self, name: str) -> Any:
        found: Any = _redis(self.url).get(name)
        return None if found is None else parse(found)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Difference:
    """What a store holds otherwise than the source: names missing, names it should not have, names that differ."""

    documents: int = 0
    missing: frozenset[str] = frozenset()
    extra: frozenset[str] = frozenset()
    different: frozenset[str] = frozenset()
    samples: tuple[str, ...] = field(default=(), compare=False)

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.different)

    def __str__(self) -> str:
        counts = ", ".join(f"{len(getattr(self, kind))} {kind}" for kind in ("missing", "extra", "different"))
        return "\n  ".join([f"of {self.documents} documents: {counts}", *self.samples])


def rows(
    connection: psycopg.Connection, *relation: str, where: str = "true", instead: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Every row of a schema's table, or those of a condition, as `to_jsonb` gives it in UTC, some columns as `instead`
    says.
    """
    pairs = [part for column, shown in (instead or {}).items() for part in (sql.Literal(column), sql.SQL(shown))]
    with connection.transaction(), connection.cursor() as cursor:
        # What a server, a database or a role is set to must not show in documents.
        for setting in ("timezone to UTC", "datestyle to ISO", "intervalstyle to postgres", "bytea_output to hex"):
            cursor.execute(f"set local {setting}".encode())
        cursor.execute("set local extra_float_digits to 1")
        query = sql.SQL("select (to_jsonb(t) || jsonb_build_object({}))::text from {} t where {}")
        cursor.execute(query.format(sql.SQL(", ").join(pairs), sql.Identifier(*relation), sql.SQL(where)))
        return [parse(text) for (text,) in cursor.fetchall()]


def compare(connection: psycopg.Connection, view: View, store: Store) -> Difference:
    """Compare every document of a view. Meaningful once writes have stopped and the follower has applied them."""
    expected = {}
    for row in rows(connection, *(view.relation or view.table.split(".")), where=view.where, instead=view.instead):
        expected[store.name(tuple(row[column] for column in view.key))] = view.document(row)
    found = store.documents()
    missing, extra = expected.keys() - found.keys(), found.keys() - expected.keys()
    different = {name for name in expected.keys() & found.keys() if not same(expected[name], found[name])}
    samples = [f"missing: {name!r}" for name in sorted(missing)[:_SAMPLES]]
    samples += [f"extra: {name!r}: {found[name]!r:.200}" for name in sorted(extra)[:_SAMPLES]]
    samples += [f"different: {_fields(name, expected[name], found[name])}" for name in sorted(different)[:_SAMPLES]]
    return Difference(len(expected), frozenset(missing), frozenset(extra), frozenset(different), tuple(samples))


def _fields(name: str, expected: Any, found: Any) -> str:
    if not isinstance(found, dict):
        return f"{name!r}: a document was expected, found {found!r:.100}"
    wrong = [key for key in sorted({*expected, *found}) if not same(expected.get(key, ...), found.get(key, ...))]
    return f"{name!r}: " + "; ".join(
        f"{key} should be {expected.get(key, ...)!r:.100}, is {found.get(key, ...)!r:.100}" for key in wrong[:4]
    )
