"""The primary dies and its standby takes over: the run goes on there, where it is proved that nothing is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from bench.meanwhile import meanwhile
from stack import Endpoints, Stack
from tests.chain.conftest import MakePipeline
from tests.chain.support.broken import connector, connector_stopped, ends, rest, slot, slot_row
from tests.chain.support.broken import length as written
from tests.chain.support.two_servers import STANDBY_SLOT, TwoServers, two_servers
from tests.support.compare import View
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(420)]

RESNAPSHOT = "run `driftless apply --anew`: it re-snapshots all tables from there"


@contextmanager
def followed(
    stack: Stack, endpoints: Endpoints, folder: Path, *, sync: bool = True, moved: bool = False
) -> Iterator[tuple[Pipeline, TwoServers]]:
    """A pipeline over two servers, in step with the primary. `sync`: its slot is on the standby, too. `moved`: it knows
    one address.
    """
    with two_servers(stack, sync=sync) as servers:
        with servers.primary.connect("shop") as connection:
            connection.execute("create table items (id int primary key, name text)")
            connection.execute("insert into items select n, 'item ' || n from generate_series(1, 500) n")
        dsn = servers.dsn(servers.primary) if moved else servers.dsn()
        pipeline = Pipeline(folder, endpoints, dsn, [View("item", "public.items")])
        try:
            pipeline.apply()
            if sync:
                servers.await_slot(slot(pipeline))
            pipeline.run()
            pipeline.assert_in_step()
            yield pipeline, servers
        finally:
            pipeline.end_jobs()
            pipeline.connect()
            pipeline.remove()


def writer(servers: TwoServers, ended: Event) -> None:
    """Transactions of several rows, as fast as they go, until the server is gone."""
    n = 1000
    with servers.primary.connect("shop") as connection:
        while not ended.is_set():
            n += 1
            try:
                with connection.transaction():
                    connection.execute(
                        "insert into items select %s * 100 + i, 'new' from generate_series(1, 20) i", (n,)
                    )
                    connection.execute("update items set name = name || '!' where id = %s", (n % 500 + 1,))
            except psycopg.OperationalError:
                return


def changed(pipeline: Pipeline) -> None:
    pipeline.connect()
    pipeline.connection.execute("update items set name = name || '?' where id < 100")
    pipeline.connection.execute("delete from items where id = (select min(id) from items)")


def said(pipeline: Pipeline, *command: str) -> str:
    done = pipeline.here(*command)
    return " ".join((done.out + done.err).split())


def test_the_run_goes_on_at_the_standby(stack: Stack, endpoints: Endpoints, tmp_path: Path) -> None:
    """The primary is killed while transactions are written; nothing is re-snapshotted, and nothing is missing."""
    with followed(stack, endpoints, tmp_path) as (pipeline, servers):
        (job,) = pipeline.jobs()
        before = pipeline.told("epochs/public.items")
        with meanwhile(lambda ended: writer(servers, ended)):
            Event().wait(5)
            servers.primary.kill()
        servers.promote()
        changed(pipeline)
        pipeline.assert_in_step()
        assert job.running
        assert "a standby was promoted: the source is on timeline 2 now, and was on 1" in job.output()
        assert pipeline.told("epochs/public.items") == before
        assert pipeline.told("pipeline/identity")["timeline"] == 2
        assert said(pipeline, "plan").startswith("nothing to change")
        servers.primary.start()  # and is the first that the DSN names
        assert "on timeline 1, and the log was read on timeline 2: another server has taken" in said(pipeline, "check")
        servers.primary.stop()
        assert said(pipeline, "plan").startswith("nothing to change")


def test_nothing_is_read_of_another_timeline_before_it_is_proved(
    stack: Stack, endpoints: Endpoints, tmp_path: Path
) -> None:
    """The promoted standby has the primary's address, so Debezium finds it by itself, and nobody looks after it."""
    with followed(stack, endpoints, tmp_path, moved=True) as (pipeline, servers):
        pipeline.end_jobs()
        before = pipeline.told("epochs/public.items")
        changed(pipeline)
        log = stack.folder / "logs" / "connect.log"
        reason = "this server is on timeline 2, and the log was read on timeline 1"
        refused = log.read_text().count(reason)
        servers.primary.kill()
        servers.promote(moved=True)
        changed(pipeline)
        until("the connector to be refused", lambda: log.read_text().count(reason) > refused, 120)
        length = written(pipeline, "public.items")
        assert "a standby was promoted: the source is on timeline 2 now, and was on 1" in said(pipeline, "check")
        changed(pipeline)
        assert written(pipeline, "public.items") == length
        plan = said(pipeline, "plan")
        assert "register source: a standby was promoted" in plan
        assert "snapshot" not in plan
        pipeline.apply()
        pipeline.run()
        pipeline.assert_in_step()
        assert pipeline.told("epochs/public.items") == before


@pytest.mark.soak
def test_a_standby_that_keeps_no_slot(stack: Stack, endpoints: Endpoints, tmp_path: Path) -> None:
    """It may have all, and nothing proves it: the tables are re-snapshotted."""
    with followed(stack, endpoints, tmp_path, sync=False) as (pipeline, servers):
        (job,) = pipeline.jobs()
        told = f"the standby behind the slot {STANDBY_SLOT} may be behind what followers show"
        assert told in said(pipeline, "check")
        pipeline.assert_in_step()
        servers.caught_up()
        servers.primary.kill()
        servers.promote()
        ends(job, f"the slot {slot(pipeline)} is not there: it was not synchronized to that standby", RESNAPSHOT)
        changed(pipeline)
        assert pipeline.here("apply").code == 2
        done = pipeline.here("apply", "--anew", seconds=240)
        assert done.code == 0, done.out + done.err
        pipeline.run()
        pipeline.assert_in_step()


@pytest.mark.soak
def test_a_standby_that_is_away_holds_up_changes(stack: Stack, endpoints: Endpoints, tmp_path: Path) -> None:
    """As `synchronized_standby_slots` says; `status` names the slot, and all goes on when it is back."""
    with followed(stack, endpoints, tmp_path) as (pipeline, servers):
        assert said(pipeline, "plan").startswith("nothing to change")
        servers.standby.stop()
        changed(pipeline)
        told = (
            f"Postgres sends no change before the standby behind the slot {STANDBY_SLOT} has it, and nobody reads that"
        )
        until("status to say so", lambda: told in said(pipeline, "status"), 60)
        assert pipeline.differences()
        servers.standby.start()
        pipeline.assert_in_step()
        assert told not in said(pipeline, "status")


def test_a_slot_that_was_made_before_slots_were_kept_on_standbys(
    make_pipeline: MakePipeline, source: psycopg.Connection
) -> None:
    source.execute("create table items (id int primary key, name text)")
    source.execute("insert into items select n, 'item ' || n from generate_series(1, 500) n")
    pipeline = make_pipeline(View("item", "public.items"))
    pipeline.apply()
    path = f"{connector(pipeline)}/config"
    settings = rest(pipeline).call("GET", path)
    assert settings.pop("slot.failover") == "true"
    with connector_stopped(pipeline):
        rest(pipeline).call("PUT", path, settings)
        with psycopg.connect(make_conninfo(pipeline.dsn, replication="database"), autocommit=True) as walsender:
            command = f'ALTER_REPLICATION_SLOT "{slot(pipeline)}" (FAILOVER false)'
            psycopg.ClientCursor(walsender).execute(command.encode())
    changed(pipeline)
    row = slot_row(pipeline)
    assert row is not None
    assert row["failover"] is False
    assert "change connector" in pipeline.apply().out
    row = slot_row(pipeline)
    assert row is not None
    assert row["failover"] is True
    pipeline.run()
    pipeline.assert_in_step()
    assert said(pipeline, "plan").startswith("nothing to change")
