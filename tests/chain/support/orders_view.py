"""A view of orders with nearly everything that a view may have, and what Postgres says its documents are."""

from __future__ import annotations

from tests.support.compare import View

ORDERS, PRODUCTS, LINES = 200, 20, 3
TABLES = """
create table customers (id int primary key, name text, tier text, notes text);
create table products (id int primary key, title text, price numeric(10, 2), stock int default 0);
create table orders (id int primary key, customer_id int, status text, total numeric(12, 2));
create table order_lines (order_id int, line int, product_id int, amount numeric(10, 2), primary key (order_id, line));
"""
DECLARED = {
    "root": "public.orders",
    "columns": {"id": "id", "state": "status", "total": "total"},
    "computed": {"label": "upper(status) || ' ' || id"},
    "one": {
        "customer": {"table": "public.customers", "by": "customer_id", "columns": ["name", "tier"]},
        "buyer": {"table": "public.customers", "by": "customer_id", "columns": ["name"], "prefix": "buyer_"},
    },
    "many": {
        "lines": {
            "table": "public.order_lines",
            "by": "order_id",
            "order_by": ["line"],
            "columns": ["line", "amount"],
            "one": {"product": {"table": "public.products", "by": "product_id", "columns": ["title", "price"]}},
        },
        "large": {"table": "public.order_lines", "by": "order_id", "where": "amount > 5", "value": "line", "limit": 2},
        "last": {
            "table": "public.order_lines",
            "by": "order_id",
            "order_by": ["line desc"],
            "first": True,
            "columns": ["line"],
        },
        "sum": {"table": "public.order_lines", "by": "order_id", "sum": "amount"},
        "heavy": {"table": "public.order_lines", "by": "order_id", "where": "amount * 2 > 10", "count": True},
        "average": {"table": "public.order_lines", "by": "order_id", "avg": "amount / 3"},
        "most": {"table": "public.order_lines", "by": "order_id", "max": "amount"},
    },
}
PRODUCT = "(select jsonb_build_object('title', p.title, 'price', p.price) from products p where p.id = l.product_id)"
LINE = f"jsonb_build_object('line', l.line, 'amount', l.amount, 'product', {PRODUCT})"
SHOWN = ["id", "state", "total", "customer", "lines", "large", "last"]
SHOWN += ["label", "buyer_name", "sum", "heavy", "average", "most"]
ORDER = View(
    "order",
    "public.orders",
    fields={name: name for name in SHOWN},
    instead={
        "state": "t.status",
        "customer": "(select jsonb_build_object('name', c.name, 'tier', c.tier) from customers c "
        "where c.id = t.customer_id)",
        "lines": f"(select coalesce(jsonb_agg({LINE} order by l.line), '[]') from order_lines l "
        "where l.order_id = t.id)",
        "large": "(select coalesce(jsonb_agg(l.line order by l.line), '[]') from (select line from order_lines "
        "where order_id = t.id and amount > 5 order by line limit 2) l)",
        "last": "(select jsonb_build_object('line', max(l.line)) from order_lines l where l.order_id = t.id "
        "having count(*) > 0)",
        "label": "upper(t.status) || ' ' || t.id",
        "buyer_name": "(select c.name from customers c where c.id = t.customer_id)",
        "sum": "(select sum(l.amount) from order_lines l where l.order_id = t.id)",
        "heavy": "(select count(*) from order_lines l where l.order_id = t.id and l.amount > 5)",
        "average": "(select avg(l.amount / 3) from order_lines l where l.order_id = t.id)",
        "most": "(select max(l.amount) from order_lines l where l.order_id = t.id)",
    },
)
