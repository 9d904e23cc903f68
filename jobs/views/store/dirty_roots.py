"""Which documents a set of changed rows shows in, as SQL over the row store.

For each table `new_<t>` holds the rows that are newer than what is stored, and `old_<t>` what was stored of them. A
document differs only if a row of it differs, came or went. The uppermost of these hangs by rows that did not change: so
it is enough to go up from what each changed row was and from what it is, through the rows as they are now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobs.views.store.layout import Hop, Layout, LayoutNode, StoredTable

HOT = 1000
"""With more documents than these, a changed row is a large fan-out, to be written after the small changes."""


def tables(layout: Layout) -> Iterator[str]:
    """The temporary tables: changed rows, and for each part the values by which to go up, with their fan-out."""
    for kept in layout.tables.values():
        columns = ", ".join(kept.columns)
        for prefix in ("new", "old"):
            key = "key TEXT PRIMARY KEY" if kept.number is None else "key INTEGER PRIMARY KEY"
            yield f"CREATE TEMP TABLE {prefix}_{kept.name} ({key}, version, gone, {columns})"
    for part in layout.parts[1:]:
        for number in range(len(part.hops)):
            yield f"CREATE TEMP TABLE {_up(part, number)} (k PRIMARY KEY, fan) WITHOUT ROWID"
    yield "CREATE TEMP TABLE reached (id INTEGER PRIMARY KEY, fan)"
    if layout.key:
        yield "CREATE TEMP TABLE reached_rows (id INTEGER PRIMARY KEY, fan)"


def statements(layout: Layout) -> Iterator[str]:
    """To run in this order once the new rows are stored; `reached` then has the roots' ids."""
    for part in layout.parts[1:]:
        for number in range(len(part.hops)):
            yield f"DELETE FROM {_up(part, number)}"
    into = "reached_rows" if layout.key else "reached"
    yield from (f"DELETE FROM {table}" for table in dict.fromkeys((into, "reached")))
    for part in reversed(layout.parts[1:]):
        last = len(part.hops) - 1
        yield from _changed(part.kept, part.watched, part.hops[last].lower_column, _up(part, last))
        if part.parent:
            yield _down(part, _up(part, last))
        for number in range(last, -1, -1):
            hop = part.hops[number]
            if number < last and not hop.lower.derived:
                between = part.hops[number + 1]
                yield from _changed(
                    hop.lower, [hop.lower_column, between.upper_column, *hop.shown], hop.lower_column, _up(part, number)
                )
            yield from _climb(part, number, hop, into)
    root = layout.root
    new, old = (f"{prefix}_{root.kept.name}" for prefix in ("new", "old"))
    table = f"{root.kept.name} t ON t.{root.kept.identity} = n.key"
    yield (
        f"INSERT INTO {into} SELECT t.id, 1 FROM {new} n CROSS JOIN {table} "
        f"LEFT JOIN {old} o ON o.key = n.key WHERE {differ(root.watched)} {_LEAST.format('id')}"
    )
    if layout.key:
        roots = layout.roots.name
        yield f"INSERT INTO reached SELECT x.id, w.fan FROM {into} w CROSS JOIN {roots} x ON x.row = w.id"
        yield (
            f"INSERT INTO reached SELECT x.id, 1 FROM {new} n CROSS JOIN {old} o ON o.key = n.key "
            f"CROSS JOIN {roots} x ON x.key = o.{layout.key} WHERE {differ([layout.key])} {_LEAST.format('id')}"
        )


_LEAST = "ON CONFLICT ({}) DO UPDATE SET fan = min(fan, excluded.fan)"


def _up(part: LayoutNode, hop: int) -> str:
    return f"up_{part.number}_{hop}"


def differ(columns: Iterable[str]) -> str:
    """Whether a row `n` differs from what was stored of it, `o`, in one of these kept columns."""
    # The key does not change; a row that comes or goes differs in its members.
    names = [name for name in dict.fromkeys(columns) if name != "id"]
    return f"({', '.join(f'o.{name}' for name in names)}) IS NOT ({', '.join(f'n.{name}' for name in names)})"


def _changed(kept: StoredTable, watched: list[str], lookup: str, into: str) -> Iterator[str]:
    """By what rows hang that changed in a watched column: what it was, and what it is."""
    new, old = f"new_{kept.name}", f"old_{kept.name}"
    joined = f"FROM {new} n LEFT JOIN {old} o ON o.key = n.key WHERE {differ(watched)}"
    lookup = "key" if lookup == "id" else lookup
    for side in "on":
        yield f"INSERT OR IGNORE INTO {into} SELECT {side}.{lookup}, 1 {joined} AND {side}.{lookup} IS NOT NULL"


def _down(part: LayoutNode, here: str) -> str:
    """A changed row is in the path of all that are below it, also of those whose way to it was another before."""
    kept, own = part.kept.name, part.hops[-1].lower_column
    below = f"SELECT c.{own} FROM down d CROSS JOIN {kept} c ON c.{part.parent} = d.k WHERE c.gone IS NULL"
    return (
        f"INSERT OR IGNORE INTO {here} WITH RECURSIVE down (k) AS (SELECT k FROM {here} UNION {below} "
        f"AND c.{own} IS NOT NULL) SELECT k, 1 FROM down"
    )


def _climb(part: LayoutNode, number: int, hop: Hop, reached: str) -> Iterator[str]:
    """From the rows below a hop to those above it. `reached`: for the rows of the root."""
    here = _up(part, number)
    if hop.many_above:
        counted = (
            f"SELECT count(*) FROM (SELECT 1 FROM {hop.upper.name} u WHERE u.{hop.upper_column} = k LIMIT {HOT + 1})"
        )
        yield f"UPDATE {here} SET fan = fan * ({counted})"
    there = "" if hop.upper.derived else " AND u.gone IS NULL"
    rows = f"FROM {here} h CROSS JOIN {hop.upper.name} u ON u.{hop.upper_column} = h.k WHERE true{there}"
    above = part.above
    assert above is not None
    if number:
        into, lookup = _up(part, number - 1), part.hops[number - 1].lower_column
    elif above.above is None:
        yield f"INSERT INTO {reached} SELECT u.id, h.fan {rows} {_LEAST.format('id')}"
        return
    else:
        last = len(above.hops) - 1
        into, lookup = _up(above, last), above.hops[last].lower_column
    yield f"INSERT INTO {into} SELECT u.{lookup}, h.fan {rows} AND u.{lookup} IS NOT NULL {_LEAST.format('k')}"
