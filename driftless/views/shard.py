"""Which rows a shard keeps of a view that is split: its roots, what belongs to them alone, and copies of the rest.

A root's shard is told by its key's text. A row below belongs to one root where its own columns hold that root's key: as
the columns by which an order's lines refer to it, and again those of what refers to a line by (order, line). A table
of which every row can be told so, wherever a document shows it, is split as the roots are. All others are copied to
every shard: their rows are shared by several roots, or found through other rows alone.
"""

from __future__ import annotations

import zlib

from driftless.table import Column
from driftless.views.compare import equality, form
from driftless.views.tree import Join, View

Columns = tuple[str, ...]


def shard_of(key: str, shards: int) -> int:
    """The shard of a root by its key's text. It never changes: or a store would hold the roots of another."""
    return zlib.crc32(key.encode()) % shards


def split_tables(view: View) -> dict[str, Columns]:
    """Table -> its columns that hold the root's key, in the order of that key. What is not in it is copied."""
    found: dict[str, set[Columns | None]] = {}
    holds: dict[int, Columns | None] = {}
    for node, parent in view.nodes():
        columns: Columns | None = view.tables[node.table].key
        if parent is not None:
            columns = holds[id(parent)]
            for join in node.joins(parent):
                columns = _below(view, join, columns)
                found.setdefault(join.right, set()).add(columns)
        holds[id(node)] = columns
        found.setdefault(node.table, set()).add(columns)
    return {table: ways.pop() or () for table, ways in found.items() if len(ways) == 1 and None not in ways}


def _below(view: View, join: Join, held: Columns | None) -> Columns | None:
    """Where the rows below a join hold what `held` are the columns of above it."""
    if held is None:
        return None
    pairs = dict(zip(join.left_columns, join.right_columns, strict=True))
    fit = all(
        name in pairs and _one_text(view.column(join.left, name), view.column(join.right, pairs[name])) for name in held
    )
    return tuple(pairs[name] for name in held) if fit else None


def _one_text(column: Column, other: Column) -> bool:
    """Whether equal values of the two have the same text, also in a key: 1 and 1.0 do not."""
    return equality(column) is not None and form(column, other) not in ("numeric", "bpchar", "bool")
