"""Documents are what Postgres says, from the snapshot and from the stream, in both kinds of store."""

from __future__ import annotations

import random
import threading

import psycopg
import pytest

from tests.chain.conftest import MakePipeline
from tests.support.compare import Redis, View
from tests.support.machine import until
from tests.support.pipeline import Pipeline
from tests.support.writer import COLUMNS, Rows, large, row, targets

pytestmark = pytest.mark.server

HIDDEN = "swordfish-9F3A"
THINGS, PAIRS, TOKENS = targets()
SHOWN = {"key": "id", "größe": "size", 'it\'s `a` "b"': "name"}


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """Rows of every type in three tables, then a pipeline over them that runs."""
    rng = random.Random("snapshot")
    for target in (THINGS, PAIRS, TOKENS):
        target.create(source)
        rows = Rows(source, target)
        for key in target.keys[:40]:
            rows.insert(key, {**row(rng), "large": large(rng)})
    source.execute("create table hidden (id int primary key, name text, size numeric, secret text, unshown text)")
    source.execute(
        "insert into hidden select n, 'name ' || n, n / 2.0, %s || n from generate_series(1, 20) n", (HIDDEN,)
    )
    source.execute('create table "_ItemToTag" ("A" int not null, "B" int not null)')
    source.execute('create unique index on "_ItemToTag" ("A", "B")')
    source.execute('insert into "_ItemToTag" select n / 5, n % 5 from generate_series(0, 39) n')
    pipeline = make_pipeline(
        View("thing", THINGS.table),
        View("pair", PAIRS.table, tuple(PAIRS.key)),
        View("token", TOKENS.table),
        View("shown", "public.hidden", fields=SHOWN),
        View("tagged", "public._ItemToTag", ("A", "B")),
        tables={
            **{table: {} for table in (*(target.table for target in (THINGS, PAIRS, TOKENS)), "public._ItemToTag")},
            "public.hidden": {"exclude": ["secret"]},
        },
    )
    pipeline.apply()
    pipeline.run()
    return pipeline


@pytest.fixture(scope="module")
def tables(source: psycopg.Connection) -> list[Rows]:
    """Statements on a table of each kind of key."""
    return [Rows(source, target) for target in (THINGS, PAIRS, TOKENS)]


def test_a_snapshot_of_every_type_is_what_to_jsonb_says(pipeline: Pipeline) -> None:
    pipeline.assert_in_step()


def test_the_comparison_had_something_to_compare(pipeline: Pipeline) -> None:
    assert {name: len(store.documents()) for name, store in pipeline.stores.items()} == {
        f"{view}-{kind}": 20 if view == "shown" else 40 for view in pipeline.views for kind in ("search", "cache")
    }


def test_changes_of_every_type_follow(pipeline: Pipeline, tables: list[Rows]) -> None:
    rng = random.Random("stream")
    for rows in tables:
        for key in rows.target.keys:
            assert rows.insert(key, row(rng)) or rows.update(key, row(rng))
    pipeline.assert_in_step()


def test_every_column_has_a_value_somewhere(source: psycopg.Connection, tables: list[Rows]) -> None:
    for rows in tables:
        for name in (*COLUMNS, "large"):
            found = source.execute(f"select count({name}) from {rows.target.table}".encode()).fetchone()
            assert found is not None
            assert found[0] > 5, f"{rows.target.table}.{name}"


def test_all_columns_can_become_null_and_come_back(pipeline: Pipeline, tables: list[Rows]) -> None:
    rng = random.Random("nulls")
    for nulls in (1, 0):
        for rows in tables:
            for key in rows.target.keys[:3]:
                assert rows.update(key, row(rng, nulls=nulls)) == 1
        pipeline.assert_in_step()


def test_a_small_change_keeps_the_large_value_beside_it(pipeline: Pipeline, tables: list[Rows]) -> None:
    for rows in tables:
        for key in rows.target.keys[:40]:
            assert rows.update(key, {"note": "changed alone"}) == 1
    pipeline.assert_in_step()


def test_a_changed_primary_key_leaves_no_document_behind(pipeline: Pipeline, tables: list[Rows]) -> None:
    for rows in tables:
        first, second, *_ = rows.target.keys
        rows.delete(second)
        assert rows.rekey(first, second) == 1
    pipeline.assert_in_step()


def test_a_table_without_a_primary_key_is_followed_by_its_unique_index(
    pipeline: Pipeline, source: psycopg.Connection
) -> None:
    identity = source.execute("select relreplident from pg_class where relname = '_ItemToTag'").fetchone()
    assert identity == ("i",)
    with source.transaction():
        source.execute('insert into "_ItemToTag" values (100, 1), (100, 2), (100, 3)')
        source.execute('delete from "_ItemToTag" where "A" = 0')
        source.execute('update "_ItemToTag" set "B" = "B" + 10 where "A" = 1')
    pipeline.assert_in_step("tagged-search", "tagged-cache")
    assert len(pipeline.stores["tagged-cache"].documents()) == 40 + 3 - 5
    assert pipeline.here("plan").code == 0


def test_two_rows_can_change_keys_with_each_other(
    pipeline: Pipeline, tables: list[Rows], source: psycopg.Connection
) -> None:
    for rows in tables:
        one, other = rows.target.keys[3:5]
        aside = rows.target.aside[0]
        with source.transaction():
            assert [rows.rekey(one, aside), rows.rekey(other, one), rows.rekey(aside, other)] == [1, 1, 1]
    pipeline.assert_in_step()


def test_a_row_deleted_and_inserted_again_in_one_transaction_stays(
    pipeline: Pipeline, tables: list[Rows], source: psycopg.Connection
) -> None:
    for rows in tables:
        key = rows.target.keys[6]
        with source.transaction():
            assert rows.delete(key) == 1
            assert rows.insert(key, row(random.Random("again"))) == 1
    pipeline.assert_in_step()


def test_what_is_rolled_back_never_arrives(pipeline: Pipeline, tables: list[Rows], source: psycopg.Connection) -> None:
    for rows in tables:
        key, other = rows.target.keys[7:9]
        with source.transaction():
            rows.update(key, {"note": "kept"})
            with source.transaction(force_rollback=True):
                rows.update(key, {"note": "undone"})
                rows.delete(other)
        with source.transaction(force_rollback=True):
            rows.delete(key)
    pipeline.assert_in_step()


def test_the_row_of_an_insert_that_waited_for_a_delete_lives(
    pipeline: Pipeline, source: psycopg.Connection, module_database: str
) -> None:
    """Its record in the WAL stands before the one of the delete that it waited for (hazards.md, section 0)."""
    insert = b"insert into pairs (region, n, note) values ('race', 1, %s)"
    blocked = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    with psycopg.connect(module_database, autocommit=True) as other:
        late = threading.Thread(target=other.execute, args=(insert, ("late",)))
        with source.transaction():
            source.execute(insert, ("early",))
            late.start()
            pid = other.info.backend_pid
            until("the second insert to wait for the first", lambda: source.execute(blocked, (pid,)).fetchone())
            source.execute("delete from pairs where region = 'race'")
        late.join(30)
    assert source.execute("select note from pairs where region = 'race'").fetchall() == [("late",)]
    pipeline.assert_in_step()


def test_a_delete_is_a_tombstone_in_the_log(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """Not the text `null`, as Debezium's own default gives with this converter: compaction would never forget it."""
    source.execute("delete from hidden where id = 1")
    pipeline.wait()
    assert [value for key, value in pipeline.records("public.hidden") if key == b'{"id":1}'][-1] is None


def test_an_excluded_column_is_nowhere_in_the_log(pipeline: Pipeline, source: psycopg.Connection) -> None:
    source.execute("update hidden set secret = %s || 'changed'", (HIDDEN,))
    source.execute("update hidden set id = id + 1000 where id > 15")
    pipeline.assert_in_step()
    records = pipeline.records("public.hidden")
    assert len(records) > 20
    assert not [record for record in records if HIDDEN.encode() in (record[0] or b"") + (record[1] or b"")]


def test_a_number_keeps_its_scale(pipeline: Pipeline, source: psycopg.Connection) -> None:
    source.execute("update things set price = 1.1000, amount = -0.10, big = 9007199254740993 where id = 20")
    pipeline.wait()
    store = pipeline.stores["thing-cache"]
    assert isinstance(store, Redis)
    text = store.texts()[store.name(("20",))]
    for member in ('"price":1.1000', '"amount":-0.10', '"big":9007199254740993'):
        assert member in text
