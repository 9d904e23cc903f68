"""The first snapshot of a pipeline, broken off: what was read before is neither doubled nor brought back."""

from __future__ import annotations

import json

import psycopg
import pytest

from stack import Stack
from tests.chain.conftest import MakePipeline
from tests.chain.support.broken import length, slowed
from tests.support import topic
from tests.support.compare import View
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(900)]

ROWS = 50_000
ITEM = View("item", "public.items")


@pytest.fixture
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("drop table if exists items")
    source.execute("create table items (id int primary key, title text)")
    source.execute("insert into items select i, repeat('word ', i %% 20) from generate_series(1, %s) i", (ROWS,))
    return make_pipeline(ITEM)


def told(pipeline: Pipeline) -> list[str]:
    """What Debezium has told of first snapshots."""
    found = topic.records(pipeline.endpoints.kafka, f"{pipeline.name}.notifications")
    records = [json.loads(value or b"{}") for _, value in found]
    return [record["type"] for record in records if record.get("aggregate_type") == "Initial Snapshot"]


def read(pipeline: Pipeline) -> list[int]:
    """The keys of the rows in the log."""
    return [json.loads(key or b"")["id"] for key, _ in pipeline.records("public.items")]


def test_a_transaction_that_is_never_ended(pipeline: Pipeline) -> None:
    """`apply` names it, gives up in time, and says what to do; then it goes on."""
    with psycopg.connect(pipeline.dsn, application_name="nightly job") as held:
        held.execute("update items set title = 'never seen' where id = 1")
        pipeline.here.write()
        done = pipeline.here("apply", seconds=240)
        process = f"process {held.info.backend_pid} (application `nightly job`, user `"
        held.rollback()
    assert done.code == 1
    said = " ".join(done.err.split())
    assert f"after 120 s, since its replication slot is not made yet: it is held up by {process}" in said
    assert "idle in transaction, its transaction is 1" in said
    assert "end that transaction; then `driftless apply` goes on from here" in said
    pipeline.apply()
    job = pipeline.run()
    pipeline.assert_in_step()
    assert job.stop() == 0


@pytest.mark.parametrize("running", [True, False], ids=["followed meanwhile", "followed afterwards"])
def test_connect_killed_in_the_middle(
    pipeline: Pipeline, source: psycopg.Connection, stack: Stack, running: bool
) -> None:
    """It reads all from the start; of a row that was deleted in between, no record tells that it is gone."""
    with slowed(stack.running()["connect"]):  # warm, it reads all in a second, which a busy machine lets pass
        pipeline.apply()
        job = pipeline.run() if running else None
        until("a part of the snapshot", lambda: length(pipeline, "public.items") > ROWS // 20, 120)
        stack.kill("connect")
    before = read(pipeline)
    gone = before[:100]
    source.execute("delete from items where id = any(%s)", (gone,))
    source.execute("update items set title = 'changed' where id = any(%s)", (before[100:200],))
    stack.start("connect")
    assert len(before) < ROWS, "the snapshot was over before the kill"
    job = job or pipeline.run()
    pipeline.assert_in_step(seconds=500)
    assert told(pipeline).count("STARTED") == 2, "Debezium went on where it was"
    assert "the connector has re-snapshotted all tables: a new epoch begins" in job.output()
    deletes = {json.loads(key or b"")["id"] for key, value in pipeline.records("public.items") if value is None}
    assert not deletes & set(gone), "the log tells of the deletes: the fault had no effect"
    source.execute("delete from items where id % 1000 = 7")
    pipeline.assert_in_step()
    assert job.stop() == 0


@pytest.mark.parametrize("after", ["TABLE_SCAN_COMPLETED", "COMPLETED"])
def test_connect_killed_where_the_snapshot_ends(
    pipeline: Pipeline, source: psycopg.Connection, stack: Stack, after: str
) -> None:
    """While the source is written to: where the stream takes over, no change is lost and none is undone."""
    source.execute("delete from items where id > 20000")
    changes = 0

    def change() -> None:
        nonlocal changes
        changes += 1
        source.execute("update items set title = %s where id %% 500 = %s", (f"change {changes}", changes % 500))
        source.execute("delete from items where id = %s", (changes,))
        source.execute("insert into items values (%s, 'new')", (1_000_000 + changes,))

    def over() -> bool:
        change()
        return after in told(pipeline)

    pipeline.here.write()
    applying = pipeline.here.start("apply")
    until("the snapshot to be read", over, 90)
    stack.kill("connect")
    for _ in range(50):
        change()
    stack.start("connect")
    applying.wait(180)
    pipeline.apply()
    job = pipeline.run()
    for _ in range(50):
        change()
    pipeline.assert_in_step()
    assert changes > 100
    assert job.stop() == 0
