"""Documents that are known by another key than their row: which row each key leads to now.

A row that takes another key changes two documents, that of the key which it leaves and that of the key which it takes.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.views.store.layout import Layout


def tables(layout: Layout) -> Iterator[str]:
    """To be made with the store's file. `gone` is null where a row has the key."""
    if layout.key:
        columns = "id INTEGER PRIMARY KEY, key TEXT UNIQUE, version, gone, row INTEGER"
        yield f"CREATE TABLE {layout.roots.name} ({columns})"


def filled(layout: Layout) -> Iterator[str]:
    """Over all rows, once they are there."""
    if layout.key:
        kept = layout.root.kept.name
        rows = f"SELECT {layout.key}, 0, NULL, id FROM {kept} WHERE gone IS NULL AND {layout.key} IS NOT NULL"
        yield (
            f"INSERT INTO {layout.roots.name} (key, version, gone, row) {rows} "
            "ON CONFLICT (key) DO UPDATE SET row = excluded.row, gone = NULL"
        )
        yield f"CREATE INDEX {layout.roots.name}_row ON {layout.roots.name} (row)"


def changed(layout: Layout) -> Iterator[str]:
    """Once changed rows are stored: where the keys lead that they have left or taken."""
    if layout.key:
        kept, roots, key = layout.root.kept.name, layout.roots.name, layout.key
        both = f"SELECT {key} FROM new_{kept} UNION SELECT {key} FROM old_{kept}"
        row = f"(SELECT t.id FROM {kept} t WHERE t.{key} = {roots}.key AND t.gone IS NULL LIMIT 1)"
        yield (
            f"INSERT INTO {roots} (key, version, gone) SELECT {key}, 0, 0 FROM ({both}) WHERE {key} IS NOT NULL "
            "ON CONFLICT DO NOTHING"
        )
        yield f"UPDATE {roots} SET row = {row} WHERE key IN ({both})"
        yield f"UPDATE {roots} SET gone = iif(row IS NULL, 0, NULL) WHERE key IN ({both})"
