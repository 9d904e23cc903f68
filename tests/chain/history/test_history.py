"""The ground that the log stands on is taken away: the slot, the server's history, the publication, Connect's position.

Whoever follows stops and says what to do, or goes on by itself; and afterwards every follower equals the source.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import psycopg
import pytest

from driftless.lsn import parse_lsn
from stack import Stack
from tests.chain.conftest import MakePipeline, in_step, running
from tests.chain.support.broken import (
    Copy,
    connector,
    connector_stopped,
    drop_slot,
    ends,
    leave_slot,
    rest,
    slot,
    slot_row,
)
from tests.chain.views.test_views import orders_and_customers
from tests.support.compare import View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]

APPLY = "run `driftless apply`: it re-snapshots the tables; then restart `driftless run`"
RESNAPSHOT = "run `driftless apply --anew`: it re-snapshots all tables from there"


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """With a table that has no row and never had one: nothing in its log tells that it was read."""
    pipeline = orders_and_customers(make_pipeline, source)
    source.execute("create table vouchers (id int primary key)")
    pipeline.sync["source"]["tables"]["public.vouchers"] = {}
    pipeline.add(View("voucher", "public.vouchers"))
    pipeline.apply()
    return pipeline


@pytest.fixture
def job(pipeline: Pipeline) -> Job:
    return in_step(pipeline)


COUNT = count()


def gap(pipeline: Pipeline) -> None:
    """Changes of every kind, to rows that every view shows; each time others."""
    pipeline.connect()
    n = next(COUNT)
    customer = "(select min(id) from customers)"
    for statement in (
        f"delete from customers where id = {customer}",
        f"update customers set name = name || '!{n}' where id = {customer}",
        f"insert into customers select max(id) + 1, 'new {n}' from customers",
        "delete from order_lines where order_id = (select max(order_id) from order_lines)",
        "delete from orders where id = (select max(id) from orders)",
    ):
        pipeline.connection.execute(statement.encode())


def mended(pipeline: Pipeline, *arguments: str) -> None:
    """`apply` reads anew what has to be, the run goes on from there, and nothing is left to do."""
    assert pipeline.differences(), "nothing was missed: the fault had no effect"
    done = pipeline.here("apply", *arguments, seconds=240)
    assert done.code == 0, done.out + done.err
    again(pipeline)


def again(pipeline: Pipeline) -> None:
    running(pipeline)
    pipeline.assert_in_step()
    gap(pipeline)
    pipeline.assert_in_step()
    plan = pipeline.here("plan")
    assert (plan.code, "nothing to change" in plan.out) == (0, True), plan.out + plan.err
    assert pipeline.status()["source"]["trouble"] is None


def told_everywhere(pipeline: Pipeline, message: str, *, by: tuple[str, ...] = ("status", "check", "run")) -> None:
    """By `status`, by `check` and by a run that is started, which follows nothing."""
    for command in by:
        said = pipeline.here(command)
        assert said.code == 1, said
        assert message in " ".join((said.out + said.err).split()), said


def test_a_slot_that_was_dropped(pipeline: Pipeline, job: Job) -> None:
    drop_slot(pipeline)
    gap(pipeline)
    message = f"the slot {slot(pipeline)} is gone"
    ends(job, message, APPLY)
    told_everywhere(pipeline, message)
    mended(pipeline)


def test_a_slot_that_was_invalidated(pipeline: Pipeline, job: Job) -> None:
    limit = "alter system {} max_slot_wal_keep_size{}"
    with connector_stopped(pipeline):
        gap(pipeline)
        pipeline.connection.execute(limit.format("set", " = '1MB'").encode())
        pipeline.connection.execute("select pg_reload_conf()")
        for _ in range(4):
            pipeline.connection.execute("select pg_logical_emit_message(false, 'nobody', 'x'), pg_switch_wal()")
        pipeline.connection.execute("checkpoint")
        row = slot_row(pipeline)
        assert row is not None
        assert (row["wal_status"], row["invalidation_reason"]) == ("lost", "wal_removed")
        pipeline.connection.execute(limit.format("reset", "").encode())
        pipeline.connection.execute("select pg_reload_conf()")
    message = f"the slot {slot(pipeline)} is lost: the log that it needs has been removed (wal_removed)"
    ends(job, message, APPLY)
    told_everywhere(pipeline, message)
    mended(pipeline)


def test_a_slot_that_something_else_moved(pipeline: Pipeline, job: Job) -> None:
    """Debezium goes on from there without a word; what was found stays known though nothing shows it any more."""
    with connector_stopped(pipeline):
        gap(pipeline)
        moved = "select pg_replication_slot_advance(%s, pg_current_wal_lsn())"
        pipeline.connection.execute(moved, (slot(pipeline),))
        message = f"the slot {slot(pipeline)} was moved to"
        ends(job, message, APPLY)
    until("the connector to go on", lambda: (slot_row(pipeline) or {}).get("active"))
    told_everywhere(pipeline, message)
    mended(pipeline)


def test_a_slot_that_was_moved_while_nobody_looked(pipeline: Pipeline, job: Job) -> None:
    """Nothing shows it once the connector has gone on; that nobody watched is told until all is proven right."""
    assert job.stop() == 0
    with connector_stopped(pipeline):
        gap(pipeline)
        moved = "select pg_replication_slot_advance(%s, pg_current_wal_lsn())"
        pipeline.connection.execute(moved, (slot(pipeline),))
    until("the connector to go on", lambda: (slot_row(pipeline) or {}).get("active"))
    before = parse_lsn(pipeline.lsn())
    pipeline.connection.execute("update customers set name = name || '?'")
    until("it to have read on", lambda: parse_lsn((slot_row(pipeline) or {})["confirmed_flush_lsn"]) > before)
    running(pipeline)
    pipeline.wait()
    status = pipeline.status()
    assert status["source"]["trouble"] is None, "somebody has seen it all the same"
    unwatched = status["source"]["unwatched_lsn"]
    assert unwatched is not None
    assert f"reconnected to its replication slot before {unwatched} while no `driftless run` was watching" in " ".join(
        pipeline.here("status").out.split()
    )
    assert pipeline.here("verify", seconds=240).code == 1, "nothing was missed: the fault had no effect"
    assert pipeline.status()["source"]["unwatched_lsn"] == unwatched
    done = pipeline.here("verify", "--repair", seconds=240)
    assert done.code == 0, done.out + done.err
    assert pipeline.status()["source"]["unwatched_lsn"] is None
    again(pipeline)


def test_a_slot_that_was_dropped_and_made_again_by_somebody(pipeline: Pipeline, job: Job) -> None:
    with connector_stopped(pipeline):
        gap(pipeline)
        drop_slot(pipeline)
        pipeline.connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (slot(pipeline),))
        ends(job, f"the slot {slot(pipeline)}", APPLY)
    mended(pipeline)


def test_a_table_that_left_the_publication(pipeline: Pipeline, job: Job) -> None:
    pipeline.connection.execute(f"alter publication {slot(pipeline)} drop table customers".encode())
    gap(pipeline)
    message = "public.customers: it is not in the publication any more"
    ends(job, message, APPLY)
    told_everywhere(pipeline, message)
    mended(pipeline)


def test_a_table_that_left_the_publication_and_came_back_while_nobody_looked(pipeline: Pipeline, job: Job) -> None:
    assert job.stop() == 0
    publication = slot(pipeline)
    pipeline.connection.execute(f"alter publication {publication} drop table order_lines".encode())
    pipeline.connection.execute("delete from order_lines where order_id = (select min(order_id) from order_lines)")
    pipeline.connection.execute(f"alter publication {publication} add table order_lines".encode())
    told_everywhere(pipeline, "public.order_lines: its entry in the publication is another one")
    mended(pipeline)


def test_a_position_that_connect_has_lost(pipeline: Pipeline, job: Job) -> None:
    """Debezium reads all tables, which tells no deletes; the run begins anew there by itself."""
    with connector_stopped(pipeline):
        gap(pipeline)
        rest(pipeline).call("DELETE", f"{connector(pipeline)}/offsets")
        # What the slot had not been told to be read is read by nobody now.
        leave_slot(pipeline)
    pipeline.assert_in_step()
    assert "the connector has re-snapshotted all tables: a new epoch begins" in job.output()
    assert job.running, "the same run has gone on"
    again(pipeline)


def test_a_server_that_was_restored(pipeline: Pipeline, job: Job, stack: Stack, tmp_path: Path) -> None:
    """Its log is behind ours: what is committed until it has passed that is read by nobody."""
    pipeline.connection.close()
    copy = Copy(stack, tmp_path)
    gap(pipeline)
    pipeline.assert_in_step()
    copy.restore()
    gap(pipeline)
    message = "the server was restored from an older state"
    ends(job, message, RESNAPSHOT)
    told_everywhere(pipeline, message)
    refused = pipeline.here("apply")
    assert (refused.code, message in " ".join(refused.err.split())) == (2, True), refused
    mended(pipeline, "--anew")


def test_a_standby_that_was_promoted(pipeline: Pipeline, job: Job, stack: Stack, tmp_path: Path) -> None:
    """It had not got the last commits, whose documents are in every follower."""
    pipeline.connection.close()
    copy = Copy(stack, tmp_path)
    gap(pipeline)
    pipeline.assert_in_step()
    copy.promote(pipeline.dsn)
    pipeline.connect()
    message = "this is not the database that the pipeline was made for: timeline was"
    ends(job, message, RESNAPSHOT)
    gap(pipeline)
    told_everywhere(pipeline, message)
    mended(pipeline, "--anew")
