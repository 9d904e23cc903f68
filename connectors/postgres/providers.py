"""Services that run Postgres for others: how to know each, and what its users do where Postgres' own ways are closed.

The names of roles and settings are those of the services' manuals. None of them has been tried (docs/limits.md).
"""

from __future__ import annotations

from dataclasses import dataclass

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
