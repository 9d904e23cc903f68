"""Views of several tables through the whole chain: documents equal the database, and never show half a transaction."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stack import stack_home
from tests.chain.conftest import MakePipeline, newest_live, running
from tests.chain.support.orders_view import DECLARED, LINES, ORDER, ORDERS, PRODUCTS, TABLES
from tests.support.compare import View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

SEARCH, CACHE = "order-search", "order-cache"


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    return make_orders(make_pipeline, source)


def make_orders(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """A pipeline with the view, applied to tables with some rows."""
    source.execute(TABLES)
    source.execute("insert into customers select i, 'customer ' || i, null from generate_series(1, 10) i")
    source.execute("insert into products select i, 'product ' || i, i / 7.0 from generate_series(1, %s) i", (PRODUCTS,))
    # Some customers are missing.
    source.execute("insert into orders select i, i %% 12, 'open', %s from generate_series(1, %s) i", (LINES, ORDERS))
    lines = "generate_series(1, %s) o, generate_series(1, %s) l"
    source.execute(f"insert into order_lines select o, l, (o + l) %% %s + 1, 1 from {lines}", (PRODUCTS, ORDERS, LINES))
    names = ("customers", "products", "orders", "order_lines")
    tables: dict[str, dict[str, Any]] = {f"public.{name}": {} for name in names}
    pipeline = make_pipeline(tables=tables)
    pipeline.sync["views"]["order"] = DECLARED
    pipeline.follow(SEARCH, ORDER, {"opensearch": {"mapping": {"dynamic": False}}})
    pipeline.follow(CACHE, ORDER, {"redis": {}})
    pipeline.apply()
    return pipeline


def orders_and_customers(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """The same, with a view of one table beside it."""
    pipeline = make_orders(make_pipeline, source)
    pipeline.add(View("customer", "public.customers"))
    pipeline.apply()
    return pipeline


@pytest.fixture(autouse=True)
def followed(job: Job) -> Job:
    return job


class Writers:
    """Transactions that keep an order's total equal to the sum of its lines, until the test ends them."""

    def __init__(self, dsn: str, seed: int, writers: int = 3) -> None:
        self._dsn = dsn
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(random.Random(seed + n),)) for n in range(writers)]
        for thread in self._threads:
            thread.start()

    def _write(self, rng: random.Random) -> None:
        with psycopg.connect(self._dsn) as connection:
            while not self._ended.wait(0.02):
                order, line = rng.randrange(1, ORDERS + 1), rng.randrange(1, 2 * LINES)
                try:
                    self._change(connection, rng, order, line)
                    connection.rollback() if rng.random() < 0.1 else connection.commit()
                except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
                    connection.rollback()

    @staticmethod
    def _change(connection: psycopg.Connection, rng: random.Random, order: int, line: int) -> None:
        connection.execute("select from orders where id = %s for update", (order,))
        what, product = rng.randrange(5), rng.randrange(PRODUCTS + 2)
        if what == 0:
            connection.execute("delete from order_lines where (order_id, line) = (%s, %s)", (order, line))
        elif what == 1:
            connection.execute(
                "update order_lines set line = line + 100 where (order_id, line) = (%s, %s)", (order, line)
            )
        elif what == 2:
            connection.execute("update products set price = price + 1 where id = %s", (product,))
            connection.execute("update orders set customer_id = %s where id = %s", (rng.randrange(13), order))
        else:
            connection.execute(
                "insert into order_lines values (%s, %s, %s, %s) on conflict (order_id, line) do update "
                "set amount = excluded.amount, product_id = excluded.product_id",
                (order, line, product, Decimal(rng.randrange(1, 1000)) / 100),
            )
        connection.execute(
            "update orders set total = (select coalesce(sum(amount), 0) from order_lines where order_id = %s) "
            "where id = %s",
            (order, order),
        )

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def written(pipeline: Pipeline, build: int = 1) -> Counter[str]:
    """How often each document has been written."""
    return Counter(key for key, _ in pipeline.published("order", build))


def half_shown(records: list[tuple[str, Any]], before: Counter[str]) -> list[Any]:
    """Of the documents published since, those whose total is not the sum of their lines: no transaction left one so."""
    seen = Counter[str]()
    found = []
    for key, document in records:
        seen[key] += 1
        if seen[key] > before[key] and document is not None:
            lines = sum((line["amount"] for line in document["lines"]), Decimal(0))
            found += [document] if document["total"] != lines else []
    return found


SUMMED = "update orders o set total = (select coalesce(sum(amount), 0) from order_lines l where l.order_id = o.id)"


def summed_orders(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """The same orders, each with its total, and a run that has followed them."""
    pipeline = make_orders(make_pipeline, source)
    source.execute(SUMMED)
    running(pipeline)
    pipeline.assert_in_step()
    return pipeline


def rows_file(pipeline: Pipeline) -> Path:
    (found,) = (stack_home() / "rows" / pipeline.name).glob("order-*.rows")
    return found


def view(pipeline: Pipeline) -> dict[str, Any]:
    return next(dict(found) for found in pipeline.status()["views"] if found["name"] == "order")


def test_documents_follow_every_table_they_are_made_of(pipeline: Pipeline, source: psycopg.Connection) -> None:
    pipeline.assert_in_step()
    for change in (
        "update customers set tier = 'gold' where id = 3",
        "update products set title = 'renamed' where id = 5",
        "delete from customers where id = 4",
        "delete from products where id = 6",
        "insert into customers values (11, 'late', 'new')",
        "update orders set customer_id = 5 where id = 1",
        "update orders set id = 1000 where id = 2",
        "update order_lines set order_id = 1000 where order_id = 2",
        "update order_lines set order_id = 8 where order_id = 7 and line = 1 and false",
        "delete from orders where id = 9",
        "delete from order_lines where order_id = 10",
        "insert into order_lines values (2000, 1, 1, 1)",
        "insert into orders values (2000, null, 'new', 1)",
    ):
        source.execute(change.encode())
    pipeline.assert_in_step()
    shown = view(pipeline)
    assert (shown["name"], shown["state"], shown["generation"], shown["dirty"]) == ("order", "live", 1, 0)
    text = pipeline.here("status").out
    assert re.search(
        r"^view order: live, build 1 at 0/[0-9A-F]+, 0 records to read, 0 documents to publish$", text, re.M
    )


def test_only_documents_that_show_a_change_are_written(pipeline: Pipeline, source: psycopg.Connection) -> None:
    before = written(pipeline)
    source.execute("update products set stock = stock + 1")
    source.execute("update customers set notes = 'nobody shows this'")
    source.execute("update orders set status = status")
    pipeline.wait()
    assert written(pipeline) == before
    source.execute("update customers set tier = 'silver' where id = 7")
    pipeline.wait()
    shown = {str(key) for (key,) in source.execute("select id from orders where customer_id = 7")}
    assert len(shown) > 10
    assert written(pipeline) - before == Counter(shown)


def test_a_transaction_writes_a_document_once(pipeline: Pipeline, source: psycopg.Connection) -> None:
    before = written(pipeline)
    with source.transaction():
        source.execute("insert into orders values (3000, 1, 'new', 0)")
        for line in range(5):
            source.execute("insert into order_lines values (3000, %s, 1, 2)", (line,))
            source.execute("update orders set total = total + 2 where id = 3000")
    pipeline.wait()
    assert written(pipeline) - before == Counter(["3000"])
    (document,) = [document for key, document in pipeline.published("order") if key == "3000"]
    assert (document["total"], len(document["lines"])) == (10, 5)


def test_no_document_ever_shows_half_a_transaction(pipeline: Pipeline, job: Job, source: psycopg.Connection) -> None:
    """Under concurrent writers, with the runner killed in between."""
    source.execute(SUMMED)
    pipeline.wait()
    before = written(pipeline)
    writers = Writers(pipeline.dsn, seed=7)
    try:
        until("some hundred documents", lambda: (written(pipeline) - before).total() > 500, 120)
        job.kill()
        pipeline.run()
        until("some hundred more", lambda: (written(pipeline) - before).total() > 1_000, 120)
    finally:
        writers.end()
    pipeline.assert_in_step()
    assert half_shown(pipeline.published("order"), before) == []


@pytest.mark.soak
@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_a_row_store_that_is_gone_is_filled_again_and_only_differences_are_published(
    pipeline: Pipeline, job: Job, source: psycopg.Connection, how: str
) -> None:
    assert job.stop() == 0
    before = written(pipeline)
    source.execute("update orders set status = %s where id in (20, 21)", (how,))
    row = source.execute("delete from orders where id = (select max(id) from orders) returning id").fetchone()
    assert row is not None
    file = rows_file(pipeline)
    if how == "lost":
        file.unlink()
    else:
        with file.open("r+b") as stream:
            stream.seek(4096)
            stream.write(b"\xff" * 200_000)
    again = pipeline.run()
    pipeline.assert_in_step()
    assert "it is filled from the log again, and only what differs is published" in again.output()
    assert written(pipeline) - before == Counter(["20", "21", str(row[0])])


@pytest.mark.soak
def test_a_second_runner_is_refused_and_a_view_runs_without_its_followers(pipeline: Pipeline, job: Job) -> None:
    second = pipeline.here("run", "order")
    assert second.code == 1
    assert "`view order` is already run by process" in second.err
    assert job.stop() == 0
    alone = pipeline.run("order")
    followers = pipeline.run(SEARCH, CACHE)
    pipeline.connection.execute("update products set price = price + 1")
    pipeline.assert_in_step()
    assert alone.stop() == 0
    assert followers.stop() == 0
    nobody = pipeline.here("run", "orders")
    assert nobody.code == 2
    assert "there is no follower or view of several tables `orders`; did you mean `order`?" in nobody.err


@pytest.mark.soak
def test_an_empty_table_empties_what_documents_show_of_it(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """TRUNCATE leaves no record of what it deleted: the view is built anew, and readers move over to it."""
    source.execute("truncate order_lines")
    pipeline.assert_in_step()  # whoever waits sees it, from the first moment on
    assert view(pipeline)["generation"] == 2
    source.execute("insert into order_lines values (30, 1, 1, 3)")
    pipeline.assert_in_step()


@pytest.mark.soak
def test_another_column_is_another_build_beside_the_one_that_is_read(pipeline: Pipeline) -> None:
    number = view(pipeline)["generation"]
    columns = pipeline.sync["views"]["order"]["columns"]
    pipeline.sync["views"]["order"] = {**DECLARED, "columns": {**columns, "buyer": "customer_id"}}
    shown = {**dict(ORDER.fields or {}), "buyer": "customer_id"}
    pipeline.views["order"] = View("order", ORDER.table, fields=shown, instead=ORDER.instead)
    pipeline.here.write()
    planned = pipeline.here("plan")
    assert planned.code == 1
    assert f"rebuild view order: build {number + 1}" in planned.out
    assert '"buyer": "int4"' in planned.out
    writers = Writers(pipeline.dsn, seed=8)
    try:
        pipeline.apply()
        newest_live(pipeline, CACHE)
    finally:
        writers.end()
    pipeline.assert_in_step()
    assert pipeline.here("plan").out.splitlines()[0] == "nothing to change"


@pytest.mark.soak
def test_shards_give_the_same_documents_in_one_process_or_in_several(pipeline: Pipeline, job: Job) -> None:
    declared = pipeline.sync["views"]["order"]
    pipeline.sync["views"]["order"] = {**declared, "shards": 3}
    pipeline.apply()
    assert job.stop() == 0
    job = pipeline.run()
    newest_live(pipeline, CACHE)
    pipeline.assert_in_step()
    assert job.stop() == 0
    two = [pipeline.run("order/0", "order/2"), pipeline.run("order/1", SEARCH, CACHE)]
    writers = Writers(pipeline.dsn, seed=9)
    until("documents to be written", lambda: written(pipeline, view(pipeline)["generation"]).total() > 500, 120)
    writers.end()
    pipeline.assert_in_step()
    assert [job.stop() for job in two] == [0, 0]
    missing = pipeline.here("run", "order/3")
    assert missing.code == 2
    assert "the view `order` has no shard `3`\n  its shards are 0 to 2" in missing.err


@pytest.mark.soak
def test_a_view_of_one_table_may_be_built_too(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """So that it shows whole transactions alone."""
    whole = View("whole", "public.products")
    pipeline.sync["views"]["whole"] = {"root": "public.products", "atomic": True}
    pipeline.follow("whole-cache", whole, {"redis": {}})
    pipeline.apply()
    for job in pipeline.jobs():
        if job.running:
            job.stop()
    pipeline.run()
    source.execute("update products set stock = stock + 1")
    pipeline.assert_in_step("whole-cache")


@pytest.mark.soak
def test_a_view_that_is_taken_out_leaves_nothing_behind(pipeline: Pipeline, source: psycopg.Connection) -> None:
    number = view(pipeline)["generation"]
    pipeline.sync["views"]["left"] = {"root": "public.customers"}
    pipeline.follow("left-cache", View("left", "public.customers"), {"redis": {}})
    for follower in (SEARCH, CACHE):
        assert pipeline.here("remove", follower, "--drop").code == 0
        del pipeline.sync["followers"][follower]
    del pipeline.sync["views"]["order"]
    pipeline.here.write()
    planned = pipeline.here("plan").out
    assert f"drop topic {pipeline.name}.view.order.{number}" in planned
    assert "forget view order" in planned
    pipeline.apply()
    assert pipeline.here("plan").out.splitlines()[0] == "nothing to change"
    assert "order" not in [v["name"] for v in pipeline.status()["views"]]
    pipeline.run("left-cache")
    source.execute("update customers set notes = 'seen'")
    pipeline.assert_in_step("left-cache")
