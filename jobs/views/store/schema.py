"""What there is in the row store's file, and what it has in memory beside it."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.views.store import aggregates, assembly, dirty_roots, elements, own_keys
from jobs.views.store.layout import Layout

_TABLES = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "CREATE TABLE positions (topic TEXT, number INTEGER, position INTEGER, PRIMARY KEY (topic, number)) WITHOUT ROWID",
    "CREATE TABLE cuts (number INTEGER PRIMARY KEY, cut TEXT)",
    "CREATE TABLE dirty (id INTEGER PRIMARY KEY, large INTEGER, since INTEGER, last INTEGER)",
    "CREATE INDEX dirty_order ON dirty (large, since, id)",
    "CREATE TABLE published (id INTEGER PRIMARY KEY, hash INTEGER)",
    "CREATE TABLE slice (id INTEGER PRIMARY KEY)",
)


def permanent(layout: Layout) -> Iterator[str]:
    """To make the file of."""
    yield from _TABLES
    yield from aggregates.tables(layout)
    yield from elements.tables(layout)
    yield from own_keys.tables(layout)
    for kept in layout.tables.values():
        key = [] if kept.number is not None else ["key TEXT UNIQUE"]
        columns = ", ".join([*key, "version", "gone", *kept.columns])
        yield f"CREATE TABLE {kept.name} (id INTEGER PRIMARY KEY, {columns})"
        yield f"CREATE INDEX {kept.name}_gone ON {kept.name} (gone) WHERE gone IS NOT NULL"


def temporary(layout: Layout) -> Iterator[str]:
    """To be run whenever the file is opened."""
    yield from dirty_roots.tables(layout)
    yield from aggregates.temporary(layout)
    yield from assembly.views(layout)
    yield "CREATE TEMP TABLE taken (id INTEGER PRIMARY KEY)"


def changed(layout: Layout) -> Iterator[str]:
    """To be run once changed rows are stored, in this order; what they change is then in `reached`."""
    yield from aggregates.changed(layout)
    yield from elements.changed(layout)
    yield from own_keys.changed(layout)
    yield from dirty_roots.statements(layout)


def filled(layout: Layout) -> Iterator[str]:
    """To be run once all rows are there: indexes at once, and what is kept of many rows."""
    for kept in layout.tables.values():
        for column in kept.indexed:
            yield f"CREATE INDEX {kept.name}_{column} ON {kept.name} ({column})"
        for number, columns in enumerate(kept.sorted):
            yield f"CREATE INDEX {kept.name}_sorted_{number} ON {kept.name} ({columns})"
    yield from aggregates.filled(layout)
    yield from elements.filled(layout)
    yield from own_keys.filled(layout)
