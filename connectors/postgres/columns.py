"""Tables and their columns as the catalogue has them: a database of 500 tables is asked in a few statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import psycopg

from connectors.postgres import queries
from driftless.table import Column, Table, split_name


def tables(connection: psycopg.Connection, wanted: Mapping[str, Iterable[str]]) -> dict[str, Table]:
    """Those that exist: full name -> the table, less the columns that are excluded."""
    rows = connection.execute(queries.TABLES.encode(), as_arrays(wanted)).fetchall()
    columns = _columns(connection, [oid for _, _, oid, *_ in rows])
    named = {split_name(name): name for name in wanted}
    found = {}
    for schema, name, oid, identity, key, index, parted in rows:
        excluded = set(wanted[named[schema, name]])
        shown = tuple(column for column in columns.get(oid, ()) if column.name not in excluded)
        found[named[schema, name]] = Table(schema, name, shown, tuple(key), str(identity), index or "", parted)
    return found


def as_arrays(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Full names as the two parameters that the statements take: schemas, and names."""
    parts = [split_name(name) for name in names]
    return [schema for schema, _ in parts], [name for _, name in parts]


def _columns(connection: psycopg.Connection, oids: list[int]) -> dict[int, tuple[Column, ...]]:
    """The columns of each table or composite type; domains are taken for what they are made of."""
    if not oids:
        return {}
    rows = connection.execute(queries.COLUMNS.encode(), {"oids": oids}).fetchall()
    row_types = _columns(connection, sorted({row[-1] for row in rows if row[-1]}))
    found: dict[int, list[Column]] = {}
    for oid, *facts, row_type in rows:
        column = replace(Column(*facts), fields=row_types.get(row_type, ()))
        found.setdefault(oid, []).append(column)
    return {oid: tuple(columns) for oid, columns in found.items()}
