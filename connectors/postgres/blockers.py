"""Who holds up a process of the server: named, so that somebody can end it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_BLOCKERS = """
select b.pid, a.application_name, a.usename, extract(epoch from clock_timestamp() - a.xact_start)::float8, a.state
from unnest(pg_blocking_pids(%s)) b(pid) left join pg_stat_activity a on a.pid = b.pid
order by a.xact_start nulls last
"""
_PREPARED = (
    "select gid, extract(epoch from clock_timestamp() - prepared)::float8 from pg_prepared_xacts order by prepared"
)
_MAKING = "select active_pid from pg_replication_slots where slot_name = %s and confirmed_flush_lsn is null"

Ask = Callable[..., list[tuple[Any, ...]]]
"""Runs a statement with its parameters, and gives the rows."""


def blockers(ask: Ask, pid: int) -> str:
    """Whom a process waits for: process, application, user, age; never what they run. Empty where for nobody."""
    found = ask(_BLOCKERS, pid)
    prepared = ask(_PREPARED) if any(row[0] == 0 for row in found) else []
    said = [_named(*row) for row in found if row[0] != 0]
    said += [f"the prepared transaction `{gid}`, {age:.0f} s old" for gid, age in prepared[:3]]
    return "it is held up by " + "; ".join(said) if said else ""


def slot_blockers(ask: Ask, slot: str) -> str:
    """Who holds up the making of a slot: it waits for every transaction that has written something. Empty where
    nobody does.
    """
    making = ask(_MAKING, slot)
    return blockers(ask, int(making[0][0])) if making and making[0][0] is not None else ""


def _named(pid: int, application: str | None, user: str | None, age: float | None, state: str | None) -> str:
    told = [f"application `{application}`" if application else "", f"user `{user}`" if user else ""]
    told += [f"{state}, " * bool(state) + f"its transaction is {age:.0f} s old" if age is not None else ""]
    return f"process {pid} ({', '.join(filter(None, told)) or 'of another user'})"
