"""What the role of source.dsn may not do yet, and the SQL that lets it: no more than streaming needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql

from connectors.postgres.client import Postgres
from driftless.config.models import Config


@dataclass(frozen=True)
class Right:
    """`subject lacks`: a sentence for the operator."""

    subject: str
    lacks: str
    statement: str


def missing_rights(config: Config, source: Postgres, tables: Collection[str]) -> Iterator[Right]:
    """REPLICATION, the markers' function, and SELECT on what is captured; excluded columns need none."""
    server, relations = source.server(), source.relations()
    role = sql.Identifier(server.role)

    def statement(text: LiteralString, *what: sql.Composable) -> str:
        return sql.SQL(text).format(*what, role=role).as_string()

    who = f"the role {server.role}"
    if not server.has_replication and source.replication_refusal():
        grant = source.provider().grant.format(role=sql.Identifier(server.login).as_string())
        yield Right(f"the role {server.login}", "lacks REPLICATION", grant)
    for function in source.closed_functions():
        yield Right(who, f"may not call {function}", f"grant execute on function {function} to {role.as_string()}")
    mine = {name: relation for name, relation in relations.items() if name in tables}
    for schema in sorted({relation.schema for relation in mine.values() if not relation.usable_schema}):
        grant = statement("grant usage on schema {} to {role}", sql.Identifier(schema))
        yield Right(who, f"may not use the schema {schema}", grant)
    for name, relation in mine.items():
        exclude = config.source.tables[name].exclude
        missing = [column for column in relation.unreadable if column not in exclude]
        table = sql.Identifier(relation.schema, relation.name)
        if missing and exclude:
            columns = sql.SQL(", ").join(map(sql.Identifier, missing))
            yield Right(who, f"may not read {name}", statement("grant select ({}) on {} to {role}", columns, table))
        elif missing:
            yield Right(who, f"may not read {name}", statement("grant select on {} to {role}", table))
