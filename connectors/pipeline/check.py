"""The preflight: everything that must be true of the source, Kafka and Connect, all of it at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from connectors.debezium.connector import topic_plan
from connectors.debezium.source_address import address_faults
from connectors.failover.standbys import unawaited_standbys
from connectors.pipeline.event_tables import table_faults, with_columns
from connectors.pipeline.guard import connector_trouble, topic_troubles, troubles
from connectors.pipeline.owners import taken
from connectors.pipeline.plan_context import PlanContext
from connectors.pipeline.streams import topic_faults
from connectors.pipeline.token import untrusted
from connectors.pipeline.views import view_source
from connectors.postgres.catalogue import CatalogueLook, gone_columns
from connectors.postgres.client import Postgres, captured_tables
from connectors.postgres.relations import (
    column_meetings,
    meetings,
    relation_obstacles,
    table_obstacles,
    topic_meetings,
    view_meetings,
)
from connectors.postgres.rights import missing_rights, provider
from connectors.postgres.server import BY_PARTITION
from driftless import names
from driftless.config.models import Config
from driftless.config.views import conditions
from driftless.control.topic import SETTINGS
from driftless.counted import counted
from driftless.facts.state import State
from driftless.facts.streams import AnalysedStream
from driftless.kafka.many_topics import refusals
from driftless.suggest import did_you_mean
from driftless.table import Table
from driftless.types import refusal
from driftless.views.resolve import resolve
from driftless.where.clause import Where, parse

OLDEST = 140000


@dataclass(frozen=True)
class Finding:
    """`fatal`: nothing may start before it is mended; otherwise something to know. `planned`: a plan mends it."""

    what: str
    fatal: bool = True
    planned: bool = False

    def __str__(self) -> str:
        return f"{'error' if self.fatal else 'note'}: {self.what}"


def check(
    config: Config,
    context: PlanContext,
    streams: Mapping[str, AnalysedStream] | None = None,
    *,
    resnapshot: bool = False,
) -> list[Finding]:
    """What stands in the way, and what an operator should know. Changes nothing.

    `streams`: as Spark has analysed them. `resnapshot`: all tables are re-snapshotted, so the source may be another
    server, or have another history.
    """
    tables = captured_tables(context.source, config)
    computed = {name: stream.table for name, stream in (streams or {}).items()}
    return [
        *server_findings(context.source),
        *map(Finding, address_faults(context.source.parameters, config.connect)),
        *_rights(config, context.source, tables),
        *_tables(config, context.source, tables),
        *_views(config, context.source, tables, computed, lambda: _gone(context, tables)),
        *_events(config, context, tables),
        *_log(config, context, resnapshot=resnapshot),
    ]


def server_findings(source: Postgres) -> Iterator[Finding]:
    """What is wrong with the server itself, or with the way to it."""
    server = source.server()
    if server.version < OLDEST:
        yield Finding(f"Postgres {server.version // 10000} is too old: {OLDEST // 10000} or newer is needed")
    if server.is_standby:
        yield Finding("source.dsn leads to a standby, and driftless writes markers into the log: name the primary")
    if server.wal_level != "logical":
        yield Finding(f"wal_level is {server.wal_level}: {provider(source).logical}")
    if source.is_pooled():
        yield Finding(f"source.dsn leads to a pooler, which gives others our sessions: {provider(source).direct}")
    elif server.has_replication and (reason := source.replication_refusal()):
        between = f". What answers is a pooler or a gateway: {provider(source).direct}"
        said = f"{reason}{between if source.is_behind_another() else ''}"
        yield Finding(f"the role {server.login} gets no connection by which the log is read: {said}")
    if standbys := unawaited_standbys(source):
        yield Finding(
            f"the standby behind the slot {standbys[0]} may be behind what followers show when it is promoted: all "
            f"tables are re-snapshotted then. Set synchronized_standby_slots = '{', '.join(standbys)}', as in "
            "docs/operating.md",
            fatal=False,
        )


def _rights(config: Config, source: Postgres, tables: dict[str, Table | None]) -> Iterator[Finding]:
    for right in missing_rights(config, source, tables):
        yield Finding(f"{right.subject} {right.lacks}: run `{right.statement}`", planned=True)


def _tables(config: Config, source: Postgres, tables: dict[str, Table | None]) -> Iterator[Finding]:
    relations = source.relations()
    whole: dict[str, Table] = {}
    found_tables = source.tables(dict.fromkeys(tables, ()))
    for name, table in tables.items():
        relation = relations.get(name)
        if relation is None:
            what = f"there is no table {name}{did_you_mean(name, relations)}"
            yield Finding(config.at(("source", "tables", name), what))
            continue
        for obstacle in relation_obstacles(relation):
            yield Finding(f"{name} {obstacle}")
        found = found_tables.get(name)
        if table is not None and found is not None:
            whole[name] = found
            yield from _columns(config, name, table, found)
    for name, partitions in source.partitions(whole.values()).items():
        for partition in partitions:
            if partition.full_name in config.source.tables:
                at = ("source", "tables", partition.full_name)
                yield Finding(config.at(at, f"it is a partition of {name}, in whose topic its rows are: take one out"))
            if obstacle := partition.obstacle():
                yield Finding(f"{name}: {obstacle}")
    excluded = {name: config.source.tables[name].exclude for name in whole}
    for name, reason in (*meetings(whole, relations), *column_meetings(whole, excluded)):
        yield Finding(f"{name} {reason}")


def _columns(config: Config, name: str, table: Table, whole: Table) -> Iterator[Finding]:
    for obstacle in table_obstacles(whole):
        yield Finding(f"{name} {obstacle}")
    for number, column in enumerate(config.source.tables[name].exclude):
        at = ("source", "tables", name, "exclude", number)
        if whole.column(column) is None:
            known = did_you_mean(column, [c.name for c in whole.columns])
            yield Finding(config.at(at, f"there is no column {column}{known}"))
        elif column in table.key:
            yield Finding(config.at(at, f"{column} belongs to the key and cannot be left out"))
    for column_ in table.columns:
        reason = refusal(column_)
        if reason is not None and column_.name not in table.key:
            yield Finding(f"{name}: the column {column_.name} {reason}; documents leave it out", fatal=False)


def _gone(context: PlanContext, tables: dict[str, Table | None]) -> Mapping[tuple[str, str], str]:
    if not context.control.exists():
        return {}
    return gone_columns(context.control.read(), {name: table for name, table in tables.items() if table is not None})


def _views(
    config: Config,
    source: Postgres,
    tables: dict[str, Table | None],
    streams: Mapping[str, Table] | None = None,
    gone: Callable[[], Mapping[tuple[str, str], str]] = dict,
) -> Iterator[Finding]:
    captured = {name: table for name, table in tables.items() if table is not None}
    facts = view_source(config, source, captured, gone, streams)
    for name, view in config.views.items():
        tree, problems = resolve(name, view, facts)
        for at, what in problems:
            yield Finding(config.at(at, what))
        if tree is not None and tree.sorts_text and (encoding := source.encoding()) != "UTF8":
            yield Finding(config.at(("views", name), f"lists are in the order of UTF8; this database has {encoding}"))
        for at, table, text in conditions(view, view.root_table, ("views", name)):
            if (found := facts.tables.get(table)) is not None:
                yield from _where(config, at, parse(text), found, source, gone)


def _where(
    config: Config,
    at: tuple[str, ...],
    where: Where,
    table: Table,
    source: Postgres,
    gone: Callable[[], Mapping[tuple[str, str], str]],
) -> Iterator[Finding]:
    captured = config.source.tables.get(table.full_name)
    excluded = captured.exclude if captured else ()
    enums = [column.name for column in table.columns if column.kind == "e" and column.name in where.columns]
    labels = {column: source.labels(table.full_name, column) for column in enums}
    refusals = where.refusals(table, excluded=excluded, labels=labels)
    if any(table.column(column) is None for column in where.columns):
        refusals = where.refusals(table, excluded=excluded, labels=labels, gone=gone())
    for problem in refusals:
        yield Finding(config.at(at, problem))
    if not refusals and where.orders_text(table) and (encoding := source.encoding()) != "UTF8":
        yield Finding(config.at(at, f"text has the order of UTF8 in the log; this database has {encoding}"))


def _events(config: Config, context: PlanContext, tables: Mapping[str, Table | None]) -> Iterator[Finding]:
    for at, what in (*topic_faults(config, context.kafka), *table_faults(with_columns(config, tables), tables)):
        yield Finding(config.at(at, what))


def _refused_topics(config: Config, context: PlanContext, existing: Collection[str]) -> Iterator[Finding]:
    """Topics that the brokers would not make: a policy of names, a smaller limit, too few brokers, a missing right."""
    heartbeat = names.heartbeat_topic(config.name, config.kafka.heartbeat_prefix)
    if heartbeat in (names.table_topic(config.name, table) for table in config.source.tables):
        at = ("kafka", "heartbeat_prefix")
        yield Finding(config.at(at, f"gives Debezium's own topic the name of a table's, {heartbeat}"))
    wanted = {context.control.topic: (1, SETTINGS), **topic_plan(config)}
    missing = {name: how for name, how in wanted.items() if name not in existing}
    by_reason: dict[str, list[str]] = {}
    for name, reason in refusals(context.kafka, config.kafka.replication, missing).items():
        by_reason.setdefault(reason, []).append(name)
    for reason, refused in by_reason.items():
        more = f" and {counted(len(refused) - 1, 'more topic')}" if len(refused) > 1 else ""
        yield Finding(f"the brokers would not make the topic {refused[0]}{more}: {reason}")


def _log(config: Config, context: PlanContext, *, resnapshot: bool) -> Iterator[Finding]:
    existing = context.kafka.topics()
    for name, reason in topic_meetings(config.name, config.source.tables, existing):
        yield Finding(f"{name} {reason}")
    views = [view for view, declared in config.views.items() if declared.joined]
    for name, reason in view_meetings(config.name, config.source.tables, views):
        yield Finding(f"{name} {reason}")
    state = context.control.read() if context.control.topic in existing else State({})
    for reason in taken(config, context, state, existing):
        yield Finding(config.at(("name",), reason))
    yield from _refused_topics(config, context, existing)
    if state.get("pipeline/identity") is None:
        left = [topic for name in config.source.tables if (topic := names.table_topic(config.name, name)) in existing]
        captures = context.connect.config(names.connector(config.name)) is not None
        if captures or (left and context.control.topic not in existing):
            # Epochs and generations would begin at 1 again, below what the stores hold.
            there = "its connector" if captures else f"the topic {left[0]}"
            yield Finding(
                f"the topic {context.control.topic} is gone or empty, and there is {there}: this was applied before; "
                "take it away as docs/getting-started.md says, or give this one another `name`"
            )
        return
    if said := untrusted(context.source, config.name, state):
        yield Finding(said, fatal=False)
    for table, reason in CatalogueLook.of(config, context.source).changes(state):
        yield Finding(f"{table} changed: {reason}; see `driftless plan`", planned=True)
    told = context.connect.state(names.connector(config.name))
    held = connector_trouble(config.name, told, context.source, context.kafka)
    if held is not None:
        yield Finding(str(held), planned=True)
    for trouble in troubles(config, context.source, context.connect, state):
        yield Finding(str(trouble), planned=resnapshot or not trouble.history)
    publication = names.publication(config.name)
    for name, how in context.source.carried(publication).items():
        _, _, part = how.partition(" ")
        if part and part != BY_PARTITION and name in config.source.tables:
            yield Finding(f"the publication {publication} carries only {part} of {name}: it must carry the whole table")
    for trouble in topic_troubles(config, context.kafka, state):
        yield Finding(str(trouble), planned=True)
