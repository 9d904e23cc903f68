"""How rows from the log come into the row store, as SQL.

A new store only keeps them, at once (`fill`). Later they are first put beside what is stored, as `new_<t>` and
`old_<t>`, by which jobs/views/store/dirty_roots.py tells what they change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jobs.views.store.layout import StoredTable


@dataclass(frozen=True)
class Shard:
    """Which part of a split view is kept here."""

    shards: int
    number: int

    def row(self, kept: StoredTable) -> tuple[str, str]:
        """Of a row that is given: whether it is a delete, as what belongs to another shard is here; what is kept."""
        gone = "?3"
        if kept.root_key is not None:
            gone = f"(?3 OR NOT (df_shard({kept.root_key}, {self.shards}) IS {self.number}))"
        return gone, ", ".join(f"iif({gone}, NULL, {expression})" for expression in kept.columns.values())


def fill(kept: StoredTable, shard: Shard, now: int) -> str:
    """Of rows with one key the newest, where rows are kept; one of another shard leaves no tombstone there."""
    gone, expressions = shard.row(kept)
    key = kept.key("?1")
    known = f"EXISTS (SELECT 1 FROM {kept.name} WHERE {kept.identity} = {key})"
    return (
        f"INSERT INTO {kept.name} ({kept.identity}, version, gone, {', '.join(kept.columns)}) "
        f"SELECT {key}, ?2, iif({gone}, {now:d}, NULL), {expressions} "
        f"WHERE {kept.given} AND ({'1' if kept.root_key is None else f'NOT {gone} OR {known}'}) "
        f"ON CONFLICT ({kept.identity}) DO UPDATE SET {_replaced(kept)} WHERE excluded.version > version"
    )


def change(kept: StoredTable, shard: Shard) -> str:
    """Of rows with one key the newest, beside what is stored."""
    gone, expressions = shard.row(kept)
    return (
        f"INSERT INTO new_{kept.name} SELECT {kept.key('?1')}, ?2, {gone}, {expressions} WHERE {kept.given} "
        f"ON CONFLICT (key) DO UPDATE SET {_replaced(kept)} WHERE excluded.version > version"
    )


def sweep(kept: StoredTable) -> str:
    """A delete, older than all that is not swept, of each row that is."""
    return (
        f"INSERT INTO new_{kept.name} (key, version, gone) SELECT {kept.identity}, :version - 1, 1 FROM {kept.name} "
        "WHERE version < :version AND gone IS NULL ON CONFLICT (key) DO NOTHING"
    )


def store(kept: StoredTable) -> Iterator[str]:
    """Put the new rows in the place of the old."""
    new, old, table, columns = f"new_{kept.name}", f"old_{kept.name}", kept.name, ", ".join(kept.columns)
    yield (
        f"INSERT INTO {old} SELECT n.key, t.version, t.gone, {', '.join(f't.{c}' for c in kept.columns)} "
        f"FROM {new} n CROSS JOIN {table} t ON t.{kept.identity} = n.key"
    )
    yield f"DELETE FROM {new} WHERE version <= (SELECT o.version FROM {old} o WHERE o.key = {new}.key)"
    if kept.root_key is not None:
        # Most of them are rows of other shards, each of which would leave a tombstone here.
        yield f"DELETE FROM {new} WHERE gone AND key NOT IN (SELECT key FROM {old})"
    yield (
        f"INSERT INTO {table} ({kept.identity}, version, gone, {columns}) "
        f"SELECT key, version, iif(gone, :now, NULL), {columns} FROM {new} WHERE true "
        f"ON CONFLICT ({kept.identity}) DO UPDATE SET {_replaced(kept)}"
    )


def _replaced(kept: StoredTable) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in ("version", "gone", *kept.columns))
