"""Events that are rows of a table: each counts once, whatever becomes of it, and whatever is read a second time."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.chain.conftest import MakePipeline
from tests.support.compare import Redis
from tests.support.machine import until
from tests.support.pipeline import Pipeline
from tests.support.topic import records

pytestmark = pytest.mark.server

SEED = int(os.environ.get("DRIFTLESS_TEST_SEED") or random.randrange(10**6))
LATENESS, WINDOW = 3.0, 5
SQL = (
    "SELECT window.start AS began, product, count(*) AS orders, sum(CAST(price AS DECIMAL(12,2))) AS spent "
    f"FROM orders GROUP BY window(at, '{WINDOW} seconds'), product"
)
SENT = f"SELECT window.start AS began, type, count(*) AS n FROM sent GROUP BY window(at, '{WINDOW} seconds'), type"
TABLE = (
    "drop table if exists orders, outbox, items; "
    "create table orders (id uuid primary key, product text not null, price numeric, at timestamptz, note text); "
    "create table outbox (id bigint primary key, type text not null, payload jsonb not null); "
    "create table items (id int primary key, name text)"
)


class Orders:
    """Writes orders of a seed into the table, and remembers what must be counted of them."""

    def __init__(self, connection: psycopg.Connection, seed: int) -> None:
        print(f"seed {seed}")
        self._connection = connection
        self._random = random.Random(seed)
        self.counted: dict[str, tuple[datetime, str, float]] = {}
        self.late: list[str] = []
        self.deleted = self.changed = 0

    def _id(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def history(self, count: int) -> None:
        """Rows of hours ago: a snapshot reads them, and none of them is late."""
        self._insert(count, lambda: self._random.uniform(60, 7200), late=False)

    def write(self, count: int) -> None:
        self._insert(count, lambda: self._random.uniform(0, 1.5), late=False)

    def write_late(self, count: int) -> None:
        self._insert(count, lambda: self._random.uniform(20, 60), late=True)

    def _insert(self, count: int, age: Any, *, late: bool) -> None:
        for _ in range(count):
            id_, product = self._id(), self._random.choice(["a", "b", "ü"])
            price = self._random.choice([1.25, 10.0, 0.5])
            at = (datetime.now(UTC) - timedelta(seconds=age())).replace(microsecond=0)
            self._connection.execute("insert into orders values (%s, %s, %s, %s)", (id_, product, price, at))
            if late:
                self.late.append(id_)
            else:
                self.counted[id_] = (at, product, price)

    def delete(self, count: int) -> None:
        """What was deleted stays counted."""
        done = self._connection.execute(
            "delete from orders where id in (select id from orders order by md5(id::text) limit %s)", (count,)
        )
        self.deleted += done.rowcount

    def change(self) -> None:
        """Updates, of a row and of a key: neither is an event."""
        ids = self._connection.execute("select id from orders order by id limit 2").fetchall()
        self._connection.execute("update orders set note = 'x' where id = %s", ids[0])
        self._connection.execute("update orders set id = %s where id = %s", (self._id(), *ids[1]))
        self.changed += 2
        self.deleted += 1  # of the old key

    def wanted(self, *, of: set[str] | None = None) -> dict[str, dict[str, Any]]:
        groups: dict[tuple[datetime, str], list[float]] = {}
        for id_, (at, product, price) in self.counted.items():
            if of is None or id_ in of:
                began = datetime.fromtimestamp(at.timestamp() // WINDOW * WINDOW, UTC)
                groups.setdefault((began, product), []).append(price)
        return {
            json.dumps([began.isoformat(), product], ensure_ascii=False): {
                "began": began.isoformat(),
                "product": product,
                "orders": len(prices),
                "spent": sum(prices),
            }
            for (began, product), prices in groups.items()
        }


@pytest.fixture
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """Its file has events of both kinds; it is not applied yet."""
    source.execute(TABLE)
    pipeline = make_pipeline(tables={"public.items": {}, "public.orders": {}, "public.outbox": {}})
    lateness = f"{LATENESS:.0f}s"
    pipeline.sync["views"] = {"item": {"root": "public.items"}}
    pipeline.sync["events"] = {
        "orders": {"table": "public.orders", "time": {"event": "at"}, "lateness": lateness},
        "sent": {
            "outbox": "public.outbox",
            "columns": {"type": "text", "at": "timestamptz"},
            "time": {"event": "at"},
            "lateness": lateness,
        },
    }
    pipeline.sync["streams"] = {
        "bought": {"sql": SQL, "key": ["began", "product"]},
        "posted": {"sql": SENT, "key": ["began", "type"]},
    }
    for stream, key in (("bought", "product"), ("posted", "type")):
        place = {"url": "${CACHE_URL}", "key": f"{pipeline.name}-{stream}:{{{key}}}:{{began}}"}
        pipeline.sync["followers"][f"{stream}-cache"] = {"view": stream, "redis": place}
    return pipeline


def cache(pipeline: Pipeline, stream: str, key: str) -> Redis:
    return Redis(pipeline.endpoints.redis, f"{pipeline.name}-{stream}:{{{key}}}:{{began}}", ("began", key))


def shown(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """What readers find of the orders."""
    found = {}
    for document in cache(pipeline, "bought", "product").documents().values():
        key = json.dumps([document["began"], document["product"]], ensure_ascii=False)
        found[key] = {**document, "spent": float(document["spent"])}
    return found


def stream(pipeline: Pipeline, name: str = "bought") -> dict[str, Any]:
    return next(s for s in pipeline.status()["streams"] if s["name"] == name)


def assert_shown(pipeline: Pipeline, orders: Orders, **more: Any) -> None:
    wanted = orders.wanted(**more)
    try:
        until("every order to be counted once", lambda: shown(pipeline) == wanted, 120)
    except AssertionError:
        assert shown(pipeline) == wanted, pipeline.explain()


def assert_counted(pipeline: Pipeline, orders: Orders, **more: Any) -> None:
    """Readers find every order counted once, and `verify` proves it."""
    assert_shown(pipeline, orders, **more)
    done = pipeline.here("verify", "bought", "bought-cache", seconds=180)
    assert done.code == 0, done.out + done.err


def test_each_row_counts_once_whatever_becomes_of_it(pipeline: Pipeline, source: psycopg.Connection) -> None:
    orders = Orders(source, SEED)
    orders.history(40)
    pipeline.apply()
    pipeline.run()
    orders.write(30)
    orders.delete(10)
    orders.change()
    orders.write(10)
    orders.write_late(5)
    with source.transaction():  # an outbox is emptied as soon as it has been written
        for number in range(6):
            payload = json.dumps({"at": datetime.now(UTC).isoformat(), "more": [number]})
            kind = "mail" if number % 2 else "call"
            source.execute("insert into outbox values (%s, %s, %s)", (number, kind, payload))
    source.execute("delete from outbox")
    assert_shown(pipeline, orders)
    until("the counts of what is no event", lambda: stream(pipeline)["late"] == 5, 30)
    told = stream(pipeline)
    assert [told[why] for why in ("late", "changed", "deleted", "invalid", "dropped")] == [
        len(orders.late),
        orders.changed,
        orders.deleted,
        0,
        0,
    ]
    log = records(pipeline.endpoints.kafka, f"{pipeline.name}.stream.bought.1.late", committed=True)
    reasons = Counter(json.loads(value or b"")["reason"] for _, value in log)
    assert reasons == {"late": len(orders.late), "changed": orders.changed}
    until("the outbox", lambda: _posted(pipeline) == {"mail": 3, "call": 3}, 30)
    source.execute("truncate orders")
    orders.write(5)
    assert_counted(pipeline, orders)


def _posted(pipeline: Pipeline) -> Counter[str]:
    found: Counter[str] = Counter()
    for document in cache(pipeline, "posted", "type").documents().values():
        found[document["type"]] += document["n"]
    return found


@pytest.mark.soak
def test_rows_that_a_snapshot_reads_again_count_once(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """Events of a table that was captured before: its log has lost rows. Then all tables are re-snapshotted."""
    events, streams, followers = (pipeline.sync.pop(name) for name in ("events", "streams", "followers"))
    pipeline.sync["followers"] = {
        "item-cache": {"view": "item", "redis": {"url": "${CACHE_URL}", "key": f"{pipeline.name}-item:{{id}}"}}
    }
    orders = Orders(source, SEED + 1)
    orders.history(20)
    pipeline.apply()
    job = pipeline.run()
    orders.history(10)  # in the log as it came
    pipeline.wait()
    job.stop()
    pipeline.sync |= {"events": events, "streams": streams}
    pipeline.sync["followers"] |= followers
    done = pipeline.apply()
    assert "events are read from it" in done.out
    assert "events are read from it" not in pipeline.apply().out
    job = pipeline.run()
    orders.write(20)
    assert_counted(pipeline, orders)
    orders.delete(5)
    until("the deletes", lambda: stream(pipeline)["deleted"] == orders.deleted, 60)
    done = pipeline.here("apply", "--anew", seconds=240)
    assert done.code == 0, done.out + done.err
    assert "re-snapshotted" in done.out
    until("the run to end, as every one does then", lambda: not job.running, 60)
    job.told = True
    pipeline.run()
    orders.write(10)
    left = {str(row[0]).replace("-", "") for row in source.execute("select id from orders").fetchall()}
    until("another build", lambda: stream(pipeline)["generation"] == 2, 60)
    assert_counted(pipeline, orders, of=left)
