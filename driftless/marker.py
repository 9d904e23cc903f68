"""Logical messages in the write-ahead log: markers, by which every stage learns a source position, and truncations.

Transactional messages arrive on the message topic in commit order; non-transactional ones overtake transactions.
So when a marker has been read, every commit at or before its LSN has been written to Kafka.

Everybody who may connect to a database may write such messages: driftless/facts/trust.py says which of them are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from driftless import names


@dataclass(frozen=True)
class Marker:
    """`lsn`: its position in the source's log. `time`: seconds since 1970 by the source's clock.

    `awaited`: somebody waits for it, so that a follower tells at once that it has reached it.
    """

    lsn: int
    time: float
    awaited: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Truncation:
    """A TRUNCATE of a table, as its trigger reported it. `time`: seconds since 1970 at which Kafka learned of it."""

    table: str
    lsn: int
    time: float


@dataclass(frozen=True)
class Stranger:
    """A message that is addressed to this pipeline and is not its own. `why`: in words, and nothing that it holds."""

    why: str


AWAITED = ":"
"""Behind the token of a marker that somebody waits for. Heartbeats have nothing there; older versions of driftless
take both for the same.
"""


def marker_sql(pipeline: str, *, awaited: bool = False) -> str:
    """The statement that writes a marker and returns its position; no row where the pipeline has no token.

    The server reads the token: neither Connect's settings nor a log of statements shows it.
    """
    token = f"token || '{AWAITED}'" if awaited else "token"
    return (
        f"select pg_logical_emit_message(true, '{names.message_prefix(pipeline)}' || {token}, '')::text "
        f"from {names.TOKENS} where pipeline = '{pipeline}'"
    )


PLAIN_MARKER_SQL = f"select pg_logical_emit_message(true, '{names.MARKER_PREFIX}', '')::text"
"""The same for a pipeline that has no token yet."""
