"""A pipeline of the version before is followed on: nothing is built again, and no document is written a second time.

`tests/recorded/state.json` is what commit 94d5a66 left behind: its control topic, the topics of the quarantine and of a
view, checkpoints of both kinds of store, and a row store. It was recorded by hand, with the command of that commit:

    DRIFTLESS_OLD_COMMAND=path/to/driftless python -m pytest tests/chain/setup/test_upgrade.py

That command then makes the pipeline of this test, and the present one follows it on. Without it the present one does
both, and what it leaves behind must have the recorded form. test_recorded_state.py reads what was recorded.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from stack import stack_home
from tests.chain.conftest import MakePipeline
from tests.support import machine, topic
from tests.support.compare import OpenSearch, View
from tests.support.files import ROOT
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]

OLD = os.environ.get("DRIFTLESS_OLD_COMMAND")
RECORDED = ROOT / "tests" / "recorded" / "state.json"
ITEM = View("item", "public.items", where="id < 100")
ORDER = View(
    "order",
    "public.orders",
    fields={"id": "id", "total": "total", "customer": "customer"},
    instead={"customer": "(select jsonb_build_object('name', c.name) from customers c where c.id = t.customer_id)"},
)
DECLARED = {
    "root": "public.orders",
    "columns": ["id", "total"],
    "one": {"customer": {"table": "public.customers", "by": "customer_id", "columns": ["name"]}},
}
TABLES = """
create table items (id int primary key, title text, extra jsonb);
create table customers (id int primary key, name text);
create table orders (id int primary key, customer_id int, total numeric(10, 2));
insert into items select i, 'item ' || i, '{}' from generate_series(1, 8) i;
insert into customers select i, 'customer ' || i from generate_series(1, 3) i;
insert into orders select i, i % 4, i / 4.0 from generate_series(1, 6) i;
"""
WIDE = json.dumps({f"f{i}": i for i in range(40)})
"""More fields than the index takes: the document is quarantined."""


@contextmanager
def version_before() -> Iterator[None]:
    """Commands are those of the version before, where that is there."""
    with pytest.MonkeyPatch.context() as patch:
        if OLD:
            patch.setattr(machine, "COMMAND", Path(OLD))
            patch.setattr(Job, "command", Path(OLD))
        yield


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """As the version before left it: with a second epoch, a second generation, and a document in quarantine."""
    source.execute(TABLES)
    tables: dict[str, dict[str, Any]] = {f"public.{name}": {} for name in ("items", "customers", "orders")}
    pipeline = make_pipeline(
        ITEM, tables=tables, index={"settings": {"mapping.total_fields.limit": 20}, "mapping": {"dynamic": True}}
    )
    pipeline.sync["views"]["order"] = DECLARED
    pipeline.follow("order-search", ORDER, {"opensearch": {"mapping": {"dynamic": False}}})
    pipeline.follow("order-cache", ORDER, {"redis": {}})
    with version_before():
        pipeline.apply()
        job = pipeline.run()
        pipeline.assert_in_step()
        source.execute("truncate items")
        source.execute("insert into items select i, 'newer ' || i, '{}' from generate_series(1, 5) i")
        pipeline.assert_in_step()
        source.execute("update items set extra = %s where id = 2", (WIDE,))
        source.execute("delete from orders where id = 6")
        source.execute("update customers set name = 'renamed' where id = 1")
        pipeline.assert_in_step("item-cache", "order-search", "order-cache")
        until("a document in quarantine", lambda: pipeline.follower("item-search")["quarantined"] == 1)
        assert pipeline.here("rebuild", "order-cache").code == 0
        assert job.stop() == 0
    return pipeline


def left_behind(pipeline: Pipeline) -> dict[str, Any]:
    """Everything that a version finds of the one before."""
    kafka, name = pipeline.endpoints.kafka, pipeline.name
    facts = {}
    for key, value in topic.records(kafka, f"{name}.control"):
        facts[(key or b"").decode()] = None if value is None else json.loads(value)
    search = OpenSearch(pipeline.endpoints.opensearch, "")
    found = search.call("GET", f"/.driftless-{name}/_search?size=100")["hits"]["hits"]
    checkpoints = {"opensearch": {hit["_id"]: hit["_source"] for hit in found}, "redis": {}}
    with redis.Redis.from_url(pipeline.endpoints.redis, decode_responses=True) as client:
        for key in sorted(client.scan_iter(match=f"*{name}*", count=1000)):
            if client.type(key) == "hash" and client.hexists(key, "checkpoint"):
                checkpoints["redis"][key] = client.hgetall(key)
    (rows,) = (stack_home() / "rows" / name).glob("*.rows")
    with closing(sqlite3.connect(rows)) as store:
        dumped = list(store.iterdump())
        version = store.execute("pragma user_version").fetchone()[0]
    left = {
        "facts": {key: value for key, value in sorted(facts.items()) if value is not None},
        "quarantine": _texts(topic.records(kafka, f"{name}.quarantine")),
        "view": _texts(topic.records(kafka, f"{name}.view.order.1")),
        "checkpoints": checkpoints,
        "rows": {"file": rows.name, "user_version": version, "sql": dumped},
    }
    return dict(json.loads(json.dumps(left).replace(socket.gethostname(), "host")))


def _texts(records: list[tuple[bytes | None, bytes | None]]) -> list[list[str | None]]:
    return [[None if part is None else part.decode() for part in record] for record in records]


def form(value: Any) -> Any:
    """What kind of value it is, and of what names. One that may be null is of any kind."""
    if isinstance(value, dict):
        return {re.sub("[0-9a-f]{32,}", "#", name): form(part) for name, part in value.items()}
    if isinstance(value, list):
        return [form(part) for part in value[:1]]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def fits(found: Any, recorded: Any) -> bool:
    """Whether two forms are one, but for what is null, or empty, in one of them."""
    if "NoneType" in (found, recorded) or (isinstance(found, list) and isinstance(recorded, list)):
        lists = isinstance(found, list) and isinstance(recorded, list)
        return not lists or not found or not recorded or fits(found[0], recorded[0])
    if isinstance(found, dict) and isinstance(recorded, dict):
        return found.keys() == recorded.keys() and all(fits(part, recorded[name]) for name, part in found.items())
    return bool(found == recorded)


def kind(key: str) -> str:
    return key if key.startswith(("pipeline/", "reader/")) else key.partition("/")[0]


def seq_nos(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """Follower -> key -> what changes with every write of its document, whatever is written."""
    search = OpenSearch(pipeline.endpoints.opensearch, "")
    found = {}
    for follower in ("item-search", "order-search"):
        answer = search.call("GET", f"/{pipeline.name}-{follower}/_search?size=100&seq_no_primary_term=true")
        found[follower] = {hit["_id"]: hit["_seq_no"] for hit in answer["hits"]["hits"]}
    return found


def begun(left: dict[str, Any]) -> dict[str, Any]:
    """Generations and builds, and the tables' epochs."""
    return {key: fact for key, fact in left["facts"].items() if kind(key) in ("generation", "view", "epochs")}


def test_what_is_left_behind_has_the_form_that_the_version_before_gave_it(pipeline: Pipeline) -> None:
    left = left_behind(pipeline)
    if OLD:
        RECORDED.write_text(json.dumps({"sync": pipeline.sync, **left}, indent=1) + "\n")
    text = RECORDED.read_text()
    recorded = json.loads(text.replace(json.loads(text)["sync"]["name"], pipeline.name))
    for key, fact in left["facts"].items():
        alike = [form(other) for name, other in recorded["facts"].items() if kind(name) == kind(key)]
        assert any(fits(form(fact), other) for other in alike), f"{key}: {form(fact)}\nnone of {alike}"
    assert {kind(key) for key in left["facts"]} == {kind(key) for key in recorded["facts"]}
    assert {key for key, _ in left["quarantine"]} == {key for key, _ in recorded["quarantine"]}
    assert dict(left["view"]) == dict(recorded["view"])
    assert left["rows"]["file"] == recorded["rows"]["file"]
    assert fits(form(left["checkpoints"]), form(recorded["checkpoints"]))


def test_it_is_followed_on_and_nothing_is_done_again(pipeline: Pipeline, source: psycopg.Connection) -> None:
    before, written = left_behind(pipeline), seq_nos(pipeline)
    assert pipeline.here("plan").code == 0, "there is nothing to apply"
    source.execute("insert into items values (7, 'newest', '{}')")
    source.execute("insert into orders values (7, 2, 7)")
    job = pipeline.run()
    pipeline.assert_in_step("item-cache", "order-search", "order-cache")
    until("the quarantine to be known", lambda: pipeline.follower("item-search")["quarantined"] == 1)
    pipeline.wait("item-search")
    assert pipeline.here("verify", "order-search", "order-cache", "item-cache", seconds=240).code == 0
    assert job.stop() == 0
    after, again = left_behind(pipeline), seq_nos(pipeline)
    assert begun(after) == begun(before), "nothing was begun, promoted or dropped"
    for follower, known in written.items():
        assert again[follower].keys() - known.keys() == {"7"}
        assert {key: again[follower][key] for key in known} == known, f"{follower}: only what changed was written"
    assert [key for key, _ in (Counter(map(tuple, after["view"])) - Counter(map(tuple, before["view"])))] == ["7"]
    assert "filled from the log" not in job.output(), "the row store was taken as it was"
