"""What `plan` shows of a view: the right document, at once, and no value unless it is asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from cli import base, setup
from connectors.pipeline.plan_context import Action
from connectors.pipeline.samples import Sample, samples
from connectors.pipeline.views import view_source
from connectors.postgres.client import Postgres, captured_tables
from driftless import exact
from driftless.config.models import Config
from driftless.views.resolve import resolve
from driftless.views.sample import bare, lacking, select_one, shape
from tests.conftest import fresh_database
from tests.driftless.config.test_config import load_text

pytestmark = pytest.mark.server

TABLES = """
create schema closed;
create type address as (street text, numbers int[]);
create table customers (id bigint primary key, name text, secret text, home address, extra jsonb, tags text[]);
create table orders (id bigint primary key, customer_id bigint, total numeric(60, 30), note text, after interval,
                     state text);
create table order_lines (order_id bigint, line int, product text, primary key (order_id, line));
create table products (code text collate "und-x-icu" primary key, title text);
create table empty (id int primary key, at timestamptz);
create table closed.things (id int primary key, name text);
"""
ROWS = """
insert into customers values (7, 'Zoë', 'hush', row('Main St', '{1,2}'), '{"ann@example.org": 1.50}', '{a,b}');
insert into orders values (1, 7, 12345678901234567890.5, E'\\u009b31m:smile:', '90 minutes', 'open');
insert into order_lines select 1, n, 'p' || n from generate_series(5, 1, -1) n;
insert into products select 'p' || n, 'Title ' || n from generate_series(1, 5000) n;
"""
CONFIG = """
name: shop
source:
  dsn: "${SHOP_DSN}"
  tables:
    public.customers: {exclude: [secret]}
    public.orders:
    public.order_lines:
    public.products:
    public.empty:
    closed.things:
kafka: {bootstrap: "127.0.0.1:59092"}
connect: {url: "http://127.0.0.1:58083"}
views:
  customer: {root: public.customers}
  order:
    root: public.orders
    columns: {total: total, id: id, said: note, after: after}
    one:
      customer: {table: public.customers, by: customer_id, columns: [name]}
    many:
      lines:
        table: public.order_lines
        by: order_id
        order_by: [line]
        columns: [line]
        one:
          product: {table: public.products, by: product, columns: [title]}
  draft: {root: public.orders, columns: [id], where: state = 'draft'}
  empty: {root: public.empty}
  thing: {root: closed.things}
followers:
  cache: {view: thing, redis: {url: "redis://127.0.0.1:56379", key: "thing:{id}"}}
"""
ORDER = {
    "total": "numeric",
    "id": "int8",
    "said": "text",
    "after": "interval",
    "customer": {"name": "text"},
    "lines": [{"line": "int4", "product": {"title": "text"}}],
}
CUSTOMER = {
    "id": "int8",
    "name": "text",
    "home": {"street": "text", "numbers": ["int4"]},
    "extra": "jsonb",
    "tags": ["text"],
}


@pytest.fixture
def shop(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    with fresh_database(postgres) as dsn, psycopg.connect(dsn, autocommit=True) as owner, Postgres(dsn) as source:
        owner.execute(TABLES)
        owner.execute(ROWS)
        monkeypatch.setenv("SHOP_DSN", dsn)
        yield Shop(owner, source, load_text(tmp_path, CONFIG))


class Shop:
    def __init__(self, owner: psycopg.Connection, source: Postgres, config: Config) -> None:
        self.owner, self.source, self.config = owner, source, config

    def samples(self, *, values: bool = False) -> dict[str, Sample]:
        return samples(self.config, self.source, self.config.views, values=values)

    def plan(self, *options: str, monkeypatch: pytest.MonkeyPatch, actions: int = 0) -> tuple[int, str]:
        """The command, on the source alone: what is to change is given."""

        @contextmanager
        def reach(_: Config) -> Iterator[Any]:
            yield SimpleNamespace(source=self.source)

        made = [Action("create", f"topic {n}", sql="select 1" if n else None) for n in range(actions)]
        monkeypatch.setattr(setup, "reach", reach)
        monkeypatch.setattr(setup, "_plan", lambda *_, **__: (made, {}))
        monkeypatch.setattr(setup, "load", lambda _: self.config)
        done = CliRunner().invoke(base.app, ["plan", *options])
        return done.exit_code, done.stdout


def test_a_document_has_types_in_place_of_values(shop: Shop) -> None:
    found = shop.samples()
    assert found["order"] == Sample(ORDER)
    assert found["customer"] == Sample(CUSTOMER)
    assert list(found["order"].document) == list(ORDER), "fields are in the order of the declaration"


def test_without_values_none_leaves_the_database(shop: Shop) -> None:
    view, _ = resolve("order", shop.config.views["order"], view_source(shop.config, shop.source, tables(shop)))
    assert view is not None
    text = shop.source.first_document(select_one(bare(view), cut=0), 5)
    assert json.loads(str(text)) == {"customer": {}, "lines": [{"product": {}}]}


def test_with_values_it_is_one_row_with_lists_cut(shop: Shop) -> None:
    shop.owner.execute(f"alter database {shop.owner.info.dbname} set intervalstyle = 'sql_standard'".encode())
    with Postgres(shop.config.source.dsn) as source:
        found = samples(shop.config, source, shop.config.views, values=True)
    assert found["order"].document == {
        "total": "12345678901234567890.500000000000000000000000000000",
        "id": "1",
        "said": "\u009b31m:smile:",
        "after": "01:30:00",
        "customer": {"name": "Zoë"},
        "lines": [*({"line": str(n), "product": {"title": f"Title {n}"}} for n in (1, 2, 3)), "..."],
    }
    assert found["customer"].document["extra"] == {"ann@example.org": "1.50"}


def test_relations_without_a_row_are_named_and_still_shown_by_their_types(shop: Shop) -> None:
    shop.owner.execute("delete from products")
    assert shop.samples()["order"] == Sample(ORDER, "none in the row that was read: lines.product")
    shop.owner.execute("delete from customers")
    shop.owner.execute("delete from order_lines")
    assert shop.samples()["order"] == Sample(ORDER, "none in the row that was read: customer, lines")
    assert (found := shop.samples(values=True)["order"].document)["customer"] is None
    assert found["lines"] == []


@pytest.mark.parametrize("values", [False, True])
def test_where_no_row_has_a_document_the_types_are_shown(values: bool, shop: Shop) -> None:
    found = shop.samples(values=values)
    assert found["empty"] == Sample({"id": "int4", "at": "timestamptz"}, "no row to show yet")
    assert found["draft"] == Sample({"id": "int8"}, "no row to show yet: none passes `where`")


@pytest.mark.parametrize("values", [False, True])
def test_what_the_role_may_not_read_is_said(values: bool, shop: Shop) -> None:
    """Where it may read some columns and the view takes no others, nothing is in the way."""
    role = f"reader_{os.getpid()}_{values}".lower()
    shop.owner.execute(f"create role {role} login password 'feeble'".encode())
    try:
        shop.owner.execute(f"grant select (id, name, home, extra, tags) on customers to {role}".encode())
        shop.owner.execute(f"grant select on orders, products, closed.things to {role}".encode())
        with Postgres(make_conninfo(shop.config.source.dsn, user=role, password="feeble")) as source:  # noqa: S106
            found = samples(shop.config, source, shop.config.views, values=values)
        notes = {name: sample.note for name, sample in found.items()}
        assert notes == {
            "customer": "",
            "order": "no sample: the role may not read public.order_lines yet",
            "draft": "no row to show yet: none passes `where`",
            "empty": "no sample: the role may not read public.empty yet",
            "thing": "no sample: the role may not read closed.things yet",
        }
        assert found["order"].document == ORDER
    finally:
        shop.owner.execute(f"drop owned by {role}".encode())
        shop.owner.execute(f"drop role {role}".encode())


def test_a_view_that_takes_too_long_has_no_sample(shop: Shop) -> None:
    """Here for a table that somebody holds; the connection goes on as it was."""
    with psycopg.connect(shop.config.source.dsn) as other:
        other.execute("lock table order_lines in access exclusive mode")
        found = samples(shop.config, shop.source, shop.config.views, values=False, seconds=0.2)
    assert found["order"] == Sample(ORDER, "no sample: reading it took over 0.2 s")
    assert found["customer"] == Sample(CUSTOMER)
    settings = [shop.source._row(f"show {name}") for name in ("statement_timeout", "transaction_read_only")]
    assert settings == [("0",), ("off",)]


def test_an_error_shows_no_value(shop: Shop) -> None:
    """Postgres quotes in its message what it could not read."""
    with pytest.raises(Exception, match=r"^Postgres answers with the error 22P02$") as caught:
        shop.source.first_document("select to_jsonb(secret::int) as document from customers", 5)
    assert caught.value.__cause__ is None


def test_nothing_can_be_written_by_a_sample(shop: Shop) -> None:
    with pytest.raises(Exception, match="error 25006"):
        shop.source.first_document("select to_jsonb(lo_create(0)) as document", 5)


@pytest.mark.parametrize("cut", [0, 3])
def test_rows_are_found_by_index_text_too_whatever_its_collation(cut: int, shop: Shop) -> None:
    shop.owner.execute("insert into order_lines select n / 10 + 2, n % 10, 'p1' from generate_series(0, 30000) n")
    shop.owner.execute("insert into customers select n, 'n' from generate_series(100, 10000) n")
    shop.owner.execute("analyze")
    view, _ = resolve("order", shop.config.views["order"], view_source(shop.config, shop.source, tables(shop)))
    assert view is not None
    statement = select_one(view if cut else bare(view), cut=cut)
    steps = "\n".join(row[0] for row in shop.owner.execute(f"explain {statement}".encode()))
    assert [line.strip() for line in steps.splitlines() if "Seq Scan" in line and "orders r" not in line] == []
    assert shape(view) == ORDER


def test_lacking_looks_into_the_first_of_a_list(shop: Shop) -> None:
    view, _ = resolve("order", shop.config.views["order"], view_source(shop.config, shop.source, tables(shop)))
    assert view is not None
    document = {"customer": {}, "lines": [{"product": None}, {"product": {}}]}
    assert [*lacking(view.root, document)] == ["lines.product"]


def tables(shop: Shop) -> dict[str, Any]:
    return {name: table for name, table in captured_tables(shop.source, shop.config).items() if table is not None}


# -- the command ------------------------------------------------------------------------------------------------


def test_plan_shows_it_after_the_changes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = shop.plan("--all", actions=2, monkeypatch=monkeypatch)
    changes, *blocks = said.split("\n\n")
    assert code == 1
    assert changes == "  create topic 0\n  create topic 1\n2 changes; `driftless apply` makes them"
    assert [block.splitlines()[0] for block in blocks] == [f"view {name}, a document:" for name in shop.config.views]
    assert blocks[2] == 'view draft, a document:\n{\n  "id": "int8"\n}\n  no row to show yet: none passes `where`'
    assert json.loads(blocks[1].partition("\n")[2]) == ORDER
    for value in ("Zoë", "Main", "ann@", "Title", "12345", "hush"):
        assert value not in said


def test_plan_without_changes_says_so_first_and_ends_with_0(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = shop.plan(monkeypatch=monkeypatch)
    assert (code, said.splitlines()[0]) == (0, "nothing to change")
    code, again = shop.plan("--values", "--all", monkeypatch=monkeypatch)
    assert code == 0
    assert '  "total": 12345678901234567890.500000000000000000000000000000,\n  "id": 1,\n' in again
    assert '  "said": "\\u009b31m:smile:",\n' in again
    assert '"name": "Zoë"' in again
    assert "hush" not in again


def test_as_json_it_stands_beside_the_changes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = shop.plan("--json", actions=1, monkeypatch=monkeypatch)
    found = json.loads(said)
    assert code == 1
    assert list(found) == ["changes", "samples", "sample_notes"]
    assert found["changes"] == [{"verb": "create", "what": "topic 0", "detail": "", "sql": None}]
    assert list(found["samples"]) == list(shop.config.views)
    assert found["samples"]["order"] == ORDER
    assert list(found["sample_notes"]) == ["draft", "empty", "thing"]
    values = json.loads(shop.plan("--json", "--values", monkeypatch=monkeypatch)[1], parse_float=str)["samples"]
    assert values["order"]["total"] == "12345678901234567890.500000000000000000000000000000"


def test_sql_is_sql_alone(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shop.plan("--sql", actions=2, monkeypatch=monkeypatch) == (1, "select 1;\n")


# -- JSON -------------------------------------------------------------------------------------------------------

TEXTS = ['{"a": 1.50, "b": [], "c": {}, "d": [1, [true, null]], "é": 100000000000000000000.10}', '"x"', "[]", "-0.0"]


@pytest.mark.parametrize("text", TEXTS)
def test_numbers_keep_their_digits(text: str) -> None:
    assert exact.write(exact.read(text), indent=0).replace("\n", "").replace(",", ", ") == text
    assert exact.write(exact.read(text)) == json.dumps(text)[1:-1].replace('\\"', '"')


def test_layout_and_escapes_are_those_of_json() -> None:
    value = {"a": [1, {"b": "\x9b\x7f\u202e\U000e0001 ü"}], "c": [], "d": {}}
    assert json.loads(exact.write(value)) == value
    laid_out = exact.write(value, indent=2)
    assert json.loads(laid_out) == value
    assert laid_out == json.dumps(value, indent=2, ensure_ascii=False).replace(
        "\x9b\x7f\u202e", "\\u009b\\u007f\\u202e"
    ).replace("\U000e0001", "\\udb40\\udc01")
