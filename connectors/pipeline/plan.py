"""What `apply` would do, and doing it. Every action is decided from what is found, so a second run finds nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from connectors.debezium.connector import connector_settings, topic_plan
from connectors.debezium.fetching import fetching
from connectors.debezium.starting import START_SECONDS, await_running
from connectors.failover.fence import FAILOVER_SINCE, fence
from connectors.pipeline.capture import plan_capture, plan_removal
from connectors.pipeline.objects import missing_objects
from connectors.pipeline.plan_context import Action, PlanContext, bind
from connectors.pipeline.resnapshot import plan_renewal, remake, stop_by
from connectors.pipeline.streams import plan_streams, plan_streams_removal
from connectors.pipeline.token import plan_token
from connectors.pipeline.views import plan_builds, plan_views_removal
from connectors.postgres.catalogue import LEAVING, identity
from connectors.postgres.client import captured_tables
from connectors.postgres.rights import missing_rights
from connectors.postgres.server import Slot
from driftless import names
from driftless.config.models import Config
from driftless.control.begin import begin, begin_first
from driftless.control.topic import SETTINGS
from driftless.counted import counted
from driftless.errors import SourceError
from driftless.facts.builds import Build, newest_build
from driftless.facts.epochs import FollowedTable, registered_log
from driftless.facts.followed_log import FollowedLog
from driftless.facts.generation import Generation, define, newest, next_number
from driftless.facts.state import State
from driftless.facts.streams import AnalysedStream, StreamBuild
from driftless.kafka.many_topics import create_topics, describe, settings_in_force
from driftless.kafka.topic_settings import log_settings
from driftless.table import Table, quoted


def make_plan(
    config: Config,
    context: PlanContext,
    secret: str | None,
    streams: Mapping[str, AnalysedStream] | None = None,
    *,
    resnapshot: bool = False,
) -> list[Action]:
    """Everything that is not yet as the configuration says, in the order in which it must be done.

    `streams`: of the configuration, as Spark has analysed them. `resnapshot`: all tables are re-snapshotted, whether
    that is called for or not.
    """
    tables = {name: table for name, table in captured_tables(context.source, config).items() if table is not None}
    existing = context.kafka.topics()
    state = context.control.read() if context.control.topic in existing else State({})
    renewal = plan_renewal(config, context, state, resnapshot=resnapshot)
    capture = plan_capture(config, context, tables, state, renewed=bool(renewal))
    computing, computed = plan_streams(config, context, tables, state, streams or {}, capture.epochs)
    building, builds = plan_builds(config, context, tables, state, capture.epochs, computed, renewed=bool(renewal))
    before, after = plan_token(config.name, context, state)
    return [
        *_rights(config, context, tables),
        *_database(config, context, tables, state),
        *_topics(config, context, state, existing),
        *before,
        *capture.facts,
        *renewal,
        *_connector(config, context, secret, tables, renewed=bool(renewal)),
        # Followers wait for the epoch that a snapshot begins, and views for a stream: so that whatever is interrupted,
        # both come about.
        *building,
        *computing,
        *_followers(config, context, state, _logs(config, tables, capture.epochs, builds, computed)),
        *capture.snapshots,
        *plan_views_removal(config, context, state, existing),
        *plan_streams_removal(config, context, state, existing),
        *plan_removal(config, context, state, existing),
        *after,
    ]


def _rights(config: Config, context: PlanContext, tables: dict[str, Table]) -> list[Action]:
    rights = missing_rights(config, context.source, tables)
    return [
        Action(
            "grant",
            right.subject,
            f"it {right.lacks}",
            right.statement,
            together=context.execute,
            part=right.statement,
        )
        for right in rights
    ]


def _database(config: Config, context: PlanContext, tables: dict[str, Table], state: State) -> list[Action]:
    actions, execute = [], context.execute

    def add(verb: str, what: str, detail: str, statement: str) -> None:
        actions.append(Action(verb, what, detail, statement, together=execute, part=statement))

    partitions = context.source.partitions(tables.values())
    kept = [(table, name, table.replica_identity) for name, table in tables.items() if not table.partitioned]
    kept += [(tables[name], p.full_name, p.identity) for name, ps in partitions.items() for p in ps if p.holds_rows]
    for table, name, found in kept:
        if other := identity(table, found):
            kind, why = other
            statement = f"alter table {quoted(name)} replica identity {kind}"
            add("change", f"table {name}", f"replica identity {kind}{why}", statement)
    for verb, what, why, statement in missing_objects(config, context.source, tables, partitions):
        add(verb, what, why, statement)
    publication = names.publication(config.name)
    carried, wanted = context.source.publication(publication), {*tables, names.signal_table(config.name)}
    by_root = "publish_via_partition_root = true" if partitions else ""
    if carried is None:
        listed = ", ".join(quoted(name) for name in sorted(wanted))
        add(
            "create",
            f"publication {publication}",
            counted(len(tables), "table"),
            f"create publication {publication} for table {listed}{f' with ({by_root})' if by_root else ''}",
        )
    else:
        if by_root and not context.source.publishes_by_root(publication):
            why = "the rows of partitions under the names of their tables"
            add("change", f"publication {publication}", why, f"alter publication {publication} set ({by_root})")
        for name in sorted(wanted - carried):
            add(
                "change",
                f"publication {publication}",
                f"add {name}",
                f"alter publication {publication} add table {quoted(name)}",
            )
        for name in sorted(carried - wanted):
            statement = f"alter publication {publication} drop table {quoted(name)}"
            do = bind(_take_out, context, state, name, statement)
            actions.append(Action("change", f"publication {publication}", f"drop {name}", statement, do))
    return actions


def _take_out(context: PlanContext, state: State, table: str, statement: str) -> None:
    """A run that was started before must not take it for missing; put back, it is re-snapshotted."""
    known = state.get(f"carried/{table}")
    if known is not None:
        context.control.write({f"carried/{table}": {**known, LEAVING: True}})
    context.admin.execute(statement)


def _topics(config: Config, context: PlanContext, state: State, existing: set[str]) -> list[Action]:
    actions = []

    def create(parts: Sequence[tuple[str, tuple[int, dict[str, str]]]]) -> None:
        create_topics(context.kafka, config.kafka.replication, dict(parts))

    wanted = {context.control.topic: (1, SETTINGS), **topic_plan(config)}
    there = describe(context.kafka, wanted.keys() & existing)
    in_force = settings_in_force(context.kafka, there)
    registered = {log.topic: log.partitions for table in config.source.tables if (log := registered_log(state, table))}
    for name, (partitions, settings) in wanted.items():
        found = there.get(name)
        if found is None:
            detail = f"{counted(partitions, 'partition')}, {settings['cleanup.policy']}"
            part = (name, (partitions, settings))
            actions.append(Action("create", f"topic {name}", detail, together=create, part=part))
            continue
        if found.partitions != partitions == registered.get(name):
            detail = f"it has {counted(found.partitions, 'partition')}, and {partitions} are registered"
            do = bind(_recreate, config, context, name, partitions, settings)
            actions.append(Action("make anew", f"topic {name}", detail, do=do))
            continue
        if found.partitions != partitions:
            raise SourceError(
                f"the topic {name} has {counted(found.partitions, 'partition')}, sync.yaml says {partitions}",
                hint="the count is frozen once the topic is made: versions rest on it. Put the old number back",
            )
        actions += _settings(context, name, settings, in_force[name])
    return [*actions, *_view_topics(config, context, state, existing)]


def _view_topics(config: Config, context: PlanContext, state: State, existing: set[str]) -> list[Action]:
    """Settings alone: builds make their topics, and one whose topic is gone is replaced by another build."""
    found = (newest_build(state, name) for name, view in config.views.items() if view.joined)
    logs = {build.log.topic: log_settings(build.retention) for build in found if build and build.log}
    in_force = settings_in_force(context.kafka, logs.keys() & existing)
    return [action for name, actual in in_force.items() for action in _settings(context, name, logs[name], actual)]


def _settings(
    context: PlanContext, topic: str, wanted: Mapping[str, str], actual: Mapping[str, str]
) -> Iterator[Action]:
    wrong = {key: value for key, value in wanted.items() if actual.get(key) != value}
    if wrong:
        detail = ", ".join(f"{key}={value} (is {actual.get(key)})" for key, value in wrong.items())
        yield Action("change", f"topic {topic}", detail, do=bind(context.kafka.alter_topic, topic, wrong))


def _recreate(config: Config, context: PlanContext, name: str, partitions: int, settings: dict[str, str]) -> None:
    """Delete a topic and make it again; nobody writes to it meanwhile."""
    connector = names.connector(config.name)
    context.connect.stop(connector)
    stop_by(context, names.slot(config.name), connector)
    remake(context.kafka, name, partitions, settings)
    context.connect.resume(connector)
    _await_running(config, context)


def _connector(
    config: Config, context: PlanContext, secret: str | None, tables: dict[str, Table], *, renewed: bool
) -> list[Action]:
    name = names.connector(config.name)
    wanted = {**connector_settings(config, context.source.parameters, secret, tables), "name": name}
    actual = context.connect.config(name)
    wanted |= fetching(context.source, tables.values(), wanted, None if renewed else actual)
    server = context.source.server()
    wanted |= fence(server.version, server.timeline)

    def put() -> None:
        before, rests = context.source.slot(names.slot(config.name)), stopped
        if server.version >= FAILOVER_SINCE and before is not None and not before.failover and actual is not None:
            context.connect.stop(name)
            stop_by(context, before.name, name)
            context.source.walsender(f"ALTER_REPLICATION_SLOT {before.name} (FAILOVER true)")
            rests = True
        context.connect.put(name, wanted)
        if before is not None and before.active:
            _await_left(context, before, name)
        resume() if rests else _await_running(config, context)

    def resume() -> None:
        context.connect.resume(name)
        _await_running(config, context)

    stopped = renewed or context.connect.state(name)[0] in ("STOPPED", "PAUSED")
    if actual is None:
        return [Action("create", f"connector {name}", do=put)]
    changed = sorted(key for key in {*wanted, *actual} if wanted.get(key) != actual.get(key))
    if changed:
        return [Action("change", f"connector {name}", ", ".join(changed), do=put)]
    if stopped:
        return [Action("resume", f"connector {name}", do=resume)]
    if context.connect.state(name)[0] == "FAILED":

        def restart() -> None:
            context.connect.restart(name)
            _await_running(config, context)

        return [Action("restart", f"connector {name}", context.connect.state(name)[1], do=restart)]
    return []


def _await_running(config: Config, context: PlanContext) -> None:
    connector, slot = names.connector(config.name), names.slot(config.name)
    await_running(context.connect, context.source, connector, slot, context.tell)


def _await_left(context: PlanContext, before: Slot, connector: str) -> None:
    """Return once the task of the settings before has left the slot: until then it writes messages as they said."""
    deadline = time.monotonic() + START_SECONDS
    while (found := context.source.slot(before.name)) is not None and found.reader == before.reader:
        if time.monotonic() > deadline:
            raise SourceError(
                f"the connector did not restart with its new settings within {START_SECONDS:.0f} s",
                hint=f"restart the Connect worker, or the connector {connector}, then apply again",
            )
        time.sleep(0.2)


def _logs(
    config: Config,
    tables: Mapping[str, Table],
    epochs: Mapping[str, int],
    builds: Mapping[str, Build],
    computed: Mapping[str, StreamBuild],
) -> dict[str, tuple[Table, FollowedLog]]:
    """View or stream -> what its documents are made of, and the log that followers of it are to read."""
    found: dict[str, tuple[Table, FollowedLog]] = {}
    for name, view in config.views.items():
        table = computed[view.stream].table if view.stream in computed else tables.get(view.root)
        if view.joined and table is not None and name in builds:
            found[name] = table, builds[name].followed
        elif not view.joined and table is not None:
            found[name] = table, FollowedTable(table.full_name, epochs[table.full_name])
    return found | {name: (stream.table, stream.followed) for name, stream in computed.items()}


def _followers(
    config: Config, context: PlanContext, state: State, logs: Mapping[str, tuple[Table, FollowedLog]]
) -> list[Action]:
    actions, write = [], context.write
    for name, follower in config.followers.items():
        if follower.view not in logs:
            continue
        table, log = logs[follower.view]
        wanted = define(config, name, table, log=log, number=next_number(state, name))
        before = newest(state, name)
        if before is not None and before.same_definition(wanted):
            continue
        what = f"generation {wanted.number} of the view {wanted.view} in {wanted.kind}"
        if before is not None:
            what += f", next to the live one, which it replaces when it is built: {', '.join(_changed(before, wanted))}"
        if before is None:
            facts = begin_first(state, name, wanted)
            actions.append(Action("create", f"follower {name}", what, together=write, part=facts))
        else:
            actions.append(Action("rebuild", f"follower {name}", what, do=bind(begin, context.control, name, wanted)))
    return actions


def _changed(old: Generation, new: Generation) -> Iterator[str]:
    """In what two generations differ, in words."""
    for what in ("view", "kind", "fields", "where", "sink"):
        if getattr(old, what) != getattr(new, what):
            yield f"its {'store' if what == 'sink' else what} changed"
    before, after = ({c.name: (c.type, c.array) for c in g.table.columns} for g in (old, new))
    retyped = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    if retyped:
        yield f"types of {', '.join(retyped)} changed"
    if (old.table.full_name, old.table.key) != (new.table.full_name, new.table.key):
        yield "its root or key changed"
    elif old.followed != new.followed:
        yield new.followed.renewal
