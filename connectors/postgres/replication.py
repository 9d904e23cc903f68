"""What the source's address leads to, found out by trying: whether the log can be read there, and who answers."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from driftless.errors import SourceUnavailable

_SECONDS = 10
_SHARED = "driftless.session"
"""A setting of a session that nobody else has."""


def replication_refusal(dsn: str) -> str:
    """Why the server opens no connection by which its log is read; empty where it does.

    Attributes of the role do not say it: services give the right in ways of their own, and a role may log in as
    another than the one that it then has.
    """
    try:
        ask_walsender(dsn, "IDENTIFY_SYSTEM")
    except psycopg.Error as exc:
        return " ".join(str(exc).split()) or type(exc).__name__
    return ""


def ask_walsender(dsn: str, command: str) -> list[tuple[Any, ...]]:
    """What a command of the replication protocol gives. Raises psycopg.Error."""
    with (
        _connected(make_conninfo(dsn, replication="database")) as walsender,
        psycopg.ClientCursor(walsender) as cursor,  # the protocol of replication has no other
    ):
        cursor.execute(command.encode())
        return cursor.fetchall() if cursor.description else []


def names_another_process(connection: psycopg.Connection) -> bool:
    """Whether somebody stands between us and the server, and gives names of processes of its own.

    That may be a pooler, or a service's gateway that hands one server connection to one client.
    """
    row = connection.execute("select pg_backend_pid()").fetchone()
    return row is not None and row[0] != connection.info.backend_pid


def shares_sessions(dsn: str, connection: psycopg.Connection) -> bool:
    """Whether a pooler gives two clients one session of the server: what one of them sets, the other one has.

    Its settings would get into other applications' sessions, and theirs into ours. Raises SourceUnavailable.
    """
    token = uuid.uuid4().hex
    connection.execute(sql.SQL("set {} = {}").format(sql.Identifier(*_SHARED.split(".")), sql.Literal(token)))
    try:
        with _connected(dsn) as other:
            row = other.execute("select current_setting(%s, true)", (_SHARED,), prepare=False).fetchone()
    except psycopg.Error as exc:
        raise SourceUnavailable(f"Postgres cannot be reached a second time: {' '.join(str(exc).split())}") from None
    return row is not None and row[0] == token


def _connected(dsn: str) -> psycopg.Connection:
    return psycopg.connect(dsn, autocommit=True, connect_timeout=_SECONDS, application_name="driftless check")


def reached(connection: psycopg.Connection) -> dict[str, Any]:
    """The parameters of a connection, as libpq names them, of the server that was reached."""
    info = connection.info
    given = info.get_parameters()
    # A name may lead elsewhere than the address that was given with it; for the name's sake a certificate is looked at.
    named = "hostaddr" not in given or given.get("sslmode") == "verify-full"
    where = {"host": info.host if named else info.hostaddr, "port": info.port, "user": info.user, "dbname": info.dbname}
    return given | where | ({"password": info.password} if info.password else {})
