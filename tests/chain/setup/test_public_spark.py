"""Without anything that Spark does not promise to keep: followers, views, salvage and `verify` are right, and slower.

`make soak` runs the other tests of the chain so, too.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from jobs.spark.private import PUBLIC_ONLY
from tests.chain.conftest import MakePipeline, running
from tests.support.compare import Redis, View
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

ITEMS = View("item", "public.items")
LINE = "jsonb_build_object('id', l.id, 'n', l.n)"
ORDERS = View(
    "order",
    "public.orders",
    fields={name: name for name in ("id", "note", "lines")},
    instead={"lines": f"(select coalesce(jsonb_agg({LINE} order by l.id), '[]') from lines l where l.of = t.id)"},
)
MANY = 8_000
"""Rows that are more than small slices: they are read as large ones."""


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table items (id int primary key, name text, tags text[])")
    source.execute("create table orders (id int primary key, note text)")
    source.execute("create table lines (id int primary key, of int, n numeric)")
    source.execute(f"insert into items select n, 'name ' || n, '{{a,b}}' from generate_series(1, {MANY}) n")
    source.execute("insert into orders select n, 'note ' || n from generate_series(0, 99) n")
    source.execute(f"insert into lines select n, n % 100, n / 7.0 from generate_series(1, {MANY}) n")
    tables: dict[str, dict[str, Any]] = {f"public.{name}": {} for name in ("items", "orders", "lines")}
    pipeline = make_pipeline(tables=tables, secrets={PUBLIC_ONLY: "1"})
    pipeline.follow("item-cache", ITEMS, {"redis": {}})
    pipeline.sync["views"]["item"] = {"root": "public.items"}
    pipeline.follow("order-cache", ORDERS, {"redis": {}})
    lines = {"table": "public.lines", "by": "of", "columns": ["id", "n"], "order_by": ["id"]}
    pipeline.sync["views"]["order"] = {"root": "public.orders", "many": {"lines": lines}}
    pipeline.apply()
    return pipeline


def test_a_follower_of_one_table_is_right_and_holds_back_what_cannot_be_read(
    pipeline: Pipeline, source: psycopg.Connection
) -> None:
    job = running(pipeline)
    pipeline.assert_in_step("item-cache")
    source.execute("update items set name = 'new' where id % 1000 = 0")
    source.execute("delete from items where id % 1000 = 1")
    pipeline.assert_in_step("item-cache")
    source.execute("update items set tags = '{{a,b},{c,d}}' where id = 7")
    source.execute("update items set name = 'after' where id = 8")
    pipeline.wait("item-cache")
    store = pipeline.stores["item-cache"]
    assert isinstance(store, Redis)
    held = pipeline.here("quarantine", "list", "item-cache", "--json").json()["quarantined"]
    assert [entry["key"] for entry in held] == ["7"]
    assert "an array of several dimensions" in held[0]["reason"]
    source.execute("update items set tags = null where id = 7")
    pipeline.assert_in_step("item-cache")
    said = [line for line in job.output().splitlines() if PUBLIC_ONLY in line]
    assert len(said) == 1, job.output()
    assert "it reads by public jobs, which is slower" in said[0]


@pytest.mark.soak
def test_a_view_of_two_tables_is_right_and_verify_says_so(pipeline: Pipeline, source: psycopg.Connection) -> None:
    running(pipeline)
    pipeline.assert_in_step("order-cache")
    source.execute("update lines set n = n + 1 where id % 10 = 0")
    source.execute("delete from lines where of = 5")
    source.execute("delete from orders where id = 6")
    source.execute(f"insert into lines values ({MANY + 1}, 7, 0.5)")
    pipeline.assert_in_step("order-cache")
    done = pipeline.here("verify", "--json", seconds=300)
    assert done.code == 0, (done.out, done.err)
    assert {one["name"]: one["in_sync"] for one in done.json()["followers"]} == {
        "item-cache": True,
        "order-cache": True,
    }
