"""What following a generation needs, put together from the control topic and the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from driftless import names
from driftless.config.models import Config, milliseconds
from driftless.errors import ConfigError, SourceError
from driftless.facts.builds import build_of
from driftless.facts.column_history import known_since
from driftless.facts.epochs import TopicLog, registered_log
from driftless.facts.generation import Generation
from driftless.facts.state import State, history
from driftless.kafka.client import Kafka
from driftless.sink import SinkContext
from driftless.where.clause import parse as parse_where
from jobs.decode.documents import documents_sql, writes_sql
from jobs.decode.where_sql import log_filter
from jobs.follow.apply import SinkSpec
from jobs.spark.source import LogSource, kafka_options
from sinks import config_model


@dataclass(frozen=True)
class Job:
    """What to follow, into what. `retention`: seconds for which the log keeps deletes. `checked`: count when built;
    `countable`: that means anything, since no document expires.

    `history`: of the source, in which positions are claimed.
    """

    follower: str
    view: str
    generation: int
    log: TopicLog
    source: LogSource
    spec: SinkSpec
    retention: float
    checked: bool = False
    countable: bool = True
    history: int = 0


def make_job(config: Config, follower: str, generation: Generation, state: State, kafka: Kafka) -> Job:
    """Everything that following a generation needs, from the control topic and the configuration: no database."""
    entry = config.followers[follower]
    context = SinkContext(config.name, follower, generation.table.key)
    settings = generation.settings(entry)
    try:
        store = config_model(generation.kind).model_validate(settings)
        store.validate_for(context)
    except ValueError as exc:
        raise ConfigError(
            f"followers.{follower}.{generation.kind}: {exc}",
            hint="correct the follower in sync.yaml, then `driftless apply`",
        ) from None
    log, parse, shape, retention = (_of_view if generation.build else _of_table)(config, generation, state)
    options = kafka_options(kafka, follower)
    if "headers" in parse:
        options["includeHeaders"] = "true"
    source = LogSource(log.topic, options, tuple(parse), tuple(shape), log if generation.build else None, kafka)
    spec = SinkSpec(generation.kind, settings, context)
    countable = not store.expires
    checked = generation.number > 1 and countable
    return Job(
        follower,
        generation.view,
        generation.number,
        log,
        source,
        spec,
        retention,
        checked=checked,
        countable=countable,
        history=history(state),
    )


_Log = tuple[TopicLog, list[str], list[str], float]
"""A log, the two steps that make writes of it, and the seconds for which it keeps deletes."""


def _of_table(config: Config, generation: Generation, state: State) -> _Log:
    root = generation.table.full_name
    whole = registered_log(state, root)
    if whole is None:
        raise SourceError(f"the table {root} is not captured any more", hint="run `driftless plan`")
    log = whole.upto(generation.epoch)
    keep = None if generation.where is None else log_filter(parse_where(generation.where), generation.table)
    unavailable = names.unavailable(config.name)
    since = known_since(state, root, generation.epoch)
    since = {column.name: since[column.name] for column in generation.table.columns if column.name in since}
    parse, shape = writes_sql(generation.table, generation.fields, log, keep, unavailable=unavailable, since=since)
    captured = config.source.tables.get(root)
    return log, parse, shape, milliseconds(captured.retention if captured else "7d") / 1000


def _of_view(_: Config, generation: Generation, state: State) -> _Log:
    build = build_of(state, generation.view, generation.build)
    if build is None or build.log is None:
        raise SourceError(
            f"build {generation.build} of the view {generation.view} is not there any more",
            hint="`driftless rebuild` fills the follower from the newest build",
        )
    parse, shape = documents_sql(build.log)
    return build.log, parse, shape, build.retention / 1000
