"""What a table is keyed by: its primary key, else a unique index that tells every two rows apart."""

from __future__ import annotations

import psycopg
import pytest

from connectors.postgres.client import Postgres
from tests.conftest import fresh_database

pytestmark = pytest.mark.server

NONE: tuple[tuple[str, ...], str, str] = ((), "", "n")
"""No key, no index, and no replica identity by which Postgres would let its rows be updated."""
FOUND: dict[str, tuple[tuple[str, ...], str, str]] = {
    "primary key (b, a)": (("b", "a"), "", "d"),
    "primary key (a) deferrable; create unique index one on t (b)": (("a",), "", "n"),
    "primary key (a); create unique index one on t (b); alter table t replica identity using index one": (
        ("a",),
        "",
        "n",
    ),
    "unique (b, a)": (("b", "a"), "t_b_a_key", "n"),
    "unique (a) deferrable": NONE,
    "unique (a, empty)": NONE,
    "check (a > 0); create unique index one on t (a) where b > 0": NONE,
    "check (a > 0); create unique index one on t ((a + b))": NONE,
    "check (a > 0); create unique index one on t (a) include (empty)": (("a",), "one", "n"),
    "check (a > 0); create unique index one on t (a, b); create unique index two on t (b)": (("b",), "two", "n"),
    "check (a > 0); create unique index two on t (b); create unique index one on t (a)": (("a",), "one", "n"),
    "check (a > 0); create unique index one on t (a); create unique index two on t (a, b); "
    "alter table t replica identity using index two": (("a", "b"), "two", "i"),
    "check (a > 0); create unique index one on t (a); alter table t replica identity full": (("a",), "one", "f"),
    "unique (a); create unique index one on t (b); alter table t replica identity using index one; drop index one": (
        ("a",),
        "t_a_key",
        "n",
    ),
}
"""What stands in the table's definition, and what is done then; the key's columns, its index, the identity."""


@pytest.mark.parametrize("made", FOUND)
def test_the_key_of_a_table(postgres: str, made: str) -> None:
    with fresh_database(postgres) as dsn, Postgres(dsn) as source, psycopg.connect(dsn, autocommit=True) as connection:
        constraint, *statements = made.split("; ")
        connection.execute(f"create table t (empty int, a int not null, b int not null, {constraint})".encode())
        for statement in statements:
            connection.execute(statement.encode())
        table = source.table("public.t")
        assert table is not None
        assert (table.key, table.key_index, table.replica_identity) == FOUND[made]


def test_the_key_stays_when_indexes_are_made_anew(postgres: str) -> None:
    with fresh_database(postgres) as dsn, Postgres(dsn) as source, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table t (a int not null, b int not null, unique (a), unique (b))")
        for _ in range(2):
            connection.execute("reindex index concurrently t_a_key")
            table = source.table("public.t")
            assert table is not None
            assert (table.key, table.key_index) == (("a",), "t_a_key")
