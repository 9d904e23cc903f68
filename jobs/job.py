"""What following a generation needs, put together from the control topic and the configuration."""

from __future__ import annotations

from driftless import names
from driftless.config import Config, milliseconds
from driftless.control import State, history
from driftless.errors import ConfigError, SourceError
from driftless.generation import Generation
from driftless.kafka import Kafka
from driftless.registry import TopicLog, registered_log
from driftless.since import known_since
from driftless.sink import SinkContext
from driftless.views.build import build_of
from driftless.where import parse as parse_where
from jobs.apply import LogSource, SinkSpec, kafka_options
from jobs.decode import documents_sql, writes_sql
from jobs.standing import Job
from jobs.where import log_filter
from sinks import config_model


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
    source = LogSource(log.topic, options, tuple(parse), tuple(shape), log if generation.build else None)
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
