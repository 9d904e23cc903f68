"""How documents are put together of the rows that are kept, as SQL: a view for each part."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.views.store import aggregates
from jobs.views.store.layout import Layout, LayoutNode, named, ordered, rows_sql
from jobs.views.values.sqlite_values import literal


def views(layout: Layout) -> Iterator[str]:
    """A view for each part, the deepest first: the columns of its table, and `d`, the finished object of each row.

    SQLite puts them together into one statement; written as one, it is too deep for SQLite's parser.
    """
    for part in reversed(layout.parts):
        kept = part.kept
        kept_columns = ", ".join(f"r.{name}" for name in kept.columns)
        if part is layout.root and layout.key:
            rows = f"{layout.roots.name} x LEFT JOIN {kept.name} r ON r.id = x.row"
            columns = f"x.id, x.gone, {kept_columns}, x.key"
        else:
            rows, key = f"{kept.name} r", "r.key" if kept.number is None else "CAST(r.id AS TEXT) AS key"
            columns = f"r.id, r.gone, {kept_columns}, {key}"
        yield f"CREATE TEMP VIEW {part.view} AS SELECT {columns}, {_document(part)} AS d FROM {rows}"


def _document(part: LayoutNode) -> str:
    """The document of a row `r` of a part, or what stands for it in the document above."""
    if part.node.value:
        return f"r.{part.members}"
    pieces = [f"r.{part.members}", *(f"',' || {_below(below, part.prefix)}" for below in part.below)]
    members = " || ".join(pieces)
    return members if part.node.prefix is not None else f"'{{' || {members} || '}}'"


def _below(part: LayoutNode, prefix: str) -> str:
    """What the document of a row `r` has of a part below it. `prefix`: of the names in that document."""
    node, rows = part.node, rows_sql(part, part.view)
    if node.prefix is not None:
        nothing = ",".join(named(part.prefix + name) + missing for name, missing in node.members.items())
        return f"coalesce((SELECT b.d {rows} LIMIT 1), {literal(nothing)})"
    name = literal(named(prefix + node.name))
    if node.aggregates:
        return f"{name} || {aggregates.document_sql(part)}"
    if node.kind == "one":
        return f"{name} || coalesce((SELECT b.d {rows} LIMIT 1), 'null')"
    if node.elements or node.parent:
        return f"{name} || '[' || coalesce((SELECT group_concat(d) FROM ({_in_place(part)})), '') || ']'"
    last = f"l{len(node.links) - 1}"
    document = f"'{{' || {last}.{part.between} || ',' || substr(b.d, 2)" if part.between else "b.d"
    order = ", ".join(ordered(part, "b.", f"{last}.")) or "b.id"  # of one row at most
    if node.most is not None:
        # Of these alone the documents are put together, and deleted rows are none of them.
        more = f", {last}.id AS link, row_number() OVER (ORDER BY {order}) AS n" if node.links else ""
        first = f"SELECT b.id AS id{more} {rows} AND b.gone IS NULL ORDER BY {order} LIMIT {node.most}"
        rows = f"FROM ({first}) f CROSS JOIN {part.view} b ON b.id = f.id"
        if node.links:
            rows += f" CROSS JOIN {part.hops[-1].upper.name} {last} ON {last}.id = f.link"
            order = "f.n"
    if node.kind == "first":
        return f"{name} || coalesce((SELECT {document} {rows}), 'null')"
    joined = f"SELECT group_concat(d) FROM (SELECT {document} AS d {rows} ORDER BY {order})"
    return f"{name} || '[' || coalesce(({joined}), '') || ']'"


def _in_place(part: LayoutNode) -> str:
    """The documents `d` of a list that has an order of its own, in that order."""
    if part.node.elements:
        most = "" if part.node.limit is None else f" LIMIT {part.node.limit}"
        return f"SELECT b.d AS d {rows_sql(part, part.view)} AND b.gone IS NULL ORDER BY l0.place{most}"
    # Of a circle each row once. The plus: see `rows_sql`.
    hop, kept, key = part.hops[0], part.kept.name, "c.key" if part.kept.number is None else "c.id"
    first = (
        f"SELECT id, {part.parent}, 0, ',' || id || ',' FROM {kept} WHERE {hop.lower_column} = +r.{hop.upper_column}"
    )
    more = (
        f"SELECT c.id, c.{part.parent}, up.n - 1, up.seen || c.id || ',' FROM up CROSS JOIN {kept} c "
        f"ON c.{hop.lower_column} = +up.parent WHERE c.gone IS NULL "
        f"AND iif(instr(up.seen, ',' || c.id || ','), df_circle({literal(part.node.table)}, {key}), 1)"
    )
    path = (
        f"WITH RECURSIVE up (id, parent, n, seen) AS ({first} AND gone IS NULL UNION ALL {more}) SELECT id, n FROM up"
    )
    return f"SELECT b.d AS d FROM ({path}) up CROSS JOIN {part.view} b ON b.id = up.id ORDER BY up.n"
