"""DDL beside an application at work: a lock is waited for again and again, and never for long at once.

Whoever waits for a lock on a table holds up everybody who comes after, those that only read too.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress

import psycopg

from driftless.errors import SourceError

_log = logging.getLogger(__name__)
LOCK_SECONDS = 2.0
"""How long others may be held up at once."""
REST_SECONDS = 2.0
PATIENCE_SECONDS = 120.0
_OPEN = """
select a.pid, a.application_name, extract(epoch from clock_timestamp() - a.xact_start)::int8
from pg_stat_activity a
where a.datname = current_database() and a.pid <> pg_backend_pid() and a.xact_start is not null
order by a.xact_start limit 3
"""


def execute_with_lock_timeout(
    connection: psycopg.Connection, *statements: str, patience: float = PATIENCE_SECONDS
) -> None:
    """Run statements, each by itself and outside of a transaction.

    Raises SourceError where others hold what one of them needs for all of its `patience`.
    """
    connection.execute(f"set lock_timeout = '{LOCK_SECONDS * 1000:.0f}ms'".encode())
    try:
        for statement in statements:
            _execute(connection, statement, patience)
    finally:
        with suppress(psycopg.Error):
            connection.execute("reset lock_timeout")


def _execute(connection: psycopg.Connection, statement: str, patience: float) -> None:
    deadline, told = time.monotonic() + patience, False
    while True:
        try:
            connection.execute(statement.encode())
        except psycopg.errors.LockNotAvailable:
            what = f"`{statement}` needs a table that open transactions use: {_open(connection)}"
        else:
            return
        if time.monotonic() >= deadline:
            raise SourceError(what, hint="end them, or wait until they have ended, and give the command again")
        if not told:
            told = True
            _log.warning("waiting for up to %.0f s: %s", patience, what)
        time.sleep(REST_SECONDS)


def _open(connection: psycopg.Connection) -> str:
    """The oldest transactions here, since Postgres does not tell whom a statement has waited for in vain."""
    found = connection.execute(_OPEN).fetchall()
    said = [f"process {pid}" + (f" (application `{name}`)" * bool(name)) + f", {age} s old" for pid, name, age in found]
    return "; ".join(said) or "they have just ended"
