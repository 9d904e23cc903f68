"""What source.dsn leads to: who may read its log is tried; poolers and databases without an encoding are named."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from connectors.pipeline.check import server_findings
from connectors.postgres.client import Postgres
from connectors.postgres.rights import PROVIDERS, missing_rights, provider
from driftless.config.models import Config
from driftless.errors import ConfigError
from tests.support.pooler import pooled

pytestmark = pytest.mark.server


@pytest.fixture
def connection(postgres: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


@pytest.fixture
def roles(connection: psycopg.Connection) -> Iterator[list[str]]:
    """Two new roles that may log in."""
    made = [f"role_{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for role in made:
        connection.execute(sql.SQL("create role {} login password 'plain'").format(sql.Identifier(role)))
    yield made
    for role in made:
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


def _as(dsn: str, role: str) -> str:
    return make_conninfo(dsn, user=role, password="plain")  # noqa: S106 - it is the test


def _rights(source: Postgres) -> list[str]:
    return [f"{right.subject} {right.lacks}: {right.statement}" for right in missing_rights(_config(), source, ())]


def _config() -> Config:
    return Config.model_construct(name="shop")


def test_a_role_that_may_read_the_log_needs_no_attribute(
    postgres: str, connection: psycopg.Connection, roles: list[str]
) -> None:
    """It logs in as one that has REPLICATION, and then has another's rights, as roles of a vault do."""
    login, owner = roles
    connection.execute(f"alter role {login} replication; grant {owner} to {login}".encode())
    connection.execute(f"alter role {login} set role = {owner}".encode())
    with Postgres(_as(postgres, login)) as source:
        assert (source.server().role, source.server().login) == (owner, login)
        assert _rights(source) == []
        assert list(server_findings(source)) == []


def test_a_role_without_the_right_is_told_of_the_statement(postgres: str, roles: list[str]) -> None:
    with Postgres(_as(postgres, roles[0])) as source:
        assert _rights(source) == [f'the role {roles[0]} lacks REPLICATION: alter role "{roles[0]}" replication']


@pytest.mark.parametrize(
    ("mark", "name", "grant"),
    [
        ("rds_replication", "Amazon RDS or Aurora", "grant rds_replication to {role}"),
        ("azure_pg_admin", "Azure Database for PostgreSQL", "alter role {role} replication"),
    ],
)
def test_a_service_is_known_by_its_roles(postgres: str, mark: str, name: str, grant: str) -> None:
    with Postgres(postgres) as source, source.transaction():
        source.rows(f"create role {mark}")
        found = provider(source)
        assert (found.name, found.grant) == (name, grant)
        raise psycopg.Rollback


def test_every_service_is_known_by_another_role() -> None:
    assert len({each.role for each in PROVIDERS}) == len(PROVIDERS)


def test_who_has_the_attribute_and_gets_no_connection_is_told_why(
    postgres: str, connection: psycopg.Connection, roles: list[str]
) -> None:
    connection.execute(f"alter role {roles[0]} replication".encode())
    with ExitStack() as others, Postgres(_as(postgres, roles[0])) as source:
        for _ in range(int(connection.execute("show max_wal_senders").fetchone()[0])):  # type: ignore[index]
            others.enter_context(psycopg.connect(postgres, replication="database", autocommit=True))
        (found,) = server_findings(source)
    assert found.fatal
    assert f"the role {roles[0]} gets no connection by which the log is read: " in found.what
    assert "number of requested standby connections exceeds" in found.what
    assert "plain" not in found.what


def test_a_pooler_is_named(postgres: str) -> None:
    with pooled(postgres) as dsn, Postgres(dsn) as source:
        (found,) = server_findings(source)
    assert found.fatal
    assert found.what == "source.dsn leads to a pooler, which gives others our sessions: name the server itself"


def test_a_pooler_that_gives_each_client_a_session_of_its_own(postgres: str) -> None:
    """It takes no connection by which the log is read, as PgBouncer before 1.23 does not."""
    with pooled(postgres, shared=False) as dsn, Postgres(dsn) as source:
        (found,) = server_findings(source)
    assert "gets no connection by which the log is read: " in found.what
    assert "unsupported startup parameter: replication" in found.what
    assert found.what.endswith("What answers is a pooler or a gateway: name the server itself")


def test_a_database_without_an_encoding_is_refused_by_name(postgres: str, connection: psycopg.Connection) -> None:
    connection.execute("create database old encoding 'SQL_ASCII' locale 'C' locale_provider libc template template0")
    try:
        with pytest.raises(ConfigError) as refused:
            Postgres(make_conninfo(postgres, dbname="old"))
        assert str(refused.value) == "the database old has the encoding SQL_ASCII: nothing says what its texts are"
    finally:
        connection.execute("drop database old with (force)")


def test_names_and_values_of_an_old_encoding_are_read(postgres: str, connection: psycopg.Connection) -> None:
    connection.execute("create database west encoding 'LATIN1' locale 'C' locale_provider libc template template0")
    try:
        dsn = make_conninfo(postgres, dbname="west")
        with Postgres(dsn) as source:
            source.execute('create table "café" (id int primary key, "größe" text)')
            source.execute("""insert into "café" values (1, E'd\\u00e9j\\u00e0')""")
            table = source.table("public.café")
            assert table is not None
            assert [column.name for column in table.columns] == ["id", "größe"]
            assert (
                source.first_document('select to_jsonb(t) as document from "café" t', 5) == '{"id": 1, "größe": "déjà"}'
            )
    finally:
        connection.execute("drop database west with (force)")
