"""Messages in the source's log that strangers write: skipped, counted, and no follower notices them."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from confluent_kafka import Producer
from psycopg import sql
from psycopg.conninfo import make_conninfo

from stack import Endpoints
from tests.chain.conftest import MakePipeline, in_step, running
from tests.conftest import fresh_database
from tests.support import topic
from tests.support.compare import OpenSearch, View
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

ROWS = 300
ROLE = f"guest_{uuid.uuid4().hex[:8]}"
MESSAGE = "select pg_logical_emit_message(%s, %s, %s::text)"


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """A view of one table, and one that is published at cuts alone: so all topics of a pipeline are in use."""
    source.execute("create table items (id int primary key, name text)")
    source.execute("insert into items select n, 'item ' || n from generate_series(1, %s) n", (ROWS,))
    pipeline = make_pipeline(View("item", "public.items"))
    pipeline.sync["views"]["whole"] = {"root": "public.items", "atomic": True}
    pipeline.follow("whole-cache", View("whole", "public.items"), {"redis": {}})
    pipeline.apply()
    in_step(pipeline)
    return pipeline


@pytest.fixture(scope="module")
def guest(source: psycopg.Connection, module_database: str) -> Iterator[psycopg.Connection]:
    """A role that may connect, and was given nothing."""
    name = sql.Identifier(ROLE)
    source.execute(sql.SQL("create role {} login password 'plain'").format(name))
    with psycopg.connect(make_conninfo(module_database, user=ROLE, password="plain"), autocommit=True) as connection:  # noqa: S106
        yield connection
    source.execute(sql.SQL("drop role {}").format(name))


def connector(pipeline: Pipeline) -> str:
    """What Connect says of the connector's task."""
    connect = OpenSearch(pipeline.endpoints.connect, "")
    tasks = connect.call("GET", f"/connectors/driftless-{pipeline.name}/status")["tasks"]
    return str(tasks[0]["state"]) if tasks else ""


def counted(pipeline: Pipeline) -> int:
    """How many strange messages `status` reports."""
    return int(str(strangers(pipeline)["count"]))


def strangers(pipeline: Pipeline) -> dict[str, object]:
    """What `status` reports of strange messages: how many, and why the last was none of ours."""
    facts = [
        value
        for key, value in topic.records(pipeline.endpoints.kafka, f"{pipeline.name}.control")
        if key == b"strangers/messages"
    ]
    return {"count": 0, "why": "", **json.loads((facts[-1] if facts else None) or b"{}")}


def in_log(pipeline: Pipeline, prefix: bytes) -> bool:
    """Whether the connector has brought a message with such a prefix."""
    return any(prefix in (key or b"") for key, _ in topic.records(pipeline.endpoints.kafka, f"{pipeline.name}.message"))


@pytest.mark.soak
def test_messages_of_a_role_that_may_only_connect_change_nothing(
    pipeline: Pipeline, guest: psycopg.Connection, source: psycopg.Connection
) -> None:
    job = running(pipeline)
    ours, plain = f"driftless:{pipeline.name}:", "driftless.truncate.public.items"
    strange = [
        (True, "driftless", "hello"),
        (True, "driftless", "99999999999999"),
        (False, "driftless", "1"),
        (True, plain, '["public", "items"]'),
        (False, plain, '["public", "items"]'),
        (True, "driftless.truncate.", "[]"),
        (True, f"{ours}0123456789abcdef", ""),
        (True, f'{ours}0123456789abcdef:["public", "items"]', ""),
        (True, f"{ours}:[", "{"),
        (False, ours, "\\u0000"),
        # The connector would stop at a record of this size, were the content in it.
        (True, f"{ours}large", "x" * 20_000_000),
    ]
    for message in strange:
        guest.execute(MESSAGE, message)
    # Not addressed to this pipeline, or not even to driftless.
    for prefix in ("driftless:another:0123", "driftlessly", "driftless:" + "x" * 2_000_000, "app"):
        guest.execute(MESSAGE, (True, prefix, "hello"))
    source.execute("insert into items values (1000, 'later')")
    pipeline.assert_in_step()
    assert {name: len(store.documents()) for name, store in pipeline.stores.items()} == dict.fromkeys(
        pipeline.stores, ROWS + 1
    )
    until("the strange messages to be counted", lambda: counted(pipeline) == len(strange))
    shown = pipeline.here("status")
    assert (shown.code, connector(pipeline)) == (0, "RUNNING"), shown.out
    said = f"that claim to be driftless's, and are not: {len(strange)} since "
    assert said in " ".join(shown.out.split()), shown.out
    assert "they are skipped; find who calls pg_logical_emit_message" in " ".join(shown.out.split())
    (warning,) = pipeline.status()["warnings"]
    assert said in warning
    assert pipeline.here("check").code == 0
    assert job.stop() == 0, job.output()

    job = pipeline.run()
    source.execute("delete from items where id = 1000")
    pipeline.assert_in_step()
    assert counted(pipeline) == len(strange), "they were counted twice"
    assert job.running, job.output()


def test_a_stranger_can_neither_read_nor_use_what_ours_are_known_by(
    pipeline: Pipeline, guest: psycopg.Connection
) -> None:
    for statement in (
        "select * from driftless.tokens",
        f"insert into driftless.signals_{pipeline.name} values ('x', 'y', 'z')",
        "create temp table mine (id int); create trigger t after truncate on mine "
        "for each statement execute function driftless.truncated()",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            guest.execute(statement.encode())
    settings = OpenSearch(pipeline.endpoints.connect, "").call("GET", f"/connectors/driftless-{pipeline.name}/config")
    row = pipeline.connection.execute("select token from driftless.tokens where pipeline = %s", (pipeline.name,))
    (token,) = row.fetchone() or ("",)
    assert len(token) == 32
    assert token not in json.dumps(settings, default=str)
    control = topic.records(pipeline.endpoints.kafka, f"{pipeline.name}.control")
    assert not any(token.encode() in (value or b"") for _, value in control)


@pytest.mark.soak
def test_a_truncate_by_a_role_that_cannot_read_the_token_is_followed(
    pipeline: Pipeline, guest: psycopg.Connection, source: psycopg.Connection
) -> None:
    running(pipeline)
    source.execute(sql.SQL("grant truncate, insert on items to {}").format(sql.Identifier(ROLE)))
    try:
        with guest.transaction():
            guest.execute("truncate items")
            guest.execute("insert into items values (1, 'after')")
        pipeline.assert_in_step()
    finally:
        source.execute(sql.SQL("revoke all on items from {}").format(sql.Identifier(ROLE)))
    source.execute("insert into items select n, 'item ' || n from generate_series(2, %s) n", (ROWS,))
    pipeline.assert_in_step()


CONTROL: list[tuple[bytes, bytes]] = [
    (b"\xff\xfe", b"{}"),
    (b"hello", b"world"),
    (b"hello", b"[]"),
    (b"pipeline/identity", b"null"),
    (b"pipeline/trust", b'{"tokens": []}'),
    (b"pipeline/renewal", b"{}"),
    (b"lease/item-cache", b"{}"),
    (b"lease/item-search", b"\xff"),
    (b"follower/item-cache/1", b'{"live": "yes", "applied_lsn": "x"}'),
    (b"generation/item-cache/1", b'{"a": 1}'),
    (b"generation/item-cache/x", b"{}"),
    (b"generation/item-search/1", b"[" * 100_000),
    (b"table/public.items", b'{"columns": 7}'),
    (b"epochs/public.items", b'{"topic": 1, "epochs": []}'),
    (b"view/whole/1", b"{}"),
    (b"build/whole/1/0", b'{"state": 7}'),
]
HALF_RIGHT: dict[str, list[dict[str, object]]] = {
    "message": [{"op": "m", "source": {"lsn": "x", "txId": 1}}, {"op": "c"}],
    "transaction": [{"status": "END", "id": "x", "ts_ms": 5}, {"status": "END", "id": 7}, {"status": "END"}],
    "notifications": [
        {"aggregate_type": "Initial Snapshot", "type": "STARTED"},
        {"aggregate_type": "Initial Snapshot", "type": "COMPLETED", "timestamp": "x"},
        {"aggregate_type": "Incremental Snapshot", "type": "IN_PROGRESS", "timestamp": 5, "additional_data": []},
    ],
    "quarantine": [{"version": "x"}, {"version": 5, "reason": 7, "time": 1}],
}


def test_strange_records_in_every_topic_change_nothing(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """But those of tables and views, whose records are rows and documents: who reads one that is none stops, and names
    it (test_topics.py), or `verify` finds it (test_verify_views.py).
    """
    job = running(pipeline)
    producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka})
    rng = random.Random("strange records")
    for place, value in CONTROL:
        producer.produce(f"{pipeline.name}.control", value, place)
    for name, values in HALF_RIGHT.items():
        keys = [b'{"prefix":"driftless"}', b'["item-cache",1,"5"]', b"\xff", None]
        strange = [json.dumps(value).encode() for value in values] + [rng.randbytes(40), b"", b"null", b"[]", b"7"]
        for value in strange:
            for key in keys:
                if key is not None or name not in ("message", "quarantine"):  # compacted: the broker refuses none
                    producer.produce(f"{pipeline.name}.{name}", value, key)
    producer.produce(f"__debezium-heartbeat.{pipeline.name}", rng.randbytes(40), b"x")
    assert producer.flush(30) == 0
    source.execute("insert into items values (2000, 'later') on conflict do nothing")
    pipeline.assert_in_step()
    assert job.running, job.output()
    shown = pipeline.here("status")
    assert shown.code == 0, shown.out
    said = "the control topic holds records that driftless cannot have written: "
    assert said in " ".join(shown.out.split()), shown.out
    assert pipeline.here("quarantine", "list").code == 0
    assert job.stop() == 0, job.output()

    job = pipeline.run()
    source.execute("delete from items where id = 2000")
    pipeline.assert_in_step()
    assert pipeline.here("check").code == 0
    assert pipeline.here("plan").code == 0
    assert job.running, job.output()


@pytest.mark.soak
def test_a_name_that_another_pipeline_has_is_refused_before_anything_is_touched(
    pipeline: Pipeline, source: psycopg.Connection, endpoints: Endpoints
) -> None:
    """One whose slot another pipeline has; and our own name, given to a pipeline of another database."""
    twin = pipeline.machine("twin")
    twin.sync = {**pipeline.sync, "name": "shop-eu"}
    twin.write()
    source.execute("insert into driftless.tokens values ('shop_eu', 'x')")
    try:
        for command, code in (("check", 1), ("apply", 2)):
            done = twin(command)
            assert done.code == code, done
            assert (
                "the pipeline `shop_eu` has the slot and the publication driftless_shop_eu already"
                in done.out + done.err
            )
        done = twin("destroy", "--yes")
        assert done.code == 2, done
        assert "driftless_shop_eu are those of the pipeline `shop_eu` as well" in done.err
    finally:
        source.execute("delete from driftless.tokens where pipeline = 'shop_eu'")
    assert source.execute("select from pg_publication where pubname = 'driftless_shop_eu'").fetchall() == []

    with fresh_database(endpoints.postgres) as other:
        with psycopg.connect(other, autocommit=True) as connection:
            connection.execute("create table items (id int primary key, name text)")
        another = pipeline.machine("another")
        another.environment = {**another.environment, "SOURCE_DSN": other}
        for command, code in (("check", 1), ("apply", 2), ("run", 1)):
            done = another(command)
            said = done.out + done.err
            assert done.code == code, said
            assert f"another pipeline has the name `{pipeline.name}` in this Kafka" in said, said
            assert "choose another `name`" in said
            assert "--anew" not in said
    control = topic.records(pipeline.endpoints.kafka, f"{pipeline.name}.control")
    written = [value for key, value in control if key == b"pipeline/renewal" and value != dict(CONTROL)[key]]
    assert written == [], "the pipeline that is there was told to end"


@pytest.mark.soak
def test_a_token_that_was_changed_is_registered_and_nothing_is_missed(
    pipeline: Pipeline, source: psycopg.Connection
) -> None:
    running(pipeline)
    before = counted(pipeline)
    source.execute("update driftless.tokens set token = 'another' where pipeline = %s", (pipeline.name,))
    with source.transaction():
        source.execute("truncate items")
        source.execute("insert into items select n, 'anew ' || n from generate_series(1, %s) n", (ROWS // 2,))
    lsn = pipeline.lsn()
    until("the message of the TRUNCATE", lambda: in_log(pipeline, b":another:"))
    assert pipeline.here("wait", "--lsn", lsn, "--timeout", "3").code == 1, "a position was claimed beyond it"
    assert any("is not the registered one: `driftless apply` registers it" in w for w in pipeline.status()["warnings"])
    assert "note: the token in driftless.tokens is not the registered one" in pipeline.here("check").out
    done = pipeline.apply()
    assert "register token of the pipeline" in done.out
    pipeline.assert_in_step()
    assert pipeline.here("plan").code == 0
    until("our own messages to be no strange ones any more", lambda: counted(pipeline) == before)


OLD_FUNCTION = """
create or replace function driftless.truncated() returns trigger language plpgsql as $$ begin
perform pg_catalog.pg_logical_emit_message(true, 'driftless.truncate.' ||
pg_catalog.format('%I.%I', tg_table_schema, tg_table_name),
pg_catalog.json_build_array(tg_table_schema, tg_table_name)::text); return null; end $$
"""
OLD_MARKER = (
    "select pg_logical_emit_message(true, 'driftless', "
    "(extract(epoch from clock_timestamp()) * 1000)::bigint::text)::text"
)


@pytest.mark.soak
def test_a_pipeline_of_the_version_before_is_followed_and_gets_a_token(
    pipeline: Pipeline, source: psycopg.Connection, guest: psycopg.Connection
) -> None:
    """Made as it was: no token, the function and the connector of then, and nothing of it in the control topic."""
    running(pipeline).stop()
    source.execute(OLD_FUNCTION)
    source.execute("drop table driftless.tokens")
    source.execute("alter function driftless.truncated() security invoker")
    source.execute("alter function driftless.truncated() reset all")
    source.execute("grant execute on function driftless.truncated() to public")
    producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka})
    producer.produce(f"{pipeline.name}.control", key=b"pipeline/trust", value=None)
    producer.flush()
    connect, path = OpenSearch(pipeline.endpoints.connect, ""), f"/connectors/driftless-{pipeline.name}/config"
    settings = connect.call("GET", path)
    kept = {key: value for key, value in settings.items() if "message" not in key and key != "predicates"}
    old = {"transforms": "row", "heartbeat.action.query": OLD_MARKER, "message.prefix.include.list": "driftless.*"}
    connect.call("PUT", path, {**kept, **old})
    until("the connector of the version before", lambda: connector(pipeline) == "RUNNING")

    job = pipeline.run()
    source.execute("truncate items")
    source.execute("insert into items values (1, 'before'), (2, 'before')")
    pipeline.assert_in_step()
    assert any("has no token yet" in w for w in pipeline.status()["warnings"])
    assert "has no token yet" in pipeline.here("check").out
    printed = pipeline.here("plan", "--sql").out
    assert "create table if not exists driftless.tokens" in printed
    assert f"insert into driftless.tokens values ('{pipeline.name}', replace(gen_random_uuid()" in printed

    done = pipeline.apply()
    assert "register end of messages without the token" in done.out
    assert pipeline.here("plan").code == 0
    source.execute("truncate items")
    source.execute("insert into items values (3, 'after')")
    pipeline.assert_in_step()
    # Messages of the tests before bear tokens that are forgotten: they are counted too, in their time.
    assert strangers(pipeline)["why"] in ("", "has a wrong token")
    guest.execute(MESSAGE, (True, "driftless.truncate.public.items", '["public", "items"]'))
    until("the forged message to be counted", lambda: strangers(pipeline)["why"] == "has no token")
    pipeline.assert_in_step()
    assert job.running, job.output()
