"""The mark of the catalogue: a run reads hundreds of tables again only where it has changed."""

from __future__ import annotations

import re

import psycopg
import pytest

from connectors.postgres import queries
from connectors.postgres.client import Postgres
from tests.conftest import fresh_database

DDL = (
    "alter table items add column more int",
    "alter table items rename column more to other",
    "alter table items alter column other type bigint",
    "alter table items replica identity full",
    "alter table items drop constraint items_pkey",
    "alter type mood rename value 'sad' to 'blue'",
    "create cast (mood as json) with inout",
    "alter table items disable trigger told",
    "truncate items",
    "drop table items",
)


@pytest.mark.server
def test_every_ddl_changes_the_mark_and_rows_do_not(postgres: str) -> None:
    with fresh_database(postgres) as dsn, Postgres(dsn) as source, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create type mood as enum ('sad', 'glad')")
        connection.execute("create table items (id int primary key, felt mood)")
        connection.execute("create function tell() returns trigger language plpgsql as 'begin return null; end'")
        connection.execute("create trigger told after truncate on items execute function tell()")
        before = source.catalogue_mark()
        connection.execute("insert into items select i, 'sad' from generate_series(1, 5000) i")
        connection.execute("update items set felt = 'glad' where id % 2 = 0")
        connection.execute("vacuum items")
        assert source.catalogue_mark() == before
        for statement in DDL:
            connection.execute(statement.encode())
            after = source.catalogue_mark()
            assert after != before, statement
            before = after


def test_it_is_of_everything_that_tables_are_made_of() -> None:
    read = {f"pg_{name}" for name in queries.CATALOGUE.split()}
    wanted = "".join((queries.TABLES, queries.COLUMNS, queries.STORAGE, queries.PARTITIONS))
    assert set(re.findall(r"(?:from|join) (pg_\w+)\b(?!\()", wanted)) == read
