"""What driftless makes of its own in the source: triggers that tell of TRUNCATE, and a table to ask Debezium by.

Debezium has no key for a TRUNCATE, so a trigger of each captured table writes a message. Signals go by a table, since
those of a topic are read in another thread than the stream, and the two then read chunks of a snapshot at once (seen).
"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.pipeline.token import may_read
from connectors.postgres.client import Postgres
from driftless import names
from driftless.config.models import Config
from driftless.table import quoted

FUNCTION = f"{names.SCHEMA}.truncated()"
# Whoever truncates may not read the tokens, so the function has its owner's rights. A pipeline of an older version has
# a publication and no token: it is told as it expects.
_BODY = (
    " begin perform pg_logical_emit_message(true, 'driftless:' || pipeline || ':' || token || ':' || "
    f"json_build_array(tg_table_schema, tg_table_name)::text, '') from {names.TOKENS}; "
    "perform pg_logical_emit_message(true, 'driftless.truncate.' || format('%I.%I', tg_table_schema, tg_table_name), "
    "json_build_array(tg_table_schema, tg_table_name)::text) where exists (select from pg_publication p "
    "where starts_with(p.pubname::text, 'driftless_') "
    f"and not exists (select from {names.TOKENS} t where 'driftless_' || replace(t.pipeline, '-', '_') = p.pubname)); "
    "return null; end "
)
_FUNCTION_SQL = (
    f"create or replace function {FUNCTION} returns trigger language plpgsql security definer "
    f"set search_path = pg_catalog, pg_temp as $${_BODY}$$"
)
_IS_OURS = """
select p.prosrc = %s and p.prosecdef
from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = %s and p.proname = 'truncated'
"""
_RIGHTS_OF_ALL = """
select has_table_privilege('public', c.oid, 'select, insert, update, delete, truncate')
from pg_class c join pg_namespace n on n.oid = c.relnamespace where format('%%I.%%I', n.nspname, c.relname) = %s
"""


def missing_objects(config: Config, source: Postgres, tables: set[str]) -> Iterator[tuple[str, str, str, str]]:
    """Verb, object, reason and statement for what is missing; all may be repeated.

    The trigger is of the whole statement: it costs other changes nothing. It also fires where a session says that it
    is a replica, as pg_restore does.
    """
    untold, signals = sorted(tables - source.triggered()), names.signal_table(config.name)
    may_signal, knows = source.may_signal(signals), may_read(source)
    ours = config.source.admin_dsn is None and source.may_create()
    why = "so that a TRUNCATE is told to the log"
    current = [row[0] for row in source.rows(_IS_OURS, _BODY, names.SCHEMA)] == [True]
    if untold or may_signal is None or knows is None:
        yield (
            "create",
            f"schema {names.SCHEMA}",
            "for the following",
            f"create schema if not exists {names.SCHEMA}",
        )
    if knows is None:
        columns = "(pipeline text primary key, token text not null)"
        by = "by which each pipeline knows its own messages"
        yield "create", f"table {names.TOKENS}", by, f"create table if not exists {names.TOKENS} {columns}"
    if knows is None or _open_to_all(source, names.TOKENS):
        yield "revoke", f"table {names.TOKENS}", "from everybody", f"revoke all on {names.TOKENS} from public"
    if untold or not current:
        yield "create", f"function {FUNCTION}", why, _FUNCTION_SQL
        closed = f"revoke execute on function {FUNCTION} from public"
        yield "revoke", f"function {FUNCTION}", "from everybody", closed
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
    elif _open_to_all(source, signals):
        yield "revoke", f"table {signals}", "from everybody", f"revoke all on {quoted(signals)} from public"
    role, lacks = source.role(), (False,) if ours else (False, None)
    if may_signal in lacks or knows in lacks:
        yield "grant", f"schema {names.SCHEMA}", f"to {role}", f"grant usage on schema {names.SCHEMA} to {role}"
    if knows in lacks:
        yield "grant", f"table {names.TOKENS}", f"to {role}", f"grant select on {names.TOKENS} to {role}"
    if may_signal in lacks:
        yield "grant", f"table {signals}", f"to {role}", f"grant select, insert on {quoted(signals)} to {role}"


def _open_to_all(source: Postgres, full_name: str) -> bool:
    """Whether everybody has some right on a table of ours."""
    return any(row[0] for row in source.rows(_RIGHTS_OF_ALL, full_name))


def drop_trigger(name: str) -> str:
    """The statement that takes the trigger of one table away."""
    return f"drop trigger if exists {names.TRUNCATE_TRIGGER} on {quoted(name)}"
