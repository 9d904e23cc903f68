"""Every document against the database: read as an application reads, compared by exact value."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, LiteralString

import psycopg
import redis
import urllib3
from psycopg import sql

_PAGE = 2_000


@dataclass(frozen=True)
class Comparison:
    """How many rows there are, and which have no document, which documents have no row, and which differ."""

    rows: int
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    different: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        return not (self.missing or self.extra or self.different)

    def __str__(self) -> str:
        return (
            f"{self.rows:,} documents compared: {len(self.missing):,} missing, {len(self.extra):,} extra, "
            f"{len(self.different):,} different"
        )


def parse(text: str | bytes) -> Any:
    """JSON with every number exact, and never equal to a truth value as Python's own are."""
    return json.loads(text, parse_float=_number, parse_int=_number)


def _number(text: str) -> tuple[str, Decimal]:
    return "number", Decimal(text)


def compare(rows: Mapping[str, str], documents: Iterable[tuple[str, Any]]) -> Comparison:
    """`rows`: key -> JSON text. `documents`: key and parsed document; one that is given twice counts once."""
    seen, extra, different = set(), set(), set()
    for key, document in documents:
        seen.add(key)
        row = rows.get(key)
        if row is None:
            extra.add(key)
        elif parse(row) != document:
            different.add(key)
    missing = rows.keys() - seen
    return Comparison(len(rows), *(tuple(sorted(keys)) for keys in (missing, extra, different)))


ROW = "select id::text, to_jsonb(t)::text from {} t"
ORDER = """
select o.id::text, jsonb_build_object(
    'id', o.id, 'status', o.status, 'placed_on', o.placed_on, 'total', o.total, 'note', o.note,
    'customer', (select jsonb_build_object('id', c.id, 'name', c.name, 'city', c.city)
                 from customers c where c.id = o.customer_id),
    'lines', (select jsonb_agg(jsonb_build_object(
                  'line', l.line, 'quantity', l.quantity, 'price', l.price,
                  'product', case when p.id is not null then
                      jsonb_build_object('id', p.id, 'title', p.title, 'category', p.category) end) order by l.line)
              from order_lines l left join products p on p.id = l.product_id where l.order_id = o.id))::text
from {} o
"""
"""What an order's document must be: written by hand, and not as driftless would."""


def rows(connection: psycopg.Connection, table: str, statement: LiteralString = ROW) -> dict[str, str]:
    """Primary key -> the document as Postgres itself writes it in JSON, in UTC."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("set local timezone to 'UTC'")
        cursor.execute(sql.SQL(statement).format(sql.Identifier(table)))
        return dict(cursor.fetchall())


def index_documents(url: str, index: str) -> Iterator[tuple[str, Any]]:
    """`_id` and `_source` of every document that a search of the index finds."""
    http = urllib3.PoolManager()

    def ask(path: str, body: object) -> Any:
        answer = http.request("POST", f"{url}{path}", json=body)
        if answer.status != 200:
            raise RuntimeError(f"OpenSearch answered {path.partition('?')[0]} with {answer.status}")
        return parse(answer.data)

    ask(f"/{index}/_refresh", {})
    page = ask(f"/{index}/_search?scroll=1m", {"size": _PAGE, "sort": ["_doc"]})
    while hits := page["hits"]["hits"]:
        for hit in hits:
            yield hit["_id"], hit["_source"]
        page = ask("/_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]})
    http.request("DELETE", f"{url}/_search/scroll/{page['_scroll_id']}")


def cache_documents(url: str, key: str) -> Iterator[tuple[str, Any]]:
    """What stands for `{id}` in the name, and the document, for every name of this form."""
    before, after = key.split("{id}")
    with redis.Redis.from_url(url, decode_responses=True) as client:
        names = list(client.scan_iter(match=f"{before}*{after}", count=_PAGE))
        for start in range(0, len(names), _PAGE):
            page = names[start : start + _PAGE]
            values: Any = client.mget(page)
            for name, value in zip(page, values, strict=True):
                if value is not None:
                    yield name[len(before) : len(name) - len(after)], parse(value)
