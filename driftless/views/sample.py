"""One document of a view, cheap on a database of any size: what `plan` shows.

Where driftless/views/sql.py groups whole tables, this takes one row of the root and looks for what belongs to it, row
by row, by the indexes that there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from driftless.table import Column, quoted, quoted_column
from driftless.views.sql import Compiled
from driftless.views.tree import Join, Node, View
from driftless.where.clause import POSTGRES, parse

CUT = 3
"""Elements of a list that are shown."""
MORE = "..."
"""What stands in a list for all the others."""


def select_one(view: View, *, roots: int | None = 1, cut: int | None = CUT) -> str:
    """As `select` of driftless/views/sql.py, of the first row that comes; of a list one element more than is shown.

    None: all of them.
    """
    table = view.tables[view.root.table]
    compiled = _OfOne(view, None if cut is None else cut + 1)
    rows = f"SELECT {compiled.columns(view.root, 'r')} FROM {quoted(view.root.table)} r"
    if view.where is not None:
        rows += f" WHERE {parse(view.where).sql(table, POSTGRES)}"
    source, document = compiled.rows(view.root, f"({rows}{_limit(roots)}) r", "r")
    return f"SELECT {compiled.key('r')} AS key, {document} AS document FROM {source}"


class _OfOne(Compiled):
    def __init__(self, view: View, most: int | None) -> None:
        super().__init__(view)
        self._most = most

    def joined(self, node: Node, parent: Node, above: str, number: int) -> str:
        """Rows are cut before anything is looked up for them. They are few, so each looks for its own."""
        alias = f"t{number}"
        source, holder, first = self.linked(node, parent, self.shown(node, alias), number)
        rows = f"SELECT {self.columns(node, alias)} FROM {source} WHERE {self.matched(first, above, holder)}"
        sort = f" ORDER BY {self.ordered(node, alias)}" if node.order else ""
        most = [number for number in (self._most, node.most) if number is not None]
        rows += " LIMIT 1" if node.kind == "one" else f"{sort}{_limit(min(most, default=None))}"
        source, document = self.rows(node, f"({rows}) {alias}", alias)
        made = document if node.kind != "many" else f"jsonb_agg({document}{sort})"
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


def _limit(rows: int | None) -> str:
    return "" if rows is None else f" LIMIT {rows}"


def bare(view: View) -> View:
    """The same relations without a column: what there is to a document, without any value of it."""
    return replace(view, root=_bare(view.root))


def _bare(node: Node) -> Node:
    return replace(node, fields={}, order=(), value=False, relations=tuple(map(_bare, node.relations)))


def shape(view: View) -> dict[str, Any]:
    """A document with the type of each column in place of its value, and one element in each list."""
    found: dict[str, Any] = _shape(view, view.root)
    return found


def _shape(view: View, node: Node) -> Any:
    made = {name: _kind(view.column(node.table, column)) for name, column in node.fields.items()}
    if node.value:
        return next(iter(made.values()))
    for below in node.relations:
        part = _shape(view, below)
        made[below.name] = [part] if below.kind == "many" else part
    return made


def _kind(column: Column) -> Any:
    made = {part.name: _kind(part) for part in column.fields} if column.kind == "c" else column.type
    return [made] if column.array else made


def shown(node: Node, document: Any) -> Any:
    """A document as it is declared: its fields in that order, which `jsonb` does not keep, and its lists cut."""
    if node.value:
        return document
    made = {name: document[name] for name in node.fields}
    for below in node.relations:
        part = document[below.name]
        if isinstance(part, list):
            made[below.name] = [*(shown(below, row) for row in part[:CUT]), *([MORE] if len(part) > CUT else [])]
        else:
            made[below.name] = None if part is None else shown(below, part)
    return made


def lacking(node: Node, document: dict[str, Any], above: str = "") -> Iterator[str]:
    """The relations of which a document holds no row, by their names from the root on."""
    for below in node.relations:
        part, name = document[below.name], f"{above}{below.name}"
        if part is None or part == []:
            yield name
        elif below.relations:
            yield from lacking(below, part[0] if isinstance(part, list) else part, f"{name}.")
