"""Mistakes in a view of several tables, and what is said of each: by the file alone, and by the tables."""

from __future__ import annotations

from driftless.table import Column, Table

RIGHT = """\
name: shop
source:
  dsn: postgresql://app@db/shop
  tables:
    public.customers: {exclude: [password_hash]}
    public.products: {}
    public.orders: {}
    public.order_lines: {}
    public.categories: {}
    public.product_categories: {}
kafka: {bootstrap: 127.0.0.1:59092}
connect: {url: http://127.0.0.1:58083}
views:
  order:
    root: public.orders
    columns: [id, status]
    one:
      customer:
        table: public.customers
        by: customer_id
        columns: [name, tier]
    many:
      lines:
        table: public.order_lines
        by: order_id
        order_by: [line]
        columns: [line, qty]
        one:
          product:
            table: public.products
            by: product_id
            columns: [title]
            many:
              categories:
                table: public.categories
                through: public.product_categories
                by: product_id
                to: category_id
    shards: 2
followers:
  order-search:
    view: order
    opensearch: {url: "http://127.0.0.1:59200", index: orders}
"""


def _table(name: str, columns: str, key: str = "id") -> Table:
    made = ((*column.split(":"), "b")[:3] for column in columns.split())
    return Table("public", name, tuple(Column(name, type_, kind) for name, type_, kind in made), tuple(key.split()))


TABLES = {
    table.full_name: table
    for table in (
        _table("customers", "id:int8 name:text tier:int4 email:text code:citext rate:float8 region:uuid"),
        _table("products", "id:int8 title:text sku:text shape:box"),
        _table("orders", "id:int8 status:text customer_id:int4 customer_email:text rate:float8 code:citext"),
        _table("order_lines", "order_id:int8 line:int4 qty:int4 product_id:int8 mood:mood:e", "order_id line"),
        _table("categories", "id:int8 title:text"),
        _table("product_categories", "product_id:int8 category_id:int8", "product_id category_id"),
    )
}
UNIQUE = {name: [table.key] for name, table in TABLES.items()} | {"public.customers": [("id",), ("email",), ("code",)]}

ORDER = "views.order"
CUSTOMER = "views.order.one.customer"
LINES = "views.order.many.lines"
PRODUCT = "views.order.many.lines.one.product"
CATEGORIES = "views.order.many.lines.one.product.many.categories"
A_RELATION = "is missing, with `table` and `by` below it"

# (what is wrong, what stands in the file, what is written there instead, what is said)
IN_THE_FILE = [
    (
        "a typo in a relation",
        "        by: customer_id",
        "        bye: customer_id",
        f"20: {CUSTOMER}.bye: unknown field; did you mean `by`?",
    ),
    (
        "a typo deep below",
        "                through: public",
        "                trough: public",
        f"36: {CATEGORIES}.trough: unknown field; did you mean `through`?",
    ),
    (
        "no table",
        "        table: public.customers\n",
        "",
        f"18: {CUSTOMER}.table: is missing, such as `table: public.customers`",
    ),
    ("no by", "            by: product_id\n", "", f"29: {PRODUCT}: `by` is missing, such as `by: customer_id`"),
    (
        "a table that is not captured",
        "            table: public.products",
        "            table: public.product",
        f"30: {PRODUCT}.table: public.product is not under source.tables; did you mean `public.products`?",
    ),
    (
        "a table between that is not captured",
        "through: public.product_categories",
        "through: public.product_category",
        f"36: {CATEGORIES}.through: public.product_category is not under source.tables; "
        "did you mean `public.product_categories`?",
    ),
    (
        "a table without its schema",
        "        table: public.customers",
        "        table: custmers",
        f"19: {CUSTOMER}.table: public.custmers is not under source.tables; did you mean `public.customers`?",
    ),
    (
        "an excluded column",
        "[name, tier]",
        "[name, password_hash]",
        f"21: {CUSTOMER}.columns.1: `password_hash` is excluded from public.customers in line 5, so no document can "
        "show it",
    ),
    (
        "a relation called as a column",
        "    columns: [id, status]",
        "    columns: {id: id, customer: status}",
        f"18: {CUSTOMER}: a column of this part is called so too: give each a name of its own",
    ),
    (
        "one and many of one name",
        "      lines:",
        "      customer:",
        "23: views.order.many.customer: a relation in `one` of this part is called so too: give each a name of its own",
    ),
    ("a column twice", "[line, qty]", "[line, line]", f"27: {LINES}.columns: lists `line` twice"),
    ("the order twice", "order_by: [line]", "order_by: [line, line desc]", f"26: {LINES}.order_by: lists `line` twice"),
    (
        "an order without brackets",
        "order_by: [line]",
        "order_by: line",
        f"26: {LINES}.order_by: is text, where a list is wanted, such as `[line]`",
    ),
    (
        "an order for one",
        "        columns: [name, tier]",
        "        order_by: [name]",
        f"21: {CUSTOMER}.order_by: stands in the wrong place: it is a field of a relation in `many`",
    ),
    (
        "through without to",
        "                to: category_id\n",
        "",
        f"34: {CATEGORIES}: has `through` without `to`: many to many takes both",
    ),
    (
        "a key that nothing holds",
        "order_by: [line]",
        "to_references: line",
        f"23: {LINES}: has `to_references` without `to`: it says which key `to` holds",
    ),
    (
        "a key that is no column",
        "by: customer_id",
        "by: 7",
        f"20: {CUSTOMER}.by: write a column, or a list of several: `customer_id`, `[tenant, customer_id]`",
    ),
    (
        "a condition on a relation that is none",
        "        columns: [name, tier]",
        "        where: initcap(name) = 'a'",
        f"21: {CUSTOMER}.where: column 1: there is no function initcap here, but "
        "lower, upper, length, coalesce, nullif, replace",
    ),
    (
        "a condition deep below that is none",
        "            columns: [title]",
        "            where: title =",
        f"32: {PRODUCT}.where: column 7: something is missing next to =",
    ),
    (
        "a value with columns",
        "        columns: [name, tier]",
        "        columns: [name, tier]\n        value: name",
        f"18: {CUSTOMER}: has `value` and `columns`: a value has no members",
    ),
    (
        "a value with relations",
        "            columns: [title]",
        "            value: title",
        f"29: {PRODUCT}: has `value` and `many`: a value has no members",
    ),
    (
        "the first alone as a list",
        "order_by: [line]",
        "order_by: [line]\n        limit: 2\n        first: true",
        f"23: {LINES}: has `first` and `limit`: the first one alone is no list",
    ),
    (
        "a list of none",
        "order_by: [line]",
        "limit: 0",
        f"26: {LINES}.limit: must be at least 1",
    ),
    (
        "a limit on one",
        "        columns: [name, tier]",
        "        limit: 1",
        f"21: {CUSTOMER}.limit: stands in the wrong place: it is a field of a relation in `many`",
    ),
    (
        "relations as a list",
        "      customer:\n        table: public.customers\n        by: customer_id\n        columns: [name, tier]\n",
        "      - public.customers\n",
        f"17: {ORDER}.one: is a list, where a mapping is wanted, such as "
        "`{customer: {table: public.customers, by: customer_id, columns: [name, tier]}}`",
    ),
    (
        "a relation that is a table's name",
        "      customer:\n        table: public.customers\n        by: customer_id\n        columns: [name, tier]\n",
        "      customer: public.customers\n",
        f"18: {CUSTOMER}: is text, where a mapping is wanted, such as `{{table: public.customers}}`",
    ),
    ("no shards", "shards: 2", "shards: 0", f"39: {ORDER}.shards: must be at least 1"),
]

BY_THE_TABLES = [
    (
        "a value to show",
        "        columns: [name, tier]",
        "        value: nme",
        f"21: {CUSTOMER}.value: public.customers has no column nme; did you mean `name`?",
    ),
    (
        "a column to show",
        "[name, tier]",
        "[nme, tier]",
        f"21: {CUSTOMER}.columns.0: public.customers has no column nme; did you mean `name`?",
    ),
    (
        "a column to show by another name",
        "columns: [title]",
        "columns: {called: titel}",
        f"32: {PRODUCT}.columns.called: public.products has no column titel; did you mean `title`?",
    ),
    (
        "a column that is refused",
        "columns: [title]",
        "columns: [shape]",
        f"32: {PRODUCT}.columns.0: shape has the type box, which the log carries as a shape of its own, not as "
        "Postgres writes it",
    ),
    (
        "a key column that is excluded",
        "by: customer_id",
        "by: password_hash",
        f"20: {CUSTOMER}.by: public.orders has no column password_hash; known: `code`, `customer_email`, "
        "`customer_id`, `id`, `rate`, `status`",
    ),
    (
        "by in the wrong table",
        "        by: order_id",
        "        by: ordr_id",
        f"25: {LINES}.by: public.order_lines has no column ordr_id; did you mean `order_id`?",
    ),
    (
        "to in the wrong table",
        "to: category_id",
        "to: categry_id",
        f"38: {CATEGORIES}.to: public.product_categories has no column categry_id; did you mean `category_id`?",
    ),
    (
        "no unique key for to",
        "to: category_id",
        "to: category_id\n                to_references: title",
        f"39: {CATEGORIES}.to_references: (title) is no unique key of public.categories, which has (id)",
    ),
    (
        "too few columns",
        "            table: public.products\n            by: product_id\n            columns: [title]\n"
        "            many:\n"
        "              categories:\n                table: public.categories\n"
        "                through: public.product_categories\n                by: product_id\n"
        "                to: category_id\n",
        "            table: public.order_lines\n            by: product_id\n            columns: [qty]\n",
        f"31: {PRODUCT}.by: the key of public.order_lines is (order_id, line): this names 1 column, not 2",
    ),
    (
        "too many columns",
        "by: customer_id",
        "by: [customer_id, status]",
        f"20: {CUSTOMER}.by: the key of public.customers is (id): this names 2 columns, not 1",
    ),
    (
        "types that cannot be compared",
        "by: customer_id",
        "by: customer_email",
        f"20: {CUSTOMER}.by: customer_email is text and id is int8: only columns of one kind can be compared",
    ),
    (
        "a type that has no one text",
        "by: customer_id",
        "by: code\n        references: code",
        f"20: {CUSTOMER}.by: code is citext: values of that type can be equal though their texts differ",
    ),
    (
        "a float for a key",
        "by: customer_id",
        "by: rate",
        f"20: {CUSTOMER}.by: rate is float8: values of that type can be equal though their texts differ",
    ),
    (
        "a key that is not unique",
        "by: customer_id",
        "by: status\n        references: name",
        f"21: {CUSTOMER}.references: (name) is no unique key of public.customers, which has (id), (email), (code)",
    ),
    (
        "a unique key that is not there",
        "by: customer_id",
        "by: customer_email\n        references: emai",
        f"21: {CUSTOMER}.references: public.customers has no column emai; did you mean `email`?",
    ),
    (
        "an order that the log lacks",
        "order_by: [line]",
        "order_by: [mood desc]",
        f"26: {LINES}.order_by.0: mood is mood, whose order in Postgres cannot be told from the log",
    ),
    (
        "an order by what is not there",
        "order_by: [line]",
        "order_by: [lin desc]",
        f"26: {LINES}.order_by.0: public.order_lines has no column lin; did you mean `line`?",
    ),
    (
        "a relation called as one of all columns",
        "    columns: [id, status]\n    one:\n      customer:",
        "    one:\n      status:",
        "17: views.order.one.status: public.orders has a column of this name: list `columns`, or call one otherwise",
    ),
]
