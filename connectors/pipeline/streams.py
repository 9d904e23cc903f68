"""Builds of streams: which are wanted, what must be true of the topics that they read, and beginning them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from connectors.pipeline.event_tables import captured_events, captured_versions, with_columns
from connectors.pipeline.plan_context import Action, PlanContext, bind
from driftless import names
from driftless.config.models import Config
from driftless.config.streams import EventsConfig
from driftless.errors import SourceError
from driftless.facts.epochs import another_topic, registered_log
from driftless.facts.event_source import EventSource
from driftless.facts.state import State
from driftless.facts.streams import (
    AnalysedStream,
    StreamBuild,
    newest_stream_build,
    stream_builds,
    stream_progress_key,
)
from driftless.kafka.client import Kafka
from driftless.table import Table

TIMESTAMPS, POLICY, RETENTION = "message.timestamp.type", "cleanup.policy", "retention.ms"


def topic_faults(config: Config, kafka: Kafka) -> Iterator[tuple[tuple[str, ...], str]]:
    """What is wrong with the topics of events: the place in the file, and what to do."""
    for name, events in config.events.items():
        if events.topic is None:
            continue
        at = ("events", name, "topic")
        if kafka.topic(events.topic) is None:
            yield at, f"Kafka has no topic {events.topic}: the application that writes the events makes it"
            continue
        settings = kafka.topic_settings(events.topic)
        yield from ((at, what) for what in _setting_faults(events.topic, events, settings))


def _setting_faults(topic: str, events: EventsConfig, settings: Mapping[str, str]) -> Iterator[str]:
    stamped = settings.get(TIMESTAMPS)
    if stamped != "LogAppendTime":
        yield (
            f"the topic {topic} has {TIMESTAMPS}={stamped}: what is late would be judged by clocks of the producers; "
            f"set it to LogAppendTime ({_setting(topic, f'{TIMESTAMPS}=LogAppendTime')})"
        )
    policy = settings.get(POLICY, "")
    if "compact" in policy:
        yield (
            f"the topic {topic} has {POLICY}={policy}: of events with the same key, Kafka would keep the newest alone; "
            f"set it to delete ({_setting(topic, f'{POLICY}=delete')})"
        )
    kept, wanted = int(settings.get(RETENTION, -1)), events.lateness_ms + events.correct_ms
    if events.correct_ms and "delete" in policy and 0 <= kept < wanted:
        yield (
            f"the topic {topic} keeps events for {RETENTION}={kept}, and late ones correct for {wanted} ms: set it to "
            f"more than that ({_setting(topic, f'{RETENTION}={2 * wanted}')})"
        )


def _setting(topic: str, setting: str) -> str:
    return f"`kafka-configs --alter --topic {topic} --add-config {setting}`"


def plan_streams(
    config: Config,
    context: PlanContext,
    tables: Mapping[str, Table],
    state: State,
    analysed: Mapping[str, AnalysedStream],
    epochs: Mapping[str, int],
) -> tuple[list[Action], dict[str, StreamBuild]]:
    """What is to be begun, and for each stream the build that its followers are to read. `epochs`: of each table, the
    one that is to be followed when all else is done.
    """
    config = with_columns(config, tables)
    actions, found = [], dict[str, StreamBuild]()
    for name, what in analysed.items():
        stream, before = config.streams[name], newest_stream_build(state, name)
        sources = (_source(config, context, each, tables, state, epochs, before) for each in what.events)
        events = dict(zip(what.events, sources, strict=True))
        versions = {
            table: _versions(config, table, what, tables, state, epochs, before)
            for table in sorted({lookup.table for lookup in what.lookups})
        }
        wanted = StreamBuild(
            name,
            1 if before is None else before.number + 1,
            config.sql_of(name),
            events,
            what.table,
            what.spark,
            stream.partitions or config.kafka.partitions,
            closes=what.closes,
            emit=stream.emit,
            ends=what.ends,
            join=what.join,
            reach=what.reach,
            patterns=what.patterns,
            approximate=what.approximate,
            lookups=what.lookups,
            tables=versions,
        )
        lost = "" if before is None else _why_lost(context.kafka, before, state, epochs)
        if before is not None and before.fingerprint == wanted.fingerprint and not lost:
            found[name] = before
            continue
        found[name] = wanted
        detail = f"build {wanted.number}, of {', '.join(sorted(wanted.sources))}"
        if before is not None:
            detail += f", since {lost}" if lost else ", next to the one that is there"
        verb = "create" if before is None else "rebuild"
        actions.append(Action(verb, f"stream {name}", detail, do=_begin(config, context, wanted)))
    return actions, found


def _why_lost(kafka: Kafka, build: StreamBuild, state: State, epochs: Mapping[str, int]) -> str:
    """Why a build cannot go on though nothing of it has changed; empty where it can."""
    another = "" if build.log is None else another_topic(kafka, build.log)
    if another:
        return f"its topic {another}"
    read = [s.captured.table for s in build.sources.values() if s.captured and not _stays(s, state, epochs)]
    return f"{min(read)} is re-snapshotted" if read else ""


def _source(
    config: Config,
    context: PlanContext,
    name: str,
    tables: Mapping[str, Table],
    state: State,
    epochs: Mapping[str, int],
    before: StreamBuild | None,
) -> EventSource:
    """Events from the first one that there is; where a build has them already, as it has them."""
    events = config.events[name]
    if events.captured is not None:
        table = tables[events.captured]
        log = names.table_topic(config.name, table.full_name)
        rows = captured_events(events, table, _first_epoch(table.full_name, state, epochs))
        wanted = EventSource.of_table(events, log, events.columns, rows)
    else:
        topic = context.kafka.topic(str(events.topic))
        if topic is None:
            raise SourceError(
                f"Kafka has no topic {events.topic}", hint="the application that writes the events makes it"
            )
        wanted = EventSource.of(events, topic, context.kafka.beginnings(topic.name, topic.partitions))
    return _as_before(wanted, before.events.get(name) if before is not None else None, state, epochs)


def _versions(
    config: Config,
    table: str,
    what: AnalysedStream,
    tables: Mapping[str, Table],
    state: State,
    epochs: Mapping[str, int],
    before: StreamBuild | None,
) -> EventSource:
    """The versions of a table's rows; where a build has them already, as it has them."""
    lookups = [lookup for lookup in what.lookups if lookup.table == table]
    log, epoch = names.table_topic(config.name, table), _first_epoch(table, state, epochs)
    wanted = captured_versions(lookups, tables[table], log, epoch)
    return _as_before(wanted, before.tables.get(table) if before is not None else None, state, epochs)


def _as_before(wanted: EventSource, known: EventSource | None, state: State, epochs: Mapping[str, int]) -> EventSource:
    stays = known is not None and known.definition == wanted.definition and _stays(known, state, epochs)
    return known if known is not None and stays else wanted


def _stays(source: EventSource, state: State, epochs: Mapping[str, int]) -> bool:
    """Whether a build may go on with it: no snapshot of its table is newer than the one that it began with."""
    if source.captured is None:
        return True
    table, epoch = source.captured.table, source.captured.epoch
    log = registered_log(state, table)
    same = not source.is_placed or (log is not None and log.topic_id == source.topic_id)
    return same and epoch >= _first_epoch(table, state, epochs)


def _first_epoch(table: str, state: State, epochs: Mapping[str, int]) -> int:
    """The one that begins with the newest snapshot of a table, which may be still to be taken."""
    log, planned = registered_log(state, table), epochs[table]
    return log.newest_snapshot.number if log is not None and planned <= log.newest.number else planned


def _begin(config: Config, context: PlanContext, wanted: StreamBuild) -> Callable[[], None]:
    def begin() -> None:
        build = wanted.from_first_events(context.kafka).with_topics(context.kafka, config.name)
        context.control.write({build.key: build.to_json()})

    return begin


def plan_streams_removal(config: Config, context: PlanContext, state: State, existing: set[str]) -> list[Action]:
    """Forget streams that were taken out of the configuration, with their topics."""
    actions = []
    for name in sorted({key.rpartition("/")[0] for key in state.by_prefix("stream")} - config.streams.keys()):
        found = stream_builds(state, name)
        topics = [topic for n in found for topic in names.stream_topics(config.name, name, n)]
        for topic in topics:
            if topic in existing:
                actions.append(Action("drop", f"topic {topic}", do=bind(context.kafka.delete, topic)))
        gone = [key for n, build in found.items() for key in (build.key, stream_progress_key(name, n))]
        actions.append(Action("forget", f"stream {name}", do=bind(context.control.write, dict.fromkeys(gone))))
    return actions
