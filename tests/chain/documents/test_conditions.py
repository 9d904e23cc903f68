"""`where` in the whole chain: rows that enter and leave, and conditions on the records that Debezium really writes."""

from __future__ import annotations

import json
import os
import random
from functools import partial

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.chain.conftest import MakePipeline
from tests.driftless.where.where_cases import Conditions
from tests.driftless.where.where_rows import Rows, make
from tests.support.compare import View
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = pytest.mark.server

SEED = int(os.environ.get("DRIFTLESS_TEST_SEED") or random.randrange(10**6))
WHERE = "status <> 'draft' AND (total >= 10.50 OR vip)"
ORDER = View("order", "public.orders", fields={"id": "id", "text": "note"}, where=WHERE)


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """A pipeline that runs, over 120 orders of which some have a document, and over rows of every type."""
    source.execute("create type state as enum ('draft', 'open', 'done')")
    source.execute("create table orders (id bigint primary key, status state, total numeric, vip boolean, note text)")
    source.execute(
        "insert into orders select n, (array['draft', 'open', 'done', null])[n % 4 + 1]::state, "
        "case n % 5 when 0 then null when 1 then 'NaN' else n / 8.0 end, "
        "case n % 3 when 0 then null else n % 3 = 1 end, 'order ' || n from generate_series(1, 120) n"
    )
    make(source, SEED, 60)
    # What Debezium's snapshot reads wrongly (docs/limits.md).
    source.execute("delete from plain where id in (select id from rows where d < '0001-01-01' and isfinite(d))")
    source.execute("delete from rows where id not in (select id from plain)")
    pipeline = make_pipeline(ORDER, tables={"public.orders": {}, "public.rows": {}})
    pipeline.apply()
    pipeline.run()
    return pipeline


def documents(pipeline: Pipeline) -> int:
    """How many there are, once all is applied and compared."""
    pipeline.assert_in_step()
    counts = {name: len(pipeline.stores[name].documents()) for name in pipeline.of("order")}
    assert len(set(counts.values())) == 1, counts
    return counts.popitem()[1]


@pytest.mark.soak
def test_a_snapshot_gives_documents_to_the_rows_that_pass(pipeline: Pipeline, source: psycopg.Connection) -> None:
    passing = source.execute(f"select count(*) from orders where {WHERE}".encode()).fetchone()
    assert passing is not None
    assert documents(pipeline) == passing[0]
    assert 20 < passing[0] < 60
    for name in pipeline.of("order"):

        def counted(follower: str = name) -> bool:
            return bool(pipeline.follower(follower)["documents"] == passing[0])

        until(f"status to count {passing[0]} documents of {name}", counted)


# A row that has a document or has none, what changes then, and whether it has one afterwards.
CHANGES = (
    ("'draft', 50, false, 'x'", "status = 'open'", True),
    ("'open', 50, false, 'x'", "status = 'draft'", False),
    ("'draft', 50, null, 'x'", "status = 'done'", True),
    ("'done', 50, false, 'x'", "status = null", False),
    ("'open', 50, null, 'x'", "total = 10.49999999999999999999", False),
    ("'open', 10.49999999999999999999, false, 'x'", "total = 10.5", True),
    ("'open', 1, false, 'x'", "total = 'NaN'", True),
    ("'open', 'NaN', false, 'x'", "total = null, vip = true", True),
    ("'open', null, true, 'x'", "vip = null", False),
    ("'open', null, null, 'x'", "vip = true", True),
    ("'open', 50, null, 'x'", "note = 'no column of the condition'", True),
    ("'draft', 50, null, 'x'", "note = 'no column of the condition'", False),
)


def test_rows_enter_and_leave_with_each_column_of_the_condition(pipeline: Pipeline, source: psycopg.Connection) -> None:
    for number, (row, _, _) in enumerate(CHANGES, 1000):
        source.execute(f"insert into orders values ({number}, {row})".encode())
    passing = f"select id from orders where id >= 1000 and ({WHERE})".encode()
    before = {number for (number,) in source.execute(passing)}
    assert shown(pipeline) == before
    for number, (_, change, _) in enumerate(CHANGES, 1000):
        source.execute(f"update orders set {change} where id = {number}".encode())
    after = {number for number, (_, _, has) in enumerate(CHANGES, 1000) if has}
    assert len(before ^ after) > len(CHANGES) / 2
    assert shown(pipeline) == after
    source.execute("delete from orders where id >= 1000")


def shown(pipeline: Pipeline) -> set[int]:
    """Of these rows, those that have a document in both stores, once all is applied and compared."""
    documents(pipeline)
    (ids,) = {
        frozenset(document["id"] for document in pipeline.stores[name].documents().values() if document["id"] >= 1000)
        for name in pipeline.of("order")
    }
    return set(ids)


@pytest.mark.soak
def test_a_changed_key_and_a_delete_leave_nothing_behind(pipeline: Pipeline, source: psycopg.Connection) -> None:
    source.execute("insert into orders values (1998, 'open', 50, false, 'x'), (1999, 'open', 50, false, 'x')")
    before = documents(pipeline)
    source.execute("update orders set id = 2000 where id = 1998")
    source.execute("update orders set id = 2001, status = 'draft' where id = 1999")
    assert documents(pipeline) == before - 1
    source.execute("update orders set id = 2002, status = 'open' where id = 2001")
    assert documents(pipeline) == before
    source.execute("delete from orders where id in (2000, 2002)")
    source.execute("delete from orders where status = 'draft' and id < 50")
    assert documents(pipeline) == before - 2


@pytest.mark.soak
def test_a_transaction_counts_by_its_end(pipeline: Pipeline, source: psycopg.Connection) -> None:
    before = documents(pipeline)
    with source.transaction():
        source.execute("insert into orders values (3000, 'open', 99, false, 'leaves'), (3001, 'draft', 99, false, 'y')")
        source.execute("update orders set status = 'draft' where id = 3000")
        source.execute("update orders set status = 'open' where id = 3001")
        source.execute("update orders set status = 'draft' where id = 3001")
        source.execute("update orders set status = 'done' where id = 3001")
    assert documents(pipeline) == before + 1
    with source.transaction(force_rollback=True):
        source.execute("update orders set status = 'draft'")
    assert documents(pipeline) == before + 1


@pytest.mark.soak
def test_a_new_follower_finds_the_same_rows_in_a_log_where_they_came_and_went(
    pipeline: Pipeline, source: psycopg.Connection
) -> None:
    pipeline.assert_in_step()  # so that the run that is going has read its own configuration
    source.execute("update orders set status = case status when 'open' then 'draft' else 'open' end::state")
    source.execute("update orders set status = 'draft' where id % 3 = 0")
    pipeline.add(View("again", ORDER.table, where=WHERE))
    pipeline.apply()
    job = pipeline.run("again-search", "again-cache")
    pipeline.assert_in_step()
    counts = {name: len(store.documents()) for name, store in pipeline.stores.items()}
    assert len(set(counts.values())) == 1, counts
    assert counts["again-cache"] > 10
    assert job.stop() == 0, job.output()


@pytest.mark.soak
def test_conditions_mean_the_same_on_records_of_the_snapshot_and_of_the_stream(
    pipeline: Pipeline, source: psycopg.Connection, spark: SparkSession
) -> None:
    """The test of test_where.py, on what Debezium writes instead of what it was seen to write."""
    print(f"DRIFTLESS_TEST_SEED={SEED}")
    made = Conditions(random.Random(f"{SEED} chain"))
    for written in ("snapshot", "stream"):
        if written == "stream":
            source.execute("update rows set id = id + 1000")
            source.execute("update plain set id = id + 1000")
            until("the changes to be in the log", partial(_in_log, pipeline, 1000))
        newest = {key: value for key, value in pipeline.records("public.rows") if key is not None}
        values = [value.decode() for value in newest.values() if value is not None]
        rows = Rows(source, spark, sorted(values, key=lambda value: int(json.loads(value)["id"])))
        wrong = rows.differences([made.condition() for _ in range(100)])
        assert not wrong, f"seed {SEED}: {written}: {len(wrong)} differ\n" + "\n".join(wrong[:5])
        assert min(rows.answers[answer] for answer in (True, False, None)) > 200, rows.answers


def _in_log(pipeline: Pipeline, least: int) -> bool:
    newest = dict(pipeline.records("public.rows"))
    return all(value is None or json.loads(value)["id"] >= least for value in newest.values())


@pytest.mark.usefixtures("pipeline")
def test_check_refuses_what_only_the_catalogue_can_tell(make_pipeline: MakePipeline) -> None:
    wrong = make_pipeline(
        View("typo", ORDER.table, where="status = 'opne' and totl > 5"),
        View("kind", ORDER.table, where="status = 'open'\nand note > 5"),
        View("hidden", ORDER.table, where="vip"),
        tables={"public.orders": {"exclude": ["vip"]}},
    )
    done = wrong.here("check")
    assert done.code == 1, done.err
    for what in (
        "views.typo.where: column 10: status has no such value; did you mean `open`?",
        "views.typo.where: column 21: public.orders has no column totl; did you mean `total`?",
        "views.kind.where: line 2, column 12: note is text, so the literal stands in quotes",
        "views.hidden.where: column 1: vip is excluded under source.tables, so the log does not have it",
    ):
        assert what in done.out, f"{what!r} is not among:\n{done.out}"
    assert wrong.here("apply").code == 2


def test_a_changed_condition_is_a_changed_definition(pipeline: Pipeline) -> None:
    machine = pipeline.machine("changed")
    machine.sync = json.loads(json.dumps(pipeline.sync))
    machine.sync["views"]["order"]["where"] = "vip"
    machine.write()
    planned = machine("plan")
    assert planned.code == 1
    assert "rebuild follower order-search: generation 2" in planned.out
    assert planned.out.count("when it is built: its where changed\n") == 2
    machine.sync["views"]["order"]["where"] = "initcap(note) = 'x'"
    machine.write()
    line = next(
        n for n, text in enumerate((machine.folder / "sync.yaml").read_text().splitlines(), 1) if "initcap" in text
    )
    refused = machine("check")
    assert refused.code == 2
    assert f"sync.yaml:{line}: views.order.where: column 1: there is no function initcap here, but " in refused.err
