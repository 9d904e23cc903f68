"""Each example of docs/views.md: what it says of a document is what Postgres says, and what the row store makes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from ruamel.yaml import YAML

from connectors.pipeline.check import _views
from connectors.pipeline.samples import samples
from connectors.postgres.client import Postgres, captured_tables
from driftless.config.views import ViewConfig
from driftless.views.resolve import CapturedTables, resolve
from driftless.views.sql import select
from driftless.views.tree import View
from jobs.views.store.sqlite import SqliteRows
from tests.conftest import fresh_database
from tests.docs.test_docs import Block, blocks
from tests.driftless.config.test_config import GOOD, load_text
from tests.support.compare import parse, same
from tests.support.files import ROOT

pytestmark = pytest.mark.server

PAGE = ROOT / "docs" / "views.md"
EXAMPLES = [
    (block, after) for block, after in zip(blocks(PAGE), blocks(PAGE)[1:], strict=False) if block.kind == "yaml"
]

TABLES = [
    f"public.{table}"
    for table in (
        *("customers", "orders", "order_lines", "products", "categories", "product_categories", "comments"),
        *("pages", "sections"),
    )
]


@pytest.fixture(scope="module")
def shop(postgres: str) -> Iterator[tuple[psycopg.Connection, Postgres]]:
    """The page's tables."""
    with (
        fresh_database(postgres) as dsn,
        psycopg.connect(dsn, autocommit=True) as connection,
        Postgres(dsn) as source,
    ):
        connection.execute("set timezone = 'UTC'")
        connection.execute(next(block.text for block in blocks(PAGE) if block.kind == "sql").encode())
        yield connection, source


def declared_view(block: Block, facts: CapturedTables) -> View:
    """The one view of an example."""
    ((name, entry),) = YAML(typ="safe").load(block.text)["views"].items()
    view, problems = resolve(name, ViewConfig.model_validate(entry), facts)
    assert problems == []
    assert view is not None
    return view


@pytest.mark.parametrize("place", range(len(EXAMPLES)), ids=lambda place: f"line {EXAMPLES[place][0].line}")
def test_an_example_is_what_it_says(place: int, shop: tuple[psycopg.Connection, Postgres], tmp_path: Path) -> None:
    connection, source = shop
    declared, said = EXAMPLES[place]
    assert said.kind == "json"
    tables = {table: source.table(table) for table in TABLES}
    facts = CapturedTables({name: table for name, table in tables.items() if table is not None}, source.unique_keys)
    view = declared_view(declared, facts)
    wanted = parse(said.text)
    by_postgres: dict[str, str] = dict(
        connection.execute(f"select key, document::text from ({select(view)}) x".encode()).fetchall()
    )
    for documents in (by_postgres, by_the_store(view, connection, tmp_path)):
        found = [parse(documents[key]) for key in sorted(documents, key=_placed)]
        assert same(found, wanted), found


@pytest.mark.parametrize("values", [False, True])
def test_what_plan_shows_of_a_view_is_what_it_says(
    values: bool, shop: tuple[psycopg.Connection, Postgres], tmp_path: Path
) -> None:
    (name, entry), *_ = YAML(typ="safe").load(EXAMPLES[-1][0].text)["views"].items()
    followers = {"cache": {"view": name, "redis": {"url": "redis://127.0.0.1:56379", "key": "x:{id}"}}}
    changed = {"views": {name: entry}, "followers": followers}
    changed["source"] = {"dsn": "postgresql://localhost/shop", "tables": {table: {} for table in TABLES}}
    config = load_text(tmp_path, json.dumps({**YAML(typ="safe").load(GOOD), **changed}))
    said = [block.text for block in blocks(PAGE) if block.kind == "text"][values]
    assert f"view {name}, a document:\n{samples(config, shop[1], config.views, values=values)[name]}\n" == said


def test_unique_keys_are_those_that_hold_for_every_row(shop: tuple[psycopg.Connection, Postgres]) -> None:
    connection, source = shop
    connection.execute("create table keyed (a int, b int primary key, c text, d int, unique (c, a) include (d))")
    connection.execute("create unique index on keyed (a) where d > 0")
    connection.execute("create unique index on keyed (lower(c))")
    connection.execute("create index on keyed (d)")
    assert source.unique_keys("public.keyed") == [("b",), ("c", "a")]


def test_check_tells_what_the_tables_lack(shop: tuple[psycopg.Connection, Postgres], tmp_path: Path) -> None:
    relations = "one: {customer: {table: customers, by: customer, columns: [nme], where: tier > 1}}"
    text = GOOD.replace("public.products:", "public.orders:").replace(
        "{root: products}", f"{{root: orders, {relations}}}"
    )
    config = load_text(tmp_path, text.replace("[password_hash]", "[email]"))
    found = [str(finding) for finding in _views(config, shop[1], captured_tables(shop[1], config))]
    assert [said.removeprefix(f"error: {tmp_path}/") for said in found if "customer." in said] == [
        "sync.yaml:10: views.product.one.customer.columns.0: public.customers has no column nme; did you mean `name`?",
        "sync.yaml:10: views.product.one.customer.by: public.orders has no column customer; "
        "did you mean `customer_id`?",
        "sync.yaml:10: views.product.one.customer.where: column 1: public.customers has no column tier; "
        "known: `id`, `name`, `referrer`",
    ]


def _placed(key: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in re.findall(r"\d+|[^\d\[\],]+", key)]


def by_the_store(view: View, connection: psycopg.Connection, folder: Path) -> dict[str, str]:
    store = SqliteRows.create(folder / "rows.db", view)
    store.apply(((name, list(_rows(view, name, connection))) for name in view.tables), {})
    done = store.assemble(100)
    store.close()
    return {key: document for key, document in done.writes if document is not None}


def _rows(view: View, name: str, connection: psycopg.Connection) -> Iterator[tuple[Any, ...]]:
    table = view.tables[name]
    key = " || ',' || ".join(f"{column}::text" for column in table.key)
    texts = ", ".join(f"to_jsonb({column.name})::text" for column in table.columns)
    for key_text, *values in connection.execute(f"select {key}, {texts} from {table.full_name}".encode()):
        yield (f"[{key_text}]" if len(table.key) > 1 else key_text, 1, 0, *values)
