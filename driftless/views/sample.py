"""One document of a view, cheap on a database of any size: what `plan` shows.

Where driftless/views/sql.py groups whole tables, this takes one row of the root and looks for what belongs to it, row
by row, by the indexes that there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from driftless.table import Column, quoted, quoted_column
from driftless.views.sql import Compiled, collation, last_between
from driftless.views.tree import Join, Node, Sort, View
from driftless.where.clause import compute

CUT = 3
"""Elements of a list that are shown."""
MORE = "..."
"""What stands in a list for all the others."""


def select_one(view: View, *, roots: int | None = 1, cut: int | None = CUT) -> str:
    """As `select` of driftless/views/sql.py, of the first row that comes; of a list one element more than is shown.

    None: all of them.
    """
    compiled = _OfOne(view, None if cut is None else cut + 1)
    rows = f"SELECT {compiled.columns(view.root, 'r')} FROM {quoted(view.root.table)} r"
    if conditions := compiled.conditions():
        rows += f" WHERE {conditions}"
    source, document = compiled.rows(view.root, f"({rows}{_limit(roots)}) r", "r")
    return f"SELECT {compiled.key('r')} AS key, {document} AS document FROM {source}"


class _OfOne(Compiled):
    def __init__(self, view: View, most: int | None) -> None:
        super().__init__(view)
        self._most = most

    def joined(self, node: Node, parent: Node, above: str, number: int, prefix: str) -> str:
        """Rows are cut before anything is looked up for them. They are few, so each looks for its own."""
        alias = f"t{number}"
        if node.elements or node.parent:
            return self._in_place(node, parent, above, number, prefix)
        source, holder, first = self.linked(node, parent, self.shown(node, alias), number)
        found = f"FROM {source} WHERE {self.matched(first, above, holder)}"
        if node.aggregates:
            return f" LEFT JOIN LATERAL (SELECT {self.aggregate(node, alias)} AS d {found}) d{number} ON true"
        last = last_between(node, number)
        columns = [*node.between.values(), *(sort.column for sort in node.order if sort.between)]
        between = "".join(f", {last}.{quoted_column(name)} AS {_of_between(name)}" for name in dict.fromkeys(columns))
        rows = f"SELECT {self.columns(node, alias)}{between} {found}"
        sort = f" ORDER BY {self.ordered(node, alias, last)}" if node.order else ""
        rows += " LIMIT 1" if node.kind == "one" else f"{sort}{self._cut(node)}"
        source, document = self.rows(node, f"({rows}) {alias}", alias, prefix)
        document = self.with_between(node, document, lambda column: f"{alias}.{_of_between(column)}", prefix)
        if node.kind == "many":
            order = self.sorted(node, lambda sort: f"{alias}.{_in_rows(sort)}")
            document = f"jsonb_agg({document}{order and f' ORDER BY {order}'})"
        return f" LEFT JOIN LATERAL (SELECT {document} AS d FROM {source}) d{number} ON true"

    def _cut(self, node: Node) -> str:
        return _limit(min((most for most in (self._most, node.most) if most is not None), default=None))

    def _in_place(self, node: Node, parent: Node, above: str, number: int, prefix: str) -> str:
        """Of a list that has an order of its own."""
        alias, (join,) = f"t{number}", node.joins(parent)
        if node.elements:
            places = f"unnest({above}.{quoted_column(node.above[0])}) WITH ORDINALITY AS e (k, n)"
            (own,) = self.operands(join, alias, left=False)
            matched = f"{own} = e.k{collation(self.element(join))}"
        else:
            path, matched = self.path(node, f" WHERE {self.matched(join, above, 's')}", alias, "e")
            places = f"({path}) e"
        ordered = f"ORDER BY e.n{self._cut(node)}"
        rows = f"SELECT {self.columns(node, alias)}, e.n AS {_of_between('n')} FROM {self.shown(node, alias)}"
        source, document = self.rows(
            node, f"({rows} JOIN LATERAL {places} ON {matched} {ordered}) {alias}", alias, prefix
        )
        made = f"jsonb_agg({document} ORDER BY {alias}.{_of_between('n')})"
        return f" LEFT JOIN LATERAL (SELECT {made} AS d FROM {source}) d{number} ON true"

    def matched(self, join: Join, left: str, right: str) -> str:
        """Text once more under its column's own collation, which is that of its index.

        What has the same bytes is equal under every collation, so it leaves no row out.
        """
        conditions = [super().matched(join, left, right)]
        for a, b in zip(join.left_columns, join.right_columns, strict=True):
            if self.view.column(join.right, b).type in ("text", "varchar"):
                # What comes out of a json has no collation of its own that could contradict the column's.
                conditions.append(f"{right}.{quoted_column(b)} = (to_jsonb({left}.{quoted_column(a)}) #>> '{{}}')")
        return " AND ".join(conditions)


def _in_rows(sort: Sort) -> str:
    return _of_between(sort.column) if sort.between else quoted_column(sort.column)


def _of_between(column: str) -> str:
    """A column of the table between, beside those of the row's own."""
    return quoted_column(f"between {column}")


def _limit(rows: int | None) -> str:
    return "" if rows is None else f" LIMIT {rows}"


def bare(view: View) -> View:
    """The same relations without a column: what there is to a document, without any value of it."""
    return replace(view, root=_bare(view.root))


def _bare(node: Node) -> Node:
    relations = tuple(_bare(below) for below in node.relations if not below.aggregates)
    return replace(node, fields={}, computed={}, between={}, order=(), value=False, prefix=None, relations=relations)


def shape(view: View) -> dict[str, Any]:
    """A document with the type of each column in place of its value, and one element in each list."""
    found: dict[str, Any] = _shape(view, view.root)
    return found


def _shape(view: View, node: Node) -> Any:
    made = {name: _kind(view.column(node.table, column)) for name, column in node.fields.items()}
    if node.value:
        return next(iter(made.values()))
    made |= {name: _kind(view.column(node.links[-1].table, column)) for name, column in node.between.items()}
    for name, text in node.computed.items():
        made[name] = compute(text).typed(view.tables[node.table]).kind
    for below in node.relations:
        if below.aggregates:
            made[below.name] = _aggregate(view, below)
            continue
        part = _shape(view, below)
        if below.prefix is not None:
            made |= {f"{below.prefix}{name}": value for name, value in part.items()}
        else:
            made[below.name] = [part] if below.kind == "many" else part
    return made


def _aggregate(view: View, node: Node) -> str:
    if node.kind in ("min", "max"):
        return compute(node.of).typed(view.tables[node.table]).kind
    return "int8" if node.kind == "count" else "numeric"


def _kind(column: Column) -> Any:
    made = {part.name: _kind(part) for part in column.fields} if column.kind == "c" else column.type
    return [made] if column.array else made


def shown(node: Node, document: Any) -> Any:
    """A document as it is declared: its fields in that order, which `jsonb` does not keep, and its lists cut."""
    if node.value:
        return document
    made = {name: document[name] for name in (*node.between, *node.fields, *node.computed)}
    for below in node.relations:
        if below.prefix is not None:
            part = shown(below, {name: document[f"{below.prefix}{name}"] for name in below.members})
            made |= {f"{below.prefix}{name}": value for name, value in part.items()}
            continue
        part = document[below.name]
        if below.aggregates:
            made[below.name] = part
        elif isinstance(part, list):
            made[below.name] = [*(shown(below, row) for row in part[:CUT]), *([MORE] if len(part) > CUT else [])]
        else:
            made[below.name] = None if part is None else shown(below, part)
    return made


def lacking(node: Node, document: dict[str, Any], above: str = "") -> Iterator[str]:
    """The relations that have no row in a document, by their names from the root on."""
    for below in node.relations:
        if below.aggregates or below.name not in document:
            continue
        part, name = document[below.name], f"{above}{below.name}"
        if part is None or part == []:
            yield name
        elif below.relations:
            yield from lacking(below, part[0] if isinstance(part, list) else part, f"{name}.")
