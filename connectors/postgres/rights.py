"""What the role of source.dsn may not do yet, and the SQL that lets it: no more than streaming needs.

Services that run Postgres for others have ways of their own. The names of their roles and settings are those of their
manuals; none of them has been tried (docs/limits.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql

from connectors.postgres.client import Postgres
from driftless.config.models import Config

_SET_LOGICAL = "run `alter system set wal_level = logical` and restart Postgres"


@dataclass(frozen=True)
class Provider:
    """`role`: one that every server of it has. `grant`: gives `{role}` the right to read the log. `logical`: how
    the server is made to write a log that can be decoded. `direct`: what leads past its pooler.
    """

    name: str
    role: str
    logical: str
    direct: str
    grant: str = "alter role {role} replication"


PROVIDERS = (
    Provider(
        "Amazon RDS or Aurora",
        "rds_replication",
        "set `rds.logical_replication = 1` in its parameter group and restart it",
        "name the instance or the cluster, not RDS Proxy",
        "grant rds_replication to {role}",
    ),
    Provider(
        "Google Cloud SQL",
        "cloudsqlsuperuser",
        "set the flag `cloudsql.logical_decoding = on`, which restarts it",
        "name the instance, not its managed pool",
    ),
    Provider(
        "Azure Database for PostgreSQL",
        "azure_pg_admin",
        "set the server parameter `wal_level = logical` and restart it",
        "use port 5432, not 6432 of its PgBouncer",
    ),
    Provider(
        "Supabase",
        "supabase_admin",
        "Supabase's own servers have `logical`: " + _SET_LOGICAL,
        "use the direct connection, db.PROJECT.supabase.co:5432",
    ),
    Provider(
        "Neon",
        "neon_superuser",
        "switch on logical replication in the project's settings",
        "take `-pooler` out of the host's name",
    ),
)
UNKNOWN = Provider("Postgres", "", _SET_LOGICAL, "name the server itself")
"""A server of one's own, or of a service that is not known here."""


def provider(source: Postgres) -> Provider:
    """Whose service a server is, by the roles that it has."""
    there = {row[0] for row in source.rows("select rolname::text from pg_roles")}
    return next((provider for provider in PROVIDERS if provider.role in there), UNKNOWN)


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
        grant = provider(source).grant.format(role=sql.Identifier(server.login).as_string())
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
