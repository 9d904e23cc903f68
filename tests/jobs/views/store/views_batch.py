"""A view as one SELECT of Spark over the rows of its tables: a third opinion on what its documents are.

Of the same shape as driftless/views/sql.py: each relation a subquery of all its rows, grouped by what leads to the row
above.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from driftless.table import Column, Table
from driftless.views.compare import last_order
from driftless.views.tree import Join, Node, Sort, View
from driftless.where.clause import parse
from jobs.decode.spark_sql import literal
from jobs.decode.values import column_of, json_sql, key_sql, member, row_schema, value_sql
from jobs.decode.where_sql import LogDialect

SETTINGS = {"spark.sql.analyzer.maxIterations": "1000"}  # for the session that runs `select`


def rows_of(table: Table) -> list[str]:
    """`selectExpr` over the newest records of a table that are no deletes, with Kafka's `key` and `value`."""
    keys = [column_of(table, name) for name in table.key]
    return [
        f"from_json(CAST(key AS STRING), {row_schema(keys)}) AS k",
        f"from_json(CAST(value AS STRING), {row_schema(list(table.columns))}) AS r",
    ]


def select(view: View, rows: dict[str, str]) -> str:
    """`key`, `document`, as the row store gives them. `rows`: table -> the temporary view with its `rows_of`.

    Spark resolves nested subqueries one level after another, in some 20 rounds each: a view of five levels needs more
    than the 100 of `spark.sql.analyzer.maxIterations`; see `SETTINGS`.
    """
    compiled = _Compiled(view, rows)
    table = view.tables[view.root.table]
    source = _admitted(table, rows[view.root.table], view.where)
    source, document = compiled.rows(view.root, f"{source} AS t0", "t0")
    keys = [column_of(table, name) for name in table.key]
    return f"SELECT {key_sql(keys)} AS key, {document} AS document FROM {source}"


def _admitted(table: Table, source: str, where: str | None) -> str:
    return source if where is None else f"(SELECT k, r FROM {source} WHERE {parse(where).sql(table, LogDialect())})"


class _Compiled:
    def __init__(self, view: View, rows: dict[str, str]) -> None:
        self._view = view
        self._rows = rows
        self._numbers = count(1)

    def rows(self, node: Node, source: str, alias: str) -> tuple[str, str]:
        """What to select from so that there is one row for each row of the node's table, and its document's text."""
        pieces: list[str] = []
        for name, column in node.fields.items():
            shown = self._of(node, column)
            value = value_sql(shown, LogDialect(f"{alias}.r").column(shown))
            pieces += [literal(("," if pieces else "{") + member(name)), f"coalesce({json_sql(value)}, 'null')"]
        for below in node.relations:
            number = next(self._numbers)
            inner = f"d{number}"
            subquery, first = self._relation(below, node, f"t{number}", f"l{number}")
            operands = enumerate(self._operands(first, alias, left=True))
            on = " AND ".join(f"{operand} = {inner}.k{i}" for i, operand in operands)
            source += f" LEFT JOIN ({subquery}) {inner} ON {on}"
            pieces += [literal("," + member(below.name)), f"coalesce({inner}.d, '{below.missing}')"]
        if node.value:
            return source, pieces[1]
        return source, f"concat({', '.join(pieces)}, '}}')"

    def _of(self, node: Node, column: str) -> Column:
        return self._view.column(node.table, column)

    def _relation(self, node: Node, parent: Node, alias: str, link: str) -> tuple[str, Join]:
        shown = _admitted(self._view.tables[node.table], self._rows[node.table], node.where)
        source, document = self.rows(node, f"{shown} AS {alias}", alias)
        joins = node.joins(parent)
        holder = alias
        if node.link is not None:
            left = self._operands(joins[1], link, left=True)
            right = self._operands(joins[1], alias, left=False)
            on = " AND ".join(f"{a} = {b}" for a, b in zip(left, right, strict=True))
            source, holder = f"{source} JOIN {self._rows[node.link.table]} AS {link} ON {on}", link
        keys = list(self._operands(joins[0], holder, left=False))
        named = ", ".join(f"{key} AS k{i}" for i, key in enumerate(keys))
        if node.kind == "one":
            return f"SELECT {named}, {document} AS d FROM {source}", joins[0]
        sorts = [f"{self._sorted(node, sort, alias)} AS s{i}" for i, sort in enumerate(node.order)]
        inner = f"SELECT {', '.join([named, *sorts])}, {document} AS d FROM {source}"
        columns = ", ".join(f"'s{i}', s{i}" for i in range(len(sorts)))
        gathered = f"array_sort(collect_list(named_struct({columns}, 'd', d)), (a, b) -> {_before(node.order)})"
        grouped = ", ".join(f"k{i}" for i in range(len(keys)))
        if node.most is not None:
            gathered = f"slice({gathered}, 1, {node.most})"
        joined = f"concat('[', array_join(transform({gathered}, x -> x.d), ','), ']')"
        if node.kind == "first":
            joined = f"{gathered}[0].d"
        return f"SELECT {grouped}, {joined} AS d FROM ({inner}) GROUP BY {grouped}", joins[0]

    def _operands(self, join: Join, alias: str, *, left: bool) -> Iterator[str]:
        names = join.left_columns if left else join.right_columns
        table = join.left if left else join.right
        for name, form in zip(names, self._view.forms(join), strict=True):
            yield _operand(self._view.column(table, name), form, alias)

    def _sorted(self, node: Node, sort: Sort, alias: str) -> str:
        column = self._of(node, sort.column)
        return _operand(column, last_order(column) or "text", alias)


def _operand(column: Column, form: str, alias: str) -> str:
    """A value as something that Spark compares as Postgres compares the value."""
    dialect = LogDialect(f"{alias}.r")
    if form in ("text", "enum"):
        return value_sql(column, dialect.column(column)).sql
    return dialect.operand(column, form)  # type: ignore[arg-type]


def _before(order: tuple[Sort, ...]) -> str:
    """-1, 0 or 1 for two rows `a` and `b`."""
    cases = []
    for i, sort in enumerate(order):
        first, then = (1, -1) if sort.descending else (-1, 1)
        cases += [
            f"WHEN a.s{i} < b.s{i} OR (a.s{i} IS NOT NULL AND b.s{i} IS NULL) THEN {first}",
            f"WHEN a.s{i} > b.s{i} OR (a.s{i} IS NULL AND b.s{i} IS NOT NULL) THEN {then}",
        ]
    return f"CASE {' '.join(cases)} ELSE 0 END"
