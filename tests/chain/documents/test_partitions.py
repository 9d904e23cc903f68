"""Partitioned tables: followed by the table that has the partitions, whatever comes, goes, is emptied or moves."""

from __future__ import annotations

import psycopg
import pytest

from tests.chain.conftest import MakePipeline, newest_live, running
from tests.support.compare import View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

LARGE = "x" * 10_000
EVENT = View("event", "public.events", key=("id", "day"))
BOTH = ("event-search", "event-cache")


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """By days; the second partition has partitions itself."""
    source.execute("create table events (id int, day int, body text, primary key (id, day)) partition by range (day)")
    source.execute("create table first_days partition of events for values from (0) to (10)")
    source.execute(
        "create table more_days partition of events for values from (10) to (20) partition by range (day);"
        "create table some_days partition of more_days for values from (10) to (15);"
        "create table other_days partition of more_days for values from (15) to (20)"
    )
    source.execute("insert into events select i, i %% 20, %s || i from generate_series(1, 200) i", (LARGE,))
    pipeline = make_pipeline(EVENT)
    pipeline.apply()
    return pipeline


@pytest.fixture
def job(pipeline: Pipeline) -> Job:
    return running(pipeline)


def followed_on(pipeline: Pipeline, why: str, told: str = "") -> None:
    """`status` tells of it, `apply` re-snapshots the table for that reason, and documents are in step again."""
    table = "public.events"
    until("it to be told", lambda: pipeline.status()["source"]["changed"].get(table) == (told or why), 30)
    done = pipeline.apply()
    assert f"snapshot table {table}: {why}" in done.out, done.out
    running(pipeline)
    newest_live(pipeline, *BOTH)
    pipeline.assert_in_step()
    assert pipeline.status()["source"]["changed"] == {}
    assert pipeline.here("plan").code == 0


def test_rows_of_all_partitions_are_read_and_followed(pipeline: Pipeline, source: psycopg.Connection, job: Job) -> None:
    """Also those that an UPDATE moves to another partition, and large values that it leaves alone."""
    pipeline.assert_in_step()
    assert len(pipeline.stores["event-cache"].documents()) == 200
    with source.transaction():
        source.execute("update events set day = (day + 10) % 20 where id % 3 = 0")
        source.execute("update events set id = id + 1000 where id % 5 = 0")
        source.execute("delete from events where id % 7 = 0")
        source.execute("insert into events select i, i % 20, 'new' from generate_series(500, 520) i")
    pipeline.assert_in_step()
    assert job.running
    assert pipeline.here("plan").code == 0


def test_a_partition_that_comes_later_is_followed_at_once(
    pipeline: Pipeline, source: psycopg.Connection, job: Job
) -> None:
    """`apply` makes it ready, which reads nothing anew: all of its rows are in the log."""
    source.execute("create table later_days partition of events for values from (20) to (30)")
    source.execute("insert into events select i, 20 + i %% 10, %s from generate_series(2000, 2020) i", (LARGE,))
    pipeline.assert_in_step()
    until(
        "the run to tell of it",
        lambda: "its partition public.later_days is new, and not ready yet" in job.output(),
        30,
    )
    oid = str(source.execute("select 'later_days'::regclass::oid").fetchall()[0][0])
    assert oid in pipeline.told("storage/public.events")["partitions"], "nobody would notice if it went again"
    done = pipeline.apply()
    assert "snapshot" not in done.out, done.out
    assert "public.later_days: replica identity full" in done.out
    source.execute("update events set id = id + 5000 where day >= 20")
    pipeline.assert_in_step()
    assert pipeline.status()["source"]["changed"] == {}
    assert pipeline.here("plan").code == 0


def test_a_truncate_of_the_whole_table_needs_nothing(pipeline: Pipeline, source: psycopg.Connection, job: Job) -> None:
    source.execute("truncate events")
    source.execute("insert into events select i, i %% 30, %s from generate_series(1, 60) i", (LARGE,))
    newest_live(pipeline, *BOTH)
    pipeline.assert_in_step()
    assert len(pipeline.stores["event-cache"].documents()) == 60
    assert pipeline.status()["source"]["changed"] == {}
    assert pipeline.here("plan").code == 0
    assert job.running


def test_a_truncate_of_one_partition_is_told_and_mended(pipeline: Pipeline, source: psycopg.Connection) -> None:
    running(pipeline)
    source.execute("truncate some_days")
    followed_on(pipeline, "a partition was truncated, and the log has its rows still")
    assert len(pipeline.stores["event-cache"].documents()) == 50


@pytest.mark.soak
def test_truncates_of_both_in_one_transaction(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """The second is of rows that the first left behind."""
    running(pipeline)
    with source.transaction():
        source.execute("truncate events")
        source.execute("insert into events select i, i % 30, 'again' from generate_series(1, 60) i")
        source.execute("truncate other_days")
    followed_on(pipeline, "a partition was truncated, and the log has its rows still")
    assert len(pipeline.stores["event-cache"].documents()) == 50


@pytest.mark.soak
def test_a_partition_that_goes_takes_its_documents_along(pipeline: Pipeline, source: psycopg.Connection) -> None:
    running(pipeline)
    source.execute("alter table events detach partition later_days")
    followed_on(pipeline, "the partition public.later_days was detached or dropped, and the log has its rows still")
    source.execute("insert into later_days values (9000, 25, 'aside')")
    source.execute("alter table events attach partition later_days for values from (20) to (30)")
    followed_on(pipeline, "the partition public.later_days was attached, and its rows are not in the log")
    source.execute("drop table first_days")
    followed_on(pipeline, "the partition public.first_days was detached or dropped, and the log has its rows still")


@pytest.mark.soak
def test_a_partition_that_is_made_filled_and_attached_at_once(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """Its rows were written before it was a partition, so the log has none of them."""
    running(pipeline)
    with source.transaction():
        source.execute("create table moved (like events including all)")
        source.execute("insert into moved select i, 30 + i % 10, 'moved' from generate_series(1, 30) i")
        source.execute("alter table events attach partition moved for values from (30) to (40)")
    followed_on(pipeline, "the partition public.moved was attached, and its rows are not in the log")
    assert [key for key in pipeline.stores["event-cache"].documents() if "30" in str(key)]


@pytest.mark.soak
def test_a_column_with_a_default_and_another_type(pipeline: Pipeline, source: psycopg.Connection) -> None:
    running(pipeline)
    source.execute("alter table events add column stars int not null default 3")
    followed_on(pipeline, "stars came with values that the log does not have", "it has a new column: stars")
    source.execute("alter table events alter column stars type bigint")
    followed_on(pipeline, "the type of stars changed")


def test_what_cannot_be_followed_is_refused(pipeline: Pipeline, source: psycopg.Connection) -> None:
    source.execute("create unlogged table hasty partition of events for values from (100) to (110)")
    pipeline.sync["source"]["tables"]["public.other_days"] = {}
    pipeline.sync["source"]["tables"]["public.more_days"] = {}
    pipeline.here.write()
    done = pipeline.here("check")
    for table in ("public.other_days", "public.more_days"):
        del pipeline.sync["source"]["tables"][table]
    pipeline.here.write()
    source.execute("drop table hasty")
    assert done.code == 1
    for said in (
        "public.events: its partition public.hasty is unlogged, so its changes are not in the log",
        "source.tables.public.other_days: it is a partition of public.events, in whose topic its rows are",
        "public.more_days is a partition of another table, and has partitions itself",
    ):
        assert said in done.out, done.out


@pytest.mark.soak
def test_one_that_is_taken_out_keeps_no_trigger(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """Nor does any of its partitions. It is the last test: nothing is followed any more after it."""
    source.execute("create table lone (id int primary key)")
    running(pipeline)
    for name in BOTH:
        assert pipeline.here("remove", name, "--drop").code == 0
    cache = {"redis": {"url": "${CACHE_URL}", "key": f"{pipeline.name}-lone:{{id}}"}}
    pipeline.sync["source"]["tables"] = {"public.lone": {}}
    pipeline.sync["views"] = {"lone": {"root": "public.lone"}}
    pipeline.sync["followers"] = {"lone-cache": {"view": "lone", **cache}}
    assert {"events", "other_days"} <= _triggered(source)
    pipeline.apply()
    assert _triggered(source) == {"lone"}


def _triggered(source: psycopg.Connection) -> set[str]:
    """Every table with a trigger that somebody made."""
    rows = source.execute("select tgrelid::regclass::text from pg_trigger where not tgisinternal")
    return {row[0] for row in rows}
