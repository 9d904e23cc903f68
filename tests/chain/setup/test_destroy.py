"""`driftless destroy`: all that `apply` and `run` made goes, and nothing else."""

from __future__ import annotations

import json
import time

import psycopg
import pytest
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from stack import stack_home
from tests.chain.conftest import MakePipeline, in_step
from tests.chain.support.broken import rest, slot
from tests.chain.views.test_views import orders_and_customers
from tests.support.compare import OpenSearch, View
from tests.support.machine import until
from tests.support.pipeline import Pipeline
from tests.support.topic import make_events_topic, records

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

TRIGGERED = "select relname::text from pg_trigger t join pg_class c on c.oid = tgrelid where tgname = %s order by 1"
COUNTED = "SELECT window.start AS began, count(*) AS n FROM clicks GROUP BY window(at, '1 second')"


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """Of each thing that there is: tables, a view of several, a stream, an index, a cache."""
    pipeline = orders_and_customers(make_pipeline, source)
    topic = f"{pipeline.name}.clicks"
    make_events_topic(pipeline.endpoints.kafka, topic, 1)
    types = {"id": "bigint", "at": "timestamptz"}
    pipeline.sync["events"] = {"clicks": {"topic": topic, "columns": types, "time": {"event": "at"}, "lateness": "1s"}}
    pipeline.sync["kafka"]["heartbeat_prefix"] = f"{pipeline.name}.heartbeat"
    pipeline.sync["streams"] = {"counted": {"sql": COUNTED, "key": ["began"]}}
    key = f"{pipeline.name}-counted:{{began}}"
    pipeline.sync["followers"]["counted-cache"] = {"view": "counted", "redis": {"url": "${CACHE_URL}", "key": key}}
    pipeline.apply()
    return pipeline


@pytest.fixture(scope="module")
def other(make_pipeline: MakePipeline, pipeline: Pipeline) -> Pipeline:
    """A pipeline of one of these tables, in the same database."""
    del pipeline
    made = make_pipeline(View("customer", "public.customers"), tables={"public.customers": {}})
    made.apply()
    return made


def remains(pipeline: Pipeline) -> dict[str, list[str]]:
    """What there is of a pipeline, by what the servers say; what there is none of is left out."""
    pipeline.connect()
    names = pipeline.connection.execute(
        "select 'slot ' || slot_name from pg_replication_slots where slot_name = %(slot)s union all "
        "select 'publication ' || pubname from pg_publication where pubname = %(slot)s union all "
        "select 'table ' || relname from pg_class where relnamespace = to_regnamespace('driftless') "
        "and relkind = 'r' and relname = 'signals' || substr(%(slot)s, 10) order by 1",
        {"slot": slot(pipeline)},
    ).fetchall()
    topics = AdminClient({"bootstrap.servers": pipeline.endpoints.kafka}).list_topics(timeout=15).topics
    ours = (f"{pipeline.name}.", f"__debezium-heartbeat.{pipeline.name}")
    search = OpenSearch(pipeline.endpoints.opensearch, "")
    indexes = search.call("GET", "/_all/_settings?expand_wildcards=all&filter_path=*.settings.index.uuid") or {}
    with redis.Redis.from_url(pipeline.endpoints.redis) as client:
        keys = [key.decode() for key in client.scan_iter(match=f"*{pipeline.name}*", count=1000)]
        passing = {key for key in keys if key.endswith(":dropped") and 0 < int(client.ttl(key)) <= 3600}
    folders = [stack_home() / kind / pipeline.name for kind in ("rows", "verify")]
    found = {
        "connector": [
            name for name in rest(pipeline).call("GET", "/connectors") if name == f"driftless-{pipeline.name}"
        ],
        "source": [name for (name,) in names],
        "topics": sorted(name for name in topics if name.startswith(ours) and not name.endswith(".clicks")),
        "indexes": sorted(
            name for name in indexes if name.startswith((f"{pipeline.name}-", f".driftless-{pipeline.name}"))
        ),
        "keys": sorted({*keys} - passing),
        "folders": [str(folder) for folder in folders if folder.exists()],
    }
    return {what: some for what, some in found.items() if some}


def schema(pipeline: Pipeline) -> list[str]:
    """What all pipelines of the database share."""
    rows = pipeline.connection.execute(
        "select 'schema' from pg_namespace where nspname = 'driftless' union all "
        "select 'function' from pg_proc where pronamespace = to_regnamespace('driftless') union all "
        "select 'token ' || pipeline from driftless.tokens"
        if pipeline.connection.execute("select to_regclass('driftless.tokens') is not null").fetchone() == (True,)
        else "select nspname::text from pg_namespace where nspname = 'driftless'"
    ).fetchall()
    return sorted(row[0] for row in rows)


def click(pipeline: Pipeline) -> None:
    producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka})
    for n in range(3):
        event = {"id": n, "at": int(time.time() * 1000) - 3_000 * (2 - n)}
        producer.produce(f"{pipeline.name}.clicks", json.dumps(event).encode())
    assert producer.flush(15) == 0


def counted(pipeline: Pipeline) -> int:
    with redis.Redis.from_url(pipeline.endpoints.redis) as client:
        return len(list(client.scan_iter(match=f"{pipeline.name}-counted:*", count=1000)))


def test_all_that_was_made_goes_and_nothing_else(pipeline: Pipeline, other: Pipeline) -> None:
    job = in_step(pipeline)
    click(pipeline)
    until("a window to be seen", lambda: counted(pipeline) > 0, 120)
    assert pipeline.here("verify", seconds=240).code == 0
    before = remains(pipeline)
    assert before.keys() == {"connector", "source", "topics", "indexes", "keys", "folders"}, before
    heartbeats = f"{pipeline.name}.heartbeat.{pipeline.name}"
    assert records(pipeline.endpoints.kafka, heartbeats), "Debezium writes its own messages elsewhere"
    assert f"__debezium-heartbeat.{pipeline.name}" in before["topics"], "that of its first settings"

    refused = pipeline.here("destroy", "--yes")
    assert (refused.code, refused.out) == (1, ""), refused.err
    assert "stop every `driftless run` of this pipeline first" in refused.err
    assert job.stop() == 0
    asked = pipeline.here("destroy")  # nobody is there to answer
    assert asked.code == 1
    assert "nothing was taken away; `--yes` does it without a question" in asked.err
    listed = pipeline.here("destroy", "--json")
    assert listed.code == 1
    what = [change["what"] for change in listed.json()["changes"]]
    for named in (f"connector driftless-{pipeline.name}", f"slot {slot(pipeline)}", "documents of order-search"):
        assert named in what, what
        assert f"drop {named}" in asked.out, asked.out
    assert what[-1] == f"topic {pipeline.name}.control", "by which it is known what there is"
    assert remains(pipeline) == before

    done = pipeline.here("destroy", "--yes", seconds=240)
    assert done.code == 0, done.out + done.err
    assert "stays: the replica identity of" in done.out
    until("nothing to be left of it", lambda: remains(pipeline) == {}, 30)
    # What is another's is there: of the tables, of the events, and of the other pipeline.
    admin = AdminClient({"bootstrap.servers": pipeline.endpoints.kafka})
    assert f"{pipeline.name}.clicks" in admin.list_topics(timeout=15).topics
    assert pipeline.connection.execute("select count(*) > 100 from orders").fetchone() == (True,)
    assert schema(pipeline) == ["function", "schema", f"token {other.name}"]
    assert pipeline.connection.execute(TRIGGERED, ("driftless_truncate",)).fetchall() == [("customers",)]
    in_step(other)
    other.connection.execute("truncate customers")
    other.connection.execute("insert into customers values (5000, 'after it', 'new')")
    other.assert_in_step()
    again = pipeline.here("destroy")
    assert again.code == 0, again.out + again.err
    assert f"nothing is left of the pipeline {pipeline.name}" in again.out

    # The last of a database takes away what they shared; and a pipeline can begin again under its name.
    other.end_jobs()
    assert other.here("destroy", "--yes", seconds=240).code == 0
    until("nothing to be left of the other", lambda: remains(other) == {}, 30)
    assert schema(other) == []
    pipeline.apply()
    in_step(pipeline)


@pytest.mark.soak
def test_what_cannot_be_reached_stays_and_goes_later(pipeline: Pipeline) -> None:
    """Also killed in the middle of it."""
    in_step(pipeline)
    pipeline.end_jobs()
    url = pipeline.sync["connect"]["url"]
    pipeline.sync["connect"]["url"] = "http://127.0.0.1:1"
    pipeline.here.write()
    done = pipeline.here("destroy", "--yes", seconds=240)
    pipeline.sync["connect"]["url"] = url
    pipeline.here.write()
    assert done.code == 3, done.out + done.err
    assert "Kafka Connect at http://127.0.0.1:1" in done.err
    left = remains(pipeline)
    assert left["connector"] == [f"driftless-{pipeline.name}"]
    assert f"{pipeline.name}.control" in left["topics"]
    assert left.keys() == {"connector", "source", "topics"}, left

    dying = pipeline.here.start("destroy", "--yes")
    until("the connector to be gone", lambda: "connector" not in remains(pipeline), 60)
    dying.kill()
    done = pipeline.here("destroy", "--yes", seconds=240)
    assert done.code == 0, done.out + done.err
    assert remains(pipeline) == {}
