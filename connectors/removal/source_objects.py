"""What `apply` made in the source: found, and taken away."""

from __future__ import annotations

import time
from collections.abc import Iterator

from connectors.failover.takeover import same_database
from connectors.pipeline.objects import FUNCTION, PARTITION_FUNCTION, drop_trigger
from connectors.pipeline.owners import twins
from connectors.pipeline.plan_context import Action, PlanContext, bind
from connectors.pipeline.resnapshot import STOP_SECONDS
from connectors.postgres.client import Postgres
from driftless import names
from driftless.config.models import Config
from driftless.counted import counted
from driftless.errors import ConfigError, SourceError
from driftless.facts.epochs import registered_tables
from driftless.facts.state import State
from driftless.table import join_name, quoted, split_name

Left = tuple[str, str]
"""What is not taken away, and why, with what to do about it."""
_OTHERS = "select pubname::text from pg_publication where starts_with(pubname::text, 'driftless_') and pubname <> %s"
_THERE = "select to_regclass(%s) is not null"
_FUNCTION_THERE = "select to_regprocedure(%s) is not null"
_TRIGGERED = """
select n.nspname::text, c.relname::text, rn.nspname::text, r.relname::text
from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
join pg_class r on r.oid = coalesce(pg_partition_root(c.oid), c.oid) join pg_namespace rn on rn.oid = r.relnamespace
where t.tgname = %s and not t.tgisinternal order by 1, 2
"""
_SCHEMA_THERE = "select exists (select from pg_namespace where nspname = %s)"
_IDENTITIES = """
select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
join unnest(%s::text[], %s::text[]) as t(schema, name) on n.nspname = t.schema and c.relname = t.name
where c.relreplident in ('f', 'i')
"""


def plan_source(config: Config, context: PlanContext, state: State, existing: set[str]) -> list[Action]:
    """The steps, in the order in which they can be done; none for what is another pipeline's, or of another server.

    Raises ConfigError where the slot is another pipeline's too: all of it would be taken from that one.
    """
    slot = names.slot(config.name)
    for other in twins(config.name, context, existing):
        raise ConfigError(
            f"the slot and the publication {slot} are those of the pipeline `{other}` as well, since `-` is written as "
            "`_` there",
            hint=f"destroy `{other}` if you mean that one; this pipeline was never applied to this server",
        )
    actions = []
    if context.source.slot(slot) is not None:
        sql = f"select pg_drop_replication_slot('{slot}')"
        actions.append(Action("drop", f"slot {slot}", sql=sql, do=bind(_drop_slot, context, slot)))
    known = _known_pipelines(context)
    alone = not context.source.rows(_OTHERS, names.publication(config.name)) and not known - {config.name}
    actions += _triggers(config, context, state, alone=alone)
    publication = names.publication(config.name)
    if context.source.publication(publication) is not None:
        actions.append(_statement(context, f"publication {publication}", f"drop publication if exists {publication}"))
    signals = names.signal_table(config.name)
    if context.source.rows(_THERE, signals)[0][0]:
        actions.append(_statement(context, f"table {signals}", f"drop table if exists {quoted(signals)}"))
    if alone:
        return [*actions, *_own_schema(context)]
    if config.name in known:
        gone = f"delete from {names.TOKENS} where pipeline = '{config.name}'"
        actions.append(_statement(context, "token of the pipeline", gone))
    return actions


def _drop_slot(context: PlanContext, slot: str) -> None:
    """Once the connector, which has been told to stop, has left it."""
    deadline = time.monotonic() + STOP_SECONDS
    while (found := context.source.slot(slot)) is not None:
        if not found.active:
            context.source.drop_slot(slot)
        elif time.monotonic() > deadline:
            raise SourceError(
                f"the slot {slot} is still in use after {STOP_SECONDS:.0f} s",
                hint="something reads from it: `select active_pid from pg_replication_slots` says who; end that",
            )
        else:
            time.sleep(0.2)


def _known_pipelines(context: PlanContext) -> set[str]:
    """Those of this database that have a token."""
    if not context.source.rows(_THERE, names.TOKENS)[0][0]:
        return set()
    return {str(row[0]) for row in context.admin.rows(f"select pipeline from {names.TOKENS}")}


def _triggers(config: Config, context: PlanContext, state: State, *, alone: bool) -> Iterator[Action]:
    """Those of our tables that no other pipeline captures; where there is no other, all of that name."""
    ours = config.source.tables.keys() | registered_tables(state)
    for trigger in (names.TRUNCATE_TRIGGER, names.PARTITION_TRIGGER):
        for schema, name, root_schema, root_name in context.source.rows(_TRIGGERED, trigger):
            table, root = join_name(schema, name), join_name(root_schema, root_name)
            others = context.source.publications(root) - {names.publication(config.name)}
            if alone or (root in ours and not any(name.startswith("driftless_") for name in others)):
                yield _statement(context, f"trigger of {table}", drop_trigger(table, trigger))


def _own_schema(context: PlanContext) -> Iterator[Action]:
    """What all pipelines of a database share: it goes with the last."""
    source = context.source
    for function in (FUNCTION, PARTITION_FUNCTION):
        if source.rows(_FUNCTION_THERE, function)[0][0]:
            yield _statement(context, f"function {function}", f"drop function if exists {function}")
    for table in (names.TOKENS, names.TRUNCATED_PARTITIONS):
        if source.rows(_THERE, table)[0][0]:
            yield _statement(context, f"table {table}", f"drop table if exists {table}")
    if source.rows(_SCHEMA_THERE, names.SCHEMA)[0][0]:
        yield _statement(context, f"schema {names.SCHEMA}", f"drop schema if exists {names.SCHEMA}")


def _statement(context: PlanContext, what: str, sql: str) -> Action:
    return Action("drop", what, sql=sql, do=bind(context.admin.execute, sql))


def left_in_source(config: Config, source: Postgres) -> Iterator[Left]:
    """What stays as `apply` has set it: nobody knows whether others have come to need it."""
    wanted = [split_name(table) for table in sorted(config.source.tables)]
    ((tables,),) = source.rows(_IDENTITIES, [schema for schema, _ in wanted], [name for _, name in wanted])
    if tables:
        yield (
            f"the replica identity of {counted(tables, 'table')}",
            "other readers of the log may need it; `alter table NAME replica identity default` takes it back",
        )


def is_other_source(source: Postgres, state: State) -> bool:
    """Whether the pipeline was applied to another server or database, in which the same names mean something else."""
    known = state.get("pipeline/identity")
    return known is not None and not same_database(known, source.identity())
