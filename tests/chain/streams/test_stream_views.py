"""A view whose root is a stream: what was computed stays, and the rows of tables beside it are those of now."""

from __future__ import annotations

import itertools
import json
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
SOLD = (
    "SELECT window.start AS began, product_id, count(*) AS n, sum(CAST(paid AS DECIMAL(12,2))) AS paid, "
    f"max(struct(at, name)).name AS last FROM clicks GROUP BY window(at, '{WINDOW} seconds'), product_id"
)
PRODUCT = {
    "table": "public.products",
    "by": "product_id",
    "columns": ["title"],
    "one": {"category": {"table": "public.categories", "by": "category_id", "columns": ["name"]}},
    "many": {"notes": {"table": "public.notes", "by": "product_id", "columns": ["note"]}},
}
NAMES = ('a "quoted" é', "\U0001f600 b\\n", "")

_ids = itertools.count(1)


class Shop:
    """Writes clicks and changes rows, and knows what every document must be."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka})
        self._groups: dict[tuple[int, int], list[dict[str, Any]]] = {}

    def click(self, *products: int) -> None:
        for product in products:
            number, at = next(_ids), int(time.time() * 1000)
            event = {"id": number, "product_id": product, "name": NAMES[number % 3], "paid": "1.50", "at": at}
            self._producer.produce(f"{self._pipeline.name}.clicks", json.dumps(event).encode(), partition=number % 3)
            self._producer.flush(15)
            self._groups.setdefault((at // 1000 // WINDOW * WINDOW, product), []).append(event)

    def documents(self, before: float) -> dict[tuple[str, int], dict[str, Any]]:
        """Of all windows that ended by then, with the rows as they are now; but for those of one click of product 9."""
        rows = self._pipeline.connection.execute(
            "select p.id, p.title, c.name, coalesce((select jsonb_agg(jsonb_build_object('note', n.note) "
            "order by n.id) from notes n where n.product_id = p.id), '[]') "
            "from products p left join categories c on c.id = p.category_id"
        ).fetchall()
        products = {
            number: {"title": title, "category": None if name is None else {"name": name}, "notes": notes}
            for number, title, name, notes in rows
        }
        found = {}
        for (began, product), events in self._groups.items():
            if began + WINDOW > before or (product == 9 and len(events) == 1):
                continue
            moment = datetime.fromtimestamp(began, UTC).isoformat()
            found[moment, product] = {
                "began": moment,
                "product": products.get(product),
                "n": len(events),
                "paid": 1.5 * len(events),
                "last": max((event["at"], event["name"]) for event in events)[1],
            }
        return found


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table categories (id int primary key, name text)")
    source.execute("create table products (id bigint primary key, title text, category_id int)")
    source.execute("create table notes (id int primary key, product_id bigint, note text)")
    source.execute("insert into categories values (1, 'toys')")
    source.execute("insert into products values (1, 'first', 1), (2, 'second', null), (9, 'ninth', 1)")
    source.execute("insert into notes values (1, 1, 'one'), (2, 1, 'two'), (3, 2, 'three')")
    tables: dict[str, Any] = {f"public.{name}": {} for name in ("categories", "products", "notes")}
    pipeline = make_pipeline(View("category", "public.categories"), tables=tables)
    topic = f"{pipeline.name}.clicks"  # removed with the pipeline
    make_events_topic(pipeline.endpoints.kafka, topic, 3)
    types = {"id": "bigint", "product_id": "integer", "name": "text", "paid": "numeric(12,2)", "at": "timestamptz"}
    time_ = {"time": {"event": "at"}, "lateness": "1s"}
    pipeline.sync["events"] = {"clicks": {"topic": topic, "columns": types, **time_}}
    pipeline.sync["streams"] = {"sold": {"sql": SOLD, "key": ["began", "product_id"]}}
    pipeline.sync["views"]["sales"] = {
        "root": "sold",
        "columns": ["began", "n", "paid", "last"],
        "where": "product_id <> 9 OR n > 1",
        "one": {"product": PRODUCT},
    }
    pipeline.sync["followers"]["sales-cache"] = {
        "view": "sales",
        "keep": "3s",
        "redis": {"url": "${CACHE_URL}", "key": f"{pipeline.name}-sales:{{began}}:{{product_id}}"},
    }
    pipeline.apply()
    assert pipeline.here("plan").code == 0
    return pipeline


@pytest.fixture(scope="module")
def shop(pipeline: Pipeline) -> Shop:
    return Shop(pipeline)


def store(pipeline: Pipeline) -> Redis:
    return Redis(pipeline.endpoints.redis, f"{pipeline.name}-sales:{{began}}:{{product_id}}", ("began", "product_id"))


def assert_shown(pipeline: Pipeline, shop: Shop) -> None:
    """Wait until what has happened is final, and compare all of it with what it should be."""
    time.sleep(WINDOW)
    now = datetime.now(UTC)
    done = pipeline.here("wait", "--closed", now.isoformat(), "--timeout", "120", seconds=150)
    assert done.code == 0, f"{done.err}\n{pipeline.explain()}"
    pipeline.wait("sales-cache")
    cache = store(pipeline)
    wanted = {cache.name(key): document for key, document in shop.documents(now.timestamp()).items()}
    shown = {key: document for key, document in cache.documents().items() if key in wanted}
    assert shown == wanted
    assert len(wanted) > 2


def assert_proven(pipeline: Pipeline) -> None:
    done = pipeline.here("verify", "sales-cache", "sold", "--json", seconds=180)
    assert done.code == 0, f"{done.out}\n{done.err}"
    assert min(report["source_documents"] for report in done.json()["followers"]) > 2


def test_results_of_a_stream_stand_beside_the_rows_of_now(pipeline: Pipeline, shop: Shop) -> None:
    shop.click(1, 2, 7, 9)
    pipeline.run()
    shop.click(1, 1, 2)
    assert_shown(pipeline, shop)
    pipeline.connection.execute("update products set title = 'renamed', category_id = 1 where id = 2")
    pipeline.connection.execute("delete from notes where id = 1")
    pipeline.connection.execute("update categories set name = 'games'")
    shop.click(9, 9, 2)
    assert_shown(pipeline, shop)
    assert_proven(pipeline)


def test_a_run_that_is_killed_and_one_whose_rows_are_lost_show_the_same(pipeline: Pipeline, shop: Shop) -> None:
    (job,) = [job for job in pipeline.jobs() if job.running]
    job.kill()
    shop.click(1, 2, 2)
    pipeline.connection.execute("update products set title = 'while nobody ran' where id = 1")
    job = pipeline.run()
    assert_shown(pipeline, shop)
    assert job.stop() == 0
    (rows,) = (stack_home() / "rows" / pipeline.name).glob("sales-1.0.rows")
    rows.unlink()
    log = f"{pipeline.name}.view.sales.1"
    before = len(records(pipeline.endpoints.kafka, log, committed=True))
    pipeline.run()
    shop.click(2)
    assert_shown(pipeline, shop)
    assert len(records(pipeline.endpoints.kafka, log, committed=True)) == before + 1, "only what differs is published"
    assert_proven(pipeline)


def test_a_rebuilt_stream_is_followed_by_its_view(pipeline: Pipeline, shop: Shop) -> None:
    """The old build of the stream is kept while the view has one of it, and readers see no window less meanwhile."""
    done = pipeline.here("rebuild", "sold", seconds=60)
    assert done.code == 0, done.err

    def builds() -> tuple[int, int]:
        streams, views = (pipeline.status()[kind] for kind in ("streams", "views"))
        stream = next(each for each in streams if each["name"] == "sold")
        return int(stream["generation"]), next(int(each["generation"]) for each in views if each["name"] == "sales")

    shown = len(store(pipeline).documents())
    assert shown > 4

    def switched() -> bool:
        assert len(store(pipeline).documents()) >= shown, "readers miss what they have seen"
        facts = dict(records(pipeline.endpoints.kafka, f"{pipeline.name}.control", committed=True))
        return facts.get(b"stream/sold/1") is None and builds() == (2, 2)

    until("the old build to be dropped", switched, 120)
    shop.click(1, 2)
    assert_shown(pipeline, shop)
    assert_proven(pipeline)


def test_verify_tells_which_stage_is_wrong(pipeline: Pipeline, shop: Shop) -> None:
    moment, product = min(shop.documents(time.time()))
    producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka})
    topic, key = f"{pipeline.name}.stream.sold.2", f'["{moment}",{product}]'.encode()
    true = dict(records(pipeline.endpoints.kafka, topic, committed=True))[key]
    forged = {**json.loads(true or b"{}"), "n": 4242}

    def stages() -> list[str]:
        done = pipeline.here("verify", "sales-cache", "--json", seconds=180)
        (report,) = done.json()["followers"]
        assert report["in_sync"] is (done.code == 0)
        return [sample["stage"] for sample in report["samples"]]

    for value, wrong in ((json.dumps(forged).encode(), ["stream-log"]), (true, [])):
        producer.produce(topic, value, key)
        producer.flush(15)
        pipeline.wait("sales-cache")
        assert stages() == wrong
    log = f"{pipeline.name}.view.sales.2"
    shown = dict(records(pipeline.endpoints.kafka, log, committed=True))[key]
    producer.produce(log, json.dumps({**json.loads(shown or b"{}"), "n": 4243}).encode(), key)
    producer.flush(15)
    pipeline.wait("sales-cache")
    assert set(stages()) == {"view-log"}
