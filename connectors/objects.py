"""What driftless makes of its own in the source: triggers that tell of TRUNCATE, and a table to ask Debezium by.

Debezium has no key for a TRUNCATE, so a trigger of each captured table writes a message. Signals go by a table, since
those of a topic are read in another thread than the stream, and the two then read chunks of a snapshot at once (seen).
"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.postgres import Postgres
from driftless import names
from driftless.config import Config
from driftless.table import quoted

FUNCTION = f"{names.SCHEMA}.truncated()"
_FUNCTION_SQL = (
    f"create or replace function {FUNCTION} returns trigger language plpgsql as $$ begin "
    f"perform pg_catalog.pg_logical_emit_message(true, '{names.TRUNCATE_PREFIX}' || "
    "pg_catalog.format('%I.%I', tg_table_schema, tg_table_name), "
    "pg_catalog.json_build_array(tg_table_schema, tg_table_name)::text); return null; end $$"
)


def missing_objects(config: Config, source: Postgres, tables: set[str]) -> Iterator[tuple[str, str, str, str]]:
    """Verb, object, reason and statement for what is missing; all may be repeated.

    The trigger is of the whole statement: it costs other changes nothing. It also fires where a session says that it
    is a replica, as pg_restore does.
    """
    untold, signals = sorted(tables - source.triggered()), names.signal_table(config.name)
    may_signal = source.may_signal(signals)
    why = "so that a TRUNCATE is told to the log"
    if untold or may_signal is None:
        yield (
            "create",
            f"schema {names.SCHEMA}",
            "for the following",
            f"create schema if not exists {names.SCHEMA}",
        )
    if untold:
        yield "create", f"function {FUNCTION}", why, _FUNCTION_SQL
    for name in untold:
        trigger = f"create or replace trigger {names.TRUNCATE_TRIGGER} after truncate on {quoted(name)}"
        told = f"{trigger} for each statement execute function {FUNCTION}"
        yield "create", f"trigger {names.TRUNCATE_TRIGGER} on {name}", why, told
        enabled = f"alter table {quoted(name)} enable always trigger {names.TRUNCATE_TRIGGER}"
        yield "change", f"table {name}", why, enabled
    why = "by which Debezium is asked for the snapshot of a table"
    if may_signal is None:
        columns = "(id text primary key, type text not null, data text)"
        yield "create", f"table {signals}", why, f"create table if not exists {quoted(signals)} {columns}"
    ours = config.source.admin_dsn is None and source.may_create()
    if may_signal is False or (may_signal is None and not ours):
        role = source.role()
        yield "grant", f"schema {names.SCHEMA}", f"to {role}", f"grant usage on schema {names.SCHEMA} to {role}"
        yield "grant", f"table {signals}", f"to {role}", f"grant select, insert on {quoted(signals)} to {role}"


def drop_trigger(name: str) -> str:
    """The statement that takes the trigger of one table away."""
    return f"drop trigger if exists {names.TRUNCATE_TRIGGER} on {quoted(name)}"
