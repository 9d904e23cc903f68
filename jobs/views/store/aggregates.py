"""Counts, sums and averages over the rows of a relation, kept up without looking at the rows again.

Of each value that rows hang by, a table has how many rows there are and their tally: how many values, their exact sum,
how many there are of each scale, and of NaN and of the infinities. So a row that goes is taken away again, and a change
costs the same beside ten others and beside a million. A least or greatest value is found by an index instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.views.store.dirty_roots import differ
from jobs.views.store.layout import Layout, LayoutNode, rows_sql

_DIGITS = 10
"""Of numbers that SQLite adds up by itself: of a thousand million of them the sum is below 2^63."""


def tables(layout: Layout) -> Iterator[str]:
    """To be made with the store's file."""
    for part in _kept(layout):
        yield f"CREATE TABLE {_name(part)} (k PRIMARY KEY, rows INTEGER, tally TEXT) WITHOUT ROWID"


def temporary(layout: Layout) -> Iterator[str]:
    for part in _kept(layout):
        yield f"CREATE TEMP TABLE {_name(part)}_change (k, rows INTEGER, value)"


def filled(layout: Layout) -> Iterator[str]:
    """Over all rows, once they are there: first what SQLite can add up by itself, then the rest."""
    for part in _kept(layout):
        table, lookup, value = _name(part), part.hops[-1].lower_column, part.members
        rows = f"FROM {part.kept.name} WHERE gone IS NULL AND {lookup} IS NOT NULL"
        if part.node.kind == "count":
            yield f"INSERT INTO {table} SELECT {lookup}, count(*), NULL {rows} GROUP BY {lookup}"
            continue
        # As jobs/views/values/tally.py has it, of plain numbers with so few digits that no sum overflows.
        point, plain = f"instr({value}, '.')", f"length({value}) <= {_DIGITS} AND {value} NOT GLOB '*[^-0-9.]*'"
        scale = f"iif({point}, length({value}) - {point}, 0)"
        units = f"iif({plain}, CAST(replace({value}, '.', '') AS INTEGER), 0)"
        yield (
            f"INSERT INTO {table} SELECT {lookup}, count(*), "
            f"iif(count({value}), min({scale}) || ':' || count({value}) || ':' || sum({units}), '') {rows} "
            f"GROUP BY {lookup} HAVING coalesce(min({plain}), 1) AND min({scale}) IS max({scale})"
        )
        yield (
            f"INSERT INTO {table} SELECT {lookup}, count(*), {_tally(part, '1', value)} {rows} "
            f"AND {lookup} NOT IN (SELECT k FROM {table}) GROUP BY {lookup}"
        )


def changed(layout: Layout) -> Iterator[str]:
    """Once changed rows are beside what was stored of them, as jobs/views/store/intake.py has it."""
    for part in _kept(layout):
        table, new, old = _name(part), f"new_{part.kept.name}", f"old_{part.kept.name}"
        lookup, value = part.hops[-1].lower_column, part.members
        shown = "key" if lookup == "id" else lookup
        changed_ = differ([lookup, value])
        yield f"DELETE FROM {table}_change"
        yield (
            f"INSERT INTO {table}_change SELECT o.{shown}, -1, o.{value} FROM {new} n CROSS JOIN {old} o "
            f"ON o.key = n.key WHERE {changed_} AND o.gone IS NULL AND o.{shown} IS NOT NULL"
        )
        yield (
            f"INSERT INTO {table}_change SELECT n.{shown}, 1, n.{value} FROM {new} n LEFT JOIN {old} o "
            f"ON o.key = n.key WHERE {changed_} AND NOT n.gone AND n.{shown} IS NOT NULL"
        )
        yield (
            f"INSERT INTO {table} SELECT k, sum(rows), {_tally(part, 'rows', 'value')} FROM {table}_change WHERE true "
            "GROUP BY k ON CONFLICT (k) DO UPDATE SET rows = rows + excluded.rows, "
            "tally = df_merged(tally, excluded.tally)"
        )
        yield f"DELETE FROM {table} WHERE rows = 0 AND k IN (SELECT k FROM {table}_change)"


def document_sql(part: LayoutNode) -> str:
    """What stands in the document above for a row `r` of it."""
    function, above = part.node.kind, f"+r.{part.hops[0].upper_column}"
    if not part.node.links and function not in ("min", "max"):
        found = "rows" if function == "count" else f"df_{function}(tally)"
        return f"coalesce((SELECT {found} FROM {_name(part)} WHERE k = {above}), '{part.node.missing}')"
    rows = f"{rows_sql(part, part.kept.name)} AND b.gone IS NULL"
    if function == "count":
        return f"(SELECT count(*) {rows})"
    if function in ("sum", "avg"):
        return f"coalesce((SELECT df_{function}({_tally(part, '1', f'b.{part.members}')}) {rows}), 'null')"
    (order, descending, _), last_column = part.order[0], f"b.{part.members}"
    ordered = f"b.{order}{' DESC' if descending else ''}, {_last_sql(part, last_column)}"
    rows += f" AND b.{order} IS NOT NULL"
    return f"coalesce((SELECT b.{part.members} {rows} ORDER BY {ordered} LIMIT 1), 'null')"


def _last_sql(part: LayoutNode, shown: str) -> str:
    """By what those are put in order that are equal: as driftless/views/sql.py has it."""
    return f"length({shown}) DESC" if part.of_numbers else shown


def _kept(layout: Layout) -> Iterator[LayoutNode]:
    for part in layout.parts:
        if part.node.kind in ("count", "sum", "avg") and not part.node.links:
            yield part


def _name(part: LayoutNode) -> str:
    return f"aggregate_{part.number}"


def _tally(part: LayoutNode, sign: str, value: str) -> str:
    return "NULL" if part.node.kind == "count" else f"df_tally({sign}, {value})"
