"""What driftless makes of its own in the source: triggers that tell of TRUNCATE, and a table to ask Debezium by.

Debezium has no key for a TRUNCATE, so a trigger of each captured table writes a message. Signals go by a table, since
those of a topic are read in another thread than the stream, and the two then read chunks of a snapshot at once (seen).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from connectors.postgres.client import Postgres
from connectors.postgres.server import Partition
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
PARTITION_FUNCTION = f"{names.SCHEMA}.truncated_partition()"
# A TRUNCATE of the whole table also fires the triggers of its partitions, after the table's own and in one statement.
# The table's trigger tells the log of it. A message cannot tell of one partition, since no record says which partition
# its row was in.
_PARTITION_BODY = (
    " declare root oid := pg_partition_root(tg_relid); "
    "said text := format('%s %s %s', txid_current(), statement_timestamp(), root); "
    "begin if root = tg_relid then perform set_config('driftless.truncated', said, true); "
    "elsif current_setting('driftless.truncated', true) is distinct from said then "
    f"insert into {names.TRUNCATED_PARTITIONS} values (root, tg_relid); end if; return null; end "
)
_PARTITION_FUNCTION_SQL = (
    f"create or replace function {PARTITION_FUNCTION} returns trigger language plpgsql security definer "
    f"set search_path = pg_catalog, pg_temp as $${_PARTITION_BODY}$$"
)
_IS_OURS = """
select p.prosrc = %s and p.prosecdef
from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = %s and p.proname = %s
"""
_RIGHTS_OF_ALL = """
select has_table_privilege('public', c.oid, 'select, insert, update, delete, truncate')
from pg_class c join pg_namespace n on n.oid = c.relnamespace where format('%%I.%%I', n.nspname, c.relname) = %s
"""


Step = tuple[str, str, str, str]
"""Verb, object, reason and statement."""


def missing_objects(
    config: Config, source: Postgres, tables: Collection[str], partitions: Mapping[str, Sequence[Partition]]
) -> Iterator[Step]:
    """Verb, object, reason and statement for what is missing; all may be repeated.

    The trigger is of the whole statement: it costs other changes nothing. It also fires where a session says that it
    is a replica, as pg_restore does.
    """
    untold, signals = sorted(set(tables) - source.triggered()), names.signal_table(config.name)
    may_signal, knows = source.may_use(signals, "select", "insert"), source.may_use(names.TOKENS)
    ours = config.source.admin_dsn is None and source.may_create()
    why = "so that a TRUNCATE is told to the log"
    current = [row[0] for row in source.rows(_IS_OURS, _BODY, names.SCHEMA, "truncated")] == [True]
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
        yield from _trigger(names.TRUNCATE_TRIGGER, name, FUNCTION, why)
    yield from _of_partitions(source, partitions)
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


def _trigger(trigger: str, table: str, function: str, why: str) -> Iterator[Step]:
    made = f"create or replace trigger {trigger} after truncate on {quoted(table)}"
    yield "create", f"trigger {trigger} on {table}", why, f"{made} for each statement execute function {function}"
    yield "change", f"table {table}", why, f"alter table {quoted(table)} enable always trigger {trigger}"


def _of_partitions(source: Postgres, partitions: Mapping[str, Sequence[Partition]]) -> Iterator[Step]:
    """What tells of a TRUNCATE of one partition: a table, and a trigger of each that puts a row into it."""
    if not partitions:
        return
    why = "so that a TRUNCATE of one partition is seen"
    table, role = names.TRUNCATED_PARTITIONS, source.role()
    may = source.may_use(table)
    if may is None:
        columns = "(parent regclass, partition regclass, at timestamptz not null default clock_timestamp())"
        yield "create", f"table {table}", why, f"create table if not exists {table} {columns}"
    if may is None or _open_to_all(source, table):
        yield "revoke", f"table {table}", "from everybody", f"revoke all on {table} from public"
    if not may:
        yield "grant", f"table {table}", f"to {role}", f"grant select on {table} to {role}"
    if [row[0] for row in source.rows(_IS_OURS, _PARTITION_BODY, names.SCHEMA, "truncated_partition")] != [True]:
        yield "create", f"function {PARTITION_FUNCTION}", why, _PARTITION_FUNCTION_SQL
        closed = f"revoke execute on function {PARTITION_FUNCTION} from public"
        yield "revoke", f"function {PARTITION_FUNCTION}", "from everybody", closed
    told = source.triggered(names.PARTITION_TRIGGER)
    for parent, parts in sorted(partitions.items()):
        for name in (parent, *(part.full_name for part in parts if part.holds_rows)):
            if name not in told:
                yield from _trigger(names.PARTITION_TRIGGER, name, PARTITION_FUNCTION, why)


def _open_to_all(source: Postgres, full_name: str) -> bool:
    """Whether everybody has some right on a table of ours."""
    return any(row[0] for row in source.rows(_RIGHTS_OF_ALL, full_name))


def triggers(source: Postgres, table: str) -> Iterator[tuple[str, str]]:
    """Our triggers of a table, and of its partitions: the table or partition, and the trigger's name."""
    if table in source.triggered():
        yield table, names.TRUNCATE_TRIGGER
    found = source.table(table)
    if found is not None and found.partitioned:
        told = source.triggered(names.PARTITION_TRIGGER)
        parts = (part.full_name for part in source.partitions([found])[table])
        yield from ((name, names.PARTITION_TRIGGER) for name in (table, *parts) if name in told)


def drop_trigger(name: str, trigger: str = names.TRUNCATE_TRIGGER) -> str:
    """The statement that takes a trigger of one table away."""
    return f"drop trigger if exists {trigger} on {quoted(name)}"
