"""What the trigger of TRUNCATE writes into the log, by what a real server decodes of it."""

from __future__ import annotations

import psycopg
import pytest

from connectors.pipeline.objects import missing_objects
from connectors.pipeline.token import emit_marker, insert_sql, token_of
from connectors.postgres.client import Postgres
from driftless import names
from driftless.config.models import Config
from driftless.marker import marker_sql

pytestmark = pytest.mark.server


def config(dsn: str, name: str) -> Config:
    source = {"dsn": dsn, "tables": {"public.items": {}}}
    more = {"kafka": {"bootstrap": "kafka:9092"}, "connect": {"url": "http://connect:8083"}}
    return Config.model_validate({"name": name, "source": source, "views": {}, "followers": {}, **more})


def test_every_pipeline_of_a_database_is_told_in_the_form_that_it_believes(
    database: str, connection: psycopg.Connection
) -> None:
    """By whoever truncates, in any kind of transaction. A pipeline of an older version has no token."""
    connection.execute("create table items (id int primary key)")
    with Postgres(database) as source:
        assert source.may_use(names.TOKENS) is None
        for name in ("one", "two-eu"):
            for _, _, _, statement in missing_objects(config(database, name), source, {"public.items"}, {}):
                connection.execute(statement.encode())
            assert list(missing_objects(config(database, name), source, {"public.items"}, {})) == []
        for name in ("driftless_one", "driftless_two_eu"):
            connection.execute(f"create publication {name}".encode())
        connection.execute("select pg_create_logical_replication_slot('look', 'pgoutput')")
        changes = (
            "select data from pg_logical_slot_get_binary_changes('look', null, null, 'proto_version', '1', "
            "'publication_names', 'driftless_one', 'messages', 'true')"
        )

        def written() -> list[str]:
            """The prefixes of all messages since the last look."""
            found = [bytes(row[0]) for row in connection.execute(changes.encode()).fetchall()]
            return [data[10 : data.index(b"\0", 10)].decode() for data in found if data[:1] == b"M"]

        plain = "driftless.truncate.public.items"
        connection.execute("truncate items")
        assert written() == [plain]
        connection.execute(insert_sql("one").encode())
        token = token_of(source, "one")
        assert token is not None
        one = f'driftless:one:{token}:["public", "items"]'
        with psycopg.connect(database) as another:
            another.execute("set transaction isolation level serializable")
            another.execute("truncate items")
        assert written() == [one, plain], "the other one has no token yet"
        connection.execute(insert_sql("two-eu").encode())
        connection.execute(insert_sql("two-eu").encode())
        two = f'driftless:two-eu:{token_of(source, "two-eu")}:["public", "items"]'
        connection.execute("truncate items")
        assert sorted(written()) == sorted([one, two])
        assert emit_marker(source, "one") < emit_marker(source, "none") < emit_marker(source, "two-eu") <= source.lsn()
        assert written() == [one.partition("[")[0], "driftless", two.partition("[")[0]]
        connection.execute(marker_sql("one").encode())
        assert written() == [one.partition(":[")[0]], "nobody waits for a heartbeat"
        connection.execute("grant select on driftless.tokens to public")
        (again,) = missing_objects(config(database, "one"), source, {"public.items"}, {})
        assert again[3] == "revoke all on driftless.tokens from public"
        connection.execute("select pg_drop_replication_slot('look')")
