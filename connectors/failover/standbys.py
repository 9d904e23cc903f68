"""Standbys, as the server's settings and slots tell of them: could one take the server's place without a gap?"""

from __future__ import annotations

from connectors.failover.fence import FAILOVER_SINCE
from connectors.postgres.client import Postgres

_WAITED_FOR = """
select trim(both ' "' from name) from regexp_split_to_table(
    coalesce(current_setting('synchronized_standby_slots', true), ''), ',') as name where trim(name) <> ''
"""


def absent_standbys(source: Postgres) -> list[str]:
    """Slots of standbys that changes are held back for, and that nobody reads: nothing is sent meanwhile."""
    absent = f"select name from ({_WAITED_FOR}) as waited (name) where not exists "
    absent += "(select from pg_replication_slots where slot_name = name and active)"
    return [str(name) for (name,) in source.rows(absent)]


def unawaited_standbys(source: Postgres) -> list[str]:
    """Slots of standbys that nothing is held back for: such a standby may lack what has been read."""
    if source.server().version < FAILOVER_SINCE:
        return []
    query = "select slot_name::text from pg_replication_slots where slot_type = 'physical' and not temporary "
    return [str(name) for (name,) in source.rows(f"{query} and slot_name not in ({_WAITED_FOR}) order by 1")]
