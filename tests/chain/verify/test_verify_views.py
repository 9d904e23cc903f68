"""`verify` of a view of several tables: also while everybody writes, and with the stage that is wrong."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing

import psycopg
import pytest

from tests.chain.conftest import MakePipeline, running
from tests.chain.support.corrupt import InCache, InSearch, InTopic
from tests.chain.support.orders_view import ORDERS
from tests.chain.verify.test_verify import found, verify
from tests.chain.views.test_views import CACHE, SEARCH, Writers, make_orders, rows_file
from tests.support.compare import OpenSearch, Redis
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(900), pytest.mark.usefixtures("job")]


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    return make_orders(make_pipeline, source)


@pytest.mark.soak
def test_a_view_is_in_sync_while_everybody_writes(pipeline: Pipeline) -> None:
    writers = Writers(pipeline.dsn, seed := random.randrange(10**6), writers=2)
    try:
        said = verify(pipeline)
    finally:
        writers.end()
    for follower in said.values():
        assert (follower["stage"], follower["samples"], follower["trouble"]) == (None, [], None), f"seed {seed}"
        assert follower["source_documents"] == follower["follower_documents"] == ORDERS
        # A document may change twice between two moments that its view shows, whenever it is looked at.
        assert follower["unproven"] < ORDERS / 10, f"seed {seed}"


@pytest.mark.soak
def test_what_is_wrong_in_a_follower_is_named_and_mended(pipeline: Pipeline) -> None:
    search, cache = pipeline.stores[SEARCH], pipeline.stores[CACHE]
    assert isinstance(search, OpenSearch)
    assert isinstance(cache, Redis)
    pipeline.wait()
    InSearch(search).change("7", state="flipped")
    InCache(cache).drop("8")
    said = verify(pipeline, "--repair")
    assert found(said[SEARCH]) == {"7": ("different", "follower")}
    assert found(said[CACHE]) == {"8": ("missing", "follower")}
    assert all(follower["repaired"] == 1 for follower in said.values())
    assert not pipeline.differences()


@pytest.mark.soak
def test_what_is_wrong_in_the_views_log_is_named_and_mended(pipeline: Pipeline) -> None:
    pipeline.wait()
    topic = InTopic(pipeline.endpoints.kafka, f"{pipeline.name}.view.order.1")
    _, value = topic.newest(b"9")
    assert value is not None
    topic.change(b"9", state="flipped")
    topic.drop(b"10")
    topic.put(b"9999", value, 0)
    said = verify(pipeline, "--repair")
    wanted = {key: (problem, "view-log") for key, problem in (("9", "different"), ("10", "missing"), ("9999", "extra"))}
    for follower in said.values():
        assert found(follower) == wanted
        assert (follower["stage"], follower["repaired"], follower["in_sync"]) == ("view-log", 3, True)
    assert not pipeline.differences()


@pytest.mark.soak
def test_rows_that_were_spoiled_are_found_before_they_show_and_filled_anew(pipeline: Pipeline) -> None:
    pipeline.wait()
    assert running(pipeline).stop() == 0
    with closing(sqlite3.connect(rows_file(pipeline))) as rows, rows:
        spoiled = """update {} set c0 = replace(c0, '"state":', '"spoiled":1,"state":') where id = 11 and c0 like ?"""
        found_in = [
            name for name in ("t0", "t1", "t2", "t3") if rows.execute(spoiled.format(name), ('%"state":%',)).rowcount
        ]
        assert len(found_in) == 1
    running(pipeline)
    pipeline.wait()
    for follower in verify(pipeline).values():
        assert found(follower) == {"11": ("different", "view-log")}
        assert "its next change would publish another document" in follower["samples"][0]["detail"]
    assert not pipeline.differences(), "it shows nowhere yet"
    pipeline.connection.execute("insert into order_lines values (11, 9999, 1, 1)")
    pipeline.wait()
    assert pipeline.differences()
    for follower in verify(pipeline, "--repair").values():
        assert found(follower)["11"] == ("different", "view-log")
        assert follower["in_sync"]
    assert not pipeline.differences()
    assert all(follower["in_sync"] for follower in verify(pipeline).values())


@pytest.mark.soak
def test_what_is_wrong_in_a_tables_log_is_named_and_mended(pipeline: Pipeline) -> None:
    topic = InTopic(pipeline.endpoints.kafka, f"{pipeline.name}.public.products")
    topic.change(b'{"id":3}', title="flipped")
    pipeline.connection.execute("update orders set status = status || '!' where id = 9")  # so that there is another cut
    pipeline.wait()
    said = verify(pipeline)
    for follower in said.values():
        assert follower["stage"] == "table-log"
        first = follower["samples"][0]
        assert (first["key"], first["problem"], first["stage"]) == ("public.products 3", "different", "table-log")
    assert json.dumps(said).count("flipped") == 0, "a row's value was shown"
    done = pipeline.here("verify", "--repair", "--json", seconds=400)
    assert done.code in (0, 1), done.err  # the view may be looked at before it has taken the row in
    assert all(follower["in_sync"] for follower in verify(pipeline).values())
    assert not pipeline.differences()
