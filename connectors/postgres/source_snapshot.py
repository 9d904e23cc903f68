"""The source as it was at one exact position of its log, read while everybody goes on writing."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from connectors.postgres.blockers import Ask, blockers
from driftless.errors import POSTGRES_LOG, NoDocument, SourceError, SourceUnavailable
from driftless.lsn import parse_lsn
from driftless.views.sql import SETTINGS

ATTEMPTS = 2
"""How often a position is asked for: who waited behind one long transaction may have none before it the next time."""
_LIMITS = "set local jit = off; set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0"
"""A role's own limits are for short statements; this one reads a whole view."""
_TOLD_SECONDS = 3.0
_PAGE, _PAGE_SIZE = 5_000, 8 << 20
"""Rows of a page, and characters of its documents but for the last."""
_FEW = 4
_CHUNK = 16 if psycopg.pq.version() >= 170_000 else 1
"""Rows that the client has at a time: by a cursor it would have those of a whole page, which may be of 16 MiB each."""


@dataclass
class SourceSnapshot:
    """Every commit at or before `lsn`, and none after it. To be read by one thread, until it is closed."""

    lsn: int
    _connection: psycopg.Connection

    def documents(
        self, statement: str, keys: Sequence[str] | None = None, *, aside: bool = False
    ) -> Iterator[list[tuple[str, str]]]:
        """Pages of (key, document) of a statement of driftless/views/sql.py; `keys`: only of these. `aside`: `as_json`
        may be called between two pages.

        Holds no lock but the one that keeps a table from being changed by DDL while it is read. Raises
        SourceUnavailable where the connection breaks, and NoDocument where one cannot be made: then another statement
        may follow.
        """
        query = f"select key, document::text from ({statement}) x"
        if keys is not None:
            query = f"{query.replace('%', '%%')} where key = any(%s)"
        given = None if keys is None else (list(keys),)
        # The transaction is a savepoint.
        with _answers(self._connection), self._connection.transaction(), self._connection.cursor() as cursor:
            page, size = list[tuple[str, str]](), 0
            streamed = cursor.stream(query.encode(), given, size=_CHUNK)
            for key, text in self._aside(query, given) if aside else streamed:
                page.append((key, text))
                size += len(text)
                if len(page) == _PAGE or size > _PAGE_SIZE:
                    yield page
                    page, size = [], 0
            if page:
                yield page

    def _aside(self, query: str, given: tuple[list[str]] | None) -> Iterator[tuple[str, str]]:
        """Rows one after another, between which the connection may be asked for something else."""
        with self._connection.cursor(name=f"verify_{uuid.uuid4().hex[:8]}") as cursor:
            cursor.execute(query.encode(), given)
            while found := cursor.fetchmany(_FEW):
                yield from found

    def as_json(self, kind: str, text: str) -> str | None:
        """A value, by its type and its text, as `to_jsonb` shows it; None where that cannot."""
        try:
            with _answers(self._connection), self._connection.transaction():
                row = self._connection.execute(f"select to_jsonb(%s::{kind})::text".encode(), (text,)).fetchone()
        except NoDocument:
            return None
        return str(row[0]) if row else None

    def count(self, statement: str) -> int:
        """About how many documents a statement gives, as Postgres plans it: for progress alone."""
        with _answers(self._connection):
            plan = self._connection.execute(f"explain (format json) {statement}".encode()).fetchone()
        return int(plan[0][0]["Plan"]["Plan Rows"]) if plan else 0


def document(dsn: str, statement: str, key: str) -> str | None:
    """What a statement of driftless/views/sql.py gives of one key now; None where there is nothing."""
    connection = _connect(dsn)
    try:
        with _answers(connection):
            connection.execute(f"set default_transaction_read_only = on; {SETTINGS}".encode())
            query = f"select document::text from ({statement}) x where key = %s"
            row = connection.execute(query.encode(), (key,)).fetchone()
        return None if row is None else str(row[0])
    finally:
        connection.close()


@contextmanager
def moment(dsn: str, patience: float, report: Callable[[str], None]) -> Iterator[SourceSnapshot]:
    """Take a position of the source's log, and give what the source holds there until the block ends.

    A temporary replication slot exports the snapshot: it is made of the log, so it is a prefix of it, which a snapshot
    of any other transaction need not be. The slot is gone as soon as the snapshot is in use. Making it waits for
    every transaction that has written something, so it is bounded: `patience` seconds for each of `ATTEMPTS`.

    Raises SourceError, naming who held it up, where there was none by then.
    """
    connection = _connect(dsn)
    try:
        with _exported(dsn, connection, patience, report) as (lsn, snapshot), _answers(connection):
            connection.autocommit = False
            begin = "set transaction isolation level repeatable read, read only"
            connection.execute(f"{begin}; set transaction snapshot '{snapshot}'".encode())
        with _answers(connection):
            connection.execute(f"{_LIMITS}; {SETTINGS}".encode())
        yield SourceSnapshot(lsn, connection)
    finally:
        connection.close()


@contextmanager
def _exported(
    dsn: str, watcher: psycopg.Connection, patience: float, report: Callable[[str], None]
) -> Iterator[tuple[int, str]]:
    """A position and the name of its snapshot, which can be taken up until the block ends."""
    why = ""
    for _ in range(ATTEMPTS):
        walsender = _connect(make_conninfo(dsn, replication="database"))
        try:
            slot = _Slot(walsender)
            why = slot.wait(watcher, patience, report)
            if slot.made is not None:
                yield slot.made
                return
        finally:
            walsender.close()
    raise SourceError(
        f"the source gave no position to compare at within {ATTEMPTS} times {patience:g} s: {why}",
        hint="every transaction that has written something must end once first; end those, or give it more --patience",
    )


class _Slot:
    """A temporary slot on its way; `made`: its position and its snapshot."""

    def __init__(self, walsender: psycopg.Connection) -> None:
        self.made: tuple[int, str] | None = None
        self._walsender = walsender
        self._error: psycopg.Error | None = None
        self._thread = threading.Thread(target=self._make, name="slot", daemon=True)

    def _make(self) -> None:
        name = f"driftless_verify_{uuid.uuid4().hex[:12]}"
        # The old spelling of the option, which every version of Postgres takes.
        statement = f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
        try:
            with psycopg.ClientCursor(self._walsender) as cursor:  # the protocol of replication has no other
                row = cursor.execute(statement.encode()).fetchone()
            assert row is not None
            self.made = parse_lsn(row[1]), str(row[2])
        except psycopg.Error as exc:
            self._error = exc

    def wait(self, watcher: psycopg.Connection, patience: float, report: Callable[[str], None]) -> str:
        """Until it is made, or the time is up; then who held it up."""
        begun = time.monotonic()
        told, why = begun + _TOLD_SECONDS, "the server did not answer"
        self._thread.start()
        try:
            while self._thread.is_alive() and time.monotonic() < begun + patience:
                self._thread.join(0.1 if time.monotonic() < begun + 1 else 0.5)
                if self._thread.is_alive() and time.monotonic() >= min(told, begun + patience - 0.6):
                    why = blockers(_asking(watcher), self._walsender.info.backend_pid) or why
                    if time.monotonic() >= told:
                        told = time.monotonic() + max(_TOLD_SECONDS, patience / 3)
                        report(f"waiting for a position to compare at: {why}")
        finally:
            if self._thread.is_alive():
                with suppress(psycopg.Error):
                    self._walsender.cancel_safe(timeout=5)
                self._thread.join(5)
        if self._error is not None and not isinstance(self._error, psycopg.errors.QueryCanceled):
            raise _slot_error(self._error)
        return why


def _asking(connection: psycopg.Connection) -> Ask:
    def ask(statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with _answers(connection):
            return connection.execute(statement.encode(), parameters).fetchall()

    return ask


def _slot_error(exc: psycopg.Error) -> SourceError:
    if exc.sqlstate == "53400":
        return SourceError(
            "the source has no replication slot left: verify needs one for a moment",
            hint="raise max_replication_slots, or drop a slot that nobody uses",
        )
    if isinstance(exc, psycopg.OperationalError) and exc.sqlstate is None:
        return SourceUnavailable(f"Postgres broke off the connection: {' '.join(str(exc).split())}")
    return SourceError(
        f"Postgres gives verify no position to compare at: {exc.diag.message_primary or exc}",
        hint="source.dsn must lead to the primary, with a role that has REPLICATION; `driftless check` looks at both",
    )


def _connect(dsn: str) -> psycopg.Connection:
    try:
        return psycopg.connect(
            dsn, autocommit=True, connect_timeout=10, application_name="driftless verify", client_encoding="UTF8"
        )
    except psycopg.OperationalError as exc:
        reason = " ".join(str(exc).split())
        hint = "check source.dsn; verify needs one more of max_wal_senders for a moment"
        raise SourceUnavailable(f"Postgres cannot be reached: {reason}", hint=hint) from None


@contextmanager
def _answers(connection: psycopg.Connection) -> Iterator[None]:
    try:
        yield
    except psycopg.OperationalError as exc:
        if connection.closed or exc.sqlstate is None or exc.sqlstate.startswith(("57P", "08")):
            raise SourceUnavailable(f"Postgres: {' '.join(str(exc).split())}") from None
        raise SourceError(f"Postgres: {exc.diag.message_primary}", hint=POSTGRES_LOG) from None
    except psycopg.errors.InsufficientPrivilege as exc:
        raise SourceError(f"Postgres: {exc.diag.message_primary}", hint="give the role that right") from None
    except psycopg.DataError as exc:
        # Its own words quote the value.
        kind = f"{type(exc).__name__} ({exc.sqlstate})"
        raise NoDocument(f"Postgres cannot make a document of each row: {kind}") from None
    except psycopg.Error as exc:
        hint = "if the table changed, see `driftless plan`"
        raise SourceError(f"Postgres: {exc.diag.message_primary or 'the statement failed'}", hint=hint) from None
