"""`init`: a sync.yaml for databases that were not made for driftless."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import sinks
from driftless.config.load import load
from driftless.config.models import Config
from stack import Endpoints
from tests.shapes import nasty
from tests.support.machine import Machine

pytestmark = pytest.mark.server

SMALL = """
create table customers (id bigint primary key, name text, tier text, password_hash text, mail int2vector);
create table lines ("order" int, line smallint, price numeric(10,2), at timestamptz, more jsonb, tags text[],
    primary key ("order", line));
create table log (what text);
"""
WRITTEN = """\
# A start for the database DATABASE, written by `driftless init`.
# Change what you like before the first `driftless apply`.
name: shop    # prefix of every topic, slot, publication and index
source:
  dsn: ${SHOP_DSN}    # a role with REPLICATION, and SELECT on the tables
  # admin_dsn: ${SHOP_ADMIN_DSN}    # for `apply` alone: owns the tables
  # One topic for each table. Tables, views and followers can come at any later time. A view and a follower
  # are built from the topics, without load on the database.
  tables:
    public.customers:
      exclude:    # secret, by their names: they never leave the database
        - password_hash
      # documents leave out mail: it has the type int2vector, which Debezium takes for an array and loses
    public.lines: {}
    # Left out:
    # - public.log has no primary key, nor a unique index without nulls: `alter table public.log add primary key (...)`
kafka:
  bootstrap: ${KAFKA:-127.0.0.1:59092}    # where KAFKA is not set: the local stack
  partitions: 4     # of each table's topic; frozen once made
  replication: 1    # 3 on a cluster
connect:
  url: ${CONNECT_URL:-http://127.0.0.1:58083}
  # password: file:/etc/connect/shop.properties:password    # where a worker of yours finds the DSN's
views:    # what a document is: one for each row of `root`, with all columns where none are named
  customers:
    root: public.customers
  lines:
    root: public.lines
followers:
  customers-search:
    view: customers
    opensearch:
      url: ${SEARCH_URL:-http://127.0.0.1:59200}
      index: shop-customers    # the name that readers use: an alias
      settings:
        mapping.ignore_malformed: true    # what is no date or number is kept, and cannot be searched
      mapping:
        dynamic: false    # what is not listed is kept, and cannot be searched
        properties:
          id: {type: long}
          name: {type: text, fields: {keyword: {type: keyword, ignore_above: 256}}}
          tier: {type: text, fields: {keyword: {type: keyword, ignore_above: 256}}}
  # customers-cache:
  #   view: customers
  #   redis:
  #     url: ${CACHE_URL:-redis://127.0.0.1:56379/0}
  #     key: 'shop:customers:{id}'
  lines-search:
    view: lines
    opensearch:
      url: ${SEARCH_URL:-http://127.0.0.1:59200}
      index: shop-lines
      settings:
        mapping.ignore_malformed: true
      mapping:
        dynamic: false
        properties:
          order: {type: integer}
          line: {type: integer}
          price: {type: double}    # the document has every digit; the index rounds
          at: {type: date}
          more: {type: object, enabled: false}    # kept, not searched
          tags: {type: text, fields: {keyword: {type: keyword, ignore_above: 256}}}
  # lines-cache:
  #   view: lines
  #   redis:
  #     url: ${CACHE_URL:-redis://127.0.0.1:56379/0}
  #     key: 'shop:lines:{order}:{line}'
"""


@pytest.fixture
def place(tmp_path: Path, endpoints: Endpoints, database: str) -> Machine:
    """Where the command is run; what it writes runs on the session's servers."""
    environment = {
        "SHOP_DSN": database,
        "KAFKA": endpoints.kafka,
        "CONNECT_URL": endpoints.connect,
        "SEARCH_URL": endpoints.opensearch,
        "CACHE_URL": endpoints.redis,
    }
    machine = Machine(tmp_path / "place", {}, environment)
    (machine.folder / "sync.yaml").unlink()
    return machine


@pytest.fixture
def written(place: Machine, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Config]:
    """Read what was written."""
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)

    def read() -> Config:
        return load(place.folder / "sync.yaml", {kind: sinks.config_model(kind) for kind in sinks.kinds()})

    return read


def test_a_small_database_gives_this_very_file(place: Machine, database: str, connection: psycopg.Connection) -> None:
    connection.execute(SMALL.encode())
    done = place("init", "--dsn", database, "--name", "shop")
    assert (done.code, done.err) == (
        0,
        "left out: public.log has no primary key, nor a unique index without nulls: "
        "`alter table public.log add primary key (...)`\n",
    )
    assert (place.folder / "sync.yaml").read_text() == WRITTEN.replace("DATABASE", connection.info.dbname)
    assert done.out == (
        "sync.yaml: 2 tables, 1 left out\n\nRead it, then:\n"
        "  export SHOP_DSN='...'    # the DSN that you gave\n"
        "  driftless check\n  driftless apply\n  driftless run\n"
    )
    assert place("check").code == 0


def test_a_nasty_database_gives_a_file_that_passes_check(
    place: Machine, database: str, connection: psycopg.Connection, written: Callable[[], Config]
) -> None:
    nasty.create(connection)
    done = place("init", "--dsn", database, "--name", "shop")
    assert done.code == 0, done.err
    config = written()
    tables = {name: table.exclude for name, table in config.source.tables.items()}
    assert list(tables.items()) == [(wanted.name, wanted.exclude) for wanted in nasty.EXPECTED]
    assert {name: (view.root, view.columns) for name, view in config.views.items()} == {
        wanted.view: (wanted.name, wanted.fields if wanted.renamed else None) for wanted in nasty.EXPECTED
    }
    assert {name: (f.view, f.sink["index"]) for name, f in config.followers.items()} == {
        f"{wanted.view}-search": (wanted.view, f"shop-{wanted.view}") for wanted in nasty.EXPECTED
    }
    for wanted in nasty.EXPECTED:
        fields = config.followers[f"{wanted.view}-search"].sink["mapping"]["properties"]
        assert list(fields) == list(wanted.fields)
    checked = place("check")
    assert checked.code == 0, checked.out + checked.err
    assert "error" not in checked.out


def test_what_is_left_out_is_said_with_the_reason(
    place: Machine, database: str, connection: psycopg.Connection
) -> None:
    nasty.create(connection)
    done = place("init", "--dsn", database, "--name", "shop")
    said = {line.removeprefix("left out: ").split(" ")[0]: line for line in done.err.splitlines()}
    assert {name: text.partition(name)[2].strip().split(":")[0] for name, text in said.items()} == {
        "public.''": "in it has a name that Debezium does not read back as it is",
        "public.animals": "has tables that inherit from it",
        "public.audit": "has no primary key, nor a unique index without nulls",
        "public.count_of": "is a materialized view, which the log does not carry",
        "public.far": "is a foreign table",
        "public.happy": "is a view",
        "public.scratch": "is unlogged, so its changes are not in the log",
        "public.sessions": "has a secret for a key, by the name of its column sessionToken",
        "public.spatial_ref_sys": "is left out by Debezium, which takes it for a table of PostGIS",
        "public.twins": "has columns that differ only in capitals, which Debezium refuses",
        "sales_eu.x": "would share the topic shop.sales_eu.x with sales.eu_x",
    }
    text = (place.folder / "sync.yaml").read_text()
    for line in said.values():
        assert f"    # - {line.removeprefix('left out: ')}\n" in text


def test_check_refuses_by_name_what_init_leaves_out(
    place: Machine, database: str, connection: psycopg.Connection
) -> None:
    nasty.create(connection)
    assert place("init", "--dsn", database, "--name", "shop", "--schema", "sales").code == 0
    text = (place.folder / "sync.yaml").read_text()
    more = "".join(f"    {name}: {{}}\n" for name in ("happy", "scratch", "animals", "twins", "sales_eu.x"))
    (place.folder / "sync.yaml").write_text(text.replace("  tables:\n", f"  tables:\n{more}"))
    checked = place("check")
    assert checked.code == 1
    for name in ("happy is a view", "scratch is unl", "animals has tab", "twins has col"):
        assert f"error: public.{name}" in checked.out
    assert "error: sales_eu.x would share the topic" in checked.out


def test_only_the_schemas_that_are_asked_for(
    place: Machine, database: str, connection: psycopg.Connection, written: Callable[[], Config]
) -> None:
    nasty.create(connection)
    done = place("init", "--dsn", database, "--name", "shop", "--schema", "sales", "--schema", "My Schema")
    assert done.code == 0
    assert list(written().source.tables) == ["My Schema.Order Lines", "sales.customers", "sales.eu_x"]
    wrong = place("init", "--dsn", database, "--name", "shop", "--schema", "sale", "--force")
    said = "--schema: there is no table in a schema sale; did you mean `sales`?"
    assert (wrong.code, wrong.err.splitlines()[0]) == (2, said)


def test_many_tables_get_views_and_the_first_get_followers(
    place: Machine, database: str, connection: psycopg.Connection, written: Callable[[], Config]
) -> None:
    for number in range(18):
        connection.execute(f"create table t{number:02} (id int primary key)".encode())
    assert place("init", "--dsn", database, "--name", "shop").code == 0
    assert len(written().source.tables) == 18
    assert len(written().views) == 18
    assert list(written().followers) == [f"t{number:02}-search" for number in range(16)]


def test_the_dsn_is_nowhere(place: Machine, database: str, connection: psycopg.Connection) -> None:
    connection.execute("create table t (id int primary key)")
    secret = str(connection.info.password)
    assert len(secret) > 5
    done = place("init", "--dsn", database, "--name", "shop")
    assert done.code == 0
    assert secret not in (place.folder / "sync.yaml").read_text() + done.out + done.err


def test_a_file_that_is_there_stays(place: Machine, database: str, connection: psycopg.Connection) -> None:
    connection.execute("create table t (id int primary key)")
    (place.folder / "sync.yaml").write_text("mine")
    done = place("init", "--dsn", database)
    assert (done.code, done.err.splitlines()[0]) == (2, "sync.yaml: there is such a file")
    assert (place.folder / "sync.yaml").read_text() == "mine"
    assert place("init", "--dsn", database, "-f", "other.yaml").code == 0
    assert place("init", "--dsn", database, "--force").code == 0
    assert (place.folder / "sync.yaml").read_text() == (place.folder / "other.yaml").read_text()


def test_a_database_without_tables_gives_no_file(place: Machine, database: str, connection: psycopg.Connection) -> None:
    connection.execute("create table log (what text)")
    done = place("init", "--dsn", database)
    assert done.code == 1
    assert done.err.splitlines()[1:] == [f"{connection.info.dbname}: no table that can be followed; nothing is written"]
    assert not (place.folder / "sync.yaml").exists()


def test_one_view_is_written_alone(
    place: Machine, database: str, connection: psycopg.Connection, written: Callable[[], Config]
) -> None:
    connection.execute(SMALL.encode())
    connection.execute("create table notes (id int primary key, customer_id bigint references customers, text text)")
    done = place("init", "--dsn", database, "--name", "shop", "--view", "notes", "--view", "public.notes", "--nested")
    assert (done.code, done.err) == (0, "")
    assert list(written().source.tables) == ["public.customers", "public.notes"]
    assert list(written().views) == ["notes"]
    assert place("check").code == 0
    wrong = place("init", "--dsn", database, "--name", "shop", "--view", "note", "--force")
    said = "--view: there is no table for a view note; did you mean `notes`?"
    assert (wrong.code, wrong.err.splitlines()[0]) == (2, said)
    alone = place("init", "--dsn", database, "--name", "shop", "--nested", "--force")
    assert (alone.code, alone.err.splitlines()[0]) == (2, "--nested: say which view, with --view")


def test_mistakes_end_in_a_message(place: Machine, database: str, connection: psycopg.Connection) -> None:
    connection.execute("create table plain (id int primary key)")
    away = place("init", "--dsn", make_conninfo(database, port=1))
    assert away.code == 3
    assert "cannot be reached" in away.err
    unreadable = place("init", "--dsn", "postgres//nothing here")
    assert unreadable.code == 2
    assert "the DSN of the source cannot be read" in unreadable.err
    misnamed = place("init", "--dsn", database, "--name", "My Shop")
    assert (misnamed.code, misnamed.err.split(":")[0]) == (2, "--name")
    nowhere = place("init", "--dsn", database, "-f", "no/folder/sync.yaml")
    assert nowhere.code == 2
    assert "Traceback" not in away.err + unreadable.err + misnamed.err + nowhere.err
