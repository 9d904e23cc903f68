"""Connector settings that let Debezium read one timeline alone.

After a failover the same name or address may lead to another server, and Debezium reconnects by itself. Driftless must
prove that the new server's log contains what was read, and can do so only before Debezium reads from that server.
"""

from __future__ import annotations

from connectors.postgres.queries import TIMELINE

SETTING = "database.initial.statements"
"""Debezium runs these on each connection that it opens, before it reads, and fails where one of them does."""
FAILOVER_SINCE = 170000
"""The version of Postgres since which a slot may be kept on standbys as well."""


def fence(version: int, timeline: int) -> dict[str, str]:
    """Settings of the connector: it reads this timeline alone, by a slot that standbys may keep as well.

    A text that is no number is refused with that text; a standby refuses to say where it writes.
    """
    found = f"({TIMELINE})"
    said = f"'driftless: this server is on timeline ' || {found} || ', and the log was read on timeline {timeline}'"
    settings = {SETTING: f"select (case when {found} = {timeline} then '1' else {said} end)::int"}
    return settings | ({"slot.failover": "true"} if version >= FAILOVER_SINCE else {})
