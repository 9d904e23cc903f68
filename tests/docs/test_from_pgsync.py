"""The shapes of PGSync's examples: each document of docs/from-pgsync.md is what Postgres and the row store say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from connectors.postgres.client import Postgres
from driftless.views.resolve import CapturedTables
from driftless.views.sample import select_one
from driftless.views.sql import select
from tests.conftest import fresh_database
from tests.docs.test_docs import blocks
from tests.docs.test_views_docs import by_the_store, declared_view
from tests.support.compare import parse, same
from tests.support.files import ROOT

pytestmark = pytest.mark.server

PAGE = ROOT / "docs" / "from-pgsync.md"
SHAPES = [(block, after) for block, after in zip(blocks(PAGE), blocks(PAGE)[1:], strict=False) if block.kind == "yaml"]


@pytest.fixture(scope="module")
def tables(postgres: str) -> Iterator[tuple[psycopg.Connection, CapturedTables]]:
    with (
        fresh_database(postgres) as dsn,
        psycopg.connect(dsn, autocommit=True) as connection,
        Postgres(dsn) as source,
    ):
        connection.execute("set timezone = 'UTC'")
        connection.execute(next(block.text for block in blocks(PAGE) if block.kind == "sql").encode())
        query = "select table_schema || '.' || table_name from information_schema.tables where table_schema = any(%s)"
        names = [name for (name,) in connection.execute(query, (["public", "child", "between"],))]
        found = {name: table for name in names if (table := source.table(name)) is not None}
        yield connection, CapturedTables(found, source.unique_keys)


def test_the_page_has_nine_shapes() -> None:
    assert len(SHAPES) == 9


@pytest.mark.parametrize("place", range(len(SHAPES)), ids=lambda place: f"line {SHAPES[place][0].line}")
def test_a_shape_is_what_it_says(place: int, tables: tuple[psycopg.Connection, CapturedTables], tmp_path: Path) -> None:
    connection, facts = tables
    declared, said = SHAPES[place]
    assert said.kind == "json"
    view = declared_view(declared, facts)
    statements = (select(view), select_one(view, roots=None, cut=None))
    found: list[dict[str, str]] = [
        dict(connection.execute(f"select key, document::text from ({sql}) x".encode())) for sql in statements
    ]
    for documents in (*found, by_the_store(view, connection, tmp_path)):
        assert same([parse(documents[key]) for key in sorted(documents)], parse(said.text)), documents
