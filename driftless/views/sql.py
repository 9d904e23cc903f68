"""A view as one SELECT over Postgres: what every document must be, by `to_jsonb`.

Each relation is a subquery of all its rows, grouped by the columns that lead to the row above, so that Postgres can
hash where a foreign key has no index. The session must be in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from driftless.table import Column, split_name
from driftless.types import rule_of, sql_of
from driftless.views.compare import order
from driftless.views.tree import Join, Node, Sort, View
from driftless.where import POSTGRES, parse, text_literal

_ARGUMENTS = 50
"""Pairs that one call of a function takes: Postgres allows 100 arguments."""
_JSON_FORMS = {"numeric", "whole numeric", "float", "number", "json", "plain json", "composite"}
"""Forms of driftless/types.py that are JSON text in the log already: so they are in a key of one column."""


def select(view: View) -> str:
    """`key` (the text of the root's key), `document` (jsonb); every row of the root that `where` admits."""
    compiled = _Compiled(view)
    table = view.root.table
    rows = f"{_table(table)} r"
    if view.where is not None:
        rows = f"(SELECT * FROM {_table(table)} WHERE {parse(view.where).sql(view.tables[table], POSTGRES)}) r"
    rows, document = compiled.rows(view.root, rows, "r")
    return f"SELECT {compiled.key('r')} AS key, {document} AS document FROM {rows}"


class _Compiled:
    def __init__(self, view: View) -> None:
        self._view = view
        self._numbers = count(1)

    def key(self, alias: str) -> str:
        table = self._view.tables[self._view.root.table]
        values = [sql_of(column, f"{alias}.{_name(column.name)}") for column in map(self._root_column, table.key)]
        if len(values) == 1:
            # As jobs/decode.py has it, where the word NaN of a number keeps its quotes.
            rule = rule_of(self._root_column(table.key[0]))
            as_json = rule is not None and rule.form in _JSON_FORMS
            return f"{values[0]}::text" if as_json else f"({values[0]} #>> '{{}}')"
        return "'[' || " + " || ',' || ".join(f"{value}::text" for value in values) + " || ']'"

    def _root_column(self, name: str) -> Column:
        return self._view.column(self._view.root.table, name)

    def rows(self, node: Node, source: str, alias: str) -> tuple[str, str]:
        """What to select from so that there is one row for each row of the node's table, and its document."""
        members = [
            (name, sql_of(self._view.column(node.table, column), f"{alias}.{_name(column)}"))
            for name, column in node.fields.items()
        ]
        for below in node.relations:
            number = next(self._numbers)
            inner = f"d{number}"
            subquery, first = self._relation(below, node, f"t{number}", f"l{number}")
            pairs = zip(self._operands(first, alias, left=True), count(), strict=False)
            on = " AND ".join(f"{operand} = {inner}.k{i}" for operand, i in pairs)
            source += f" LEFT JOIN ({subquery}) {inner} ON {on}"
            members.append((below.name, f"coalesce({inner}.d, '{'null' if below.kind == 'one' else '[]'}')"))
        return source, _object(members)

    def _relation(self, node: Node, parent: Node, alias: str, link: str) -> tuple[str, Join]:
        source, document = self.rows(node, f"{_table(node.table)} {alias}", alias)
        joins = node.joins(parent)
        holder = alias
        if node.link is not None:
            second = joins[1]
            left, right = self._operands(second, link, left=True), self._operands(second, alias, left=False)
            on = " AND ".join(f"{a} = {b}" for a, b in zip(left, right, strict=True))
            source, holder = f"{source} JOIN {_table(node.link.table)} {link} ON {on}", link
        keys = list(self._operands(joins[0], holder, left=False))
        named = ", ".join(f"{key} AS k{i}" for i, key in enumerate(keys))
        if node.kind == "one":
            return f"SELECT {named}, {document} AS d FROM {source}", joins[0]
        ordered = ", ".join(self._sorted(node, sort, alias) for sort in node.order)
        grouped = ", ".join(map(str, range(1, len(keys) + 1)))
        return f"SELECT {named}, jsonb_agg({document} ORDER BY {ordered}) AS d FROM {source} GROUP BY {grouped}", joins[
            0
        ]

    def _operands(self, join: Join, alias: str, *, left: bool) -> Iterator[str]:
        names = join.left_columns if left else join.right_columns
        table = join.left if left else join.right
        for name in names:
            yield f"{alias}.{_name(name)}{_collation(self._view.column(table, name))}"

    def _sorted(self, node: Node, sort: Sort, alias: str) -> str:
        column = self._view.column(node.table, sort.column)
        value = f"{alias}.{_name(sort.column)}"
        if order(column) is None:
            value = f"({sql_of(column, value)} #>> '{{}}') COLLATE \"C\""
        return f"{value}{_collation(column)}{' DESC' if sort.descending else ''}"


def _object(members: list[tuple[str, str]]) -> str:
    parts = [members[i : i + _ARGUMENTS] for i in range(0, len(members), _ARGUMENTS)]
    made = (", ".join(f"{text_literal(name)}, {value}" for name, value in part) for part in parts)
    return " || ".join(f"jsonb_build_object({part})" for part in made)


def _collation(column: Column) -> str:
    """Text is compared by its bytes, as in the log, whatever the column's own collation says."""
    return ' COLLATE "C"' if column.type in ("text", "varchar", "bpchar") and not column.array else ""


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table(full_name: str) -> str:
    return ".".join(map(_name, split_name(full_name)))
