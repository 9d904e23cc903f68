"""Events with rows of a table as they were when each happened: whatever changes meanwhile, and whoever is killed."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from stack import stack_home
from tests.chain.conftest import MakePipeline
from tests.support.compare import Redis, View
from tests.support.machine import until
from tests.support.pipeline import Pipeline
from tests.support.topic import make_events_topic, records

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]

WINDOW = 2
EACH = "SELECT id, product_id, product.title, CAST(product.price AS DECIMAL(12,2)) AS price FROM clicks"
SOLD = (
    "SELECT window.start AS began, coalesce(product.title, '-') AS title, count(*) AS n, "
    f"sum(CAST(product.price AS DECIMAL(12,2))) AS paid FROM clicks GROUP BY window(at, '{WINDOW} seconds'), "
    "coalesce(product.title, '-')"
)
APART = 0.1
"""Seconds between a commit and an event, both by this machine's clock."""

_ids = itertools.count(1)


class Shop:
    """Changes products and writes clicks, one after the other, and remembers what each click must show."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._connection = pipeline.connection
        self._topic = f"{pipeline.name}.clicks"
        self._producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka})
        self.wanted: dict[str, dict[str, Any]] = {}
        self.groups: dict[tuple[float, str], list[float | None]] = {}
        self.rows: dict[int, tuple[str, float]] = {1: ("first", 1.0), 2: ("second", 2.5)}

    def change(self, product: int, row: tuple[str, float] | None) -> None:
        time.sleep(APART)
        with self._connection.transaction():
            self._connection.execute("delete from products where id = %s", (product,))
            if row is not None:
                self._connection.execute("insert into products values (%s, %s, %s)", (product, *row))
        self.rows.pop(product, None)
        if row is not None:
            self.rows[product] = row
        time.sleep(APART)

    def click(self, product: int | None) -> None:
        number, at = next(_ids), int(time.time() * 1000)
        event = {"id": number, "product_id": product, "at": at}
        self._producer.produce(self._topic, json.dumps(event).encode(), partition=number % 3)
        self._producer.flush(15)
        title, price = self.rows.get(product or 0, (None, None))
        self.wanted[str(number)] = {"id": number, "product_id": product, "title": title, "price": price}
        self.groups.setdefault((at // 1000 // WINDOW * WINDOW, title or "-"), []).append(price)

    def go_on(self, rounds: int) -> None:
        for number in range(rounds):
            self.change(1, (f'é"{number % 3}', number + 0.25))
            self.click(1)
            self.change(2, None if number % 3 == 1 else ("second", number + 0.5))
            for product in (2, 1, 7, None):
                self.click(product)


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table items (id int primary key, name text)")
    source.execute("create table products (id bigint primary key, title text, price numeric)")
    source.execute("insert into products values (1, 'first', 1), (2, 'second', 2.5)")
    pipeline = make_pipeline(View("item", "public.items"), tables={"public.items": {}, "public.products": {}})
    topic = f"{pipeline.name}.clicks"  # removed with the pipeline
    make_events_topic(pipeline.endpoints.kafka, topic, 3)
    pipeline.sync["events"] = {
        "clicks": {
            "topic": topic,
            "columns": {"id": "bigint", "product_id": "integer", "at": "timestamptz"},
            "time": {"event": "at"},
            "lateness": "2s",
            "with": {"product": {"table": "public.products", "by": "product_id"}},
        }
    }
    pipeline.sync["streams"] = {
        "priced": {"sql": EACH, "key": "id"},
        "sold": {"sql": SOLD, "key": ["began", "title"]},
    }
    pipeline.sync["followers"]["priced-cache"] = {
        "view": "priced",
        "redis": {"url": "${CACHE_URL}", "key": f"{pipeline.name}-priced:{{id}}"},
    }
    pipeline.apply()
    return pipeline


@pytest.fixture(scope="module")
def shop(pipeline: Pipeline) -> Shop:
    return Shop(pipeline)


def priced(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    found = Redis(pipeline.endpoints.redis, f"{pipeline.name}-priced:{{id}}", ("id",)).documents()
    return {str(document["id"]): document for document in found.values()}


def assert_shown(pipeline: Pipeline, shop: Shop) -> None:
    """Wait until what has happened is final, and compare all of it with what it should be."""
    now = datetime.now(UTC).isoformat()
    done = pipeline.here("wait", "--closed", now, "--timeout", "120", seconds=150)
    assert done.code == 0, f"{done.err}\n{pipeline.explain()}"
    pipeline.wait("priced-cache")
    assert priced(pipeline) == shop.wanted
    log = records(pipeline.endpoints.kafka, f"{pipeline.name}.stream.sold.1", committed=True)
    sold = {key: json.loads(value) for key, value in log if value is not None}
    found = {
        (datetime.fromisoformat(document["began"]).timestamp(), document["title"]): (document["n"], document["paid"])
        for document in sold.values()
    }
    closed = datetime.fromisoformat(now).timestamp()
    wanted = {
        group: (len(prices), sum(paid) if (paid := [price for price in prices if price is not None]) else None)
        for group, prices in shop.groups.items()
        if group[0] + WINDOW <= closed
    }
    assert {group: found.get(group) for group in wanted} == wanted


def assert_proven(pipeline: Pipeline) -> None:
    done = pipeline.here("verify", "priced", "priced-cache", "sold", "--json", seconds=180)
    reports = {report["name"]: report for report in done.json()["followers"]}
    assert {name: report["in_sync"] for name, report in reports.items()} == dict.fromkeys(reports, True)
    assert done.code == 0
    assert min(report["source_documents"] for report in reports.values()) > 5


def test_each_event_has_the_row_as_it_was(pipeline: Pipeline, shop: Shop) -> None:
    shop.click(1)  # before the run: what the snapshot has read
    shop.click(2)
    pipeline.run()
    shop.go_on(6)
    assert_shown(pipeline, shop)
    assert_proven(pipeline)


def test_a_run_that_is_killed_or_loses_its_checkpoint_shows_the_same(pipeline: Pipeline, shop: Shop) -> None:
    (job,) = [job for job in pipeline.jobs() if job.running]
    job.kill()
    shop.go_on(3)
    job = pipeline.run()
    shop.go_on(2)
    assert_shown(pipeline, shop)
    assert job.stop() == 0
    for name in ("priced", "sold"):
        shutil.rmtree(stack_home() / "rows" / pipeline.name / f"{name}-1.checkpoint")
    logs = [f"{pipeline.name}.stream.{name}.1" for name in ("priced", "sold")]
    before = [len(records(pipeline.endpoints.kafka, log, committed=True)) for log in logs]
    job = pipeline.run()
    shop.click(1)
    assert_shown(pipeline, shop)
    after = [len(records(pipeline.endpoints.kafka, log, committed=True)) for log in logs]
    assert after[0] == before[0] + 1
    assert_proven(pipeline)


def test_a_truncate_stops_the_stream_and_a_new_snapshot_begins_another_build(pipeline: Pipeline, shop: Shop) -> None:
    (job,) = [job for job in pipeline.jobs() if job.running]
    pipeline.connection.execute("truncate products")

    def why() -> str:
        return str(next(each for each in pipeline.status()["streams"] if each["name"] == "priced")["error"] or "")

    assert "public.products was truncated" in until("the stream to stop", why, 60)
    job.stop()
    done = pipeline.here("apply", "--anew", seconds=180)
    assert done.code == 0, done.err
    pipeline.run()
    shop.rows.clear()
    shop.wanted.clear()
    shop.change(1, ("again", 9.0))
    shop.click(1)
    until("the stream to go on", lambda: not why(), 60)
    now = datetime.now(UTC).isoformat()
    assert pipeline.here("wait", "--closed", now, "--timeout", "120", seconds=150).code == 0
    pipeline.wait("priced-cache")
    shown = priced(pipeline)
    assert {key: shown.get(key) for key in shop.wanted} == shop.wanted
    assert pipeline.here("verify", "priced", "priced-cache", seconds=180).code == 0
