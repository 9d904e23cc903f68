"""What a server says of its past: where its timeline left others, and what became of transactions."""

from __future__ import annotations

from connectors.postgres.client import Postgres
from driftless.lsn import parse_lsn

# The newest transaction of a number of 32 bits: the log's messages have no more of it.
_STATUS = """
select pg_xact_status((n - case when n > now then 4294967296 else 0 end)::text::xid8) from (
    select now, (now >> 32 << 32) + %s as n
    from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1 as now) as last
) as numbered where n <= now or n >= 4294967296
"""


def timeline_history(source: Postgres, timeline: int) -> str:
    """The file that says where this timeline, and those that it comes from, left another one."""
    ((_, content),) = source.walsender(f"TIMELINE_HISTORY {timeline}")
    return bytes(content).decode() if isinstance(content, bytes | memoryview) else str(content)


def fork_of(history: str, before: int) -> int | None:
    """Where the log left the timeline `before`, by a history file; None where it never was on that one.

    A line has a timeline, where the next one begins, and why, parted by tabs (timeline.c of Postgres).
    """
    for line in history.splitlines():
        fields = line.split("#", 1)[0].split()
        if len(fields) >= 2 and fields[0] == str(before):
            return parse_lsn(fields[1])
    return None


def transaction_status(source: Postgres, number: int) -> str | None:
    """What became of a transaction: `committed` or `aborted`; None where it has not ended, or the server has forgotten.

    `number`: its 32 bits, as messages of the log have it.
    """
    found = source.rows(_STATUS, number)
    return None if not found or found[0][0] is None else str(found[0][0])
