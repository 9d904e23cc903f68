"""Large transactions, a busy neighbour, a row that is too large: what the source does to the way out of it."""

from __future__ import annotations

import re
import signal
import threading
import time
from itertools import count

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from driftless.errors import StackError
from stack import Endpoints, Stack
from tests.chain.conftest import MakePipeline, in_step, running
from tests.chain.support.broken import (
    answers,
    asleep,
    connector,
    ends,
    length,
    second_worker,
    server_setting,
    small_log_disk,
)
from tests.conftest import fresh_database
from tests.support.compare import View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]

ITEM = View("item", "public.items")
LARGE = 100_000
TOO_LARGE = 17 << 20
ASLEEP_SECONDS = 25.0
FENCED = re.compile("InvalidProducerEpochException|ProducerFencedException|UNKNOWN_MEMBER_ID")


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """Applied while a transaction is open that began before there was a slot."""
    source.execute("create table elsewhere (id int)")
    source.execute("create table items (id int primary key, title text, note text)")
    source.execute("insert into items select i, 'item ' || i from generate_series(1, 2000) i")
    pipeline = make_pipeline(ITEM)
    pipeline.here.write()
    with psycopg.connect(pipeline.dsn) as open_for_long:
        open_for_long.execute("insert into elsewhere values (1)")  # on the table itself `apply` would wait for it
        applying = pipeline.here.start("apply")
        waits = "select count(*) from pg_stat_activity where query like 'CREATE_REPLICATION_SLOT%' and state = 'active'"
        until("the slot to wait for the transaction", lambda: source.execute(waits).fetchone() == (1,), 90)
        source.execute("update items set title = 'beside it' where id = 200")
        open_for_long.execute("update items set title = 'by the open one' where id <= 100")
        open_for_long.execute("delete from items where id = 101")
        open_for_long.execute("insert into items values (5001, 'by the open one')")
    assert applying.wait(180) == 0, applying.output()
    return pipeline


@pytest.fixture
def job(pipeline: Pipeline) -> Job:
    return in_step(pipeline)


def test_a_transaction_that_was_open_when_the_slot_was_made(pipeline: Pipeline, job: Job) -> None:
    store = pipeline.stores["item-search"]
    assert store.get("5001")["title"] == "by the open one"
    assert store.get("101") is None
    assert job.running


@pytest.mark.parametrize("how", ["inserted", "copied"])
def test_connect_killed_in_a_large_transaction(pipeline: Pipeline, job: Job, stack: Stack, how: str) -> None:
    """Killed when a part of it is in Kafka: none of it is lost."""
    begin = 1_000_000 if how == "copied" else 2_000_000
    before = length(pipeline, "public.items")

    def load() -> None:
        with psycopg.connect(pipeline.dsn) as connection, connection.cursor() as cursor:
            if how == "copied":
                with cursor.copy("copy items (id, title) from stdin") as copy:
                    for n in range(LARGE):
                        copy.write_row((begin + n, f"copied {n}"))
            else:
                rows = "select %s + i, 'row ' || i from generate_series(1, %s) i"
                cursor.execute(f"insert into items {rows}".encode(), (begin, LARGE))

    loading = threading.Thread(target=load)
    loading.start()
    try:
        until("a part of it", lambda: length(pipeline, "public.items") > before + LARGE // 20, 120)
        stack.kill("connect")
        found = length(pipeline, "public.items") - before
        stack.start("connect")
    finally:
        loading.join()
    assert found < LARGE, "all of it was there before the kill"
    pipeline.assert_in_step(seconds=400)
    assert job.running
    pipeline.connection.execute("delete from items where id >= 1000000")  # or every test to come compares them again


@pytest.mark.parametrize("server", ["kafka", "connect", "postgres"])
def test_a_server_that_sleeps(pipeline: Pipeline, job: Job, stack: Stack, server: str) -> None:
    """Its connections stay open, and nothing answers; then all goes on."""
    with asleep(stack.running()[server]):
        begun = time.monotonic()
        until("time to pass", lambda: time.monotonic() > begun + ASLEEP_SECONDS, 60)
    pipeline.connection.execute("update items set title = %s where id <= 50", (f"after {server} slept",))
    pipeline.assert_in_step()
    assert job.running, "the same run has gone on"


def test_a_worker_of_connect_that_sleeps_while_another_takes_its_work(
    pipeline: Pipeline, job: Job, stack: Stack
) -> None:
    """It wakes up with records in hand: the brokers refuse them, and nothing is lost or comes twice."""
    first = psutil.Process(stack.running()["connect"])
    path = f"{connector(pipeline)}/status"

    def works(url: str) -> bool:
        """Whether the task runs at the worker that answers at a place."""
        said = answers(url, path) or {"tasks": []}
        here = url.removeprefix("http://")
        return any(task["state"] == "RUNNING" and task["worker_id"] == here for task in said["tasks"])

    ended = threading.Event()

    def load() -> None:
        with psycopg.connect(pipeline.dsn, autocommit=True) as connection:
            for number in count():
                if ended.wait(0.01):
                    return
                connection.execute("update items set title = %s where id = %s", (f"load {number}", 1 + number % 100))

    with server_setting(pipeline, "wal_sender_timeout", "5s"), second_worker(stack) as second:
        until("the first to work", lambda: works(pipeline.endpoints.connect) or works(second), 120)
        if works(second):  # the group has shared the work out anew
            first, second = _of(second), pipeline.endpoints.connect
        loading = threading.Thread(target=load)
        loading.start()
        try:
            first.send_signal(signal.SIGSTOP)
            until("the second to work", lambda: works(second), 240)
            begun = length(pipeline, "public.items")
            until("it to write", lambda: length(pipeline, "public.items") > begun + 50, 60)
        finally:
            first.send_signal(signal.SIGCONT)
            ended.set()
            loading.join()
        logs = (stack.log("connect"), stack.folder / "conf" / "connect" / "second.log")
        until("it to be fenced", lambda: any(FENCED.search(log.read_text(errors="replace")) for log in logs), 60)
    pipeline.connection.execute("update items set title = 'with one worker' where id <= 50")
    if pipeline.here("wait", "--lsn", pipeline.lsn(), "--timeout", "40", seconds=90).code != 0:
        # The task has died of its sleep, and Connect may even take it for one that runs; that is told, and what to do.
        told = str(pipeline.status()["source"]["trouble"])
        if "`driftless apply` starts it again" in told:
            done = pipeline.here("apply")
            told = "" if done.code == 0 else done.err
        if told:
            assert "start the Connect worker again" in told
            stack.stop("connect")
            stack.start("connect")
    pipeline.assert_in_step()
    assert job.running, "the same run has gone on"


def _written(pipeline: Pipeline, statement: str, times: int) -> bool:
    """Whether the source took it so often."""
    try:
        for _ in range(times):
            pipeline.connection.execute(statement.encode())
    except psycopg.OperationalError:
        return False
    return True


def _of(url: str) -> psutil.Process:
    """The process that listens at a place."""
    port = int(url.rpartition(":")[2])
    (found,) = {
        c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.status == "LISTEN"
    }
    assert found is not None
    return psutil.Process(found)


def test_a_disk_of_the_source_that_is_full(pipeline: Pipeline, job: Job, stack: Stack) -> None:
    """Postgres ends and cannot start; when there is room again, what was committed is there, and all goes on."""
    with small_log_disk(stack, 64) as enlarge:
        pipeline.connect()
        pipeline.connection.execute("update items set title = 'on a small disk' where id <= 50")
        pipeline.assert_in_step()
        row = "(9000000, repeat('x', 500)) on conflict (id) do update set title = excluded.title || random()"
        until("the disk to be full", lambda: not _written(pipeline, f"insert into items values {row}", 2000), 120)
        until("the server to be gone", lambda: "postgres" not in stack.running(), 60)
        with pytest.raises(StackError, match="No space left on device"):
            stack.start("postgres")
        assert pipeline.status()["source"]["lsn"] is None
        assert job.running
        enlarge(2048)
        stack.start("postgres")
        pipeline.connect()
        pipeline.connection.execute("update items set title = 'with room' where id <= 50")
        pipeline.assert_in_step()
        assert job.running, "the same run has gone on"
    pipeline.connect()
    pipeline.assert_in_step()


def test_a_busy_neighbour_does_not_hold_the_log_back(pipeline: Pipeline, job: Job, endpoints: Endpoints) -> None:
    """Nothing changes in our database; its slot moves all the same."""
    with fresh_database(endpoints.postgres) as neighbour, psycopg.connect(neighbour, autocommit=True) as connection:
        connection.execute("create table noise (text text)")
        written = "select pg_wal_lsn_diff(pg_current_wal_lsn(), %s)"
        begun = pipeline.lsn()
        for _ in range(8):
            connection.execute("insert into noise select repeat('x', 1000) from generate_series(1, 10000)")
        row = connection.execute(written, (begun,)).fetchone()
        assert row is not None
        assert row[0] > 64 << 20
        connection.execute("checkpoint")  # the slot's own record of where it may begin moves with those
        until("the slot to move on", lambda: pipeline.status()["source"]["slot_lag_bytes"] < 16 << 20, 60)
    assert make_conninfo(neighbour) != pipeline.dsn
    assert job.running


def test_a_row_that_is_too_large(pipeline: Pipeline, job: Job) -> None:
    """The connector stops with its own message, and nothing behind it is skipped; `apply --anew` gets over it."""
    source = pipeline.connection
    source.execute("insert into items values (900001, 'before it')")
    large = "select 900002, 'too large', string_agg(md5(i::text), '') from generate_series(1, %s) i"
    source.execute(f"insert into items {large}".encode(), (TOO_LARGE // 32,))
    source.execute("insert into items values (900003, 'behind it')")

    def trouble() -> str:
        return str(pipeline.status()["source"]["trouble"])

    until("the connector to fail", lambda: "the connector has failed" in trouble(), 120)
    assert "RecordTooLargeException" in trouble()
    assert pipeline.here("wait", "--lsn", pipeline.lsn(), "--timeout", "2").code == 1
    assert pipeline.stores["item-search"].get("900003") is None
    source.execute("update items set note = null where id = 900002")
    assert job.stop() == 0
    done = pipeline.here("apply", "--anew", seconds=240)
    assert done.code == 0, done.out + done.err
    running(pipeline)
    pipeline.assert_in_step()


def test_a_jvm_of_spark_that_is_killed(pipeline: Pipeline, job: Job) -> None:
    """As where memory ran out: the run ends, and says how to go on."""
    (jvm,) = (process for process in job.family() if process.name() == "java")
    jvm.kill()
    pipeline.connection.execute("update items set title = title || '?' where id < 100")
    ends(job, "Spark's JVM has ended", "restart `driftless run`")
    assert "a defect of driftless" not in job.output()
    running(pipeline)
    pipeline.assert_in_step()
