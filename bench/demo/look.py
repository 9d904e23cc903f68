"""A look at the stores as an application has it, and how to take one by hand."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import redis
import urllib3

from bench.demo.compare import parse
from bench.demo.place import CACHE_KEY, COMMAND, ORDER_INDEX, RUSH_KEY, SEARCH_INDEX, SERVE_PORT, SOLD_KEY, Place
from bench.demo.screen import columns

SEARCH = "waterproof jacket"
_ABSENT = ("-", "-")
_SOLD = """
select to_char(date_trunc('minute', now() at time zone 'UTC'), 'YYYYMMDD-HH24MI'), coalesce(sum(quantity), 0)
from sales where product_id = %s and sold_at >= date_trunc('minute', now())
"""


@dataclass(frozen=True)
class Hit:
    product: int
    title: str
    price: str


class Stores:
    """Reads from database, index and cache. Close it."""

    def __init__(self, place: Place) -> None:
        self._url = place.endpoints.opensearch
        self._http = urllib3.PoolManager(timeout=30.0)
        self._redis: Any = redis.Redis.from_url(place.endpoints.redis)
        self._database = psycopg.connect(place.dsn, autocommit=True)

    def __enter__(self) -> Stores:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.clear()
        self._redis.close()
        self._database.close()

    def search(self) -> list[Hit]:
        """The three best products for `SEARCH`."""
        match = {"query": SEARCH, "fields": ["title^3", "description"], "operator": "and"}
        body = {"size": 3, "_source": ["title", "price"], "query": {"multi_match": match}}
        answer = self._http.request("POST", f"{self._url}/{SEARCH_INDEX}/_search", json=body)
        if answer.status != 200:  # not promoted yet
            return []
        hits = parse(answer.data)["hits"]["hits"]
        return [Hit(int(hit["_id"]), hit["_source"]["title"], f"{hit['_source']['price'][1]:.2f}") for hit in hits]

    def product(self, number: int) -> list[str]:
        """Price and stock of one product in database, cache and index, as lines."""
        row = self._database.execute(
            "select price::text, stock::text from products where id = %s", (number,)
        ).fetchone()
        cached = self._redis.get(CACHE_KEY.format(id=number))
        found = self._http.request("GET", f"{self._url}/{SEARCH_INDEX}/_doc/{number}")
        indexed = parse(found.data)["_source"] if found.status == 200 else None
        database = row or _ABSENT
        cells = [[f"product {number} in the", "price", "stock", ""], ["  database", *database, ""]]
        for store, document in (("cache", parse(cached) if cached else None), ("index", indexed)):
            shown = (f"{document['price'][1]:.2f}", f"{document['stock'][1]}") if document else _ABSENT
            cells.append([f"  {store}", *shown, "same" if shown == database else "on its way"])
        return columns(cells, right=(1, 2))

    def sales(self, number: int) -> list[str]:
        """How much of a product was sold in this minute, by database and cache, and the rushes that are over."""
        row = self._database.execute(_SOLD, (number,)).fetchone()
        assert row is not None
        minute, sold = row
        cached = self._redis.get(SOLD_KEY.format(product_id=number, minute=minute))
        counted = parse(cached)["sold"][1] if cached else 0
        texts = self._redis.mget([*self._redis.scan_iter(RUSH_KEY.partition("{")[0] + "*", count=50_000), ""])
        rushes = [int(parse(text)["sales"][1]) for text in texts if text]
        cells = [[f"product {number}, sold in this minute", f"{sold}", "in the database"]]
        cells += [["", f"{counted}", "in the cache" if counted == sold else "in the cache, on its way"]]
        cells += [["rushes that are over", f"{len(rushes)}", f"the longest of {max(rushes, default=0)} sales"]]
        return columns(cells, right=(1,))


def around(place: Place, stack_name: str) -> str:
    """How to look at what is left, with commands that can be copied."""
    servers, sync = place.endpoints, _short(place.sync)
    command, python = _short(COMMAND), _short(Path(sys.executable))
    dsn = f'"$(cat {_short(place.secret)})"'
    query = "select id, title, price, stock from products where id = 42"
    database = f"psql {dsn} -c '{query}'"
    if shutil.which("psql") is None:
        script = f'import psycopg, sys; print(psycopg.connect(sys.argv[1]).execute("{query}").fetchone())'
        database = f"{python} -c '{script}' {dsn}"
    name = CACHE_KEY.format(id=42)
    cache = f"redis-cli -u {servers.redis} get {name}"
    if shutil.which("redis-cli") is None:
        cache = f"""{python} -c 'import redis; print(redis.Redis.from_url("{servers.redis}").get("{name}").decode())'"""
    stop = stop_command(stack_name)
    return f"""\
The stack is up, with all that was made. To look around:

  {database}
  {cache}
  curl '{servers.opensearch}/{SEARCH_INDEX}/_doc/42?pretty'
  curl '{servers.opensearch}/{SEARCH_INDEX}/_search?pretty&size=3&q=title:(warm+wool+socks)'
  curl '{servers.opensearch}/{ORDER_INDEX}/_doc/42?pretty'

The pipeline is described in {sync}. Follow on, change a row in Postgres, and look again:

  {command} run -f {sync}
  {command} status --watch -f {sync}      (in another terminal)
  {command} serve -f {sync}      (and in a browser: http://127.0.0.1:{SERVE_PORT})

Stop the servers and keep their data: {stop}
Stop them and delete all of it:       {stop} --purge
"""


def stop_command(stack_name: str) -> str:
    """What ends the servers."""
    return f"{_short(COMMAND)} down" + ("" if stack_name == "default" else f" --name {stack_name}")


def _short(path: Path) -> str:
    """As seen from the working directory, where it lies in it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
