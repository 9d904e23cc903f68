"""How many rows Debezium may have of a table at a time: its worker holds all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from connectors.debezium.connector import CHUNK_ROWS
from connectors.postgres.client import Postgres
from driftless.errors import SourceError
from driftless.table import Table, join_name, quoted, quoted_column

FETCH_BYTES = 64 << 20
"""Of these rows: a tenth of the heap of a small worker."""
LOOKED_AT = 200
"""Rows of each table with large values that are looked at."""
SECONDS = 5.0
"""How long that may take for one table."""
_FETCH, _CHUNK, _TABLES = "snapshot.fetch.size", "incremental.snapshot.chunk.size", "table.include.list"


# Tables in which Postgres stores some value outside its row (TOAST), and the partitioned tables that they belong to.
# Other tables have no large rows.
_TOASTED = """
select distinct n.nspname::text, w.relname::text
from pg_class c join pg_class w on w.oid in (c.oid, pg_partition_root(c.oid))
join pg_namespace n on n.oid = w.relnamespace
where c.relkind = 'r' and c.reltoastrelid <> 0 and pg_relation_size(c.reltoastrelid) > 0
"""


def fetching(
    source: Postgres, tables: Iterable[Table], wanted: Mapping[str, str], actual: Mapping[str, str] | None
) -> dict[str, str]:
    """The settings of a connector that say so: by the rows that there are when tables are added, and kept until then.

    `wanted`: its other settings; `actual`: those that it has now, or None.
    """
    if actual is not None and actual.get(_TABLES) == wanted[_TABLES] and {_FETCH, _CHUNK} <= actual.keys():
        return {_FETCH: actual[_FETCH], _CHUNK: actual[_CHUNK]}
    rows = CHUNK_ROWS
    toasted = {join_name(*row) for row in source.rows(_TOASTED)}
    largest = max((_largest(source, table) for table in tables if table.full_name in toasted), default=0)
    while rows > 1 and rows * largest > FETCH_BYTES:
        rows //= 10
    return {_FETCH: str(rows), _CHUNK: str(max(10, rows))}


def _largest(source: Postgres, table: Table) -> int:
    """The bytes of the largest of some rows; 0 where looking takes too long."""
    with suppress(SourceError):
        columns = ", ".join(quoted_column(column.name) for column in table.columns)
        some = f"select {columns} from {quoted(table.full_name)} limit {LOOKED_AT}"
        sizes = f"select coalesce(max(octet_length(row({columns})::text)), 0) as document from ({some}) t"
        return int(source.first_document(sizes, SECONDS) or 0)
    return 0
