"""`init` proposes nested views along the foreign keys, in comments that are right once the `#` is taken away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cli.proposal.syncfile import write_sync
from connectors.pipeline.views import view_source
from connectors.postgres.client import Postgres, captured_tables
from connectors.postgres.init import propose
from driftless.config.models import Config
from driftless.views.resolve import CapturedTables
from driftless.views.sql import select
from tests.cli.proposal.proposals import loaded, trees, uncommented
from tests.conftest import fresh_database
from tests.shapes import nasty

pytestmark = pytest.mark.server

SHOP = """
create table customers (id bigint primary key, name text, password_hash text);
create table products (id bigint primary key, title text);
create table orders (id bigint primary key, customer_id bigint references customers, status text);
create table order_lines (order_id bigint references orders, line int, product_id bigint references products, qty int,
    primary key (order_id, line));
insert into customers values (1, 'Ann', 'x');
insert into products values (7, 'Lamp'), (8, 'Desk');
insert into orders values (10, 1, 'open'), (11, null, 'draft');
insert into order_lines values (10, 2, 8, 1), (10, 1, 7, 4);
"""
SHOP_VIEWS = """\
  # orders_nested:
  #   root: public.orders
  #   one:
  #     customer: {table: public.customers, by: customer_id}
  #   many:
  #     lines:
  #       table: public.order_lines
  #       by: order_id
  #       one:
  #         product: {table: public.products, by: product_id}
"""
EXPLAINED = """\
  # # Nested views, along the foreign keys. Take away the `# ` of those that you want, here and of their followers
  # # below. Leave out what you do not need, above all lists that grow without end. A view keeps on disk the rows
  # # that it reads, and writes a document again, with all that is in it, when one row in it changes.
"""
SHOP_FOLLOWERS = """\
  # # Followers of the nested views.
  # orders_nested-search:
  #   view: orders_nested
  #   opensearch:
  #     url: ${SEARCH_URL:-http://127.0.0.1:59200}
  #     index: shop-orders_nested
  #     settings:
  #       mapping.ignore_malformed: true
  #     mapping:
  #       dynamic: false
  #       properties:
  #         id: {type: long}
  #         customer_id: {type: long}
  #         status: {type: text, fields: {keyword: {type: keyword, ignore_above: 256}}}
  #         customer:
  #           properties:
  #             id: {type: long}
  #             name: {type: text, fields: {keyword: {type: keyword, ignore_above: 256}}}
  #         lines:
  #           properties:
  #             order_id: {type: long}
  #             line: {type: integer}
  #             product_id: {type: long}
  #             qty: {type: integer}
  #             product:
  #               properties:
  #                 id: {type: long}
  #                 title: {type: text, fields: {keyword: {type: keyword, ignore_above: 256}}}
  # orders_nested-cache:
  #   view: orders_nested
  #   redis:
  #     url: ${CACHE_URL:-redis://127.0.0.1:56379/0}
  #     key: 'shop:orders_nested:{id}'
"""
SHOP_DOCUMENTS = [
    {
        "id": 10,
        "customer_id": 1,
        "status": "open",
        "customer": {"id": 1, "name": "Ann"},
        "lines": [
            {"order_id": 10, "line": 1, "product_id": 7, "qty": 4, "product": {"id": 7, "title": "Lamp"}},
            {"order_id": 10, "line": 2, "product_id": 8, "qty": 1, "product": {"id": 8, "title": "Desk"}},
        ],
    },
    {"id": 11, "customer_id": None, "status": "draft", "customer": None, "lines": []},
]
NASTY = """
create schema "My Schema";
create schema sales;
create table "My Schema"."Customers" ("Tenant" int, "Customer Id" int, "a.b" text, "apiToken" text, shape box,
    primary key ("Tenant", "Customer Id"));
create table sales.countries (code char(2) primary key, name text);
create table sales.addresses (id int primary key, street text, country char(2) references sales.countries);
create table "My Schema"."Orders" ("Tenant" int, "${HOME} no" int, "Customer Id" int, customers text,
    billing_address_id int references sales.addresses, "shippingAddressId" int references sales.addresses,
    primary key ("Tenant", "${HOME} no"), foreign key ("Tenant", "Customer Id") references "My Schema"."Customers");
create table products (id uuid primary key, sku text unique, replaces uuid references products, main_image int);
create table images (id int primary key, product_id uuid references products);
alter table products add foreign key (main_image) references images;
create table sales."Order Lines" (tenant int, order_no int, line int, sku text references products (sku),
    primary key (tenant, order_no, line),
    foreign key (order_no, tenant) references "My Schema"."Orders" ("${HOME} no", "Tenant"));
create table tags (tag text primary key);
create table product_tags (product uuid references products, tag text references tags, primary key (product, tag));
create table employees (id int primary key, boss int references employees, boss_row text, "null" text);
create table friends (a int references employees, b int references employees, primary key (a, b));
create table badges (employee_id int primary key references employees, "No" text);
-- No part of a document:
create table floats (f float8 primary key);
create table of_floats (id int primary key, f float8 references floats);
create table keys (id int primary key, api_key text unique);
create table of_keys (id int primary key, api_key text references keys (api_key));
create table log (what text unique);
create table of_log (id int primary key, what text references log (what));
"""
NASTY_VIEWS = """\
products_nested:
  root: public.products
  one:
    replaces_row: {table: public.products, by: replaces}
    main_image_row: {table: public.images, by: main_image}
  many:
    images: {table: public.images, by: product_id}
    tags: {table: public.tags, through: public.product_tags, by: product, to: tag}
    order_lines:
      table: 'sales.Order Lines'
      by: sku
      references: sku
      one:
        order: {table: 'My Schema.Orders', by: [tenant, order_no]}
orders_nested:
  root: 'My Schema.Orders'
  one:
    customer:
      table: 'My Schema.Customers'
      by: [Tenant, 'Customer Id']
      columns: {Tenant: Tenant, 'Customer Id': 'Customer Id', a_b: a.b}
    billing_address:
      table: sales.addresses
      by: billing_address_id
      one:
        country_row: {table: sales.countries, by: country}
    shipping_address:
      table: sales.addresses
      by: shippingAddressId
      one:
        country_row: {table: sales.countries, by: country}
  many:
    order_lines:
      table: 'sales.Order Lines'
      by: [tenant, order_no]
      one:
        sku_row: {table: public.products, by: sku, references: sku}
images_nested:
  root: public.images
  one:
    product: {table: public.products, by: product_id}
  many:
    products: {table: public.products, by: main_image}
addresses_nested:
  root: sales.addresses
  one:
    country_row: {table: sales.countries, by: country}
  many:
    orders_by_billing_address:
      table: 'My Schema.Orders'
      by: billing_address_id
      one:
        customer:
          table: 'My Schema.Customers'
          by: [Tenant, 'Customer Id']
          columns: {Tenant: Tenant, 'Customer Id': 'Customer Id', a_b: a.b}
    orders_by_shipping_address:
      table: 'My Schema.Orders'
      by: shippingAddressId
      one:
        customer:
          table: 'My Schema.Customers'
          by: [Tenant, 'Customer Id']
          columns: {Tenant: Tenant, 'Customer Id': 'Customer Id', a_b: a.b}
employees_nested:
  root: public.employees
  one:
    boss_2: {table: public.employees, by: boss}
    badge: {table: public.badges, by: id}
  many:
    friends: {table: public.employees, through: public.friends, by: a, to: b}
    friends_by_b: {table: public.employees, through: public.friends, by: b, to: a}
"""


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    with fresh_database(postgres) as dsn:
        yield dsn


def written(source: Postgres) -> str:
    return write_sync("shop", propose(source, "shop"))


def facts(source: Postgres, config: Config) -> CapturedTables:
    """What `check` knows of the tables."""
    tables = {name: table for name, table in captured_tables(source, config).items() if table is not None}
    return view_source(config, source, tables)


def nested(text: str) -> str:
    """The proposed views, without the `#`."""
    views = text[text.index("\nviews:") : text.index("followers:\n")]
    return "".join(re.findall("^  # ((?!# ).*\n)", views, re.MULTILINE))


def test_a_shop_gets_the_nested_order(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection, Postgres(database) as source:
        connection.execute(SHOP.encode())
        text = written(source)
        assert text[text.index("  # # Nested") : text.index("followers:")] == EXPLAINED + SHOP_VIEWS
        assert text[text.index("  # # Followers") :] == SHOP_FOLLOWERS
        config = loaded(tmp_path, uncommented(text))
        assert {"orders_nested-search", "orders_nested-cache"} < config.followers.keys()
        (tree,) = (tree for tree in trees(config, facts(source, config)) if tree.root.relations)
        documents = connection.execute(f"select document from ({select(tree)}) d order by key".encode()).fetchall()
        assert [document for (document,) in documents] == SHOP_DOCUMENTS


def test_what_is_proposed_for_a_nasty_database_is_accepted(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection, Postgres(database) as source:
        connection.execute(NASTY.encode())
        text = written(source)
        assert nested(text) == NASTY_VIEWS
        loaded(tmp_path, text)
        config = loaded(tmp_path, uncommented(text))
        assert len(config.followers) > len(config.views)
        for tree in trees(config, facts(source, config)):
            connection.execute(select(tree).encode())


def test_the_other_nasty_database_too(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection, Postgres(database) as source:
        nasty.create(connection)
        text = written(source)
        assert nested(text) == (
            "employees_nested:\n  root: public.employees\n  one:\n    boss_row: {table: public.employees, by: boss}\n"
        )
        loaded(tmp_path, uncommented(text))


def test_without_foreign_keys_nothing_is_proposed(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection, Postgres(database) as source:
        connection.execute("create table a (id int primary key); create table b (id int primary key, a_id int)")
        assert "ested" not in written(source)
