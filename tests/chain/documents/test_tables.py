"""Tables that come, change, are emptied and go while a pipeline is running."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.meanwhile import meanwhile
from stack import Stack
from tests.chain.conftest import MakePipeline, newest_live, running
from tests.support.compare import View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

ROWS = 2_000
NOTES = 25_000
"""Three chunks of a snapshot."""
ITEM, NOTE = View("item", "public.items"), View("note", "public.notes", key=("author", "n"))


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table items (id int primary key, title text, price numeric(12, 2), at timestamptz)")
    source.execute(
        "insert into items select i, 'item ' || i, i / 7.0, '2024-01-01Z'::timestamptz + i * interval '1 s' "
        "from generate_series(1, %s) i",
        (ROWS,),
    )
    pipeline = make_pipeline(ITEM)
    pipeline.apply()
    return pipeline


def make_parts(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """A second table, and a view of it, which are not applied yet."""
    source.execute("create table parts (id uuid primary key default gen_random_uuid(), n int)")
    source.execute("insert into parts (n) select generate_series(1, %s)", (NOTES,))
    pipeline.sync["source"]["tables"]["public.parts"] = {}
    pipeline.add(View("part", "public.parts"))
    pipeline.here.write()


@pytest.fixture
def parts(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """It is followed; by the first test that wants it, it is added."""
    if "part" not in pipeline.views:
        make_parts(pipeline, source)
        stopped(pipeline)
        pipeline.apply()


@contextmanager
def busy(pipeline: Pipeline, *statements: str) -> Iterator[None]:
    """Run these again and again beside what is tested; `{n}` counts up from a million."""

    def change(ended: Event) -> None:
        with psycopg.connect(pipeline.dsn, autocommit=True) as connection:
            n = 1_000_000
            while not ended.wait(0.005):
                n += 1
                for statement in statements:
                    connection.execute(statement.format(n=n).encode())

    with meanwhile(change):
        yield


def stopped(pipeline: Pipeline) -> None:
    """End every run."""
    for job in pipeline.jobs():
        if job.running:
            assert job.stop() == 0, job.output()


ITEMS_CHANGE = (
    "insert into items (id, title) values ({n}, 'new')",
    "update items set title = title || '.' where id = {n} % 2000 + 1",
    "delete from items where id = {n} - 20 and id % 2 = 0",
)
NOTES_CHANGE = (
    "insert into notes (author, n, body) values ('x', {n}, 'new')",
    "update notes set body = body || '.' where author = 'Ä' and n = {n} * 37 % 12000",
    "delete from notes where author = 'b' and n = {n} * 41 % 12000",
    "update notes set n = n + 1000000 where author = 'b' and n = {n} * 43 % 12000",
)


@pytest.mark.soak
def test_a_table_is_added_while_all_others_and_itself_change(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """A snapshot beside the stream: no row is lost, doubled, stale or back from the dead."""
    running(pipeline)
    source.execute("create table notes (author text, n int, body text, primary key (author, n))")
    source.execute(
        "insert into notes select case i %% 2 when 0 then 'Ä' else 'b' end, i / 2, repeat('word ', i %% 9) "
        "from generate_series(1, %s) i",
        (NOTES,),
    )
    pipeline.sync["source"]["tables"]["public.notes"] = {}
    pipeline.add(NOTE)
    with busy(pipeline, *ITEMS_CHANGE, *NOTES_CHANGE):
        before = pipeline.follower("item-cache")["applied_lsn"]
        done = pipeline.apply()
        assert "snapshot table public.notes: it is new in a pipeline that captures already" in done.out
        pipeline.wait("item-cache", lsn=pipeline.lsn())
        assert pipeline.follower("item-cache")["applied_lsn"] != before
        pipeline.run("note-search", "note-cache")
    pipeline.assert_in_step()
    stopped(pipeline)
    assert pipeline.here("plan").code == 0


@pytest.mark.soak
def test_a_table_without_a_primary_key_is_added_and_loses_its_unique_index(
    pipeline: Pipeline, source: psycopg.Connection
) -> None:
    """Names that Debezium's list of keys would split; a large value; then another index, by which it is keyed anew."""
    running(pipeline)
    pipeline.wait("item-cache")
    source.execute('create table "odd.links" ("a;b:c, d" text not null, "$1" int not null, body text)')
    source.execute('create unique index by_pair on "odd.links" ("a;b:c, d", "$1")')
    source.execute("""insert into "odd.links" select 'x' || i % 7, i, 'one' from generate_series(1, 12000) i""")
    pipeline.sync["source"]["tables"]['public."odd.links"'] = {}
    link = View("link", 'public."odd.links"', key=("a;b:c, d", "$1"), relation=("public", "odd.links"))
    pipeline.sync["views"]["link"] = {"root": 'public."odd.links"'}
    pipeline.follow("link-search", link, {"opensearch": {"mapping": {"dynamic": False}}})
    links_change = (
        "insert into \"odd.links\" values ('y', {n}, 'new')",
        'update "odd.links" set body = body || \'.\' where "$1" = {n} * 37 % 12000',
        'update "odd.links" set "$1" = "$1" + 1000000 where "$1" = {n} * 43 % 12000',
        'delete from "odd.links" where "$1" = {n} * 41 % 12000',
    )
    with busy(pipeline, *links_change):
        done = pipeline.apply()
        assert 'snapshot table public."odd.links": it is new' in done.out
        pipeline.run("link-search")
    pipeline.assert_in_step("link-search")
    source.execute(
        'drop index by_pair; alter table "odd.links" add column n int generated by default as identity unique'
    )
    said = "its key was (a;b:c, d, $1) and is (n)"
    assert said in pipeline.status()["source"]["changed"]['public."odd.links"']


@pytest.mark.soak
def test_an_apply_that_is_killed_goes_on_with_the_snapshot(pipeline: Pipeline, source: psycopg.Connection) -> None:
    make_parts(pipeline, source)
    killed = pipeline.here.start("apply")
    until("the snapshot to be asked for", lambda: _signals(pipeline, "public.parts"), 60)
    killed.kill()
    early = pipeline.here("run", "part-cache")
    assert early.code == 1, early.out
    assert "the snapshot of public.parts is not complete" in early.err
    done = pipeline.apply()
    assert "snapshot table public.parts" in done.out
    running(pipeline)
    pipeline.assert_in_step("part-search", "part-cache")


def _end(pipeline: Pipeline, topic: str) -> int:
    """The end offset of a topic of one partition; an end of a transaction counts too."""
    consumer = Consumer({"bootstrap.servers": pipeline.endpoints.kafka, "group.id": "test"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=15)[1])
    finally:
        consumer.close()


def _signals(pipeline: Pipeline, table: str) -> list[Any]:
    """What was asked of Debezium for a table."""
    query = f"select id from driftless.signals_{pipeline.name} where id like '{table}/%'"
    return pipeline.connection.execute(query.encode()).fetchall()


CHANGES = {
    "a column with a default": ("add column stock int not null default 7", True),
    "a column that nothing is in": ("add column later text", False),
    "a renamed column": ("rename column title to name", True),
    "another type": ("alter column price type float8", True),
    "other values of the same type": ("alter column at type timestamptz(0) using at + interval '1.4 s'", True),
    "a column made again under its name": ("drop column price, add column price float8", True),
    "a dropped column": ("drop column name", False),
}
"""What is done to a table, and whether its rows have to be read anew."""


@pytest.mark.soak
@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_changes_under_load_ends_right(
    pipeline: Pipeline, source: psycopg.Connection, change: str
) -> None:
    """Told of by `status` and by the run, mended by `apply`, and followed to the last value."""
    statement, anew = CHANGES[change]
    job = running(pipeline)
    pipeline.wait("item-cache")
    load = (
        "insert into items (id) values ({n}) on conflict do nothing",
        "update items set at = at + interval '1 day' where id = {n} % 2000 + 1",
        "delete from items where id = {n} % 100 * 7",
    )
    with busy(pipeline, *load):
        source.execute(f"alter table items {statement}".encode())
        assert "public.items" in pipeline.status()["source"]["changed"]
        until("the run to tell of the change", lambda: "public.items changed: " in job.output(), 30)
        if change == "a renamed column":
            _rename_is_told(pipeline, job)
        done = pipeline.apply()
    assert ("snapshot table public.items" in done.out) == anew, done.out
    if not job.running:  # it met a row that no longer fitted
        assert "driftless apply" in job.output()
    running(pipeline)
    newest_live(pipeline, "item-search", "item-cache")
    pipeline.assert_in_step("item-search", "item-cache")
    assert pipeline.status()["source"]["changed"] == {}
    assert pipeline.here("plan").code == 0


def _rename_is_told(pipeline: Pipeline, job: Job) -> None:
    """By `check`, `plan` and the run: which column is gone, which is new, and what the mapping does not say of it."""
    said = "it has a new column: name; it has no column title any more; title may have been renamed to name"
    assert pipeline.status()["source"]["changed"]["public.items"] == said
    until("the run to name both columns", lambda: said in job.output(), 30)
    pipeline.sync["views"]["named"] = {"root": "public.items", "columns": ["id", "title"]}
    mapping = {"dynamic": False, "properties": {"id": {"type": "long"}, "title": {"type": "text"}}}
    follower = pipeline.sync["followers"]["item-search"]["opensearch"]
    before = follower["mapping"]
    follower["mapping"] = mapping
    pipeline.here.write()
    checked, planned = pipeline.here("check"), pipeline.here("plan")
    del pipeline.sync["views"]["named"]
    follower["mapping"] = before
    pipeline.here.write()
    assert "public.items has no column title any more; the column name is new: was it renamed?" in checked.out
    assert "public.items has no column title any more; the column name is new" in planned.err
    assert "opensearch.mapping: names title, which no document has" in checked.out
    assert "opensearch.mapping: does not name " in checked.out


@pytest.mark.soak
@pytest.mark.usefixtures("parts")
def test_another_key_is_followed_from_there(pipeline: Pipeline, source: psycopg.Connection) -> None:
    stopped(pipeline)
    source.execute("alter table parts drop constraint parts_pkey, add primary key (n)")
    part = View("part", "public.parts", key=("n",))
    for follower in ("part-search", "part-cache"):
        del pipeline.sync["followers"][follower], pipeline.stores[follower]
    del pipeline.sync["views"]["part"]
    pipeline.add(part)
    done = pipeline.apply()
    assert "snapshot table public.parts: its key was (id) and is (n)" in done.out
    running(pipeline)
    source.execute("delete from parts where n < 100")
    pipeline.assert_in_step("part-search", "part-cache")


def test_what_a_transaction_truncates_and_fills_again_is_what_readers_see(
    pipeline: Pipeline, source: psycopg.Connection
) -> None:
    running(pipeline)
    pipeline.wait()
    with psycopg.connect(pipeline.dsn) as connection:
        connection.execute("insert into items (id, price) values (5000001, 1)")
        connection.execute("truncate items")
        connection.execute("insert into items (id, price) values (5000002, 2), (1, 3)")
    source.execute("insert into items (id, price) values (5000003, 4)")
    pipeline.assert_in_step("item-search", "item-cache")
    until("3 documents to be counted", lambda: pipeline.follower("item-cache")["documents"] == 3, 30)


@pytest.mark.soak
@pytest.mark.usefixtures("parts")
def test_a_truncate_that_nobody_saw_is_found_at_the_next_start(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """Also from a session that fires no ordinary trigger, and twice."""
    stopped(pipeline)
    with psycopg.connect(pipeline.dsn) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute("truncate items, parts")
    source.execute("insert into items (id) select generate_series(1, 50)")
    source.execute("insert into parts (n) values (7)")
    source.execute("truncate items")
    source.execute("insert into items (id) select generate_series(40, 60)")
    job = running(pipeline)
    pipeline.assert_in_step()
    assert "TRUNCATE at " in job.output()


@pytest.mark.soak
@pytest.mark.usefixtures("parts")
def test_a_truncate_during_a_snapshot_takes_what_was_read(pipeline: Pipeline, source: psycopg.Connection) -> None:
    source.execute("insert into parts (n) select generate_series(100000, 100000 + %s)", (NOTES,))
    source.execute("alter table parts add column stars int not null default 3")
    running(pipeline)
    asked = len(_signals(pipeline, "public.parts"))
    pipeline.here.write()
    applying = pipeline.here.start("apply")
    until("the snapshot to be asked for", lambda: len(_signals(pipeline, "public.parts")) > asked, 60)
    source.execute("truncate parts")
    source.execute("insert into parts (n, stars) values (1, 5)")
    assert applying.wait(120) == 0, applying.output()
    pipeline.assert_in_step("part-search", "part-cache")


@pytest.mark.soak
@pytest.mark.usefixtures("parts")
def test_a_connect_worker_that_is_killed_in_a_snapshot_loses_no_row(
    pipeline: Pipeline, source: psycopg.Connection, stack: Stack
) -> None:
    """Rows of the chunk that it had read go with it; the next task reads them again."""
    source.execute("insert into parts (n) select generate_series(200000, 200000 + %s)", (4 * NOTES,))
    source.execute("alter table parts add column weight int not null default 2")
    running(pipeline)
    topic = f"{pipeline.name}.notifications"
    told = _end(pipeline, topic)
    pipeline.here.write()
    with busy(pipeline, "update parts set weight = weight + 1 where n = 200000 + {n} * 37 % 100000"):
        applying = pipeline.here.start("apply")
        # STARTED, DATA_COLLECTIONS_RESOLVED, and the first two of ten chunks.
        until("the snapshot to be under way", lambda: _end(pipeline, topic) >= told + 4, 60)
        stack.kill("connect")
        stack.start("connect")
        applying.wait(240)
        done = pipeline.apply()  # where the first was told that Connect was away, this one goes on
    assert "nothing to change" in done.out or "snapshot table public.parts" in done.out
    pipeline.assert_in_step("part-search", "part-cache")


@pytest.mark.soak
@pytest.mark.usefixtures("parts")
def test_a_table_taken_out_leaves_nothing_behind(pipeline: Pipeline, source: psycopg.Connection) -> None:
    del pipeline.sync["source"]["tables"]["public.parts"], pipeline.sync["views"]["part"]
    taken = {name: pipeline.sync["followers"].pop(name) for name in ("part-search", "part-cache")}
    pipeline.here.write()
    refused = pipeline.here("apply")
    assert refused.code == 2
    assert "public.parts was taken out, but part-cache, part-search still follows it" in " ".join(refused.err.split())
    pipeline.sync["followers"] |= taken
    pipeline.sync["views"]["part"] = {"root": "public.parts"}
    pipeline.sync["source"]["tables"]["public.parts"] = {}
    pipeline.here.write()
    running(pipeline)
    for name in taken:
        assert pipeline.here("remove", name, "--drop").code == 0
        del pipeline.sync["followers"][name], pipeline.stores[name]
    del pipeline.sync["source"]["tables"]["public.parts"], pipeline.sync["views"]["part"]
    pipeline.apply()
    assert pipeline.here("plan").code == 0
    topics = AdminClient({"bootstrap.servers": pipeline.endpoints.kafka}).list_topics(timeout=15).topics
    assert f"{pipeline.name}.public.items" in topics
    assert f"{pipeline.name}.public.parts" not in topics
    triggers = "select tgname from pg_trigger where tgrelid = 'parts'::regclass"
    assert source.execute(triggers).fetchall() == []
    carried = "select tablename::text from pg_publication_tables where tablename in ('parts', 'items')"
    assert source.execute(carried).fetchall() == [("items",)]
    pipeline.assert_in_step()


@pytest.mark.soak
def test_a_truncate_while_its_trigger_was_off(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """Nothing tells the log; what is left of it are another file of the table, and a trigger that was changed."""
    running(pipeline)
    pipeline.assert_in_step("item-search", "item-cache")
    source.execute("alter table items disable trigger driftless_truncate")
    source.execute("truncate items")
    source.execute("insert into items (id) select generate_series(70, 80)")
    source.execute("alter table items enable always trigger driftless_truncate")
    assert "may have been truncated" in pipeline.status()["source"]["changed"]["public.items"]
    done = pipeline.apply()
    assert "snapshot table public.items: it may have been truncated while the trigger" in done.out
    pipeline.assert_in_step("item-search", "item-cache")
    assert pipeline.here("plan").code == 0


@pytest.mark.soak
def test_a_renamed_value_of_an_enum(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """Every row that has it shows it under its new name, and no record of the log says so."""
    running(pipeline)
    source.execute("create type grade as enum ('low', 'high')")
    source.execute("alter table items add column grade grade")
    pipeline.apply()
    source.execute("update items set grade = case id % 2 when 0 then 'low' else 'high' end::grade")
    pipeline.assert_in_step("item-search", "item-cache")
    source.execute("alter type grade rename value 'low' to 'lowest'")
    assert pipeline.status()["source"]["changed"]["public.items"] == "values of the enum grade were renamed"
    assert pipeline.differences(["item-cache"]), "nothing shows the old name"
    done = pipeline.apply()
    assert "snapshot table public.items: values of the enum grade were renamed" in done.out
    source.execute("update items set grade = 'lowest' where id < 5")
    pipeline.assert_in_step("item-search", "item-cache")
