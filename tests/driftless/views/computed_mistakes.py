"""Mistakes in what a view computes and in its ways over other tables, as those of views_mistakes.py."""

from __future__ import annotations

from tests.driftless.views.views_mistakes import CUSTOMER, LINES, PRODUCT

IN_THE_FILE = [
    (
        "a key of its own, and shards",
        "    columns: [id, status]",
        "    key: number\n    columns: [id, status]",
        "14: views.order: has `key` and `shards`: a row could come from one shard to another",
    ),
    (
        "a path with a condition",
        "        order_by: [line]\n        columns: [line, qty]\n        one:",
        "        ancestors: line\n        where: qty > 1\n        one:",
        f"23: {LINES}: has `ancestors` and `where`: they do not go together",
    ),
    (
        "a way without its end",
        "        by: customer_id\n        columns: [name, tier]",
        "        through: [{table: public.orders, to: id}]\n        columns: [name, tier]",
        f"18: {CUSTOMER}: has a list of tables in `through`, so `to` or `by` says how the last one leads to `table`",
    ),
    (
        "a step with two ways",
        "        by: customer_id\n        columns: [name, tier]",
        "        through: [{table: public.orders, to: id, by: id}]\n        to: customer_id\n        columns: [name]",
        f"20: {CUSTOMER}.through.0: has `by` or `to`: which of the two rows holds the key of the other",
    ),
    (
        "two values over the rows",
        "        order_by: [line]\n        columns: [line, qty]\n        one:",
        "        count: true\n        sum: qty\n        one:",
        f"23: {LINES}: has `count` and `sum`: give each a name of its own in `many`",
    ),
    (
        "a value over the rows, and the rows",
        "        order_by: [line]",
        "        avg: qty",
        f"23: {LINES}: has `avg` and `columns`: what is one value over all rows shows no row",
    ),
    (
        "what is computed of nothing",
        "    columns: [id, status]",
        "    columns: [id]\n    computed: {a: status ||}",
        "17: views.order.computed.a: column 8: something is missing next to ||",
    ),
    (
        "a constant that is no text to YAML",
        "    columns: [id, status]",
        "    columns: [id]\n    computed: {a: 1}",
        "17: views.order.computed.a: is a number or a truth value to YAML, where text is wanted: write it in quotes",
    ),
    (
        "a name that is computed and shown",
        "    columns: [id, status]",
        "    columns: [id]\n    computed: {id: status}",
        "17: views.order.computed.id: a column of this part is called so too: give each a name of its own",
    ),
]

BY_THE_TABLES = [
    (
        "a constant without its quotes",
        "    columns: [id, status]",
        "    columns: [id]\n    computed: {kind: sale}",
        "17: views.order.computed.kind: column 1: public.orders has no column sale; known: `code`, `customer_email`, "
        "`customer_id`, `id`, `rate`, `status`; the text sale is written `\"'sale'\"`",
    ),
    (
        "an order by a column of the table between",
        "                to: category_id",
        "                to: category_id\n                order_by: [product_id desc]",
        f"39: {PRODUCT}.many.categories.order_by.0: product_id is a column of public.product_categories: "
        "write `between.product_id desc`",
    ),
    (
        "a key that is not unique",
        "    shards: 2",
        "    key: status",
        "39: views.order.key: (status) is no unique key of public.orders, which has (id)",
    ),
    (
        "an array that is none",
        "    many:\n      lines:",
        "    many:\n      others: {table: public.customers, ids: customer_id}\n      lines:",
        "23: views.order.many.others.ids: customer_id is int4, and the list is that of an array's elements: write `by`",
    ),
    (
        "a parent of another kind",
        "    many:\n      lines:",
        "    many:\n      path: {table: public.customers, by: customer_id, ancestors: name}\n      lines:",
        "23: views.order.many.path.ancestors: name is text and id is int8: only columns of one kind can be compared",
    ),
    (
        "a way to one that may lead to several",
        "        by: customer_id\n        columns: [name, tier]",
        "        through: [{table: public.order_lines, by: order_id}]\n        to: product_id\n        columns: [name]",
        f"20: {CUSTOMER}.through.0.by: (order_id) is no unique key of public.order_lines, so there can be several: "
        "use `many` with `first`",
    ),
    (
        "a step that does not fit",
        "                through: public.product_categories\n                by: product_id",
        "                through: [{table: public.product_categories, by: produkt_id}]",
        f"36: {PRODUCT}.many.categories.through.0.by: public.product_categories has no column produkt_id; "
        "did you mean `product_id`?",
    ),
    (
        "a column of the table between that it lacks",
        "                to: category_id",
        "                to: category_id\n                between: [added]",
        f"39: {PRODUCT}.many.categories.between.0: public.product_categories has no column added; "
        "known: `category_id`, `product_id`",
    ),
    (
        "what is computed of another column",
        "    columns: [id, status]",
        "    columns: [id]\n    computed: {a: lower(stats)}",
        "17: views.order.computed.a: column 7: public.orders has no column stats; did you mean `status`?",
    ),
    (
        "a sum and a greatest that the log cannot tell",
        "    many:\n      lines:",
        "    many:\n      n: {table: public.order_lines, by: order_id, sum: mood}\n"
        "      m: {table: public.order_lines, by: order_id, max: mood}\n      lines:",
        "23: views.order.many.n.sum: this is enum: exact sums are those of whole numbers and numeric\n"
        "24: views.order.many.m.max: this is enum, which has no order in the log",
    ),
    (
        "a prefix that is not enough",
        "        columns: [name, tier]",
        "        columns: {status: name}\n        prefix: ''",
        f"22: {CUSTOMER}.prefix: the row above has a status too: give another prefix",
    ),
]
