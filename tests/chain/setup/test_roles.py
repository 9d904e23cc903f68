"""The role of the pipeline has REPLICATION and SELECT and nothing more; a DBA runs what `plan --sql` prints."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from unittest.mock import ANY

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.chain.conftest import MakePipeline
from tests.support.compare import View
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = pytest.mark.server

ROLE = f"follower {uuid.uuid4().hex[:8]}"
"""Roles belong to the whole server. This one's name must be quoted."""


@pytest.fixture(scope="module")
def role(source: psycopg.Connection) -> Iterator[str]:
    """A role that may log in, and no more."""
    name = sql.Identifier(ROLE)
    source.execute(sql.SQL("create role {} login password 'plain'").format(name))
    yield ROLE
    source.execute(sql.SQL("drop owned by {}").format(name))
    source.execute(sql.SQL("drop role {}").format(name))


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection, role: str, module_database: str) -> Pipeline:
    """Tables of somebody else's: one in a schema that is closed, one with a column that is excluded."""
    source.execute("create schema closed")
    source.execute("create table closed.things (id int primary key, name text)")
    source.execute("create table people (id int primary key, name text, secret text)")
    source.execute("create table numbers (id int primary key, n int)")
    source.execute("insert into closed.things select n, 'thing ' || n from generate_series(1, 50) n")
    source.execute("insert into people select n, 'name ' || n, 'secret ' || n from generate_series(1, 50) n")
    source.execute("insert into numbers select n, n from generate_series(1, 50) n")
    pipeline = make_pipeline(
        View("thing", "closed.things"),
        View("person", "public.people", fields={"id": "id", "name": "name"}),
        View("number", "public.numbers"),
        tables={"closed.things": {}, "public.people": {"exclude": ["secret"]}, "public.numbers": {}},
    )
    dsn = make_conninfo(module_database, user=role, password="plain")  # noqa: S106 - it is the test
    pipeline.here.environment = {**pipeline.here.environment, "SOURCE_DSN": dsn}
    pipeline.here.write()
    return pipeline


def test_check_says_every_right_that_is_missing(pipeline: Pipeline) -> None:
    done = pipeline.here("check")
    assert done.code == 1
    assert [line for line in done.out.splitlines() if line.startswith("error")] == [
        f'error: the role {ROLE} lacks REPLICATION: run `alter role "{ROLE}" replication`',
        f'error: the role {ROLE} may not use the schema closed: run `grant usage on schema "closed" to "{ROLE}"`',
        f'error: the role {ROLE} may not read closed.things: run `grant select on "closed"."things" to "{ROLE}"`',
        f'error: the role {ROLE} may not read public.numbers: run `grant select on "public"."numbers" to "{ROLE}"`',
        f"error: the role {ROLE} may not read public.people: run "
        f'`grant select ("id", "name") on "public"."people" to "{ROLE}"`',
    ]


def test_apply_by_the_role_alone_ends_at_the_first_right(pipeline: Pipeline) -> None:
    done = pipeline.here("apply")
    assert done.code == 1
    assert "permission denied" in done.err
    assert pipeline.connection.execute("select 1 from pg_publication").fetchall() == []


def test_after_what_plan_prints_the_role_needs_no_more(pipeline: Pipeline, source: psycopg.Connection) -> None:
    printed = pipeline.here("plan", "--sql")
    assert printed.code == 1, printed.err
    publication, signals = f"driftless_{pipeline.name}", f"signals_{pipeline.name}"
    assert printed.out.splitlines() == [
        f'alter role "{ROLE}" replication;',
        f'grant usage on schema "closed" to "{ROLE}";',
        f'grant select on "closed"."things" to "{ROLE}";',
        f'grant select on "public"."numbers" to "{ROLE}";',
        f'grant select ("id", "name") on "public"."people" to "{ROLE}";',
        'alter table "closed"."things" replica identity full;',
        'alter table "public"."people" replica identity full;',
        "create schema if not exists driftless;",
        "create table if not exists driftless.tokens (pipeline text primary key, token text not null);",
        "revoke all on driftless.tokens from public;",
        ANY,  # the function that the triggers call
        "revoke execute on function driftless.truncated() from public;",
        *(
            statement
            for table in ('"closed"."things"', '"public"."numbers"', '"public"."people"')
            for statement in (
                f"create or replace trigger driftless_truncate after truncate on {table} "
                "for each statement execute function driftless.truncated();",
                f"alter table {table} enable always trigger driftless_truncate;",
            )
        ),
        f'create table if not exists "driftless"."{signals}" (id text primary key, type text not null, data text);',
        f'grant usage on schema driftless to "{ROLE}";',
        f'grant select on driftless.tokens to "{ROLE}";',
        f'grant select, insert on "driftless"."{signals}" to "{ROLE}";',
        f'create publication {publication} for table "closed"."things", "driftless"."{signals}", "public"."numbers", '
        '"public"."people";',
        f"insert into driftless.tokens values ('{pipeline.name}', replace(gen_random_uuid()::text, '-', '')) "
        "on conflict do nothing;",
    ]
    for statement in printed.out.splitlines():
        source.execute(statement.encode())
    again = pipeline.here("plan", "--sql")
    assert (again.code, again.out) == (1, "")  # topics and followers are still to be made
    assert pipeline.here("check").code == 0
    _apply_beside_a_transaction(pipeline)
    assert pipeline.here("plan").code == 0


def _apply_beside_a_transaction(pipeline: Pipeline) -> None:
    """The slot waits for whoever has written something: `apply` names them, and goes on when they end."""
    with psycopg.connect(pipeline.dsn, application_name="nightly job") as held:
        held.execute("update numbers set n = n where id = 1")
        applying = pipeline.here.start("apply")
        slot = f"driftless_{pipeline.name.replace('-', '_')}"
        said = f"waiting for the replication slot {slot}: it is held up by process {held.info.backend_pid} ("
        until("apply to say who holds it up", lambda: said in applying.output(), 60)
        assert applying.running
        held.rollback()
    assert applying.wait(120) == 0, applying.output()


def test_the_role_follows_with_exactly_those_rights(pipeline: Pipeline, source: psycopg.Connection) -> None:
    pipeline.run()
    pipeline.assert_in_step()
    source.execute("update closed.things set name = 'changed' where id < 10; delete from people where id > 45")
    source.execute("update numbers set n = -n; insert into people values (100, 'new', 'secret')")
    pipeline.assert_in_step()
    rights = source.execute(
        "select rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls, "
        "has_column_privilege(rolname, 'people', 'secret', 'select'), "
        "has_table_privilege(rolname, 'numbers', 'update') "
        "from pg_roles where rolname = %s",
        (ROLE,),
    ).fetchone()
    assert rights == (False, True, False, False, True, False, False, False)


def test_rows_that_the_role_would_not_see_are_told_of(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """A snapshot would silently lack them."""
    source.execute("alter table numbers enable row level security")
    try:
        done = pipeline.here("check")
        assert done.code == 1
        assert "error: public.numbers has row-level security, which hides rows from the role" in done.out
    finally:
        source.execute("alter table numbers disable row level security")
    assert pipeline.here("check").code == 0


def test_what_the_role_may_not_take_away_is_named_with_what_a_dba_runs(
    pipeline: Pipeline, source: psycopg.Connection
) -> None:
    pipeline.end_jobs()
    done = pipeline.here("destroy", "--yes", seconds=240)
    assert done.code == 1, done
    told = re.findall(r"^  a DBA may run: (.*)$", done.err, re.MULTILINE)
    publication = f"driftless_{pipeline.name}"
    assert told == [
        *(
            f"drop trigger if exists driftless_truncate on {table};"
            for table in ('"closed"."things"', '"public"."numbers"', '"public"."people"')
        ),
        f"drop publication if exists {publication};",
        f'drop table if exists "driftless"."signals_{pipeline.name}";',
        "drop function if exists driftless.truncated();",
        "drop table if exists driftless.tokens;",
        "drop schema if exists driftless;",
    ]
    assert source.execute("select 1 from pg_replication_slots where slot_name = %s", (publication,)).fetchall() == []
    for statement in told:
        source.execute(statement.encode())
    again = pipeline.here("destroy", "--yes", seconds=240)
    assert again.code == 0, again
    assert f"nothing is left of the pipeline {pipeline.name}, but for what stays" in again.out
