"""Orders with their customer, lines and products: the tables, the view of them, and the changes that are measured."""

from __future__ import annotations

import json
import random
from typing import Any

import psycopg

from driftless.table import Column, Table

ORDERS = Table(
    "public",
    "orders",
    (Column("id", "int4"), Column("customer_id", "int4"), Column("status", "text", toastable=True)),
    ("id",),
)
TABLES = ("public.customers", "public.products", "public.orders", "public.order_lines")
SHARE = 20
"""Every so many orders have product 1; and there are so many orders to a customer and to a product."""
SCHEMA = """
create table customers (id int primary key, name text, tier text);
create table products (id int primary key, title text, price numeric(10, 2));
create table orders (id int primary key, customer_id int references customers, status text, total numeric(12, 2));
create table order_lines (order_id int references orders, line int, product_id int references products, qty int,
    unit_price numeric(10, 2), primary key (order_id, line));
create index on orders (customer_id);
create index on order_lines (product_id);
"""
VIEW = {
    "root": "public.orders",
    "columns": ["id", "status", "total"],
    "one": {"customer": {"table": "public.customers", "by": "customer_id", "columns": ["name", "tier"]}},
    "many": {
        "lines": {
            "table": "public.order_lines",
            "by": "order_id",
            "order_by": ["line"],
            "columns": ["line", "qty", "unit_price"],
            "one": {"product": {"table": "public.products", "by": "product_id", "columns": ["title", "price"]}},
        }
    },
}
WITH_VALUES = {
    **VIEW,
    "many": {
        "lines": {**VIEW["many"]["lines"], "where": "qty > 1"},  # type: ignore[index]
        "amount": {"table": "public.order_lines", "by": "order_id", "sum": "qty * unit_price"},
        "pieces": {"table": "public.order_lines", "by": "order_id", "sum": "qty"},
    },
}
"""The same with a relation that shows some of its rows, and two sums."""
_DOCUMENTS = """
select o.id::text, jsonb_build_object('id', o.id, 'status', o.status, 'total', o.total,
    'customer', (select jsonb_build_object('name', c.name, 'tier', c.tier) from customers c where c.id = o.customer_id),
    'lines', coalesce((select jsonb_agg(jsonb_build_object('line', l.line, 'qty', l.qty, 'unit_price', l.unit_price,
        'product', (select jsonb_build_object('title', p.title, 'price', p.price)
        from products p where p.id = l.product_id)) order by l.line) from order_lines l where l.order_id = o.id),
        '[]'))::text
from orders o
"""
"""What each document must be, written by hand."""


def fill(dsn: str, orders: int) -> None:
    """That many orders with three lines each."""
    customers, products = max(1, orders // SHARE), max(2, orders // SHARE)
    with psycopg.connect(dsn) as connection:
        run = connection.execute
        run(SCHEMA)
        run("insert into customers select i, 'customer ' || i, 'gold' from generate_series(1, %s) i", (customers,))
        run("insert into products select i, 'product ' || i, i / 7.0 from generate_series(1, %s) i", (products,))
        run(
            "insert into orders select i, 1 + i %% %s, 'open', i from generate_series(1, %s) i",
            (customers, orders),
        )
        run(
            "insert into order_lines select o, l, "
            "case when l = 1 and o %% %s = 0 then 1 else 2 + (o * 3 + l) %% %s end, "
            "1 + (o + l) %% 5, o / 3.0 from generate_series(1, %s) o, generate_series(1, 3) l",
            (SHARE, products - 1, orders),
        )
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("analyze")


def update_one_by_one(dsn: str, table: str, rows: int, value: int) -> None:
    """So many rows of `orders` or `order_lines`, each of another order, each in a transaction of its own."""
    statement = {
        "orders": "update orders set total = %s where id = %s",
        "order_lines": "update order_lines set qty = %s where (order_id, line) = (%s, 2)",
    }[table]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        for number in range(1, rows + 1):
            connection.execute(statement.encode(), (value, number))


def mixed(connection: psycopg.Connection, rng: random.Random, orders: int) -> None:
    """One transaction of a shop: an order changes, with its lines; now and then a customer or a product."""
    order = rng.randrange(1, orders + 1)
    kind = rng.random()
    with connection.transaction():
        run = connection.execute
        if kind < 0.3:
            run("update orders set status = %s where id = %s", (f"s{rng.randrange(1000)}", order))
        elif kind < 0.6:
            run("update order_lines set qty = qty + 1 where order_id = %s", (order,))
            run("update orders set total = total + 1 where id = %s", (order,))
        elif kind < 0.75:
            run("delete from order_lines where (order_id, line) = (%s, 3)", (order,))
        elif kind < 0.9:
            line = "insert into order_lines values (%s, 3, 2, 1, 1) on conflict (order_id, line) do update set qty = 9"
            run(line, (order,))
        elif kind < 0.97:
            run("update customers set tier = %s where id = %s", (f"t{rng.randrange(99)}", 1 + order // SHARE))
        else:
            run("update products set price = price + 1 where id = %s", (2 + order // SHARE,))


def documents(dsn: str) -> dict[str, Any]:
    """Key -> what the document must be. Numbers as floats, which is what PGSync makes of them."""
    with psycopg.connect(dsn) as connection:
        return {key: json.loads(text, parse_int=float) for key, text in connection.execute(_DOCUMENTS)}


def pgsync_schema(database: str, index: str) -> list[dict[str, Any]]:
    """The same documents as PGSync's configuration."""

    def node(table: str, columns: list[str], label: str, variant: str, keys: tuple[str, str], *below: Any) -> Any:
        child, parent = keys
        relationship = {
            "variant": "object",
            "type": variant,
            "foreign_key": {"child": [child], "parent": [parent]},
        }
        found = {"table": table, "label": label, "columns": columns, "relationship": relationship}
        return {**found, "children": list(below)} if below else found

    product = node("products", ["title", "price"], "product", "one_to_one", ("id", "product_id"))
    lines = ["line", "qty", "unit_price"]
    return [
        {
            "database": database,
            "index": index,
            "nodes": {
                "table": "orders",
                "columns": ["id", "status", "total"],
                "children": [
                    node("customers", ["name", "tier"], "customer", "one_to_one", ("id", "customer_id")),
                    node("order_lines", lines, "lines", "one_to_many", ("order_id", "id"), product),
                ],
            },
        }
    ]
