"""A view as one SELECT over Postgres: what every document must be, by `to_jsonb`.

Each relation is a subquery of all its rows, grouped by the columns that lead to the row above, so that Postgres can
hash where a foreign key has no index. `SETTINGS` must hold for the transaction.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count

from driftless.table import Column, Table, quoted, quoted_column
from driftless.types import rule_of, sql_of
from driftless.views.compare import order
from driftless.views.tree import Join, Node, Sort, View
from driftless.where.clause import compute, parse
from driftless.where.postgres import term_sql, text_literal, where_sql

SETTINGS = (
    "set local timezone = 'UTC'; set local datestyle = 'ISO'; set local intervalstyle = 'postgres'; "
    "set local bytea_output = 'hex'; set local extra_float_digits = 1"
)
"""So that what a server, a database or a role is set to does not show in documents."""
_ARGUMENTS = 50
"""Pairs that one call of a function takes: Postgres allows 100 arguments."""
_JSON_FORMS = {"numeric", "whole numeric", "float", "number", "json", "plain json", "composite"}
"""Forms of driftless/types.py that are JSON text in the log already: so they are in a key of one column."""


DOUBT = f"driftless {secrets.token_hex(8)}"
"""Of another process no row can know it: the member by which an object stands for a value, in place of that."""
_DOUBTFUL = r"\\u(0000|[dD][89a-fA-F])|[eE][+-]?[0-9]{3}|[0-9]{255}"
"""What `json` holds, and `jsonb` may not: a character 0, half of a pair, a number beyond all bounds."""


STREAM_ROWS = "/*the documents of the stream*/"
"""Stands in a statement for a text of JSON, `[{"key": ..., "document": ...}, ...]`, where a stream is the root."""
_KEY, _DOCUMENT = '"its key"', '"its document"'


def select(view: View, *, careful: bool = False) -> str:
    """`key` (the text of the root's key), `document` (jsonb); every row of the root that `where` admits. Where a stream
    is the root, its documents are to be put in the place of STREAM_ROWS.

    A value of type `json` that `jsonb` cannot hold ends the statement. `careful`: what might be such a one is given as
    an object instead, with the value's text under the name DOUBT, its `type`, and the `table`, `column` and `key` of
    its row.
    """
    compiled = Compiled(view, careful=careful)
    table = view.root.table
    source = _stream_rows(view.tables[table]) if view.stream else quoted(table)
    rows = f"{source} r"
    if conditions := compiled.conditions():
        rows = f"(SELECT * FROM {source} r WHERE {conditions}) r"
    rows, document = compiled.rows(view.root, rows, "r")
    return f"SELECT {compiled.key('r')} AS key, {document} AS document FROM {rows}"


def _stream_rows(table: Table) -> str:
    """The documents of a stream as rows: of each its key, itself, and its members as values of the columns' types."""
    types = ", ".join(f"{quoted_column(column.name)} {column.type}" for column in table.columns)
    given = f"jsonb_to_recordset({STREAM_ROWS}::jsonb) AS given(key text, document jsonb)"
    columns = f"given.key AS {_KEY}, given.document AS {_DOCUMENT}, member.*"
    return f"(SELECT {columns} FROM {given}, LATERAL jsonb_to_record(given.document) AS member({types}))"


def with_keys(view: View, keys: Iterable[str]) -> str:
    """The condition that a row of the root, under its table's own name, has one of these keys, as `select` has them."""
    key = Compiled(view).key(quoted(view.root.table))
    return f"({key}) in ({', '.join(map(text_literal, keys))})"


class Compiled:
    """The parts of a statement. How a relation is joined to the row above is `joined`, which may be done otherwise."""

    def __init__(self, view: View, *, careful: bool = False) -> None:
        self.view = view
        self._careful = careful
        self._numbers = count(1)

    def conditions(self) -> str:
        """Which rows of the root have a document; empty where all have."""
        table = self.view.tables[self.view.root.table]
        found = [] if self.view.where is None else [where_sql(parse(self.view.where), table)]
        return " AND ".join([*found, *(f"{quoted_column(name)} IS NOT NULL" for name in self.view.own_key)])

    def key(self, alias: str) -> str:
        return self._key(self.view.root.table, alias, self.view.own_key)

    def _key(self, name: str, alias: str, own: tuple[str, ...] = ()) -> str:
        """The text of a row's key, of any table, or of a stream's document. `own`: another key than the primary one."""
        if not self.view.tables[name].schema:
            return f"{alias}.{_KEY}"
        columns = [self.view.column(name, key) for key in own or self.view.tables[name].key]
        values = [sql_of(column, f"{alias}.{quoted_column(column.name)}") for column in columns]
        if len(values) == 1:
            # As jobs/decode/values.py has it, where the word NaN of a number keeps its quotes.
            rule = rule_of(columns[0])
            as_json = rule is not None and rule.form in _JSON_FORMS
            return f"{values[0]}::text" if as_json else f"({values[0]} #>> '{{}}')"
        return "'[' || " + " || ',' || ".join(f"{value}::text" for value in values) + " || ']'"

    def rows(self, node: Node, source: str, alias: str, prefix: str = "") -> tuple[str, str]:
        """What to select from so that there is one row for each row of the node's table, and its document.

        `prefix`: what stands before the names of its members.
        """
        members = [
            (f"{prefix}{name}", self._value(node.table, self.view.column(node.table, column), alias))
            for name, column in node.fields.items()
        ]
        members += [
            (f"{prefix}{name}", f"to_jsonb({self.computed(node, text, alias)})") for name, text in node.computed.items()
        ]
        flat = list[str]()
        for below in node.relations:
            number = next(self._numbers)
            names = "" if below.prefix is None else f"{prefix}{below.prefix}"
            source += self.joined(below, node, alias, number, names)
            if below.prefix is None:
                members.append((f"{prefix}{below.name}", f"coalesce(d{number}.d, '{below.missing}')"))
            else:
                nothing = _object(
                    [(f"{names}{name}", f"'{missing}'::jsonb") for name, missing in below.members.items()]
                )
                flat.append(f"coalesce(d{number}.d, {nothing})")
        return source, members[0][1] if node.value else " || ".join([_object(members), *flat])

    def computed(self, node: Node, text: str, alias: str) -> str:
        """What is computed of a row of the node's table."""
        return term_sql(compute(text).typed(self.view.tables[node.table]), alias)

    def _value(self, table: str, column: Column, alias: str) -> str:
        value = f"{alias}.{quoted_column(column.name)}"
        if not self.view.tables[table].schema:
            return f"({alias}.{_DOCUMENT} -> {text_literal(column.name)})"
        shown = sql_of(column, value)
        if not self._careful or not _holds_json(column):
            return shown
        told = {
            text_literal(DOUBT): f"{value}::text",
            "'type'": f"pg_typeof({value})::text",
            "'table'": text_literal(table),
            "'column'": text_literal(column.name),
            "'key'": self._key(table, alias),
        }
        instead = f"jsonb_build_object({', '.join(f'{name}, {said}' for name, said in told.items())})"
        return f"CASE WHEN {value}::text ~ {text_literal(_DOUBTFUL)} THEN {instead} ELSE {shown} END"

    def joined(self, node: Node, parent: Node, above: str, number: int, prefix: str) -> str:
        """The join that gives a relation's part of the document as `d` of `d<number>`. `above`: the row above it.

        `prefix`: of the names in it.
        """
        alias, inner = f"t{number}", f"d{number}"
        source, document = self.rows(node, self.shown(node, alias), alias, prefix)
        if node.elements or node.parent:
            return self._listed(node, parent, above, number, source, document)
        source, holder, first = self.linked(node, parent, source, number)
        last = last_between(node, number)
        document = self.with_between(node, document, lambda column: f"{last}.{quoted_column(column)}", prefix)
        keys = list(self.operands(first, holder, left=False))
        named = _named(keys, "k")
        on = _equal(self.operands(first, above, left=True), inner, "k")
        if node.kind == "one":
            subquery = f"SELECT {named}, {document} AS d FROM {source}"
        elif node.aggregates:
            grouped = ", ".join(map(str, range(1, len(keys) + 1)))
            subquery = f"SELECT {named}, {self.aggregate(node, alias)} AS d FROM {source} GROUP BY {grouped}"
        elif node.most is not None:
            order = self.ordered(node, alias, last)
            over = f"row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {order})"
            named_in = ", ".join(f"q.k{i}" for i in range(len(keys)))
            shown = "q.d" if node.kind == "first" else "jsonb_agg(q.d ORDER BY q.n)"
            grouped = "" if node.kind == "first" else f" GROUP BY {named_in}"
            numbered = f"SELECT {named}, {document} AS d, {over} AS n FROM {source}"
            subquery = f"SELECT {named_in}, {shown} AS d FROM ({numbered}) q WHERE q.n <= {node.most}{grouped}"
        else:
            grouped = ", ".join(map(str, range(1, len(keys) + 1)))
            listed = f"jsonb_agg({document} ORDER BY {self.ordered(node, alias, last)})"
            subquery = f"SELECT {named}, {listed} AS d FROM {source} GROUP BY {grouped}"
        return f" LEFT JOIN ({subquery}) {inner} ON {on}"

    def _listed(self, node: Node, parent: Node, above: str, number: int, source: str, document: str) -> str:
        """The same of a list that has an order of its own: that of an array's elements, or of a path."""
        alias, inner, (join,) = f"t{number}", f"d{number}", node.joins(parent)
        if node.elements:
            table, keys = parent.table, self.view.tables[parent.table].key
            array = f"unnest(a.{quoted_column(node.above[0])}) WITH ORDINALITY AS e (k, n)"
            named = _named((f"a.{quoted_column(key)}" for key in keys), "k")
            places = f"SELECT {named}, e.k, e.n FROM {quoted(table)} a CROSS JOIN LATERAL {array}"
            matched = f"{next(self.operands(join, alias, left=False))} = e{number}.k{collation(self.element(join))}"
            on = _equal(self.compared(table, keys, above), inner, "k")
        else:
            places, matched = self.path(node, "", alias, f"e{number}")
            keys = node.own
            on = _equal(self.operands(join, above, left=True), inner, "k")
        grouped = ", ".join(f"e{number}.k{i}" for i in range(len(keys)))
        most = "" if node.limit is None else f" WHERE n <= {node.limit}"
        over = f"row_number() OVER (PARTITION BY {grouped} ORDER BY e{number}.n)"
        rows = f"SELECT {grouped}, {document} AS d, {over} AS n FROM {source} JOIN ({places}) e{number} ON {matched}"
        names = ", ".join(f"k{i}" for i in range(len(keys)))
        subquery = f"SELECT {names}, jsonb_agg(d ORDER BY n) AS d FROM ({rows}) q{most} GROUP BY {names}"
        return f" LEFT JOIN ({subquery}) {inner} ON {on}"

    def element(self, join: Join) -> Column:
        """An element of the array that the row above has, as a column."""
        return replace(self.view.column(join.left, join.left_columns[0]), array=False)

    def path(self, node: Node, start: str, alias: str, places: str) -> tuple[str, str]:
        """Of each row of a table (k0 and so on) the keys of all above it (c0 and so on), with n, which is least for the
        topmost; and the condition that a row is one of them. `start`: which rows. A circle ends where it begins.
        """
        table, numbers = quoted(node.table), range(len(node.own))
        start_own, own = (
            list(self.compared(node.table, node.own, "s")),
            ", ".join(self.compared(node.table, node.own, "o")),
        )
        start_parent, parent = (list(self.compared(node.table, node.parent, of)) for of in "so")
        up, ks = (", ".join(f"up.{name}{i}" for i in numbers) for name in "pk")
        first = (
            f"SELECT {_named(start_own, 'k')}, {_named(start_own, 'c')}, {_named(start_parent, 'p')}, 0 AS n, "
            f"ARRAY[ROW({', '.join(start_own)})::text] AS seen FROM {table} s{start}"
        )
        more = (
            f"SELECT {ks}, {own}, {', '.join(parent)}, up.n - 1, up.seen || ROW({own})::text "
            f"FROM up JOIN {table} o ON ({own}) = ({up}) WHERE NOT ROW({own})::text = ANY (up.seen)"
        )
        matched = _equal(self.compared(node.table, node.own, alias), places, "c")
        return f"WITH RECURSIVE up AS ({first} UNION ALL {more}) SELECT * FROM up", matched

    def aggregate(self, node: Node, alias: str) -> str:
        """The value over all rows of a node that is one."""
        if node.kind == "count":
            return "to_jsonb(count(*))"
        kind, value = compute(node.of).typed(self.view.tables[node.table]).kind, self.computed(node, node.of, alias)
        if node.kind in ("sum", "avg"):
            return f"to_jsonb({node.kind}({value}))"
        # Of equal ones that are spelled otherwise (1.0, 1.00) always the same; for some types Postgres has no min.
        by_bytes = ' COLLATE "C"' if kind == "text" else ""
        last = f"scale({value}) DESC" if kind in ("int8", "numeric") else f'({value})::text COLLATE "C"'
        order = f"{value}{by_bytes} {'ASC' if node.kind == 'min' else 'DESC'}, {last}"
        return f"(array_agg(to_jsonb({value}) ORDER BY {order}) FILTER (WHERE {value} IS NOT NULL))[1]"

    def columns(self, node: Node, alias: str) -> str:
        """Those that the view reads: the role may lack the right to read others."""
        return ", ".join(f"{alias}.{quoted_column(column.name)}" for column in self.view.tables[node.table].columns)

    def shown(self, node: Node, alias: str) -> str:
        """The rows of a relation's table that it may show."""
        if node.where is None:
            return f"{quoted(node.table)} {alias}"
        condition = where_sql(parse(node.where), self.view.tables[node.table])
        return f"(SELECT {self.columns(node, 'w')} FROM {quoted(node.table)} w WHERE {condition}) {alias}"

    def linked(self, node: Node, parent: Node, source: str, number: int) -> tuple[str, str, Join]:
        """The rows with the tables between; what is joined to the row above; and by which join."""
        first, *others = node.joins(parent)
        below = f"t{number}"
        for place, join in reversed([*enumerate(others)]):
            between = f"l{number}_{place}"
            source += f" JOIN {quoted(join.left)} {between} ON {self.matched(join, between, below)}"
            below = between
        return source, below, first

    def matched(self, join: Join, left: str, right: str) -> str:
        """The condition that rows of two tables belong together."""
        pairs = zip(self.operands(join, left, left=True), self.operands(join, right, left=False), strict=True)
        return " AND ".join(f"{a} = {b}" for a, b in pairs)

    def with_between(self, node: Node, document: str, value: Callable[[str], str], prefix: str = "") -> str:
        """The document with what it shows of the last table between. `value`: the place of its column."""
        if not node.between:
            return document
        table = node.links[-1].table
        columns = [(f"{prefix}{name}", self.view.column(table, column)) for name, column in node.between.items()]
        return f"{_object([(name, sql_of(column, value(column.name))) for name, column in columns])} || {document}"

    def ordered(self, node: Node, alias: str, between: str) -> str:
        return self.sorted(node, lambda sort: f"{between if sort.between else alias}.{quoted_column(sort.column)}")

    def operands(self, join: Join, alias: str, *, left: bool) -> Iterator[str]:
        """The columns of one side of a join, as they are compared."""
        yield from self.compared(*((join.left, join.left_columns) if left else (join.right, join.right_columns)), alias)

    def compared(self, table: str, columns: Iterable[str], alias: str) -> Iterator[str]:
        """Columns of a table as they are compared."""
        yield from (f"{alias}.{quoted_column(name)}{collation(self.view.column(table, name))}" for name in columns)

    def sorted(self, node: Node, place: Callable[[Sort], str]) -> str:
        """What a list is put in order by. `place`: where the column's value is."""
        return ", ".join(self._sorted(self.view.column(node.holder(s), s.column), s, place(s)) for s in node.order)

    @staticmethod
    def _sorted(column: Column, sort: Sort, value: str) -> str:
        if order(column) is None:
            value = f"({sql_of(column, value)} #>> '{{}}') COLLATE \"C\""
        return f"{value}{collation(column)}{' DESC' if sort.descending else ''}"


def last_between(node: Node, number: int) -> str:
    """What the last table between is called, of the relation of that number."""
    return f"l{number}_{len(node.links) - 1}"


def _equal(operands: Iterable[str], alias: str, name: str) -> str:
    """Operands beside the columns `<name>0` and so on of a subquery."""
    return " AND ".join(f"{operand} = {alias}.{name}{i}" for i, operand in enumerate(operands))


def _named(operands: Iterable[str], name: str) -> str:
    return ", ".join(f"{operand} AS {name}{i}" for i, operand in enumerate(operands))


def _holds_json(column: Column) -> bool:
    return column.type == "json" or any(map(_holds_json, column.fields))


def _object(members: list[tuple[str, str]]) -> str:
    parts = [members[i : i + _ARGUMENTS] for i in range(0, len(members), _ARGUMENTS)]
    made = (", ".join(f"{text_literal(name)}, {value}" for name, value in part) for part in parts)
    return " || ".join(f"jsonb_build_object({part})" for part in made) or "'{}'::jsonb"


def collation(column: Column) -> str:
    """Text is compared by its bytes, as in the log, whatever the column's own collation says."""
    return ' COLLATE "C"' if column.type in ("text", "varchar", "bpchar") and not column.array else ""
